//! Multiprocessors as a resource: what there is, and what is known of it.

use super::GreenContext;
use super::claim::{Claim, Whole};
use super::exact::GroupFlags;
use crate::call::{answer, call, without_current};
use crate::context::Context;
use crate::device::Device;
use crate::driver;
use crate::error::{Error, Result};
use crate::invalid::Invalid;
use crate::stream::Stream;
use cuda_sys::{CUdevResource, CUdevResourceType, CUdevSmResource, CudaVersion};
use std::fmt;
use std::sync::Arc;

/// Multiprocessors (SMs) that can be split.
pub struct SmResource {
    pub(super) device: Device,
    /// On the heap, as what refuses this gives it back with an error.
    pub(super) part: Box<Part>,
    /// What these are the SMs of, if not the device.
    pub(super) whole: Option<Whole>,
}

/// Some of a device's SMs, out of a [split](SmResource::split_by_count); for one
/// [`GreenContext`](super::GreenContext).
pub struct SmGroup {
    pub(super) origin: Arc<Origin>,
    /// Which of its parts this is.
    pub(super) index: usize,
}

/// The split that groups are of. They hold it, and so do green contexts of them.
pub(super) struct Origin {
    pub(super) device: Device,
    /// The groups, then the remainder.
    pub(super) parts: Vec<Part>,
    #[allow(dead_code, reason = "held, not read")]
    pub(super) claim: Claim,
}

/// The driver's description, or a place for one. Opaque but for the SM fields: copied whole, never
/// made up.
#[derive(Clone, Default)]
#[repr(transparent)]
pub(super) struct Part {
    raw: CUdevResource,
}

// SAFETY: the description is plain data; its pointer, to a further resource, is the driver's and is
// never followed here.
unsafe impl Send for Part {}
// SAFETY: as for Send.
unsafe impl Sync for Part {}

impl Part {
    /// Whether the driver has described SMs here: an empty remainder has no type.
    pub(super) fn is_of_sms(&self) -> bool {
        self.raw.type_ == CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM
    }

    /// For the driver to fill in.
    pub(super) fn place(&mut self) -> &mut CUdevResource {
        &mut self.raw
    }

    /// Places for groups and, behind them, for the remainder.
    pub(super) fn places(groups: usize) -> Vec<Self> {
        let mut places = Vec::with_capacity(groups + 1);
        places.resize_with(groups, Self::default);
        places.push(Self::default());
        places
    }

    /// The first of some places.
    pub(super) fn first(places: &mut [Self]) -> *mut CUdevResource {
        places.as_mut_ptr().cast()
    }

    pub(super) fn raw(&self) -> &CUdevResource {
        &self.raw
    }

    fn sm(&self) -> CUdevSmResource {
        // SAFETY: the record is of integers, and all bytes of the union have been written, by the
        // driver or as zeros.
        unsafe { self.raw.__bindgen_anon_1.sm }
    }

    pub(super) fn sm_count(&self) -> u32 {
        self.sm().smCount
    }

    fn properties(&self) -> SmProperties {
        let sm = self.sm();
        let driver = driver::version().ok();
        let since = |major, minor| driver >= Some(CudaVersion::new(major, minor));
        SmProperties {
            min_partition_size: since(13, 0).then_some(sm.minSmPartitionSize),
            coscheduled_alignment: since(13, 0).then_some(sm.smCoscheduledAlignment),
            flags: since(13, 1).then(|| GroupFlags::from_bits_retain(sm.flags)),
            locality_domain: since(13, 4).then_some(sm.localityDomainId),
        }
    }
}

/// What the driver tells of SMs beside their number; none for what it is too old to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SmProperties {
    /// SMs that a partition has at least. Since CUDA 13.0.
    pub min_partition_size: Option<u32>,
    /// The number whose multiples give groups that run clusters together. Since CUDA 13.0.
    pub coscheduled_alignment: Option<u32>,
    /// How the group was made. Since CUDA 13.1.
    pub flags: Option<GroupFlags>,
    /// The part of the device whose memory is near. Since CUDA 13.4.
    pub locality_domain: Option<u32>,
}

/// The smallest partition, and what the sizes of partitions are multiples of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granularity {
    /// SMs of the smallest partition.
    pub min: u32,
    /// What sizes are multiples of.
    pub multiple: u32,
}

impl SmResource {
    /// `cuDeviceGetDevResource(device, &resource, SM)`: the SMs of a device.
    ///
    /// # Errors
    /// The driver is older ([`Error::Missing`]); there is no driver or no GPU.
    ///
    /// Since CUDA 12.4. Raw: [`cuDeviceGetDevResource`](fn@cuda_sys::cuDeviceGetDevResource).
    #[doc(alias = "cuDeviceGetDevResource")]
    pub fn of_device(device: &Device) -> Result<Self> {
        driver::init()?;
        Self::ask(*device, None, "cuDeviceGetDevResource", |place, kind| {
            // SAFETY: the pointer is to a borrowed resource.
            unsafe {
                call!(cuDeviceGetDevResource(
                    device.as_raw(),
                    &raw mut *place,
                    kind
                ))
            }
        })
    }

    /// `cuCtxGetDevResource(context, &resource, SM)`: the SMs that work of a context may use: those
    /// of the device, or fewer under MPS.
    ///
    /// # Errors
    /// The driver is older.
    ///
    /// Since CUDA 12.4. Raw: [`cuCtxGetDevResource`](fn@cuda_sys::cuCtxGetDevResource).
    #[doc(alias = "cuCtxGetDevResource")]
    pub fn of_context(context: &Context) -> Result<Self> {
        let whole: Whole = Arc::new(context.clone());
        Self::ask(
            context.device(),
            Some(whole),
            "cuCtxGetDevResource",
            |place, kind| {
                // SAFETY: the context is alive, and the pointer is to a borrowed resource.
                unsafe { call!(cuCtxGetDevResource(context.as_raw(), &raw mut *place, kind)) }
            },
        )
    }

    /// `cuGreenCtxGetDevResource(green, &resource, SM)`: the SMs of a partition. (To split them,
    /// [`SmGroup::split_by_count`] takes the group before it becomes a partition.) It, and what it is
    /// split into, holds the green context; so it is for contexts and streams.
    ///
    /// # Errors
    /// The driver is older.
    ///
    /// Since CUDA 12.4. Raw: [`cuGreenCtxGetDevResource`](fn@cuda_sys::cuGreenCtxGetDevResource).
    #[doc(alias = "cuGreenCtxGetDevResource")]
    pub fn of_green_context(green: &GreenContext) -> Result<Self> {
        let whole: Whole = Arc::new(green.clone());
        Self::ask(
            green.device(),
            Some(whole),
            "cuGreenCtxGetDevResource",
            |place, kind| green.get_resource(place, kind),
        )
    }

    /// `cuStreamGetDevResource(stream, &resource, SM)`: the SMs that work of a stream may use.
    ///
    /// # Errors
    /// The driver is older.
    ///
    /// Since CUDA 13.1. Raw: [`cuStreamGetDevResource`](fn@cuda_sys::cuStreamGetDevResource).
    #[doc(alias = "cuStreamGetDevResource")]
    pub fn of_stream(stream: &Stream) -> Result<Self> {
        let device = stream.context().device();
        let whole: Whole = Arc::new(stream.clone());
        Self::ask(
            device,
            Some(whole),
            "cuStreamGetDevResource",
            |place, kind| {
                without_current(stream.context(), || {
                    // SAFETY: the stream is alive, and the pointer is to a borrowed resource.
                    unsafe { answer!(cuStreamGetDevResource(stream.raw(), &raw mut *place, kind)) }
                })
            },
        )
    }

    fn ask(
        device: Device,
        whole: Option<Whole>,
        function: &'static str,
        get: impl FnOnce(&mut CUdevResource, CUdevResourceType) -> Result<()>,
    ) -> Result<Self> {
        let mut part = Part::default();
        get(part.place(), CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM)?;
        if !part.is_of_sms() {
            return Err(unexpected(function));
        }
        Ok(Self {
            device,
            part: Box::new(part),
            whole,
        })
    }

    /// The device.
    pub fn device(&self) -> Device {
        self.device
    }

    /// How many SMs there are.
    pub fn sm_count(&self) -> u32 {
        self.part.sm_count()
    }

    /// What else the driver tells.
    pub fn properties(&self) -> SmProperties {
        self.part.properties()
    }

    /// The smallest partition and the sizes that there are: as the driver tells them from CUDA 13.0
    /// on, before that by the compute capability.
    ///
    /// # Errors
    /// The compute capability cannot be asked for.
    pub fn granularity(&self) -> Result<Granularity> {
        let told = self.properties();
        let known = told.min_partition_size.zip(told.coscheduled_alignment);
        if let Some((min, multiple)) = known.filter(|(min, multiple)| *min != 0 && *multiple != 0) {
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

/// The driver said success, and gave something else than was asked for.
#[cold]
pub(super) fn unexpected(call: &'static str) -> Error {
    let code = cuda_sys::CUresult::CUDA_ERROR_UNKNOWN;
    crate::error::DriverError { code, call }.into()
}

impl SmGroup {
    /// The device.
    pub fn device(&self) -> Device {
        self.origin.device
    }

    pub(super) fn part(&self) -> &Part {
        &self.origin.parts[self.index]
    }

    /// How many SMs the group has.
    pub fn sm_count(&self) -> u32 {
        self.part().sm_count()
    }

    /// What else the driver tells.
    pub fn properties(&self) -> SmProperties {
        self.part().properties()
    }

    /// The same group once more: for a green context that is split in its place.
    pub(super) fn again(&self) -> Self {
        Self {
            origin: Arc::clone(&self.origin),
            index: self.index,
        }
    }

    /// Whether both are of one split: what one green context can be made of.
    fn is_of_same_split(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.origin, &other.origin)
    }
}

/// The first driver whose green contexts are of groups that are scheduled alike: a remainder is not
/// scheduled as groups are.
pub(super) const ALIKE_SINCE: CudaVersion = CudaVersion::new(13, 1);

/// The descriptions of a green context's groups, checked for what the driver does not check.
pub(super) fn together(groups: &[SmGroup]) -> Result<Vec<CUdevResource>> {
    const SEVERAL_SINCE: CudaVersion = CudaVersion::new(12, 5);
    let first = groups.first().ok_or(Invalid::NoGroups)?;
    if !groups.iter().all(|group| group.is_of_same_split(first)) {
        return Err(Invalid::GroupsOfDifferentSplits.into());
    }
    if groups.len() > 1 {
        let driver = driver::version()?;
        if driver < SEVERAL_SINCE {
            return Err(Invalid::SeveralGroupsNeedNewerDriver {
                groups: groups.len(),
                driver,
            }
            .into());
        }
        check_alike(first, groups, driver)?;
    }
    Ok(groups.iter().map(|group| *group.part().raw()).collect())
}

/// What newer drivers refuse without a word.
fn check_alike(first: &SmGroup, groups: &[SmGroup], driver: CudaVersion) -> Result<()> {
    type Field = fn(&SmProperties) -> Option<u32>;
    let rules: [(&str, CudaVersion, Field); 2] = [
        ("co-scheduled alignment", ALIKE_SINCE, |its| {
            its.coscheduled_alignment
        }),
        ("locality domain", CudaVersion::new(13, 4), |its| {
            its.locality_domain
        }),
    ];
    let known = first.properties();
    for group in groups {
        let its = group.properties();
        for (what, since, field) in &rules {
            if let (Some(first), Some(other)) = (field(&known), field(&its)) {
                if first != other && driver >= *since {
                    return Err(Invalid::GroupsThatDiffer { what, first, other }.into());
                }
            }
        }
    }
    Ok(())
}

impl fmt::Debug for SmResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SmResource")
            .field("device", &self.device)
            .field("sm_count", &self.sm_count())
            .finish()
    }
}

impl fmt::Debug for SmGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SmGroup")
            .field("device", &self.device())
            .field("sm_count", &self.sm_count())
            .finish()
    }
}
