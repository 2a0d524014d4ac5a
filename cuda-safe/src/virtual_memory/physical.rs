//! Physical memory.

use crate::call::{Error, Invalid, Result, answer, call, debug_struct, init, out, refuse_if};
use crate::device::Device;
use crate::memory::MemoryLocation;
use crate::release::{self, Root, create, destroy, release};
use core::ffi::c_void;
use cuda_sys::{
    CU_MEM_CREATE_USAGE_TILE_POOL, CUmemAllocationCompType,
    CUmemAllocationGranularity_flags as Granularity, CUmemAllocationHandleType,
    CUmemAllocationProp, CUmemAllocationProp_st__bindgen_ty_1, CUmemAllocationType,
    CUmemFabricHandle, CUmemGenericAllocationHandle, CUresult, CudaVersion,
};

/// Physical memory on a device or on the host (`CUmemGenericAllocationHandle`).
///
/// It has no address: [`Reservation::map`](super::Reservation::map) maps it to one. It belongs to no
/// context, and survives the reset of a primary context. A value of this type can be mapped once at a
/// time, because two mappings would be two names of the same elements.
///
/// The memory is zero when it is created (driver 580), and is released when this value is dropped, its
/// mapping was dropped, and every [export](Self::export) is closed. Releasing it waits for no work
/// (`cuMemRelease`).
///
/// ```no_run
/// use cuda_safe::Device;
/// use cuda_safe::virtual_memory::{PhysicalMemory, Reservation};
///
/// let memory = PhysicalMemory::new(Device::get(0)?, 64 << 20)?;
/// let space = Reservation::new(1 << 40)?;
/// let mapping = space.map(0, memory)?;
/// assert_eq!(mapping.address(), space.address());
/// # Ok::<_, cuda_safe::Error>(())
/// ```
pub struct PhysicalMemory {
    /// 0 if ownership was released.
    handle: CUmemGenericAllocationHandle,
    size: usize,
    granularity: usize,
    location: MemoryLocation,
}

/// The properties of physical memory (`CUmemAllocationProp`). Returned by
/// [`PhysicalMemory::properties`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PhysicalProperties {
    /// The location. `None` if the driver names none.
    pub location: Option<MemoryLocation>,
    /// The kinds of handles that share the memory.
    pub handle_types: CUmemAllocationHandleType,
    /// Whether the memory is compressible.
    pub compressible: bool,
    /// Whether other PCI devices can access the memory.
    pub gpu_direct_rdma: bool,
}

impl PhysicalMemory {
    /// Allocates memory on a device or on the host. Calls `cuMemCreate`.
    ///
    /// # Errors
    /// - [`Invalid::Granularity`] if `size` is 0 or not a multiple of the
    ///   [granularity](PhysicalOptions::granularity), which is 2 MiB on current devices.
    /// - [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    ///
    /// Since CUDA 10.2. Raw: [`cuMemCreate`](fn@cuda_sys::cuMemCreate),
    /// [`cuMemRelease`](fn@cuda_sys::cuMemRelease).
    #[doc(alias = "cuMemCreate", alias = "cuMemRelease")]
    pub fn new(location: impl Into<MemoryLocation>, size: usize) -> Result<Self> {
        Self::with(size, &PhysicalOptions::new(location))
    }

    /// Allocates memory with options. Calls `cuMemCreate`.
    ///
    /// # Errors
    /// See [`new`](Self::new). In addition: `CUDA_ERROR_NOT_PERMITTED` for handle types that the system
    /// does not permit, such as fabric handles; [`Invalid::NeedsNewerDriver`] for them before CUDA 12.4.
    ///
    /// Since CUDA 10.2. Raw: [`cuMemCreate`](fn@cuda_sys::cuMemCreate).
    #[doc(alias = "cuMemCreate")]
    #[inline]
    pub fn with(size: usize, options: &PhysicalOptions) -> Result<Self> {
        crate::call::init::init()?;
        options.check_handles()?;
        let granularity = options.check_size(size)?;
        Self::create(size, options, granularity)
    }

    /// Allocates memory with checked options, whose size is a multiple of the granularity.
    ///
    /// # Errors
    /// Errors from the driver.
    #[inline]
    pub(super) fn create(
        size: usize,
        options: &PhysicalOptions,
        granularity: usize,
    ) -> Result<Self> {
        let properties = options.properties();
        let from = &raw const properties;
        // SAFETY: the pointers refer to variables, of which `create` passes one.
        let handle = create(|place| unsafe { call!(cuMemCreate(place, size, from, 0)) })
            .map_err(|error| error.with_requested_bytes(size))?;
        Ok(Self::own(handle, size, granularity, options.location))
    }

    /// Allocates at least `bytes` of memory for tiles of sparse arrays.
    ///
    /// # Errors
    /// See [`new`](Self::new); [`Invalid::TooLarge`].
    #[inline]
    pub(crate) fn for_tiles(device: Device, bytes: usize) -> Result<Self> {
        let options = PhysicalOptions { is_tile_pool: true, ..PhysicalOptions::new(device) };
        Self::with(round_up(bytes, options.granularity()?)?, &options)
    }

    #[inline]
    pub(super) fn own(
        handle: CUmemGenericAllocationHandle,
        size: usize,
        granularity: usize,
        location: MemoryLocation,
    ) -> Self {
        Self { handle, size, granularity, location }
    }

    /// Takes ownership of a handle. The memory is released when the returned object is dropped.
    ///
    /// # Errors
    /// [`Invalid::Handle`] if `raw` is 0; [`Invalid::Granularity`]; errors from the driver. The caller then
    /// keeps ownership.
    ///
    /// # Safety
    /// - `raw` must be a live handle of `size` bytes, and no other code may release it.
    /// - While an address is mapped to this object, no other code may access the memory in a way that
    ///   races with the uses of that mapping.
    #[inline]
    pub unsafe fn from_raw(raw: CUmemGenericAllocationHandle, size: usize) -> Result<Self> {
        refuse_if!(raw == 0, Invalid::Handle { what: "physical memory", value: 0 });
        let (granularity, location) = describe(raw, size)?;
        Ok(Self::own(raw, size, granularity, location))
    }

    /// Takes ownership of a handle that the driver has just returned. Releases it on an error.
    ///
    /// # Errors
    /// [`Invalid::Granularity`]; errors from the driver.
    ///
    /// # Safety
    /// The conditions of [`from_raw`](Self::from_raw).
    #[inline]
    pub(super) unsafe fn adopt(handle: CUmemGenericAllocationHandle, size: usize) -> Result<Self> {
        let mut memory = Self::own(handle, size, 1, MemoryLocation::Host);
        (memory.granularity, memory.location) = describe(handle, size)?;
        Ok(memory)
    }

    /// Returns another handle of the memory that is mapped at an address. Calls
    /// `cuMemRetainAllocationHandle`.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` if no physical memory is mapped there; [`Invalid::Granularity`].
    ///
    /// # Safety
    /// `size` must be the size of the mapping that contains `address`. While an address is mapped to the
    /// returned object, no work may use both mappings in a way that races.
    ///
    /// Since CUDA 11.0. Raw:
    /// [`cuMemRetainAllocationHandle`](fn@cuda_sys::cuMemRetainAllocationHandle).
    #[doc(alias = "cuMemRetainAllocationHandle")]
    #[inline]
    pub unsafe fn retain(address: cuda_sys::CUdeviceptr, size: usize) -> Result<Self> {
        crate::call::init::init()?;
        let pointer = std::ptr::without_provenance_mut(address as usize);
        // SAFETY: the driver looks the address up, and `out` passes a valid pointer.
        let handle = out(|place| unsafe { call!(cuMemRetainAllocationHandle(place, pointer)) })?;
        // SAFETY: the driver has just created a reference, and the caller knows the size.
        unsafe { Self::adopt(handle, size) }
    }

    /// Returns the size in bytes.
    #[inline]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns the unit of the offsets at which the memory can be mapped, in bytes.
    #[inline]
    pub fn granularity(&self) -> usize {
        self.granularity
    }

    /// Returns the location.
    #[inline]
    pub fn location(&self) -> MemoryLocation {
        self.location
    }

    /// Takes the memory, and leaves a value without a handle.
    #[inline]
    pub(super) fn take(&mut self) -> Self {
        Self { handle: std::mem::take(&mut self.handle), ..*self }
    }

    /// Returns whether the memory was not taken.
    #[inline]
    pub(super) fn has_handle(&self) -> bool {
        self.handle != 0
    }

    /// Returns the device on which the memory is located.
    #[inline]
    pub(crate) fn device(&self) -> Option<Device> {
        match self.location {
            MemoryLocation::Device(device) | MemoryLocation::LocalityDomain { device, .. } => {
                Some(device)
            }
            _ => None,
        }
    }

    /// Returns the properties of the memory. Calls `cuMemGetAllocationPropertiesFromHandle`.
    ///
    /// # Errors
    /// Errors from the driver.
    ///
    /// Since CUDA 10.2. Raw:
    /// [`cuMemGetAllocationPropertiesFromHandle`](fn@cuda_sys::cuMemGetAllocationPropertiesFromHandle).
    #[doc(alias = "cuMemGetAllocationPropertiesFromHandle")]
    #[inline]
    pub fn properties(&self) -> Result<PhysicalProperties> {
        let properties = raw_properties(self.handle)?;
        let generic = CUmemAllocationCompType::CU_MEM_ALLOCATION_COMP_GENERIC.0;
        Ok(PhysicalProperties {
            location: MemoryLocation::from_raw(properties.location),
            handle_types: properties.requestedHandleTypes,
            compressible: u32::from(properties.allocFlags.compressionType) == generic,
            gpu_direct_rdma: properties.allocFlags.gpuDirectRDMACapable != 0,
        })
    }

    /// Returns the raw handle without giving up ownership. Do not release it.
    #[inline]
    pub fn as_raw(&self) -> CUmemGenericAllocationHandle {
        self.handle
    }

    /// Releases ownership. The caller releases the handle (`cuMemRelease`).
    #[inline]
    pub fn into_raw(mut self) -> CUmemGenericAllocationHandle {
        std::mem::take(&mut self.handle)
    }
}

/// Returns the properties of a live handle.
#[inline]
fn raw_properties(handle: CUmemGenericAllocationHandle) -> Result<CUmemAllocationProp> {
    // SAFETY: the handle is alive, and `out` passes a valid pointer.
    out(|place| unsafe { call!(cuMemGetAllocationPropertiesFromHandle(place, handle)) })
}

/// Returns the granularity and the location of the memory of a live handle.
///
/// # Errors
/// [`Invalid::Granularity`] if `size` cannot be its size; errors from the driver.
#[inline]
fn describe(handle: CUmemGenericAllocationHandle, size: usize) -> Result<(usize, MemoryLocation)> {
    let location = MemoryLocation::from_raw(raw_properties(handle)?.location);
    let location = location.unwrap_or(MemoryLocation::Host);
    Ok((PhysicalOptions::new(location).check_size(size)?, location))
}

/// A handle that is released.
struct PhysicalHandle(CUmemGenericAllocationHandle);

destroy! {
    PhysicalHandle as "physical memory", leaves Object, quiet true;
    // SAFETY: this value stands for the handle, and the caller promises that this is the first call.
    // A mapping keeps the memory until it is unmapped.
    |its| unsafe { answer!(cuMemRelease(its.0)) }
}

impl Drop for PhysicalMemory {
    #[inline]
    fn drop(&mut self) {
        if self.handle != 0 {
            release(PhysicalHandle(self.handle), &Root { is_borrowed: false });
        }
    }
}

debug_struct! {
    PhysicalMemory |its| { raw: format_args!("{:#x}", its.handle), size: its.size, location: its.location }
}

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
                usage: if self.is_tile_pool { CU_MEM_CREATE_USAGE_TILE_POOL as u16 } else { 0 },
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
    if end <= len { Ok(()) } else { Err(Invalid::Range { start, end, len }.into()) }
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
