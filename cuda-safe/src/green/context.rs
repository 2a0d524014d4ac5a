//! Green contexts.

use super::calls::{Calls, Lock, lock_of};
use super::descriptor::Descriptor;
use super::pool::is_leased;
use super::resource::{Part, SmGroup};
use crate::attempts;
use crate::call::{answer, call, newest_or, without_current};
use crate::context::Context;
use crate::device::Device;
use crate::error::{Error, Rejected, Result};
use crate::fork;
use crate::hold::Hold;
use crate::invalid::Invalid;
use crate::launch::{LaunchAttributes, LaunchConfig};
use crate::module::Kernel;
use crate::release::{self, Parent, Resource, release};
use crate::stream::{Stream, StreamOptions, has_green_context};
use crate::sync::MutexGuard;
use cuda_sys::{CUdevResource, CUdevResourceType, CUgreenCtx};
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// `CUgreenCtx`: a partition of a device's SMs. Work on its [streams](Self::stream) runs there.
///
/// Clones share it; its streams hold it, and it holds its groups and the device's primary context.
/// Destroying it waits for *all* running work.
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
#[derive(Clone)]
pub struct GreenContext {
    inner: Arc<Inner>,
}

struct Inner {
    raw: CUgreenCtx,
    hold: Hold,
    /// Whether it hangs on something that somebody promised to keep.
    is_borrowed: bool,
    sm_count: u32,
    calls: Lock,
    needs: Arc<Needs>,
}

/// What a green context needs for as long as it is not destroyed.
struct Needs {
    #[allow(dead_code, reason = "held, not read: the SMs are in use")]
    descriptor: Descriptor,
    primary: Context,
}

// SAFETY: the handle may be used by any thread; calls on it take the lock, and its view is current on
// one thread at a time, which is noted under the lock.
unsafe impl Send for Inner {}
// SAFETY: as for Send.
unsafe impl Sync for Inner {}

impl GreenContext {
    /// A partition of all SMs of one or several groups of one split; its remainder counts as a group.
    /// [`Descriptor`] takes more than groups.
    ///
    /// # Errors
    /// With the groups given back: as for [`Descriptor::create`].
    ///
    /// Since CUDA 12.4; several groups since 12.5.
    pub fn new(groups: impl IntoIterator<Item = SmGroup>) -> Result<Self, Rejected<Vec<SmGroup>>> {
        let created = Descriptor::new(groups).create();
        created.map_err(|rejected| Rejected::new(rejected.error, rejected.value.into_groups()))
    }

    /// One that was just made, of what `descriptor` describes.
    pub(super) fn own(raw: CUgreenCtx, primary: Context, descriptor: Descriptor) -> Self {
        Self::wrap(raw, Hold::Owned, primary, descriptor)
    }

    /// A green context that somebody else owns (PyTorch, a C library): never destroyed here.
    ///
    /// # Safety
    /// `raw` is a green context on the device of `primary`, which is that device's primary context,
    /// and stays alive until the last clone of this, and every stream made of it, is gone. It is on
    /// no thread's stack by then.
    pub unsafe fn borrow_raw(raw: CUgreenCtx, primary: &Context) -> Self {
        Self::wrap(raw, Hold::Borrowed, primary.clone(), Descriptor::default())
    }

    /// A green context that `owner` keeps alive: never destroyed here, and `owner` is dropped after
    /// the last clone of this and every stream made of it.
    ///
    /// # Safety
    /// `raw` is a green context on the device of `primary`, which is that device's primary context,
    /// and stays alive as long as `owner` is.
    pub unsafe fn from_foreign(
        raw: CUgreenCtx,
        primary: &Context,
        owner: impl Any + Send + Sync,
    ) -> Self {
        let hold = Hold::Foreign(Box::new(owner));
        Self::wrap(raw, hold, primary.clone(), Descriptor::default())
    }

    /// `cuStreamGetGreenCtx(stream, &green)`: the green context that a stream is of; none if it is of
    /// none. One that was not made here is never destroyed here, and holds the stream.
    ///
    /// # Errors
    /// The driver is older; [`Invalid::StreamOfPool`].
    ///
    /// Since CUDA 12.4. Raw: [`cuStreamGetGreenCtx`](fn@cuda_sys::cuStreamGetGreenCtx).
    #[doc(alias = "cuStreamGetGreenCtx")]
    pub fn of_stream(stream: &Stream) -> Result<Option<Self>> {
        if is_leased(stream) {
            return Err(Invalid::StreamOfPool.into());
        }
        Self::of_any_stream(stream)
    }

    /// That of a stream of a pool as well, where no stream is made of it: the pool would not know of that.
    pub(super) fn of_any_stream(stream: &Stream) -> Result<Option<Self>> {
        if let Some(green) = stream.green_context() {
            return Ok(Some(green.clone()));
        }
        let mut raw = std::ptr::null_mut();
        without_current(stream.context(), || {
            // SAFETY: the stream is alive, and the pointer is to a local.
            unsafe { answer!(cuStreamGetGreenCtx(stream.raw(), &raw mut raw)) }
        })?;
        if raw.is_null() {
            return Ok(None);
        }
        // A stream is of no use without its green context, so whoever keeps the one keeps the other.
        let hold = Hold::Foreign(Box::new(stream.clone()));
        let primary = stream.context().clone();
        let mut green = Self::wrap(raw, hold, primary, Descriptor::default());
        if let Some(inner) = Arc::get_mut(&mut green.inner) {
            inner.is_borrowed = stream.is_borrowed();
        }
        Ok(Some(green))
    }

    /// Whether a stream may be of a green context: asked of the driver (`cuStreamGetGreenCtx`) only where
    /// it was not made here.
    pub(crate) fn may_have(stream: &Stream) -> bool {
        if stream.is_own() {
            return stream.green_context().is_some();
        }
        // Without an answer it may.
        let mut has = true;
        let _ = without_current(stream.context(), || {
            // SAFETY: the stream is alive.
            unsafe { has_green_context(stream.raw()) }.map(|its| has = its)
        });
        has
    }

    fn wrap(raw: CUgreenCtx, hold: Hold, primary: Context, descriptor: Descriptor) -> Self {
        let mut inner = Inner {
            raw,
            is_borrowed: matches!(hold, Hold::Borrowed) || primary.is_borrowed(),
            hold,
            sm_count: descriptor.sm_count(),
            calls: lock_of(raw),
            needs: Arc::new(Needs {
                descriptor,
                primary,
            }),
        };
        // The driver's own count, which a caller is to see if it should differ.
        if let Some(count) = inner.query_sm_count() {
            inner.sm_count = count;
        }
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The driver's handle. It stays this object's: do not destroy it.
    pub fn as_raw(&self) -> CUgreenCtx {
        self.inner.raw
    }

    /// The device.
    pub fn device(&self) -> Device {
        self.context().device()
    }

    /// The device's primary context, which the memory and the kernels of this partition belong to.
    #[inline]
    pub fn context(&self) -> &Context {
        &self.inner.needs.primary
    }

    /// How many SMs the partition has, as the driver counts (`cuGreenCtxGetDevResource`).
    ///
    /// Since CUDA 12.4. Raw: [`cuGreenCtxGetDevResource`](fn@cuda_sys::cuGreenCtxGetDevResource).
    #[doc(alias = "cuGreenCtxGetDevResource")]
    pub fn sm_count(&self) -> u32 {
        self.inner.sm_count
    }

    /// `cuGreenCtxGetDevResource(context, &resource, kind)`: a resource of the partition.
    pub(super) fn get_resource(
        &self,
        place: &mut CUdevResource,
        kind: CUdevResourceType,
    ) -> Result<()> {
        self.inner.get_resource(place, kind)
    }

    /// `cuGreenCtxGetId(context, &id)`: a number that no other green context of this process has
    /// or will have.
    ///
    /// # Errors
    /// The driver is older; [`Invalid::GreenContextInUse`].
    ///
    /// Since CUDA 12.9. Raw: [`cuGreenCtxGetId`](fn@cuda_sys::cuGreenCtxGetId).
    #[doc(alias = "cuGreenCtxGetId")]
    pub fn id(&self) -> Result<u64> {
        let mut id = 0;
        let _lock = self.inner.lock()?;
        // SAFETY: the green context is alive, and the pointer is to a local.
        unsafe { call!(cuGreenCtxGetId(self.as_raw(), &raw mut id)) }?;
        Ok(id)
    }

    /// A stream of this partition, of priority 0.
    ///
    /// # Errors
    /// As for [`stream_with`](Self::stream_with).
    pub fn stream(&self) -> Result<Stream> {
        self.stream_with(StreamOptions::default())
    }

    /// `cuGreenCtxStreamCreate(&stream, context, NON_BLOCKING, priority)`: a stream whose work runs
    /// on the SMs of this partition.
    ///
    /// # Errors
    /// [`Invalid::BlockingGreenStream`] if the options ask for a blocking one;
    /// [`Invalid::GreenContextInUse`]; `CUDA_ERROR_OUT_OF_MEMORY`.
    ///
    /// Since CUDA 12.5 (on 12.4 through the context's view, made current for the call). Raw:
    /// [`cuGreenCtxStreamCreate`](fn@cuda_sys::cuGreenCtxStreamCreate).
    #[doc(alias = "cuGreenCtxStreamCreate")]
    pub fn stream_with(&self, options: StreamOptions) -> Result<Stream> {
        if options.blocking {
            return Err(Invalid::BlockingGreenStream.into());
        }
        release::drain();
        let mut raw = std::ptr::null_mut();
        let stream = &raw mut raw;
        let (flags, priority) = (options.flags(), options.priority);
        let made = {
            let _lock = self.inner.lock()?;
            let green = self.as_raw();
            // SAFETY: the green context is alive, and the pointer is to a local.
            unsafe { call!(cuGreenCtxStreamCreate(stream, green, flags, priority)) }
        };
        newest_or(made, || {
            self.under_view(|| {
                // SAFETY: the pointer is to a local, and the current context is this partition's.
                unsafe { call!(cuStreamCreateWithPriority(stream, flags, priority)) }
            })
        })?;
        Ok(Stream::own_green(raw, self.clone()))
    }

    /// `cuOccupancyMaxPotentialClusterSize(&blocks, kernel, &config)` for a stream of this partition:
    /// the most blocks that a cluster of such a launch may have here. ([`SplitFlags`] decide it: groups
    /// that ignore co-scheduling have no large clusters.)
    ///
    /// Makes a [`stream`](Self::stream) for the question and destroys it;
    /// [`Kernel::max_cluster_size_on`] asks for a stream that there is already, with attributes. More
    /// than every device allows only if the kernel is
    /// [set to it](crate::kernel_attribute::NON_PORTABLE_CLUSTER_SIZE_ALLOWED).
    ///
    /// # Errors
    /// As for [`Kernel::max_cluster_size`] and [`stream_with`](Self::stream_with); a kernel of another
    /// context than [`context`](Self::context).
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
    pub fn max_cluster_size(&self, kernel: &Kernel, config: LaunchConfig) -> Result<u32> {
        kernel.max_cluster_size_on(&self.stream()?, config, &LaunchAttributes::default())
    }

    /// Whether it, or what it hangs on, is only promised to stay.
    pub(crate) fn is_borrowed(&self) -> bool {
        self.inner.is_borrowed
    }

    /// For calls that take the handle, and for what is current.
    pub(super) fn lock(&self) -> Result<MutexGuard<'_, Calls>> {
        self.inner.lock()
    }
}

impl Inner {
    fn lock(&self) -> Result<MutexGuard<'_, Calls>> {
        // There a thread that is no more may have the lock.
        if fork::in_child() {
            return Err(Error::Forked);
        }
        attempts::lock(&self.calls).ok_or_else(|| Invalid::GreenContextInUse.into())
    }

    fn get_resource(&self, place: &mut CUdevResource, kind: CUdevResourceType) -> Result<()> {
        let _lock = self.lock()?;
        // SAFETY: the green context is alive, and the pointer is to a borrowed resource.
        unsafe { call!(cuGreenCtxGetDevResource(self.raw, &raw mut *place, kind)) }
    }

    fn query_sm_count(&self) -> Option<u32> {
        let mut part = Part::default();
        let kind = CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;
        self.get_resource(part.place(), kind).ok()?;
        part.is_of_sms().then(|| part.sm_count())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.hold.is_owned() {
            release(Resource::GreenContext(self.raw), &self.needs);
        }
    }
}

impl Parent for Arc<Needs> {
    fn context(&self) -> Option<&Context> {
        Some(&self.primary)
    }

    fn keep(&self) -> Box<dyn Parent + Send> {
        Box::new(Self::clone(self))
    }

    fn is_borrowed(&self) -> bool {
        self.primary.is_borrowed()
    }
}

/// Green contexts are equal if they are the same one.
impl PartialEq for GreenContext {
    fn eq(&self, other: &Self) -> bool {
        // Both are alive, so one handle is one green context.
        self.inner.raw == other.inner.raw && self.context() == other.context()
    }
}

impl Eq for GreenContext {}

impl fmt::Debug for GreenContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GreenContext")
            .field("raw", &self.inner.raw)
            .field("sm_count", &self.inner.sm_count)
            .field("device", &self.device())
            .finish()
    }
}
