//! Who has split a device: a guard against the accident of splitting it twice.
//!
//! Not a promise: other processes, other copies of this crate and foreign code are not seen.

use super::resource::SmResource;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::fork;
use crate::invalid::Invalid;
use crate::release;
use crate::sync::{Mutex, MutexGuard};
use std::any::Any;
use std::sync::{Arc, PoisonError};

/// What happens when a device is split while parts of an earlier split are in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Overlap {
    /// The split is refused, with the label of the holder.
    #[default]
    Refuse,
    /// The split goes ahead: its groups are, in part or in whole, SMs that are in use already.
    Allow,
}

/// What a split holds: its turn to split the device, and what its SMs are of.
#[derive(Debug)]
pub(super) struct Claim {
    #[allow(dead_code, reason = "held, not read")]
    turn: Option<Turn>,
    /// Whose SMs these are.
    #[allow(dead_code, reason = "held, not read")]
    whole: Option<Whole>,
}

/// What the driver described SMs of that are not the whole device's: the descriptions are the
/// driver's own, and nobody says that they are of use without it.
pub(super) type Whole = Arc<dyn Any + Send + Sync>;

/// For as long as it is there, the device is split by one.
#[derive(Debug)]
struct Turn {
    number: u64,
}

impl Claim {
    /// For a split of the SMs of what has its turn already: a green context, or a part of a split.
    pub(super) fn within(whole: Whole) -> Self {
        Self {
            turn: None,
            whole: Some(whole),
        }
    }
}

impl SmResource {
    /// Claims the device for a split of this.
    pub(super) fn claim(&self, label: &str, overlap: Overlap) -> Result<Claim> {
        // A green context that waits for its release has these SMs as well.
        release::drain();
        claim(self.device, label, overlap, self.whole.as_ref())
    }
}

/// The turns that there are.
struct Turns {
    /// That of the next.
    number: u64,
    taken: Vec<Taken>,
}

struct Taken {
    number: u64,
    device: Device,
    label: String,
}

static TURNS: Mutex<Turns> = Mutex::new(Turns {
    number: 0,
    taken: Vec::new(),
});

/// Held for a moment, and for no call of the driver: what is dropped may take it anywhere.
fn turns() -> MutexGuard<'static, Turns> {
    TURNS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Claims a device for a split of all of its SMs, or of those of `whole`.
pub(super) fn claim(
    device: Device,
    label: &str,
    overlap: Overlap,
    whole: Option<&Whole>,
) -> Result<Claim> {
    // There a thread that is no more may have the lock.
    if fork::in_child() {
        return Err(Error::Forked);
    }
    let mut turns = turns();
    if overlap == Overlap::Refuse {
        let holder = turns.taken.iter().find(|taken| taken.device == device);
        if let Some(holder) = holder {
            return Err(Invalid::SplitInUse {
                device: device.as_raw(),
                holder: holder.label.clone(),
            }
            .into());
        }
    }
    let number = turns.number;
    turns.number += 1;
    turns.taken.push(Taken {
        number,
        device,
        label: label.to_owned(),
    });
    Ok(Claim {
        turn: Some(Turn { number }),
        whole: whole.cloned(),
    })
}

impl Drop for Turn {
    fn drop(&mut self) {
        // As for `claim`.
        if !fork::in_child() {
            turns().taken.retain(|taken| taken.number != self.number);
        }
    }
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
