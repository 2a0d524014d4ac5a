//! Access of one context's kernels to the memory of another.

use super::Context;
use crate::call::call;
use crate::error::Result;

impl Context {
    /// `cuCtxEnablePeerAccess(peer, 0)`: from now on kernels of this context may use plain memory of
    /// `peer`, which is of another device. The other way is to be allowed for itself.
    ///
    /// Stream-ordered memory is the business of its pool. Copies need no access.
    ///
    /// # Errors
    /// `CUDA_ERROR_PEER_ACCESS_UNSUPPORTED` (see
    /// [`Device::can_access_peer`](crate::Device::can_access_peer));
    /// `CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED`; `CUDA_ERROR_TOO_MANY_PEERS`.
    ///
    /// Since CUDA 4.0. Raw: [`cuCtxEnablePeerAccess`](fn@cuda_sys::cuCtxEnablePeerAccess).
    #[doc(alias = "cuCtxEnablePeerAccess")]
    pub fn enable_peer_access(&self, peer: &Self) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: both contexts are alive, and this one is current.
        unsafe { call!(cuCtxEnablePeerAccess(peer.as_raw(), 0)) }
    }

    /// `cuCtxDisablePeerAccess(peer)`: ends what
    /// [`enable_peer_access`](Self::enable_peer_access) allowed.
    ///
    /// # Errors
    /// `CUDA_ERROR_PEER_ACCESS_NOT_ENABLED`.
    ///
    /// # Safety
    /// No work that uses memory of `peer` is under way in this context, or is given to it later.
    ///
    /// Since CUDA 4.0. Raw: [`cuCtxDisablePeerAccess`](fn@cuda_sys::cuCtxDisablePeerAccess).
    #[doc(alias = "cuCtxDisablePeerAccess")]
    pub unsafe fn disable_peer_access(&self, peer: &Self) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: both contexts are alive, and this one is current; the rest is the caller's promise.
        unsafe { call!(cuCtxDisablePeerAccess(peer.as_raw())) }
    }
}
