//! Borrowed contexts and streams: their owner destroys them after everything created with them is
//! dropped, and nothing uses them afterwards.

use crate::prelude::*;
use crate::release;

/// Runs `body`, and checks that everything except `leaks` objects is destroyed and that nothing is
/// used after its destruction.
#[track_caller]
fn leaking(leaks: u64) -> (AtEnd, Context) {
    let (end, context) = release::leaking();
    let (sender, heard) = mpsc::channel();
    let sender = Mutex::new(sender);
    cuda_safe::set_report_hook(move |report| {
        let sender = sender.lock().expect("no panic while it was locked");
        sender.send(report.to_string()).expect("the test receives it");
    });
    let end = end.after(move || {
        let context = crate::context();
        cuda_sim::clear_calls();
        drain(&context);
        let failed = cuda_sim::calls().into_iter().find(|call| !call.result.is_success());
        assert!(failed.is_none(), "{failed:?}");
        assert_eq!(cuda_safe::leaked(), leaks);
        let reports: Vec<String> = heard.try_iter().collect();
        assert_eq!(reports.len() as u64, leaks, "{reports:?}");
        let told = |report: &String| report.contains("borrowed");
        assert!(reports.iter().all(told), "{reports:?}");
    });
    (end, context)
}

/// Drops a value in a host function of another stream.
fn drop_in_host_function(context: &Context, what: impl Send + 'static) {
    let helper = context.stream().expect("a stream");
    let function = move || drop(what);
    helper.launch_host_function(function).expect("enqueued");
    helper.synchronize().expect("a wait");
}

fn lent_stream(context: &Context) -> (CUstream, Stream) {
    let raw = context.stream().expect("a stream").into_raw();
    // SAFETY: everything created with the stream is dropped before it is destroyed.
    let stream = unsafe { Stream::borrow_raw(raw, context) };
    (raw, stream.expect("a stream of its own"))
}

fn lent_context(context: &Context) -> (CUcontext, Context) {
    let raw = Context::new(&context.device(), ContextFlags::empty()).expect("a context").into_raw();
    // SAFETY: everything created in the context is dropped before it is destroyed.
    let lent = unsafe { Context::borrow_raw(raw) };
    (raw, lent.expect("it is alive"))
}

fn destroy_stream(raw: CUstream) {
    // SAFETY: everything created with the stream is dropped.
    let code = unsafe { cuStreamDestroy_v2(raw) };
    assert!(code.is_success(), "{code}");
}

fn destroy_context(raw: CUcontext) {
    // SAFETY: everything created in the context is dropped.
    let code = unsafe { cuCtxDestroy_v2(raw) };
    assert!(code.is_success(), "{code}");
}

#[test]
fn the_release_of_a_buffer_on_a_borrowed_stream_is_not_deferred() {
    let (_end, context) = in_child!(leaking(1));
    let (raw, stream) = lent_stream(&context);
    let buffer = DeviceBuffer::<u8>::zeroed(&stream, 64).expect("memory");
    drop(stream);
    drop_in_host_function(&context, buffer);
    destroy_stream(raw);
}

#[test]
fn the_release_of_a_reader_on_a_borrowed_stream_is_not_deferred() {
    let (_end, context) = in_child!(leaking(1));
    let (raw, stream) = lent_stream(&context);
    let home = context.stream().expect("a stream");
    let buffer = DeviceBuffer::<u8>::zeroed(&home, 64).expect("memory");
    let reader = buffer.share().expect("written memory").on(&stream).expect("a reader");
    drop(stream);
    drop_in_host_function(&context, reader);
    destroy_stream(raw);
}

#[test]
fn releases_of_objects_of_a_borrowed_context_are_not_deferred() {
    let (_end, context) = in_child!(leaking(4));
    let (raw, lent) = lent_context(&context);
    let module = Module::from_ptx(&lent, VECTOR).expect("the test kernels");
    let pinned = PinnedBuffer::<u8>::zeroed(&lent, 64).expect("memory");
    let stream = lent.stream().expect("a stream");
    let event = lent.event().expect("an event");
    drop(lent);
    drop_in_host_function(&context, (module, pinned, stream, event));
    destroy_context(raw);
}

/// A foreign stream has an owner, which stays alive with the deferred release.
#[test]
fn deferred_releases_keep_the_owner_of_a_foreign_stream_alive() {
    struct Owner(usize);
    impl Drop for Owner {
        fn drop(&mut self) {
            destroy_stream(std::ptr::with_exposed_provenance_mut(self.0));
        }
    }
    let (_end, context) = in_child!(leaking(0));
    let raw = context.stream().expect("a stream").into_raw();
    let owner = Owner(raw.expose_provenance());
    // SAFETY: the owner destroys the stream when it is dropped.
    let stream = unsafe { Stream::from_foreign(raw, &context, owner) };
    let stream = stream.expect("a stream");
    let buffer = DeviceBuffer::<u8>::zeroed(&stream, 64).expect("memory");
    drop(stream);
    drop_in_host_function(&context, buffer);
    assert_eq!(cuda_sim::alive().device_allocations, 1);
    drop(context.event().expect("an event"));
    assert_eq!(cuda_sim::alive().device_allocations, 0);
}

fn lent_event(context: &Context) -> (CUevent, Event) {
    let raw = context.event().expect("an event").into_raw();
    // SAFETY: the event stays alive until it is destroyed below, after everything that uses it.
    (raw, unsafe { Event::borrow_raw(raw, context) }.expect("an event"))
}

fn destroy_event(raw: CUevent) {
    // SAFETY: everything that used the event is dropped.
    let code = unsafe { cuEventDestroy_v2(raw) };
    assert!(code.is_success(), "{code}");
}

/// Returns a graph that records an event at each launch.
fn recording_graph(stream: &Stream, event: &Event) -> Graph {
    let captured = stream.capture(CaptureMode::ThreadLocal, |stream| event.record_external(stream));
    captured.expect("a graph")
}

#[test]
fn the_release_of_a_graph_that_retains_a_borrowed_event_is_not_deferred() {
    let (_end, context) = in_child!(leaking(1));
    let stream = context.stream().expect("a stream");
    let (raw, event) = lent_event(&context);
    let graph = recording_graph(&stream, &event);
    drop(event);
    drop_in_host_function(&context, graph);
    destroy_event(raw);
}

#[test]
fn the_release_of_a_graph_that_retains_an_event_of_a_borrowed_context_is_not_deferred() {
    // The event is dropped with the graph, and its release cannot be deferred either.
    let (_end, context) = in_child!(leaking(2));
    let stream = context.stream().expect("a stream");
    let (_raw, lent) = lent_context(&context);
    let event = lent.event().expect("an event");
    // An event of another context can be waited for but not recorded.
    event.record(&lent.stream().expect("a stream")).expect("a record");
    let captured = stream.capture(CaptureMode::ThreadLocal, |stream| stream.wait_external(&event));
    let graph = captured.expect("a graph");
    drop((event, lent));
    drop_in_host_function(&context, graph);
}

#[test]
fn the_release_of_a_graph_with_conditional_handles_of_a_borrowed_context_is_not_deferred() {
    let (_end, context) = in_child!(leaking(1));
    let (raw, lent) = lent_context(&context);
    let mut graph = Graph::new(&context).expect("a graph");
    for _ in 0..2 {
        graph.conditional_handle(&lent, None).expect("a handle");
    }
    drop(lent);
    drop_in_host_function(&context, graph);
    destroy_context(raw);
}

#[test]
fn the_release_of_a_graph_that_retains_owned_objects_is_deferred() {
    let (_end, context) = in_child!(leaking(0));
    cuda_safe::event::set_reuse(false);
    let stream = context.stream().expect("a stream");
    let event = context.event().expect("an event");
    let graph = recording_graph(&stream, &event);
    let executable = graph.instantiate().expect("an executable graph");
    drop((event, stream));
    let kept = context.event().expect("an event");
    // SAFETY: the handle is only compared.
    let foreign = unsafe { Event::from_foreign(kept.as_raw(), &context, kept) }.expect("an event");
    let stream = context.stream().expect("a stream");
    let other = recording_graph(&stream, &foreign);
    drop((stream, foreign));
    drop_in_host_function(&context, (graph, executable, other));
    assert_eq!(cuda_safe::deferred_releases(), 3);
    drop(context.event().expect("an event"));
    let alive = cuda_sim::alive();
    assert_eq!((alive.graphs, alive.executable_graphs, alive.events), (0, 0, 0));
}

#[test]
fn the_release_of_a_graph_of_a_borrowed_stream_is_not_deferred() {
    let (_end, context) = in_child!(leaking(2));
    let (raw, stream) = lent_stream(&context);
    let graph = stream.capture::<Error>(CaptureMode::ThreadLocal, |_| Ok(()));
    let graph = graph.expect("a graph");
    let executable = graph.instantiate().expect("an executable graph");
    drop(stream);
    drop_in_host_function(&context, (graph, executable));
    destroy_stream(raw);
}

#[test]
fn the_release_of_a_graph_of_a_stream_of_a_borrowed_context_is_not_deferred() {
    let (_end, context) = in_child!(leaking(1));
    let (raw, lent) = lent_context(&context);
    let stream = lent.stream().expect("a stream");
    let graph = stream.capture::<Error>(CaptureMode::ThreadLocal, |_| Ok(()));
    let graph = graph.expect("a graph");
    drop((stream, lent));
    drop_in_host_function(&context, graph);
    destroy_context(raw);
}

#[test]
fn the_release_of_pool_memory_on_a_borrowed_stream_is_not_deferred() {
    // The pool is leaked too, because its memory was not freed.
    let (_end, context) = in_child!(leaking(1));
    let (raw, stream) = lent_stream(&context);
    let pool = MemoryPool::default_of(&context).expect("a pool");
    let buffer = DeviceBuffer::<u8>::uninit_from_pool(&pool, &stream, 64).expect("memory");
    drop((stream, pool));
    drop_in_host_function(&context, buffer);
    destroy_stream(raw);
}

#[test]
fn the_release_of_memory_of_a_borrowed_pool_is_not_deferred() {
    let (_end, context) = in_child!(leaking(1));
    let stream = context.stream().expect("a stream");
    let raw = MemoryPool::default_of(&context).expect("a pool").as_raw();
    // SAFETY: the pool belongs to the device.
    let pool = unsafe { MemoryPool::borrow_raw(raw, &context) }.expect("a pool");
    let buffer = DeviceBuffer::<u8>::uninit_from_pool(&pool, &stream, 64).expect("memory");
    drop((stream, pool));
    drop_in_host_function(&context, buffer);
}

#[test]
fn the_release_of_a_reader_of_memory_on_a_borrowed_stream_is_not_deferred() {
    let (_end, context) = in_child!(leaking(1));
    let (_raw, home) = lent_stream(&context);
    let stream = context.stream().expect("a stream");
    let buffer = DeviceBuffer::<u8>::zeroed(&home, 64).expect("memory");
    let shared = buffer.share().expect("written memory");
    let reader = shared.on(&stream).expect("a reader");
    drop((stream, shared, home));
    // The reader keeps the memory on the borrowed stream alive.
    drop_in_host_function(&context, reader);
}
