//! Free blocks within reach: of each stream, and of each thread that uses it.
//!
//! A lane is found without a write that others see, and its lock is nobody else's but now and then. What is
//! in it was last used in the order of its stream, so that stream can use it again at once, whichever
//! thread asks.

use super::classes::{COUNT, size_of_class};
use super::heap::Id;
use crate::sync::{Mutex, MutexGuard};
use cuda_sys::CUstream;
use std::cell::Cell;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A block that waits for its next use.
#[derive(Clone, Copy)]
pub(super) struct Idle {
    pub(super) address: u64,
    pub(super) id: Id,
}

/// The blocks of one stream that one thread has freed, by their classes.
#[derive(Default)]
pub(super) struct Lane {
    /// The stream and the thread, of which neither is 0; or this lane is nobody's.
    key: (usize, usize),
    stacks: Vec<Vec<Idle>>,
    pub(super) bytes: u64,
    pub(super) counts: Counts,
}

/// What happened, for the figures.
#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) hits: u64,
    pub(super) frees: u64,
}

/// So many blocks of a class are kept.
const DEPTH: usize = 64;

impl Lane {
    #[inline]
    pub(super) fn pop(&mut self, class: u8) -> Option<Idle> {
        let idle = self.stacks.get_mut(class as usize)?.pop()?;
        self.bytes -= size_of_class(class);
        self.counts.hits += 1;
        Some(idle)
    }

    /// Keeps a block; gives it back if there is no room.
    #[inline]
    pub(super) fn push(&mut self, class: u8, idle: Idle, limit: u64) -> Result<(), Idle> {
        let size = size_of_class(class);
        match self.stacks.get_mut(class as usize) {
            Some(stack) if stack.len() < DEPTH && self.bytes + size <= limit => {
                stack.push(idle);
                self.bytes += size;
                self.counts.frees += 1;
                Ok(())
            }
            _ => Err(idle),
        }
    }

    /// Takes half of what there is of a class, the longest there.
    pub(super) fn take_half(&mut self, class: u8) -> Vec<Idle> {
        let Some(stack) = self.stacks.get_mut(class as usize) else {
            return Vec::new();
        };
        let half = stack.len().div_ceil(2);
        self.bytes -= half as u64 * size_of_class(class);
        stack.drain(..half).collect()
    }

    /// Takes everything.
    pub(super) fn take_all(&mut self) -> Vec<Idle> {
        self.bytes = 0;
        self.stacks.iter_mut().flat_map(std::mem::take).collect()
    }

    fn is_of(&self, key: (usize, usize)) -> bool {
        self.key == key
    }

    /// The stream, if it is somebody's.
    pub(super) fn stream(&self) -> Option<usize> {
        (self.key.1 != 0).then_some(self.key.0)
    }

    fn open(&mut self, key: (usize, usize)) {
        self.key = key;
        if self.stacks.is_empty() {
            self.stacks.resize_with(COUNT, Vec::new);
        }
    }
}

/// A lane, and whose it is, on cache lines of their own.
#[derive(Default)]
#[repr(align(128))]
struct Place {
    stream: AtomicUsize,
    /// 0: nobody's.
    thread: AtomicUsize,
    lane: Mutex<Lane>,
}

/// The lanes of all streams and threads.
pub(super) struct Lanes {
    places: Box<[Place]>,
    /// Those that are somebody's.
    open: Mutex<Vec<usize>>,
}

/// So many there are, of which a stream and a thread have one of a few.
const PLACES: usize = 1024;
const TRIED: usize = 8;
/// Threads with a number of their own; others share theirs.
const THREADS: usize = 61;

/// A number for this thread, from 1.
#[inline]
fn thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<usize> = const { Cell::new(0) };
    }
    // At its end a thread shares the first's.
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

impl Lanes {
    pub(super) fn new() -> Self {
        Self {
            places: (0..PLACES).map(|_| Place::default()).collect(),
            open: Mutex::default(),
        }
    }

    #[inline]
    fn tried(key: (usize, usize)) -> impl Iterator<Item = usize> {
        // Handles are addresses of objects.
        let mixed = (key.0 >> 4 ^ key.1 << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let start = mixed >> (usize::BITS - PLACES.ilog2());
        (0..TRIED).map(move |step| (start + step) % PLACES)
    }

    /// This thread's lane of a stream, if there is one.
    #[inline]
    pub(super) fn find(&self, stream: CUstream) -> Option<MutexGuard<'_, Lane>> {
        let key = (stream.addr(), thread());
        for place in Self::tried(key) {
            let place = &self.places[place];
            if place.stream.load(Ordering::Relaxed) == key.0
                && place.thread.load(Ordering::Relaxed) == key.1
            {
                let lane = place.lane.lock().unwrap_or_else(PoisonError::into_inner);
                // It may have become another's meanwhile.
                if lane.is_of(key) {
                    return Some(lane);
                }
            }
        }
        None
    }

    /// The same, made now if there is none; none if all of its places are taken. One thread at a time.
    pub(super) fn open(&self, stream: CUstream) -> Option<MutexGuard<'_, Lane>> {
        if let Some(lane) = self.find(stream) {
            return Some(lane);
        }
        let key = (stream.addr(), thread());
        let is_nobodys = |place: &usize| self.places[*place].thread.load(Ordering::Relaxed) == 0;
        let index = Self::tried(key).find(is_nobodys)?;
        let place = &self.places[index];
        let mut lane = place.lane.lock().unwrap_or_else(PoisonError::into_inner);
        lane.open(key);
        place.stream.store(key.0, Ordering::Relaxed);
        place.thread.store(key.1, Ordering::Relaxed);
        self.lock_open().push(index);
        Some(lane)
    }

    fn lock_open(&self) -> MutexGuard<'_, Vec<usize>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `f` with each lane that is somebody's; of one stream, if one is given. One thread at a time.
    pub(super) fn each(&self, stream: Option<CUstream>, mut f: impl FnMut(&mut Lane)) {
        for index in self.lock_open().iter() {
            let place = &self.places[*index];
            let its = place.stream.load(Ordering::Relaxed);
            if stream.is_none_or(|stream| stream.addr() == its) {
                f(&mut place.lane.lock().unwrap_or_else(PoisonError::into_inner));
            }
        }
    }

    /// Empties the lanes of a stream, which are nobody's then. What `f` is given was in them. One thread at
    /// a time.
    pub(super) fn close(&self, stream: CUstream, mut f: impl FnMut(Vec<Idle>, Counts)) {
        self.lock_open().retain(|index| {
            let place = &self.places[*index];
            if place.stream.load(Ordering::Relaxed) != stream.addr() {
                return true;
            }
            let mut lane = place.lane.lock().unwrap_or_else(PoisonError::into_inner);
            f(lane.take_all(), std::mem::take(&mut lane.counts));
            lane.key = (0, 0);
            place.thread.store(0, Ordering::Relaxed);
            false
        });
    }
}
