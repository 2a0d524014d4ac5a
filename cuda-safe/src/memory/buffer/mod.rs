//! Buffers of device memory and slices of them.

pub(crate) mod allocation;
pub(crate) mod device;
pub(crate) mod mapped;
pub(crate) mod pitched;
pub(crate) mod shared;
pub(crate) mod slice;
