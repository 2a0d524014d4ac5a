//! Records which devices are split, to prevent a device from being split twice by accident.
//!
//! This is not a guarantee: other processes, other copies of this crate and foreign code are not seen.

use super::resource::SmResource;
use crate::call::{Invalid, Result, fork};
use crate::device::Device;
use crate::release;
use crate::sync::{self, Mutex, MutexGuard};
use std::any::Any;
use std::sync::Arc;

/// Whether a device may be split while parts of an earlier split are in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Overlap {
    /// The split fails. The error contains the label of the earlier split.
    #[default]
    Refuse,
    /// The split succeeds. Some or all of its SMs are already in use by the earlier split.
    Allow,
}

/// Held by a split: its registration in the list of split devices, and the object that its SMs belong
/// to.
#[derive(Debug)]
pub(super) struct SplitGuard {
    #[allow(dead_code, reason = "held, not read")]
    registration: Option<Registration>,
    /// Keeps alive the object that the SMs belong to.
    #[allow(dead_code, reason = "held, not read")]
    kept: Option<Kept>,
}

/// The object that the split SMs belong to, if that is not the whole device. The resource descriptions
/// come from the driver, which does not document that they stay valid without that object.
pub(super) type Kept = Arc<dyn Any + Send + Sync>;

/// While this value exists, the device counts as split.
#[derive(Debug)]
struct Registration {
    number: u64,
}

impl SplitGuard {
    /// Creates a guard for a split of SMs whose device is already registered: those of a green context,
    /// or of a part of a split.
    #[inline]
    pub(super) fn within(kept: Kept) -> Self {
        Self { registration: None, kept: Some(kept) }
    }
}

impl SmResource {
    /// Registers a split of this resource.
    #[inline]
    pub(super) fn acquire_split_guard(&self, label: &str, overlap: Overlap) -> Result<SplitGuard> {
        // A green context whose release is deferred still uses these SMs.
        release::drain();
        acquire(self.device, label, overlap, self.kept.as_ref())
    }
}

/// The list of split devices.
struct Registry {
    /// The number of the next registration.
    number: u64,
    entries: Vec<SplitEntry>,
}

struct SplitEntry {
    number: u64,
    device: Device,
    label: String,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry { number: 0, entries: Vec::new() });

/// Locks the list. The lock is held briefly and never during a driver call, because drops on any thread
/// take it.
#[inline]
fn registry() -> MutexGuard<'static, Registry> {
    sync::lock(&REGISTRY)
}

/// Registers a split of all SMs of a device, or of the SMs of the object `kept`.
#[inline]
pub(super) fn acquire(
    device: Device,
    label: &str,
    overlap: Overlap,
    kept: Option<&Kept>,
) -> Result<SplitGuard> {
    fork::refuse_in_child()?;
    let mut registry = registry();
    if overlap == Overlap::Refuse {
        let holder = registry.entries.iter().find(|entry| entry.device == device);
        if let Some(holder) = holder {
            return Err(Invalid::SplitInUse {
                device: device.as_raw(),
                holder: holder.label.clone(),
            }
            .into());
        }
    }
    let number = registry.number;
    registry.number += 1;
    registry.entries.push(SplitEntry { number, device, label: label.to_owned() });
    Ok(SplitGuard { registration: Some(Registration { number }), kept: kept.cloned() })
}

impl Drop for Registration {
    #[inline]
    fn drop(&mut self) {
        // In a forked child, a thread that no longer exists may hold the lock.
        if !fork::in_child() {
            registry().entries.retain(|entry| entry.number != self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Overlap, acquire};
    use crate::device::Device;
    use crate::{Error, Invalid};

    #[test]
    fn a_second_split_is_refused_with_the_label_of_the_first_while_it_is_alive() {
        let device = Device::unchecked(1000);
        let first =
            acquire(device, "first", Overlap::Refuse, None).expect("the device is not split");
        match acquire(device, "second", Overlap::Refuse, None) {
            Err(Error::Invalid(invalid)) => assert_eq!(
                *invalid,
                Invalid::SplitInUse { device: 1000, holder: "first".to_owned() }
            ),
            other => panic!("expected `SplitInUse`, got {other:?}"),
        }
        acquire(Device::unchecked(1001), "other device", Overlap::Refuse, None)
            .expect("another device");
        drop(first);
        acquire(device, "third", Overlap::Refuse, None).expect("the first split was dropped");
    }

    #[test]
    fn a_split_succeeds_if_it_allows_overlap() {
        let device = Device::unchecked(1002);
        let first =
            acquire(device, "first", Overlap::Refuse, None).expect("the device is not split");
        let second =
            acquire(device, "second", Overlap::Allow, None).expect("the overlap is allowed");
        drop(first);
        assert!(acquire(device, "third", Overlap::Refuse, None).is_err());
        drop(second);
        assert!(acquire(device, "third", Overlap::Refuse, None).is_ok());
    }
}
