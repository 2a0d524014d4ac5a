//! Percentiles of measurements in rounds, with confidence bounds.

/// Measurements in nanoseconds. Each round is sorted.
#[derive(Default)]
pub(crate) struct Rounds(Vec<Vec<u64>>);

/// A number with its 95 % bounds.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(crate) struct Bounds {
    pub(crate) value: f64,
    pub(crate) lower: f64,
    pub(crate) upper: f64,
}

const RESAMPLES: usize = 2000;

impl Rounds {
    pub(crate) fn push(&mut self, mut round: Vec<u64>) {
        round.sort_unstable();
        self.0.push(round);
    }

    /// Returns the number of measurements.
    pub(crate) fn count(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = u64> {
        self.0.iter().flatten().copied()
    }

    pub(crate) fn max(&self) -> u64 {
        self.all().max().unwrap_or(0)
    }

    pub(crate) fn min(&self) -> u64 {
        self.all().min().unwrap_or(0)
    }

    /// Returns the smallest value that is not exceeded by `percent` percent of the measurements.
    pub(crate) fn percentile(&self, percent: f64) -> u64 {
        let all: Vec<usize> = (0..self.0.len()).collect();
        self.percentile_of(&all, percent)
    }

    /// Returns a percentile over a selection of rounds, which may contain a round several times.
    fn percentile_of(&self, rounds: &[usize], percent: f64) -> u64 {
        let drawn = || rounds.iter().filter_map(|round| self.0.get(*round));
        let count: usize = drawn().map(Vec::len).sum();
        let wanted = (count as f64 * percent / 100.0).ceil() as usize;
        let not_above = |value: u64| -> usize {
            drawn().map(|round| round.partition_point(|its| *its <= value)).sum()
        };
        let (mut low, mut high) = (0, self.max());
        while low < high {
            let middle = low + (high - low) / 2;
            if not_above(middle) >= wanted {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }

    /// Returns a percentile in nanoseconds, with its bounds.
    pub(crate) fn bounds(&self, percent: f64) -> Bounds {
        bootstrap(self.0.len(), |rounds| self.percentile_of(rounds, percent) as f64)
    }

    /// Returns the ratio of a percentile to that of another series of the same rounds, with its bounds.
    pub(crate) fn ratio(&self, base: &Self, percent: f64) -> Bounds {
        bootstrap(self.0.len().min(base.0.len()), |rounds| {
            let below = base.percentile_of(rounds, percent).max(1);
            self.percentile_of(rounds, percent) as f64 / below as f64
        })
    }
}

/// Returns a statistic of all rounds, with bounds from a bootstrap over the rounds. Rounds are resampled
/// because the measurements within a round are not independent.
fn bootstrap(count: usize, of: impl Fn(&[usize]) -> f64) -> Bounds {
    let all: Vec<usize> = (0..count).collect();
    let mut random = Random(count as u64);
    let mut drawn: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let rounds: Vec<usize> = all.iter().map(|_| random.below(count)).collect();
            of(&rounds)
        })
        .collect();
    drawn.sort_by(f64::total_cmp);
    Bounds {
        value: of(&all),
        lower: drawn[RESAMPLES / 40],
        upper: drawn[RESAMPLES - 1 - RESAMPLES / 40],
    }
}

/// Splitmix64 with a fixed seed, so that the numbers are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % limit.max(1) as u64) as usize
    }
}

/// Formats nanoseconds as microseconds.
pub(crate) fn microseconds(nanoseconds: u64) -> String {
    let value = nanoseconds as f64 / 1000.0;
    match value {
        v if v < 1000.0 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}
