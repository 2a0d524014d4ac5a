//! Who has split a device: a guard against the accident of splitting it twice.
//!
//! Not a promise: other processes, other copies of this crate and foreign code are not seen.

use super::GreenContext;
use super::resource::SmResource;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::fork;
use crate::invalid::Invalid;
use crate::release;
use std::any::Any;
use std::fmt;
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
pub(super) struct Claim {
    #[allow(dead_code, reason = "held, not read")]
    holder: Option<Arc<Holder>>,
    /// Whose SMs these are.
    #[allow(dead_code, reason = "held, not read")]
    whole: Option<Whole>,
}

/// What the driver described SMs of that are not the whole device's: the descriptions are the
/// driver's own, and nobody says that they are of use without it.
pub(super) type Whole = Arc<dyn Any + Send + Sync>;

/// Who has split a device.
#[derive(Debug)]
struct Holder {
    device: Device,
    label: String,
}

impl Claim {
    /// For a split of the SMs of a green context, which the device's claim is for already.
    pub(super) fn within(whole: GreenContext) -> Arc<Self> {
        Arc::new(Self {
            holder: None,
            whole: Some(Arc::new(whole)),
        })
    }

    /// For a split of a part of a split.
    pub(super) fn of_part(claim: &Arc<Self>) -> Arc<Self> {
        let whole: Whole = Arc::<Self>::clone(claim);
        Arc::new(Self {
            holder: None,
            whole: Some(whole),
        })
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Claim").field(&self.holder).finish()
    }
}

impl SmResource {
    /// Claims the device for a split of this.
    pub(super) fn claim(&self, label: &str, overlap: Overlap) -> Result<Arc<Claim>> {
        // A green context that waits for its release has these SMs as well.
        release::drain();
        claim(self.device, label, overlap, self.whole.as_ref())
    }
}

static CLAIMS: Mutex<Vec<Weak<Holder>>> = Mutex::new(Vec::new());

/// Claims a device for a split of all of its SMs, or of those of `whole`.
pub(super) fn claim(
    device: Device,
    label: &str,
    overlap: Overlap,
    whole: Option<&Whole>,
) -> Result<Arc<Claim>> {
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
    let holder = Arc::new(Holder {
        device,
        label: label.to_owned(),
    });
    claims.push(Arc::downgrade(&holder));
    Ok(Arc::new(Claim {
        holder: Some(holder),
        whole: whole.cloned(),
    }))
}

#[cfg(test)]
mod tests {
    use super::{Overlap, claim};
    use crate::device::Device;
    use crate::{Error, Invalid};

    #[test]
    fn a_second_claim_is_refused_with_the_label_of_the_first_while_it_lives() {
        let device = Device::unchecked(1000);
        let first = claim(device, "first", Overlap::Refuse, None).expect("nobody has it");
        match claim(device, "second", Overlap::Refuse, None) {
            Err(Error::Invalid(invalid)) => assert_eq!(
                *invalid,
                Invalid::SplitInUse {
                    device: 1000,
                    holder: "first".to_owned()
                }
            ),
            other => panic!("not refused: {other:?}"),
        }
        claim(
            Device::unchecked(1001),
            "other device",
            Overlap::Refuse,
            None,
        )
        .expect("another device");
        drop(first);
        claim(device, "third", Overlap::Refuse, None).expect("given back");
    }

    #[test]
    fn overlap_is_possible_by_name() {
        let device = Device::unchecked(1002);
        let first = claim(device, "first", Overlap::Refuse, None).expect("nobody has it");
        let second = claim(device, "second", Overlap::Allow, None).expect("asked for");
        drop(first);
        assert!(claim(device, "third", Overlap::Refuse, None).is_err());
        drop(second);
        assert!(claim(device, "third", Overlap::Refuse, None).is_ok());
    }
}
