//! Work queues: on how many of the hardware's queues a partition's streams lie.

use super::GreenContext;
use super::claim::Whole;
use crate::call::call;
use crate::context::Context;
use crate::device::Device;
use crate::driver;
use crate::error::Result;
use crate::invalid::Invalid;
use cuda_sys::{
    CUdevResource, CUdevResourceType, CUdevWorkqueueConfigResource, CUdevWorkqueueConfigScope,
    CudaVersion,
};
use std::fmt;
use std::sync::Arc;

/// Work queues for a [`Descriptor`](super::Descriptor): how many streams of the green context are
/// expected to have work at a time, and with whom the hardware's queues are shared; or the queues of
/// another context. Since CUDA 13.1.
///
/// More work than the limit is allowed, and may then wait for other work.
#[derive(Clone)]
pub struct Workqueues {
    device: Device,
    inner: Box<Inner>,
}

#[derive(Clone)]
struct Inner {
    raw: CUdevResource,
    /// Whose queues they are.
    #[allow(dead_code, reason = "held, not read")]
    shared_with: Option<Whole>,
    /// The driver may have answered one that is not known here; nobody else names such a one.
    has_own_scope: bool,
}

// SAFETY: the description is plain data; its pointer, to a further resource, is the driver's and is
// never followed here.
unsafe impl Send for Workqueues {}
// SAFETY: as for Send.
unsafe impl Sync for Workqueues {}

/// `CUdevWorkqueueConfigScope`: with whom the hardware's queues are shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WorkqueueScope {
    /// All contexts of the device.
    DeviceContexts,
    /// As few other green contexts of this scope as possible.
    GreenContextBalanced,
    /// What a newer driver answered, by its number.
    Other(u32),
}

impl WorkqueueScope {
    fn raw(self) -> CUdevWorkqueueConfigScope {
        match self {
            Self::DeviceContexts => CUdevWorkqueueConfigScope::CU_WORKQUEUE_SCOPE_DEVICE_CTX,
            Self::GreenContextBalanced => {
                CUdevWorkqueueConfigScope::CU_WORKQUEUE_SCOPE_GREEN_CTX_BALANCED
            }
            Self::Other(number) => CUdevWorkqueueConfigScope(number),
        }
    }

    fn from_raw(raw: CUdevWorkqueueConfigScope) -> Self {
        match raw {
            CUdevWorkqueueConfigScope::CU_WORKQUEUE_SCOPE_DEVICE_CTX => Self::DeviceContexts,
            CUdevWorkqueueConfigScope::CU_WORKQUEUE_SCOPE_GREEN_CTX_BALANCED => {
                Self::GreenContextBalanced
            }
            CUdevWorkqueueConfigScope(number) => Self::Other(number),
        }
    }
}

const CONFIG: CUdevResourceType = CUdevResourceType::CU_DEV_RESOURCE_TYPE_WORKQUEUE_CONFIG;
const QUEUES: CUdevResourceType = CUdevResourceType::CU_DEV_RESOURCE_TYPE_WORKQUEUE;

impl Workqueues {
    /// `cuDeviceGetDevResource(device, &resource, WORKQUEUE_CONFIG)`: how a device's queues are set.
    ///
    /// # Errors
    /// [`Invalid::NeedsNewerDriver`].
    ///
    /// Since CUDA 13.1. Raw: [`cuDeviceGetDevResource`](fn@cuda_sys::cuDeviceGetDevResource).
    #[doc(alias = "cuDeviceGetDevResource")]
    pub fn of_device(device: &Device) -> Result<Self> {
        driver::init()?;
        Self::ask(*device, CONFIG, |place| {
            // SAFETY: the pointer is to a borrowed resource.
            unsafe {
                call!(cuDeviceGetDevResource(
                    device.as_raw(),
                    &raw mut *place,
                    CONFIG
                ))
            }
        })
    }

    /// `cuCtxGetDevResource(context, &resource, WORKQUEUE_CONFIG)`: how a context's queues are set.
    /// Of a primary context the limit is the most that there can be, which the environment variable
    /// `CUDA_DEVICE_MAX_CONNECTIONS` sets.
    ///
    /// # Errors
    /// [`Invalid::NeedsNewerDriver`].
    ///
    /// Since CUDA 13.1. Raw: [`cuCtxGetDevResource`](fn@cuda_sys::cuCtxGetDevResource).
    #[doc(alias = "cuCtxGetDevResource")]
    pub fn of_context(context: &Context) -> Result<Self> {
        Self::ask_context(context, CONFIG)
    }

    /// `cuGreenCtxGetDevResource(green, &resource, WORKQUEUE_CONFIG)`: how a green context's queues
    /// are set.
    ///
    /// # Errors
    /// [`Invalid::NeedsNewerDriver`].
    ///
    /// Since CUDA 13.1. Raw: [`cuGreenCtxGetDevResource`](fn@cuda_sys::cuGreenCtxGetDevResource).
    #[doc(alias = "cuGreenCtxGetDevResource")]
    pub fn of_green_context(green: &GreenContext) -> Result<Self> {
        Self::ask(green.device(), CONFIG, |place| {
            green.get_resource(place, CONFIG)
        })
    }

    /// `cuGreenCtxGetDevResource(green, &resource, WORKQUEUE)`: the queues themselves, to be shared
    /// with another green context, which then keeps this one alive.
    ///
    /// # Errors
    /// [`Invalid::NeedsNewerDriver`].
    ///
    /// Since CUDA 13.1. Raw: [`cuGreenCtxGetDevResource`](fn@cuda_sys::cuGreenCtxGetDevResource).
    #[doc(alias = "cuGreenCtxGetDevResource")]
    pub fn shared_with(green: &GreenContext) -> Result<Self> {
        let queues = Self::ask(green.device(), QUEUES, |place| {
            green.get_resource(place, QUEUES)
        })?;
        Ok(queues.kept_by(Arc::new(green.clone())))
    }

    /// `cuCtxGetDevResource(context, &resource, WORKQUEUE)`: the queues of a context that is no green one,
    /// to be shared with a green context, which then keeps this one alive.
    ///
    /// # Errors
    /// [`Invalid::NeedsNewerDriver`].
    ///
    /// Since CUDA 13.1. Raw: [`cuCtxGetDevResource`](fn@cuda_sys::cuCtxGetDevResource).
    #[doc(alias = "cuCtxGetDevResource")]
    pub fn shared_with_context(context: &Context) -> Result<Self> {
        let queues = Self::ask_context(context, QUEUES)?;
        Ok(queues.kept_by(Arc::new(context.clone())))
    }

    fn ask_context(context: &Context, kind: CUdevResourceType) -> Result<Self> {
        let raw = context.as_raw();
        Self::ask(context.device(), kind, |place| {
            // SAFETY: the context is alive, and the pointer is to a borrowed resource.
            unsafe { call!(cuCtxGetDevResource(raw, &raw mut *place, kind)) }
        })
    }

    fn ask(
        device: Device,
        kind: CUdevResourceType,
        get: impl FnOnce(&mut CUdevResource) -> Result<()>,
    ) -> Result<Self> {
        // An older driver would say that there is no such type.
        driver::needs("a resource of work queues", CudaVersion::new(13, 1))?;
        let mut raw = CUdevResource::default();
        get(&mut raw)?;
        if raw.type_ != kind {
            return Err(super::resource::unexpected("cuDeviceGetDevResource"));
        }
        Ok(Self {
            device,
            inner: Box::new(Inner {
                raw,
                shared_with: None,
                has_own_scope: true,
            }),
        })
    }

    fn kept_by(mut self, whose: Whole) -> Self {
        self.inner.shared_with = Some(whose);
        self
    }

    /// The device.
    pub fn device(&self) -> Device {
        self.device
    }

    pub(super) fn raw(&self) -> CUdevResource {
        self.inner.raw
    }

    fn config(&self) -> Option<CUdevWorkqueueConfigResource> {
        if self.inner.raw.type_ != CONFIG {
            return None;
        }
        // SAFETY: the driver has filled it in as a resource of this type; the record is of integers.
        Some(unsafe { self.inner.raw.__bindgen_anon_1.wqConfig })
    }

    /// How many streams are expected to have work at a time; none for queues that are
    /// [shared](Self::shared_with).
    pub fn concurrency_limit(&self) -> Option<u32> {
        Some(self.config()?.wqConcurrencyLimit)
    }

    /// With whom the queues are shared; none for queues that are [shared](Self::shared_with).
    pub fn scope(&self) -> Option<WorkqueueScope> {
        Some(WorkqueueScope::from_raw(self.config()?.sharingScope))
    }

    /// The same for another number of streams; no change for queues that are
    /// [shared](Self::shared_with).
    #[must_use]
    pub fn with_concurrency_limit(self, limit: u32) -> Self {
        self.with_config(|config| config.wqConcurrencyLimit = limit)
    }

    /// The same, shared with others; no change for queues that are [shared](Self::shared_with).
    #[must_use]
    pub fn with_scope(self, scope: WorkqueueScope) -> Self {
        let mut set = self.with_config(|config| config.sharingScope = scope.raw());
        set.inner.has_own_scope = false;
        set
    }

    /// What a driver would refuse with a bare code, or ignore.
    pub(super) fn check(&self) -> Result<()> {
        let refused = |setting, given, possible| {
            let refused = Invalid::WorkqueueSetting {
                setting,
                given,
                possible,
            };
            Err(refused.into())
        };
        match (self.concurrency_limit(), self.scope()) {
            (Some(0), _) => refused("concurrency limit", 0, "at least 1"),
            (_, Some(WorkqueueScope::Other(scope))) if !self.inner.has_own_scope => {
                refused("scope", scope, "one that has a name")
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

impl fmt::Debug for Workqueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workqueues")
            .field("device", &self.device)
            .field("concurrency_limit", &self.concurrency_limit())
            .field("scope", &self.scope())
            .finish()
    }
}
