//! Arrays of other libraries.

use super::{primary, primary_and_streams};
use crate::trace::Trace;
use cuda_safe::interop::dlpack::{ConsumerStream, Export, ManagedTensor};
use cuda_safe::interop::{ArrayViewMut, ExportedStream, Index, StreamSync};
use cuda_safe::{DeviceBuffer, Result, StreamOptions};

pub(super) fn run(trace: &mut Trace) -> Result<()> {
    let context = primary()?;
    // A blocking stream, because the array is said to be ordered with the legacy default stream.
    let blocking = StreamOptions { blocking: true, ..StreamOptions::default() };
    let (home, stream) = (context.stream_with(blocking)?, context.stream()?);
    let buffer = DeviceBuffer::from_slice(&home, &[1u32, 2, 3])?;
    let exported = buffer.array_interface()?;
    let legacy = exported.clone().with_stream(Some(ExportedStream::Legacy));
    for array in [&exported, &legacy] {
        for sync in [StreamSync::WaitEvent, StreamSync::Synchronize, StreamSync::ProducerStream] {
            // SAFETY: the buffer outlives the array with its stream, and no other work uses it
            // meanwhile.
            let imported = unsafe { array.import::<u32>(&stream, sync, ()) }?;
            let stream = imported.stream().clone();
            let mut copy = DeviceBuffer::<u32>::uninit(&stream, 3)?;
            copy.copy_from(&imported)?;
            trace.drop(imported);
            assert_eq!(copy.to_vec()?, [1, 2, 3]);
            trace.drop(copy);
        }
    }
    let mask = DeviceBuffer::from_slice(&stream, &[1u8, 0, 1])?;
    let valid = mask.array_interface()?;
    let joined = ExportedStream::joined(&home, [&stream])?;
    let masked = exported.with_stream(Some(joined)).with_mask(Some(valid));
    for sync in [StreamSync::WaitEvent, StreamSync::ProducerStream] {
        // An array that could not be returned keeps the streams alive.
        let owner = (home.clone(), stream.clone());
        // SAFETY: the buffers outlive the array, and no other work uses them meanwhile.
        let imported = unsafe { masked.import_masked(&home, sync, owner) }?;
        let view = imported.mask_view()?;
        assert_eq!(view.map(|view| view.to_vec()).transpose()?, Some(vec![1, 0, 1]));
        trace.drop(imported);
    }
    trace.drop((mask, buffer));
    trace.drops_from_here()
}

pub(super) fn tensors(trace: &mut Trace) -> Result<()> {
    let (_, [home, stream]) = primary_and_streams()?;
    // The tensor owns the memory. If the end of its use is unknown, both are leaked.
    let lent = || -> Result<Export> {
        let buffer = DeviceBuffer::from_slice(&home, &[1u32, 2, 3])?;
        buffer.into_dlpack()
    };
    let received = |export: Export| -> Result<ManagedTensor> {
        let raw = export.into_raw_versioned();
        // SAFETY: this function is the only owner.
        Ok(unsafe { ManagedTensor::from_raw_versioned(raw.as_ptr()) }?)
    };
    for consumer in [ConsumerStream::of(&stream), ConsumerStream::Legacy] {
        let mut export = lent()?;
        // SAFETY: the stream is alive, or is the default stream.
        unsafe { consumer.wait_stream(&home) }?;
        // SAFETY: as above.
        unsafe { export.release_after(consumer, &home) }?;
        let tensor = received(export)?;
        // SAFETY: no other work uses the memory, which is returned after the work of the consumer's
        // stream.
        let array = unsafe { tensor.import::<u32>(&stream, StreamSync::Ignore) }?;
        if consumer != ConsumerStream::Legacy {
            let mut copy = DeviceBuffer::<u32>::uninit(&stream, 3)?;
            copy.copy_from(&array)?;
            assert_eq!(copy.to_vec()?, [1, 2, 3]);
            trace.drop(copy);
        }
        trace.drop(array);
    }
    for handle in [ExportedStream::Legacy, ExportedStream::of(&home)] {
        let tensor = received(lent()?)?.with_producer_stream(Some(handle));
        // SAFETY: no other work uses the memory, which is freed on the producer's stream, or when
        // nothing uses it.
        let array = unsafe { tensor.import::<u32>(&stream, StreamSync::WaitEvent) }?;
        trace.drop(array);
    }
    let tensor = received(lent()?)?;
    // SAFETY: no other work uses the memory.
    let array = unsafe { tensor.import::<u32>(&home, StreamSync::Synchronize) }?;
    assert_eq!(array.as_slice().to_vec()?, [1, 2, 3]);
    trace.drops_from_here()?;
    drop(array);
    Ok(())
}

pub(super) fn views(trace: &mut Trace) -> Result<()> {
    let stream = primary()?.stream()?;
    let mut buffer = DeviceBuffer::<u32>::zeroed(&stream, 12)?;
    let array = ArrayViewMut::new(&mut buffer, &[3, 4])?;
    let (mut low, high) = array.split_at(1, 2)?;
    let mut column = high.index(&[Index::ALL, Index::At(0)])?;
    column.copy_from_slice(&[1, 2, 3])?;
    low.fill(7)?;
    let mut first = low.index(&[Index::ALL, Index::At(0)])?;
    first.copy_from(column)?;
    assert_eq!(first.as_view().to_vec()?, [1, 2, 3]);
    assert_eq!(buffer.to_vec()?, [1, 7, 1, 0, 2, 7, 2, 0, 3, 7, 3, 0]);
    trace.drops_from_here()
}
