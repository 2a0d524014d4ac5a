use crate::call::raw::succeeds;
use crate::common;
use crate::module::kernels::{Busy, Scale};
use cuda_safe::context::{CachePreference, Limit};
use cuda_safe::sys::{
    CUctx_flags, CUfunc_cache, CUlimit, cuCtxGetApiVersion, cuCtxGetCacheConfig, cuCtxGetFlags,
    cuCtxGetLimit, cuDevicePrimaryCtxGetState, cuMemAlloc_v2,
};
use cuda_safe::{CUresult, Context, ContextFlags, Device, DeviceBuffer, Error, Invalid};

/// Creates a context for this test only, so that its settings affect nothing else.
fn own() -> Option<Context> {
    let device = common::gpu()?;
    Some(Context::new(&device, ContextFlags::SCHED_YIELD).expect("a context"))
}

#[test]
fn limits_are_read_and_set() {
    let context = or_skip!(own());
    let before = context.limit(Limit::StackSize).expect("every context has one");
    assert!(before > 0);
    context.set_limit(Limit::StackSize, 2 * before).expect("twice as much");
    assert!(context.limit(Limit::StackSize).expect("known") >= 2 * before);
    context.set_limit(Limit::MallocHeapSize, 16 << 20).expect("before any launch");
    assert!(context.limit(Limit::MallocHeapSize).expect("known") >= 16 << 20);
    assert!(context.limit(Limit::PrintfFifoSize).expect("known") > 0);
}

/// Each limit, its name in C, and a value that differs from the default.
const LIMITS: [(Limit, CUlimit, usize); 11] = [
    (Limit::StackSize, CUlimit::CU_LIMIT_STACK_SIZE, 4096),
    (Limit::PrintfFifoSize, CUlimit::CU_LIMIT_PRINTF_FIFO_SIZE, 3 << 20),
    (Limit::MallocHeapSize, CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE, 20 << 20),
    (Limit::DeviceRuntimeSyncDepth, CUlimit::CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH, 4),
    (Limit::DeviceRuntimePendingLaunches, CUlimit::CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, 4096),
    (Limit::MaxL2FetchGranularity, CUlimit::CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 32),
    (Limit::PersistingL2CacheSize, CUlimit::CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 1 << 20),
    (Limit::SharedMemorySize, CUlimit::CU_LIMIT_SHMEM_SIZE, 1024),
    (Limit::CigEnabled, CUlimit::CU_LIMIT_CIG_ENABLED, 1),
    (Limit::CigSharedMemoryFallback, CUlimit::CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED, 1),
    (Limit::PerBlockMemorySize, CUlimit::CU_LIMIT_PER_BLOCK_MEMORY_SIZE, 1 << 16),
];

/// Returns the values of all limits as raw numbers, with `None` for those that the driver does not
/// report.
fn limits(context: &Context) -> [Option<usize>; 11] {
    let read = context.with_current(|_| {
        LIMITS.map(|(_, limit, _)| {
            let mut value = 0;
            // SAFETY: the pointer refers to a local variable.
            let code = unsafe { cuCtxGetLimit(&raw mut value, limit) };
            code.is_success().then_some(value)
        })
    });
    read.expect("a guard")
}

/// Sets and reads the stack, printf buffer, heap and pending launch limits, which every driver and
/// device has.
const EVERYWHERE: [usize; 4] = [0, 1, 2, 4];

#[test]
fn each_cache_preference_is_set_and_read() {
    const EACH: [(CachePreference, CUfunc_cache); 4] = [
        (CachePreference::Shared, CUfunc_cache::CU_FUNC_CACHE_PREFER_SHARED),
        (CachePreference::L1, CUfunc_cache::CU_FUNC_CACHE_PREFER_L1),
        (CachePreference::Equal, CUfunc_cache::CU_FUNC_CACHE_PREFER_EQUAL),
        (CachePreference::None, CUfunc_cache::CU_FUNC_CACHE_PREFER_NONE),
    ];
    let context = or_skip!(own());
    assert_eq!(context.cache_preference().expect("known"), CachePreference::None);
    for (preference, expected) in EACH {
        context.set_cache_preference(preference).expect("set");
        assert_eq!(context.cache_preference().expect("known"), preference);
        let mut raw = CUfunc_cache(77);
        // SAFETY: the pointer refers to a local variable.
        let asked = context.with_current(|_| unsafe { cuCtxGetCacheConfig(&raw mut raw) });
        succeeds(asked.expect("a guard"));
        assert_eq!(raw, expected);
    }
}

/// Each flag, its name in C, and the version that introduced it.
const FLAGS: [(ContextFlags, CUctx_flags, (u16, u16)); 8] = [
    (ContextFlags::SCHED_SPIN, CUctx_flags::CU_CTX_SCHED_SPIN, (2, 0)),
    (ContextFlags::SCHED_YIELD, CUctx_flags::CU_CTX_SCHED_YIELD, (2, 0)),
    (ContextFlags::SCHED_BLOCKING_SYNC, CUctx_flags::CU_CTX_SCHED_BLOCKING_SYNC, (2, 0)),
    (ContextFlags::MAP_HOST, CUctx_flags::CU_CTX_MAP_HOST, (2, 0)),
    (ContextFlags::LMEM_RESIZE_TO_MAX, CUctx_flags::CU_CTX_LMEM_RESIZE_TO_MAX, (2, 0)),
    (ContextFlags::COREDUMP_ENABLE, CUctx_flags::CU_CTX_COREDUMP_ENABLE, (12, 1)),
    (ContextFlags::USER_COREDUMP_ENABLE, CUctx_flags::CU_CTX_USER_COREDUMP_ENABLE, (12, 1)),
    (ContextFlags::SYNC_MEMOPS, CUctx_flags::CU_CTX_SYNC_MEMOPS, (12, 1)),
];

/// Returns the raw flags of a context.
fn raw_flags(context: &Context) -> u32 {
    let mut flags = 0;
    // SAFETY: the pointer refers to a local variable.
    let asked = context.with_current(|_| unsafe { cuCtxGetFlags(&raw mut flags) });
    succeeds(asked.expect("a guard"));
    flags
}

/// Flags with which a context opens a file or a pipe.
const COREDUMPS: [ContextFlags; 2] =
    [ContextFlags::COREDUMP_ENABLE, ContextFlags::USER_COREDUMP_ENABLE];

/// In a child process, because flags for core dumps create files, here in the folder of the tests.
#[test]
fn each_flag_has_the_value_of_its_c_name() {
    let device = or_skip!(common::gpu());
    let scratch = common::scratch();
    let [file, pipe] = ["settings.core", "settings.pipe"].map(|name| {
        let path = scratch.join(name).into_os_string();
        path.into_string().expect("a UTF-8 path")
    });
    let environment =
        [("CUDA_COREDUMP_FILE", file.as_str()), ("CUDA_COREDUMP_PIPE", pipe.as_str())];
    common::child::in_child(&environment, || {
        let ways = CUctx_flags::CU_CTX_SCHED_MASK.0;
        for (flag, raw, (major, minor)) in FLAGS {
            assert_eq!(flag.bits(), raw.0);
            if !common::offers(major, minor) {
                continue;
            }
            let context = match Context::new(&device, flag) {
                // This process may have no access to the directory of the pipe or the file.
                Err(error) if error.code() == Some(CUresult::CUDA_ERROR_OPERATING_SYSTEM) => {
                    eprintln!("note: no context with {flag:?}: {error}");
                    assert!(COREDUMPS.contains(&flag), "{flag:?}: {error}");
                    continue;
                }
                context => context.expect("a context"),
            };
            let its = raw_flags(&context);
            assert_eq!(context.flags().expect("known").bits(), its, "{flag:?}");
            // Of the two core dump flags, the first one used in a process stays in effect (580).
            if !common::is_software() && COREDUMPS.contains(&flag) {
                continue;
            }
            assert_eq!(its & raw.0, raw.0, "{flag:?} of {its:#x}");
            if raw.0 & ways != 0 {
                assert_eq!(its & ways, raw.0, "{flag:?} of {its:#x}");
            }
        }
        or_skip!(common::since(12, 1));
        let context = Context::new(&device, ContextFlags::empty()).expect("a context");
        for (flag, raw, _) in FLAGS {
            match context.set_flags(flag) {
                Err(error) if error.code() == Some(CUresult::CUDA_ERROR_OPERATING_SYSTEM) => {
                    assert!(COREDUMPS.contains(&flag), "{flag:?}: {error}");
                    continue;
                }
                set => set.expect("set"),
            }
            let its = raw_flags(&context);
            if raw.0 & ways != 0 {
                assert_eq!(its & ways, raw.0, "{flag:?} of {its:#x}");
            } else {
                // A real driver (580) accepts some of the other flags without an effect.
                assert!(!common::is_software() || its & raw.0 == raw.0, "{flag:?} of {its:#x}");
            }
        }
    });
}

#[test]
fn a_context_has_the_flags_it_was_created_with() {
    let context = or_skip!(own());
    let flags = context.flags().expect("known");
    assert!(flags.contains(ContextFlags::SCHED_YIELD), "{flags:?}");
    assert!(!flags.contains(ContextFlags::SCHED_BLOCKING_SYNC));
    or_skip!(common::since(12, 1));
    context.set_flags(ContextFlags::SCHED_BLOCKING_SYNC).expect("another way to wait");
    let flags = context.flags().expect("known");
    assert!(flags.contains(ContextFlags::SCHED_BLOCKING_SYNC), "{flags:?}");
}

#[test]
fn a_context_reports_its_api_version_and_priorities() {
    let context = or_skip!(own());
    let mut version = 0;
    // SAFETY: the context is alive, and the pointer refers to a local variable.
    succeeds(unsafe { cuCtxGetApiVersion(context.as_raw(), &raw mut version) });
    assert_eq!(context.api_version().expect("known"), version);
    assert!(version >= 3010, "{version}");
    assert!(!common::is_software() || version == 3020, "{version}");
    let priorities = context.stream_priorities().expect("known");
    assert!(priorities.contains(&0) && *priorities.start() < 0, "{priorities:?}");
    context.reset_persisting_l2().expect("nothing persists");
}

#[test]
fn the_primary_context_is_active_while_it_is_retained() {
    let device = or_skip!(common::gpu());
    let context = Context::primary(&device).expect("a primary context");
    assert!(device.primary_state().expect("known").active);
    device.set_primary_flags(device.primary_state().expect("known").flags).expect("restored");
    drop(context);
}

/// Returns whether the primary context is active, and its raw flags.
fn raw_state(device: &Device) -> (bool, u32) {
    let (mut flags, mut active) = (0, 0);
    let (its, place) = (device.as_raw(), &raw mut flags);
    // SAFETY: the pointers refer to local variables.
    succeeds(unsafe { cuDevicePrimaryCtxGetState(its, place, &raw mut active) });
    (active != 0, flags)
}

#[test]
fn flags_of_the_primary_context_can_be_set_before_and_while_it_is_retained() {
    let device = or_skip!(common::gpu());
    common::child::in_child(&[], || {
        let first = ContextFlags::SCHED_BLOCKING_SYNC | ContextFlags::LMEM_RESIZE_TO_MAX;
        let second = ContextFlags::SCHED_YIELD;
        device.set_primary_flags(first).expect("it is not retained");
        let state = device.primary_state().expect("known");
        assert!(!state.active && state.flags.contains(first), "{state:?}");
        assert_eq!(raw_state(&device), (false, state.flags.bits()));
        let context = Context::primary(&device).expect("a primary context");
        let flags = context.flags().expect("known");
        assert!(flags.contains(first), "{flags:?}");
        device.set_primary_flags(second).expect("while it is retained");
        let state = device.primary_state().expect("known");
        assert!(state.active && state.flags.contains(second), "{state:?}");
        assert!(!state.flags.contains(ContextFlags::SCHED_BLOCKING_SYNC), "{state:?}");
        assert_eq!(raw_state(&device), (true, state.flags.bits()));
        assert!(context.flags().expect("known").contains(second));
        drop(context);
        assert!(!raw_state(&device).0, "it is not retained any more");
    });
}

/// After the reset the context is empty, and can be used by those who retain it.
#[test]
fn a_retained_primary_context_can_be_reset() {
    let device = or_skip!(common::gpu());
    common::child::in_child(&[], || {
        let held = Context::primary(&device).expect("a primary context");
        let handle = held.as_raw();
        let free = held.memory_info().expect("known").free;
        let size: usize = if common::is_software() { 16 << 20 } else { 1 << 30 };
        let mut memory = 0;
        // SAFETY: the pointer refers to a local variable.
        let made = held.with_current(|_| unsafe { cuMemAlloc_v2(&raw mut memory, size) });
        succeeds(made.expect("a guard"));
        // SAFETY: nothing that was created in the context is used afterwards, and no thread has it
        // current.
        unsafe { device.reset_primary() }.expect("a reset");
        let active = device.primary_state().expect("known").active;
        eprintln!("note: after a reset the primary context is active: {active}");
        let again = Context::primary(&device).expect("a primary context");
        assert_eq!(again.as_raw(), handle, "a device has one");
        let now = again.memory_info().expect("known").free;
        // Other processes may use the same GPU meanwhile.
        let is_freed = !common::is_software() || now + size / 2 > free;
        assert!(is_freed, "the memory was freed: {now} of {free}");
        let stream = again.stream().expect("a stream");
        let mut data = DeviceBuffer::<u8>::zeroed(&stream, 4).expect("memory");
        data.fill(7).expect("a fill");
        assert_eq!(data.to_vec().expect("a copy"), [7; 4]);
        drop((data, stream, again));
        // The retain from before the reset must still be released.
        drop(held);
        assert!(!device.primary_state().expect("known").active);
    });
}

#[test]
fn an_event_of_a_whole_context_completes_after_the_work_of_all_its_streams() {
    common::child::with_context_since(12, 5, |context| {
        let [a, b] = common::streams(&context);
        let [all, later] = common::events(&context);
        let scale = Scale::new(&context);
        let busy = Busy::new(&context, &a);
        context.record_event(&all).expect("a record");
        assert!(!all.is_complete().expect("a query"), "one of the streams has work");
        // Work of the other stream now waits for that of the first.
        context.wait_event(&all).expect("a wait");
        let mut x = DeviceBuffer::<i32>::zeroed(&b, 10).expect("memory");
        scale.run(&b, &mut x, 1, 7).expect("a launch");
        later.record(&b).expect("a record");
        assert!(!later.is_complete().expect("a query"), "it waits");
        later.synchronize().expect("a wait");
        assert!(all.is_complete().expect("a query"));
        assert_eq!(x.to_vec().expect("a copy"), [7; 10]);
        drop(busy);
    });
}

#[test]
fn an_event_of_another_context_is_not_recorded() {
    let context = or_skip!(own());
    let other = or_skip!(common::context()).event().expect("an event");
    let invalid = common::invalid(context.record_event(&other));
    assert!(matches!(invalid, Invalid::OtherContext { .. }), "{invalid}");
}

mod provoked {
    use super::*;

    /// Limits that the device or the driver does not have are refused.
    #[test]
    fn each_limit_has_the_value_of_its_c_name() {
        let context = or_skip!(own());
        for (index, (limit, raw, value)) in LIMITS.into_iter().enumerate() {
            let before = limits(&context);
            assert_eq!(context.limit(limit).ok(), before[index], "{raw:?}");
            let set = context.set_limit(limit, value);
            let after = limits(&context);
            for (other, (its, was)) in after.into_iter().zip(before).enumerate() {
                assert!(other == index || its == was, "{raw:?} changes limit {other}");
            }
            match set {
                // Some values are rounded, and the granularity is only a hint.
                Ok(()) => {
                    let its = after[index].expect("it was set");
                    assert_eq!(context.limit(limit).expect("known"), its);
                    let is_hint = limit == Limit::MaxL2FetchGranularity;
                    assert!(its >= value || is_hint, "{raw:?}: {its}");
                    assert!(!common::is_software() || its == value, "{raw:?}: {its}");
                }
                Err(error) => {
                    assert!(!EVERYWHERE.contains(&index), "{raw:?}: {error}");
                    assert_eq!(after[index], before[index], "{raw:?}");
                    // On an H200 the limit for shared memory of graphics clients is not permitted.
                    let expected = [
                        CUresult::CUDA_ERROR_UNSUPPORTED_LIMIT,
                        CUresult::CUDA_ERROR_INVALID_VALUE,
                        CUresult::CUDA_ERROR_NOT_PERMITTED,
                    ];
                    let code = error.code().expect("a code of the driver");
                    assert!(expected.contains(&code), "{raw:?}: {error}");
                    eprintln!("note: {raw:?} is not set: {code:?}");
                }
            }
        }
    }

    #[test]
    fn an_unknown_limit_is_a_driver_error() {
        let context = or_skip!(own());
        let version = cuda_safe::version().expect("a driver");
        match context.limit(Limit::PerBlockMemorySize) {
            Ok(_) => assert!(version >= cuda_safe::CudaVersion::new(13, 4)),
            Err(error) => {
                let code = error.code().expect("a code of the driver");
                let unsupported = CUresult::CUDA_ERROR_UNSUPPORTED_LIMIT;
                assert!(
                    [CUresult::CUDA_ERROR_INVALID_VALUE, unsupported].contains(&code),
                    "{error}"
                );
            }
        }
    }

    #[test]
    fn mutually_exclusive_flags_are_refused() {
        let context = or_skip!(own());
        let device = context.device();
        let (spin, block) = (ContextFlags::SCHED_SPIN, ContextFlags::SCHED_BLOCKING_SYNC);
        let turn = ContextFlags::SCHED_YIELD;
        let wrong = [spin | turn, spin | block, turn | block, ContextFlags::all()];
        let invalid = |done: Result<(), Error>, what: &str| {
            let error = done.expect_err(what);
            assert_eq!(error.code(), Some(CUresult::CUDA_ERROR_INVALID_VALUE), "{what}");
        };
        let before = device.primary_state().expect("known").flags;
        for flags in wrong {
            invalid(Context::new(&device, flags).map(drop), "cuCtxCreate");
            invalid(device.set_primary_flags(flags), "cuDevicePrimaryCtxSetFlags");
            if common::offers(12, 1) {
                invalid(context.set_flags(flags), "cuCtxSetFlags");
            }
        }
        assert_eq!(device.primary_state().expect("known").flags, before);
    }

    #[test]
    fn an_unknown_cache_preference_is_refused() {
        let context = or_skip!(own());
        let error = context.set_cache_preference(CachePreference::Other(77));
        let code = error.expect_err("there are four").code();
        assert_eq!(code, Some(CUresult::CUDA_ERROR_INVALID_VALUE));
        assert_eq!(context.cache_preference().expect("known"), CachePreference::None);
    }
}
