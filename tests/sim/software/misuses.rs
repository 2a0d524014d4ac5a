//! Bugs planted with raw calls, each kind of which the software driver finds.

use crate::prelude::*;

/// Starts the software driver for a test that misuses it.
pub(crate) fn expecting_misuse() -> (Context, Stream) {
    start(Profile::h200());
    let context = context();
    let stream = context.stream().expect("a stream");
    (context, stream)
}

#[track_caller]
pub(crate) fn found(words: &str) {
    let misuses = cuda_sim::misuses();
    assert!(
        misuses.iter().any(|misuse| misuse.contains(words)),
        "{words:?} is not among {misuses:?}"
    );
}

#[track_caller]
pub(crate) fn succeeds(result: CUresult) {
    assert!(result.is_success(), "{result}");
}

/// Allocates pool memory with a raw call.
pub(crate) fn allocate(stream: &Stream) -> u64 {
    let mut address = 0;
    // SAFETY: the pointer refers to a local variable.
    succeeds(unsafe { cuMemAllocAsync(&raw mut address, 64, stream.as_raw()) });
    address
}

#[test]
fn a_missing_wait_shows_as_a_stale_read() {
    let (context, stream) = &in_child!(expecting_misuse());
    let _current = context.make_current().expect("current");
    let mut host = std::ptr::null_mut();
    // SAFETY: the pointer refers to a local variable.
    succeeds(unsafe { cuMemHostAlloc(&raw mut host, 64, 0) });
    let mut buffer = DeviceBuffer::<u8>::zeroed(stream, 64).expect("memory");
    buffer.fill(7).expect("a fill");
    // SAFETY: both sides have 64 bytes.
    succeeds(unsafe { cuMemcpyDtoHAsync_v2(host, buffer.as_raw(), 64, stream.as_raw()) });
    // SAFETY: the memory is alive; no wait for the copy has happened.
    let early = unsafe { host.cast::<u8>().read() };
    assert_eq!(early, 0, "the copy has not run, every time");
    stream.synchronize().expect("a wait");
    // SAFETY: as above, and the copy has completed.
    assert_eq!(unsafe { host.cast::<u8>().read() }, 7);
}

#[test]
fn an_early_free_is_an_illegal_address() {
    let (context, stream) = &in_child!(expecting_misuse());
    let other = context.stream().expect("a stream");
    let address = allocate(stream);
    stream.synchronize().expect("a wait");
    // SAFETY: the contract is violated on purpose: the fill on the other stream is not ordered
    // with the free.
    succeeds(unsafe { cuMemFreeAsync(address, stream.as_raw()) });
    stream.synchronize().expect("a wait");
    // SAFETY: as above.
    let refused = unsafe { cuMemsetD8Async(address, 1, 64, other.as_raw()) };
    assert!(!refused.is_success());
    found("are not in one allocation");
}

#[test]
fn a_use_before_the_allocation_is_an_illegal_address() {
    let (context, stream) = &in_child!(expecting_misuse());
    let other = context.stream().expect("a stream");
    let address = allocate(stream);
    // SAFETY: the contract is violated on purpose: nothing orders the other stream after the
    // allocation.
    succeeds(unsafe { cuMemsetD8Async(address, 1, 64, other.as_raw()) });
    let error = other.synchronize().expect_err("too early, every time");
    assert!(error.is_fatal(), "{error}");
    found("before their stream has executed the allocation");
}

#[test]
fn a_double_free_is_reported() {
    let (_context, stream) = &in_child!(expecting_misuse());
    let address = allocate(stream);
    // SAFETY: the first call is valid.
    succeeds(unsafe { cuMemFreeAsync(address, stream.as_raw()) });
    stream.synchronize().expect("a wait");
    // SAFETY: the second call is the planted bug, which the software driver detects.
    let refused = unsafe { cuMemFreeAsync(address, stream.as_raw()) };
    assert_eq!(refused, CUresult::CUDA_ERROR_INVALID_VALUE);
    found("which is not a live allocation");
}

#[test]
fn a_double_destroy_and_a_use_after_destroy_are_reported() {
    let (context, stream) = &in_child!(expecting_misuse());
    let event = context.event().expect("an event").into_raw();
    // SAFETY: the first call is valid.
    succeeds(unsafe { cuEventDestroy_v2(event) });
    // SAFETY: the second call is the planted bug, which the software driver detects.
    assert!(!unsafe { cuEventDestroy_v2(event) }.is_success());
    found("an event is destroyed twice");
    // SAFETY: the call is the planted bug: the object still owns the handle.
    succeeds(unsafe { cuStreamDestroy_v2(stream.as_raw()) });
    stream.synchronize().expect_err("destroyed");
    found("a stream is used after it was destroyed");
}

#[test]
fn a_leak_is_counted() {
    let (_context, stream) = &in_child!(expecting_misuse());
    allocate(stream);
    assert_eq!(cuda_sim::alive().device_allocations, 1);
    assert_eq!(cuda_sim::alive().device_bytes, 64);
}

#[test]
fn a_wrong_context_is_refused() {
    let (context, stream) = &in_child!(expecting_misuse());
    let own = Context::new(&context.device(), ContextFlags::empty()).expect("a context");
    let event = own.event().expect("an event");
    // SAFETY: both objects are alive; their contexts differ, which is the planted bug.
    let code = unsafe { cuEventRecord(event.as_raw(), stream.as_raw()) };
    assert_eq!(code, CUresult::CUDA_ERROR_INVALID_HANDLE);
}

#[test]
fn a_wait_for_a_value_that_is_never_written_is_reported_and_does_not_hang() {
    let (context, stream) = &in_child!(expecting_misuse());
    use cuda_safe::stream::{MemoryOperation, WaitCondition};
    let word = DeviceBuffer::<u32>::zeroed_sync(stream, 1).expect("memory");
    // A host function that has returned is not the reason.
    stream.launch_host_function(|| ()).expect("enqueued");
    stream.synchronize().expect("a wait");
    let wait = |value| MemoryOperation::Wait32 {
        address: word.as_raw(),
        value,
        condition: WaitCondition::Equal,
        flush: false,
    };
    // SAFETY: the word is alive, and nothing else uses it.
    unsafe { stream.memory_operation(wait(1)) }.expect("enqueued");
    assert!(!stream.is_complete().expect("a query"));
    let error = stream.synchronize().expect_err("it would hang");
    assert_eq!(error.code(), Some(CUresult::CUDA_ERROR_NOT_PERMITTED));
    found("a stream waits for a value that no enqueued work writes");
    // The value is written later.
    let other = context.stream().expect("a stream");
    // SAFETY: as above.
    succeeds(unsafe { cuMemsetD8Async(word.as_raw(), 0, 4, other.as_raw()) });
    // SAFETY: as above.
    succeeds(unsafe { cuMemsetD8Async(word.as_raw(), 1, 1, other.as_raw()) });
    stream.synchronize().expect("it came");
}

#[test]
fn a_changed_context_stack_is_detected() {
    let (context, _stream) = &in_child!(expecting_misuse());
    assert_eq!(cuda_sim::stack_depth(), 0);
    // SAFETY: the context is alive.
    succeeds(unsafe { cuCtxPushCurrent_v2(context.as_raw()) });
    assert_eq!(cuda_sim::stack_depth(), 1);
    // SAFETY: null makes no context current.
    succeeds(unsafe { cuCtxSetCurrent(std::ptr::null_mut()) });
    assert_eq!(cuda_sim::stack_depth(), 0);
}

#[test]
fn a_kernel_past_the_end_of_its_buffer_is_fatal() {
    let (context, stream) = &in_child!(expecting_misuse());
    let module = Module::from_ptx(context, include_str!("../../kernels/vector.ptx"));
    let scale = module.expect("the test kernels").kernel("scale");
    let scale = scale.expect("found").typed::<(&mut [i32], i32, i32, u32)>();
    let mut x = DeviceBuffer::<i32>::zeroed(stream, 10).expect("memory");
    let config = LaunchConfig::linear(1, 32);
    // SAFETY: the contract is violated on purpose: the buffer has only 10 elements.
    unsafe { scale.expect("its parameters").launch(stream, config, (&mut x, 1, 1, 11)) }
        .expect("a launch does not wait");
    let error = stream.synchronize().expect_err("an illegal address");
    assert!(error.is_fatal(), "{error}");
    found(
        "they are not allocated, or were freed; 0 bytes before them is the end of an allocation of 40 bytes",
    );
    assert_ne!(cuda_sim::alive(), Alive::default(), "nothing can be released any more");
}
