//! CUDA arrays, and the textures and surfaces through which kernels access them.
//!
//! | type | what it is | C |
//! |---|---|---|
//! | [`Array`] | texels in a layout of the driver, in one to three dimensions, layers or cubes | `cuArray3DCreate` |
//! | [`MipmappedArray`] | arrays of decreasing size, the levels | `cuMipmappedArrayCreate` |
//! | [`SparseArray`] | an array whose mapped tiles have memory | `cuMemMapArrayAsync` |
//! | [`ArrayRef`], [`ArrayMut`] | a borrowed array or level, or a part of one, with the copies | `cuMemcpy3D` |
//! | [`Texture`] | an array, pitched or linear memory that kernels sample | `cuTexObjectCreate` |
//! | [`Surface`] | an array that kernels read and write by texel | `cuSurfObjectCreate` |
//!
//! The type of the texels ([`Texel`]) determines the format: `u8`, `[f32; 4]`, [`Half<[u16; 2]>`](Half) and
//! so on.
//!
//! # Streams
//! An array is bound to a stream, as a [`DeviceBuffer`](crate::DeviceBuffer) is: copies and kernels that use
//! it run on that stream. [`Array::rebind`] moves it. A texture or surface is bound to the stream of its
//! memory. To sample memory on several streams, create a texture for each reader of a
//! [`SharedBuffer`](crate::SharedBuffer).
//!
//! # What is checked
//! The driver accepts many textures that the hardware cannot sample: elements beyond the limits of the
//! device, filters of integers, surfaces of arrays that were not created for them, handles of another
//! context. All of these are errors here. Coordinates are not checked: the promise of an unsafe launch
//! includes that the kernel accesses surfaces within their extent.

mod copy;
mod object;
mod owned;
mod shape;
mod sparse;
mod surface;
mod texel;
mod texture;

pub use object::{SurfaceObject, TextureObject};
pub use owned::{Array, ArrayMut, ArrayRef, MipmappedArray};
pub(crate) use owned::{check_mipmapped, create as create_array};
pub use shape::{ArrayDescriptor, ArrayOptions, ArrayShape};
pub use sparse::SparseArray;
pub use surface::{Surface, SurfaceTarget};
pub use texel::{Half, Normalized, Texel, TexelFormat};
pub use texture::{
    AddressMode, FilterMode, LinearSource, ReadMode, Sampler, Texture, TextureSource,
};

use crate::call::{Error, Invalid};

/// Returns an error about an array. `what` is the rejected property.
#[cold]
pub(crate) fn array_error(what: &'static str, problem: impl Into<String>) -> Error {
    let problem = problem.into();
    Invalid::Array { what, problem }.into()
}

/// Returns an error about a texture or surface object. `what` is the rejected property.
#[cold]
fn texture_error(what: &'static str, problem: impl Into<String>) -> Error {
    let problem = problem.into();
    Invalid::Texture { what, problem }.into()
}
