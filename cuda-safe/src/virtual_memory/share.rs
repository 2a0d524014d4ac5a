//! Physical memory that is shared between processes.

use super::physical::PhysicalMemory;
use crate::call::{Error, Invalid, Result, call};
use crate::release::{self, create};
use core::ffi::c_void;
use cuda_sys::{CUmemAllocationHandleType, CUmemFabricHandle, CUresult};

/// A handle of physical memory for processes on machines of the same `NVLink` domain (`CUmemFabricHandle`).
/// Returned by [`PhysicalMemory::export_fabric`].
///
/// It does not keep the memory: the memory is released when all imports and the original are dropped. It is
/// sent to other processes as [bytes](Self::to_bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FabricHandle([u8; Self::BYTES]);

impl FabricHandle {
    /// The number of bytes of a handle.
    pub const BYTES: usize = size_of::<CUmemFabricHandle>();

    /// Returns the bytes of the handle.
    #[inline]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        self.0
    }

    /// Returns the handle with these bytes.
    #[inline]
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        Self(*bytes)
    }
}

impl PhysicalMemory {
    /// Exports the memory as a file descriptor, which another process can [import](Self::import). Calls
    /// `cuMemExportToShareableHandle(&descriptor, handle, POSIX_FILE_DESCRIPTOR, 0)`.
    ///
    /// The descriptor keeps the memory until it is closed. It is closed in programs that this process
    /// starts, unless it is passed to them explicitly.
    ///
    /// # Errors
    /// [`Invalid::NotShareable`] if the memory was not created with
    /// [`Shareable::Descriptor`](super::Shareable::Descriptor), or was imported.
    ///
    /// Since CUDA 10.2. Raw:
    /// [`cuMemExportToShareableHandle`](fn@cuda_sys::cuMemExportToShareableHandle).
    #[cfg(unix)]
    #[doc(alias = "cuMemExportToShareableHandle")]
    #[inline]
    pub fn export(&self) -> Result<std::os::fd::OwnedFd> {
        use crate::memory::descriptor;

        let mut descriptor: core::ffi::c_int = -1;
        let kind = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        // SAFETY: the pointer refers to a local variable of the type that this handle type requires.
        unsafe { self.export_to((&raw mut descriptor).cast(), kind) }?;
        // SAFETY: the driver has just opened the descriptor for the caller.
        unsafe { descriptor::receive(descriptor) }.ok_or_else(not_shareable)
    }

    /// Exports the memory as a fabric handle, which another process can [import](Self::import_fabric).
    /// Calls `cuMemExportToShareableHandle(&handle, memory, FABRIC, 0)`.
    ///
    /// # Errors
    /// [`Invalid::NotShareable`] if the memory was not created with
    /// [`Shareable::Fabric`](super::Shareable::Fabric), or was imported; `CUDA_ERROR_NOT_PERMITTED` or
    /// `CUDA_ERROR_NOT_SUPPORTED` if the system has no fabric.
    ///
    /// Since CUDA 12.4. Raw:
    /// [`cuMemExportToShareableHandle`](fn@cuda_sys::cuMemExportToShareableHandle).
    #[doc(alias = "cuMemExportToShareableHandle")]
    #[inline]
    pub fn export_fabric(&self) -> Result<FabricHandle> {
        let mut handle = CUmemFabricHandle::default();
        let kind = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_FABRIC;
        // SAFETY: the pointer refers to a local variable of the type that this handle type requires.
        unsafe { self.export_to((&raw mut handle).cast(), kind) }?;
        Ok(FabricHandle(handle.data))
    }

    /// # Safety
    /// `place` points to a variable of the type that `kind` requires.
    #[inline]
    unsafe fn export_to(&self, place: *mut c_void, kind: CUmemAllocationHandleType) -> Result<()> {
        release::drain();
        // SAFETY: the handle is alive, and the caller passes a valid pointer.
        let exported =
            unsafe { call!(cuMemExportToShareableHandle(place, self.as_raw(), kind, 0)) };
        exported.map_err(|error| match error.code() {
            Some(CUresult::CUDA_ERROR_INVALID_VALUE) => not_shareable(),
            _ => error,
        })
    }

    /// Imports memory that another process has [exported](Self::export). The descriptor is not needed
    /// afterwards. Calls
    /// `cuMemImportFromShareableHandle(&handle, descriptor, POSIX_FILE_DESCRIPTOR)`.
    ///
    /// # Errors
    /// `CUDA_ERROR_UNKNOWN`, `CUDA_ERROR_INVALID_VALUE` or a similar code if the descriptor is not that of
    /// physical memory; [`Invalid::Granularity`].
    ///
    /// # Safety
    /// - The descriptor was exported from memory of `size` bytes by a driver on this machine. (The driver
    ///   does not tell the size.)
    /// - While an address is mapped to the returned object, no other process and no other mapping in this
    ///   process accesses the memory in a way that races.
    ///
    /// Since CUDA 10.2. Raw:
    /// [`cuMemImportFromShareableHandle`](fn@cuda_sys::cuMemImportFromShareableHandle).
    #[cfg(unix)]
    #[doc(alias = "cuMemImportFromShareableHandle")]
    #[inline]
    pub unsafe fn import(descriptor: &impl std::os::fd::AsFd, size: usize) -> Result<Self> {
        use crate::memory::descriptor::DescriptorArgument;

        let argument = DescriptorArgument::new(descriptor);
        let kind = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        // SAFETY: the pointer is the number of a descriptor that is open during the call. The caller
        // promises the rest.
        unsafe { Self::import_from(argument.as_ptr(), kind, size) }
    }

    /// Imports memory that another process has [exported](Self::export_fabric). Calls
    /// `cuMemImportFromShareableHandle(&handle, fabric, FABRIC)`.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_SUPPORTED` if the handle is not valid here; [`Invalid::Granularity`].
    ///
    /// # Safety
    /// The conditions of [`import`](Self::import).
    ///
    /// Since CUDA 12.4. Raw:
    /// [`cuMemImportFromShareableHandle`](fn@cuda_sys::cuMemImportFromShareableHandle).
    #[doc(alias = "cuMemImportFromShareableHandle")]
    #[inline]
    pub unsafe fn import_fabric(handle: &FabricHandle, size: usize) -> Result<Self> {
        let mut handle = CUmemFabricHandle { data: handle.0 };
        let kind = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_FABRIC;
        // SAFETY: the pointer refers to a local variable of the type that this handle type requires. The
        // caller promises the rest.
        unsafe { Self::import_from((&raw mut handle).cast(), kind, size) }
    }

    /// # Safety
    /// `from` is a handle of the type `kind`, and the conditions of [`import`](Self::import) hold.
    #[inline]
    unsafe fn import_from(
        from: *mut c_void,
        kind: CUmemAllocationHandleType,
        size: usize,
    ) -> Result<Self> {
        crate::call::init::init()?;
        // SAFETY: `create` passes a valid pointer, and the caller a valid handle.
        let handle =
            create(|place| unsafe { call!(cuMemImportFromShareableHandle(place, from, kind)) })?;
        // SAFETY: the driver has just created the handle, and the caller knows the size.
        unsafe { Self::adopt(handle, size) }
    }
}

#[inline]
fn not_shareable() -> Error {
    let memory = "physical memory that is not shareable,";
    Invalid::NotShareable { memory }.into()
}
