//! Contexts, and the context stack of each thread.

mod create;
mod extension;
mod guard;
mod handle;
mod reuse;
mod settings;

pub use create::GraphicsClient;
pub(crate) use extension::{Extension, set_factory, set_first_factory};
pub use guard::CurrentContext;
pub(crate) use handle::{PinnedMemory, SyncMemory};
pub(crate) use reuse::{Reserve, all_reserves, clear_reserves};
pub use settings::{CachePreference, Limit, RdmaScope};

use crate::call::{
    Ownership, Result, call, expect_handle, init, newest_or, out, refuse_in_host_function,
    with_raw_current,
};
use crate::device::Device;
use crate::release::{self, Handle, create};
use crate::sync::Mutex;
use bitflags::bitflags;
use cuda_sys::{CUcontext, CUctx_flags};
use extension::Slot;
use handle::{ContextRelease, Origin};
use reuse::Reserves;
use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A CUDA context (`CUcontext`): the container of memory, modules, streams and events on one device.
///
/// Most programs use the primary context of a device, which [`Context::primary`] returns.
/// [`Context::new`] creates a separate context.
///
/// A `Context` is a *floating* context: it is not current on any thread, and every thread can use it.
/// Functions that need a current context make it current for the duration of the call, and then restore
/// the context stack of the thread. To keep it current for longer, for example for a library that uses
/// the runtime API, use [`with_current`](Self::with_current). A program that owns its threads can use
/// [`bind_to_thread`](Self::bind_to_thread).
///
/// Clones share the context. Every object that is created in the context owns a clone, so the context is
/// released after all of its objects, in whatever order they are dropped. Two `Context` values are equal
/// if they are the same context.
///
/// ```no_run
/// use cuda_safe::{Context, Device};
///
/// let context = Context::primary(&Device::get(0)?)?;
/// let stream = context.stream()?;
/// stream.synchronize()?;
/// # Ok::<_, cuda_safe::Error>(())
/// ```
#[derive(Clone)]
pub struct Context {
    inner: Arc<Inner>,
}

struct Inner {
    raw: CUcontext,
    device: Device,
    /// The context ID, unique in the process. `None` on drivers before 12.0.
    id: Option<u64>,
    /// Whether the slot is filled.
    is_extended: bool,
    /// The extension slot, shared by all objects of this context. `None` in the context object that the
    /// extension itself uses. This field is dropped before `release`.
    slot: Option<Arc<Slot>>,
    /// Shared with the context objects of the extension and of the caches.
    release: Arc<ContextRelease>,
    /// The address of the release.
    address: usize,
    reserves: Reserves,
}

impl Drop for Inner {
    #[inline]
    fn drop(&mut self) {
        self.reserves.close();
    }
}

// SAFETY: any thread may use a context, because the driver locks internally, and a context is current
// on a thread only while a guard, which is not `Send`, makes it current.
unsafe impl Send for Inner {}
// SAFETY: see the argument for `Send`.
unsafe impl Sync for Inner {}

bitflags! {
    /// Flags of a context (`CUctx_flags`): the waiting method of threads, and optional features.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct ContextFlags: u32 {
        /// Spin while waiting: the lowest latency, but one core is busy.
        const SCHED_SPIN = CUctx_flags::CU_CTX_SCHED_SPIN.0;
        /// Yield the core while waiting.
        const SCHED_YIELD = CUctx_flags::CU_CTX_SCHED_YIELD.0;
        /// Sleep while waiting.
        const SCHED_BLOCKING_SYNC = CUctx_flags::CU_CTX_SCHED_BLOCKING_SYNC.0;
        /// Allow pinned memory that is mapped into the device (always on with unified addressing).
        const MAP_HOST = CUctx_flags::CU_CTX_MAP_HOST.0;
        /// Keep local memory at the largest size that a launch needed.
        const LMEM_RESIZE_TO_MAX = CUctx_flags::CU_CTX_LMEM_RESIZE_TO_MAX.0;
        /// Create a core dump of the device when a kernel fails. Since CUDA 12.1.
        const COREDUMP_ENABLE = CUctx_flags::CU_CTX_COREDUMP_ENABLE.0;
        /// Create a core dump on a write to the pipe of `cuCoredumpGetAttribute`. Since CUDA 12.1.
        const USER_COREDUMP_ENABLE = CUctx_flags::CU_CTX_USER_COREDUMP_ENABLE.0;
        /// Synchronous memory operations always wait until they are complete. Since CUDA 12.1.
        const SYNC_MEMOPS = CUctx_flags::CU_CTX_SYNC_MEMOPS.0;
        // Unknown flags of newer drivers are preserved.
        const _ = !0;
    }
}

impl Context {
    /// Returns the primary context of a device. Calls `cuDevicePrimaryCtxRetain`.
    ///
    /// A device has one primary context per process, which the runtime API and its libraries use, too.
    /// The first retain in a process initializes the context, which takes about 100 ms. The context is
    /// released when the last clone and the last object in it are dropped.
    ///
    /// Other code in the process can reset the primary context (`cuDevicePrimaryCtxReset`,
    /// `cudaDeviceReset`). A reset destroys all objects in it, including those of this crate, so other
    /// code must not do this.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY`; `CUDA_ERROR_DEVICE_UNAVAILABLE` (exclusive mode); a fatal error of
    /// earlier work.
    ///
    /// Since CUDA 7.0. Raw: [`cuDevicePrimaryCtxRetain`](fn@cuda_sys::cuDevicePrimaryCtxRetain),
    /// [`cuDevicePrimaryCtxRelease_v2`](fn@cuda_sys::cuDevicePrimaryCtxRelease_v2).
    #[doc(alias = "cuDevicePrimaryCtxRetain", alias = "cuDevicePrimaryCtxRelease")]
    #[inline]
    pub fn primary(device: &Device) -> Result<Self> {
        // SAFETY: the device handle comes from the driver, and `create` passes a valid pointer.
        let raw =
            create(|place| unsafe { call!(cuDevicePrimaryCtxRetain(place, device.as_raw())) })?;
        Ok(Self::from_parts(raw, *device, Origin::Primary))
    }

    /// Takes ownership of a context. The context is destroyed when the last clone is dropped.
    ///
    /// # Errors
    /// The device of the context cannot be queried. The caller then keeps the ownership.
    ///
    /// # Safety
    /// - `raw` is a live context that was created with `cuCtxCreate`.
    /// - No other code destroys the context, or uses its objects after the last clone is dropped.
    /// - When the last clone is dropped, the context is not on the context stack of any thread.
    #[inline]
    pub unsafe fn from_raw(raw: CUcontext) -> Result<Self> {
        Ok(Self::from_parts(raw, device_of(raw)?, Origin::Other(Ownership::Owned)))
    }

    /// Borrows a context that other code owns, such as the runtime API, PyTorch or a C library. This
    /// crate never releases it.
    ///
    /// The release of an object in a borrowed context cannot be deferred, because this crate does not
    /// know how long the context lives. An object that is dropped in a host function, on a driver
    /// callback thread or while its stream is captured is therefore leaked and reported, and so are the
    /// [cached events](crate::Event#reuse) if the last clone is dropped in a host function. Use
    /// [`from_foreign`](Self::from_foreign) to avoid this: its owner stays alive until the deferred
    /// release.
    ///
    /// # Errors
    /// The device of the context cannot be queried.
    ///
    /// # Safety
    /// - `raw` is a context, but not the context of a green context (`cuCtxFromGreenCtx`).
    /// - The context stays alive until the last clone and every object in it is dropped. (Objects that
    ///   this crate has leaked are not used any more.)
    /// - When the context is destroyed, it is not on the context stack of any thread. A
    ///   [guard](CurrentContext) that could not pop, or that was forgotten, leaves it there. A thread to
    ///   which a clone is [bound](Self::bind_to_thread) keeps the clone until the thread ends.
    #[inline]
    pub unsafe fn borrow_raw(raw: CUcontext) -> Result<Self> {
        Ok(Self::from_parts(raw, device_of(raw)?, Origin::Other(Ownership::Borrowed)))
    }

    /// Borrows a context that `owner` keeps alive. This crate never releases the context. It drops
    /// `owner` after the last clone and every object in the context.
    ///
    /// # Errors
    /// The device of the context cannot be queried. On an error, `owner` is dropped; to keep it, pass a
    /// clone of an `Arc`.
    ///
    /// # Safety
    /// `raw` is a context, but not the context of a green context (`cuCtxFromGreenCtx`). It stays alive
    /// as long as `owner`.
    pub unsafe fn from_foreign(raw: CUcontext, owner: impl Any + Send + Sync) -> Result<Self> {
        let device = device_of(raw)?;
        let ownership = Ownership::Foreign(Box::new(owner));
        Ok(Self::from_parts(raw, device, Origin::Other(ownership)))
    }

    /// Whether the lifetime of the context depends only on a promise of the caller.
    #[inline]
    pub(crate) fn depends_on_borrowed(&self) -> bool {
        matches!(self.inner.release.origin, Origin::Other(Ownership::Borrowed) | Origin::Client)
    }

    #[inline]
    fn from_parts(raw: CUcontext, device: Device, origin: Origin) -> Self {
        let id = id_of(raw);
        let release = Arc::new(ContextRelease { raw: Handle(raw), device, origin });
        Self::of_release(release, id, Some(Slot::of(raw, id)), Reserves::Own(Mutex::default()))
    }

    /// Creates an object for a context, which is released after all objects with this release.
    #[inline]
    fn of_release(
        release: Arc<ContextRelease>,
        id: Option<u64>,
        slot: Option<Arc<Slot>>,
        reserves: Reserves,
    ) -> Self {
        let ContextRelease { raw: Handle(raw), device, .. } = *release;
        let address = Arc::as_ptr(&release).addr();
        let is_extended = slot.as_ref().is_some_and(|slot| !slot.is_empty());
        let inner = Inner { raw, device, id, is_extended, slot, release, address, reserves };
        Self { inner: Arc::new(inner) }
    }

    /// Returns the same context for use by its extension: objects in it do not keep the extension alive.
    #[inline]
    pub(crate) fn without_extension(&self) -> Self {
        match self.inner.is_extended {
            true => self.sharing_release(None, Reserves::None),
            // The slot is empty, or this is such an object already.
            false => self.clone(),
        }
    }

    /// Returns another object for the same context, which is released after both.
    #[inline]
    fn sharing_release(&self, slot: Option<Arc<Slot>>, reserves: Reserves) -> Self {
        Self::of_release(Arc::clone(&self.inner.release), self.inner.id, slot, reserves)
    }

    /// Returns the extension slot, or `None` if it is empty.
    #[inline]
    fn slot(&self) -> Option<&Slot> {
        if self.inner.is_extended { self.inner.slot.as_deref() } else { None }
    }

    /// The context of a green context (`cuCtxFromGreenCtx`). `owner` keeps the green context alive,
    /// also if the context stays on a context stack.
    pub(crate) fn view(raw: CUcontext, device: Device, owner: impl Any + Send + Sync) -> Self {
        let origin = Origin::Other(Ownership::Foreign(Box::new(owner)));
        let release = Arc::new(ContextRelease { raw: Handle(raw), device, origin });
        Self::of_release(release, id_of(raw), None, Reserves::None)
    }

    /// Returns the device of the context. `cuCtxGetDevice` was called once, when this object was
    /// created.
    ///
    /// Since CUDA 2.0. Raw: [`cuCtxGetDevice_v2`](fn@cuda_sys::cuCtxGetDevice_v2).
    #[doc(alias = "cuCtxGetDevice")]
    #[inline]
    pub fn device(&self) -> Device {
        self.inner.device
    }

    /// Returns the ID of the context, which is unique in the process, including later contexts. Returns
    /// `None` on drivers without `cuCtxGetId`.
    ///
    /// Since CUDA 12.0. Raw: [`cuCtxGetId`](fn@cuda_sys::cuCtxGetId).
    #[doc(alias = "cuCtxGetId")]
    #[inline]
    pub fn id(&self) -> Option<u64> {
        self.inner.id
    }

    /// Returns the driver handle. The object keeps the ownership: do not destroy the handle. If raw
    /// calls make the context current, remove it from every context stack before the last clone is
    /// dropped.
    #[inline]
    pub fn as_raw(&self) -> CUcontext {
        self.inner.raw
    }

    /// Returns the handle and leaks the context: the context and its objects stay alive until the
    /// process ends.
    #[inline]
    pub fn into_raw(self) -> CUcontext {
        let raw = self.as_raw();
        std::mem::forget(self);
        raw
    }

    /// Waits until all work of the context and of its green contexts is complete. Calls
    /// `cuCtxSynchronize`.
    ///
    /// # Errors
    /// The errors of that work.
    ///
    /// Since CUDA 2.0 (from 13.0 on through `cuCtxSynchronize_v2`). Raw:
    /// [`cuCtxSynchronize_v2`](fn@cuda_sys::cuCtxSynchronize_v2).
    #[doc(alias = "cuCtxSynchronize")]
    #[inline]
    pub fn synchronize(&self) -> Result<()> {
        refuse_in_host_function()?;
        release::drain();
        self.wait_for_work()
    }

    /// [`synchronize`](Self::synchronize) without attempting deferred releases, for use during a
    /// release.
    #[inline]
    pub(crate) fn wait_for_work(&self) -> Result<()> {
        refuse_in_host_function()?;
        newest_or(
            // SAFETY: the context is alive.
            unsafe { call!(cuCtxSynchronize_v2(self.as_raw())) },
            || {
                let _current = self.enter()?;
                // SAFETY: no arguments; the current context is this one.
                unsafe { call!(cuCtxSynchronize()) }
            },
        )
    }

    /// Returns the free and the total device memory, in bytes. Calls `cuMemGetInfo`.
    ///
    /// # Errors
    /// Only the errors that every call can return. See [`Error`](crate::Error).
    ///
    /// Since CUDA 3.2. Raw: [`cuMemGetInfo_v2`](fn@cuda_sys::cuMemGetInfo_v2).
    #[doc(alias = "cuMemGetInfo")]
    #[inline]
    pub fn memory_info(&self) -> Result<MemoryInfo> {
        let (mut free, mut total) = (0, 0);
        let _current = self.enter()?;
        // SAFETY: the pointers refer to locals.
        unsafe { call!(cuMemGetInfo_v2(&raw mut free, &raw mut total)) }?;
        Ok(MemoryInfo { free, total })
    }
}

/// Amounts of device memory, returned by [`Context::memory_info`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Bytes that are free for allocations of all processes.
    pub free: usize,
    /// Bytes of the whole device.
    pub total: usize,
}

/// Returns the ID of a context, or `None` before CUDA 12.0.
#[inline]
fn id_of(raw: CUcontext) -> Option<u64> {
    // SAFETY: the context is alive, and `out` passes a valid pointer. (Before 12.0 there are no IDs, and
    // the call returns an error.)
    out(|place| unsafe { call!(cuCtxGetId(raw, place)) }).ok()
}

/// Returns the device of a live context.
#[inline]
pub(crate) fn device_of(raw: CUcontext) -> Result<Device> {
    init::init()?;
    expect_handle("context", raw)?;
    let number = out(|place| {
        newest_or(
            // SAFETY: the pointer is valid. (Newer drivers return an error for an invalid context.)
            unsafe { call!(cuCtxGetDevice_v2(place, raw)) },
            // SAFETY: the pointer is valid.
            || with_raw_current(raw, || unsafe { call!(cuCtxGetDevice(place)) }),
        )
    })?;
    Ok(Device::unchecked(number))
}

impl PartialEq for Context {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        // The common case: both are clones of one object.
        self.is_clone_of(other) || self.is_same(other)
    }
}

impl Context {
    /// Returns whether both are clones of one object.
    #[inline]
    pub(crate) fn is_clone_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Returns the address that all context objects which release the context together have in common,
    /// as long as one of them is alive.
    #[inline]
    pub(crate) fn address(&self) -> usize {
        self.inner.address
    }

    #[inline(never)]
    fn is_same(&self, other: &Self) -> bool {
        let same_id = match (self.inner.id, other.inner.id) {
            (Some(id), Some(other_id)) => id == other_id,
            // If an ID is not known, only the handles can be compared.
            _ => true,
        };
        self.inner.raw == other.inner.raw && same_id
    }
}

impl Eq for Context {}

impl Hash for Context {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.raw.hash(state);
    }
}

impl fmt::Debug for Context {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.inner.release.origin {
            Origin::Primary => "primary",
            Origin::Other(Ownership::Owned) | Origin::Client => "created",
            Origin::Other(Ownership::Foreign(_)) => "foreign",
            Origin::Other(Ownership::Borrowed) => "borrowed",
        };
        f.debug_struct("Context")
            .field("kind", &kind)
            .field("device", &self.inner.device)
            .field("id", &self.inner.id)
            .field("raw", &self.inner.raw)
            .finish()
    }
}

/// For error texts, for example `the primary context of device 0 (id 1)`.
impl fmt::Display for Context {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.inner.release.origin {
            Origin::Primary => "the primary context",
            _ => "a context",
        };
        write!(f, "{kind} of device {}", self.inner.device.ordinal())?;
        match self.inner.id {
            Some(id) => write!(f, " (id {id})"),
            None => write!(f, " ({:p})", self.inner.raw),
        }
    }
}

/// The state of the primary context of a device, returned by [`Device::primary_state`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrimaryState {
    /// Whether any code in this process retains the context.
    pub active: bool,
    /// The current flags, or the flags for the next initialization.
    pub flags: ContextFlags,
}

impl Device {
    /// Returns whether the primary context is active, and its flags. Calls `cuDevicePrimaryCtxGetState`.
    ///
    /// # Errors
    /// Only the errors that every call can return. See [`Error`](crate::Error).
    ///
    /// Since CUDA 7.0. Raw: [`cuDevicePrimaryCtxGetState`](fn@cuda_sys::cuDevicePrimaryCtxGetState).
    #[doc(alias = "cuDevicePrimaryCtxGetState")]
    #[inline]
    pub fn primary_state(&self) -> Result<PrimaryState> {
        let (mut flags, mut active) = (0, 0);
        let (flags_out, active_out) = (&raw mut flags, &raw mut active);
        // SAFETY: the pointers refer to locals.
        unsafe { call!(cuDevicePrimaryCtxGetState(self.as_raw(), flags_out, active_out)) }?;
        Ok(PrimaryState { active: active != 0, flags: ContextFlags::from_bits_retain(flags) })
    }

    /// Sets the flags of the primary context for all code that uses it. Calls
    /// `cuDevicePrimaryCtxSetFlags`.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for flags that exclude each other.
    ///
    /// Since CUDA 7.0; before 11.0 only while no code retains the context. Raw:
    /// [`cuDevicePrimaryCtxSetFlags_v2`](fn@cuda_sys::cuDevicePrimaryCtxSetFlags_v2).
    #[doc(alias = "cuDevicePrimaryCtxSetFlags")]
    #[inline]
    pub fn set_primary_flags(&self, flags: ContextFlags) -> Result<()> {
        // SAFETY: both arguments are integers.
        unsafe { call!(cuDevicePrimaryCtxSetFlags_v2(self.as_raw(), flags.bits())) }
    }

    /// Destroys all objects that any code in this process created in the primary context. Calls
    /// `cuDevicePrimaryCtxReset`.
    ///
    /// A reset does not clear a fatal error: the call succeeds (driver 580), but later calls still fail.
    ///
    /// Before the reset, this function attempts the [deferred releases](crate::deferred_releases),
    /// destroys the [cached events](crate::event::cached), and
    /// [resets](crate::manager::MemoryManager::reset) the [memory manager](crate::manager) of the
    /// context.
    ///
    /// # Errors
    /// Only the errors that every call can return. See [`Error`](crate::Error).
    ///
    /// # Safety
    /// - No object that was created in the primary context of the device, by this crate or any other
    ///   code in the process, is used afterwards. It must not even be dropped: the driver crashes on
    ///   some uses of destroyed handles.
    /// - The context is not on the context stack of any thread, and is not
    ///   [bound](crate::Context::bind_to_thread) to a thread.
    ///
    /// Since CUDA 7.0. Raw: [`cuDevicePrimaryCtxReset_v2`](fn@cuda_sys::cuDevicePrimaryCtxReset_v2).
    #[doc(alias = "cuDevicePrimaryCtxReset")]
    #[inline]
    pub unsafe fn reset_primary(&self) -> Result<()> {
        // Releases must run before the reset destroys the handles.
        release::drain();
        clear_reserves();
        extension::reset_primary(*self);
        // SAFETY: the caller guarantees that no object of the context is used afterwards.
        unsafe { call!(cuDevicePrimaryCtxReset_v2(self.as_raw())) }
    }
}

impl Context {
    /// Allows kernels of this context to access synchronous allocations of `peer`, a context of another
    /// device. Calls `cuCtxEnablePeerAccess`.
    ///
    /// Access is one-way: enable it separately for the opposite direction. It does not apply to
    /// stream-ordered memory, whose pool controls the access. Copies do not need peer access.
    ///
    /// # Errors
    /// `CUDA_ERROR_PEER_ACCESS_UNSUPPORTED` (see
    /// [`Device::can_access_peer`](crate::Device::can_access_peer));
    /// `CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED`; `CUDA_ERROR_TOO_MANY_PEERS`.
    ///
    /// Since CUDA 4.0. Raw: [`cuCtxEnablePeerAccess`](fn@cuda_sys::cuCtxEnablePeerAccess).
    #[doc(alias = "cuCtxEnablePeerAccess")]
    #[inline]
    pub fn enable_peer_access(&self, peer: &Self) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: both contexts are alive, and this one is current.
        unsafe { call!(cuCtxEnablePeerAccess(peer.as_raw(), 0)) }
    }

    /// Revokes the access that [`enable_peer_access`](Self::enable_peer_access) allowed. Calls
    /// `cuCtxDisablePeerAccess`.
    ///
    /// # Errors
    /// `CUDA_ERROR_PEER_ACCESS_NOT_ENABLED`.
    ///
    /// # Safety
    /// No work that uses memory of `peer` is in progress in this context or is enqueued in it later.
    ///
    /// Since CUDA 4.0. Raw: [`cuCtxDisablePeerAccess`](fn@cuda_sys::cuCtxDisablePeerAccess).
    #[doc(alias = "cuCtxDisablePeerAccess")]
    #[inline]
    pub unsafe fn disable_peer_access(&self, peer: &Self) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: both contexts are alive, and this one is current. The caller guarantees that no work
        // uses the memory.
        unsafe { call!(cuCtxDisablePeerAccess(peer.as_raw())) }
    }
}
