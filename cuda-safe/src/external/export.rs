//! Memory of CUDA for other APIs.

use super::memory::MemoryDescriptor;
use crate::call::Result;
use crate::device::Uuid;
use crate::memory::{DeviceSlice, DmaBufOptions};
use crate::virtual_memory::PhysicalMemory;
use std::os::fd::OwnedFd;

/// Memory of CUDA that another API can import: a file descriptor, with what the import needs.
///
/// In Vulkan, the descriptor goes into `VkImportMemoryFdInfoKHR` and the size into
/// `VkMemoryAllocateInfo::allocationSize`. The `VkPhysicalDevice` is the one whose
/// `VkPhysicalDeviceIDProperties::deviceUUID` equals the [`device`](Self::device). A successful import consumes the
/// descriptor. The memory stays allocated until both APIs have freed it.
///
/// A [memory pool](crate::memory::MemoryPool::export) has a descriptor too, but only CUDA imports it: it is not an
/// allocation.
///
/// # Ordering
/// Accesses are ordered by semaphores, as the page of the [module](super#ordering) says. Vulkan acquires a buffer from
/// `VK_QUEUE_FAMILY_EXTERNAL` before its first access.
#[derive(Debug)]
#[non_exhaustive]
pub struct ExportedMemory {
    /// The descriptor, which is closed in programs that this process starts.
    pub descriptor: OwnedFd,
    /// The type of the descriptor: [`OpaqueFd`](MemoryDescriptor::OpaqueFd) for
    /// `VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT`, or [`DmaBuf`](MemoryDescriptor::DmaBuf) for
    /// `VK_EXTERNAL_MEMORY_HANDLE_TYPE_DMA_BUF_BIT_EXT`.
    pub kind: MemoryDescriptor,
    /// The size of the allocation in bytes.
    pub size: usize,
    /// Whether the allocation is for one resource (`VkMemoryDedicatedAllocateInfo`). Memory of CUDA never is.
    pub dedicated: bool,
    /// The device of the memory, or `None` for memory of the host.
    pub device: Option<Uuid>,
}

impl ExportedMemory {
    /// Exports [shareable](crate::virtual_memory::Shareable::Descriptor) physical memory.
    ///
    /// # Errors
    /// See [`PhysicalMemory::export`]; errors of [`Device::uuid`](crate::Device::uuid).
    #[inline]
    pub fn of_physical(memory: &PhysicalMemory) -> Result<Self> {
        let device = memory.device().map(|its| its.uuid()).transpose()?;
        let descriptor = memory.export()?;
        let kind = MemoryDescriptor::OpaqueFd;
        Ok(Self { descriptor, kind, size: memory.size(), dedicated: false, device })
    }

    /// Exports a range of device memory as a DMA-BUF.
    ///
    /// # Errors
    /// See [`DeviceSlice::export_dma_buf`]; errors of [`Device::uuid`](crate::Device::uuid).
    #[inline]
    pub fn of_range<T>(range: DeviceSlice<'_, T>, options: DmaBufOptions) -> Result<Self> {
        let device = Some(range.stream().context().device().uuid()?);
        let descriptor = range.export_dma_buf(options)?;
        let kind = MemoryDescriptor::DmaBuf;
        Ok(Self { descriptor, kind, size: range.size_bytes(), dedicated: false, device })
    }
}
