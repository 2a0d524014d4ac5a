//! Streams.

use super::worker::{Item, Worker};
use crate::common;
use cuda_safe::stream::{MemoryOperation, StreamFuture};
use cuda_safe::stream::{SynchronizationPolicy, WaitCondition};
use cuda_safe::{DeviceBuffer, Result, StreamOptions};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context as Task, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

pub(super) fn make(worker: &mut Worker<'_>) -> Result<()> {
    let arena = worker.arena;
    let priority = worker.below(3) as i32 - 2;
    let homes = arena.homes.len() + arena.greens.len();
    let stream = match worker.below(homes) {
        home if home < arena.homes.len() => {
            arena.homes[home].context.stream_with(StreamOptions {
                priority,
                blocking: worker.below(4) == 0,
                ..StreamOptions::default()
            })?
        }
        home => arena.greens[home - arena.homes.len()]
            .stream_with(StreamOptions { priority, ..StreamOptions::default() })?,
    };
    let mut streams = arena.streams.lock().expect("no thread panicked");
    streams.push(stream);
    let has_many = streams.len() > 64;
    drop(streams);
    if has_many { end(worker) } else { Ok(()) }
}

pub(super) fn end(worker: &mut Worker<'_>) -> Result<()> {
    let at = worker.below(64);
    let mut streams = worker.arena.streams.lock().expect("no thread panicked");
    let stream = (streams.len() > 8).then(|| {
        let at = at % streams.len();
        streams.swap_remove(at)
    });
    drop(streams);
    drop(stream);
    Ok(())
}

pub(super) fn host_function(worker: &mut Worker<'_>) -> Result<()> {
    let stream = worker.stream()?;
    let arena = worker.arena;
    let ran = Arc::clone(&arena.ran);
    stream.launch_host_function(move || {
        ran.fetch_add(1, Ordering::SeqCst);
    })?;
    arena.given.fetch_add(1, Ordering::SeqCst);
    if worker.below(4) == 0 {
        stream.synchronize()?;
    }
    Ok(())
}

/// Drops the item in a host function, where driver calls are not allowed.
pub(super) fn drop_in_host_function(worker: &mut Worker<'_>) -> Result<()> {
    let item = worker.take(|item| match item {
        // Dropping one of these waits, which is not possible in a host function.
        Item::Pending(..) => Err(item),
        other => Ok(other),
    });
    let stream = worker.stream()?;
    stream.launch_host_function(move || drop(item))
}

pub(super) fn set(worker: &mut Worker<'_>) -> Result<()> {
    let stream = worker.stream()?;
    if stream.green_context().is_some() {
        return Ok(());
    }
    match worker.below(4) {
        0 => stream.set_synchronization_policy(SynchronizationPolicy::Yield),
        1 => stream.set_priority(worker.below(3) as i32 - 2),
        2 => {
            let other = stream.context().stream()?;
            stream.copy_attributes_from(&other)
        }
        _ => stream.synchronization_policy().and_then(|_| stream.priority()).map(drop),
    }
}

pub(super) fn done(worker: &mut Worker<'_>) -> Result<()> {
    let stream = worker.stream()?;
    let done = stream.completion()?;
    if worker.below(4) == 0 {
        // Nothing polls the future, and the stream continues.
        drop(done);
        return Ok(());
    }
    wait_for(done)
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn wait_for(done: StreamFuture) -> Result<()> {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut done = pin!(done);
    loop {
        if let Poll::Ready(result) = done.as_mut().poll(&mut Task::from_waker(&waker)) {
            return result;
        }
        if common::is_software() {
            // The software driver makes progress only when it is called.
            cuda_sim::alive();
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

/// Makes one stream wait for a word that another stream writes.
///
/// Each wait is enqueued after its write, so the order in which work was enqueued is always an
/// order in which all of it can complete, whatever the streams of other threads wait for.
pub(super) fn memory_words(worker: &mut Worker<'_>) -> Result<()> {
    let producer = worker.stream()?;
    let consumer = worker.stream_beside(&producer)?;
    let mut words = DeviceBuffer::<u32>::zeroed_sync(&producer, 2)?;
    let event = producer.context().event()?;
    event.record(&producer)?;
    // After the zeros.
    consumer.wait_event(&event)?;
    let value = worker.below(1000) as u32 + 1;
    words.as_mut_slice().write_value(1, value)?;
    let wait = MemoryOperation::Wait32 {
        address: words.as_raw() + 4,
        value,
        condition: WaitCondition::Equal,
        flush: false,
    };
    // SAFETY: the word stays alive until the wait has completed, as explained below.
    unsafe { consumer.memory_operation(wait) }?;
    event.record(&consumer)?;
    producer.wait_event(&event)
    // The producer's stream frees the memory after the consumer's work.
}

pub(super) fn default_streams(worker: &mut Worker<'_>) -> Result<()> {
    let arena = worker.arena;
    let context = &worker.home().context;
    let waits = worker.below(4) == 0;
    let event = context.event()?;
    context.with_current(|current| {
        let (legacy, own) = (current.legacy_stream(), current.per_thread_stream());
        legacy.record_event(&event)?;
        own.wait_event(&event)?;
        let ran = Arc::clone(&arena.ran);
        own.launch_host_function(move || {
            ran.fetch_add(1, Ordering::SeqCst);
        })?;
        arena.given.fetch_add(1, Ordering::SeqCst);
        if waits { own.synchronize() } else { Ok(()) }
    })?
}
