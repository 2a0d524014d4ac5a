//! The conditions of a manager's call: what the manager must not do in it, and what it does with memory
//! that it cannot free.

use crate::call::{Error, Report, count_leak, fork, report, zone};
use crate::release;

/// Returns whether this process was forked from a process that had initialized CUDA.
///
/// The driver does not work in such a process, and a lock may be held forever by a thread that exists
/// only in the parent process. So a manager does not wait for a lock there, and leaks memory instead of
/// freeing it.
#[inline]
pub fn in_forked_child() -> bool {
    fork::in_child()
}

/// Returns whether this thread runs a host function of this crate
/// ([`Stream::launch_host_function`](crate::Stream::launch_host_function)), where a manager must not
/// call the driver. Makes no driver call.
#[inline]
pub fn in_host_function() -> bool {
    zone::in_host_function()
}

/// Returns whether this thread runs the [report hook](crate::set_report_hook) or the closure of a
/// [`LogCallback`](crate::process::logs::LogCallback), which can be called in the middle of any operation, also of
/// the manager itself. Makes no driver call.
#[inline]
pub fn in_report_hook() -> bool {
    zone::in_report_hook()
}

/// Returns whether this thread may wait for another thread or for the device. A wait in a host function,
/// in another callback of the driver or in the report hook might never end.
///
/// May call `cuCtxGetCurrent`, which the driver refuses in its callbacks.
#[inline]
pub fn may_block() -> bool {
    release::may_block()
}

/// Counts an object that cannot be released as [leaked](crate::leaked), and reports it to the
/// [report hook](crate::set_report_hook).
///
/// `what` is the kind of object, such as `"device memory"`, and `error` the reason. Leaks after a
/// [fatal](Error::is_fatal) error and in a forked child are only counted.
#[cold]
#[inline]
pub fn report_leak(what: &'static str, error: Error) {
    if error.is_fatal() {
        return count_leak();
    }
    report(&Report::Leaked { what, error });
}
