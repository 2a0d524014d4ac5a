//! Finalization of the interpreter while other threads run, and the child process of a fork.
//!
//! Until Python 3.13, a daemon thread that acquires the GIL after finalization is unwound in C. If
//! Rust called Python, this passes through Rust frames, which is not allowed, and the process
//! aborts. A thread that is inside the driver while the process exits may also find the driver
//! unloaded. Therefore an `atexit` function prevents other threads from beginning such calls, and
//! waits for the running ones. (A thread that returns from the driver without an interpreter is
//! blocked by pyo3.)
//!
//! A thread that still begins such a call gets `SystemExit`, as if by `sys.exit()`. This prints
//! nothing, and another library's `atexit` function that joins the thread does not wait any longer.
//! (Functions that were registered before this package was imported run after ours.) Creating this
//! exception runs no Python code.

use crate::error::{Failure, Result};
use pyo3::prelude::*;
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// The thread that finalizes the interpreter, once it has begun.
static ENDS: OnceLock<ThreadId> = OnceLock::new();

/// The number of running calls that call Python or run without the GIL.
static CALLS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The number of those calls on this thread.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// The maximum wait, because foreign code may never return.
const TIMEOUT: Duration = Duration::from_secs(5);

struct Call;

impl Call {
    /// Returns None during finalization, on all threads except the finalizing one.
    #[inline]
    fn begin() -> Option<Self> {
        let call = Self::count();
        // The finalizing thread reads the number of calls after it has set `ENDS`.
        match ENDS.get() {
            Some(ends) if *ends != thread::current().id() => None,
            _ => Some(call),
        }
    }

    fn count() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        CALLS.fetch_add(1, Ordering::SeqCst);
        Self
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        CALLS.fetch_sub(1, Ordering::SeqCst);
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Runs code that calls Python. During finalization it returns an error on other threads.
pub(crate) fn calling<R, E>(
    _py: Python<'_>,
    call: impl FnOnce() -> std::result::Result<R, E>,
) -> Result<R>
where
    Failure: From<E>,
{
    let _call = Call::begin().ok_or(Failure::Ended)?;
    Ok(call()?)
}

/// Runs code that may block, without the GIL. During finalization it behaves like [`calling`].
pub(crate) fn detached<R: Send, E: Send>(
    py: Python<'_>,
    call: impl FnOnce() -> std::result::Result<R, E> + Send,
) -> Result<R>
where
    Failure: From<E>,
{
    let _call = Call::begin().ok_or(Failure::Ended)?;
    Ok(py.detach(call)?)
}

/// Runs a release that may block, without the GIL. During finalization, on other threads, it leaks
/// the values instead.
pub(crate) fn let_go(py: Python<'_>, release: impl FnOnce() + Send) {
    match Call::begin() {
        Some(_call) => py.detach(release),
        None => std::mem::forget(release),
    }
}

/// Drops a Python object, or a value that may contain one, which may run Python code. During
/// finalization it behaves like [`let_go`].
pub(crate) fn let_go_of<T>(_py: Python<'_>, object: T) {
    match Call::begin() {
        Some(_call) => drop(object),
        None => std::mem::forget(object),
    }
}

/// Called by `atexit`.
#[pyfunction]
pub(crate) fn _end(py: Python<'_>) {
    if ENDS.set(thread::current().id()).is_err() {
        return;
    }
    let own = DEPTH.get();
    py.detach(|| {
        let begin = Instant::now();
        while CALLS.load(Ordering::SeqCst) > own && begin.elapsed() < TIMEOUT {
            thread::sleep(Duration::from_millis(1));
        }
    });
}

/// Called in the child process of a fork, which has one thread; the calls of other threads do not
/// run there.
#[pyfunction]
pub(crate) fn _forked() {
    CALLS.store(DEPTH.get(), Ordering::SeqCst);
}
