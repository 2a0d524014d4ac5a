//! Untyped pinned host memory for other libraries.

use super::pointer::{Finalizer, Owner, new_id};
use super::{HostBlock, Order};
use crate::call::{Result, bytes_of, count_leak, debug_struct, expect_memory, fork};
use crate::context::Context;
use crate::manager::PinnedFlags;
use cuda_sys::CUdeviceptr;
use std::any::Any;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

/// Page-locked host memory, the common part of [`PinnedMemory`] and [`MappedMemory`]. Dropping it frees
/// or unregisters the memory.
///
/// Whether the drop waits for running work depends on the manager or on the
/// [finalizer](PinnedMemory::from_raw).
pub struct HostPointer {
    block: HostBlock,
    id: u64,
    end: End,
    owner: Option<Owner>,
    is_mapped: bool,
    context: Context,
}

/// How host memory is released.
enum End {
    /// By dropping its owner.
    Nothing,
    /// By the context's manager, which unregisters memory that has an owner and frees memory that has
    /// none.
    Manager,
    Function(Finalizer),
}

impl HostPointer {
    #[inline]
    fn allocate(context: &Context, size: usize, flags: PinnedFlags) -> Result<Arc<Self>> {
        let manager = context.expect_manager()?;
        let block = manager.allocate_host(size, flags)?;
        let is_mapped = flags.contains(PinnedFlags::MAPPED);
        Ok(Self::of(context, block, is_mapped, None, End::Manager))
    }

    /// Pins memory of `owner`.
    ///
    /// # Safety
    /// See [`PinnedMemory::pin`].
    unsafe fn pin(
        context: &Context,
        owner: impl Any + Send + Sync,
        start: NonNull<u8>,
        size: usize,
        flags: PinnedFlags,
    ) -> Result<Arc<Self>> {
        let manager = context.expect_manager()?;
        // SAFETY: the caller's promise; the owner is kept until the memory is unregistered.
        let block = unsafe { manager.pin(start, size, flags) }?;
        let is_mapped = flags.contains(PinnedFlags::MAPPED);
        let owner: Option<Owner> = Some(Box::new(owner));
        Ok(Self::of(context, block, is_mapped, owner, End::Manager))
    }

    #[inline]
    fn of(
        context: &Context,
        block: HostBlock,
        is_mapped: bool,
        owner: Option<Owner>,
        end: End,
    ) -> Arc<Self> {
        Arc::new(Self { block, id: new_id(), end, owner, is_mapped, context: context.clone() })
    }

    /// Returns the host address of the first byte.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.block.start.as_ptr()
    }

    /// Returns the requested size in bytes.
    #[inline]
    pub fn size(&self) -> usize {
        self.block.size
    }

    /// Returns a number that is unique among all memory of the process, past and future.
    #[inline]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the context that the memory is pinned in.
    #[inline]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Returns the owner that is kept alive, if there is one: the owner of memory that was registered,
    /// or the one given to [`PinnedMemory::from_raw`].
    #[inline]
    pub fn owner(&self) -> Option<&(dyn Any + Send + Sync)> {
        self.owner.as_deref()
    }
}

impl HostPointer {
    /// Releases the memory. The caller must then drop the returned value: the owner, unless the manager
    /// has received it.
    #[inline]
    fn finish(&mut self) -> Option<Owner> {
        let (end, owner) = (std::mem::replace(&mut self.end, End::Nothing), self.owner.take());
        match end {
            End::Nothing => return owner,
            End::Function(finalizer) => {
                // The owner is dropped even if this panics.
                finalizer();
                return owner;
            }
            End::Manager => {}
        }
        // The manager allocated or pinned the memory, so there is one.
        let Some(manager) = self.context.made_manager() else {
            std::mem::forget(owner);
            count_leak();
            return None;
        };
        match owner {
            // SAFETY: the block is of this manager, and is freed here exactly once; work that uses its
            // address was enqueued before.
            None => unsafe { manager.free_host(self.block, Order::NONE) },
            Some(owner) => {
                let owner: Box<dyn Any + Send> = owner;
                // SAFETY: the block is of `pin` of this manager, and is released here exactly once;
                // work that uses its address was enqueued before.
                unsafe { manager.release_pin(self.block, owner, Order::NONE) }
            }
        }
        None
    }
}

impl Drop for HostPointer {
    #[inline]
    fn drop(&mut self) {
        if fork::in_child() {
            // The driver may still have the pages registered, and the child must not call it.
            std::mem::forget(std::mem::replace(&mut self.end, End::Nothing));
            std::mem::forget(self.owner.take());
            return count_leak();
        }
        drop(self.finish());
    }
}

debug_struct! {
    HostPointer |its| { id: its.id, start: its.block.start, size: its.block.size, is_mapped: its.is_mapped, .. }
}

/// Pinned host memory that is not mapped into the address space of devices. Clones share it.
#[derive(Clone, Debug)]
pub struct PinnedMemory(Arc<HostPointer>);

/// Pinned host memory that is mapped into the address space of devices. Clones share it; it is released
/// when the last one is dropped.
#[derive(Clone, Debug)]
pub struct MappedMemory(Arc<HostPointer>);

impl PinnedMemory {
    /// Takes ownership of page-locked memory of other code. When the last clone is dropped, `finalizer`
    /// runs once, and then `owner` is dropped. Without a finalizer, dropping the owner releases the
    /// memory; without both, the memory is borrowed.
    ///
    /// No manager is involved. A panic in the finalizer unwinds into the dropping thread. In a forked
    /// child, the finalizer does not run and the owner is not dropped.
    ///
    /// # Errors
    /// [`Invalid::TooLarge`](crate::Invalid::TooLarge). The finalizer is then dropped without running,
    /// and `owner` is dropped.
    ///
    /// # Safety
    /// `start` points to `size` bytes of page-locked memory, which stay valid until the finalizer runs
    /// or the owner is dropped; if there is neither, forever. The finalizer may run on any thread, also
    /// where the driver refuses calls.
    #[inline]
    pub unsafe fn from_raw(
        context: &Context,
        start: NonNull<u8>,
        size: usize,
        owner: Option<Box<dyn Any + Send + Sync>>,
        finalizer: Option<Finalizer>,
    ) -> Result<Self> {
        bytes_of::<u8>(size)?;
        Ok(Self(foreign(context, start, size, 0, owner, finalizer)))
    }

    /// Allocates host memory with the context's manager. [`PinnedFlags::MAPPED`] is ignored.
    ///
    /// # Errors
    /// [`Invalid::NoMemoryManager`](crate::Invalid::NoMemoryManager); the errors of
    /// [`MemoryManager::allocate_host`](super::MemoryManager::allocate_host).
    #[inline]
    pub fn allocate(context: &Context, size: usize, flags: PinnedFlags) -> Result<Self> {
        let flags = flags.difference(PinnedFlags::MAPPED);
        HostPointer::allocate(context, size, flags).map(Self)
    }

    /// Pins memory of `owner`, which is kept alive until the driver has unregistered the memory.
    ///
    /// # Errors
    /// [`Invalid::NoMemoryManager`](crate::Invalid::NoMemoryManager); the errors of
    /// [`MemoryManager::pin`](super::MemoryManager::pin).
    ///
    /// # Safety
    /// `start` points to `size` bytes, which stay valid as long as `owner` is kept alive.
    pub unsafe fn pin(
        context: &Context,
        owner: impl Any + Send + Sync,
        start: NonNull<u8>,
        size: usize,
        flags: PinnedFlags,
    ) -> Result<Self> {
        let flags = flags.difference(PinnedFlags::MAPPED);
        // SAFETY: the caller's promise.
        unsafe { HostPointer::pin(context, owner, start, size, flags) }.map(Self)
    }
}

impl MappedMemory {
    /// Takes ownership of page-locked memory that other code has mapped for the device, at the device
    /// address `address`. When the last clone is dropped, `finalizer` runs once, and then `owner` is
    /// dropped. See [`PinnedMemory::from_raw`].
    ///
    /// # Errors
    /// See [`PinnedMemory::from_raw`]. [`Invalid::Handle`](crate::Invalid::Handle) if the device address
    /// is 0 and the size is not.
    ///
    /// # Safety
    /// See [`PinnedMemory::from_raw`]. In addition, the memory is accessible to the context at `address` for
    /// the same time.
    #[inline]
    pub unsafe fn from_raw(
        context: &Context,
        start: NonNull<u8>,
        size: usize,
        address: CUdeviceptr,
        owner: Option<Box<dyn Any + Send + Sync>>,
        finalizer: Option<Finalizer>,
    ) -> Result<Self> {
        expect_memory::<u8>(address, size)?;
        Ok(Self(foreign(context, start, size, address, owner, finalizer)))
    }

    /// Allocates mapped host memory with the context's manager.
    ///
    /// # Errors
    /// See [`PinnedMemory::allocate`].
    #[inline]
    pub fn allocate(context: &Context, size: usize, flags: PinnedFlags) -> Result<Self> {
        let flags = flags | PinnedFlags::MAPPED;
        HostPointer::allocate(context, size, flags).map(Self)
    }

    /// Pins and maps memory of `owner`, which is kept alive until the driver has unregistered the
    /// memory.
    ///
    /// # Errors
    /// See [`PinnedMemory::pin`].
    ///
    /// # Safety
    /// See [`PinnedMemory::pin`].
    pub unsafe fn pin(
        context: &Context,
        owner: impl Any + Send + Sync,
        start: NonNull<u8>,
        size: usize,
        flags: PinnedFlags,
    ) -> Result<Self> {
        let flags = flags | PinnedFlags::MAPPED;
        // SAFETY: the caller's promise.
        unsafe { HostPointer::pin(context, owner, start, size, flags) }.map(Self)
    }

    /// Returns the device address of the first byte.
    #[inline]
    pub fn as_raw(&self) -> CUdeviceptr {
        self.0.block.address
    }
}

/// Returns a pointer to memory that no manager of this crate allocated. It is mapped if `address` is
/// not 0.
#[inline]
fn foreign(
    context: &Context,
    start: NonNull<u8>,
    size: usize,
    address: CUdeviceptr,
    owner: Option<Owner>,
    finalizer: Option<Finalizer>,
) -> Arc<HostPointer> {
    let block = HostBlock { start, size, address, token: 0 };
    let end = finalizer.map_or(End::Nothing, End::Function);
    HostPointer::of(context, block, address != 0, owner, end)
}

impl Deref for PinnedMemory {
    type Target = HostPointer;

    #[inline]
    fn deref(&self) -> &HostPointer {
        &self.0
    }
}

impl Deref for MappedMemory {
    type Target = HostPointer;

    #[inline]
    fn deref(&self) -> &HostPointer {
        &self.0
    }
}
