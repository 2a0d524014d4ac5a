//! Splits by count: groups of equal size.

use super::GreenContext;
use super::claim::{Claim, Overlap};
use super::resource::{Part, SmGroup, SmResource};
use crate::call::call;
use crate::device::Device;
use crate::driver;
use crate::error::{Rejected, Result};
use crate::invalid::Invalid;
use bitflags::bitflags;
use cuda_sys::{CUdevResource, CUdevSmResourceSplitByCount_flags, CudaVersion};
use std::sync::Arc;

bitflags! {
    /// How [`SmResource::split_by_count`] chooses. Since CUDA 12.5; one of them at a time.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct SplitFlags: u32 {
        /// Finer groups, of SMs that need not be able to run a cluster together.
        const IGNORE_SM_COSCHEDULING =
            CUdevSmResourceSplitByCount_flags::CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING.0;
        /// Groups for the largest clusters, on compute capability 9.0 and later.
        const MAX_POTENTIAL_CLUSTER_SIZE =
            CUdevSmResourceSplitByCount_flags::CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE.0;
    }
}

/// What [`SmResource::split_by_count`] is asked for. The default: as many groups as there can be,
/// of the smallest size.
#[derive(Clone, Debug, Default)]
pub struct SplitByCount {
    /// SMs that a group has at least; the driver rounds up to its granularity. 0: the smallest
    /// group.
    pub min: u32,
    /// Groups, at most; none: as many as there can be.
    pub max_groups: Option<u32>,
    /// How to choose.
    pub flags: SplitFlags,
    /// Whether SMs that are in use under another split may be handed out again.
    pub overlap: Overlap,
    /// What the split is for: what a second one is told that is refused.
    pub label: String,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

/// The outcome of a split.
#[derive(Debug)]
pub struct Split {
    /// Of equal size if split by count, of those that were asked for if split exactly.
    pub groups: Vec<SmGroup>,
    /// What was left over, without guarantees on clusters.
    pub remainder: Option<SmGroup>,
}

impl SmResource {
    /// `cuDevSmResourceSplitByCount(NULL, &count, …)`: how many groups a split would give,
    /// without splitting.
    ///
    /// # Errors
    /// As for [`split_by_count`](Self::split_by_count).
    ///
    /// Since CUDA 12.4.
    pub fn count_groups(&self, min: u32, flags: SplitFlags) -> Result<u32> {
        count_groups(&self.part, min, flags)
    }

    /// `cuDevSmResourceSplitByCount(groups, &count, resource, &remainder, flags, min)`: splits
    /// into disjoint groups of equal size.
    ///
    /// The driver rounds `min` up to its granularity, at most to all SMs, and may give fewer
    /// groups than SMs / `min` (an H200 with 132 SMs: 15 groups of 8 and 12 left over).
    ///
    /// # Errors
    /// With the resource given back: [`Invalid::SplitAboveResource`], [`Invalid::NoGroups`],
    /// [`Invalid::SplitFlags`], [`Invalid::SplitInUse`]; the driver is older.
    ///
    /// Since CUDA 12.4. Raw: [`cuDevSmResourceSplitByCount`](fn@cuda_sys::cuDevSmResourceSplitByCount).
    #[doc(alias = "cuDevSmResourceSplitByCount")]
    pub fn split_by_count(self, split: SplitByCount) -> Result<Split, Rejected<Self>> {
        let done = Pieces::by_count(&self.part, &split).and_then(|pieces| {
            let claim = self.claim(&split.label, split.overlap)?;
            pieces.take(&self, &claim)
        });
        done.map_err(|error| Rejected::new(error, self))
    }
}

impl SmGroup {
    /// Splits a group again, into smaller groups of equal size: through a green context of the group
    /// (`cuGreenCtxCreate`), as the driver splits nothing else; it stays for as long as the smaller
    /// groups do. [`overlap`](SplitByCount::overlap) makes no difference.
    ///
    /// Each time this makes a green context, whose memory [does not come back](super) as a whole when
    /// it is destroyed: split again and again through a pool, by
    /// [`PooledPartition::split`](super::PooledPartition::split).
    ///
    /// # Errors
    /// With the group given back: as for [`SmResource::split_by_count`] and [`GreenContext::new`].
    ///
    /// Since CUDA 12.4. Raw: [`cuDevSmResourceSplitByCount`](fn@cuda_sys::cuDevSmResourceSplitByCount).
    #[doc(alias = "cuDevSmResourceSplitByCount")]
    pub fn split_by_count(self, split: SplitByCount) -> Result<Split, Rejected<Self>> {
        self.try_split_by_count(&split)
            .map_err(|error| Rejected::new(error, self))
    }

    fn try_split_by_count(&self, split: &SplitByCount) -> Result<Split> {
        // What there cannot be is found before anything is made.
        Pieces::by_count(&self.part, split)?;
        let whole = GreenContext::new([self.again()])?;
        let resource = SmResource::of_green_context(&whole)?;
        let pieces = Pieces::by_count(&resource.part, split)?;
        pieces.take(&resource, &Claim::within(whole))
    }
}

/// A split that may be possible.
struct Pieces<'a> {
    count: u32,
    split: &'a SplitByCount,
}

impl<'a> Pieces<'a> {
    fn by_count(input: &Part, split: &'a SplitByCount) -> Result<Self> {
        if split.max_groups == Some(0) {
            return Err(Invalid::NoGroups.into());
        }
        check(input, split.min, split.flags)?;
        // Not more than there can be; the driver tells how many there are.
        let most = input.sm_count() / split.min.max(1);
        let count = split.max_groups.map_or(most, |max| max.min(most));
        Ok(Self { count, split })
    }

    fn take(self, input: &SmResource, claim: &Arc<Claim>) -> Result<Split> {
        let Self { mut count, split } = self;
        let mut groups = vec![CUdevResource::default(); count as usize];
        let mut remainder = CUdevResource::default();
        let first = groups.as_mut_ptr();
        let whole = &raw const *input.part.raw();
        // SAFETY: the array has room for `count` groups; the other pointers are to a live
        // description and to locals.
        unsafe {
            call!(cuDevSmResourceSplitByCount(
                first,
                &raw mut count,
                whole,
                &raw mut remainder,
                split.flags.bits(),
                split.min
            ))
        }?;
        if count == 0 {
            return Err(Invalid::NoGroups.into());
        }
        groups.truncate(count as usize);
        Ok(Split::new(input.device, claim, groups, remainder))
    }
}

impl Split {
    /// What the driver gave.
    pub(super) fn new(
        device: Device,
        claim: &Arc<Claim>,
        groups: Vec<CUdevResource>,
        remainder: CUdevResource,
    ) -> Self {
        let group = |raw| {
            Part::new(raw).map(|part| SmGroup {
                device,
                part,
                claim: Arc::clone(claim),
            })
        };
        Self {
            groups: groups.into_iter().filter_map(group).collect(),
            remainder: group(remainder),
        }
    }
}

fn count_groups(input: &Part, min: u32, flags: SplitFlags) -> Result<u32> {
    check(input, min, flags)?;
    let mut count = 0;
    let whole = &raw const *input.raw();
    let nothing = std::ptr::null_mut();
    // SAFETY: without a place for groups and remainder the driver only counts; the other
    // pointers are to a live description and a local.
    unsafe {
        call!(cuDevSmResourceSplitByCount(
            nothing,
            &raw mut count,
            whole,
            nothing,
            flags.bits(),
            min
        ))
    }?;
    Ok(count)
}

/// The rules that real drivers do not check, or answer with a bare code.
fn check(input: &Part, min: u32, flags: SplitFlags) -> Result<()> {
    const FLAGS_SINCE: CudaVersion = CudaVersion::new(12, 5);
    let sm_count = input.sm_count();
    if min > sm_count {
        return Err(Invalid::SplitAboveResource { min, sm_count }.into());
    }
    if flags.is_all() || !SplitFlags::all().contains(flags) {
        return Err(Invalid::SplitFlags {
            flags: flags.bits(),
        }
        .into());
    }
    if flags.is_empty() {
        return Ok(());
    }
    match driver::version()? {
        driver if driver < FLAGS_SINCE => Err(Invalid::SplitFlagsNeedNewerDriver { driver }.into()),
        _ => Ok(()),
    }
}
