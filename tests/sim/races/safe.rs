//! Random programs of safe code (`tests/programs`), which have no races.

use crate::prelude::*;
use crate::programs::Program;

/// The number of programs, unless this variable sets it, and the seed of the first one.
const PROGRAMS: &str = "CUDA_TESTS_PROGRAMS";
const SEED: &str = "CUDA_TESTS_SEED";

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn random_programs_of_safe_code_have_no_races() {
    in_child!();
    start(Profile::h200().with_devices(2).with_race_detection());
    cuda_safe::set_report_hook(|report| println!("report {report}"));
    let first = number(SEED, 0);
    for seed in first..first + number(PROGRAMS, 60) {
        let program = Program::of(seed);
        println!("program {seed}:\n{}", program.describe());
        let (before, leaked) = (cuda_sim::alive(), cuda_safe::leaked());
        program.run_in_order();
        settle();
        assert_eq!(cuda_sim::misuses(), [""; 0]);
        // A pending copy on a captured stream is leaked.
        if cuda_safe::leaked() == leaked {
            assert_eq!(cuda_sim::alive(), before, "program {seed}");
        }
        cuda_sim::clear_calls();
    }
    assert_eq!(cuda_sim::stack_depths(), []);
}

/// Completes deferred releases.
fn settle() {
    cuda_safe::manager::clear_memory_manager();
    while cuda_safe::deferred_releases() > 0 {
        cuda_safe::attempt_deferred_releases();
    }
}
