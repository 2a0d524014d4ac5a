//! The pool's driver calls on streams: it records events, queries them and makes streams wait for them,
//! always without holding its lock.
//!
//! A stream of this crate is kept alive by a handle while an event is recorded in it. So the last clone
//! may be dropped here, and the notification that the stream ends may arrive on this thread. This never
//! happens under the lock, and never while a block is reserved that would be lost if the owner of a
//! stream panics.

use super::heap::Id;
use super::shared::{Request, Shared};
use super::slow::Pool;
use super::stream_progress::{Queries, Reach, Record, StreamKey, SyncPoints};
use super::thread_caches::{Idle, ThreadCaches};
use cuda_safe::manager::{Order, OrderEvent, StreamEnd, in_host_function, report_leak};
use cuda_safe::sys::CU_STREAM_LEGACY;
use cuda_safe::{Context, Error, Result, Stream};
use std::sync::Arc;

impl Record {
    /// Records the event, and creates it first if necessary. `named` is the order of the call. A stream
    /// that was kept alive for the recording is pushed to `kept`.
    #[inline]
    fn make(&mut self, named: Order<'_>, context: &Context, kept: &mut Vec<Stream>) -> Result<()> {
        refuse_in_host_function()?;
        let order = match &self.reach {
            // SAFETY: this is the legacy default stream of the pool's context. It lives as long as the
            // context and cannot be captured.
            Reach::Always => unsafe { Order::persistent(CU_STREAM_LEGACY) },
            Reach::Named => named,
            Reach::Held(stream) => {
                let stream = stream.upgrade().ok_or(Error::InHostFunction)?;
                kept.push(stream);
                kept.last().map_or(Order::NONE, Order::of)
            }
        };
        let event = match self.event.take() {
            Some(event) => event,
            None => Arc::new(OrderEvent::new(context)?),
        };
        let recorded = event.record(order, context);
        self.event = Some(event);
        recorded
    }
}

/// Returns an error in a host function, where no event can be recorded.
#[inline]
fn refuse_in_host_function() -> Result<()> {
    match in_host_function() {
        true => Err(Error::InHostFunction),
        false => Ok(()),
    }
}

#[inline]
fn wait_for_events(events: &[Arc<OrderEvent>], order: Order<'_>, context: &Context) -> Result<()> {
    let mut events = events.iter();
    events.try_for_each(|event| order.wait_event(event, context))
}

impl Queries {
    /// Returns the number of the last complete event.
    #[inline]
    fn reached(&self) -> Option<u64> {
        let is_reached = |event: &OrderEvent| event.is_complete().is_ok_and(|done| done);
        let reached = self.events.iter().take_while(|(_, event)| is_reached(event));
        reached.last().map(|(number, _)| *number)
    }
}

/// A block that is taken out of the heap. It is returned with its sync points unless it is used.
struct Reserved<'a> {
    pool: &'a Pool,
    id: Id,
    points: SyncPoints,
    is_used: bool,
}

impl Drop for Reserved<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.is_used {
            self.pool.lock().heap.give(self.id, &self.points);
        }
    }
}

impl Pool {
    /// Records and queries events to update the progress of the streams.
    #[inline]
    pub(super) fn poll(&self, named: Order<'_>) {
        let (mut records, mut queries) = self.lock().progress.due(named.key());
        if queries.is_empty() {
            return;
        }
        let mut kept = Vec::new();
        let mut made = Vec::with_capacity(records.len());
        for record in &mut records {
            let is_made = record.make(named, self.context(), &mut kept).is_ok();
            made.push(is_made);
            let its = queries.iter_mut().find(|its| its.entry == record.entry);
            if let (Some(its), Some(event), true) = (its, &record.event, is_made) {
                its.events.push((record.number, Arc::clone(event)));
            }
        }
        let reached = queries.iter().filter_map(|its| Some((its.entry, its.reached()?)));
        let reached: Vec<(u32, u64)> = reached.collect();
        // Dropped first, so that the events can be reused.
        drop(queries);
        let mut shared = self.lock();
        for (record, is_made) in records.into_iter().zip(made) {
            shared.progress.enter(record, is_made);
        }
        for (entry, number) in reached {
            shared.progress.reached(entry, number);
        }
        drop(shared);
        drop(kept);
    }

    /// Finds a block whose last use was on other streams, and makes the stream of the request wait for
    /// that use.
    #[inline]
    pub(super) fn find_after_wait(&self, request: &Request<'_>) -> Option<Idle> {
        let named = request.order.key()?;
        let (mut reserved, events, records) = {
            let mut shared = self.lock();
            let id = shared.heap.find_any(request.bytes)?;
            let own = request.entry(&shared.progress);
            let points = shared.heap.points(id).to_vec();
            let (events, records) = shared.progress.cover(&points, own, Some(named))?;
            let id = shared.heap.take(id, request.bytes);
            let reserved = Reserved { pool: self, id, points, is_used: false };
            (reserved, events, records)
        };
        let mut kept = Vec::new();
        let waits = self.wait_after(events, records, request.order, &mut kept);
        // Dropping a stream may panic in the drop of its owner. The block is then returned to the heap.
        drop(kept);
        waits.ok()?;
        reserved.is_used = true;
        let mut shared = self.lock();
        shared.stream_waits += 1;
        Some(shared.idle(reserved.id))
    }

    /// Makes the stream of an order wait for `events`, and for those of `records`, which are recorded
    /// now.
    #[inline]
    fn wait_after(
        &self,
        mut events: Vec<Arc<OrderEvent>>,
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
        // The clones in `events` prevent other threads from reusing these events.
        {
            let mut shared = self.lock();
            for (record, is_made) in records.into_iter().zip(made) {
                shared.progress.enter(record, is_made);
            }
        }
        recorded.and_then(|()| wait_for_events(&events, order, self.context()))
    }

    /// Frees a block on a stream that may be destroyed after the call.
    #[inline]
    pub(super) fn free_passing(&self, id: Id, order: Order<'_>) {
        let is_its = |stream: &Stream| stream.context() == self.context();
        let event = match self.event_after(order) {
            Ok(event) => Some(event),
            Err(_) if order.stream().is_none_or(is_its) => None,
            // A wait for all work of the pool's context does not cover a stream of another context.
            Err(error) => return report_leak("device memory", error),
        };
        let mut shared = self.lock();
        let point = shared.progress.sync_point_of_event(event);
        shared.heap.give(id, &[point]);
    }

    /// Returns an event after all work that a stream was given up to now.
    #[inline]
    fn event_after(&self, order: Order<'_>) -> Result<Arc<OrderEvent>> {
        refuse_in_host_function()?;
        let its = order.stream().map(Stream::context);
        let other = its.filter(|its| *its != self.context());
        let event = match other {
            Some(other) => Arc::new(OrderEvent::new(other)?),
            None => {
                let spare = self.lock().progress.spare();
                match spare {
                    Some(event) => event,
                    None => Arc::new(OrderEvent::new(self.context())?),
                }
            }
        };
        match event.record(order, self.context()) {
            Ok(()) => Ok(event),
            Err(error) => {
                self.lock().progress.keep(event);
                Err(error)
            }
        }
    }

    /// Records an event that another stream is waiting for, in a call that received the stream.
    #[inline]
    pub(super) fn record_wanted(&self, mut record: Record, order: Order<'_>) {
        let mut kept = Vec::new();
        let is_made = record.make(order, self.context(), &mut kept).is_ok();
        self.lock().progress.enter(record, is_made);
        drop(kept);
    }

    /// Handles the end of a stream: empties its per-thread caches and records the last event of its
    /// entry.
    #[inline]
    pub(super) fn stream_ends(&self, thread_caches: &ThreadCaches, end: &StreamEnd<'_>) {
        let order = end.order();
        let closed = order.key().and_then(|key| self.close(thread_caches, key));
        let Some(mut last) = closed else {
            return;
        };
        // The stream is alive for this call, regardless of its owner.
        last.reach = Reach::Named;
        let is_made = last.make(order, self.context(), &mut Vec::new()).is_ok();
        self.lock().progress.enter(last, is_made);
    }

    /// Closes the entry and the per-thread caches of a stream. Returns the event to record, if a sync
    /// point needs one.
    #[inline]
    fn close(&self, thread_caches: &ThreadCaches, stream: StreamKey) -> Option<Record> {
        let mut shared = self.lock();
        let entry = shared.progress.find(stream)?;
        let mut left = Vec::new();
        let Shared { hits, .. } = &mut *shared;
        thread_caches.close(stream, |idles, its| {
            *hits += its;
            left.extend(idles);
        });
        if !left.is_empty() {
            let point = shared.progress.sync_point(entry);
            for idle in left {
                shared.heap.give(idle.id, &[point]);
            }
        }
        shared.progress.detach(entry)
    }
}
