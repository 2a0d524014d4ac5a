//! Checks of arguments.

use crate::base::error::Result;
use crate::base::invalid::Invalid;
use crate::driver::context::Context;
use crate::memory::manager::{INTERFACE_VERSION, MemoryManager};

/// Returns an error unless the manager implements the interface of this `cuda-safe`.
pub(super) fn check_version<M: MemoryManager>() -> Result<()> {
    let (version, expected) = (M::interface_version(), INTERFACE_VERSION);
    if version == expected {
        return Ok(());
    }
    Err(Invalid::ManagerVersion { version, expected }.into())
}

/// Returns an error unless an object belongs to the context of an operation.
pub(super) fn same_context(what: &'static str, its: &Context, expected: &Context) -> Result<()> {
    if its == expected {
        return Ok(());
    }
    Err(Invalid::OtherContext {
        what,
        its: its.to_string(),
        expected: expected.to_string(),
    }
    .into())
}
