//! A driver of CUDA 12.2, from before green contexts, that also lacks functions of its own version.

use crate::common::child::in_child;
use crate::fakes::{self, VARIABLE};
use crate::or_skip;
use cuda_safe::device::attribute;
use cuda_safe::green::SmResource;
use cuda_safe::{Device, Error};
use cuda_sys::{CUresult, CudaVersion, Function, MissingFunction, Unavailable};
use std::ptr::null_mut;

const DRIVER: Option<CudaVersion> = Some(CudaVersion::new(12, 2));

fn function(symbol: &str) -> Function {
    Function::find(symbol).expect("a symbol of the headers")
}

fn missing(error: Error) -> MissingFunction {
    match error {
        Error::Missing(missing) => missing,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_raw_call_newer_than_the_driver_returns_its_own_code() {
    let driver = or_skip!(fakes::build("one_gpu"));
    in_child(&[(VARIABLE, &driver)], || {
        // Twice, because the second answer comes from the cache.
        for _ in 0..2 {
            // SAFETY: a missing function never receives its arguments.
            let code = unsafe { cuda_sys::cuGreenCtxCreate(null_mut(), null_mut(), 0, 0) };
            assert_eq!(code, CUresult::CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER);
            assert_eq!(code.0, 36);
        }
    });
}

#[test]
fn a_raw_call_that_this_driver_should_have_is_not_found() {
    let driver = or_skip!(fakes::build("one_gpu"));
    in_child(&[(VARIABLE, &driver)], || {
        for _ in 0..2 {
            // SAFETY: a missing function never receives its arguments.
            let code = unsafe { cuda_sys::cuDeviceGetName(null_mut(), 0, 0) };
            assert_eq!(code, CUresult::CUDA_ERROR_NOT_FOUND);
            assert_eq!(code.0, 500);
        }
    });
}

#[test]
fn address_names_function_and_versions() {
    let driver = or_skip!(fakes::build("one_gpu"));
    in_child(&[(VARIABLE, &driver)], || {
        let create = function("cuGreenCtxCreate");
        let Err(Unavailable::Missing(newer)) = create.address() else {
            panic!("there is one");
        };
        assert_eq!((newer.function, newer.driver), (create, DRIVER));
        assert!(newer.needs_newer_driver());
        let text = "cuGreenCtxCreate needs CUDA 12.4; this driver offers 12.2";
        assert_eq!(newer.to_string(), text);
        assert_eq!(Unavailable::Missing(newer).to_string(), text);

        let Err(Unavailable::Missing(absent)) = function("cuDeviceGetName").address() else {
            panic!("there is one");
        };
        assert!(!absent.needs_newer_driver());
        let text = "this driver (CUDA 12.2) has no cuDeviceGetName";
        assert_eq!(absent.to_string(), text);

        function("cuDeviceGet").address().expect("there is none");
        let found = Function::all().filter(|function| function.is_available());
        assert_eq!(found.count(), 6, "the functions that the fake exports");
    });
}

#[test]
fn the_safe_crate_names_the_version_that_green_contexts_need() {
    let driver = or_skip!(fakes::build("one_gpu"));
    in_child(&[(VARIABLE, &driver)], || {
        let device = Device::get(0).expect("one GPU");
        let error = SmResource::of_device(&device).expect_err("since 12.4");
        let text = error.to_string();
        assert_eq!(text, "cuDeviceGetDevResource needs CUDA 12.4; this driver offers 12.2");
        let missing = missing(error);
        assert_eq!(missing.function, function("cuDeviceGetDevResource"));
        assert_eq!(missing.function.since(), CudaVersion::new(12, 4));
        assert_eq!(missing.driver, DRIVER);
    });
}

#[test]
fn the_safe_crate_names_a_missing_function() {
    let driver = or_skip!(fakes::build("one_gpu"));
    in_child(&[(VARIABLE, &driver)], || {
        let device = Device::get(0).expect("one GPU");
        let missing = missing(device.name().expect_err("not exported"));
        assert_eq!(missing.function, function("cuDeviceGetName"));
        assert!(!missing.needs_newer_driver());
    });
}

#[test]
fn a_code_returned_by_the_driver_itself_is_unchanged() {
    fn check<T: std::fmt::Debug>(result: cuda_safe::Result<T>, call: &str, code: u32) {
        match result {
            Err(Error::Driver(error)) => assert_eq!((error.call, error.code.0), (call, code)),
            other => panic!("{other:?}"),
        }
    }
    let driver = or_skip!(fakes::build("one_gpu"));
    in_child(&[(VARIABLE, &driver)], || {
        let device = Device::get(0).expect("one GPU");
        check(device.total_memory(), "cuDeviceTotalMem_v2", 500);
        let count = device.attribute(attribute::MULTIPROCESSOR_COUNT);
        check(count, "cuDeviceGetAttribute", 3);
    });
}

#[test]
fn a_missing_device_is_refused_with_the_device_count() {
    let driver = or_skip!(fakes::build("one_gpu"));
    in_child(&[(VARIABLE, &driver)], || {
        assert_eq!(Device::all().expect("one GPU").len(), 1);
        for ordinal in [1, u32::MAX] {
            let error = Device::get(ordinal).expect_err("there is one, number 0");
            let text = error.to_string();
            assert!(text.contains(&ordinal.to_string()), "{text}");
            assert!(matches!(error, Error::Invalid(_)), "{error:?}");
        }
    });
}
