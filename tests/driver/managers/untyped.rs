//! Memory without a type: of no stream's order, of one that lasts, of one that passes. It has work to the last
//! moment, which is late, and spoils whatever is there by then.

use super::enough;
use super::log::{Log, any, log_of};
use crate::common::random::Random;
use cuda_safe::manager::{CleanupGuard, MemoryPointer, Order};
use cuda_safe::sys::{CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, CUstream, cuMemsetD32Async};
use cuda_safe::{Context, DeviceBuffer, Stream};

/// What last uses leave.
pub(super) const SPOILT: u32 = 0x5b01_1ed5;

pub(super) struct Untyped {
    memory: MemoryPointer,
    tag: u32,
    /// Who has written the tag.
    pub(super) stream: Stream,
    /// Whether it is freed in the order of that stream, if nobody says another.
    is_its: bool,
}

impl Untyped {
    /// Of any order; a stream writes the tag at once.
    pub(super) fn new(
        context: &Context,
        logs: &[Log],
        random: &mut Random,
        guards: &mut Vec<CleanupGuard>,
        (len, tag): (usize, u32),
    ) -> Self {
        let stream = any(logs, random);
        let raw = stream.as_raw();
        let order = match random.below(4) {
            0 => Order::NONE,
            1 => Order::of(&stream),
            // SAFETY: the stream stays while it has memory, and is not captured; the manager hears of its end.
            2 => unsafe { Order::lasting(raw) },
            // SAFETY: as above.
            _ => unsafe { Order::passing(raw) },
        };
        let allocate = || MemoryPointer::allocate_in(context, len * 4, order);
        let its = Self {
            memory: enough(guards, allocate),
            tag,
            is_its: order.stream().is_some() || order.as_raw().is_some() && !order.is_passing(),
            stream: stream.clone(),
        };
        let mut all = its.on(&stream);
        all.fill(tag).expect("a fill");
        its
    }

    /// The memory, for work of a stream.
    fn on(&self, stream: &Stream) -> DeviceBuffer<u32> {
        // SAFETY: there are so many elements, which nobody else uses but behind or before that work.
        unsafe { DeviceBuffer::borrow_raw(self.memory.as_raw(), self.len(), stream) }
    }

    pub(super) fn address(&self) -> u64 {
        self.memory.as_raw()
    }

    pub(super) fn len(&self) -> usize {
        self.memory.size() / 4
    }

    /// Looks for the tag, spoils it, on that stream or behind it on another one, and frees the memory, in
    /// the order of whoever was last, or in nobody's.
    pub(super) fn end(self, context: &Context, logs: &mut [Log], random: &mut Random) {
        let first = self.stream.clone();
        log_of(logs, &first).look(&self.on(&first), self.tag);
        let way = random.below(8);
        if way == 0 && self.is_its {
            self.on(&first).fill(SPOILT).expect("a fill");
            return drop(self);
        }
        if way == 1 {
            return self.end_on_default(context, random);
        }
        let last = any(logs, random);
        let event = context.event().expect("an event");
        event.record(&first).expect("a record");
        last.wait(&event).expect("a wait");
        self.on(&last).fill(SPOILT).expect("a fill");
        let raw = last.as_raw();
        match way {
            0 => drop(self),
            // SAFETY: the last use was given before.
            2 | 3 => unsafe { self.memory.free_in(Order::NONE) },
            // SAFETY: the last use was given to that stream before, behind all others.
            4 => unsafe { self.memory.free_in(Order::of(&last)) },
            5 => {
                // SAFETY: the stream stays while it has memory; the manager hears of its end.
                let order = unsafe { Order::lasting(raw) };
                // SAFETY: as above.
                unsafe { self.memory.free_in(order) }
            }
            _ => {
                // SAFETY: the stream is alive, and not captured.
                let order = unsafe { Order::passing(raw) };
                // SAFETY: as above.
                unsafe { self.memory.free_in(order) }
            }
        }
    }

    /// The same with a default stream as the last.
    fn end_on_default(self, context: &Context, random: &mut Random) {
        let event = context.event().expect("an event");
        event.record(&self.stream).expect("a record");
        let (address, len) = (self.memory.as_raw(), self.len());
        let current = context.make_current().expect("current");
        let (stream, order): (CUstream, _) = match random.below(2) {
            0 => {
                current.legacy_stream().wait(&event).expect("a wait");
                // SAFETY: a default stream stays, and is not captured.
                (CU_STREAM_LEGACY, unsafe {
                    Order::lasting(CU_STREAM_LEGACY)
                })
            }
            _ => {
                current.per_thread_stream().wait(&event).expect("a wait");
                // SAFETY: as above.
                (CU_STREAM_PER_THREAD, unsafe {
                    Order::passing(CU_STREAM_PER_THREAD)
                })
            }
        };
        // SAFETY: there are so many elements, and whoever else has used them is waited for.
        let code = unsafe { cuMemsetD32Async(address, SPOILT, len, stream) };
        assert!(code.is_success(), "{code}");
        current.finish().expect("innermost");
        // SAFETY: the last use was given to that stream before, behind all others.
        unsafe { self.memory.free_in(order) }
    }
}
