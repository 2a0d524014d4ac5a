//! Forked processes: the driver works only in the process that initialized it.
#![cfg(unix)]

use crate::common::child::in_child;
use crate::common::fork::in_fork;
use crate::fakes::{NOWHERE, VARIABLE};
use crate::software;
use cuda_safe::{Device, Error};

fn is_forked<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::Forked))
}

#[test]
fn a_fork_of_a_process_that_started_the_driver_gets_an_error() {
    in_child(&[(VARIABLE, NOWHERE)], || {
        software::install();
        cuda_safe::init().expect("it starts");
        assert!(in_fork(|| is_forked(&cuda_safe::init())));
        assert!(in_fork(|| is_forked(&Device::count())));
        assert!(in_fork(|| is_forked(&Device::get(0))));
        assert!(in_fork(|| is_forked(&Device::all())));
        // The same holds for a fork of the fork.
        assert!(in_fork(|| in_fork(|| is_forked(&cuda_safe::init()))));
        // The parent continues.
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
        // No driver was initialized, and the fork may find a driver that the parent did not find.
        software::install();
        assert!(in_fork(|| cuda_safe::init().is_ok()));
    });
}
