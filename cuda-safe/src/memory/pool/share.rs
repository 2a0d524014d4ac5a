//! Pools whose memory several processes use.

use super::MemoryPool;
use super::access::MemoryAccess;
use super::attribute::{PoolAttribute, PoolValue};
use crate::context::Context;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::invalid::Invalid;
use crate::manager::IpcHandle;
use crate::memory::DeviceBuffer;
use crate::memory::allocation::Release;
use cuda_sys::{CUdeviceptr, CUmemoryPool};
use std::fmt;

impl MemoryPool {
    /// `cuMemPoolExportToShareableHandle(&descriptor, pool, POSIX_FILE_DESCRIPTOR, 0)`: what another process
    /// [imports](ImportedPool::new) the pool by, of one that was made
    /// [shareable](crate::MemoryPoolOptions::shareable). A process gets it as any file descriptor; programs
    /// that are started do not, unless it is given to them.
    ///
    /// Handles of other kinds, those of Windows and of fabrics, there are none of here.
    ///
    /// # Errors
    /// [`Invalid::NotShareable`].
    ///
    /// Since CUDA 11.2. Raw:
    /// [`cuMemPoolExportToShareableHandle`](fn@cuda_sys::cuMemPoolExportToShareableHandle).
    #[cfg(unix)]
    #[doc(alias = "cuMemPoolExportToShareableHandle")]
    pub fn export(&self) -> Result<std::os::fd::OwnedFd> {
        use crate::call::{answer, without_current};
        use cuda_sys::CUmemAllocationHandleType;
        use std::os::fd::{FromRawFd, OwnedFd};

        crate::release::drain();
        let mut descriptor: core::ffi::c_int = -1;
        let place = (&raw mut descriptor).cast();
        let kind = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        without_current(self.context(), || {
            // SAFETY: the pool is alive, and the pointer is to a local of the type that this kind has.
            unsafe {
                answer!(cuMemPoolExportToShareableHandle(
                    place,
                    self.as_raw(),
                    kind,
                    0
                ))
            }
        })
        .map_err(not_shareable)?;
        if descriptor < 0 {
            return Err(Invalid::NotShareable { memory: THIS_POOL }.into());
        }
        // SAFETY: the driver has just opened it for the caller.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        // One that is closed in programs that are started; the driver's own may be as good.
        Ok(descriptor.try_clone().unwrap_or(descriptor))
    }

    /// `cuMemPoolExportPointer(&data, address)`: the [handle](IpcHandle) of memory of this pool, for a process
    /// that has [imported](ImportedPool::new) it. Drivers make handles of pools only that were exported, so the
    /// first one exports this, and keeps that descriptor for as long as the pool is there.
    ///
    /// # Errors
    /// [`Invalid::NotOfPool`]: the buffer is other memory; [`Invalid::NotShareable`].
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

    /// The handle of a part of the memory that starts there.
    pub(crate) fn handle_at(
        &self,
        start: CUdeviceptr,
        offset: u64,
        size: usize,
    ) -> Result<IpcHandle> {
        self.be_exported()?;
        IpcHandle::of_pool_memory(self.context(), start, offset, size)
    }

    /// A driver (580) answers `CUDA_ERROR_INVALID_VALUE` for memory of pools that were not.
    #[cfg(unix)]
    fn be_exported(&self) -> Result<()> {
        let exported = &self.inner.exported.0;
        if exported.get().is_none() {
            // Another thread's is as good.
            let _ = exported.set(self.export()?);
        }
        Ok(())
    }

    /// Nothing is exported here.
    #[cfg(not(unix))]
    fn be_exported(&self) -> Result<()> {
        Err(Invalid::NotShareable { memory: THIS_POOL }.into())
    }
}

/// What a pool was exported as, if it was for handles of its memory. Whether the driver would go on to
/// make them without it nobody says.
#[derive(Default)]
pub(super) struct Exported(#[cfg(unix)] std::sync::OnceLock<std::os::fd::OwnedFd>);

const THIS_POOL: &str = "an unshareable pool's";

/// What the driver says of pools that were made for one process.
pub(crate) fn not_shareable(error: Error) -> Error {
    match error.code() {
        Some(cuda_sys::CUresult::CUDA_ERROR_INVALID_VALUE) => {
            Invalid::NotShareable { memory: THIS_POOL }.into()
        }
        _ => error,
    }
}

/// A pool of another process. Memory of it is [opened](Self::open_memory) by the handles that the other one
/// tells; none is allocated here, so it cannot be put in the place of a device's pool either. Clones share it.
///
/// At first only work of the device that its memory is on reaches it, whatever the other process has allowed.
///
/// ```no_run
/// use cuda_safe::manager::IpcHandle;
/// use cuda_safe::{Context, Device, DeviceBuffer, ImportedPool, MemoryPool, MemoryPoolOptions};
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
/// stream.synchronize()?; // it is allocated
/// send(&pool.handle_of(&buffer)?.to_bytes());
///
/// // In the other one:
/// // SAFETY: it is such a pool, imported once.
/// let pool = unsafe { ImportedPool::new(&context, &std::io::stdin()) }?;
/// let handle = IpcHandle::from_bytes(&receive());
/// // SAFETY: the first process keeps the memory until this one is done.
/// let memory = unsafe { pool.open_memory(&handle) }?;
/// println!("{} bytes at {:#x}", memory.size(), memory.as_raw());
/// # }
/// # Ok::<_, cuda_safe::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct ImportedPool(MemoryPool);

impl ImportedPool {
    /// `cuMemPoolImportFromShareableHandle(&pool, descriptor, POSIX_FILE_DESCRIPTOR, 0)`: the pool that another
    /// process has [exported](MemoryPool::export). The descriptor is not needed afterwards.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE`, `CUDA_ERROR_OPERATING_SYSTEM` or the like for what is none.
    ///
    /// # Safety
    /// The descriptor is one that a driver of another process of this machine gave for a memory pool. This
    /// process imports a pool once: not again before everything of the first import is gone. (Drivers
    /// are reported to take memory that is there twice from both, with the first free.)
    ///
    /// Since CUDA 11.2. Raw:
    /// [`cuMemPoolImportFromShareableHandle`](fn@cuda_sys::cuMemPoolImportFromShareableHandle).
    #[cfg(unix)]
    #[doc(alias = "cuMemPoolImportFromShareableHandle")]
    pub unsafe fn new(context: &Context, descriptor: &impl std::os::fd::AsFd) -> Result<Self> {
        use crate::call::call;
        use crate::hold::Hold;
        use cuda_sys::CUmemAllocationHandleType;
        use std::os::fd::AsRawFd;

        crate::release::drain();
        let given = descriptor.as_fd();
        // C takes the number as a pointer, and drivers refuse null, which the standard input would be: a duplicate
        // has another number.
        let duplicate = match given.as_raw_fd() {
            0 => given.try_clone_to_owned().ok(),
            _ => None,
        };
        let number = duplicate
            .as_ref()
            .map_or(given.as_raw_fd(), AsRawFd::as_raw_fd);
        let handle = usize::try_from(number).unwrap_or(usize::MAX);
        let handle = std::ptr::without_provenance_mut(handle);
        let kind = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        let mut raw = std::ptr::null_mut();
        let place = &raw mut raw;
        {
            let _current = context.enter()?;
            // SAFETY: the pointer is to a local; the handle is a descriptor that is open during the call, and
            // what it is the caller's promise.
            unsafe { call!(cuMemPoolImportFromShareableHandle(place, handle, kind, 0)) }?;
        }
        Ok(Self(MemoryPool::own(raw, context, None, Hold::Owned)))
    }

    /// The driver's handle. It stays this object's: do not destroy it.
    pub fn as_raw(&self) -> CUmemoryPool {
        self.0.as_raw()
    }

    /// The context that the pool holds.
    pub fn context(&self) -> &Context {
        self.0.context()
    }

    /// One of the pool's [attributes](super::attribute), as [`MemoryPool::attribute`]: bytes are those of what
    /// is open here.
    ///
    /// # Errors
    /// As there.
    pub fn attribute<T: PoolValue, A>(&self, attribute: PoolAttribute<T, A>) -> Result<T> {
        self.0.attribute(attribute)
    }

    /// What work of a device may do with the memory that is open here, as [`MemoryPool::access`].
    ///
    /// # Errors
    /// As there.
    pub fn access(&self, device: &Device) -> Result<MemoryAccess> {
        self.0.access(device)
    }

    /// Lets work of another device read and write it, as [`MemoryPool::grant_access`].
    ///
    /// # Errors
    /// As there.
    pub fn grant_access(&self, device: &Device) -> Result<()> {
        self.0.grant_access(device)
    }

    pub(crate) fn check_access(&self, device: Device) -> Result<()> {
        self.0.check_access(device)
    }

    pub(crate) fn is_borrowed(&self) -> bool {
        self.0.is_borrowed()
    }

    pub(crate) fn stay(&self) {
        self.0.stay();
    }
}

impl fmt::Debug for ImportedPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImportedPool")
            .field("raw", &self.as_raw())
            .finish_non_exhaustive()
    }
}
