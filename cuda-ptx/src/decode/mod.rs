//! The decoder: it links modules, and turns their instructions into operations of a warp.

mod compute;
mod control;
mod function;
mod link;
mod memory;
mod operand;
mod special;
mod together;
mod video;
mod words;

pub(crate) use link::link;

/// Why an instruction cannot be decoded.
#[derive(Clone, Debug)]
enum Problem {
    /// The text is wrong.
    Invalid(String),
    /// PTX has it, and the engine does not.
    Unsupported(String),
}

impl Problem {
    fn invalid<T>(text: impl Into<String>) -> Result<T, Self> {
        Err(Self::Invalid(text.into()))
    }

    fn unsupported<T>(text: impl Into<String>) -> Result<T, Self> {
        Err(Self::Unsupported(text.into()))
    }
}
