//! A driver that does not export a name and returns it only from `cuGetProcAddress_v2`.

use crate::common::child::in_child;
use crate::fakes::{self, VARIABLE};
use crate::or_skip;
use cuda_sys::{CUresult, Function, ptds};
use std::ffi::CStr;
use std::ptr::{null, null_mut};

fn is_available(symbol: &str) -> bool {
    let function = Function::find(symbol).expect("a symbol of the headers");
    function.is_available()
}

/// Returns the look-ups so far: base name, version and flags of each.
fn asked() -> Vec<String> {
    let mut text = null();
    // SAFETY: the pointer refers to a pointer.
    let result = unsafe { cuda_sys::cuGetErrorString(CUresult(0), &raw mut text) };
    assert!(result.is_success());
    // SAFETY: the fake returns a text that ends with a NUL.
    let text = unsafe { CStr::from_ptr(text) };
    let text = text.to_str().expect("the fake writes ASCII");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn functions_are_looked_up_by_base_version_and_stream_mode() {
    let driver = or_skip!(fakes::build("lookup"));
    in_child(&[(VARIABLE, &driver)], || {
        for symbol in ["cuMemcpyHtoD", "cuMemcpyHtoD_v2", "cuMemcpyHtoD_v2_ptds"] {
            assert!(is_available(symbol));
        }
        let expected = ["cuMemcpyHtoD 2000 1", "cuMemcpyHtoD 3020 1", "cuMemcpyHtoD 7000 2"];
        assert_eq!(asked(), expected);
    });
}

#[test]
fn calls_reach_the_returned_functions() {
    let driver = or_skip!(fakes::build("lookup"));
    in_child(&[(VARIABLE, &driver)], || {
        for _ in 0..2 {
            // SAFETY: the fake ignores the handle.
            let code = unsafe { cuda_sys::cuStreamQuery(null_mut()) };
            assert_eq!(code, CUresult(1001));
            // SAFETY: the fake ignores the handle.
            let code = unsafe { ptds::cuStreamQuery_ptsz(null_mut()) };
            assert_eq!(code, CUresult(1002));
        }
        assert_eq!(asked(), ["cuStreamQuery 2000 1", "cuStreamQuery 7000 2"]);
    });
}

#[test]
fn a_version_newer_than_the_driver_is_never_looked_up() {
    let driver = or_skip!(fakes::build("lookup"));
    in_child(&[(VARIABLE, &driver)], || {
        let version = cuda_sys::driver_version().expect("a driver");
        for function in Function::all().filter(|function| function.since() > version) {
            assert!(!function.is_available(), "{function:?}");
        }
        assert_eq!(asked(), [] as [&str; 0]);
        // SAFETY: a missing function never receives its arguments.
        let code = unsafe { cuda_sys::cuCtxSynchronize_v2(null_mut()) };
        assert_eq!(code, CUresult::CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER);
    });
}

#[test]
fn an_exported_name_is_not_looked_up() {
    let driver = or_skip!(fakes::build("lookup"));
    in_child(&[(VARIABLE, &driver)], || {
        // SAFETY: `cuInit` takes no pointer.
        let code = unsafe { cuda_sys::cuInit(0) };
        assert!(code.is_success());
        assert_eq!(asked(), [] as [&str; 0]);
    });
}

#[test]
fn an_inexact_answer_counts_as_missing() {
    let driver = or_skip!(fakes::build("lookup"));
    in_child(&[(VARIABLE, &driver)], || {
        let asked_for = [
            ("cuProfilerStart", "status 1, nothing to call"),
            ("cuCtxSynchronize", "status 2, another ABI to call"),
            ("cuEventSynchronize", "status 0, nothing to call"),
            ("cuStreamSynchronize", "an error code with a valid address"),
        ];
        for (symbol, answer) in asked_for {
            assert!(!is_available(symbol), "{symbol}: {answer}");
        }
        // SAFETY: a missing function never receives its arguments.
        let code = unsafe { cuda_sys::cuCtxSynchronize() };
        assert_eq!(code, CUresult::CUDA_ERROR_NOT_FOUND);
        // Each function was looked up once, including the last call.
        let asked = asked();
        assert_eq!(asked.len(), asked_for.len(), "{asked:?}");
    });
}
