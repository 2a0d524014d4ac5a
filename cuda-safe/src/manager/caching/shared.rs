//! What all threads of a pool share, under its lock: the heap, and the books of streams.

use super::books::{Books, NOBODYS, handle};
use super::classes::NONE;
use super::heap::{Heap, Id};
use super::lanes::{Counts, Idle, Lane, Lanes};
use crate::call::call;
use crate::capture::Operation;
use crate::context::Context;
use crate::error::Result;
use crate::event::Event;
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
    /// Bytes that were freed in nobody's order, of which some are pending.
    pub(super) nobodys: u64,
    /// Bytes that threads are taking from the manager below.
    pub(super) taking: u64,
}

/// What is asked for.
pub(super) struct Want<'a> {
    /// As rounded.
    pub(super) bytes: u64,
    pub(super) class: u8,
    pub(super) order: Order<'a>,
    /// The stream, if it is one that lasts.
    pub(super) stream: Option<CUstream>,
}

impl Shared {
    pub(super) fn idle(&self, id: Id) -> Idle {
        Idle {
            address: self.heap.address(id),
            id,
        }
    }

    pub(super) fn give_in_order(&mut self, id: Id, stream: CUstream) {
        let book = self.books.of(stream);
        let mark = self.books.mark(book);
        self.heap.give(id, &[mark]);
    }

    pub(super) fn give_nobodys(&mut self, id: Id) {
        self.nobodys += self.heap.size(id);
        let mark = self.books.mark(NOBODYS);
        self.heap.give(id, &[mark]);
    }

    pub(super) fn settled(&mut self, numbers: &[u64]) {
        self.books.settled(numbers);
        if self.books.nobodys_pending() == 0 {
            self.nobodys = 0;
        }
        self.heap.forget_done(&self.books);
    }

    /// What is kept and can be used without a wait.
    pub(super) fn find_kept(&mut self, lanes: &Lanes, want: &Want<'_>) -> Result<Option<Idle>> {
        self.open_lane(lanes, want)?;
        // Other threads have freed something of that stream.
        if let Some(stream) = want.stream.filter(|_| want.class != NONE) {
            let mut found = None;
            lanes.each(Some(stream), |lane| {
                if found.is_none() {
                    found = lane.pop(want.class);
                }
            });
            if found.is_some() {
                return Ok(found);
            }
        }
        if let Some(idle) = self.find_now(want) {
            return Ok(Some(idle));
        }
        self.books.poll();
        if let Some(idle) = self.find_now(want) {
            return Ok(Some(idle));
        }
        // All that lies in lanes, in one piece with what is beside it.
        self.collect(lanes);
        if let Some(idle) = self.find_now(want) {
            return Ok(Some(idle));
        }
        // Events behind that, for the next time at the latest.
        self.books.poll();
        Ok(self.find_now(want))
    }

    /// What the stream may use now.
    pub(super) fn find_now(&mut self, want: &Want<'_>) -> Option<Idle> {
        let book = want.stream.and_then(|stream| self.books.find(stream));
        let id = self.heap.find(want.bytes, book, &self.books)?;
        let id = self.heap.take(id, want.bytes);
        Some(self.idle(id))
    }

    /// What the stream may use behind others' work.
    pub(super) fn find_behind(&mut self, want: &Want<'_>, context: &Context) -> Option<Idle> {
        want.order.raw()?;
        let id = self.heap.find_any(want.bytes)?;
        let own = want.stream.and_then(|stream| self.books.find(stream));
        let marks = self.heap.marks(id).to_vec();
        let events = self.books.events_of(&marks, own)?;
        let _call = want.order.uncaptured(Operation::Wait, context).ok()?;
        wait_for_events(&events, want.order, context).ok()?;
        self.stream_waits += 1;
        let id = self.heap.take(id, want.bytes);
        Some(self.idle(id))
    }

    /// The stream gets a book, and the thread a lane for it.
    pub(super) fn open_lane(&mut self, lanes: &Lanes, want: &Want<'_>) -> Result<()> {
        if let Some(stream) = want.stream {
            self.books.begin(stream)?;
            drop(lanes.open(stream));
        }
        Ok(())
    }

    /// Puts what is in lanes into the heap.
    pub(super) fn collect(&mut self, lanes: &Lanes) {
        let Self { heap, books, .. } = self;
        lanes.each(None, |lane: &mut Lane| {
            let Some(stream) = lane.stream().filter(|_| lane.bytes != 0) else {
                return;
            };
            let book = books.of(handle(stream));
            let mark = books.mark(book);
            for idle in lane.take_all() {
                heap.give(idle.id, &[mark]);
            }
        });
    }
}

fn wait_for_events(events: &[Event], order: Order<'_>, context: &Context) -> Result<()> {
    for event in events {
        order.call(context, |raw| {
            // SAFETY: the stream is alive during the call, and not captured; the driver keeps what it
            // needs of the event.
            unsafe { call!(cuStreamWaitEvent(raw, event.raw(), 0)) }
        })?;
    }
    Ok(())
}
