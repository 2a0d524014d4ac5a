//! The locks and atomics of this crate. Tests replace them with instrumented versions (feature
//! `explore`).

#[cfg(feature = "explore")]
pub mod explore;
#[cfg(feature = "explore")]
mod explored;

#[cfg(feature = "explore")]
pub(crate) use explored::{Condvar, atomic, yield_now};
#[cfg(feature = "explore")]
pub use explored::{Mutex, MutexGuard};
#[cfg(not(feature = "explore"))]
pub(crate) use std::sync::atomic;
#[cfg(not(feature = "explore"))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(feature = "explore"))]
pub(crate) use std::thread::yield_now;

use std::sync::PoisonError;

/// Takes a lock, also after a panic of a thread that held it.
#[track_caller]
#[inline]
pub(crate) fn lock<T: Send>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
