//! A text for bug reports: versions, system, driver, devices and environment.
//!
//! The text contains no serial numbers and no secrets. Of the environment, it has only the variables in
//! [`VARIABLES`], and of paths only the last two names.

use cuda_safe::device::attribute;
use cuda_safe::green::SmResource;
use cuda_safe::sys::{self, CudaVersion};
use cuda_safe::{Device, Result};
use std::fmt::Write as _;
use std::fs;

/// The environment variables that change what the driver, these crates or their tests do.
pub(crate) const VARIABLES: &[&str] = &[
    "CUDA_CACHE_DISABLE",
    "CUDA_CACHE_MAXSIZE",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_DEVICE_ORDER",
    "CUDA_DISABLE_PTX_JIT",
    "CUDA_ENABLE_COREDUMP_ON_EXCEPTION",
    "CUDA_FORCE_PTX_JIT",
    "CUDA_INJECTION64_PATH",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_LOG_FILE",
    "CUDA_MANAGED_FORCE_DEVICE_ALLOC",
    "CUDA_MODULE_LOADING",
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    "CUDA_MPS_PIPE_DIRECTORY",
    "CUDA_NVRTC_LIBRARY",
    "CUDA_SIM",
    "CUDA_SYS_LIBRARY",
    "CUDA_TESTS",
    "CUDA_VISIBLE_DEVICES",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "NVIDIA_DRIVER_CAPABILITIES",
    "NVIDIA_VISIBLE_DEVICES",
];

/// The attributes on which the behavior of the crates depends.
pub(crate) const ATTRIBUTES: &[&str] = &[
    "COMPUTE_MODE",
    "CONCURRENT_MANAGED_ACCESS",
    "COOPERATIVE_LAUNCH",
    "ECC_ENABLED",
    "HOST_REGISTER_SUPPORTED",
    "INTEGRATED",
    "MANAGED_MEMORY",
    "MEMORY_POOLS_SUPPORTED",
    "MPS_ENABLED",
    "MULTICAST_SUPPORTED",
    "PAGEABLE_MEMORY_ACCESS",
    "TCC_DRIVER",
    "UNIFIED_ADDRESSING",
    "VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED",
];

/// Returns the report. `build` names the compiler and the target, and `simulated` describes the software driver if it is used. `variable` returns the
/// value of an environment variable.
pub(crate) fn write(
    build: &str,
    simulated: Option<&str>,
    variable: impl Fn(&str) -> Option<String>,
) -> String {
    let mut out = String::from("```text\n");
    let mut line = |text: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{text}");
    };
    line(format!(
        "crates {}, bindings for CUDA {}",
        env!("CARGO_PKG_VERSION"),
        CudaVersion::BINDINGS
    ));
    line(format!("built with {build}{}", if cfg!(debug_assertions) { ", debug" } else { "" }));
    line(format!("system {}", system()));
    match simulated {
        Some(simulated) => line(simulated.to_owned()),
        None => driver_files().into_iter().for_each(&mut line),
    }
    match cuda_safe::version() {
        Ok(version) => line(format!("driver for CUDA {version}")),
        Err(error) => line(shorten(&format!("no driver: {error}"))),
    }
    match Device::all() {
        Ok(devices) => {
            for device in devices {
                match describe(&device) {
                    Ok(text) => line(text),
                    Err(error) => line(format!("device {}: {error}", device.ordinal())),
                }
            }
        }
        Err(error) => line(shorten(&format!("no devices: {error}"))),
    }
    let set = VARIABLES.iter().filter_map(|name| Some((name, variable(name)?)));
    for (name, value) in set {
        line(format!("{name}={}", shorten(&value)));
    }
    out.push_str("```\n");
    out
}

/// Returns the operating system and its kernel.
fn system() -> String {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="))
        .unwrap_or(std::env::consts::OS);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let name = name.trim_matches('"');
    format!("{name} {} {}", kernel.trim(), std::env::consts::ARCH)
}

/// Returns the library that was loaded, and the version of the kernel module on Linux.
fn driver_files() -> Vec<String> {
    let mut lines = Vec::new();
    if sys::load().is_ok() {
        if let Some(path) = sys::library_path() {
            lines.push(format!("library {}", shorten(&path.to_string_lossy())));
        }
    }
    let module = fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    if let Some(version) = module.lines().next() {
        lines.push(version.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    lines
}

fn describe(device: &Device) -> Result<String> {
    let (major, minor) = device.compute_capability()?;
    let mut text = format!(
        "device {}: {}, compute capability {major}.{minor}, {} SMs, {} MiB",
        device.ordinal(),
        device.name()?,
        device.attribute(attribute::MULTIPROCESSOR_COUNT)?,
        device.total_memory()? >> 20
    );
    for (name, value) in attribute::all(device)? {
        if ATTRIBUTES.contains(&name) {
            let _ = write!(text, "\n  {name} {value}");
        }
    }
    match SmResource::of_device(device) {
        Ok(sms) => {
            let _ = write!(text, "\n  green contexts: {:?}", sms.properties());
        }
        Err(error) => {
            let _ = write!(text, "\n  green contexts: {error}");
        }
    }
    Ok(text)
}

/// Shortens the paths and the identifiers of devices in a list or an error message.
fn shorten(value: &str) -> String {
    let ends = [':', ',', ';', ' '];
    value
        .split_inclusive(ends)
        .map(|part| {
            let item = part.trim_end_matches(ends);
            shorten_one(item) + &part[item.len()..]
        })
        .collect()
}

fn shorten_one(item: &str) -> String {
    let is_path = item.starts_with(['/', '\\']);
    let mut names: Vec<&str> = item.split(['/', '\\']).filter(|name| !name.is_empty()).collect();
    if is_path && names.len() > 1 {
        // The second name is the user's.
        let is_home = ["home", "Users"].contains(&names[0]);
        if is_home {
            names.drain(..2);
        }
        let first = if is_home { "~" } else { "" };
        let omitted = names.len().saturating_sub(2);
        let dots = if omitted > 0 { "/…" } else { "" };
        let last = names.split_off(omitted);
        let last: String = last.iter().map(|name| format!("/{name}")).collect();
        return format!("{first}{dots}{last}");
    }
    // The identifier of a GPU or a MIG instance is unique in the world.
    let is_identifier = item.starts_with("GPU-") || item.starts_with("MIG-");
    match item.char_indices().nth(12) {
        Some((end, _)) if is_identifier => format!("{}…", &item[..end]),
        _ => item.to_owned(),
    }
}
