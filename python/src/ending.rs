//! The end of the interpreter, with threads that still run.
//!
//! Until Python 3.13 a daemon thread that wants the GIL after the end is unwound from where it stands, in
//! C. Where Rust called Python that goes through frames of Rust, which cannot be, and the process aborts.
//! And who is in the driver while the process exits may find that gone. So before the end, in an `atexit`
//! function, other threads begin no such calls any more, and those under way are waited for. (What comes
//! out of the driver to find no interpreter is held by pyo3.)

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
    fn begin() -> Self {
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
pub(crate) fn calling<R>(py: Python<'_>, call: impl FnOnce() -> R) -> R {
    let _call = begin(py);
    call()
}

/// Lets other threads of Python run meanwhile: for what may wait. At the end as for [`calling`].
pub(crate) fn detached<R: Send>(py: Python<'_>, call: impl FnOnce() -> R + Send) -> R {
    let _call = begin(py);
    py.detach(call)
}

#[inline]
fn begin(py: Python<'_>) -> Call {
    let call = Call::begin();
    // Whoever ends looks at the number of calls after it has said so.
    if ENDS
        .get()
        .is_some_and(|ends| *ends != thread::current().id())
    {
        stop(py);
    }
    call
}

#[cold]
fn stop(py: Python<'_>) -> ! {
    CALLS.fetch_sub(DEPTH.get(), Ordering::SeqCst);
    py.detach(|| {
        loop {
            thread::park();
        }
    })
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
