//! Checkpoints of processes: the tests that need no second process that uses CUDA. (tests/gpu has the rest.)

use crate::common::child;
use cuda_safe::process::checkpoint::{LockedProcess, ProcessState, RunningProcess};
use cuda_safe::{CUresult, Error, Invalid};
use std::process::{Command, Stdio};
use std::time::Duration;

#[test]
fn the_own_process_can_be_locked_and_unlocked() {
    child::with_context_since(12, 8, |context| {
        let own = std::process::id();
        let running = RunningProcess::of(own).expect("it runs");
        let locked = running.lock(Some(Duration::from_secs(5))).expect("idle");
        assert_eq!(ProcessState::of(own), Ok(ProcessState::Locked));
        let running = locked.unlock().expect("locked");
        assert_eq!(ProcessState::of(own), Ok(ProcessState::Running));
        context.synchronize().expect("calls work again");

        drop(running.lock(None).expect("idle"));
        assert_eq!(ProcessState::of(own), Ok(ProcessState::Running));

        let running = RunningProcess::of(own).expect("it runs");
        let pid = running.lock(None).expect("idle").keep_locked();
        let locked = LockedProcess::of(pid).expect("still locked");
        assert_eq!(locked.pid(), own);
        locked.unlock().expect("locked");
        context.synchronize().expect("calls work again");
    });
}

mod provoked {
    use super::*;

    #[test]
    fn other_processes_are_refused() {
        child::with_context_since(12, 8, |_| {
            let mut other =
                Command::new("sleep").arg("60").stdout(Stdio::null()).spawn().expect("a process");
            let of = |pid| ProcessState::of(pid).map_err(|error| error.code());
            let without_cuda = of(other.id());
            other.kill().expect("it runs");
            other.wait().expect("its end");
            let ended = of(other.id());
            let code = CUresult::CUDA_ERROR_NOT_INITIALIZED;
            assert_eq!(without_cuda, Err(Some(code)));
            assert_eq!(ended, Err(Some(CUresult::CUDA_ERROR_OPERATING_SYSTEM)));
        });
    }

    #[test]
    fn a_number_that_is_no_process_id_is_refused() {
        for pid in [0, u32::MAX] {
            let error = ProcessState::of(pid).expect_err("no id");
            assert_eq!(error, Error::from(Invalid::ProcessId { pid }));
        }
    }

    #[test]
    fn a_process_in_another_state_is_refused() {
        child::with_context_since(12, 8, |_| {
            let own = std::process::id();
            let error = LockedProcess::of(own).expect_err("it runs");
            assert!(error.to_string().contains("is running"), "{error}");
            let locked = RunningProcess::of(own).expect("it runs").lock(None).expect("idle");
            let error = RunningProcess::of(own).expect_err("it is locked");
            assert!(error.to_string().contains("is locked"), "{error}");
            locked.unlock().expect("locked");
        });
    }
}
