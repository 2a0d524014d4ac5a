//! Variables of modules: `__device__`, `__constant__` and `__managed__` in CUDA C++.

use super::kernel::Code;
use super::{Library, Module};
use crate::call::{Error, Invalid, Result, answer, c_text, call, debug_struct, without_current};
use crate::context::Context;
use cuda_sys::{CUdeviceptr, CUresult};
use std::sync::Arc;

/// A variable of a module in one context. Returned by [`Module::global`].
///
/// It keeps its module or library loaded. Clones refer to the same variable. The module owns the memory
/// and frees it when it is unloaded.
///
/// ```no_run
/// use cuda_safe::{Context, Device, Module};
///
/// # let ptx = "";
/// let context = Context::primary(&Device::get(0)?)?;
/// let stream = context.stream()?;
/// let module = Module::from_ptx(&context, ptx)?;
///
/// // SAFETY: no kernel was launched, so nothing else uses the variable.
/// let mut factors = unsafe { module.global("factors")?.buffer::<f32>(&stream) }?;
/// factors.copy_from_slice(&[0.5; 4])?;
/// # Ok::<_, cuda_safe::Error>(())
/// ```
#[derive(Clone)]
pub struct Global {
    pub(crate) address: CUdeviceptr,
    pub(crate) size: usize,
    name: Arc<str>,
    /// Declared before the context, so that the code is unloaded while its context is alive.
    #[allow(dead_code, reason = "held, not read")]
    code: Code,
    pub(crate) context: Context,
}

impl Global {
    /// Returns the device address.
    #[inline]
    pub fn as_raw(&self) -> CUdeviceptr {
        self.address
    }

    /// Returns the size in bytes.
    #[inline]
    pub fn size_bytes(&self) -> usize {
        self.size
    }

    /// Returns the variable's name in the module.
    #[inline]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the context to which this instance of the variable belongs.
    #[inline]
    pub fn context(&self) -> &Context {
        &self.context
    }
}

impl Module {
    /// Returns the variable with this name. Calls `cuModuleGetGlobal`.
    ///
    /// For C++ variables without `extern "C"`, this is the mangled name.
    ///
    /// # Errors
    /// [`Invalid::NoSuchGlobal`].
    ///
    /// Since CUDA 3.2. Raw: [`cuModuleGetGlobal_v2`](fn@cuda_sys::cuModuleGetGlobal_v2).
    #[doc(alias = "cuModuleGetGlobal")]
    #[inline]
    pub fn global(&self, name: &str) -> Result<Global> {
        let c_name = c_text(name)?;
        let (mut address, mut size) = (0, 0);
        let (address_out, size_out) = (&raw mut address, &raw mut size);
        let (module, text) = (self.as_raw(), c_name.as_ptr());
        let result = without_current(self.context(), || {
            // SAFETY: the module is alive, the name ends with a NUL, and the pointers refer to local
            // variables.
            unsafe { answer!(cuModuleGetGlobal_v2(address_out, size_out, module, text)) }
        });
        explain_missing(result, name)?;
        Ok(Global {
            address,
            size,
            name: name.into(),
            code: self.code(),
            context: self.context().clone(),
        })
    }
}

impl Library {
    /// Returns the variable with this name in `context`. Calls `cuLibraryGetGlobal`.
    ///
    /// # Errors
    /// [`Invalid::NoSuchGlobal`]; errors of the compiler, for PTX that no context has used before.
    ///
    /// Since CUDA 12.0. Raw: [`cuLibraryGetGlobal`](fn@cuda_sys::cuLibraryGetGlobal).
    #[doc(alias = "cuLibraryGetGlobal")]
    #[inline]
    pub fn global(&self, context: &Context, name: &str) -> Result<Global> {
        self.find(context, name, |address_out, size_out, text| {
            // SAFETY: the library is alive, the name ends with a NUL, and the pointers refer to local
            // variables.
            unsafe { call!(cuLibraryGetGlobal(address_out, size_out, self.as_raw(), text)) }
        })
    }

    /// Returns the managed variable with this name. Calls `cuLibraryGetManaged`.
    ///
    /// All contexts share one instance of it. Buffers of the returned handle are for streams of
    /// `context`.
    ///
    /// # Errors
    /// See [`global`](Self::global).
    ///
    /// Since CUDA 12.0. Raw: [`cuLibraryGetManaged`](fn@cuda_sys::cuLibraryGetManaged).
    #[doc(alias = "cuLibraryGetManaged")]
    #[inline]
    pub fn managed(&self, context: &Context, name: &str) -> Result<Global> {
        self.find(context, name, |address_out, size_out, text| {
            // SAFETY: the library is alive, the name ends with a NUL, and the pointers refer to local
            // variables.
            unsafe { call!(cuLibraryGetManaged(address_out, size_out, self.as_raw(), text)) }
        })
    }

    fn find(
        &self,
        context: &Context,
        name: &str,
        query: impl FnOnce(*mut CUdeviceptr, *mut usize, *const std::ffi::c_char) -> Result<()>,
    ) -> Result<Global> {
        let c_name = c_text(name)?;
        let (mut address, mut size) = (0, 0);
        let result = {
            let _current = context.enter()?;
            query(&raw mut address, &raw mut size, c_name.as_ptr())
        };
        explain_missing(result, name).map_err(|error| self.explain_compilation(context, error))?;
        Ok(Global { address, size, name: name.into(), code: self.code(), context: context.clone() })
    }
}

#[inline]
fn explain_missing(result: Result<()>, name: &str) -> Result<()> {
    result.map_err(|error| match error {
        Error::Driver(driver_error) if driver_error.code == CUresult::CUDA_ERROR_NOT_FOUND => {
            Invalid::NoSuchGlobal { name: name.to_owned() }.into()
        }
        error => error,
    })
}

debug_struct! {
    Global |its| {
        name: its.name, address: format_args!("{:#x}", its.address), size: its.size, context: its.context
    }
}
