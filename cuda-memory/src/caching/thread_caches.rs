//! Per-thread caches of free blocks, one for each pair of a stream and a thread that uses it.
//!
//! A thread finds its cache without a write that other threads see, and the lock of a cache is rarely
//! contended. The blocks in a cache were last used on its stream, so that stream can reuse them at
//! once, from any thread.

use super::classes::{COUNT, size_of_class};
use super::heap::Id;
use super::stream_progress::StreamKey;
use crate::lock::{Mutex, MutexGuard};
use std::cell::Cell;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A cached block.
#[derive(Clone, Copy)]
pub(super) struct Idle {
    pub(super) address: u64,
    pub(super) id: Id,
}

/// The blocks of one stream that one thread has freed, by size class.
#[derive(Default)]
pub(super) struct ThreadCache {
    /// The stream and the thread, both nonzero; or zeros if the cache is not in use.
    key: (StreamKey, usize),
    stacks: Vec<Vec<Idle>>,
    pub(super) bytes: u64,
    /// The number of allocations that it has served for its thread.
    pub(super) hits: u64,
}

/// The maximum number of blocks in each size class of a cache.
const DEPTH: usize = 64;

impl ThreadCache {
    /// Takes a block for the thread of the cache.
    #[inline]
    pub(super) fn pop(&mut self, class: u8) -> Option<Idle> {
        let idle = self.take(class)?;
        self.hits += 1;
        Some(idle)
    }

    /// Takes a block for any thread.
    #[inline]
    pub(super) fn take(&mut self, class: u8) -> Option<Idle> {
        let idle = self.stacks.get_mut(class as usize)?.pop()?;
        self.bytes -= size_of_class(class);
        Some(idle)
    }

    /// Caches a block, or returns it if there is no room.
    #[inline]
    pub(super) fn push(&mut self, class: u8, idle: Idle, limit: u64) -> Result<(), Idle> {
        let size = size_of_class(class);
        match self.stacks.get_mut(class as usize) {
            Some(stack) if stack.len() < DEPTH && self.bytes + size <= limit => {
                stack.push(idle);
                self.bytes += size;
                Ok(())
            }
            _ => Err(idle),
        }
    }

    /// Takes half of the blocks of a class, the oldest first.
    #[inline]
    pub(super) fn take_half(&mut self, class: u8) -> Vec<Idle> {
        let Some(stack) = self.stacks.get_mut(class as usize) else {
            return Vec::new();
        };
        let half = stack.len().div_ceil(2);
        self.bytes -= half as u64 * size_of_class(class);
        stack.drain(..half).collect()
    }

    /// Takes all blocks.
    #[inline]
    pub(super) fn take_all(&mut self) -> Vec<Idle> {
        self.bytes = 0;
        self.stacks.iter_mut().flat_map(std::mem::take).collect()
    }

    #[inline]
    fn is_of(&self, key: (usize, usize)) -> bool {
        self.key == key
    }

    /// Returns the stream, if the cache is in use.
    #[inline]
    pub(super) fn stream(&self) -> Option<StreamKey> {
        (self.key.1 != 0).then_some(self.key.0)
    }

    #[inline]
    fn open(&mut self, key: (usize, usize)) {
        self.key = key;
        if self.stacks.is_empty() {
            self.stacks.resize_with(COUNT, Vec::new);
        }
    }
}

/// A per-thread cache and its key, on cache lines that are not shared with others.
#[derive(Default)]
#[repr(align(128))]
struct Place {
    stream: AtomicUsize,
    /// The number of the thread; 0 if the place is not in use.
    thread: AtomicUsize,
    cache: Mutex<ThreadCache>,
}

/// The per-thread caches of all streams and threads.
pub(super) struct ThreadCaches {
    places: Box<[Place]>,
    /// The places that are in use.
    open: Mutex<Vec<usize>>,
}

/// The number of places, and how many of them a pair of a stream and a thread can use.
const PLACES: usize = 1024;
const PROBES: usize = 8;
/// The number of distinct thread numbers; further threads share them.
const THREADS: usize = 61;

/// Returns a number for this thread, starting from 1.
#[inline]
fn thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<usize> = const { Cell::new(0) };
    }
    // While a thread is exiting, it shares the number of the first thread.
    NUMBER
        .try_with(|number| match number.get() {
            0 => {
                let new = NEXT.fetch_add(1, Ordering::Relaxed) % THREADS + 1;
                number.set(new);
                new
            }
            known => known,
        })
        .unwrap_or(1)
}

impl ThreadCaches {
    #[inline]
    pub(super) fn new() -> Self {
        Self { places: (0..PLACES).map(|_| Place::default()).collect(), open: Mutex::default() }
    }

    #[inline]
    fn probes(key: (usize, usize)) -> impl Iterator<Item = usize> {
        // Handles are addresses of objects, so their lowest bits carry no information.
        let mixed = (key.0 >> 4 ^ key.1 << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let start = mixed >> (usize::BITS - PLACES.ilog2());
        (0..PROBES).map(move |step| (start + step) % PLACES)
    }

    /// Returns this thread's cache of a stream, if there is one.
    #[inline]
    pub(super) fn find(&self, stream: StreamKey) -> Option<MutexGuard<'_, ThreadCache>> {
        let key = (stream, thread());
        for place in Self::probes(key) {
            let place = &self.places[place];
            if place.stream.load(Ordering::Relaxed) == key.0
                && place.thread.load(Ordering::Relaxed) == key.1
            {
                let cache = place.cache.lock().unwrap_or_else(PoisonError::into_inner);
                // The place may have been taken for another key meanwhile.
                if cache.is_of(key) {
                    return Some(cache);
                }
            }
        }
        None
    }

    /// Returns this thread's cache of a stream, and creates it if necessary. Returns `None` if all of
    /// its places are taken. Only one thread may call this at a time.
    #[inline]
    pub(super) fn open(&self, stream: StreamKey) -> Option<MutexGuard<'_, ThreadCache>> {
        if let Some(cache) = self.find(stream) {
            return Some(cache);
        }
        let key = (stream, thread());
        let is_unused = |place: &usize| self.places[*place].thread.load(Ordering::Relaxed) == 0;
        let index = Self::probes(key).find(is_unused)?;
        let place = &self.places[index];
        let mut cache = place.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.open(key);
        place.stream.store(key.0, Ordering::Relaxed);
        place.thread.store(key.1, Ordering::Relaxed);
        self.lock_open().push(index);
        Some(cache)
    }

    #[inline]
    fn lock_open(&self) -> MutexGuard<'_, Vec<usize>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `f` with each cache in use, or with those of one stream. Only one thread may call this at
    /// a time.
    pub(super) fn each(&self, stream: Option<StreamKey>, mut f: impl FnMut(&mut ThreadCache)) {
        for index in self.lock_open().iter() {
            let place = &self.places[*index];
            let its = place.stream.load(Ordering::Relaxed);
            if stream.is_none_or(|stream| stream == its) {
                f(&mut place.cache.lock().unwrap_or_else(PoisonError::into_inner));
            }
        }
    }

    /// Empties the caches of a stream and removes them. `f` receives the blocks and the hits of
    /// each. Only one thread may call this at a time.
    pub(super) fn close(&self, stream: StreamKey, mut f: impl FnMut(Vec<Idle>, u64)) {
        self.lock_open().retain(|index| {
            let place = &self.places[*index];
            if place.stream.load(Ordering::Relaxed) != stream {
                return true;
            }
            let mut cache = place.cache.lock().unwrap_or_else(PoisonError::into_inner);
            f(cache.take_all(), std::mem::take(&mut cache.hits));
            cache.key = (0, 0);
            place.thread.store(0, Ordering::Relaxed);
            false
        });
    }
}

#[cfg(test)]
mod tests;
