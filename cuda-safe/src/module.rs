//! Code on the device: modules, libraries, and the kernels in them.
//!
//! PTX text is compiled by the driver and may come from anywhere. Cubin and fatbin images are
//! trusted by the driver's loader, so loading them is `unsafe`. Kernels are written and compiled
//! elsewhere: by nvcc or NVRTC from CUDA C++, or by Rust compilers for the `nvptx64` target.

pub mod attribute;
mod global;
mod image;
mod jit;
mod kernel;
mod library;
mod linker;
mod occupancy;

pub(crate) use attribute as kernel_attribute;
pub use global::Global;
pub use jit::JitOptions;
pub use kernel::{Kernel, Parameter};
pub use library::Library;
pub use linker::{LinkInput, Linked, Linker};
pub use occupancy::{OccupancyOptions, SuggestedBlock};

use crate::call::{answer, call, without_current};
use crate::context::Context;
use crate::driver;
use crate::error::{DriverError, Result};
use crate::hold::Hold;
use crate::invalid::Invalid;
use crate::release::{self, Resource, release};
use cuda_sys::{CUfunction, CUmodule, CUmoduleLoadingMode, CUresult};
use std::any::Any;
use std::ffi::{CStr, c_char, c_void};
use std::fmt;
use std::sync::Arc;

/// `CUmodule`: code loaded into one context.
///
/// Clones share it; kernels hold it. Loading and unloading wait for *all* running work of the
/// context. [`Library`] is the newer way, which loads into every context that uses it.
///
/// ```no_run
/// use cuda_safe::{Context, Device, Module};
///
/// # let ptx = "";
/// let context = Context::primary(&Device::get(0)?)?;
/// let module = Module::from_ptx(&context, ptx)?;
/// for name in module.kernel_names()? {
///     println!("{name}: {:?}", module.kernel(&name)?.parameters()?);
/// }
/// # Ok::<_, cuda_safe::Error>(())
/// ```
#[derive(Clone)]
pub struct Module {
    inner: Arc<Inner>,
}

struct Inner {
    raw: CUmodule,
    hold: Hold,
    /// What the compiler wrote.
    log: Box<str>,
    /// Where loading is lazy, kernels are finished when they are first asked for.
    #[allow(dead_code, reason = "held for the driver")]
    request: Option<jit::Request>,
    context: Context,
}

// SAFETY: the driver lets any thread use a module.
unsafe impl Send for Inner {}
// SAFETY: as for Send.
unsafe impl Sync for Inner {}

/// `CUmoduleLoadingMode`: when code comes onto the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LoadingMode {
    /// All of a module when it is loaded.
    Eager,
    /// A kernel when it is first used, or by [`Kernel::load`].
    Lazy,
    /// What a newer driver answered, by its number.
    Other(u32),
}

impl Module {
    /// `cuModuleLoadDataEx(&module, ptx, …)`: compiles PTX text for the context's device.
    ///
    /// # Errors
    /// [`Error::Compile`](crate::Error::Compile) with the compiler's log;
    /// [`Error::PtxTooNew`](crate::Error::PtxTooNew); empty text, or a NUL inside.
    ///
    /// Since CUDA 2.1. Raw: [`cuModuleLoadData`](fn@cuda_sys::cuModuleLoadData),
    /// [`cuModuleLoadDataEx`](fn@cuda_sys::cuModuleLoadDataEx),
    /// [`cuModuleUnload`](fn@cuda_sys::cuModuleUnload).
    #[doc(alias = "cuModuleLoadData")]
    #[doc(alias = "cuModuleLoadDataEx")]
    #[doc(alias = "cuModuleUnload")]
    pub fn from_ptx(context: &Context, ptx: &str) -> Result<Self> {
        Self::from_ptx_with(context, ptx, &JitOptions::default())
    }

    /// `cuModuleLoadDataEx(&module, text, count, options, values)`: as [`from_ptx`](Self::from_ptx), with
    /// options for the compiler.
    ///
    /// # Errors
    /// As for [`from_ptx`](Self::from_ptx); [`Invalid::JitOption`];
    /// [`Invalid::JitOptionNeedsNewerDriver`].
    ///
    /// Since CUDA 2.1; some options are newer. Raw:
    /// [`cuModuleLoadDataEx`](fn@cuda_sys::cuModuleLoadDataEx).
    #[doc(alias = "cuModuleLoadDataEx")]
    pub fn from_ptx_with(context: &Context, ptx: &str, options: &JitOptions) -> Result<Self> {
        Self::from_checked_ptx(context, &image::ptx(ptx)?, options)
    }

    /// Of text that begins as PTX does.
    fn from_checked_ptx(context: &Context, ptx: &CStr, options: &JitOptions) -> Result<Self> {
        // SAFETY: the driver takes text that begins so for PTX, up to the NUL, and its compiler
        // checks the rest.
        unsafe { Self::load(context, ptx.as_ptr().cast(), options) }
            .map_err(|error| jit::explain_ptx(error, ptx))
    }

    /// `cuModuleLoadDataEx(&module, image, …)`: loads a cubin or fatbin.
    ///
    /// # Errors
    /// An image that is empty, of another kind, or shorter than its header says;
    /// `CUDA_ERROR_NO_BINARY_FOR_GPU` where it has no code for the device.
    ///
    /// # Safety
    /// `image` is a whole image made by NVIDIA's tools: the driver's loader trusts what is in it.
    ///
    /// Since CUDA 2.1.
    pub unsafe fn from_image(context: &Context, image: &[u8]) -> Result<Self> {
        // SAFETY: the caller's promise.
        unsafe { Self::from_image_with(context, image, &JitOptions::default()) }
    }

    /// `cuModuleLoadDataEx(&module, image, count, options, values)`: as
    /// [`from_image`](Self::from_image), with options for the PTX in a fatbin, and for which of
    /// its images is taken.
    ///
    /// # Errors
    /// As for [`from_image`](Self::from_image) and [`from_ptx_with`](Self::from_ptx_with).
    ///
    /// # Safety
    /// As for [`from_image`](Self::from_image).
    ///
    /// Since CUDA 2.1; some options are newer. Raw:
    /// [`cuModuleLoadDataEx`](fn@cuda_sys::cuModuleLoadDataEx).
    #[doc(alias = "cuModuleLoadDataEx")]
    pub unsafe fn from_image_with(
        context: &Context,
        image: &[u8],
        options: &JitOptions,
    ) -> Result<Self> {
        image::check(image)?;
        // SAFETY: the caller's promise.
        unsafe { Self::load(context, image.as_ptr().cast(), options) }
    }

    /// # Safety
    /// `image` is a whole image, or text that ends with a NUL.
    unsafe fn load(context: &Context, image: *const c_void, options: &JitOptions) -> Result<Self> {
        release::drain();
        let mut raw = std::ptr::null_mut();
        let mut request = jit::Request::new(options)?;
        let (count, keys, values) = request.options();
        let done = {
            let _current = context.enter()?;
            // SAFETY: the caller's promise for the image; the options are `count` keys and values
            // of the types that they want, they and what they point to in heap memory of `request`,
            // which lives as long as the module is loaded, or can be used.
            unsafe { call!(cuModuleLoadDataEx(&raw mut raw, image, count, keys, values)) }
        };
        request.attach(done)?;
        Ok(Self::own(raw, context, Hold::Owned, Some(request)))
    }

    /// Takes over a module: it is unloaded with the last clone and the last kernel of it.
    ///
    /// # Safety
    /// `raw` is a module of `context` that is loaded, and nobody else unloads it.
    pub unsafe fn from_raw(raw: CUmodule, context: &Context) -> Self {
        Self::own(raw, context, Hold::Owned, None)
    }

    /// A module that somebody else owns: never unloaded here.
    ///
    /// # Safety
    /// `raw` is a module of `context` that stays loaded until the last clone of this, and the last
    /// kernel of it, is gone.
    pub unsafe fn borrow_raw(raw: CUmodule, context: &Context) -> Self {
        Self::own(raw, context, Hold::Borrowed, None)
    }

    /// A module that `owner` keeps: never unloaded here, and `owner` is dropped after the last
    /// clone of this and the last kernel of it.
    ///
    /// # Safety
    /// `raw` is a module of `context` that stays loaded as long as `owner` is.
    pub unsafe fn from_foreign(
        raw: CUmodule,
        context: &Context,
        owner: impl Any + Send + Sync,
    ) -> Self {
        Self::own(raw, context, Hold::Foreign(Box::new(owner)), None)
    }

    fn own(raw: CUmodule, context: &Context, hold: Hold, request: Option<jit::Request>) -> Self {
        Self {
            inner: Arc::new(Inner {
                raw,
                hold,
                log: request
                    .as_ref()
                    .map(jit::Request::info)
                    .unwrap_or_default()
                    .into(),
                request,
                context: context.clone(),
            }),
        }
    }

    /// Never unloads the module: it and its context stay until the process ends.
    pub fn leak(self) -> CUmodule {
        let raw = self.as_raw();
        std::mem::forget(self);
        raw
    }

    /// The driver's handle. It stays this object's: do not unload it.
    pub fn as_raw(&self) -> CUmodule {
        self.inner.raw
    }

    /// What the compiler wrote when it took the code, if that was
    /// [asked for](JitOptions::info_log). It writes nothing about code in its cache.
    pub fn log(&self) -> &str {
        &self.inner.log
    }

    /// The context that the module is loaded into.
    #[inline]
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// `cuModuleGetLoadingMode(&mode)`: whether the driver loads code at once or when it is first
    /// used, in this process: as `CUDA_MODULE_LOADING` said when it was started.
    ///
    /// # Errors
    /// No driver, or a driver without a GPU.
    ///
    /// Since CUDA 11.7. Raw: [`cuModuleGetLoadingMode`](fn@cuda_sys::cuModuleGetLoadingMode).
    #[doc(alias = "cuModuleGetLoadingMode")]
    pub fn loading_mode() -> Result<LoadingMode> {
        driver::init()?;
        let mut mode = CUmoduleLoadingMode::default();
        // SAFETY: the pointer is to a local.
        unsafe { call!(cuModuleGetLoadingMode(&raw mut mode)) }?;
        Ok(match mode {
            CUmoduleLoadingMode::CU_MODULE_EAGER_LOADING => LoadingMode::Eager,
            CUmoduleLoadingMode::CU_MODULE_LAZY_LOADING => LoadingMode::Lazy,
            CUmoduleLoadingMode(number) => LoadingMode::Other(number),
        })
    }

    /// `cuModuleGetFunction(&kernel, module, name)`: the kernel of that name (for C++ without
    /// `extern "C"`: the mangled one).
    ///
    /// # Errors
    /// [`Invalid::NoSuchKernel`], which lists the kernels there are where the driver can (12.4).
    ///
    /// Since CUDA 2.0. Raw: [`cuModuleGetFunction`](fn@cuda_sys::cuModuleGetFunction).
    #[doc(alias = "cuModuleGetFunction")]
    pub fn kernel(&self, name: &str) -> Result<Kernel> {
        let c_name = image::name(name)?;
        let mut raw = std::ptr::null_mut();
        let (function, module, text) = (&raw mut raw, self.as_raw(), c_name.as_ptr());
        let found = without_current(self.context(), || {
            // SAFETY: the module is alive, the name ends with a NUL, and the pointer is to a local.
            unsafe { answer!(cuModuleGetFunction(function, module, text)) }
        });
        explain_missing(found, name, || self.kernel_names())?;
        Ok(Kernel::new(raw, name, self.context(), self.clone()))
    }

    /// `cuModuleEnumerateFunctions(kernels, count, module)`: the names of all kernels.
    ///
    /// # Errors
    /// The driver is older.
    ///
    /// Since CUDA 12.4. Raw: [`cuModuleEnumerateFunctions`](fn@cuda_sys::cuModuleEnumerateFunctions),
    /// [`cuModuleGetFunctionCount`](fn@cuda_sys::cuModuleGetFunctionCount),
    /// [`cuFuncGetName`](fn@cuda_sys::cuFuncGetName).
    #[doc(alias = "cuModuleEnumerateFunctions")]
    #[doc(alias = "cuModuleGetFunctionCount")]
    #[doc(alias = "cuFuncGetName")]
    pub fn kernel_names(&self) -> Result<Vec<String>> {
        let mut count = 0;
        // SAFETY: the module is alive, and the pointer is to a local.
        unsafe { call!(cuModuleGetFunctionCount(&raw mut count, self.as_raw())) }?;
        let mut functions: Vec<CUfunction> = vec![std::ptr::null_mut(); count as usize];
        let start = functions.as_mut_ptr();
        // SAFETY: the array has room for `count` handles.
        unsafe { call!(cuModuleEnumerateFunctions(start, count, self.as_raw())) }?;
        let mut names = Vec::with_capacity(functions.len());
        for function in functions {
            let mut name = std::ptr::null();
            // SAFETY: the function is of this module, which is alive; the pointer is to a local.
            unsafe { call!(cuFuncGetName(&raw mut name, function)) }?;
            // SAFETY: the driver's string ends with a NUL and lives as long as the module.
            names.push(unsafe { owned_string(name, "cuFuncGetName") }?);
        }
        Ok(names)
    }
}

/// The error for a kernel that is not there: with those that are, where the driver can list them.
fn explain_missing(
    found: Result<()>,
    name: &str,
    names: impl FnOnce() -> Result<Vec<String>>,
) -> Result<()> {
    match found {
        Err(error) if error.code() == Some(CUresult::CUDA_ERROR_NOT_FOUND) => {
            Err(Invalid::NoSuchKernel {
                name: name.to_owned(),
                available: names().ok(),
            }
            .into())
        }
        found => found,
    }
}

/// A string of the driver's.
///
/// # Safety
/// `text` is null or a string that ends with a NUL and is alive.
unsafe fn owned_string(text: *const c_char, call: &'static str) -> Result<String> {
    if text.is_null() {
        let code = CUresult::CUDA_ERROR_UNKNOWN;
        return Err(DriverError { code, call }.into());
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    Ok(text.to_string_lossy().into_owned())
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.hold.is_owned() {
            release(Resource::Module(self.raw), &self.context);
        }
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Module")
            .field("raw", &self.inner.raw)
            .field("context", self.context())
            .finish()
    }
}
