//! Samples of memory use over time.

use std::time::Duration;

/// A sample of memory use.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Sample {
    /// The time since the [`StatisticsManager`](super::StatisticsManager) was created.
    pub time: Duration,
    /// The bytes in use, by size class. The class of an allocation is the position of the highest set
    /// bit of its size.
    pub classes: Vec<u64>,
    /// The number of bytes in the cache of the wrapped pool; 0 without a pool.
    pub cached: u64,
    /// The fragmentation of the cached memory, from 0 (one block) to 1 (many small blocks).
    pub fragmentation: f64,
}

impl Sample {
    /// Returns the number of bytes in use.
    #[inline]
    pub fn used(&self) -> u64 {
        self.classes.iter().sum()
    }
}

/// Samples in chronological order. When [`MAX_SAMPLES`](Self::MAX_SAMPLES) is reached, every second
/// sample is removed, and later samples are added half as often.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    samples: Vec<Sample>,
    /// The number of samples to skip after each sample that is added.
    between: u32,
    skipped: u32,
}

impl Timeline {
    /// The maximum number of samples.
    pub const MAX_SAMPLES: usize = 4096;

    #[inline]
    pub(super) fn add(&mut self, sample: Sample) {
        if self.skipped < self.between {
            self.skipped += 1;
            return;
        }
        self.skipped = 0;
        if self.samples.len() == Self::MAX_SAMPLES {
            let mut is_kept = false;
            self.samples.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
            self.between = 2 * self.between + 1;
        }
        self.samples.push(sample);
    }

    /// Returns the samples in chronological order.
    #[inline]
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_timeline_keeps_every_second_sample_and_adds_half_as_many() {
        let mut timeline = Timeline::default();
        let full = Timeline::MAX_SAMPLES as u64;
        for millis in 0..full + 8 {
            timeline.add(Sample {
                time: Duration::from_millis(millis),
                classes: Vec::new(),
                cached: 0,
                fragmentation: 0.0,
            });
        }
        let times = timeline.samples().iter().map(|sample| sample.time);
        let wanted = (0..full).step_by(2).chain((full..full + 8).step_by(2));
        assert!(times.eq(wanted.map(Duration::from_millis)));
    }
}
