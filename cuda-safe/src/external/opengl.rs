//! Buffers and textures of OpenGL.

use super::registered::{
    AccessHint, RegisteredBuffer, RegisteredImage, RegisteredImageOptions, Registration,
};
use crate::call::{Result, c_enum, call, init};
use crate::context::Context;
use crate::device::Device;
use cuda_sys::{CUGLDeviceList, GLenum, GLuint};

c_enum! {
    /// Which devices of the current context of OpenGL [`Device::of_opengl`] returns (`CUGLDeviceList`).
    #[non_exhaustive]
    pub enum OpenGlDevices = CUGLDeviceList {
        /// All devices.
        All = CU_GL_DEVICE_LIST_ALL,
        /// Those that render the current frame (SLI).
        CurrentFrame = CU_GL_DEVICE_LIST_CURRENT_FRAME,
        /// Those that render the next frame (SLI).
        NextFrame = CU_GL_DEVICE_LIST_NEXT_FRAME,
    }
}

/// More devices than a system has.
const MAX_DEVICES: usize = 64;

impl Device {
    /// Returns the devices of the context of OpenGL that is current in this thread. Calls `cuGLGetDevices`.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_GRAPHICS_CONTEXT` or `CUDA_ERROR_NO_DEVICE` if there is no such context, or if another driver
    /// made it.
    ///
    /// Since CUDA 4.1 (through `cuGLGetDevices_v2` since 6.5). Raw:
    /// [`cuGLGetDevices_v2`](fn@cuda_sys::cuGLGetDevices_v2).
    #[doc(alias = "cuGLGetDevices")]
    #[inline]
    pub fn of_opengl(list: OpenGlDevices) -> Result<Vec<Self>> {
        init::init()?;
        let (mut devices, mut count) = ([0; MAX_DEVICES], 0);
        let (place, number, most) =
            (devices.as_mut_ptr(), &raw mut count, MAX_DEVICES as core::ffi::c_uint);
        // SAFETY: the pointers refer to variables, and the array has this many elements.
        unsafe { call!(cuGLGetDevices_v2(number, place, most, list.raw())) }?;
        Ok(devices.into_iter().take(count as usize).map(Self::unchecked).collect())
    }
}

impl RegisteredBuffer {
    /// Registers a buffer object of OpenGL. Calls `cuGraphicsGLRegisterBuffer`.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` if there is no such buffer; `CUDA_ERROR_INVALID_GRAPHICS_CONTEXT` or a similar code
    /// if no context of OpenGL is current, or if another device made it; `CUDA_ERROR_OPERATING_SYSTEM`.
    ///
    /// # Safety
    /// - A context of OpenGL is current in this thread now, and whenever the buffer is mapped, a mapping ends, the
    ///   registration is dropped, and a [deferred release](crate::deferred_releases) of them is retried. It has the buffer.
    /// - The buffer exists and keeps its data store until the registration is dropped.
    /// - OpenGL does not access the buffer while it is mapped.
    ///
    /// Since CUDA 3.0. Raw: [`cuGraphicsGLRegisterBuffer`](fn@cuda_sys::cuGraphicsGLRegisterBuffer),
    /// [`cuGraphicsUnregisterResource`](fn@cuda_sys::cuGraphicsUnregisterResource).
    #[doc(alias = "cuGraphicsGLRegisterBuffer", alias = "cuGraphicsUnregisterResource")]
    #[inline]
    pub unsafe fn from_opengl(
        context: &Context,
        buffer: GLuint,
        access: AccessHint,
    ) -> Result<Self> {
        let flags = access.raw().0;
        let registration = Registration::of_opengl(context, |place| {
            // SAFETY: the pointer is valid, and the caller promises the buffer.
            unsafe { call!(cuGraphicsGLRegisterBuffer(place, buffer, flags)) }
        });
        Ok(Self::new(registration?))
    }
}

impl RegisteredImage {
    /// Registers a texture or renderbuffer of OpenGL. Calls `cuGraphicsGLRegisterImage`.
    ///
    /// `target` is `GL_TEXTURE_2D`, `GL_RENDERBUFFER` or another one that the texture was created with. The formats have
    /// 1, 2 or 4 channels of 8, 16 or 32 bits.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` if there is no such image, or for a format that CUDA does not have;
    /// `CUDA_ERROR_INVALID_GRAPHICS_CONTEXT` or a similar code if no context of OpenGL is current.
    ///
    /// # Safety
    /// - A context of OpenGL is current in this thread now, and whenever the image is mapped, a mapping ends, the
    ///   registration is dropped, and a [deferred release](crate::deferred_releases) of them is retried. It has the image.
    /// - The image exists and keeps its storage until the registration is dropped. It has at least this number of levels.
    /// - OpenGL does not access the image while it is mapped.
    ///
    /// Since CUDA 3.0. Raw: [`cuGraphicsGLRegisterImage`](fn@cuda_sys::cuGraphicsGLRegisterImage).
    #[doc(alias = "cuGraphicsGLRegisterImage")]
    #[inline]
    pub unsafe fn from_opengl(
        context: &Context,
        image: GLuint,
        target: GLenum,
        options: RegisteredImageOptions,
    ) -> Result<Self> {
        let registration = Registration::of_opengl(context, |place| {
            // SAFETY: the pointer is valid, and the caller promises the image.
            unsafe { call!(cuGraphicsGLRegisterImage(place, image, target, options.flags())) }
        });
        Ok(Self::new(registration?, options.levels))
    }
}
