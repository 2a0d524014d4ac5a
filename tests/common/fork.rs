//! Forked processes.
#![cfg(unix)]

use core::ffi::c_int;

unsafe extern "C" {
    // POSIX functions, in the C library that every Rust program on Unix links.
    fn fork() -> c_int;
    fn waitpid(process: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn _exit(code: c_int) -> !;
}

/// Forks, and returns whether `check` is true in the child. The child inherits locks that other
/// threads may hold, so `check` must not allocate or print unless all other threads wait.
pub(crate) fn in_fork(check: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child calls only `check`, which follows the rule above, and `_exit`.
    let process = unsafe { fork() };
    assert!(process >= 0, "no process to fork");
    if process == 0 {
        let code = if check() { 0 } else { 1 };
        // SAFETY: `_exit` may always be called, and runs none of the parent's exit handlers.
        unsafe { _exit(code) };
    }
    let mut status = -1;
    // SAFETY: the process is a child of this one, and the pointer refers to an int.
    let waited = unsafe { waitpid(process, &raw mut status, 0) };
    assert_eq!(waited, process);
    // 0 means an exit by `_exit(0)`. A crash gives another number.
    status == 0
}
