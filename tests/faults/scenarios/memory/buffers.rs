//! Device memory and host memory.

use crate::scenarios::{expect, invalid, primary, primary_and_streams};
use crate::trace::Trace;
use cuda_safe::{
    CUresult, Context, ContextFlags, Device, DeviceBuffer, Invalid, PinnedBuffer, Result,
};

pub(crate) fn ordered(trace: &mut Trace) -> Result<()> {
    let (context, [stream]) = primary_and_streams()?;
    let from = DeviceBuffer::from_slice(&stream, &[1u64, 2, 3])?;
    let mut to = DeviceBuffer::<u64>::zeroed(&stream, 3)?;
    to.copy_from(&from)?;
    // Freed after the copy that reads it.
    trace.drop(from);
    assert_eq!(to.to_vec()?, [1, 2, 3]);
    to.copy_from_slice(&[4, 5, 6])?;
    let mut there = [0; 3];
    to.copy_to_slice(&mut there)?;
    assert_eq!(there, [4, 5, 6]);
    to.zero()?;
    assert_eq!(to.to_vec()?, [0; 3]);
    expect(to.fill(1), invalid(|why| matches!(why, Invalid::FillSize { .. })))?;

    let mut bytes = DeviceBuffer::<u8>::uninit(&stream, 5)?;
    bytes.fill(0xa5)?;
    assert_eq!(bytes.to_vec()?, [0xa5; 5]);
    let mut halves = DeviceBuffer::<i16>::uninit(&stream, 5)?;
    halves.fill(-2)?;
    assert_eq!(halves.to_vec()?, [-2; 5]);
    let mut words = DeviceBuffer::<f32>::uninit(&stream, 5)?;
    words.fill(1.5)?;
    assert_eq!(words.to_vec()?, [1.5; 5]);

    let empty = DeviceBuffer::<u32>::zeroed(&stream, 0)?;
    assert!(empty.to_vec()?.is_empty());
    let (address, its_stream) = words.into_raw();
    // SAFETY: the buffer released ownership.
    let back = unsafe { DeviceBuffer::<f32>::from_raw(address, 5, &its_stream) }?;
    trace.drop((stream, its_stream, context));
    assert_eq!(back.to_vec()?, [1.5; 5]);
    trace.drops_from_here()
}

pub(crate) fn plain(trace: &mut Trace) -> Result<()> {
    let (context, [stream]) = primary_and_streams()?;
    let mut plain = DeviceBuffer::<i32>::zeroed_sync(&stream, 8)?;
    let ordered = DeviceBuffer::from_slice(&stream, &[3; 8])?;
    assert_eq!(plain.to_vec()?, [0; 8]);
    plain.copy_from(&ordered)?;
    let mut last = DeviceBuffer::<i32>::zeroed_sync(&stream, 8)?;
    last.copy_from(&plain)?;
    // Still in use by pending work when it is freed.
    trace.drop(plain);
    assert_eq!(last.to_vec()?, [3; 8]);
    last.fill(5)?;
    trace.drop((stream, context, ordered));
    trace.drops_from_here()
}

pub(crate) fn pinned(trace: &mut Trace) -> Result<()> {
    let (context, [stream]) = primary_and_streams()?;
    let mut host = PinnedBuffer::<u32>::zeroed(&context, 4)?;
    assert_eq!(*host, [0; 4]);
    host.copy_from_slice(&[1, 2, 3, 4]);
    let mut buffer = DeviceBuffer::from_slice(&stream, &host)?;
    let mut back = PinnedBuffer::<u32>::zeroed(&context, 4)?;
    buffer.copy_to_slice(&mut back)?;
    assert_eq!(*back, *host);
    buffer.copy_from_slice(&back)?;
    trace.drop(host);
    buffer.copy_to_slice(&mut back)?;
    assert_eq!(*back, [1, 2, 3, 4]);
    assert!(PinnedBuffer::<u32>::zeroed(&context, 0)?.is_empty());
    trace.drops_from_here()
}

pub(crate) fn pending(trace: &mut Trace) -> Result<()> {
    let (context, [stream]) = primary_and_streams()?;
    let mut buffer = DeviceBuffer::<u32>::zeroed(&stream, 4)?;
    let there = buffer.copy_from_pinned(PinnedBuffer::zeroed(&context, 4)?)?;
    let back = buffer.copy_to_pinned(there.synchronize()?)?;
    back.is_complete()?;
    let host = back.synchronize()?;
    assert_eq!(*host, [0; 4]);
    trace.drop(buffer.copy_from_pinned(host)?);
    trace.drops_from_here()
}

pub(crate) fn ranges(trace: &mut Trace) -> Result<()> {
    let (context, [stream]) = primary_and_streams()?;
    let host = PinnedBuffer::<u32>::uninit(&context, 4)?.write_with(|n| n as u32);
    let mut buffer = DeviceBuffer::<u32>::uninit_sync(&stream, 4)?;
    let mut copies = Vec::new();
    for (mut part, range) in buffer.chunks_exact_mut(2)?.zip(host.into_chunks(2)?) {
        copies.push(part.copy_from_pinned(range)?);
    }
    let mut ranges = Vec::new();
    for copy in copies {
        copy.is_complete()?;
        ranges.push(copy.synchronize()?);
    }
    let copy = buffer.try_clone()?;
    assert_eq!(copy.to_vec()?, [0, 1, 2, 3]);
    // The events of the ranges are used again.
    for (part, range) in copy.chunks_exact(2)?.zip(ranges.drain(..)) {
        trace.drop(part.copy_to_pinned(range)?);
    }
    trace.drops_from_here()
}

pub(crate) fn slices(trace: &mut Trace) -> Result<()> {
    let (_, [stream, other]) = primary_and_streams()?;
    let mut buffer = DeviceBuffer::from_slice(&stream, &[1u32, 2, 3, 4])?;
    let (mut low, high) = buffer.as_mut_slice().split_at(2)?;
    low.copy_from(high)?;
    buffer.slice_mut(3..)?.fill(9)?;
    // If this fails, the buffer stays bound to its stream.
    buffer.rebind(&other)?;
    trace.drop(stream);
    assert_eq!(buffer.slice(1..)?.to_vec()?, [4, 3, 9]);
    expect(buffer.slice(3..5), invalid(|why| matches!(why, Invalid::Range { .. })))?;
    trace.drops_from_here()
}

pub(crate) fn shared(trace: &mut Trace) -> Result<()> {
    let (_, [home, other]) = primary_and_streams()?;
    // If this fails, the buffer is returned and dropped here.
    let shared = DeviceBuffer::from_slice(&home, &[1u32, 2, 3])?.share()?;
    let mut copy = DeviceBuffer::<u32>::uninit(&other, 3)?;
    let here = shared.on(&home)?;
    let there = shared.on(&other)?;
    copy.copy_from(&there)?;
    trace.drop((here, there));
    let mut buffer = match shared.into_buffer() {
        Ok(buffer) => buffer,
        // Dropping a reader failed, so the memory cannot be written.
        Err(shared) => {
            trace.drop(shared);
            DeviceBuffer::zeroed(&home, 3)?
        }
    };
    buffer.fill(9)?;
    assert_eq!(copy.to_vec()?, [1, 2, 3]);
    let last = buffer.share()?;
    let reader = last.on(&other)?;
    trace.drop((home, last));
    copy.copy_from(&reader)?;
    assert_eq!(copy.to_vec()?, [9; 3]);
    trace.drops_from_here()
}

pub(crate) fn scope(trace: &mut Trace) -> Result<()> {
    let (context, [stream]) = primary_and_streams()?;
    let mut buffer = DeviceBuffer::<u32>::zeroed(&stream, 4)?;
    let mut there = PinnedBuffer::<u32>::zeroed(&context, 4)?;
    let mut back = PinnedBuffer::<u32>::zeroed(&context, 2)?;
    there.copy_from_slice(&[1, 2, 3, 4]);
    stream.copy_scope(|scope| {
        scope.copy_from_pinned(&mut buffer, &mut there)?;
        scope.copy_to_pinned(buffer.slice(2..)?, &mut back)
    })?;
    assert_eq!(*back, [3, 4]);
    trace.drops_from_here()
}

pub(crate) fn of_peers(trace: &mut Trace) -> Result<()> {
    let device = Device::get(0)?;
    let context = primary()?;
    let other = Context::new(&device, ContextFlags::empty())?;
    let (home, away) = (context.stream()?, other.stream()?);
    let shared = DeviceBuffer::from_slice(&home, &[1u32, 2, 3])?.share()?;
    let mut copy = DeviceBuffer::<u32>::uninit(&away, 3)?;
    let reader = shared.on_peer(&away)?;
    copy.copy_from_peer(&reader)?;
    trace.drop((reader, shared));
    assert_eq!(copy.to_vec()?, [1, 2, 3]);
    let unsupported = Some(CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    expect(context.enable_peer_access(&other), |error| error.code() == unsupported)?;
    let not_enabled = Some(CUresult::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    // SAFETY: no work is pending.
    expect(unsafe { context.disable_peer_access(&other) }, |error| error.code() == not_enabled)?;
    trace.drops_from_here()
}
