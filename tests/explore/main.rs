//! Explores schedules of threads that share streams, captures and releases: `cargo xtask explore`.
//!
//! Each scenario runs in a child process, under `cuda_sim::explore`. A violation leaves its process
//! unusable, so a process explores only one scenario. `cargo xtask explore random` runs random
//! programs instead.

#[path = "../common/mod.rs"]
mod common;
#[path = "../programs/mod.rs"]
mod programs;
mod random;
mod run;
mod scenarios;

use std::process::ExitCode;

fn main() -> ExitCode {
    match run::Options::parse() {
        Ok(options) => run::run(&options),
        Err(error) => {
            eprintln!("explore: {error}");
            ExitCode::from(2)
        }
    }
}
