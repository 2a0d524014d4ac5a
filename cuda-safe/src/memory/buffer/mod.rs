//! Buffers of device memory and slices of them.

pub(crate) mod allocation;
pub(crate) mod arguments;
pub(crate) mod cast;
pub(crate) mod chunks;
pub(crate) mod device;
pub(crate) mod global;
pub(crate) mod mapped;
pub(crate) mod pitched;
pub(crate) mod shared;
pub(crate) mod slice;
pub(crate) mod stream_ops;
