//! How a pool is made.

use crate::attribute::MEMPOOL_SUPPORTED_HANDLE_TYPES;
use crate::device::Device;
use crate::driver;
use crate::error::Result;
use crate::invalid::Invalid;
use crate::memory::MemoryLocation;
use cuda_sys::{
    CU_MEM_POOL_CREATE_USAGE_HW_DECOMPRESS, CUmemAllocationHandleType, CUmemAllocationType,
    CUmemPoolProps, CudaVersion,
};

/// How a pool is made. The default is one of the context's device, as large as that has memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MemoryPoolOptions {
    /// Where its memory is; none: on the device of the context. That of the host needs CUDA 12.2, a
    /// device that [can](crate::attribute::HOST_MEMORY_POOLS_SUPPORTED), and
    /// [access](crate::MemoryPool::grant_access) for each device.
    pub location: Option<MemoryLocation>,
    /// Whether it is of managed memory, which the location is preferred for. Since CUDA 13.0.
    pub managed: bool,
    /// The bytes that it may have at most; 0: what the system allows. Since CUDA 12.2.
    pub max_size: usize,
    /// Whether other processes may [open](crate::pool::ImportedPool) its memory, which is by a POSIX file
    /// descriptor, on devices that
    /// [can](crate::attribute::MEMPOOL_SUPPORTED_HANDLE_TYPES). A driver may keep what such a pool has of the
    /// system to its end. Memory of the host as a whole cannot be shared.
    pub shareable: bool,
    /// Whether the decompression engine may read its memory. Since CUDA 12.6.
    pub hw_decompress: bool,
    /// Whether other PCI devices may reach its memory (`GPUDirect` RDMA). Since CUDA 13.4.
    pub gpu_direct_rdma: bool,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl MemoryPoolOptions {
    /// For the driver, if that is not too old for one of them: it would take fields that it does
    /// not know for its own.
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
            (!is_on_device, "a memory pool of the host", (12, 2)),
            (max_size != 0, "a limit for a memory pool", (12, 2)),
            (hw_decompress, "a memory pool for decompression", (12, 6)),
            (managed, "a pool of managed memory", (13, 0)),
            (
                gpu_direct_rdma,
                "a memory pool for other PCI devices",
                (13, 4),
            ),
        ] {
            if is_asked_for {
                driver::needs(what, CudaVersion::new(since.0, since.1))?;
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

pub(super) fn allocation_type(managed: bool) -> CUmemAllocationType {
    match managed {
        true => CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_MANAGED,
        false => CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
    }
}

/// The kind of handle that there is here, if the device has it.
fn descriptors(device: Device) -> Result<CUmemAllocationHandleType> {
    let its = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    let supported = device.attribute(MEMPOOL_SUPPORTED_HANDLE_TYPES)?.0;
    if supported & its.0 == 0 || !cfg!(unix) {
        return Err(Invalid::PoolHandles { supported }.into());
    }
    Ok(its)
}
