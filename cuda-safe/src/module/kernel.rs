//! Kernels: functions that run on the device.

use super::{Library, Module};
use crate::call::{answer, without_current};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::launch::{Params, TypedKernel};
use cuda_sys::{CUfunction, CUresult};
use std::fmt;
use std::sync::Arc;

/// `CUfunction`: a kernel in one context.
///
/// It holds its module or library. Clones share it. [`typed`](Self::typed) makes it callable.
///
/// ```no_run
/// use cuda_safe::{Context, Device, LaunchConfig, Module};
///
/// # let ptx = "";
/// let context = Context::primary(&Device::get(0)?)?;
/// let stream = context.stream()?;
/// let nothing = Module::from_ptx(&context, ptx)?.kernel("nothing")?;
/// // The types are compared with the kernel's own list once, here.
/// let nothing = nothing.typed::<()>()?;
/// // SAFETY: the kernel touches nothing.
/// unsafe { nothing.launch(&stream, LaunchConfig::linear(1, 32), ()) }?;
/// # Ok::<_, cuda_safe::Error>(())
/// ```
#[derive(Clone)]
pub struct Kernel {
    inner: Arc<Inner>,
}

struct Inner {
    raw: CUfunction,
    name: Box<str>,
    /// Before the context in the order of drops: code is unloaded while its context lives.
    #[allow(dead_code, reason = "held, not read")]
    code: Code,
    context: Context,
}

/// What a kernel or variable is part of.
#[derive(Clone)]
pub(super) enum Code {
    Module(#[allow(dead_code, reason = "held, not read")] Module),
    Library(#[allow(dead_code, reason = "held, not read")] Library),
}

impl From<Module> for Code {
    fn from(module: Module) -> Self {
        Self::Module(module)
    }
}

impl From<Library> for Code {
    fn from(library: Library) -> Self {
        Self::Library(library)
    }
}

// SAFETY: the driver lets any thread use a function, several at once.
unsafe impl Send for Inner {}
// SAFETY: as for Send.
unsafe impl Sync for Inner {}

/// A kernel's parameters have at most this many bytes (CUDA 12.1), each at least one.
const MOST_PARAMETERS: usize = 32_764;

/// Where a parameter of a kernel is in its parameter buffer, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// From the start of the buffer.
    pub offset: usize,
    /// Its size.
    pub size: usize,
}

impl Kernel {
    pub(super) fn new(
        raw: CUfunction,
        name: &str,
        context: &Context,
        code: impl Into<Code>,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                raw,
                name: name.into(),
                code: code.into(),
                context: context.clone(),
            }),
        }
    }

    /// The driver's handle, alive as long as this is.
    #[inline]
    pub fn as_raw(&self) -> CUfunction {
        self.inner.raw
    }

    /// Its name in the module.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The context that it runs in: on its streams, and on those of its green contexts if it is a
    /// primary one.
    #[inline]
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// `cuFuncGetParamInfo(kernel, index, &offset, &size)`: the kernel's parameters; none where
    /// the driver cannot tell.
    ///
    /// Before CUDA 13.2 the number is found by asking until the driver refuses, which a memory
    /// checker that reports refused calls will list.
    ///
    /// # Errors
    /// Those of the driver.
    ///
    /// Since CUDA 12.4. Raw: [`cuFuncGetParamInfo`](fn@cuda_sys::cuFuncGetParamInfo),
    /// [`cuFuncGetParamCount`](fn@cuda_sys::cuFuncGetParamCount).
    #[doc(alias = "cuFuncGetParamInfo")]
    #[doc(alias = "cuFuncGetParamCount")]
    pub fn parameters(&self) -> Result<Option<Vec<Parameter>>> {
        let known = self.parameter_count()?;
        let mut parameters = Vec::new();
        while parameters.len() < known.unwrap_or(MOST_PARAMETERS) {
            let (mut offset, mut size) = (0, 0);
            let (function, index) = (self.as_raw(), parameters.len());
            let (at, long) = (&raw mut offset, &raw mut size);
            let answer = without_current(self.context(), || {
                // SAFETY: the function is alive, and the pointers are to locals.
                unsafe { answer!(cuFuncGetParamInfo(function, index, at, long)) }
            });
            match answer {
                Ok(()) => parameters.push(Parameter { offset, size }),
                Err(Error::Missing(_)) => return Ok(None),
                // There is no parameter of this index: that was all.
                Err(error)
                    if known.is_none()
                        && error.code() == Some(CUresult::CUDA_ERROR_INVALID_VALUE) =>
                {
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Some(parameters))
    }

    /// `cuFuncGetParamCount(kernel, &count)`; none on drivers before CUDA 13.2.
    fn parameter_count(&self) -> Result<Option<usize>> {
        let mut count = 0;
        let counted = without_current(self.context(), || {
            // SAFETY: the function is alive, and the pointer is to a local.
            unsafe { answer!(cuFuncGetParamCount(self.as_raw(), &raw mut count)) }
        });
        match counted {
            Ok(()) => Ok(Some(count)),
            Err(Error::Missing(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The kernel with the types of its arguments, checked against its own parameter list where
    /// the driver has one (CUDA 12.4): `kernel.typed::<(&[f32], &mut [f32], u32)>()`.
    ///
    /// # Errors
    /// [`Invalid::ArgumentCount`](crate::Invalid::ArgumentCount) and
    /// [`Invalid::ArgumentSize`](crate::Invalid::ArgumentSize).
    pub fn typed<P: Params>(&self) -> Result<TypedKernel<P>, Error> {
        TypedKernel::new(self)
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel")
            .field("name", &self.name())
            .field("raw", &self.inner.raw)
            .field("context", self.context())
            .finish()
    }
}
