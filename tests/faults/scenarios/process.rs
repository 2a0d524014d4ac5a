//! Logs, core dumps, checkpoints of processes, and profiler ranges.

use super::{answer, expect, if_there_is, primary};
use crate::trace::Trace;
use cuda_safe::context::RdmaScope;
use cuda_safe::process::checkpoint::{
    CheckpointedProcess, LockedProcess, ProcessState, RunningProcess, restore_thread_of,
};
use cuda_safe::process::coredump::{CoredumpSettings, DumpCallback, DumpFlags};
use cuda_safe::process::logs::{LogCallback, LogPosition, entries};
use cuda_safe::{CUresult, Device, Result};
use cuda_sim::CudaProcess;
use std::time::Duration;

pub(super) fn logs(trace: &mut Trace) -> Result<()> {
    let context = primary()?;
    let mut position = LogPosition::end()?;
    let callback = LogCallback::new(|_, _| {})?;
    expect(
        Device::by_pci_bus_id("no bus"),
        answer("cuDeviceGetByPCIBusId", CUresult::CUDA_ERROR_INVALID_VALUE),
    )?;
    position.read()?;
    entries()?;
    trace.drops_from_here()?;
    drop((callback, context));
    Ok(())
}

pub(super) fn dumps(trace: &mut Trace) -> Result<()> {
    let context = primary()?;
    let settings = CoredumpSettings {
        on_exception: Some(true),
        file: Some("core.cuda".into()),
        ..Default::default()
    };
    let guard = settings.apply()?;
    CoredumpSettings::of_process()?;
    guard.end()?;
    let settings = CoredumpSettings { flags: Some(DumpFlags::LIGHTWEIGHT), ..settings };
    context.coredump_settings()?;
    context.apply_coredump_settings(&settings)?.end()?;
    if_there_is(DumpCallback::on_start(|_| {}))?;
    if_there_is(DumpCallback::on_complete(|_| {}))?;
    trace.drops_from_here()
}

pub(super) fn checkpoints(trace: &mut Trace) -> Result<()> {
    const OTHER: u32 = 1;
    cuda_safe::init()?;
    cuda_sim::add_process(OTHER, CudaProcess::default());
    restore_thread_of(OTHER)?;
    let locked = RunningProcess::of(OTHER)?.lock(Some(Duration::from_secs(1)))?;
    drop(LockedProcess::of(locked.keep_locked())?.checkpoint()?);
    let locked = CheckpointedProcess::of(OTHER)?.restore()?;
    let running = locked.unlock()?;
    let locked = running.lock(None)?;
    ProcessState::of(OTHER)?;
    trace.drop(locked);
    trace.drops_from_here()
}

pub(super) fn profiler(trace: &mut Trace) -> Result<()> {
    let context = primary()?;
    let range = context.profiler_range()?;
    context.synchronize()?;
    range.end()?;
    context.flush_gpu_direct_rdma_writes(RdmaScope::Owner)?;
    trace.drops_from_here()
}
