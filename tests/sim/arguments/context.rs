//! Contexts: limits, flags, settings and initialization.

use super::{Act, On, Row, Stage, field, value};
use crate::prelude::*;
use core::ffi::c_uint;
use cuda_safe::context::{CachePreference, GraphicsClient, Limit};

const LIMITS: [(&str, Limit, CUlimit); 11] = [
    ("STACK_SIZE", Limit::StackSize, CUlimit::CU_LIMIT_STACK_SIZE),
    ("PRINTF_FIFO_SIZE", Limit::PrintfFifoSize, CUlimit::CU_LIMIT_PRINTF_FIFO_SIZE),
    ("MALLOC_HEAP_SIZE", Limit::MallocHeapSize, CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE),
    (
        "DEV_RUNTIME_SYNC_DEPTH",
        Limit::DeviceRuntimeSyncDepth,
        CUlimit::CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH,
    ),
    (
        "DEV_RUNTIME_PENDING_LAUNCH_COUNT",
        Limit::DeviceRuntimePendingLaunches,
        CUlimit::CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT,
    ),
    (
        "MAX_L2_FETCH_GRANULARITY",
        Limit::MaxL2FetchGranularity,
        CUlimit::CU_LIMIT_MAX_L2_FETCH_GRANULARITY,
    ),
    (
        "PERSISTING_L2_CACHE_SIZE",
        Limit::PersistingL2CacheSize,
        CUlimit::CU_LIMIT_PERSISTING_L2_CACHE_SIZE,
    ),
    ("SHMEM_SIZE", Limit::SharedMemorySize, CUlimit::CU_LIMIT_SHMEM_SIZE),
    ("CIG_ENABLED", Limit::CigEnabled, CUlimit::CU_LIMIT_CIG_ENABLED),
    (
        "CIG_SHMEM_FALLBACK_ENABLED",
        Limit::CigSharedMemoryFallback,
        CUlimit::CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED,
    ),
    ("PER_BLOCK_MEMORY_SIZE", Limit::PerBlockMemorySize, CUlimit::CU_LIMIT_PER_BLOCK_MEMORY_SIZE),
];

fn limits() -> impl Iterator<Item = Row> {
    LIMITS.into_iter().flat_map(|(name, limit, raw)| {
        let name = format!("CUlimit::CU_LIMIT_{name}");
        let get = move |s: &Stage| s.context.limit(limit).map(drop);
        let set = move |s: &Stage| s.context.set_limit(limit, 64);
        let get = Row::new(&name, get, "cuCtxGetLimit", value("limit"), raw);
        let set = Row::new(&name, set, "cuCtxSetLimit", value("limit"), raw);
        let is_depth = raw == CUlimit::CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH;
        // This limit does not exist since compute capability 9.0.
        let get = if is_depth { get.refused() } else { get };
        // These limits are read-only.
        let is_fixed = [
            CUlimit::CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH,
            CUlimit::CU_LIMIT_SHMEM_SIZE,
            CUlimit::CU_LIMIT_CIG_ENABLED,
        ];
        let set = match is_fixed.contains(&raw) {
            true => set.refused(),
            false => set,
        };
        [get, set]
    })
}

const FLAGS: [(&str, ContextFlags, c_uint); 8] = [
    ("SCHED_SPIN", ContextFlags::SCHED_SPIN, 1),
    ("SCHED_YIELD", ContextFlags::SCHED_YIELD, 2),
    ("SCHED_BLOCKING_SYNC", ContextFlags::SCHED_BLOCKING_SYNC, 4),
    ("MAP_HOST", ContextFlags::MAP_HOST, 8),
    ("LMEM_RESIZE_TO_MAX", ContextFlags::LMEM_RESIZE_TO_MAX, 16),
    ("COREDUMP_ENABLE", ContextFlags::COREDUMP_ENABLE, 32),
    ("USER_COREDUMP_ENABLE", ContextFlags::USER_COREDUMP_ENABLE, 64),
    ("SYNC_MEMOPS", ContextFlags::SYNC_MEMOPS, 128),
];

fn flags() -> impl Iterator<Item = Row> {
    FLAGS.into_iter().flat_map(|(name, flags, raw)| {
        let name = format!("CUctx_flags::CU_CTX_{name}");
        let create = move |s: &Stage| Context::new(&s.device, flags).map(drop);
        let with_affinity = move |s: &Stage| Context::with_affinity(&s.device, flags, 8).map(drop);
        let set = move |s: &Stage| s.context.set_flags(flags);
        let set_primary = move |s: &Stage| s.device.set_primary_flags(flags);
        let row = |act: Act, function| Row::new(&name, act, function, value("flags"), raw);
        let on_oldest = row(Box::new(create), "cuCtxCreate_v2").on(On::Oldest);
        // The last three are newer than the oldest driver.
        let on_oldest = match raw >= 32 {
            true => on_oldest.refused(),
            false => on_oldest,
        };
        [
            row(Box::new(create), "cuCtxCreate_v4"),
            row(Box::new(with_affinity), "cuCtxCreate_v4").refused(),
            on_oldest,
            row(Box::new(with_affinity), "cuCtxCreate_v3").on(On::Oldest).refused(),
            row(Box::new(set), "cuCtxSetFlags"),
            row(Box::new(set_primary), "cuDevicePrimaryCtxSetFlags_v2"),
        ]
    })
}

fn cache() -> impl Iterator<Item = Row> {
    [
        ("NONE", CachePreference::None, CUfunc_cache::CU_FUNC_CACHE_PREFER_NONE),
        ("SHARED", CachePreference::Shared, CUfunc_cache::CU_FUNC_CACHE_PREFER_SHARED),
        ("L1", CachePreference::L1, CUfunc_cache::CU_FUNC_CACHE_PREFER_L1),
        ("EQUAL", CachePreference::Equal, CUfunc_cache::CU_FUNC_CACHE_PREFER_EQUAL),
    ]
    .into_iter()
    .flat_map(|(name, preference, raw)| {
        let name = format!("CUfunc_cache::CU_FUNC_CACHE_PREFER_{name}");
        let context = move |s: &Stage| s.context.set_cache_preference(preference);
        let kernel = move |s: &Stage| s.kernel.set_cache_preference(preference);
        let found = || value("preference");
        [
            Row::new(&name, context, "cuCtxSetCacheConfig", found(), raw),
            Row::new(&name, kernel, "cuFuncSetCacheConfig", found(), raw),
        ]
    })
}

/// A context for a client of MPS. This process is not one.
fn with_affinity(s: &Stage) -> Result<()> {
    Context::with_affinity(&s.device, ContextFlags::empty(), 24).map(drop)
}

fn affinity() -> Vec<Row> {
    let function = "cuCtxCreate_v4";
    let kind = CUexecAffinityType::CU_EXEC_AFFINITY_TYPE_SM_COUNT;
    let kind_name = "CUexecAffinityType::CU_EXEC_AFFINITY_TYPE_SM_COUNT";
    let sm_count = |params: &CUexecAffinityParam| {
        // SAFETY: the field is a number, for which any bits are valid.
        unsafe { params.param.smCount }.val
    };
    let its_kind = |params: &CUexecAffinityParam| params.type_;
    let count = |params: &CUctxCreateParams| params.numExecAffinityParams;
    let count_row = "CUctxCreateParams::numExecAffinityParams";
    let params = "CUctxCreateParams::execAffinityParams";
    let val = "CUexecAffinitySmCount::val";
    let list = "params.execAffinityParams";
    vec![
        Row::new(params, with_affinity, function, field(list, sm_count), 24).refused(),
        Row::new(val, with_affinity, function, field(list, sm_count), 24).refused(),
        Row::new(kind_name, with_affinity, function, field(list, its_kind), kind).refused(),
        Row::new(count_row, with_affinity, function, field("params", count), 1).refused(),
        Row::new(val, with_affinity, "cuCtxCreate_v3", field("params", sm_count), 24)
            .on(On::Oldest)
            .refused(),
        Row::new(count_row, with_affinity, "cuCtxCreate_v3", value::<c_int>("count"), 1)
            .on(On::Oldest)
            .refused(),
        Row::of(kind_name, |s| s.context.execution_affinity())
            .calls("cuCtxGetExecAffinity")
            .with(value("kind"), kind),
        Row::of(kind_name, |s| s.device.supports_execution_affinity())
            .calls("cuDeviceGetExecAffinitySupport")
            .with(value("kind"), kind),
    ]
}

const CLIENT: usize = 0x1000;

fn for_graphics(s: &Stage, client: fn(*mut c_void) -> GraphicsClient) -> Result<()> {
    let client = client(without_provenance_mut(CLIENT));
    // SAFETY: the software driver has no graphics clients and refuses every call.
    unsafe { Context::with_graphics_client(&s.device, ContextFlags::empty(), client) }.map(drop)
}

fn graphics() -> Vec<Row> {
    let queue = |s: &Stage| for_graphics(s, GraphicsClient::D3d12CommandQueue);
    let blob = |s: &Stage| for_graphics(s, GraphicsClient::NvBlob);
    let kind = || field("params.cigParams", |its: &CUctxCigParam| its.sharedDataType);
    let data = |its: &CUctxCigParam| its.sharedData.addr();
    let d3d12 = CUcigDataType::CIG_DATA_TYPE_D3D12_COMMAND_QUEUE;
    let nv_blob = CUcigDataType::CIG_DATA_TYPE_NV_BLOB;
    let function = "cuCtxCreate_v4";
    let name = "CUcigDataType::CIG_DATA_TYPE_D3D12_COMMAND_QUEUE";
    let blob_name = "CUcigDataType::CIG_DATA_TYPE_NV_BLOB";
    let found = || field("params.cigParams", data);
    vec![
        Row::new(name, queue, function, kind(), d3d12).refused(),
        Row::new(blob_name, blob, function, kind(), nv_blob).refused(),
        Row::new("CUctxCigParam::sharedDataType", blob, function, kind(), nv_blob).refused(),
        Row::new("CUctxCigParam::sharedData", queue, function, found(), CLIENT).refused(),
        Row::new("CUctxCreateParams::cigParams", blob, function, found(), CLIENT).refused(),
    ]
}

fn calls() -> Vec<Row> {
    vec![
        Row::at_start("cuInit", value("flags"), 0_u32),
        Row::at_start("cuDriverGetVersion", |_| Some(()), ()),
        Row::at_start("cuCtxGetId", |_| Some(()), ()),
        Row::call("cuCtxGetDevice_v2", |s| {
            // SAFETY: the context outlives the borrowed context.
            unsafe { Context::borrow_raw(s.context.as_raw()) }
        }),
        Row::call("cuCtxGetApiVersion", |s| s.context.api_version()),
        Row::call("cuCtxGetCacheConfig", |s| s.context.cache_preference()),
        Row::call("cuCtxGetFlags", |s| s.context.flags()),
        Row::call("cuCtxGetStreamPriorityRange", |s| s.context.stream_priorities()),
        Row::call("cuCtxResetPersistingL2Cache", |s| s.context.reset_persisting_l2()),
        Row::call("cuCtxSynchronize", |s| s.context.synchronize()).on(On::Oldest),
        Row::call("cuCtxSynchronize_v2", |s| s.context.synchronize()),
        Row::call("cuCtxGetCurrent", |s| s.context.with_current(|_| ())),
        Row::call("cuCtxPushCurrent_v2", |s| s.context.with_current(|_| ())),
        Row::call("cuCtxPopCurrent_v2", |s| s.context.with_current(|_| ())),
        Row::call("cuCtxSetCurrent", |s| {
            // The thread of the test must have no context when it ends its guards.
            std::thread::scope(|scope| {
                let bound = scope.spawn(|| s.context.bind_to_thread());
                bound.join().expect("no panic")
            })
        }),
        Row::call("cuCtxDestroy_v2", |s| Context::new(&s.device, ContextFlags::empty())),
        Row::call("cuDevicePrimaryCtxGetState", |s| s.device.primary_state()),
        Row::call("cuDevicePrimaryCtxRetain", |s| Context::primary(&s.peer)),
        Row::call("cuDevicePrimaryCtxRelease_v2", |s| Context::primary(&s.peer)),
        Row::call("cuDevicePrimaryCtxReset_v2", |s| {
            // SAFETY: nothing is created in the primary context of this device.
            unsafe { s.peer.reset_primary() }
        }),
        Row::call("cuMemGetInfo_v2", |s| s.context.memory_info()),
        Row::call("cuCtxRecordEvent", |s| s.context.record_event(&s.context.event()?)),
        Row::call("cuCtxWaitEvent", |s| s.context.wait_event(&s.context.event()?)),
    ]
}

pub(super) fn rows() -> Vec<Row> {
    let value = Row::of("cuCtxSetLimit.value", |s| s.context.set_limit(Limit::StackSize, 4096))
        .calls("cuCtxSetLimit")
        .with(value("value"), 4096_usize);
    limits()
        .chain(flags())
        .chain(cache())
        .chain(affinity())
        .chain(graphics())
        .chain(calls())
        .chain([value])
        .collect()
}
