//! Wrappers that write a trace of allocations, or list the memory that was not freed.

use crate::forward::forward;
use crate::lock::{Mutex, leaf, this_thread};
use crate::trace::{Event, Trace};
use cuda_safe::Result;
use cuda_safe::manager::{Block, MemoryManager, Order, in_forked_child, may_block};
use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// How long [`LoggingManager::flush`] waits for a thread that is using the writer. In an explored
/// schedule no time passes, so the attempt is made only once.
const TIMEOUT: Duration = match cfg!(feature = "explore") {
    true => Duration::ZERO,
    false => Duration::from_secs(10),
};
/// The time between two attempts.
const MOMENT: Duration = Duration::from_millis(1);

/// A wrapper that writes a [trace](Trace) of the device memory of another manager: a line for each
/// allocation and each free.
///
/// One thread at a time calls the writer, and no lock is held meanwhile: the writer may be slow, and
/// may allocate from this manager. Events that occur meanwhile are written together with the next
/// event, or by [`flush`](Self::flush). When more than [`MAX_WAITING_LINES`](Self::MAX_WAITING_LINES) lines are waiting, a thread
/// that adds one waits for the writer, for at most a tenth of a second. After a panic the writer is not
/// called again, and [`flush`](Self::flush) returns an error.
///
/// [`defer_cleanup`](MemoryManager::defer_cleanup) is that of the inner manager.
pub struct LoggingManager<M> {
    inner: M,
    start: Instant,
    log: Mutex<Log>,
    writer: Mutex<Place>,
}

type Writer = Box<dyn Write + Send>;

/// The location of the writer.
enum Place {
    Here(Writer),
    /// In use by this thread.
    Taken(usize),
    /// Nowhere: the writer has panicked, or the manager has been dropped.
    Gone,
}

/// Events that have not been written yet.
#[derive(Default)]
struct Log {
    events: Vec<Event>,
    /// The numbers of the live allocations, by address.
    live: HashMap<u64, u64>,
    next: u64,
    /// The first error.
    error: Option<io::Error>,
    /// Whether the writer has panicked, so that no events are collected any more.
    is_over: bool,
}

impl<M> LoggingManager<M> {
    /// The number of lines that may wait for the writer before allocating threads wait for it too.
    pub const MAX_WAITING_LINES: usize = 1 << 14;

    /// Creates a wrapper of `inner` that writes to `writer`, for example a file. The writer receives
    /// several lines at a time if several are waiting.
    pub fn new(inner: M, writer: impl Write + Send + 'static) -> Self {
        Self {
            inner,
            start: Instant::now(),
            log: Mutex::default(),
            writer: Mutex::new(Place::Here(Box::new(writer))),
        }
    }

    /// Returns the inner manager.
    pub fn inner(&self) -> &M {
        &self.inner
    }

    /// Writes all waiting lines, and flushes the writer. Does nothing if the writer itself calls it, or
    /// in a forked child.
    ///
    /// # Errors
    /// The first error of the writer since the last call, regardless of the line that it was for;
    /// [`io::ErrorKind::WouldBlock`] if another thread is in the writer and stays there, or if this
    /// thread must not wait for it, as in a host function.
    pub fn flush(&self) -> io::Result<()> {
        let start = Instant::now();
        loop {
            match self.take_writer() {
                Ok(mut taken) => {
                    taken.write_events();
                    taken.write(|writer| writer.flush());
                    break;
                }
                Err(Busy::Here | Busy::Gone) => break,
                Err(Busy::Elsewhere) if start.elapsed() >= TIMEOUT || !may_block() => {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                Err(Busy::Elsewhere) => std::thread::sleep(MOMENT),
            }
        }
        let error = leaf(&self.log).and_then(|mut log| log.error.take());
        error.map_or(Ok(()), Err)
    }

    fn note(&self, event: impl FnOnce(&mut Log, Duration) -> Option<Event>) {
        let time = self.start.elapsed();
        if let Some(mut log) = leaf(&self.log) {
            let event = event(&mut log, time);
            let event = event.filter(|_| !log.is_over);
            log.events.extend(event);
        }
        // The wait is bounded, as the writer may need a lock that this thread holds around this
        // manager.
        for _ in 0..100 {
            match self.take_writer() {
                Ok(mut taken) => return taken.write_events(),
                Err(Busy::Elsewhere) if self.is_far_behind() => std::thread::sleep(MOMENT),
                Err(_) => return,
            }
        }
    }

    fn is_far_behind(&self) -> bool {
        leaf(&self.log).is_some_and(|log| log.events.len() > Self::MAX_WAITING_LINES) && may_block()
    }

    fn take_writer(&self) -> std::result::Result<Taken<'_, M>, Busy> {
        let mut place = leaf(&self.writer).ok_or(Busy::Gone)?;
        if in_forked_child() {
            return Err(Busy::Gone);
        }
        let this = this_thread();
        match &*place {
            Place::Here(_) => {}
            Place::Taken(thread) if *thread == this => return Err(Busy::Here),
            Place::Taken(_) => return Err(Busy::Elsewhere),
            Place::Gone => return Err(Busy::Gone),
        }
        match std::mem::replace(&mut *place, Place::Taken(this)) {
            Place::Here(writer) => Ok(Taken { manager: self, writer: Some(writer) }),
            other => {
                *place = other;
                Err(Busy::Gone)
            }
        }
    }
}

/// The reason why a thread does not get the writer.
enum Busy {
    /// This thread is using it.
    Here,
    /// Another thread is using it.
    Elsewhere,
    Gone,
}

/// The writer, while a thread is using it. It is put back when this is dropped.
struct Taken<'a, M> {
    manager: &'a LoggingManager<M>,
    /// `None` if the writer has panicked.
    writer: Option<Writer>,
}

impl<M> Taken<'_, M> {
    fn write_events(&mut self) {
        let events = leaf(&self.manager.log).map(|mut log| std::mem::take(&mut log.events));
        let events = events.unwrap_or_default();
        if !events.is_empty() {
            let lines: String = events.iter().map(|event| format!("{event}\n")).collect();
            self.write(|writer| writer.write_all(lines.as_bytes()));
        }
    }

    fn write(&mut self, write: impl FnOnce(&mut Writer) -> io::Result<()>) {
        let Some(writer) = &mut self.writer else {
            return;
        };
        let written = catch_unwind(AssertUnwindSafe(|| write(writer)));
        let is_over = written.is_err();
        let written = written.unwrap_or_else(|payload| {
            let message = message_of(payload);
            Err(io::Error::other(format!("the writer panicked: {message}")))
        });
        if is_over {
            // The writer might panic again when it is dropped.
            std::mem::forget(self.writer.take());
        }
        if let (Err(error), Some(mut log)) = (written, leaf(&self.manager.log)) {
            log.error.get_or_insert(error);
            log.is_over |= is_over;
        }
    }
}

impl<M> Drop for Taken<'_, M> {
    fn drop(&mut self) {
        if let Some(mut place) = leaf(&self.manager.writer) {
            *place = match self.writer.take() {
                Some(writer) => Place::Here(writer),
                None => Place::Gone,
            };
        }
    }
}

#[inline]
fn number_of(order: Order<'_>) -> u64 {
    order.key().map_or(Trace::NO_STREAM, |key| key as u64)
}

/// Returns the message of a panic payload.
#[inline]
fn message_of(payload: Box<dyn Any + Send>) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| {
        // The payload may panic again when it is dropped.
        std::mem::forget(payload);
        "a payload that is not a string".to_owned()
    })
}

// SAFETY: all memory is that of the inner manager.
unsafe impl<M: MemoryManager> MemoryManager for LoggingManager<M> {
    forward!(version current base wrapped initialize reset host pin managed memory_info ipc_handle defer_cleanup trim);

    fn allocate(&self, size: usize, order: Order<'_>) -> Result<Block> {
        let block = self.inner.allocate(size, order)?;
        self.note(|log, time| {
            let number = log.next;
            log.next += 1;
            log.live.insert(block.address, number);
            Some(Event::Allocate { time, number, size: size as u64, stream: number_of(order) })
        });
        Ok(block)
    }

    unsafe fn free(&self, block: Block, order: Order<'_>) {
        // Recorded before the free, because another thread may then allocate the same address.
        self.note(|log, time| {
            let number = log.live.remove(&block.address)?;
            Some(Event::Free { time, number, stream: number_of(order) })
        });
        // SAFETY: the caller's promise.
        unsafe { self.inner.free(block, order) }
    }
}

impl<M> Drop for LoggingManager<M> {
    fn drop(&mut self) {
        if in_forked_child() {
            // The buffered lines belong to the parent process, which writes them.
            let place = self.writer.get_mut();
            let place = place.unwrap_or_else(PoisonError::into_inner);
            return std::mem::forget(std::mem::replace(place, Place::Gone));
        }
        // A drop cannot return the error.
        let _ = self.flush();
    }
}

impl<M: fmt::Debug> fmt::Debug for LoggingManager<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoggingManager").field("inner", &self.inner).finish_non_exhaustive()
    }
}

/// An allocation that has not been freed yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outstanding {
    /// The allocated block.
    pub block: Block,
    /// The number of the allocation, counted from zero.
    pub number: u64,
    /// The time since the allocation.
    pub age: Duration,
}

/// The number of allocations so far, and the live blocks by address.
type Live = (u64, HashMap<u64, (Block, u64, Instant)>);

/// A wrapper that lists the device memory which was allocated from another manager and not freed yet.
/// Use it at the end of a test, or to find leaks in a running program.
///
/// [`defer_cleanup`](MemoryManager::defer_cleanup) is that of the inner manager.
#[derive(Debug)]
pub struct LeakManager<M> {
    inner: M,
    live: Mutex<Live>,
}

impl<M> LeakManager<M> {
    /// Creates a wrapper of `inner`.
    pub fn new(inner: M) -> Self {
        Self { inner, live: Mutex::default() }
    }

    /// Returns the inner manager.
    pub fn inner(&self) -> &M {
        &self.inner
    }

    /// Returns the allocations that have not been freed yet, the oldest first. (In a forked child the
    /// list may be empty.)
    pub fn outstanding(&self) -> Vec<Outstanding> {
        let Some(live) = leaf(&self.live) else {
            return Vec::new();
        };
        let mut outstanding: Vec<Outstanding> = live
            .1
            .values()
            .map(|(block, number, since)| Outstanding {
                block: *block,
                number: *number,
                age: since.elapsed(),
            })
            .collect();
        outstanding.sort_by_key(|its| its.number);
        outstanding
    }
}

// SAFETY: all memory is that of the inner manager.
unsafe impl<M: MemoryManager> MemoryManager for LeakManager<M> {
    forward!(version current base wrapped initialize reset host pin managed memory_info ipc_handle defer_cleanup trim);

    fn allocate(&self, size: usize, order: Order<'_>) -> Result<Block> {
        let block = self.inner.allocate(size, order)?;
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        let number = live.0;
        live.0 += 1;
        live.1.insert(block.address, (block, number, Instant::now()));
        Ok(block)
    }

    unsafe fn free(&self, block: Block, order: Order<'_>) {
        if let Some(mut live) = leaf(&self.live) {
            live.1.remove(&block.address);
        }
        // SAFETY: the caller's promise.
        unsafe { self.inner.free(block, order) }
    }
}
