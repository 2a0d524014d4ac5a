//! Splits by count: groups of equal size.

use super::GreenContext;
use super::resource::{Description, Origin, SmGroup, SmResource};
use super::split_guard::{Kept, Overlap, SplitGuard};
use crate::call::{Error, Invalid, Rejected, Result, call, init, out, refuse_if};
use crate::device::Device;
use bitflags::bitflags;
use cuda_sys::{
    CU_DEV_SM_RESOURCE_GROUP_PARAMS, CUdevSmResourceGroup_flags, CUdevSmResourceSplitByCount_flags,
    CUresult, CudaVersion,
};
use std::sync::Arc;

bitflags! {
    /// How [`SmResource::split_by_count`] chooses groups. At most one flag may be set. Since CUDA 12.5.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct SplitFlags: u32 {
        /// Allows smaller groups whose SMs need not be able to run a cluster together.
        const IGNORE_SM_COSCHEDULING =
            CUdevSmResourceSplitByCount_flags::CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING.0;
        /// Chooses groups for the largest possible clusters, on compute capability 9.0 and later.
        const MAX_POTENTIAL_CLUSTER_SIZE =
            CUdevSmResourceSplitByCount_flags::CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE.0;
    }
}

/// Options for [`SmResource::split_by_count`]. The default requests as many groups as possible of the
/// smallest size.
///
/// Later versions may add fields: end each value with `..Default::default()`.
#[derive(Clone, Debug, Default)]
pub struct SplitByCount {
    /// The minimum number of SMs in a group, which the driver rounds up to its granularity. Zero
    /// requests the smallest group.
    pub min: u32,
    /// The maximum number of groups, or `None` for as many as possible.
    pub max_groups: Option<u32>,
    /// How groups are chosen.
    pub flags: SplitFlags,
    /// Whether the split may include SMs that are in use by another split.
    pub overlap: Overlap,
    /// A label for the split. It appears in the error of a second split that is refused.
    pub label: String,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

/// The result of a split.
#[derive(Debug)]
pub struct Split {
    /// The groups: of equal size after a split by count, of the requested sizes after an exact split.
    pub groups: Vec<SmGroup>,
    /// The SMs left over, without guarantees about clusters.
    pub remainder: Option<SmGroup>,
}

impl SmResource {
    /// Returns the number of groups that a split would create, without splitting. Calls
    /// `cuDevSmResourceSplitByCount` without a result array.
    ///
    /// # Errors
    /// See [`split_by_count`](Self::split_by_count).
    ///
    /// Since CUDA 12.4.
    #[inline]
    pub fn count_groups(&self, min: u32, flags: SplitFlags) -> Result<u32> {
        count_groups(&self.description, min, flags)
    }

    /// Splits into disjoint groups of equal size. Calls `cuDevSmResourceSplitByCount`.
    ///
    /// The driver rounds `min` up to its granularity, at most to all SMs. It may create fewer groups
    /// than the number of SMs divided by `min` (an H200 with 132 SMs: 15 groups of 8, and 12 SMs left
    /// over).
    ///
    /// # Errors
    /// [`Invalid::SplitAboveResource`], [`Invalid::NoGroups`], [`Invalid::SplitFlags`],
    /// [`Invalid::SplitInUse`]; the driver is too old.
    ///
    /// Since CUDA 12.4. Raw: [`cuDevSmResourceSplitByCount`](fn@cuda_sys::cuDevSmResourceSplitByCount).
    #[doc(alias = "cuDevSmResourceSplitByCount")]
    #[inline]
    pub fn split_by_count(&self, split: SplitByCount) -> Result<Split> {
        let checked = CheckedSplit::new(&self.description, &split)?;
        let split_guard = self.acquire_split_guard(&split.label, split.overlap)?;
        checked.split(self, split_guard)
    }
}

impl SmGroup {
    /// Splits a group into smaller groups of equal size.
    ///
    /// The driver cannot split a group directly, so this creates a green context of the group
    /// (`cuGreenCtxCreate`), which stays alive as long as the smaller groups do.
    /// [`overlap`](SplitByCount::overlap) has no effect.
    ///
    /// Every call creates a green context, and destroying that [does not free all of its
    /// memory](super). For repeated splits, use a pool with
    /// [`PooledPartition::split`](super::PooledPartition::split).
    ///
    /// # Errors
    /// See [`SmResource::split_by_count`] and [`GreenContext::new`]. On an error, the group is dropped.
    /// [`try_split_by_count`](Self::try_split_by_count) returns it with the error.
    ///
    /// Since CUDA 12.4. Raw: [`cuDevSmResourceSplitByCount`](fn@cuda_sys::cuDevSmResourceSplitByCount).
    #[doc(alias = "cuDevSmResourceSplitByCount")]
    #[inline]
    pub fn split_by_count(self, split: SplitByCount) -> Result<Split> {
        Ok(self.try_split_by_count(split)?)
    }

    /// Does the same as [`split_by_count`](Self::split_by_count), but returns the group with the error.
    ///
    /// # Errors
    /// See [`split_by_count`](Self::split_by_count).
    #[inline]
    pub fn try_split_by_count(self, split: SplitByCount) -> Result<Split, Rejected<Self>> {
        self.divide_by_count(&split).map_err(|error| Rejected::new(error, self))
    }

    #[inline]
    fn divide_by_count(&self, split: &SplitByCount) -> Result<Split> {
        // An impossible split is found before a green context is created.
        CheckedSplit::new(self.description(), split)?;
        let kept = GreenContext::new([self.duplicate()])?;
        let resource = SmResource::of_green_context(&kept)?;
        let checked = CheckedSplit::new(&resource.description, split)?;
        checked.split(&resource, SplitGuard::within(Arc::new(kept)))
    }
}

/// A checked request for a split.
struct CheckedSplit<'a> {
    count: u32,
    split: &'a SplitByCount,
}

impl<'a> CheckedSplit<'a> {
    #[inline]
    fn new(source: &Description, split: &'a SplitByCount) -> Result<Self> {
        refuse_if!(split.max_groups == Some(0), Invalid::NoGroups);
        check(source, split.min, split.flags)?;
        // An upper bound on the number of groups. The driver returns the actual number.
        let max_count = source.sm_count() / split.min.max(1);
        let count = split.max_groups.map_or(max_count, |max| max.min(max_count));
        Ok(Self { count, split })
    }

    #[inline]
    fn split(self, source: &SmResource, split_guard: SplitGuard) -> Result<Split> {
        let Self { mut count, split } = self;
        let mut descriptions = Description::new_array(count as usize);
        let (groups, remainder) = descriptions.split_at_mut(count as usize);
        let (groups_out, remainder_out) =
            (Description::first_raw(groups), Description::first_raw(remainder));
        let source_raw = &raw const *source.description.raw();
        // SAFETY: there are places for `count` groups and for the remainder. The other pointers refer
        // to a live description and to a local variable.
        unsafe {
            call!(cuDevSmResourceSplitByCount(
                groups_out,
                &raw mut count,
                source_raw,
                remainder_out,
                split.flags.bits(),
                split.min
            ))
        }?;
        refuse_if!(count == 0, Invalid::NoGroups);
        Ok(Split::new(source.device, split_guard, descriptions, count as usize))
    }
}

impl Split {
    /// Creates a split from the driver's results: `group_count` groups at the beginning, and the
    /// remainder at the end.
    #[inline]
    pub(super) fn new(
        device: Device,
        split_guard: SplitGuard,
        mut descriptions: Vec<Description>,
        group_count: usize,
    ) -> Self {
        if group_count + 1 < descriptions.len() {
            descriptions.swap_remove(group_count);
            descriptions.truncate(group_count + 1);
        }
        let has_remainder = descriptions.last().is_some_and(Description::is_of_sms);
        // A group for which no SMs were left has no type either.
        descriptions.retain(Description::is_of_sms);
        let count = descriptions.len();
        let origin = Arc::new(Origin { device, descriptions, split_guard });
        let mut groups = Vec::with_capacity(count);
        for (index, origin) in std::iter::repeat_n(origin, count).enumerate() {
            groups.push(SmGroup { origin, index });
        }
        let remainder = if has_remainder { groups.pop() } else { None };
        Self { groups, remainder }
    }
}

#[inline]
fn count_groups(source: &Description, min: u32, flags: SplitFlags) -> Result<u32> {
    check(source, min, flags)?;
    let source_raw = &raw const *source.raw();
    let null = std::ptr::null_mut();
    // SAFETY: without result pointers for groups and remainder, the driver only counts. The other
    // pointers refer to a live description and to a variable.
    out(|place| unsafe {
        call!(cuDevSmResourceSplitByCount(null, place, source_raw, null, flags.bits(), min))
    })
}

/// Checks the rules that real drivers do not check, or for which they return only an error code.
#[inline]
fn check(source: &Description, min: u32, flags: SplitFlags) -> Result<()> {
    let sm_count = source.sm_count();
    refuse_if!(min > sm_count, Invalid::SplitAboveResource { min, sm_count });
    if flags.is_all() || !SplitFlags::all().contains(flags) {
        return Err(Invalid::SplitFlags { flags: flags.bits() }.into());
    }
    if flags.is_empty() {
        return Ok(());
    }
    init::needs("a split with flags", CudaVersion::new(12, 5))
}

bitflags! {
    /// How a group of an exact split is chosen (`CUdevSmResourceGroup_flags`). Since CUDA 13.1.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct GroupFlags: u32 {
        /// Fills the group with other SMs if the request cannot be met exactly. Co-scheduling is then a
        /// hint, and the size need not be a multiple of it.
        const BACKFILL = CUdevSmResourceGroup_flags::CU_DEV_SM_RESOURCE_GROUP_BACKFILL.0;
        /// Takes all SMs of the group from one locality domain. Since CUDA 13.4.
        const LOCALITY_DOMAIN_ID =
            CUdevSmResourceGroup_flags::CU_DEV_SM_RESOURCE_GROUP_LOCALITY_DOMAIN_ID.0;
        /// Allows adding SMs of other locality domains. Since CUDA 13.5.
        const LOCALITY_DOMAIN_SUPPLEMENTAL_SMS =
            CUdevSmResourceGroup_flags::CU_DEV_SM_RESOURCE_GROUP_LOCALITY_DOMAIN_SUPPLEMENTAL_SMS.0;
        // Flags that a newer driver reports for a group are kept, but are not passed to a driver.
        const _ = !0;
    }
}

impl GroupFlags {
    /// All flags that have a name here.
    const KNOWN: Self = Self::BACKFILL
        .union(Self::LOCALITY_DOMAIN_ID)
        .union(Self::LOCALITY_DOMAIN_SUPPLEMENTAL_SMS);
}

/// A group requested from [`SmResource::split`]. The default requests as many SMs as possible.
///
/// Later versions may add fields: end each value with `..Default::default()`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct GroupRequest {
    /// The number of SMs. It must be even, and the driver does not round it. Zero requests as many SMs
    /// as possible.
    pub sm_count: u32,
    /// The number of SMs that can run a cluster together. It must be even, and `sm_count` must be a
    /// multiple of it unless [`GroupFlags::BACKFILL`] is set. Zero requests the device's default (8 on
    /// compute capability 9.0 and later, otherwise 2). The maximum is 32 on 9.0 and later, otherwise 2.
    pub coscheduled: u32,
    /// The preferred number of SMs that can run a cluster together, or zero for no preference. This is
    /// a hint for compute capability 10.0 and later.
    pub preferred_coscheduled: u32,
    /// How the group is chosen.
    pub flags: GroupFlags,
    /// The locality domain of the group if [`GroupFlags::LOCALITY_DOMAIN_ID`] is set: a number or
    /// [`ANY_LOCALITY_DOMAIN`](Self::ANY_LOCALITY_DOMAIN). Since CUDA 13.4.
    pub locality_domain: u32,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl GroupRequest {
    /// Any single locality domain. Since CUDA 13.5.
    pub const ANY_LOCALITY_DOMAIN: u32 = !0;

    /// Creates a request for a group of `sm_count` SMs.
    #[inline]
    pub fn new(sm_count: u32) -> Self {
        Self { sm_count, ..Self::default() }
    }

    #[inline]
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

    #[inline]
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

/// Options for [`SmResource::split`].
///
/// Later versions may add fields: end each value with `..Default::default()`.
#[derive(Clone, Debug, Default)]
pub struct ExactSplit {
    /// The groups, in the order in which the driver chooses them.
    pub groups: Vec<GroupRequest>,
    /// Whether the split may include SMs that are in use by another split.
    pub overlap: Overlap,
    /// A label for the split. It appears in the error of a second split that is refused.
    pub label: String,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl SmResource {
    /// Returns the groups that a split would create, without splitting. Calls `cuDevSmResourceSplit`
    /// without a result array.
    ///
    /// The returned requests contain the driver's values in place of zeros. A group for which no SMs
    /// are left has zero SMs.
    ///
    /// # Errors
    /// See [`split`](Self::split).
    ///
    /// Since CUDA 13.1. Raw: [`cuDevSmResourceSplit`](fn@cuda_sys::cuDevSmResourceSplit).
    #[doc(alias = "cuDevSmResourceSplit")]
    #[inline]
    pub fn discover(&self, groups: &[GroupRequest]) -> Result<Vec<GroupRequest>> {
        discover(&self.description, check_groups(self.device, &self.description, groups)?)
    }

    /// Splits into disjoint groups of exactly the requested sizes. Calls `cuDevSmResourceSplit`.
    ///
    /// The driver does not round, so a request that it cannot meet exactly is an error.
    /// [`partition`](Self::partition) accepts sizes that it may round, and also works on older drivers.
    ///
    /// # Errors
    /// [`Invalid::NoGroups`], [`Invalid::GroupRequest`], [`Invalid::GroupFlags`],
    /// [`Invalid::NeedsNewerDriver`], [`Invalid::SplitInUse`];
    /// `CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION`; the driver is too old.
    ///
    /// Since CUDA 13.1. Raw: [`cuDevSmResourceSplit`](fn@cuda_sys::cuDevSmResourceSplit).
    #[doc(alias = "cuDevSmResourceSplit")]
    #[inline]
    pub fn split(&self, split: ExactSplit) -> Result<Split> {
        let params = check_groups(self.device, &self.description, &split.groups)?;
        // An impossible request is found before the device is registered as split.
        discover(&self.description, params.clone())?;
        let split_guard = self.acquire_split_guard(&split.label, split.overlap)?;
        split_exactly(self.device, &self.description, params, split_guard)
    }
}

impl SmGroup {
    /// Returns the groups that a split of this group or remainder would create. See
    /// [`SmResource::discover`].
    ///
    /// The driver is first asked about the group's own description. A driver may refuse that (NVIDIA's
    /// documentation allows the split for remainders). The query then creates a temporary green context
    /// of the group and destroys it, which costs the memory that [green contexts](super) cost.
    ///
    /// # Errors
    /// See [`split`](Self::split).
    ///
    /// Since CUDA 13.1. Raw: [`cuDevSmResourceSplit`](fn@cuda_sys::cuDevSmResourceSplit).
    #[doc(alias = "cuDevSmResourceSplit")]
    #[inline]
    pub fn discover(&self, groups: &[GroupRequest]) -> Result<Vec<GroupRequest>> {
        let params = check_groups(self.device(), self.description(), groups)?;
        match discover(self.description(), params.clone()) {
            Err(error) if cannot_be_split(&error) => {}
            found => return found,
        }
        let kept = GreenContext::new([self.duplicate()])?;
        discover(&SmResource::of_green_context(&kept)?.description, params)
    }

    /// Splits a group or a remainder into smaller groups of given sizes. See [`SmResource::split`].
    ///
    /// The driver first splits the group's own description, which NVIDIA's documentation allows for
    /// remainders. If the driver refuses that, the split uses a green context of the group
    /// (`cuGreenCtxCreate`), which stays alive as long as the smaller groups do.
    /// [`overlap`](ExactSplit::overlap) has no effect.
    ///
    /// Repeated splits leak memory, as green contexts do. Use
    /// [`PooledPartition::split`](super::PooledPartition::split) to reuse them.
    ///
    /// # Errors
    /// See [`SmResource::split`] and [`GreenContext::new`]. On an error, the group is dropped.
    /// [`try_split`](Self::try_split) returns it with the error.
    ///
    /// Since CUDA 13.1. Raw: [`cuDevSmResourceSplit`](fn@cuda_sys::cuDevSmResourceSplit).
    #[doc(alias = "cuDevSmResourceSplit")]
    #[inline]
    pub fn split(self, split: ExactSplit) -> Result<Split> {
        Ok(self.try_split(split)?)
    }

    /// Does the same as [`split`](Self::split), but returns the group with the error.
    ///
    /// # Errors
    /// See [`split`](Self::split).
    #[inline]
    pub fn try_split(self, split: ExactSplit) -> Result<Split, Rejected<Self>> {
        self.divide(&split.groups).map_err(|error| Rejected::new(error, self))
    }

    #[inline]
    fn divide(&self, groups: &[GroupRequest]) -> Result<Split> {
        let params = check_groups(self.device(), self.description(), groups)?;
        let origin: Kept = Arc::<Origin>::clone(&self.origin);
        match split_exactly(
            self.device(),
            self.description(),
            params.clone(),
            SplitGuard::within(origin),
        ) {
            Err(error) if cannot_be_split(&error) => {}
            split => return split,
        }
        let kept = GreenContext::new([self.duplicate()])?;
        let resource = SmResource::of_green_context(&kept)?;
        let split_guard = SplitGuard::within(Arc::new(kept));
        split_exactly(self.device(), &resource.description, params, split_guard)
    }
}

/// Returns whether the driver refuses to split this kind of resource at all, rather than this request.
#[inline]
fn cannot_be_split(error: &Error) -> bool {
    let refused = [
        CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
        CUresult::CUDA_ERROR_INVALID_RESOURCE_TYPE,
    ];
    error.code().is_some_and(|code| refused.contains(&code))
}

type GroupParams = Vec<CU_DEV_SM_RESOURCE_GROUP_PARAMS>;

/// Returns the groups that the driver would choose for these requests in a split of `part`.
#[inline]
fn discover(description: &Description, mut params: GroupParams) -> Result<Vec<GroupRequest>> {
    let count = u32::try_from(params.len()).unwrap_or(u32::MAX);
    let (source, requests) = (&raw const *description.raw(), params.as_mut_ptr());
    let null = std::ptr::null_mut();
    // SAFETY: without result pointers for groups and remainder, the driver only fills in the `count`
    // requests. The other pointer refers to a live description.
    unsafe { call!(cuDevSmResourceSplit(null, count, source, null, 0, requests)) }?;
    Ok(params.iter().map(GroupRequest::from_params).collect())
}

/// Splits `part` and stores the guard in the result.
#[inline]
fn split_exactly(
    device: Device,
    description: &Description,
    mut params: GroupParams,
    split_guard: SplitGuard,
) -> Result<Split> {
    let mut descriptions = Description::new_array(params.len());
    let (groups, remainder) = descriptions.split_at_mut(params.len());
    let count = u32::try_from(params.len()).unwrap_or(u32::MAX);
    let (groups_out, requests) = (Description::first_raw(groups), params.as_mut_ptr());
    let (source, remainder_out) =
        (&raw const *description.raw(), Description::first_raw(remainder));
    // SAFETY: the arrays have `count` groups and `count` requests, and there is a place for the
    // remainder. The other pointer refers to a live description.
    unsafe { call!(cuDevSmResourceSplit(groups_out, count, source, remainder_out, 0, requests)) }?;
    Ok(Split::new(device, split_guard, descriptions, params.len()))
}

/// Checks the rules that can be checked before the driver is called.
#[inline]
fn check_groups(
    device: Device,
    description: &Description,
    groups: &[GroupRequest],
) -> Result<GroupParams> {
    refuse_if!(groups.is_empty(), Invalid::NoGroups);
    let mut remaining = description.sm_count();
    for (index, group) in groups.iter().enumerate() {
        check_flags(index, group)?;
        let (sm_count, coscheduled) = (group.sm_count, group.coscheduled);
        let refuse = |rule: &'static str| {
            Err(Invalid::GroupRequest { index, sm_count, coscheduled, rule }.into())
        };
        if sm_count % 2 != 0 {
            return refuse("the number of SMs must be even");
        }
        if coscheduled % 2 != 0 {
            return refuse("the number of co-scheduled SMs must be even");
        }
        if coscheduled > 32 {
            return refuse("at most 32 SMs can be co-scheduled");
        }
        if coscheduled > 2 && device.compute_capability()?.0 < 9 {
            return refuse("at most 2 SMs can be co-scheduled before compute capability 9.0");
        }
        let has_backfill = group.flags.contains(GroupFlags::BACKFILL);
        if coscheduled != 0 && sm_count % coscheduled != 0 && !has_backfill {
            return refuse(
                "the number of SMs must be a multiple of the number of co-scheduled SMs",
            );
        }
        match remaining.checked_sub(sm_count) {
            Some(after) => remaining = after,
            None => return refuse("not enough SMs are left"),
        }
    }
    Ok(groups.iter().map(|group| group.params()).collect())
}

/// Checks the flags, because drivers are known to ignore flags that they do not know.
#[inline]
fn check_flags(index: usize, group: &GroupRequest) -> Result<()> {
    let flags = group.flags;
    let single_domain = GroupFlags::LOCALITY_DOMAIN_ID;
    let is_any_domain = group.locality_domain == GroupRequest::ANY_LOCALITY_DOMAIN;
    if !GroupFlags::KNOWN.contains(flags) {
        let flags = flags.bits();
        return Err(Invalid::GroupFlags { index, flags }.into());
    }
    let supplemental = GroupFlags::LOCALITY_DOMAIN_SUPPLEMENTAL_SMS;
    let needed = [
        (flags.contains(single_domain), CudaVersion::new(13, 4)),
        (flags.contains(single_domain) && is_any_domain, CudaVersion::new(13, 5)),
        (flags.contains(supplemental), CudaVersion::new(13, 5)),
    ];
    for (is_requested, since) in needed {
        if is_requested {
            init::needs("a group with these flags", since)?;
        }
    }
    Ok(())
}
