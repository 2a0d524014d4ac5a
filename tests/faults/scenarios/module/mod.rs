//! Modules, libraries and the linker.

pub(crate) mod linker;
pub(crate) mod modules;
