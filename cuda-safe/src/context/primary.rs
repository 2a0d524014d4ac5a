//! A device's primary context, before anybody retains it.

use super::ContextFlags;
use crate::call::call;
use crate::device::Device;
use crate::error::Result;
use crate::manager::reset_primary_manager;
use crate::release;

/// What a device's primary context is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrimaryState {
    /// Whether somebody in this process retains it.
    pub active: bool,
    /// The flags that it has, or will have.
    pub flags: ContextFlags,
}

impl Device {
    /// `cuDevicePrimaryCtxGetState(device, &flags, &active)`: whether the primary context is in
    /// use, and its flags.
    ///
    /// # Errors
    /// Only those that any call may have: see [`Error`](crate::Error).
    ///
    /// Since CUDA 7.0. Raw: [`cuDevicePrimaryCtxGetState`](fn@cuda_sys::cuDevicePrimaryCtxGetState).
    #[doc(alias = "cuDevicePrimaryCtxGetState")]
    pub fn primary_state(&self) -> Result<PrimaryState> {
        let (mut flags, mut active) = (0, 0);
        let (place, state) = (&raw mut flags, &raw mut active);
        // SAFETY: the pointers are to locals.
        unsafe { call!(cuDevicePrimaryCtxGetState(self.as_raw(), place, state)) }?;
        Ok(PrimaryState {
            active: active != 0,
            flags: ContextFlags::from_bits_retain(flags),
        })
    }

    /// `cuDevicePrimaryCtxSetFlags(device, flags)`: the flags of the primary context, for all who
    /// use it.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for flags that exclude each other.
    ///
    /// Since CUDA 7.0; before 11.0 only while nobody retains it. Raw:
    /// [`cuDevicePrimaryCtxSetFlags_v2`](fn@cuda_sys::cuDevicePrimaryCtxSetFlags_v2).
    #[doc(alias = "cuDevicePrimaryCtxSetFlags")]
    pub fn set_primary_flags(&self, flags: ContextFlags) -> Result<()> {
        // SAFETY: two numbers.
        unsafe { call!(cuDevicePrimaryCtxSetFlags_v2(self.as_raw(), flags.bits())) }
    }

    /// `cuDevicePrimaryCtxReset(device)`: destroys what everybody in this process made in the
    /// primary context. It cannot mend a fatal error.
    ///
    /// The context's [memory manager](crate::manager) is [reset](crate::manager::MemoryManager::reset) before.
    /// Releases that are [deferred](crate::deferred_releases) are attempted before as well.
    ///
    /// # Errors
    /// Only those that any call may have: see [`Error`](crate::Error). After a fatal error it succeeds
    /// (driver 580), and the calls after it still fail.
    ///
    /// # Safety
    /// Nothing that was made in the device's primary context, by this crate or any other code of
    /// the process, is used afterwards, not even dropped: the driver crashes on some uses of dead
    /// handles. No thread has it on its stack.
    ///
    /// Since CUDA 7.0. Raw: [`cuDevicePrimaryCtxReset_v2`](fn@cuda_sys::cuDevicePrimaryCtxReset_v2).
    #[doc(alias = "cuDevicePrimaryCtxReset")]
    pub unsafe fn reset_primary(&self) -> Result<()> {
        // Before the handles are dead.
        release::drain();
        reset_primary_manager(*self);
        // SAFETY: the caller's promise.
        unsafe { call!(cuDevicePrimaryCtxReset_v2(self.as_raw())) }
    }
}
