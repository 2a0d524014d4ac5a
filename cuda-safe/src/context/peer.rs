//! Peer access: kernels of one context use memory of another context.

use super::Context;
use crate::call::{Result, call};

impl Context {
    /// Allows kernels of this context to access synchronous allocations of `peer`, a context of another
    /// device. Calls `cuCtxEnablePeerAccess`.
    ///
    /// Access is one-way: enable it separately for the opposite direction. It does not apply to
    /// stream-ordered memory, whose pool controls the access. Copies do not need peer access.
    ///
    /// # Errors
    /// `CUDA_ERROR_PEER_ACCESS_UNSUPPORTED` (see
    /// [`Device::can_access_peer`](crate::Device::can_access_peer));
    /// `CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED`; `CUDA_ERROR_TOO_MANY_PEERS`.
    ///
    /// Since CUDA 4.0. Raw: [`cuCtxEnablePeerAccess`](fn@cuda_sys::cuCtxEnablePeerAccess).
    #[doc(alias = "cuCtxEnablePeerAccess")]
    #[inline]
    pub fn enable_peer_access(&self, peer: &Self) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: both contexts are alive, and this one is current.
        unsafe { call!(cuCtxEnablePeerAccess(peer.as_raw(), 0)) }
    }

    /// Revokes the access that [`enable_peer_access`](Self::enable_peer_access) allowed. Calls
    /// `cuCtxDisablePeerAccess`.
    ///
    /// # Errors
    /// `CUDA_ERROR_PEER_ACCESS_NOT_ENABLED`.
    ///
    /// # Safety
    /// No work that uses memory of `peer` is in progress in this context or is enqueued in it later.
    ///
    /// Since CUDA 4.0. Raw: [`cuCtxDisablePeerAccess`](fn@cuda_sys::cuCtxDisablePeerAccess).
    #[doc(alias = "cuCtxDisablePeerAccess")]
    #[inline]
    pub unsafe fn disable_peer_access(&self, peer: &Self) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: both contexts are alive, and this one is current. The caller guarantees that no work
        // uses the memory.
        unsafe { call!(cuCtxDisablePeerAccess(peer.as_raw())) }
    }
}
