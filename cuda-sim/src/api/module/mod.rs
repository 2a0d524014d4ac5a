//! Modules and libraries. PTX, cubins and fat binaries are parsed for their kernels.

pub(crate) mod function;
pub(crate) mod jit;
pub(crate) mod linker;
pub(crate) mod variable;

use crate::api::prelude::*;
use crate::code::binary::{self, Unloadable};
use crate::code::ptx::{self, Refusal};
use crate::code::{Contents, linked};
use crate::coverage;
use crate::exec::kernel;
use crate::state::objects::Module;
use crate::state::process::logs::Logs;
use core::ffi::CStr;
use cuda_ptx::is_device_function;
use cuda_sys::{CUjit_option, CUlibraryOption};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

impl World {
    /// Returns the newest PTX version that the driver's compiler supports, according to the release
    /// notes of PTX. The version for CUDA 13.5 is a guess.
    fn newest_ptx(&self) -> (u32, u32) {
        let driver = self.settings.profile.driver;
        let (major, minor) = (driver.major().unsigned_abs(), driver.minor().unsigned_abs());
        match (major, minor) {
            (12, 6) => (8, 5),
            (12, 9) => (8, 8),
            _ => (major - 4, minor),
        }
    }

    /// Returns the contents of an image or of PTX text. `not_ptx` is the code for a text that does not begin as PTX.
    pub(crate) fn read_image(
        &mut self,
        image: *const c_void,
        not_ptx: CUresult,
        log: &mut Logs,
    ) -> Answer<Contents> {
        fail_if(image.is_null(), INVALID)?;
        // SAFETY: the caller passes an image or text, and no byte is read after one that already
        // distinguishes it.
        let byte = |at: usize| unsafe { image.cast::<u8>().wrapping_add(at).read() };
        let parsed = if matches!(byte(0), 0x7f | 0x50) {
            if let Some(contents) = kernel::find_image(byte) {
                return Ok(contents);
            }
            self.read_binary(image.cast())?
        } else {
            // SAFETY: anything that is not an image must be NUL-terminated text.
            let text = unsafe { CStr::from_ptr(image.cast()) };
            ptx::parse(&text.to_string_lossy(), self.newest_ptx())
        };
        match parsed {
            Ok(contents) => {
                log.inform("ptxas info    : 0 bytes gmem");
                Ok(contents)
            }
            Err(Refusal::NotPtx) => {
                log.write("ptxas line 1; fatal   : missing .version directive");
                Err(not_ptx)
            }
            Err(Refusal::Version(major, minor)) => {
                log.write(&format!("ptxas fatal   : Unsupported .version {major}.{minor}"));
                Err(CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION)
            }
            Err(Refusal::Invalid(what)) => {
                log.write(&format!("ptxas {what}"));
                Err(CUresult::CUDA_ERROR_INVALID_PTX)
            }
        }
    }

    /// Returns the contents of the code for this device in a cubin or fat binary.
    ///
    /// Unverified (from documentation): the code for a damaged image.
    fn read_binary(&self, image: *const u8) -> Answer<Result<Contents, Refusal>> {
        // SAFETY: the caller passes an image, and no byte is read after one that shows that it is none. An image is
        // complete, and has every byte that its header implies.
        let byte = |at: usize| unsafe { image.wrapping_add(at).read() };
        let length = binary::length(byte).ok_or(CUresult::CUDA_ERROR_INVALID_IMAGE)?;
        // SAFETY: a complete image has this length, and the program does not change it during the call.
        let image = unsafe { std::slice::from_raw_parts(image, length) };
        if let Some(texts) = linked::texts(image) {
            return Ok(ptx::parse_linked(&texts, self.newest_ptx()));
        }
        let (gpu, driver) = (&self.settings.profile.gpu, self.settings.profile.driver.major());
        match binary::parse(image, gpu.capability, driver, self.newest_ptx()) {
            Ok(contents) => Ok(Ok(contents)),
            Err(Unloadable::Text(refusal)) => Ok(Err(refusal)),
            Err(Unloadable::Damaged) => Err(CUresult::CUDA_ERROR_INVALID_IMAGE),
            Err(Unloadable::NoCode) => Err(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU),
            Err(Unloadable::Compression(format)) => {
                eprintln!(
                    "cuda-sim: the code for the device in a fat binary is compressed as {format:?}, and this \
                     driver decompresses LZ4 and zstd"
                );
                Err(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU)
            }
        }
    }

    /// Returns the contents of a module, which must not have unresolved symbols. See
    /// [`read_image`](Self::read_image).
    fn read_module(
        &mut self,
        image: *const c_void,
        context: Option<usize>,
        log: &mut Logs,
    ) -> Answer<Module> {
        // Measured on driver 580.
        let not_ptx = CUresult::CUDA_ERROR_INVALID_IMAGE;
        let contents = self.read_image(image, not_ptx, log)?;
        if let Some(wanted) = contents.wanted.iter().find(|name| !is_device_function(name)) {
            log.write(&format!("ptxas fatal   : Unresolved extern function '{wanted}'"));
            return Err(CUresult::CUDA_ERROR_INVALID_PTX);
        }
        let mut program = contents.program;
        if self.settings.profile.coverage {
            program = program.map(|program| coverage::load(program, &contents.texts));
        }
        let mut kernel_names = HashMap::new();
        for (index, its) in contents.kernels.iter().enumerate() {
            kernel_names.entry(its.c_name.clone()).or_insert(index);
        }
        Ok(Module {
            refused: None,
            context,
            program,
            kernels: contents.kernels.into_iter().map(Arc::new).collect(),
            kernel_names,
            variables: contents.variables.into(),
            placed: BTreeMap::new(),
            functions: Vec::new(),
        })
    }

    /// Adds a library. If its code cannot be used, the functions that use it return the code of the error.
    fn add_library(&mut self, read: Answer<Module>) -> usize {
        let read = read.unwrap_or_else(|code| Module { refused: Some(code), ..Module::default() });
        let count = read.kernels.len();
        let handle = self.objects.libraries.insert(read);
        let functions = self.add_functions(handle, None, count);
        if let Some(library) = self.objects.libraries.get_mut(handle) {
            library.functions = functions;
        }
        handle
    }

    fn function_of(&self, module: usize, name: *const c_char) -> Answer<usize> {
        let module = self.module(module)?;
        fail_if(name.is_null(), INVALID)?;
        module.refused.map_or(Ok(()), Err)?;
        // SAFETY: the caller passes a NUL-terminated string.
        let name = unsafe { CStr::from_ptr(name) };
        let at = module.kernel_names.get(name);
        at.map(|at| module.functions[*at]).ok_or(CUresult::CUDA_ERROR_NOT_FOUND)
    }

    fn functions_of(&self, module: usize, to: *mut *mut c_void, room: c_uint) -> Answer {
        let functions = &self.module(module)?.functions;
        fail_if(to.is_null(), INVALID)?;
        for (index, function) in functions.iter().take(room as usize).enumerate() {
            // SAFETY: the caller passes room for `room` handles.
            let place = unsafe { to.add(index) };
            // SAFETY: the caller passes room for `room` handles.
            unsafe { place.write(pointer(*function)) };
        }
        Ok(())
    }
}

pub(crate) fn load(world: &mut World, image: *const c_void) -> Answer<CUmodule> {
    load_with(world, image, &mut Logs::default())
}

pub(crate) fn load_ex(
    world: &mut World,
    module: Out<CUmodule>,
    image: *const c_void,
    count: c_uint,
    keys: *mut CUjit_option,
    values: *mut *mut c_void,
) -> Answer {
    // SAFETY: the caller passes `count` keys and values.
    let mut log = unsafe { Logs::of_options(world, keys, values, count) }?;
    module.required()?;
    module.put(load_with(world, image, &mut log)?)
}

/// Returns the contents of a file with an image or PTX text.
pub(crate) fn read_file(world: &World, path: *const c_char) -> Answer<Vec<u8>> {
    fail_if(path.is_null(), INVALID)?;
    // SAFETY: the caller passes a NUL-terminated string.
    let path = unsafe { CStr::from_ptr(path) }.to_string_lossy();
    let mut bytes = std::fs::read(&*path).map_err(|_| CUresult::CUDA_ERROR_FILE_NOT_FOUND)?;
    if matches!(bytes.first(), Some(0x7f | 0x50)) {
        // The code that reads an image in memory relies on the length in its header.
        let length = binary::length(|at| bytes.get(at).copied().unwrap_or(0));
        if length.is_none_or(|length| length > bytes.len()) {
            return Err(CUresult::CUDA_ERROR_INVALID_IMAGE);
        }
    } else if world.settings.profile.coverage {
        coverage::load_file(&path, &bytes);
    }
    // PTX in memory is NUL-terminated text.
    bytes.push(0);
    Ok(bytes)
}

pub(crate) fn load_file(world: &mut World, path: *const c_char) -> Answer<CUmodule> {
    let image = read_file(world, path)?;
    load(world, image.as_ptr().cast())
}

fn load_with(world: &mut World, image: *const c_void, log: &mut Logs) -> Answer<CUmodule> {
    let current = world.current()?;
    let owner = world.owner_of(current)?;
    let read = world.read_module(image, Some(owner), log)?;
    // Loading waits for running work (measured).
    world.run_all()?;
    let count = read.kernels.len();
    let handle = world.add_module(read);
    let functions = world.add_functions(handle, Some(owner), count);
    if let Some(module) = world.objects.modules.get_mut(handle) {
        module.functions = functions;
    }
    world.place_variables(handle, owner)?;
    Ok(pointer(handle))
}

pub(crate) fn unload(world: &mut World, module: CUmodule) -> Answer {
    world.module(module.addr())?;
    world.forbidden_in_capture()?;
    let waited = world.run_down()?;
    world.remove_module(module.addr());
    waited
}

pub(crate) fn function(
    world: &mut World,
    module: CUmodule,
    name: *const c_char,
) -> Answer<CUfunction> {
    let function = world.function_of(module.addr(), name)?;
    // Measured.
    function::load(world, pointer(function))?;
    Ok(pointer(function))
}

pub(crate) fn count(world: &mut World, count: Out<c_uint>, module: CUmodule) -> Answer {
    count.required()?;
    let kernels = world.module(module.addr())?.kernels.len();
    count.put(c_uint::try_from(kernels).unwrap_or(0))
}

pub(crate) fn enumerate(
    world: &mut World,
    functions: *mut CUfunction,
    room: c_uint,
    module: CUmodule,
) -> Answer {
    world.functions_of(module.addr(), functions.cast(), room)
}

pub(crate) fn function_name(
    world: &mut World,
    name: Out<*const c_char>,
    function: CUfunction,
) -> Answer {
    name.required()?;
    fail_if(function.is_null(), INVALID)?;
    // The name lives as long as the module.
    name.put(world.kernel_info(function.addr())?.c_name.as_ptr())
}

/// Returns the module of a function. A library's kernel has none (unverified: the code).
pub(crate) fn of_function(world: &mut World, function: CUfunction) -> Answer<CUmodule> {
    fail_if(function.is_null(), INVALID)?;
    let its = world.function(function.addr())?.module;
    let its = world.objects.modules.get(its).map(|_| its);
    Ok(pointer(its.ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?))
}

/// Returns the library of a kernel.
pub(crate) fn library_of_kernel(world: &mut World, kernel: CUkernel) -> Answer<CUlibrary> {
    let its = world.function(kernel.addr())?.module;
    let its = world.objects.libraries.get(its).map(|_| its);
    Ok(pointer(its.ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?))
}

pub(crate) fn param(
    world: &mut World,
    function: CUfunction,
    index: usize,
    offset: Out<usize>,
    size: Out<usize>,
) -> Answer {
    offset.required()?;
    // Measured.
    fail_if(function.is_null(), INVALID)?;
    let params = &world.kernel_info(function.addr())?.params;
    let (at, long) = params.get(index).ok_or(INVALID)?;
    offset.set(*at);
    size.put(*long)
}

pub(crate) fn param_count(world: &mut World, function: CUfunction, count: Out<usize>) -> Answer {
    count.required()?;
    count.put(world.kernel_info(function.addr())?.params.len())
}

pub(crate) fn load_library(
    world: &mut World,
    image: *const c_void,
    keys: *mut CUjit_option,
    values: *mut *mut c_void,
    count: c_uint,
    _options: *mut CUlibraryOption,
    _option_values: *mut *mut c_void,
    _options_count: c_uint,
) -> Answer<CUlibrary> {
    // SAFETY: the caller passes `count` keys and values.
    let mut log = unsafe { Logs::of_options(world, keys, values, count) }?;
    fail_if(image.is_null(), INVALID)?;
    let read = world.read_module(image, None, &mut log);
    Ok(pointer(world.add_library(read)))
}

pub(crate) fn load_library_file(
    world: &mut World,
    path: *const c_char,
    keys: *mut CUjit_option,
    values: *mut *mut c_void,
    count: c_uint,
    options: *mut CUlibraryOption,
    option_values: *mut *mut c_void,
    options_count: c_uint,
) -> Answer<CUlibrary> {
    let image = match read_file(world, path) {
        Err(code @ CUresult::CUDA_ERROR_INVALID_IMAGE) => {
            // SAFETY: the caller passes `count` keys and values.
            unsafe { Logs::of_options(world, keys, values, count) }?;
            return Ok(pointer(world.add_library(Err(code))));
        }
        image => image?,
    };
    // Measured for an empty file. No other content is read before it is used.
    fail_if(image == [0], CUresult::CUDA_ERROR_INVALID_IMAGE)?;
    load_library(
        world,
        image.as_ptr().cast(),
        keys,
        values,
        count,
        options,
        option_values,
        options_count,
    )
}

pub(crate) fn unload_library(world: &mut World, library: CUlibrary) -> Answer {
    world.module(library.addr())?;
    world.forbidden_in_capture()?;
    let waited = world.run_down()?;
    if let Some(library) = world.objects.libraries.remove(library.addr()) {
        world.forget_functions(&library);
    }
    waited
}

pub(crate) fn kernel(
    world: &mut World,
    library: CUlibrary,
    name: *const c_char,
) -> Answer<CUkernel> {
    Ok(pointer(world.function_of(library.addr(), name)?))
}

pub(crate) fn kernel_count(world: &mut World, place: Out<c_uint>, library: CUlibrary) -> Answer {
    count(world, place, library.cast())
}

pub(crate) fn enumerate_kernels(
    world: &mut World,
    kernels: *mut CUkernel,
    room: c_uint,
    library: CUlibrary,
) -> Answer {
    world.functions_of(library.addr(), kernels.cast(), room)
}

pub(crate) fn kernel_name(world: &mut World, name: Out<*const c_char>, kernel: CUkernel) -> Answer {
    function_name(world, name, kernel.cast())
}

pub(crate) fn kernel_param(
    world: &mut World,
    kernel: CUkernel,
    index: usize,
    offset: Out<usize>,
    size: Out<usize>,
) -> Answer {
    // Measured. The other queries of kernels need no context.
    world.current()?;
    param(world, kernel.cast(), index, offset, size)
}

pub(crate) fn kernel_param_count(world: &mut World, kernel: CUkernel, count: Out<usize>) -> Answer {
    param_count(world, kernel.cast(), count)
}

/// Returns the function of a library's kernel in the current context. The handle is the same in every
/// context.
pub(crate) fn kernel_function(world: &mut World, kernel: CUkernel) -> Answer<CUfunction> {
    let current = world.current()?;
    let owner = world.owner_of(current)?;
    let module = world.function(kernel.addr())?.module;
    world.place_variables(module, owner)?;
    let its = world.function_of_kernel(kernel.addr())?;
    Ok(pointer(its))
}
