//! The environment variables of the library. `cuda_sim::environment` documents them.

use cuda_sim::Profile;
use cuda_sim::fault::Fault;
use std::ffi::OsString;
use std::path::PathBuf;

/// The profile.
const PROFILE: &str = "CUDA_SIM";
/// What kernels that are not registered do.
const KERNELS: &str = "CUDA_SIM_KERNELS";
/// Faults of the whole process.
const FAULTS: &str = "CUDA_SIM_FAULTS";
/// Where the account of the process is written when it exits.
const ACCOUNT: &str = "CUDA_SIM_ACCOUNT";

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Returns the profile that the variables select. A wrong value is reported, and the driver then has no
/// devices, so that no test passes with another profile than the one that it names.
pub(crate) fn profile() -> Profile {
    read_profile().unwrap_or_else(|why| {
        eprintln!("cuda-sim: {why}; the driver reports no devices");
        Profile::h200().with_devices(0)
    })
}

fn read_profile() -> Result<Profile, String> {
    let profile = match variable(PROFILE) {
        None => Profile::h200(),
        Some(name) => {
            let profile = name.to_string_lossy().parse();
            profile.map_err(|why| format!("{PROFILE}: {why}"))?
        }
    };
    faults()?;
    match variable(KERNELS) {
        None => Ok(profile),
        Some(value) if value == "ignore" => Ok(profile.ignoring_unregistered_kernels()),
        Some(value) => Err(format!("{KERNELS}: {value:?} is not \"ignore\"")),
    }
}

/// Returns the faults that the variable lists, separated by commas.
fn faults() -> Result<Vec<Fault>, String> {
    let Some(list) = variable(FAULTS) else {
        return Ok(Vec::new());
    };
    let list = list.to_string_lossy();
    let faults = list.split(',').map(|fault| fault.trim().parse());
    let faults: Result<_, _> = faults.collect();
    faults.map_err(|why| format!("{FAULTS}: {why}"))
}

/// Returns the faults of the process. [`profile`] has reported wrong ones.
pub(crate) fn process_faults() -> Vec<Fault> {
    faults().unwrap_or_default()
}

/// The place of the account.
pub(crate) enum Place {
    /// The standard error output.
    Stderr,
    /// A file of each process in this folder.
    Folder(PathBuf),
}

/// Returns the place of the account, if one is requested.
pub(crate) fn account() -> Option<Place> {
    variable(ACCOUNT).map(|place| match place == "-" {
        true => Place::Stderr,
        false => Place::Folder(place.into()),
    })
}
