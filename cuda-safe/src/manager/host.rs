//! Pinned host memory without a type, for other libraries.

use super::pointer::{Finalizer, Owner, new_id};
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

/// Page-locked host memory: what [`PinnedMemory`] and [`MappedMemory`] share. The memory is freed, or
/// unregistered, when this is dropped.
///
/// Whether that waits for running work depends on the manager, or on the [finalizer](PinnedMemory::new).
pub struct HostPointer {
    block: HostBlock,
    id: u64,
    end: End,
    owner: Option<Owner>,
    is_mapped: bool,
    context: Context,
}

/// How host memory ends.
enum End {
    /// With its owner.
    Nothing,
    /// By the context's manager: it unregisters memory of an owner, and frees memory without one.
    Manager,
    Function(Finalizer),
}

impl HostPointer {
    fn allocate(context: &Context, size: usize, flags: PinnedFlags) -> Result<Self> {
        let manager = context.expect_manager()?;
        let block = manager.allocate_host(size, flags)?;
        let is_mapped = flags.contains(PinnedFlags::MAPPED);
        Ok(Self::of(context, block, is_mapped, None, End::Manager))
    }

    /// # Safety
    /// As for [`PinnedMemory::pin`].
    unsafe fn pin(
        context: &Context,
        owner: impl Any + Send + Sync,
        start: NonNull<u8>,
        size: usize,
        flags: PinnedFlags,
    ) -> Result<Self> {
        let manager = context.expect_manager()?;
        // SAFETY: the caller's promise; the owner is kept until the memory is unregistered.
        let block = unsafe { manager.pin(start, size, flags) }?;
        let is_mapped = flags.contains(PinnedFlags::MAPPED);
        let owner: Option<Owner> = Some(Box::new(owner));
        Ok(Self::of(context, block, is_mapped, owner, End::Manager))
    }

    fn of(
        context: &Context,
        block: HostBlock,
        is_mapped: bool,
        owner: Option<Owner>,
        end: End,
    ) -> Self {
        Self {
            block,
            id: new_id(),
            end,
            owner,
            is_mapped,
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

    /// Returns the owner that is kept alive, if there is one: that of memory that was registered, or that was
    /// [given](PinnedMemory::new).
    pub fn owner(&self) -> Option<&(dyn Any + Send + Sync)> {
        self.owner.as_deref()
    }
}

impl HostPointer {
    /// Ends the memory. What is returned is to be dropped afterwards: the owner, unless somebody else has it.
    fn finish(&mut self) -> Option<Owner> {
        let (end, owner) = (
            std::mem::replace(&mut self.end, End::Nothing),
            self.owner.take(),
        );
        match end {
            End::Nothing => return owner,
            End::Function(finalizer) => {
                // The owner is dropped also if this panics.
                finalizer();
                return owner;
            }
            End::Manager => {}
        }
        // The manager allocated or pinned it, so there is one.
        let Some(manager) = self.context.made_manager() else {
            std::mem::forget(owner);
            count_leak();
            return None;
        };
        match owner {
            // SAFETY: the block is of this manager, and given back here, once; work that uses its address
            // was given before.
            None => unsafe { manager.free_host(self.block, Order::NONE) },
            Some(owner) => {
                let owner: Box<dyn Any + Send> = owner;
                // SAFETY: as above, of `pin`.
                unsafe { manager.release_pin(self.block, owner, Order::NONE) }
            }
        }
        None
    }
}

impl Drop for HostPointer {
    fn drop(&mut self) {
        if fork::in_child() {
            // The driver may know its pages still, and nobody may tell it otherwise here.
            std::mem::forget(std::mem::replace(&mut self.end, End::Nothing));
            std::mem::forget(self.owner.take());
            return count_leak();
        }
        drop(self.finish());
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
    /// Takes ownership of page-locked memory of other code. When the last clone is dropped, `finalizer` runs,
    /// once, and then `owner` is dropped. Without a finalizer the memory ends with its owner; without both it is
    /// borrowed.
    ///
    /// No manager is asked. A panic in the finalizer unwinds into the dropping thread. In a forked child neither
    /// the finalizer runs nor is the owner dropped.
    ///
    /// # Safety
    /// There are `size` bytes at `start`, page-locked, until the finalizer runs or the owner is dropped; for ever
    /// if there is neither. The finalizer may run on any thread, also where the driver refuses calls.
    pub unsafe fn new(
        context: &Context,
        start: NonNull<u8>,
        size: usize,
        owner: Option<Box<dyn Any + Send + Sync>>,
        finalizer: Option<Finalizer>,
    ) -> Self {
        Self(Arc::new(foreign(context, start, size, 0, owner, finalizer)))
    }

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
        let memory = unsafe { HostPointer::pin(context, owner, start, size, flags) };
        Ok(Self(Arc::new(memory?)))
    }
}

impl MappedMemory {
    /// Takes ownership of page-locked memory that other code has mapped for the device, at `address` there. When
    /// the last clone is dropped, `finalizer` runs, once, and then `owner` is dropped. See
    /// [`PinnedMemory::new`].
    ///
    /// # Safety
    /// As for [`PinnedMemory::new`]; and the memory is accessible to the context at `address` for as long.
    pub unsafe fn new(
        context: &Context,
        start: NonNull<u8>,
        size: usize,
        address: CUdeviceptr,
        owner: Option<Box<dyn Any + Send + Sync>>,
        finalizer: Option<Finalizer>,
    ) -> Self {
        let memory = foreign(context, start, size, address, owner, finalizer);
        Self(Arc::new(memory))
    }

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
        let memory = unsafe { HostPointer::pin(context, owner, start, size, flags) };
        Ok(Self(Arc::new(memory?)))
    }

    /// The address on the device.
    pub fn as_raw(&self) -> CUdeviceptr {
        self.0.block.address
    }
}

/// Memory that no manager of this crate has; mapped, if it has an address on the device.
fn foreign(
    context: &Context,
    start: NonNull<u8>,
    size: usize,
    address: CUdeviceptr,
    owner: Option<Owner>,
    finalizer: Option<Finalizer>,
) -> HostPointer {
    let block = HostBlock {
        start,
        size,
        address,
        token: 0,
    };
    let end = finalizer.map_or(End::Nothing, End::Function);
    HostPointer::of(context, block, address != 0, owner, end)
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
