//! Bytes that the program has made inaccessible: parts of an allocation that a library does not use, or has freed
//! without the driver.

use super::ranges::Ranges;
use super::{Memory, Use};
use crate::caller::caller;
use crate::races::{Place, RacingMemory};
use std::backtrace::Backtrace;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// A change of the accessible bytes.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    bytes: Range<u64>,
    /// Where the bytes became inaccessible, or `None` if they become accessible.
    origin: Option<Arc<Origin>>,
    /// The marks are numbered in the order of the calls.
    pub(crate) number: u64,
}

/// Where bytes became inaccessible.
#[derive(Debug)]
struct Origin {
    /// The stream, or the host for a call without a stream.
    place: Place,
    /// The call, if leaks are reported by place too.
    site: Option<Backtrace>,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "poisoned on {}", self.place)?;
        match self.site.as_ref().and_then(|site| caller(&site.to_string())) {
            Some(site) => write!(f, ", by {site}"),
            None => Ok(()),
        }
    }
}

/// The inaccessible bytes.
#[derive(Debug, Default)]
pub(super) struct Poisons {
    /// Disjoint ranges by their starts, with their ends.
    ranges: BTreeMap<u64, (u64, Arc<Origin>)>,
    last: u64,
    /// The number of marks that wait for work.
    waiting: usize,
    /// The bytes that became accessible at once, with the number of the mark. Poisons before it that still wait have no
    /// effect there.
    undone: Ranges,
}

impl Poisons {
    /// Returns the first range that contains some of the bytes.
    fn find(&self, bytes: &Range<u64>) -> Option<(Range<u64>, &Origin)> {
        let before = self.ranges.range(..=bytes.start).next_back();
        let before = before.filter(|(_, (end, _))| *end > bytes.start && !bytes.is_empty());
        let (start, (end, origin)) = before.or_else(|| self.ranges.range(bytes.clone()).next())?;
        Some((*start..*end, origin))
    }

    /// Makes bytes accessible.
    fn remove(&mut self, bytes: &Range<u64>) {
        while let Some(start) = self.find(bytes).map(|(its, _)| its.start) {
            let Some((end, origin)) = self.ranges.remove(&start) else { return };
            if start < bytes.start {
                self.ranges.insert(start, (bytes.start, origin.clone()));
            }
            if end > bytes.end {
                self.ranges.insert(bytes.end, (end, origin));
            }
        }
    }

    fn apply(&mut self, mark: Mark) {
        let Mark { bytes, origin, number } = mark;
        let Some(origin) = origin else { return self.remove(&bytes) };
        if self.undone.last_of(bytes.start, bytes.end) < number {
            self.remove(&bytes);
            self.ranges.insert(bytes.start, (bytes.end, origin));
        }
    }
}

impl Memory {
    /// Returns a mark of bytes.
    pub(crate) fn mark(&mut self, bytes: Range<u64>, poisoned_on: Option<Place>) -> Mark {
        // A closure for `then` or `map` would be the place, in a binary without debug information.
        let mut site = None;
        if self.sites.is_some() && poisoned_on.is_some() {
            site = Some(Backtrace::force_capture());
        }
        let origin = poisoned_on.map(|place| Arc::new(Origin { place, site }));
        self.poisons.last += 1;
        Mark { bytes, origin, number: self.poisons.last }
    }

    /// Notes that a mark waits for work.
    pub(crate) fn defer_mark(&mut self) {
        self.poisons.waiting += 1;
    }

    /// Applies a mark whose work is complete.
    pub(crate) fn apply_deferred(&mut self, mark: Mark) {
        let poisons = &mut self.poisons;
        poisons.apply(mark);
        poisons.waiting -= 1;
        if poisons.waiting == 0 {
            poisons.undone = Ranges::default();
        }
    }

    /// Applies a mark that waits for no work.
    pub(crate) fn apply_mark(&mut self, mark: Mark) {
        self.poisons.apply(mark);
    }

    /// Makes bytes accessible at once, also those that a waiting mark would poison: the program frees the memory, or says
    /// so.
    pub(crate) fn clear_poison(&mut self, bytes: Range<u64>) {
        let poisons = &mut self.poisons;
        if !poisons.ranges.is_empty() {
            poisons.remove(&bytes);
        }
        if poisons.waiting != 0 && !bytes.is_empty() {
            poisons.undone.set(bytes.start, bytes.end, poisons.last);
        }
    }

    /// Returns whether all of the bytes are in one allocation of device memory, or are mapped, so that they can be
    /// poisoned.
    pub(crate) fn can_be_poisoned(&self, address: u64, len: usize) -> bool {
        if self.is_virtual(address) {
            return self.check_virtual(address, len, None, Use::Read).is_ok();
        }
        let its = self.containing(address).filter(|(start, _)| !self.is_variable(*start));
        its.is_some_and(|(start, its)| len as u64 <= its.bytes.len() as u64 - (address - start))
    }

    /// Fails if some of the bytes are inaccessible.
    #[inline]
    pub(super) fn check_poison(&self, address: u64, len: usize) -> Result<(), String> {
        if self.poisons.ranges.is_empty() {
            return Ok(());
        }
        self.refuse_poison(address..address.saturating_add(len as u64))
    }

    fn refuse_poison(&self, bytes: Range<u64>) -> Result<(), String> {
        let Some((poisoned, origin)) = self.poisons.find(&bytes) else { return Ok(()) };
        let first = poisoned.start.max(bytes.start);
        let RacingMemory { start, size, kind } = self.memory_of(first..first + 1);
        let mapping = self.virtual_memory.mapping(first);
        let (start, size) = mapping.map_or((start, size), |(start, its)| (start, its.size));
        Err(format!(
            "{} bytes at {:#x} are poisoned from the byte {} of {size} bytes of {kind} at {start:#x} on; its bytes {} to \
             {} were {origin}",
            bytes.end - bytes.start,
            bytes.start,
            first - start,
            poisoned.start - start,
            poisoned.end - start - 1,
        ))
    }

    /// Returns the accessible part around an address of a range, if the address itself is accessible.
    pub(super) fn part_around(&self, address: u64, range: Range<u64>) -> Range<u64> {
        if self.poisons.ranges.is_empty() {
            return range;
        }
        let before = self.poisons.ranges.range(..=address).next_back();
        let start = before.map_or(range.start, |(_, (end, _))| range.start.max(*end));
        let after = self.poisons.ranges.range(address..).next();
        start..after.map_or(range.end, |(start, _)| range.end.min(*start))
    }
}

#[cfg(test)]
mod tests {
    use super::{Mark, Origin, Place, Poisons};
    use std::sync::Arc;

    #[test]
    fn a_mark_changes_its_bytes_alone() {
        let origin = Arc::new(Origin { place: Place::Host, site: None });
        let mut poisons = Poisons::default();
        // Each address alone, for comparison.
        let mut expected = [false; 40];
        let mut random = 1_u64;
        for number in 1..1000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
            let start = (random >> 33) % 36;
            let end = start + 1 + (random >> 50) % 4;
            let is_poisoned = random >> 60 & 1 == 0;
            let origin = is_poisoned.then(|| origin.clone());
            poisons.apply(Mark { bytes: start..end, origin, number });
            expected[start as usize..end as usize].fill(is_poisoned);
            for first in 0..40 {
                for last in first..=40 {
                    let found = poisons.find(&(first as u64..last as u64)).is_some();
                    assert_eq!(found, expected[first..last].contains(&true), "{first}..{last}");
                }
            }
        }
        poisons.undone.set(10, 20, 5000);
        let mark = |number| Mark { bytes: 10..12, origin: Some(origin.clone()), number };
        poisons.ranges.clear();
        poisons.apply(mark(5000));
        assert!(poisons.find(&(0..40)).is_none());
        poisons.apply(mark(5001));
        assert!(poisons.find(&(11..40)).is_some());
    }
}
