//! Resources that play those of OpenGL and EGL.

use crate::memory::create_memory;
use crate::state;
use crate::state::external::graphics::{Name, Played};
use cuda_sys::CUDA_ARRAY3D_DESCRIPTOR;
use std::fs::File;
use std::io::{ErrorKind, Result};
use std::sync::Arc;

/// Makes a buffer of OpenGL with this name, which a program can register. Its memory is the file. A buffer of this name
/// from before is forgotten. The context of OpenGL is current in the calling thread only.
///
/// # Errors
/// The system has no files in memory, or the driver is not installed.
pub fn opengl_buffer(name: u32, size: u64) -> Result<File> {
    add(Name::OpenGlBuffer(name), size, None)
}

/// Makes a texture of OpenGL with this name, which a program can register. The levels follow each other in the file, and so
/// do the rows of a level. A texture of this name from before is forgotten. The context of OpenGL is current in the calling
/// thread only.
///
/// # Errors
/// The system has no files in memory, or the driver is not installed.
pub fn opengl_texture(name: u32, texels: CUDA_ARRAY3D_DESCRIPTOR, levels: u32) -> Result<File> {
    add(Name::OpenGlImage(name), size_of(&texels, levels), Some((texels, levels)))
}

/// Makes an image of EGL with this number as its `EGLImage`, which a program can register. Its texels are in the file.
///
/// A program can also connect a consumer to the `EGLStream` with this number. Each frame is the image.
///
/// # Errors
/// The system has no files in memory, or the driver is not installed.
pub fn egl_image(image: usize, texels: CUDA_ARRAY3D_DESCRIPTOR) -> Result<File> {
    add(Name::EglImage(image), size_of(&texels, 1), Some((texels, 1)))
}

/// Returns more bytes than the levels of an image need.
fn size_of(texels: &CUDA_ARRAY3D_DESCRIPTOR, levels: u32) -> u64 {
    // The largest texel has 16 bytes, and each level is smaller than the one before.
    let texels = [texels.Width, texels.Height.max(1), texels.Depth.max(1)];
    let count = texels.iter().fold(1u64, |count, its| count.saturating_mul(*its as u64));
    count.saturating_mul(16 * u64::from(levels))
}

fn add(name: Name, size: u64, image: Option<(CUDA_ARRAY3D_DESCRIPTOR, u32)>) -> Result<File> {
    let file = create_memory(size).ok_or(ErrorKind::Unsupported)?;
    let thread = (!matches!(name, Name::EglImage(_))).then(crate::thread::id);
    let played = Played { file: Arc::new(file.try_clone()?), size, image, thread };
    let added = state::with(|world| world.objects.externals.graphics.played.insert(name, played));
    added.map(|_| file).ok_or_else(|| ErrorKind::NotConnected.into())
}
