//! Device memory for other devices of the machine, as a DMA-BUF of the Linux kernel.

use super::{DeviceSlice, descriptor};
use crate::call::{Error, Invalid, Result, call, refuse_if};
use crate::release;
use cuda_sys::{CUmemRangeFlags, CUmemRangeHandleType, CUresult};
use std::os::fd::OwnedFd;

/// Options for [`DeviceSlice::export_dma_buf`].
///
/// Later versions may add fields: end each value with `..Default::default()`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DmaBufOptions {
    /// Whether other devices access the memory through PCI Express (BAR1), also where there is a faster
    /// way. The default is false. Since CUDA 12.8.
    pub pcie: bool,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl<T> DeviceSlice<'_, T> {
    /// Exports the memory as a DMA-BUF, with which network adapters and other devices of the machine access
    /// it (`GPUDirect` RDMA).
    ///
    /// Calls `cuMemGetHandleForAddressRange(&descriptor, address, bytes, DMA_BUF_FD, flags)`. The
    /// descriptor is closed in programs that this process starts.
    ///
    /// The memory consists of whole pages of the host, and is a synchronous allocation
    /// ([`DeviceBuffer::zeroed_sync`](crate::DeviceBuffer::zeroed_sync)) or virtual memory. A small
    /// allocation can start inside of a page: allocate a page more, and pass a slice that starts at a
    /// multiple of the page size.
    ///
    /// Accesses of other devices are not ordered on the stream of the memory: before they begin, wait for the work
    /// on the stream, and set
    /// [`DeviceBuffer::set_sync_memops`](crate::DeviceBuffer::set_sync_memops). End them before the memory
    /// is freed or unmapped, because it is not documented whether the descriptor keeps the memory.
    ///
    /// # Errors
    /// - [`Invalid::DmaBuf`] if the memory does not consist of whole pages, or is of another kind.
    /// - `CUDA_ERROR_NOT_SUPPORTED` on devices without
    ///   [`DMA_BUF_SUPPORTED`](crate::device::attribute::DMA_BUF_SUPPORTED).
    ///
    /// Since CUDA 11.7. Raw:
    /// [`cuMemGetHandleForAddressRange`](fn@cuda_sys::cuMemGetHandleForAddressRange).
    #[doc(alias = "cuMemGetHandleForAddressRange")]
    pub fn export_dma_buf(&self, options: DmaBufOptions) -> Result<OwnedFd> {
        release::drain();
        let refused =
            || Error::from(Invalid::DmaBuf { address: self.as_raw(), bytes: self.size_bytes() });
        refuse_if!(self.size_bytes() == 0, refused());
        let mut descriptor: core::ffi::c_int = -1;
        let place = (&raw mut descriptor).cast();
        let kind = CUmemRangeHandleType::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
        let flags = if options.pcie {
            u64::from(CUmemRangeFlags::CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE.0)
        } else {
            0
        };
        let (address, bytes) = (self.as_raw(), self.size_bytes());
        let exported = {
            let _current = self.stream().context().enter()?;
            // SAFETY: the range is borrowed device memory, and the pointer is to a local variable of the
            // type that this handle type requires.
            unsafe { call!(cuMemGetHandleForAddressRange(place, address, bytes, kind, flags)) }
        };
        exported.map_err(|error| match error.code() {
            Some(CUresult::CUDA_ERROR_INVALID_VALUE) => refused(),
            _ => error,
        })?;
        // SAFETY: the driver has just opened the descriptor for the caller.
        unsafe { descriptor::receive(descriptor) }.ok_or_else(refused)
    }
}
