//! Splits by count: groups of equal size.

use super::GreenContext;
use super::claim::{Claim, Overlap};
use super::resource::{Origin, Part, SmGroup, SmResource};
use crate::call::call;
use crate::device::Device;
use crate::driver;
use crate::error::{Rejected, Result};
use crate::invalid::Invalid;
use bitflags::bitflags;
use cuda_sys::{CUdevSmResourceSplitByCount_flags, CudaVersion};
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
            pieces.take(&self, claim)
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
        Pieces::by_count(self.part(), split)?;
        let whole = GreenContext::new([self.again()])?;
        let resource = SmResource::of_green_context(&whole)?;
        let pieces = Pieces::by_count(&resource.part, split)?;
        pieces.take(&resource, Claim::within(Arc::new(whole)))
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

    fn take(self, input: &SmResource, claim: Claim) -> Result<Split> {
        let Self { mut count, split } = self;
        let mut parts = Part::places(count as usize);
        let (groups, remainder) = parts.split_at_mut(count as usize);
        let (first, rest) = (Part::first(groups), Part::first(remainder));
        let whole = &raw const *input.part.raw();
        // SAFETY: there are places for `count` groups and for the remainder; the other pointers are
        // to a live description and to a local.
        unsafe {
            call!(cuDevSmResourceSplitByCount(
                first,
                &raw mut count,
                whole,
                rest,
                split.flags.bits(),
                split.min
            ))
        }?;
        if count == 0 {
            return Err(Invalid::NoGroups.into());
        }
        Ok(Split::new(input.device, claim, parts, count as usize))
    }
}

impl Split {
    /// What the driver gave: `given` groups in the first places, and the remainder in the last.
    pub(super) fn new(device: Device, claim: Claim, mut parts: Vec<Part>, given: usize) -> Self {
        if given + 1 < parts.len() {
            parts.swap_remove(given);
            parts.truncate(given + 1);
        }
        let has_remainder = parts.last().is_some_and(Part::is_of_sms);
        // A group that there was nothing left for has no type either.
        parts.retain(Part::is_of_sms);
        let all = parts.len();
        let origin = Arc::new(Origin {
            device,
            parts,
            claim,
        });
        let mut groups = Vec::with_capacity(all);
        for (index, origin) in std::iter::repeat_n(origin, all).enumerate() {
            groups.push(SmGroup { origin, index });
        }
        let remainder = if has_remainder { groups.pop() } else { None };
        Self { groups, remainder }
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
