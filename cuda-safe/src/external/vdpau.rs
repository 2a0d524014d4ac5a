//! Surfaces of VDPAU. Unverified (from documentation).

use super::registered::{AccessHint, RegisteredImage, Registration};
use crate::call::{Result, call, init, out};
use crate::context::Context;
use crate::device::Device;
use cuda_sys::{VdpDevice, VdpGetProcAddress, VdpOutputSurface, VdpVideoSurface};

impl Device {
    /// Returns the device of a device of VDPAU. Calls `cuVDPAUGetDevice`. Unverified (from documentation).
    ///
    /// # Errors
    /// Errors of the driver.
    ///
    /// # Safety
    /// `device` is a device of VDPAU, and `get_proc_address` is its function.
    ///
    /// Since CUDA 3.1. Raw: [`cuVDPAUGetDevice`](fn@cuda_sys::cuVDPAUGetDevice).
    #[doc(alias = "cuVDPAUGetDevice")]
    #[inline]
    pub unsafe fn of_vdpau(device: VdpDevice, get_proc_address: VdpGetProcAddress) -> Result<Self> {
        init::init()?;
        // SAFETY: `out` passes a valid pointer, and the caller promises the device.
        let raw = out(|place| unsafe { call!(cuVDPAUGetDevice(place, device, get_proc_address)) })?;
        Ok(Self::unchecked(raw))
    }
}

impl RegisteredImage {
    /// Registers a video surface of VDPAU. Calls `cuGraphicsVDPAURegisterVideoSurface`. Unverified (from documentation).
    ///
    /// Its arrays have the indices 0 and 1 for the luminance of the two fields, and 2 and 3 for their chrominance.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_CONTEXT` if the context was not created for VDPAU ([`Context::with_vdpau`]).
    ///
    /// # Safety
    /// The surface exists until the registration is dropped, and VDPAU does not access it while it is mapped.
    ///
    /// Since CUDA 3.1. Raw:
    /// [`cuGraphicsVDPAURegisterVideoSurface`](fn@cuda_sys::cuGraphicsVDPAURegisterVideoSurface).
    #[doc(alias = "cuGraphicsVDPAURegisterVideoSurface")]
    #[inline]
    pub unsafe fn from_vdpau_video(
        context: &Context,
        surface: VdpVideoSurface,
        access: AccessHint,
    ) -> Result<Self> {
        let flags = access.raw().0;
        let registration = Registration::new(context, |place| {
            // SAFETY: the pointer is valid, and the caller promises the surface.
            unsafe { call!(cuGraphicsVDPAURegisterVideoSurface(place, surface, flags)) }
        });
        Ok(Self::new(registration?, 1))
    }

    /// Registers an output surface of VDPAU, which has one array. Calls `cuGraphicsVDPAURegisterOutputSurface`.
    /// Unverified (from documentation).
    ///
    /// # Errors
    /// See [`from_vdpau_video`](Self::from_vdpau_video).
    ///
    /// # Safety
    /// See [`from_vdpau_video`](Self::from_vdpau_video).
    ///
    /// Since CUDA 3.1. Raw:
    /// [`cuGraphicsVDPAURegisterOutputSurface`](fn@cuda_sys::cuGraphicsVDPAURegisterOutputSurface).
    #[doc(alias = "cuGraphicsVDPAURegisterOutputSurface")]
    #[inline]
    pub unsafe fn from_vdpau_output(
        context: &Context,
        surface: VdpOutputSurface,
        access: AccessHint,
    ) -> Result<Self> {
        let flags = access.raw().0;
        let registration = Registration::new(context, |place| {
            // SAFETY: the pointer is valid, and the caller promises the surface.
            unsafe { call!(cuGraphicsVDPAURegisterOutputSurface(place, surface, flags)) }
        });
        Ok(Self::new(registration?, 1))
    }
}
