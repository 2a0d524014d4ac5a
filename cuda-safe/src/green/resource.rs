//! Multiprocessors as a resource: asked for, split.

use super::claim::{Claim, Overlap, claim};
use crate::call::call;
use crate::device::Device;
use crate::driver;
use crate::error::{Error, Rejected, Result};
use crate::invalid::Invalid;
use crate::release;
use bitflags::bitflags;
use cuda_sys::{
    CUdevResource, CUdevResourceType, CUdevSmResource, CUdevSmResourceSplitByCount_flags,
    CudaVersion,
};
use std::fmt;
use std::sync::Arc;

/// All multiprocessors (SMs) of a device, not yet split.
pub struct SmResource {
    device: Device,
    part: Part,
}

/// Some of a device's SMs, out of a [split](SmResource::split_by_count); for one
/// [`GreenContext`](super::GreenContext).
pub struct SmGroup {
    device: Device,
    part: Part,
    claim: Arc<Claim>,
}

/// The driver's description. Opaque but for the SM fields: copied whole, never made up.
struct Part {
    raw: Box<CUdevResource>,
}

// SAFETY: the description is plain data; its pointer, to a further resource, is the driver's and is
// never followed here.
unsafe impl Send for Part {}
// SAFETY: as for Send.
unsafe impl Sync for Part {}

impl Part {
    fn sm(&self) -> CUdevSmResource {
        // SAFETY: every Part is an SM resource that the driver has filled in, and the record is
        // of integers.
        unsafe { self.raw.__bindgen_anon_1.sm }
    }
}

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
    /// Groups of equal size.
    pub groups: Vec<SmGroup>,
    /// What was left over, without guarantees on clusters.
    pub remainder: Option<SmGroup>,
}

impl SmResource {
    /// `cuDeviceGetDevResource(device, &resource, SM)`: the SMs of a device.
    ///
    /// # Errors
    /// The driver is older ([`Error::Missing`]); there is no driver or no GPU.
    ///
    /// Since CUDA 12.4.
    #[doc(alias = "cuDeviceGetDevResource")]
    pub fn of_device(device: &Device) -> Result<Self> {
        driver::init()?;
        let mut raw = CUdevResource::default();
        let kind = CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;
        // SAFETY: the pointer is to a local.
        unsafe { call!(cuDeviceGetDevResource(device.as_raw(), &raw mut raw, kind)) }?;
        Ok(Self {
            device: *device,
            part: Part { raw: raw.into() },
        })
    }

    /// The device.
    pub fn device(&self) -> Device {
        self.device
    }

    /// How many SMs there are.
    pub fn sm_count(&self) -> u32 {
        self.part.sm().smCount
    }

    /// SMs that a partition has at least; none on drivers before CUDA 13.0, which do not tell.
    pub fn min_partition_size(&self) -> Option<u32> {
        told(self.part.sm().minSmPartitionSize)
    }

    /// The number whose multiples give groups that run clusters together; none on drivers before
    /// CUDA 13.0, which do not tell.
    pub fn coscheduled_alignment(&self) -> Option<u32> {
        told(self.part.sm().smCoscheduledAlignment)
    }

    /// `cuDevSmResourceSplitByCount(NULL, &count, …)`: how many groups a split would give,
    /// without splitting.
    ///
    /// # Errors
    /// As for [`split_by_count`](Self::split_by_count).
    ///
    /// Since CUDA 12.4.
    pub fn count_groups(&self, min: u32, flags: SplitFlags) -> Result<u32> {
        self.check(min, flags)?;
        let mut count = 0;
        let input = &raw const *self.part.raw;
        let nothing = std::ptr::null_mut();
        // SAFETY: without a place for groups and remainder the driver only counts; the other
        // pointers are to a live description and a local.
        unsafe {
            call!(cuDevSmResourceSplitByCount(
                nothing,
                &raw mut count,
                input,
                nothing,
                flags.bits(),
                min
            ))
        }?;
        Ok(count)
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
    /// Since CUDA 12.4.
    #[doc(alias = "cuDevSmResourceSplitByCount")]
    pub fn split_by_count(self, split: SplitByCount) -> Result<Split, Rejected<Self>> {
        match self.try_split(&split) {
            Ok(split) => Ok(split),
            Err(error) => Err(Rejected::new(error, self)),
        }
    }

    fn try_split(&self, split: &SplitByCount) -> Result<Split> {
        if split.max_groups == Some(0) {
            return Err(Invalid::NoGroups.into());
        }
        let possible = self.count_groups(split.min, split.flags)?;
        let mut count = split.max_groups.map_or(possible, |max| max.min(possible));
        if count == 0 {
            return Err(Invalid::NoGroups.into());
        }
        // A green context that waits for its release has these SMs as well.
        release::drain();
        let claim = claim(self.device, &split.label, split.overlap)?;

        let mut groups = vec![CUdevResource::default(); count as usize];
        let mut remainder = CUdevResource::default();
        let input = &raw const *self.part.raw;
        let first = groups.as_mut_ptr();
        // SAFETY: the array has room for `count` groups; the other pointers are to a live
        // description and to locals.
        unsafe {
            call!(cuDevSmResourceSplitByCount(
                first,
                &raw mut count,
                input,
                &raw mut remainder,
                split.flags.bits(),
                split.min
            ))
        }?;
        groups.truncate(count as usize);

        let group = |raw| SmGroup {
            device: self.device,
            part: Part { raw: Box::new(raw) },
            claim: Arc::clone(&claim),
        };
        // An empty remainder has no type.
        let some_left = remainder.type_ == CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;
        Ok(Split {
            remainder: some_left.then(|| group(remainder)),
            groups: groups.into_iter().map(group).collect(),
        })
    }

    /// The rules that real drivers do not check, or answer with a bare code.
    fn check(&self, min: u32, flags: SplitFlags) -> Result<()> {
        const FLAGS_SINCE: CudaVersion = CudaVersion::new(12, 5);
        if min > self.sm_count() {
            return Err(Invalid::SplitAboveResource {
                min,
                sm_count: self.sm_count(),
            }
            .into());
        }
        if flags.is_all() || !SplitFlags::all().contains(flags) {
            return Err(Invalid::SplitFlags {
                flags: flags.bits(),
            }
            .into());
        }
        let driver = driver::version()?;
        if !flags.is_empty() && driver < FLAGS_SINCE {
            return Err(Invalid::SplitFlagsNeedNewerDriver { driver }.into());
        }
        Ok(())
    }
}

/// A field that older drivers leave at zero.
fn told(field: u32) -> Option<u32> {
    (field != 0).then_some(field)
}

impl SmGroup {
    /// The device.
    pub fn device(&self) -> Device {
        self.device
    }

    /// How many SMs the group has.
    pub fn sm_count(&self) -> u32 {
        self.part.sm().smCount
    }

    fn raw(&self) -> CUdevResource {
        *self.part.raw
    }

    /// Whether both are of one split: what one green context can be made of.
    fn is_of_same_split(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.claim, &other.claim)
    }
}

/// The descriptions of a green context's groups, checked for what the driver does not check.
pub(super) fn together(groups: &[SmGroup]) -> Result<Vec<CUdevResource>, Error> {
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
    }
    Ok(groups.iter().map(SmGroup::raw).collect())
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
            .field("device", &self.device)
            .field("sm_count", &self.sm_count())
            .finish()
    }
}
