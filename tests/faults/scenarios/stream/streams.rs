//! Streams.

use crate::scenarios::{expect, if_there_is, invalid, primary_and_streams};
use crate::trace::Trace;
use cuda_safe::stream::StreamFuture;
use cuda_safe::{Context, ContextFlags, DeviceBuffer, Invalid, Result, Stream, StreamOptions};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll, Wake, Waker};

pub(crate) fn run(trace: &mut Trace) -> Result<()> {
    let (context, [first]) = primary_and_streams()?;
    let blocking = context.stream_with(StreamOptions { blocking: true, ..Default::default() })?;
    let high = context.stream_with(StreamOptions { priority: -1, ..Default::default() })?;
    assert_eq!(first.priority()?, 0);
    assert_eq!(high.priority()?, -1);
    if_there_is(first.id())?;
    let event = context.event()?;
    event.record(&first)?;
    high.wait_event(&event)?;
    blocking.wait_event(&event)?;
    high.is_complete()?;
    // SAFETY: the call is refused and accesses nothing.
    let default = unsafe { Stream::borrow_raw(std::ptr::null_mut(), &context) };
    expect(default, invalid(|why| matches!(why, Invalid::Handle { .. })))?;
    let clone = first.clone();
    trace.drop(first);
    clone.synchronize()?;
    trace.drop(context);
    high.synchronize()?;
    blocking.synchronize()?;
    high.launch_host_function(|| {})?;
    high.synchronize()?;
    trace.drops_from_here()
}

pub(crate) fn default_streams(trace: &mut Trace) -> Result<()> {
    let (context, [stream]) = primary_and_streams()?;
    let event = context.event()?;
    let current = context.make_current()?;
    for default in [current.legacy_stream(), current.per_thread_stream()] {
        event.record(&stream)?;
        default.wait_event(&event)?;
        default.launch_host_function(|| {})?;
        default.record_event(&event)?;
        stream.wait_event(&event)?;
        default.is_complete()?;
        default.synchronize()?;
    }
    let inner = Context::new(&context.device(), ContextFlags::empty())?;
    inner.with_current(|_| current.legacy_stream().record_event(&event))??;
    trace.drop(inner);
    stream.synchronize()?;
    trace.drop(current);
    trace.drops_from_here()
}

/// A waker that does nothing: the future is polled instead.
struct Silent;

impl Wake for Silent {
    fn wake(self: Arc<Self>) {}
}

fn poll(done: &mut StreamFuture) -> Poll<Result<()>> {
    let waker = Waker::from(Arc::new(Silent));
    pin!(done).poll(&mut Task::from_waker(&waker))
}

pub(crate) fn futures(trace: &mut Trace) -> Result<()> {
    let (context, [stream]) = primary_and_streams()?;
    let buffer = DeviceBuffer::<u32>::zeroed(&stream, 4)?;
    let mut done = stream.completion()?;
    let mut dropped = stream.completion()?;
    let unpolled = stream.completion()?;
    let _ = poll(&mut dropped);
    trace.drop((dropped, unpolled));
    assert!(poll(&mut done).is_pending());
    stream.synchronize()?;
    match poll(&mut done) {
        Poll::Ready(done) => done?,
        Poll::Pending => panic!("the work has completed"),
    }
    trace.drop(buffer);
    // The future keeps the stream alive.
    trace.drop((stream, context, done));
    trace.drops_from_here()
}
