//! Events of other processes.

use super::Event;
use crate::call::{answer, call, without_current};
use crate::context::Context;
use crate::error::Result;
use crate::release;
use core::ffi::c_char;
use cuda_sys::CUipcEventHandle;
use std::fmt;

/// `CUipcEventHandle`: what another process of the machine needs to use an event. 64 bytes, which go
/// there by whatever way the processes have.
///
/// ```no_run
/// use cuda_safe::{Context, Device, EventIpcHandle, EventOptions};
///
/// # fn send(_: &[u8; 64]) {}
/// # fn receive() -> [u8; 64] { [0; 64] }
/// // In one process:
/// let context = Context::primary(&Device::get(0)?)?;
/// let options = EventOptions { interprocess: true, ..Default::default() };
/// let event = context.event_with(options)?;
/// event.record(&context.stream()?)?;
/// send(event.ipc_handle()?.as_bytes());
///
/// // In another one:
/// let handle = EventIpcHandle::from_bytes(receive());
/// // SAFETY: the bytes are of a handle, and the first process keeps the event until this one is done.
/// let event = unsafe { context.open_event(&handle) }?;
/// event.synchronize()?;
/// # Ok::<_, cuda_safe::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct EventIpcHandle([u8; 64]);

impl EventIpcHandle {
    /// A handle that came as bytes; whether it is one shows when it is opened.
    pub fn from_bytes(bytes: [u8; 64]) -> Self {
        Self(bytes)
    }

    /// The bytes to send.
    pub fn as_bytes(&self) -> &[u8; 64] {
        &self.0
    }
}

impl fmt::Debug for EventIpcHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventIpcHandle").finish_non_exhaustive()
    }
}

impl Event {
    /// `cuIpcGetEventHandle(&handle, event)`: for other processes of the machine.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_HANDLE` for an event without
    /// [`interprocess`](crate::EventOptions::interprocess); `CUDA_ERROR_NOT_SUPPORTED` on devices
    /// without [`IPC_EVENT_SUPPORTED`](crate::attribute::IPC_EVENT_SUPPORTED), and on the software
    /// driver.
    ///
    /// Since CUDA 4.1. Raw: [`cuIpcGetEventHandle`](fn@cuda_sys::cuIpcGetEventHandle).
    #[doc(alias = "cuIpcGetEventHandle")]
    pub fn ipc_handle(&self) -> Result<EventIpcHandle> {
        let mut handle = CUipcEventHandle::default();
        let place = &raw mut handle;
        without_current(self.context(), || {
            // SAFETY: the event is alive, and the pointer is to a local.
            unsafe { answer!(cuIpcGetEventHandle(place, self.raw())) }
        })?;
        // C's char is signed on some targets.
        Ok(EventIpcHandle(handle.reserved.map(|byte| {
            let [byte] = byte.to_ne_bytes();
            byte
        })))
    }
}

impl Context {
    /// `cuIpcOpenEventHandle(&event, handle)`: another process's event, to be recorded on streams of
    /// this context, waited for and asked about.
    ///
    /// # Errors
    /// What the driver has against the handle; `CUDA_ERROR_NOT_SUPPORTED`, as for
    /// [`ipc_handle`](Event::ipc_handle).
    ///
    /// # Safety
    /// The bytes are those of a handle that another process of this machine got from its driver, for
    /// an event of the same device; that process keeps the event until the one opened here is gone.
    ///
    /// Since CUDA 4.1. Raw: [`cuIpcOpenEventHandle`](fn@cuda_sys::cuIpcOpenEventHandle).
    #[doc(alias = "cuIpcOpenEventHandle")]
    pub unsafe fn open_event(&self, handle: &EventIpcHandle) -> Result<Event> {
        release::drain();
        let mut raw = std::ptr::null_mut();
        let handle = CUipcEventHandle {
            reserved: handle.0.map(|byte| c_char::from_ne_bytes([byte])),
        };
        let _current = self.enter()?;
        // SAFETY: the pointer is to a local, and the current context is this one; for the handle
        // the caller's promise.
        unsafe { call!(cuIpcOpenEventHandle(&raw mut raw, handle)) }?;
        Ok(Event::own(raw, self))
    }
}
