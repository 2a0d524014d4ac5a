//! Splits into groups of given sizes.

use super::GreenContext;
use super::claim::{Claim, Overlap, Whole};
use super::resource::{Origin, Part, SmGroup, SmResource};
use super::split::Split;
use crate::call::call;
use crate::device::Device;
use crate::driver;
use crate::error::{Error, Rejected, Result};
use crate::invalid::Invalid;
use bitflags::bitflags;
use cuda_sys::{
    CU_DEV_SM_RESOURCE_GROUP_PARAMS, CUdevSmResourceGroup_flags, CUresult, CudaVersion,
};
use std::sync::Arc;

bitflags! {
    /// `CUdevSmResourceGroup_flags`: how a group of an exact split is chosen. Since CUDA 13.1.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct GroupFlags: u32 {
        /// What cannot be had as it was asked for is filled up: the co-scheduling is a hint, and the
        /// size need be no multiple of it.
        const BACKFILL = CUdevSmResourceGroup_flags::CU_DEV_SM_RESOURCE_GROUP_BACKFILL.0;
        /// The group is of one locality domain. Since CUDA 13.4.
        const LOCALITY_DOMAIN_ID =
            CUdevSmResourceGroup_flags::CU_DEV_SM_RESOURCE_GROUP_LOCALITY_DOMAIN_ID.0;
        /// SMs of other locality domains may be added. Since CUDA 13.5.
        const LOCALITY_DOMAIN_SUPPLEMENTAL_SMS =
            CUdevSmResourceGroup_flags::CU_DEV_SM_RESOURCE_GROUP_LOCALITY_DOMAIN_SUPPLEMENTAL_SMS.0;
        // What newer drivers tell of a group is kept; it is not passed on to a driver.
        const _ = !0;
    }
}

impl GroupFlags {
    /// All that have a name here.
    const KNOWN: Self = Self::BACKFILL
        .union(Self::LOCALITY_DOMAIN_ID)
        .union(Self::LOCALITY_DOMAIN_SUPPLEMENTAL_SMS);
}

/// A group that [`SmResource::split`] is asked for. The default: as many SMs as there can be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct GroupRequest {
    /// SMs, an even number; the driver does not round. 0: as many as there can be.
    pub sm_count: u32,
    /// SMs that can run a cluster together, an even number, of which `sm_count` is a multiple (unless
    /// with [`GroupFlags::BACKFILL`]). 0: the device's usual number (8 on compute capability 9.0 and
    /// later, else 2); at most 32 on 9.0 and later, else 2.
    pub coscheduled: u32,
    /// SMs that should be able to run a cluster together, if possible: a hint, on compute capability
    /// 10.0 and later. 0: none.
    pub preferred_coscheduled: u32,
    /// How to choose.
    pub flags: GroupFlags,
    /// With [`GroupFlags::LOCALITY_DOMAIN_ID`], which: a number, or
    /// [`ANY_LOCALITY_DOMAIN`](Self::ANY_LOCALITY_DOMAIN). Since CUDA 13.4.
    pub locality_domain: u32,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl GroupRequest {
    /// Any one locality domain. Since CUDA 13.5.
    pub const ANY_LOCALITY_DOMAIN: u32 = !0;

    /// A group of so many SMs.
    pub fn of(sm_count: u32) -> Self {
        Self {
            sm_count,
            ..Self::default()
        }
    }

    fn params(self) -> CU_DEV_SM_RESOURCE_GROUP_PARAMS {
        let Self {
            sm_count,
            coscheduled,
            preferred_coscheduled,
            flags,
            locality_domain,
            _non_exhaustive: (),
        } = self;
        CU_DEV_SM_RESOURCE_GROUP_PARAMS {
            smCount: sm_count,
            coscheduledSmCount: coscheduled,
            preferredCoscheduledSmCount: preferred_coscheduled,
            flags: flags.bits(),
            localityDomainId: locality_domain,
            ..Default::default()
        }
    }

    fn from_params(params: &CU_DEV_SM_RESOURCE_GROUP_PARAMS) -> Self {
        Self {
            sm_count: params.smCount,
            coscheduled: params.coscheduledSmCount,
            preferred_coscheduled: params.preferredCoscheduledSmCount,
            flags: GroupFlags::from_bits_retain(params.flags),
            locality_domain: params.localityDomainId,
            _non_exhaustive: (),
        }
    }
}

/// What [`SmResource::split`] is asked for.
#[derive(Clone, Debug, Default)]
pub struct ExactSplit {
    /// The groups, in the order in which they are chosen.
    pub groups: Vec<GroupRequest>,
    /// Whether SMs that are in use under another split may be handed out again.
    pub overlap: Overlap,
    /// What the split is for: what a second one is told that is refused.
    pub label: String,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl SmResource {
    /// `cuDevSmResourceSplit(NULL, count, resource, …, 0, params)`: what groups there can be: the
    /// requests, with the numbers that the driver puts in place of zeros. Nothing is split. A group
    /// that there is nothing left for has no SMs.
    ///
    /// # Errors
    /// As for [`split`](Self::split).
    ///
    /// Since CUDA 13.1. Raw: [`cuDevSmResourceSplit`](fn@cuda_sys::cuDevSmResourceSplit).
    #[doc(alias = "cuDevSmResourceSplit")]
    pub fn discover(&self, groups: &[GroupRequest]) -> Result<Vec<GroupRequest>> {
        discover(&self.part, check(self.device, &self.part, groups)?)
    }

    /// `cuDevSmResourceSplit(groups, count, resource, &remainder, 0, params)`: splits into disjoint
    /// groups of the sizes that are asked for. The driver does not round: what cannot be had is an
    /// error.
    ///
    /// [`partition`](Self::partition) does the same, as well as it can, on older drivers.
    ///
    /// # Errors
    /// With the resource given back: [`Invalid::NoGroups`], [`Invalid::GroupRequest`],
    /// [`Invalid::GroupFlags`], [`Invalid::GroupFlagsNeedNewerDriver`], [`Invalid::SplitInUse`];
    /// `CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION`; the driver is older.
    ///
    /// Since CUDA 13.1. Raw: [`cuDevSmResourceSplit`](fn@cuda_sys::cuDevSmResourceSplit).
    #[doc(alias = "cuDevSmResourceSplit")]
    pub fn split(self, split: ExactSplit) -> Result<Split, Rejected<Self>> {
        self.try_split(&split)
            .map_err(|error| Rejected::new(error, self))
    }

    pub(super) fn try_split(&self, split: &ExactSplit) -> Result<Split> {
        let params = check(self.device, &self.part, &split.groups)?;
        // What cannot be had is found before anything is claimed.
        discover(&self.part, params.clone())?;
        let claim = self.claim(&split.label, split.overlap)?;
        take(self.device, &self.part, params, claim)
    }
}

impl SmGroup {
    /// [`SmResource::discover`] of a group or a remainder, whose own description the driver is asked
    /// about. One that refuses that (NVIDIA's text allows it for remainders) is asked about a green
    /// context of the group, which is made for the question and destroyed: that waits for *all*
    /// running work, and costs the memory that [green contexts](super) cost.
    ///
    /// # Errors
    /// As for [`split`](Self::split).
    ///
    /// Since CUDA 13.1. Raw: [`cuDevSmResourceSplit`](fn@cuda_sys::cuDevSmResourceSplit).
    #[doc(alias = "cuDevSmResourceSplit")]
    pub fn discover(&self, groups: &[GroupRequest]) -> Result<Vec<GroupRequest>> {
        let params = check(self.device(), self.part(), groups)?;
        match discover(self.part(), params.clone()) {
            Err(error) if is_no_input(&error) => {}
            found => return found,
        }
        let whole = GreenContext::new([self.again()])?;
        discover(&SmResource::of_green_context(&whole)?.part, params)
    }

    /// [`SmResource::split`] of a group or a remainder, into smaller groups of given sizes: from its
    /// own description, which NVIDIA's text allows for remainders; where the driver refuses that,
    /// through a green context of it (`cuGreenCtxCreate`), which stays for as long as the smaller
    /// groups do. [`overlap`](ExactSplit::overlap) makes no difference.
    ///
    /// Made again and again this loses memory, as green contexts do:
    /// [`PooledPartition::split`](super::PooledPartition::split) keeps them.
    ///
    /// # Errors
    /// With the group given back: as for [`SmResource::split`] and [`GreenContext::new`].
    ///
    /// Since CUDA 13.1. Raw: [`cuDevSmResourceSplit`](fn@cuda_sys::cuDevSmResourceSplit).
    #[doc(alias = "cuDevSmResourceSplit")]
    pub fn split(self, split: ExactSplit) -> Result<Split, Rejected<Self>> {
        self.try_split(&split.groups)
            .map_err(|error| Rejected::new(error, self))
    }

    fn try_split(&self, groups: &[GroupRequest]) -> Result<Split> {
        let params = check(self.device(), self.part(), groups)?;
        let origin: Whole = Arc::<Origin>::clone(&self.origin);
        match take(
            self.device(),
            self.part(),
            params.clone(),
            Claim::within(origin),
        ) {
            Err(error) if is_no_input(&error) => {}
            split => return split,
        }
        let whole = GreenContext::new([self.again()])?;
        let resource = SmResource::of_green_context(&whole)?;
        let claim = Claim::within(Arc::new(whole));
        take(self.device(), &resource.part, params, claim)
    }
}

/// Whether the driver may not split such a thing, rather than not so.
fn is_no_input(error: &Error) -> bool {
    let refused = [
        CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
        CUresult::CUDA_ERROR_INVALID_RESOURCE_TYPE,
    ];
    error.code().is_some_and(|code| refused.contains(&code))
}

type Wishes = Vec<CU_DEV_SM_RESOURCE_GROUP_PARAMS>;

/// What the driver makes of the wishes, for the split of `part`.
fn discover(part: &Part, mut params: Wishes) -> Result<Vec<GroupRequest>> {
    let count = u32::try_from(params.len()).unwrap_or(u32::MAX);
    let (whole, wishes) = (&raw const *part.raw(), params.as_mut_ptr());
    let nothing = std::ptr::null_mut();
    // SAFETY: without a place for groups and remainder the driver only fills in the `count`
    // requests; the other pointer is to a live description.
    unsafe {
        call!(cuDevSmResourceSplit(
            nothing, count, whole, nothing, 0, wishes
        ))
    }?;
    Ok(params.iter().map(GroupRequest::from_params).collect())
}

/// Splits `part`, for a claim.
fn take(device: Device, part: &Part, mut params: Wishes, claim: Claim) -> Result<Split> {
    let mut parts = Part::places(params.len());
    let (groups, remainder) = parts.split_at_mut(params.len());
    let count = u32::try_from(params.len()).unwrap_or(u32::MAX);
    let (first, wishes) = (Part::first(groups), params.as_mut_ptr());
    let (whole, rest) = (&raw const *part.raw(), Part::first(remainder));
    // SAFETY: there are `count` groups, as many requests, and a place for the remainder; the other
    // pointer is to a live description.
    unsafe { call!(cuDevSmResourceSplit(first, count, whole, rest, 0, wishes)) }?;
    Ok(Split::new(device, claim, parts, params.len()))
}

/// The rules that can be checked before the driver is asked.
fn check(device: Device, part: &Part, groups: &[GroupRequest]) -> Result<Wishes> {
    if groups.is_empty() {
        return Err(Invalid::NoGroups.into());
    }
    let driver = driver::version()?;
    let mut left = part.sm_count();
    for (index, group) in groups.iter().enumerate() {
        check_flags(index, group, driver)?;
        let (size, together) = (group.sm_count, group.coscheduled);
        let refuse = |rule: &'static str| {
            Err(Invalid::GroupRequest {
                index,
                sm_count: size,
                coscheduled: together,
                rule,
            }
            .into())
        };
        if size % 2 != 0 {
            return refuse("the number of SMs is even");
        }
        if together % 2 != 0 {
            return refuse("the number of SMs that run clusters together is even");
        }
        if together > 32 {
            return refuse("at most 32 SMs run clusters together");
        }
        if together > 2 && device.compute_capability()?.0 < 9 {
            return refuse("at most 2 SMs run clusters together, before compute capability 9.0");
        }
        let fills_up = group.flags.contains(GroupFlags::BACKFILL);
        if together != 0 && size % together != 0 && !fills_up {
            return refuse("the number of SMs is a multiple of those that run clusters together");
        }
        match left.checked_sub(size) {
            Some(rest) => left = rest,
            None => return refuse("there are not so many SMs left"),
        }
    }
    Ok(groups.iter().map(|group| group.params()).collect())
}

/// Drivers are known to ignore flags that they do not know.
fn check_flags(index: usize, group: &GroupRequest, driver: CudaVersion) -> Result<()> {
    let flags = group.flags;
    let one = GroupFlags::LOCALITY_DOMAIN_ID;
    let any = group.locality_domain == GroupRequest::ANY_LOCALITY_DOMAIN;
    if !GroupFlags::KNOWN.contains(flags) {
        let flags = flags.bits();
        return Err(Invalid::GroupFlags { index, flags }.into());
    }
    let supplemental = GroupFlags::LOCALITY_DOMAIN_SUPPLEMENTAL_SMS;
    let needed = [
        (flags.contains(one), CudaVersion::new(13, 4)),
        (flags.contains(one) && any, CudaVersion::new(13, 5)),
        (flags.contains(supplemental), CudaVersion::new(13, 5)),
    ];
    for (is_asked_for, since) in needed {
        if is_asked_for && driver < since {
            return Err(Invalid::GroupFlagsNeedNewerDriver { since, driver }.into());
        }
    }
    Ok(())
}
