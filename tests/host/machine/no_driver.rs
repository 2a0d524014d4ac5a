//! A machine without a driver.

use crate::common::child::in_child;
use crate::fakes::{self, NOWHERE, VARIABLE};
use crate::{common, or_skip, software};
use cuda_safe::{Device, Error};
use cuda_sys::{AttemptFailure, CUresult, Function, Unavailable, abi, ptds};
use std::fs;
use std::ptr::null_mut;

#[test]
fn raw_calls_return_not_initialized() {
    in_child(&[(VARIABLE, NOWHERE)], || {
        let mut number = -7;
        let place = &raw mut number;
        let answers = [
            // SAFETY: `cuInit` takes no pointer.
            unsafe { cuda_sys::cuInit(0) },
            // SAFETY: the pointer refers to an i32.
            unsafe { cuda_sys::cuDriverGetVersion(place) },
            // SAFETY: as above.
            unsafe { cuda_sys::cuDeviceGetCount(place) },
            // SAFETY: without a driver no function receives its arguments.
            unsafe { cuda_sys::cuGreenCtxCreate(null_mut(), null_mut(), 0, 0) },
            // SAFETY: as above.
            unsafe { abi::cuCtxDestroy(null_mut()) },
            // SAFETY: as above.
            unsafe { ptds::cuStreamQuery_ptsz(null_mut()) },
            // SAFETY: `cuInit` takes no pointer. (The second call fails in the same way.)
            unsafe { cuda_sys::cuInit(0) },
        ];
        assert_eq!(answers, [CUresult::CUDA_ERROR_NOT_INITIALIZED; 7]);
        assert_eq!(number, -7, "nothing was written");
    });
}

#[test]
fn a_load_error_names_the_file_and_the_reason() {
    in_child(&[(VARIABLE, NOWHERE)], || {
        let error = cuda_sys::load().expect_err("there is no such file");
        let [attempt] = error.tried() else {
            panic!("one file: {error:?}");
        };
        assert_eq!(attempt.path.to_str(), Some(NOWHERE));
        let AttemptFailure::NotOpened(words) = &attempt.failure else {
            panic!("not opened: {attempt:?}");
        };
        assert!(!words.is_empty());
        assert!(!error.is_stub());
        let text = error.to_string();
        assert!(text.starts_with("no CUDA driver: "), "{text}");
        assert!(text.contains(NOWHERE) && text.contains(words), "{text}");
        // The text names the variable that selects another file.
        assert!(text.contains(VARIABLE), "{text}");

        cuda_sys::driver_version().expect_err("no driver, no version");
        assert_eq!(cuda_sys::library_path(), None);
    });
}

#[test]
#[cfg(target_os = "linux")]
fn load_tries_the_driver_and_then_the_development_link() {
    in_child(&[], || {
        // SAFETY: no other thread of this process uses the environment at this time.
        unsafe { std::env::remove_var(VARIABLE) };
        let Err(error) = cuda_sys::load() else {
            return common::skip("this machine has a driver");
        };
        let tried = error.tried().iter().map(|attempt| attempt.path.to_str());
        let tried: Vec<_> = tried.collect();
        assert_eq!(tried, [Some("libcuda.so.1"), Some("libcuda.so")]);
        let text = error.to_string();
        let (first, second) = text.split_once("; ").expect("one after the other");
        assert!(first.contains("libcuda.so.1"), "{text}");
        assert!(second.starts_with("libcuda.so"), "{text}");
    });
}

#[test]
fn every_function_is_unavailable_with_the_load_error() {
    in_child(&[(VARIABLE, NOWHERE)], || {
        for function in Function::all() {
            assert!(!function.is_available());
            match function.address() {
                Err(Unavailable::Load(error)) => assert_eq!(error.tried().len(), 1),
                other => panic!("{function:?}: {other:?}"),
            }
        }
    });
}

#[test]
fn the_safe_crate_returns_the_load_error() {
    fn check<T: std::fmt::Debug>(result: cuda_safe::Result<T>) {
        let error = result.expect_err("there is no driver");
        let text = error.to_string();
        assert!(text.starts_with("no CUDA driver: "), "{text}");
        assert!(text.contains(NOWHERE), "{text}");
        assert_eq!(error.code(), None);
        assert!(!error.is_fatal());
        assert!(matches!(error, Error::Load(_)), "{error:?}");
    }
    in_child(&[(VARIABLE, NOWHERE)], || {
        check(cuda_safe::init());
        check(cuda_safe::version());
        check(Device::count());
        check(Device::get(0));
        check(Device::all());
        check(cuda_safe::init());
    });
}

#[test]
fn a_driver_that_is_installed_later_is_found() {
    let driver = or_skip!(fakes::build("no_gpu"));
    let later = fakes::unique(&fakes::folder(), "later");
    let later = later.to_str().expect("UTF-8 paths");
    // The child takes the name from the environment that the parent set, because it would generate
    // another name.
    in_child(&[(VARIABLE, later)], || {
        let path = std::env::var(VARIABLE).expect("set by the parent");
        cuda_sys::load().expect_err("no file yet");
        fs::copy(&driver, &path).expect("copying the driver");
        cuda_sys::load().expect("the failure is not cached");
        assert_eq!(cuda_safe::version().expect("a driver").to_string(), "12.2");
    });
    // The child has ended: Windows keeps a library that is loaded.
    let _ = fs::remove_file(later);
}

#[test]
fn install_works_after_a_failure_to_load() {
    in_child(&[(VARIABLE, NOWHERE)], || {
        // SAFETY: `cuInit` takes no pointer.
        let before = unsafe { cuda_sys::cuInit(0) };
        assert_eq!(before, CUresult::CUDA_ERROR_NOT_INITIALIZED);
        cuda_safe::init().expect_err("there is no driver");
        software::install();
        cuda_safe::init().expect("the installed driver starts");
        assert_eq!(Device::all().expect("devices").len(), 3);
    });
}

#[test]
fn an_empty_variable_counts_as_unset() {
    in_child(&[(VARIABLE, "")], || {
        let Err(error) = cuda_sys::load() else {
            return common::skip("this machine has a driver");
        };
        let first = &error.tried()[0].path;
        assert!(!first.as_os_str().is_empty(), "{error:?}");
    });
}
