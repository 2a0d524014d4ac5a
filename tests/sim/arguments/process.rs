//! Logs, core dumps, checkpoints of processes, and the profiler.

use super::{Row, Stage, array, field, value};
use crate::prelude::*;
use cuda_safe::context::RdmaScope;
use cuda_safe::process::checkpoint::{
    CheckpointedProcess, GpuPair, LockedProcess, ProcessState, RunningProcess, restore_thread_of,
};
use cuda_safe::process::coredump::{CoredumpSettings, DumpFlags};
use cuda_safe::process::logs::{LogPosition, entries};
use cuda_safe::sys::{
    CUflushGPUDirectRDMAWritesScope as Scope, CUflushGPUDirectRDMAWritesTarget as Target,
};
use cuda_sim::CudaProcess;

/// The text that ends a path, for `CU_COREDUMP_FILE` and `CU_COREDUMP_PIPE`.
const PATH: &str = "/tmp/cuda-tests-path";

fn logs() -> Vec<Row> {
    vec![
        Row::call("cuLogsRegisterCallback", |_| LogCallback::new(|_, _| {}).map(drop)),
        Row::call("cuLogsUnregisterCallback", |_| LogCallback::new(|_, _| {}).map(drop)),
        Row::of("cuLogsCurrent", |_| LogPosition::end())
            .calls("cuLogsCurrent")
            .with(value("flags"), 0_u32),
        Row::call("cuLogsDumpToMemory", |_| entries()),
        Row::of("cuLogsDumpToFile", |_| {
            let path = std::env::temp_dir().join(format!("cuda-log-{}", std::process::id()));
            let done = LogPosition::end()?.write_to_file(&path);
            let _ = std::fs::remove_file(path);
            done
        })
        .calls("cuLogsDumpToFile")
        .with(|call| call.values::<CUlogIterator>("iterator").map(<[_]>::len), 1),
    ]
}

/// A row that changes one setting of the process.
fn setting(
    name: &str,
    settings: CoredumpSettings,
    attribute: CUcoredumpSettings,
    bytes: Vec<u8>,
) -> Row {
    Row::of(name, move |_| settings.apply()?.end()).calls("cuCoredumpSetAttributeGlobal").with(
        move |call| {
            let found = value::<CUcoredumpSettings>("attribute")(call)?;
            (found == attribute).then(|| array::<u8>("value")(call))?
        },
        bytes,
    )
}

fn dumps() -> Vec<Row> {
    let path = || [PATH.as_bytes(), &[0]].concat();
    let on = || vec![1];
    let mut rows = vec![
        setting(
            "CUcoredumpSettings::CU_COREDUMP_ENABLE_ON_EXCEPTION",
            CoredumpSettings { on_exception: Some(true), ..Default::default() },
            CUcoredumpSettings::CU_COREDUMP_ENABLE_ON_EXCEPTION,
            on(),
        ),
        setting(
            "CUcoredumpSettings::CU_COREDUMP_ENABLE_USER_TRIGGER",
            CoredumpSettings { user_trigger: Some(true), ..Default::default() },
            CUcoredumpSettings::CU_COREDUMP_ENABLE_USER_TRIGGER,
            on(),
        ),
        setting(
            "CUcoredumpSettings::CU_COREDUMP_FILE",
            CoredumpSettings { file: Some(PATH.into()), ..Default::default() },
            CUcoredumpSettings::CU_COREDUMP_FILE,
            path(),
        ),
        setting(
            "CUcoredumpSettings::CU_COREDUMP_PIPE",
            CoredumpSettings { pipe: Some(PATH.into()), ..Default::default() },
            CUcoredumpSettings::CU_COREDUMP_PIPE,
            path(),
        ),
        Row::call("cuCoredumpGetAttributeGlobal", |_| CoredumpSettings::of_process()),
        Row::call("cuCoredumpGetAttribute", |s| s.context.coredump_settings()),
        Row::of("cuCoredumpSetAttribute", |s| {
            let settings = CoredumpSettings { on_exception: Some(true), ..Default::default() };
            s.context.apply_coredump_settings(&settings)?.end()
        })
        .calls("cuCoredumpSetAttribute")
        .with(array::<u8>("value"), on()),
    ];
    let flags = [
        ("SKIP_NONRELOCATED_ELF_IMAGES", DumpFlags::SKIP_NONRELOCATED_ELF_IMAGES, 1 << 0),
        ("SKIP_GLOBAL_MEMORY", DumpFlags::SKIP_GLOBAL_MEMORY, 1 << 1),
        ("SKIP_SHARED_MEMORY", DumpFlags::SKIP_SHARED_MEMORY, 1 << 2),
        ("SKIP_LOCAL_MEMORY", DumpFlags::SKIP_LOCAL_MEMORY, 1 << 3),
        ("SKIP_ABORT", DumpFlags::SKIP_ABORT, 1 << 4),
        ("SKIP_CONSTBANK_MEMORY", DumpFlags::SKIP_CONSTBANK_MEMORY, 1 << 5),
        ("GZIP_COMPRESS", DumpFlags::GZIP_COMPRESS, 1 << 6),
        ("FAULTED_CONTEXTS_ONLY", DumpFlags::FAULTED_CONTEXTS_ONLY, 1 << 7),
        ("SKIP_TENSOR_MEMORY", DumpFlags::SKIP_TENSOR_MEMORY, 1 << 8),
        ("NO_ERRBAR_AT_EXIT", DumpFlags::NO_ERRBAR_AT_EXIT, 1 << 30),
        ("LOG_ONLY", DumpFlags::LOG_ONLY, 1 << 31),
        ("LIGHTWEIGHT_FLAGS", DumpFlags::LIGHTWEIGHT, 0x12f),
    ];
    for (name, flag, raw) in flags {
        let settings = CoredumpSettings { flags: Some(flag), ..Default::default() };
        let attribute = CUcoredumpSettings::CU_COREDUMP_GENERATION_FLAGS;
        let bytes = u32::to_ne_bytes(raw).to_vec();
        let name = format!("CUCoredumpGenerationFlags::CU_COREDUMP_{name}");
        rows.push(setting(&name, settings.clone(), attribute, bytes.clone()));
        if raw == 1 {
            let name = "CUcoredumpSettings::CU_COREDUMP_GENERATION_FLAGS";
            rows.push(setting(name, settings, attribute, bytes));
        }
    }
    for function in ["cuCoredumpRegisterStartCallback", "cuCoredumpDeregisterStartCallback"] {
        rows.push(Row::call(function, |_| DumpCallback::on_start(|_| {}).map(drop)));
    }
    for function in ["cuCoredumpRegisterCompleteCallback", "cuCoredumpDeregisterCompleteCallback"] {
        rows.push(Row::call(function, |_| DumpCallback::on_complete(|_| {}).map(drop)));
    }
    rows
}

/// The id of init, which the software driver takes for a process that uses CUDA after it was added.
const PID: u32 = 1;

/// Returns the process in its first state.
fn process() -> Result<RunningProcess> {
    cuda_sim::add_process(PID, CudaProcess::default());
    RunningProcess::of(PID)
}

fn locked(_: &Stage) -> Result<LockedProcess> {
    process()?.lock(Some(Duration::from_micros(1500)))
}

fn restored(stage: &Stage) -> Result<()> {
    let own = stage.device.uuid()?;
    let pair = GpuPair { old: own, new: stage.peer.uuid()? };
    let checkpointed = locked(stage)?.checkpoint()?;
    Ok(checkpointed.try_restore_on(&[pair]).map(drop)?)
}

fn checkpoints() -> Vec<Row> {
    let state = |name: &str, act: fn(&Stage) -> Result<()>| {
        Row::new(name, act, "cuCheckpointProcessGetState", value("pid"), 1)
    };
    let pair = |find: fn(&CUcheckpointGpuPair) -> u8| field("options.gpuPairs", find);
    let restore = "cuCheckpointProcessRestore";
    vec![
        state("cuCheckpointProcessGetState", |_| {
            process().and_then(|its| ProcessState::of(its.pid()).map(drop))
        }),
        Row::of("cuCheckpointProcessGetRestoreThreadId", |_| {
            process().and_then(|its| restore_thread_of(its.pid()).map(drop))
        })
        .calls("cuCheckpointProcessGetRestoreThreadId")
        .with(value("pid"), 1),
        Row::of("CUcheckpointLockArgs::timeoutMs", locked)
            .calls("cuCheckpointProcessLock")
            .with(field("options", |its: &CUcheckpointLockArgs| its.timeoutMs), 2),
        Row::of("cuCheckpointProcessCheckpoint", |s| {
            let checkpointed = locked(s)?.checkpoint()?;
            CheckpointedProcess::of(checkpointed.pid())
        })
        .calls("cuCheckpointProcessCheckpoint")
        .with(value::<c_int>("pid"), 1),
        Row::of("CUcheckpointRestoreArgs::gpuPairs", restored)
            .calls(restore)
            .with(field("options", |its: &CUcheckpointRestoreArgs| !its.gpuPairs.is_null()), true),
        Row::of("CUcheckpointRestoreArgs::gpuPairsCount", restored)
            .calls(restore)
            .with(field("options", |its: &CUcheckpointRestoreArgs| its.gpuPairsCount), 1),
        Row::of("CUcheckpointGpuPair::oldUuid", restored)
            .calls(restore)
            .with(pair(|its| its.oldUuid.bytes[15] as u8), 0),
        Row::of("CUcheckpointGpuPair::newUuid", restored)
            .calls(restore)
            .with(pair(|its| its.newUuid.bytes[15] as u8), 1),
        Row::of("cuCheckpointProcessUnlock", |s| locked(s)?.unlock())
            .calls("cuCheckpointProcessUnlock")
            .with(value::<c_int>("pid"), 1),
    ]
}

fn others() -> Vec<Row> {
    let flush = |name: &str, scope, raw: Scope| {
        Row::of(name, move |s: &Stage| s.context.flush_gpu_direct_rdma_writes(scope))
            .calls("cuFlushGPUDirectRDMAWrites")
            .with(value("scope"), raw)
    };
    vec![
        flush(
            "CUflushGPUDirectRDMAWritesScope::CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER",
            RdmaScope::Owner,
            Scope::CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER,
        ),
        flush(
            "CUflushGPUDirectRDMAWritesScope::CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES",
            RdmaScope::AllDevices,
            Scope::CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES,
        ),
        Row::of(
            "CUflushGPUDirectRDMAWritesTarget::CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX",
            |s: &Stage| s.context.flush_gpu_direct_rdma_writes(RdmaScope::Owner),
        )
        .calls("cuFlushGPUDirectRDMAWrites")
        .with(value("target"), Target::CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX),
        Row::call("cuDeviceGetLuid", |s| s.device.luid()).refused(),
        Row::call("cuProfilerStart", |s| s.context.profiler_range()?.end()),
        Row::call("cuProfilerStop", |s| s.context.profiler_range()?.end()),
    ]
}

pub(super) fn rows() -> Vec<Row> {
    let all = [logs(), dumps(), checkpoints(), others()];
    all.into_iter().flatten().collect()
}
