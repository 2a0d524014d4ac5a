//! The result of a kernel without races does not depend on the order of blocks and warps.

use crate::device::Memory;
use cuda_ptx::check::Checks;
use cuda_ptx::{Launch, Program, run, syntax};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const SEEDS: u64 = 20;
/// The number of words of the memory that kernels access.
const WORDS: u32 = 4096;

/// An argument of a kernel.
#[derive(Clone, Copy)]
enum Argument {
    /// The address of a word of the memory.
    At(u64),
    /// A number, which is repeated in a parameter of more than 8 bytes.
    Number(u64),
}

use Argument::{At, Number};

/// A launch of a kernel.
#[derive(Clone, Copy)]
struct Case {
    /// The files that are linked, in the workspace.
    files: &'static [&'static str],
    kernel: &'static str,
    grid: u32,
    block: u32,
    cluster: u32,
    shared: u32,
    arguments: &'static [Argument],
}

const fn case(
    files: &'static [&'static str],
    kernel: &'static str,
    (grid, block): (u32, u32),
    arguments: &'static [Argument],
) -> Case {
    Case { files, kernel, grid, block, cluster: 1, shared: 0, arguments }
}

const VECTOR: &[&str] = &["tests/kernels/vector.ptx"];
const ARGUMENTS: &[&str] = &["tests/kernels/arguments.ptx"];
const CONDITIONAL: &[&str] = &["tests/kernels/conditional.ptx"];
const GLOBALS: &[&str] = &["tests/kernels/globals.ptx"];
const HOPPER: &[&str] = &["tests/kernels/hopper.ptx"];
const PATTERN: &[&str] = &["tests/kernels/pattern.ptx"];
const SHARED: &[&str] = &["tests/kernels/shared.ptx"];
const APPLY: &[&str] = &["tests/kernels/apply.ptx", "tests/kernels/twice.ptx"];
const MEET: &[&str] = &["tests/kernels/meet.ptx"];
const SMID: &[&str] = &["tests/kernels/smid.ptx"];
const PROBE: &[&str] = &["cuda-safe/src/green/probe/record.ptx"];
const ISOLATION: &[&str] = &["examples/isolation/kernels.ptx"];
const SERVER: &[&str] = &["examples/adopters/server/src/kernels.ptx"];
const TENSOR: &[&str] = &["examples/adopters/tensor/src/kernels.ptx"];

/// Kernels of textures, surfaces and tensor maps need objects of a driver.
const OF_DRIVERS: &[&str] = &["shapes.ptx", "tensor.ptx", "texture.ptx"];

const BINARY: &[Argument] = &[At(0), At(1000), At(2000), Number(500), Number(1), Number(0)];
const SUM: &[Argument] = &[At(0), At(0), At(2000), Number(5), Number(300), Number(0)];
const PRODUCT: &[Argument] = &[At(0), At(1000), At(2000), Number(12), Number(20), Number(15)];
const NINETEEN: &[Argument] = &{
    let mut arguments = [At(0); 20];
    let mut at = 1;
    while at < arguments.len() {
        arguments[at] = Number(1000 + at as u64);
        at += 1;
    }
    arguments
};
const BY_VALUE: &[Argument] =
    &[At(0), Number(1), Number(0x0102_0304_0506_0708), Number(3), Number(4)];

const CASES: &[Case] = &[
    case(VECTOR, "add", (10, 96), &[At(0), At(1000), At(2000), Number(900)]),
    case(VECTOR, "scale", (10, 96), &[At(0), Number(3), Number(7), Number(900)]),
    case(VECTOR, "nothing", (10, 96), &[]),
    case(ARGUMENTS, "sum_of_nineteen", (1, 1), NINETEEN),
    case(ARGUMENTS, "by_value", (1, 1), BY_VALUE),
    case(CONDITIONAL, "choose", (1, 1), &[Number(5), Number(3)]),
    case(CONDITIONAL, "count_down", (1, 1), &[Number(5), At(10)]),
    case(GLOBALS, "bump", (1, 1), &[Number(9)]),
    case(GLOBALS, "factor", (1, 1), &[At(0), Number(2)]),
    case(GLOBALS, "copy_everywhere", (1, 1), &[At(0)]),
    Case { cluster: 4, ..case(HOPPER, "cluster_ranks", (12, 1), &[At(0)]) },
    case(HOPPER, "pdl_first", (1, 1), &[At(0), Number(50_000)]),
    case(HOPPER, "pdl_second", (1, 1), &[At(0)]),
    case(PATTERN, "write_pattern", (5, 96), &[At(0), Number(2000), Number(7), Number(50_000)]),
    case(PATTERN, "check_pattern", (5, 96), &[At(0), Number(1), Number(7), At(3000)]),
    Case { shared: 4096, ..case(SHARED, "through_shared", (1, 1), &[At(0), Number(4096)]) },
    case(SHARED, "bounded", (1, 1), &[At(0)]),
    case(APPLY, "apply", (1, 256), &[At(0)]),
    case(MEET, "meet", (20, 1), &[At(4000)]),
    case(SMID, "record_smid", (20, 96), &[At(0), Number(50_000)]),
    case(PROBE, "cuda_safe_record_sm", (20, 96), &[At(0), Number(50_000)]),
    case(ISOLATION, "respond", (4, 64), &[At(0), At(3000), Number(3)]),
    // It measures time, except for the first round.
    case(ISOLATION, "compute", (4, 64), &[At(0), Number(0)]),
    case(ISOLATION, "sweep", (5, 96), &[At(0), Number(200)]),
    case(SERVER, "iterate", (10, 96), &[At(0), Number(900), Number(3), Number(10)]),
    case(TENSOR, "add_f32", (5, 128), BINARY),
    case(TENSOR, "mul_f32", (5, 128), BINARY),
    case(TENSOR, "max_f32", (5, 128), BINARY),
    case(TENSOR, "sum_f32", (5, 256), SUM),
    case(TENSOR, "matmul_f32", (2, 128), PRODUCT),
    case(TENSOR, "add_i32", (5, 128), BINARY),
    case(TENSOR, "mul_i32", (5, 128), BINARY),
    case(TENSOR, "max_i32", (5, 128), BINARY),
    case(TENSOR, "sum_i32", (5, 256), SUM),
    case(TENSOR, "matmul_i32", (2, 128), PRODUCT),
];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn link(files: &[&str]) -> Program {
    let read = |file| {
        let path = workspace().join(file);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let texts: Vec<String> = files.iter().map(read).collect();
    let modules = texts.iter().map(|text| syntax::parse(text).unwrap());
    Program::link(&modules.collect::<Vec<_>>()).unwrap()
}

/// Runs a kernel, and returns the memory, the variables and the conditionals after it.
///
/// The kernels have no errors that the checks find.
fn result(
    program: &Program,
    case: &Case,
    (seed, checks, interleaving): (u64, Checks, Option<u64>),
) -> (Vec<Vec<u32>>, Vec<(u64, u32)>) {
    let mut memory = Memory::default();
    let words: Vec<u32> = (0..WORDS).map(|at| (at as f32 / 4.0 + 1.0).to_bits()).collect();
    let base = memory.words(&words);
    let variables: Vec<u64> = program
        .variables()
        .iter()
        .map(|its| {
            let mut bytes = its.initial.clone();
            bytes.resize(its.size as usize, 0);
            memory.bytes(&bytes)
        })
        .collect();
    let index = program.kernel(case.kernel).unwrap();
    let kernel = &program.kernels()[index];
    assert_eq!(kernel.params.len(), case.arguments.len(), "{}", case.kernel);
    let mut params = vec![0; kernel.param_bytes()];
    for (param, argument) in kernel.params.iter().zip(case.arguments) {
        let value = match argument {
            At(word) => base + 4 * word,
            Number(number) => *number,
        };
        let bytes = value.to_le_bytes();
        for (to, byte) in
            params[param.offset..param.offset + param.size].iter_mut().zip(bytes.iter().cycle())
        {
            *to = *byte;
        }
    }
    let mut launch = Launch::new(program, index);
    (launch.grid, launch.block) = ([case.grid, 1, 1], [case.block, 1, 1]);
    launch.cluster = [case.cluster, 1, 1];
    launch.dynamic_shared = case.shared;
    (launch.params, launch.variables) = (&params, &variables);
    launch.sms = &[0, 1, 2, 3, 4, 5, 6];
    (launch.seed, launch.checks, launch.interleaving) = (seed, checks, interleaving);
    launch.steps = 50_000_000;
    run(&launch, &memory).unwrap_or_else(|fault| panic!("{}, seed {seed}: {fault}", case.kernel));
    let findings = memory.findings.lock().unwrap().clone();
    assert_eq!(findings, [], "{}, seed {seed}", case.kernel);
    let all = std::iter::once(base).chain(variables).map(|address| memory.read(address));
    (all.collect(), memory.conditionals.into_inner().unwrap())
}

#[test]
fn results_without_races_do_not_depend_on_the_seed() {
    for case in CASES {
        let program = link(case.files);
        let first = result(&program, case, (0, Checks::default(), None));
        for seed in 1..=SEEDS {
            let checks = if seed % 2 == 0 { Checks::ALL } else { Checks::default() };
            for interleaving in [None, Some(seed)] {
                let other = result(&program, case, (seed, checks, interleaving));
                let order = (seed, interleaving);
                assert!(other == first, "the result of {} differs with {order:?}", case.kernel);
            }
        }
    }
}

#[test]
fn results_of_races_between_blocks_or_warps_depend_on_the_seed() {
    let arguments = &[At(0), Number(96), Number(7), At(3000)];
    for (what, shape) in [("blocks", (3, 32)), ("warps", (1, 96))] {
        // Each thread finds another wrong value, and stores it in the same place.
        let case = case(PATTERN, "check_pattern", shape, arguments);
        let program = link(case.files);
        let results =
            (1..=SEEDS).map(|seed| result(&program, &case, (seed, Checks::default(), None)).0);
        assert_eq!(results.collect::<BTreeSet<_>>().len(), 3, "{what}");
    }
}

#[test]
fn all_kernels_of_the_workspace_run_under_seeds() {
    let mut files: Vec<PathBuf> = std::fs::read_dir(workspace().join("tests/kernels"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|its| its == "ptx"))
        .filter(|path| !OF_DRIVERS.iter().any(|name| path.ends_with(name)))
        .collect();
    let others = [PROBE, ISOLATION, SERVER, TENSOR].into_iter().flatten();
    files.extend(others.map(|file| workspace().join(file)));
    let ran: BTreeSet<&str> = CASES.iter().map(|case| case.kernel).collect();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        for item in &syntax::parse(&text).unwrap().items {
            let syntax::Item::Function(function) = item else { continue };
            let is_run = !function.is_entry || ran.contains(function.name);
            assert!(is_run, "{} in {} has no case", function.name, file.display());
        }
    }
}
