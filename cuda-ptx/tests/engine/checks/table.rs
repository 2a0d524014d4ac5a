//! The planted kernels under seeds.

use super::{SEEDS, run};
use crate::planted::{self, CLASSES, Class, Expected, Row};
use cuda_ptx::FaultKind;
use cuda_ptx::check::{Check, Checks};
use std::collections::HashSet;

/// Runs a kernel with all checks, and returns the checks and the texts of what they find.
fn found(class: &Class, row: &Row, checks: Checks, seed: u64) -> Vec<(Check, String)> {
    let run = run(&class.module(row, "k"), (row.shape, row.cluster), checks, seed);
    let fault = run.fault.iter().filter_map(|fault| match fault.kind {
        FaultKind::IllegalAddress | FaultKind::MisalignedAddress => {
            Some((Check::Memcheck, fault.to_string()))
        }
        // A mask that lacks the lane ends the kernel.
        FaultKind::IllegalInstruction => Some((Check::Synccheck, fault.to_string())),
        _ => None,
    });
    run.findings.iter().map(|its| (its.check, its.to_string())).chain(fault).collect()
}

/// Asserts that the kernels with a defect that a check finds have a finding under each seed, that correct ones have
/// none of any check, and that a defect that the check misses is missed under some seed.
fn assert_found(check: Check) {
    for class in CLASSES.iter().filter(|class| class.check == check) {
        for row in class.rows {
            let mut missed = 0;
            for seed in 0..=SEEDS {
                let found = found(class, row, Checks::ALL, seed);
                let own = || found.iter().filter(|(its, _)| *its == check);
                let is_expected = match row.expected {
                    Expected::Nothing => found.is_empty(),
                    Expected::Found(part) => {
                        own().next().is_some() && own().all(|(_, text)| text.contains(part))
                    }
                    Expected::Missed(_) => true,
                };
                assert!(is_expected, "{}, seed {seed}: {found:#?}", class.row_name(row));
                missed += u32::from(own().next().is_none());
            }
            let is_missed = matches!(row.expected, Expected::Missed(_));
            assert!(!is_missed || missed > 0, "{}: found under each seed", class.row_name(row));
        }
    }
}

#[test]
fn accesses_to_other_memory_are_found_under_each_seed() {
    assert_found(Check::Memcheck);
}

#[test]
fn uses_of_memory_that_was_never_written_are_found_under_each_seed() {
    assert_found(Check::Initcheck);
}

#[test]
fn races_are_found_under_each_seed() {
    assert_found(Check::Racecheck);
}

#[test]
fn incorrect_synchronization_is_found_under_each_seed() {
    assert_found(Check::Synccheck);
}

#[test]
fn nothing_is_found_without_the_check() {
    for (class, row) in planted::all() {
        let others = Check::ALL.into_iter().filter(|check| *check != class.check);
        let others = others.fold(Checks::MEMCHECK, Checks::with);
        let run = run(&class.module(row, "k"), (row.shape, row.cluster), others, 0);
        let own = run.findings.iter().find(|finding| finding.check == class.check);
        assert_eq!(own, None, "{}", class.row_name(row));
    }
}

#[test]
fn kernels_and_their_names_are_unique() {
    let names: HashSet<String> = planted::all().map(|(class, row)| class.row_name(row)).collect();
    let hashes: HashSet<String> = planted::all().map(|(class, row)| class.hash(row)).collect();
    assert_eq!((names.len(), hashes.len()), (planted::all().count(), planted::all().count()));
}
