//! The planted kernels under seeds, and the table of what the checks and compute-sanitizer find in them.

use super::{SEEDS, run};
use crate::planted::{self, CLASSES, Class, Expected, Row};
use cuda_ptx::FaultKind;
use cuda_ptx::check::{Check, Checks};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write;

const PAGE: &str = include_str!("../../../CHECKS.md");
/// What compute-sanitizer finds, as `cargo test -p cuda-workbench --test ptx -- verdicts LOG` prints it.
const RECORDED: &str = include_str!("../planted/compute-sanitizer.tsv");

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

/// What the tools of compute-sanitizer find in a kernel, in the order of the checks: the first line of a report, or one
/// of [`Recorded::OTHERS`].
struct Recorded {
    verdicts: [&'static str; 4],
}

impl Recorded {
    /// What is no report: the kernel ended, was not run under the tool, or did not end, and other ends of the process.
    const OTHERS: [&'static str; 5] =
        ["nothing", "not run", "no end", "an error of the driver", "the process ended"];

    /// Returns whether a tool finds an error.
    fn is_found(&self) -> bool {
        self.verdicts.iter().any(|verdict| !Self::OTHERS.contains(verdict))
    }

    /// Returns the tools that find an error, or how the kernel ends under the tool with the name of a check.
    fn text(&self, check: Check) -> String {
        let verdicts = || Check::ALL.into_iter().zip(self.verdicts);
        let found = verdicts().filter(|(_, verdict)| !Self::OTHERS.contains(verdict));
        match found.map(|(tool, _)| tool.name()).collect::<Vec<_>>() {
            tools if tools.is_empty() => verdicts()
                .filter(|(tool, verdict)| *tool == check && *verdict != "nothing")
                .map(|(_, verdict)| verdict)
                .collect(),
            tools => tools.join(", "),
        }
    }
}

/// Returns what compute-sanitizer finds in each kernel. Kernels that were not recorded have not run.
fn recorded() -> BTreeMap<String, Recorded> {
    let lines: BTreeMap<&str, &str> =
        RECORDED.lines().skip(1).filter_map(|line| line.split_once('\t')).collect();
    let row = |(class, row): (&Class, &Row)| {
        let name = class.row_name(row);
        let line = lines.get(name.as_str()).and_then(|line| line.split_once('\t'));
        let Some((hash, text)) = line else {
            return (name, Recorded { verdicts: ["not run"; 4] });
        };
        assert_eq!(hash, class.hash(row), "{name}: another kernel was recorded");
        let verdicts: Vec<&str> = text.split('\t').collect();
        (name, Recorded { verdicts: verdicts.try_into().expect("a verdict of each tool") })
    };
    let all: BTreeMap<_, _> = planted::all().map(row).collect();
    let unknown: Vec<_> = lines.keys().filter(|name| !all.contains_key(**name)).collect();
    assert!(unknown.is_empty(), "recorded, and no kernel: {unknown:?}");
    all
}

fn finds(row: &Row) -> bool {
    matches!(row.expected, Expected::Found(_))
}

/// Returns the table of the classes.
fn counts(recorded: &BTreeMap<String, Recorded>) -> String {
    let mut table = "| check | class | kernels with a defect | found by the engine | by compute-sanitizer | without a \
                     result | correct kernels | with a finding of the engine | of compute-sanitizer | without a result \
                     |\n|---|---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    let mut sums = [0; 8];
    let mut line = |check: &str, class: &str, counts: [usize; 8]| {
        let counts = counts.map(|count| count.to_string()).join(" | ");
        writeln!(table, "| {check} | {class} | {counts} |").unwrap();
    };
    for class in CLASSES {
        let count = |is_counted: &dyn Fn(&Row, &Recorded) -> bool| {
            let rows = class.rows.iter();
            rows.filter(|row| is_counted(row, &recorded[&class.row_name(row)])).count()
        };
        let is_correct = |row: &Row| row.expected == Expected::Nothing;
        let is_open = |its: &Recorded| its.text(class.check) == "not run";
        let counts = [
            count(&|row, _| !is_correct(row)),
            count(&|row, _| finds(row)),
            count(&|row, its| !is_correct(row) && its.is_found()),
            count(&|row, its| !is_correct(row) && is_open(its)),
            count(&|row, _| is_correct(row)),
            // `assert_found` asserts that there is none.
            0,
            count(&|row, its| is_correct(row) && its.is_found()),
            count(&|row, its| is_correct(row) && is_open(its)),
        ];
        line(class.check.name(), class.name, counts);
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    line("", "all", sums);
    table
}

/// Returns the table of the kernels.
fn kernels(recorded: &BTreeMap<String, Recorded>) -> String {
    let mut table =
        "| kernel | defect | engine | compute-sanitizer |\n|---|---|---|---|\n".to_owned();
    for (class, row) in planted::all() {
        let name = class.row_name(row);
        let defect = if row.expected == Expected::Nothing { "" } else { "yes" };
        let engine = if finds(row) { class.check.name() } else { "" };
        let sanitizer = recorded[&name].text(class.check);
        writeln!(table, "| {name} | {defect} | {engine} | {sanitizer} |").unwrap();
    }
    table
}

/// Returns the page with another table in a section.
fn with_table(page: &str, section: &str, table: &str) -> String {
    let (before, after) = page.split_once(&format!("\n## {section}\n")).expect("the section");
    let start = after.find("\n|").expect("a table") + 1;
    let end = after[start..].find("\n\n").map_or(after.len(), |at| start + at + 1);
    format!("{before}\n## {section}\n{}{table}{}", &after[..start], &after[end..])
}

#[test]
fn the_page_has_what_the_engine_and_compute_sanitizer_find() {
    let recorded = recorded();
    let page = with_table(PAGE, "Classes", &counts(&recorded));
    let page = with_table(&page, "Kernels", &kernels(&recorded));
    let written = concat!(env!("CARGO_TARGET_TMPDIR"), "/CHECKS.md");
    std::fs::write(written, &page).unwrap();
    assert!(page == PAGE, "CHECKS.md differs from the tables; {written} has them");

    let differs = |(class, row): &(&Class, &Row)| {
        let its = &recorded[&class.row_name(row)];
        finds(row) != its.is_found() && its.text(class.check) != "not run"
    };
    let differing: BTreeSet<String> =
        planted::all().filter(differs).map(|(class, row)| class.row_name(row)).collect();
    let (_, section) = PAGE.split_once("\n## Differences\n").expect("the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let lines = section.lines().filter_map(|line| line.strip_prefix("  - "));
    let explained: BTreeSet<String> = lines.map(ToOwned::to_owned).collect();
    assert_eq!(differing, explained, "the kernels of which the page says why they differ");
}

#[test]
fn the_page_says_which_defects_the_engine_does_not_find() {
    for (class, row) in planted::all() {
        if let Expected::Missed(reason) = row.expected {
            let line = format!("- {}: {reason}", class.row_name(row));
            assert!(PAGE.contains(&line), "{line}");
        }
    }
}
