//! Vector clocks.

/// A vector clock: for each lane, the number of its operations that are ordered before a point.
///
/// A lane is a chain of operations, each ordered before the next one. An operation is ordered before another
/// one if the other one's clock counts it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Clock(Vec<u64>);

impl Clock {
    /// Returns the number of operations of a lane that are counted.
    pub(super) fn of(&self, lane: usize) -> u64 {
        self.0.get(lane).copied().unwrap_or(0)
    }

    pub(super) fn set(&mut self, lane: usize, count: u64) {
        if lane >= self.0.len() {
            self.0.resize(lane + 1, 0);
        }
        self.0[lane] = count;
    }

    /// Adds everything that another clock counts.
    pub(super) fn join(&mut self, other: &Self) {
        if other.0.len() > self.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (own, its) in self.0.iter_mut().zip(&other.0) {
            *own = (*own).max(*its);
        }
    }

    /// Returns whether everything that another clock counts is counted.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let mut all = other.0.iter().enumerate();
        all.all(|(lane, count)| self.of(lane) >= *count)
    }

    /// Returns the number of lanes, up to the last one that is counted.
    pub(super) fn lanes(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::Clock;

    #[test]
    fn a_join_counts_what_either_clock_counts() {
        let (mut a, mut b) = (Clock::default(), Clock::default());
        a.set(0, 3);
        b.set(2, 1);
        assert!(!a.covers(&b) && !b.covers(&a));
        a.join(&b);
        assert_eq!([a.of(0), a.of(1), a.of(2), a.of(9)], [3, 0, 1, 0]);
        assert!(a.covers(&b) && !b.covers(&a));
    }
}
