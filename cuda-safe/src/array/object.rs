//! The handles of texture and surface objects.
//!
//! A handle is a small number of the context that was current, and the driver uses the number again for
//! the next object. Destroying an object never waits, and destroys whatever has that number in the current
//! context (measured, driver 580). So an object is destroyed in its context, after the work that uses it.

use super::owned::create;
use super::surface::Surface;
use super::texture::Texture;
use crate::call::{Answer, Entered, Error, Result, answer};
use crate::event::{Event, LastUse};
use crate::launch::{Argument, LaunchArgument, Param, sealed};
use crate::release::{Destroy, release};
use crate::stream::Stream;
use cuda_sys::{CUresult, CUsurfObject, CUtexObject};

/// Whether an object is a texture or a surface.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Texture,
    Surface,
}

/// A texture or surface object. Dropping it destroys the object after the work on the stream, without
/// blocking.
pub(super) struct Object {
    raw: u64,
    kind: Kind,
    /// Recorded when the object is dropped. It exists before, because a drop must not fail.
    end: Event,
    stream: Stream,
}

impl Object {
    /// Creates an object, with the context of the stream current.
    ///
    /// # Errors
    /// [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured); errors of the call.
    pub(super) fn new(
        kind: Kind,
        stream: &Stream,
        make: impl FnOnce(*mut u64) -> Result<()>,
    ) -> Result<Self> {
        let end = stream.context().event()?;
        let raw = create(stream, make)?;
        Ok(Self { raw, kind, end, stream: stream.clone() })
    }

    #[inline]
    pub(super) fn raw(&self) -> u64 {
        self.raw
    }

    #[inline]
    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }
}

impl Drop for Object {
    #[inline]
    fn drop(&mut self) {
        let handle = ObjectHandle {
            raw: self.raw,
            kind: self.kind,
            stream: self.stream.clone(),
            last_use: LastUse::new(&self.stream, self.end.clone()),
        };
        release(handle, &self.stream);
    }
}

/// An object that is destroyed after its last use.
struct ObjectHandle {
    raw: u64,
    kind: Kind,
    stream: Stream,
    last_use: LastUse,
}

impl Destroy for ObjectHandle {
    #[inline]
    fn name(&self) -> &'static str {
        match self.kind {
            Kind::Texture => "a texture object",
            Kind::Surface => "a surface object",
        }
    }

    #[inline]
    unsafe fn destroy(&self) -> Answer {
        if let Some(obstacle) = self.last_use.obstacle() {
            return obstacle;
        }
        // The number means another object in another context.
        let _current = match Entered::new(self.stream.context()) {
            Ok(current) => current,
            Err(Error::Driver(error)) => {
                return Answer { call: error.call, code: error.code };
            }
            Err(_) => {
                return Answer {
                    call: "cuCtxPushCurrent_v2",
                    code: CUresult::CUDA_ERROR_INVALID_CONTEXT,
                };
            }
        };
        match self.kind {
            // SAFETY: this value stands for the object, and the caller promises that this is the first call
            // that succeeds. Its context is current, and its last use is complete.
            Kind::Texture => unsafe { answer!(cuTexObjectDestroy(self.raw)) },
            // SAFETY: as above.
            Kind::Surface => unsafe { answer!(cuSurfObjectDestroy(self.raw)) },
        }
    }
}

/// The type of a kernel parameter that is a texture object: `cudaTextureObject_t` in CUDA C++, and 8 bytes
/// in PTX. The argument is `&Texture`.
#[derive(Debug)]
pub enum TextureObject {}

/// The type of a kernel parameter that is a surface object: `cudaSurfaceObject_t` in CUDA C++, and 8 bytes
/// in PTX. The argument is `&mut Surface`.
#[derive(Debug)]
pub enum SurfaceObject {}

impl sealed::Sealed for TextureObject {}
impl Param for TextureObject {
    type Bytes = CUtexObject;
}

impl sealed::Sealed for SurfaceObject {}
impl Param for SurfaceObject {
    type Bytes = CUsurfObject;
}

impl<S> Argument<TextureObject> for &Texture<S> {
    #[inline]
    fn bytes(self, index: usize, launch: sealed::Target<'_>) -> Result<CUtexObject> {
        launch.check_stream(index, self.stream())?;
        Ok(self.as_raw())
    }
}

impl<S> LaunchArgument for &Texture<S> {
    type Param = TextureObject;
}

impl<S> Argument<SurfaceObject> for &mut Surface<S> {
    #[inline]
    fn bytes(self, index: usize, launch: sealed::Target<'_>) -> Result<CUsurfObject> {
        launch.check_stream(index, self.stream())?;
        Ok(self.as_raw())
    }
}

impl<S> LaunchArgument for &mut Surface<S> {
    type Param = SurfaceObject;
}
