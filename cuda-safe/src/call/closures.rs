//! Closures that the driver calls until they are unregistered.
//!
//! The driver receives a number instead of a pointer. A callback that still runs, or begins, while another
//! thread unregisters it finds the closure in a table or finds nothing, so it never uses freed memory.

use crate::sync::RwLock;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr::without_provenance_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};

/// The registered closures of one kind, by number.
pub(crate) struct Closures<F: ?Sized> {
    by_number: RwLock<BTreeMap<usize, Arc<F>>>,
}

static LAST: AtomicUsize = AtomicUsize::new(0);

impl<F: ?Sized + Send + Sync> Closures<F> {
    pub(crate) const fn new() -> Self {
        Self { by_number: RwLock::new(BTreeMap::new()) }
    }

    /// Adds a closure and returns its number.
    pub(crate) fn insert(&self, closure: Arc<F>) -> usize {
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        let mut all = self.by_number.write().unwrap_or_else(PoisonError::into_inner);
        all.insert(number, closure);
        number
    }

    /// Returns the closure of a number. The lock is released, so the closure may unregister itself.
    pub(crate) fn get(&self, data: *mut c_void) -> Option<Arc<F>> {
        let all = self.by_number.read().unwrap_or_else(PoisonError::into_inner);
        all.get(&data.addr()).map(Arc::clone)
    }

    /// Removes a closure and returns it. A callback that runs it has a reference, too.
    ///
    /// The drop of a closure may panic, so the caller drops it last.
    pub(crate) fn remove(&self, number: usize) -> Option<Arc<F>> {
        let mut all = self.by_number.write().unwrap_or_else(PoisonError::into_inner);
        all.remove(&number)
    }
}

/// Returns the argument that the driver passes to a callback.
#[inline]
pub(crate) fn argument(number: usize) -> *mut c_void {
    without_provenance_mut(number)
}
