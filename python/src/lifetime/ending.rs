//! Calls that end with an error while the interpreter is finalized.

use crate::error::{Failure, Result};
use crate::interpreter::Call;
pub(crate) use crate::interpreter::{attached, let_go, let_go_of, without_gil};
use pyo3::prelude::*;

/// Runs code that calls Python. During finalization it returns an error on other threads.
pub(crate) fn calling<R, E>(
    _py: Python<'_>,
    call: impl FnOnce() -> std::result::Result<R, E>,
) -> Result<R>
where
    Failure: From<E>,
{
    let _call = Call::begin().ok_or(Failure::Ended)?;
    Ok(call()?)
}

/// Runs code that may block, without the GIL. During finalization it behaves like [`calling`].
pub(crate) fn detached<R: Send, E: Send>(
    py: Python<'_>,
    call: impl FnOnce() -> std::result::Result<R, E> + Send,
) -> Result<R>
where
    Failure: From<E>,
{
    let _call = Call::begin().ok_or(Failure::Ended)?;
    Ok(py.detach(call)?)
}
