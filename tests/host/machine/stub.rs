//! The stub library of the CUDA toolkit, which build images contain instead of a driver.

use crate::common::child::in_child;
use crate::fakes::{self, VARIABLE};
use crate::or_skip;
use cuda_safe::{Device, Error};
use cuda_sys::{AttemptFailure, CUresult, Function, Unavailable, abi, ptds};
use std::ptr::null_mut;

fn stub() -> Option<String> {
    fakes::write_functions_h();
    fakes::build("stub")
}

#[test]
fn a_stub_is_distinguished_from_a_driver() {
    let stub = or_skip!(stub());
    in_child(&[(VARIABLE, &stub)], || {
        let error = cuda_sys::load().expect_err("a stub is not a driver");
        assert!(error.is_stub());
        assert!(matches!(error.tried()[0].failure, AttemptFailure::Stub));
        let text = error.to_string();
        assert!(text.contains("stub") && text.contains(&stub), "{text}");
        assert_eq!(cuda_sys::library_path(), None);
    });
}

#[test]
fn raw_calls_of_a_stub_return_stub_library() {
    let stub = or_skip!(stub());
    in_child(&[(VARIABLE, &stub)], || {
        let answers = [
            // SAFETY: `cuInit` takes no pointer.
            unsafe { cuda_sys::cuInit(0) },
            // SAFETY: without a driver no function receives its arguments.
            unsafe { cuda_sys::cuGreenCtxCreate(null_mut(), null_mut(), 0, 0) },
            // SAFETY: as above.
            unsafe { abi::cuCtxDestroy(null_mut()) },
            // SAFETY: as above.
            unsafe { ptds::cuStreamQuery_ptsz(null_mut()) },
        ];
        assert_eq!(answers, [CUresult::CUDA_ERROR_STUB_LIBRARY; 4]);
        assert_eq!(answers[0].0, 34);
    });
}

#[test]
fn no_function_of_a_stub_is_available() {
    let stub = or_skip!(stub());
    in_child(&[(VARIABLE, &stub)], || {
        for function in Function::all() {
            match function.address() {
                Err(Unavailable::Load(error)) => assert!(error.is_stub()),
                other => panic!("{function:?}: {other:?}"),
            }
        }
    });
}

#[test]
fn the_safe_crate_names_the_stub() {
    let stub = or_skip!(stub());
    in_child(&[(VARIABLE, &stub)], || {
        let errors = [
            cuda_safe::init().expect_err("no driver"),
            cuda_safe::version().expect_err("no driver"),
            Device::all().expect_err("no driver"),
        ];
        for error in errors {
            assert!(error.to_string().contains("stub"), "{error}");
            match error {
                Error::Load(error) => assert!(error.is_stub()),
                other => panic!("{other:?}"),
            }
        }
    });
}
