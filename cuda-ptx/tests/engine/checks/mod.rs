//! The checks of kernels.

mod exhaustive;
mod init;
mod race;
mod sync;
mod table;

use crate::device::{Memory, launch_with};
use crate::planted::{BYTES, HEAD, TENSOR, has_maps, module};
use cuda_ptx::check::{Check, Checks, Finding};
use cuda_ptx::tensor_map::{Element, Interleave, Mode, Swizzle, TensorMap};
use cuda_ptx::{Fault, Launch};

pub(crate) const SEEDS: u64 = 20;

/// What is left of a run.
pub(crate) struct Run {
    pub(crate) memory: Memory,
    /// The parameters of the kernel.
    pub(crate) parameters: [u64; 5],
    pub(crate) findings: Vec<Finding>,
    pub(crate) fault: Option<Box<Fault>>,
}

/// Runs a kernel with the parameters of the planted ones.
pub(crate) fn run(
    text: &str,
    (shape, cluster): ((u32, u32), u32),
    checks: Checks,
    seed: u64,
) -> Run {
    let mut memory = Memory::default();
    let parameters = [
        memory.written(BYTES),
        memory.unwritten(BYTES),
        memory.of_host(BYTES),
        memory.unwritten(BYTES),
        memory.unwritten(BYTES),
    ];
    memory.free(parameters[4]);
    let change = |launch: &mut Launch<'_>| {
        (launch.checks, launch.seed) = (checks, seed);
        launch.cluster = [cluster, 1, 1];
        launch.steps = 3_000_000;
    };
    let mut values = parameters.to_vec();
    if has_maps(text) {
        // The maps begin at a multiple of 64 bytes.
        values.resize(8, 0);
        values.extend(parameters[..2].iter().flat_map(|address| map(*address).encode()));
    }
    let fault = launch_with(text, &memory, shape, &values, change).err();
    let findings = std::mem::take(&mut *memory.findings.lock().unwrap());
    Run { memory, parameters, findings, fault }
}

/// Returns the map of a tensor at an address.
fn map(address: u64) -> TensorMap {
    let ([width, height], [columns, rows]) = TENSOR;
    TensorMap {
        address,
        element: Element::U32,
        rank: 2,
        dims: [width, height, 1, 1, 1],
        strides: [4 * width, 0, 0, 0],
        steps: [1; 5],
        mode: Mode::Tile([columns as u16, rows as u16, 1, 1, 1]),
        interleave: Interleave::None,
        swizzle: Swizzle::None,
        fills_with_nan: false,
    }
}

/// Runs a body with one check, and returns what it finds.
pub(crate) fn findings(body: &str, shape: (u32, u32), check: Check) -> Vec<Finding> {
    let text = module("k", &format!("{HEAD}{body}"));
    let run = run(&text, (shape, 1), Checks::MEMCHECK.with(check), 0);
    assert_eq!(run.fault, None, "{body}");
    run.findings
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
