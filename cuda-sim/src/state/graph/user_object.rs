//! User objects: destructors that graphs keep references to.

use crate::account::misuse;
use crate::exec::{Callback, HostFunction};
use crate::state::World;
use cuda_sys::{CUhostFn, CUresult};
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug)]
pub(crate) struct UserObject {
    /// The address of the data, which was exposed.
    pub(crate) data: usize,
    pub(crate) destroy: CUhostFn,
    /// Number of references, those of graphs included.
    pub(crate) count: u64,
}

/// The operation of a callback that is not one.
const NONE: u64 = u64::MAX;

impl World {
    pub(crate) fn retain_objects(&mut self, objects: &BTreeMap<usize, u32>) {
        for (object, count) in objects {
            if let Some(its) = self.objects.user_objects.get_mut(*object) {
                its.count += u64::from(*count);
            }
        }
    }

    /// Releases references of a graph. With `after`, destructors run on the driver's thread after these
    /// operations; otherwise they run in this call (measured).
    pub(crate) fn release_objects(&mut self, objects: BTreeMap<usize, u32>, after: Option<&[u64]>) {
        for (object, count) in objects {
            self.release_object(object, count, after);
        }
    }

    /// Releases references. A real driver does not check their number (measured).
    pub(crate) fn release_object(&mut self, object: usize, count: u32, after: Option<&[u64]>) {
        let Some(its) = self.objects.user_objects.get_mut(object) else {
            return;
        };
        if u64::from(count) > its.count {
            misuse("a user object is released more often than it was retained");
        }
        its.count = its.count.saturating_sub(count.into());
        if its.count != 0 {
            return;
        }
        let Some(its) = self.objects.user_objects.remove(object) else {
            return;
        };
        let function = HostFunction::Plain(its.destroy);
        match after {
            Some(after) => self.runs.executor.give_late(function, its.data, after.to_vec()),
            None => self.runs.destructors.push(Callback {
                operation: NONE,
                function,
                result: CUresult::CUDA_SUCCESS,
                data: core::ptr::with_exposed_provenance_mut(its.data),
            }),
        }
    }
}
