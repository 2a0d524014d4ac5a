//! Hooks for a schedule explorer. They are for tests, not for applications.
//!
//! With the feature `explore`, the locks of this crate, and those of [`sync`], call these hooks, so that an explorer such as
//! `cuda_sim::explore` can decide which thread runs. The feature has no other effect, but makes locks
//! slower.

pub use super::explored::{set_hooks, yield_now};

/// Locks that call the hooks, for crates whose locks the explorer must see too.
///
/// Such a crate has a feature that enables the feature `explore` of this crate. With the feature it uses
/// these types, and without it those of [`std::sync`].
pub mod sync {
    pub use crate::sync::{Mutex, MutexGuard};
}
