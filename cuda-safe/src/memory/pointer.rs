//! What the driver knows of an address.

use super::{DeviceBuffer, MemoryAccess};
use crate::call::call;
use crate::context::Context;
use crate::error::Result;
use core::ffi::c_void;
use cuda_sys::{
    CUcontext, CUdeviceptr, CUmemAccess_flags, CUmemAllocationHandleType, CUmemoryPool,
    CUmemorytype, CUpointer_attribute as Attribute, CUresult,
};
use std::ops::Range;

/// What the driver knows of the memory that holds an address: of
/// [`Context::pointer_info`].
///
/// Handles in it are not one's own, and may be dead by the time that they are looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PointerInfo {
    /// Which kind of memory it is.
    pub memory_type: MemoryType,
    /// The context that it was allocated or registered in; null for memory of pools and of
    /// virtual memory management, which is the device's.
    pub context: CUcontext,
    /// The number of the device that it was allocated or registered on.
    pub device: Option<u32>,
    /// The address by which kernels of the context that asked reach it, if they do.
    pub device_address: Option<CUdeviceptr>,
    /// The address by which the host reaches it, if it does.
    pub host_address: Option<u64>,
    /// The addresses of the whole allocation, or of the reservation it is in.
    pub range: Range<CUdeviceptr>,
    /// A number that no other allocation of this process has or will have.
    pub buffer_id: u64,
    /// Whether it is managed memory.
    pub managed: bool,
    /// Whether memory is mapped at the address, and not only reserved.
    pub mapped: bool,
    /// Whether synchronous copies of it always wait to the end
    /// ([`DeviceBuffer::set_sync_memops`]).
    pub sync_memops: bool,
    /// Whether `cuIpcGetMemHandle` can share it.
    pub legacy_ipc: bool,
    /// Whether other PCI devices may reach it (`GPUDirect` RDMA).
    pub gpu_direct_rdma: bool,
    /// How it can be shared with other processes.
    pub handle_types: CUmemAllocationHandleType,
    /// What the device of the context that asked may do with it.
    pub access: MemoryAccess,
    /// The memory pool that it is of; null if it is of none.
    pub pool: CUmemoryPool,
    /// Whether the decompression engine may read it; none on drivers before CUDA 12.8.
    pub hw_decompress: Option<bool>,
}

// SAFETY: plain data: the handles in it are numbers, and nothing is read through them.
unsafe impl Send for PointerInfo {}
// SAFETY: as for Send.
unsafe impl Sync for PointerInfo {}

/// `CUmemorytype`: a kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemoryType {
    /// Of the host, pinned or registered.
    Host,
    /// Of a device; managed memory as well.
    Device,
    /// An array.
    Array,
    /// Of host and device together.
    Unified,
    /// What a newer driver answered, by its number.
    Other(u32),
}

impl MemoryType {
    fn from_raw(raw: CUmemorytype) -> Self {
        match raw {
            CUmemorytype::CU_MEMORYTYPE_HOST => Self::Host,
            CUmemorytype::CU_MEMORYTYPE_DEVICE => Self::Device,
            CUmemorytype::CU_MEMORYTYPE_ARRAY => Self::Array,
            CUmemorytype::CU_MEMORYTYPE_UNIFIED => Self::Unified,
            CUmemorytype(number) => Self::Other(number),
        }
    }
}

impl Context {
    /// `cuPointerGetAttributes(…)`: what is known of an address, of the device or of the host; none
    /// if the driver knows nothing of it. Any number may be asked about.
    ///
    /// Asked with this context current, as some of the answers are for a context.
    ///
    /// # Errors
    /// Those of the driver.
    ///
    /// Since CUDA 7.0. Raw: [`cuPointerGetAttributes`](fn@cuda_sys::cuPointerGetAttributes).
    #[doc(alias = "cuPointerGetAttributes")]
    pub fn pointer_info(&self, address: CUdeviceptr) -> Result<Option<PointerInfo>> {
        let _current = self.enter()?;
        match Answers::of_first(ASKED.len(), address) {
            // The newest attribute makes a driver that does not know it refuse all.
            Err(error) if error.code() == Some(CUresult::CUDA_ERROR_INVALID_VALUE) => {
                Ok(Answers::of_first(ASKED.len() - 1, address)?.info(false))
            }
            answers => Ok(answers?.info(true)),
        }
    }

    /// `cuMemGetAddressRange(&start, &size, address)`: the addresses of the allocation that holds
    /// one on the device.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_FOUND` or `CUDA_ERROR_INVALID_VALUE` if there is none.
    ///
    /// Since CUDA 3.2. Raw: [`cuMemGetAddressRange_v2`](fn@cuda_sys::cuMemGetAddressRange_v2).
    #[doc(alias = "cuMemGetAddressRange")]
    pub fn address_range(&self, address: CUdeviceptr) -> Result<Range<CUdeviceptr>> {
        let (mut start, mut size) = (0, 0);
        let _current = self.enter()?;
        // SAFETY: the pointers are to locals; the address is a number to the driver, which looks it
        // up.
        unsafe {
            call!(cuMemGetAddressRange_v2(
                &raw mut start,
                &raw mut size,
                address
            ))
        }?;
        Ok(start..start.saturating_add(size as u64))
    }
}

/// What is asked, the newest last.
const ASKED: [Attribute; 17] = [
    Attribute::CU_POINTER_ATTRIBUTE_CONTEXT,
    Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
    Attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
    Attribute::CU_POINTER_ATTRIBUTE_HOST_POINTER,
    Attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
    Attribute::CU_POINTER_ATTRIBUTE_BUFFER_ID,
    Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED,
    Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
    Attribute::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
    Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
    Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE,
    Attribute::CU_POINTER_ATTRIBUTE_MAPPED,
    Attribute::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
    Attribute::CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE,
    Attribute::CU_POINTER_ATTRIBUTE_ACCESS_FLAGS,
    Attribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
    Attribute::CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE,
];

/// The driver's answers. It writes 1, 4 or 8 bytes of each, the lowest ones of a number that was 0.
struct Answers([u64; ASKED.len()]);

impl Answers {
    /// Asks for so many of the attributes, in the current context.
    fn of_first(count: usize, address: CUdeviceptr) -> Result<Self> {
        let mut answers = Self([0; ASKED.len()]);
        let mut asked = ASKED;
        let places = answers.0.iter_mut();
        let mut places: Vec<*mut c_void> = places.map(|place| (&raw mut *place).cast()).collect();
        // SAFETY: both lists have as many entries at least, and each place is a number of our own
        // that is as large as the largest attribute. The address is a number to the driver, which
        // looks it up.
        unsafe {
            call!(cuPointerGetAttributes(
                u32::try_from(count).unwrap_or(0),
                asked.as_mut_ptr(),
                places.as_mut_ptr(),
                address
            ))
        }?;
        Ok(answers)
    }

    fn of(&self, attribute: Attribute) -> u64 {
        let place = ASKED.iter().position(|asked| *asked == attribute);
        place.map_or(0, |place| self.0[place])
    }

    /// As much of it as an `int` of the driver has.
    fn small(&self, attribute: Attribute) -> u32 {
        u32::try_from(self.of(attribute) & u64::from(u32::MAX)).unwrap_or(0)
    }

    /// None, if they are those of an address that nobody knows.
    fn info(&self, has_decompress: bool) -> Option<PointerInfo> {
        let memory_type = CUmemorytype(self.small(Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE));
        if memory_type == CUmemorytype::default() {
            return None;
        }
        let is = |attribute| self.of(attribute) != 0;
        let address = |attribute| Some(self.of(attribute)).filter(|address| *address != 0);
        #[allow(clippy::cast_possible_truncation, reason = "the crate is for 64 bits")]
        let pointer = |attribute| self.of(attribute) as usize;
        let start = self.of(Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
        let size = self.of(Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE);
        let device = self.small(Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
        Some(PointerInfo {
            memory_type: MemoryType::from_raw(memory_type),
            context: std::ptr::without_provenance_mut(pointer(
                Attribute::CU_POINTER_ATTRIBUTE_CONTEXT,
            )),
            // Below zero it is none.
            device: i32::try_from(device).ok().map(|_| device),
            device_address: address(Attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER),
            host_address: address(Attribute::CU_POINTER_ATTRIBUTE_HOST_POINTER),
            range: start..start.saturating_add(size),
            buffer_id: self.of(Attribute::CU_POINTER_ATTRIBUTE_BUFFER_ID),
            managed: is(Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED),
            mapped: is(Attribute::CU_POINTER_ATTRIBUTE_MAPPED),
            sync_memops: is(Attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS),
            legacy_ipc: is(Attribute::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE),
            gpu_direct_rdma: is(Attribute::CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE),
            handle_types: CUmemAllocationHandleType(
                self.small(Attribute::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES),
            ),
            access: MemoryAccess::from_raw(CUmemAccess_flags(
                self.small(Attribute::CU_POINTER_ATTRIBUTE_ACCESS_FLAGS),
            )),
            pool: std::ptr::without_provenance_mut(pointer(
                Attribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
            )),
            hw_decompress: has_decompress
                .then(|| is(Attribute::CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE)),
        })
    }
}

impl<T> DeviceBuffer<T> {
    /// `cuPointerSetAttribute(&on, SYNC_MEMOPS, address)`: whether synchronous copies and fills of
    /// the whole allocation, by anybody, always wait to the end: what code on other PCI devices
    /// wants that shares it.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` or `CUDA_ERROR_NOT_SUPPORTED` where it cannot be set, as on
    /// memory of pools.
    ///
    /// Since CUDA 6.0. Raw: [`cuPointerSetAttribute`](fn@cuda_sys::cuPointerSetAttribute).
    #[doc(alias = "cuPointerSetAttribute")]
    pub fn set_sync_memops(&mut self, on: bool) -> Result<()> {
        if self.size_bytes() == 0 {
            return Ok(());
        }
        let on = u32::from(on);
        let (value, attribute) = (
            (&raw const on).cast(),
            Attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
        );
        let _current = self.stream().context().enter()?;
        // SAFETY: the pointer is to a local number, and the address is of memory that is borrowed.
        unsafe { call!(cuPointerSetAttribute(value, attribute, self.as_raw())) }
    }
}
