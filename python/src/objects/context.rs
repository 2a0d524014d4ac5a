//! Contexts.

use cuda_safe::Context;
use pyo3::prelude::*;

/// The primary context of a device, which all libraries of a process share.
///
/// `with context:` makes it current on this thread. The previous context becomes current again when
/// the block ends, or when the last block that began within it ends. If other code has left another
/// context current, an exception is raised and no context is popped.
#[pyclass(frozen, eq, hash, name = "Context", module = "cuda_safe", weakref)]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct PyContext(pub(crate) Context);
