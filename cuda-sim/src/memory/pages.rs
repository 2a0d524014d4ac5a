//! The advice for the pages of managed memory.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The advice for a page of managed memory. A location is a type and an id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) read_mostly: bool,
    pub(crate) preferred: Option<(u32, i32)>,
    pub(crate) accessed_by: BTreeSet<i32>,
    pub(crate) last_prefetch: Option<(u32, i32)>,
}

/// The pages of an allocation. Adjacent pages with the same advice are one entry, so that a large allocation
/// is not expensive.
#[derive(Debug)]
pub(crate) struct Pages {
    /// By the first page to which the advice applies, up to the next entry. The first entry is that of page 0.
    runs: BTreeMap<usize, Page>,
}

impl Default for Pages {
    fn default() -> Self {
        Self::preferring(None)
    }
}

impl Pages {
    /// Returns pages that prefer a location.
    pub(crate) fn preferring(preferred: Option<(u32, i32)>) -> Self {
        let page = Page { preferred, ..Page::default() };
        Self { runs: BTreeMap::from([(0, page)]) }
    }

    /// Changes the advice of a range of pages.
    pub(crate) fn change(&mut self, range: Range<usize>, change: impl Fn(&mut Page)) {
        self.split(range.start);
        self.split(range.end);
        self.runs.range_mut(range.clone()).for_each(|(_, page)| change(page));
        let starts = self.runs.range(range.start..=range.end);
        for start in starts.map(|its| *its.0).collect::<Vec<_>>() {
            let before = self.runs.range(..start).next_back();
            if before.map(|its| its.1) == self.runs.get(&start) {
                self.runs.remove(&start);
            }
        }
    }

    /// Makes a page the first one of an entry.
    fn split(&mut self, at: usize) {
        if let Some(page) = self.at(at).cloned() {
            self.runs.entry(at).or_insert(page);
        }
    }

    /// Returns the advice of a page.
    pub(crate) fn at(&self, page: usize) -> Option<&Page> {
        self.runs.range(..=page).next_back().map(|its| its.1)
    }

    /// Returns each advice of a range of pages. The first one is that of the first page.
    pub(crate) fn of(&self, range: Range<usize>) -> impl Iterator<Item = &Page> {
        let later = self.runs.range(range.start + 1..range.end.max(range.start + 1));
        self.at(range.start).into_iter().chain(later.map(|its| its.1))
    }
}

#[cfg(test)]
mod tests {
    use super::{Page, Pages};

    #[test]
    fn pages_have_their_own_advice_and_equal_neighbors_are_one_entry() {
        let mut pages = Pages::default();
        let mut expected = [false; 30];
        let mut random = 3_u64;
        for step in 0..300 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
            let start = (random >> 33) as usize % 25;
            let end = start + 1 + (random >> 50) as usize % 5;
            let value = step % 2 == 0;
            pages.change(start..end, |page: &mut Page| page.read_mostly = value);
            expected[start..end].fill(value);
            for (page, value) in expected.iter().enumerate() {
                assert_eq!(pages.at(page).map(|its| its.read_mostly), Some(*value));
            }
            let changes = expected.windows(2).filter(|pair| pair[0] != pair[1]);
            assert_eq!(pages.runs.len(), 1 + changes.count());
            let any = expected[start..end].contains(&true);
            assert_eq!(pages.of(start..end).any(|its| its.read_mostly), any);
        }
    }
}
