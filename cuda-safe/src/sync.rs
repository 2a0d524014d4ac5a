//! The locks of this crate, by one name: so that a test can put its own in their place.

#[cfg(feature = "explore")]
mod explored;

#[cfg(feature = "explore")]
pub(crate) use explored::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, set_hooks};
#[cfg(not(feature = "explore"))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard};
