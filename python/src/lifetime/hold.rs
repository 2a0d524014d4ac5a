//! References to Python objects and closable values, whose release may block.

use crate::error::{Failure, Result};
use crate::lifetime::ending::{attached, let_go, without_gil};
use pyo3::prelude::*;
use std::mem::ManuallyDrop;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A Python object that an object of `cuda-safe` keeps alive. It can be released on any thread,
/// with or without the GIL. After the interpreter has been finalized, it is leaked.
pub(crate) struct Owner(ManuallyDrop<Py<PyAny>>);

impl Owner {
    pub(crate) fn new(object: Py<PyAny>) -> Self {
        Self(ManuallyDrop::new(object))
    }

    /// Returns whether both are the same object.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.0.as_ptr() == other.0.as_ptr()
    }

    /// Returns the object.
    pub(crate) fn get<'py>(&self, py: Python<'py>) -> &Bound<'py, PyAny> {
        self.0.bind(py)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // SAFETY: the object is dropped only here.
        attached(|_| unsafe { ManuallyDrop::drop(&mut self.0) });
    }
}

/// A value that can be closed once. It is dropped without the GIL, because that may block.
pub(crate) struct Closable<T: Send> {
    what: &'static str,
    held: Mutex<Option<T>>,
}

impl<T: Send> Closable<T> {
    pub(crate) fn new(what: &'static str, held: T) -> Self {
        Self { what, held: Mutex::new(Some(held)) }
    }

    fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a clone of the value.
    pub(crate) fn get(&self) -> Result<T>
    where
        T: Clone,
    {
        let held = self.lock().as_ref().cloned();
        held.ok_or_else(|| Failure::closed(self.what))
    }

    /// Calls `f` with the value, unless this object was closed.
    pub(crate) fn look<R>(&self, f: impl FnOnce(&T) -> R) -> Result<R> {
        let lock = self.lock();
        let held = lock.as_ref().ok_or_else(|| Failure::closed(self.what))?;
        Ok(f(held))
    }

    /// Takes the value, which closes this object.
    pub(crate) fn take(&self) -> Result<T> {
        let held = self.lock().take();
        held.ok_or_else(|| Failure::closed(self.what))
    }

    /// Puts back a value that was taken and not used.
    pub(crate) fn put_back(&self, held: T) {
        *self.lock() = Some(held);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().is_none()
    }

    /// Drops the value, if this object is still open.
    pub(crate) fn close(&self, py: Python<'_>) {
        let held = self.lock().take();
        let_go(py, move || drop(held));
    }
}

impl<T: Send> Drop for Closable<T> {
    fn drop(&mut self) {
        let held = self.held.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = held.take() {
            without_gil(move || drop(held));
        }
    }
}
