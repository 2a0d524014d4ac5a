//! Partitions of sizes that one asks for, on any driver, as they were planned.

use super::GreenContext;
use super::claim::Overlap;
use super::exact::ExactSplit;
use super::plan::{Method, Plan, PlannedPart};
use super::resource::{SmGroup, SmResource};
use super::split::{SplitByCount, SplitFlags};
use crate::error::{Rejected, Result};

/// How large a partition is wished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Wish {
    /// At least so many SMs.
    Sms(u32),
    /// So many of a hundred: at least; or, where only the sizes that there are leave too few SMs for that, as
    /// many as are not more.
    Percent(u32),
    /// As many as each other of these, and as many as there can be: `n` of them are `n` equal parts.
    Equal,
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

impl SmResource {
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
    /// [`Invalid::NoGroups`]: crate::Invalid::NoGroups
    /// [`Invalid::SeveralRests`]: crate::Invalid::SeveralRests
    /// [`Invalid::NoSuchPartitions`]: crate::Invalid::NoSuchPartitions
    /// [`Invalid::SplitInUse`]: crate::Invalid::SplitInUse
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
            Method::Composed { unit, units } => self.compose(&plan, unit, units, partitioning),
        }
    }

    fn carry_out_exact(
        self,
        plan: &Plan,
        partitioning: &Partitioning,
    ) -> Result<Partitions, Rejected<Self>> {
        let sizes: Vec<Option<u32>> = plan.parts.iter().map(|part| part.size).collect();
        let split = self.requests(&sizes).and_then(|groups| {
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

    fn compose(
        self,
        plan: &Plan,
        unit: u32,
        units: u32,
        partitioning: &Partitioning,
    ) -> Result<Partitions, Rejected<Self>> {
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
            let taken = groups.drain(..needed.min(groups.len()));
            parts.push(Part {
                asked: part.asked,
                groups: taken.collect(),
            });
        }
        let mut remaining: Vec<SmGroup> = groups.into_iter().chain(split.remainder).collect();
        let rest = plan.parts.iter().position(|part| part.size.is_none());
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
