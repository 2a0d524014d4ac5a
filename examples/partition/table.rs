//! Lists the possible partitions without creating any. Only the driver's counts are queried.

use crate::Error;
use crate::ask::Ask;
use cuda_safe::Device;
use cuda_safe::green::{
    Granularity, Method, PartitionRequest, PartitionSize, SmResource, SplitFlags,
};
use serde::Serialize;
use std::fmt::Write;

#[derive(Serialize)]
pub(crate) struct Table {
    driver: String,
    device: String,
    sms: u32,
    /// The smallest partition in SMs, and the step between sizes.
    smallest: u32,
    multiple: u32,
    equal_splits: Vec<Equal>,
    plan: Plan,
}

#[derive(Serialize)]
struct Equal {
    sms: u32,
    groups: u32,
    remaining: u32,
}

/// The partitions that the request would create.
#[derive(Serialize)]
struct Plan {
    method: String,
    parts: Vec<Part>,
    remaining: u32,
}

#[derive(Serialize)]
struct Part {
    asked: u32,
    given: u32,
}

pub(crate) fn make(device: &Device, ask: &Ask) -> Result<Table, Error> {
    let resource = SmResource::of_device(device)?;
    let Granularity { min, multiple } = resource.granularity()?;
    let splits = resource.equal_splits(ask.flags())?;
    let equal = |split: &cuda_safe::green::EqualSplit| Equal {
        sms: split.sm_count,
        groups: split.groups,
        remaining: split.remaining,
    };
    let equal_splits: Vec<Equal> = splits.iter().map(equal).collect();
    Ok(Table {
        driver: cuda_safe::version()?.to_string(),
        device: device.name()?,
        sms: resource.sm_count(),
        smallest: min,
        multiple,
        plan: plan(&resource, &equal_splits, ask)?,
        equal_splits,
    })
}

fn plan(resource: &SmResource, splits: &[Equal], ask: &Ask) -> Result<Plan, Error> {
    let sms = resource.sm_count();
    let equal = |asked: u32, most: Option<u32>, split: Option<&Equal>| {
        let split = split.ok_or_else(|| format!("{sms} SMs cannot be split in this way"))?;
        let groups = most.unwrap_or(u32::MAX).min(split.groups);
        let given = split.sms;
        Ok(Plan {
            method: format!("one split by count, into groups of {given}"),
            parts: (0..groups).map(|_| Part { asked, given }).collect(),
            remaining: sms - groups * given,
        })
    };
    match ask {
        Ask::Halves => {
            let largest = splits.iter().rev().find(|split| split.groups >= 2);
            equal(sms / 2, Some(2), largest)
        }
        Ask::ByCount { min, max_groups, .. } => {
            let fitting = splits.iter().find(|split| split.sms >= *min);
            equal(*min, *max_groups, fitting)
        }
        Ask::Groups(sizes) => {
            let plan = resource.plan(&PartitionRequest {
                sizes: sizes.iter().map(|size| PartitionSize::Sms(*size)).collect(),
                flags: SplitFlags::empty(),
                ..PartitionRequest::default()
            })?;
            let part = |part: &cuda_safe::green::PlannedPart| Part {
                asked: part.asked.unwrap_or(0),
                given: part.sm_count,
            };
            Ok(Plan {
                method: match plan.method {
                    Method::Exact => "an exact split".to_owned(),
                    Method::Composed { unit, units } => {
                        format!("composed of {units} groups of {unit} from one split by count")
                    }
                    other => format!("{other:?}"),
                },
                parts: plan.parts.iter().map(part).collect(),
                remaining: plan.remaining,
            })
        }
    }
}

impl Table {
    pub(crate) fn json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }

    pub(crate) fn text(&self, asked: &str) -> String {
        let mut text = String::new();
        let Self { device, sms, .. } = self;
        let _ = writeln!(text, "{device}, {sms} SMs, driver for CUDA {}", self.driver);
        let (smallest, multiple) = (self.smallest, self.multiple);
        let _ =
            writeln!(text, "partitions of at least {smallest} SMs, in multiples of {multiple}\n");
        let _ = writeln!(text, "equal splits:\n   SMs  groups  remaining");
        for Equal { sms, groups, remaining } in &self.equal_splits {
            let _ = writeln!(text, "  {sms:4} {groups:7} {remaining:10}");
        }
        let Plan { method, parts, remaining } = &self.plan;
        let _ = writeln!(text, "\n{asked}: {method}\n  asked  given");
        for Part { asked, given } in parts {
            let _ = writeln!(text, "  {asked:5} {given:6}");
        }
        let _ = writeln!(text, "{remaining} SMs remain; nothing was created");
        text
    }
}
