//! Managers around another that write down what is asked for, and what was not given back.

use super::forward::forward;
use super::trace::{Event, Trace};
use super::turn::{Asked, Turn, leaf};
use super::{Block, MemoryManager, Order};
use crate::error::Result;
use crate::fork;
use crate::release;
use crate::report::words_of;
use crate::sync::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// Device memory of another manager, with a [trace](Trace) of it: a line for each allocation and free.
///
/// The writer is called by one thread at a time, under no lock that others need: it may be slow, and allocate by
/// this manager. What happens meanwhile is written at once with what comes next, or by
/// [`flush`](Self::flush); where that becomes [much](Self::MUCH), whoever adds to it waits for the writer, a
/// tenth of a second at most. A writer that panics is not called again, which is an error of that.
///
/// [`defer_cleanup`](MemoryManager::defer_cleanup) is that of the inner manager.
pub struct LoggingManager<M> {
    inner: M,
    start: Instant,
    log: Mutex<Log>,
    writer: Mutex<Option<Writer>>,
    /// Whoever writes.
    turn: Turn,
}

type Writer = Box<dyn Write + Send>;

/// What happened, and was not written yet.
#[derive(Default)]
struct Log {
    events: Vec<Event>,
    /// The numbers of what is handed out, by address.
    live: HashMap<u64, u64>,
    next: u64,
    /// What went wrong first.
    error: Option<io::Error>,
    /// Nobody writes any more.
    is_over: bool,
}

impl<M> LoggingManager<M> {
    /// How many lines may wait for the writer before those who allocate wait for it too.
    pub const MUCH: usize = 1 << 14;

    /// Around a manager, to a writer (a file; it gets many lines at a time where there are many).
    pub fn new(inner: M, writer: impl Write + Send + 'static) -> Self {
        Self {
            inner,
            start: Instant::now(),
            log: Mutex::default(),
            writer: Mutex::new(Some(Box::new(writer))),
            turn: Turn::default(),
        }
    }

    /// The manager that this is around.
    pub fn inner(&self) -> &M {
        &self.inner
    }

    /// Writes out what a buffer may have. (In the writer itself, and in a forked child, it does nothing.)
    ///
    /// # Errors
    /// The first that the writer had, for whichever line; [`io::ErrorKind::WouldBlock`] in a host function, while
    /// another thread writes.
    pub fn flush(&self) -> io::Result<()> {
        match self.turn.ask() {
            Asked::Already => return Ok(()),
            Asked::Others => return Err(io::ErrorKind::WouldBlock.into()),
            Asked::Mine(_turn) => {
                self.write_events();
                self.write(|writer| writer.flush());
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
        // Not for ever: the writer may need a lock that this thread has around this manager.
        for _ in 0..100 {
            match self.turn.ask_now() {
                Some(Asked::Mine(_turn)) => return self.write_events(),
                None if self.is_far_behind() => std::thread::sleep(Duration::from_millis(1)),
                _ => return,
            }
        }
    }

    fn is_far_behind(&self) -> bool {
        leaf(&self.log).is_some_and(|log| log.events.len() > Self::MUCH) && release::may_wait()
    }

    /// In this thread's turn.
    fn write_events(&self) {
        let events = leaf(&self.log).map(|mut log| std::mem::take(&mut log.events));
        let events = events.unwrap_or_default();
        if !events.is_empty() {
            let lines: String = events.iter().map(|event| format!("{event}\n")).collect();
            self.write(|writer| writer.write_all(lines.as_bytes()));
        }
    }

    /// Has the writer do something, in this thread's turn.
    fn write(&self, write: impl FnOnce(&mut Writer) -> io::Result<()>) {
        let writer = leaf(&self.writer).and_then(|mut writer| writer.take());
        let Some(mut writer) = writer else {
            return;
        };
        let written = catch_unwind(AssertUnwindSafe(|| write(&mut writer)));
        let is_over = written.is_err();
        let written = written.unwrap_or_else(|payload| {
            let words = words_of(payload);
            Err(io::Error::other(format!("the writer panicked: {words}")))
        });
        if is_over {
            // It may panic once more when it is dropped.
            std::mem::forget(writer);
        } else if let Some(mut place) = leaf(&self.writer) {
            *place = Some(writer);
        }
        if let (Err(error), Some(mut log)) = (written, leaf(&self.log)) {
            log.error.get_or_insert(error);
            log.is_over |= is_over;
        }
    }
}

fn number_of(order: Order<'_>) -> u64 {
    order
        .raw()
        .map_or(Trace::NO_STREAM, |raw| raw.addr() as u64)
}

// SAFETY: all memory is that of the inner manager.
unsafe impl<M: MemoryManager> MemoryManager for LoggingManager<M> {
    forward!(version base wrapped initialize reset host pin managed memory_info ipc_handle defer_cleanup trim stream_ends);

    fn allocate(&self, size: usize, order: Order<'_>) -> Result<Block> {
        let block = self.inner.allocate(size, order)?;
        self.note(|log, time| {
            let number = log.next;
            log.next += 1;
            log.live.insert(block.address, number);
            Some(Event::Allocate {
                time,
                number,
                size: size as u64,
                stream: number_of(order),
            })
        });
        Ok(block)
    }

    unsafe fn free(&self, block: Block, order: Order<'_>) {
        // Before it is free: then another thread may have the address.
        self.note(|log, time| {
            let number = log.live.remove(&block.address)?;
            Some(Event::Free {
                time,
                number,
                stream: number_of(order),
            })
        });
        // SAFETY: the caller's promise.
        unsafe { self.inner.free(block, order) }
    }
}

impl<M> Drop for LoggingManager<M> {
    fn drop(&mut self) {
        if fork::in_child() {
            // What its buffer has is the other process's to write.
            let writer = self.writer.get_mut();
            return std::mem::forget(writer.unwrap_or_else(PoisonError::into_inner).take());
        }
        // Nobody is left to hear of it.
        let _ = self.flush();
    }
}

impl<M: fmt::Debug> fmt::Debug for LoggingManager<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoggingManager")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

/// Memory that was not given back yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outstanding {
    /// What was handed out.
    pub block: Block,
    /// The how manieth allocation it was.
    pub number: u64,
    /// How long ago.
    pub age: Duration,
}

/// What is handed out, and how often something was.
type Live = (u64, HashMap<u64, (Block, u64, Instant)>);

/// Device memory of another manager, with a list of what was not given back: for the end of a test, and for
/// what grows and should not.
///
/// [`defer_cleanup`](MemoryManager::defer_cleanup) is that of the inner manager.
#[derive(Debug)]
pub struct LeakManager<M> {
    inner: M,
    live: Mutex<Live>,
}

impl<M> LeakManager<M> {
    /// Around a manager.
    pub fn new(inner: M) -> Self {
        Self {
            inner,
            live: Mutex::default(),
        }
    }

    /// The manager that this is around.
    pub fn inner(&self) -> &M {
        &self.inner
    }

    /// What was not given back yet, the oldest first. (In a forked child it may be nothing.)
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
    forward!(version base wrapped initialize reset host pin managed memory_info ipc_handle defer_cleanup trim stream_ends);

    fn allocate(&self, size: usize, order: Order<'_>) -> Result<Block> {
        let block = self.inner.allocate(size, order)?;
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        let number = live.0;
        live.0 += 1;
        live.1
            .insert(block.address, (block, number, Instant::now()));
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
