//! Device code: modules, libraries and their kernels.
//!
//! The driver compiles PTX text, which may come from any source. The driver's loader trusts cubin and
//! fatbin images, so loading them is `unsafe`. Kernels are written and compiled elsewhere: from CUDA
//! C++ by nvcc or NVRTC, or by Rust compilers for the `nvptx64` target.

pub mod attribute;
mod global;
mod image;
mod jit;
mod kernel;
mod library;
mod linker;

pub(crate) use attribute as kernel_attribute;
pub use global::Global;
pub use jit::JitOptions;
pub use kernel::{Kernel, Parameter};
pub use library::Library;
pub use linker::{LinkInput, Linked, Linker};

use crate::call::{
    DriverError, Invalid, Ownership, Result, answer, c_enum, c_text, call, debug_struct,
    expect_handle, init, out, without_current,
};
use crate::context::Context;
use crate::release::{Handle, create_in, destroy, release};
use cuda_sys::{CUfunction, CUmodule, CUmoduleLoadingMode, CUresult};
use std::any::Any;
use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;

/// A module (`CUmodule`): code loaded into one context. Create one with [`Module::from_ptx`].
///
/// Clones share the module, and its kernels keep it alive. Loading and unloading wait for *all* running
/// work of the context. [`Library`] is the newer API, which loads code into every context that uses it.
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
    ownership: Ownership,
    /// The compiler's info log.
    log: Box<str>,
    /// Kept while the module is loaded, because lazy loading completes kernels on first use.
    #[allow(dead_code, reason = "held for the driver")]
    request: Option<jit::Request>,
    context: Context,
}

// SAFETY: the driver allows any thread to use a module.
unsafe impl Send for Inner {}
// SAFETY: see `Send`.
unsafe impl Sync for Inner {}

c_enum! {
    /// When code is loaded onto the device (`CUmoduleLoadingMode`).
    pub enum LoadingMode = CUmoduleLoadingMode or Other {
        /// All code of a module is loaded with the module.
        Eager = CU_MODULE_EAGER_LOADING,
        /// A kernel is loaded on first use, or by [`Kernel::load`].
        Lazy = CU_MODULE_LAZY_LOADING,
    }
}

impl Module {
    /// Compiles PTX text for the context's device. Calls `cuModuleLoadDataEx`.
    ///
    /// # Errors
    /// [`Error::Compile`](crate::Error::Compile) with the compiler's log;
    /// [`Error::PtxTooNew`](crate::Error::PtxTooNew); the text is empty or contains a NUL.
    ///
    /// Since CUDA 2.1. Raw: [`cuModuleLoadData`](fn@cuda_sys::cuModuleLoadData),
    /// [`cuModuleLoadDataEx`](fn@cuda_sys::cuModuleLoadDataEx),
    /// [`cuModuleUnload`](fn@cuda_sys::cuModuleUnload).
    #[doc(alias = "load_module")]
    #[doc(alias = "cuModuleLoadData", alias = "cuModuleLoadDataEx", alias = "cuModuleUnload")]
    #[inline]
    pub fn from_ptx(context: &Context, ptx: &str) -> Result<Self> {
        Self::from_ptx_with(context, ptx, &JitOptions::default())
    }

    /// Compiles PTX text with options for the compiler. Calls `cuModuleLoadDataEx`.
    ///
    /// # Errors
    /// See [`from_ptx`](Self::from_ptx). In addition: [`Invalid::JitOption`];
    /// [`Invalid::JitOptionNeedsNewerDriver`].
    ///
    /// Since CUDA 2.1; some options are newer. Raw:
    /// [`cuModuleLoadDataEx`](fn@cuda_sys::cuModuleLoadDataEx).
    #[doc(alias = "cuModuleLoadDataEx")]
    #[inline]
    pub fn from_ptx_with(context: &Context, ptx: &str, options: &JitOptions) -> Result<Self> {
        Self::from_checked_ptx(context, &image::ptx(ptx)?, options)
    }

    /// Compiles text that was checked to begin as PTX does.
    #[inline]
    fn from_checked_ptx(context: &Context, ptx: &CStr, options: &JitOptions) -> Result<Self> {
        // SAFETY: the driver recognizes such text as PTX and reads it up to the NUL. Its compiler
        // checks the rest.
        unsafe { Self::load(context, ptx.as_ptr().cast(), options) }
            .map_err(|error| jit::explain_ptx(error, ptx))
    }

    /// Loads a cubin or fatbin. Calls `cuModuleLoadDataEx`.
    ///
    /// # Errors
    /// The image is empty, has another format, or is shorter than its header states;
    /// `CUDA_ERROR_NO_BINARY_FOR_GPU` if it has no code for the device. The error then lists what
    /// [`image::codes`](cuda_sys::image::codes) finds in it.
    ///
    /// # Safety
    /// `image` must be a complete image made by NVIDIA's tools, because the driver's loader trusts its
    /// contents.
    ///
    /// Since CUDA 2.1.
    #[inline]
    pub unsafe fn from_image(context: &Context, image: &[u8]) -> Result<Self> {
        // SAFETY: the caller guarantees the conditions of this function.
        unsafe { Self::from_image_with(context, image, &JitOptions::default()) }
    }

    /// Loads a cubin or fatbin with options for the PTX in a fatbin and for the choice among its
    /// images. Calls `cuModuleLoadDataEx`.
    ///
    /// # Errors
    /// See [`from_image`](Self::from_image) and [`from_ptx_with`](Self::from_ptx_with).
    ///
    /// # Safety
    /// See [`from_image`](Self::from_image).
    ///
    /// Since CUDA 2.1; some options are newer. Raw:
    /// [`cuModuleLoadDataEx`](fn@cuda_sys::cuModuleLoadDataEx).
    #[doc(alias = "cuModuleLoadDataEx")]
    #[inline]
    pub unsafe fn from_image_with(
        context: &Context,
        image: &[u8],
        options: &JitOptions,
    ) -> Result<Self> {
        image::check(image)?;
        // SAFETY: the caller guarantees the conditions of this function.
        unsafe { Self::load(context, image.as_ptr().cast(), options) }
            .map_err(|error| image::explain(error, image, context))
    }

    /// # Safety
    /// `image` must be a complete image, or text that ends with a NUL.
    #[inline]
    unsafe fn load(context: &Context, image: *const c_void, options: &JitOptions) -> Result<Self> {
        let mut request = jit::Request::new(options)?;
        let (count, keys, values) = request.options();
        let loaded = create_in(context, |place| {
            // SAFETY: the caller guarantees that the image is valid. There are `count` option keys,
            // with values of the expected types. They and the memory that they refer to are heap memory
            // of `request`, which lives as long as the module is loaded or can be used.
            unsafe { call!(cuModuleLoadDataEx(place, image, count, keys, values)) }
        });
        let raw = request.with_log(loaded)?;
        Ok(Self::from_parts(raw, context, Ownership::Owned, Some(request)))
    }

    /// Takes ownership of `raw`. The module is unloaded when its last clone and its last kernel are
    /// dropped.
    ///
    /// # Errors
    /// [`Invalid::Handle`] if `raw` is null.
    ///
    /// # Safety
    /// `raw` must be a loaded module of `context` that no other code unloads.
    #[inline]
    pub unsafe fn from_raw(raw: CUmodule, context: &Context) -> Result<Self> {
        Self::wrap(raw, context, Ownership::Owned)
    }

    /// Wraps a module that foreign code owns. It is never unloaded here.
    ///
    /// # Errors
    /// [`Invalid::Handle`] if `raw` is null.
    ///
    /// # Safety
    /// `raw` must be a module of `context` that stays loaded until the last clone of the returned
    /// object and its last kernel are dropped.
    #[inline]
    pub unsafe fn borrow_raw(raw: CUmodule, context: &Context) -> Result<Self> {
        Self::wrap(raw, context, Ownership::Borrowed)
    }

    /// Wraps a module that `owner` keeps loaded. It is never unloaded here. `owner` is dropped after
    /// the last clone of the returned object and its last kernel.
    ///
    /// # Errors
    /// [`Invalid::Handle`] if `raw` is null. `owner` is then dropped.
    ///
    /// # Safety
    /// `raw` must be a module of `context` that stays loaded as long as `owner` is alive.
    pub unsafe fn from_foreign(
        raw: CUmodule,
        context: &Context,
        owner: impl Any + Send + Sync,
    ) -> Result<Self> {
        Self::wrap(raw, context, Ownership::Foreign(Box::new(owner)))
    }

    /// Wraps a module that foreign code loaded.
    #[inline]
    fn wrap(raw: CUmodule, context: &Context, ownership: Ownership) -> Result<Self> {
        expect_handle("module", raw)?;
        Ok(Self::from_parts(raw, context, ownership, None))
    }

    #[inline]
    fn from_parts(
        raw: CUmodule,
        context: &Context,
        ownership: Ownership,
        request: Option<jit::Request>,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                raw,
                ownership,
                log: request.as_ref().map(jit::Request::info).unwrap_or_default().into(),
                request,
                context: context.clone(),
            }),
        }
    }

    /// Releases ownership and returns the raw handle. This crate never unloads the module; the module
    /// and its context stay alive until the process exits.
    #[inline]
    pub fn into_raw(self) -> CUmodule {
        let raw = self.as_raw();
        std::mem::forget(self);
        raw
    }

    /// Returns the code that kernels and variables keep alive.
    #[inline]
    fn code(&self) -> kernel::Code {
        Arc::clone(&self.inner) as _
    }

    /// Returns the raw handle without giving up ownership. Do not unload it.
    #[inline]
    pub fn as_raw(&self) -> CUmodule {
        self.inner.raw
    }

    /// Returns the compiler's info log, if [requested](JitOptions::info_log). The log has no output
    /// about code that was in the driver's cache.
    #[inline]
    pub fn log(&self) -> &str {
        &self.inner.log
    }

    /// Returns the context into which the module is loaded.
    #[inline]
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Returns whether the driver loads code eagerly or on first use in this process. Calls
    /// `cuModuleGetLoadingMode`.
    ///
    /// The environment variable `CUDA_MODULE_LOADING` sets the mode at process start.
    ///
    /// # Errors
    /// There is no driver or no GPU.
    ///
    /// Since CUDA 11.7. Raw: [`cuModuleGetLoadingMode`](fn@cuda_sys::cuModuleGetLoadingMode).
    #[doc(alias = "cuModuleGetLoadingMode")]
    #[inline]
    pub fn loading_mode() -> Result<LoadingMode> {
        init::init()?;
        // SAFETY: `out` passes a valid pointer.
        let mode = out(|place| unsafe { call!(cuModuleGetLoadingMode(place)) })?;
        Ok(LoadingMode::from_raw(mode))
    }

    /// Returns the kernel with this name. Calls `cuModuleGetFunction`.
    ///
    /// For C++ functions without `extern "C"`, this is the mangled name.
    ///
    /// # Errors
    /// [`Invalid::NoSuchKernel`], which lists the available kernels if the driver can enumerate them
    /// (12.4).
    ///
    /// Since CUDA 2.0. Raw: [`cuModuleGetFunction`](fn@cuda_sys::cuModuleGetFunction).
    #[doc(alias = "load_function")]
    #[doc(alias = "cuModuleGetFunction")]
    #[inline]
    pub fn kernel(&self, name: &str) -> Result<Kernel> {
        let c_name = c_text(name)?;
        let mut raw = std::ptr::null_mut();
        let (function, module, text) = (&raw mut raw, self.as_raw(), c_name.as_ptr());
        let result = without_current(self.context(), || {
            // SAFETY: the module is alive, the name ends with a NUL, and the pointer refers to a local
            // variable.
            unsafe { answer!(cuModuleGetFunction(function, module, text)) }
        });
        explain_missing(result, name, || self.kernel_names())?;
        Ok(Kernel::new(raw, name, self.context(), self.code()))
    }

    /// Returns the names of all kernels. Calls `cuModuleEnumerateFunctions`.
    ///
    /// # Errors
    /// The driver is too old.
    ///
    /// Since CUDA 12.4. Raw: [`cuModuleEnumerateFunctions`](fn@cuda_sys::cuModuleEnumerateFunctions),
    /// [`cuModuleGetFunctionCount`](fn@cuda_sys::cuModuleGetFunctionCount),
    /// [`cuFuncGetName`](fn@cuda_sys::cuFuncGetName).
    #[doc(alias = "cuModuleEnumerateFunctions", alias = "cuModuleGetFunctionCount")]
    #[doc(alias = "cuFuncGetName")]
    #[inline]
    pub fn kernel_names(&self) -> Result<Vec<String>> {
        // SAFETY: the module is alive, and `out` passes a valid pointer.
        let count = out(|place| unsafe { call!(cuModuleGetFunctionCount(place, self.as_raw())) })?;
        let mut functions: Vec<CUfunction> = vec![std::ptr::null_mut(); count as usize];
        let start = functions.as_mut_ptr();
        // SAFETY: the array has room for `count` handles.
        unsafe { call!(cuModuleEnumerateFunctions(start, count, self.as_raw())) }?;
        let mut names = Vec::with_capacity(functions.len());
        for function in functions {
            // SAFETY: the function belongs to this module, which is alive, and `out` passes a valid pointer.
            let name = out(|place| unsafe { call!(cuFuncGetName(place, function)) })?;
            // SAFETY: the driver's string ends with a NUL and lives as long as the module.
            names.push(unsafe { owned_string(name, "cuFuncGetName") }?);
        }
        Ok(names)
    }
}

/// Adds the names of the available kernels to the error for a missing kernel, if the driver can
/// enumerate them.
fn explain_missing(
    result: Result<()>,
    name: &str,
    names: impl FnOnce() -> Result<Vec<String>>,
) -> Result<()> {
    match result {
        Err(error) if error.code() == Some(CUresult::CUDA_ERROR_NOT_FOUND) => {
            Err(Invalid::NoSuchKernel { name: name.to_owned(), available: names().ok() }.into())
        }
        result => result,
    }
}

/// Copies a string of the driver.
///
/// # Safety
/// `text` must be null or a live string that ends with a NUL.
#[inline]
unsafe fn owned_string(text: *const c_char, call: &'static str) -> Result<String> {
    if text.is_null() {
        let code = CUresult::CUDA_ERROR_UNKNOWN;
        return Err(DriverError::new(code, call).into());
    }
    // SAFETY: the caller guarantees that the string is valid.
    let text = unsafe { CStr::from_ptr(text) };
    Ok(text.to_string_lossy().into_owned())
}

impl Drop for Inner {
    #[inline]
    fn drop(&mut self) {
        if self.ownership.is_owned() {
            release(Handle(self.raw), &self.context);
        }
    }
}

destroy! {
    Handle<CUmodule> as "a module";
    // SAFETY: the handle stands for the module, and the caller promises that this is the first call.
    // The driver waits for kernels of the module.
    |its| unsafe { answer!(cuModuleUnload(its.0)) }
}

debug_struct! { Module |its| { raw: its.inner.raw, context: its.context() } }
