//! Hooks for a schedule explorer. They are for tests, not for applications.
//!
//! With the feature `explore`, the locks of this crate, and those of [`sync`], call these hooks, so that an explorer such as
//! `cuda_sim::explore` can decide which thread runs. The feature has no other effect, but makes locks
//! slower.

use crate::sync as locks;
use std::panic::Location;

/// Locks that call the hooks, for crates whose locks the explorer must see too.
///
/// Such a crate has a feature that enables the feature `explore` of this crate. With the feature it uses
/// these types, and without it those of [`std::sync`].
pub mod sync {
    pub use crate::sync::{Mutex, MutexGuard};
}

/// Sets the hooks for the process. Later calls change nothing.
///
/// - `is_explored` returns whether the explorer controls the calling thread. The other hooks are called
///   only on such threads.
/// - `point` is called before a lock is taken. It lets other threads run.
/// - `wait` is called when another thread holds the lock. It blocks until the condition holds.
/// - `yield_now` is called when a thread repeats an attempt. It lets other threads run first.
///
/// The last three hooks receive the source location of the operation.
///
/// `cuda_sim::explore` provides these functions: `is_explored`, `point_at`, `wait_at` and `yield_at`.
#[inline]
pub fn set_hooks(
    is_explored: fn() -> bool,
    point: fn(&'static Location<'static>),
    wait: fn(&'static Location<'static>, &mut (dyn FnMut() -> bool + Send)),
    yield_now: fn(&'static Location<'static>),
) {
    locks::set_hooks(is_explored, point, wait, yield_now);
}
