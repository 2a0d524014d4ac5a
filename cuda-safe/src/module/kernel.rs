//! Kernels: functions that run on the device.

use crate::call::{Error, Invalid, Result, answer, debug_struct, without_current};
use crate::context::Context;
use cuda_sys::{CUfunction, CUresult};
use std::any::Any;
use std::sync::{Arc, OnceLock};

/// A kernel in one context (`CUfunction`). Returned by [`Module::kernel`](super::Module::kernel) and [`Library::kernel`](super::Library::kernel).
///
/// It keeps its module or library loaded. Clones share it.
///
/// # Launches
/// - [`typed`](Self::typed) is for kernels whose parameter types are known at compile time. It returns a
///   [`TypedKernel`](crate::TypedKernel), which is launched with a tuple of arguments.
/// - [`launch_builder`](Self::launch_builder) is for kernels whose parameter types are known only at run
///   time, and for kernels with more than 24 parameters.
/// - [`sys::cuLaunchKernel`](fn@cuda_sys::cuLaunchKernel) with [`as_raw`](Self::as_raw) is for arrays of
///   argument pointers that come from C. It checks nothing.
///
/// ```no_run
/// use cuda_safe::{Context, Device, LaunchConfig, Module};
///
/// # let ptx = "";
/// let context = Context::primary(&Device::get(0)?)?;
/// let stream = context.stream()?;
/// let nothing = Module::from_ptx(&context, ptx)?.kernel("nothing")?;
/// // This compares the types with the kernel's parameter list once.
/// let nothing = nothing.typed::<()>()?;
/// // SAFETY: the kernel accesses no memory.
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
    /// Declared before the context, so that the code is unloaded while its context is alive.
    #[allow(dead_code, reason = "held, not read")]
    code: Code,
    context: Context,
    /// The parameters, or `None` if the driver cannot report them. Set by the first query.
    parameters: OnceLock<Option<Box<[Parameter]>>>,
}

/// The module or the library that has the code.
pub(super) type Code = Arc<dyn Any + Send + Sync>;

// SAFETY: the driver allows several threads to use a function at the same time.
unsafe impl Send for Inner {}
// SAFETY: see `Send`.
unsafe impl Sync for Inner {}

/// The maximum number of parameters: a kernel's parameters have at most this many bytes in total (CUDA
/// 12.1), and each has at least one.
const MAX_PARAMETERS: usize = 32_764;

/// The position of a kernel parameter in the parameter buffer, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// The offset from the start of the buffer, in bytes.
    pub offset: usize,
    /// The size of the parameter, in bytes.
    pub size: usize,
}

impl Kernel {
    #[inline]
    pub(super) fn new(raw: CUfunction, name: &str, context: &Context, code: Code) -> Self {
        Self {
            inner: Arc::new(Inner {
                raw,
                name: name.into(),
                code,
                context: context.clone(),
                parameters: OnceLock::new(),
            }),
        }
    }

    /// Returns the raw handle, which is valid as long as this object is alive.
    #[inline]
    pub fn as_raw(&self) -> CUfunction {
        self.inner.raw
    }

    /// Returns whether both are clones of one object.
    #[inline]
    pub(crate) fn is_clone_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Returns the kernel's name in the module.
    #[inline]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Returns the kernel's context. The kernel can be launched on streams of this context, and on
    /// streams of its green contexts if it is a primary context.
    #[inline]
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Returns the kernel's parameters, or `None` if the driver cannot report them. Calls
    /// `cuFuncGetParamInfo`. Only the first call on the kernel or one of its clones queries the driver.
    ///
    /// Before CUDA 13.2, the number of parameters is found by querying until the driver returns an
    /// error. A memory checker that reports failed API calls lists that error.
    ///
    /// # Errors
    /// Errors of the driver.
    ///
    /// Since CUDA 12.4. Raw: [`cuFuncGetParamInfo`](fn@cuda_sys::cuFuncGetParamInfo),
    /// [`cuFuncGetParamCount`](fn@cuda_sys::cuFuncGetParamCount).
    #[doc(alias = "cuFuncGetParamInfo", alias = "cuFuncGetParamCount")]
    #[inline]
    pub fn parameters(&self) -> Result<Option<&[Parameter]>> {
        let known = &self.inner.parameters;
        let parameters = match known.get() {
            Some(parameters) => parameters,
            None => {
                // Several threads may query at the same time and get the same answer. No thread waits
                // for the driver calls of another.
                let parameters = self.query_parameters()?;
                known.get_or_init(|| parameters)
            }
        };
        Ok(parameters.as_deref())
    }

    #[inline]
    fn query_parameters(&self) -> Result<Option<Box<[Parameter]>>> {
        let known = self.parameter_count()?;
        let mut parameters = Vec::new();
        while parameters.len() < known.unwrap_or(MAX_PARAMETERS) {
            let (mut offset, mut size) = (0, 0);
            let (function, index) = (self.as_raw(), parameters.len());
            let (offset_out, size_out) = (&raw mut offset, &raw mut size);
            let answer = without_current(self.context(), || {
                // SAFETY: the function is alive, and the pointers refer to local variables.
                unsafe { answer!(cuFuncGetParamInfo(function, index, offset_out, size_out)) }
            });
            match answer {
                Ok(()) => parameters.push(Parameter { offset, size }),
                Err(Error::Missing(_)) => return Ok(None),
                // There is no parameter with this index, so the previous one was the last.
                Err(error)
                    if known.is_none()
                        && error.code() == Some(CUresult::CUDA_ERROR_INVALID_VALUE) =>
                {
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Some(parameters.into()))
    }

    /// Checks the number and the sizes of arguments, in bytes, if the driver can report the parameters.
    #[inline]
    pub(crate) fn check_sizes(&self, given: &[usize]) -> Result<()> {
        let Some(parameters) = self.parameters()? else { return Ok(()) };
        if parameters.len() != given.len() {
            return Err(Invalid::ArgumentCount {
                kernel: self.name().to_owned(),
                parameters: parameters.len(),
                given: given.len(),
            }
            .into());
        }
        for (index, (parameter, given)) in parameters.iter().zip(given).enumerate() {
            if parameter.size != *given {
                return Err(Invalid::ArgumentSize {
                    kernel: self.name().to_owned(),
                    index,
                    parameter: parameter.size,
                    given: *given,
                }
                .into());
            }
        }
        Ok(())
    }

    /// Returns the number of parameters, or `None` on drivers before CUDA 13.2. Calls
    /// `cuFuncGetParamCount`.
    #[inline]
    fn parameter_count(&self) -> Result<Option<usize>> {
        let mut count = 0;
        let counted = without_current(self.context(), || {
            // SAFETY: the function is alive, and the pointer refers to a local variable.
            unsafe { answer!(cuFuncGetParamCount(self.as_raw(), &raw mut count)) }
        });
        match counted {
            Ok(()) => Ok(Some(count)),
            Err(Error::Missing(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

debug_struct! { Kernel |its| { name: its.name(), raw: its.inner.raw, context: its.context() } }
