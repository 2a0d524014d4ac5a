//! Images and sync objects of EGL.

use super::memory::create;
use super::registered::{AccessHint, Registration};
use crate::array::{Array, Texel};
use crate::call::{Answer, Result, call, debug_struct, expect_handle};
use crate::context::Context;
use crate::event::Event;
use crate::memory::DeviceBuffer;
use crate::release::{Keep, destroy, release};
use crate::stream::{Stream, same_context};
use cuda_sys::{
    CUarray_format, CUeglColorFormat, CUeglFrame, CUeglFrameType, CUevent_flags,
    CUgraphicsResource, CUresult, EGLImageKHR, EGLSyncKHR, Zeroable,
};
use std::sync::Arc;

/// An image of EGL (`EGLImage`) that is registered with CUDA. Clones share the registration, which the last one ends
/// (`cuGraphicsUnregisterResource`).
///
/// An image may be made of a texture of OpenGL ES, of a DMA-BUF, or of a frame of another producer. It is not mapped for a
/// time: its memory is accessible as long as it is registered, by [`frame`](Self::frame).
///
/// # Ordering
/// Nothing orders the accesses of CUDA and of the other API, and an image has no semaphore. The other API ends its accesses
/// and waits (`glFinish`, or a fence of EGL that the host waits for) before CUDA begins its own; CUDA ends its accesses
/// ([`Stream::synchronize`]) before the other API begins. Where the driver supports sync objects of EGL, a stream waits for
/// one without the host: [`Event::from_egl_sync`].
#[derive(Clone)]
pub struct EglImage {
    registration: Arc<Registration>,
}

impl EglImage {
    /// Registers an image of EGL. Calls `cuGraphicsEGLRegisterImage`.
    ///
    /// # Errors
    /// [`Invalid::Handle`](crate::Invalid::Handle) if the image is null; `CUDA_ERROR_UNKNOWN` if there is no such image,
    /// or if the driver does not support its format.
    ///
    /// # Safety
    /// The image exists until the registration ends. The other API does not change or release its memory before. The
    /// accesses to each array and range of its frames follow their conditions.
    ///
    /// Since CUDA 7.0. Raw: [`cuGraphicsEGLRegisterImage`](fn@cuda_sys::cuGraphicsEGLRegisterImage),
    /// [`cuGraphicsUnregisterResource`](fn@cuda_sys::cuGraphicsUnregisterResource).
    #[doc(alias = "cuGraphicsEGLRegisterImage", alias = "cuGraphicsUnregisterResource")]
    #[inline]
    pub unsafe fn register(
        context: &Context,
        image: EGLImageKHR,
        access: AccessHint,
    ) -> Result<Self> {
        expect_handle("EGLImage", image)?;
        let flags = access.raw().0;
        let registration = Registration::new(context, |place| {
            // SAFETY: the pointer is valid, and the caller promises the image.
            unsafe { call!(cuGraphicsEGLRegisterImage(place, image, flags)) }
        });
        Ok(Self { registration: registration? })
    }

    /// Returns the raw handle without giving up ownership. Do not unregister it.
    #[inline]
    pub fn as_raw(&self) -> CUgraphicsResource {
        self.registration.raw()
    }

    /// Returns the context that the image is registered in.
    #[inline]
    pub fn context(&self) -> &Context {
        &self.registration.context
    }

    /// Returns the memory of the image. Calls `cuGraphicsResourceGetMappedEglFrame`.
    ///
    /// # Errors
    /// Errors of the driver.
    ///
    /// Since CUDA 7.0. Raw:
    /// [`cuGraphicsResourceGetMappedEglFrame`](fn@cuda_sys::cuGraphicsResourceGetMappedEglFrame).
    #[doc(alias = "cuGraphicsResourceGetMappedEglFrame")]
    #[inline]
    pub fn frame(&self) -> Result<EglFrame> {
        let mut frame = CUeglFrame::zeroed();
        let place = &raw mut frame;
        let _current = self.context().enter()?;
        let raw = self.as_raw();
        // The driver (580) ignores the index and the level: an image is one level.
        // SAFETY: the registration is alive, and the pointer refers to a variable.
        unsafe { call!(cuGraphicsResourceGetMappedEglFrame(place, raw, 0, 0)) }?;
        Ok(EglFrame { frame, registration: Arc::clone(&self.registration) })
    }
}

debug_struct! { EglImage |its| { raw: its.as_raw(), context: its.context() } }

/// The memory of an image of EGL: up to three planes (`CUeglFrame`). Created by [`EglImage::frame`], and keeps the
/// registration.
#[derive(Clone)]
pub struct EglFrame {
    frame: CUeglFrame,
    registration: Arc<Registration>,
}

impl EglFrame {
    /// Returns the description in the driver's format.
    #[inline]
    pub fn as_raw(&self) -> &CUeglFrame {
        &self.frame
    }

    /// Returns the width of the first plane, in texels.
    #[inline]
    pub fn width(&self) -> usize {
        self.frame.width as usize
    }

    /// Returns the height of the first plane, in texels.
    #[inline]
    pub fn height(&self) -> usize {
        self.frame.height as usize
    }

    /// Returns the distance between rows of the first plane in bytes, or 0 if the planes are arrays.
    #[inline]
    pub fn pitch(&self) -> usize {
        self.frame.pitch as usize
    }

    /// Returns the number of planes.
    #[inline]
    pub fn planes(&self) -> u32 {
        self.frame.planeCount
    }

    /// Returns the number of channels of a texel.
    #[inline]
    pub fn channels(&self) -> u32 {
        self.frame.numChannels
    }

    /// Returns whether the planes are ranges of memory, and not arrays.
    #[inline]
    pub fn is_pitched(&self) -> bool {
        self.frame.frameType == CUeglFrameType::CU_EGL_FRAME_TYPE_PITCH
    }

    /// Returns the type of a channel.
    #[inline]
    pub fn format(&self) -> CUarray_format {
        self.frame.cuFormat
    }

    /// Returns the order of colors in the planes.
    #[inline]
    pub fn color_format(&self) -> CUeglColorFormat {
        self.frame.eglColorFormat
    }

    /// Binds a plane that is an array to a stream. Dropping the array waits for the work on the stream.
    ///
    /// # Errors
    /// - [`Invalid::Handle`](crate::Invalid::Handle) if the frame has no such array.
    /// - [`Invalid::Array`](crate::Invalid::Array) if the texels do not have the type `T`.
    /// - [`Invalid::OtherContext`](crate::Invalid::OtherContext).
    ///
    /// # Safety
    /// As long as the array exists, each access of another API and of another array of the plane is ordered before or
    /// after the work on the stream that it conflicts with, as the page of [`EglImage`](EglImage#ordering) says.
    pub unsafe fn array<T: Texel>(&self, plane: u32, stream: &Stream) -> Result<Array<T>> {
        same_context("the stream", stream.context(), &self.registration.context)?;
        let mut array = std::ptr::null_mut();
        if !self.is_pitched() {
            // SAFETY: the planes of a frame of this type are arrays.
            let planes = unsafe { self.frame.frame.pArray };
            array = planes.get(plane as usize).copied().unwrap_or(array);
        }
        let owner = Use { registration: Arc::clone(&self.registration), stream: stream.clone() };
        // SAFETY: the registration keeps the array, and the owner waits for the work on the stream. The caller promises
        // the order of accesses.
        unsafe { Array::from_foreign(array, stream, owner) }
    }

    /// Binds a plane that is a range of memory to a stream, as `len` elements. Dropping the buffer waits for the work
    /// on the stream.
    ///
    /// # Errors
    /// [`Invalid::Handle`](crate::Invalid::Handle) if the frame has no such range;
    /// [`Invalid::OtherContext`](crate::Invalid::OtherContext).
    ///
    /// # Safety
    /// - The plane has this number of elements.
    /// - The accesses are ordered as [`array`](Self::array) requires.
    pub unsafe fn range<T>(
        &self,
        plane: u32,
        len: usize,
        stream: &Stream,
    ) -> Result<DeviceBuffer<T>> {
        same_context("the stream", stream.context(), &self.registration.context)?;
        let mut range = std::ptr::null_mut();
        if self.is_pitched() {
            // SAFETY: the planes of a frame of this type are addresses.
            let planes = unsafe { self.frame.frame.pPitch };
            range = planes.get(plane as usize).copied().unwrap_or(range);
        }
        expect_handle("range", range)?;
        let owner = Use { registration: Arc::clone(&self.registration), stream: stream.clone() };
        // SAFETY: as for an array, and the caller promises the size.
        unsafe { DeviceBuffer::from_foreign(range.addr() as u64, len, stream, owner) }
    }
}

debug_struct! {
    EglFrame |its| { width: its.width(), height: its.height(), planes: its.planes(), .. }
}

/// The owner of an array or a range of an image.
struct Use {
    registration: Arc<Registration>,
    stream: Stream,
}

impl Drop for Use {
    #[inline]
    fn drop(&mut self) {
        release(UseInStream { registration: Arc::clone(&self.registration) }, &self.stream);
    }
}

/// The end of a use, which comes after the work on its stream.
struct UseInStream {
    registration: Arc<Registration>,
}

destroy! {
    UseInStream as "the use of an EGLImage", after Uses;
    |_its| Answer { call: "cuGraphicsUnregisterResource", code: CUresult::CUDA_SUCCESS };

    /// The work on the stream may still use the image.
    #[inline]
    fn has_leaked(&self, _: &dyn Keep) {
        std::mem::forget(Arc::clone(&self.registration));
    }
}

impl Event {
    /// Creates an event for a sync object of EGL (`EGLSync`): a stream that [waits](Stream::wait_event) for it waits until
    /// the object is signaled. Calls `cuEventCreateFromEGLSync`. Unverified (from documentation).
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_SUPPORTED` on systems that are no Tegra.
    ///
    /// # Safety
    /// The object exists as long as the event. The event is neither recorded nor measured.
    ///
    /// Since CUDA 9.0. Raw: [`cuEventCreateFromEGLSync`](fn@cuda_sys::cuEventCreateFromEGLSync).
    #[doc(alias = "cuEventCreateFromEGLSync")]
    #[inline]
    pub unsafe fn from_egl_sync(context: &Context, sync: EGLSyncKHR) -> Result<Self> {
        let flags = CUevent_flags::CU_EVENT_DEFAULT.0;
        // SAFETY: the pointer is valid, and the caller promises the object.
        let raw = create(context, |place| unsafe {
            call!(cuEventCreateFromEGLSync(place, sync, flags))
        })?;
        // SAFETY: the event has just been created in this context.
        unsafe { Self::from_raw(raw, context) }
    }
}
