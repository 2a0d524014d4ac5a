//! Device memory, pinned host memory, managed memory, and the copies between them.

pub(crate) mod buffer;
pub(crate) mod copy;
#[cfg(unix)]
pub(crate) mod descriptor;
#[cfg(target_os = "linux")]
mod dma_buf;
pub(crate) mod ipc;
mod location;
mod managed;
pub(crate) mod pinned;
mod pointer;
pub mod pool;

pub use crate::call::region::{Extent, Region};
pub use crate::graph::memory::{
    AllocOptions, AllocParameters, CopySource, CopyTarget, GraphAccess, GraphAllocation,
    GraphBuffer, GraphMemoryUsage, GraphPinned, GraphReadAccess, GraphSlice, GraphSliceMut,
};
pub use buffer::chunks::{DeviceChunksExact, DeviceChunksExactMut};
pub use buffer::device::DeviceBuffer;
pub use buffer::mapped::MappedBuffer;
pub use buffer::pitched::PitchedBuffer;
pub(crate) use buffer::shared::Reads;
pub use buffer::shared::{SharedBuffer, SharedReader};
pub use buffer::slice::{DeviceSlice, DeviceSliceMut};
pub use copy::batch::{CopyAttributes, CopyBatch, SourceOrder};
pub use copy::decompress::{CompressionFormat, DecompressBatch};
pub use copy::peer::PeerReader;
pub use copy::pending::{Pending, Pinned};
pub use copy::scope::CopyScope;
#[cfg(target_os = "linux")]
pub use dma_buf::DmaBufOptions;
pub use location::MemoryLocation;
pub use managed::{Advice, ManagedBuffer, ManagedRange, RangeInfo};
pub use pinned::{PinnedBuffer, PinnedFlags, PinnedOptions, PinnedRange, RegisterOptions};
pub use pointer::{MemoryType, PointerInfo};
pub(crate) use pool::not_shareable;
pub use pool::{ImportedPool, MemoryAccess, MemoryPool, MemoryPoolOptions};

use crate::call::error::{Error, Result};
use crate::call::invalid::Invalid;
use cuda_sys::CUdeviceptr;

/// Returns the size of `len` elements of `T` in bytes, or an error if no allocation can be that
/// large.
pub(crate) fn bytes_of<T>(len: usize) -> Result<usize> {
    // The driver aligns its allocations to 256 bytes, and pool memory and host pages to more.
    const { assert!(align_of::<T>() <= 256, "alignment above 256 is unsupported") };
    len.checked_mul(size_of::<T>())
        .filter(|bytes| isize::try_from(*bytes).is_ok())
        .ok_or_else(|| {
            Invalid::TooLarge {
                len,
                size: size_of::<T>(),
            }
            .into()
        })
}

/// Checks the memory of other code, in the constructors `from_raw`, `borrow_raw` and `from_foreign`.
///
/// # Errors
/// [`Invalid::TooLarge`]; [`Invalid::Handle`] if the address is 0 and the elements have bytes.
pub(crate) fn expect_memory<T>(address: CUdeviceptr, len: usize) -> Result<()> {
    let bytes = bytes_of::<T>(len)?;
    if address == 0 && bytes != 0 {
        let what = "device address";
        return Err(Invalid::Handle { what, value: 0 }.into());
    }
    Ok(())
}

#[inline]
pub(crate) fn same_length(source: usize, target: usize) -> Result<()> {
    if source == target {
        Ok(())
    } else {
        Err(other_length(source, target))
    }
}

#[cold]
#[inline(never)]
fn other_length(source: usize, target: usize) -> Error {
    Invalid::Lengths { source, target }.into()
}
