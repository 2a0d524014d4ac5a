//! From what is asked for to groups of SMs.

use crate::Error;
use crate::ask::Ask;
use cuda_safe::Device;
use cuda_safe::green::{SmGroup, SmResource, SplitByCount, SplitFlags};

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
        Ask::Groups(sizes) => match sizes.as_slice() {
            // Equal sizes are what the driver's split is made for.
            [first, rest @ ..] if rest.iter().all(|size| size == first) => {
                equal(resource, *first, sizes.len())?
            }
            sizes => composed(resource, sizes)?,
        },
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
        label: "the example".to_owned(),
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
    let half = resource.sm_count() / 2;
    for min in (1..=half).rev() {
        if resource.count_groups(min, SplitFlags::empty())? >= 2 {
            let mut parts = by_count(resource, min, Some(2), SplitFlags::empty())?;
            for part in &mut parts {
                part.asked = half;
            }
            return Ok(parts);
        }
    }
    Err(format!(
        "the {} SMs of this device cannot be split in two",
        resource.sm_count()
    )
    .into())
}

fn equal(resource: SmResource, size: u32, count: usize) -> Result<Vec<Part>, Error> {
    let possible = resource.count_groups(size, SplitFlags::empty())?;
    let wanted = u32::try_from(count)?;
    if possible < wanted {
        return Err(format!(
            "{wanted} groups of at least {size} SMs are asked for, and {} SMs give {possible}",
            resource.sm_count()
        )
        .into());
    }
    by_count(resource, size, Some(wanted), SplitFlags::empty())
}

/// Unequal groups, composed of the smallest ones that the driver splits into.
fn composed(resource: SmResource, sizes: &[u32]) -> Result<Vec<Part>, Error> {
    let sms = resource.sm_count();
    let split = resource.split_by_count(SplitByCount {
        label: "the example".to_owned(),
        ..Default::default()
    })?;
    let Some(unit) = split.groups.first().map(SmGroup::sm_count) else {
        return Err("the device gives no group at all".into());
    };
    let units = |size: &u32| size.div_ceil(unit) as usize;
    let wanted: usize = sizes.iter().map(units).sum();
    if wanted > split.groups.len() {
        return Err(format!(
            "these groups take {wanted} units of {unit} SMs, and {sms} SMs give {}",
            split.groups.len()
        )
        .into());
    }
    let mut groups = split.groups.into_iter();
    let part = |size: &u32| Part {
        asked: *size,
        groups: groups.by_ref().take(units(size)).collect(),
    };
    Ok(sizes.iter().map(part).collect())
}
