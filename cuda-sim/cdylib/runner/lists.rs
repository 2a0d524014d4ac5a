//! What the command prints about the driver.

use cuda_sim::Profile;
use cuda_sys::{CudaVersion, Function};
use std::fmt::Write as _;
use std::io::{ErrorKind, Write as _};
use std::process::ExitCode;

/// The functions that the library implements itself.
const OF_LIBRARY: [&str; 4] =
    ["cuGetErrorName", "cuGetErrorString", "cuGetProcAddress", "cuGetProcAddress_v2"];

/// Prints a text. A closed pipe is no error.
pub(crate) fn print(text: &str) -> Result<ExitCode, String> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(format!("printing: {error}")),
        _ => Ok(ExitCode::SUCCESS),
    }
}

pub(crate) fn profiles() -> String {
    let mut text = String::new();
    for name in Profile::names() {
        if let Ok(profile) = name.parse::<Profile>() {
            let _ = writeln!(text, "{name}\t{profile}");
        }
    }
    let versions: Vec<String> = Profile::versions().map(|its| its.to_string()).collect();
    let _ = writeln!(text, "versions of drivers: {}", versions.join(", "));
    text
}

pub(crate) fn functions(driver: CudaVersion, not_simulated: bool) -> String {
    let mut text = String::new();
    let all = Function::all().filter(|function| function.since() <= driver);
    let simulates = |function: Function| {
        cuda_sim::simulates(function) || OF_LIBRARY.contains(&function.symbol())
    };
    for function in all.filter(|function| simulates(*function) != not_simulated) {
        let _ = writeln!(text, "{}\t{}", function.symbol(), function.since());
    }
    text
}
