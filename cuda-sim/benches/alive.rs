//! Measures how long one operation of the software driver takes, in nanoseconds, while few or many
//! objects are alive. Run it with `cargo bench -p cuda-sim`. The times in each row should be nearly
//! equal.

use core::ffi::c_void;
use core::ptr::{null_mut, without_provenance_mut};
use cuda_sim::Profile;
use cuda_sys::{
    CUcontext, CUevent, CUfunction, CUmodule, CUresult, CUstream, cuCtxSynchronize, cuDeviceGet,
    cuDevicePrimaryCtxRetain, cuEventCreate, cuEventDestroy_v2, cuInit, cuLaunchKernel,
    cuMemAlloc_v2, cuMemAllocAsync, cuMemFree_v2, cuMemFreeAsync, cuMemFreeHost, cuMemHostAlloc,
    cuMemsetD8Async, cuModuleGetFunction, cuModuleLoadData, cuStreamCreate, cuStreamDestroy_v2,
    cuStreamQuery, cuStreamSynchronize,
};
use std::time::{Duration, Instant};

const COUNTS: [usize; 3] = [10, 1_000, 100_000];
const PTX: &core::ffi::CStr = c".version 7.0
.target sm_70
.address_size 64
.visible .entry nothing() { ret; }
";

#[track_caller]
fn well(code: CUresult) {
    assert!(code.is_success(), "{code}");
}

fn stream() -> CUstream {
    let mut stream = null_mut();
    // SAFETY: the pointer is to a local variable.
    well(unsafe { cuStreamCreate(&raw mut stream, 1) });
    stream
}

fn destroy_stream(stream: CUstream) {
    // SAFETY: the stream is alive and is not used again.
    well(unsafe { cuStreamDestroy_v2(stream) });
}

fn event() -> CUevent {
    let mut event = null_mut();
    // SAFETY: the pointer is to a local variable.
    well(unsafe { cuEventCreate(&raw mut event, 0) });
    event
}

fn destroy_event(event: CUevent) {
    // SAFETY: the event is alive and is not used again.
    well(unsafe { cuEventDestroy_v2(event) });
}

fn memory() -> u64 {
    let mut address = 0;
    // SAFETY: the pointer is to a local variable.
    well(unsafe { cuMemAlloc_v2(&raw mut address, 64) });
    address
}

fn free(address: u64) {
    // SAFETY: the memory is allocated and is not used again.
    well(unsafe { cuMemFree_v2(address) });
}

fn pinned() -> usize {
    let mut start = null_mut();
    // SAFETY: the pointer is to a local variable.
    well(unsafe { cuMemHostAlloc(&raw mut start, 64, 0) });
    start.addr()
}

fn free_pinned(start: usize) {
    // SAFETY: the memory is alive and is not used again.
    well(unsafe { cuMemFreeHost(without_provenance_mut(start)) });
}

fn ordered(stream: CUstream) -> u64 {
    let mut address = 0;
    // SAFETY: the pointer is to a local variable.
    well(unsafe { cuMemAllocAsync(&raw mut address, 64, stream) });
    address
}

fn free_ordered(address: u64, stream: CUstream) {
    // SAFETY: the memory is alive and is not used again.
    well(unsafe { cuMemFreeAsync(address, stream) });
}

fn synchronize(stream: CUstream) {
    // SAFETY: the stream is alive.
    well(unsafe { cuStreamSynchronize(stream) });
}

/// Repeats `operation` for 200 ms, but at most 50,000 times, and returns its mean time in nanoseconds.
fn time(mut operation: impl FnMut()) -> f64 {
    const LONG_ENOUGH: Duration = Duration::from_millis(200);
    cuda_sim::clear_calls();
    let start = Instant::now();
    let mut count = 0;
    while start.elapsed() < LONG_ENOUGH && count < 50_000 {
        operation();
        count += 1;
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(count)
}

/// Prints a row: the time of `operation` for each number of live objects. `make` creates one of these
/// objects, and `destroy` destroys it.
fn row<T>(
    name: &str,
    mut make: impl FnMut() -> T,
    mut operation: impl FnMut(),
    mut destroy: impl FnMut(T),
) {
    print!("{name:52}");
    for count in COUNTS {
        let alive: Vec<T> = (0..count).map(|_| make()).collect();
        print!("{:12.0}", time(&mut operation));
        alive.into_iter().for_each(&mut destroy);
        // SAFETY: a context is current.
        well(unsafe { cuCtxSynchronize() });
    }
    println!();
}

fn start() -> CUfunction {
    cuda_sim::install(Profile::h200()).expect("nothing was called before");
    cuda_sim::kernel::register("nothing", |_| Ok(()));
    let (mut device, mut context): (_, CUcontext) = (0, null_mut());
    let (mut module, mut function): (CUmodule, CUfunction) = (null_mut(), null_mut());
    // SAFETY: `cuInit` has no preconditions.
    well(unsafe { cuInit(0) });
    // SAFETY: the pointer is to a local variable.
    well(unsafe { cuDeviceGet(&raw mut device, 0) });
    // SAFETY: the pointer is to a local variable.
    well(unsafe { cuDevicePrimaryCtxRetain(&raw mut context, device) });
    // SAFETY: the context is alive.
    well(unsafe { cuda_sys::cuCtxSetCurrent(context) });
    // SAFETY: the text ends with a NUL, and the pointer is to a local variable.
    well(unsafe { cuModuleLoadData(&raw mut module, PTX.as_ptr().cast::<c_void>()) });
    // SAFETY: the module is alive, and the pointer is to a local variable.
    well(unsafe { cuModuleGetFunction(&raw mut function, module, c"nothing".as_ptr()) });
    function
}

fn main() {
    // `cargo test --benches` also runs this program, but does not need measurements.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let function = start();
    let own = stream();
    let launch = |stream| {
        // SAFETY: the kernel has no parameters, and kernel and stream are alive.
        let code = unsafe {
            cuLaunchKernel(
                function,
                1,
                1,
                1,
                1,
                1,
                1,
                0,
                stream,
                null_mut(),
                null_mut(),
            )
        };
        well(code);
    };
    print!("{:52}", "nanoseconds, by number of live objects");
    for count in COUNTS {
        print!("{count:12}");
    }
    println!();

    let both = || free(memory());
    row("allocations: allocate, free", memory, both, free);
    let both = || free_pinned(pinned());
    row(
        "pinned allocations: allocate, free",
        pinned,
        both,
        free_pinned,
    );
    let both = || {
        free_ordered(ordered(own), own);
        synchronize(own);
    };
    let gone = |address| free_ordered(address, own);
    let name = "stream-ordered allocations: allocate, free, wait";
    row(name, || ordered(own), both, gone);
    let both = || destroy_event(event());
    row("events: create, destroy", event, both, destroy_event);
    let both = || destroy_stream(stream());
    row("streams: create, destroy", stream, both, destroy_stream);
    let both = || {
        launch(own);
        synchronize(own);
    };
    row("idle streams: launch, wait", stream, both, destroy_stream);
    let both = || {
        launch(null_mut());
        synchronize(null_mut());
    };
    let name = "idle streams: launch on the legacy stream, wait";
    row(name, stream, both, destroy_stream);

    let target = memory();
    let busy = || {
        let stream = stream();
        // SAFETY: the memory is allocated and is larger than one byte.
        well(unsafe { cuMemsetD8Async(target, 1, 1, stream) });
        stream
    };
    let once = || {
        launch(own);
        // A query makes the software driver run one operation of one stream.
        // SAFETY: the stream is alive.
        let _ = unsafe { cuStreamQuery(own) };
    };
    row("busy streams: launch, run one", busy, once, destroy_stream);
    free(target);
}
