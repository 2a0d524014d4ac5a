//! What is due at a context's end.

use crate::device::Device;
use crate::hold::Hold;
use crate::release::{Resource, Root, release};
use cuda_sys::CUcontext;

/// Ends a context when it is dropped. It is shared by a context and the one that its manager has.
pub(super) struct End {
    pub(super) raw: CUcontext,
    pub(super) device: Device,
    pub(super) origin: Origin,
}

// SAFETY: a context is released by whichever thread drops the last that holds it; nothing is read through
// the handle.
unsafe impl Send for End {}
// SAFETY: as for Send.
unsafe impl Sync for End {}

/// What is due.
pub(super) enum Origin {
    /// Retained: one release.
    Primary,
    /// Destroyed if it is ours.
    Other(#[allow(dead_code, reason = "a foreign owner is held, not read")] Hold),
    /// Ours: destroyed. It works in a graphics client, which somebody promised to keep.
    Client,
}

impl Drop for End {
    fn drop(&mut self) {
        match &self.origin {
            Origin::Primary => {
                let root = Root { is_borrowed: false };
                release(Resource::Primary(self.device.as_raw()), &root);
            }
            Origin::Other(Hold::Owned) => {
                let root = Root { is_borrowed: false };
                release(Resource::Context(self.raw), &root);
            }
            Origin::Client => release(Resource::Context(self.raw), &Root { is_borrowed: true }),
            Origin::Other(Hold::Foreign(_) | Hold::Borrowed) => {}
        }
    }
}
