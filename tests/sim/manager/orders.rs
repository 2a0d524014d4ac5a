//! Stream-ordered frees of memory managers that the driver refuses temporarily.

use crate::prelude::*;
use cuda_safe::manager::HostBlock;

/// Frees memory of `manager` in an order while the driver permits no free. Returns how many
/// releases were deferred and how many leaked.
fn refused(manager: &OrderedManager, order: Order<'_>) -> (usize, u64) {
    let block = manager.allocate(64, order).expect("memory");
    let leaked = cuda_safe::leaked();
    let _refused = fail("cuMemFreeAsync", 1, CUresult::CUDA_ERROR_NOT_PERMITTED);
    // SAFETY: the block belongs to the manager, and nothing uses it.
    unsafe { manager.free(block, order) };
    (cuda_safe::deferred_releases(), cuda_safe::leaked() - leaked)
}

fn of_raw<'a>(stream: CUstream) -> [Order<'a>; 2] {
    [
        // SAFETY: the tests keep the stream alive.
        unsafe { Order::persistent(stream) },
        // SAFETY: as above.
        unsafe { Order::transient(stream) },
    ]
}

/// A stream of other code may be destroyed before the queue is processed.
#[test]
fn a_free_is_queued_only_for_a_stream_that_is_kept_alive() {
    let (_end, context) = in_child!(leaking());
    let manager = OrderedManager::new(&context).expect("a manager");
    let stream = context.stream().expect("a stream");
    assert_eq!(refused(&manager, Order::of(&stream)), (1, 0));
    context.synchronize().expect("a wait");
    assert_eq!((cuda_safe::deferred_releases(), alive().device_allocations), (0, 0));
    let [lasting, passing] = of_raw(stream.as_raw());
    assert_eq!(refused(&manager, lasting), (0, 1));
    assert_eq!(refused(&manager, passing), (0, 1));
    // SAFETY: the stream outlives the borrowed stream.
    let borrowed = unsafe { Stream::borrow_raw(stream.as_raw(), &context) };
    let borrowed = borrowed.expect("a stream of its own");
    assert_eq!(refused(&manager, Order::of(&borrowed)), (0, 1));
}

#[test]
fn a_free_in_a_borrowed_context_is_not_queued() {
    let (_end, context) = in_child!(leaking());
    let own = Context::new(&context.device(), ContextFlags::empty()).expect("a context");
    // SAFETY: the context outlives the borrowed context.
    let borrowed = unsafe { Context::borrow_raw(own.as_raw()) }.expect("it is alive");
    let manager = OrderedManager::new(&borrowed).expect("a manager");
    let stream = own.stream().expect("a stream");
    assert_eq!(refused(&manager, Order::of(&stream)), (0, 1));
}

/// Other code violates the rule that the stream of an order must not be captured.
#[test]
fn memory_is_not_freed_into_a_graph_of_other_code() {
    use cuda_safe::sys::{CUstreamCaptureMode, cuStreamBeginCapture_v2, cuStreamEndCapture};
    let (_end, context) = in_child!(leaking());
    let manager = OrderedManager::new(&context).expect("a manager");
    let stream = context.stream().expect("a stream");
    for order in of_raw(stream.as_raw()) {
        let block = manager.allocate(64, order).expect("memory");
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the stream is alive.
        assert!(unsafe { cuStreamBeginCapture_v2(stream.as_raw(), mode) }.is_success());
        let leaked = cuda_safe::leaked();
        cuda_sim::clear_calls();
        // SAFETY: the block belongs to the manager, and nothing uses it.
        unsafe { manager.free(block, order) };
        let is_free = |call: &Call| call.function == "cuMemFreeAsync";
        assert!(!cuda_sim::calls().iter().any(is_free));
        assert_eq!(cuda_safe::leaked() - leaked, 1);
        let mut graph = std::ptr::null_mut();
        // SAFETY: the stream is alive, and the pointer refers to a local variable.
        let ended = unsafe { cuStreamEndCapture(stream.as_raw(), &raw mut graph) };
        assert!(ended.is_success(), "{ended}");
    }
}

/// Without an event after the work, memory is freed at once. The handles of default streams refer
/// to those of each context, which are never destroyed.
#[test]
fn host_memory_without_an_event_is_queued_if_the_stream_of_its_order_stays_alive() {
    let (_end, context) = in_child!(leaking());
    let manager = DriverManager::new(&context).expect("a manager");
    let stream = context.stream().expect("a stream");
    let free = |order: Order<'_>| {
        let block: HostBlock = manager.allocate_host(64, PinnedFlags::empty()).expect("memory");
        let leaked = cuda_safe::leaked();
        let _event = fail("cuEventRecord", 1, CUresult::CUDA_ERROR_UNKNOWN);
        let refused = fail("cuMemFreeHost", 1, CUresult::CUDA_ERROR_NOT_PERMITTED);
        // SAFETY: the block belongs to the manager, and nothing uses it.
        unsafe { manager.free_host(block, order) };
        assert_eq!(refused.hits(), 1, "{order:?}");
        let became = (cuda_safe::deferred_releases(), cuda_safe::leaked() - leaked);
        drop(refused);
        context.synchronize().expect("a wait");
        assert_eq!(cuda_safe::deferred_releases(), 0, "{order:?}");
        became
    };
    let [legacy, _] = of_raw(CU_STREAM_LEGACY);
    let [lasting, passing] = of_raw(stream.as_raw());
    assert_eq!(free(legacy), (1, 0));
    assert_eq!(free(Order::of(&stream)), (1, 0));
    assert_eq!(free(lasting), (0, 1));
    assert_eq!(free(passing), (0, 1));
    assert_eq!(alive().pinned_allocations, 2);
}

#[test]
fn orders_return_their_stream() {
    let (_end, context) = in_child!(leaking());
    let stream = context.stream().expect("a stream");
    let raw = stream.as_raw();
    let [lasting, passing] = of_raw(raw);
    for order in [Order::of(&stream), lasting, passing] {
        assert_eq!(order.as_raw(), Some(raw), "{order:?}");
    }
    assert_eq!(Order::NONE.as_raw(), None);
    assert!(Order::of(&stream).stream().is_some_and(|its| *its == stream));
    assert!(lasting.stream().is_none() && Order::NONE.stream().is_none());
    // SAFETY: the stream outlives the borrowed stream.
    let borrowed = unsafe { Stream::borrow_raw(raw, &context) }.expect("a stream of its own");
    assert!(passing.is_transient() && Order::of(&borrowed).is_transient());
    assert!(
        !lasting.is_transient()
            && !Order::of(&stream).is_transient()
            && !Order::NONE.is_transient()
    );
}

#[test]
fn the_drop_of_a_reader_uses_the_context_of_its_stream_if_it_needs_one() {
    let (_end, context) = in_child!(leaking());
    let (home, stream) = (context.stream(), context.stream());
    let (home, stream) = (home.expect("a stream"), stream.expect("a stream"));
    let shared = DeviceBuffer::<u8>::zeroed(&home, 64).expect("memory").share().expect("an event");
    let reader = shared.on(&stream).expect("a reader");
    drop(shared);
    let wants = |function| fail(function, 1, CUresult::CUDA_ERROR_INVALID_CONTEXT);
    let refused = wants("cuEventRecord");
    drop(reader);
    assert_eq!((refused.hits(), cuda_safe::leaked()), (1, 0));
    context.synchronize().expect("a wait");
    assert_eq!(alive().device_allocations, 0);
}
