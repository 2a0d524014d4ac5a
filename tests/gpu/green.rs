//! Memory that green contexts leave allocated.

use crate::common;
use cuda_safe::green::{
    GreenContext, GreenPool, GreenPoolOptions, PartitionRequest, PartitionSize, SmResource,
    SplitByCount,
};
use cuda_safe::sys::{
    CUdevResource, CUdevResourceType, CUgreenCtxCreate_flags, CUresult, cuDevResourceGenerateDesc,
    cuDevSmResourceSplitByCount, cuDeviceGetDevResource, cuGreenCtxCreate, cuGreenCtxDestroy,
};
use cuda_safe::{Context, Device, LaunchConfig, Module};
use std::sync::{Mutex, MutexGuard, PoisonError};

const MIB: i64 = 1 << 20;

/// Returns a lock that lets one test run at a time, because the tests measure memory that all of
/// them use.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a real device with green contexts, or reports a skip.
pub(crate) fn device() -> Option<Device> {
    match SmResource::of_device(&common::real_gpu()?) {
        Ok(resource) => Some(resource.device()),
        Err(why) => {
            common::skip(&why.to_string());
            None
        }
    }
}

/// Returns the bytes of device memory and host memory that are in use.
fn in_use(context: &Context) -> [i64; 2] {
    let info = context.memory_info().expect("an answer");
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: i64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    let used = i64::try_from(info.total - info.free).expect("less than 8 EiB");
    [used, pages * 4096]
}

#[test]
fn a_hundred_thousand_pool_requests_use_no_more_memory_than_ten() {
    let _alone = alone();
    let Some(device) = device() else { return };
    let context = Context::primary(&device).expect("a context");
    let module = Module::from_ptx(&context, include_str!("../kernels/vector.ptx"));
    let nothing = module.and_then(|module| module.kernel("nothing"));
    let nothing = nothing.expect("the test kernels").typed::<()>();
    let nothing = nothing.expect("no parameters");
    let options = GreenPoolOptions::default();
    let pool = GreenPool::new(&device, options).expect("no other pool has the device");
    let unit = SmResource::of_device(&device)
        .and_then(|resource| resource.granularity())
        .expect("known")
        .min;
    let request = |number: u32| {
        let asked = PartitionRequest {
            sizes: vec![PartitionSize::Sms(unit * (1 + number % 10)), PartitionSize::Rest],
            ..PartitionRequest::default()
        };
        let lease = pool.lease(&asked).expect("a turn");
        for partition in lease.iter() {
            let stream = partition.stream().expect("a stream");
            // SAFETY: the kernel does nothing.
            unsafe { nothing.launch(&stream, LaunchConfig::linear(1, 1), ()) }.expect("a launch");
        }
    };
    // Each partitioning once, and allocations that happen late in the first uses.
    (0..100).for_each(request);
    context.synchronize().expect("a wait");
    let before = in_use(&context);
    let threads: u32 = 8;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || (0..100_000 / threads).for_each(|round| request(thread + round)));
        }
    });
    context.synchronize().expect("a wait");
    let after = in_use(&context);
    let stats = pool.stats().expect("stats");
    assert_eq!((stats.created, stats.leases), (10, 100_100));
    eprintln!("note: pool: {stats:?}, memory before {before:?}, after {after:?}");
    let [device, host] = [after[0] - before[0], after[1] - before[1]];
    assert!(device <= 0, "{device} bytes of device memory");
    // Threads were started and ended. A sanitizer keeps records of each call.
    let is_sanitized = std::env::var_os("CUDA_TESTS_SANITIZED").is_some();
    assert!(host < 16 * MIB || is_sanitized, "{host} bytes of host memory");
}

#[test]
fn creating_and_destroying_green_contexts_leaks_no_more_than_the_driver_does() {
    const TIMES: usize = 20;
    let _alone = alone();
    let Some(device) = device() else { return };
    let context = Context::primary(&device).expect("a context");
    let raw = || {
        let by_c = (0..TIMES).try_for_each(|_| create_and_destroy_raw(&device));
        by_c.expect("as the C API does");
    };
    let safe = || {
        for _ in 0..TIMES {
            let split = SmResource::of_device(&device).expect("a resource");
            let split = split
                .split_by_count(SplitByCount { max_groups: Some(1), ..SplitByCount::default() });
            let groups = split.expect("a split").groups;
            drop(GreenContext::new(groups).expect("a green context"));
        }
    };
    let kept = |f: &dyn Fn()| {
        let before = in_use(&context);
        f();
        let after = in_use(&context);
        [after[0] - before[0], after[1] - before[1]]
    };
    // The first ones cause allocations that remain anyway.
    kept(&raw);
    kept(&safe);
    let (by_c, by_crate) = (kept(&raw), kept(&safe));
    eprintln!(
        "note: {TIMES} green contexts keep {by_c:?} bytes by C, {by_crate:?} by the safe layer"
    );
    assert!(by_crate[0] <= by_c[0], "of device memory");
    assert!(by_crate[1] <= by_c[1] + MIB, "of host memory");
}

/// Creates and destroys a green context as a C program does.
fn create_and_destroy_raw(device: &Device) -> Result<(), CUresult> {
    let check = |code: CUresult| if code.is_success() { Ok(()) } else { Err(code) };
    let (mut all, mut group) = (CUdevResource::default(), CUdevResource::default());
    let kind = CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;
    // SAFETY: the pointer refers to a local variable.
    check(unsafe { cuDeviceGetDevResource(device.as_raw(), &raw mut all, kind) })?;
    let (mut count, rest) = (1, std::ptr::null_mut());
    let (first, number) = (&raw mut group, &raw mut count);
    // SAFETY: the array has room for one group, and no remainder is requested.
    check(unsafe { cuDevSmResourceSplitByCount(first, number, &raw const all, rest, 0, 0) })?;
    let mut descriptor = std::ptr::null_mut();
    // SAFETY: there is one resource, and the other pointer refers to a local variable.
    check(unsafe { cuDevResourceGenerateDesc(&raw mut descriptor, &raw mut group, 1) })?;
    let flags = CUgreenCtxCreate_flags::CU_GREEN_CTX_DEFAULT_STREAM.0;
    let mut green = std::ptr::null_mut();
    // SAFETY: the descriptor was just created, and the pointer refers to a local variable.
    check(unsafe { cuGreenCtxCreate(&raw mut green, descriptor, device.as_raw(), flags) })?;
    // SAFETY: the green context was just created, and nothing uses it.
    check(unsafe { cuGreenCtxDestroy(green) })
}
