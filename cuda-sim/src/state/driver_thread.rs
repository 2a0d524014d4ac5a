//! What calls leave to the thread of the driver.

use super::{Answer, World};
use crate::thread;
use std::sync::Condvar;

/// Signaled, while the driver's lock is held, when there may be work for the driver's thread.
pub(crate) static GIVEN: Condvar = Condvar::new();

impl World {
    /// Runs one operation for a query, which does not wait for host functions if the driver's thread can run
    /// them.
    pub(crate) fn poll(&mut self) -> Answer {
        match (self.step(), self.runs.driver_thread) {
            (Err(code), Some(thread)) if code == Self::CALLBACK => {
                if let Some(callback) = self.runs.executor.callback.take() {
                    self.runs.executor.run_on(callback.operation, thread);
                    self.runs.handed.push_back(callback);
                    GIVEN.notify_one();
                }
                Ok(())
            }
            (done, _) => done.map(|_| ()),
        }
    }

    /// Takes back a host function that the driver's thread has not begun, for a call that waits: the thread may
    /// be inside a host function that waits for this call.
    pub(super) fn take_back(&mut self) -> Answer {
        let Some(callback) = self.runs.handed.pop_front() else {
            return Ok(());
        };
        self.runs.executor.run_on(callback.operation, thread::id());
        self.runs.executor.callback = Some(callback);
        Err(Self::CALLBACK)
    }
}
