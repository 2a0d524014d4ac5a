//! The report hook: failures that occur in `Drop`, where no caller receives an error.

use crate::call::error::Error;
use crate::call::fork;
use crate::call::zone::run_report_hook;
use crate::sync::{Mutex, lock};
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A failure in a place that cannot return a `Result`, such as `Drop`.
///
/// The function set with [`set_report_hook`] receives it.
#[derive(Debug)]
#[non_exhaustive]
pub enum Report {
    /// A driver object was not released and stays allocated until the process ends.
    #[non_exhaustive]
    Leaked {
        /// The kind of object.
        what: &'static str,
        /// The reason.
        error: Error,
    },
    /// A guard found a different current context than the one that it had made current, or a thread
    /// ended with other contexts on top of the [bound](crate::Context::bind_to_thread) ones. Nothing
    /// was popped.
    #[non_exhaustive]
    ContextStack {
        /// [`Invalid::ContextStack`](crate::Invalid::ContextStack) or
        /// [`Invalid::GuardOrder`](crate::Invalid::GuardOrder), or the error of the query.
        error: Error,
    },
    /// A capture that was dropped or that failed could not be ended. Work that is enqueued in its
    /// stream is still captured.
    #[non_exhaustive]
    Capture {
        /// The reason.
        error: Error,
    },
    /// A guard that was dropped could not end what it had begun: profiling, or settings of core dumps.
    #[non_exhaustive]
    Guard {
        /// What still applies.
        what: &'static str,
        /// The reason.
        error: Error,
    },
    /// The capture mode of a thread was changed and could not be restored.
    #[non_exhaustive]
    CaptureMode {
        /// The reason.
        error: Error,
    },
}

impl fmt::Display for Report {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leaked { what, error } => write!(f, "{what} was not released: {error}"),
            Self::ContextStack { error } => error.fmt(f),
            Self::Capture { error } => write!(f, "the stream is still captured: {error}"),
            Self::Guard { what, error } => write!(f, "{what} could not be ended: {error}"),
            Self::CaptureMode { error } => {
                write!(f, "the capture mode of the thread could not be restored: {error}")
            }
        }
    }
}

type Hook = Arc<dyn Fn(&Report) + Send + Sync>;

static HOOK: Mutex<Option<Hook>> = Mutex::new(None);
static LEAKED: AtomicU64 = AtomicU64::new(0);

/// Sets the function that receives failures in `Drop`, and replaces the previous one. Without a hook,
/// leaks are only counted.
///
/// The hook can be called on any thread, inside any `drop`. A panic in the hook is ignored. The hook
/// must not allocate memory of a [manager](crate::manager), because the manager may be inside an
/// operation. Failures on the thread of the hook while it runs are not reported, and neither are
/// failures in a forked child. Leaks are counted in both cases.
///
/// ```
/// cuda_safe::set_report_hook(|report| eprintln!("cuda: {report}"));
/// ```
pub fn set_report_hook(hook: impl Fn(&Report) + Send + Sync + 'static) {
    let hook: Hook = Arc::new(hook);
    let mut current = lock(&HOOK);
    let before = current.replace(hook);
    // The lock is released first: values that the old hook owns may report when they are dropped.
    drop(current);
    drop(before);
}

/// Returns the number of driver objects that this process has leaked, by design or because they could
/// not be released. Host functions also count if it is unknown whether the driver accepted them.
#[inline]
pub fn leaked() -> u64 {
    LEAKED.load(Ordering::Relaxed)
}

/// The hook of [`set_freed_hook`].
#[cfg(feature = "freed-hook")]
static FREED: std::sync::OnceLock<fn(*const core::ffi::c_void)> = std::sync::OnceLock::new();

/// Sets the function that is called before a host function of a graph is freed, with the address that the
/// driver passes to it. Later calls change nothing. For tests, not for applications.
///
/// `cuda_sim::data_freed` reports a misuse if work that is enqueued uses the function.
#[cfg(feature = "freed-hook")]
#[inline]
pub fn set_freed_hook(freed: fn(*const core::ffi::c_void)) {
    // A second call changes nothing.
    let _ = FREED.set(freed);
}

/// Calls the hook of [`set_freed_hook`].
#[cfg(feature = "freed-hook")]
#[inline]
pub(crate) fn freed(data: *const core::ffi::c_void) {
    if let Some(freed) = FREED.get() {
        freed(data);
    }
}

/// Returns the message of a panic payload.
#[inline]
pub(crate) fn panic_message(payload: Box<dyn Any + Send>) -> String {
    let text = payload
        .downcast::<String>()
        .map(|text| *text)
        .or_else(|other| other.downcast::<&str>().map(|text| (*text).to_owned()));
    text.unwrap_or_else(|other| {
        // The payload may panic again when it is dropped.
        std::mem::forget(other);
        "a payload that is not a string".to_owned()
    })
}

/// Counts a leak without a report: a leak by design, or one of the many leaks after a fatal error.
#[inline]
pub(crate) fn count_leak() {
    LEAKED.fetch_add(1, Ordering::Relaxed);
}

#[inline]
pub(crate) fn report(report: &Report) {
    if matches!(report, Report::Leaked { .. }) {
        count_leak();
    }
    // In a forked child the lock has the state of the parent at the time of the fork, and only few
    // operations are safe.
    if fork::in_child() {
        return;
    }
    run_report_hook(|| call_hook(report));
}

#[inline]
fn call_hook(report: &Report) {
    let hook = lock(&HOOK).as_ref().map(Arc::clone);
    if let Some(hook) = hook {
        // A drop must not panic, especially not while another panic unwinds. The hook itself is also
        // dropped inside the closure: this may be the last reference, if another hook was set meanwhile.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(move || hook(report))) {
            // The drop of the payload could panic, too.
            std::mem::forget(payload);
        }
    }
}
