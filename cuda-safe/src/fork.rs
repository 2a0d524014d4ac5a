//! Whether this process is a fork of one that had started CUDA.
//!
//! There the driver crashes in some functions and answers "done" in others, so nothing is called
//! ([`cuda_sys::close`]), released or waited for.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

static IN_CHILD: AtomicBool = AtomicBool::new(false);
/// Starts of the driver that are under way or have succeeded.
static STARTS: AtomicUsize = AtomicUsize::new(0);
/// Whether a fork is noticed.
static WATCHED: AtomicBool = AtomicBool::new(false);

/// Whether the driver is out of reach because this process was forked.
#[inline]
pub(crate) fn in_child() -> bool {
    IN_CHILD.load(Ordering::Relaxed)
}

/// Runs a start of the driver; from now on, unless it fails, a fork is noticed.
pub(crate) fn start<T, E>(start: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    // No lock, which a forked child might find taken: two threads that come here at once both
    // register, and what is done twice is done.
    if !WATCHED.load(Ordering::Acquire) {
        register();
        WATCHED.store(true, Ordering::Release);
    }
    STARTS.fetch_add(1, Ordering::SeqCst);
    let done = start();
    if done.is_err() {
        STARTS.fetch_sub(1, Ordering::SeqCst);
    }
    done
}

#[cfg(unix)]
fn register() {
    type Handler = Option<unsafe extern "C" fn()>;
    unsafe extern "C" {
        // POSIX; in the C library that every Rust program on Unix links.
        fn pthread_atfork(prepare: Handler, parent: Handler, child: Handler) -> core::ffi::c_int;
    }
    unsafe extern "C" fn forked() {
        if STARTS.load(Ordering::SeqCst) != 0 {
            IN_CHILD.store(true, Ordering::Relaxed);
            cuda_sys::close();
        }
    }
    // SAFETY: the signature is POSIX's, and the handler only uses atomics, which is allowed in a
    // forked child. (A failure, for want of memory, leaves forks unnoticed.)
    let _ = unsafe { pthread_atfork(None, None, Some(forked)) };
}

#[cfg(not(unix))]
fn register() {}
