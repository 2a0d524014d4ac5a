//! What nobody waits for: failures in `Drop`, told through one hook.

use crate::error::Error;
use crate::fork;
use crate::sync::RwLock;
use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

/// Something that went wrong where no `Result` could be returned.
#[derive(Debug)]
#[non_exhaustive]
pub enum Report {
    /// An object of the driver was not released, and stays until the process ends.
    #[non_exhaustive]
    Leaked {
        /// What it is.
        what: &'static str,
        /// Why.
        error: Error,
    },
    /// A guard found another current context than the one that it had made current, and popped
    /// nothing.
    #[non_exhaustive]
    ContextStack {
        /// [`Invalid::ContextStack`](crate::Invalid::ContextStack) or
        /// [`Invalid::GuardOrder`](crate::Invalid::GuardOrder), or why it could not look.
        error: Error,
    },
    /// A stream could not be taken out of a capture that ended in `drop` or with an error: work
    /// given to it is still recorded.
    #[non_exhaustive]
    Capture {
        /// Why.
        error: Error,
    },
    /// A thread is left in another capture mode than its own.
    #[non_exhaustive]
    CaptureMode {
        /// Why its mode could not be put back.
        error: Error,
    },
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leaked { what, error } => write!(f, "{what} was not released: {error}"),
            Self::ContextStack { error } => error.fmt(f),
            Self::Capture { error } => write!(f, "the stream is still captured: {error}"),
            Self::CaptureMode { error } => {
                write!(
                    f,
                    "the thread's capture mode could not be put back: {error}"
                )
            }
        }
    }
}

type Hook = Arc<dyn Fn(&Report) + Send + Sync>;

static HOOK: RwLock<Option<Hook>> = RwLock::new(None);
static LEAKED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Whether this thread runs the hook.
    static IN_HOOK: Cell<bool> = const { Cell::new(false) };
}

/// Sets the function that hears of failures in `Drop`; the one before is replaced. Without one,
/// they are only counted.
///
/// It may be called on any thread, in the middle of a `drop`; a panic in it is swallowed. Memory of a
/// [manager](crate::manager), which may be in the middle of something, is not allocated in it. What fails
/// while it runs, on its thread, is only counted, and so is what fails in a forked child.
///
/// ```
/// cuda_safe::set_report_hook(|report| eprintln!("cuda: {report}"));
/// ```
pub fn set_report_hook(hook: impl Fn(&Report) + Send + Sync + 'static) {
    let hook: Hook = Arc::new(hook);
    let mut current = HOOK.write().unwrap_or_else(PoisonError::into_inner);
    let before = current.replace(hook);
    // What a hook owns may report when it is dropped: not under the lock.
    drop(current);
    drop(before);
}

/// How many objects of the driver this process has leaked, by design or for want of a way to
/// release them; and host functions that the driver may have, or not.
pub fn leaked() -> u64 {
    LEAKED.load(Ordering::Relaxed)
}

/// Whether this thread runs the hook: in the middle of anything.
pub(crate) fn in_hook() -> bool {
    IN_HOOK.try_with(Cell::get).unwrap_or(false)
}

/// What somebody panicked with.
pub(crate) fn words_of(payload: Box<dyn Any + Send>) -> String {
    let text = payload
        .downcast::<String>()
        .map(|text| *text)
        .or_else(|other| other.downcast::<&str>().map(|text| (*text).to_owned()));
    text.unwrap_or_else(|other| {
        // It may panic once more when it is dropped.
        std::mem::forget(other);
        "something that is no text".to_owned()
    })
}

/// Counts a leak that is by design, or one of the many after a fatal error.
pub(crate) fn count_leak() {
    LEAKED.fetch_add(1, Ordering::Relaxed);
}

pub(crate) fn report(report: &Report) {
    if matches!(report, Report::Leaked { .. }) {
        count_leak();
    }
    // A forked child has the lock of a moment in another process, and may do little.
    if fork::in_child() {
        return;
    }
    // A hook that reports would be called again without an end.
    if IN_HOOK.try_with(|inside| inside.replace(true)) != Ok(false) {
        return;
    }
    let hook = HOOK
        .read()
        .unwrap_or_else(PoisonError::into_inner)
        .as_ref()
        .map(Arc::clone);
    if let Some(hook) = hook {
        // A drop must not panic, least of all while another panic unwinds; nor may that of the hook,
        // whose last holder this is if another took its place meanwhile: so it ends in here.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(move || hook(report))) {
            // Nor may what it panicked with, when that is dropped.
            std::mem::forget(payload);
        }
    }
    let _ = IN_HOOK.try_with(|inside| inside.set(false));
}
