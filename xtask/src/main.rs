//! The project's chores: `cargo xtask COMMAND`. One file a command.

mod asan;
mod bind;
mod build_cost;
mod cost;
mod coverage;
mod debian;
mod drivers;
mod explore;
mod generated;
mod header_check;
mod headers;
mod line_coverage;
mod mutants;
mod pack;
mod profiles;
mod ptx;
mod python;
mod regen;
mod symbols;
mod test_binary;
mod toolchain;
mod tools;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  regen-bindings [--check] [--header DIR]  write cuda-sys/src/bindings and the safe layer's attribute table
                                           from the pinned headers (or those in DIR); --check: only compare
  symbols                                  print symbol,base,since of every bound function as CSV
  coverage [--check]                       write COVERAGE.md; --check: only compare
  header-check [VERSION ...]               hold cuda-sys against the pinned headers (default: all of them)
  drivers                                  fetch real libcuda.so files from Debian into target/drivers
  explore [SCENARIO] [--schedules N] [--seed S] [--trace] [--list]
                                           explore thread schedules of tests/explore on the software driver
  explore random [--seconds N] [--only TEXT]
                                           the same of random programs; a violation is shrunk
  profiles                                 run tests/driver on the software driver, as each device and version
  asan                                     run the tests that need no GPU under AddressSanitizer
  line-coverage [--corpus] [--missing]     line coverage of cuda-safe by the tests that need no GPU; --corpus: of
                                           its parsers, by the corpus of the fuzz targets; --missing: also
                                           which lines they do not reach
  mutants [--all] [--names LIST] [--first TESTS] [--shard K/N] [--sample N [--seed S]] [--jobs J] [FILE ...]
                                           mutation tests, on the software driver, of the files that it lists, of
                                           FILEs, or of all of cuda-safe; --names: of the mutants that LIST names, as
                                           the survivors in an earlier report; --first: run tests/sim with the
                                           arguments TESTS before all else, such as a part of the tests' names;
                                           --shard: every N-th mutant from the K-th (from 0); --sample: N mutants,
                                           the same for the same seed
  cost [--check]                           write bench/COST.md, the instructions of each operation (needs valgrind);
                                           --check: fail if one has become dearer
  build-cost [ROUNDS]                      build time and size of the crates beside cudarc's
  msrv                                     check that the oldest supported compiler builds the crates
  ptx                                      hold the kernels' PTX against NVIDIA's assembler, without a GPU
  wheel [DIR]                              build the wheel of python/ into DIR (default: target/wheels)
  python [ARGUMENT ...]                    run the tests of python/ with its wheel, on the software driver unless
                                           CUDA_TESTS=require; ARGUMENTs go to pytest
  pack DIR                                 build tests, examples and benchmark for a GPU machine without Rust
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let rest = args.get(1..).unwrap_or_default();
    let done = match args.first().map(String::as_str) {
        Some("regen-bindings") => regen::run(rest),
        Some("symbols") => symbols::run(rest),
        Some("coverage") => coverage::run(rest),
        Some("header-check") => header_check::run(rest),
        Some("drivers") => drivers::run(rest),
        Some("explore") => explore::run(rest),
        Some("profiles") => profiles::run(rest),
        Some("asan") => asan::run(rest),
        Some("line-coverage") => line_coverage::run(rest),
        Some("mutants") => mutants::run(rest),
        Some("cost") => cost::run(rest),
        Some("build-cost") => build_cost::run(rest),
        Some("msrv") => toolchain::msrv(rest),
        Some("ptx") => ptx::run(rest),
        Some("wheel") => python::wheel(rest),
        Some("python") => python::test(rest),
        Some("pack") => pack::run(rest),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The root of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}
