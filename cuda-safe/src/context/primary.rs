//! State, flags and reset of the primary context of a device.

use super::ContextFlags;
use super::{clear_reserves, extension};
use crate::call::{Result, call};
use crate::device::Device;
use crate::release;

/// The state of the primary context of a device, returned by [`Device::primary_state`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrimaryState {
    /// Whether any code in this process retains the context.
    pub active: bool,
    /// The current flags, or the flags for the next initialization.
    pub flags: ContextFlags,
}

impl Device {
    /// Returns whether the primary context is active, and its flags. Calls `cuDevicePrimaryCtxGetState`.
    ///
    /// # Errors
    /// Only the errors that every call can return. See [`Error`](crate::Error).
    ///
    /// Since CUDA 7.0. Raw: [`cuDevicePrimaryCtxGetState`](fn@cuda_sys::cuDevicePrimaryCtxGetState).
    #[doc(alias = "cuDevicePrimaryCtxGetState")]
    #[inline]
    pub fn primary_state(&self) -> Result<PrimaryState> {
        let (mut flags, mut active) = (0, 0);
        let (flags_out, active_out) = (&raw mut flags, &raw mut active);
        // SAFETY: the pointers refer to locals.
        unsafe { call!(cuDevicePrimaryCtxGetState(self.as_raw(), flags_out, active_out)) }?;
        Ok(PrimaryState { active: active != 0, flags: ContextFlags::from_bits_retain(flags) })
    }

    /// Sets the flags of the primary context for all code that uses it. Calls
    /// `cuDevicePrimaryCtxSetFlags`.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for flags that exclude each other.
    ///
    /// Since CUDA 7.0; before 11.0 only while no code retains the context. Raw:
    /// [`cuDevicePrimaryCtxSetFlags_v2`](fn@cuda_sys::cuDevicePrimaryCtxSetFlags_v2).
    #[doc(alias = "cuDevicePrimaryCtxSetFlags")]
    #[inline]
    pub fn set_primary_flags(&self, flags: ContextFlags) -> Result<()> {
        // SAFETY: both arguments are integers.
        unsafe { call!(cuDevicePrimaryCtxSetFlags_v2(self.as_raw(), flags.bits())) }
    }

    /// Destroys all objects that any code in this process created in the primary context. Calls
    /// `cuDevicePrimaryCtxReset`.
    ///
    /// A reset does not clear a fatal error: the call succeeds (driver 580), but later calls still fail.
    ///
    /// Before the reset, this function attempts the [deferred releases](crate::deferred_releases),
    /// destroys the [cached events](crate::event::cached), and
    /// [resets](crate::manager::MemoryManager::reset) the [memory manager](crate::manager) of the
    /// context.
    ///
    /// # Errors
    /// Only the errors that every call can return. See [`Error`](crate::Error).
    ///
    /// # Safety
    /// - No object that was created in the primary context of the device, by this crate or any other
    ///   code in the process, is used afterwards. It must not even be dropped: the driver crashes on
    ///   some uses of destroyed handles.
    /// - The context is not on the context stack of any thread, and is not
    ///   [bound](crate::Context::bind_to_thread) to a thread.
    ///
    /// Since CUDA 7.0. Raw: [`cuDevicePrimaryCtxReset_v2`](fn@cuda_sys::cuDevicePrimaryCtxReset_v2).
    #[doc(alias = "cuDevicePrimaryCtxReset")]
    #[inline]
    pub unsafe fn reset_primary(&self) -> Result<()> {
        // Releases must run before the reset destroys the handles.
        release::drain();
        clear_reserves();
        extension::reset_primary(*self);
        // SAFETY: the caller guarantees that no object of the context is used afterwards.
        unsafe { call!(cuDevicePrimaryCtxReset_v2(self.as_raw())) }
    }
}
