//! `cuda_safe::init`.

use crate::common::child::in_child;
use crate::fakes::{NOWHERE, VARIABLE};
use crate::software::{self, INIT_ANSWERS, INIT_CALLS};
use cuda_safe::{Device, Error};
use cuda_sys::CUresult;
use std::sync::atomic::Ordering;

#[test]
fn init_calls_the_driver_once() {
    in_child(&[(VARIABLE, NOWHERE)], || {
        software::install();
        for _ in 0..3 {
            cuda_safe::init().expect("it starts");
            assert_eq!(Device::all().expect("devices").len(), 3);
        }
        assert_eq!(INIT_CALLS.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn the_version_does_not_initialize_the_driver() {
    in_child(&[(VARIABLE, NOWHERE)], || {
        software::install();
        cuda_safe::version().expect("a driver version");
        assert_eq!(INIT_CALLS.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn a_failed_initialization_is_retried() {
    in_child(&[(VARIABLE, NOWHERE)], || {
        software::install();
        INIT_ANSWERS.store(CUresult::CUDA_ERROR_NO_DEVICE.0, Ordering::SeqCst);
        let error = cuda_safe::init().expect_err("no GPU yet");
        assert!(matches!(error, Error::NoDevice), "{error:?}");

        // A code that is missing in the headers is handled like any other.
        INIT_ANSWERS.store(4321, Ordering::SeqCst);
        let error = cuda_safe::init().expect_err("still none");
        assert_eq!(error.code(), Some(CUresult(4321)));
        assert!(error.to_string().starts_with("cuInit: CUresult 4321"));

        INIT_ANSWERS.store(0, Ordering::SeqCst);
        cuda_safe::init().expect("now there is one");
        assert_eq!(INIT_CALLS.load(Ordering::SeqCst), 3);
    });
}
