//! Who has split a device: a guard against the accident of splitting it twice.
//!
//! Not a promise: other processes, other copies of this crate and foreign code are not seen.

use super::GreenContext;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::fork;
use crate::invalid::Invalid;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// What happens when a device is split while parts of an earlier split are in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Overlap {
    /// The split is refused, with the label of the holder.
    #[default]
    Refuse,
    /// The split goes ahead: its groups are, in part or in whole, SMs that are in use already.
    Allow,
}

/// One split of a device. Its groups, and the green contexts made of them, hold it.
#[derive(Debug)]
pub(super) struct Claim {
    device: Device,
    label: String,
    /// Of a split of a group: the green context whose SMs these are.
    #[allow(dead_code, reason = "held, not read")]
    whole: Option<GreenContext>,
}

impl Claim {
    /// For a split of the SMs of a green context, which the device's claim is for already.
    pub(super) fn within(whole: GreenContext, label: &str) -> Arc<Self> {
        Arc::new(Self {
            device: whole.device(),
            label: label.to_owned(),
            whole: Some(whole),
        })
    }
}

static CLAIMS: Mutex<Vec<Weak<Claim>>> = Mutex::new(Vec::new());

/// Claims a device for a split.
pub(super) fn claim(device: Device, label: &str, overlap: Overlap) -> Result<Arc<Claim>> {
    // There a thread that is no more may have the lock.
    if fork::in_child() {
        return Err(Error::Forked);
    }
    let mut claims = CLAIMS.lock().unwrap_or_else(PoisonError::into_inner);
    claims.retain(|claim| claim.strong_count() != 0);
    if overlap == Overlap::Refuse {
        let holder = claims
            .iter()
            .filter_map(Weak::upgrade)
            .find(|claim| claim.device == device);
        if let Some(holder) = holder {
            return Err(Invalid::SplitInUse {
                device: device.as_raw(),
                holder: holder.label.clone(),
            }
            .into());
        }
    }
    let claim = Arc::new(Claim {
        device,
        label: label.to_owned(),
        whole: None,
    });
    claims.push(Arc::downgrade(&claim));
    Ok(claim)
}

#[cfg(test)]
mod tests {
    use super::{Overlap, claim};
    use crate::device::Device;
    use crate::{Error, Invalid};

    #[test]
    fn a_second_claim_is_refused_with_the_label_of_the_first_while_it_lives() {
        let device = Device::unchecked(1000);
        let first = claim(device, "first", Overlap::Refuse).expect("nobody has it");
        match claim(device, "second", Overlap::Refuse) {
            Err(Error::Invalid(invalid)) => assert_eq!(
                *invalid,
                Invalid::SplitInUse {
                    device: 1000,
                    holder: "first".to_owned()
                }
            ),
            other => panic!("not refused: {other:?}"),
        }
        claim(Device::unchecked(1001), "other device", Overlap::Refuse).expect("another device");
        drop(first);
        claim(device, "third", Overlap::Refuse).expect("given back");
    }

    #[test]
    fn overlap_is_possible_by_name() {
        let device = Device::unchecked(1002);
        let first = claim(device, "first", Overlap::Refuse).expect("nobody has it");
        let second = claim(device, "second", Overlap::Allow).expect("asked for");
        drop(first);
        assert!(claim(device, "third", Overlap::Refuse).is_err());
        drop(second);
        assert!(claim(device, "third", Overlap::Refuse).is_ok());
    }
}
