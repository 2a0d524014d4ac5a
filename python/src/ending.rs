//! The end of the interpreter, with threads that still run; and the child of a fork.
//!
//! Until Python 3.13 a daemon thread that wants the GIL after the end is unwound from where it stands, in
//! C. Where Rust called Python that goes through frames of Rust, which cannot be, and the process aborts.
//! And who is in the driver while the process exits may find that gone. So before the end, in an `atexit`
//! function, other threads begin no such calls any more, and those under way are waited for. (What comes
//! out of the driver to find no interpreter is held by pyo3.)
//!
//! A thread that begins one all the same ends with `SystemExit`, as by `sys.exit()`: nobody says a word of
//! it, and an `atexit` function of others that waits for the thread waits no longer. (Those that were
//! registered before this package was imported run after ours.) To make the exception runs no code of
//! Python's.

use crate::error::{Failure, Result};
use pyo3::prelude::*;
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// The thread that ends the interpreter, once it does.
static ENDS: OnceLock<ThreadId> = OnceLock::new();

/// Calls, of Python or without the GIL, that are under way.
static CALLS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Those of this thread.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Code of others may not come to an end.
const PATIENCE: Duration = Duration::from_secs(5);

struct Call;

impl Call {
    /// None at the end of the interpreter, on other threads than the one that ends it.
    #[inline]
    fn begin() -> Option<Self> {
        let call = Self::count();
        // Whoever ends looks at the number of calls after it has said so.
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

/// Runs what calls code of Python; at the end of the interpreter, on other threads, never.
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

/// Lets other threads of Python run meanwhile: for what may wait. At the end as for [`calling`].
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

/// Does what lets go of something, without the GIL, as that may wait; at the end of the interpreter, on
/// other threads, what it holds stays for the process.
pub(crate) fn let_go(py: Python<'_>, release: impl FnOnce() + Send) {
    match Call::begin() {
        Some(_call) => py.detach(release),
        None => std::mem::forget(release),
    }
}

/// Lets go of an object of Python's, or of what may have one: that may run code of Python's. At the end as
/// for [`let_go`].
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
        while CALLS.load(Ordering::SeqCst) > own && begin.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(1));
        }
    });
}

/// Called in the child of a fork, which has one thread: the calls of the others are not under way there.
#[pyfunction]
pub(crate) fn _forked() {
    CALLS.store(DEPTH.get(), Ordering::SeqCst);
}
