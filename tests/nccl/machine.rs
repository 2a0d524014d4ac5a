//! The GPUs of the tests.

use crate::common::skip;
use cuda_nccl::{Communicator, Config};
use cuda_safe::{Context, Device, Stream};
use cuda_sim::Profile;
use std::sync::OnceLock;

/// The devices and the library that the tests of this process use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Machine {
    Real,
    Software,
}

/// Returns the machine, or the reason for its absence.
fn machine() -> &'static Result<Machine, String> {
    static MACHINE: OnceLock<Result<Machine, String>> = OnceLock::new();
    MACHINE.get_or_init(|| {
        let asked_for = std::env::var("CUDA_SIM");
        let real = match &asked_for {
            Ok(_) => Err("CUDA_SIM selects the software driver".to_owned()),
            Err(_) => Device::get(0).map_err(|why| why.to_string()),
        };
        match real {
            Ok(_) => return cuda_nccl::version().map(|_| Machine::Real).map_err(|e| e.to_string()),
            Err(why) if std::env::var_os("CUDA_TESTS").is_some_and(|its| its == "require") => {
                return Err(why);
            }
            Err(_) => {}
        }
        let profile: Profile = match &asked_for {
            Ok(name) => name.parse().expect("CUDA_SIM names a profile"),
            Err(_) => Profile::h200().with_devices(4),
        };
        let profile = profile.with_environment().map_err(|why| why.to_string())?;
        cuda_sim::install(profile).map_err(|why| why.to_string())?;
        // SAFETY: the functions have the signatures of NCCL, and are part of this program.
        unsafe { cuda_nccl::sys::NCCL.install(cuda_sim::nccl::symbol) }
            .map_err(|why| why.to_string())?;
        Ok(Machine::Software)
    })
}

pub(crate) fn is_software() -> bool {
    machine().as_ref() == Ok(&Machine::Software)
}

/// Reports a skip unless the software NCCL is used.
#[track_caller]
pub(crate) fn software() -> Option<()> {
    if is_software() {
        return Some(());
    }
    skip("needs the software NCCL");
    None
}

/// Returns streams on so many devices, or reports a skip.
#[track_caller]
pub(crate) fn streams(count: usize) -> Option<Vec<Stream>> {
    if let Err(why) = machine() {
        skip(why);
        return None;
    }
    let devices = Device::all().expect("a driver");
    let Some(devices) = devices.get(..count) else {
        skip(&format!("needs {count} GPUs; there are {}", devices.len()));
        return None;
    };
    let stream = |device| Context::primary(device).and_then(|context| context.stream());
    Some(devices.iter().map(|device| stream(device).expect("a stream")).collect())
}

/// Returns the communicators of so many devices, on one thread, or reports a skip.
#[track_caller]
pub(crate) fn communicators(count: usize) -> Option<Vec<Communicator>> {
    let streams = streams(count)?;
    Some(Communicator::init_all(&streams, &Config::default()).expect("communicators"))
}

/// Returns as many communicators as there are devices, at most four and at least one, or reports a skip.
#[track_caller]
pub(crate) fn all() -> Option<Vec<Communicator>> {
    streams(1)?;
    communicators(Device::all().expect("a driver").len().min(4))
}

/// Waits until the work of all communicators is complete.
pub(crate) fn synchronize(communicators: &[Communicator]) {
    for communicator in communicators {
        communicator.stream().synchronize().expect("complete work");
    }
}

/// Checks that the software NCCL has found no error of the crate. The tests that provoke errors run in processes of their
/// own.
#[track_caller]
pub(crate) fn no_misuses() {
    if is_software() {
        assert_eq!(cuda_sim::misuses(), Vec::<String>::new());
    }
}
