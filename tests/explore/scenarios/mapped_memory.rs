//! Virtual memory on several threads: memory is unmapped beside calls that use other parts of it, or that
//! attempt deferred releases.

use super::pairs::{Operation, expect_contents};
use super::{Part, Scenario, Stage, keeping, part};
use cuda_safe::virtual_memory::{GrowableBuffer, PhysicalMemory, PhysicalOptions, Reservation};
use cuda_safe::{DeviceBuffer, attempt_deferred_releases};
use cuda_sim::explore;

pub(super) const OPERATIONS: &[Operation] = &[
    Operation::new("free-mapping", free_mapping),
    Operation::new("free-growable", free_growable),
    Operation::new("grow", grow),
    Operation::new("shrink", shrink),
];

pub(super) fn all() -> Vec<Scenario> {
    vec![
        Scenario::new("mapped/drop-beside-use", drop_beside_use),
        Scenario::new("mapped/shrink-beside-releases", shrink_beside_releases),
        Scenario::new("mapped/append-beside-readers", append_beside_readers),
        Scenario::new("mapped/drop-on-another-thread", drop_on_another_thread),
    ]
}

fn granularity(stage: &Stage) -> usize {
    let options = PhysicalOptions::new(stage.context.device());
    options.granularity().expect("the granularity")
}

fn mapped(stage: &Stage) -> DeviceBuffer<u32> {
    let size = granularity(stage);
    let memory = PhysicalMemory::new(stage.context.device(), size).expect("memory");
    let space = Reservation::new(size).expect("addresses");
    let mapping = space.map(0, memory).expect("a mapping");
    mapping.into_buffer(&stage.stream).expect("a buffer")
}

/// Returns a buffer of four granules, one of which is mapped.
fn growable(stage: &Stage) -> GrowableBuffer<u8> {
    let size = granularity(stage);
    let mut buffer = GrowableBuffer::new(&stage.stream, 4 * size).expect("a buffer");
    buffer.grow(size).expect("memory");
    buffer
}

/// The first elements of a buffer.
fn head(buffer: &GrowableBuffer<u8>) -> cuda_safe::Result<Vec<u32>> {
    let elements = buffer.as_slice().slice(..4)?.to_vec()?;
    Ok(elements.into_iter().map(u32::from).collect())
}

fn free_mapping(stage: &Stage) -> Part {
    let mut buffer = mapped(stage);
    buffer.fill(3).expect("a fill");
    part(move || drop(buffer))
}

fn free_growable(stage: &Stage) -> Part {
    let mut buffer = growable(stage);
    buffer.as_mut_slice().fill(3).expect("a fill");
    part(move || drop(buffer))
}

fn grow(stage: &Stage) -> Part {
    let (mut buffer, done) = (growable(stage), stage.done.clone());
    let size = granularity(stage);
    part(move || {
        if buffer.resize_zeroed(2 * size).is_ok() {
            done.wait();
            let last = buffer.as_slice().slice(2 * size - 4..);
            let last = last.and_then(|last| last.to_vec());
            let last = last.map(|last| last.into_iter().map(u32::from).collect());
            expect_contents("resize_zeroed", last, 0);
        }
    })
}

fn shrink(stage: &Stage) -> Part {
    let mut buffer = growable(stage);
    buffer.as_mut_slice().fill(3).expect("a fill");
    keeping(move || {
        let _ = buffer.truncate(4);
        attempt_deferred_releases();
        let _ = buffer.grow(8);
        buffer
    })
}

/// One thread drops a buffer, whose work is on the stream; another thread uses its own buffer on the same
/// stream, and so attempts the release.
fn drop_beside_use() {
    let stage = Stage::new();
    let (mut used, mut dropped) = (mapped(&stage), mapped(&stage));
    let drops = explore::spawn("the drop", move || {
        dropped.fill(1).expect("a fill");
        drop(dropped);
    });
    let uses = explore::spawn("the use", move || {
        used.fill(2).expect("a fill");
        attempt_deferred_releases();
        let elements = used.slice(..4).and_then(|its| its.to_vec());
        assert_eq!(elements.expect("a copy"), [2; 4]);
    });
    drops.join();
    uses.join();
    stage.stream.synchronize().expect("no work lost its memory");
}

/// One thread shrinks and grows a buffer with work on it; another thread attempts the releases.
fn shrink_beside_releases() {
    let stage = Stage::new();
    let size = granularity(&stage);
    let mut buffer = growable(&stage);
    let changes = explore::spawn("the changes", move || {
        for value in [1, 2] {
            buffer.resize_zeroed(3 * size).expect("memory");
            buffer.as_mut_slice().fill(value).expect("a fill");
            buffer.truncate(4).expect("shorter");
        }
        buffer.grow(2 * size).expect("memory");
        buffer.as_mut_slice().fill(3).expect("a fill");
        buffer
    });
    let stream = stage.stream.clone();
    let releases = explore::spawn("the releases", move || {
        for _ in 0..3 {
            attempt_deferred_releases();
        }
        stream.synchronize().expect("no work lost its memory");
    });
    releases.join();
    let buffer = changes.join();
    assert_eq!(head(&buffer).expect("a copy"), [3; 4]);
    drop(buffer);
    stage.stream.synchronize().expect("no work lost its memory");
}

/// One thread appends to a buffer; another thread reads a copy of its beginning on another stream.
fn append_beside_readers() {
    let stage = Stage::new();
    let size = granularity(&stage);
    let mut buffer = growable(&stage);
    buffer.as_mut_slice().fill(5).expect("a fill");
    let mut copy = DeviceBuffer::<u8>::uninit(&stage.stream, 4).expect("memory");
    let start = buffer.as_slice().slice(..4).expect("within");
    copy.copy_from(start).expect("a copy");
    let shared = copy.share().expect("a shared buffer");
    let other = stage.other.clone();
    let reads = explore::spawn("the reader", move || {
        let reader = shared.on(&other).expect("a reader");
        let mut own = DeviceBuffer::<u8>::uninit(&other, 4).expect("memory");
        own.copy_from(&reader).expect("a copy");
        assert_eq!(own.to_vec().expect("a copy"), [5; 4]);
        attempt_deferred_releases();
    });
    let appends = explore::spawn("the appends", move || {
        for pages in 2..=4 {
            buffer.grow(pages * size).expect("memory");
        }
        buffer.truncate(4).expect("shorter");
        assert_eq!(head(&buffer).expect("a copy"), [5; 4]);
    });
    reads.join();
    appends.join();
    stage.stream.synchronize().expect("no work lost its memory");
}

/// A buffer that one thread fills is dropped on another thread, while the first one goes on.
fn drop_on_another_thread() {
    let stage = Stage::new();
    let mut buffer = growable(&stage);
    buffer.as_mut_slice().fill(7).expect("a fill");
    let stream = stage.stream.clone();
    let goes_on = explore::spawn("the other work", move || {
        let memory = DeviceBuffer::<u32>::zeroed(&stream, 4).expect("memory");
        assert_eq!(memory.to_vec().expect("a copy"), [0; 4]);
    });
    let drops = explore::spawn("the drop", move || drop(buffer));
    drops.join();
    goes_on.join();
    stage.stream.synchronize().expect("no work lost its memory");
}
