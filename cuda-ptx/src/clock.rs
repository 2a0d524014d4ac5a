//! Vector clocks, for the races between threads of a kernel and for those between operations of a driver.

use std::cmp::Ordering;

/// A vector clock: for each lane, the number of its operations that are ordered before a point.
///
/// A lane is a chain of operations, each ordered before the next one. An operation is ordered before another
/// one if the other one's clock counts it. Lanes of which a clock counts no operation take no memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clock(
    /// The number of each lane and its count, by ascending number.
    Vec<(u64, u64)>,
);

impl Clock {
    /// Returns the number of operations of a lane that are counted.
    pub fn of(&self, lane: u64) -> u64 {
        if self.0.is_empty() {
            return 0;
        }
        let place = self.0.binary_search_by_key(&lane, |its| its.0);
        place.map_or(0, |place| self.0[place].1)
    }

    /// Sets the number of operations of a lane that are counted.
    pub fn set(&mut self, lane: u64, count: u64) {
        match self.0.binary_search_by_key(&lane, |its| its.0) {
            Ok(place) => self.0[place].1 = count,
            Err(place) => self.0.insert(place, (lane, count)),
        }
    }

    /// Adds everything that another clock counts.
    pub fn join(&mut self, other: &Self) {
        if self.covers(other) {
            return;
        }
        let own = std::mem::take(&mut self.0);
        self.0.reserve(own.len().max(other.0.len()));
        let (mut own, mut its) = (own.as_slice(), other.0.as_slice());
        while let ([first, own_rest @ ..], [second, its_rest @ ..]) = (own, its) {
            let next = match first.0.cmp(&second.0) {
                Ordering::Less => *first,
                Ordering::Greater => *second,
                Ordering::Equal => (first.0, first.1.max(second.1)),
            };
            self.0.push(next);
            own = if first.0 == next.0 { own_rest } else { own };
            its = if second.0 == next.0 { its_rest } else { its };
        }
        self.0.extend_from_slice(own);
        self.0.extend_from_slice(its);
    }

    /// Returns whether everything that another clock counts is counted.
    pub fn covers(&self, other: &Self) -> bool {
        let mut rest = self.0.iter();
        other.0.iter().all(|(lane, count)| {
            let own = rest.find(|its| its.0 >= *lane);
            own.is_some_and(|its| its.0 == *lane && its.1 >= *count)
        })
    }

    /// Removes the lanes for which a function of the number and the count returns false.
    pub fn retain(&mut self, mut keep: impl FnMut(u64, u64) -> bool) {
        self.0.retain(|(lane, count)| keep(*lane, *count));
    }

    /// Returns whether no operation is counted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the lanes of which operations are counted, with their counts, by ascending number.
    pub fn lanes(&self) -> impl ExactSizeIterator<Item = (u64, u64)> {
        self.0.iter().copied()
    }
}

impl FromIterator<(u64, u64)> for Clock {
    /// The lanes must be in ascending order.
    fn from_iter<T: IntoIterator<Item = (u64, u64)>>(lanes: T) -> Self {
        Self(lanes.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::Clock;

    #[test]
    fn a_join_counts_what_either_clock_counts() {
        let (mut a, mut b) = (Clock::default(), Clock::default());
        a.set(7, 1);
        a.set(0, 3);
        b.set(2, 1);
        b.set(7, 2);
        assert!(!a.covers(&b) && !b.covers(&a));
        a.join(&b);
        assert_eq!([a.of(0), a.of(1), a.of(2), a.of(7), a.of(9)], [3, 0, 1, 2, 0]);
        assert!(a.covers(&b) && !b.covers(&a));
        a.retain(|lane, _| lane != 2);
        assert_eq!(a, [(0, 3), (7, 2)].into_iter().collect());
        assert!(!a.covers(&b));
    }
}
