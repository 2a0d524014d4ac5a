//! Memory without a type under kernels: the last one is late, on whichever stream, and the memory is freed in
//! that one's order, or in nobody's, while it is under way.

use super::{Kernels, Live};
use crate::common::random::Random;
use cuda_safe::manager::{MemoryPointer, Order};
use cuda_safe::{DeviceBuffer, Stream};

/// What last kernels write.
const LAST: u32 = 0x5b01_1ed5;

pub(super) struct Loose {
    memory: MemoryPointer,
    /// The same, on the stream that has written it.
    pub(super) live: Live,
}

/// A view of memory, for a stream.
fn on(memory: &MemoryPointer, stream: &Stream) -> DeviceBuffer<u32> {
    // SAFETY: there are so many elements; each stream is given its kernels behind those of the one before.
    unsafe { DeviceBuffer::borrow_raw(memory.as_raw(), memory.size() / 4, stream) }
}

/// A stream's order, or nobody's; others than ours only if handles may be shown.
fn any_order<'a>(stream: &'a Stream, shows_handles: bool, random: &mut Random) -> Order<'a> {
    match random.below(if shows_handles { 5 } else { 3 }) {
        0 | 1 => Order::NONE,
        2 => Order::of(stream),
        // SAFETY: the stream stays while it has memory, is not captured, and the manager hears of its end.
        3 => unsafe { Order::lasting(stream.as_raw()) },
        // SAFETY: the stream is alive, and not captured.
        _ => unsafe { Order::passing(stream.as_raw()) },
    }
}

impl Loose {
    /// So many elements, which a stream writes at once.
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

    /// A last kernel, behind what there was; then the memory is anybody's.
    pub(super) fn end(
        self,
        last: &Stream,
        kernels: &Kernels,
        random: &mut Random,
        shows_handles: bool,
    ) {
        let event = last.context().event().expect("an event");
        event.record(self.live.memory.stream()).expect("a record");
        last.wait(&event).expect("a wait");
        let mut view = on(&self.memory, last);
        kernels.write(&mut view, LAST, 50_000 + random.below(100_000) as u32);
        let order = any_order(last, shows_handles, random);
        // SAFETY: the last use was given to that stream, behind all others.
        unsafe { self.memory.free_in(order) }
    }
}
