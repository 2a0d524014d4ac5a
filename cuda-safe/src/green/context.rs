//! Green contexts.

use super::descriptor::Descriptor;
use super::pool::is_leased;
use super::resource::{Description, SmGroup};
use crate::call::{
    Invalid, Ownership, Rejected, Result, answer, call, debug, expect_handle, fork, newest_or, out,
    out_without_current, refuse_if,
};
use crate::context::Context;
use crate::device::Device;
use crate::launch::{LaunchAttributes, LaunchConfig};
use crate::module::Kernel;
use crate::release::{self, Handle, Keep, attempts, destroy, owners, release};
use crate::stream::{DefaultStream, ExecutionContext, Partition, Stream, StreamOptions};
use crate::sync::{Mutex, MutexGuard, lock};
use cuda_sys::{CUdevResource, CUdevResourceType, CUgreenCtx};
use std::any::Any;
use std::fmt;
use std::sync::{Arc, Weak};
use std::thread::ThreadId;

/// A green context (`CUgreenCtx`): a partition of a device's SMs.
///
/// Create one with [`GreenContext::new`]. Work on its [streams](Self::stream) runs on the partition's
/// SMs.
///
/// Clones share the green context. Two green contexts are equal if they have the same handle. Its streams
/// keep it alive, and it keeps its groups and the device's primary context alive. Destroying it waits for
/// nothing (driver 580): work that was enqueued on its streams still completes.
///
/// ```no_run
/// use cuda_safe::green::{GreenContext, SmResource, SplitByCount};
/// use cuda_safe::{Device, DeviceBuffer};
///
/// let split = SmResource::of_device(&Device::get(0)?)?.split_by_count(SplitByCount {
///     min: 16,
///     max_groups: Some(1),
///     label: "decoding".to_owned(),
///     ..Default::default()
/// })?;
/// let partition = GreenContext::new(split.groups)?;
/// let stream = partition.stream()?;
/// // Memory and kernels are those of the device's primary context.
/// let buffer = DeviceBuffer::<f32>::zeroed(&stream, 1000)?;
/// assert_eq!(stream.context(), partition.context());
/// # Ok::<_, cuda_safe::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct GreenContext {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    raw: CUgreenCtx,
    ownership: Ownership,
    /// Whether the green context, or an object that it depends on, is borrowed: the caller only
    /// promised to keep it alive.
    is_borrowed: bool,
    pub(super) sm_count: u32,
    calls: Arc<CallState>,
    kept: Arc<Kept>,
}

/// The objects that a green context keeps alive until it is destroyed.
struct Kept {
    #[allow(dead_code, reason = "held, not read: the SMs are in use")]
    descriptor: Descriptor,
    primary: Context,
}

// SAFETY: the handle may be used on any thread. Calls that take it hold the lock, and its view is
// current on one thread at a time, which is recorded under the lock.
unsafe impl Send for Inner {}
// SAFETY: see `Send`.
unsafe impl Sync for Inner {}

impl GreenContext {
    /// Creates a partition of all SMs of one or more groups of one split. The remainder of the split
    /// counts as a group.
    ///
    /// A [`Descriptor`] accepts workqueues and flags too.
    ///
    /// # Errors
    /// See [`Descriptor::create`]. On an error, the groups are dropped. [`try_new`](Self::try_new)
    /// returns them with the error.
    ///
    /// Since CUDA 12.4; several groups since 12.5.
    pub fn new(groups: impl IntoIterator<Item = SmGroup>) -> Result<Self> {
        Ok(Self::try_new(groups)?)
    }

    /// Does the same as [`new`](Self::new), but returns the groups with the error.
    ///
    /// # Errors
    /// See [`new`](Self::new).
    pub fn try_new(
        groups: impl IntoIterator<Item = SmGroup>,
    ) -> Result<Self, Rejected<Vec<SmGroup>>> {
        let created = Descriptor::new(groups).try_create();
        created.map_err(|rejected| Rejected::new(rejected.error, rejected.value.into_groups()))
    }

    /// Takes ownership of a handle that was just created from `descriptor`.
    #[inline]
    pub(super) fn own(raw: CUgreenCtx, primary: Context, descriptor: Descriptor) -> Self {
        Self::wrap(raw, Ownership::Owned, primary, descriptor)
    }

    /// Takes ownership of `raw`. The green context is destroyed when its last clone and its last stream
    /// are dropped.
    ///
    /// This crate does not know the SMs of such a green context: they may overlap with those of a
    /// [split](super::SmResource::split_by_count).
    ///
    /// # Errors
    /// [`Invalid::Handle`] if `raw` is null.
    ///
    /// # Safety
    /// `raw` must be a live green context on the device of `primary`, and `primary` must be that
    /// device's primary context. No other code destroys the green context, or uses its objects after
    /// it is destroyed. It must not be on any thread's context stack by then.
    #[inline]
    pub unsafe fn from_raw(raw: CUgreenCtx, primary: &Context) -> Result<Self> {
        Self::wrap_foreign(raw, Ownership::Owned, primary)
    }

    /// Wraps a green context that foreign code owns, such as PyTorch or a C library. It is never
    /// destroyed here.
    ///
    /// # Errors
    /// [`Invalid::Handle`] if `raw` is null.
    ///
    /// # Safety
    /// `raw` must be a green context on the device of `primary`, and `primary` must be that device's
    /// primary context. `raw` must stay alive until the last clone of the returned object and every
    /// stream created from it are dropped. It must not be on any thread's context stack by then.
    #[inline]
    pub unsafe fn borrow_raw(raw: CUgreenCtx, primary: &Context) -> Result<Self> {
        Self::wrap_foreign(raw, Ownership::Borrowed, primary)
    }

    /// Wraps a green context that `owner` keeps alive. It is never destroyed here.
    ///
    /// `owner` is dropped after the last clone of the returned object and every stream created from it.
    ///
    /// # Errors
    /// [`Invalid::Handle`] if `raw` is null. `owner` is then dropped.
    ///
    /// # Safety
    /// `raw` must be a green context on the device of `primary`, and `primary` must be that device's
    /// primary context. `raw` must stay alive as long as `owner` does.
    pub unsafe fn from_foreign(
        raw: CUgreenCtx,
        primary: &Context,
        owner: impl Any + Send + Sync,
    ) -> Result<Self> {
        Self::wrap_foreign(raw, Ownership::Foreign(Box::new(owner)), primary)
    }

    /// Wraps a green context that foreign code created.
    #[inline]
    fn wrap_foreign(raw: CUgreenCtx, ownership: Ownership, primary: &Context) -> Result<Self> {
        expect_handle("green context", raw)?;
        Ok(Self::wrap(raw, ownership, primary.clone(), Descriptor::default()))
    }

    /// Returns the green context of a stream, or `None` if the stream belongs to no green context.
    /// Calls `cuStreamGetGreenCtx`.
    ///
    /// A green context that was not created here is never destroyed here; the returned object keeps the
    /// stream alive.
    ///
    /// # Errors
    /// The driver is too old; [`Invalid::StreamOfPool`].
    ///
    /// Since CUDA 12.4. Raw: [`cuStreamGetGreenCtx`](fn@cuda_sys::cuStreamGetGreenCtx).
    #[doc(alias = "cuStreamGetGreenCtx")]
    #[inline]
    pub fn of_stream(stream: &Stream) -> Result<Option<Self>> {
        refuse_if!(is_leased(stream), Invalid::StreamOfPool);
        Self::of_any_stream(stream)
    }

    /// Returns the green context of any stream, including a stream of a pool. The caller must not
    /// create streams from it, because the pool would not know about them.
    #[inline]
    pub(super) fn of_any_stream(stream: &Stream) -> Result<Option<Self>> {
        if let Some(green) = stream.green_context() {
            return Ok(Some(green));
        }
        // SAFETY: the stream is alive, and `out` passes a valid pointer.
        let raw = out_without_current(stream.context(), |place| unsafe {
            answer!(cuStreamGetGreenCtx(stream.raw(), place))
        })?;
        if raw.is_null() {
            return Ok(None);
        }
        // A stream is unusable without its green context, so the owner of the stream also keeps the
        // green context alive.
        let ownership = Ownership::Foreign(Box::new(stream.clone()));
        let primary = stream.context().clone();
        let mut green = Self::wrap(raw, ownership, primary, Descriptor::default());
        if let Some(inner) = Arc::get_mut(&mut green.inner) {
            inner.is_borrowed = stream.is_borrowed();
        }
        Ok(Some(green))
    }

    #[inline]
    fn wrap(
        raw: CUgreenCtx,
        ownership: Ownership,
        primary: Context,
        descriptor: Descriptor,
    ) -> Self {
        let mut inner = Inner {
            raw,
            is_borrowed: matches!(ownership, Ownership::Borrowed) || primary.is_borrowed(),
            ownership,
            sm_count: descriptor.sm_count(),
            calls: lock_of(raw),
            kept: Arc::new(Kept { descriptor, primary }),
        };
        // The driver's count takes precedence, so that a caller sees a difference.
        if let Some(count) = inner.query_sm_count() {
            inner.sm_count = count;
        }
        let inner = Arc::new(inner);
        Self { inner }
    }

    /// Returns the green context as its streams keep it.
    #[inline]
    pub(super) fn partition(&self) -> Arc<dyn Partition> {
        Arc::<Inner>::clone(&self.inner)
    }

    /// Returns the raw handle without giving up ownership. Do not destroy it.
    #[inline]
    pub fn as_raw(&self) -> CUgreenCtx {
        self.inner.raw
    }

    /// Releases ownership and returns the raw handle. This crate never destroys the green context; the
    /// green context, its groups and its primary context stay alive until the process exits.
    #[inline]
    pub fn into_raw(self) -> CUgreenCtx {
        let raw = self.as_raw();
        std::mem::forget(self);
        raw
    }

    /// Returns the device.
    #[inline]
    pub fn device(&self) -> Device {
        self.context().device()
    }

    /// Returns the device's primary context. Memory and kernels used on this partition belong to it.
    #[inline]
    pub fn context(&self) -> &Context {
        self.inner.context()
    }

    /// Returns the number of SMs of the partition, as reported by the driver
    /// (`cuGreenCtxGetDevResource`).
    ///
    /// Since CUDA 12.4. Raw: [`cuGreenCtxGetDevResource`](fn@cuda_sys::cuGreenCtxGetDevResource).
    #[doc(alias = "cuGreenCtxGetDevResource")]
    #[inline]
    pub fn sm_count(&self) -> u32 {
        self.inner.sm_count
    }

    /// Queries a resource of the partition. Calls `cuGreenCtxGetDevResource`.
    #[inline]
    pub(super) fn get_resource(
        &self,
        out: &mut CUdevResource,
        kind: CUdevResourceType,
    ) -> Result<()> {
        self.inner.get_resource(out, kind)
    }

    /// Returns an identifier that is unique among all green contexts of the process, past and future.
    /// Calls `cuGreenCtxGetId`.
    ///
    /// # Errors
    /// The driver is too old; [`Invalid::GreenContextInUse`].
    ///
    /// Since CUDA 12.9. Raw: [`cuGreenCtxGetId`](fn@cuda_sys::cuGreenCtxGetId).
    #[doc(alias = "cuGreenCtxGetId")]
    #[inline]
    pub fn id(&self) -> Result<u64> {
        let _lock = self.lock()?;
        // SAFETY: the green context is alive, and `out` passes a valid pointer.
        out(|place| unsafe { call!(cuGreenCtxGetId(self.as_raw(), place)) })
    }

    /// Creates a stream of this partition with priority 0.
    ///
    /// # Errors
    /// See [`stream_with`](Self::stream_with).
    #[inline]
    pub fn stream(&self) -> Result<Stream> {
        self.stream_with(StreamOptions::default())
    }

    /// Creates a stream whose work runs on the SMs of this partition. Calls `cuGreenCtxStreamCreate`.
    ///
    /// # Errors
    /// [`Invalid::BlockingGreenStream`] if the options request a blocking stream;
    /// [`Invalid::GreenContextInUse`]; `CUDA_ERROR_OUT_OF_MEMORY`.
    ///
    /// Since CUDA 12.5. On 12.4 the stream is created through the context's view, which is current
    /// during the call. Raw: [`cuGreenCtxStreamCreate`](fn@cuda_sys::cuGreenCtxStreamCreate).
    #[doc(alias = "cuGreenCtxStreamCreate")]
    #[inline]
    pub fn stream_with(&self, options: StreamOptions) -> Result<Stream> {
        refuse_if!(options.blocking, Invalid::BlockingGreenStream);
        release::drain();
        let mut raw = std::ptr::null_mut();
        let stream = &raw mut raw;
        let (flags, priority) = (options.flags(), options.priority);
        let created = {
            let _lock = self.lock()?;
            let green = self.as_raw();
            // SAFETY: the green context is alive, and the pointer refers to a local variable.
            unsafe { call!(cuGreenCtxStreamCreate(stream, green, flags, priority)) }
        };
        newest_or(created, || {
            self.under_view(|| {
                // SAFETY: the pointer refers to a local variable, and the view of this partition is the
                // current context.
                unsafe { call!(cuStreamCreateWithPriority(stream, flags, priority)) }
            })
        })?;
        Ok(Stream::own_green(raw, self.partition()))
    }

    /// Returns the largest cluster size, in blocks, for a launch on a stream of this partition. Calls
    /// `cuOccupancyMaxPotentialClusterSize`.
    ///
    /// The result depends on the [`SplitFlags`]: groups that ignore co-scheduling support no large
    /// clusters. Sizes above the portable maximum require the kernel attribute
    /// [`NON_PORTABLE_CLUSTER_SIZE_ALLOWED`](crate::module::attribute::NON_PORTABLE_CLUSTER_SIZE_ALLOWED).
    ///
    /// This creates a temporary [`stream`](Self::stream) and destroys it.
    /// [`Kernel::max_cluster_size_on`] uses an existing stream and accepts attributes.
    ///
    /// # Errors
    /// See [`Kernel::max_cluster_size`] and [`stream_with`](Self::stream_with). It is also an error if
    /// the kernel does not belong to [`context`](Self::context).
    ///
    /// Since CUDA 12.4.
    ///
    /// [`SplitFlags`]: super::SplitFlags
    ///
    /// ```no_run
    /// use cuda_safe::LaunchConfig;
    ///
    /// # use cuda_safe::green::{GreenContext, SmResource, SplitByCount};
    /// # let resource = SmResource::of_device(&cuda_safe::Device::get(0)?)?;
    /// # let green = GreenContext::new(resource.split_by_count(SplitByCount::default())?.groups)?;
    /// # let kernel = cuda_safe::Module::from_ptx(green.context(), "")?.kernel("nothing")?;
    /// let blocks = green.max_cluster_size(&kernel, LaunchConfig::linear(16, 128))?;
    /// println!("clusters of {blocks} blocks at most");
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    #[inline]
    pub fn max_cluster_size(&self, kernel: &Kernel, config: LaunchConfig) -> Result<u32> {
        kernel.max_cluster_size_on(&self.stream()?, config, &LaunchAttributes::default())
    }

    /// Locks the green context for calls that take the handle.
    #[inline]
    pub(super) fn lock(&self) -> Result<MutexGuard<'_, ()>> {
        self.calls().lock()
    }

    /// Returns the lock, and the record of the thread on which the green context is current.
    #[inline]
    pub(super) fn calls(&self) -> &CallState {
        &self.inner.calls
    }
}

impl Inner {
    #[inline]
    pub(super) fn context(&self) -> &Context {
        &self.kept.primary
    }

    /// Returns whether the green context, or an object that it depends on, is borrowed.
    #[inline]
    pub(super) fn is_borrowed(&self) -> bool {
        self.is_borrowed
    }

    #[inline]
    fn get_resource(&self, out: &mut CUdevResource, kind: CUdevResourceType) -> Result<()> {
        let _lock = self.calls.lock()?;
        // SAFETY: the green context is alive, and the pointer refers to a borrowed resource.
        unsafe { call!(cuGreenCtxGetDevResource(self.raw, &raw mut *out, kind)) }
    }

    #[inline]
    fn query_sm_count(&self) -> Option<u32> {
        let mut description = Description::default();
        let kind = CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;
        self.get_resource(description.as_mut_raw(), kind).ok()?;
        description.is_of_sms().then(|| description.sm_count())
    }
}

impl Drop for Inner {
    #[inline]
    fn drop(&mut self) {
        if self.ownership.is_owned() {
            release(Handle(self.raw), &self.kept);
        }
    }
}

destroy! {
    Handle<CUgreenCtx> as "a green context";
    // SAFETY: the handle stands for the green context, and the caller promises that this is the
    // first call. The streams of a green context keep it alive, so they are already destroyed.
    |its| unsafe { answer!(cuGreenCtxDestroy(its.0)) }
}

owners! {
    Arc<Kept> |its| {
        context: Some(&its.primary),
        is_borrowed: its.primary.is_borrowed(),
    }
}

impl PartialEq for Inner {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        // Both are alive, so equal handles mean the same green context.
        self.raw == other.raw && self.context() == other.context()
    }
}

impl Eq for Inner {}

debug! { GreenContext |its, f| its.inner.fmt(f) }

impl fmt::Debug for Inner {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GreenContext")
            .field("raw", &self.raw)
            .field("sm_count", &self.sm_count)
            .field("device", &self.context().device())
            .finish()
    }
}

impl Partition for Inner {
    #[inline]
    fn as_any(&self) -> &dyn Any {
        self
    }

    #[inline]
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }

    #[inline]
    fn context(&self) -> &Context {
        self.context()
    }

    #[inline]
    fn sm_count(&self) -> u32 {
        self.sm_count
    }

    #[inline]
    fn is_borrowed(&self) -> bool {
        self.is_borrowed()
    }

    #[inline]
    fn is_same(&self, other: &dyn Partition) -> bool {
        other.as_any().downcast_ref() == Some(self)
    }

    #[inline]
    fn with_current(self: Arc<Self>, call: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        GreenContext { inner: self }.under_view(call)
    }
}

impl GreenContext {
    /// Returns the context of work that runs in this green context.
    #[inline]
    pub(crate) fn execution_context(&self) -> ExecutionContext {
        ExecutionContext::Green(Arc::clone(&self.inner) as Arc<dyn Partition>)
    }

    #[inline]
    fn of_partition(partition: &Arc<dyn Partition>) -> Option<Self> {
        let inner = Arc::clone(partition).into_any().downcast().ok()?;
        Some(Self { inner })
    }
}

impl Stream {
    /// Returns the green context in which the stream was created, if any.
    #[inline]
    pub fn green_context(&self) -> Option<GreenContext> {
        GreenContext::of_partition(self.partition()?)
    }
}

impl DefaultStream<'_> {
    /// Returns the green context of this default stream, or `None` for a stream of an ordinary context.
    ///
    /// This function makes no driver call: the result of `cuStreamGetGreenCtx` for a default stream depends on
    /// the current context.
    #[inline]
    pub fn green_context(&self) -> Option<GreenContext> {
        GreenContext::of_partition(self.partition()?)
    }
}

/// The lock of a green context, and the thread on which it is current. All objects with the same handle
/// share both.
///
/// The lock is held across driver calls, some of which may block. A thread therefore waits for it for a
/// limited time only and then gets [`Invalid::GreenContextInUse`].
#[derive(Default)]
pub(super) struct CallState {
    /// Serializes the calls that take the handle itself. NVIDIA's documentation required this up to
    /// 13.4.
    lock: Mutex<()>,
    /// The thread on which the view is current, and its number of guards. NVIDIA's documentation allows
    /// the view to be current on one thread at a time. This lock is never held across a driver call, so
    /// that a guard can always end.
    current: Mutex<Option<(ThreadId, usize)>>,
}

impl CallState {
    /// Locks the green context for calls that take the handle.
    ///
    /// # Errors
    /// [`Invalid::GreenContextInUse`]; [`Error::Forked`](crate::Error::Forked).
    #[inline]
    pub(super) fn lock(&self) -> Result<MutexGuard<'_, ()>> {
        fork::refuse_in_child()?;
        attempts::lock(&self.lock).ok_or_else(|| Invalid::GreenContextInUse.into())
    }

    /// Checks that the green context is not current on another thread. The caller holds the lock.
    ///
    /// # Errors
    /// [`Invalid::CurrentElsewhere`].
    #[inline]
    pub(super) fn check_thread(&self) -> Result<()> {
        let current = *self.current();
        match current {
            Some((thread, _)) if thread != std::thread::current().id() => {
                Err(Invalid::CurrentElsewhere.into())
            }
            _ => Ok(()),
        }
    }

    /// Records a guard of this thread. The caller holds the lock and has checked the thread.
    #[inline]
    pub(super) fn add_guard(&self) {
        let mut current = self.current();
        let guards = current.map_or(0, |(_, guards)| guards);
        *current = Some((std::thread::current().id(), guards + 1));
    }

    /// Records that a guard of this thread has ended.
    #[inline]
    pub(super) fn remove_guard(&self) {
        let mut current = self.current();
        *current = match *current {
            Some((thread, guards)) if guards > 1 => Some((thread, guards - 1)),
            _ => None,
        };
    }

    #[inline]
    fn current(&self) -> MutexGuard<'_, Option<(ThreadId, usize)>> {
        lock(&self.current)
    }
}

/// The locks of the green contexts that have at least one object, by handle.
static LOCKS: Mutex<Vec<(usize, Weak<CallState>)>> = Mutex::new(Vec::new());

/// Returns the lock of a green context that is alive.
#[inline]
pub(super) fn lock_of(raw: CUgreenCtx) -> Arc<CallState> {
    // In a forked child, a thread that no longer exists may hold the mutex of the list. A fresh lock is
    // enough there, because no thread of a forked child calls the driver.
    if fork::in_child() {
        return Arc::<CallState>::default();
    }
    let mut locks = lock(&LOCKS);
    // A handle without an object may have been reused for another green context.
    locks.retain(|(_, lock)| lock.strong_count() != 0);
    let known = locks.iter().find(|(handle, _)| *handle == raw.addr());
    if let Some(lock) = known.and_then(|(_, lock)| lock.upgrade()) {
        return lock;
    }
    let lock = Arc::<CallState>::default();
    locks.push((raw.addr(), Arc::downgrade(&lock)));
    lock
}
