//! Managers around another that write down what is asked for, and what was not given back.

use super::forward::forward;
use super::trace::{Event, Trace};
use super::{Block, MemoryManager, Order};
use crate::error::Result;
use std::collections::HashMap;
use std::fmt;
use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Device memory of another manager, with a [trace](Trace) of it: a line for each allocation and free.
pub struct LoggingManager<M> {
    inner: M,
    start: Instant,
    log: Mutex<Log>,
}

struct Log {
    writer: Box<dyn Write + Send>,
    /// The numbers of what is handed out, by address.
    live: HashMap<u64, u64>,
    next: u64,
    /// What went wrong first.
    error: Option<io::Error>,
}

impl<M> LoggingManager<M> {
    /// Around a manager, to a writer (a file, buffered).
    pub fn new(inner: M, writer: impl Write + Send + 'static) -> Self {
        Self {
            inner,
            start: Instant::now(),
            log: Mutex::new(Log {
                writer: Box::new(writer),
                live: HashMap::new(),
                next: 0,
                error: None,
            }),
        }
    }

    /// The manager that this is around.
    pub fn inner(&self) -> &M {
        &self.inner
    }

    /// Writes out what a buffer may have.
    ///
    /// # Errors
    /// The first that the writer had, for whichever line.
    pub fn flush(&self) -> io::Result<()> {
        let mut log = self.lock();
        match log.error.take() {
            Some(error) => Err(error),
            None => log.writer.flush(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn time(&self) -> Duration {
        self.start.elapsed()
    }
}

impl Log {
    fn write(&mut self, event: &Event) {
        if let Err(error) = writeln!(self.writer, "{event}") {
            self.error.get_or_insert(error);
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
    forward!(base initialize reset host pin managed memory_info ipc_handle defer_cleanup trim stream_ends);

    fn allocate(&self, size: usize, order: Order<'_>) -> Result<Block> {
        let block = self.inner.allocate(size, order)?;
        let (time, stream) = (self.time(), number_of(order));
        let mut log = self.lock();
        let number = log.next;
        log.next += 1;
        log.live.insert(block.address, number);
        log.write(&Event::Allocate {
            time,
            number,
            size: size as u64,
            stream,
        });
        Ok(block)
    }

    unsafe fn free(&self, block: Block, order: Order<'_>) {
        let (time, stream) = (self.time(), number_of(order));
        {
            let mut log = self.lock();
            if let Some(number) = log.live.remove(&block.address) {
                log.write(&Event::Free {
                    time,
                    number,
                    stream,
                });
            }
        }
        // After the line: another thread may have the address as soon as it is free.
        // SAFETY: the caller's promise.
        unsafe { self.inner.free(block, order) }
    }
}

impl<M> Drop for LoggingManager<M> {
    fn drop(&mut self) {
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

    /// What was not given back yet, the oldest first.
    pub fn outstanding(&self) -> Vec<Outstanding> {
        let live = self.lock();
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

    fn lock(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// SAFETY: all memory is that of the inner manager.
unsafe impl<M: MemoryManager> MemoryManager for LeakManager<M> {
    forward!(base initialize reset host pin managed memory_info ipc_handle defer_cleanup trim stream_ends);

    fn allocate(&self, size: usize, order: Order<'_>) -> Result<Block> {
        let block = self.inner.allocate(size, order)?;
        let mut live = self.lock();
        let number = live.0;
        live.0 += 1;
        live.1
            .insert(block.address, (block, number, Instant::now()));
        Ok(block)
    }

    unsafe fn free(&self, block: Block, order: Order<'_>) {
        self.lock().1.remove(&block.address);
        // SAFETY: the caller's promise.
        unsafe { self.inner.free(block, order) }
    }
}
