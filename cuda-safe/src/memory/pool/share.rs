//! Memory pools that are shared between processes.

use super::attribute::{PoolAttribute, PoolValue};
use super::{MemoryAccess, MemoryPool};
use crate::call::{Invalid, Result, debug_struct};
use crate::context::Context;
use crate::device::Device;
#[cfg(unix)]
use crate::manager::not_of_a_shared_pool;
use crate::manager::{Block, IpcHandle, UNSHAREABLE_POOL};
use crate::memory::DeviceBuffer;
use crate::memory::buffer::allocation::Release;
use cuda_sys::{CUdeviceptr, CUmemoryPool};

impl MemoryPool {
    /// Exports a [shareable](crate::memory::MemoryPoolOptions::shareable) pool as a file descriptor, from
    /// which another process can [import](ImportedPool::import) the pool.
    ///
    /// Calls `cuMemPoolExportToShareableHandle(&descriptor, pool, POSIX_FILE_DESCRIPTOR, 0)`. The
    /// descriptor is passed to another process like any file descriptor. It is closed in programs
    /// that this process starts, unless it is passed to them explicitly.
    ///
    /// Windows and fabric handles are not supported.
    ///
    /// # Errors
    /// [`Invalid::NotShareable`] if the pool was not created as shareable.
    ///
    /// Since CUDA 11.2. Raw:
    /// [`cuMemPoolExportToShareableHandle`](fn@cuda_sys::cuMemPoolExportToShareableHandle).
    #[cfg(unix)]
    #[doc(alias = "cuMemPoolExportToShareableHandle")]
    #[inline]
    pub fn export(&self) -> Result<std::os::fd::OwnedFd> {
        use crate::call::function::{answer, without_current};
        use crate::memory::descriptor;
        use cuda_sys::CUmemAllocationHandleType;

        crate::release::drain();
        let mut descriptor: core::ffi::c_int = -1;
        let place = (&raw mut descriptor).cast();
        let kind = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        without_current(self.context(), || {
            // SAFETY: the pool is alive, and the pointer is to a local variable of the type that
            // this handle type requires.
            unsafe { answer!(cuMemPoolExportToShareableHandle(place, self.as_raw(), kind, 0)) }
        })
        .map_err(not_of_a_shared_pool)?;
        // SAFETY: the driver has just opened the descriptor for the caller.
        let descriptor = unsafe { descriptor::receive(descriptor) };
        descriptor.ok_or_else(|| Invalid::NotShareable { memory: UNSHAREABLE_POOL }.into())
    }

    /// Returns an [IPC handle](IpcHandle) of memory from this pool, for a process that has
    /// [imported](ImportedPool::import) the pool.
    ///
    /// Calls `cuMemPoolExportPointer(&data, address)`. Drivers create handles only for pools that
    /// have been exported. The first call therefore exports the pool, and the pool keeps that
    /// descriptor open for its lifetime.
    ///
    /// # Errors
    /// - [`Invalid::NotOfPool`] if the buffer was not allocated from this pool.
    /// - [`Invalid::NotShareable`] if the pool was not created as shareable.
    ///
    /// Since CUDA 11.2. Raw: [`cuMemPoolExportPointer`](fn@cuda_sys::cuMemPoolExportPointer).
    #[doc(alias = "cuMemPoolExportPointer")]
    pub fn handle_of<T>(&self, buffer: &DeviceBuffer<T>) -> Result<IpcHandle> {
        match buffer.release() {
            Release::OfPool(pool) if pool == self => {}
            _ => return Err(Invalid::NotOfPool.into()),
        }
        let bytes = size_of::<T>() * buffer.len();
        self.handle_at(buffer.as_raw(), 0, bytes)
    }

    /// Returns a handle of a part of the allocation at `start`.
    #[inline]
    pub(crate) fn handle_at(
        &self,
        start: CUdeviceptr,
        offset: u64,
        size: usize,
    ) -> Result<IpcHandle> {
        self.be_exported()?;
        IpcHandle::of_exported_memory(self.context(), start, offset, size)
    }

    /// Exports the pool once. For memory of pools that were never exported, a driver (580) returns
    /// `CUDA_ERROR_INVALID_VALUE`.
    #[cfg(unix)]
    #[inline]
    fn be_exported(&self) -> Result<()> {
        let exported = &self.inner.exported;
        if exported.get().is_none() {
            // If another thread has exported the pool in the meantime, its export is equally valid.
            let _ = exported.set(self.export()?);
        }
        Ok(())
    }

    /// Pools cannot be exported on this platform.
    #[cfg(not(unix))]
    #[inline]
    fn be_exported(&self) -> Result<()> {
        Err(Invalid::NotShareable { memory: UNSHAREABLE_POOL }.into())
    }
}

impl IpcHandle {
    /// Returns the handle of memory of a [shareable](crate::memory::MemoryPoolOptions::shareable) memory pool, for
    /// a process that has [imported](crate::memory::pool::ImportedPool::import) the pool. The block is a part of the
    /// allocation that begins at `start`. Calls `cuMemPoolExportPointer`; see
    /// [`MemoryPool::handle_of`].
    ///
    /// # Errors
    /// [`Invalid::NotShareable`] if the pool is not shareable, or if the memory is not of the pool.
    ///
    /// Since CUDA 11.2. Raw: [`cuMemPoolExportPointer`](fn@cuda_sys::cuMemPoolExportPointer).
    #[doc(alias = "cuMemPoolExportPointer")]
    #[inline]
    pub fn of_pool_memory(pool: &MemoryPool, start: CUdeviceptr, block: &Block) -> Result<Self> {
        match block.address.checked_sub(start) {
            Some(offset) => pool.handle_at(start, offset, block.size),
            None => Err(Invalid::NotShareable { memory: "another pool's" }.into()),
        }
    }
}

/// The descriptor of the pool's export, if handles of its memory were requested. It is kept open,
/// because it is not documented whether the driver creates handles after it has been closed.
#[cfg(unix)]
pub(super) type Exported = std::sync::OnceLock<std::os::fd::OwnedFd>;

/// A memory pool that another process created and exported. Clones share the pool.
///
/// [`import`](Self::import) imports one. Memory of the pool is [opened](Self::open_memory) with the
/// handles that the other process sends. This process cannot allocate from the pool, so the pool
/// cannot be set as the current pool of a device either.
///
/// Initially, only the device on which the memory is located can access the memory, regardless of
/// the access that the other process has granted.
///
/// ```no_run
/// use cuda_safe::manager::IpcHandle;
/// use cuda_safe::{Context, Device, DeviceBuffer};
/// use cuda_safe::memory::{ImportedPool, MemoryPool, MemoryPoolOptions};
///
/// # fn send(_: &[u8]) {}
/// # fn receive() -> [u8; IpcHandle::BYTES] { [0; IpcHandle::BYTES] }
/// // In one process, which starts the other with the pool as its standard input:
/// let context = Context::primary(&Device::get(0)?)?;
/// let options = MemoryPoolOptions { shareable: true, ..Default::default() };
/// let pool = MemoryPool::new(&context, options)?;
/// let stream = context.stream()?;
/// let buffer = DeviceBuffer::<f32>::zeroed_from_pool(&pool, &stream, 1000)?;
/// # #[cfg(unix)] {
/// let descriptor = std::process::Stdio::from(pool.export()?);
/// stream.synchronize()?; // the allocation has completed
/// send(&pool.handle_of(&buffer)?.to_bytes());
///
/// // In the other process:
/// // SAFETY: the descriptor is that of an exported pool, which is imported once.
/// let pool = unsafe { ImportedPool::import(&context, &std::io::stdin()) }?;
/// let handle = IpcHandle::from_bytes(&receive());
/// // SAFETY: the first process keeps the memory allocated until this process is done.
/// let memory = unsafe { pool.open_memory(&handle) }?;
/// println!("{} bytes at {:#x}", memory.size(), memory.as_raw());
/// # }
/// # Ok::<_, cuda_safe::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct ImportedPool(MemoryPool);

impl ImportedPool {
    /// Imports a pool that another process has [exported](MemoryPool::export). The descriptor is
    /// not needed afterwards.
    ///
    /// Calls `cuMemPoolImportFromShareableHandle(&pool, descriptor, POSIX_FILE_DESCRIPTOR, 0)`.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE`, `CUDA_ERROR_OPERATING_SYSTEM` or a similar code if the
    /// descriptor is not that of a memory pool.
    ///
    /// # Safety
    /// - The descriptor was returned for a memory pool by a driver in another process on this
    ///   machine.
    /// - This process does not import the pool again before all objects of the first import have
    ///   been dropped. (Drivers are reported to free memory that is mapped twice from both places
    ///   with the first free.)
    ///
    /// Since CUDA 11.2. Raw:
    /// [`cuMemPoolImportFromShareableHandle`](fn@cuda_sys::cuMemPoolImportFromShareableHandle).
    #[cfg(unix)]
    #[doc(alias = "cuMemPoolImportFromShareableHandle")]
    #[inline]
    pub unsafe fn import(context: &Context, descriptor: &impl std::os::fd::AsFd) -> Result<Self> {
        use crate::call::function::call;
        use crate::call::ownership::Ownership;
        use crate::memory::descriptor::DescriptorArgument;
        use cuda_sys::CUmemAllocationHandleType;

        let argument = DescriptorArgument::new(descriptor);
        let handle = argument.as_ptr();
        let kind = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        let raw = crate::release::create_in(context, |place| {
            // SAFETY: `create_in` passes a valid pointer. The handle is a descriptor that is open
            // during the call, and the caller guarantees that it is that of a memory pool.
            unsafe { call!(cuMemPoolImportFromShareableHandle(place, handle, kind, 0)) }
        })?;
        Ok(Self(MemoryPool::own(raw, context, None, Ownership::Owned)))
    }

    /// Returns the driver's handle, which this object still owns. Do not destroy it.
    #[inline]
    pub fn as_raw(&self) -> CUmemoryPool {
        self.0.as_raw()
    }

    /// Returns the context that the pool keeps alive.
    #[inline]
    pub fn context(&self) -> &Context {
        self.0.context()
    }

    /// Returns the value of one of the pool's [attributes](super::attribute), as
    /// [`MemoryPool::attribute`] does. Sizes count the memory that this process has opened.
    ///
    /// # Errors
    /// See [`MemoryPool::attribute`].
    pub fn attribute<T: PoolValue, A>(&self, attribute: PoolAttribute<T, A>) -> Result<T> {
        self.0.attribute(attribute)
    }

    /// Returns how a device can access the memory that this process has opened, as
    /// [`MemoryPool::access`] does.
    ///
    /// # Errors
    /// See [`MemoryPool::access`].
    #[inline]
    pub fn access(&self, device: &Device) -> Result<MemoryAccess> {
        self.0.access(device)
    }

    /// Allows a device to read and write the memory that this process has opened, as
    /// [`MemoryPool::grant_access`] does.
    ///
    /// # Errors
    /// See [`MemoryPool::grant_access`].
    #[inline]
    pub fn grant_access(&self, device: &Device) -> Result<()> {
        self.0.grant_access(device)
    }

    #[inline]
    pub(crate) fn check_access(&self, device: Device) -> Result<()> {
        self.0.check_access(device)
    }

    #[inline]
    pub(crate) fn is_borrowed(&self) -> bool {
        self.0.is_borrowed()
    }

    #[inline]
    pub(crate) fn never_destroy(&self) {
        self.0.never_destroy();
    }
}

debug_struct! { ImportedPool |its| { raw: its.as_raw(), .. } }
