//! Access of other devices to exported memory.

use crate::call::{Error, Result};
use crate::context::Context;
use crate::device::Device;
use crate::memory::{MemoryAccess, MemoryPool, MemoryType};
use crate::release::relaxed;
use cuda_sys::{CUdeviceptr, CUmemoryPool};

const GRANT_FUNCTION: &str = "cuMemPoolSetAccess";

/// Gives every device that can reach the memory at `address` read and write access to it. Calls
/// `cuMemPoolSetAccess` for the pool from which the memory was allocated.
///
/// A device cannot access stream-ordered memory of another device until the pool grants it. The
/// consumer of an exported array expects this access and cannot grant it itself, because neither
/// the CUDA Array Interface nor DLPack names the pool. Without the access, the consumer's first use
/// of the array on another device fails.
///
/// The access is granted to the whole pool, and to each device once. Nothing changes on a machine
/// with one device, for memory without a pool, and for devices without peer access to the device of
/// `context`.
///
/// The export functions of this crate do this: [`DeviceBuffer::array_interface`],
/// [`DeviceBuffer::into_dlpack`] and [`ArrayView::array_interface`]. They ignore it if the driver
/// refuses the access, because the array remains usable on its own device. Code that describes
/// memory by its address, for [`ArrayInterface::new`] or [`Export::new`], must call this function
/// itself.
///
/// # Errors
/// An error of the driver.
///
/// # Safety
/// The memory at `address` must not be freed during the call.
///
/// Since CUDA 11.2. Raw: [`cuMemPoolSetAccess`](fn@cuda_sys::cuMemPoolSetAccess).
///
/// [`DeviceBuffer::array_interface`]: crate::DeviceBuffer::array_interface
/// [`DeviceBuffer::into_dlpack`]: crate::DeviceBuffer::into_dlpack
/// [`ArrayView::array_interface`]: super::ArrayView::array_interface
/// [`ArrayInterface::new`]: super::ArrayInterface::new
/// [`Export::new`]: super::dlpack::Export::new
#[doc(alias = "cuMemPoolSetAccess")]
#[inline]
pub unsafe fn grant_peer_access(context: &Context, address: CUdeviceptr) -> Result<()> {
    let count = Device::count()?;
    if count <= 1 || address == 0 {
        return Ok(());
    }
    let _current = context.enter()?;
    let Some(info) = context.pointer_info(address)? else {
        return Ok(());
    };
    if info.pool.is_null() || info.memory_type != MemoryType::Device {
        return Ok(());
    }
    // A change of the access invalidates captures of other threads in the global mode (measured
    // with driver 580), unless this thread is in the relaxed mode.
    relaxed(|| grant(context, count, info.pool))
}

/// Grants access to a pool to each device that can have it.
#[inline]
fn grant(context: &Context, count: u32, pool: CUmemoryPool) -> Result<()> {
    // SAFETY: memory that is allocated from the pool keeps it alive, and the caller of
    // `grant_peer_access` promised that the memory is not freed during the call. No memory is
    // allocated from this object.
    let pool = unsafe { MemoryPool::borrow_raw(pool, context) }?;
    for ordinal in 0..count {
        let peer = Device::get(ordinal)?;
        if peer != context.device()
            && pool.access(&peer)? != MemoryAccess::ReadWrite
            && peer.can_access_peer(&context.device())?
        {
            pool.grant_access(&peer)?;
        }
    }
    Ok(())
}

/// Calls [`grant_peer_access`] for an export, which succeeds without the access.
///
/// # Safety
/// See [`grant_peer_access`].
#[inline]
pub(super) unsafe fn grant_for_export(context: &Context, address: CUdeviceptr) -> Result<()> {
    // SAFETY: the caller's promise.
    match unsafe { grant_peer_access(context, address) } {
        Err(Error::Driver(error)) if error.call == GRANT_FUNCTION => Ok(()),
        done => done,
    }
}
