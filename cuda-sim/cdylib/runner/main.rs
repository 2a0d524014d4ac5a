//! `cuda-sim`: runs programs on the software CUDA driver.

#[cfg(target_os = "linux")]
mod accounts;
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
    processes did with the driver. The exit status is that of the program, or 128 and the number of the
    signal that ended it.
      --profile NAME     the GPU, for example h200 or a100@12.4 (default: CUDA_SIM, or h200)
      --driver VERSION   the CUDA version of the driver, for example 12.4
      --devices NUMBER   the number of devices
      --seed NUMBER      the seed that chooses among streams that have work ready
      --races            report races between streams
      --lenient          continue after an illegal access of the device
      --faults LIST      the calls that fail, for example cuMemAlloc_v2:3=CUDA_ERROR_OUT_OF_MEMORY
      --ignore-kernels   kernels that are not registered do nothing, instead of failing
      --account FILE     writes the account to a file instead of stderr
      --no-account       writes no account
cuda-sim library FOLDER
    Writes libcuda.so.1 and libcuda.so to a folder, for use with LD_LIBRARY_PATH.
cuda-sim header
    Prints the C header of the functions that register kernels.
cuda-sim profiles
    Lists the GPUs and the versions of drivers.
cuda-sim functions [--not-simulated] [--driver VERSION]
    Lists the simulated functions of a driver, with the CUDA version that introduced each, or the others.
";

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    use options::Command;
    let done = options::parse(lexopt::Parser::from_env()).and_then(|command| match command {
        Command::Run(options) => run::run(&options),
        Command::Library(folder) => library::write(&folder).map(|()| ExitCode::SUCCESS),
        Command::Header => lists::print(include_str!("../include/cuda_sim.h")),
        Command::Profiles => lists::print(&lists::profiles()),
        Command::Functions {
            driver,
            not_simulated,
        } => lists::print(&lists::functions(driver, not_simulated)),
        Command::Help => lists::print(HELP),
        Command::Version => lists::print(concat!("cuda-sim ", env!("CARGO_PKG_VERSION"), "\n")),
    });
    done.unwrap_or_else(|why| {
        eprintln!("cuda-sim: {why}");
        // As a shell, if a program cannot be started.
        ExitCode::from(127)
    })
}

#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    eprintln!("cuda-sim: only Linux is supported");
    ExitCode::FAILURE
}
