//! Options for the creation of memory pools.

use crate::call::{Invalid, Result, init};
use crate::device::Device;
use crate::device::attribute::MEMPOOL_SUPPORTED_HANDLE_TYPES;
use crate::memory::MemoryLocation;
use cuda_sys::{
    CU_MEM_POOL_CREATE_USAGE_HW_DECOMPRESS, CUmemAllocationHandleType, CUmemAllocationType,
    CUmemPoolProps, CudaVersion,
};

/// Options for [`MemoryPool::new`](crate::memory::MemoryPool::new). The default is a pool on the context's
/// device, without a size limit.
///
/// Later versions may add fields: end each value with `..Default::default()`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MemoryPoolOptions {
    /// The location of the pool's memory. `None` is the context's device. A pool on the host
    /// requires CUDA 12.2, a
    /// [device that supports it](crate::device::attribute::HOST_MEMORY_POOLS_SUPPORTED), and
    /// [access](crate::memory::MemoryPool::grant_access) for each device.
    pub location: Option<MemoryLocation>,
    /// Whether the pool is of managed memory, for which the location is the preferred location. Such a pool
    /// has no maximum size and is not shareable. Since CUDA 13.0.
    pub managed: bool,
    /// The maximum size of the pool in bytes. 0 means the limit of the system. Since CUDA 12.2.
    pub max_size: usize,
    /// Whether other processes can [open](crate::memory::pool::ImportedPool) the pool's memory. The pool is
    /// shared by a POSIX file descriptor, on
    /// [devices that support it](crate::device::attribute::MEMPOOL_SUPPORTED_HANDLE_TYPES). A driver may
    /// keep the reserved memory of a shareable pool until the pool is destroyed. A pool on the host
    /// as a whole ([`MemoryLocation::Host`]) cannot be shared.
    pub shareable: bool,
    /// Whether the decompression engine can read the pool's memory. Since CUDA 12.6.
    pub hw_decompress: bool,
    /// Whether other PCI devices can access the pool's memory (`GPUDirect` RDMA). Since CUDA 13.4.
    pub gpu_direct_rdma: bool,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl MemoryPoolOptions {
    /// Converts the options for the driver. Returns an error if the driver is too old for one of
    /// them, because it would misinterpret fields that it does not know.
    #[inline]
    pub(super) fn props(self, device: Device) -> Result<CUmemPoolProps> {
        let Self {
            location,
            managed,
            max_size,
            shareable,
            hw_decompress,
            gpu_direct_rdma,
            _non_exhaustive: (),
        } = self;
        let location = location.unwrap_or(MemoryLocation::Device(device));
        let is_on_device = matches!(location, MemoryLocation::Device(_));
        for (is_asked_for, what, since) in [
            (!is_on_device, "a memory pool on the host", (12, 2)),
            (max_size != 0, "a size limit for a memory pool", (12, 2)),
            (hw_decompress, "a memory pool for hardware decompression", (12, 6)),
            (managed, "a memory pool of managed memory", (13, 0)),
            (gpu_direct_rdma, "a memory pool with GPUDirect RDMA", (13, 4)),
        ] {
            if is_asked_for {
                init::needs(what, CudaVersion::new(since.0, since.1))?;
            }
        }
        let handle_types = match shareable {
            true => descriptors(device)?,
            false => CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
        };
        let usage = match hw_decompress {
            true => CU_MEM_POOL_CREATE_USAGE_HW_DECOMPRESS,
            false => 0,
        };
        Ok(CUmemPoolProps {
            allocType: allocation_type(managed),
            handleTypes: handle_types,
            location: location.raw(),
            maxSize: max_size,
            usage: u16::try_from(usage).unwrap_or(0),
            gpuDirectRDMACapable: u8::from(gpu_direct_rdma),
            ..Default::default()
        })
    }
}

#[inline]
pub(super) fn allocation_type(managed: bool) -> CUmemAllocationType {
    match managed {
        true => CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_MANAGED,
        false => CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
    }
}

/// Returns the supported handle type, POSIX file descriptors, or an error if the device does not
/// support it.
#[inline]
fn descriptors(device: Device) -> Result<CUmemAllocationHandleType> {
    let its = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    let supported = device.attribute(MEMPOOL_SUPPORTED_HANDLE_TYPES)?.0;
    if supported & its.0 == 0 || !cfg!(unix) {
        return Err(Invalid::PoolHandles { supported }.into());
    }
    Ok(its)
}
