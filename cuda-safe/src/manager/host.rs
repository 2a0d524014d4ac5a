//! Pinned host memory without a type, for other libraries.

use super::pointer::new_id;
use super::{HostBlock, Order};
use crate::context::Context;
use crate::error::Result;
use crate::fork;
use crate::memory::PinnedFlags;
use crate::report::count_leak;
use cuda_sys::CUdeviceptr;
use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

/// Page-locked host memory of a context's manager, or of its owner, until it is dropped: what
/// [`PinnedMemory`] and [`MappedMemory`] are.
///
/// Whether its free waits for running work is the manager's matter.
pub struct HostPointer {
    block: HostBlock,
    id: u64,
    /// Of memory that was pinned; none, if the manager allocated it.
    owner: Option<Box<dyn Any + Send + Sync>>,
    is_mapped: bool,
    context: Context,
}

impl HostPointer {
    fn allocate(context: &Context, size: usize, flags: PinnedFlags) -> Result<Self> {
        let manager = context.expect_manager()?;
        let block = manager.allocate_host(size, flags)?;
        Ok(Self::of(context, block, None, flags))
    }

    fn of(
        context: &Context,
        block: HostBlock,
        owner: Option<Box<dyn Any + Send + Sync>>,
        flags: PinnedFlags,
    ) -> Self {
        Self {
            block,
            id: new_id(),
            owner,
            is_mapped: flags.contains(PinnedFlags::MAPPED),
            context: context.clone(),
        }
    }

    /// Where it begins for the host.
    pub fn as_ptr(&self) -> *mut u8 {
        self.block.start.as_ptr()
    }

    /// The bytes that were asked for.
    pub fn size(&self) -> usize {
        self.block.size
    }

    /// A number that no other memory of the process has or will have.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The context that it is pinned in.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Whose memory it is, if it was pinned and not allocated.
    pub fn owner(&self) -> Option<&(dyn Any + Send + Sync)> {
        self.owner.as_deref()
    }
}

impl Drop for HostPointer {
    fn drop(&mut self) {
        let owner = self.owner.take();
        let manager = self.context.made_manager().filter(|_| !fork::in_child());
        let Some(manager) = manager else {
            // The driver may know its pages still.
            std::mem::forget(owner);
            return count_leak();
        };
        match owner {
            // SAFETY: the block is of this manager, and given back here, once; whoever used its address
            // has given that work before.
            None => unsafe { manager.free_host(self.block, Order::NONE) },
            Some(owner) => {
                let owner: Box<dyn Any + Send> = owner;
                // SAFETY: as above, of `pin`.
                unsafe { manager.release_pin(self.block, owner, Order::NONE) }
            }
        }
    }
}

impl fmt::Debug for HostPointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostPointer")
            .field("id", &self.id)
            .field("start", &self.block.start)
            .field("size", &self.block.size)
            .field("is_mapped", &self.is_mapped)
            .finish_non_exhaustive()
    }
}

/// Pinned host memory that devices do not reach; clones share it.
#[derive(Clone, Debug)]
pub struct PinnedMemory(Arc<HostPointer>);

/// Pinned host memory in the address space of devices; clones share it, and it goes with the last.
#[derive(Clone, Debug)]
pub struct MappedMemory(Arc<HostPointer>);

impl PinnedMemory {
    /// Host memory of the context's manager. [`PinnedFlags::MAPPED`] has no meaning here.
    ///
    /// # Errors
    /// [`Invalid::NoMemoryManager`](crate::Invalid::NoMemoryManager); those of
    /// [`MemoryManager::allocate_host`](super::MemoryManager::allocate_host).
    pub fn allocate(context: &Context, size: usize, flags: PinnedFlags) -> Result<Self> {
        let flags = flags.difference(PinnedFlags::MAPPED);
        Ok(Self(Arc::new(HostPointer::allocate(context, size, flags)?)))
    }

    /// Pins memory of `owner`, who is kept until the driver has let go of it.
    ///
    /// # Errors
    /// As for [`allocate`](Self::allocate), with those of
    /// [`MemoryManager::pin`](super::MemoryManager::pin).
    ///
    /// # Safety
    /// There are `size` bytes at `start`, which stay as long as `owner` is kept.
    pub unsafe fn pin(
        context: &Context,
        owner: impl Any + Send + Sync,
        start: NonNull<u8>,
        size: usize,
        flags: PinnedFlags,
    ) -> Result<Self> {
        let flags = flags.difference(PinnedFlags::MAPPED);
        // SAFETY: the caller's promise.
        Ok(Self(unsafe { pin(context, owner, start, size, flags) }?))
    }
}

impl MappedMemory {
    /// Host memory of the context's manager, mapped.
    ///
    /// # Errors
    /// As for [`PinnedMemory::allocate`].
    pub fn allocate(context: &Context, size: usize, flags: PinnedFlags) -> Result<Self> {
        let flags = flags | PinnedFlags::MAPPED;
        Ok(Self(Arc::new(HostPointer::allocate(context, size, flags)?)))
    }

    /// Pins and maps memory of `owner`.
    ///
    /// # Errors
    /// As for [`PinnedMemory::pin`].
    ///
    /// # Safety
    /// As for [`PinnedMemory::pin`].
    pub unsafe fn pin(
        context: &Context,
        owner: impl Any + Send + Sync,
        start: NonNull<u8>,
        size: usize,
        flags: PinnedFlags,
    ) -> Result<Self> {
        let flags = flags | PinnedFlags::MAPPED;
        // SAFETY: the caller's promise.
        Ok(Self(unsafe { pin(context, owner, start, size, flags) }?))
    }

    /// The address on the device.
    pub fn as_raw(&self) -> CUdeviceptr {
        self.0.block.address
    }
}

/// # Safety
/// As for [`PinnedMemory::pin`].
unsafe fn pin(
    context: &Context,
    owner: impl Any + Send + Sync,
    start: NonNull<u8>,
    size: usize,
    flags: PinnedFlags,
) -> Result<Arc<HostPointer>> {
    let manager = context.expect_manager()?;
    // SAFETY: the caller's promise; the owner is kept until the manager has let go.
    let block = unsafe { manager.pin(start, size, flags) }?;
    Ok(Arc::new(HostPointer::of(
        context,
        block,
        Some(Box::new(owner)),
        flags,
    )))
}

impl Deref for PinnedMemory {
    type Target = HostPointer;

    fn deref(&self) -> &HostPointer {
        &self.0
    }
}

impl Deref for MappedMemory {
    type Target = HostPointer;

    fn deref(&self) -> &HostPointer {
        &self.0
    }
}
