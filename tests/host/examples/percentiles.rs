//! The statistics that the examples print.

#[path = "../../../examples/support/stats.rs"]
#[allow(dead_code, reason = "the examples use the rest")]
mod stats;

use stats::Rounds;

fn rounds(all: &[&[u64]]) -> Rounds {
    let mut rounds = Rounds::default();
    for round in all {
        rounds.push(round.to_vec());
    }
    rounds
}

#[test]
fn a_percentile_is_the_smallest_value_not_exceeded_by_that_share() {
    let all: Vec<u64> = (1..=1000).rev().collect();
    let rounds = rounds(&[&all[..300], &all[300..]]);
    assert_eq!(rounds.count(), 1000);
    for (percent, value) in [(50.0, 500), (90.0, 900), (99.0, 990), (99.95, 1000)] {
        assert_eq!(rounds.percentile(percent), value, "{percent}");
    }
    assert_eq!((rounds.min(), rounds.max()), (1, 1000));
    assert_eq!(self::rounds(&[&[7]]).percentile(1.0), 7);
    assert_eq!(Rounds::default().percentile(50.0), 0);
}

#[test]
fn the_bounds_of_a_ratio_contain_it_and_reflect_the_spread_of_rounds() {
    let base = rounds(&[&[100; 50], &[100; 50], &[100; 50], &[100; 50]]);
    let same = rounds(&[&[150; 50], &[150; 50], &[150; 50], &[150; 50]]).ratio(&base, 99.0);
    assert_eq!((same.value, same.lower, same.upper), (1.5, 1.5, 1.5));
    let other = rounds(&[&[100; 50], &[200; 50], &[300; 50], &[400; 50]]).ratio(&base, 99.0);
    assert_eq!(other.value, 4.0, "the slowest round has more than one percent of all values");
    assert!(other.lower < 3.5 && other.upper == 4.0, "{other:?}");
}
