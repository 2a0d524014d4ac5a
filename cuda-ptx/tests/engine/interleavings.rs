//! Kernels that communicate without locks, under random interleavings.

use crate::device::Memory;
use cuda_ptx::check::Checks;
use cuda_ptx::{FaultKind, Launch, Program, run, syntax};
use std::ops::Range;

const LOCKFREE: &str = include_str!("../../../tests/kernels/lockfree.ptx");

/// The interleavings of a kernel.
const ALL: Range<u64> = 0..10_000;

/// An array of numbers, or a number, that a kernel gets.
enum Argument<'a> {
    Array(&'a [u32]),
    Number(u32),
}

use Argument::{Array, Number};

/// A kernel with its arguments, and one of the arrays as it must be afterwards.
struct Case<'a> {
    kernel: &'a str,
    shape: (u32, u32),
    arguments: &'a [Argument<'a>],
    result: usize,
    expected: &'a [u32],
}

const SCAN: Case<'static> = Case {
    kernel: "scan",
    shape: (4, 2),
    arguments: &[
        Array(&[1, 2, 4, 8, 16, 32, 64, 128]),
        Array(&[0; 8]),
        Array(&[0; 4]),
        Array(&[0; 4]),
        Array(&[0; 4]),
        Array(&[0]),
    ],
    result: 1,
    expected: &[1, 3, 7, 15, 31, 63, 127, 255],
};

const QUEUE: Case<'static> = Case {
    kernel: "queue",
    shape: (8, 1),
    arguments: &[Array(&[0, 1]), Array(&[9, 9]), Array(&[0, 0]), Array(&[0; 10])],
    result: 3,
    expected: &[1, 1, 1, 1, 0, 0, 0, 0, 0, 0],
};

const EXCHANGE: Case<'static> = Case {
    kernel: "exchange",
    shape: (3, 2),
    arguments: &[Array(&[0; 6]), Array(&[0]), Array(&[0; 6]), Number(2)],
    result: 2,
    // The phases 0 and 2, and twice the number of the other thread.
    expected: &[6, 8, 10, 12, 2, 4],
};

/// Runs the kernel of a program under an interleaving, and says what is wrong.
fn outcome(
    program: &Program,
    case: &Case<'_>,
    interleaving: u64,
    checks: Checks,
) -> Result<(), String> {
    let mut memory = Memory::default();
    let mut addresses = Vec::new();
    let mut params = Vec::new();
    for argument in case.arguments {
        match argument {
            Array(words) => {
                addresses.push(memory.words(words));
                params.extend(addresses[addresses.len() - 1].to_le_bytes());
            }
            Number(number) => params.extend(number.to_le_bytes()),
        }
    }
    let mut launch = Launch::new(program, program.kernel(case.kernel).unwrap());
    (launch.grid[0], launch.block[0]) = case.shape;
    launch.params = &params;
    launch.steps = 100_000;
    launch.checks = checks;
    launch.interleaving = Some(interleaving);
    run(&launch, &memory).map_err(|fault| fault.to_string())?;
    if let Some(finding) = memory.findings.lock().unwrap().first() {
        return Err(finding.to_string());
    }
    let result = memory.read(addresses[case.result]);
    match result == case.expected {
        true => Ok(()),
        false => Err(format!("{result:?}")),
    }
}

/// Returns the program in which a line of the file has another text.
fn changed(line: &str, text: &str) -> Program {
    assert_eq!(LOCKFREE.matches(line).count(), 1, "{line}");
    program(&LOCKFREE.replace(line, text))
}

fn program(text: &str) -> Program {
    Program::link(&[syntax::parse(text).unwrap()]).unwrap()
}

/// Asserts that some interleaving has a wrong result, and that it is repeatable.
fn expect_wrong(program: &Program, case: &Case<'_>) {
    let outcome = |seed| outcome(program, case, seed, Checks::default());
    let mut wrong = ALL.filter_map(|seed| Some((seed, outcome(seed).err()?)));
    let (seed, first) = wrong.next().unwrap_or_else(|| panic!("{}: no wrong result", case.kernel));
    assert_eq!(outcome(seed), Err(first), "{}, interleaving {seed}", case.kernel);
}

#[test]
fn kernels_without_locks_are_correct_under_10_000_interleavings() {
    let program = program(LOCKFREE);
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
    expect_wrong(&changed("membar.gl; // after the sum", ""), &SCAN);
}

#[test]
fn a_fence_of_the_block_does_not_order_its_values_for_the_grid() {
    let line = "membar.gl; // after the values of the block";
    expect_wrong(&changed(line, "membar.cta;"), &EXCHANGE);
    expect_wrong(&changed(line, ""), &EXCHANGE);
}

#[test]
fn a_position_that_two_threads_take_is_found() {
    let line = "atom.relaxed.gpu.global.cas.b32 %r8, [%d5], %r3, %r7;";
    let text = "st.relaxed.gpu.global.b32 [%d5], %r7; mov.u32 %r8, %r3;";
    expect_wrong(&changed(line, text), &QUEUE);
}

#[test]
fn an_element_that_is_not_released_is_found() {
    expect_wrong(
        &changed("st.release.gpu.global.u32 [%d7], %r7;", "st.relaxed.gpu.global.u32 [%d7], %r7;"),
        &QUEUE,
    );
}

#[test]
fn a_wait_without_end_is_found() {
    let program = changed("setp.lt.u32 %p2, %r13, %r9;", "setp.le.u32 %p2, %r13, %r9;");
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
