//! Schedules of threads that share streams, captures and releases: `cargo xtask explore`.
//!
//! Each scenario runs in a process of its own, under `cuda_sim::explore`. A process explores one
//! scenario, so that a violation, which leaves its process unusable, does not affect the others.
//! `cargo xtask explore random` runs random programs instead.

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
