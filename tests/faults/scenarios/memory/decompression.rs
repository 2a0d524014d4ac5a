//! A batch of decompressions, which a device without an engine refuses.

use crate::scenarios::{answer, primary_and_streams};
use crate::trace::Trace;
use cuda_safe::memory::{CompressionFormat, DecompressBatch};
use cuda_safe::sys::CUresult;
use cuda_safe::{DeviceBuffer, Error, Result};

pub(crate) fn run(trace: &mut Trace) -> Result<()> {
    let (_, [stream]) = primary_and_streams()?;
    let source = DeviceBuffer::<u8>::zeroed_sync(&stream, 5)?;
    let mut target = DeviceBuffer::<u8>::zeroed_sync(&stream, 4)?;
    let mut written = DeviceBuffer::<u32>::zeroed_sync(&stream, 1)?;
    let mut batch = DecompressBatch::new(&stream);
    batch.push(CompressionFormat::Lz4, &mut target, &source, &mut written)?;
    let refuses = answer("cuMemBatchDecompressAsync", CUresult::CUDA_ERROR_NOT_SUPPORTED);
    // SAFETY: the device refuses the call.
    match unsafe { batch.enqueue() } {
        Ok(()) | Err(Error::Missing(_)) => {}
        Err(error) if refuses(&error) => {}
        Err(error) => return Err(error),
    }
    trace.drop((source, target, written));
    trace.drops_from_here()
}
