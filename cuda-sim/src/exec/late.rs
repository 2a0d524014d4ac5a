//! Late callbacks: destructors of user objects on the driver's thread. They run some time after the work
//! that they follow, and no call waits for them (measured).

use super::{Callback, Executor, HostFunction, Work, random};
use crate::thread;
use cuda_sys::CUresult;

impl Executor {
    /// Enqueues a callback that runs at some time after `after`.
    pub(crate) fn give_late(&mut self, function: HostFunction, data: usize, after: Vec<u64>) {
        let data = core::ptr::with_exposed_provenance_mut(data);
        self.late.insert(self.next_operation());
        self.give_aside(Work::HostFn { function, data }, after);
    }

    /// Returns a late callback that could run before this call. The seed decides whether it did.
    pub(crate) fn overdue(&mut self) -> Option<Callback> {
        let id = self.ready.late.first().copied()?;
        if random(&mut self.random, 2) == 0 {
            return None;
        }
        let operation = self.operations.get(&id)?;
        let Work::HostFn { function, data } = &operation.work else {
            return None;
        };
        let (stream, function, data) = (operation.stream, *function, *data);
        self.begin(stream);
        if let Some(order) = &mut self.order {
            order.begin_host_function(id);
        }
        self.running.insert(id, thread::id());
        Some(Callback { operation: id, function, result: CUresult::CUDA_SUCCESS, data })
    }
}
