//! Batches of copies with host memory and with regions, and copies of regions between contexts.

use crate::common;
use crate::green::{context_alone, partition, resource_alone};
use crate::module::kernels::pinned;
use cuda_safe::array::{Array, ArrayShape};
use cuda_safe::capture::CaptureMode;
use cuda_safe::memory::{CopyAttributes, CopyBatch, Extent, MemoryLocation, Region, SourceOrder};
use cuda_safe::{Context, ContextFlags, DeviceBuffer, Invalid, PinnedBuffer, Stream};

/// A volume of 5 x 4 x 3 elements, and a part of it.
const WHOLE: Extent = Extent::new_3d(5, 4, 3);
const PART: Extent = Extent::new_3d(2, 3, 2);

fn inside() -> Region {
    Region::new(WHOLE).at(2, 1, 1)
}

fn numbers() -> Vec<i32> {
    (0..60).collect()
}

/// The numbers in the part.
fn part() -> Vec<i32> {
    let rows = (1..3).flat_map(|z| (1..4).map(move |y| (z * 4 + y) * 5 + 2));
    rows.flat_map(|start| [start, start + 1]).collect()
}

/// Enqueues work that takes some time. The software driver runs work as late as possible.
pub(crate) fn busy(stream: &Stream) -> DeviceBuffer<u8> {
    let bytes = if common::is_software() { 1 << 10 } else { 256 << 20 };
    let mut memory = DeviceBuffer::<u8>::zeroed(stream, bytes).expect("memory");
    for value in 0..8 {
        memory.fill(value).expect("a fill");
    }
    memory
}

#[test]
fn one_batch_copies_between_device_pinned_and_pageable_memory() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let mut there = pinned(&context, &[1, 2, 3]);
    let mut back = pinned(&context, &[0; 4]);
    let from = DeviceBuffer::from_slice(&stream, &[4, 5, 6, 7]).expect("memory");
    let zeros = |len| DeviceBuffer::<i32>::zeroed(&stream, len).expect("memory");
    let (mut first, mut second, mut third) = (zeros(3), zeros(2), zeros(4));
    let mut empty = zeros(0);
    let mut batch = CopyBatch::with_capacity(&stream, 1);
    batch.push_from_pinned(&mut first, &mut there).expect("a copy");
    batch.set_attributes(CopyAttributes {
        pinned_source: SourceOrder::Any,
        source_location: Some(MemoryLocation::Device(context.device())),
        overlap_with_compute: true,
        ..CopyAttributes::default()
    });
    batch.push_from_slice(&mut second, &[8, 9]).expect("a copy");
    batch.push_to_pinned(&from, &mut back).expect("a copy");
    batch.push(&mut third, &from).expect("a copy");
    batch.push_from_slice(&mut empty, &[]).expect("no copy");
    assert_eq!((batch.len(), batch.stream()), (4, &stream));
    batch.enqueue().expect("the copies");
    assert_eq!(*back, [4, 5, 6, 7]);
    assert_eq!(first.to_vec().expect("a copy"), [1, 2, 3]);
    assert_eq!(second.to_vec().expect("a copy"), [8, 9]);
    assert_eq!(third.to_vec().expect("a copy"), [4, 5, 6, 7]);
}

#[test]
fn regions_are_copied_in_a_batch() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let whole = DeviceBuffer::from_slice(&stream, &numbers()).expect("memory");
    let zeros = || DeviceBuffer::<i32>::zeroed(&stream, 12).expect("memory");
    let mut targets = [zeros(), zeros(), zeros()];
    let [on_device, of_slice, of_pinned] = &mut targets;
    let mut there = pinned(&context, &numbers());
    let mut back = pinned(&context, &[-1; 60]);
    let host = numbers();
    let packed = Region::new(PART);
    let mut batch = CopyBatch::new(&stream);
    batch.push_3d(PART, on_device, packed, &whole, inside()).expect("a copy");
    batch.push_3d_from_slice(PART, of_slice, packed, &host, inside()).expect("a copy");
    batch.push_3d_from_pinned(PART, of_pinned, packed, &mut there, inside()).expect("a copy");
    batch.push_3d_to_pinned(PART, &whole, inside(), &mut back, inside()).expect("a copy");
    batch.enqueue().expect("the copies");
    for target in &targets {
        assert_eq!(target.to_vec().expect("a copy"), part());
    }
    let copied: Vec<i32> = back.iter().copied().filter(|its| *its >= 0).collect();
    assert_eq!(copied, part(), "and nothing between the rows");
}

#[test]
fn a_batch_of_one_copy_or_one_region_is_copied() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let mut host = pinned(&context, &[0; 12]);
    let mut buffer = DeviceBuffer::<i32>::zeroed(&stream, 60).expect("memory");
    let mut batch = CopyBatch::new(&stream);
    let whole = numbers();
    batch.push_from_slice(&mut buffer, &whole).expect("a copy");
    batch.enqueue().expect("the copy");
    let mut batch = CopyBatch::new(&stream);
    batch.push_3d_to_pinned(PART, &buffer, inside(), &mut host, Region::new(PART)).expect("a copy");
    batch.enqueue().expect("the copy");
    assert_eq!(host[..], part());
}

#[test]
fn a_slice_may_change_after_a_batch_was_enqueued() {
    let (_, stream) = or_skip!(common::context_and_stream());
    for bytes in [64 << 10, 64 << 10 | 1, 1 << 20] {
        let earlier = busy(&stream);
        let mut slice = vec![1u8; bytes];
        let mut target = DeviceBuffer::<u8>::zeroed(&stream, bytes).expect("memory");
        let mut batch = CopyBatch::new(&stream);
        batch.push_from_slice(&mut target, &slice).expect("a copy");
        batch.enqueue().expect("the copy");
        slice.fill(2);
        assert_eq!(target.to_vec().expect("a copy"), vec![1; bytes]);
        drop(earlier);
    }
}

/// Slices that are small together are not waited for, and large ones are.
#[test]
fn several_slices_may_change_after_a_batch_was_enqueued() {
    const COUNT: usize = 16;
    let (_, stream) = or_skip!(common::context_and_stream());
    for bytes in [16, 4 << 10, 64 << 10] {
        let earlier = busy(&stream);
        let mut slices = vec![vec![1u8; bytes]; COUNT];
        let mut whole = DeviceBuffer::<u8>::zeroed(&stream, bytes * COUNT).expect("memory");
        let mut batch = CopyBatch::new(&stream);
        let targets = whole.chunks_exact_mut(bytes).expect("chunks");
        for (target, slice) in targets.zip(&slices) {
            batch.push_from_slice(target, slice).expect("a copy");
        }
        batch.enqueue().expect("the copies");
        slices.iter_mut().for_each(|slice| slice.fill(2));
        assert_eq!(whole.to_vec().expect("a copy"), vec![1; bytes * COUNT]);
        drop(earlier);
    }
}

#[test]
fn the_host_memory_of_a_batch_in_a_scope_is_used_until_the_scope_ends() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let mut there = pinned(&context, &numbers());
    let mut back = [pinned(&context, &[0; 60]), pinned(&context, &[0; 12])];
    let small = [7, 8, 9];
    let mut whole = DeviceBuffer::<i32>::zeroed(&stream, 60).expect("memory");
    let mut few = DeviceBuffer::<i32>::zeroed(&stream, 3).expect("memory");
    let from = DeviceBuffer::from_slice(&stream, &numbers()).expect("memory");
    let done = stream.copy_scope(|scope| {
        let mut batch = CopyBatch::new(&stream);
        batch.push_from_pinned(&mut whole, &mut there)?;
        batch.push_from_slice(&mut few, &small)?;
        scope.enqueue(batch)?;
        let [all, some] = &mut back;
        let mut batch = CopyBatch::new(&stream);
        batch.push_to_pinned(&from, all)?;
        batch.push_3d_to_pinned(PART, &from, inside(), some, Region::new(PART))?;
        scope.enqueue(batch)
    });
    done.expect("copies");
    assert_eq!(back[0][..], numbers());
    assert_eq!(back[1][..], part());
    assert_eq!(whole.to_vec().expect("a copy"), numbers());
    assert_eq!(few.to_vec().expect("a copy"), small);
}

#[test]
fn a_scope_refuses_a_batch_for_another_stream() {
    let (_, [stream, other]) = or_skip!(common::context_and_streams());
    let refused = stream.copy_scope(|scope| scope.enqueue(CopyBatch::new(&other)));
    let invalid = common::invalid(refused);
    assert!(matches!(invalid, Invalid::OtherStream { .. }), "{invalid}");
}

/// A driver (580) crashes in a batch on such a stream if one of the buffers is stream-ordered.
#[test]
fn a_batch_with_host_memory_runs_on_a_stream_of_a_green_context() {
    let (_alone, resource, context) = or_skip!(context_alone());
    let green = partition(resource);
    let stream = green.stream().expect("a stream");
    let mut slice = vec![1, 2, 3];
    let mut back = pinned(&context, &[0; 12]);
    let from = DeviceBuffer::from_slice(&stream, &numbers()).expect("memory");
    let mut to = DeviceBuffer::<i32>::zeroed(&stream, 3).expect("memory");
    let mut batch = CopyBatch::new(&stream);
    batch.push_from_slice(&mut to, &slice).expect("a copy");
    batch.push_3d_to_pinned(PART, &from, inside(), &mut back, Region::new(PART)).expect("a copy");
    batch.enqueue().expect("the copies");
    slice.fill(0);
    assert_eq!(back[..], part());
    assert_eq!(to.to_vec().expect("a copy"), [1, 2, 3]);
    drop((from, to));
    stream.synchronize().expect("a wait");
}

#[test]
fn a_batch_with_host_memory_is_refused_on_a_captured_stream() {
    let (_, stream) = or_skip!(common::context_and_stream());
    let mut buffer = DeviceBuffer::<i32>::zeroed(&stream, 2).expect("memory");
    let capture = stream.begin_capture(CaptureMode::ThreadLocal).expect("a capture");
    let mut batch = CopyBatch::new(&stream);
    batch.push_from_slice(&mut buffer, &[1, 2]).expect("a copy");
    assert_eq!(common::invalid(batch.enqueue()), Invalid::StreamIsCaptured);
    drop(capture.end().expect("the capture goes on"));
}

#[test]
fn a_batch_refuses_other_lengths_streams_and_regions() {
    let (context, [stream, other]) = or_skip!(common::context_and_streams());
    let mut host = [pinned(&context, &[0; 3]), pinned(&context, &[0; 3])];
    let [first, second] = &mut host;
    let mut buffers = [&stream, &stream, &stream, &other].map(|stream| {
        let buffer = DeviceBuffer::<i32>::zeroed(stream, 2);
        buffer.expect("memory")
    });
    let [one, two, three, there] = &mut buffers;
    let from = DeviceBuffer::<i32>::zeroed(&stream, 2).expect("memory");
    let mut batch = CopyBatch::new(&stream);
    let lengths = [
        batch.push_from_slice(&mut *one, &[1, 2, 3]),
        batch.push_from_pinned(&mut *two, first),
        batch.push_to_pinned(&from, second),
    ];
    for refused in lengths {
        let invalid = common::invalid(refused);
        assert!(matches!(invalid, Invalid::Lengths { .. }), "{invalid}");
    }
    let single = Extent::new_2d(1, 1);
    let packed = Region::new(single);
    let outside = packed.at(2, 0, 0);
    let refused = batch.push_3d_from_slice(single, &mut *three, outside, &[1], packed);
    let invalid = common::invalid(refused);
    assert!(matches!(invalid, Invalid::Region { .. }), "{invalid}");
    let invalid = common::invalid(batch.push_from_slice(&mut *there, &[1, 2]));
    assert!(matches!(invalid, Invalid::OtherStream { .. }), "{invalid}");
    assert!(batch.is_empty());
    batch.enqueue().expect("nothing");
}

#[test]
fn a_region_is_copied_into_another_context() {
    let (context, home) = or_skip!(common::context_and_stream());
    let other = Context::new(&context.device(), ContextFlags::empty()).expect("a context");
    let away = other.stream().expect("a stream");
    let shared = DeviceBuffer::from_slice(&home, &numbers())
        .and_then(DeviceBuffer::share)
        .expect("shared memory");
    let reader = shared.on_peer(&away).expect("a reader");
    let mut copy = DeviceBuffer::<i32>::zeroed(&away, 60).expect("memory");
    let mut target = copy.as_mut_slice();
    let packed = Region::new(PART);
    target.copy_3d_from_peer(PART, packed, &reader, inside()).expect("a copy");
    target.copy_3d_from_peer(Extent::new_2d(0, 1), packed, &reader, packed).expect("no copy");
    let outside = target.copy_3d_from_peer(PART, packed.at(0, 29, 0), &reader, inside());
    assert!(outside.is_err(), "two rows do not fit");
    assert_eq!(copy.to_vec().expect("a copy")[..12], part());
}

#[test]
fn pinned_memory_of_a_batch_that_was_not_enqueued_is_unchanged() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let mut host = PinnedBuffer::<i32>::zeroed(&context, 2).expect("memory");
    let from = DeviceBuffer::from_slice(&stream, &[1, 2]).expect("memory");
    let mut batch = CopyBatch::new(&stream);
    batch.push_to_pinned(&from, &mut host).expect("a copy");
    drop(batch);
    stream.synchronize().expect("a wait");
    assert_eq!(*host, [0, 0]);
}

const TEXELS: ArrayShape = ArrayShape::ThreeD { width: 5, height: 4, depth: 3 };

fn array(stream: &Stream, texels: &[i32]) -> Array<i32> {
    let mut array = Array::new(stream, TEXELS).expect("an array");
    array.copy_from_slice(texels).expect("a copy");
    array
}

/// Offsets, extents and row lengths of copies with arrays are in texels.
#[test]
fn a_batch_copies_the_texels_of_parts_of_arrays() {
    let (_, stream) = or_skip!(common::context_and_stream());
    let whole = array(&stream, &numbers());
    let mut from_memory = array(&stream, &[0; 60]);
    let mut from_array = array(&stream, &[0; 60]);
    let memory = DeviceBuffer::from_slice(&stream, &numbers()).expect("memory");
    let mut packed = DeviceBuffer::<i32>::zeroed(&stream, PART.width * 6).expect("memory");
    let at = [2, 1, 1];
    let mut batch = CopyBatch::new(&stream);
    let target = from_memory.as_mut().part(at, PART).expect("a part");
    batch.push_to_array(target, &memory, inside()).expect("a copy");
    let source = whole.as_ref().part(at, PART).expect("a part");
    batch.push_from_array(&mut packed, Region::new(PART), source).expect("a copy");
    let target = from_array.as_mut().part([0, 0, 0], PART).expect("a part");
    batch.push_array(target, source).expect("a copy");
    assert_eq!(batch.len(), 3);
    batch.enqueue().expect("a batch");

    assert_eq!(packed.to_vec().expect("a copy"), part());
    for (array, at) in [(from_memory, at), (from_array, [0; 3])] {
        let inside = array.as_ref().part(at, PART).expect("a part");
        assert_eq!(inside.to_vec().expect("a copy"), part());
        let zeros = array.to_vec().expect("a copy");
        assert_eq!(zeros.into_iter().filter(|its| *its == 0).count(), 60 - 12);
    }
}

#[test]
fn one_copy_of_an_array_in_a_green_context_is_a_batch_of_one() {
    let (_alone, resource) = or_skip!(resource_alone());
    let green = partition(resource);
    let stream = green.stream().expect("a stream");
    let array = array(&stream, &numbers());
    let mut memory = DeviceBuffer::<i32>::zeroed(&stream, 60).expect("memory");
    let mut batch = CopyBatch::new(&stream);
    batch.push_from_array(&mut memory, Region::new(WHOLE), &array).expect("a copy");
    batch.enqueue().expect("a batch");
    assert_eq!(memory.to_vec().expect("a copy"), numbers());
}

#[test]
fn copies_of_arrays_that_do_not_fit_are_not_added_to_a_batch() {
    let context = or_skip!(common::context());
    let [stream, other] = common::streams(&context);
    let mut first = array(&stream, &numbers());
    let second = array(&stream, &numbers());
    let foreign = array(&other, &numbers());
    let memory = DeviceBuffer::<i32>::zeroed(&stream, 59).expect("memory");
    let of_other = DeviceBuffer::<i32>::zeroed(&other, 60).expect("memory");
    let whole = Region::new(WHOLE);
    let mut batch = CopyBatch::new(&stream);
    let is = |refused: cuda_safe::Result<()>, expected: fn(&Invalid) -> bool| {
        let why = common::invalid(refused);
        assert!(expected(&why), "{why}");
    };
    let target = first.as_mut().part([0; 3], PART).expect("a part");
    is(batch.push_array(target, &second), |why| matches!(why, Invalid::Array { .. }));
    let mut batch = CopyBatch::new(&stream);
    is(batch.push_array(&mut first, &foreign), |why| matches!(why, Invalid::OtherStream { .. }));
    let mut batch = CopyBatch::new(&stream);
    is(batch.push_to_array(&mut first, &of_other, whole), |why| {
        matches!(why, Invalid::OtherStream { .. })
    });
    let mut batch = CopyBatch::new(&stream);
    is(batch.push_to_array(&mut first, &memory, whole), |why| {
        matches!(why, Invalid::Region { .. })
    });
    assert!(batch.is_empty());
}

#[test]
fn a_batch_with_arrays_is_not_captured() {
    let (_, stream) = or_skip!(common::context_and_stream());
    let mut first = array(&stream, &numbers());
    let second = array(&stream, &numbers());
    let mut batch = CopyBatch::new(&stream);
    batch.push_array(&mut first, &second).expect("a copy");
    let capture = stream.begin_capture(CaptureMode::ThreadLocal).expect("a capture");
    assert_eq!(common::invalid(batch.enqueue()), Invalid::StreamIsCaptured);
    let mut graph = capture.end().expect("an unbroken capture");
    assert_eq!(graph.nodes().expect("the nodes"), []);
}
