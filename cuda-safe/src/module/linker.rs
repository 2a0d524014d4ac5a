//! The driver's linker, which combines several inputs into one image.

use super::jit::{self, JitOptions, Request};
use super::{Library, Module, image};
use crate::call::{
    DriverError, Invalid, Result, answer, c_enum, c_text, call, debug_struct, refuse_if,
};
use crate::context::Context;
use crate::release::{Handle, create_in, destroy, owners, release};
use core::ffi::{CStr, c_void};
use cuda_sys::{CUjitInputType, CUlinkState, CUresult};
use std::path::Path;
use std::sync::Arc;

/// A linker (`CUlinkState`). Create one with [`Linker::new`].
///
/// It takes several inputs and combines them into one image for a context's device, or for another
/// [target](JitOptions::target).
///
/// ```no_run
/// use cuda_safe::{Context, Device, Module};
/// use cuda_safe::module::Linker;
///
/// # let (kernels, functions) = ("", ".version 6.0\n.target sm_52\n.address_size 64\n");
/// let context = Context::primary(&Device::get(0)?)?;
/// let mut linker = Linker::new(&context)?;
/// linker.add_ptx("kernels", kernels)?;
/// linker.add_ptx("functions", functions)?;
/// let linked = linker.complete()?;
/// let module = Module::from_linked(&context, &linked)?;
/// # Ok::<_, cuda_safe::Error>(())
/// ```
pub struct Linker {
    raw: CUlinkState,
    kept: Arc<Kept>,
}

/// The objects that must outlive the driver's linker, which writes to the request until it is
/// destroyed.
struct Kept {
    request: Request,
    context: Context,
}

// SAFETY: any thread may use a linker, one thread at a time, which `&mut` guarantees.
unsafe impl Send for Linker {}

c_enum! {
    /// The format of an input for the linker.
    #[non_exhaustive]
    pub enum LinkInput = CUjitInputType {
        /// PTX text.
        Ptx = CU_JIT_INPUT_PTX,
        /// A binary for one architecture.
        Cubin = CU_JIT_INPUT_CUBIN,
        /// Binaries and PTX for several architectures.
        Fatbin = CU_JIT_INPUT_FATBINARY,
        /// A host object file with embedded device code.
        Object = CU_JIT_INPUT_OBJECT,
        /// An archive of host object files with embedded device code.
        Library = CU_JIT_INPUT_LIBRARY,
    }
}

/// The image that a [`Linker`] created, for [`Module::from_linked`] and [`Library::from_linked`].
#[derive(Clone, PartialEq, Eq)]
pub struct Linked {
    image: Box<[u8]>,
    log: Box<str>,
}

impl Linked {
    /// Returns the image, a cubin. It is a copy of the driver's image.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.image
    }

    /// Returns the info log of the compiler and the linker, if [requested](JitOptions::info_log).
    #[inline]
    pub fn log(&self) -> &str {
        &self.log
    }
}

impl Linker {
    /// Creates a linker for the context's device.
    ///
    /// # Errors
    /// See [`with`](Self::with).
    #[inline]
    pub fn new(context: &Context) -> Result<Self> {
        Self::with(context, &JitOptions::default())
    }

    /// Creates a linker with options, which also apply to the PTX that it compiles. Calls
    /// `cuLinkCreate`.
    ///
    /// # Errors
    /// [`Invalid::JitOption`], [`Invalid::JitOptionNeedsNewerDriver`];
    /// `CUDA_ERROR_JIT_COMPILER_NOT_FOUND`.
    ///
    /// Since CUDA 6.5. Raw: [`cuLinkCreate_v2`](fn@cuda_sys::cuLinkCreate_v2),
    /// [`cuLinkDestroy`](fn@cuda_sys::cuLinkDestroy).
    #[doc(alias = "cuLinkCreate", alias = "cuLinkDestroy")]
    #[inline]
    pub fn with(context: &Context, options: &JitOptions) -> Result<Self> {
        let mut request = Request::new(options)?;
        let (count, keys, values) = request.options();
        let raw = create_in(context, |place| {
            // SAFETY: there are `count` option keys, with values of the expected types. They refer to
            // heap memory of the request, which lives until the linker is destroyed. `create_in` passes
            // a valid pointer.
            unsafe { call!(cuLinkCreate_v2(count, keys, values, place)) }
        })?;
        let kept = Kept { request, context: context.clone() };
        Ok(Self { raw, kept: Arc::new(kept) })
    }

    /// Compiles PTX text and adds it, with a name for the log. Calls `cuLinkAddData`.
    ///
    /// # Errors
    /// [`Error::Compile`](crate::Error::Compile) with the log so far;
    /// [`Error::PtxTooNew`](crate::Error::PtxTooNew); the text is empty or contains a NUL.
    ///
    /// Since CUDA 6.5. Raw: [`cuLinkAddData_v2`](fn@cuda_sys::cuLinkAddData_v2).
    #[doc(alias = "cuLinkAddData")]
    #[inline]
    pub fn add_ptx(&mut self, name: &str, ptx: &str) -> Result<()> {
        let text = image::ptx(ptx)?;
        let bytes = text.as_bytes_with_nul();
        // SAFETY: the driver recognizes the text as PTX and reads it up to the NUL. Its compiler checks
        // the rest.
        unsafe { self.add(LinkInput::Ptx, name, bytes) }
            .map_err(|error| jit::explain_ptx(error, &text))
    }

    /// Adds binary code, with a name for the log. Calls `cuLinkAddData`.
    ///
    /// # Errors
    /// See [`add_ptx`](Self::add_ptx) and [`Module::from_image`].
    ///
    /// # Safety
    /// `data` must be a complete input of that format made by NVIDIA's tools, because the driver trusts
    /// its contents.
    ///
    /// Since CUDA 6.5. Raw: [`cuLinkAddData_v2`](fn@cuda_sys::cuLinkAddData_v2).
    #[doc(alias = "cuLinkAddData")]
    #[inline]
    pub unsafe fn add_data(&mut self, kind: LinkInput, name: &str, data: &[u8]) -> Result<()> {
        match kind {
            LinkInput::Ptx => {
                let text = std::str::from_utf8(data).map_err(|_| Invalid::NotPtx)?;
                return self.add_ptx(name, text);
            }
            LinkInput::Cubin | LinkInput::Fatbin => image::check(data)?,
            LinkInput::Object | LinkInput::Library => {
                refuse_if!(data.is_empty(), Invalid::EmptyImage);
            }
        }
        // SAFETY: the caller guarantees the conditions of this function.
        unsafe { self.add(kind, name, data) }
    }

    /// # Safety
    /// `data` must be a complete input of that format. PTX must end with a NUL.
    #[inline]
    unsafe fn add(&mut self, kind: LinkInput, name: &str, data: &[u8]) -> Result<()> {
        let name = c_text(name)?;
        let start = data.as_ptr().cast_mut().cast::<c_void>();
        let size = data.len();
        let (keys, values) = (std::ptr::null_mut(), std::ptr::null_mut());
        let (state, kind, name) = (self.raw, kind.raw(), name.as_ptr());
        self.run(|| {
            // SAFETY: the linker is alive. The caller guarantees that the data is valid. The driver
            // only reads it and has copied it when the call returns. The name ends with a NUL, and
            // there are no options.
            unsafe { call!(cuLinkAddData_v2(state, kind, start, size, name, 0, keys, values)) }
        })
    }

    /// Adds a file. Calls `cuLinkAddFile`.
    ///
    /// PTX can also be read and passed to [`add_ptx`](Self::add_ptx), which is safe.
    ///
    /// # Errors
    /// `CUDA_ERROR_FILE_NOT_FOUND`. See also [`add_data`](Self::add_data).
    ///
    /// # Safety
    /// The file must be a complete input of that format made by NVIDIA's tools, because the driver
    /// trusts its contents. The file must not change during the call.
    ///
    /// Since CUDA 6.5. Raw: [`cuLinkAddFile_v2`](fn@cuda_sys::cuLinkAddFile_v2).
    #[doc(alias = "cuLinkAddFile")]
    pub unsafe fn add_file(&mut self, kind: LinkInput, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref().as_os_str().as_encoded_bytes();
        let path = c_text(path)?;
        let (keys, values) = (std::ptr::null_mut(), std::ptr::null_mut());
        let (state, kind) = (self.raw, kind.raw());
        let path: &CStr = &path;
        let path = path.as_ptr();
        self.run(|| {
            // SAFETY: the linker is alive. The caller guarantees that the file is valid. The path ends
            // with a NUL, and there are no options.
            unsafe { call!(cuLinkAddFile_v2(state, kind, path, 0, keys, values)) }
        })
    }

    /// Links the inputs and consumes the linker. Calls `cuLinkComplete`.
    ///
    /// # Errors
    /// [`Error::Compile`](crate::Error::Compile) with the log, for example about an undefined or
    /// multiply defined symbol.
    ///
    /// Since CUDA 5.5. Raw: [`cuLinkComplete`](fn@cuda_sys::cuLinkComplete).
    #[doc(alias = "cuLinkComplete")]
    #[inline]
    pub fn complete(self) -> Result<Linked> {
        let (mut image, mut size) = (std::ptr::null_mut(), 0);
        let (image_out, size_out) = (&raw mut image, &raw mut size);
        self.run(|| {
            // SAFETY: the linker is alive, and the pointers refer to local variables.
            unsafe { call!(cuLinkComplete(self.raw, image_out, size_out)) }
        })?;
        if image.is_null() {
            let code = CUresult::CUDA_ERROR_UNKNOWN;
            let call = "cuLinkComplete";
            return Err(DriverError::new(code, call).into());
        }
        // SAFETY: the driver's image has `size` bytes and stays valid until the linker is destroyed,
        // which happens after the copy.
        let image = unsafe { std::slice::from_raw_parts(image.cast::<u8>(), size) };
        Ok(Linked { image: image.into(), log: self.kept.request.info().into() })
    }

    /// Calls the linker, and adds its log to an error.
    fn run(&self, call: impl FnOnce() -> Result<()>) -> Result<()> {
        let log_before = self.kept.request.errors();
        let done = self.kept.context.enter().and_then(|_current| call());
        self.kept.request.with_new_log(done, &log_before)
    }

    /// Returns the context for whose device the linker links.
    #[inline]
    pub fn context(&self) -> &Context {
        &self.kept.context
    }

    /// Returns the raw handle without giving up ownership. Do not destroy it.
    #[inline]
    pub fn as_raw(&self) -> CUlinkState {
        self.raw
    }
}

impl Module {
    /// Loads the image that a [`Linker`] created. Calls `cuModuleLoadDataEx`.
    ///
    /// # Errors
    /// `CUDA_ERROR_NO_BINARY_FOR_GPU` if it was linked for another device.
    ///
    /// Since CUDA 2.1.
    #[inline]
    pub fn from_linked(context: &Context, linked: &Linked) -> Result<Self> {
        // SAFETY: the image is complete and was made by the driver.
        unsafe { Self::from_image(context, linked.bytes()) }
    }
}

impl Library {
    /// Loads the image that a [`Linker`] created. Calls `cuLibraryLoadData`.
    ///
    /// # Errors
    /// See [`Module::from_linked`]. That error appears when a context first uses the code.
    ///
    /// Since CUDA 12.0.
    #[inline]
    pub fn from_linked(linked: &Linked) -> Result<Self> {
        // SAFETY: the image is complete and was made by the driver.
        unsafe { Self::from_image(linked.bytes()) }
    }
}

impl Drop for Linker {
    #[inline]
    fn drop(&mut self) {
        release(Handle(self.raw), &self.kept);
    }
}

destroy! {
    Handle<CUlinkState> as "a linker";
    // SAFETY: the handle stands for the linker, and the caller promises that this is the first call.
    // The owners keep the memory alive to which the linker writes.
    |its| unsafe { answer!(cuLinkDestroy(its.0)) }
}

owners! {
    Arc<Kept> |its| {
        context: Some(&its.context),
        is_borrowed: its.context.is_borrowed(),
    }
}

debug_struct! { Linker |its| { raw: its.raw, context: its.context() } }

debug_struct! { Linked |its| { bytes: its.image.len(), log: its.log } }
