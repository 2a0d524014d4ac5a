//! Checkpoints of processes, and the profiler.

pub(crate) mod coredump;
pub(crate) mod logs;

use crate::api::prelude::*;
use cuda_sys::{
    CUcheckpointCheckpointArgs, CUcheckpointLockArgs, CUcheckpointRestoreArgs,
    CUcheckpointUnlockArgs, CUprocessState as State,
};

const RUNNING: State = State::CU_PROCESS_STATE_RUNNING;
const LOCKED: State = State::CU_PROCESS_STATE_LOCKED;
const CHECKPOINTED: State = State::CU_PROCESS_STATE_CHECKPOINTED;

pub(crate) fn state(world: &mut World, pid: c_int) -> Answer<State> {
    world.settings.processes.state(pid, world.settings.initialised)
}

/// The restore thread is one that the driver starts. This driver returns the number of the process.
pub(crate) fn restore_thread(world: &mut World, pid: c_int) -> Answer<c_int> {
    world.settings.processes.state(pid, world.settings.initialised)?;
    Ok(pid)
}

pub(crate) fn lock(
    world: &mut World,
    pid: c_int,
    options: &mut Option<&mut CUcheckpointLockArgs>,
) -> Answer {
    let has_timeout = options.as_deref().is_some_and(|its| its.timeoutMs != 0);
    let initialised = world.settings.initialised;
    world.settings.processes.change(pid, initialised, (RUNNING, LOCKED), |its| {
        fail_if(its.is_busy && has_timeout, CUresult::CUDA_ERROR_NOT_READY)?;
        Ok(())
    })
}

pub(crate) fn checkpoint(
    world: &mut World,
    pid: c_int,
    _options: &mut Option<&mut CUcheckpointCheckpointArgs>,
) -> Answer {
    let initialised = world.settings.initialised;
    let change = (LOCKED, CHECKPOINTED);
    world.settings.processes.change(pid, initialised, change, |its| {
        fail_if(its.has_managed_memory, CUresult::CUDA_ERROR_NOT_SUPPORTED)?;
        Ok(())
    })
}

pub(crate) fn restore(
    world: &mut World,
    pid: c_int,
    options: &mut Option<&mut CUcheckpointRestoreArgs>,
) -> Answer {
    // Unverified: the code for a list without a pointer.
    let is_torn = |its: &CUcheckpointRestoreArgs| its.gpuPairsCount != 0 && its.gpuPairs.is_null();
    fail_if(options.as_deref().is_some_and(is_torn), INVALID)?;
    let initialised = world.settings.initialised;
    let change = (CHECKPOINTED, LOCKED);
    world.settings.processes.change(pid, initialised, change, |its| {
        fail_if(its.has_imports, CUresult::CUDA_ERROR_NOT_SUPPORTED)?;
        Ok(())
    })
}

pub(crate) fn unlock(
    world: &mut World,
    pid: c_int,
    _options: &mut Option<&mut CUcheckpointUnlockArgs>,
) -> Answer {
    let initialised = world.settings.initialised;
    world.settings.processes.change(pid, initialised, (LOCKED, RUNNING), |_| Ok(()))
}

/// Unverified (from documentation): the profiler needs a current context.
pub(crate) fn profile(world: &mut World) -> Answer {
    world.current().map(|_| ())
}
