//! The driver's compiler: its log, and what its errors mean.

use super::image;
use crate::driver;
use crate::error::{CompileError, Error, Result};
use core::ffi::{CStr, c_void};
use cuda_sys::{CUjit_option, CUresult};

/// Room for what the compiler writes about errors, handed over as options of the loading call.
pub(super) struct Log {
    text: Vec<u8>,
}

impl Log {
    /// The number of options.
    pub(super) const COUNT: u32 = 2;
    const SIZE: usize = 8192;

    pub(super) fn new() -> Self {
        Self {
            text: vec![0; Self::SIZE],
        }
    }

    /// Keys and values for the loading call; they point into this.
    pub(super) fn options(&mut self) -> ([CUjit_option; 2], [*mut c_void; 2]) {
        (
            [
                CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
                CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
            ],
            [
                self.text.as_mut_ptr().cast(),
                // A number in the place of a pointer: the API's way.
                std::ptr::without_provenance_mut(Self::SIZE),
            ],
        )
    }

    /// Adds the log to an error of the compiler.
    pub(super) fn attach(&self, done: Result<()>) -> Result<()> {
        done.map_err(|error| match error {
            Error::Driver(error) if is_compile_error(error.code) => {
                let end = self.text.iter().position(|byte| *byte == 0);
                let text = &self.text[..end.unwrap_or(self.text.len())];
                Error::Compile(Box::new(CompileError {
                    error,
                    log: String::from_utf8_lossy(text).trim_end().to_owned(),
                }))
            }
            other => other,
        })
    }
}

pub(super) fn is_compile_error(code: CUresult) -> bool {
    matches!(
        code,
        CUresult::CUDA_ERROR_INVALID_PTX
            | CUresult::CUDA_ERROR_INVALID_IMAGE
            | CUresult::CUDA_ERROR_INVALID_SOURCE
            | CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU
            | CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION
            | CUresult::CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY
            | CUresult::CUDA_ERROR_JIT_COMPILER_NOT_FOUND
            | CUresult::CUDA_ERROR_JIT_COMPILATION_DISABLED
            | CUresult::CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND
            | CUresult::CUDA_ERROR_SHARED_OBJECT_INIT_FAILED
    )
}

/// Names both versions where the text is newer than the compiler.
pub(super) fn explain_ptx(error: Error, text: &CStr) -> Error {
    match (error.code(), driver::version()) {
        (Some(CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION), Ok(driver)) => Error::PtxTooNew {
            ptx: text.to_str().ok().and_then(image::ptx_version),
            driver,
        },
        _ => error,
    }
}
