//! DLPack: tensors of others and for others, as before version 1 and of version 1.
//!
//! [`ManagedTensor`] is a tensor that came, of which [`ManagedTensor::import`] makes memory for work
//! here; [`Export`] is one that goes. Both are about the pointers that capsules of Python hold
//! ([`raw`]): there is no Python here. [`ConsumerStream`] is the argument with which a consumer asks,
//! and by which a producer puts things in order.
//!
//! | | consumer | producer |
//! |---|---|---|
//! | begin | asks with [`ConsumerStream::of`] its stream | [`ConsumerStream::wait_for`] its own stream, then [`Export`] |
//! | end | its work is over, or in order ([`Handover`](super::Handover)), and the deleter is called | what keeps the memory is dropped; [`Export::behind`] where the consumer does not wait |
//!
//! The structures are this crate's own, a few lines that do not change ([`raw`]): of the crates that
//! have them those that are kept up need a newer compiler than this one, and have Python in them.

mod dtype;
mod export;
mod import;
mod managed;
pub mod raw;
mod stream;

pub use dtype::{DataType, TypeCode};
pub use export::Export;
pub use managed::{ManagedTensor, MemoryKind};
pub use stream::ConsumerStream;

use super::Layout;
use crate::invalid::Invalid;
use std::fmt;

/// What a tensor says of itself. (Boxed, so that what has it is small enough for the side of errors.)
struct Described {
    dtype: DataType,
    layout: Layout,
    address: u64,
    memory: MemoryKind,
    device: u32,
    flags: u64,
}

impl Described {
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

/// The version that is written. Minor ones add names for numbers, and with 1.2 strides are always there.
const MAJOR: u32 = 1;
const MINOR: u32 = 2;

/// What a field says that cannot be.
fn refused(field: &'static str, problem: impl Into<String>) -> Invalid {
    Invalid::Dlpack {
        field,
        problem: problem.into(),
    }
}

/// A layout's refusal, which speaks of the keys of array interfaces: they are the same names here.
fn of_layout(invalid: Invalid) -> Invalid {
    match invalid {
        Invalid::ArrayInterface { key, problem } => refused(key, problem),
        other => other,
    }
}
