//! Splits into groups of given sizes.

use super::claim::Overlap;
use super::resource::SmResource;
use super::split::Split;
use crate::call::call;
use crate::driver;
use crate::error::{Rejected, Result};
use crate::invalid::Invalid;
use bitflags::bitflags;
use cuda_sys::{
    CU_DEV_SM_RESOURCE_GROUP_PARAMS, CUdevResource, CUdevSmResourceGroup_flags, CudaVersion,
};

bitflags! {
    /// `CUdevSmResourceGroup_flags`: how a group of an exact split is chosen. Since CUDA 13.1.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct GroupFlags: u32 {
        /// What cannot be had as it was asked for is filled up: the co-scheduling is a hint.
        const BACKFILL = CUdevSmResourceGroup_flags::CU_DEV_SM_RESOURCE_GROUP_BACKFILL.0;
        /// The group is of one locality domain. Since CUDA 13.4.
        const LOCALITY_DOMAIN_ID =
            CUdevSmResourceGroup_flags::CU_DEV_SM_RESOURCE_GROUP_LOCALITY_DOMAIN_ID.0;
        /// SMs of other locality domains may be added. Since CUDA 13.5.
        const LOCALITY_DOMAIN_SUPPLEMENTAL_SMS =
            CUdevSmResourceGroup_flags::CU_DEV_SM_RESOURCE_GROUP_LOCALITY_DOMAIN_SUPPLEMENTAL_SMS.0;
        // Flags that newer drivers know are kept.
        const _ = !0;
    }
}

/// A group that [`SmResource::split`] is asked for. The default: as many SMs as there can be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct GroupRequest {
    /// SMs, an even number; the driver does not round. 0: as many as there can be.
    pub sm_count: u32,
    /// SMs that can run a cluster together, of which `sm_count` is a multiple. 0: the device's usual
    /// number (8 on compute capability 9.0 and later, else 2); at most 32 on 9.0 and later, else 2.
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
    /// requests, with the numbers that the driver puts in place of zeros. Nothing is split.
    ///
    /// # Errors
    /// As for [`split`](Self::split).
    ///
    /// Since CUDA 13.1.
    pub fn discover(&self, groups: &[GroupRequest]) -> Result<Vec<GroupRequest>> {
        let mut params = self.check(groups)?;
        let count = u32::try_from(params.len()).unwrap_or(u32::MAX);
        let (whole, wishes) = (&raw const *self.part.raw(), params.as_mut_ptr());
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

    /// `cuDevSmResourceSplit(groups, count, resource, &remainder, 0, params)`: splits into disjoint
    /// groups of the sizes that are asked for. The driver does not round: what cannot be had is an
    /// error.
    ///
    /// [`partition`](Self::partition) does the same, as well as it can, on older drivers.
    ///
    /// # Errors
    /// With the resource given back: [`Invalid::NoGroups`], [`Invalid::GroupRequest`],
    /// [`Invalid::GroupFlagsNeedNewerDriver`], [`Invalid::SplitInUse`];
    /// `CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION`; the driver is older.
    ///
    /// Since CUDA 13.1. Raw: [`cuDevSmResourceSplit`](fn@cuda_sys::cuDevSmResourceSplit).
    #[doc(alias = "cuDevSmResourceSplit")]
    pub fn split(self, split: ExactSplit) -> Result<Split, Rejected<Self>> {
        self.try_split(&split)
            .map_err(|error| Rejected::new(error, self))
    }

    pub(super) fn try_split(&self, split: &ExactSplit) -> Result<Split> {
        // What cannot be had is found before anything is claimed.
        self.discover(&split.groups)?;
        let mut params = self.check(&split.groups)?;
        let claim = self.claim(&split.label, split.overlap)?;
        let mut groups = vec![CUdevResource::default(); params.len()];
        let mut remainder = CUdevResource::default();
        let count = u32::try_from(params.len()).unwrap_or(u32::MAX);
        let (first, wishes) = (groups.as_mut_ptr(), params.as_mut_ptr());
        let (whole, rest) = (&raw const *self.part.raw(), &raw mut remainder);
        // SAFETY: there are `count` groups and as many requests; the other pointers are to a live
        // description and a local.
        unsafe { call!(cuDevSmResourceSplit(first, count, whole, rest, 0, wishes)) }?;
        Ok(Split::new(self, &claim, groups, remainder))
    }

    /// The rules that can be checked before the driver is asked.
    fn check(&self, groups: &[GroupRequest]) -> Result<Vec<CU_DEV_SM_RESOURCE_GROUP_PARAMS>> {
        if groups.is_empty() {
            return Err(Invalid::NoGroups.into());
        }
        let driver = driver::version()?;
        let mut left = self.sm_count();
        for (index, group) in groups.iter().enumerate() {
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
            if together != 0 && size % together != 0 {
                return refuse(
                    "the number of SMs is a multiple of those that run clusters together",
                );
            }
            match left.checked_sub(size) {
                Some(rest) => left = rest,
                None => return refuse("there are not so many SMs left"),
            }
            let needed = [
                (GroupFlags::LOCALITY_DOMAIN_ID, CudaVersion::new(13, 4)),
                (
                    GroupFlags::LOCALITY_DOMAIN_SUPPLEMENTAL_SMS,
                    CudaVersion::new(13, 5),
                ),
            ];
            for (flag, since) in needed {
                if group.flags.contains(flag) && driver < since {
                    return Err(Invalid::GroupFlagsNeedNewerDriver { since, driver }.into());
                }
            }
        }
        Ok(groups.iter().map(|group| group.params()).collect())
    }
}
