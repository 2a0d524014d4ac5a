//! Device memory as a DMA-BUF, and the locations of managed memory.

use crate::scenarios::primary_and_streams;
use crate::trace::Trace;
use cuda_safe::memory::{DmaBufOptions, ManagedBuffer};
use cuda_safe::{DeviceBuffer, Error, Result};

pub(crate) fn run(trace: &mut Trace) -> Result<()> {
    let (_, [stream]) = primary_and_streams()?;
    let memory = DeviceBuffer::<u8>::zeroed_sync(&stream, 1 << 20)?;
    let start = memory.as_raw().next_multiple_of(4096) - memory.as_raw();
    let start = usize::try_from(start).unwrap_or(0);
    let page = memory.slice(start..start + 4096)?;
    drop(page.export_dma_buf(DmaBufOptions::default())?);
    let managed = ManagedBuffer::<u8>::zeroed(&stream, 100)?;
    match managed.range(..)?.residency(100, 0) {
        Ok(_) | Err(Error::Missing(_)) => {}
        Err(error) => return Err(error),
    }
    trace.drop(managed);
    trace.drops_from_here()
}
