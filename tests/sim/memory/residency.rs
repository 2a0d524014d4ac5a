//! The locations of managed memory. No real driver that was tested has the call.

use crate::prelude::*;

#[test]
fn the_locations_of_managed_memory_are_sampled() {
    let (_end, context) = in_child!(on("h200@13.4".parse().expect("a profile")));
    let stream = context.stream().expect("a stream");
    let device = MemoryLocation::Device(context.device());
    let buffer = ManagedBuffer::<u8>::zeroed(&stream, 5 << 20).expect("memory");
    let low = buffer.range(..2 << 20).expect("a part");
    low.prefetch(device).expect("a prefetch");
    stream.synchronize().expect("a wait");
    let whole = buffer.range(..).expect("the whole");
    let found = whole.residency(2 << 20, 64 << 10).expect("the locations");
    assert_eq!(found.len(), 3, "the last part is shorter");
    assert_eq!(found[0], Some(device));
    let nothing = buffer.range(..0).expect("nothing");
    assert_eq!(nothing.residency(1, 1).expect("no call"), []);
}
