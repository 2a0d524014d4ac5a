//! Splits by count: groups of equal size.

use super::GreenContext;
use super::resource::{Description, Origin, SmGroup, SmResource};
use super::split_guard::{Overlap, SplitGuard};
use crate::call::{Invalid, Rejected, Result, call, init, out};
use crate::device::Device;
use bitflags::bitflags;
use cuda_sys::{CUdevSmResourceSplitByCount_flags, CudaVersion};
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
        if split.max_groups == Some(0) {
            return Err(Invalid::NoGroups.into());
        }
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
        if count == 0 {
            return Err(Invalid::NoGroups.into());
        }
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
    const FLAGS_SINCE: CudaVersion = CudaVersion::new(12, 5);
    let sm_count = source.sm_count();
    if min > sm_count {
        return Err(Invalid::SplitAboveResource { min, sm_count }.into());
    }
    if flags.is_all() || !SplitFlags::all().contains(flags) {
        return Err(Invalid::SplitFlags { flags: flags.bits() }.into());
    }
    if flags.is_empty() {
        return Ok(());
    }
    match init::version()? {
        driver if driver < FLAGS_SINCE => Err(Invalid::SplitFlagsNeedNewerDriver { driver }.into()),
        _ => Ok(()),
    }
}
