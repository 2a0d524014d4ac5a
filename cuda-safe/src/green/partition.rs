//! Partitions of sizes that one asks for, on any driver: planned, then made.

use super::GreenContext;
use super::claim::Overlap;
use super::exact::{ExactSplit, GroupRequest};
use super::resource::{ALIKE_SINCE, SmGroup, SmResource};
use super::split::{SplitByCount, SplitFlags};
use crate::driver;
use crate::error::{Error, Rejected, Result};
use crate::invalid::Invalid;
use cuda_sys::{CUresult, CudaVersion};

/// How large a partition is wished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Wish {
    /// At least so many SMs.
    Sms(u32),
    /// At least so many of a hundred.
    Percent(u32),
    /// All that the others leave; once.
    Rest,
}

/// What [`SmResource::partition`] and [`SmResource::plan`] are asked for.
#[derive(Clone, Debug, Default)]
pub struct Partitioning {
    /// The partitions.
    pub wishes: Vec<Wish>,
    /// How groups are chosen where the driver splits by count.
    pub flags: SplitFlags,
    /// Whether SMs that are in use under another split may be handed out again.
    pub overlap: Overlap,
    /// What the partitions are for: what a second split is told that is refused.
    pub label: String,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

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
        /// How many groups there are.
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

impl Plan {
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
}

/// The outcome of [`SmResource::partition`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Partitions {
    /// For each wish.
    pub parts: Vec<Part>,
    /// What is in no partition.
    pub remaining: Vec<SmGroup>,
    /// How it was done.
    pub method: Method,
}

/// The SMs for one partition.
#[derive(Debug)]
#[non_exhaustive]
pub struct Part {
    /// SMs that were asked for; none for [`Wish::Rest`].
    pub asked: Option<u32>,
    /// The groups that are the partition together.
    pub groups: Vec<SmGroup>,
}

impl Part {
    /// SMs given.
    pub fn sm_count(&self) -> u32 {
        self.groups.iter().map(SmGroup::sm_count).sum()
    }

    /// The partition: [`GreenContext::new`].
    ///
    /// # Errors
    /// As there.
    pub fn create(self) -> Result<GreenContext, Rejected<Vec<SmGroup>>> {
        GreenContext::new(self.groups)
    }
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
        let wishes = self.resolve(&partitioning.wishes)?;
        if let Some(plan) = self.plan_exact(&wishes)? {
            return Ok(plan);
        }
        self.plan_composed(&wishes, partitioning.flags)
    }

    /// Splits into partitions of the sizes that are wished, as well as the driver can, and says how:
    /// exactly from CUDA 13.1 on; before that composed of groups of one split by count, of the size
    /// that gives the least too much. (On CUDA 12.4 a partition is one group.)
    ///
    /// # Errors
    /// With the resource given back: [`Invalid::NoGroups`] without a wish or for one of no SMs;
    /// [`Invalid::SeveralRests`]; [`Invalid::NoSuchPartitions`] if there are not so many SMs;
    /// [`Invalid::SplitInUse`]; the driver is older.
    ///
    /// Since CUDA 12.4.
    ///
    /// ```no_run
    /// use cuda_safe::Device;
    /// use cuda_safe::green::{Partitioning, SmResource, Wish};
    ///
    /// let resource = SmResource::of_device(&Device::get(0)?)?;
    /// let partitions = resource.partition(&Partitioning {
    ///     wishes: vec![Wish::Sms(64), Wish::Sms(32), Wish::Sms(16)],
    ///     ..Default::default()
    /// })?;
    /// for part in partitions.parts {
    ///     let stream = part.create()?.stream()?;
    /// }
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    pub fn partition(self, partitioning: &Partitioning) -> Result<Partitions, Rejected<Self>> {
        let plan = match self.plan(partitioning) {
            Ok(plan) => plan,
            Err(error) => return Err(Rejected::new(error, self)),
        };
        match plan.method {
            Method::Exact => self.carry_out_exact(&plan, partitioning),
            Method::Composed { unit, .. } => self.compose(&plan, unit, partitioning),
        }
    }

    /// The SMs that each wish asks for at least; none for the rest.
    fn resolve(&self, wishes: &[Wish]) -> Result<Vec<Option<u32>>> {
        let all = self.sm_count();
        let asked: Vec<Option<u32>> = wishes
            .iter()
            .map(|wish| match wish {
                Wish::Sms(sms) => Some(*sms),
                Wish::Percent(share) => Some(
                    u32::try_from((u64::from(all) * u64::from(*share)).div_ceil(100))
                        .unwrap_or(u32::MAX),
                ),
                Wish::Rest => None,
            })
            .collect();
        if asked.is_empty() || asked.contains(&Some(0)) {
            return Err(Invalid::NoGroups.into());
        }
        if asked.iter().filter(|asked| asked.is_none()).count() > 1 {
            return Err(Invalid::SeveralRests.into());
        }
        Ok(asked)
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
    fn plan_exact(&self, wishes: &[Option<u32>]) -> Result<Option<Plan>> {
        let requests = self.requests(wishes)?;
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
        let mut sizes = given.iter().map(|group| group.sm_count);
        // The rest is asked for last.
        let mut parts = Vec::new();
        for asked in wishes {
            let size = asked.map_or(Some(0), |_| sizes.next());
            parts.push(PlannedPart {
                asked: *asked,
                sm_count: size.unwrap_or(0),
            });
        }
        if let Some(rest) = parts.iter_mut().find(|part| part.asked.is_none()) {
            rest.sm_count = sizes.next().unwrap_or(0);
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
    fn requests(&self, wishes: &[Option<u32>]) -> Result<Vec<GroupRequest>> {
        let multiple = self.granularity()?.multiple.max(2);
        let rounded = |asked: u32| {
            let size = asked.checked_next_multiple_of(multiple);
            GroupRequest::of(size.unwrap_or(u32::MAX - 1))
        };
        let sized = wishes.iter().flatten().map(|asked| rounded(*asked));
        let rest = wishes.contains(&None).then(GroupRequest::default);
        Ok(sized.chain(rest).collect())
    }

    /// A plan of groups of one size: of that which gives the least too much, and of these the
    /// largest.
    fn plan_composed(&self, wishes: &[Option<u32>], flags: SplitFlags) -> Result<Plan> {
        let driver = driver::version()?;
        let several = driver >= CudaVersion::new(12, 5);
        let all_alike = driver >= ALIKE_SINCE;
        let mut best: Option<(u32, Plan)> = None;
        for split in self.equal_splits(flags)? {
            let Some(plan) = self.compose_of(&split, wishes, several, all_alike) else {
                continue;
            };
            let sized = plan.parts.iter().filter_map(|part| {
                let asked = part.asked?;
                Some(part.sm_count - asked)
            });
            let too_much = sized.sum();
            if best.as_ref().is_none_or(|(least, _)| too_much <= *least) {
                best = Some((too_much, plan));
            }
        }
        best.map(|(_, plan)| plan).ok_or_else(|| {
            Invalid::NoSuchPartitions {
                wishes: wishes.to_vec(),
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
        wishes: &[Option<u32>],
        several: bool,
        all_alike: bool,
    ) -> Option<Plan> {
        let (unit, units) = (split.sm_count, split.groups);
        let mut left = units;
        let mut parts = Vec::new();
        for asked in wishes {
            let needed = asked.map_or(0, |asked| asked.div_ceil(unit));
            if needed > 1 && !several {
                return None;
            }
            left = left.checked_sub(needed)?;
            parts.push(PlannedPart {
                asked: *asked,
                sm_count: needed * unit,
            });
        }
        let mut remaining = self.sm_count() - (units - left) * unit;
        if let Some(rest) = parts.iter_mut().find(|part| part.asked.is_none()) {
            // All that is left over, the remainder of the split too; or the groups; or one of them.
            let taken = match (several, left) {
                (false, _) => unit.min(left * unit),
                (true, 1..) if all_alike => left * unit,
                (true, _) => remaining,
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

    fn carry_out_exact(
        self,
        plan: &Plan,
        partitioning: &Partitioning,
    ) -> Result<Partitions, Rejected<Self>> {
        let wishes: Vec<Option<u32>> = plan.parts.iter().map(|part| part.asked).collect();
        let split = self.requests(&wishes).and_then(|groups| {
            self.try_split(&ExactSplit {
                groups,
                overlap: partitioning.overlap,
                label: partitioning.label.clone(),
                _non_exhaustive: (),
            })
        });
        let split = match split {
            Ok(split) => split,
            Err(error) => return Err(Rejected::new(error, self)),
        };
        let mut groups = split.groups;
        let rest = wishes.contains(&None).then(|| groups.pop()).flatten();
        let (mut groups, mut rest) = (groups.into_iter(), rest.into_iter());
        let part = |asked: Option<u32>| Part {
            asked,
            groups: match asked {
                Some(_) => groups.next().into_iter().collect(),
                None => rest.next().into_iter().collect(),
            },
        };
        Ok(Partitions {
            parts: wishes.into_iter().map(part).collect(),
            remaining: split.remainder.into_iter().collect(),
            method: plan.method,
        })
    }

    fn compose(
        self,
        plan: &Plan,
        unit: u32,
        partitioning: &Partitioning,
    ) -> Result<Partitions, Rejected<Self>> {
        let split = self.split_by_count(SplitByCount {
            min: unit,
            max_groups: None,
            flags: partitioning.flags,
            overlap: partitioning.overlap,
            label: partitioning.label.clone(),
            _non_exhaustive: (),
        })?;
        let mut groups = split.groups;
        let mut parts: Vec<Part> = Vec::new();
        for part in &plan.parts {
            let needed = part.asked.map_or(0, |asked| asked.div_ceil(unit)) as usize;
            let taken = groups.drain(..needed.min(groups.len()));
            parts.push(Part {
                asked: part.asked,
                groups: taken.collect(),
            });
        }
        let mut remaining: Vec<SmGroup> = groups.into_iter().chain(split.remainder).collect();
        let rest = plan.parts.iter().position(|part| part.asked.is_none());
        if let Some(rest) = rest {
            let mut left = plan.parts[rest].sm_count;
            while let Some(group) = remaining.first() {
                if group.sm_count() > left {
                    break;
                }
                left -= group.sm_count();
                parts[rest].groups.push(remaining.remove(0));
            }
        }
        Ok(Partitions {
            parts,
            remaining,
            method: plan.method,
        })
    }
}
