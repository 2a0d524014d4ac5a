//! Libraries: code that is loaded once and used in any context.

use super::jit::{self, JitOptions, Request};
use super::{Kernel, Module, explain_missing, image, owned_string};
use crate::call::{
    Error, Ownership, Result, answer, c_text, call, debug_struct, expect_handle, init, out,
};
use crate::context::Context;
use crate::release::{Handle, Keep, create, destroy, owners, release};
use core::ffi::c_void;
use cuda_sys::{CUkernel, CUlibrary};
use std::any::Any;
use std::ffi::CString;
use std::sync::Arc;

/// A library (`CUlibrary`): code that is not bound to a context, and that is loaded into each context
/// that uses one of its kernels. Create one with [`Library::from_ptx`].
///
/// Clones share the library, and its kernels keep it alive. Unloading waits for *all* running work.
///
/// Since CUDA 12.0. [`Module`](super::Module) is available on every driver.
///
/// ```no_run
/// use cuda_safe::{Context, Device};
/// use cuda_safe::module::Library;
///
/// # let ptx = "";
/// let library = Library::from_ptx(ptx)?;
/// for device in Device::all()? {
///     let kernel = library.kernel(&Context::primary(&device)?, "gemm")?;
///     println!("{} is loaded in {:?}", kernel.name(), kernel.context());
/// }
/// # Ok::<_, cuda_safe::Error>(())
/// ```
#[derive(Clone)]
pub struct Library {
    inner: Arc<Inner>,
}

struct Inner {
    raw: CUlibrary,
    ownership: Ownership,
    code: Arc<Code>,
}

/// The data that the driver may access as long as the library is loaded.
struct Code {
    /// The PTX and its options. PTX is compiled when a context first uses it, and errors appear only
    /// then.
    ptx: Option<(CString, JitOptions)>,
    /// The log buffers for the compiler. The driver may write to them at any time, so they are never
    /// read while the library is loaded.
    #[allow(dead_code, reason = "held for the driver")]
    request: Option<Request>,
}

// SAFETY: the driver allows any thread to use a library.
unsafe impl Send for Inner {}
// SAFETY: see `Send`.
unsafe impl Sync for Inner {}

impl Library {
    /// Loads PTX text, which is compiled when a context first uses it, or immediately, depending on
    /// `CUDA_MODULE_LOADING`. Calls `cuLibraryLoadData`.
    ///
    /// # Errors
    /// [`Error::Compile`](crate::Error::Compile) with the compiler's log;
    /// [`Error::PtxTooNew`](crate::Error::PtxTooNew); the text is empty or contains a NUL.
    ///
    /// Since CUDA 12.0. Raw: [`cuLibraryLoadData`](fn@cuda_sys::cuLibraryLoadData),
    /// [`cuLibraryUnload`](fn@cuda_sys::cuLibraryUnload).
    #[doc(alias = "cuLibraryLoadData", alias = "cuLibraryUnload")]
    #[inline]
    pub fn from_ptx(ptx: &str) -> Result<Self> {
        Self::from_ptx_with(ptx, &JitOptions::default())
    }

    /// Loads PTX text with options for the compiler. Calls `cuLibraryLoadData`.
    ///
    /// The [info log](JitOptions::info_log) is not available, because it is written when a context
    /// first uses the code.
    ///
    /// # Errors
    /// See [`from_ptx`](Self::from_ptx) and [`Module::from_ptx_with`].
    ///
    /// Since CUDA 12.0; some options are newer. Raw:
    /// [`cuLibraryLoadData`](fn@cuda_sys::cuLibraryLoadData).
    #[doc(alias = "cuLibraryLoadData")]
    #[inline]
    pub fn from_ptx_with(ptx: &str, options: &JitOptions) -> Result<Self> {
        let text = image::ptx(ptx)?;
        let code = text.as_ptr().cast();
        // SAFETY: the driver recognizes such text as PTX and reads it up to the NUL. Its compiler
        // checks the rest.
        match unsafe { Self::load(code, options) } {
            Ok((raw, request)) => {
                let ptx = Some((text, *options));
                Ok(Self::from_parts(raw, Ownership::Owned, ptx, Some(request)))
            }
            Err(error) => Err(jit::explain_ptx(error, &text)),
        }
    }

    /// Loads a cubin or fatbin. Calls `cuLibraryLoadData`.
    ///
    /// # Errors
    /// See [`Module::from_image`](super::Module::from_image).
    ///
    /// # Safety
    /// `image` must be a complete image made by NVIDIA's tools, because the driver's loader trusts its
    /// contents.
    ///
    /// Since CUDA 12.0.
    #[inline]
    pub unsafe fn from_image(image: &[u8]) -> Result<Self> {
        // SAFETY: the caller guarantees the conditions of this function.
        unsafe { Self::from_image_with(image, &JitOptions::default()) }
    }

    /// Loads a cubin or fatbin with options for the PTX in a fatbin and for the choice among its
    /// images. Calls `cuLibraryLoadData`.
    ///
    /// # Errors
    /// See [`Module::from_image_with`].
    ///
    /// # Safety
    /// See [`from_image`](Self::from_image).
    ///
    /// Since CUDA 12.0; some options are newer. Raw:
    /// [`cuLibraryLoadData`](fn@cuda_sys::cuLibraryLoadData).
    #[doc(alias = "cuLibraryLoadData")]
    #[inline]
    pub unsafe fn from_image_with(image: &[u8], options: &JitOptions) -> Result<Self> {
        image::check(image)?;
        // SAFETY: the caller guarantees the conditions of this function.
        let (raw, request) = unsafe { Self::load(image.as_ptr().cast(), options) }?;
        Ok(Self::from_parts(raw, Ownership::Owned, None, Some(request)))
    }

    /// Returns the library, and the request that must live while it is loaded.
    ///
    /// # Safety
    /// `code` must be a complete image, or text that ends with a NUL.
    #[inline]
    unsafe fn load(code: *const c_void, options: &JitOptions) -> Result<(CUlibrary, Request)> {
        init::init()?;
        let mut request = Request::new(options)?;
        let (count, keys, values) = request.options();
        let none = std::ptr::null_mut();
        let options = std::ptr::null_mut();
        // SAFETY: the caller guarantees that the code is valid, and the driver copies it. There are
        // `count` option keys, with values of the expected types. They and the memory that they refer
        // to are heap memory of `request`, which lives as long as the library is loaded. There are no
        // library options.
        let loaded = create(|place| unsafe {
            call!(cuLibraryLoadData(place, code, keys, values, count, options, none, 0))
        });
        Ok((request.with_log(loaded)?, request))
    }

    #[inline]
    fn from_parts(
        raw: CUlibrary,
        ownership: Ownership,
        ptx: Option<(CString, JitOptions)>,
        request: Option<Request>,
    ) -> Self {
        // Foreign code may have initialized the driver. Initializing it here too lets this crate detect
        // a fork from now on. An error is ignored, because the first call on the library reports it.
        let _ = init::init();
        let code = Arc::new(Code { ptx, request });
        Self { inner: Arc::new(Inner { raw, ownership, code }) }
    }

    /// Takes ownership of `raw`. The library is unloaded when its last clone and its last kernel are
    /// dropped.
    ///
    /// # Errors
    /// [`Invalid::Handle`](crate::Invalid::Handle) if `raw` is null.
    ///
    /// # Safety
    /// `raw` must be a loaded library that no other code unloads. Memory that the loading code passed
    /// to the driver to keep (log buffers, or a binary that the driver uses in place) must stay valid
    /// until the library is unloaded, or until the process exits if unloading fails.
    #[inline]
    pub unsafe fn from_raw(raw: CUlibrary) -> Result<Self> {
        Self::wrap(raw, Ownership::Owned)
    }

    /// Wraps a library that foreign code owns. It is never unloaded here.
    ///
    /// # Errors
    /// [`Invalid::Handle`](crate::Invalid::Handle) if `raw` is null.
    ///
    /// # Safety
    /// `raw` must be a library that stays loaded until the last clone of the returned object and its
    /// last kernel are dropped.
    #[inline]
    pub unsafe fn borrow_raw(raw: CUlibrary) -> Result<Self> {
        Self::wrap(raw, Ownership::Borrowed)
    }

    /// Wraps a library that `owner` keeps loaded. It is never unloaded here. `owner` is dropped after
    /// the last clone of the returned object and its last kernel.
    ///
    /// # Errors
    /// [`Invalid::Handle`](crate::Invalid::Handle) if `raw` is null. `owner` is then dropped.
    ///
    /// # Safety
    /// `raw` must be a library that stays loaded as long as `owner` is alive.
    pub unsafe fn from_foreign(raw: CUlibrary, owner: impl Any + Send + Sync) -> Result<Self> {
        Self::wrap(raw, Ownership::Foreign(Box::new(owner)))
    }

    /// Wraps a library that foreign code loaded.
    #[inline]
    fn wrap(raw: CUlibrary, ownership: Ownership) -> Result<Self> {
        expect_handle("library", raw)?;
        Ok(Self::from_parts(raw, ownership, None, None))
    }

    /// Releases ownership and returns the raw handle. This crate never unloads the library; it stays
    /// loaded until the process exits.
    #[inline]
    pub fn into_raw(self) -> CUlibrary {
        let raw = self.as_raw();
        std::mem::forget(self);
        raw
    }

    /// Returns the code that kernels and variables keep alive.
    #[inline]
    pub(super) fn code(&self) -> super::kernel::Code {
        Arc::clone(&self.inner) as _
    }

    /// Returns the raw handle without giving up ownership. Do not unload it.
    #[inline]
    pub fn as_raw(&self) -> CUlibrary {
        self.inner.raw
    }

    /// Returns the kernel with this name for streams of `context`. Calls `cuLibraryGetKernel` and
    /// `cuKernelGetFunction`.
    ///
    /// # Errors
    /// [`Invalid::NoSuchKernel`](crate::Invalid::NoSuchKernel), which lists the available kernels if
    /// the driver can enumerate them (12.4). Errors of the compiler, for PTX that no context has used
    /// before.
    ///
    /// Since CUDA 12.0. Raw: [`cuLibraryGetKernel`](fn@cuda_sys::cuLibraryGetKernel),
    /// [`cuKernelGetFunction`](fn@cuda_sys::cuKernelGetFunction).
    #[doc(alias = "cuLibraryGetKernel", alias = "cuKernelGetFunction")]
    #[inline]
    pub fn kernel(&self, context: &Context, name: &str) -> Result<Kernel> {
        let c_name = c_text(name)?;
        let mut kernel = std::ptr::null_mut();
        let (out, library, text) = (&raw mut kernel, self.as_raw(), c_name.as_ptr());
        // SAFETY: the library is alive, the name ends with a NUL, and the pointer refers to a local
        // variable.
        let result = unsafe { call!(cuLibraryGetKernel(out, library, text)) };
        explain_missing(result, name, || self.kernel_names())
            .map_err(|error| self.explain_compilation(context, error))?;

        let mut function = std::ptr::null_mut();
        let loaded = {
            let _current = context.enter()?;
            // SAFETY: the kernel belongs to this library, which is alive, and the pointer refers to a
            // local variable.
            unsafe { call!(cuKernelGetFunction(&raw mut function, kernel)) }
        };
        loaded.map_err(|error| self.explain_compilation(context, error))?;
        Ok(Kernel::new(function, name, context, self.code()))
    }

    /// Returns the error with the compiler's log for PTX whose compilation failed on first use. This
    /// compiles the PTX again, as a module.
    #[inline]
    pub(super) fn explain_compilation(&self, context: &Context, error: Error) -> Error {
        match (&self.inner.code.ptx, error.code()) {
            (Some((ptx, options)), Some(code)) if jit::is_compile_error(code) => {
                match Module::from_checked_ptx(context, ptx, options) {
                    Err(explained) => explained,
                    Ok(_) => error,
                }
            }
            _ => error,
        }
    }

    /// Returns the names of all kernels. Calls `cuLibraryEnumerateKernels`.
    ///
    /// # Errors
    /// The driver is too old.
    ///
    /// Since CUDA 12.4. Raw: [`cuLibraryEnumerateKernels`](fn@cuda_sys::cuLibraryEnumerateKernels),
    /// [`cuLibraryGetKernelCount`](fn@cuda_sys::cuLibraryGetKernelCount),
    /// [`cuKernelGetName`](fn@cuda_sys::cuKernelGetName).
    #[doc(alias = "cuLibraryEnumerateKernels", alias = "cuLibraryGetKernelCount")]
    #[doc(alias = "cuKernelGetName")]
    #[inline]
    pub fn kernel_names(&self) -> Result<Vec<String>> {
        // SAFETY: the library is alive, and `out` passes a valid pointer.
        let count = out(|place| unsafe { call!(cuLibraryGetKernelCount(place, self.as_raw())) })?;
        let mut kernels: Vec<CUkernel> = vec![std::ptr::null_mut(); count as usize];
        let start = kernels.as_mut_ptr();
        // SAFETY: the array has room for `count` handles.
        unsafe { call!(cuLibraryEnumerateKernels(start, count, self.as_raw())) }?;
        let mut names = Vec::with_capacity(kernels.len());
        for kernel in kernels {
            // SAFETY: the kernel belongs to this library, which is alive, and `out` passes a valid pointer.
            let name = out(|place| unsafe { call!(cuKernelGetName(place, kernel)) })?;
            // SAFETY: the driver's string ends with a NUL and lives as long as the library.
            names.push(unsafe { owned_string(name, "cuKernelGetName") }?);
        }
        Ok(names)
    }
}

impl Drop for Inner {
    #[inline]
    fn drop(&mut self) {
        if self.ownership.is_owned() {
            release(Handle(self.raw), &self.code);
        }
    }
}

destroy! {
    Handle<CUlibrary> as "a library";
    // SAFETY: the handle stands for the library, and the caller promises that this is the first
    // call. The driver waits for kernels of the library.
    |its| unsafe { answer!(cuLibraryUnload(its.0)) };

    /// A library that is still loaded may be compiled for a context that is created later, from the
    /// code that the owners hold.
    #[inline]
    fn has_leaked(&self, owners: &dyn Keep) {
        owners.leak();
    }
}

owners! {
    Arc<Code> |its| {
        context: None,
        is_borrowed: false,
    }
}

debug_struct! { Library |its| { raw: its.inner.raw } }
