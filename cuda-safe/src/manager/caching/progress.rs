//! What a pool asks the driver about streams: it records events, queries them and has streams wait for them,
//! all without its lock.
//!
//! A stream of this crate is kept alive by a handle while an event is recorded in it. So the last clone may be
//! dropped here, and the end of the stream be told on this thread; never under the lock, and never while a block
//! is reserved that would be lost if the owner of a stream panics.

use super::books::{Marks, Queries, Reach, Record};
use super::heap::Id;
use super::lanes::{Idle, Lanes};
use super::shared::{Shared, Want};
use super::slow::Pool;
use crate::call::call;
use crate::capture::Operation;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::manager::capture::{enqueue, enqueue_now};
use crate::manager::{Order, StreamEnd};
use crate::report::count_leak;
use crate::stream::{Stream, refuse_inside};
use cuda_sys::{CU_STREAM_LEGACY, CUstream};
use std::sync::Arc;

impl Record {
    /// Records the event, and makes it if there is none. `named` is the order of the call; a stream that was
    /// kept alive for the call is put into `kept`.
    fn make(&mut self, named: Order<'_>, context: &Context, kept: &mut Vec<Stream>) -> Result<()> {
        refuse_inside()?;
        let order = match &self.reach {
            // SAFETY: the legacy default stream of the pool's context, which is not captured.
            Reach::Always => unsafe { Order::known(CU_STREAM_LEGACY) },
            Reach::Named => named,
            Reach::Held(stream) => {
                let stream = stream.upgrade().ok_or(Error::InHostFunction)?;
                kept.push(stream);
                kept.last().map_or(Order::NONE, Order::of)
            }
        };
        let event = match self.event.take() {
            Some(event) => event,
            None => Arc::new(context.event_now()?),
        };
        let recorded = record(&event, order, context);
        self.event = Some(event);
        recorded
    }
}

/// Records an event in the stream of an order.
fn record(event: &Event, order: Order<'_>, context: &Context) -> Result<()> {
    enqueue_now(order, Operation::Record, context, |raw| {
        // SAFETY: the event is alive, and so is the stream during the call.
        unsafe { call!(cuEventRecord(event.raw(), raw)) }
    })
}

fn wait_for_events(events: &[Arc<Event>], order: Order<'_>, context: &Context) -> Result<()> {
    for event in events {
        enqueue(order, Operation::Wait, context, |raw| {
            // SAFETY: the stream is alive during the call, and not captured; the driver keeps what it
            // needs of the event.
            unsafe { call!(cuStreamWaitEvent(raw, event.raw(), 0)) }
        })?;
    }
    Ok(())
}

impl Queries {
    /// Returns the last number whose event is reached.
    fn reached(&self) -> Option<u64> {
        let is_reached = |event: &Event| event.is_done().is_ok_and(|done| done);
        let reached = self
            .events
            .iter()
            .take_while(|(_, event)| is_reached(event));
        reached.last().map(|(number, _)| *number)
    }
}

/// A block that is taken out of the heap, to be given back with its marks unless it is used.
struct Reserved<'a> {
    pool: &'a Pool,
    id: Id,
    marks: Marks,
    is_used: bool,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if !self.is_used {
            self.pool.lock().heap.give(self.id, &self.marks);
        }
    }
}

impl Pool {
    /// Records and queries events, to learn how far streams are.
    pub(super) fn poll(&self, named: Order<'_>) {
        let (mut records, mut queries) = self.lock().books.due(named.raw());
        if queries.is_empty() {
            return;
        }
        let mut kept = Vec::new();
        let mut made = Vec::with_capacity(records.len());
        for record in &mut records {
            let is_made = record.make(named, self.context(), &mut kept).is_ok();
            made.push(is_made);
            let its = queries.iter_mut().find(|its| its.book == record.book);
            if let (Some(its), Some(event), true) = (its, &record.event, is_made) {
                its.events.push((record.number, Arc::clone(event)));
            }
        }
        let reached = queries
            .iter()
            .filter_map(|its| Some((its.book, its.reached()?)));
        let reached: Vec<(u32, u64)> = reached.collect();
        // So that events can be used again.
        drop(queries);
        let mut shared = self.lock();
        for (record, is_made) in records.into_iter().zip(made) {
            shared.books.enter(record, is_made);
        }
        for (book, number) in reached {
            shared.books.reached(book, number);
        }
        drop(shared);
        drop(kept);
    }

    /// Finds a block that the stream may use after work of other streams, and has it wait for that.
    pub(super) fn find_behind(&self, want: &Want<'_>) -> Option<Idle> {
        let raw = want.order.raw()?;
        let (mut reserved, events, records) = {
            let mut shared = self.lock();
            let id = shared.heap.find_any(want.bytes)?;
            let own = want.book(&shared.books);
            let marks = shared.heap.marks(id).to_vec();
            let (events, records) = shared.books.cover(&marks, own, Some(raw))?;
            let id = shared.heap.take(id, want.bytes);
            let reserved = Reserved {
                pool: self,
                id,
                marks,
                is_used: false,
            };
            (reserved, events, records)
        };
        let mut kept = Vec::new();
        let waits = self.wait_behind(events, records, want.order, &mut kept);
        // The end of a stream may panic, by its owner: then the block goes back.
        drop(kept);
        waits.ok()?;
        reserved.is_used = true;
        let mut shared = self.lock();
        shared.stream_waits += 1;
        Some(shared.idle(reserved.id))
    }

    /// Has the stream of an order wait for events, and for those that are recorded now.
    fn wait_behind(
        &self,
        mut events: Vec<Arc<Event>>,
        mut records: Vec<Record>,
        order: Order<'_>,
        kept: &mut Vec<Stream>,
    ) -> Result<()> {
        let mut made = Vec::with_capacity(records.len());
        let mut recorded = Ok(());
        for record in &mut records {
            let its = record.make(order, self.context(), kept);
            made.push(its.is_ok());
            recorded = recorded.and(its);
            events.extend(record.event.clone());
        }
        // Their clones keep other threads from using these events again.
        {
            let mut shared = self.lock();
            for (record, is_made) in records.into_iter().zip(made) {
                shared.books.enter(record, is_made);
            }
        }
        recorded.and_then(|()| wait_for_events(&events, order, self.context()))
    }

    /// Takes a block back in the order of a stream that may be gone after the call.
    pub(super) fn free_passing(&self, id: Id, order: Order<'_>) {
        let event = self.event_behind(order);
        // The wait for all work of the pool's context says nothing of a stream of another one.
        let is_its = |stream: &Stream| stream.context() == self.context();
        if event.is_none() && !order.stream().is_none_or(is_its) {
            return count_leak();
        }
        let mut shared = self.lock();
        let mark = shared.books.mark_passing(event);
        shared.heap.give(id, &[mark]);
    }

    /// Returns an event after what a stream was given up to now; none where the driver has none.
    fn event_behind(&self, order: Order<'_>) -> Option<Arc<Event>> {
        refuse_inside().ok()?;
        let its = order.stream().map(Stream::context);
        let other = its.filter(|its| *its != self.context());
        let event = match other {
            Some(other) => Arc::new(other.without_manager().event_now().ok()?),
            None => {
                let spare = self.lock().books.spare();
                match spare {
                    Some(event) => event,
                    None => Arc::new(self.context().event_now().ok()?),
                }
            }
        };
        match record(&event, order, self.context()) {
            Ok(()) => Some(event),
            Err(_) => {
                self.lock().books.keep(event);
                None
            }
        }
    }

    /// Records the event that other streams miss, in a call that names the stream.
    pub(super) fn record_wanted(&self, mut record: Record, order: Order<'_>) {
        let mut kept = Vec::new();
        let is_made = record.make(order, self.context(), &mut kept).is_ok();
        self.lock().books.enter(record, is_made);
        drop(kept);
    }

    /// A stream ends: its lanes are emptied, and its book gets its last event.
    pub(super) fn stream_ends(&self, lanes: &Lanes, end: &StreamEnd<'_>) {
        let stream = match end.as_raw() {
            raw if raw.is_null() => CU_STREAM_LEGACY,
            raw => raw,
        };
        let Some(mut last) = self.close(lanes, stream) else {
            return;
        };
        // The stream is alive for this call, whoever keeps it.
        last.reach = Reach::Named;
        // SAFETY: as said; it is not captured, or the driver is asked.
        let order = unsafe { Order::known(stream) };
        let is_made = last.make(order, self.context(), &mut Vec::new()).is_ok();
        self.lock().books.enter(last, is_made);
    }

    /// Closes the book and the lanes of a stream. Returns the event to record, if something needs one.
    fn close(&self, lanes: &Lanes, stream: CUstream) -> Option<Record> {
        let mut shared = self.lock();
        let book = shared.books.find(stream)?;
        let mut left = Vec::new();
        let Shared { counts, .. } = &mut *shared;
        lanes.close(stream, |idles, its| {
            counts.hits += its.hits;
            counts.frees += its.frees;
            left.extend(idles);
        });
        if !left.is_empty() {
            let mark = shared.books.mark(book);
            for idle in left {
                shared.heap.give(idle.id, &[mark]);
            }
        }
        shared.books.detach(book)
    }
}
