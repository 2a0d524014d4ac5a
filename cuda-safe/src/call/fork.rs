//! Detects that this process was forked from a process that had initialized CUDA.
//!
//! In such a child, some driver functions crash and others report that work is done. So the
//! driver functions are disabled ([`cuda_sys::close`]), and nothing is released or waited for.

use super::error::{Error, Result};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

static IN_CHILD: AtomicBool = AtomicBool::new(false);
/// The number of driver initializations that are in progress or have succeeded.
static STARTS: AtomicUsize = AtomicUsize::new(0);
/// Whether the fork handler is registered.
static WATCHED: AtomicBool = AtomicBool::new(false);

/// Whether the driver cannot be used because this process was forked.
#[inline]
pub(crate) fn in_child() -> bool {
    IN_CHILD.load(Ordering::Relaxed)
}

/// Returns an error in a forked child, where the driver cannot be used, and where a thread that no longer
/// exists may hold a lock.
///
/// # Errors
/// [`Error::Forked`].
#[inline]
pub(crate) fn refuse_in_child() -> Result<()> {
    if in_child() { Err(Error::Forked) } else { Ok(()) }
}

/// Runs an initialization of the driver. If it succeeds, later forks are detected.
pub(crate) fn start<T, E>(start: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    // No lock is used here, because a forked child could inherit it in the locked state. If two threads
    // get here at once, both register the handler, and running it twice is harmless.
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
#[inline]
fn register() {
    type Handler = Option<unsafe extern "C" fn()>;
    unsafe extern "C" {
        // A POSIX function of the C library, which every Rust program on Unix links.
        fn pthread_atfork(prepare: Handler, parent: Handler, child: Handler) -> core::ffi::c_int;
    }
    #[inline]
    unsafe extern "C" fn forked() {
        if STARTS.load(Ordering::SeqCst) != 0 {
            IN_CHILD.store(true, Ordering::Relaxed);
            cuda_sys::close();
        }
    }
    // SAFETY: the signature is that of POSIX, and the handler uses only atomics, which is allowed in a
    // forked child. (Registration can fail if memory is exhausted; then forks are not detected.)
    let _ = unsafe { pthread_atfork(None, None, Some(forked)) };
}

#[cfg(not(unix))]
#[inline]
fn register() {}
