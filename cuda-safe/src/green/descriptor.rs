//! The resources that a green context is created from.

use super::GreenContext;
use super::resource::{SmGroup, combined_resources};
use super::split_guard::Kept;
use crate::call::{Invalid, Rejected, Result, c_enum, call, debug_struct, init, out};
use crate::context::Context;
use crate::device::Device;
use cuda_sys::{
    CUdevResource, CUdevResourceType, CUdevWorkqueueConfigResource, CUdevWorkqueueConfigScope,
    CUgreenCtxCreate_flags, CudaVersion,
};
use std::sync::Arc;

/// The resources of a green context (`CUdevResourceDesc`): groups of SMs and at most one workqueue
/// resource.
///
/// A descriptor creates one green context, which then owns the groups.
///
/// ```no_run
/// use cuda_safe::Device;
/// use cuda_safe::green::{Descriptor, SmResource, SplitByCount, Workqueues};
///
/// let device = Device::get(0)?;
/// let split = SmResource::of_device(&device)?.split_by_count(SplitByCount::default())?;
/// let queues = Workqueues::of_device(&device)?.with_concurrency_limit(4);
/// let partition = Descriptor::new(split.groups.into_iter().take(2))
///     .with_workqueues(queues)
///     .create()?;
/// # Ok::<_, cuda_safe::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Descriptor {
    groups: Vec<SmGroup>,
    workqueues: Vec<Workqueues>,
    has_no_default_stream: bool,
}

impl Descriptor {
    /// Creates a descriptor of groups of SMs.
    pub fn new(groups: impl IntoIterator<Item = SmGroup>) -> Self {
        Self { groups: groups.into_iter().collect(), ..Self::default() }
    }

    /// Adds a workqueue resource, which [`create`](Self::create) checks. Since CUDA 13.1.
    #[must_use]
    #[inline]
    pub fn with_workqueues(mut self, queues: Workqueues) -> Self {
        self.workqueues.push(queues);
        self
    }

    /// Creates the green context without default streams (`CU_GREEN_CTX_NONE`).
    ///
    /// Code that uses the default stream of the current context cannot be used with such a green
    /// context. Since CUDA 13.3.
    #[must_use]
    #[inline]
    pub fn without_default_stream(self) -> Self {
        Self { has_no_default_stream: true, ..self }
    }

    /// Returns the number of SMs in all groups.
    #[inline]
    pub fn sm_count(&self) -> u32 {
        self.groups.iter().map(SmGroup::sm_count).sum()
    }

    /// Returns the groups without the workqueue resource. A new descriptor can be created from them.
    #[inline]
    pub fn into_groups(self) -> Vec<SmGroup> {
        self.groups
    }

    /// Creates the green context.
    ///
    /// Calls `cuDevResourceGenerateDesc` and `cuGreenCtxCreate`, after retaining the device's primary
    /// context. The driver's descriptor (half a KiB) stays allocated until the process exits, because
    /// the driver has no call that frees it.
    ///
    /// # Errors
    /// On an error, the groups are dropped with the descriptor. [`try_create`](Self::try_create) returns
    /// the descriptor with the error.
    ///
    /// - [`Invalid::NoGroups`], [`Invalid::GroupsOfDifferentSplits`],
    ///   [`Invalid::NeedsNewerDriver`], or [`Invalid::GroupsThatDiffer`] (since CUDA 13.1;
    ///   for example a group and a remainder).
    /// - [`Invalid::SecondWorkqueues`], [`Invalid::WorkqueueSetting`] or
    ///   [`Invalid::WorkqueuesOfOtherDevice`].
    /// - [`Invalid::NeedsNewerDriver`]; the driver is too old.
    /// - `CUDA_ERROR_NOT_SUPPORTED`; `CUDA_ERROR_OUT_OF_MEMORY`.
    ///
    /// Since CUDA 12.4; several resources since 12.5. Raw:
    /// [`cuDevResourceGenerateDesc`](fn@cuda_sys::cuDevResourceGenerateDesc),
    /// [`cuGreenCtxCreate`](fn@cuda_sys::cuGreenCtxCreate),
    /// [`cuGreenCtxDestroy`](fn@cuda_sys::cuGreenCtxDestroy).
    #[doc(alias = "cuDevResourceGenerateDesc", alias = "cuGreenCtxCreate")]
    #[doc(alias = "cuGreenCtxDestroy")]
    #[inline]
    pub fn create(self) -> Result<GreenContext> {
        Ok(self.try_create()?)
    }

    /// Does the same as [`create`](Self::create), but returns the descriptor with the error.
    ///
    /// # Errors
    /// See [`create`](Self::create).
    #[inline]
    pub fn try_create(self) -> Result<GreenContext, Rejected<Self>> {
        let ((raw, primary), descriptor) = Rejected::unless(self.create_raw(), self)?;
        Ok(GreenContext::own(raw, primary, descriptor))
    }

    #[inline]
    fn create_raw(&self) -> Result<(cuda_sys::CUgreenCtx, Context)> {
        let flags = self.flags()?;
        let mut resources = combined_resources(&self.groups)?;
        let device = self.groups.first().ok_or(Invalid::NoGroups)?.device();
        resources.extend(self.checked_workqueues(device)?);
        let primary = Context::primary(&device)?;
        let count = u32::try_from(resources.len()).unwrap_or(u32::MAX);
        let first = resources.as_mut_ptr();
        // SAFETY: the array holds `count` descriptions that the driver wrote, at least one (the driver
        // crashes on zero), all of one device: groups of one split, each once, and at most one
        // workqueue resource. `out` passes a valid pointer.
        let descriptor =
            out(|place| unsafe { call!(cuDevResourceGenerateDesc(place, first, count)) })?;
        let number = device.as_raw();
        // SAFETY: the descriptor was just created from resources of this device, and `out` passes a valid
        // pointer.
        let raw =
            out(|place| unsafe { call!(cuGreenCtxCreate(place, descriptor, number, flags)) })?;
        Ok((raw, primary))
    }

    /// Returns the workqueue resource, if there is one, for a green context on `device`.
    #[inline]
    fn checked_workqueues(&self, device: Device) -> Result<Option<CUdevResource>> {
        let queues = match &self.workqueues[..] {
            [] => return Ok(None),
            [queues] => queues,
            _ => return Err(Invalid::SecondWorkqueues.into()),
        };
        queues.check()?;
        if queues.device() != device {
            return Err(Invalid::WorkqueuesOfOtherDevice {
                its: queues.device().ordinal(),
                expected: device.ordinal(),
            }
            .into());
        }
        Ok(Some(queues.raw()))
    }

    #[inline]
    fn flags(&self) -> Result<u32> {
        if !self.has_no_default_stream {
            // Required up to 13.2.
            return Ok(CUgreenCtxCreate_flags::CU_GREEN_CTX_DEFAULT_STREAM.0);
        }
        let what = "a green context without a default stream";
        init::needs(what, CudaVersion::new(13, 3))?;
        Ok(CUgreenCtxCreate_flags::CU_GREEN_CTX_NONE.0)
    }
}

/// A workqueue resource for a [`Descriptor`](super::Descriptor). Since CUDA 13.1.
///
/// It is either a configuration (how many streams of the green context are expected to have work at the
/// same time, and with which contexts the hardware queues are shared) or the queues of another context.
///
/// More concurrent work than the limit is allowed, but may then wait for other work.
#[derive(Clone)]
pub struct Workqueues {
    device: Device,
    inner: Box<Inner>,
}

#[derive(Clone)]
struct Inner {
    raw: CUdevResource,
    /// Keeps alive the context that the queues belong to.
    #[allow(dead_code, reason = "held, not read")]
    shared_with: Option<Kept>,
    /// Whether the scope is the one that the driver reported, which may be unknown here. A caller must
    /// not set an unknown scope.
    has_driver_scope: bool,
}

// SAFETY: the description is data without owned resources. Its pointer to a further resource belongs to
// the driver and is never dereferenced here.
unsafe impl Send for Workqueues {}
// SAFETY: see `Send`.
unsafe impl Sync for Workqueues {}

c_enum! {
    /// The contexts with which hardware queues are shared (`CUdevWorkqueueConfigScope`).
    pub enum WorkqueueScope = CUdevWorkqueueConfigScope or Other {
        /// The queues are shared with all contexts of the device.
        DeviceContexts = CU_WORKQUEUE_SCOPE_DEVICE_CTX,
        /// The queues are shared with as few other green contexts of this scope as possible.
        GreenContextBalanced = CU_WORKQUEUE_SCOPE_GREEN_CTX_BALANCED,
    }
}

const CONFIG: CUdevResourceType = CUdevResourceType::CU_DEV_RESOURCE_TYPE_WORKQUEUE_CONFIG;
const QUEUES: CUdevResourceType = CUdevResourceType::CU_DEV_RESOURCE_TYPE_WORKQUEUE;

impl Workqueues {
    /// Returns the workqueue configuration of a device. Calls `cuDeviceGetDevResource`.
    ///
    /// # Errors
    /// [`Invalid::NeedsNewerDriver`].
    ///
    /// Since CUDA 13.1. Raw: [`cuDeviceGetDevResource`](fn@cuda_sys::cuDeviceGetDevResource).
    #[doc(alias = "cuDeviceGetDevResource")]
    #[inline]
    pub fn of_device(device: &Device) -> Result<Self> {
        init::init()?;
        Self::query(*device, CONFIG, |out| {
            // SAFETY: the pointer refers to a borrowed resource.
            unsafe { call!(cuDeviceGetDevResource(device.as_raw(), &raw mut *out, CONFIG)) }
        })
    }

    /// Returns the workqueue configuration of a context. Calls `cuCtxGetDevResource`.
    ///
    /// For a primary context, the limit is the maximum possible, which the environment variable
    /// `CUDA_DEVICE_MAX_CONNECTIONS` sets.
    ///
    /// # Errors
    /// [`Invalid::NeedsNewerDriver`].
    ///
    /// Since CUDA 13.1. Raw: [`cuCtxGetDevResource`](fn@cuda_sys::cuCtxGetDevResource).
    #[doc(alias = "cuCtxGetDevResource")]
    #[inline]
    pub fn of_context(context: &Context) -> Result<Self> {
        Self::query_context(context, CONFIG)
    }

    /// Returns the workqueue configuration of a green context. Calls `cuGreenCtxGetDevResource`.
    ///
    /// # Errors
    /// [`Invalid::NeedsNewerDriver`].
    ///
    /// Since CUDA 13.1. Raw: [`cuGreenCtxGetDevResource`](fn@cuda_sys::cuGreenCtxGetDevResource).
    #[doc(alias = "cuGreenCtxGetDevResource")]
    #[inline]
    pub fn of_green_context(green: &GreenContext) -> Result<Self> {
        Self::query(green.device(), CONFIG, |out| green.get_resource(out, CONFIG))
    }

    /// Returns the queues of a green context, to be shared with another green context. Calls
    /// `cuGreenCtxGetDevResource`.
    ///
    /// The other green context then keeps this one alive.
    ///
    /// # Errors
    /// [`Invalid::NeedsNewerDriver`].
    ///
    /// Since CUDA 13.1. Raw: [`cuGreenCtxGetDevResource`](fn@cuda_sys::cuGreenCtxGetDevResource).
    #[doc(alias = "cuGreenCtxGetDevResource")]
    #[inline]
    pub fn shared_with(green: &GreenContext) -> Result<Self> {
        let queues = Self::query(green.device(), QUEUES, |out| green.get_resource(out, QUEUES))?;
        Ok(queues.kept_by(Arc::new(green.clone())))
    }

    /// Returns the queues of a context that is not a green context, to be shared with a green context.
    /// Calls `cuCtxGetDevResource`.
    ///
    /// The green context then keeps this context alive.
    ///
    /// # Errors
    /// [`Invalid::NeedsNewerDriver`].
    ///
    /// Since CUDA 13.1. Raw: [`cuCtxGetDevResource`](fn@cuda_sys::cuCtxGetDevResource).
    #[doc(alias = "cuCtxGetDevResource")]
    #[inline]
    pub fn shared_with_context(context: &Context) -> Result<Self> {
        let queues = Self::query_context(context, QUEUES)?;
        Ok(queues.kept_by(Arc::new(context.clone())))
    }

    #[inline]
    fn query_context(context: &Context, kind: CUdevResourceType) -> Result<Self> {
        let raw = context.as_raw();
        Self::query(context.device(), kind, |out| {
            // SAFETY: the context is alive, and the pointer refers to a borrowed resource.
            unsafe { call!(cuCtxGetDevResource(raw, &raw mut *out, kind)) }
        })
    }

    fn query(
        device: Device,
        kind: CUdevResourceType,
        get: impl FnOnce(&mut CUdevResource) -> Result<()>,
    ) -> Result<Self> {
        // An older driver would report an unknown resource type.
        init::needs("a workqueue resource", CudaVersion::new(13, 1))?;
        let mut raw = CUdevResource::default();
        get(&mut raw)?;
        if raw.type_ != kind {
            return Err(super::resource::unexpected_resource("cuDeviceGetDevResource"));
        }
        Ok(Self {
            device,
            inner: Box::new(Inner { raw, shared_with: None, has_driver_scope: true }),
        })
    }

    #[inline]
    fn kept_by(mut self, owner: Kept) -> Self {
        self.inner.shared_with = Some(owner);
        self
    }

    /// Returns the device.
    #[inline]
    pub fn device(&self) -> Device {
        self.device
    }

    #[inline]
    pub(super) fn raw(&self) -> CUdevResource {
        self.inner.raw
    }

    #[inline]
    fn config(&self) -> Option<CUdevWorkqueueConfigResource> {
        if self.inner.raw.type_ != CONFIG {
            return None;
        }
        // SAFETY: the driver wrote this field, because the resource has its type. The field is a struct
        // of integers.
        Some(unsafe { self.inner.raw.__bindgen_anon_1.wqConfig })
    }

    /// Returns how many streams are expected to have work at the same time, or `None` for queues that
    /// are [shared](Self::shared_with).
    #[inline]
    pub fn concurrency_limit(&self) -> Option<u32> {
        Some(self.config()?.wqConcurrencyLimit)
    }

    /// Returns the sharing scope, or `None` for queues that are [shared](Self::shared_with).
    #[inline]
    pub fn scope(&self) -> Option<WorkqueueScope> {
        Some(WorkqueueScope::from_raw(self.config()?.sharingScope))
    }

    /// Sets how many streams are expected to have work at the same time. This has no effect on queues
    /// that are [shared](Self::shared_with).
    #[must_use]
    #[inline]
    pub fn with_concurrency_limit(self, limit: u32) -> Self {
        self.with_config(|config| config.wqConcurrencyLimit = limit)
    }

    /// Sets the sharing scope. This has no effect on queues that are [shared](Self::shared_with).
    #[must_use]
    #[inline]
    pub fn with_scope(self, scope: WorkqueueScope) -> Self {
        let mut queues = self.with_config(|config| config.sharingScope = scope.raw());
        queues.inner.has_driver_scope = false;
        queues
    }

    /// Checks for settings that a driver would refuse with only an error code, or ignore.
    #[inline]
    pub(super) fn check(&self) -> Result<()> {
        let refused = |setting, given, possible| {
            let refused = Invalid::WorkqueueSetting { setting, given, possible };
            Err(refused.into())
        };
        match (self.concurrency_limit(), self.scope()) {
            (Some(0), _) => refused("concurrency limit", 0, "at least 1"),
            (_, Some(WorkqueueScope::Other(scope))) if !self.inner.has_driver_scope => {
                refused("scope", scope, "a named scope")
            }
            _ => Ok(()),
        }
    }

    fn with_config(mut self, change: impl FnOnce(&mut CUdevWorkqueueConfigResource)) -> Self {
        if let Some(mut config) = self.config() {
            change(&mut config);
            self.inner.raw.__bindgen_anon_1.wqConfig = config;
        }
        self
    }
}

debug_struct! {
    Workqueues |its| { device: its.device, concurrency_limit: its.concurrency_limit(), scope: its.scope() }
}
