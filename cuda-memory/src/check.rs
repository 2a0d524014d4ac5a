//! Checks of arguments, and the interface of managers.

use cuda_safe::manager::{INTERFACE_VERSION, MemoryManager};
use cuda_safe::{Context, Invalid, Result};

/// The version of the [`MemoryManager`] interface that the managers of this crate implement. This is not
/// the constant of `cuda-safe`, which is the version that `cuda-safe` supports.
pub(crate) const INTERFACE: u32 = 1;

/// Returns an error unless the manager implements the interface that `cuda-safe` supports.
pub(crate) fn check_version<M: MemoryManager>() -> Result<()> {
    let (version, expected) = (M::interface_version(), INTERFACE_VERSION);
    if version == expected {
        return Ok(());
    }
    Err(Invalid::ManagerVersion { version, expected }.into())
}

/// Returns an error unless an object belongs to the context of an operation.
#[inline]
pub(crate) fn same_context(what: &'static str, its: &Context, expected: &Context) -> Result<()> {
    if its == expected {
        return Ok(());
    }
    Err(Invalid::OtherContext { what, its: its.to_string(), expected: expected.to_string() }.into())
}
