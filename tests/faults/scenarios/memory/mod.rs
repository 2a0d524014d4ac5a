//! Memory of the device and of the host, and its copies.

pub(crate) mod batches;
pub(crate) mod buffers;
pub(crate) mod copies_2d_3d;
pub(crate) mod decompression;
pub(crate) mod exports;
pub(crate) mod managed_mapped_pooled;
