//! What [`base`](crate::call) needs of a context.

use super::Context;
use crate::call::{
    ContextHandle, Error, Ownership, Result, answer, call, out, refuse_in_host_function,
};
use crate::capture_state::may_be_open;
use crate::device::Device;
use crate::release::{Handle, Root, destroy, owners, relaxed, release};
use core::ffi::c_void;
use cuda_sys::{CUcontext, CUdevice, CUdeviceptr, CUresult};
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

/// Releases a context in `Drop`. A context and the context object of its memory manager share this
/// value.
pub(super) struct ContextRelease {
    pub(super) raw: Handle<CUcontext>,
    pub(super) device: Device,
    pub(super) origin: Origin,
}

/// The origin of a context, which determines how it is released.
pub(super) enum Origin {
    /// A retained primary context. It is released once.
    Primary,
    /// Any other context. It is destroyed if this crate owns it.
    Other(#[allow(dead_code, reason = "a foreign owner is held, not read")] Ownership),
    /// A context in a graphics client. It is destroyed. The caller has promised to keep the client
    /// alive.
    Client,
}

impl Drop for ContextRelease {
    #[inline]
    fn drop(&mut self) {
        let (own, client) = (Root { is_borrowed: false }, Root { is_borrowed: true });
        match &self.origin {
            Origin::Primary => release(RetainOfPrimary(self.device.as_raw()), &own),
            Origin::Other(Ownership::Owned) => release(self.raw, &own),
            Origin::Client => release(self.raw, &client),
            Origin::Other(Ownership::Foreign(_) | Ownership::Borrowed) => {}
        }
    }
}

destroy! {
    Handle<CUcontext> as "a context";
    // SAFETY: the handle stands for the context, and the caller promises that this is the first
    // call. Every object that lives in the context keeps it alive, so none is left.
    |its| unsafe { answer!(cuCtxDestroy_v2(its.0)) }
}

/// One retain of a device's primary context.
struct RetainOfPrimary(CUdevice);

destroy! {
    RetainOfPrimary as "a primary context";
    // SAFETY: this value stands for one retain, and the caller promises that this is the first call.
    // Every object that lives in the context keeps a retain.
    |its| unsafe { answer!(cuDevicePrimaryCtxRelease_v2(its.0)) }
}

/// Device memory from `cuMemAlloc` or `cuMemAllocManaged`.
pub(crate) struct SyncMemory(pub(crate) CUdeviceptr);

destroy! {
    SyncMemory as "device memory", after Uses;
    // SAFETY: this value stands for the memory, and the caller promises that this is the first call.
    // The events and streams of its uses were waited for, and the driver waits for all other work.
    |its| unsafe { answer!(cuMemFree_v2(its.0)) }
}

/// Page-locked host memory from `cuMemHostAlloc`.
pub(crate) struct PinnedMemory(pub(crate) Handle<*mut c_void>);

destroy! {
    PinnedMemory as "pinned memory", after Uses;
    // SAFETY: this value stands for the memory, and the caller promises that this is the first call.
    // Safe copies of the memory are complete when they return, the events and streams of its uses
    // by address were waited for, and the driver waits for all other work.
    |its| unsafe { answer!(cuMemFreeHost(its.0.0)) }
}

impl Context {
    /// Returns the address on the device of mapped memory of this context.
    #[inline]
    pub(crate) fn device_address(&self, start: *mut c_void) -> Result<CUdeviceptr> {
        let _current = self.enter()?;
        // SAFETY: `out` passes a valid pointer. The driver only looks the other one up, as a number.
        out(|place| unsafe { call!(cuMemHostGetDevicePointer_v2(place, start, 0)) })
    }
}
