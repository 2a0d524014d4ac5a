//! The checks of kernels: kernels with and without each error, under seeds.

mod exhaustive;
mod init;
mod race;
mod sync;

use crate::device::{Memory, kernel, launch_with};
use cuda_ptx::Launch;
use cuda_ptx::check::{Check, Checks, Finding};

pub(crate) const SEEDS: u64 = 20;

/// A kernel, and a part of the text of its finding, unless it is correct.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// The blocks and the threads of a block.
    pub(crate) shape: (u32, u32),
    pub(crate) cluster: u32,
    pub(crate) body: &'static str,
    pub(crate) finding: Option<&'static str>,
}

pub(crate) const fn wrong(
    name: &'static str,
    shape: (u32, u32),
    body: &'static str,
    finding: &'static str,
) -> Case {
    Case { name, shape, cluster: 1, body, finding: Some(finding) }
}

pub(crate) const fn right(name: &'static str, shape: (u32, u32), body: &'static str) -> Case {
    Case { name, shape, cluster: 1, body, finding: None }
}

/// Registers that hold the index of the thread, of the thread in the grid, and of the block, and 4 times these.
const HEAD: &str =
    ".shared .align 16 .b8 s[4096]; .shared .align 8 .b64 bar; .shared .align 8 .b64 bar2;
    ld.param.u64 %d0, [p0]; mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x;
    mad.lo.u32 %r3, %r1, %r2, %r0; shl.b32 %r4, %r0, 2; mov.u32 %r5, s; add.u32 %r6, %r5, %r4;
    mul.wide.u32 %d1, %r3, 4; add.u64 %d1, %d0, %d1; mov.u32 %r9, 0;
    setp.eq.u32 %p0, %r0, 0; setp.lt.u32 %p1, %r0, 16; setp.lt.u32 %p2, %r0, 32;\n";

/// Runs a body with the checks, and returns what they find. The kernel may end with a fault.
pub(crate) fn findings(case: &Case, checks: Checks, seed: u64) -> Vec<Finding> {
    let mut memory = Memory::default();
    let base = memory.words(&[0; 4096]);
    let text = kernel(1, &format!("{HEAD}{}", case.body));
    let change = |launch: &mut Launch<'_>| {
        launch.checks = checks;
        launch.seed = seed;
        launch.cluster = [case.cluster, 1, 1];
        launch.steps = 3_000_000;
    };
    let done = launch_with(&text, &memory, case.shape, &[base], change);
    if let (Err(fault), None) = (&done, case.finding) {
        panic!("{}, seed {seed}: {fault}", case.name);
    }
    memory.findings.into_inner().unwrap()
}

/// Asserts that each case has its finding under each seed, and no others.
pub(crate) fn assert_found(check: Check, cases: &[Case]) {
    assert_all(cases, |case, seed| findings(case, Checks::default().with(check), seed));
}

/// The same for cases that `findings` runs under a seed.
pub(crate) fn assert_all(cases: &[Case], findings: impl Fn(&Case, u64) -> Vec<Finding>) {
    for case in cases {
        for seed in 0..=SEEDS {
            let found = findings(case, seed);
            let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
            let is_expected = match case.finding {
                None => texts.is_empty(),
                Some(text) => !texts.is_empty() && texts.iter().all(|its| its.contains(text)),
            };
            assert!(is_expected, "{}, seed {seed}: {texts:#?}", case.name);
        }
    }
}

#[test]
fn names_of_checks_are_parsed_and_printed() {
    let both: Checks = "synccheck, memcheck".parse().unwrap();
    assert_eq!(both, Checks::default().with(Check::Synccheck));
    assert_eq!(both.to_string(), "memcheck,synccheck");
    assert_eq!("memcheck".parse(), Ok(Checks::default()));
    for wrong in ["", "sync", "synccheck,", "Synccheck"] {
        let error = wrong.parse::<Checks>().unwrap_err().to_string();
        assert!(error.contains("the checks are memcheck, "), "{error}");
    }
    assert!(Check::ALL.iter().all(|check| Checks::ALL.contains(*check)));
}
