//! The result of a compilation or a link.

use crate::architecture::Target;
use crate::error::{Invalid, Result};
use std::collections::BTreeMap;
use std::fmt;

/// Code that NVRTC or nvJitLink has produced.
///
/// A compilation for a [real architecture](Target::Cubin) has a cubin and the PTX that it was assembled from.
#[derive(Clone, PartialEq, Eq)]
pub struct Compiled {
    pub(crate) target: Target,
    pub(crate) ptx: Option<String>,
    pub(crate) cubin: Option<Vec<u8>>,
    pub(crate) lto_ir: Option<Vec<u8>>,
    pub(crate) log: String,
    /// The lowered name of each name expression.
    pub(crate) names: BTreeMap<String, String>,
}

impl Compiled {
    /// Returns the kind of code and its architecture.
    #[inline]
    pub fn target(&self) -> Target {
        self.target
    }

    /// Returns the PTX text. Calls `nvrtcGetPTX`.
    ///
    /// Raw: [`nvrtcGetPTX`](fn@crate::sys::nvrtcGetPTX),
    /// [`nvJitLinkGetLinkedPtx`](fn@crate::sys::nvJitLinkGetLinkedPtx).
    #[doc(alias = "nvrtcGetPTX")]
    #[doc(alias = "nvJitLinkGetLinkedPtx")]
    #[inline]
    pub fn ptx(&self) -> Option<&str> {
        self.ptx.as_deref()
    }

    /// Returns the cubin.
    ///
    /// Raw: [`nvrtcGetCUBIN`](fn@crate::sys::nvrtcGetCUBIN),
    /// [`nvJitLinkGetLinkedCubin`](fn@crate::sys::nvJitLinkGetLinkedCubin).
    #[doc(alias = "nvrtcGetCUBIN")]
    #[doc(alias = "nvJitLinkGetLinkedCubin")]
    #[inline]
    pub fn cubin(&self) -> Option<&[u8]> {
        self.cubin.as_deref()
    }

    /// Returns the LTO-IR, for a [`Linker`](crate::Linker).
    ///
    /// Since CUDA 12.0. Raw: [`nvrtcGetLTOIR`](fn@crate::sys::nvrtcGetLTOIR).
    #[doc(alias = "nvrtcGetLTOIR")]
    #[inline]
    pub fn lto_ir(&self) -> Option<&[u8]> {
        self.lto_ir.as_deref()
    }

    /// Returns the size of the code and the texts in memory.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        let names = self.names.iter().map(|(expression, name)| expression.len() + name.len());
        self.ptx.as_ref().map_or(0, String::len)
            + self.cubin.as_ref().map_or(0, Vec::len)
            + self.lto_ir.as_ref().map_or(0, Vec::len)
            + self.log.len()
            + names.sum::<usize>()
    }

    /// Returns the log of the compiler or linker, which contains the warnings.
    #[inline]
    pub fn log(&self) -> &str {
        &self.log
    }

    /// Returns the symbol of a kernel or variable that was registered by
    /// [`Program::with_name_expression`](crate::Program::with_name_expression). The text must be the same.
    ///
    /// # Errors
    /// [`Invalid::UnknownName`] if it was not registered. The error lists the registered names.
    ///
    /// Raw: [`nvrtcGetLoweredName`](fn@crate::sys::nvrtcGetLoweredName).
    #[doc(alias = "nvrtcGetLoweredName")]
    #[inline]
    pub fn lowered_name(&self, expression: &str) -> Result<&str> {
        let name = self.names.get(expression);
        name.map(String::as_str).ok_or_else(|| {
            Invalid::UnknownName {
                name: expression.to_owned(),
                registered: self.names.keys().cloned().collect(),
            }
            .into()
        })
    }
}

/// Shows the sizes of the code rather than the code.
impl fmt::Debug for Compiled {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compiled")
            .field("target", &self.target)
            .field("ptx_bytes", &self.ptx.as_ref().map(String::len))
            .field("cubin_bytes", &self.cubin.as_ref().map(Vec::len))
            .field("lto_ir_bytes", &self.lto_ir.as_ref().map(Vec::len))
            .field("names", &self.names)
            .field("log", &self.log)
            .finish()
    }
}
