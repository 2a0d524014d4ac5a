//! Options for the creation of physical memory.

use crate::call::{Error, Invalid, Result, call, init, out};
use crate::memory::MemoryLocation;
use cuda_sys::{
    CU_MEM_CREATE_USAGE_TILE_POOL, CUmemAllocationCompType,
    CUmemAllocationGranularity_flags as Granularity, CUmemAllocationHandleType,
    CUmemAllocationProp, CUmemAllocationProp_st__bindgen_ty_1, CUmemAllocationType, CudaVersion,
};

/// Options for [`PhysicalMemory::with`](super::PhysicalMemory::with).
///
/// [`new`](Self::new) returns the options for memory at a location that cannot be shared. Later versions
/// may add fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct PhysicalOptions {
    /// The location of the memory: a device, or a NUMA node of the host (since CUDA 12.2).
    pub location: MemoryLocation,
    /// How the memory can be shared with other processes.
    pub shareable: Shareable,
    /// Whether the device may compress the memory
    /// ([`GENERIC_COMPRESSION_SUPPORTED`](crate::device::attribute::GENERIC_COMPRESSION_SUPPORTED)). The driver
    /// decides; [`PhysicalMemory::properties`](super::PhysicalMemory::properties) returns the result.
    pub compressible: bool,
    /// Whether other PCI devices can access the memory
    /// ([`GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED`](crate::device::attribute::GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED)).
    pub gpu_direct_rdma: bool,
    /// Whether the memory is for tiles of sparse arrays only.
    pub(super) is_tile_pool: bool,
}

/// How physical memory can be shared with other processes (`CUmemAllocationHandleType`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Shareable {
    /// Not at all.
    #[default]
    No,
    /// As a file descriptor. Linux only.
    Descriptor,
    /// As a fabric handle, also with processes on other machines of the same `NVLink` domain. Since CUDA
    /// 12.4.
    Fabric,
    /// As a file descriptor or a fabric handle.
    DescriptorOrFabric,
}

impl Shareable {
    #[inline]
    pub(super) fn raw(self) -> CUmemAllocationHandleType {
        let descriptor = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        let fabric = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_FABRIC;
        match self {
            Self::No => CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
            Self::Descriptor => descriptor,
            Self::Fabric => fabric,
            Self::DescriptorOrFabric => descriptor | fabric,
        }
    }
}

impl PhysicalOptions {
    /// Returns the options for memory at this location that is not shareable.
    pub fn new(location: impl Into<MemoryLocation>) -> Self {
        Self {
            location: location.into(),
            shareable: Shareable::No,
            compressible: false,
            gpu_direct_rdma: false,
            is_tile_pool: false,
        }
    }

    /// Sets how the memory can be shared.
    #[must_use]
    #[inline]
    pub fn shareable(self, shareable: Shareable) -> Self {
        Self { shareable, ..self }
    }

    /// Returns the unit of the sizes of this memory, and of the addresses at which it is mapped, in bytes.
    /// Calls `cuMemGetAllocationGranularity(&bytes, properties, MINIMUM)`.
    ///
    /// # Errors
    /// Errors from the driver.
    ///
    /// Since CUDA 10.2. Raw:
    /// [`cuMemGetAllocationGranularity`](fn@cuda_sys::cuMemGetAllocationGranularity).
    #[doc(alias = "cuMemGetAllocationGranularity")]
    #[inline]
    pub fn granularity(&self) -> Result<usize> {
        self.query_granularity(Granularity::CU_MEM_ALLOC_GRANULARITY_MINIMUM)
    }

    /// Returns the unit with the best performance, in bytes. Calls
    /// `cuMemGetAllocationGranularity(&bytes, properties, RECOMMENDED)`.
    ///
    /// # Errors
    /// Errors from the driver.
    ///
    /// Since CUDA 10.2. Raw:
    /// [`cuMemGetAllocationGranularity`](fn@cuda_sys::cuMemGetAllocationGranularity).
    #[doc(alias = "cuMemGetAllocationGranularity")]
    #[inline]
    pub fn recommended_granularity(&self) -> Result<usize> {
        self.query_granularity(Granularity::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
    }

    #[inline]
    fn query_granularity(&self, which: Granularity) -> Result<usize> {
        init::init()?;
        let properties = self.properties();
        let properties = &raw const properties;
        // SAFETY: the pointers refer to variables, of which `out` passes one.
        out(|place| unsafe { call!(cuMemGetAllocationGranularity(place, properties, which)) })
    }

    /// Checks that the driver knows the kinds of handles.
    ///
    /// # Errors
    /// [`Invalid::NeedsNewerDriver`].
    #[inline]
    pub(super) fn check_handles(&self) -> Result<()> {
        match self.shareable {
            Shareable::No | Shareable::Descriptor => Ok(()),
            Shareable::Fabric | Shareable::DescriptorOrFabric => {
                let since = CudaVersion::new(12, 4);
                init::needs("physical memory with a fabric handle", since)
            }
        }
    }

    /// Returns the granularity if `bytes` is a positive multiple of it.
    ///
    /// # Errors
    /// [`Invalid::Granularity`]; errors from the driver.
    #[inline]
    pub(super) fn check_size(&self, bytes: usize) -> Result<usize> {
        let granularity = self.granularity()?;
        check_size(bytes, granularity)?;
        Ok(granularity)
    }

    #[inline]
    pub(super) fn properties(&self) -> CUmemAllocationProp {
        let compression = match self.compressible {
            true => CUmemAllocationCompType::CU_MEM_ALLOCATION_COMP_GENERIC,
            false => CUmemAllocationCompType::CU_MEM_ALLOCATION_COMP_NONE,
        };
        CUmemAllocationProp {
            type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: self.shareable.raw(),
            location: self.location.raw(),
            win32HandleMetaData: std::ptr::null_mut(),
            allocFlags: CUmemAllocationProp_st__bindgen_ty_1 {
                // The values are below 256.
                compressionType: compression.0 as u8,
                gpuDirectRDMACapable: u8::from(self.gpu_direct_rdma),
                usage: match self.is_tile_pool {
                    true => CU_MEM_CREATE_USAGE_TILE_POOL as u16,
                    false => 0,
                },
                reserved: [0; 4],
            },
        }
    }
}

/// Checks that a number of bytes is a multiple of the granularity.
///
/// # Errors
/// [`Invalid::Granularity`].
#[inline]
pub(super) fn check_multiple(what: &'static str, bytes: usize, granularity: usize) -> Result<()> {
    match bytes.checked_rem(granularity) {
        Some(0) => Ok(()),
        _ => Err(granularity_error(what, bytes, granularity)),
    }
}

/// Checks that a size is a positive multiple of the granularity.
///
/// # Errors
/// [`Invalid::Granularity`].
#[inline]
pub(super) fn check_size(bytes: usize, granularity: usize) -> Result<()> {
    check_multiple("the size", bytes, granularity)?;
    match bytes {
        0 => Err(granularity_error("the size", bytes, granularity)),
        _ => Ok(()),
    }
}

/// Checks that `size` bytes from `offset` on are whole steps of the granularity, and within `len` bytes.
///
/// # Errors
/// [`Invalid::Granularity`] and [`Invalid::Range`].
#[inline]
pub(super) fn check_part(offset: usize, size: usize, granularity: usize, len: usize) -> Result<()> {
    check_multiple("the offset", offset, granularity)?;
    check_multiple("the size", size, granularity)?;
    check_within(offset, size, len)
}

/// Checks that `size` bytes from `offset` on are within `len` bytes.
///
/// # Errors
/// [`Invalid::Range`].
#[inline]
pub(crate) fn check_within(offset: usize, size: usize, len: usize) -> Result<()> {
    let (start, end) = (offset, offset.saturating_add(size));
    match end <= len {
        true => Ok(()),
        false => Err(Invalid::Range { start, end, len }.into()),
    }
}

#[inline]
fn granularity_error(what: &'static str, bytes: usize, granularity: usize) -> Error {
    Invalid::Granularity { what, bytes, granularity }.into()
}

/// Returns `bytes`, rounded up to a multiple of the granularity.
///
/// # Errors
/// [`Invalid::TooLarge`].
#[inline]
pub(super) fn round_up(bytes: usize, granularity: usize) -> Result<usize> {
    let rounded = bytes.checked_next_multiple_of(granularity);
    let rounded = rounded.filter(|rounded| isize::try_from(*rounded).is_ok());
    rounded.ok_or_else(|| Invalid::TooLarge { len: bytes, size: 1 }.into())
}
