//! Mappings that are unmapped after all work of contexts.

use super::mapping::Mapping;
use crate::call::{Answer, count_leak};
use crate::context::Context;
use crate::release::{Keep, destroy, release};
use crate::sync::Mutex;
use cuda_sys::CUresult;
use std::sync::PoisonError;

/// Unmaps memory after all work of `contexts`. A [manager](crate::manager) of virtual memory calls it when it
/// is dropped.
///
/// Waits for the work (`cuCtxSynchronize`) and then drops the mappings (`cuMemUnmap`). In a host function and
/// in other callbacks of the driver, where that is not possible, this is
/// [deferred](crate::reference::releases). If the driver does not say that the work is complete, the mappings
/// are leaked and reported.
///
/// Since CUDA 10.2. Raw: [`cuMemUnmap`](fn@cuda_sys::cuMemUnmap).
#[doc(alias = "cuMemUnmap")]
#[inline]
pub fn unmap_after_work(mut contexts: Vec<Context>, mappings: Vec<Mapping>) {
    contexts.dedup();
    match contexts.pop() {
        Some(first) if !mappings.is_empty() => {
            let mappings = Mutex::new(mappings);
            release(AfterContexts { contexts, mappings }, &first);
        }
        _ => drop(mappings),
    }
}

/// Mappings that are dropped after the work of the owner and of further contexts.
struct AfterContexts {
    /// The contexts whose work is waited for next.
    contexts: Vec<Context>,
    mappings: Mutex<Vec<Mapping>>,
}

impl AfterContexts {
    #[inline]
    fn take(&self) -> Vec<Mapping> {
        let mut mappings = self.mappings.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *mappings)
    }
}

destroy! {
    AfterContexts as "virtual memory", after AllWork, leaves Object;
    // The work of the owner is complete.
    |_its| Answer { call: "cuMemUnmap", code: CUresult::CUDA_SUCCESS };

    #[inline]
    fn has_been_destroyed(&mut self) {
        unmap_after_work(std::mem::take(&mut self.contexts), self.take());
    }

    #[inline]
    fn has_leaked(&self, _: &dyn Keep) {
        let mappings = self.take();
        // The release itself is counted for one mapping: the others, the memory, and the addresses.
        (0..2 * mappings.len()).for_each(|_| count_leak());
        std::mem::forget(mappings);
    }
}
