//! `cuda_safe::check`: the errors of raw calls.

use crate::common::child::in_child;
use crate::fakes::{self, NOWHERE, VARIABLE};
use crate::or_skip;
use cuda_safe::error::DriverError;
use cuda_safe::{Error, check};
use cuda_sys::CUresult;
use std::ptr::null_mut;

#[test]
fn success_is_no_error() {
    check(CUresult::CUDA_SUCCESS, "cuInit").expect("a success");
}

#[test]
fn an_error_code_is_named_with_its_function() {
    for call in ["cuMemAlloc_v2", "a function of another library"] {
        let code = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        let Err(Error::Driver(error)) = check(code, call) else {
            panic!("{call} failed");
        };
        assert_eq!(error, DriverError::new(code, call));
    }
}

#[test]
fn without_a_driver_the_error_is_the_reason() {
    in_child(&[(VARIABLE, NOWHERE)], || {
        // SAFETY: `cuInit` takes no pointer.
        let code = unsafe { cuda_sys::cuInit(0) };
        let Err(Error::Load(error)) = check(code, "cuInit") else {
            panic!("there is no driver");
        };
        assert_eq!(error.tried()[0].path.to_str(), Some(NOWHERE));
    });
}

#[test]
fn a_function_that_the_driver_does_not_have_is_named() {
    let driver = or_skip!(fakes::build("no_gpu"));
    in_child(&[(VARIABLE, &driver)], || {
        // SAFETY: a missing function never receives its arguments.
        let code = unsafe { cuda_sys::cuGreenCtxCreate(null_mut(), null_mut(), 0, 0) };
        let Err(Error::Missing(missing)) = check(code, "cuGreenCtxCreate") else {
            panic!("CUDA 12.2 has no green contexts");
        };
        assert!(missing.needs_newer_driver());
        assert_eq!(missing.function.symbol(), "cuGreenCtxCreate");
    });
}
