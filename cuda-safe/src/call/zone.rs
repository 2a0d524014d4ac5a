//! The places where a thread must not block: host functions, driver callbacks, the report hook and the
//! closures that receive the driver's log. Also what such code needs: panics that are kept for the caller, and
//! closures by number.

use crate::call::error::{Error, Result};
use crate::call::report::panic_message;
use crate::sync::{Mutex, lock};
use std::any::Any;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr::without_provenance_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

thread_local! {
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
    static IN_REPORT_HOOK: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether this thread runs a host function of this crate, where no driver call is allowed.
#[inline]
pub(crate) fn in_host_function() -> bool {
    // While a thread exits, the value may already be destroyed.
    IN_HOST_FUNCTION.try_with(Cell::get).unwrap_or(false)
}

/// Returns an error in a host function, where waiting is not allowed: a wait for its own stream would
/// never end.
#[inline]
pub(crate) fn refuse_in_host_function() -> Result<()> {
    if in_host_function() { Err(Error::InHostFunction) } else { Ok(()) }
}

/// Runs a host function, which must not unwind.
pub(crate) fn run_host_function(function: impl FnOnce()) {
    let before = IN_HOST_FUNCTION.try_with(|inside| inside.replace(true));
    function();
    if let Ok(before) = before {
        let _ = IN_HOST_FUNCTION.try_with(|inside| inside.set(before));
    }
}

/// Returns whether this thread runs the report hook or the closure of a log callback, which can be inside
/// any operation of this crate.
#[inline]
pub(crate) fn in_report_hook() -> bool {
    IN_REPORT_HOOK.try_with(Cell::get).unwrap_or(false)
}

/// Runs the report hook or the closure of a log callback, which must not unwind, unless this thread already runs it: a hook that causes a
/// report could recurse without end.
pub(crate) fn run_report_hook(hook: impl FnOnce()) {
    if IN_REPORT_HOOK.try_with(|inside| inside.replace(true)) != Ok(false) {
        return;
    }
    hook();
    let _ = IN_REPORT_HOOK.try_with(|inside| inside.set(false));
}

/// The message of a panic in a host function of a stream, until a synchronization returns it.
#[derive(Debug, Default)]
pub(crate) struct HostPanic(Mutex<Option<String>>);

impl HostPanic {
    /// Takes the panic that has not been returned yet, as an error.
    #[inline]
    pub(crate) fn take(&self) -> Result<()> {
        let message = lock(&self.0).take();
        message.map_or(Ok(()), |message| Err(Error::HostFunctionPanicked(message)))
    }

    #[inline]
    pub(crate) fn keep_first(&self, payload: Box<dyn Any + Send>) {
        let message = panic_message(payload);
        let mut first = lock(&self.0);
        first.get_or_insert(message);
    }
}

/// The registered closures of one kind, by number.
///
/// The driver receives the number instead of a pointer. A callback that still runs, or begins, while
/// another thread unregisters it finds the closure here or finds nothing, so it never uses freed memory.
pub(crate) struct Closures<F: ?Sized> {
    by_number: Mutex<BTreeMap<usize, Arc<F>>>,
}

static LAST: AtomicUsize = AtomicUsize::new(0);

impl<F: ?Sized + Send + Sync> Closures<F> {
    pub(crate) const fn new() -> Self {
        Self { by_number: Mutex::new(BTreeMap::new()) }
    }

    /// Adds a closure and returns its number.
    pub(crate) fn insert(&self, closure: Arc<F>) -> usize {
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        let mut all = lock(&self.by_number);
        all.insert(number, closure);
        number
    }

    /// Returns the closure of a number. The lock is released, so the closure may unregister itself.
    pub(crate) fn get(&self, data: *mut c_void) -> Option<Arc<F>> {
        let all = lock(&self.by_number);
        all.get(&data.addr()).map(Arc::clone)
    }

    /// Removes a closure and returns it. A callback that runs it has a reference, too.
    ///
    /// The drop of a closure may panic, so the caller drops it last.
    pub(crate) fn remove(&self, number: usize) -> Option<Arc<F>> {
        let mut all = lock(&self.by_number);
        all.remove(&number)
    }
}

/// Returns the argument that the driver passes to a callback.
#[inline]
pub(crate) fn argument(number: usize) -> *mut c_void {
    without_provenance_mut(number)
}
