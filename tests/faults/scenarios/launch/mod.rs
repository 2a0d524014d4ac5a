//! Launches, and the attributes of kernels.

pub(crate) mod kernels;
pub(crate) mod launches;
