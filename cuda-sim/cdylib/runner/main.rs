//! `cuda-sim`: runs programs on the software CUDA driver.

#[cfg(target_os = "linux")]
mod accounts;
#[cfg(target_os = "linux")]
mod cache;
#[cfg(target_os = "linux")]
mod library;
#[cfg(target_os = "linux")]
mod lists;
#[cfg(target_os = "linux")]
mod options;
#[cfg(target_os = "linux")]
mod run;
#[cfg(target_os = "linux")]
mod signals;

use std::process::ExitCode;

const HELP: &str = "\
Runs programs on the software CUDA driver, without a GPU.

cuda-sim run [OPTION …] [--] PROGRAM [ARGUMENT …]
    Runs a program that finds the software driver in place of libcuda.so.1, and prints on stderr what its
    processes did with the driver. The exit status is that of the program, 128 and the number of the signal
    that ended it, 127 if it was not found, 126 if it cannot be executed, 125 if cuda-sim itself failed, or
    120 if the program succeeded, but not in the judgment of --strict or --leaks.
      --profile NAME     the GPU, for example h200 or a100@12.4 (default: CUDA_SIM, or h200)
      --driver VERSION   the CUDA version of the driver, for example 12.4
      --devices NUMBER   the number of devices
      --seed NUMBER      the seed that chooses among streams that have work ready
      --races            report races between streams
      --check LIST       check kernels, for example synccheck; several names are separated by commas
      --lenient          continue after an illegal access of the device
      --coverage FILE    writes the lines of PTX and of source that kernels execute to a file, for lcov
      --faults LIST      the calls that fail, for example cuMemAlloc:3=CUDA_ERROR_OUT_OF_MEMORY
      --ignore-kernels   kernels that are not registered do nothing, instead of running
      --account FILE     writes the account to a file instead of stderr
      --no-account       writes no account
      --strict           exit status 120 for misuses, races, faults that made no call fail, and if no process
                         called the driver or one has no account
      --leaks            the same as --strict, and for objects that are alive at exit or ended with their context;
                         lists their memory by the places that have allocated it, as --check memcheck does
cuda-sim library [FOLDER]
    Writes libcuda.so.1 and libcuda.so to a folder, for use with LD_LIBRARY_PATH. Without FOLDER, it writes them
    to the user's cache, as cuda-sim run does, and prints the path of the folder.
cuda-sim header
    Prints the C header of the functions that register kernels.
cuda-sim profiles
    Lists the GPUs and the versions of drivers.
cuda-sim functions [--not-simulated] [--driver VERSION]
    Lists the simulated functions of a driver, with the CUDA version that introduced each, or the others.
";

/// The exit status if the command itself fails, as that of `env` and `timeout`.
const FAILED: u8 = 125;

/// The exit status if the program succeeded, and its accounts contain what `--strict` or `--leaks` rejects.
const REJECTED: u8 = 120;

/// Why the command failed, and its exit status.
#[cfg(target_os = "linux")]
struct Failure {
    status: u8,
    why: String,
}

#[cfg(target_os = "linux")]
impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self { status: FAILED, why }
    }
}

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    execute().unwrap_or_else(|Failure { status, why }| {
        eprintln!("cuda-sim: {why}");
        ExitCode::from(status)
    })
}

#[cfg(target_os = "linux")]
fn execute() -> Result<ExitCode, Failure> {
    use options::Command;
    let done = match options::parse(lexopt::Parser::from_env())? {
        Command::Run(options) => return run::run(&options),
        Command::Library(None) => {
            cache::folder().and_then(|folder| lists::print(&format!("{}\n", folder.display())))
        }
        Command::Library(Some(folder)) => {
            let written = library::bytes().and_then(|library| library::write(&folder, &library));
            written.map(|()| ExitCode::SUCCESS)
        }
        Command::Header => lists::print(include_str!("../include/cuda_sim.h")),
        Command::Profiles => lists::print(&lists::profiles()),
        Command::Functions { driver, not_simulated } => {
            lists::print(&lists::functions(driver, not_simulated))
        }
        Command::Help => lists::print(HELP),
        Command::Version => lists::print(concat!("cuda-sim ", env!("CARGO_PKG_VERSION"), "\n")),
    };
    Ok(done?)
}

#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    eprintln!("cuda-sim: only Linux is supported");
    ExitCode::from(FAILED)
}
