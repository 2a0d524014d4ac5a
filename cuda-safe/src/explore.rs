//! Hooks for a schedule explorer: a test facility, not for applications.
//!
//! With the feature `explore` the locks of this crate call these hooks, so that an explorer such as
//! `cuda_sim::explore` decides which thread runs. It changes nothing else, and costs time.

use crate::sync;
use std::panic::Location;

/// Sets the hooks for the process. Later calls change nothing.
///
/// `is_explored` returns whether the explorer runs the calling thread; the other hooks are called
/// only there. `point` lets other threads run: it is called before a lock is taken. `wait` blocks
/// until a condition holds: it is called where the lock is another thread's. `yield_now` is called
/// where a thread repeats an attempt: other threads run first. They get the source location of the
/// operation.
///
/// `cuda_sim::explore` has these functions: `is_explored`, `point_at`, `wait_at` and `yield_at`.
pub fn set_hooks(
    is_explored: fn() -> bool,
    point: fn(&'static Location<'static>),
    wait: fn(&'static Location<'static>, &mut (dyn FnMut() -> bool + Send)),
    yield_now: fn(&'static Location<'static>),
) {
    sync::set_hooks(is_explored, point, wait, yield_now);
}
