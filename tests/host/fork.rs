//! Forked processes: the driver works only in the process that starts it.
#![cfg(unix)]

use crate::common::child::in_child;
use crate::fakes::{NOWHERE, VARIABLE};
use crate::software;
use core::ffi::c_int;
use cuda_safe::{Device, Error};

unsafe extern "C" {
    // POSIX; in the C library that every Rust program on Unix links.
    fn fork() -> c_int;
    fn waitpid(process: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn _exit(code: c_int) -> !;
}

/// Forks, and returns whether `check` is true in the child. It gets the locks of other threads as
/// they happened to be: nothing there may allocate or print.
fn in_fork(check: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child calls only `check`, which keeps the rule above, and `_exit`.
    let process = unsafe { fork() };
    assert!(process >= 0, "no process to fork");
    if process == 0 {
        let code = if check() { 0 } else { 1 };
        // SAFETY: it may always be called, and runs none of the parent's handlers.
        unsafe { _exit(code) };
    }
    let mut status = -1;
    // SAFETY: the process is a child of this one, and the pointer is to an int.
    let waited = unsafe { waitpid(process, &raw mut status, 0) };
    assert_eq!(waited, process);
    // 0 is an exit by `_exit(0)`; a crash is another number.
    status == 0
}

fn is_forked<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::Forked))
}

#[test]
fn a_fork_of_a_process_that_started_the_driver_is_told_so() {
    in_child(&[(VARIABLE, NOWHERE)], || {
        software::install();
        cuda_safe::init().expect("it starts");
        assert!(in_fork(|| is_forked(&cuda_safe::init())));
        assert!(in_fork(|| is_forked(&Device::count())));
        assert!(in_fork(|| is_forked(&Device::get(0))));
        assert!(in_fork(|| is_forked(&Device::all())));
        // A fork of the fork as well.
        assert!(in_fork(|| in_fork(|| is_forked(&cuda_safe::init()))));
        // The parent goes on.
        cuda_safe::init().expect("it has started");
        assert_eq!(Device::count().expect("devices"), 3);
    });
}

#[test]
fn a_fork_from_before_the_start_starts_the_driver_itself() {
    in_child(&[(VARIABLE, NOWHERE)], || {
        software::install();
        assert!(in_fork(|| cuda_safe::init().is_ok()));
        cuda_safe::init().expect("it starts");
    });
}

#[test]
fn a_fork_of_a_process_that_found_no_driver_may_start_it() {
    in_child(&[(VARIABLE, NOWHERE)], || {
        cuda_safe::init().expect_err("there is no driver");
        // Nothing was started; and the fork may find what the parent did not.
        software::install();
        assert!(in_fork(|| cuda_safe::init().is_ok()));
    });
}
