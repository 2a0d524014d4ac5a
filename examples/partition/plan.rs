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
        Ask::Halves => of_wishes(resource, vec![(Wish::Equal, sms / 2); 2])?,
        Ask::ByCount {
            min,
            max_groups,
            flags,
        } => by_count(resource, *min, *max_groups, *flags)?,
        Ask::Groups(sizes) => {
            let wish = |size: &u32| (Wish::Sms(*size), *size);
            of_wishes(resource, sizes.iter().map(wish).collect())?
        }
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

/// The asked number is what is shown, not what a wish comes to.
fn of_wishes(resource: SmResource, wishes: Vec<(Wish, u32)>) -> Result<Vec<Part>, Error> {
    let partitions = resource.partition(&Partitioning {
        wishes: wishes.iter().map(|(wish, _)| *wish).collect(),
        label: LABEL.to_owned(),
        ..Default::default()
    })?;
    let part = |(part, (_, asked)): (cuda_safe::green::Part, (Wish, u32))| Part {
        asked,
        groups: part.groups,
    };
    Ok(partitions.parts.into_iter().zip(wishes).map(part).collect())
}
