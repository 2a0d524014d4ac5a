//! Memory of other APIs. Here the driver plays the other API: it exports virtual memory.
#![cfg(target_os = "linux")]

use crate::common::{self, invalid};
use crate::module::kernels::Scale;
use cuda_safe::external::{
    BinarySemaphore, ExternalMemory, ExternalMemoryOptions, TimelineSemaphore,
};
use cuda_safe::virtual_memory::{PhysicalMemory, PhysicalOptions, Reservation, Shareable};
use cuda_safe::{CUresult, Context, ContextFlags, DeviceBuffer, Invalid, Stream};
use std::fs::File;
use std::os::fd::OwnedFd;

/// The size of the memory.
const SIZE: usize = 4 << 20;

struct Stage {
    context: Context,
    stream: Stream,
    /// The memory as its exporter uses it.
    theirs: DeviceBuffer<i32>,
    /// A descriptor of the memory.
    exported: OwnedFd,
}

/// Returns memory that is zero, and a descriptor of it, or reports a skip.
fn stage() -> Option<Stage> {
    let (context, stream) = common::context_and_stream()?;
    let device = context.device();
    let options = PhysicalOptions::new(device).shareable(Shareable::Descriptor);
    let memory = PhysicalMemory::with(SIZE, &options).expect("memory");
    let exported = memory.export().expect("a descriptor");
    let mapping = Reservation::new(SIZE).expect("addresses").map(0, memory).expect("mapped");
    let mut theirs = mapping.into_buffer::<i32>(&stream).expect("a buffer");
    theirs.zero().expect("a fill");
    Some(Stage { context, stream, theirs, exported })
}

fn import(context: &Context, exported: OwnedFd) -> ExternalMemory {
    // SAFETY: the descriptor is that of memory of this size.
    let imported = unsafe { ExternalMemory::import(context, exported, SIZE, options()) };
    imported.expect("imported")
}

fn options() -> ExternalMemoryOptions {
    ExternalMemoryOptions::default()
}

/// Maps a part of memory.
fn map(memory: &ExternalMemory, stream: &Stream, offset: usize, len: usize) -> DeviceBuffer<i32> {
    let mapping = memory.map(offset, len * 4).expect("mapped");
    assert_eq!(mapping.size(), len * 4);
    // SAFETY: all work on the memory is on one stream.
    unsafe { mapping.into_buffer(stream) }.expect("a buffer")
}

#[test]
fn an_import_shares_the_memory_of_the_exporter() {
    let Stage { context, stream, mut theirs, exported } = or_skip!(stage());
    let memory = import(&context, exported);
    assert_eq!((memory.size(), memory.context()), (SIZE, &context));
    let mut ours = map(&memory, &stream, 4096, 1000);
    assert_eq!(ours.len(), 1000);
    ours.fill(3).expect("a fill");
    let scale = Scale::new(&context);
    scale.run(&stream, &mut ours, 2, 1).expect("a launch");
    assert_eq!(theirs.slice(1023..1026).expect("a part").to_vec().expect("a copy"), [0, 7, 7]);
    theirs.slice_mut(1025..).expect("a part").fill(9).expect("a fill");
    assert_eq!(ours.slice(..3).expect("a part").to_vec().expect("a copy"), [7, 9, 9]);
}

#[test]
fn a_buffer_keeps_the_import_and_the_memory() {
    let Stage { context, stream, theirs, exported } = or_skip!(stage());
    let memory = import(&context, exported.try_clone().expect("a duplicate"));
    let mut ours = map(&memory, &stream, 0, SIZE / 4);
    drop((memory, theirs, exported));
    ours.fill(5).expect("a fill");
    assert_eq!(ours.slice(SIZE / 4 - 1..).expect("a part").to_vec().expect("a copy"), [5]);
}

#[test]
fn memory_is_imported_twice_by_a_duplicate() {
    let Stage { context, stream, theirs: _theirs, exported } = or_skip!(stage());
    let duplicate = exported.try_clone().expect("a duplicate");
    let (first, second) = (import(&context, exported), import(&context, duplicate));
    let mut written = map(&first, &stream, 0, 10);
    written.fill(4).expect("a fill");
    drop((written, first));
    assert_eq!(map(&second, &stream, 0, 10).to_vec().expect("a copy"), [4; 10]);
}

#[test]
fn a_mapping_without_a_stream_has_an_address() {
    let Stage { context, theirs: _theirs, exported, .. } = or_skip!(stage());
    let memory = import(&context, exported);
    let mapping = memory.map(65536, 4096).expect("mapped");
    assert_ne!(mapping.address(), 0);
    let info = context.pointer_info(mapping.address()).expect("known").expect("of a device");
    assert!(!info.managed);
    drop(memory);
}

#[test]
fn ranges_are_within_the_memory() {
    let Stage { context, theirs: _theirs, exported, .. } = or_skip!(stage());
    let memory = import(&context, exported);
    for (start, size, end) in
        [(0, SIZE + 1, SIZE + 1), (SIZE, 1, SIZE + 1), (1, usize::MAX, usize::MAX)]
    {
        let expected = Invalid::Range { start, end, len: SIZE };
        assert_eq!(invalid(memory.map(start, size)), expected);
    }
}

#[test]
fn a_stream_of_another_context_is_refused() {
    let Stage { context, theirs: _theirs, exported, .. } = or_skip!(stage());
    let memory = import(&context, exported);
    let other = Context::new(&context.device(), ContextFlags::SCHED_YIELD).expect("a context");
    let stream = other.stream().expect("a stream");
    let mapping = memory.map(0, 4096).expect("mapped");
    // SAFETY: nothing uses the memory.
    let refused = unsafe { mapping.into_buffer::<i32>(&stream) };
    assert!(matches!(invalid(refused), Invalid::OtherContext { .. }));
}

#[test]
fn the_memory_is_dropped_during_a_capture() {
    let Stage { context, stream, theirs: _theirs, exported } = or_skip!(stage());
    let memory = import(&context, exported);
    let capturing = context.stream().expect("a stream");
    let buffer = map(&memory, &stream, 0, 10);
    let graph = capturing.capture(Default::default(), |_| {
        // Imports, mappings and drops do not disturb captures of other streams.
        drop(map(&memory, &stream, 4096, 10));
        drop((buffer, memory));
        Ok::<_, cuda_safe::Error>(())
    });
    graph.expect("a graph");
}

mod provoked {
    use super::{
        BinarySemaphore, CUresult, Context, ExternalMemory, File, OwnedFd, SIZE, Stage,
        TimelineSemaphore, common, options, stage,
    };

    /// Tries to import a file that is not memory, and returns it.
    fn refused(context: &Context, file: OwnedFd, size: usize, code: CUresult) -> OwnedFd {
        // SAFETY: the driver refuses the descriptor or the size.
        let refused = unsafe { ExternalMemory::try_import(context, file, size, options()) };
        let rejected = refused.map(drop).expect_err("not memory");
        assert_eq!(rejected.error.code(), Some(code));
        rejected.value
    }

    #[test]
    fn a_failed_import_returns_the_descriptor() {
        let Stage { context, exported, .. } = or_skip!(stage());
        let null = File::open("/dev/null").expect("open");
        let null = refused(&context, null.into(), SIZE, CUresult::CUDA_ERROR_UNKNOWN);
        File::from(null).metadata().expect("it is open");
        let exported = refused(&context, exported, 0, CUresult::CUDA_ERROR_INVALID_VALUE);
        super::import(&context, exported);
    }

    #[test]
    fn a_file_is_no_semaphore() {
        let context = or_skip!(common::context());
        let null = || OwnedFd::from(File::open("/dev/null").expect("open"));
        // SAFETY: the driver refuses the descriptor.
        let refused = unsafe { TimelineSemaphore::try_import(&context, null()) };
        let rejected = refused.map(drop).expect_err("not a semaphore");
        File::from(rejected.value).metadata().expect("it is open");
        // SAFETY: as above.
        let refused = unsafe { BinarySemaphore::try_import(&context, null()) };
        let rejected = refused.map(drop).expect_err("not a semaphore");
        File::from(rejected.value).metadata().expect("it is open");
    }
}
