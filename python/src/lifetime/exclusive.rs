//! Values that one call at a time uses, and that can be closed.

use crate::error::{Failure, Result};
use crate::lifetime::ending::{let_go, without_gil};
use pyo3::prelude::*;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// The maximum wait for a call of another thread.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The time between two attempts.
const PAUSE: Duration = Duration::from_micros(20);

/// A value that one call at a time uses.
///
/// The value is taken out for a call, and no lock is held in the meantime: a driver call may release
/// Python objects, whose finalizers may use the same value. Other calls wait, but not forever.
pub(crate) struct Exclusive<T: Send> {
    what: &'static str,
    slot: Mutex<Slot<T>>,
}

enum Slot<T> {
    Idle(T),
    InUse(ThreadId),
    Absent(Absent),
}

/// Why there is no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absent {
    /// It is captured now.
    Awaited,
    /// Its capture has failed.
    Failed,
    Closed,
}

/// A value that is put back when this is dropped.
struct Taken<'a, T: Send> {
    from: &'a Exclusive<T>,
    /// `None` only while this is dropped.
    value: Option<T>,
}

impl<T: Send> Exclusive<T> {
    /// Creates an object whose value is [provided](Self::provide) later.
    pub(crate) const fn awaited(what: &'static str) -> Self {
        let slot = Mutex::new(Slot::Absent(Absent::Awaited));
        Self { what, slot }
    }

    pub(crate) const fn new(what: &'static str, value: T) -> Self {
        let slot = Mutex::new(Slot::Idle(value));
        Self { what, slot }
    }

    fn lock(&self) -> MutexGuard<'_, Slot<T>> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Provides the value that is awaited. If this object was closed, the value is dropped. The caller
    /// does not hold the GIL.
    pub(crate) fn provide(&self, value: T) {
        self.put(value, |slot| matches!(slot, Slot::Absent(Absent::Awaited)));
    }

    fn put(&self, value: T, is_empty: impl FnOnce(&Slot<T>) -> bool) {
        let mut slot = self.lock();
        if is_empty(&slot) {
            *slot = Slot::Idle(value);
            return;
        }
        // Dropped without the lock.
        drop(slot);
        drop(value);
    }

    /// Calls `f` with the value. The caller does not hold the GIL.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> Result<R>) -> Result<R> {
        let value = self.attempt(|slot| {
            let in_use = Slot::InUse(thread::current().id());
            match std::mem::replace(slot, in_use) {
                Slot::Idle(value) => Some(value),
                other => {
                    *slot = other;
                    None
                }
            }
        })?;
        let mut taken = Taken { from: self, value: Some(value) };
        let value = taken.value.as_mut();
        value.map_or_else(|| Err(Failure::closed(self.what)), f)
    }

    /// Returns a clone of the value. The caller does not hold the GIL.
    pub(crate) fn get(&self) -> Result<T>
    where
        T: Clone,
    {
        self.attempt(|slot| match slot {
            Slot::Idle(value) => Some(value.clone()),
            _ => None,
        })
    }

    /// Repeats an attempt as long as a call of another thread uses the value.
    fn attempt<R>(&self, mut attempt: impl FnMut(&mut Slot<T>) -> Option<R>) -> Result<R> {
        let own = thread::current().id();
        wait_for(self.what, || {
            let mut slot = self.lock();
            match *slot {
                Slot::Absent(why) => Err(self.absent(why)),
                Slot::InUse(by) if by == own => Err(Failure::invalid(format!(
                    "the {} is in use by a call of this thread, which has not returned",
                    self.what
                ))),
                Slot::Idle(_) | Slot::InUse(_) => Ok(attempt(&mut slot)),
            }
        })
    }

    #[cold]
    fn absent(&self, why: Absent) -> Failure {
        let what = self.what;
        match why {
            Absent::Closed => Failure::closed(what),
            Absent::Awaited => Failure::invalid(format!(
                "the {what} is being captured: use it after the `with` block"
            )),
            Absent::Failed => Failure::invalid(format!("the capture of the {what} has failed")),
        }
    }

    /// Drops the value without the GIL. If a call uses the value, it drops the value when it returns.
    pub(crate) fn end(&self, py: Python<'_>, why: Absent) {
        let before = {
            let mut slot = self.lock();
            match *slot {
                Slot::Absent(Absent::Failed | Absent::Closed) => return,
                _ => std::mem::replace(&mut *slot, Slot::Absent(why)),
            }
        };
        let_go(py, move || drop(before));
    }

    /// Returns why there is no value.
    pub(crate) fn why_absent(&self) -> Option<Absent> {
        match *self.lock() {
            Slot::Absent(why) => Some(why),
            Slot::Idle(_) | Slot::InUse(_) => None,
        }
    }
}

/// Repeats an attempt until it returns a value, with pauses.
pub(crate) fn wait_for<R>(what: &str, mut attempt: impl FnMut() -> Result<Option<R>>) -> Result<R> {
    let begin = Instant::now();
    loop {
        if let Some(value) = attempt()? {
            return Ok(value);
        }
        if begin.elapsed() > TIMEOUT {
            return Err(Failure::invalid(format!(
                "a call of another thread uses the {what}, and has not returned within {} seconds",
                TIMEOUT.as_secs()
            )));
        }
        thread::sleep(PAUSE);
    }
}

impl<T: Send> Drop for Taken<'_, T> {
    fn drop(&mut self) {
        if let Some(value) = self.value.take() {
            self.from.put(value, |slot| matches!(slot, Slot::InUse(_)));
        }
    }
}

impl<T: Send> Drop for Exclusive<T> {
    fn drop(&mut self) {
        let slot = self.slot.get_mut().unwrap_or_else(PoisonError::into_inner);
        let Slot::Idle(value) = std::mem::replace(slot, Slot::Absent(Absent::Closed)) else {
            return;
        };
        without_gil(move || drop(value));
    }
}
