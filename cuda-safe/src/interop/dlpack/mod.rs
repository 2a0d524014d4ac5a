//! DLPack tensors: import and export, in the format before version 1 and of version 1.
//!
//! [`ManagedTensor`] is an imported tensor, whose memory [`ManagedTensor::import`] makes usable for
//! work on a stream. [`Export`] is a tensor for other libraries. Both work with the pointers that
//! Python capsules contain ([`raw`]); this module does not use Python. [`ConsumerStream`] is the
//! argument with which a consumer requests a tensor, and with which the producer orders its work.
//!
//! | | consumer | producer |
//! |---|---|---|
//! | begin | requests the tensor with [`ConsumerStream::of`] its stream | calls [`ConsumerStream::wait_stream`] with its own stream, then creates an [`Export`] |
//! | end | calls the deleter when its work is complete or ordered ([`StreamSync`](super::StreamSync)) | drops the owner of the memory; [`Export::release_after`] is for consumers that do not wait |
//!
//! The structures in [`raw`] are defined by this crate. They are short and stable. The maintained
//! crates that define them require a newer compiler than this crate, and depend on Python.

mod dtype;
mod export;
mod managed;
pub mod raw;
mod stream;

pub use dtype::{DataType, TypeCode};
pub use export::Export;
pub use managed::{ManagedTensor, MemoryKind};
pub use stream::ConsumerStream;

use super::Layout;
use crate::call::Invalid;
use std::fmt;

/// Description of a tensor. (It is boxed to keep error types that contain it small.)
struct TensorDescription {
    dtype: DataType,
    layout: Layout,
    address: u64,
    memory: MemoryKind,
    device: u32,
    flags: u64,
}

impl TensorDescription {
    #[inline]
    fn debug(&self, f: &mut fmt::DebugStruct<'_, '_>) -> fmt::Result {
        f.field("dtype", &format_args!("{}", self.dtype))
            .field("layout", &self.layout)
            .field("address", &format_args!("{:#x}", self.address))
            .field("memory", &self.memory)
            .field("device", &self.device)
            .field("flags", &self.flags)
            .finish_non_exhaustive()
    }
}

/// The version for writing. Minor versions add names for codes; since 1.2 the strides are
/// always present.
const MAJOR: u32 = 1;
const MINOR: u32 = 2;

/// Returns the error for an invalid value of a field.
fn refused(field: &'static str, problem: impl Into<String>) -> Invalid {
    Invalid::Dlpack { field, problem: problem.into() }
}

/// Converts an error of a layout, which names the keys of array interfaces. DLPack uses the same
/// names.
#[inline]
fn from_layout_error(invalid: Invalid) -> Invalid {
    match invalid {
        Invalid::ArrayInterface { key, problem } => refused(key, problem),
        other => other,
    }
}
