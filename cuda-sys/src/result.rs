//! `CUresult`: names and descriptions that need no driver.

mod text;

use crate::bindings::CUresult;
use std::fmt;

impl CUresult {
    /// Returns whether this is `CUDA_SUCCESS`.
    #[inline]
    pub const fn is_success(self) -> bool {
        self.0 == Self::CUDA_SUCCESS.0
    }

    /// Converts the code to a `Result`. The error implements [`Error`](std::error::Error).
    ///
    /// ```no_run
    /// use cuda_sys::{CUresult, cuInit};
    ///
    /// fn start() -> Result<(), Box<dyn std::error::Error>> {
    ///     // SAFETY: `cuInit` takes no pointer.
    ///     unsafe { cuInit(0) }.ok()?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// The code itself, if it is not `CUDA_SUCCESS`.
    #[inline]
    pub const fn ok(self) -> Result<(), Self> {
        if self.is_success() { Ok(()) } else { Err(self) }
    }

    /// Returns whether the process can no longer use the GPU.
    ///
    /// After such an error (for example an illegal address in a kernel), every further call in every
    /// context of this process fails. A reset does not help: only a new process can use the GPU again.
    ///
    /// This was measured for an illegal address; for the other codes the documentation of the driver says
    /// so.
    #[inline]
    pub const fn is_fatal(self) -> bool {
        matches!(
            self,
            Self::CUDA_ERROR_ECC_UNCORRECTABLE
                | Self::CUDA_ERROR_NVLINK_UNCORRECTABLE
                | Self::CUDA_ERROR_ILLEGAL_ADDRESS
                | Self::CUDA_ERROR_LAUNCH_TIMEOUT
                | Self::CUDA_ERROR_ASSERT
                | Self::CUDA_ERROR_HARDWARE_STACK_ERROR
                | Self::CUDA_ERROR_ILLEGAL_INSTRUCTION
                | Self::CUDA_ERROR_MISALIGNED_ADDRESS
                | Self::CUDA_ERROR_INVALID_ADDRESS_SPACE
                | Self::CUDA_ERROR_INVALID_PC
                | Self::CUDA_ERROR_LAUNCH_FAILED
                | Self::CUDA_ERROR_TENSOR_MEMORY_LEAK
                | Self::CUDA_ERROR_CONTAINED
                | Self::CUDA_ERROR_MPS_CLIENT_TERMINATED
                | Self::CUDA_ERROR_EXTERNAL_DEVICE
        )
    }

    /// Returns a description of the code, written for this crate. Returns `None` for a code that the
    /// headers do not define.
    #[inline]
    pub fn text(self) -> Option<&'static str> {
        text::TEXTS.iter().find(|(code, _)| *code == self).map(|(_, text)| *text)
    }
}

/// Prints the name, the number and the description, as `CUDA_ERROR_OUT_OF_MEMORY (2): …`. For an unknown
/// code it prints the number.
impl fmt::Display for CUresult {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({})", self.0)?,
            None => write!(f, "CUresult {}", self.0)?,
        }
        match self.text() {
            Some(text) => write!(f, ": {text}"),
            None => f.write_str(": a code that these CUDA headers do not define"),
        }
    }
}

impl std::error::Error for CUresult {}

/// ```compile_fail
/// #![deny(unused_must_use)]
///
/// unsafe { cuda_sys::cuInit(0) };
/// ```
///
/// The same code with the result:
///
/// ```no_run
/// #![deny(unused_must_use)]
///
/// let _ = unsafe { cuda_sys::cuInit(0) };
/// ```
#[cfg(doctest)]
pub struct ResultsMustBeUsed;
