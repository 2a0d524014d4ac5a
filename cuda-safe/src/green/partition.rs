//! Partitions of requested sizes, on any driver, as planned.

use super::GreenContext;
use super::plan::{Method, Plan, PlannedPart};
use super::resource::{SmGroup, SmResource};
use super::split::ExactSplit;
use super::split::{SplitByCount, SplitFlags};
use super::split_guard::Overlap;
use crate::call::Result;

/// The requested size of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PartitionSize {
    /// At least this many SMs.
    Sms(u32),
    /// At least this percentage of the SMs, rounded up. If the requested sizes do not fit only because
    /// of the sizes that the driver supports, percentages are rounded down instead, and SMs may stay
    /// unused. To use all SMs, make the last partition [`Rest`](Self::Rest).
    Percent(u32),
    /// A share of the SMs that `Sms` and `Percent` leave: this weight, divided by the sum of all weights.
    ///
    /// Shares are rounded to sizes that the driver supports, and are as large as then fit. A share that
    /// is too small for a partition gets the smallest one. Unlike percentages, which have to add up to 100,
    /// weights always divide all SMs.
    Weight(u32),
    /// An equal part: all `Equal` partitions get the same number of SMs, as many as possible. The same as
    /// `Weight(1)`.
    Equal,
    /// All SMs that the other partitions leave. Allowed once. Shares by weight leave only SMs that do not
    /// fit into them.
    Rest,
}

/// Options for [`SmResource::partition`] and [`SmResource::plan`].
///
/// Later versions may add fields: end each value with `..Default::default()`.
#[derive(Clone, Debug, Default)]
pub struct PartitionRequest {
    /// The requested size of each partition.
    pub sizes: Vec<PartitionSize>,
    /// How groups are chosen if the driver splits by count.
    pub flags: SplitFlags,
    /// Whether the partitions may include SMs that are in use by another split.
    pub overlap: Overlap,
    /// A label for the partitions. It appears in the error of a second split that is refused.
    pub label: String,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

/// The result of [`SmResource::partition`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Partitions {
    /// The partitions, one per requested size.
    pub parts: Vec<Part>,
    /// The groups that belong to no partition.
    pub remaining: Vec<SmGroup>,
    /// How the SMs were split.
    pub method: Method,
}

/// The SMs of one partition.
#[derive(Debug)]
#[non_exhaustive]
pub struct Part {
    /// The number of SMs requested, or `None` for [`PartitionSize::Rest`].
    pub asked: Option<u32>,
    /// The groups that form the partition.
    pub groups: Vec<SmGroup>,
}

impl Part {
    /// Returns the number of SMs in the partition.
    #[inline]
    pub fn sm_count(&self) -> u32 {
        self.groups.iter().map(SmGroup::sm_count).sum()
    }

    /// Creates the green context. See [`GreenContext::new`].
    ///
    /// # Errors
    /// See [`GreenContext::new`]. On an error, the groups are dropped. [`GreenContext::try_new`] of
    /// [`groups`](Self::groups) returns them with the error.
    #[inline]
    pub fn create(self) -> Result<GreenContext> {
        GreenContext::new(self.groups)
    }
}

impl SmResource {
    /// Splits into partitions of the requested sizes, as closely as the driver can.
    ///
    /// Since CUDA 13.1 the split is exact. On older drivers, partitions are composed of groups of one
    /// split by count, with the group size that exceeds the requested sizes the least. On CUDA 12.4 a
    /// partition is one group. [`Partitions::method`] tells which method was used.
    ///
    /// # Errors
    /// [`Invalid::NoGroups`] if no sizes are requested; [`Invalid::ZeroPartitionSize`];
    /// [`Invalid::SeveralRests`];
    /// [`Invalid::NoSuchPartitions`] if there are too few SMs; [`Invalid::SplitInUse`]; the driver is
    /// too old.
    ///
    /// Since CUDA 12.4.
    ///
    /// [`Invalid::NoGroups`]: crate::Invalid::NoGroups
    /// [`Invalid::ZeroPartitionSize`]: crate::Invalid::ZeroPartitionSize
    /// [`Invalid::SeveralRests`]: crate::Invalid::SeveralRests
    /// [`Invalid::NoSuchPartitions`]: crate::Invalid::NoSuchPartitions
    /// [`Invalid::SplitInUse`]: crate::Invalid::SplitInUse
    ///
    /// ```no_run
    /// use cuda_safe::Device;
    /// use cuda_safe::green::{PartitionRequest, SmResource, PartitionSize};
    ///
    /// let resource = SmResource::of_device(&Device::get(0)?)?;
    /// let partitions = resource.partition(&PartitionRequest {
    ///     sizes: vec![PartitionSize::Sms(64), PartitionSize::Sms(32), PartitionSize::Sms(16)],
    ///     ..Default::default()
    /// })?;
    /// for part in partitions.parts {
    ///     let stream = part.create()?.stream()?;
    /// }
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    #[inline]
    pub fn partition(&self, partitioning: &PartitionRequest) -> Result<Partitions> {
        let plan = self.plan(partitioning)?;
        match plan.method {
            Method::Exact => self.partition_exactly(&plan, partitioning),
            Method::Composed { unit, units } => self.compose(&plan, unit, units, partitioning),
        }
    }

    #[inline]
    fn partition_exactly(
        &self,
        plan: &Plan,
        partitioning: &PartitionRequest,
    ) -> Result<Partitions> {
        let sizes: Vec<Option<u32>> = plan.parts.iter().map(|part| part.size).collect();
        let split = self.split(ExactSplit {
            groups: self.requests(&sizes)?,
            overlap: partitioning.overlap,
            label: partitioning.label.clone(),
            _non_exhaustive: (),
        })?;
        let mut groups = split.groups;
        let rest = sizes.contains(&None).then(|| groups.pop()).flatten();
        let (mut groups, mut rest) = (groups.into_iter(), rest.into_iter());
        let part = |part: &PlannedPart| Part {
            asked: part.asked,
            groups: match part.size {
                Some(_) => groups.next().into_iter().collect(),
                None => rest.next().into_iter().collect(),
            },
        };
        Ok(Partitions {
            parts: plan.parts.iter().map(part).collect(),
            remaining: split.remainder.into_iter().collect(),
            method: plan.method,
        })
    }

    #[inline]
    fn compose(
        &self,
        plan: &Plan,
        unit: u32,
        units: u32,
        partitioning: &PartitionRequest,
    ) -> Result<Partitions> {
        let split = self.split_by_count(SplitByCount {
            min: unit,
            max_groups: Some(units),
            flags: partitioning.flags,
            overlap: partitioning.overlap,
            label: partitioning.label.clone(),
            _non_exhaustive: (),
        })?;
        let mut groups = split.groups;
        let mut parts: Vec<Part> = Vec::new();
        for part in &plan.parts {
            let needed = part.size.map_or(0, |size| size.div_ceil(unit)) as usize;
            let taken_groups = groups.drain(..needed.min(groups.len()));
            parts.push(Part { asked: part.asked, groups: taken_groups.collect() });
        }
        let mut remaining: Vec<SmGroup> = groups.into_iter().chain(split.remainder).collect();
        let rest = plan.parts.iter().position(|part| part.size.is_none());
        if let Some(rest) = rest {
            let mut remaining_sms = plan.parts[rest].sm_count;
            while let Some(group) = remaining.first() {
                if group.sm_count() > remaining_sms {
                    break;
                }
                remaining_sms -= group.sm_count();
                parts[rest].groups.push(remaining.remove(0));
            }
        }
        Ok(Partitions { parts, remaining, method: plan.method })
    }
}
