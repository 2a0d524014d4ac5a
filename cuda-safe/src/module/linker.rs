//! The driver's linker: several pieces of code become one image.

use super::jit::{self, JitOptions, Request};
use super::{Library, Module, image};
use crate::call::call;
use crate::context::Context;
use crate::error::{DriverError, Result};
use crate::invalid::Invalid;
use crate::release::{self, Parent, Resource, release};
use core::ffi::{CStr, c_void};
use cuda_sys::{CUjitInputType, CUlinkState, CUresult};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// `CUlinkState`: takes pieces of code one after another, and makes one image of them for a
/// context's device, or for another [target](JitOptions::target).
///
/// ```no_run
/// use cuda_safe::{Context, Device, Linker, Module};
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
    needs: Arc<Needs>,
}

/// What has to outlive the driver's linker: it writes into the request until it is destroyed.
struct Needs {
    request: Request,
    context: Context,
}

// SAFETY: any thread may use a linker, one at a time, which `&mut` sees to.
unsafe impl Send for Linker {}

/// What a piece of code for the linker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LinkInput {
    /// PTX text.
    Ptx,
    /// A binary for one architecture.
    Cubin,
    /// Binaries and PTX for several.
    Fatbin,
    /// An object file of the host with such code in it.
    Object,
    /// An archive of such object files.
    Library,
}

impl LinkInput {
    fn raw(self) -> CUjitInputType {
        match self {
            Self::Ptx => CUjitInputType::CU_JIT_INPUT_PTX,
            Self::Cubin => CUjitInputType::CU_JIT_INPUT_CUBIN,
            Self::Fatbin => CUjitInputType::CU_JIT_INPUT_FATBINARY,
            Self::Object => CUjitInputType::CU_JIT_INPUT_OBJECT,
            Self::Library => CUjitInputType::CU_JIT_INPUT_LIBRARY,
        }
    }
}

/// An image that a [`Linker`] made, for [`Module::from_linked`] and [`Library::from_linked`].
#[derive(Clone, PartialEq, Eq)]
pub struct Linked {
    image: Box<[u8]>,
    log: Box<str>,
}

impl Linked {
    /// The image, a cubin: a copy of the driver's.
    pub fn bytes(&self) -> &[u8] {
        &self.image
    }

    /// What the compiler and the linker wrote, if that was [asked for](JitOptions::info_log).
    pub fn log(&self) -> &str {
        &self.log
    }
}

impl Linker {
    /// A linker for the context's device.
    ///
    /// # Errors
    /// As for [`with`](Self::with).
    pub fn new(context: &Context) -> Result<Self> {
        Self::with(context, &JitOptions::default())
    }

    /// `cuLinkCreate(count, keys, values, &linker)`: a linker with options, which are for what it
    /// compiles too.
    ///
    /// # Errors
    /// [`Invalid::JitOption`], [`Invalid::JitOptionNeedsNewerDriver`];
    /// `CUDA_ERROR_JIT_COMPILER_NOT_FOUND`.
    ///
    /// Since CUDA 6.5. Raw: [`cuLinkCreate_v2`](fn@cuda_sys::cuLinkCreate_v2),
    /// [`cuLinkDestroy`](fn@cuda_sys::cuLinkDestroy).
    #[doc(alias = "cuLinkCreate")]
    #[doc(alias = "cuLinkDestroy")]
    pub fn with(context: &Context, options: &JitOptions) -> Result<Self> {
        release::drain();
        let mut request = Request::new(options)?;
        let (count, keys, values) = request.options();
        let mut raw = std::ptr::null_mut();
        let state = &raw mut raw;
        {
            let _current = context.enter()?;
            // SAFETY: the options are `count` keys and values of the types that they want, and
            // point to heap memory of the request, which lives until the linker is destroyed; the
            // other pointer is to a local.
            unsafe { call!(cuLinkCreate_v2(count, keys, values, state)) }?;
        }
        let needs = Needs {
            request,
            context: context.clone(),
        };
        Ok(Self {
            raw,
            needs: Arc::new(needs),
        })
    }

    /// `cuLinkAddData(linker, PTX, text, …)`: compiles PTX text and adds it, under a name for the
    /// log.
    ///
    /// # Errors
    /// [`Error::Compile`](crate::Error::Compile) with the log so far;
    /// [`Error::PtxTooNew`](crate::Error::PtxTooNew); empty text, or a NUL inside.
    ///
    /// Since CUDA 6.5. Raw: [`cuLinkAddData_v2`](fn@cuda_sys::cuLinkAddData_v2).
    #[doc(alias = "cuLinkAddData")]
    pub fn add_ptx(&mut self, name: &str, ptx: &str) -> Result<()> {
        let text = image::ptx(ptx)?;
        let bytes = text.as_bytes_with_nul();
        // SAFETY: the driver takes it for PTX, up to the NUL, and its compiler checks the rest.
        unsafe { self.add(LinkInput::Ptx, name, bytes) }
            .map_err(|error| jit::explain_ptx(error, &text))
    }

    /// `cuLinkAddData(linker, kind, data, bytes, …)`: adds a piece of binary code, under a name for
    /// the log.
    ///
    /// # Errors
    /// As for [`add_ptx`](Self::add_ptx) and [`Module::from_image`].
    ///
    /// # Safety
    /// `data` is a whole piece of that kind, made by NVIDIA's tools: the driver trusts what is in
    /// it.
    ///
    /// Since CUDA 6.5. Raw: [`cuLinkAddData_v2`](fn@cuda_sys::cuLinkAddData_v2).
    #[doc(alias = "cuLinkAddData")]
    pub unsafe fn add_data(&mut self, kind: LinkInput, name: &str, data: &[u8]) -> Result<()> {
        match kind {
            LinkInput::Ptx => {
                let text = std::str::from_utf8(data).map_err(|_| Invalid::NotPtx)?;
                return self.add_ptx(name, text);
            }
            LinkInput::Cubin | LinkInput::Fatbin => image::check(data)?,
            LinkInput::Object | LinkInput::Library => {
                if data.is_empty() {
                    return Err(Invalid::EmptyImage.into());
                }
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.add(kind, name, data) }
    }

    /// # Safety
    /// `data` is a whole piece of that kind; of PTX with a NUL at its end.
    unsafe fn add(&mut self, kind: LinkInput, name: &str, data: &[u8]) -> Result<()> {
        let name = image::name(name)?;
        let start = data.as_ptr().cast_mut().cast::<c_void>();
        let size = data.len();
        let (keys, values) = (std::ptr::null_mut(), std::ptr::null_mut());
        let (state, kind, name) = (self.raw, kind.raw(), name.as_ptr());
        let before = self.needs.request.errors();
        let done = {
            let _current = self.needs.context.enter()?;
            // SAFETY: the linker is alive; the caller's promise for the data, which the driver
            // only reads, and has copied when it returns; the name ends with a NUL; there are no
            // options.
            unsafe {
                call!(cuLinkAddData_v2(
                    state, kind, start, size, name, 0, keys, values
                ))
            }
        };
        self.needs.request.attach_new(done, &before)
    }

    /// `cuLinkAddFile(linker, kind, path, …)`: adds a file.
    ///
    /// # Errors
    /// `CUDA_ERROR_FILE_NOT_FOUND`; as for [`add_data`](Self::add_data).
    ///
    /// # Safety
    /// The file is a whole piece of that kind, made by NVIDIA's tools: the driver trusts what is in
    /// it. Nobody changes it meanwhile. (PTX can be read and given to
    /// [`add_ptx`](Self::add_ptx).)
    ///
    /// Since CUDA 6.5. Raw: [`cuLinkAddFile_v2`](fn@cuda_sys::cuLinkAddFile_v2).
    #[doc(alias = "cuLinkAddFile")]
    pub unsafe fn add_file(&mut self, kind: LinkInput, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref().as_os_str().as_encoded_bytes();
        let path = std::ffi::CString::new(path).map_err(|error| Invalid::NulInText {
            position: error.nul_position(),
        })?;
        let (keys, values) = (std::ptr::null_mut(), std::ptr::null_mut());
        let (state, kind) = (self.raw, kind.raw());
        let path: &CStr = &path;
        let path = path.as_ptr();
        let before = self.needs.request.errors();
        let done = {
            let _current = self.needs.context.enter()?;
            // SAFETY: the linker is alive; the caller's promise for the file; the path ends with a
            // NUL; there are no options.
            unsafe { call!(cuLinkAddFile_v2(state, kind, path, 0, keys, values)) }
        };
        self.needs.request.attach_new(done, &before)
    }

    /// `cuLinkComplete(linker, &image, &bytes)`: links, and ends the linker.
    ///
    /// # Errors
    /// [`Error::Compile`](crate::Error::Compile) with the log: of a name that no piece has, or that
    /// several have.
    ///
    /// Since CUDA 5.5. Raw: [`cuLinkComplete`](fn@cuda_sys::cuLinkComplete).
    #[doc(alias = "cuLinkComplete")]
    pub fn complete(self) -> Result<Linked> {
        let (mut image, mut size) = (std::ptr::null_mut(), 0);
        let (place, bytes) = (&raw mut image, &raw mut size);
        let before = self.needs.request.errors();
        let done = {
            let _current = self.needs.context.enter()?;
            // SAFETY: the linker is alive, and the pointers are to locals.
            unsafe { call!(cuLinkComplete(self.raw, place, bytes)) }
        };
        self.needs.request.attach_new(done, &before)?;
        if image.is_null() {
            let code = CUresult::CUDA_ERROR_UNKNOWN;
            let call = "cuLinkComplete";
            return Err(DriverError { code, call }.into());
        }
        // SAFETY: the driver has `size` bytes there until the linker is destroyed, which it is
        // after this.
        let image = unsafe { std::slice::from_raw_parts(image.cast::<u8>(), size) };
        Ok(Linked {
            image: image.into(),
            log: self.needs.request.info().into(),
        })
    }

    /// The context whose device it links for.
    pub fn context(&self) -> &Context {
        &self.needs.context
    }

    /// The driver's handle. It stays this object's: do not destroy it.
    pub fn as_raw(&self) -> CUlinkState {
        self.raw
    }
}

impl Module {
    /// `cuModuleLoadDataEx(&module, image, …)`: loads what a [`Linker`] made.
    ///
    /// # Errors
    /// `CUDA_ERROR_NO_BINARY_FOR_GPU` where it was linked for another device.
    ///
    /// Since CUDA 2.1.
    pub fn from_linked(context: &Context, linked: &Linked) -> Result<Self> {
        // SAFETY: a whole image, made by the driver itself.
        unsafe { Self::from_image(context, linked.bytes()) }
    }
}

impl Library {
    /// `cuLibraryLoadData(&library, image, …)`: loads what a [`Linker`] made.
    ///
    /// # Errors
    /// As for [`Module::from_linked`], when a context first needs it.
    ///
    /// Since CUDA 12.0.
    pub fn from_linked(linked: &Linked) -> Result<Self> {
        // SAFETY: a whole image, made by the driver itself.
        unsafe { Self::from_image(linked.bytes()) }
    }
}

impl Drop for Linker {
    fn drop(&mut self) {
        release(Resource::Linker(self.raw), &self.needs);
    }
}

impl Parent for Arc<Needs> {
    fn context(&self) -> Option<&Context> {
        Some(&self.context)
    }

    fn keep(&self) -> Box<dyn Parent + Send> {
        Box::new(Self::clone(self))
    }

    fn is_borrowed(&self) -> bool {
        self.context.is_borrowed()
    }
}

impl fmt::Debug for Linker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Linker")
            .field("raw", &self.raw)
            .field("context", self.context())
            .finish()
    }
}

impl fmt::Debug for Linked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Linked")
            .field("bytes", &self.image.len())
            .field("log", &self.log)
            .finish()
    }
}
