//! What the test binaries share: skipping, and the GPU at hand.

#![allow(dead_code, reason = "each test binary uses a part of it")]

pub(crate) mod c;
pub(crate) mod child;
pub(crate) mod fork;
pub(crate) mod random;
mod sim;

pub(crate) use sim::register_kernels;

use cuda_safe::{Context, CudaVersion, Device};
use std::io::Write;
use std::path::PathBuf;
use std::sync::OnceLock;

/// Says that the calling test is skipped, and why; with `CUDA_TESTS=require` a skip is a failure.
///
/// The line goes past the test harness's capture, so that a passing run lists what it skipped.
#[track_caller]
pub(crate) fn skip(reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    if std::env::var_os("CUDA_TESTS").is_some_and(|value| value == "require") {
        panic!("CUDA_TESTS=require, and {test} cannot run: {reason}");
    }
    let _ = writeln!(std::io::stderr(), "skipped {test}: {reason}");
}

/// Returns the folder for files that tests create: the one that `CUDA_TESTS_SCRATCH` names, or Cargo's.
/// A packed test binary may run where Cargo's folder does not exist and cannot be created.
pub(crate) fn scratch() -> PathBuf {
    let named = std::env::var_os("CUDA_TESTS_SCRATCH");
    named.map_or_else(|| env!("CARGO_TARGET_TMPDIR").into(), PathBuf::from)
}

/// The first device of the driver at hand: a GPU's, or where there is none the software driver's,
/// which plays the profile that `CUDA_SIM` names (an H200 if it names none). With
/// `CUDA_TESTS=require` only a GPU will do.
#[track_caller]
pub(crate) fn gpu() -> Option<Device> {
    match driver() {
        Driver::Gpu | Driver::Software => Some(Device::get(0).expect("there is a driver")),
        Driver::None(why) => {
            skip(why);
            None
        }
    }
}

/// The first device of a real driver; a skip where there is none.
#[track_caller]
pub(crate) fn real_gpu() -> Option<Device> {
    let device = gpu()?;
    if is_software() {
        skip("needs a GPU");
        return None;
    }
    Some(device)
}

/// Whether the driver at hand is the software driver.
pub(crate) fn is_software() -> bool {
    matches!(driver(), Driver::Software)
}

/// The driver that tests of this process run on.
enum Driver {
    Gpu,
    Software,
    None(String),
}

fn driver() -> &'static Driver {
    static DRIVER: OnceLock<Driver> = OnceLock::new();
    DRIVER.get_or_init(|| {
        let asked_for = std::env::var("CUDA_SIM");
        // A driver that was called once stays for the process, so a GPU's is left alone then.
        let why = match &asked_for {
            Ok(_) => "as CUDA_SIM says".to_owned(),
            Err(_) => match Device::get(0) {
                Ok(_) => return Driver::Gpu,
                Err(why) => why.to_string(),
            },
        };
        if std::env::var_os("CUDA_TESTS").is_some_and(|value| value == "require") {
            return Driver::None(why);
        }
        let profile = asked_for.as_deref().unwrap_or("h200").parse();
        let profile: cuda_sim::Profile = profile.expect("CUDA_SIM names a profile");
        let _ = writeln!(
            std::io::stderr(),
            "tests run on the software driver, {profile} ({why})"
        );
        match cuda_sim::install(profile) {
            Ok(()) => {
                register_kernels();
                Driver::Software
            }
            Err(why) => Driver::None(why.to_string()),
        }
    })
}

/// Nothing, if the driver is of that CUDA version or later; or a skip.
#[track_caller]
pub(crate) fn since(major: u16, minor: u16) -> Option<()> {
    let (needed, version) = (CudaVersion::new(major, minor), cuda_safe::version());
    match version.expect("there is a driver") {
        version if version < needed => {
            skip(&format!(
                "needs CUDA {needed}; this driver offers {version}"
            ));
            None
        }
        _ => Some(()),
    }
}

/// Whether the driver is of that CUDA version or later.
pub(crate) fn offers(major: u16, minor: u16) -> bool {
    cuda_safe::version().expect("there is a driver") >= CudaVersion::new(major, minor)
}

/// The primary context of the first device, or a skip.
#[track_caller]
pub(crate) fn context() -> Option<Context> {
    let context = Context::primary(&gpu()?);
    Some(context.expect("the primary context of a device"))
}

/// `let context = need!(common::context());`: the value, or the test ends here, skipped.
#[macro_export]
macro_rules! need {
    ($value:expr) => {
        match $value {
            Some(value) => value,
            None => return,
        }
    };
}
