//! Plans of partitions, made without creating anything.

#[cfg(test)]
mod tests;

use super::GreenContext;
use super::resource::{EQUAL_GROUPS_SINCE, SmGroup, SmResource};
use super::split::{ExactSplit, GroupRequest, SplitByCount, SplitFlags};
use super::split_guard::Overlap;
use crate::call::{Error, Invalid, Result, init};
use cuda_sys::{CUresult, CudaVersion};

/// How a plan is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Method {
    /// By [`SmResource::split`].
    Exact,
    /// By one [`SmResource::split_by_count`], with one or more groups per partition.
    Composed {
        /// The number of SMs in a group.
        unit: u32,
        /// The number of groups to create.
        units: u32,
    },
}

/// The partitions that [`SmResource::partition`] would create. Returned by [`SmResource::plan`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Plan {
    /// How the SMs would be split.
    pub method: Method,
    /// The planned partitions, one per requested size.
    pub parts: Vec<PlannedPart>,
    /// The number of SMs in no partition.
    pub remaining: u32,
}

impl PlannedPart {
    #[inline]
    fn new(size: Option<u32>, sm_count: u32) -> Self {
        Self { asked: size, sm_count, size }
    }
}

impl Plan {
    /// Stores the requested numbers of SMs, because percentages may have been rounded down.
    #[inline]
    fn with_requested_sizes(mut self, sizes: &[PartitionSize], asked: &[Option<u32>]) -> Self {
        for (part, (size, asked)) in self.parts.iter_mut().zip(sizes.iter().zip(asked)) {
            if matches!(size, PartitionSize::Percent(_)) {
                part.asked = *asked;
            }
        }
        self
    }

    /// Returns whether both plans create the same partitions. The requested sizes may differ.
    #[inline]
    pub(super) fn has_same_partitions(&self, other: &Self) -> bool {
        let sizes = |plan: &Self| plan.parts.iter().map(|part| part.sm_count).collect::<Vec<_>>();
        self.method == other.method && sizes(self) == sizes(other)
    }
}

/// A partition of a [`Plan`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlannedPart {
    /// The number of SMs requested, or `None` for [`PartitionSize::Rest`].
    pub asked: Option<u32>,
    /// The number of SMs that the partition gets.
    pub sm_count: u32,
    /// The minimum number of SMs for which the plan was made, or `None` for [`PartitionSize::Rest`].
    pub(super) size: Option<u32>,
}

/// A split of a device into equal groups. Returned by [`SmResource::equal_splits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct EqualSplit {
    /// The number of SMs in a group.
    pub sm_count: u32,
    /// The number of groups.
    pub groups: u32,
    /// The number of SMs left over.
    pub remaining: u32,
}

/// The splits into equal groups, queried on first use.
struct EqualSplits<'a> {
    resource: &'a SmResource,
    flags: SplitFlags,
    queried: Option<Vec<EqualSplit>>,
}

impl<'a> EqualSplits<'a> {
    #[inline]
    fn new(resource: &'a SmResource, flags: SplitFlags) -> Self {
        Self { resource, flags, queried: None }
    }

    #[inline]
    fn get(&mut self) -> Result<&[EqualSplit]> {
        let queried = match self.queried.take() {
            Some(queried) => queried,
            None => self.resource.equal_splits(self.flags)?,
        };
        Ok(self.queried.insert(queried))
    }
}

/// How percentages are rounded to SMs.
#[derive(Clone, Copy)]
enum Rounding {
    Up,
    /// Down to a multiple of this number.
    Down(u32),
}

/// The SMs that are shared by weight.
#[derive(Clone, Copy, Default)]
struct Shared {
    sms: u32,
    /// The sum of all weights.
    weights: u64,
    /// Shares are rounded down to a multiple of this number.
    multiple: u32,
    /// The minimum of a share.
    min: u32,
}

impl Shared {
    /// Returns the share of a weight.
    #[inline]
    fn share(self, weight: u32) -> u32 {
        let share = u64::from(self.sms) * u64::from(weight) / self.weights.max(1);
        let share = u32::try_from(share).unwrap_or(u32::MAX);
        (share - share % self.multiple.max(1)).max(self.min)
    }
}

impl PartitionSize {
    /// Returns the weight, or `None` if the size does not depend on the other sizes, or is the rest.
    #[inline]
    fn weight(&self) -> Option<u32> {
        match self {
            Self::Weight(weight) => Some(*weight),
            Self::Equal => Some(1),
            Self::Sms(_) | Self::Percent(_) | Self::Rest => None,
        }
    }
}

/// Checks the rules that hold on every device.
#[inline]
fn check(sizes: &[PartitionSize]) -> Result<()> {
    if sizes.is_empty() {
        return Err(Invalid::NoGroups.into());
    }
    let is_zero = |size: &PartitionSize| match size {
        PartitionSize::Sms(number)
        | PartitionSize::Percent(number)
        | PartitionSize::Weight(number) => *number == 0,
        PartitionSize::Equal | PartitionSize::Rest => false,
    };
    if let Some(index) = sizes.iter().position(is_zero) {
        return Err(Invalid::ZeroPartitionSize { index }.into());
    }
    if sizes.iter().filter(|size| **size == PartitionSize::Rest).count() > 1 {
        return Err(Invalid::SeveralRests.into());
    }
    Ok(())
}

impl SmResource {
    /// Returns all possible splits into equal groups, smallest groups first. Nothing is split; the
    /// driver only returns counts.
    ///
    /// # Errors
    /// See [`count_groups`](Self::count_groups).
    #[inline]
    pub fn equal_splits(&self, flags: SplitFlags) -> Result<Vec<EqualSplit>> {
        let step = self.step(flags)?;
        let mut splits = Vec::new();
        let mut size = self.smallest(flags)?;
        while size <= self.sm_count() {
            let groups = self.count_groups(size, flags)?;
            splits.push(EqualSplit {
                sm_count: size,
                groups,
                remaining: self.sm_count().saturating_sub(groups * size),
            });
            size += step;
        }
        if splits.last().is_none_or(|last| last.sm_count != self.sm_count()) {
            splits.push(EqualSplit { sm_count: self.sm_count(), groups: 1, remaining: 0 });
        }
        Ok(splits)
    }

    /// Returns the partitions that [`partition`](Self::partition) would create, without creating them.
    ///
    /// # Errors
    /// See [`partition`](Self::partition).
    ///
    /// ```no_run
    /// use cuda_safe::Device;
    /// use cuda_safe::green::{PartitionRequest, SmResource, PartitionSize};
    ///
    /// let resource = SmResource::of_device(&Device::get(0)?)?;
    /// let plan = resource.plan(&PartitionRequest {
    ///     sizes: vec![PartitionSize::Sms(16), PartitionSize::Rest],
    ///     ..Default::default()
    /// })?;
    /// let [urgent, rest] = [plan.parts[0].sm_count, plan.parts[1].sm_count];
    /// println!("{urgent} SMs for urgent work, {rest} for the rest");
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    #[inline]
    pub fn plan(&self, partitioning: &PartitionRequest) -> Result<Plan> {
        let PartitionRequest { sizes, flags, .. } = partitioning;
        check(sizes)?;
        let asked = self.counts(sizes, Rounding::Up, Shared::default());
        let mut splits = EqualSplits::new(self, *flags);
        let mut first_error = None;
        for counts in self.attempts(sizes, *flags)? {
            match self.plan_sizes(&counts, &mut splits) {
                Ok(plan) => return Ok(plan.with_requested_sizes(sizes, &asked)),
                Err(Error::Invalid(invalid))
                    if matches!(*invalid, Invalid::NoSuchPartitions { .. }) =>
                {
                    first_error.get_or_insert(Error::Invalid(invalid));
                }
                Err(error) => return Err(error),
            }
        }
        Err(first_error.unwrap_or_else(|| Invalid::NoGroups.into()))
    }

    /// Returns the sizes to try, best first: the minimum number of SMs of each partition, or `None` for
    /// the rest.
    #[inline]
    fn attempts<'a>(
        &'a self,
        sizes: &'a [PartitionSize],
        flags: SplitFlags,
    ) -> Result<impl Iterator<Item = Vec<Option<u32>>> + 'a> {
        let (step, smallest) = (self.step(flags)?, self.smallest(flags)?);
        // Any of these multiples may be the size of the groups that form the partitions.
        let max = if self.may_be_rounded_down(sizes) { self.sm_count() } else { 0 };
        let down = (step..=max).step_by(step as usize).map(Rounding::Down);
        let roundings = std::iter::once(Rounding::Up).chain(down);
        let weights = sizes.iter().filter_map(PartitionSize::weight);
        let weights: u64 = weights.map(u64::from).sum();
        Ok(roundings.flat_map(move |rounding| {
            let fixed = self.counts(sizes, rounding, Shared::default()).into_iter();
            let remaining =
                self.sm_count().saturating_sub(fixed.flatten().fold(0, u32::saturating_add));
            let unrounded = Shared { sms: remaining, weights, multiple: 1, min: 1 };
            // If the shares do not fit after the driver has rounded them up, they are rounded down, as
            // shares of the largest number for which they fit. This number may exceed the number of SMs,
            // because the remainders of the shares are not used. Without a weight, there is one attempt.
            let remainders = u32::try_from(sizes.len()).unwrap_or(u32::MAX).saturating_mul(step);
            let max = match weights {
                0 => 0,
                _ => remaining.saturating_add(remainders.min(self.sm_count())),
            };
            let rounded = (1..=max).rev().map(move |sms| Shared {
                sms,
                weights,
                multiple: step,
                min: smallest,
            });
            let counts = move |shared| self.counts(sizes, rounding, shared);
            let fits = |counts: &Vec<Option<u32>>| {
                let asked = counts.iter().flatten().map(|count| u64::from(*count));
                asked.sum::<u64>() <= u64::from(self.sm_count())
            };
            let mut previous = None;
            std::iter::once(counts(unrounded))
                .chain(rounded.map(counts).filter(fits))
                .filter(move |counts| previous.replace(counts.clone()).as_ref() != Some(counts))
        }))
    }

    /// Returns whether a size is a percentage and all sizes would fit if every number of SMs were
    /// possible.
    #[inline]
    fn may_be_rounded_down(&self, sizes: &[PartitionSize]) -> bool {
        let all = u64::from(self.sm_count());
        let hundredths = |size: &PartitionSize| match size {
            PartitionSize::Sms(sms) => u64::from(*sms) * 100,
            PartitionSize::Percent(share) => all * u64::from(*share),
            PartitionSize::Weight(_) | PartitionSize::Equal | PartitionSize::Rest => 0,
        };
        let asked: u64 = sizes.iter().map(hundredths).sum();
        let is_percentage = |size: &PartitionSize| matches!(size, PartitionSize::Percent(_));
        sizes.iter().any(is_percentage) && asked <= all * 100
    }

    /// Returns the number of SMs for each requested size, or `None` for the rest.
    #[inline]
    fn counts(
        &self,
        sizes: &[PartitionSize],
        rounding: Rounding,
        shared: Shared,
    ) -> Vec<Option<u32>> {
        let share = |share: u32| {
            let scaled = u64::from(self.sm_count()) * u64::from(share);
            match rounding {
                Rounding::Up => scaled.div_ceil(100),
                Rounding::Down(step) => {
                    let whole = scaled / 100;
                    (whole - whole % u64::from(step)).max(1)
                }
            }
        };
        let size = |size: &PartitionSize| match size {
            PartitionSize::Sms(sms) => Some(*sms),
            PartitionSize::Percent(percent) => {
                Some(u32::try_from(share(*percent)).unwrap_or(u32::MAX))
            }
            PartitionSize::Weight(weight) => Some(shared.share(*weight)),
            PartitionSize::Equal => Some(shared.share(1)),
            PartitionSize::Rest => None,
        };
        sizes.iter().map(size).collect()
    }

    #[inline]
    fn plan_sizes(&self, sizes: &[Option<u32>], splits: &mut EqualSplits<'_>) -> Result<Plan> {
        if let Some(plan) = self.plan_exact(sizes)? {
            return Ok(plan);
        }
        self.plan_composed(sizes, splits.get()?)
    }

    /// Returns the difference between consecutive partition sizes.
    #[inline]
    fn step(&self, flags: SplitFlags) -> Result<u32> {
        // Measured: without co-scheduling, sizes are multiples of two SMs.
        let ignores_coscheduling = flags.contains(SplitFlags::IGNORE_SM_COSCHEDULING);
        Ok(if ignores_coscheduling { 2 } else { self.granularity()?.multiple.max(1) })
    }

    #[inline]
    fn smallest(&self, flags: SplitFlags) -> Result<u32> {
        let ignores_coscheduling = flags.contains(SplitFlags::IGNORE_SM_COSCHEDULING);
        let min = if ignores_coscheduling { 2 } else { self.granularity()?.min };
        Ok(min.max(1))
    }

    /// Returns a plan for an exact split, or `None` if the driver does not support exact splits or
    /// cannot create this one.
    #[inline]
    fn plan_exact(&self, sizes: &[Option<u32>]) -> Result<Option<Plan>> {
        let requests = self.requests(sizes)?;
        let groups = match self.discover(&requests) {
            Ok(groups) => groups,
            // Either the driver is too old, or it cannot create these sizes exactly, but perhaps by
            // count.
            Err(Error::Missing(_) | Error::Invalid(_)) => return Ok(None),
            Err(error)
                if error.code() == Some(CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let mut counts = groups.iter().map(|group| group.sm_count);
        // The request for the rest is the last one.
        let mut parts = Vec::new();
        for size in sizes {
            let count = size.and_then(|_| counts.next());
            parts.push(PlannedPart::new(*size, count.unwrap_or_default()));
        }
        if let Some(rest) = parts.iter_mut().find(|part| part.size.is_none()) {
            rest.sm_count = counts.next().unwrap_or(0);
        }
        if parts.iter().any(|part| part.sm_count == 0) {
            return Ok(None);
        }
        let total: u32 = parts.iter().map(|part| part.sm_count).sum();
        Ok(Some(Plan {
            method: Method::Exact,
            parts,
            remaining: self.sm_count().saturating_sub(total),
        }))
    }

    /// Returns the requests for an exact split: the sizes rounded up, and the rest at the end.
    #[inline]
    pub(super) fn requests(&self, sizes: &[Option<u32>]) -> Result<Vec<GroupRequest>> {
        let multiple = self.granularity()?.multiple.max(2);
        let rounded = |size: u32| {
            let size = size.checked_next_multiple_of(multiple);
            GroupRequest::new(size.unwrap_or(u32::MAX - 1))
        };
        let sized = sizes.iter().flatten().map(|size| rounded(*size));
        let rest = sizes.contains(&None).then(GroupRequest::default);
        Ok(sized.chain(rest).collect())
    }

    /// Returns a plan of groups of one size: the size that exceeds the requested SMs the least, and the
    /// largest of these.
    #[inline]
    fn plan_composed(&self, sizes: &[Option<u32>], splits: &[EqualSplit]) -> Result<Plan> {
        let driver = init::version()?;
        let allow_several = driver >= CudaVersion::new(12, 5);
        let require_equal = driver >= EQUAL_GROUPS_SINCE;
        let mut best: Option<(u32, Plan)> = None;
        for split in splits {
            let Some(plan) = self.compose_from(split, sizes, allow_several, require_equal) else {
                continue;
            };
            let sized = plan.parts.iter().filter_map(|part| {
                let size = part.size?;
                Some(part.sm_count - size)
            });
            let surplus = sized.sum();
            if best.as_ref().is_none_or(|(least_surplus, _)| surplus <= *least_surplus) {
                best = Some((surplus, plan));
            }
        }
        best.map(|(_, plan)| plan).ok_or_else(|| {
            Invalid::NoSuchPartitions {
                sizes: sizes.to_vec(),
                sm_count: self.sm_count(),
                single: (!allow_several).then_some(driver),
            }
            .into()
        })
    }

    /// Returns the partitions that can be composed of groups of one size, or `None` if there are too
    /// few groups. A partition may have more than one group only if `allow_several` is set. With
    /// `require_equal`, the remainder of the split is not used.
    #[inline]
    fn compose_from(
        &self,
        split: &EqualSplit,
        sizes: &[Option<u32>],
        allow_several: bool,
        require_equal: bool,
    ) -> Option<Plan> {
        let (unit, mut units) = (split.sm_count, split.groups);
        let mut unused_groups = units;
        let mut parts = Vec::new();
        for size in sizes {
            let needed = size.map_or(0, |size| size.div_ceil(unit));
            if needed > 1 && !allow_several {
                return None;
            }
            unused_groups = unused_groups.checked_sub(needed)?;
            parts.push(PlannedPart::new(*size, needed * unit));
        }
        if !allow_several && sizes.contains(&None) && unused_groups != units {
            // SMs that do not become groups all stay in the remainder, which counts as one group.
            (units, unused_groups) = (units - unused_groups, 0);
        }
        let mut remaining = self.sm_count() - (units - unused_groups) * unit;
        if let Some(rest) = parts.iter_mut().find(|part| part.size.is_none()) {
            // The rest is all groups left over including the remainder of the split, only the groups,
            // or one group.
            let taken = match (allow_several, unused_groups) {
                (false, 1..) => unit,
                (true, 1..) if require_equal => unused_groups * unit,
                (_, _) => remaining,
            };
            if taken == 0 {
                return None;
            }
            rest.sm_count = taken;
            remaining -= taken;
        }
        Some(Plan { method: Method::Composed { unit, units }, parts, remaining })
    }
}

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
