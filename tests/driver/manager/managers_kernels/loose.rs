//! Untyped memory under load from kernels: the last kernel is late, on any stream, and the memory
//! is freed in the order of that stream, or without an order, while the kernel is still pending.

use super::{Kernels, Live};
use crate::common::random::Random;
use cuda_safe::manager::{MemoryPointer, Order};
use cuda_safe::{DeviceBuffer, Stream};

/// The value that the last kernels write.
const LAST: u32 = 0x5b01_1ed5;

pub(super) struct Loose {
    memory: MemoryPointer,
    /// A view of the same memory, on the stream that wrote it.
    pub(super) live: Live,
}

/// Returns a view of memory for a stream.
fn on(memory: &MemoryPointer, stream: &Stream) -> DeviceBuffer<u32> {
    // SAFETY: the memory has this many elements, and the kernels of each stream are enqueued after
    // those of the previous one.
    unsafe { DeviceBuffer::borrow_raw(memory.as_raw(), memory.size() / 4, stream) }.expect("memory")
}

/// Returns the order of a stream or `Order::NONE`. Uses raw handles only if `shows_handles` is
/// true.
fn any_order<'a>(stream: &'a Stream, shows_handles: bool, random: &mut Random) -> Order<'a> {
    match random.below(if shows_handles { 5 } else { 3 }) {
        0 | 1 => Order::NONE,
        2 => Order::of(stream),
        // SAFETY: the stream outlives its memory and is not captured, and the manager is told of
        // its end.
        3 => unsafe { Order::persistent(stream.as_raw()) },
        // SAFETY: the stream is alive and not captured.
        _ => unsafe { Order::transient(stream.as_raw()) },
    }
}

impl Loose {
    /// Allocates `len` elements, which a stream writes at once.
    pub(super) fn new(
        stream: &Stream,
        kernels: &Kernels,
        random: &mut Random,
        shows_handles: bool,
        (len, tag): (usize, u32),
    ) -> Self {
        let order = any_order(stream, shows_handles, random);
        let memory = MemoryPointer::allocate_in(stream.context(), len * 4, order);
        let memory = memory.expect("memory");
        let mut view = on(&memory, stream);
        kernels.write(&mut view, tag, 0);
        let live = Live { memory: view, tag };
        Self { memory, live }
    }

    pub(super) fn len(&self) -> usize {
        self.live.memory.len()
    }

    /// Launches a last kernel after the previous work, and frees the memory.
    pub(super) fn end(
        self,
        last: &Stream,
        kernels: &Kernels,
        random: &mut Random,
        shows_handles: bool,
    ) {
        let event = last.context().event().expect("an event");
        event.record(self.live.memory.stream()).expect("a record");
        last.wait_event(&event).expect("a wait");
        let mut view = on(&self.memory, last);
        kernels.write(&mut view, LAST, 50_000 + random.below(100_000) as u32);
        let order = any_order(last, shows_handles, random);
        // SAFETY: the last use was enqueued on that stream, after all other uses.
        unsafe { self.memory.free_in(order) }
    }
}
