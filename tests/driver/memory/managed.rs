//! Managed memory, in small amounts, because too much can hang a GPU.

use crate::common;
use crate::module::kernels::Scale;
use cuda_safe::device::attribute;
use cuda_safe::memory::{Advice, ManagedBuffer, MemoryLocation};
use cuda_safe::sys::{
    CUmem_advise, CUmemLocation, CUmemLocation_st__bindgen_ty_1 as Number, CUmemLocationType,
    CUresult, cuMemAdvise_v2,
};
use cuda_safe::{Context, DeviceBuffer, Invalid, Stream};
use std::sync::Arc;

/// Returns the primary context of a device with managed memory and a stream, or reports a skip.
#[track_caller]
pub(crate) fn stage() -> Option<(Context, Stream)> {
    let (context, stream) = common::context_and_stream()?;
    common::has(&context.device(), attribute::MANAGED_MEMORY, "the device has no managed memory")?;
    Some((context, stream))
}

/// Like [`stage`], but the device must support prefetches of managed memory. Also returns its location.
#[track_caller]
fn moving() -> Option<(Context, Stream, MemoryLocation)> {
    let (context, stream) = stage()?;
    let concurrent = attribute::CONCURRENT_MANAGED_ACCESS;
    common::has(&context.device(), concurrent, "the device has no concurrent managed access")?;
    let device = MemoryLocation::Device(context.device());
    Some((context, stream, device))
}

#[test]
fn host_and_device_use_managed_memory_in_turn() {
    const LEN: usize = if cfg!(miri) { 50 } else { 5000 };
    let (context, stream) = or_skip!(stage());
    let scale = Scale::new(&context);
    let mut buffer = ManagedBuffer::<i32>::zeroed(&stream, LEN).expect("memory");
    assert_eq!(buffer.host().expect("a wait"), [0; LEN]);
    for round in 1..4 {
        buffer.host().expect("a wait").fill(round);
        let x = buffer.device_mut().expect("device access");
        scale.run(&stream, x, 10, 1).expect("a launch");
        assert_eq!(buffer.host().expect("a wait"), [10 * round + 1; LEN]);
    }
    let there = buffer.device().expect("device access");
    assert_eq!(there.slice(LEN - 1..).expect("within").to_vec().expect("a copy"), [31]);
    let mut copy = DeviceBuffer::<i32>::zeroed(&stream, LEN).expect("memory");
    copy.copy_from(buffer.device().expect("device access")).expect("a copy");
    drop(buffer);
    assert_eq!(copy.to_vec().expect("a copy"), [31; LEN]);
}

#[test]
fn managed_memory_starts_with_the_contents_written_by_the_host() {
    let (_context, stream) = or_skip!(stage());
    let buffer = ManagedBuffer::from_slice(&stream, &[3, 1, 4, 1, 5]).expect("memory");
    assert_eq!((buffer.len(), buffer.size_bytes()), (5, 20));
    let there = buffer.device().expect("device access");
    assert_eq!(there.to_vec().expect("a copy"), [3, 1, 4, 1, 5]);
}

#[test]
fn empty_managed_memory_is_allowed() {
    let (_context, stream) = or_skip!(stage());
    let mut empty = ManagedBuffer::<u64>::zeroed(&stream, 0).expect("no memory");
    assert!(empty.is_empty() && empty.host().expect("a wait").is_empty());
    assert_eq!(empty.as_raw(), 0);
    let range = empty.range(..).expect("within");
    range.advise(Advice::ReadMostly).expect("an empty range");
    range.prefetch(MemoryLocation::Host).expect("an empty range");
    assert!(range.info().expect("the buffer is empty").accessed_by.is_empty());
    let mut units = ManagedBuffer::from_slice(&stream, &[(), ()]).expect("no memory");
    assert_eq!(units.host().expect("a wait").len(), 2);
}

#[test]
fn a_range_outside_of_managed_memory_is_refused() {
    let (_context, stream) = or_skip!(stage());
    let buffer = ManagedBuffer::<u16>::zeroed(&stream, 100).expect("memory");
    let range = buffer.range(10..=20).expect("within");
    assert_eq!((range.as_raw(), range.size_bytes()), (buffer.as_raw() + 20, 22));
    let outside = Invalid::Range { start: 50, end: 101, len: 100 };
    assert_eq!(common::invalid(buffer.range(50..101)), outside);
}

#[test]
fn advice_applies_until_it_is_unset() {
    let (_context, stream, device) = or_skip!(moving());
    // The memory fills whole pages, which no other test uses.
    let buffer = ManagedBuffer::<u8>::zeroed(&stream, 2 << 20).expect("memory");
    let range = buffer.range(..).expect("within");
    range.advise(Advice::ReadMostly).expect("advice");
    range.advise(Advice::PreferredLocation(device)).expect("advice");
    range.advise(Advice::AccessedBy(MemoryLocation::Host)).expect("advice");
    let info = range.info().expect("known");
    assert!(info.read_mostly, "{info:?}");
    assert_eq!(info.preferred_location, Some(device));
    assert_eq!(info.accessed_by, [MemoryLocation::Host]);
    range.advise(Advice::NotReadMostly).expect("advice");
    range.advise(Advice::NoPreferredLocation).expect("advice");
    range.advise(Advice::NotAccessedBy(MemoryLocation::Host)).expect("advice");
    let info = range.info().expect("known");
    assert!(!info.read_mostly, "{info:?}");
    assert_eq!((info.preferred_location, info.accessed_by), (None, vec![]));
}

/// Advice that needs no location ignores its number, but not its type.
#[test]
fn advice_is_refused_by_the_type_and_the_number_of_its_location() {
    const UNKNOWN: i32 = 64;
    let (context, stream, _) = or_skip!(moving());
    or_skip!(common::since(13, 0));
    // The memory fills whole pages, which no other test uses.
    let buffer = ManagedBuffer::<u8>::zeroed(&stream, 2 << 20).expect("memory");
    let (address, size) = (buffer.as_raw(), buffer.size_bytes());
    let accepts = |kind, id, advice| {
        let location =
            CUmemLocation { type_: CUmemLocationType(kind), __bindgen_anon_1: Number { id } };
        // SAFETY: the memory is alive, and the driver checks the location and the advice.
        let code = unsafe { cuMemAdvise_v2(address, size, CUmem_advise(advice), location) };
        let refused = code == CUresult::CUDA_ERROR_INVALID_VALUE;
        assert!(code.is_success() || refused, "{code}: location {kind} {id}, advice {advice}");
        code.is_success()
    };
    // For types from CU_MEM_LOCATION_TYPE_INVALID on: the advice from CU_MEM_ADVISE_SET_READ_MOSTLY on that is
    // accepted for the number 0, and for an unknown number.
    let expected: [[&[u32]; 2]; 6] = [
        [&[], &[]],
        [&[1, 2, 3, 4, 5, 6], &[1, 2, 4]],
        [&[1, 2, 3, 4, 5, 6], &[1, 2, 3, 4, 5, 6]],
        [&[1, 2, 3, 4], &[1, 2, 4]],
        [&[1, 2, 3, 4], &[1, 2, 3, 4]],
        [&[], &[]],
    ];
    let used = context.with_current(|_| {
        for (kind, expected) in (0..).zip(expected) {
            let seen = [0, UNKNOWN].map(|id| {
                (1..=6).filter(|advice| accepts(kind, id, *advice)).collect::<Vec<u32>>()
            });
            assert_eq!(seen, expected, "type {kind}");
        }
    });
    used.expect("a guard");
}

#[test]
fn prefetched_memory_keeps_its_contents() {
    let (_context, stream, device) = or_skip!(moving());
    // The buffer has its own pages: the location of a range is known only if all of it moved to
    // the same place.
    const LEN: usize = 2 << 20;
    let mut buffer = ManagedBuffer::from_slice(&stream, &[7u8; LEN]).expect("memory");
    for to in [device, MemoryLocation::Host, device] {
        let range = buffer.range(..).expect("within");
        range.prefetch(to).expect("a prefetch");
        stream.synchronize().expect("a wait");
        assert_eq!(range.info().expect("known").last_prefetch, Some(to));
    }
    assert_eq!(buffer.host().expect("a wait"), [7; LEN]);
}

#[test]
fn a_batch_prefetches_several_ranges_of_one_stream() {
    let (context, stream, device) = or_skip!(moving());
    or_skip!(common::since(13, 0));
    // Each buffer has its own pages: the location of a range is known only if all of it moved to
    // the same place.
    const LEN: usize = 2 << 20;
    let mut a = ManagedBuffer::from_slice(&stream, &[1u8; LEN]).expect("memory");
    let mut b = ManagedBuffer::from_slice(&stream, &[2u64; LEN / 8]).expect("memory");
    let ranges = [
        (a.range(..).expect("within"), device),
        (b.range(..0).expect("within"), device),
        (b.range(..).expect("within"), MemoryLocation::Host),
    ];
    stream.prefetch_batch(&ranges).expect("prefetches");
    stream.prefetch_batch(&[]).expect("an empty range");
    stream.synchronize().expect("a wait");
    let infos = [0, 2].map(|index: usize| ranges[index].0.info().expect("known"));
    let last = infos.map(|info| info.last_prefetch);
    assert_eq!(last, [Some(device), Some(MemoryLocation::Host)]);
    assert_eq!(a.host().expect("a wait"), [1; LEN]);

    // SAFETY: discarded memory is written before it is read.
    unsafe { stream.discard_batch(&[a.range(..).expect("within")]) }.expect("a discard");
    a.device_mut().expect("device access").fill(3).expect("a fill");
    // SAFETY: as above.
    unsafe { stream.discard_and_prefetch_batch(&[(b.range(..).expect("within"), device)]) }
        .expect("a discard");
    b.device_mut().expect("device access").zero().expect("a fill");
    assert_eq!(a.host().expect("a wait"), [3; LEN]);
    assert_eq!(b.host().expect("a wait"), [0; LEN / 8]);

    let other = context.stream().expect("a stream");
    let error = other.prefetch_batch(&[(a.range(..).expect("within"), device)]);
    let error = error.expect_err("another stream");
    assert!(error.to_string().starts_with("range 0"), "{error}");
}

#[test]
fn managed_memory_survives_into_raw_and_from_raw() {
    let (_context, stream) = or_skip!(stage());
    let buffer = ManagedBuffer::from_slice(&stream, &[5u8; 100]).expect("memory");
    let (address, its_stream) = buffer.into_raw();
    assert_eq!(its_stream, stream);
    // SAFETY: the address belongs to the buffer above, which released ownership.
    let borrowed = unsafe { ManagedBuffer::<u8>::borrow_raw(address, 100, &stream) };
    borrowed.expect("known").host().expect("a wait")[0] = 6;
    let owner = Arc::new(());
    let keep = Arc::clone(&owner);
    // SAFETY: as above.
    let foreign = unsafe { ManagedBuffer::<u8>::from_foreign(address, 100, &stream, keep) };
    drop(foreign.expect("known"));
    assert_eq!(Arc::strong_count(&owner), 1);
    // SAFETY: as above, and this is the only owner.
    let mut back = unsafe { ManagedBuffer::<u8>::from_raw(address, 100, &stream) }.expect("known");
    assert_eq!(back.host().expect("a wait")[..2], [6, 5]);
}
