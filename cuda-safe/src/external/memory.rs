//! Imports of memory.

use crate::call::{Result, answer, c_enum, call, debug_struct, expect_handle, out};
use crate::context::Context;
use crate::release::{self, Handle, destroy, relaxed, release};
use cuda_sys::{
    CUDA_EXTERNAL_MEMORY_DEDICATED, CUDA_EXTERNAL_MEMORY_HANDLE_DESC, CUexternalMemory,
    CUexternalMemoryHandleType, Zeroable,
};
use std::sync::Arc;
#[cfg(unix)]
use {
    crate::call::{DriverError, Error, Rejected},
    cuda_sys::CUresult,
    std::os::fd::{IntoRawFd, OwnedFd},
};

/// Memory that another API has allocated (`CUexternalMemory`). Clones share the import.
///
/// It has no address: [`map`](Self::map) maps a range of it, and
/// [`map_image`](Self::map_image) an image. It belongs to a context. Mappings keep it.
///
/// The import is destroyed with the last clone and the last mapping. The memory stays allocated until the other API has
/// freed it too.
///
/// # Ordering
/// Both APIs can access the memory at any time, so a semaphore must order their accesses. The page of the
/// [module](super#ordering) has the barriers with which Vulkan releases memory before a wait here
/// ([`Stream::wait_timeline`](crate::Stream::wait_timeline)), and acquires it after a signal
/// ([`Stream::signal_timeline`](crate::Stream::signal_timeline)).
///
/// ```no_run
/// use cuda_safe::external::{ExternalMemory, ExternalMemoryOptions};
/// use cuda_safe::virtual_memory::{PhysicalMemory, PhysicalOptions, Shareable};
/// use cuda_safe::{Context, Device};
///
/// let device = Device::get(0)?;
/// let context = Context::primary(&device)?;
/// let stream = context.stream()?;
/// // Here this driver plays the other API.
/// let options = PhysicalOptions::new(device).shareable(Shareable::Descriptor);
/// let theirs = PhysicalMemory::with(2 << 20, &options)?;
/// # #[cfg(unix)]
/// # {
/// let fd = theirs.export()?;
/// // SAFETY: the descriptor is that of 2 MiB of memory.
/// let memory =
///     unsafe { ExternalMemory::import(&context, fd, 2 << 20, ExternalMemoryOptions::default()) }?;
/// let mapping = memory.map(4096, 1024)?;
/// // SAFETY: no other code accesses the memory.
/// let mut buffer = unsafe { mapping.into_buffer::<f32>(&stream) }?;
/// buffer.fill(1.5)?;
/// # }
/// # Ok::<_, cuda_safe::Error>(())
/// ```
#[derive(Clone)]
pub struct ExternalMemory {
    inner: Arc<Imported>,
}

struct Imported {
    raw: Handle<CUexternalMemory>,
    size: usize,
    context: Context,
}

c_enum! {
    /// What a file descriptor of memory is (`CUexternalMemoryHandleType`).
    #[derive(Default)]
    #[non_exhaustive]
    pub enum MemoryDescriptor = CUexternalMemoryHandleType {
        /// A descriptor in the format of the driver: in Vulkan,
        /// `VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT`.
        #[default]
        OpaqueFd = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
        /// A DMA-BUF of the Linux kernel. Since CUDA 13.0, and only on Tegra devices of the Thor series and later: others
        /// return `CUDA_ERROR_NOT_SUPPORTED`. It cannot be mapped as an image, and is never
        /// [dedicated](ExternalMemoryOptions::dedicated). Unverified (from documentation).
        DmaBuf = CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD,
    }
}

/// Options for [`ExternalMemory::import`].
///
/// Later versions may add fields: end each value with `..Default::default()`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ExternalMemoryOptions {
    /// The type of the descriptor.
    pub descriptor: MemoryDescriptor,
    /// Whether the other API has made the allocation for one resource
    /// (`VkMemoryDedicatedAllocateInfo`). It must be true exactly then, which the driver (580) does not check. Vulkan says
    /// whether an exported image needs such an allocation (`VK_EXTERNAL_MEMORY_FEATURE_DEDICATED_ONLY_BIT`).
    pub dedicated: bool,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl ExternalMemory {
    /// Imports memory from a file descriptor, which is closed in any case. Calls `cuImportExternalMemory`.
    ///
    /// `size` is the size of the allocation in bytes (`VkMemoryAllocateInfo::allocationSize`), not
    /// that of a buffer in it.
    ///
    /// # Errors
    /// - `CUDA_ERROR_UNKNOWN` if the descriptor is not one of memory.
    /// - `CUDA_ERROR_INVALID_VALUE` if `size` is 0.
    /// - `CUDA_ERROR_OPERATING_SYSTEM` if the process has too many descriptors.
    /// - `CUDA_ERROR_NOT_SUPPORTED` for descriptors of a type that the device does not support.
    /// - [`Invalid::NeedsNewerDriver`](crate::Invalid::NeedsNewerDriver) for a DMA-BUF before CUDA 13.0.
    ///
    /// # Safety
    /// The descriptor is of the given type, and is that of memory of the device of the context, with this size and
    /// with these options. The driver does not check the size: it accepts one that is too large. It also accepts the
    /// descriptor of a semaphore (measured, driver 580).
    ///
    /// Since CUDA 10.0. Raw: [`cuImportExternalMemory`](fn@cuda_sys::cuImportExternalMemory),
    /// [`cuDestroyExternalMemory`](fn@cuda_sys::cuDestroyExternalMemory).
    #[cfg(unix)]
    #[doc(alias = "cuImportExternalMemory", alias = "cuDestroyExternalMemory")]
    #[inline]
    pub unsafe fn import(
        context: &Context,
        descriptor: OwnedFd,
        size: usize,
        options: ExternalMemoryOptions,
    ) -> Result<Self> {
        // SAFETY: the caller's promise.
        Ok(unsafe { Self::try_import(context, descriptor, size, options) }?)
    }

    /// Does the same as [`import`](Self::import), but returns the descriptor with the error. The driver gets a duplicate,
    /// which may stay open after an error: some errors of the driver close it, and others do not.
    ///
    /// # Errors
    /// See [`import`](Self::import).
    ///
    /// # Safety
    /// See [`import`](Self::import).
    ///
    /// Since CUDA 10.0. Raw: [`cuImportExternalMemory`](fn@cuda_sys::cuImportExternalMemory).
    #[cfg(unix)]
    #[doc(alias = "cuImportExternalMemory")]
    #[inline]
    pub unsafe fn try_import(
        context: &Context,
        descriptor: OwnedFd,
        size: usize,
        options: ExternalMemoryOptions,
    ) -> Result<Self, Rejected<OwnedFd>> {
        let mut description = description(options.descriptor.raw(), size, options.dedicated);
        import_descriptor("cuImportExternalMemory", descriptor, |descriptor| {
            if options.descriptor == MemoryDescriptor::DmaBuf {
                let since = cuda_sys::CudaVersion::new(13, 0);
                crate::call::init::needs("the import of a DMA-BUF", since)?;
            }
            description.handle.fd = descriptor;
            // SAFETY: the descriptor is open, and the caller promises what it is.
            unsafe { Self::import_from(context, &description) }
        })
    }

    /// # Safety
    /// The handle is that of memory with the described properties.
    #[inline]
    pub(super) unsafe fn import_from(
        context: &Context,
        description: &CUDA_EXTERNAL_MEMORY_HANDLE_DESC,
    ) -> Result<Self> {
        let from = &raw const *description;
        // SAFETY: `create` passes a valid pointer, and the caller promises a valid handle.
        let raw = create(context, |place| unsafe { call!(cuImportExternalMemory(place, from)) })?;
        // The size was one of this machine.
        let size = usize::try_from(description.size).unwrap_or(usize::MAX);
        Ok(Self::own(raw, size, context))
    }

    #[inline]
    fn own(raw: CUexternalMemory, size: usize, context: &Context) -> Self {
        let raw = Handle(raw);
        Self { inner: Arc::new(Imported { raw, size, context: context.clone() }) }
    }

    /// Takes ownership of a handle.
    ///
    /// # Errors
    /// [`Invalid::Handle`](crate::Invalid::Handle) if the handle is null.
    ///
    /// # Safety
    /// `raw` was imported in this context, from memory of `size` bytes, and no other code destroys it.
    #[inline]
    pub unsafe fn from_raw(raw: CUexternalMemory, size: usize, context: &Context) -> Result<Self> {
        expect_handle("external memory", raw)?;
        Ok(Self::own(raw, size, context))
    }

    /// Returns the raw handle without giving up ownership. Do not destroy it.
    #[inline]
    pub fn as_raw(&self) -> CUexternalMemory {
        self.inner.raw.0
    }

    /// Returns the handle and leaks the import: the handle and its context stay alive until the process ends.
    #[inline]
    pub fn into_raw(self) -> CUexternalMemory {
        let raw = self.as_raw();
        std::mem::forget(self);
        raw
    }

    /// Returns the size of the allocation in bytes.
    #[inline]
    pub fn size(&self) -> usize {
        self.inner.size
    }

    /// Returns the context that the memory was imported in.
    #[inline]
    pub fn context(&self) -> &Context {
        &self.inner.context
    }
}

#[inline]
pub(super) fn description(
    kind: CUexternalMemoryHandleType,
    size: usize,
    is_dedicated: bool,
) -> CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
    let mut description = CUDA_EXTERNAL_MEMORY_HANDLE_DESC::zeroed();
    description.type_ = kind;
    description.size = size as u64;
    description.flags = if is_dedicated { CUDA_EXTERNAL_MEMORY_DEDICATED } else { 0 };
    description
}

/// Imports an object by a duplicate of a descriptor, or returns the descriptor with the error.
///
/// The driver owns the duplicate after a success. After an error the duplicate stays open: the driver has closed it if it
/// refused memory that it had opened (measured), and a second close could be that of a descriptor of other code.
#[cfg(unix)]
#[inline]
pub(super) fn import_descriptor<T>(
    function: &'static str,
    descriptor: OwnedFd,
    import: impl FnOnce(core::ffi::c_int) -> Result<T>,
) -> Result<T, Rejected<OwnedFd>> {
    let duplicate = descriptor.try_clone().map_err(|_| {
        // The process has too many descriptors.
        Error::from(DriverError::new(CUresult::CUDA_ERROR_OPERATING_SYSTEM, function))
    });
    let imported = duplicate.and_then(|duplicate| import(duplicate.into_raw_fd()));
    Rejected::unless(imported, descriptor).map(|(imported, _)| imported)
}

/// Returns what a call creates with a context current. Captures are not disturbed.
///
/// # Errors
/// Errors of the call.
#[inline]
pub(super) fn create<T: Zeroable>(
    context: &Context,
    create: impl FnOnce(*mut T) -> Result<()>,
) -> Result<T> {
    release::drain();
    let _current = context.enter()?;
    relaxed(|| out(create))
}

destroy! {
    Handle<CUexternalMemory> as "external memory";
    // SAFETY: this value stands for the import, and the caller promises that this is the first call. Each mapping keeps
    // the import.
    |its| unsafe { answer!(cuDestroyExternalMemory(its.0)) }
}

impl Drop for Imported {
    #[inline]
    fn drop(&mut self) {
        release(self.raw, &self.context);
    }
}

debug_struct! { ExternalMemory |its| { raw: its.as_raw(), size: its.size(), context: its.context() } }
