//! Textures and surfaces as kernel arguments: their handles, by value.

use super::surface::Surface;
use super::texture::Texture;
use crate::call::Result;
use crate::launch::{Argument, LaunchArgument, Param, sealed};
use cuda_sys::{CUsurfObject, CUtexObject};

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
