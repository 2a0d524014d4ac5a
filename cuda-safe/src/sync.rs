//! The locks and atomics of this crate, by one name: so that a test can put its own in their place.

pub(crate) use std::sync::atomic;
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, RwLock};
pub(crate) use std::thread::yield_now;
