//! A driver that does not export a name and hands it out by `cuGetProcAddress_v2`.

use crate::common::child::in_child;
use crate::fakes::{self, VARIABLE};
use crate::need;
use cuda_sys::{CUresult, Function, ptds};
use std::ffi::CStr;
use std::ptr::{null, null_mut};

fn is_available(symbol: &str) -> bool {
    let function = Function::find(symbol).expect("a symbol of the headers");
    function.is_available()
}

/// What the driver was asked so far: base, version and flags of each.
fn asked() -> Vec<String> {
    let mut text = null();
    // SAFETY: the pointer is to a pointer.
    let result = unsafe { cuda_sys::cuGetErrorString(CUresult(0), &raw mut text) };
    assert!(result.is_success());
    // SAFETY: the fake tells a text that ends with a NUL.
    let text = unsafe { CStr::from_ptr(text) };
    let text = text.to_str().expect("the fake writes ASCII");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn functions_are_asked_for_by_base_version_and_stream_mode() {
    let driver = need!(fakes::build("lookup"));
    in_child(&[(VARIABLE, &driver)], || {
        for symbol in ["cuMemcpyHtoD", "cuMemcpyHtoD_v2", "cuMemcpyHtoD_v2_ptds"] {
            assert!(is_available(symbol));
        }
        let expected = [
            "cuMemcpyHtoD 2000 1",
            "cuMemcpyHtoD 3020 1",
            "cuMemcpyHtoD 7000 2",
        ];
        assert_eq!(asked(), expected);
    });
}

#[test]
fn calls_reach_what_was_handed_out() {
    let driver = need!(fakes::build("lookup"));
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
fn a_version_above_the_drivers_is_never_asked_for() {
    let driver = need!(fakes::build("lookup"));
    in_child(&[(VARIABLE, &driver)], || {
        let version = cuda_sys::driver_version().expect("a driver");
        for function in Function::all().filter(|function| function.since() > version) {
            assert!(!function.is_available(), "{function:?}");
        }
        assert_eq!(asked(), [] as [&str; 0]);
        // SAFETY: a function that is not there does not get its arguments.
        let code = unsafe { cuda_sys::cuCtxSynchronize_v2(null_mut()) };
        assert_eq!(code, CUresult::CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER);
    });
}

#[test]
fn an_exported_name_is_not_asked_for() {
    let driver = need!(fakes::build("lookup"));
    in_child(&[(VARIABLE, &driver)], || {
        // SAFETY: cuInit takes no pointer.
        let code = unsafe { cuda_sys::cuInit(0) };
        assert!(code.is_success());
        assert_eq!(asked(), [] as [&str; 0]);
    });
}

#[test]
fn an_answer_that_is_not_exact_is_none() {
    let driver = need!(fakes::build("lookup"));
    in_child(&[(VARIABLE, &driver)], || {
        let asked_for = [
            ("cuProfilerStart", "status 1, nothing to call"),
            ("cuCtxSynchronize", "status 2, another ABI to call"),
            ("cuEventSynchronize", "status 0, nothing to call"),
            ("cuStreamSynchronize", "an error code, all else well"),
        ];
        for (symbol, answer) in asked_for {
            assert!(!is_available(symbol), "{symbol}: {answer}");
        }
        // SAFETY: a function that is not there does not get its arguments.
        let code = unsafe { cuda_sys::cuCtxSynchronize() };
        assert_eq!(code, CUresult::CUDA_ERROR_NOT_FOUND);
        // Each was asked for once, the last call included.
        let asked = asked();
        assert_eq!(asked.len(), asked_for.len(), "{asked:?}");
    });
}
