//! A launch allocates no host memory and makes one driver call, however many attributes it has.
//! Events and stream-ordered memory allocate no host memory either.
//!
//! The driver in this test is a set of functions that succeed, so the counts cover the safe layer
//! only.

use core::ffi::{CStr, c_int, c_uint, c_void};
use cuda_safe::TypedKernel;
use cuda_safe::launch::LaunchAttributes;
use cuda_safe::launch::{AccessPolicyWindow, ProgrammaticEvent, Value};
use cuda_safe::sys::{
    CUaccessProperty, CUcontext, CUfunction, CUlaunchConfig, CUmodule, CUresult, CUstream,
};
use cuda_safe::{Context, DeviceBuffer, Event, LaunchConfig, Module, PinnedBuffer, Stream};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::without_provenance_mut;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

struct Counting;

thread_local! {
    /// Counted for this thread only, because the test harness allocates on other threads.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    /// The bytes of host memory that this thread has allocated and not freed.
    static BYTES: Cell<usize> = const { Cell::new(0) };
    /// The number of driver calls.
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

/// Counts the allocation of `new` bytes and the free of `old` bytes.
fn count(new: usize, old: usize) {
    // While a thread exits, its counters may be destroyed already. The call is then not counted.
    let _ = ALLOCATIONS.try_with(|all| all.set(all.get() + u64::from(new != 0)));
    // One thread may free what another one has allocated.
    let _ = BYTES.try_with(|bytes| bytes.set(bytes.get().wrapping_add(new).wrapping_sub(old)));
}

// SAFETY: every call is forwarded to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller upholds the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        count(0, layout.size());
        // SAFETY: the caller upholds the same contract.
        unsafe { System.dealloc(start, layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size, layout.size());
        // SAFETY: the caller upholds the same contract.
        unsafe { System.realloc(start, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The number of attributes of the last launch.
static ATTRIBUTES: AtomicU32 = AtomicU32::new(0);

fn called() -> CUresult {
    CALLS.set(CALLS.get() + 1);
    CUresult::CUDA_SUCCESS
}

/// Stands in for every function not defined below. It writes nothing, so its outputs stay zero. (On
/// every 64-bit target the caller removes the arguments from the stack, so any number of arguments
/// works.)
unsafe extern "C" fn succeed() -> CUresult {
    called()
}

/// Not counted, because the version of a real driver is known from when it was opened.
unsafe extern "C" fn version(number: *mut c_int) -> CUresult {
    // SAFETY: the caller passes a valid pointer.
    unsafe { number.write(13050) };
    CUresult::CUDA_SUCCESS
}

/// Returns the only context.
const CONTEXT: usize = 0x1000;

unsafe extern "C" fn current(context: *mut CUcontext) -> CUresult {
    // SAFETY: the caller passes a valid pointer.
    unsafe { context.write(without_provenance_mut(CONTEXT)) };
    called()
}

unsafe extern "C" fn new_stream(stream: *mut CUstream, _: c_uint, _: c_int) -> CUresult {
    // SAFETY: the caller passes a valid pointer.
    unsafe { stream.write(without_provenance_mut(0x2000)) };
    called()
}

unsafe extern "C" fn parameter_count(_: CUfunction, count: *mut usize) -> CUresult {
    // SAFETY: the caller passes a valid pointer.
    unsafe { count.write(4) };
    called()
}

unsafe extern "C" fn parameter(
    _: CUfunction,
    index: usize,
    _: *mut usize,
    size: *mut usize,
) -> CUresult {
    let sizes = [8, 8, 4, 12];
    // SAFETY: the caller passes a valid pointer.
    unsafe { size.write(sizes[index]) };
    called()
}

unsafe extern "C" fn launch(
    config: *const CUlaunchConfig,
    _: CUfunction,
    _: *mut *mut c_void,
    _: *mut *mut c_void,
) -> CUresult {
    // SAFETY: the caller passes a valid pointer.
    let count = unsafe { &raw const (*config).numAttrs };
    // SAFETY: as above.
    ATTRIBUTES.store(unsafe { count.read() }, Ordering::Relaxed);
    called()
}

fn find(name: &CStr) -> *const c_void {
    match name.to_bytes() {
        b"cuDriverGetVersion" => version as *const c_void,
        b"cuCtxGetCurrent" => current as *const c_void,
        b"cuStreamCreateWithPriority" => new_stream as *const c_void,
        b"cuFuncGetParamCount" => parameter_count as *const c_void,
        b"cuFuncGetParamInfo" => parameter as *const c_void,
        b"cuLaunchKernelEx" => launch as *const c_void,
        _ => succeed as *const c_void,
    }
}

/// Returns the number of allocations and of driver calls that `f` makes.
fn counted(f: impl FnOnce()) -> (u64, u64) {
    let before = (ALLOCATIONS.get(), CALLS.get());
    f();
    let after = (ALLOCATIONS.get(), CALLS.get());
    (after.0 - before.0, after.1 - before.1)
}

/// Installs the driver above and returns a context and a stream.
fn start() -> (Context, Stream) {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // SAFETY: the functions fulfil the contracts that these tests rely on, and live as long as
        // the process.
        unsafe { cuda_safe::sys::install(find) }.expect("nothing was called before");
    });
    let raw: CUcontext = without_provenance_mut(CONTEXT);
    // SAFETY: this driver never accesses a handle.
    let context = unsafe { Context::borrow_raw(raw) }.expect("a context");
    let stream = context.stream().expect("a stream");
    (context, stream)
}

#[test]
fn events_and_stream_ordered_memory_allocate_no_host_memory() {
    let (context, stream) = start();
    let event = || context.event().map(drop).expect("an event");
    let buffer = || {
        let buffer = DeviceBuffer::<u8>::uninit(&stream, 64);
        buffer.map(drop).expect("memory");
    };
    // The first calls look up the functions.
    event();
    buffer();
    assert_eq!(counted(|| (0..100).for_each(|_| event())).0, 0);
    assert_eq!(counted(|| (0..100).for_each(|_| buffer())).0, 0);
    let event = context.event().expect("an event");
    assert_eq!(counted(|| drop([event.clone(), event.clone()])).0, 0);
    let new = counted(|| drop(context.event().expect("an event")));
    assert_eq!(new.0, 2, "the owner and the capture state of an event that is not reused");
}

#[test]
fn a_registered_vector_is_freed_with_its_buffer() {
    let (context, _stream) = start();
    let register = || {
        let buffer = PinnedBuffer::register(&context, vec![0_u8; 1 << 16]);
        drop(buffer.expect("registered"));
    };
    // The first call looks up the functions.
    register();
    let before = BYTES.get();
    register();
    assert_eq!(BYTES.get(), before);
}

type Kernel = TypedKernel<(&'static [f32], &'static mut [f32], u32, Value<[u32; 3]>)>;

#[test]
fn a_launch_allocates_nothing_and_makes_one_driver_call() {
    let (context, stream) = start();
    let raw: CUmodule = without_provenance_mut(0x3000);
    // SAFETY: as above.
    let module = unsafe { Module::borrow_raw(raw, &context) }.expect("a module");
    // SAFETY: as above.
    let event =
        unsafe { Event::borrow_raw(without_provenance_mut(0x4000), &context) }.expect("an event");
    let kernel: Kernel = module.kernel("any").and_then(|kernel| kernel.typed()).expect("a kernel");
    // SAFETY: this driver never accesses an address.
    let from = unsafe { DeviceBuffer::<f32>::borrow_raw(0x5000, 8, &stream) }.expect("memory");
    // SAFETY: as above.
    let mut to = unsafe { DeviceBuffer::<f32>::borrow_raw(0x6000, 8, &stream) }.expect("memory");
    let config = LaunchConfig::linear(1, 32);
    let window = AccessPolicyWindow {
        address: from.as_raw(),
        bytes: from.size_bytes(),
        hit_ratio: 1.0,
        hit: CUaccessProperty::CU_ACCESS_PROPERTY_PERSISTING,
        miss: CUaccessProperty::CU_ACCESS_PROPERTY_NORMAL,
    };
    let attributes = LaunchAttributes {
        cooperative: true,
        cluster: Some([1, 1, 1]),
        programmatic_serialization: true,
        programmatic_event: Some(ProgrammaticEvent { event: &event, at_block_start: true }),
        completion_event: Some(&event),
        priority: Some(-1),
        access_policy: Some(window),
        carveout: Some(30),
        nvlink_centric: true,
        ..Default::default()
    };
    let mut plain = || {
        let arguments = (&from, &mut to, 8, Value([1, 2, 3]));
        // SAFETY: the driver runs no work.
        unsafe { kernel.launch(&stream, config, arguments) }.expect("a launch");
    };
    // The first call looks up the function.
    plain();
    let hundred = counted(|| (0..100).for_each(|_| plain()));
    assert_eq!(hundred, (0, 100));

    let mut with = || {
        let arguments = (&from, &mut to, 8, Value([1, 2, 3]));
        // SAFETY: the driver runs no work.
        unsafe { kernel.launch_with(&stream, config, &attributes, arguments) }.expect("a launch");
    };
    // As above.
    with();
    let hundred = counted(|| (0..100).for_each(|_| with()));
    assert_eq!(hundred, (0, 100));
    assert_eq!(ATTRIBUTES.load(Ordering::Relaxed), 9);

    let mut built = || {
        let mut launch = kernel.kernel().launch_builder(&stream);
        launch.arg(&from).arg(&mut to).arg(8_u32).arg(Value([1, 2, 3]));
        // SAFETY: the driver runs no work.
        unsafe { launch.launch(config) }.expect("a launch");
    };
    built();
    let hundred = counted(|| (0..100).for_each(|_| built()));
    assert_eq!(hundred, (0, 100));
}
