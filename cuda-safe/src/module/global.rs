//! Variables of modules: `__device__`, `__constant__` and `__managed__` in CUDA C++.

use super::kernel::Code;
use super::{Library, Module, image};
use crate::call::{answer, call, without_current};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::invalid::Invalid;
use crate::memory::DeviceBuffer;
use crate::stream::Stream;
use cuda_sys::{CUdeviceptr, CUresult};
use std::fmt;
use std::sync::Arc;

/// A variable of a module, as one context has it.
///
/// It holds its module or library. Clones are the same variable. Its memory is the module's: it
/// goes when that is unloaded.
///
/// ```no_run
/// use cuda_safe::{Context, Device, Module};
///
/// # let ptx = "";
/// let context = Context::primary(&Device::get(0)?)?;
/// let stream = context.stream()?;
/// let module = Module::from_ptx(&context, ptx)?;
///
/// // SAFETY: nothing was launched, so nobody else uses the variable.
/// let mut factors = unsafe { module.global("factors")?.buffer::<f32>(&stream) }?;
/// factors.copy_from_slice(&[0.5; 4])?;
/// # Ok::<_, cuda_safe::Error>(())
/// ```
#[derive(Clone)]
pub struct Global {
    address: CUdeviceptr,
    size: usize,
    name: Arc<str>,
    /// Before the context in the order of drops: code is unloaded while its context lives.
    #[allow(dead_code, reason = "held, not read")]
    code: Code,
    context: Context,
}

impl Global {
    /// The address on the device.
    pub fn as_raw(&self) -> CUdeviceptr {
        self.address
    }

    /// How many bytes it has.
    pub fn size_bytes(&self) -> usize {
        self.size
    }

    /// Its name in the module.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The context whose copy of the variable this is.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The variable as a buffer of as many `T` as it has, bound to `stream`: for copies, fills and
    /// launches in the stream's order. The buffer holds the module; nothing is freed with it.
    ///
    /// # Errors
    /// [`Invalid::GlobalLayout`]; a stream of another context.
    ///
    /// # Safety
    /// Kernels use the variable by its name, which nobody can see here. So, until the buffer and
    /// what is made of it are gone, and the work on them is done:
    /// - what else uses the variable, kernels by its name and other code, is in order with the
    ///   stream that the buffer is bound to: given to it; or done before, or waited for by it; or
    ///   given to another stream after a wait for it. (What only reads needs no order with what
    ///   only reads.)
    /// - There is no other buffer of it, unless both are only read.
    /// - What is written through it are bits that the module's kernels can do with: an index within
    ///   bounds, say, or a pointer to what is there.
    pub unsafe fn buffer<T: 'static>(&self, stream: &Stream) -> Result<DeviceBuffer<T>> {
        crate::stream::same_context("the variable", &self.context, stream.context())?;
        let (element, align) = (size_of::<T>(), align_of::<T>());
        let whole = self.size.checked_rem(element) == Some(0);
        if !whole || self.address % align as CUdeviceptr != 0 {
            return Err(Invalid::GlobalLayout {
                name: self.name().to_owned(),
                size: self.size,
                address: self.address,
                element,
                align,
            }
            .into());
        }
        let (len, owner) = (self.size / element, self.clone());
        // SAFETY: the memory is the module's, which the owner holds; it has `len` elements and
        // their alignment; that nobody else uses it is the caller's promise, and unloading the
        // module, should the owner be the last to hold it, waits for all work.
        Ok(unsafe { DeviceBuffer::from_foreign(self.address, len, stream, owner) })
    }
}

impl Module {
    /// `cuModuleGetGlobal(&address, &bytes, module, name)`: the variable of that name (for C++
    /// without `extern "C"`: the mangled one).
    ///
    /// # Errors
    /// [`Invalid::NoSuchGlobal`].
    ///
    /// Since CUDA 3.2. Raw: [`cuModuleGetGlobal_v2`](fn@cuda_sys::cuModuleGetGlobal_v2).
    #[doc(alias = "cuModuleGetGlobal")]
    pub fn global(&self, name: &str) -> Result<Global> {
        let c_name = image::name(name)?;
        let (mut address, mut size) = (0, 0);
        let (at, bytes) = (&raw mut address, &raw mut size);
        let (module, text) = (self.as_raw(), c_name.as_ptr());
        let found = without_current(self.context(), || {
            // SAFETY: the module is alive, the name ends with a NUL, and the pointers are to
            // locals.
            unsafe { answer!(cuModuleGetGlobal_v2(at, bytes, module, text)) }
        });
        explain_missing(found, name)?;
        Ok(Global {
            address,
            size,
            name: name.into(),
            code: self.clone().into(),
            context: self.context().clone(),
        })
    }
}

impl Library {
    /// `cuLibraryGetGlobal(&address, &bytes, library, name)`: the variable of that name, as
    /// `context` has it.
    ///
    /// # Errors
    /// [`Invalid::NoSuchGlobal`]; those of the compiler, for PTX that no context needed before.
    ///
    /// Since CUDA 12.0. Raw: [`cuLibraryGetGlobal`](fn@cuda_sys::cuLibraryGetGlobal).
    #[doc(alias = "cuLibraryGetGlobal")]
    pub fn global(&self, context: &Context, name: &str) -> Result<Global> {
        self.find(context, name, |at, bytes, text| {
            // SAFETY: the library is alive, the name ends with a NUL, and the pointers are to
            // locals.
            unsafe { call!(cuLibraryGetGlobal(at, bytes, self.as_raw(), text)) }
        })
    }

    /// `cuLibraryGetManaged(&address, &bytes, library, name)`: the managed variable of that name,
    /// which is one for all contexts; the buffers of this handle are for streams of `context`.
    ///
    /// # Errors
    /// As for [`global`](Self::global).
    ///
    /// Since CUDA 12.0. Raw: [`cuLibraryGetManaged`](fn@cuda_sys::cuLibraryGetManaged).
    #[doc(alias = "cuLibraryGetManaged")]
    pub fn managed(&self, context: &Context, name: &str) -> Result<Global> {
        self.find(context, name, |at, bytes, text| {
            // SAFETY: as above.
            unsafe { call!(cuLibraryGetManaged(at, bytes, self.as_raw(), text)) }
        })
    }

    fn find(
        &self,
        context: &Context,
        name: &str,
        ask: impl FnOnce(*mut CUdeviceptr, *mut usize, *const std::ffi::c_char) -> Result<()>,
    ) -> Result<Global> {
        let c_name = image::name(name)?;
        let (mut address, mut size) = (0, 0);
        let found = {
            let _current = context.enter()?;
            ask(&raw mut address, &raw mut size, c_name.as_ptr())
        };
        explain_missing(found, name).map_err(|error| self.explain_compilation(context, error))?;
        Ok(Global {
            address,
            size,
            name: name.into(),
            code: self.clone().into(),
            context: context.clone(),
        })
    }
}

fn explain_missing(found: Result<()>, name: &str) -> Result<()> {
    found.map_err(|error| match error {
        Error::Driver(its) if its.code == CUresult::CUDA_ERROR_NOT_FOUND => Invalid::NoSuchGlobal {
            name: name.to_owned(),
        }
        .into(),
        error => error,
    })
}

impl fmt::Debug for Global {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Global")
            .field("name", &self.name)
            .field("address", &format_args!("{:#x}", self.address))
            .field("size", &self.size)
            .field("context", &self.context)
            .finish()
    }
}
