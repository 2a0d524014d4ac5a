//! The PTX of a module, which is decoded when one of its kernels first runs.

use super::Contents;
use cuda_ptx::{Program, syntax};
use std::sync::{Arc, OnceLock};

/// The PTX of a module.
#[derive(Debug, Default)]
pub(crate) struct Code {
    texts: Vec<Arc<str>>,
    lacks_ptx: bool,
    program: OnceLock<Result<Program, String>>,
}

impl Code {
    pub(crate) fn new(contents: &Contents) -> Self {
        let Contents { texts, lacks_ptx, .. } = contents;
        Self { texts: texts.clone(), lacks_ptx: *lacks_ptx, ..Self::default() }
    }

    /// Returns whether all of the module has PTX.
    pub(crate) fn is_ptx(&self) -> bool {
        !self.texts.is_empty() && !self.lacks_ptx
    }

    /// Returns the decoded program, or what is wrong with it.
    pub(crate) fn program(&self) -> Result<&Program, String> {
        let link = || {
            let modules = self.texts.iter().map(|text| {
                syntax::parse(text).map_err(|error| format!("its PTX is not valid: {error}"))
            });
            let modules: Vec<_> = modules.collect::<Result<_, _>>()?;
            Program::link(&modules).map_err(|error| format!("its PTX cannot be linked: {error}"))
        };
        self.program.get_or_init(link).as_ref().map_err(Clone::clone)
    }
}
