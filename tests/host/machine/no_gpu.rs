//! A driver on a machine without a GPU.

use crate::common::child::in_child;
use crate::fakes::{self, VARIABLE};
use crate::or_skip;
use cuda_safe::{Device, Error};
use cuda_sys::{CUresult, CudaVersion};

#[test]
fn cu_init_returns_no_device() {
    let driver = or_skip!(fakes::build("no_gpu"));
    in_child(&[(VARIABLE, &driver)], || {
        // SAFETY: `cuInit` takes no pointer.
        let code = unsafe { cuda_sys::cuInit(0) };
        assert_eq!(code, CUresult::CUDA_ERROR_NO_DEVICE);
        assert_eq!(code.0, 100);
    });
}

#[test]
fn the_safe_crate_returns_no_device() {
    fn check<T: std::fmt::Debug>(result: cuda_safe::Result<T>) {
        let error = result.expect_err("there is no GPU");
        assert!(matches!(error, Error::NoDevice), "{error:?}");
        assert!(error.to_string().contains("no GPU"), "{error}");
        assert!(!error.is_fatal());
    }
    let driver = or_skip!(fakes::build("no_gpu"));
    in_child(&[(VARIABLE, &driver)], || {
        check(cuda_safe::init());
        check(Device::count());
        check(Device::get(0));
        check(Device::all());
        check(cuda_safe::init());
    });
}

#[test]
fn no_device_keeps_the_code_of_the_driver() {
    let driver = or_skip!(fakes::build("no_gpu"));
    in_child(&[(VARIABLE, &driver)], || {
        let error = cuda_safe::init().expect_err("there is no GPU");
        assert_eq!(error.code(), Some(CUresult::CUDA_ERROR_NO_DEVICE));
    });
}

/// `cargo xtask wine` has put this driver there.
#[cfg(windows)]
#[test]
fn the_driver_is_found_in_the_folder_of_the_system() {
    let driver = std::env::var_os("SystemRoot")
        .map(|root| std::path::PathBuf::from(root).join("System32").join("nvcuda.dll"));
    if !driver.is_some_and(|driver| driver.exists()) {
        return crate::common::skip("the folder of the system has no driver");
    }
    in_child(&[], || {
        assert_eq!(cuda_safe::version().expect("a driver"), CudaVersion::new(12, 2));
        assert!(matches!(Device::get(0), Err(Error::NoDevice)));
    });
}

#[test]
fn the_version_needs_no_gpu() {
    let driver = or_skip!(fakes::build("no_gpu"));
    in_child(&[(VARIABLE, &driver)], || {
        let version = CudaVersion::new(12, 2);
        assert_eq!(cuda_safe::version().expect("a driver"), version);
        assert_eq!(cuda_sys::driver_version().expect("a driver"), version);
    });
}
