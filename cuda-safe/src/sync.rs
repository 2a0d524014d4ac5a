//! The locks of this crate, by one name: so that a test can put its own in their place.

pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, RwLock};
