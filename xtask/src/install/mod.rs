//! Programs and drivers that commands download and install.

pub(crate) mod compilers;
pub(crate) mod debian;
pub(crate) mod drivers;
pub(crate) mod headers;
pub(crate) mod sources;
pub(crate) mod toolchain;
pub(crate) mod tools;
