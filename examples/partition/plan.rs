//! From what is asked for to groups of SMs.

use crate::Error;
use crate::ask::Ask;
use cuda_safe::Device;
use cuda_safe::green::{Partitioning, SmGroup, SmResource, SplitByCount, SplitFlags, Wish};

const LABEL: &str = "the example";

/// The SMs for one partition.
pub(crate) struct Part {
    pub(crate) asked: u32,
    /// Several groups of one split are composed to one partition.
    pub(crate) groups: Vec<SmGroup>,
}

pub(crate) struct Plan {
    pub(crate) sms: u32,
    pub(crate) parts: Vec<Part>,
    /// SMs in no partition.
    pub(crate) remaining: u32,
}

pub(crate) fn make(device: &Device, ask: &Ask) -> Result<Plan, Error> {
    let resource = SmResource::of_device(device)?;
    let sms = resource.sm_count();
    let parts = match ask {
        Ask::Halves => halves(resource)?,
        Ask::ByCount {
            min,
            max_groups,
            flags,
        } => by_count(resource, *min, *max_groups, *flags)?,
        Ask::Groups(sizes) => of_sizes(resource, sizes)?,
    };
    let given: u32 = parts
        .iter()
        .flat_map(|part| &part.groups)
        .map(SmGroup::sm_count)
        .sum();
    Ok(Plan {
        sms,
        parts,
        remaining: sms - given,
    })
}

fn by_count(
    resource: SmResource,
    min: u32,
    max_groups: Option<u32>,
    flags: SplitFlags,
) -> Result<Vec<Part>, Error> {
    let split = resource.split_by_count(SplitByCount {
        min,
        max_groups,
        flags,
        label: LABEL.to_owned(),
        ..Default::default()
    })?;
    let part = |group| Part {
        asked: min,
        groups: vec![group],
    };
    Ok(split.groups.into_iter().map(part).collect())
}

/// The largest two equal groups.
fn halves(resource: SmResource) -> Result<Vec<Part>, Error> {
    let (sms, none) = (resource.sm_count(), SplitFlags::empty());
    let splits = resource.equal_splits(none)?;
    let Some(split) = splits.iter().rev().find(|split| split.groups >= 2) else {
        return Err(format!("the {sms} SMs of this device cannot be split in two").into());
    };
    let mut parts = by_count(resource, split.sm_count, Some(2), none)?;
    for part in &mut parts {
        part.asked = sms / 2;
    }
    Ok(parts)
}

fn of_sizes(resource: SmResource, sizes: &[u32]) -> Result<Vec<Part>, Error> {
    let partitions = resource.partition(&Partitioning {
        wishes: sizes.iter().map(|size| Wish::Sms(*size)).collect(),
        label: LABEL.to_owned(),
        ..Default::default()
    })?;
    let part = |(part, asked): (cuda_safe::green::Part, &u32)| Part {
        asked: *asked,
        groups: part.groups,
    };
    Ok(partitions.parts.into_iter().zip(sizes).map(part).collect())
}
