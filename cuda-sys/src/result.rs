//! `CUresult`: names and texts that need no driver.

mod text;

use crate::CUresult;
use std::fmt;

impl CUresult {
    /// Whether this is `CUDA_SUCCESS`.
    #[inline]
    pub const fn is_success(self) -> bool {
        self.0 == Self::CUDA_SUCCESS.0
    }

    /// What the code means, in our words; nothing for a code that the headers do not name.
    pub fn text(self) -> Option<&'static str> {
        text::TEXTS
            .iter()
            .find(|(code, _)| *code == self)
            .map(|(_, text)| *text)
    }
}

/// `CUDA_ERROR_OUT_OF_MEMORY (2): …`; an unknown code is its number.
impl fmt::Display for CUresult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({})", self.0)?,
            None => write!(f, "CUresult {}", self.0)?,
        }
        match self.text() {
            Some(text) => write!(f, ": {text}"),
            None => f.write_str(": a code that CUDA's headers do not name (yet)"),
        }
    }
}

impl std::error::Error for CUresult {}
