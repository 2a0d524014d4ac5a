//! Memory over time, as numbers.

use std::time::Duration;

/// What there was at a time.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Sample {
    /// Since the manager was made.
    pub time: Duration,
    /// Bytes in use, by the position of the highest bit of their size.
    pub classes: Vec<u64>,
    /// Bytes that a pool keeps and nobody uses.
    pub cached: u64,
    /// How far those are in pieces, from 0 to 1.
    pub fragmentation: f64,
}

impl Sample {
    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.classes.iter().sum()
    }
}

/// Samples in the order of time. When there are [many](Self::MANY) of them, every second one goes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    samples: Vec<Sample>,
    /// So many come between those that are kept.
    between: u32,
    skipped: u32,
}

impl Timeline {
    /// How many samples there are at most.
    pub const MANY: usize = 4096;

    pub(super) fn add(&mut self, sample: Sample) {
        if self.skipped < self.between {
            self.skipped += 1;
            return;
        }
        self.skipped = 0;
        if self.samples.len() == Self::MANY {
            let mut is_kept = false;
            self.samples.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
            self.between = 2 * self.between + 1;
        }
        self.samples.push(sample);
    }

    /// The samples.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }
}
