//! Kernels that communicate without locks, under random interleavings.

use crate::device::Memory;
use cuda_ptx::check::Checks;
use cuda_ptx::{FaultKind, Launch, Program, run, syntax};
use lockfree::{Case, EXCHANGE, PTX, QUEUE, SCAN, changed};
use std::ops::Range;

#[path = "../../../tests/kernels/lockfree/cases.rs"]
mod lockfree;

/// The interleavings of a kernel.
const ALL: Range<u64> = 0..10_000;

/// Runs the kernel of a program under an interleaving, and says what is wrong.
fn outcome(
    program: &Program,
    case: &Case,
    interleaving: u64,
    checks: Checks,
) -> Result<(), String> {
    let mut memory = Memory::default();
    let addresses: Vec<u64> = case.arrays.iter().map(|words| memory.words(words)).collect();
    let mut params: Vec<u8> = addresses.iter().flat_map(|its| its.to_le_bytes()).collect();
    params.extend(case.numbers.iter().flat_map(|its| its.to_le_bytes()));
    let mut launch = Launch::new(program, program.kernel(case.kernel).unwrap());
    (launch.grid[0], launch.block[0]) = case.shape;
    launch.params = &params;
    launch.steps = 100_000;
    launch.checks = checks;
    launch.interleaving = Some(interleaving);
    run(&launch, &memory).map_err(|fault| fault.to_string())?;
    if let Some(finding) = memory.findings.get_mut().unwrap().first() {
        return Err(finding.to_string());
    }
    let (index, expected) = case.result;
    let result = memory.read(addresses[index]);
    match result == expected {
        true => Ok(()),
        false => Err(format!("{result:?}")),
    }
}

fn program(text: &str) -> Program {
    Program::link(&[syntax::parse(text).unwrap()]).unwrap()
}

/// Asserts that some interleaving has a wrong result with another text in place of a line, and that it is repeatable.
fn expect_wrong(case: &Case, line: &str, text: &str) {
    let program = program(&changed(line, text));
    let outcome = |seed| outcome(&program, case, seed, Checks::default());
    let mut wrong = ALL.filter_map(|seed| Some((seed, outcome(seed).err()?)));
    let (seed, first) = wrong.next().unwrap_or_else(|| panic!("{}: no wrong result", case.kernel));
    assert_eq!(outcome(seed), Err(first), "{}, interleaving {seed}", case.kernel);
}

#[test]
fn kernels_without_locks_are_correct_under_10_000_interleavings() {
    let program = program(PTX);
    for case in [SCAN, QUEUE, EXCHANGE] {
        for seed in ALL {
            // The checks see each interleaving, too.
            let checks = if seed % 10 == 0 { Checks::ALL } else { Checks::default() };
            let outcome = outcome(&program, &case, seed, checks);
            assert_eq!(outcome, Ok(()), "{}, interleaving {seed}", case.kernel);
        }
    }
}

#[test]
fn a_missing_fence_between_a_sum_and_its_state_is_found() {
    expect_wrong(&SCAN, "membar.gl; // after the sum", "");
}

#[test]
fn a_fence_of_the_block_does_not_order_its_values_for_the_grid() {
    let line = "membar.gl; // after the values of the block";
    expect_wrong(&EXCHANGE, line, "membar.cta;");
    expect_wrong(&EXCHANGE, line, "");
}

#[test]
fn a_position_that_two_threads_take_is_found() {
    let line = "atom.relaxed.gpu.global.cas.b32 %r8, [%d5], %r3, %r7;";
    let text = "st.relaxed.gpu.global.b32 [%d5], %r7; mov.u32 %r8, %r3;";
    expect_wrong(&QUEUE, line, text);
}

#[test]
fn an_element_that_is_not_released_is_found() {
    let line = "st.release.gpu.global.u32 [%d7], %r7;";
    expect_wrong(&QUEUE, line, "st.relaxed.gpu.global.u32 [%d7], %r7;");
}

#[test]
fn a_wait_without_end_is_found() {
    let program = program(&changed("setp.lt.u32 %p2, %r13, %r9;", "setp.le.u32 %p2, %r13, %r9;"));
    let mut launch = Launch::new(&program, program.kernel("exchange").unwrap());
    let mut memory = Memory::default();
    let [values, arrived, sums] = [6, 1, 6].map(|count| memory.words(&vec![0; count]));
    let params: Vec<u8> =
        [values, arrived, sums, 1].iter().flat_map(|its| its.to_le_bytes()).collect();
    (launch.grid[0], launch.block[0]) = (3, 2);
    launch.params = &params[..28];
    launch.steps = 100_000;
    launch.interleaving = Some(1);
    assert_eq!(run(&launch, &memory).unwrap_err().kind, FaultKind::StepLimit);
}
