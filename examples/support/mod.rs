//! What examples share: on which driver they run, the GPU's or the software driver's; and numbers and
//! pictures.

#![allow(dead_code, reason = "each example uses a part of it")]

#[path = "../../tests/common/sim.rs"]
mod kernels;
pub(crate) mod stats;
pub(crate) mod svg;

use cuda_safe::{Device, Error};
use cuda_sim::Profile;

/// Takes `--sim PROFILE` out of the arguments.
pub(crate) fn take_sim(arguments: &mut Vec<String>) -> Result<Option<String>, String> {
    let Some(at) = arguments.iter().position(|argument| argument == "--sim") else {
        return Ok(None);
    };
    if at + 1 == arguments.len() {
        return Err("--sim wants a profile, like h200 or h200@12.4".to_owned());
    }
    Ok(arguments.drain(at..=at + 1).nth(1))
}

/// Says which driver it is, in the first line; beside the standard output where that is to be JSON and
/// nothing else.
pub(crate) fn say(line: &str, json: bool) {
    if json {
        eprintln!("{line}");
    } else {
        println!("{line}");
    }
}

/// Chooses the driver: the software one where it is asked for or there is no other. A line that
/// says so, if that is the one.
pub(crate) fn choose(sim: Option<&str>) -> Result<Option<String>, String> {
    let (name, why) = match sim {
        Some(name) => (name, "as --sim asks"),
        None => match Device::count() {
            Err(Error::Load(_)) => ("h200", "no NVIDIA driver here"),
            Err(Error::NoDevice) => {
                return Err(format!("{}; --sim h200 runs without one", Error::NoDevice));
            }
            Err(other) => return Err(other.to_string()),
            Ok(_) => return Ok(None),
        },
    };
    let profile: Profile = name.parse().map_err(|why| format!("{why}"))?;
    let line = format!("{why}: running on the software driver, profile {profile}");
    cuda_sim::install(profile).map_err(|why| why.to_string())?;
    kernels::register_kernels();
    Ok(Some(line))
}
