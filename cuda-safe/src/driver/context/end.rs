//! The release of a context.

use crate::base::ownership::Ownership;
use crate::base::release::{Resource, Root, release};
use crate::driver::device::Device;
use cuda_sys::CUcontext;

/// Releases a context in `Drop`. A context and the context object of its memory manager share this
/// value.
pub(super) struct End {
    pub(super) raw: CUcontext,
    pub(super) device: Device,
    pub(super) origin: Origin,
}

// SAFETY: any thread can release a context, and nothing is read through the handle.
unsafe impl Send for End {}
// SAFETY: see the argument for `Send`.
unsafe impl Sync for End {}

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

impl Drop for End {
    fn drop(&mut self) {
        match &self.origin {
            Origin::Primary => {
                let root = Root { is_borrowed: false };
                release(Resource::Primary(self.device.as_raw()), &root);
            }
            Origin::Other(Ownership::Owned) => {
                let root = Root { is_borrowed: false };
                release(Resource::Context(self.raw), &root);
            }
            Origin::Client => release(Resource::Context(self.raw), &Root { is_borrowed: true }),
            Origin::Other(Ownership::Foreign(_) | Ownership::Borrowed) => {}
        }
    }
}
