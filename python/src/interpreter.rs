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
//!
//! Other code calls this package with or without the GIL: DLPack deleters, allocators, callbacks of the
//! driver. pyo3 trusts its own count of the calls on a thread. But code that this package has called may
//! have released the GIL since, and then calls the package again. [`attached`] therefore asks the
//! interpreter, and this crate attaches in no other way.

use pyo3::{ffi, prelude::*};
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

pub(crate) struct Call;

impl Call {
    /// Returns None during finalization, on all threads except the finalizing one.
    #[inline]
    pub(crate) fn begin() -> Option<Self> {
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

/// The GIL, held by this thread because the interpreter says so.
struct Ensured(ffi::PyGILState_STATE);

impl Ensured {
    /// Waits for the GIL, unless this thread holds it. Returns None without an interpreter.
    fn new(_call: &Call) -> Option<Self> {
        // SAFETY: this function may always be called.
        let is_initialized = unsafe { ffi::Py_IsInitialized() } != 0;
        // During finalization only the finalizing thread may still get the GIL, as long as it has a
        // thread state. This is that thread, because the call has begun.
        // SAFETY: this function may always be called.
        if !is_initialized && unsafe { ffi::PyGILState_GetThisThreadState() }.is_null() {
            return None;
        }
        // SAFETY: there is an interpreter, which is not finalized by another thread before the call
        // ends.
        Some(Self(unsafe { ffi::PyGILState_Ensure() }))
    }
}

impl Drop for Ensured {
    fn drop(&mut self) {
        // SAFETY: the state is that of `PyGILState_Ensure`, on the same thread.
        unsafe { ffi::PyGILState_Release(self.0) }
    }
}

/// Runs code with the GIL, which the caller may hold or not. Returns None without an interpreter, and
/// during finalization on all threads except the finalizing one.
pub(crate) fn attached<R>(run: impl FnOnce(Python<'_>) -> R) -> Option<R> {
    let call = Call::begin()?;
    let _ensured = Ensured::new(&call)?;
    #[expect(clippy::disallowed_methods, reason = "the thread holds the GIL")]
    Python::try_attach(run)
}

/// Runs a release that may block without the GIL, which the caller may hold or not. During
/// finalization it behaves like [`let_go`].
pub(crate) fn without_gil(release: impl FnOnce() + Send) {
    let mut release = Some(release);
    attached(|py| {
        let release = release.take();
        py.detach(|| release.map(|release| release()));
    });
    // SAFETY: this function may always be called.
    if unsafe { ffi::Py_IsInitialized() } == 0 {
        // There is no GIL any more.
        if let Some(release) = release {
            release();
        }
    } else {
        std::mem::forget(release);
    }
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
