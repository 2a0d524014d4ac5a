//! Device memory, pinned host memory, managed memory, and the copies between them.

mod allocation;
mod arguments;
pub(crate) mod array;
mod batch;
mod cast;
mod chunks;
mod copy;
mod copy_3d;
mod decompress;
#[cfg(unix)]
mod descriptor;
mod device;
#[cfg(target_os = "linux")]
mod dma_buf;
pub(crate) mod fabric_copy;
mod global;
mod graph;
mod location;
mod managed;
pub(crate) mod manager;
mod mapped;
mod peer;
mod pending;
mod pinned;
mod pitched;
mod pointer;
pub mod pool;
mod registered;
mod scope;
mod shared;
mod slice;
mod stream_ops;
pub(crate) mod tensor_map;
pub(crate) mod virtual_memory;

pub use crate::base::region::{Extent, Region};
pub use batch::{CopyAttributes, CopyBatch, SourceOrder};
pub use chunks::{DeviceChunksExact, DeviceChunksExactMut};
pub use decompress::{CompressionFormat, DecompressBatch};
pub use device::DeviceBuffer;
#[cfg(target_os = "linux")]
pub use dma_buf::DmaBufOptions;
pub use graph::{
    AllocOptions, AllocParameters, CopySource, CopyTarget, GraphAccess, GraphAllocation,
    GraphBuffer, GraphMemoryUsage, GraphPinned, GraphReadAccess, GraphSlice, GraphSliceMut,
};
pub use location::MemoryLocation;
pub use managed::{Advice, ManagedBuffer, ManagedRange, RangeInfo};
pub use mapped::MappedBuffer;
pub use peer::PeerReader;
pub use pending::{Pending, Pinned};
pub use pinned::{PinnedBuffer, PinnedFlags, PinnedOptions, PinnedRange, RegisterOptions};
pub use pitched::PitchedBuffer;
pub use pointer::{MemoryType, PointerInfo};
pub(crate) use pool::not_shareable;
pub use pool::{ImportedPool, MemoryAccess, MemoryPool, MemoryPoolOptions};
pub use scope::CopyScope;
pub(crate) use shared::Reads;
pub use shared::{SharedBuffer, SharedReader};
pub use slice::{DeviceSlice, DeviceSliceMut};

use crate::base::error::{Error, Result};
use crate::base::invalid::Invalid;
use cuda_sys::CUdeviceptr;

/// Returns the size of `len` elements of `T` in bytes, or an error if no allocation can be that
/// large.
fn bytes_of<T>(len: usize) -> Result<usize> {
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
fn expect_memory<T>(address: CUdeviceptr, len: usize) -> Result<()> {
    let bytes = bytes_of::<T>(len)?;
    if address == 0 && bytes != 0 {
        let what = "device address";
        return Err(Invalid::Handle { what, value: 0 }.into());
    }
    Ok(())
}

#[inline]
fn same_length(source: usize, target: usize) -> Result<()> {
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
