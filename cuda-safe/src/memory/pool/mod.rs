//! Memory pools, which stream-ordered memory is allocated from.
//!
//! [`MemoryPool`] explains how pools are used. [`attribute`] lists the attributes of a pool.
//!
//! ```no_run
//! use cuda_safe::memory::pool::attribute::USED_CURRENT;
//! use cuda_safe::{Context, Device, DeviceBuffer};
//! use cuda_safe::memory::MemoryPool;
//!
//! // `DeviceBuffer::zeroed` allocates from the device's current pool.
//! let context = Context::primary(&Device::get(0)?)?;
//! let pool = MemoryPool::default_of(&context)?;
//! let buffer = DeviceBuffer::<u8>::zeroed(&context.stream()?, 1 << 20)?;
//! assert!(pool.attribute(USED_CURRENT)? >= 1 << 20);
//! # Ok::<_, cuda_safe::Error>(())
//! ```

pub mod attribute;
mod frees;
mod share;

pub(super) use frees::PoolMemory;
pub use share::ImportedPool;

use super::buffer::allocation::Release;
use super::{DeviceBuffer, MemoryLocation};
use crate::call::{
    Answer, Invalid, Ownership, Result, answer, bytes_of, c_enum, call, count_leak, debug_struct,
    expect_handle, init, out, out_without_current, refuse_if, without_current,
};
use crate::capture_state::Operation;
use crate::context::Context;
use crate::device::Device;
use crate::device::attribute::MEMPOOL_SUPPORTED_HANDLE_TYPES;
use crate::event::AfterEvents;
use crate::release::{self, After, Handle, Keep, create_in, destroy, release};
use crate::stream::Stream;
use attribute::{HighWater, PoolAttribute, PoolValue, Settable};
use cuda_sys::{
    CU_MEM_POOL_CREATE_USAGE_HW_DECOMPRESS, CUmemAccess_flags, CUmemAccessDesc,
    CUmemAllocationHandleType, CUmemAllocationType, CUmemPoolProps, CUmemoryPool, CUresult,
    CudaVersion,
};
use frees::FreeEvents;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A pool of memory for stream-ordered allocation (`CUmemoryPool`). Freed memory stays cached for
/// later allocations.
///
/// Each device has a default pool ([`default_of`](Self::default_of)). [`DeviceBuffer::zeroed`],
/// [`DeviceBuffer::uninit`] and [`DeviceBuffer::from_slice`] allocate from the device's current
/// pool, which initially is the default pool. [`new`](Self::new) creates another pool. It can
/// [replace the current pool](crate::Device::set_memory_pool) of a device, or be used directly
/// ([`DeviceBuffer::uninit_from_pool`]). [`attribute::RELEASE_THRESHOLD`] sets how much unused
/// memory a pool keeps cached.
///
/// Clones share the pool, and memory allocated from the pool keeps the pool alive. The pool is
/// destroyed when the last clone and the last of its memory have been dropped. This drop waits
/// until the frees of the pool's memory have completed, because a driver (580) eventually crashes
/// if a pool is destroyed earlier. A pool is never destroyed once it has been set as the current
/// pool of a device, or once the ownership of some of its memory has been
/// [released](DeviceBuffer::into_raw), because it is then unknown when its memory is freed.
///
/// ```no_run
/// use cuda_safe::memory::pool::attribute::{RELEASE_THRESHOLD, USED_CURRENT};
/// use cuda_safe::{Context, Device, DeviceBuffer};
/// use cuda_safe::memory::{MemoryPool, MemoryPoolOptions};
///
/// let context = Context::primary(&Device::get(0)?)?;
/// let stream = context.stream()?;
/// let pool = MemoryPool::new(&context, MemoryPoolOptions::default())?;
/// pool.set_attribute(RELEASE_THRESHOLD, 1 << 30)?;
/// let buffer = DeviceBuffer::<f32>::zeroed_from_pool(&pool, &stream, 1000)?;
/// assert!(pool.attribute(USED_CURRENT)? >= 4000);
/// # Ok::<_, cuda_safe::Error>(())
/// ```
#[derive(Clone)]
pub struct MemoryPool {
    inner: Arc<Inner>,
}

struct Inner {
    raw: Handle<CUmemoryPool>,
    ownership: Ownership,
    /// The location of the pool's memory, or `None` if it is unknown.
    location: Option<MemoryLocation>,
    /// Whether the pool is known to have managed memory, which all devices can use.
    is_managed: bool,
    /// Whether the pool may have memory that does not keep it alive: allocations by other code
    /// after the pool was set as the current pool of a device, memory whose ownership was released,
    /// and memory that could not be freed.
    never_destroyed: AtomicBool,
    free_events: FreeEvents,
    /// Whether this is a default pool of the driver, which is never destroyed.
    is_default: bool,
    /// Whether a memory manager has allocated from the pool. Its frees are not recorded, so
    /// destroying the pool waits for all work.
    has_unrecorded_frees: AtomicBool,
    /// The export of the pool, if handles of its memory were exported.
    #[cfg(unix)]
    exported: share::Exported,
    context: Context,
}

impl MemoryPool {
    /// Creates a memory pool. The pool keeps `context` alive.
    ///
    /// Calls `cuMemPoolCreate(&pool, props)`.
    ///
    /// # Errors
    /// - `CUDA_ERROR_NOT_SUPPORTED` on devices without memory pools
    ///   ([`MEMORY_POOLS_SUPPORTED`](crate::device::attribute::MEMORY_POOLS_SUPPORTED)).
    /// - `CUDA_ERROR_INVALID_VALUE` for a location that cannot have a pool.
    /// - [`Invalid::NeedsNewerDriver`] if the driver does not
    ///   know an option.
    /// - [`Invalid::PoolHandles`] if the pool must be shareable and
    ///   the device does not support file descriptors for pools.
    ///
    /// Since CUDA 11.2. Raw: [`cuMemPoolCreate`](fn@cuda_sys::cuMemPoolCreate),
    /// [`cuMemPoolDestroy`](fn@cuda_sys::cuMemPoolDestroy).
    #[doc(alias = "cuMemPoolCreate", alias = "cuMemPoolDestroy")]
    #[inline]
    pub fn new(context: &Context, options: MemoryPoolOptions) -> Result<Self> {
        let props = options.props(context.device())?;
        let from = &raw const props;
        // SAFETY: the pointers refer to variables. Properties that the driver does not know are zero.
        let raw = create_in(context, |place| unsafe { call!(cuMemPoolCreate(place, from)) })?;
        let place = options.location;
        let location = place.unwrap_or(MemoryLocation::Device(context.device()));
        let mut pool = Self::own(raw, context, Some(location), Ownership::Owned);
        pool.set_managed(options.managed);
        Ok(pool)
    }

    /// Returns the default pool of the context's device. It is never destroyed.
    ///
    /// Calls `cuDeviceGetDefaultMemPool(&pool, device)`.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_SUPPORTED` on devices without memory pools.
    ///
    /// Since CUDA 11.2. Raw: [`cuDeviceGetDefaultMemPool`](fn@cuda_sys::cuDeviceGetDefaultMemPool).
    #[doc(alias = "cuDeviceGetDefaultMemPool")]
    #[inline]
    pub fn default_of(context: &Context) -> Result<Self> {
        let device = context.device();
        // SAFETY: `out` passes a valid pointer.
        let raw = out(|place| unsafe { call!(cuDeviceGetDefaultMemPool(place, device.as_raw())) })?;
        let location = Some(MemoryLocation::Device(device));
        Ok(Self::drivers(raw, context, location))
    }

    /// Takes ownership of `raw`. The pool is destroyed when the last clone is dropped.
    ///
    /// # Errors
    /// [`Invalid::Handle`] if `raw` is null.
    ///
    /// # Safety
    /// `raw` is a live pool that no other code destroys. If other code allocates memory from the
    /// pool or frees memory of the pool, these frees must complete before the last clone of this
    /// object and the last memory allocated through it are dropped.
    #[inline]
    pub unsafe fn from_raw(raw: CUmemoryPool, context: &Context) -> Result<Self> {
        Self::wrap(raw, context, Ownership::Owned)
    }

    /// Borrows a pool that other code owns, such as one from
    /// [`Device::memory_pool`](crate::Device::memory_pool). The pool is never destroyed by this
    /// object.
    ///
    /// # Errors
    /// [`Invalid::Handle`] if `raw` is null.
    ///
    /// # Safety
    /// `raw` is a pool that stays alive until the last clone of this object and all memory
    /// allocated through it have been dropped, and the frees of this memory have completed. If the
    /// pool is set as the current pool of a device, or if the ownership of some of its memory is
    /// released, the pool must stay alive until the process ends.
    #[inline]
    pub unsafe fn borrow_raw(raw: CUmemoryPool, context: &Context) -> Result<Self> {
        Self::wrap(raw, context, Ownership::Borrowed)
    }

    /// Uses a pool that `owner` keeps alive. This object never destroys the pool; `owner` is
    /// dropped after the last clone.
    ///
    /// # Errors
    /// [`Invalid::Handle`] if `raw` is null. `owner` is then dropped.
    ///
    /// # Safety
    /// `raw` is a pool that stays alive as long as `owner`.
    pub unsafe fn from_foreign(
        raw: CUmemoryPool,
        context: &Context,
        owner: impl Any + Send + Sync,
    ) -> Result<Self> {
        Self::wrap(raw, context, Ownership::Foreign(Box::new(owner)))
    }

    /// Wraps a pool that other code created.
    #[inline]
    fn wrap(raw: CUmemoryPool, context: &Context, ownership: Ownership) -> Result<Self> {
        expect_handle("memory pool", raw)?;
        Ok(Self::own(raw, context, None, ownership))
    }

    /// Wraps a default pool of the driver.
    #[inline]
    fn drivers(raw: CUmemoryPool, context: &Context, location: Option<MemoryLocation>) -> Self {
        let mut pool = Self::own(raw, context, location, Ownership::Borrowed);
        if let Some(inner) = Arc::get_mut(&mut pool.inner) {
            inner.is_default = true;
        }
        pool
    }

    /// Sets whether the new pool has managed memory.
    #[inline]
    fn set_managed(&mut self, is_managed: bool) {
        if let Some(inner) = Arc::get_mut(&mut self.inner) {
            inner.is_managed = is_managed;
        }
    }

    #[inline]
    fn is_borrowed(&self) -> bool {
        matches!(self.inner.ownership, Ownership::Borrowed) || self.context().depends_on_borrowed()
    }

    #[inline]
    fn own(
        raw: CUmemoryPool,
        context: &Context,
        location: Option<MemoryLocation>,
        ownership: Ownership,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                raw: Handle(raw),
                ownership,
                location,
                is_managed: false,
                never_destroyed: AtomicBool::new(false),
                free_events: FreeEvents::default(),
                is_default: false,
                has_unrecorded_frees: AtomicBool::new(false),
                #[cfg(unix)]
                exported: share::Exported::default(),
                context: context.clone(),
            }),
        }
    }

    /// Returns the driver's handle, which this object still owns. Do not destroy it.
    #[inline]
    pub fn as_raw(&self) -> CUmemoryPool {
        self.inner.raw.0
    }

    /// Releases ownership and returns the driver's handle. The pool is never destroyed by this
    /// crate, and its context stays alive until the process ends.
    #[inline]
    pub fn into_raw(self) -> CUmemoryPool {
        let raw = self.as_raw();
        std::mem::forget(self);
        raw
    }

    /// Marks the pool as never destroyed, because it may have memory that does not keep it alive.
    #[inline]
    pub(crate) fn never_destroy(&self) {
        self.inner.never_destroyed.store(true, Ordering::Relaxed);
    }

    /// Keeps the pool alive for memory of a manager, until
    /// [`reclaim_from_memory`](Self::reclaim_from_memory). The frees of this memory are not recorded.
    #[inline]
    pub(crate) fn retain_for_memory(&self) {
        if self.is_kept_by_memory() {
            self.inner.has_unrecorded_frees.store(true, Ordering::Relaxed);
            std::mem::forget(self.clone());
        }
    }

    /// Returns the clone that memory of a manager holds, if it holds one.
    ///
    /// # Safety
    /// [`retain_for_memory`](Self::retain_for_memory) was called for the memory, and this function was
    /// not.
    #[inline]
    pub(crate) unsafe fn reclaim_from_memory(&self) -> Option<Self> {
        if !self.is_kept_by_memory() {
            return None;
        }
        // SAFETY: the pointer is that of a live `Arc`, and the caller promises that the memory holds
        // one of its reference counts, which is taken over here.
        let inner = unsafe { Arc::from_raw(Arc::as_ptr(&self.inner)) };
        Some(Self { inner })
    }

    /// Returns whether the pool could be destroyed before its memory. (The owner of a borrowed pool
    /// promises not to do this.)
    #[inline]
    fn is_kept_by_memory(&self) -> bool {
        !matches!(self.inner.ownership, Ownership::Borrowed)
    }

    /// Returns the context that the pool keeps alive.
    #[inline]
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Returns the value of one of the pool's [attributes](attribute).
    ///
    /// Calls `cuMemPoolGetAttribute(pool, attribute, &value)`.
    ///
    /// # Errors
    /// [`Invalid::UnknownAttribute`] if the attribute is newer
    /// than the driver.
    ///
    /// Since CUDA 11.2. The documentation of each attribute says when it was introduced. Raw:
    /// [`cuMemPoolGetAttribute`](fn@cuda_sys::cuMemPoolGetAttribute).
    #[doc(alias = "cuMemPoolGetAttribute")]
    pub fn attribute<T: PoolValue, A>(&self, attribute: PoolAttribute<T, A>) -> Result<T> {
        // As large as the largest attribute. Smaller ones leave the rest zero.
        let raw = attribute.as_raw();
        // SAFETY: the pool is alive, and the pointer is to a `u64`, which is large enough for every
        // attribute.
        let value = out_without_current(self.context(), |place: *mut u64| unsafe {
            answer!(cuMemPoolGetAttribute(self.as_raw(), raw, place.cast()))
        })
        .map_err(|error| attribute.explain(error))?;
        Ok(T::from_bytes(value.to_ne_bytes()))
    }

    /// Sets an attribute of the pool.
    ///
    /// Calls `cuMemPoolSetAttribute(pool, attribute, &value)`.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE`.
    ///
    /// Since CUDA 11.2. Raw: [`cuMemPoolSetAttribute`](fn@cuda_sys::cuMemPoolSetAttribute).
    #[doc(alias = "cuMemPoolSetAttribute")]
    pub fn set_attribute<T: PoolValue>(
        &self,
        attribute: PoolAttribute<T, Settable>,
        value: T,
    ) -> Result<()> {
        self.set(attribute, value)
    }

    /// Resets a high-water mark to the current value.
    ///
    /// Calls `cuMemPoolSetAttribute(pool, attribute, 0)`.
    ///
    /// # Errors
    /// Errors from the driver.
    ///
    /// Since CUDA 11.2. Raw: [`cuMemPoolSetAttribute`](fn@cuda_sys::cuMemPoolSetAttribute).
    #[doc(alias = "cuMemPoolSetAttribute")]
    #[inline]
    pub fn reset_high_water(&self, attribute: PoolAttribute<u64, HighWater>) -> Result<()> {
        self.set(attribute, 0)
    }

    fn set<T: PoolValue, A>(&self, attribute: PoolAttribute<T, A>, value: T) -> Result<()> {
        let mut value = u64::from_ne_bytes(value.to_bytes());
        let (place, raw) = ((&raw mut value).cast(), attribute.as_raw());
        without_current(self.context(), || {
            // SAFETY: the pool is alive, and the pointer is to a local variable that holds the
            // value and is as large as the largest attribute.
            unsafe { answer!(cuMemPoolSetAttribute(self.as_raw(), raw, place)) }
        })
    }

    /// Returns unused memory to the system until at most `keep` bytes remain reserved. Allocated
    /// memory counts toward `keep`.
    ///
    /// Calls `cuMemPoolTrimTo(pool, keep)`.
    ///
    /// # Errors
    /// Errors from the driver.
    ///
    /// Since CUDA 11.2. Raw: [`cuMemPoolTrimTo`](fn@cuda_sys::cuMemPoolTrimTo).
    #[doc(alias = "cuMemPoolTrimTo")]
    #[inline]
    pub fn trim_to(&self, keep: usize) -> Result<()> {
        release::drain();
        without_current(self.context(), || {
            // SAFETY: the pool is alive.
            unsafe { answer!(cuMemPoolTrimTo(self.as_raw(), keep)) }
        })
    }
}

impl<T> DeviceBuffer<T> {
    /// Allocates stream-ordered memory from `pool` without initializing it.
    ///
    /// Calls `cuMemAllocFromPoolAsync(&address, bytes, pool, stream)`. If the pool is not on the
    /// stream's device, calls `cuMemPoolGetAccess` first to check that the device has access.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    /// - [`Invalid::NoAccessToPool`] if the stream's device cannot
    ///   write to the pool's memory.
    /// - [`Invalid::TooLarge`] if `len` elements do not fit in the
    ///   address space.
    /// - [`Invalid::StreamIsCaptured`].
    ///
    /// Since CUDA 11.2. Raw: [`cuMemAllocFromPoolAsync`](fn@cuda_sys::cuMemAllocFromPoolAsync).
    #[doc(alias = "cuMemAllocFromPoolAsync")]
    pub fn uninit_from_pool(pool: &MemoryPool, stream: &Stream, len: usize) -> Result<Self> {
        release::drain();
        let bytes = bytes_of::<T>(len)?;
        if bytes == 0 {
            return Ok(Self::own(0, len, stream, Release::Nothing));
        }
        pool.check_access(stream.context().device())?;
        let _call = stream.uncaptured(Operation::Allocate)?;
        // SAFETY: the pool and the stream are alive, and the pointer is valid.
        let address = out_without_current(stream.context(), |place| unsafe {
            answer!(cuMemAllocFromPoolAsync(place, bytes, pool.as_raw(), stream.raw()))
        })
        .map_err(|error| error.with_requested_bytes(bytes))?;
        let release = if pool.inner.is_default {
            Release::StreamOrdered
        } else {
            Release::OfPool(pool.clone())
        };
        Ok(Self::own(address, len, stream, release))
    }

    /// Allocates stream-ordered memory from `pool` and enqueues a fill that sets all bytes to 0.
    ///
    /// # Errors
    /// See [`uninit_from_pool`](Self::uninit_from_pool).
    pub fn zeroed_from_pool(pool: &MemoryPool, stream: &Stream, len: usize) -> Result<Self> {
        Self::uninit_from_pool(pool, stream, len)?.into_zeroed()
    }
}

impl Drop for Inner {
    #[inline]
    fn drop(&mut self) {
        let events = self.free_events.take();
        let never_destroyed = *self.never_destroyed.get_mut();
        let has_unrecorded_frees = *self.has_unrecorded_frees.get_mut();
        let owner = match std::mem::replace(&mut self.ownership, Ownership::Borrowed) {
            Ownership::Owned => None,
            Ownership::Foreign(owner) => Some(owner),
            Ownership::Borrowed => return,
        };
        if never_destroyed {
            count_leak();
            return std::mem::forget(owner);
        }
        let is_foreign = owner.is_some();
        if is_foreign && !has_unrecorded_frees && events.is_empty() {
            return;
        }
        let owners =
            AfterEvents { events, owner: owner.map(Arc::from), context: self.context.clone() };
        if is_foreign {
            let pool = ForeignPool { has_unrecorded_frees };
            return release(pool, &owners);
        }
        let pool = OwnedPool { raw: self.raw, has_unrecorded_frees };
        release(pool, &owners);
    }
}

/// A pool from `cuMemPoolCreate`. A driver (580) still uses a destroyed pool while frees of its memory
/// are pending, so the owners have events that were recorded after them.
struct OwnedPool {
    raw: Handle<CUmemoryPool>,
    has_unrecorded_frees: bool,
}

destroy! {
    OwnedPool as "a memory pool", leaves Object;
    // SAFETY: this value stands for the pool, and the caller promises that this is the first call.
    // The pool's memory keeps the pool alive, so that memory is freed, and the frees are complete.
    |its| unsafe { answer!(cuMemPoolDestroy(its.raw.0)) };
    #[inline]
    fn after(&self) -> After {
        after_frees(self.has_unrecorded_frees)
    }
}

/// A pool of foreign code. The driver is not called: the foreign owner is dropped with the owners, after
/// the frees are complete.
struct ForeignPool {
    has_unrecorded_frees: bool,
}

destroy! {
    ForeignPool as "the owner of a memory pool";
    |_its| Answer { call: "cuEventSynchronize", code: CUresult::CUDA_SUCCESS };
    #[inline]
    fn after(&self) -> After {
        after_frees(self.has_unrecorded_frees)
    }

    #[inline]
    fn has_leaked(&self, owners: &dyn Keep) {
        owners.leak();
    }
}

/// Returns the work after which a pool may be destroyed.
#[inline]
fn after_frees(has_unrecorded_frees: bool) -> After {
    if has_unrecorded_frees { After::AllWork } else { After::Uses }
}

/// Pools are equal if they have the same driver handle.
impl PartialEq for MemoryPool {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.as_raw() == other.as_raw()
    }
}

impl Eq for MemoryPool {}

debug_struct! {
    MemoryPool |its| { raw: its.as_raw(), location: its.inner.location, ownership: its.inner.ownership }
}

c_enum! {
    /// The access of a device to a pool's memory (`CUmemAccess_flags`).
    pub enum MemoryAccess = CUmemAccess_flags or Other {
        /// No access.
        None = CU_MEM_ACCESS_FLAGS_PROT_NONE,
        /// Read access.
        Read = CU_MEM_ACCESS_FLAGS_PROT_READ,
        /// Read and write access.
        ReadWrite = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    }
}

impl MemoryAccess {
    /// Returns this access of a location in the driver's format.
    #[inline]
    pub(crate) fn at(self, location: MemoryLocation) -> CUmemAccessDesc {
        CUmemAccessDesc { location: location.raw(), flags: self.raw() }
    }
}

impl MemoryPool {
    /// Returns how a device can access the pool's memory. Of a pool of managed memory, which all devices
    /// can use, this is only what was set.
    ///
    /// Calls `cuMemPoolGetAccess(&flags, pool, location)`.
    ///
    /// # Errors
    /// Errors from the driver.
    ///
    /// Since CUDA 11.2. Raw: [`cuMemPoolGetAccess`](fn@cuda_sys::cuMemPoolGetAccess).
    #[doc(alias = "cuMemPoolGetAccess")]
    #[inline]
    pub fn access(&self, device: &Device) -> Result<MemoryAccess> {
        let mut location = MemoryLocation::Device(*device).raw();
        let from = &raw mut location;
        // SAFETY: the pool is alive, and the pointers refer to variables, of which `out` passes one.
        let flags = out_without_current(self.context(), |place| unsafe {
            answer!(cuMemPoolGetAccess(place, self.as_raw(), from))
        })?;
        Ok(MemoryAccess::from_raw(flags))
    }

    /// Allows a device to read and write the pool's memory, including memory that is already
    /// allocated.
    ///
    /// Calls `cuMemPoolSetAccess(pool, map, 1)`.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_DEVICE` or a similar code if the device cannot access the memory.
    ///
    /// Since CUDA 11.2. Raw: [`cuMemPoolSetAccess`](fn@cuda_sys::cuMemPoolSetAccess).
    #[doc(alias = "cuMemPoolSetAccess")]
    #[inline]
    pub fn grant_access(&self, device: &Device) -> Result<()> {
        // SAFETY: this call does not revoke any access.
        unsafe { self.set_access(device, MemoryAccess::ReadWrite) }
    }

    /// Sets the access of a device to the pool's memory.
    ///
    /// Calls `cuMemPoolSetAccess(pool, map, 1)`.
    ///
    /// # Errors
    /// See [`grant_access`](Self::grant_access). Access cannot be revoked from the device on which
    /// the memory is located.
    ///
    /// # Safety
    /// If this call revokes access, no enqueued or future work on the device may use that access to
    /// memory of the pool. Such work would fail with an illegal address, after which the process
    /// cannot use the GPU any more.
    ///
    /// Since CUDA 11.2. Raw: [`cuMemPoolSetAccess`](fn@cuda_sys::cuMemPoolSetAccess).
    #[doc(alias = "cuMemPoolSetAccess")]
    #[inline]
    pub unsafe fn set_access(&self, device: &Device, access: MemoryAccess) -> Result<()> {
        let map = access.at(MemoryLocation::Device(*device));
        without_current(self.context(), || {
            // SAFETY: the pool is alive, and the pointer is to a single local variable. The caller
            // guarantees that revoked access is not used.
            unsafe { answer!(cuMemPoolSetAccess(self.as_raw(), &raw const map, 1)) }
        })
    }

    /// Returns an error unless the device can read and write the pool's memory. All devices can use managed
    /// memory, but `cuMemPoolGetAccess` says that they have no access (measured on driver 580).
    #[inline]
    fn check_access(&self, device: Device) -> Result<()> {
        let is_there = self.inner.location == Some(MemoryLocation::Device(device));
        if is_there || self.inner.is_managed {
            return Ok(());
        }
        match self.access(&device)? {
            MemoryAccess::ReadWrite | MemoryAccess::Other(_) => Ok(()),
            MemoryAccess::None | MemoryAccess::Read => {
                let its = self.inner.location.map(|its| its.to_string());
                Err(Invalid::NoAccessToPool {
                    pool: its.unwrap_or_else(|| "an unknown location".to_owned()),
                    device: device.ordinal(),
                }
                .into())
            }
        }
    }
}

impl Device {
    /// Returns the handle of the device's current pool, which the device allocates from.
    ///
    /// Calls `cuDeviceGetMemPool(&pool, device)`. The current pool is the default pool or one that
    /// other code has set and may destroy at any time. The handle is therefore suited to
    /// comparisons. Pass it to [`MemoryPool::borrow_raw`] only if you know how long the pool stays
    /// alive.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_SUPPORTED` on devices without memory pools.
    ///
    /// Since CUDA 11.2. Raw: [`cuDeviceGetMemPool`](fn@cuda_sys::cuDeviceGetMemPool).
    #[doc(alias = "cuDeviceGetMemPool")]
    #[inline]
    pub fn memory_pool(&self) -> Result<CUmemoryPool> {
        // SAFETY: `out` passes a valid pointer.
        out(|place| unsafe { call!(cuDeviceGetMemPool(place, self.as_raw())) })
    }

    /// Sets the device's current pool, which the whole process allocates from until another pool is
    /// set.
    ///
    /// Calls `cuDeviceSetMemPool(device, pool)`. From then on, the pool is never destroyed.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for a pool of another location.
    ///
    /// Since CUDA 11.2. Raw: [`cuDeviceSetMemPool`](fn@cuda_sys::cuDeviceSetMemPool).
    #[doc(alias = "cuDeviceSetMemPool")]
    #[inline]
    pub fn set_memory_pool(&self, pool: &MemoryPool) -> Result<()> {
        // SAFETY: the pool is alive, and is never destroyed after this call.
        unsafe { call!(cuDeviceSetMemPool(self.as_raw(), pool.as_raw())) }?;
        pool.never_destroy();
        Ok(())
    }
}

impl MemoryPool {
    /// Returns the driver's default pool for a location, of memory that stays there or of managed
    /// memory. It is never destroyed.
    ///
    /// Calls `cuMemGetDefaultMemPool(&pool, location, type)`.
    ///
    /// # Errors
    /// - `CUDA_ERROR_NOT_SUPPORTED` or `CUDA_ERROR_INVALID_VALUE` for a location without a default
    ///   pool.
    /// - [`Error::Missing`](crate::Error::Missing) on a driver before CUDA 13.0.
    ///
    /// Since CUDA 13.0. Raw: [`cuMemGetDefaultMemPool`](fn@cuda_sys::cuMemGetDefaultMemPool).
    #[doc(alias = "cuMemGetDefaultMemPool")]
    #[inline]
    pub fn default_at(context: &Context, location: MemoryLocation, managed: bool) -> Result<Self> {
        let (mut at, kind) = (location.raw(), allocation_type(managed));
        let current = context.enter()?;
        // SAFETY: `out` passes a valid pointer, and the other one is to a local variable.
        let raw = out(|place| unsafe { call!(cuMemGetDefaultMemPool(place, &raw mut at, kind)) })?;
        drop(current);
        let mut pool = Self::drivers(raw, context, Some(location));
        pool.set_managed(managed);
        Ok(pool)
    }

    /// Makes this the current pool of a location, as [`Device::set_memory_pool`] does for a device.
    ///
    /// Calls `cuMemSetMemPool(location, type, pool)`. From then on, the pool is never destroyed.
    ///
    /// # Errors
    /// - `CUDA_ERROR_INVALID_VALUE` if the pool is not of this location and kind.
    /// - [`Error::Missing`](crate::Error::Missing) on a driver before CUDA 13.0.
    ///
    /// Since CUDA 13.0. Raw: [`cuMemSetMemPool`](fn@cuda_sys::cuMemSetMemPool).
    #[doc(alias = "cuMemSetMemPool")]
    #[inline]
    pub fn set_current_at(&self, location: MemoryLocation, managed: bool) -> Result<()> {
        let (mut place, kind) = (location.raw(), allocation_type(managed));
        let _current = self.context().enter()?;
        // SAFETY: the pool is alive, and is never destroyed after this call. The pointer refers to a
        // local variable.
        unsafe { call!(cuMemSetMemPool(&raw mut place, kind, self.as_raw())) }?;
        self.never_destroy();
        Ok(())
    }

    /// Returns the handle of the current pool of a location.
    ///
    /// Calls `cuMemGetMemPool(&pool, location, type)`. Other code may destroy the pool at any time.
    /// See [`Device::memory_pool`].
    ///
    /// # Errors
    /// See [`default_at`](Self::default_at).
    ///
    /// Since CUDA 13.0. Raw: [`cuMemGetMemPool`](fn@cuda_sys::cuMemGetMemPool).
    #[doc(alias = "cuMemGetMemPool")]
    #[inline]
    pub fn current_at(
        context: &Context,
        location: MemoryLocation,
        managed: bool,
    ) -> Result<CUmemoryPool> {
        let (mut at, kind) = (location.raw(), allocation_type(managed));
        let _current = context.enter()?;
        // SAFETY: `out` passes a valid pointer, and the other one is to a local variable.
        out(|place| unsafe { call!(cuMemGetMemPool(place, &raw mut at, kind)) })
    }
}

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
    fn props(self, device: Device) -> Result<CUmemPoolProps> {
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
        let usage = if hw_decompress { CU_MEM_POOL_CREATE_USAGE_HW_DECOMPRESS } else { 0 };
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
fn allocation_type(managed: bool) -> CUmemAllocationType {
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
    refuse_if!(supported & its.0 == 0 || !cfg!(unix), Invalid::PoolHandles { supported });
    Ok(its)
}
