//! Developer commands of the project: `cargo xtask COMMAND`. Each command is in one file.

mod bindings;
mod clients;
mod coverage;
mod generated;
mod install;
mod measurements;
mod packages;
mod source;
mod status;
mod testing;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  regen-bindings [--check] [--header DIR]  write the bindings of cuda-sys, cuda-nvrtc and cuda-nccl and the device attributes
                                           of cuda-safe from the pinned headers, or from those in DIR; --check: only compare
  symbols                                  print every bound function as CSV: symbol,base,since
  coverage [--check]                       write COVERAGE.md; --check: only compare
  header-check [--sample | VERSION ...]    compare cuda-sys with the pinned headers (default: all versions); --sample: with
                                           the newest and the oldest
  drivers                                  download real libcuda.so files from Debian into target/drivers
  compilers                                download NVRTC and nvJitLink from PyPI into target/compilers, for tests/nvrtc
  explore [SCENARIO] [--schedules N] [--seed S] [--trace] [--list]
                                           explore thread schedules of tests/explore on the software driver
  explore random [--seconds N] [--only TEXT]
                                           explore random programs; a program with a violation is shrunk
  explore --reverts [--together] [NAME ...]
                                           undo each fix of xtask/reverts.toml in a copy of the sources, or all at once, and
                                           check that random programs find the error
  differ record FROM COUNT FILE            write random programs of raw calls for a GPU: those of the seeds from FROM on
  differ check [TRANSCRIPTS]               compare transcripts of a GPU with the software driver (default: those of
                                           cuda-sim/data)
  uncalled [--programs N]                  list the public safe functions that no random program calls and
                                           xtask/uncalled.toml does not name
  profiles [--sample]                      run tests/driver on the software driver with each device and version
  asan [--sample]                          run the tests that need no GPU under AddressSanitizer
  miri [--sample | START]                  run the tests that need no GPU under Miri, with the software driver; START: the
                                           start of the names of the tests, for example sim::graph
  wine [ARGUMENT ...]                      run tests/host and tests/driver as programs for Windows, with Wine; the ARGUMENTs are
                                           passed to the tests
  line-coverage [--corpus] [--missing]     measure the lines of cuda-safe and cuda-memory that the tests
                                           without a GPU run; --corpus: the lines of the parsers that the
                                           fuzz corpus runs;
                                           --missing: also print the lines that do not run
  mutants --all | --names LIST | FILE ... [--sample N [--seed S]] [--slow] [--jobs J]
                                           run mutation tests on the software driver, for all files of the crates that
                                           users build, for the mutants named in the file LIST, for example the survivors
                                           in an earlier report, or for the files with a FILE in their path; --sample: N
                                           mutants, chosen by the seed; --slow: also run the slowest tests
  seeds --mutants [FILTER ...]             make each change of xtask/seeds/mutants.toml in a copy of the sources, and
                                           check that the tests of the statements that it violates fail
  cost [--check]                           write bench/COST.md, the instructions of each operation (needs valgrind);
                                           --check: fail if an operation needs more
  growth [--check]                         write bench/GROWTH.md, the instructions of calls of the software driver by
                                           number of live objects (needs valgrind); --check: only fail if a call
                                           needs more than twice the instructions with many objects
  build-cost [ROUNDS]                      measure the CPU time of clean builds and the sizes of the crates and of cudarc
  msrv [--if-available]                    check that the oldest supported compiler builds the crates;
                                           --if-available: succeed if that compiler cannot be installed
  layers [--check]                         check that imports between the modules of a crate go down the layers of
                                           xtask/layers.toml; without --check, also print them
  inline [--check]                         add the attribute `inline` to the functions of the library crates that are not
                                           generic, so that users compile only what they call; --check: only report
  deny                                     check the dependencies with cargo-deny and the rules of deny.toml
  publish [--upload]                       package and build the crates as crates.io would, with the names of
                                           xtask/publish.toml; --upload: publish them
  sbom [DIR]                               write the dependencies of each published crate in the format CycloneDX into DIR
                                           (default: target/sbom); the wheels contain theirs
  semver [BASELINE]                        check that the versions of the crates admit the changes of their public
                                           interface since BASELINE, by default since the last release, and before
                                           the first one since the commit in xtask/publish.toml
  adopters                                 check that the packages of examples/adopters outside of the workspace compile
  ptx                                      check the kernels' PTX with NVIDIA's assembler, without a GPU
  wheel [DIR]                              build the wheels of python/ and of the software driver for this machine into
                                           DIR (default: target/wheels)
  wheels [DIR]                             build the wheels of a release, for x86-64 and aarch64, and check their tags
  python [ARGUMENT ...]                    run the tests of these packages with their wheels, on the software driver
                                           unless CUDA_TESTS=require; the ARGUMENTs are passed to pytest
  clients [--quick] [--from CHECKOUT] [--suite NAME] [CLIENT ...]
                                           run test suites of other packages on the software driver and compare
                                           the results with tests/clients; --quick: only those that CI runs;
                                           --from: a checkout of the repository that has the tests of a client
                                           whose packages lack them
  pack DIR                                 build tests, examples and benchmark for a GPU machine without Rust
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let rest = args.get(1..).unwrap_or_default();
    let done = match args.first().map(String::as_str) {
        Some("regen-bindings") => bindings::regen::run(rest),
        Some("symbols") => bindings::symbols::run(rest),
        Some("coverage") => coverage::run(rest),
        Some("header-check") => bindings::header_check::run(rest),
        Some("drivers") => install::drivers::run(rest),
        Some("compilers") => install::compilers::run(rest),
        Some("explore") => testing::explore::run(rest),
        Some("differ") => testing::differ::run(rest),
        Some("uncalled") => testing::uncalled::run(rest),
        Some("profiles") => testing::profiles::run(rest),
        Some("asan") => testing::asan::run(rest),
        Some("miri") => testing::miri::run(rest),
        Some("wine") => testing::wine::run(rest),
        Some("line-coverage") => testing::line_coverage::run(rest),
        Some("mutants") => testing::mutants::run(rest),
        Some("seeds") => testing::seeds::run(rest),
        Some("cost") => measurements::cost::run(rest),
        Some("growth") => measurements::growth::run(rest),
        Some("build-cost") => measurements::build_cost::run(rest),
        Some("msrv") => install::toolchain::msrv(rest),
        Some("layers") => source::layers::run(rest),
        Some("inline") => source::inline::run(rest),
        Some("deny") => packages::deny::run(rest),
        Some("publish") => packages::publish::run(rest),
        Some("sbom") => packages::sbom::run(rest),
        Some("semver") => packages::semver::run(rest),
        Some("adopters") => packages::adopters::run(rest),
        Some("ptx") => source::ptx::run(rest),
        Some("wheel") => packages::wheels::wheel(rest),
        Some("wheels") => packages::wheels::wheels(rest),
        Some("python") => packages::python::test(rest),
        Some("clients") => clients::run(rest),
        Some("pack") => packages::pack::run(rest),
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

/// Returns the root folder of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}
