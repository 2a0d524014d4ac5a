//! The places where a thread must not block: host functions, driver callbacks, the report hook and the
//! closures that receive the driver's log.

use crate::call::error::{Error, Result};
use std::cell::Cell;

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
    if in_host_function() {
        return Err(Error::InHostFunction);
    }
    Ok(())
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
