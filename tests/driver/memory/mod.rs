//! Memory of the device and of the host: allocations, copies, pools, and refusals.

pub(crate) mod batches;
pub(crate) mod copies_2d_3d;
pub(crate) mod copy_scope;
pub(crate) mod exports;
pub(crate) mod host;
pub(crate) mod managed;
pub(crate) mod managed_pools;
pub(crate) mod pinned_ranges;
pub(crate) mod pointers;
pub(crate) mod pools;
pub(crate) mod raw_copies;
pub(crate) mod shared;
pub(crate) mod slices;

use crate::common::{self, child};
use crate::module::kernels::{Busy, Scale, pinned};
use cuda_safe::memory::{ManagedBuffer, PitchedBuffer};
use cuda_safe::{CUresult, DeviceBuffer, Error, Invalid, PinnedBuffer};

#[test]
fn copies_to_the_device_and_back_preserve_the_data() {
    let (_, stream) = or_skip!(common::context_and_stream());
    for len in [1, 2, 255, 4096, if cfg!(miri) { 5000 } else { 1 << 20 }] {
        let there: Vec<u64> = (0..len).map(|i| i * 0x9e37_79b9).collect();
        let buffer = DeviceBuffer::from_slice(&stream, &there).expect("a copy");
        assert_eq!(buffer.len(), there.len());
        assert_eq!(buffer.size_bytes(), 8 * there.len());
        assert_eq!(buffer.to_vec().expect("a copy"), there);
    }
}

#[test]
fn new_memory_is_zero_if_stream_ordered_or_synchronous() {
    let (_, stream) = or_skip!(common::context_and_stream());
    let ordered = DeviceBuffer::<u32>::zeroed(&stream, 1000).expect("memory");
    let plain = DeviceBuffer::<u32>::zeroed_sync(&stream, 1000).expect("memory");
    assert_eq!(ordered.to_vec().expect("a copy"), [0; 1000]);
    assert_eq!(plain.to_vec().expect("a copy"), [0; 1000]);
}

#[test]
fn a_buffer_is_cloned_on_its_stream() {
    let (_, stream) = or_skip!(common::context_and_stream());
    let mut sync = DeviceBuffer::uninit_sync(&stream, 3).expect("memory");
    sync.copy_from_slice(&[1, 2, 3]).expect("a copy");
    for buffer in [sync, DeviceBuffer::from_slice(&stream, &[1, 2, 3]).expect("a copy")] {
        let mut copy = buffer.try_clone().expect("a copy");
        assert_ne!(copy.as_raw(), buffer.as_raw());
        assert_eq!(copy.stream(), &stream);
        copy.as_mut_slice().slice(..1).expect("a part").zero().expect("a fill");
        assert_eq!(buffer.to_vec().expect("a copy"), [1, 2, 3]);
        assert_eq!(copy.to_vec().expect("a copy"), [0, 2, 3]);
    }
    let byte = DeviceBuffer::from_slice(&stream, &[7_u8]).expect("a copy");
    assert_eq!(byte.try_clone().and_then(|copy| copy.to_vec()).expect("a copy"), [7]);
    let none = DeviceBuffer::<u64>::uninit_sync(&stream, 0).expect("no memory");
    assert!(none.try_clone().expect("no memory").is_empty());
}

#[test]
fn memory_is_filled_in_units_of_1_2_and_4_bytes() {
    let (_, stream) = or_skip!(common::context_and_stream());
    let mut bytes = DeviceBuffer::<u8>::zeroed(&stream, 1001).expect("memory");
    let mut halves = DeviceBuffer::<i16>::zeroed(&stream, 1001).expect("memory");
    let mut words = DeviceBuffer::<f32>::zeroed(&stream, 1001).expect("memory");
    bytes.fill(0xa5).expect("a fill");
    halves.fill(-2).expect("a fill");
    words.fill(1.5).expect("a fill");
    assert_eq!(bytes.to_vec().expect("a copy"), [0xa5; 1001]);
    assert_eq!(halves.to_vec().expect("a copy"), [-2; 1001]);
    assert_eq!(words.to_vec().expect("a copy"), [1.5; 1001]);
    words.zero().expect("a fill");
    assert_eq!(words.to_vec().expect("a copy"), [0.0; 1001]);
    let mut wide = DeviceBuffer::<u64>::zeroed(&stream, 3).expect("memory");
    assert_eq!(common::invalid(wide.fill(1)), Invalid::FillSize { size: 8 });
}

#[test]
fn buffers_of_one_stream_are_copied_on_the_device() {
    let (_, stream) = or_skip!(common::context_and_stream());
    let from = DeviceBuffer::from_slice(&stream, &[1, 2, 3]).expect("a copy");
    let mut to = DeviceBuffer::<i32>::zeroed(&stream, 3).expect("memory");
    to.copy_from(&from).expect("a copy");
    drop(from);
    assert_eq!(to.to_vec().expect("a copy"), [1, 2, 3]);
}

#[test]
fn a_buffer_of_another_stream_is_refused_and_both_are_named() {
    let (_, [a, b]) = or_skip!(common::context_and_streams());
    let from = DeviceBuffer::<i32>::zeroed(&a, 3).expect("memory");
    let mut to = DeviceBuffer::<i32>::zeroed(&b, 3).expect("memory");
    let error = to.copy_from(&from).expect_err("another stream").to_string();
    for stream in [&a, &b] {
        assert!(error.contains(&format!("{:p}", stream.as_raw())), "{error}");
    }
}

#[test]
fn copies_of_unequal_lengths_are_refused() {
    let (_, stream) = or_skip!(common::context_and_stream());
    let mut buffer = DeviceBuffer::<u8>::zeroed(&stream, 4).expect("memory");
    let other = DeviceBuffer::<u8>::zeroed(&stream, 5).expect("memory");
    let refusals = [
        buffer.copy_from_slice(&[1, 2, 3]),
        buffer.copy_to_slice(&mut [0; 5]),
        buffer.copy_from(&other),
    ];
    let lengths = [(3, 4), (4, 5), (5, 4)];
    for (refusal, (source, target)) in refusals.into_iter().zip(lengths) {
        assert_eq!(common::invalid(refusal), Invalid::Lengths { source, target });
    }
    assert_eq!(buffer.to_vec().expect("a copy"), [0; 4], "nothing was copied");
}

#[test]
fn empty_buffers_are_allowed() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let mut empty = DeviceBuffer::<f64>::zeroed(&stream, 0).expect("no memory");
    assert!(empty.is_empty());
    assert_eq!(empty.as_raw(), 0);
    empty.copy_from_slice(&[]).expect("no copy");
    assert_eq!(empty.to_vec().expect("no copy"), [0.0; 0]);
    let units = DeviceBuffer::from_slice(&stream, &[(), ()]).expect("no memory");
    assert_eq!(units.to_vec().expect("no copy").len(), 2);
    assert!(PinnedBuffer::<u8>::zeroed(&context, 0).expect("no memory").is_empty());
    assert!(DeviceBuffer::<u8>::zeroed_sync(&stream, 0).expect("no memory").is_empty());
}

#[test]
fn a_length_beyond_the_address_space_is_refused_without_a_driver_call() {
    let (_, stream) = or_skip!(common::context_and_stream());
    for len in [usize::MAX, usize::MAX / 8 + 1, isize::MAX as usize / 8 + 1] {
        assert_eq!(
            common::invalid(DeviceBuffer::<u64>::uninit(&stream, len)),
            Invalid::TooLarge { len, size: 8 }
        );
    }
}

#[test]
fn pinned_memory_is_a_slice_that_can_be_copied() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let mut host = pinned(&context, &[3, 1, 4, 1, 5]);
    let mut buffer = DeviceBuffer::from_slice(&stream, &host).expect("a copy");
    Scale::new(&context).run(&stream, &mut buffer, 10, 1).expect("a launch");
    buffer.copy_to_slice(&mut host).expect("a copy");
    assert_eq!(*host, [31, 11, 41, 11, 51]);
}

#[test]
fn memory_is_freed_after_the_work_that_uses_it() {
    const LEN: usize = if cfg!(miri) { 8 } else { 1 << 20 };
    child::with_stream(|context, stream| {
        let scale = Scale::new(&context);
        let work = Busy::new(&context, &stream);
        let mut last = DeviceBuffer::<i32>::zeroed(&stream, LEN).expect("memory");
        for round in 1..=20 {
            // Dropped while the stream is still busy. The pool reuses the memory in stream order.
            let mut next = DeviceBuffer::<i32>::uninit(&stream, LEN).expect("memory");
            next.copy_from(&last).expect("a copy");
            scale.run(&stream, &mut next, 1, round).expect("a launch");
            last = next;
        }
        assert!(!stream.is_complete().expect("a query"), "nothing waited");
        assert_eq!(last.to_vec().expect("a copy"), vec![210; LEN]);
        drop(work);
    });
}

#[test]
fn a_buffer_survives_into_raw_and_from_raw() {
    let (_, stream) = or_skip!(common::context_and_stream());
    let buffer = DeviceBuffer::from_slice(&stream, &[7u32; 64]).expect("a copy");
    let (address, its_stream) = buffer.into_raw();
    assert_eq!(its_stream, stream);
    // SAFETY: the address belongs to the buffer above, which released ownership.
    let borrowed =
        unsafe { DeviceBuffer::<u32>::borrow_raw(address, 64, &stream) }.expect("memory");
    assert_eq!(borrowed.to_vec().expect("a copy"), [7; 64]);
    drop(borrowed);
    // SAFETY: as above, and this is the only owner.
    let back = unsafe { DeviceBuffer::<u32>::from_raw(address, 64, &stream) }.expect("memory");
    assert_eq!(back.to_vec().expect("a copy"), [7; 64]);
}

#[test]
fn pinned_memory_is_copied_without_a_wait_and_returned() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let scale = Scale::new(&context);
    let mut buffer = DeviceBuffer::<i32>::zeroed(&stream, 5).expect("memory");
    let there = buffer.copy_from_pinned(pinned(&context, &[3, 1, 4, 1, 5])).expect("a copy");
    scale.run(&stream, &mut buffer, 10, 1).expect("a launch");
    let back = buffer.copy_to_pinned(pinned(&context, &[0; 5])).expect("a copy");
    assert_eq!(back.stream(), &stream);
    // The buffer is freed in stream order, after the copy.
    drop(buffer);
    assert_eq!(*back.synchronize().expect("a wait"), [31, 11, 41, 11, 51]);
    assert!(there.is_complete().expect("a query"));
    assert_eq!(*there.synchronize().expect("a wait"), [3, 1, 4, 1, 5]);
}

#[test]
fn a_dropped_or_forgotten_pending_copy_does_no_harm() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let mut buffer = DeviceBuffer::<i32>::zeroed(&stream, 1000).expect("memory");
    drop(buffer.copy_from_pinned(pinned(&context, &[7; 1000])).expect("a copy"));
    assert_eq!(buffer.to_vec().expect("a copy"), [7; 1000]);
    std::mem::forget(buffer.copy_to_pinned(pinned(&context, &[0; 1000])).expect("a copy"));
    stream.synchronize().expect("no error");
}

#[test]
fn a_pending_copy_of_another_length_returns_the_memory() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let mut buffer = DeviceBuffer::<i32>::zeroed(&stream, 2).expect("memory");
    let rejected = buffer
        .as_mut_slice()
        .try_copy_from_pinned(pinned(&context, &[1, 2, 3]))
        .expect_err("3 of 2");
    assert_eq!(*rejected.value, [1, 2, 3]);
    assert!(matches!(rejected.error, Error::Invalid(_)), "{rejected}");
    let none = DeviceBuffer::<i32>::zeroed(&stream, 0).expect("no memory");
    let empty = none.copy_to_pinned(pinned(&context, &[])).expect("no copy");
    assert!(empty.synchronize().expect("a wait").is_empty());
}

mod provoked {
    //! The driver reports that it has not enough memory.

    use super::*;

    #[test]
    fn an_allocation_beyond_the_memory_says_how_many_bytes_were_requested() {
        let (context, stream) = or_skip!(common::context_and_stream());
        let len = 1 << 43;
        let mut errors = vec![
            DeviceBuffer::<u32>::uninit(&stream, len).expect_err("32 TiB"),
            DeviceBuffer::<u32>::zeroed_sync(&stream, len).expect_err("32 TiB"),
            PinnedBuffer::<u32>::zeroed(&context, len).expect_err("32 TiB"),
        ];
        let pitched = PitchedBuffer::<u32>::zeroed(&stream, 1 << 20, 1 << 23);
        errors.push(pitched.expect_err("32 TiB"));
        // Managed memory may exceed the memory of the device.
        errors.extend(ManagedBuffer::<u32>::zeroed(&stream, len).err());
        for error in errors {
            match &error {
                Error::OutOfMemory(what) => {
                    assert_eq!(what.bytes, 4 * len, "{error}");
                    assert_eq!(what.error.code, CUresult::CUDA_ERROR_OUT_OF_MEMORY);
                }
                other => panic!("{other}"),
            }
            assert!(error.to_string().contains(&(4 * len).to_string()));
            assert!(cuda_safe::manager::is_out_of_memory(&error));
        }
    }

    #[test]
    fn an_allocation_beyond_the_memory_is_an_error_that_names_the_function() {
        let (context, stream) = or_skip!(common::context_and_stream());
        let len = 1 << 45;
        let error = DeviceBuffer::<u8>::uninit(&stream, len).expect_err("32 TiB");
        assert_eq!(error.code(), Some(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
        assert!(error.to_string().starts_with("cuMemAllocAsync"), "{error}");
        let error = DeviceBuffer::<u8>::zeroed_sync(&stream, len).expect_err("32 TiB");
        assert!(error.to_string().starts_with("cuMemAlloc_v2"), "{error}");
        let error = PinnedBuffer::<u8>::zeroed(&context, len).expect_err("32 TiB");
        assert!(error.to_string().starts_with("cuMemHostAlloc"), "{error}");
        // Later allocations still work.
        DeviceBuffer::from_slice(&stream, &[1u8]).expect("memory");
    }
}
