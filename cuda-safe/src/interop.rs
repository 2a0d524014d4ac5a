//! Arrays of others: the CUDA Array Interface and DLPack, with NumPy's types and layouts.
//!
//! [`ArrayInterface`] is what an object with `__cuda_array_interface__` says of its array, versions 0
//! to 3: read with [`RawInterface::check`], which refuses what it cannot mean with an error that names
//! the key, and written with [`ArrayInterface::to_raw`]. [`Dtype`] and [`TypeString`] are the elements,
//! [`Layout`] where they lie.
//!
//! None of that needs a driver or Python. [`ArrayInterface::import`] makes an array of others into
//! memory for work here, in order with its producer in the way that a [`Handover`] names;
//! [`DeviceBuffer::array_interface`] is the way out, and [`ExportedStream::joined`] for work of several
//! streams.
//! The other protocol, whose tensors own their memory, is [`dlpack`]. [`ArrayView`] and [`ArrayViewMut`]
//! are arrays of several dimensions in memory here, with the parts and shapes that NumPy has.
//!
//! With the feature `serde` the descriptions are written and read by it: types as their strings, an
//! [`ArrayInterface`] as the dict. What is read is checked as everything else.
//!
//! ```
//! use cuda_safe::interop::{Layout, TypeString};
//!
//! // What "typestr" and "shape" of a 3 by 4 array of NumPy's float32 say.
//! let element: TypeString = "<f4".parse()?;
//! let layout = Layout::c_contiguous(&[3, 4], element.item_size())?;
//! assert_eq!(layout.strides(), [16, 4]);
//! # Ok::<_, cuda_safe::Invalid>(())
//! ```
//!
//! [`DeviceBuffer::array_interface`]: crate::DeviceBuffer::array_interface

mod array;
pub mod dlpack;
mod dtype;
mod import;
mod layout;
mod peers;
mod place;
#[cfg(feature = "serde")]
mod serial;
mod stream;
mod typestr;
mod view;

use crate::invalid::Invalid;

pub use array::{ArrayInterface, RawInterface, ReadOptions};
pub use dtype::{DescrEntry, DescrType, Dtype, Field, Record};
pub use import::{Element, Handover, Imported, ImportedArray};
pub use layout::{ByteRange, Index, Layout};
pub use peers::grant_peer_access;
pub use stream::ExportedStream;
pub use typestr::{ByteOrder, DatetimeUnit, Kind, TypeString};
pub use view::{ArrayView, ArrayViewMut};

/// What a key says that cannot be.
fn refused(key: &'static str, problem: impl Into<String>) -> Invalid {
    Invalid::ArrayInterface {
        key,
        problem: problem.into(),
    }
}
