//! The resources that a green context is created from.

use super::GreenContext;
use super::resource::{SmGroup, combined_resources};
use super::workqueue::Workqueues;
use crate::call::{Invalid, Rejected, Result, call, init, out};
use crate::context::Context;
use crate::device::Device;
use cuda_sys::{CUdevResource, CUgreenCtxCreate_flags, CudaVersion};

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
    #[doc(alias = "cuDevResourceGenerateDesc")]
    #[doc(alias = "cuGreenCtxCreate")]
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
