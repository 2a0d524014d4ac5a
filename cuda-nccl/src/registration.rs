//! What is registered with a communicator, as NCCL knows it.

use crate::call::nccl;
use crate::error::Result;
use crate::sys::{ncclComm_t, ncclWindow_t};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::fmt;

/// What is registered with a communicator.
#[derive(Default)]
pub(crate) struct Registrations {
    handles: BTreeMap<u64, Registration>,
    last: u64,
}

/// A registration, as NCCL knows it.
#[derive(Clone, Copy)]
pub(crate) enum Registration {
    Buffer(*mut c_void),
    Window(ncclWindow_t),
}

impl fmt::Debug for Registrations {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registrations").field("count", &self.handles.len()).finish()
    }
}

impl Registrations {
    /// Adds a registration, and returns its key.
    #[inline]
    pub(crate) fn insert(&mut self, registration: Registration) -> u64 {
        self.last += 1;
        self.handles.insert(self.last, registration);
        self.last
    }

    /// Returns a registration that has not ended.
    #[inline]
    pub(crate) fn get(&self, key: u64) -> Option<Registration> {
        self.handles.get(&key).copied()
    }

    #[inline]
    pub(crate) fn remove(&mut self, key: u64) {
        self.handles.remove(&key);
    }

    /// Forgets all registrations.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.handles.clear();
    }

    /// Ends all registrations. Those whose end fails stay.
    ///
    /// # Safety
    /// The communicator is alive, no work uses the registrations, and the primary context is current.
    #[inline]
    pub(crate) unsafe fn end(&mut self, comm: ncclComm_t) {
        self.handles.retain(|_, registration| {
            // SAFETY: the caller's promise.
            unsafe { registration.end(comm) }.is_err()
        });
    }
}

impl Registration {
    /// Ends the registration with the function that fits its kind.
    ///
    /// # Safety
    /// The communicator is alive, no work uses the registration, and the primary context is current.
    #[inline]
    pub(crate) unsafe fn end(self, comm: ncclComm_t) -> Result<()> {
        match self {
            // SAFETY: the caller's promise. The function fits the kind of registration.
            Self::Buffer(handle) => unsafe { nccl!(ncclCommDeregister(comm, handle)) },
            // SAFETY: as above.
            Self::Window(window) => unsafe { nccl!(ncclCommWindowDeregister(comm, window)) },
        }
        .map(|_| ())
    }
}
