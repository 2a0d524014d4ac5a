//! Untyped memory: freed in the order of no stream, of a persistent one, or of a transient one. It is in
//! use until the last moment, by late work that overwrites its contents.

use super::enough;
use super::log::{Log, any, log_of};
use crate::common::random::Random;
use cuda_safe::manager::{CleanupGuard, MemoryPointer, Order};
use cuda_safe::sys::{CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, CUstream, cuMemsetD32Async};
use cuda_safe::{Context, DeviceBuffer, Stream};

/// The value that the last uses write.
pub(super) const SPOILT: u32 = 0x5b01_1ed5;

pub(super) struct Untyped {
    memory: MemoryPointer,
    tag: u32,
    /// The stream that wrote the tag.
    pub(super) stream: Stream,
    /// Whether it is freed in the order of that stream by default.
    is_its: bool,
}

impl Untyped {
    /// Allocates memory with a random `Order`. A stream writes the tag at once.
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
            // SAFETY: the stream outlives its memory and is not captured, and the manager is told
            // of its end.
            2 => unsafe { Order::persistent(raw) },
            // SAFETY: as above.
            _ => unsafe { Order::transient(raw) },
        };
        let allocate = || MemoryPointer::allocate_in(context, len * 4, order);
        let its = Self {
            memory: enough(guards, allocate),
            tag,
            is_its: order.stream().is_some() || order.as_raw().is_some() && !order.is_transient(),
            stream: stream.clone(),
        };
        let mut all = its.on(&stream);
        all.fill(tag).expect("a fill");
        its
    }

    /// Returns a view of the memory for work of a stream.
    fn on(&self, stream: &Stream) -> DeviceBuffer<u32> {
        // SAFETY: the memory has this many elements, and other work uses them only before or after
        // that work.
        unsafe { DeviceBuffer::borrow_raw(self.memory.as_raw(), self.len(), stream) }
            .expect("memory")
    }

    pub(super) fn address(&self) -> u64 {
        self.memory.as_raw()
    }

    pub(super) fn len(&self) -> usize {
        self.memory.size() / 4
    }

    /// Checks the tag and overwrites it, on the same stream or on another one after it. Then frees
    /// the memory, in the order of the last stream or without an order.
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
        last.wait_event(&event).expect("a wait");
        self.on(&last).fill(SPOILT).expect("a fill");
        let raw = last.as_raw();
        match way {
            0 => drop(self),
            // SAFETY: the last use was enqueued before.
            2 | 3 => unsafe { self.memory.free_in(Order::NONE) },
            // SAFETY: the last use was enqueued on that stream, after all other uses.
            4 => unsafe { self.memory.free_in(Order::of(&last)) },
            5 => {
                // SAFETY: the stream outlives its memory, and the manager is told of its end.
                let order = unsafe { Order::persistent(raw) };
                // SAFETY: as above.
                unsafe { self.memory.free_in(order) }
            }
            _ => {
                // SAFETY: the stream is alive and not captured.
                let order = unsafe { Order::transient(raw) };
                // SAFETY: as above.
                unsafe { self.memory.free_in(order) }
            }
        }
    }

    /// Like [`end`](Self::end), with a default stream as the last one.
    fn end_on_default(self, context: &Context, random: &mut Random) {
        let event = context.event().expect("an event");
        event.record(&self.stream).expect("a record");
        let (address, len) = (self.memory.as_raw(), self.len());
        let current = context.make_current().expect("current");
        let (stream, order): (CUstream, _) = match random.below(2) {
            0 => {
                current.legacy_stream().wait_event(&event).expect("a wait");
                // SAFETY: a default stream is never destroyed and is not captured.
                (CU_STREAM_LEGACY, unsafe { Order::persistent(CU_STREAM_LEGACY) })
            }
            _ => {
                current.per_thread_stream().wait_event(&event).expect("a wait");
                // SAFETY: as above.
                (CU_STREAM_PER_THREAD, unsafe { Order::transient(CU_STREAM_PER_THREAD) })
            }
        };
        // SAFETY: the memory has this many elements, and the stream waits for all other work on
        // them.
        let code = unsafe { cuMemsetD32Async(address, SPOILT, len, stream) };
        assert!(code.is_success(), "{code}");
        current.end().expect("innermost");
        // SAFETY: the last use was enqueued on that stream, after all other uses.
        unsafe { self.memory.free_in(order) }
    }
}
