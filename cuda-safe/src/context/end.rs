//! The release of a context.

use crate::call::{Ownership, answer};
use crate::device::Device;
use crate::release::{Handle, Root, destroy, release};
use cuda_sys::{CUcontext, CUdevice};

/// Releases a context in `Drop`. A context and the context object of its memory manager share this
/// value.
pub(super) struct ContextRelease {
    pub(super) raw: CUcontext,
    pub(super) device: Device,
    pub(super) origin: Origin,
}

// SAFETY: any thread can release a context, and nothing is read through the handle.
unsafe impl Send for ContextRelease {}
// SAFETY: see the argument for `Send`.
unsafe impl Sync for ContextRelease {}

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
            Origin::Other(Ownership::Owned) => release(Handle(self.raw), &own),
            Origin::Client => release(Handle(self.raw), &client),
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
