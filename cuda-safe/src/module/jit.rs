//! The driver's compiler: its log, and what its errors mean.

use super::image;
use crate::driver;
use crate::error::{CompileError, Error, Result};
use core::ffi::{CStr, c_void};
use cuda_sys::{CUjit_option, CUresult};

/// Room for what the compiler writes about errors, and the options of the loading call that hand it
/// over. Nothing says that the driver copies these, and it writes into the values as well (the size
/// of what it wrote): so all of it is on the heap, and lives as long as the code is loaded.
pub(super) struct Log {
    text: Vec<u8>,
    keys: Vec<CUjit_option>,
    values: Vec<*mut c_void>,
}

// SAFETY: the pointers are to memory of its own, and nothing is written or read through them here.
unsafe impl Send for Log {}
// SAFETY: as for Send.
unsafe impl Sync for Log {}

impl Log {
    /// The number of options.
    pub(super) const COUNT: u32 = 2;
    const SIZE: usize = 8192;

    pub(super) fn new() -> Self {
        let mut text = vec![0u8; Self::SIZE];
        let keys = vec![
            CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
            CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        ];
        let values = vec![
            text.as_mut_ptr().cast(),
            // A number in the place of a pointer: the API's way.
            std::ptr::without_provenance_mut(Self::SIZE),
        ];
        Self { text, keys, values }
    }

    /// Keys and values for the loading call, in the memory of this.
    pub(super) fn options(&mut self) -> (*mut CUjit_option, *mut *mut c_void) {
        (self.keys.as_mut_ptr(), self.values.as_mut_ptr())
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
