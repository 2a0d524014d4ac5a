//! Which file is loaded as the driver: the one given to `cuda_sys::load_from`, or the one that the
//! environment names.

use crate::common::child::in_child;
use crate::fakes::{self, NOWHERE, VARIABLE};
use crate::{or_skip, software};
use cuda_sys::{AttemptFailure, InstallError};
use std::path::Path;

fn load_from(path: &str) -> Result<(), InstallError> {
    // SAFETY: the tests' own libraries have the ABI of a driver, or are not libraries.
    unsafe { cuda_sys::load_from(path) }
}

#[test]
fn load_from_opens_only_that_file() {
    let driver = or_skip!(fakes::build("no_gpu"));
    let other = or_skip!(fakes::build("lookup"));
    // The path given to `load_from` takes precedence over the one in the environment.
    in_child(&[(VARIABLE, &other)], || {
        load_from(&driver).expect("a driver");
        assert_eq!(cuda_sys::library_path(), Some(Path::new(&driver)));
        let version = cuda_sys::driver_version().expect("a driver");
        assert_eq!(version.to_string(), "12.2");
        cuda_sys::load().expect("it is loaded");
    });
}

#[test]
fn load_from_a_bad_path_reports_the_reason_and_allows_another_try() {
    let driver = or_skip!(fakes::build("no_gpu"));
    let library = or_skip!(fakes::build("not_a_driver"));
    in_child(&[(VARIABLE, NOWHERE)], || {
        let Err(InstallError::Load(error)) = load_from(NOWHERE) else {
            panic!("no such file");
        };
        assert_eq!(error.tried()[0].path.to_str(), Some(NOWHERE));
        let Err(InstallError::Load(error)) = load_from(&library) else {
            panic!("no driver");
        };
        assert!(matches!(error.tried()[0].failure, AttemptFailure::NoDriver));
        assert_eq!(cuda_sys::library_path(), None);

        load_from(&driver).expect("failures are not cached");
    });
}

#[test]
fn load_from_is_refused_after_the_first_use() {
    let driver = or_skip!(fakes::build("no_gpu"));
    in_child(&[(VARIABLE, &driver)], || {
        assert_eq!(cuda_sys::library_path(), None, "nothing is open yet");
        // SAFETY: `cuInit` takes no pointer.
        let _ = unsafe { cuda_sys::cuInit(0) };
        assert_eq!(cuda_sys::library_path(), Some(Path::new(&driver)));
        // The driver is in use, so any path is refused.
        for path in [&driver, NOWHERE] {
            let refused = load_from(path).expect_err("the process has a driver");
            assert!(matches!(refused, InstallError::InUse), "{refused:?}");
        }
    });
}

#[test]
fn the_environment_names_the_driver() {
    let driver = or_skip!(fakes::build("lookup"));
    in_child(&[(VARIABLE, &driver)], || {
        let version = cuda_sys::driver_version().expect("a driver");
        assert_eq!(version.to_string(), "12.4");
        assert_eq!(cuda_safe::version().expect("a driver"), version);
        assert_eq!(cuda_sys::library_path(), Some(Path::new(&driver)));
    });
}

#[test]
fn an_installed_source_has_no_path() {
    in_child(&[(VARIABLE, NOWHERE)], || {
        software::install();
        cuda_sys::load().expect("nothing is left to load");
        assert_eq!(cuda_sys::library_path(), None);
        let refused = load_from(NOWHERE).expect_err("the process has a driver");
        assert!(matches!(refused, InstallError::InUse), "{refused:?}");
    });
}
