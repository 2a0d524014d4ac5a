//! Ranges of pinned memory, and pinned memory that is not initialized.

use crate::common::{self, rejected};
use crate::module::kernels::pinned;
use cuda_safe::memory::{PinnedFlags, PinnedOptions, PinnedRange};
use cuda_safe::{DeviceBuffer, Invalid, PinnedBuffer};

#[test]
fn ranges_of_one_buffer_are_copied_at_the_same_time_and_joined() {
    let context = or_skip!(common::context());
    let streams = [0; 3].map(|_| context.stream().expect("a stream"));
    let elements: Vec<i32> = (0..100).collect();
    let host = pinned(&context, &elements);
    let start = host.as_ptr();
    let ranges = host.into_chunks(30).expect("ranges");
    let lengths: Vec<usize> = ranges.iter().map(|range| range.len()).collect();
    assert_eq!(lengths, [30, 30, 30, 10]);
    let mut buffers = Vec::new();
    let mut copies = Vec::new();
    for (n, range) in ranges.into_iter().enumerate() {
        let mut buffer = DeviceBuffer::uninit(&streams[n % 3], range.len()).expect("memory");
        copies.push(buffer.copy_from_pinned(range).expect("a copy"));
        buffers.push(buffer);
    }
    // They are waited for and joined in any order.
    let mut back = Vec::new();
    for (copy, buffer) in copies.into_iter().rev().zip(buffers.iter().rev()) {
        let mut range = copy.synchronize().expect("a wait");
        range.fill(0);
        back.push(buffer.copy_to_pinned(range).expect("a copy"));
    }
    let ranges = back.into_iter().map(|copy| copy.synchronize().expect("a wait"));
    let host = PinnedRange::join(ranges).expect("the buffer");
    assert_eq!(*host, *elements);
    assert_eq!(host.as_ptr(), start);
}

#[test]
fn a_range_is_divided_at_any_element() {
    let context = or_skip!(common::context());
    let host = pinned(&context, &[1, 2, 3]);
    let mut first = host.into_range();
    let mut rest = first.split_off(1).expect("two ranges");
    rest[0] = 20;
    assert_eq!((&*first, &*rest), (&[1][..], &[20, 3][..]));
    assert_eq!(first.context(), &context);
    assert_eq!(format!("{rest:?}"), "[20, 3]");
    let out_of_bounds = Invalid::Range { start: 3, end: 2, len: 2 };
    assert_eq!(rest.split_off(3).expect_err("it has 2 elements"), out_of_bounds.into());
    let end = rest.split_off(2).expect("two ranges");
    assert!(end.is_empty());
    let host = PinnedRange::join([end, rest, first]).expect("the buffer");
    assert_eq!(*host, [1, 20, 3]);
}

#[test]
fn ranges_that_cannot_be_joined_are_returned() {
    let context = or_skip!(common::context());
    let no_length = pinned(&context, &[1, 2, 3]).into_chunks(0).expect_err("no length");
    assert_eq!(no_length, Invalid::EmptyChunks.into());
    let host = pinned(&context, &[1, 2, 3]);
    let mut ranges = host.into_chunks(1).expect("ranges");
    let last = ranges.pop().expect("three ranges");
    let (missing, ranges) = rejected(PinnedRange::try_join(ranges));
    let expected = Invalid::MissingRanges { given: 2, existing: 3 };
    assert_eq!(missing, expected);
    let other = pinned(&context, &[4]).into_range();
    let (several, mut ranges) = rejected(PinnedRange::try_join(ranges.into_iter().chain([other])));
    assert_eq!(several, Invalid::SeveralBuffers);
    assert_eq!(ranges.iter().map(|range| range[0]).sum::<i32>(), 7);
    // A range that was dropped is not missing.
    ranges.pop();
    drop(last);
    assert_eq!(*PinnedRange::join(ranges).expect("the buffer"), [1, 2, 3]);
    let (none, _) = rejected(PinnedRange::<u8>::try_join([]));
    assert_eq!(none, Invalid::MissingRanges { given: 0, existing: 0 });
}

#[test]
fn an_empty_buffer_and_elements_without_bytes_are_divided_and_joined() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let ranges = pinned(&context, &[]).into_chunks(4).expect("a range");
    assert_eq!(ranges.len(), 1);
    let range = ranges.into_iter().next().expect("a range");
    let mut nothing = DeviceBuffer::uninit(&stream, 0).expect("no memory");
    let copy = nothing.copy_from_pinned(range).expect("a copy");
    assert!(copy.is_complete().expect("a query"));
    assert!(copy.synchronize().expect("a wait").is_empty());
    let units = PinnedBuffer::<()>::zeroed(&context, 5).expect("no memory");
    let ranges = units.into_chunks(2).expect("ranges");
    assert_eq!(ranges.len(), 3);
    assert_eq!(PinnedRange::join(ranges).expect("the buffer").len(), 5);
}

#[test]
fn a_vector_is_unregistered_after_its_ranges_were_joined() {
    let context = or_skip!(common::context());
    let host = PinnedBuffer::register(&context, vec![5u64; 3000]).expect("registered");
    let host = PinnedRange::join(host.into_chunks(1000).expect("ranges")).expect("the buffer");
    assert_eq!(host.unregister().expect("a vector"), [5; 3000]);
}

#[test]
fn a_dropped_or_forgotten_copy_of_a_range_does_no_harm() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let buffer = DeviceBuffer::from_slice(&stream, &[7; 1000]).expect("a copy");
    let mut ranges = pinned(&context, &[0; 3000]).into_chunks(1000).expect("ranges");
    drop(buffer.copy_to_pinned(ranges.remove(0)).expect("a copy"));
    std::mem::forget(buffer.copy_to_pinned(ranges.remove(0)).expect("a copy"));
    let copy = buffer.copy_to_pinned(ranges.remove(0)).expect("a copy");
    drop(stream);
    let range = copy.synchronize().expect("a wait");
    assert_eq!(*range, [7; 1000]);
    let (missing, _) = rejected(PinnedRange::try_join([range]));
    assert_eq!(missing, Invalid::MissingRanges { given: 1, existing: 2 });
}

#[test]
fn a_copy_of_a_range_of_another_length_returns_the_range() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let mut buffer = DeviceBuffer::<i32>::zeroed(&stream, 3).expect("memory");
    let range = pinned(&context, &[1, 2]).into_range();
    let (lengths, range) = rejected(buffer.as_mut_slice().try_copy_from_pinned(range));
    assert_eq!(lengths, Invalid::Lengths { source: 2, target: 3 });
    assert_eq!(*range, [1, 2]);
}

#[test]
fn ranges_are_used_on_other_threads() {
    let context = or_skip!(common::context());
    let ranges = pinned(&context, &[0; 400]).into_chunks(100).expect("ranges");
    let context = &context;
    let copies: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (1..)
            .zip(ranges)
            .map(|(n, range)| {
                scope.spawn(move || {
                    let stream = context.stream().expect("a stream");
                    let mut buffer = DeviceBuffer::<i32>::uninit(&stream, 100).expect("memory");
                    buffer.fill(n).expect("a fill");
                    buffer.copy_to_pinned(range).expect("a copy")
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a copy")).collect()
    });
    let ranges = copies.into_iter().map(|copy| copy.synchronize().expect("a wait"));
    let host = PinnedRange::join(ranges).expect("the buffer");
    let expected: Vec<i32> = (1..=4).flat_map(|n| [n; 100]).collect();
    assert_eq!(*host, *expected);
}

#[test]
fn pinned_memory_is_initialized_by_the_host() {
    let context = or_skip!(common::context());
    let uninit = || PinnedBuffer::<u16>::uninit(&context, 4).expect("memory");
    let lengths = Invalid::Lengths { source: 3, target: 4 };
    assert_eq!(uninit().write_copy_of_slice(&[1, 2, 3]).expect_err("3 of 4"), lengths.into());
    let host = uninit().write_copy_of_slice(&[1, 2, 3, 4]).expect("written");
    assert_eq!(*host, [1, 2, 3, 4]);
    let options = PinnedOptions { write_combined: true, ..Default::default() };
    let host = PinnedBuffer::<usize>::uninit_with(&context, 5, options).expect("memory");
    let flags = host.flags().expect("known");
    assert!(flags.contains(PinnedFlags::WRITE_COMBINED));
    assert_eq!(*host.write_with(|n| n * n), [0, 1, 4, 9, 16]);
    let none = PinnedBuffer::<u8>::uninit(&context, 0).expect("no memory");
    assert!(none.write_with(|_| unreachable!()).is_empty());
}

#[test]
fn pinned_memory_that_the_caller_initialized_is_converted() {
    let context = or_skip!(common::context());
    let mut host = PinnedBuffer::<u32>::uninit(&context, 3).expect("memory");
    for (n, element) in (0..).zip(host.iter_mut()) {
        element.write(10 * n);
    }
    // SAFETY: every element was written.
    let host = unsafe { host.assume_init() };
    assert_eq!(*host, [0, 10, 20]);
}
