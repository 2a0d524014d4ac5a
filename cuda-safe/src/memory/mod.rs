//! Device memory, pinned host memory, managed memory, and the copies between them.

pub(crate) mod buffer;
pub(crate) mod copy;
#[cfg(unix)]
pub(crate) mod descriptor;
#[cfg(target_os = "linux")]
mod dma_buf;
mod ipc;
mod managed;
pub(crate) mod pinned;
mod pointer;
pub mod pool;

pub use crate::call::region::{Extent, Region};
pub use crate::manager::PinnedFlags;
pub(crate) use buffer::allocation::Backing;

pub use buffer::device::DeviceBuffer;
pub use buffer::mapped::MappedBuffer;
pub use buffer::pitched::PitchedBuffer;
pub(crate) use buffer::shared::Reads;
pub use buffer::shared::{SharedBuffer, SharedReader};
pub use buffer::slice::{DeviceChunksExact, DeviceChunksExactMut, DeviceSlice, DeviceSliceMut};
pub use copy::batch::{CopyAttributes, CopyBatch, SourceOrder};
pub use copy::decompress::{CompressionFormat, DecompressBatch};
pub use copy::peer::PeerReader;
pub use copy::pending::{CopyScope, Pending, Pinned};
#[cfg(target_os = "linux")]
pub use dma_buf::DmaBufOptions;
pub use ipc::IpcMemory;
pub use managed::{Advice, ManagedBuffer, ManagedRange, RangeInfo};
pub use pinned::{PinnedBuffer, PinnedOptions, PinnedRange, RegisterOptions};
pub use pointer::{MemoryLocation, MemoryType, PointerInfo};
pub use pool::{ImportedPool, MemoryAccess, MemoryPool, MemoryPoolOptions};

use crate::call::{Error, Invalid, Result};

#[inline]
pub(crate) fn same_length(source: usize, target: usize) -> Result<()> {
    if source == target { Ok(()) } else { Err(other_length(source, target)) }
}

#[cold]
#[inline(never)]
fn other_length(source: usize, target: usize) -> Error {
    Invalid::Lengths { source, target }.into()
}
