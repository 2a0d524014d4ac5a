//! Converts the request to groups of SMs.

use crate::Error;
use crate::ask::Ask;
use cuda_safe::Device;
use cuda_safe::green::{
    PartitionRequest, PartitionSize, SmGroup, SmResource, SplitByCount, SplitFlags,
};

const LABEL: &str = "the example";

/// The SMs of one partition.
pub(crate) struct Part {
    pub(crate) asked: u32,
    /// The groups of a split that form this partition.
    pub(crate) groups: Vec<SmGroup>,
}

pub(crate) struct Plan {
    pub(crate) sms: u32,
    pub(crate) parts: Vec<Part>,
    /// The number of SMs in no partition.
    pub(crate) remaining: u32,
}

pub(crate) fn make(device: &Device, ask: &Ask) -> Result<Plan, Error> {
    let resource = SmResource::of_device(device)?;
    let sms = resource.sm_count();
    let parts = match ask {
        Ask::Halves => of_sizes(resource, vec![(PartitionSize::Equal, sms / 2); 2])?,
        Ask::ByCount { min, max_groups, flags } => by_count(resource, *min, *max_groups, *flags)?,
        Ask::Groups(sizes) => {
            let size = |size: &u32| (PartitionSize::Sms(*size), *size);
            of_sizes(resource, sizes.iter().map(size).collect())?
        }
    };
    let given: u32 = parts.iter().flat_map(|part| &part.groups).map(SmGroup::sm_count).sum();
    Ok(Plan { sms, parts, remaining: sms - given })
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
    let part = |group| Part { asked: min, groups: vec![group] };
    Ok(split.groups.into_iter().map(part).collect())
}

/// Partitions by sizes. The output shows the requested numbers rather than the resulting sizes.
fn of_sizes(resource: SmResource, sizes: Vec<(PartitionSize, u32)>) -> Result<Vec<Part>, Error> {
    let partitions = resource.partition(&PartitionRequest {
        sizes: sizes.iter().map(|(size, _)| *size).collect(),
        label: LABEL.to_owned(),
        ..Default::default()
    })?;
    let part = |(part, (_, asked)): (cuda_safe::green::Part, (PartitionSize, u32))| Part {
        asked,
        groups: part.groups,
    };
    Ok(partitions.parts.into_iter().zip(sizes).map(part).collect())
}
