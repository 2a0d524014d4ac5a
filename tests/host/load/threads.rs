//! The first use of the driver, on many threads at the same time.

use crate::common::child::in_child;
use crate::fakes::{self, NOWHERE, VARIABLE};
use crate::or_skip;
use crate::software::{self, DEVICES, VERSION};
use core::ffi::CStr;
use cuda_sys::{CUresult, Function};
use std::ptr::{null, null_mut};
use std::sync::mpsc::channel;
use std::sync::{Barrier, Mutex};
use std::time::Duration;

const THREADS: usize = 16;

/// Runs `body` on all threads at the same time, with the number of each.
fn at_once(body: impl Fn(usize) + Sync) {
    let start = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (start, body) = (&start, &body);
            scope.spawn(move || {
                start.wait();
                body(thread);
            });
        }
    });
}

/// Calls seven functions, starting with a different one on each thread, and checks the code and the
/// output of each.
fn call_all(thread: usize) {
    for step in 0..7 {
        let mut number = -1;
        let place = &raw mut number;
        let (code, expected) = match (thread + step) % 7 {
            // SAFETY: the pointer refers to an i32.
            0 => (unsafe { cuda_sys::cuDeviceGetCount(place) }, (0, DEVICES)),
            // SAFETY: the pointer refers to an i32.
            1 => (unsafe { cuda_sys::cuDriverGetVersion(place) }, (0, VERSION)),
            // SAFETY: the pointer refers to an i32.
            2 => (unsafe { cuda_sys::cuDeviceGet(place, 2) }, (0, 2)),
            // SAFETY: `cuInit` takes no pointer.
            3 => (unsafe { cuda_sys::cuInit(0) }, (0, -1)),
            // SAFETY: the function has no parameters.
            4 => (unsafe { cuda_sys::cuProfilerStart() }, (600, -1)),
            5 => (
                // SAFETY: a missing function never receives its arguments.
                unsafe { cuda_sys::cuDeviceGetName(null_mut(), 0, 0) },
                (500, -1),
            ),
            _ => (
                // SAFETY: as above.
                unsafe { cuda_sys::cuGreenCtxCreate(null_mut(), null_mut(), 0, 0) },
                (36, -1),
            ),
        };
        assert_eq!((code.0, number), expected);
    }
}

#[test]
fn first_calls_on_many_threads_all_succeed() {
    in_child(&[(VARIABLE, NOWHERE)], || {
        software::install();
        at_once(call_all);
    });
}

#[test]
fn every_function_is_found_by_many_threads_at_once() {
    in_child(&[(VARIABLE, NOWHERE)], || {
        software::install();
        at_once(|thread| {
            let functions: Vec<Function> = Function::all().collect();
            let (before, after) = functions.split_at(functions.len() * (thread / 2) / THREADS);
            for function in after.iter().chain(before) {
                let found = function.address().map_or(null(), |address| address.as_ptr());
                let given = software::find(function.symbol_c());
                assert_eq!(found, given, "{function:?}");
            }
        });
    });
}

#[test]
fn many_threads_open_one_driver() {
    let driver = or_skip!(fakes::build("no_gpu"));
    in_child(&[(VARIABLE, &driver)], || {
        at_once(|_| {
            // SAFETY: `cuInit` takes no pointer.
            let code = unsafe { cuda_sys::cuInit(0) };
            assert_eq!(code, CUresult::CUDA_ERROR_NO_DEVICE);
        });
    });
}

#[test]
fn only_one_of_many_sources_is_installed() {
    in_child(&[(VARIABLE, NOWHERE)], || {
        let taken = Mutex::new(0);
        at_once(|_| {
            // SAFETY: each address is a function of the type that belongs to its name.
            if unsafe { cuda_sys::install(software::find) }.is_ok() {
                *taken.lock().expect("nothing panics here") += 1;
            }
            // A source is installed now, whichever thread won.
            assert!(cuda_sys::load().is_ok());
        });
        assert_eq!(taken.into_inner().expect("nothing panics here"), 1);
    });
}

#[test]
fn two_threads_can_be_in_the_closure_at_once() {
    in_child(&[(VARIABLE, NOWHERE)], || {
        let (tell, told) = channel();
        let (tell, told) = (Mutex::new(tell), Mutex::new(told));
        // The look-up of one function returns only after the look-up of another has started.
        let find = move |name: &CStr| {
            if name == c"cuCtxSynchronize" {
                let told = told.lock().expect("nothing panics here");
                // The limit is long: it is reached only if a lock is held around the closure, which
                // is the failure.
                let waited = told.recv_timeout(Duration::from_secs(60));
                waited.expect("the other look-up, at the same time");
            } else if name == c"cuInit" {
                let tell = tell.lock().expect("nothing panics here");
                tell.send(()).expect("the other thread waits");
            }
            software::find(name)
        };
        // SAFETY: each address is a function of the type that belongs to its name.
        unsafe { cuda_sys::install(find) }.expect("the process has no driver");
        std::thread::scope(|scope| {
            // SAFETY: the function has no parameters.
            scope.spawn(|| assert!(unsafe { cuda_sys::cuCtxSynchronize() }.is_success()));
            // SAFETY: `cuInit` takes no pointer.
            scope.spawn(|| assert!(unsafe { cuda_sys::cuInit(0) }.is_success()));
        });
    });
}

#[test]
fn many_threads_without_a_driver_all_get_the_error() {
    in_child(&[(VARIABLE, NOWHERE)], || {
        at_once(|_| {
            // SAFETY: `cuInit` takes no pointer.
            let code = unsafe { cuda_sys::cuInit(0) };
            assert_eq!(code, CUresult::CUDA_ERROR_NOT_INITIALIZED);
            cuda_safe::init().expect_err("there is no driver");
        });
    });
}
