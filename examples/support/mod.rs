//! Code shared by the examples: their `main`, the selection of the GPU's driver or the software driver, statistics
//! and figures.

#![allow(dead_code, reason = "each example uses a part of it")]

pub(crate) mod stats;
pub(crate) mod svg;

use cuda_safe::{Device, Error};
use cuda_sim::Profile;
use std::fmt::Display;
use std::process::{ExitCode, Termination};

/// Runs an example, and prints its error after its name. If the reader of its output has closed the pipe, as `head`
/// does, the process ends without a message.
pub(crate) fn main<T: Termination, E: Display>(run: impl FnOnce() -> Result<T, E>) -> ExitCode {
    #[cfg(unix)]
    end_at_closed_pipe();
    match run() {
        Ok(done) => done.report(),
        Err(error) => {
            eprintln!("{}: {error}", env!("CARGO_CRATE_NAME"));
            ExitCode::FAILURE
        }
    }
}

/// Restores the default action of SIGPIPE, which ends the process. Rust ignores the signal, so `println!` would panic.
#[cfg(unix)]
fn end_at_closed_pipe() {
    use std::ffi::c_int;

    const SIGPIPE: c_int = 13;
    const SIG_DFL: usize = 0;

    unsafe extern "C" {
        fn signal(number: c_int, handler: usize) -> usize;
    }
    // SAFETY: the declaration is that of the C library, where a handler is a pointer or one of the constants. The
    // default action runs no code of this process.
    unsafe { signal(SIGPIPE, SIG_DFL) };
}

/// Removes `--sim PROFILE` from the arguments.
pub(crate) fn take_sim(arguments: &mut Vec<String>) -> Result<Option<String>, String> {
    let Some(at) = arguments.iter().position(|argument| argument == "--sim") else {
        return Ok(None);
    };
    if at + 1 == arguments.len() {
        return Err("--sim needs a profile, for example h200 or h200@12.4".to_owned());
    }
    Ok(arguments.drain(at..=at + 1).nth(1))
}

/// Prints which driver is used, as the first line. With `json` it is printed to stderr, so that stdout
/// contains only JSON.
pub(crate) fn say(line: &str, json: bool) {
    if json {
        eprintln!("{line}");
    } else {
        println!("{line}");
    }
}

/// Selects the driver: the software driver if it is requested or there is no other. Returns a line that
/// says so in that case.
pub(crate) fn choose(sim: Option<&str>) -> Result<Option<String>, String> {
    let (name, why) = match sim {
        Some(name) => (name, "selected by --sim"),
        None => match Device::count() {
            Err(Error::Load(_)) => ("h200", "no NVIDIA driver here"),
            Err(Error::NoDevice) => {
                return Err(format!("{}; --sim h200 runs without a GPU", Error::NoDevice));
            }
            Err(other) => return Err(other.to_string()),
            Ok(_) => return Ok(None),
        },
    };
    let profile: Profile = name.parse().map_err(|why| format!("{why}"))?;
    let line = format!("{why}: running on the software driver, profile {profile}");
    cuda_sim::install(profile).map_err(|why| why.to_string())?;
    Ok(Some(line))
}
