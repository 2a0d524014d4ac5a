//! Events of other processes.

use super::Event;
use crate::call::{Ownership, Result, answer, call, debug_struct, out_without_current};
use crate::capture_state::{Kind, State};
use crate::context::Context;
use crate::release::create_in;
use core::ffi::c_char;
use cuda_sys::CUipcEventHandle;

/// A handle with which another process on the same machine opens an event (`CUipcEventHandle`).
/// Returned by [`Event::ipc_handle`].
///
/// It consists of 64 bytes, which the processes may transfer in any way.
///
/// ```no_run
/// use cuda_safe::{Context, Device, EventOptions};
/// use cuda_safe::event::EventIpcHandle;
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
/// // SAFETY: the bytes are a handle, and the first process keeps its event until this one is dropped.
/// let event = unsafe { context.open_event(&handle) }?;
/// event.synchronize()?;
/// # Ok::<_, cuda_safe::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct EventIpcHandle([u8; 64]);

impl EventIpcHandle {
    /// Creates a handle from received bytes. An invalid handle is detected when it is opened.
    #[inline]
    pub fn from_bytes(bytes: [u8; 64]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes to send.
    #[inline]
    pub fn as_bytes(&self) -> &[u8; 64] {
        &self.0
    }
}

debug_struct! { EventIpcHandle |_its| { .. } }

impl Event {
    /// Returns a handle for other processes on the same machine. Calls `cuIpcGetEventHandle`.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_HANDLE` for an event without
    /// [`interprocess`](crate::EventOptions::interprocess); `CUDA_ERROR_NOT_SUPPORTED` on devices
    /// without [`IPC_EVENT_SUPPORTED`](crate::device::attribute::IPC_EVENT_SUPPORTED).
    ///
    /// Since CUDA 4.1. Raw: [`cuIpcGetEventHandle`](fn@cuda_sys::cuIpcGetEventHandle).
    #[doc(alias = "cuIpcGetEventHandle")]
    #[inline]
    pub fn ipc_handle(&self) -> Result<EventIpcHandle> {
        // SAFETY: the event is alive, and `out` passes a valid pointer.
        let handle = out_without_current(self.context(), |place| unsafe {
            answer!(cuIpcGetEventHandle(place, self.raw()))
        })?;
        // C's `char` is signed on some targets.
        Ok(EventIpcHandle(handle.reserved.map(|byte| {
            let [byte] = byte.to_ne_bytes();
            byte
        })))
    }
}

impl Context {
    /// Opens an event of another process, to record it on streams of this context, wait for it and
    /// query it. Calls `cuIpcOpenEventHandle`.
    ///
    /// # Errors
    /// Errors of the driver about the handle; `CUDA_ERROR_NOT_SUPPORTED` on devices without
    /// [`IPC_EVENT_SUPPORTED`](crate::device::attribute::IPC_EVENT_SUPPORTED), and on the software driver for an event of
    /// a real process.
    ///
    /// # Safety
    /// The bytes must be a handle that another process on this machine got from its driver for an event
    /// of the same device. That process must keep its event alive until the event opened here is
    /// destroyed.
    ///
    /// Since CUDA 4.1. Raw: [`cuIpcOpenEventHandle`](fn@cuda_sys::cuIpcOpenEventHandle).
    #[doc(alias = "cuIpcOpenEventHandle")]
    #[inline]
    pub unsafe fn open_event(&self, handle: &EventIpcHandle) -> Result<Event> {
        let handle =
            CUipcEventHandle { reserved: handle.0.map(|byte| c_char::from_ne_bytes([byte])) };
        // SAFETY: `create_in` passes a valid pointer, and this context is current. The caller guarantees that the
        // handle is valid.
        let raw = create_in(self, |place| unsafe { call!(cuIpcOpenEventHandle(place, handle)) })?;
        let state = State::new(Kind::Event);
        Ok(Event::new(raw, Ownership::Owned, None, self.clone(), state))
    }
}
