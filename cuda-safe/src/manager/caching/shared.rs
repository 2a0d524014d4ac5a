//! What all threads of a pool share, behind its lock: the heap, and the progress of streams. No function here
//! calls the driver or other code.

use super::books::{Books, NOBODYS, Reach};
use super::classes::NONE;
use super::heap::{Heap, Id};
use super::lanes::{Counts, Idle, Lane, Lanes};
use crate::manager::Order;
use cuda_sys::CUstream;

/// What all threads share.
pub(super) struct Shared {
    pub(super) heap: Heap,
    pub(super) books: Books,
    pub(super) counts: Counts,
    pub(super) misses: u64,
    pub(super) grown: u64,
    pub(super) stream_waits: u64,
    pub(super) host_waits: u64,
    pub(super) reserved_high: u64,
    /// Bytes that were freed without a stream, some of which are pending.
    pub(super) nobodys: u64,
    /// Bytes that threads are allocating from the upstream manager.
    pub(super) taking: u64,
}

/// A request for memory.
pub(super) struct Want<'a> {
    /// The size, rounded up.
    pub(super) bytes: u64,
    pub(super) class: u8,
    pub(super) order: Order<'a>,
    /// The stream, if the pool may keep a book of it.
    pub(super) stream: Option<(CUstream, Reach)>,
}

impl Want<'_> {
    fn stream(&self) -> Option<CUstream> {
        self.stream.as_ref().map(|(stream, _)| *stream)
    }

    pub(super) fn book(&self, books: &Books) -> Option<u32> {
        self.stream().and_then(|stream| books.find(stream))
    }
}

impl Shared {
    pub(super) fn idle(&self, id: Id) -> Idle {
        Idle {
            address: self.heap.address(id),
            id,
        }
    }

    pub(super) fn give_nobodys(&mut self, id: Id) {
        self.nobodys += self.heap.size(id);
        let mark = self.books.mark(NOBODYS);
        self.heap.give(id, &[mark]);
    }

    /// Takes a block back in the order of a stream that has a book: to a lane, or to the heap.
    pub(super) fn give_in_order(
        &mut self,
        lanes: &Lanes,
        (id, class): (Id, u8),
        (stream, book): (CUstream, u32),
        lane_bytes: usize,
    ) {
        let idle = self.idle(id);
        let limit = lane_bytes as u64;
        let mut over = Vec::new();
        let mut is_kept = false;
        if let Some(mut lane) = (class != NONE).then(|| lanes.open(stream)).flatten() {
            is_kept = lane.push(class, idle, limit).is_ok();
            if !is_kept {
                over = lane.take_half(class);
                is_kept = lane.push(class, idle, limit).is_ok();
            }
        }
        if !is_kept {
            over.push(idle);
        }
        if !over.is_empty() {
            let mark = self.books.mark(book);
            for idle in over {
                self.heap.give(idle.id, &[mark]);
            }
        }
    }

    pub(super) fn settled(&mut self, numbers: &[u64]) {
        self.books.settled(numbers);
        if self.books.nobodys_pending() == 0 {
            self.nobodys = 0;
        }
        self.heap.forget_done(&self.books);
    }

    /// Finds a block that other threads have freed on the stream.
    pub(super) fn find_in_lanes(&self, lanes: &Lanes, want: &Want<'_>) -> Option<Idle> {
        let stream = want.stream().filter(|_| want.class != NONE)?;
        let mut found = None;
        lanes.each(Some(stream), |lane| {
            if found.is_none() {
                found = lane.pop(want.class);
            }
        });
        found
    }

    /// Finds a block that the stream may use now.
    pub(super) fn find_now(&mut self, want: &Want<'_>) -> Option<Idle> {
        let book = want.book(&self.books);
        let id = self.heap.find(want.bytes, book, &self.books)?;
        let id = self.heap.take(id, want.bytes);
        Some(self.idle(id))
    }

    /// Opens the thread's lane of the stream. Returns whether the stream has a book.
    pub(super) fn open_lane(&mut self, lanes: &Lanes, want: &Want<'_>) -> bool {
        match &want.stream {
            Some((stream, _)) if self.books.find(*stream).is_none() => false,
            Some((stream, reach)) => {
                self.books.of(*stream, reach);
                drop(lanes.open(*stream));
                true
            }
            None => true,
        }
    }

    /// Moves what is in lanes to the heap.
    pub(super) fn collect(&mut self, lanes: &Lanes) {
        let Self { heap, books, .. } = self;
        lanes.each(None, |lane: &mut Lane| {
            let Some(stream) = lane.stream().filter(|_| lane.bytes != 0) else {
                return;
            };
            // A lane is closed with the book of its stream.
            let book = books.find_handle(stream).unwrap_or(NOBODYS);
            let mark = books.mark(book);
            for idle in lane.take_all() {
                heap.give(idle.id, &[mark]);
            }
        });
    }
}
