//! CUDA arrays, and the texture and surface objects through which kernels access them.

mod arguments;
mod copy;
mod limits;
mod mipmapped;
mod object;
mod owned;
mod part;
mod sampler;
mod shape;
mod sparse;
mod surface;
mod texel;
mod texture;

pub use arguments::{SurfaceObject, TextureObject};
pub use mipmapped::MipmappedArray;
pub use owned::Array;
pub use part::{ArrayMut, ArrayRef};
pub use sampler::{AddressMode, FilterMode, ReadMode, Sampler};
pub use shape::{ArrayDescriptor, ArrayOptions, ArrayShape};
pub use sparse::SparseArray;
pub use surface::{Surface, SurfaceTarget};
pub use texel::{Half, Normalized, Texel, TexelFormat};
pub use texture::{LinearSource, Texture, TextureSource};

pub(in crate::memory) use copy::{Side, copy};

use crate::base::error::Error;
use crate::base::invalid::Invalid;

/// Returns an error about an array. `what` is the rejected property.
#[cold]
fn array_error(what: &'static str, problem: impl Into<String>) -> Error {
    let problem = problem.into();
    Invalid::Array { what, problem }.into()
}

/// Returns an error about a texture or surface object. `what` is the rejected property.
#[cold]
fn texture_error(what: &'static str, problem: impl Into<String>) -> Error {
    let problem = problem.into();
    Invalid::Texture { what, problem }.into()
}
