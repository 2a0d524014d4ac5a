//! Exchange of arrays with other libraries through the CUDA Array Interface and DLPack, with
//! NumPy's types and layouts.
//!
//! [`ArrayInterface`] is the checked description in an object's `__cuda_array_interface__`,
//! versions 0 to 3. [`RawInterface::check`] reads it and refuses invalid values with an error that
//! names the key. [`ArrayInterface::to_raw`] writes it. [`Dtype`] and [`TypeString`] describe the
//! elements, and [`Layout`] their arrangement in memory. All of these types work without a driver
//! and without Python.
//!
//! [`ArrayInterface::import`] makes foreign memory usable for work on a stream of this crate,
//! ordered with its producer according to a [`StreamSync`]. [`DeviceBuffer::array_interface`]
//! exports memory; [`ExportedStream::joined`] is for memory with work on several streams. The other
//! protocol, in which tensors own their memory, is in [`dlpack`]. [`ArrayView`] and
//! [`ArrayViewMut`] are multidimensional arrays in device memory, with NumPy's indexing and shapes.
//!
//! With the feature `serde`, the descriptions can be serialized: types as their strings, an
//! [`ArrayInterface`] as the dict. Deserialized values go through the same checks as others.
//!
//! ```
//! use cuda_safe::interop::{Layout, TypeString};
//!
//! // "typestr" and "shape" of a 3 by 4 NumPy array of float32.
//! let element: TypeString = "<f4".parse()?;
//! let layout = Layout::c_contiguous(&[3, 4], element.item_size())?;
//! assert_eq!(layout.strides(), [16, 4]);
//! # Ok::<_, cuda_safe::Invalid>(())
//! ```
//!
//! [`DeviceBuffer::array_interface`]: crate::DeviceBuffer::array_interface

mod address;
mod array;
pub mod dlpack;
mod dtype;
mod import;
mod layout;
#[cfg(feature = "serde")]
mod serial;
mod stream;
mod view;

use crate::call::Invalid;

pub use address::grant_peer_access;
pub use array::{ArrayInterface, RawInterface, ReadOptions};
pub use dtype::{
    ByteOrder, DatetimeUnit, DescrEntry, DescrType, Dtype, Field, Kind, Record, TypeString,
};
pub use import::{Element, Imported, ImportedArray, StreamSync};
pub use layout::{ByteRange, Index, Layout};
pub use stream::ExportedStream;
pub use view::{ArrayView, ArrayViewMut};

/// Returns the error for an invalid value of a key.
fn refused(key: &'static str, problem: impl Into<String>) -> Invalid {
    Invalid::ArrayInterface { key, problem: problem.into() }
}
