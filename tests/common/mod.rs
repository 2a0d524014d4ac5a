//! Helpers that all test binaries share: skipping, and access to the GPU or software driver.

#![allow(dead_code, reason = "each test binary uses only a part of it")]

pub(crate) mod c;
pub(crate) mod child;
pub(crate) mod fork;
mod kernels;
pub(crate) mod lockfree;
#[cfg(miri)]
pub(crate) mod miri;
pub(crate) mod random;

use cuda_safe::device::attribute::{Attribute, VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED};
use cuda_safe::error::Rejected;
use cuda_safe::{Context, ContextFlags, CudaVersion, Device, Error, Event, Invalid, Stream};
use std::borrow::Cow;
use std::io::Write;
use std::path::PathBuf;
use std::sync::OnceLock;

/// Reports that the calling test is skipped, and why. With `CUDA_TESTS=require` a skip is a
/// failure.
///
/// The line bypasses the output capture of the test harness, so that a passing run lists its skips.
#[track_caller]
pub(crate) fn skip(reason: &str) {
    #[cfg(not(miri))]
    let thread = std::thread::current();
    #[cfg(not(miri))]
    let test = thread.name().unwrap_or("a test");
    #[cfg(miri)]
    let test = miri::skipped();
    if std::env::var_os("CUDA_TESTS").is_some_and(|value| value == "require") {
        panic!("CUDA_TESTS=require, and {test} cannot run: {reason}");
    }
    let _ = writeln!(std::io::stderr(), "skipped {test}: {reason}");
}

/// Returns the folder for files that tests create: the one that `CUDA_TESTS_SCRATCH` names, or
/// Cargo's. A packed test binary may run where Cargo's folder does not exist and cannot be created.
pub(crate) fn scratch() -> PathBuf {
    let named = std::env::var_os("CUDA_TESTS_SCRATCH");
    let folder = named.map_or_else(|| env!("CARGO_TARGET_TMPDIR").into(), PathBuf::from);
    // A test binary that runs on another machine finds none. A test that needs the folder reports that it is missing.
    let _ = std::fs::create_dir_all(&folder);
    folder
}

/// Returns PTX that has a kernel, and under Miri no other one.
pub(crate) fn alone<'a>(ptx: &'a str, name: &str) -> Cow<'a, str> {
    match cfg!(miri) {
        true => kernels::keep(ptx, |its| its == name).into(),
        false => ptx.into(),
    }
}

/// Returns the first device of the current driver: a real GPU if there is one, else a device of the
/// software driver, which plays the profile that `CUDA_SIM` names (by default an H200). With
/// `CUDA_TESTS=require` only a real GPU is accepted.
#[track_caller]
pub(crate) fn gpu() -> Option<Device> {
    match driver() {
        Driver::Gpu | Driver::Software => Some(Device::get(0).expect("a driver")),
        Driver::None(why) => {
            skip(why);
            None
        }
    }
}

/// Returns the first device of a real driver, or reports a skip.
#[track_caller]
pub(crate) fn real_gpu() -> Option<Device> {
    let device = gpu()?;
    if is_software() {
        skip("needs a GPU");
        return None;
    }
    Some(device)
}

/// Returns whether the current driver is the software driver.
pub(crate) fn is_software() -> bool {
    matches!(driver(), Driver::Software)
}

/// The driver that the tests of this process use.
enum Driver {
    Gpu,
    Software,
    None(String),
}

fn driver() -> &'static Driver {
    static DRIVER: OnceLock<Driver> = OnceLock::new();
    DRIVER.get_or_init(|| {
        let asked_for = std::env::var("CUDA_SIM");
        // A driver stays in use for the whole process once it was called, so a real driver is not
        // called in this case.
        let why = match &asked_for {
            Ok(_) => "CUDA_SIM selects it".to_owned(),
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
        let _ = writeln!(std::io::stderr(), "tests run on the software driver, {profile} ({why})");
        let profile = profile.with_environment();
        let profile = profile.unwrap_or_else(|why| panic!("{why}"));
        match cuda_sim::install(profile) {
            Ok(()) => Driver::Software,
            Err(why) => Driver::None(why.to_string()),
        }
    })
}

/// Returns `Some(())` if the driver has at least this CUDA version. Otherwise reports a skip.
#[track_caller]
pub(crate) fn since(major: u16, minor: u16) -> Option<()> {
    let (needed, version) = (CudaVersion::new(major, minor), cuda_safe::version());
    match version.expect("a driver") {
        version if version < needed => {
            skip(&format!("needs CUDA {needed}; this driver offers {version}"));
            None
        }
        _ => Some(()),
    }
}

/// Returns `Some(())` if a device has an attribute. Otherwise reports a skip with the reason.
#[track_caller]
pub(crate) fn has(device: &Device, attribute: Attribute<bool>, reason: &str) -> Option<()> {
    if device.attribute(attribute).expect("known") {
        return Some(());
    }
    skip(reason);
    None
}

/// Returns `Some(())` if a device has virtual memory. Otherwise reports a skip.
#[track_caller]
pub(crate) fn has_virtual_memory(device: &Device) -> Option<()> {
    has(device, VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, "the device has no virtual memory")
}

/// Returns whether the driver has at least this CUDA version.
pub(crate) fn offers(major: u16, minor: u16) -> bool {
    cuda_safe::version().expect("a driver") >= CudaVersion::new(major, minor)
}

/// Returns the primary context of the first device, or reports a skip.
#[track_caller]
pub(crate) fn context() -> Option<Context> {
    let context = Context::primary(&gpu()?);
    Some(context.expect("the primary context of a device"))
}

/// Returns the primary context of the first device and another one, or reports a skip.
#[track_caller]
pub(crate) fn two_contexts() -> Option<(Context, Context)> {
    let primary = context()?;
    let other = Context::new(&primary.device(), ContextFlags::SCHED_YIELD).expect("a context");
    Some((primary, other))
}

/// Returns the primary context of the first device if the driver has at least this CUDA version, or
/// reports a skip.
#[track_caller]
pub(crate) fn context_since(major: u16, minor: u16) -> Option<Context> {
    let context = context()?;
    since(major, minor)?;
    Some(context)
}

/// Returns the primary context of the first device and a new stream, or reports a skip.
#[track_caller]
pub(crate) fn context_and_stream() -> Option<(Context, Stream)> {
    let (context, [stream]) = context_and_streams()?;
    Some((context, stream))
}

/// Returns the primary context of the first device and new streams, or reports a skip.
#[track_caller]
pub(crate) fn context_and_streams<const N: usize>() -> Option<(Context, [Stream; N])> {
    let context = context()?;
    let streams = streams(&context);
    Some((context, streams))
}

/// Returns new streams of a context.
#[track_caller]
pub(crate) fn streams<const N: usize>(context: &Context) -> [Stream; N] {
    std::array::from_fn(|_| context.stream().expect("a stream"))
}

/// Returns new events of a context.
#[track_caller]
pub(crate) fn events<const N: usize>(context: &Context) -> [Event; N] {
    std::array::from_fn(|_| context.event().expect("an event"))
}

/// Returns why this crate refused a call. Panics if the call succeeded, or if the driver refused it.
#[track_caller]
pub(crate) fn invalid<T>(done: Result<T, impl Into<Error>>) -> Invalid {
    match done.map(drop).map_err(Into::into) {
        Err(Error::Invalid(invalid)) => *invalid,
        done => panic!("{done:?}"),
    }
}

/// Returns why this crate refused a call, and the value that it returned with the error.
#[track_caller]
pub(crate) fn rejected<T, U>(done: Result<T, Rejected<U>>) -> (Invalid, U) {
    let Err(Rejected { error, value }) = done else {
        panic!("it succeeded");
    };
    (invalid(Err::<(), _>(error)), value)
}

/// Unwraps an option, as in `let context = or_skip!(common::context());`, or returns from the test if
/// it is skipped.
#[macro_export]
macro_rules! or_skip {
    ($value:expr) => {
        match $value {
            Some(value) => value,
            None => return,
        }
    };
}
