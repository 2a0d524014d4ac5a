//! The lists of instructions in FIDELITY.md.

use crate::device::kernel;
use cuda_ptx::{Program, syntax};

const PAGE: &str = include_str!("../../FIDELITY.md");

/// What the decoder does with an instruction.
#[derive(Debug, PartialEq, Eq)]
enum Decoded {
    /// It decodes the instruction, or reports what is wrong with its operands.
    Known,
    Refused,
    /// PTX has no such instruction.
    Unknown,
}

/// Decodes an instruction without operands.
fn decode(instruction: &str) -> Decoded {
    let text = kernel(0, &format!("{instruction};"));
    let module = syntax::parse(&text).unwrap_or_else(|error| panic!("{instruction}: {error}"));
    match Program::link(&[module]) {
        Err(error) if error.to_string().contains("no such instruction") => Decoded::Unknown,
        Err(_) => Decoded::Known,
        Ok(program) if program.kernels()[0].unsupported().next().is_some() => Decoded::Refused,
        Ok(_) => Decoded::Known,
    }
}

/// Returns the instructions in the table of a section.
fn instructions(section: &str) -> Vec<&'static str> {
    let (_, rest) = PAGE.split_once(&format!("\n## {section}\n")).expect("the section");
    let rest = rest.split("\n## ").next().unwrap_or_default();
    let rows = rest.lines().filter(|line| line.starts_with("| ") && line.contains('`'));
    let names = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
    names.collect()
}

fn compare(section: &str, expected: &Decoded) {
    let instructions = instructions(section);
    assert!(instructions.len() > 15, "{instructions:?}");
    for instruction in instructions {
        assert_eq!(decode(instruction), *expected, "{instruction}");
    }
}

#[test]
fn the_instructions_that_fidelity_lists_as_running_are_decoded() {
    compare("Instructions that run", &Decoded::Known);
}

#[test]
fn the_instructions_that_fidelity_lists_as_not_running_are_refused() {
    compare("Instructions that do not run", &Decoded::Refused);
    assert_eq!(decode("frobnicate"), Decoded::Unknown);
}
