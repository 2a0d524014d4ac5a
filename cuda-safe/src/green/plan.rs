//! What partitions there would be: nothing is made.

use super::exact::GroupRequest;
use super::partition::{Partitioning, Wish};
use super::resource::{ALIKE_SINCE, SmResource};
use super::split::SplitFlags;
use crate::driver;
use crate::error::{Error, Result};
use crate::invalid::Invalid;
use cuda_sys::{CUresult, CudaVersion};

/// How a plan is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Method {
    /// By [`SmResource::split`].
    Exact,
    /// By groups of one [`SmResource::split_by_count`], one or several to a partition.
    Composed {
        /// SMs of a group.
        unit: u32,
        /// How many groups are made.
        units: u32,
    },
}

/// What partitions there would be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Plan {
    /// How.
    pub method: Method,
    /// For each wish: the SMs that were asked for (none for [`Wish::Rest`]), and those given.
    pub parts: Vec<PlannedPart>,
    /// SMs in no partition.
    pub remaining: u32,
}

impl PlannedPart {
    fn new(size: Option<u32>, sm_count: u32) -> Self {
        Self {
            asked: size,
            sm_count,
            size,
        }
    }
}

impl Plan {
    /// With what was asked for: shares may have been rounded down.
    fn asked_for(mut self, wishes: &[Wish], asked: &[Option<u32>]) -> Self {
        for (part, (wish, asked)) in self.parts.iter_mut().zip(wishes.iter().zip(asked)) {
            if matches!(wish, Wish::Percent(_)) {
                part.asked = *asked;
            }
        }
        self
    }

    /// Whether both are the same partitions, whatever was asked for.
    pub(super) fn gives_the_same(&self, other: &Self) -> bool {
        let sizes = |plan: &Self| {
            plan.parts
                .iter()
                .map(|part| part.sm_count)
                .collect::<Vec<_>>()
        };
        self.method == other.method && sizes(self) == sizes(other)
    }
}

/// A partition of a [`Plan`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlannedPart {
    /// SMs that were asked for; none for [`Wish::Rest`].
    pub asked: Option<u32>,
    /// SMs given.
    pub sm_count: u32,
    /// What it is made for, at least, of what was asked for; none for [`Wish::Rest`].
    pub(super) size: Option<u32>,
}

/// A split of a device into equal groups, of [`SmResource::equal_splits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct EqualSplit {
    /// SMs of a group.
    pub sm_count: u32,
    /// How many groups there are.
    pub groups: u32,
    /// SMs that are left over.
    pub remaining: u32,
}

/// The splits into equal groups, asked for when they are needed.
struct Splits<'a> {
    resource: &'a SmResource,
    flags: SplitFlags,
    known: Option<Vec<EqualSplit>>,
}

impl<'a> Splits<'a> {
    fn new(resource: &'a SmResource, flags: SplitFlags) -> Self {
        Self {
            resource,
            flags,
            known: None,
        }
    }

    fn all(&mut self) -> Result<&[EqualSplit]> {
        let known = match self.known.take() {
            Some(known) => known,
            None => self.resource.equal_splits(self.flags)?,
        };
        Ok(self.known.insert(known))
    }
}

/// How shares become SMs.
#[derive(Clone, Copy)]
enum Rounding {
    Up,
    /// To a multiple.
    Down(u32),
}

/// What no device has.
fn check(wishes: &[Wish]) -> Result<()> {
    let is_nothing = |wish: &Wish| matches!(wish, Wish::Sms(0) | Wish::Percent(0));
    if wishes.is_empty() || wishes.iter().any(is_nothing) {
        return Err(Invalid::NoGroups.into());
    }
    if wishes.iter().filter(|wish| **wish == Wish::Rest).count() > 1 {
        return Err(Invalid::SeveralRests.into());
    }
    Ok(())
}

impl SmResource {
    /// All splits into equal groups that there are, from the smallest groups on. Nothing is split:
    /// the driver is asked for counts alone.
    ///
    /// # Errors
    /// As for [`count_groups`](Self::count_groups).
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
        if splits
            .last()
            .is_none_or(|last| last.sm_count != self.sm_count())
        {
            splits.push(EqualSplit {
                sm_count: self.sm_count(),
                groups: 1,
                remaining: 0,
            });
        }
        Ok(splits)
    }

    /// What [`partition`](Self::partition) would give; nothing is made.
    ///
    /// # Errors
    /// As for [`partition`](Self::partition).
    ///
    /// ```no_run
    /// use cuda_safe::Device;
    /// use cuda_safe::green::{Partitioning, SmResource, Wish};
    ///
    /// let resource = SmResource::of_device(&Device::get(0)?)?;
    /// let plan = resource.plan(&Partitioning {
    ///     wishes: vec![Wish::Sms(16), Wish::Rest],
    ///     ..Default::default()
    /// })?;
    /// println!("{} SMs for what is urgent, {} for the rest", plan.parts[0].sm_count, plan.parts[1].sm_count);
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    pub fn plan(&self, partitioning: &Partitioning) -> Result<Plan> {
        let Partitioning { wishes, flags, .. } = partitioning;
        check(wishes)?;
        let asked = self.sizes(wishes, Rounding::Up, 0);
        let mut splits = Splits::new(self, *flags);
        let mut why = None;
        for sizes in self.attempts(wishes, *flags)? {
            match self.plan_sizes(&sizes, &mut splits) {
                Ok(plan) => return Ok(plan.asked_for(wishes, &asked)),
                Err(Error::Invalid(invalid))
                    if matches!(*invalid, Invalid::NoSuchPartitions { .. }) =>
                {
                    why.get_or_insert(Error::Invalid(invalid));
                }
                Err(error) => return Err(error),
            }
        }
        Err(why.unwrap_or_else(|| Invalid::NoGroups.into()))
    }

    /// What each partition has at least, the best first; none for the rest.
    fn attempts<'a>(
        &'a self,
        wishes: &'a [Wish],
        flags: SplitFlags,
    ) -> Result<impl Iterator<Item = Vec<Option<u32>>> + 'a> {
        let (step, smallest) = (self.step(flags)?, self.smallest(flags)?);
        // Groups of that size may be what they are composed of.
        let most = if self.may_be_rounded_down(wishes) {
            self.sm_count()
        } else {
            0
        };
        let down = (step..=most).step_by(step as usize).map(Rounding::Down);
        let roundings = std::iter::once(Rounding::Up).chain(down);
        let equal = wishes.iter().filter(|wish| **wish == Wish::Equal).count();
        let equal = u32::try_from(equal).unwrap_or(u32::MAX);
        Ok(roundings.flat_map(move |rounding| {
            let others = self.sizes(wishes, rounding, 0).into_iter().flatten();
            let left = self
                .sm_count()
                .saturating_sub(others.fold(0, u32::saturating_add));
            // Without such a wish this is one attempt.
            let most = left.checked_div(equal);
            let steps = (smallest..=most.unwrap_or(0)).rev();
            let steps = steps.filter(move |size| size % step == 0);
            let sizes = std::iter::once(most.unwrap_or(0)).chain(steps);
            sizes.map(move |size| self.sizes(wishes, rounding, size))
        }))
    }

    /// Whether there are shares, and SMs enough for all wishes but for the sizes that there are.
    fn may_be_rounded_down(&self, wishes: &[Wish]) -> bool {
        let all = u64::from(self.sm_count());
        let hundredths = |wish: &Wish| match wish {
            Wish::Sms(sms) => u64::from(*sms) * 100,
            Wish::Percent(share) => all * u64::from(*share),
            Wish::Equal | Wish::Rest => 0,
        };
        let asked: u64 = wishes.iter().map(hundredths).sum();
        let is_share = |wish: &Wish| matches!(wish, Wish::Percent(_));
        wishes.iter().any(is_share) && asked <= all * 100
    }

    /// The SMs that each wish comes to; none for the rest.
    fn sizes(&self, wishes: &[Wish], rounding: Rounding, equal: u32) -> Vec<Option<u32>> {
        let share = |share: u32| {
            let of_hundred = u64::from(self.sm_count()) * u64::from(share);
            match rounding {
                Rounding::Up => of_hundred.div_ceil(100),
                Rounding::Down(step) => {
                    let whole = of_hundred / 100;
                    (whole - whole % u64::from(step)).max(1)
                }
            }
        };
        let size = |wish: &Wish| match wish {
            Wish::Sms(sms) => Some(*sms),
            Wish::Percent(of_hundred) => {
                Some(u32::try_from(share(*of_hundred)).unwrap_or(u32::MAX))
            }
            Wish::Equal => Some(equal),
            Wish::Rest => None,
        };
        wishes.iter().map(size).collect()
    }

    fn plan_sizes(&self, sizes: &[Option<u32>], splits: &mut Splits<'_>) -> Result<Plan> {
        if let Some(plan) = self.plan_exact(sizes)? {
            return Ok(plan);
        }
        self.plan_composed(sizes, splits.all()?)
    }

    /// The sizes that there are go up by this.
    fn step(&self, flags: SplitFlags) -> Result<u32> {
        // Without co-scheduling pairs of SMs are the units (measured).
        let ignoring = flags.contains(SplitFlags::IGNORE_SM_COSCHEDULING);
        Ok(if ignoring {
            2
        } else {
            self.granularity()?.multiple.max(1)
        })
    }

    fn smallest(&self, flags: SplitFlags) -> Result<u32> {
        let ignoring = flags.contains(SplitFlags::IGNORE_SM_COSCHEDULING);
        let min = if ignoring { 2 } else { self.granularity()?.min };
        Ok(min.max(1))
    }

    /// A plan for an exact split; none if the driver has no such thing, or cannot do it.
    fn plan_exact(&self, sizes: &[Option<u32>]) -> Result<Option<Plan>> {
        let requests = self.requests(sizes)?;
        let given = match self.discover(&requests) {
            Ok(given) => given,
            // The driver is older; or the sizes are not to be had so, but perhaps by count.
            Err(Error::Missing(_) | Error::Invalid(_)) => return Ok(None),
            Err(error)
                if error.code() == Some(CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let mut counts = given.iter().map(|group| group.sm_count);
        // The rest is asked for last.
        let mut parts = Vec::new();
        for size in sizes {
            let count = size.map_or(Some(0), |_| counts.next());
            parts.push(PlannedPart::new(*size, count.unwrap_or(0)));
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

    /// The groups of an exact split: sizes rounded up, and the rest at the end.
    pub(super) fn requests(&self, sizes: &[Option<u32>]) -> Result<Vec<GroupRequest>> {
        let multiple = self.granularity()?.multiple.max(2);
        let rounded = |size: u32| {
            let size = size.checked_next_multiple_of(multiple);
            GroupRequest::of(size.unwrap_or(u32::MAX - 1))
        };
        let sized = sizes.iter().flatten().map(|size| rounded(*size));
        let rest = sizes.contains(&None).then(GroupRequest::default);
        Ok(sized.chain(rest).collect())
    }

    /// A plan of groups of one size: of that which gives the least too much, and of these the
    /// largest.
    fn plan_composed(&self, sizes: &[Option<u32>], splits: &[EqualSplit]) -> Result<Plan> {
        let driver = driver::version()?;
        let several = driver >= CudaVersion::new(12, 5);
        let all_alike = driver >= ALIKE_SINCE;
        let mut best: Option<(u32, Plan)> = None;
        for split in splits {
            let Some(plan) = self.compose_of(split, sizes, several, all_alike) else {
                continue;
            };
            let sized = plan.parts.iter().filter_map(|part| {
                let size = part.size?;
                Some(part.sm_count - size)
            });
            let too_much = sized.sum();
            if best.as_ref().is_none_or(|(least, _)| too_much <= *least) {
                best = Some((too_much, plan));
            }
        }
        best.map(|(_, plan)| plan).ok_or_else(|| {
            Invalid::NoSuchPartitions {
                wishes: sizes.to_vec(),
                sm_count: self.sm_count(),
                single: (!several).then_some(driver),
            }
            .into()
        })
    }

    /// The partitions that groups of one size give; none if there are not enough of them. A partition
    /// has `several` groups if it needs them; where these have to be `all_alike`, the remainder is not
    /// among them.
    fn compose_of(
        &self,
        split: &EqualSplit,
        sizes: &[Option<u32>],
        several: bool,
        all_alike: bool,
    ) -> Option<Plan> {
        let (unit, mut units) = (split.sm_count, split.groups);
        let mut left = units;
        let mut parts = Vec::new();
        for size in sizes {
            let needed = size.map_or(0, |size| size.div_ceil(unit));
            if needed > 1 && !several {
                return None;
            }
            left = left.checked_sub(needed)?;
            parts.push(PlannedPart::new(*size, needed * unit));
        }
        if !several && sizes.contains(&None) && left != units {
            // What is not made a group is all in the remainder, which is one.
            (units, left) = (units - left, 0);
        }
        let mut remaining = self.sm_count() - (units - left) * unit;
        if let Some(rest) = parts.iter_mut().find(|part| part.size.is_none()) {
            // All that is left over, the remainder of the split too; or the groups; or one of them.
            let taken = match (several, left) {
                (false, 1..) => unit,
                (true, 1..) if all_alike => left * unit,
                (_, _) => remaining,
            };
            if taken == 0 {
                return None;
            }
            rest.sm_count = taken;
            remaining -= taken;
        }
        Some(Plan {
            method: Method::Composed { unit, units },
            parts,
            remaining,
        })
    }
}
