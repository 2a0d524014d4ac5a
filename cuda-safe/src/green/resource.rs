//! SMs as a resource: their number and properties.

use super::GreenContext;
use super::split::GroupFlags;
use super::split_guard::{Kept, SplitGuard};
use crate::call::{
    Error, Invalid, Result, answer, call, debug_struct, init, refuse_if, without_current,
};
use crate::context::Context;
use crate::device::Device;
use crate::stream::Stream;
use cuda_sys::{CUdevResource, CUdevResourceType, CUdevSmResource, CudaVersion};
use std::num::NonZero;
use std::sync::Arc;

/// Streaming multiprocessors (SMs) that can be split. Returned by [`of_device`](Self::of_device).
///
/// The resource describes SMs and does not own them. While the groups of a split are alive, a second
/// split of the same device is refused, unless it [allows the overlap](super::Overlap::Allow).
pub struct SmResource {
    pub(super) device: Device,
    pub(super) description: Description,
    /// Keeps alive the object that the SMs belong to, if that is not the device.
    pub(super) kept: Option<Kept>,
}

/// A group of SMs from a [split](SmResource::split_by_count), from which a
/// [`GreenContext`](super::GreenContext) is created.
pub struct SmGroup {
    pub(super) origin: Arc<Origin>,
    /// The index of this group in the descriptions of its split.
    pub(super) index: usize,
}

/// The split that groups belong to. The groups and the green contexts created from them keep it alive.
pub(super) struct Origin {
    pub(super) device: Device,
    /// The groups, followed by the remainder.
    pub(super) descriptions: Vec<Description>,
    #[allow(dead_code, reason = "held, not read")]
    pub(super) split_guard: SplitGuard,
}

/// A resource description written by the driver, or memory for one. It is opaque except for the SM
/// fields: it is copied as a whole and never constructed here.
#[derive(Clone, Default)]
#[repr(transparent)]
pub(super) struct Description {
    raw: CUdevResource,
}

// SAFETY: the description is data without owned resources. Its pointer to a further resource belongs to
// the driver and is never dereferenced here.
unsafe impl Send for Description {}
// SAFETY: see `Send`.
unsafe impl Sync for Description {}

impl Description {
    /// Returns whether the driver has described SMs here. An empty remainder has no type.
    #[inline]
    pub(super) fn is_of_sms(&self) -> bool {
        self.raw.type_ == CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM
    }

    /// Returns the memory that the driver fills in.
    #[inline]
    pub(super) fn as_mut_raw(&mut self) -> &mut CUdevResource {
        &mut self.raw
    }

    /// Returns empty descriptions for the groups, followed by one for the remainder.
    #[inline]
    pub(super) fn new_array(groups: usize) -> Vec<Self> {
        let mut descriptions = Vec::with_capacity(groups + 1);
        descriptions.resize_with(groups, Self::default);
        descriptions.push(Self::default());
        descriptions
    }

    /// Returns a pointer to the first of several descriptions.
    #[inline]
    pub(super) fn first_raw(descriptions: &mut [Self]) -> *mut CUdevResource {
        descriptions.as_mut_ptr().cast()
    }

    #[inline]
    pub(super) fn raw(&self) -> &CUdevResource {
        &self.raw
    }

    #[inline]
    fn sm(&self) -> CUdevSmResource {
        // SAFETY: the field is a struct of integers, and all bytes of the union are initialized, by the
        // driver or as zeros.
        unsafe { self.raw.__bindgen_anon_1.sm }
    }

    #[inline]
    pub(super) fn sm_count(&self) -> u32 {
        self.sm().smCount
    }

    #[inline]
    fn properties(&self) -> SmProperties {
        let sm = self.sm();
        let driver = init::version().ok();
        let since = |major, minor| driver >= Some(CudaVersion::new(major, minor));
        SmProperties {
            min_partition_size: NonZero::new(sm.minSmPartitionSize).map(NonZero::get),
            coscheduled_alignment: NonZero::new(sm.smCoscheduledAlignment).map(NonZero::get),
            flags: since(13, 1).then(|| GroupFlags::from_bits_retain(sm.flags)),
            locality_domain: since(13, 4).then_some(sm.localityDomainId),
        }
    }
}

/// Properties of SMs other than their number. A property that the driver does not report is `None`.
/// With CUDA 13.0, the first two are reported of devices and partitions, but not of the groups and the
/// remainder of a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SmProperties {
    /// The minimum number of SMs in a partition. Since CUDA 13.0.
    pub min_partition_size: Option<u32>,
    /// The alignment of group sizes that can run clusters together, in SMs. Since CUDA 13.0.
    pub coscheduled_alignment: Option<u32>,
    /// The flags with which the group was created. Since CUDA 13.1.
    pub flags: Option<GroupFlags>,
    /// The locality domain: the part of the device whose memory is near the SMs. Since CUDA 13.4.
    pub locality_domain: Option<u32>,
}

/// The smallest partition, and the step between partition sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granularity {
    /// The number of SMs in the smallest partition.
    pub min: u32,
    /// The number of SMs that partition sizes are multiples of.
    pub multiple: u32,
}

impl SmResource {
    /// Returns the SMs of a device. Calls `cuDeviceGetDevResource`.
    ///
    /// # Errors
    /// The driver is too old ([`Error::Missing`]); there is no driver or no GPU.
    ///
    /// Since CUDA 12.4. Raw: [`cuDeviceGetDevResource`](fn@cuda_sys::cuDeviceGetDevResource).
    #[doc(alias = "cuDeviceGetDevResource")]
    #[inline]
    pub fn of_device(device: &Device) -> Result<Self> {
        init::init()?;
        Self::query(*device, None, "cuDeviceGetDevResource", |out, kind| {
            // SAFETY: the pointer refers to a borrowed resource.
            unsafe { call!(cuDeviceGetDevResource(device.as_raw(), &raw mut *out, kind)) }
        })
    }

    /// Returns the SMs that work of a context may use: all SMs of the device, or fewer under MPS. Calls
    /// `cuCtxGetDevResource`.
    ///
    /// The returned resource, and everything split from it, keeps the context alive.
    ///
    /// # Errors
    /// The driver is too old.
    ///
    /// Since CUDA 12.4. Raw: [`cuCtxGetDevResource`](fn@cuda_sys::cuCtxGetDevResource).
    #[doc(alias = "cuCtxGetDevResource")]
    #[inline]
    pub fn of_context(context: &Context) -> Result<Self> {
        let kept: Kept = Arc::new(context.clone());
        Self::query(context.device(), Some(kept), "cuCtxGetDevResource", |out, kind| {
            // SAFETY: the context is alive, and the pointer refers to a borrowed resource.
            unsafe { call!(cuCtxGetDevResource(context.as_raw(), &raw mut *out, kind)) }
        })
    }

    /// Returns the SMs of a partition. Calls `cuGreenCtxGetDevResource`.
    ///
    /// The returned resource, and everything split from it, keeps the green context alive. To split a
    /// group before it becomes a partition, use [`SmGroup::split_by_count`].
    ///
    /// # Errors
    /// The driver is too old.
    ///
    /// Since CUDA 12.4. Raw: [`cuGreenCtxGetDevResource`](fn@cuda_sys::cuGreenCtxGetDevResource).
    #[doc(alias = "cuGreenCtxGetDevResource")]
    #[inline]
    pub fn of_green_context(green: &GreenContext) -> Result<Self> {
        let kept: Kept = Arc::new(green.clone());
        Self::query(green.device(), Some(kept), "cuGreenCtxGetDevResource", |out, kind| {
            green.get_resource(out, kind)
        })
    }

    /// Returns the SMs that work of a stream may use. Calls `cuStreamGetDevResource`.
    ///
    /// The returned resource, and everything split from it, keeps the stream alive.
    ///
    /// # Errors
    /// The driver is too old.
    ///
    /// Since CUDA 13.1. Raw: [`cuStreamGetDevResource`](fn@cuda_sys::cuStreamGetDevResource).
    #[doc(alias = "cuStreamGetDevResource")]
    #[inline]
    pub fn of_stream(stream: &Stream) -> Result<Self> {
        let device = stream.context().device();
        let kept: Kept = Arc::new(stream.clone());
        Self::query(device, Some(kept), "cuStreamGetDevResource", |out, kind| {
            without_current(stream.context(), || {
                // SAFETY: the stream is alive, and the pointer refers to a borrowed resource.
                unsafe { answer!(cuStreamGetDevResource(stream.raw(), &raw mut *out, kind)) }
            })
        })
    }

    fn query(
        device: Device,
        kept: Option<Kept>,
        function: &'static str,
        get: impl FnOnce(&mut CUdevResource, CUdevResourceType) -> Result<()>,
    ) -> Result<Self> {
        let mut description = Description::default();
        get(description.as_mut_raw(), CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM)?;
        refuse_if!(!description.is_of_sms(), unexpected_resource(function));
        Ok(Self { device, description, kept })
    }

    /// Returns the device.
    #[inline]
    pub fn device(&self) -> Device {
        self.device
    }

    /// Returns the number of SMs.
    #[inline]
    pub fn sm_count(&self) -> u32 {
        self.description.sm_count()
    }

    /// Returns the other properties that the driver reports.
    #[inline]
    pub fn properties(&self) -> SmProperties {
        self.description.properties()
    }

    /// Returns the smallest partition and the step between partition sizes: as reported by the driver
    /// since CUDA 13.0, and before that according to the compute capability.
    ///
    /// # Errors
    /// The query of the compute capability failed.
    #[inline]
    pub fn granularity(&self) -> Result<Granularity> {
        let properties = self.properties();
        let reported = properties.min_partition_size.zip(properties.coscheduled_alignment);
        if let Some((min, multiple)) = reported {
            return Ok(Granularity { min, multiple });
        }
        let (min, multiple) = match self.device.compute_capability()?.0 {
            0..=6 => (1, 1),
            7 => (2, 2),
            8 => (4, 2),
            _ => (8, 8),
        };
        Ok(Granularity { min, multiple })
    }
}

/// The error for a call that succeeded but did not return the requested resource.
#[cold]
#[inline]
pub(super) fn unexpected_resource(call: &'static str) -> Error {
    let code = cuda_sys::CUresult::CUDA_ERROR_UNKNOWN;
    crate::call::error::DriverError::new(code, call).into()
}

impl SmGroup {
    /// Returns the device.
    #[inline]
    pub fn device(&self) -> Device {
        self.origin.device
    }

    #[inline]
    pub(super) fn description(&self) -> &Description {
        &self.origin.descriptions[self.index]
    }

    /// Returns the number of SMs in the group.
    #[inline]
    pub fn sm_count(&self) -> u32 {
        self.description().sm_count()
    }

    /// Returns the other properties that the driver reports.
    #[inline]
    pub fn properties(&self) -> SmProperties {
        self.description().properties()
    }

    /// Returns the same group again, for a green context that is split in its place.
    #[inline]
    pub(super) fn duplicate(&self) -> Self {
        Self { origin: Arc::clone(&self.origin), index: self.index }
    }

    /// Returns whether both groups belong to one split, which a green context requires.
    #[inline]
    fn is_of_same_split(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.origin, &other.origin)
    }
}

/// The first driver that requires all groups of a green context to be scheduled in the same way. A
/// remainder is not scheduled as groups are.
pub(super) const EQUAL_GROUPS_SINCE: CudaVersion = CudaVersion::new(13, 1);

/// Returns the resource descriptions of a green context's groups, after the checks that the driver
/// omits.
#[inline]
pub(super) fn combined_resources(groups: &[SmGroup]) -> Result<Vec<CUdevResource>> {
    let first = groups.first().ok_or(Invalid::NoGroups)?;
    if !groups.iter().all(|group| group.is_of_same_split(first)) {
        return Err(Invalid::GroupsOfDifferentSplits.into());
    }
    if groups.len() > 1 {
        init::needs("a green context with several groups", CudaVersion::new(12, 5))?;
        check_equal_properties(first, groups)?;
    }
    Ok(groups.iter().map(|group| *group.description().raw()).collect())
}

/// Checks rules that newer drivers enforce without an explanation.
#[inline]
fn check_equal_properties(first: &SmGroup, groups: &[SmGroup]) -> Result<()> {
    type Field = fn(&SmProperties) -> Option<u32>;
    let rules: [(&str, CudaVersion, Field); 2] = [
        ("co-scheduled alignment", EQUAL_GROUPS_SINCE, |properties| {
            properties.coscheduled_alignment
        }),
        ("locality domain", CudaVersion::new(13, 4), |properties| properties.locality_domain),
    ];
    let (driver, first_properties) = (init::version()?, first.properties());
    for group in groups {
        let properties = group.properties();
        for (what, since, field) in &rules {
            if let (Some(first), Some(other)) = (field(&first_properties), field(&properties)) {
                if first != other && driver >= *since {
                    return Err(Invalid::GroupsThatDiffer { what, first, other }.into());
                }
            }
        }
    }
    Ok(())
}

debug_struct! { SmResource |its| { device: its.device, sm_count: its.sm_count() } }

debug_struct! { SmGroup |its| { device: its.device(), sm_count: its.sm_count() } }
