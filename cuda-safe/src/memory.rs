//! Memory: of the device, ordered by a stream, and of the host, pinned.

mod allocation;
mod batch;
mod boxes;
mod copy;
mod device;
mod peer;
mod pending;
mod pinned;
mod pitched;
mod region;
mod scope;
mod shared;
mod slice;

pub use batch::CopyBatch;
pub use device::DeviceBuffer;
pub use peer::PeerReader;
pub use pending::Pending;
pub use pinned::PinnedBuffer;
pub use pitched::PitchedBuffer;
pub use region::{Extent, Region};
pub use scope::CopyScope;
pub use shared::{SharedBuffer, SharedReader};
pub use slice::{DeviceSlice, DeviceSliceMut};

use crate::error::Result;
use crate::invalid::Invalid;

/// The bytes of `len` elements of `T`, as long as an allocation can be so large.
fn bytes_of<T>(len: usize) -> Result<usize> {
    // The driver's allocations begin at multiples of 256 (of memory pools and host pages: more).
    const { assert!(align_of::<T>() <= 256, "no type needs a larger alignment") };
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

fn same_length(source: usize, target: usize) -> Result<()> {
    if source == target {
        Ok(())
    } else {
        Err(Invalid::Lengths { source, target }.into())
    }
}
