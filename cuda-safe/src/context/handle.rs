//! What [`base`](crate::call) needs of a context.

use super::{Context, PinnedMemory, SyncMemory};
use crate::call::{ContextHandle, Error, Result, call, out, refuse_in_host_function};
use crate::capture_state::may_be_open;
use crate::release::{Handle, owners, relaxed, release};
use cuda_sys::{CUcontext, CUresult};
use std::sync::Arc;

impl ContextHandle for Context {
    #[inline]
    fn raw(&self) -> CUcontext {
        self.as_raw()
    }

    /// Neither the extension of the context nor its cached events are leaked, because they are not on a
    /// context stack.
    #[cold]
    #[inline]
    fn never_destroy(&self) {
        std::mem::forget(Arc::clone(&self.inner.release));
    }

    #[inline]
    fn wait_for_all_work(&self) -> Result<()> {
        // A wait for the context invalidates its captures, also in the relaxed mode (measured with driver
        // 580).
        if !may_be_open() {
            return self.wait_for_work();
        }
        refuse_in_host_function()?;
        let _current = self.enter()?;
        relaxed(|| match allocate_and_free_a_byte(self) {
            // The caller may be waiting because there is not enough memory.
            Err(error) if is_out_of_memory(&error) => allocate_and_free_a_host_byte(self),
            done => done,
        })
    }
}

owners! {
    Context |its| {
        context: Some(its),
        is_borrowed: its.depends_on_borrowed(),
    }
}

#[inline]
fn is_out_of_memory(error: &Error) -> bool {
    error.code() == Some(CUresult::CUDA_ERROR_OUT_OF_MEMORY)
}

/// Allocates and frees one byte. The driver waits for all work before it frees. The context must be
/// current.
#[inline]
fn allocate_and_free_a_byte(context: &Context) -> Result<()> {
    // SAFETY: `out` passes a valid pointer, and the context is current.
    let address = out(|place| unsafe { call!(cuMemAlloc_v2(place, 1)) })?;
    // SAFETY: the memory was just allocated, and nothing uses it.
    let freed = unsafe { call!(cuMemFree_v2(address)) };
    freed.inspect_err(|_| release(SyncMemory(address), context))
}

/// Allocates and frees one byte of page-locked memory, like [`allocate_and_free_a_byte`].
#[inline]
fn allocate_and_free_a_host_byte(context: &Context) -> Result<()> {
    // SAFETY: `out` passes a valid pointer, and the context is current.
    let start = out(|place| unsafe { call!(cuMemHostAlloc(place, 1, 0)) })?;
    // SAFETY: the memory was just allocated, and nothing uses it.
    let freed = unsafe { call!(cuMemFreeHost(start)) };
    freed.inspect_err(|_| release(PinnedMemory(Handle(start)), context))
}
