//! The decoder: it links modules, and turns their instructions into operations of a warp.

mod bulk;
mod check;
mod compute;
mod control;
mod fragment;
mod function;
mod link;
mod matrix;
mod memory;
mod multimem;
mod operand;
mod special;
mod texture;
mod together;
mod video;
mod words;

use crate::program::{LinkError, Program};
use crate::syntax::Module;

impl Program {
    /// Links modules and decodes their kernels.
    ///
    /// # Errors
    /// A module is not valid, or two modules define a symbol.
    pub fn link(modules: &[Module<'_>]) -> Result<Self, LinkError> {
        link::link(modules)
    }
}

/// Returns whether every device has a function of this name, such as `vprintf`.
pub fn is_device_function(name: &str) -> bool {
    link::intrinsic(name).is_some() || name == link::SYNCHRONIZE
}

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
