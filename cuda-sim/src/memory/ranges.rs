//! Disjoint ranges of addresses with a number each.

use std::collections::BTreeMap;

/// Ranges by their starts, with their ends and numbers.
#[derive(Debug, Default)]
pub(super) struct Ranges(BTreeMap<u64, (u64, u64)>);

impl Ranges {
    /// Returns the greatest number of the ranges that overlap a range, or 0 if there are none.
    pub(super) fn last_of(&self, start: u64, end: u64) -> u64 {
        let before = self.0.range(..start).next_back();
        let before = before.filter(|(_, (its_end, _))| *its_end > start);
        let inside = self.0.range(start..end);
        let numbers = before.into_iter().chain(inside).map(|its| its.1.1);
        numbers.max().unwrap_or(0)
    }

    /// Sets the number of a range, in place of the numbers that its parts had.
    pub(super) fn set(&mut self, start: u64, end: u64, number: u64) {
        let mut start = start;
        let before = self.0.range_mut(..start).next_back();
        if let Some((its_start, (its_end, its_number))) = before {
            let (old_start, old_end, old_number) = (*its_start, *its_end, *its_number);
            if old_number == number && old_end >= start {
                // Becomes a part of the new range.
                start = old_start;
            } else if old_end > start {
                *its_end = start;
            }
            if old_end > end {
                self.0.insert(end, (old_end, old_number));
            }
        }
        while let Some((its_start, (its_end, its_number))) = self.first_in(start, end) {
            self.0.remove(&its_start);
            if its_end > end {
                self.0.insert(end, (its_end, its_number));
            }
        }
        self.0.insert(start, (end, number));
    }

    fn first_in(&self, start: u64, end: u64) -> Option<(u64, (u64, u64))> {
        let its = self.0.range(start..end).next()?;
        Some((*its.0, *its.1))
    }
}

#[cfg(test)]
mod tests {
    use super::Ranges;

    #[test]
    fn a_range_replaces_the_parts_that_it_overlaps() {
        // Each address alone, for comparison.
        let mut expected = [0; 40];
        let mut ranges = Ranges::default();
        let mut random = 1_u64;
        for number in 1..500 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
            let start = (random >> 33) % 36;
            let end = start + 1 + (random >> 50) % 4;
            // Equal numbers in turn, so that ranges are joined.
            let number = number / 3 + 1;
            ranges.set(start, end, number);
            expected[start as usize..end as usize].fill(number);
            for first in 0..40 {
                for last in first + 1..=40 {
                    let of_each = expected[first..last].iter().max();
                    assert_eq!(Some(&ranges.last_of(first as u64, last as u64)), of_each);
                }
            }
            assert!(ranges.0.len() <= 40);
        }
    }
}
