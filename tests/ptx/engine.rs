//! The engine of `cuda-ptx` as this test calls it.

use crate::form::Shape;

/// The answer of [`run_on_engine`] as long as there is no engine.
pub(crate) const NO_ENGINE: &str = "no engine";

/// Parses a module.
///
/// # Errors
/// The error of the parser.
pub(crate) fn parse(_ptx: &str) -> Result<(), String> {
    Ok(())
}

/// Runs a kernel whose first two parameters are the addresses of `input` and of `output_len` bytes,
/// which are 0 before. `more` are its other parameters. Returns the output.
///
/// # Errors
/// The error of the parser, of the decoder or of the run.
pub(crate) fn run_on_engine(
    _ptx: &str,
    _kernel: &str,
    _shape: Shape,
    _input: &[u8],
    _more: &[&[u8]],
    _output_len: usize,
) -> Result<Vec<u8>, String> {
    Err(NO_ENGINE.to_owned())
}
