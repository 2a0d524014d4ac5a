//! Libraries: code that is loaded once and used in any context.

use super::jit::{self, JitOptions, Request};
use super::{Kernel, Module, explain_missing, image, owned_string};
use crate::call::call;
use crate::context::Context;
use crate::driver;
use crate::error::{Error, Result};
use crate::hold::Hold;
use crate::release::{self, Parent, Resource, release};
use core::ffi::c_void;
use cuda_sys::{CUkernel, CUlibrary};
use std::any::Any;
use std::ffi::CString;
use std::fmt;
use std::sync::Arc;

/// `CUlibrary`: code that belongs to no context; it is loaded into each that uses a kernel of it.
///
/// Clones share it; kernels hold it. Unloading waits for *all* running work.
///
/// Since CUDA 12.0; [`Module`](super::Module) is there on every driver.
///
/// ```no_run
/// use cuda_safe::{Context, Device, Library};
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
    hold: Hold,
    code: Arc<Code>,
}

/// What the driver may come back to as long as the library is loaded.
struct Code {
    /// PTX is compiled when a context first needs it, and its errors are found then.
    ptx: Option<(CString, JitOptions)>,
    /// Given to the driver for the compiler's log; it may write there at any later time, so it is
    /// never read once the library is loaded.
    #[allow(dead_code, reason = "held for the driver")]
    request: Option<Request>,
}

// SAFETY: the driver lets any thread use a library.
unsafe impl Send for Inner {}
// SAFETY: as for Send.
unsafe impl Sync for Inner {}

impl Library {
    /// `cuLibraryLoadData(&library, ptx, …)`: takes PTX text, compiled when a context first needs
    /// it (or now, as `CUDA_MODULE_LOADING` says).
    ///
    /// # Errors
    /// [`Error::Compile`](crate::Error::Compile) with the compiler's log;
    /// [`Error::PtxTooNew`](crate::Error::PtxTooNew); empty text, or a NUL inside.
    ///
    /// Since CUDA 12.0. Raw: [`cuLibraryLoadData`](fn@cuda_sys::cuLibraryLoadData),
    /// [`cuLibraryUnload`](fn@cuda_sys::cuLibraryUnload).
    #[doc(alias = "cuLibraryLoadData")]
    #[doc(alias = "cuLibraryUnload")]
    pub fn from_ptx(ptx: &str) -> Result<Self> {
        Self::from_ptx_with(ptx, &JitOptions::default())
    }

    /// `cuLibraryLoadData(&library, text, options, …)`: as [`from_ptx`](Self::from_ptx), with options for the compiler. (Its
    /// [log](JitOptions::info_log) is not kept: it is written when a context needs the code.)
    ///
    /// # Errors
    /// As for [`from_ptx`](Self::from_ptx) and [`Module::from_ptx_with`].
    ///
    /// Since CUDA 12.0; some options are newer. Raw: [`cuLibraryLoadData`](fn@cuda_sys::cuLibraryLoadData).
    #[doc(alias = "cuLibraryLoadData")]
    pub fn from_ptx_with(ptx: &str, options: &JitOptions) -> Result<Self> {
        let text = image::ptx(ptx)?;
        let code = text.as_ptr().cast();
        // SAFETY: the driver takes text that begins so for PTX, up to the NUL, and its compiler
        // checks the rest.
        match unsafe { Self::load(code, options) } {
            Ok((raw, request)) => {
                let ptx = Some((text, *options));
                Ok(Self::own(raw, Hold::Owned, ptx, Some(request)))
            }
            Err(error) => Err(jit::explain_ptx(error, &text)),
        }
    }

    /// `cuLibraryLoadData(&library, image, …)`: loads a cubin or fatbin.
    ///
    /// # Errors
    /// As for [`Module::from_image`](super::Module::from_image).
    ///
    /// # Safety
    /// `image` is a whole image made by NVIDIA's tools: the driver's loader trusts what is in it.
    ///
    /// Since CUDA 12.0.
    pub unsafe fn from_image(image: &[u8]) -> Result<Self> {
        // SAFETY: the caller's promise.
        unsafe { Self::from_image_with(image, &JitOptions::default()) }
    }

    /// `cuLibraryLoadData(&library, image, options, …)`: as [`from_image`](Self::from_image), with options for the PTX in a fatbin, and for which of
    /// its images is taken.
    ///
    /// # Errors
    /// As for [`Module::from_image_with`].
    ///
    /// # Safety
    /// As for [`from_image`](Self::from_image).
    ///
    /// Since CUDA 12.0; some options are newer. Raw: [`cuLibraryLoadData`](fn@cuda_sys::cuLibraryLoadData).
    #[doc(alias = "cuLibraryLoadData")]
    pub unsafe fn from_image_with(image: &[u8], options: &JitOptions) -> Result<Self> {
        image::check(image)?;
        // SAFETY: the caller's promise.
        let (raw, request) = unsafe { Self::load(image.as_ptr().cast(), options) }?;
        Ok(Self::own(raw, Hold::Owned, None, Some(request)))
    }

    /// The library, and the request that has to live as long as it is loaded.
    ///
    /// # Safety
    /// `code` is a whole image, or text that ends with a NUL.
    unsafe fn load(code: *const c_void, options: &JitOptions) -> Result<(CUlibrary, Request)> {
        driver::init()?;
        release::drain();
        let mut raw = std::ptr::null_mut();
        let library = &raw mut raw;
        let mut request = Request::new(options)?;
        let (count, keys, values) = request.options();
        let none = std::ptr::null_mut();
        let options = std::ptr::null_mut();
        // SAFETY: the caller's promise for the code, which the driver copies; the options are
        // `count` keys and values of the types that they want, and all of that is heap memory of
        // `request`, which lives as long as the library is loaded; there are no library options.
        let done = unsafe {
            call!(cuLibraryLoadData(
                library, code, keys, values, count, options, none, 0
            ))
        };
        request.attach(done)?;
        Ok((raw, request))
    }

    fn own(
        raw: CUlibrary,
        hold: Hold,
        ptx: Option<(CString, JitOptions)>,
        request: Option<Request>,
    ) -> Self {
        // Other code may have started the driver: from here on a fork is noticed. Why it cannot be
        // started, the first call of the library says.
        let _ = driver::init();
        let code = Arc::new(Code { ptx, request });
        Self {
            inner: Arc::new(Inner { raw, hold, code }),
        }
    }

    /// Takes over a library: it is unloaded with the last clone and the last kernel of it.
    ///
    /// # Safety
    /// `raw` is a library that is loaded, and nobody else unloads it. What its loader gave the driver
    /// to keep (buffers for logs, a binary that the driver was told to use in place) stays until it
    /// is unloaded: until the process ends, if that fails.
    pub unsafe fn from_raw(raw: CUlibrary) -> Self {
        Self::own(raw, Hold::Owned, None, None)
    }

    /// A library that somebody else owns: never unloaded here.
    ///
    /// # Safety
    /// `raw` is a library that stays loaded until the last clone of this, and the last kernel of
    /// it, is gone.
    pub unsafe fn borrow_raw(raw: CUlibrary) -> Self {
        Self::own(raw, Hold::Borrowed, None, None)
    }

    /// A library that `owner` keeps: never unloaded here, and `owner` is dropped after the last
    /// clone of this and the last kernel of it.
    ///
    /// # Safety
    /// `raw` is a library that stays loaded as long as `owner` is.
    pub unsafe fn from_foreign(raw: CUlibrary, owner: impl Any + Send + Sync) -> Self {
        Self::own(raw, Hold::Foreign(Box::new(owner)), None, None)
    }

    /// Never unloads the library: it stays until the process ends.
    pub fn leak(self) -> CUlibrary {
        let raw = self.as_raw();
        std::mem::forget(self);
        raw
    }

    /// The driver's handle. It stays this object's: do not unload it.
    pub fn as_raw(&self) -> CUlibrary {
        self.inner.raw
    }

    /// `cuLibraryGetKernel` and `cuKernelGetFunction`: the kernel of that name, for streams of
    /// `context`.
    ///
    /// # Errors
    /// [`Invalid::NoSuchKernel`](crate::Invalid::NoSuchKernel), which lists the kernels there are where the driver can (12.4).
    ///
    /// Since CUDA 12.0. Raw: [`cuLibraryGetKernel`](fn@cuda_sys::cuLibraryGetKernel),
    /// [`cuKernelGetFunction`](fn@cuda_sys::cuKernelGetFunction).
    #[doc(alias = "cuLibraryGetKernel")]
    #[doc(alias = "cuKernelGetFunction")]
    pub fn kernel(&self, context: &Context, name: &str) -> Result<Kernel> {
        let c_name = image::name(name)?;
        let mut kernel = std::ptr::null_mut();
        let (place, library, text) = (&raw mut kernel, self.as_raw(), c_name.as_ptr());
        // SAFETY: the library is alive, the name ends with a NUL, and the pointer is to a local.
        let found = unsafe { call!(cuLibraryGetKernel(place, library, text)) };
        explain_missing(found, name, || self.kernel_names())
            .map_err(|error| self.explain_compilation(context, error))?;

        let mut function = std::ptr::null_mut();
        let loaded = {
            let _current = context.enter()?;
            // SAFETY: the kernel is of this library, which is alive; the pointer is to a local.
            unsafe { call!(cuKernelGetFunction(&raw mut function, kernel)) }
        };
        loaded.map_err(|error| self.explain_compilation(context, error))?;
        Ok(Kernel::new(function, name, context, self.clone()))
    }

    /// The compiler's log for PTX that it refused only now: compiled once more, as a module.
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

    /// `cuLibraryEnumerateKernels(kernels, count, library)`: the names of all kernels.
    ///
    /// # Errors
    /// The driver is older.
    ///
    /// Since CUDA 12.4. Raw: [`cuLibraryEnumerateKernels`](fn@cuda_sys::cuLibraryEnumerateKernels),
    /// [`cuLibraryGetKernelCount`](fn@cuda_sys::cuLibraryGetKernelCount),
    /// [`cuKernelGetName`](fn@cuda_sys::cuKernelGetName).
    #[doc(alias = "cuLibraryEnumerateKernels")]
    #[doc(alias = "cuLibraryGetKernelCount")]
    #[doc(alias = "cuKernelGetName")]
    pub fn kernel_names(&self) -> Result<Vec<String>> {
        let mut count = 0;
        // SAFETY: the library is alive, and the pointer is to a local.
        unsafe { call!(cuLibraryGetKernelCount(&raw mut count, self.as_raw())) }?;
        let mut kernels: Vec<CUkernel> = vec![std::ptr::null_mut(); count as usize];
        let start = kernels.as_mut_ptr();
        // SAFETY: the array has room for `count` handles.
        unsafe { call!(cuLibraryEnumerateKernels(start, count, self.as_raw())) }?;
        let mut names = Vec::with_capacity(kernels.len());
        for kernel in kernels {
            let mut name = std::ptr::null();
            // SAFETY: the kernel is of this library, which is alive; the pointer is to a local.
            unsafe { call!(cuKernelGetName(&raw mut name, kernel)) }?;
            // SAFETY: the driver's string ends with a NUL and lives as long as the library.
            names.push(unsafe { owned_string(name, "cuKernelGetName") }?);
        }
        Ok(names)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.hold.is_owned() {
            release(Resource::Library(self.raw), &self.code);
        }
    }
}

impl Parent for Arc<Code> {
    fn context(&self) -> Option<&Context> {
        None
    }

    fn keep(&self) -> Box<dyn Parent + Send> {
        Box::new(Self::clone(self))
    }

    fn is_borrowed(&self) -> bool {
        false
    }
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Library")
            .field("raw", &self.inner.raw)
            .finish()
    }
}
