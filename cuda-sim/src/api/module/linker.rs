//! The linker of the driver.
//!
//! Unverified (from documentation): the code for an unresolved name, and which call returns it.

use crate::api::prelude::*;
use crate::code::{Contents, linked};
use crate::exec::kernel;
use crate::state::handles::State;
use crate::state::objects::Linker;
use crate::state::process::logs::Logs;
use cuda_sys::{CUjit_option, CUjitInputType as Kind, CUlinkState};

impl World {
    fn linker(&mut self, state: CUlinkState) -> Answer<&mut Linker> {
        if self.objects.linkers.state(state.addr()) == State::Dead {
            misuse("a linker is used after it was destroyed");
        }
        self.objects.linkers.get_mut(state.addr()).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    /// Adds the contents of PTX text or of an image.
    fn add(&mut self, state: CUlinkState, kind: Kind, data: *const c_void) -> Answer {
        let linker = self.linker(state)?;
        fail_if(linker.image.is_some(), INVALID)?;
        // The functions of CUDA's device runtime are built in, and the code of another library is missing.
        if kind == Kind::CU_JIT_INPUT_LIBRARY {
            return Ok(());
        }
        let mut log = std::mem::take(&mut linker.log);
        let read = match kind {
            Kind::CU_JIT_INPUT_PTX | Kind::CU_JIT_INPUT_CUBIN | Kind::CU_JIT_INPUT_FATBINARY => {
                // Unverified: the code. The caller states what the text is.
                self.read_image(data, CUresult::CUDA_ERROR_INVALID_PTX, &mut log)
            }
            Kind::CU_JIT_INPUT_OBJECT => Err(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU),
            _ => Err(INVALID),
        };
        let linker = self.linker(state)?;
        linker.log = log;
        let contents = read?;
        linker.has_machine_code |= contents.program.is_none();
        linker.contents.append(contents);
        Ok(())
    }
}

pub(crate) fn create(
    world: &mut World,
    count: c_uint,
    keys: *mut CUjit_option,
    values: *mut *mut c_void,
) -> Answer<CUlinkState> {
    world.current()?;
    // SAFETY: the caller passes `count` keys and values, and buffers that live until the linker is
    // destroyed.
    let log = unsafe { Logs::of_options(world, keys, values, count) }?;
    let handle = world.objects.linkers.insert(Linker { log, ..Linker::default() });
    Ok(pointer(handle))
}

pub(crate) fn add_data(
    world: &mut World,
    state: CUlinkState,
    kind: Kind,
    data: *mut c_void,
    size: usize,
    _name: *const c_char,
    _count: c_uint,
    _keys: *mut CUjit_option,
    _values: *mut *mut c_void,
) -> Answer {
    fail_if(size == 0, INVALID)?;
    world.add(state, kind, data)
}

pub(crate) fn add_file(
    world: &mut World,
    state: CUlinkState,
    kind: Kind,
    path: *const c_char,
    _count: c_uint,
    _keys: *mut CUjit_option,
    _values: *mut *mut c_void,
) -> Answer {
    world.linker(state)?;
    let bytes = crate::api::module::read_file(world, path)?;
    world.add(state, kind, bytes.as_ptr().cast())
}

pub(crate) fn complete(
    world: &mut World,
    state: CUlinkState,
    image: Out<*mut c_void>,
    size: Out<usize>,
) -> Answer {
    let serial = world.objects.linked + 1;
    let linker = world.linker(state)?;
    let Contents { wanted, offered, .. } = &linker.contents;
    let is_there = |name: &String| offered.contains(name) || cuda_ptx::is_device_function(name);
    if let Some(name) = wanted.iter().find(|name| !is_there(name)) {
        let words = format!("error   : Undefined reference to '{name}'");
        linker.log.write(&words);
        return Err(CUresult::CUDA_ERROR_INVALID_IMAGE);
    }
    let mut contents = Contents { wanted: Vec::new(), ..linker.contents.clone() };
    if linker.has_machine_code {
        (contents.program, contents.texts) = (None, Vec::new());
    } else {
        contents.link().map_err(|what| {
            linker.log.write(&what);
            CUresult::CUDA_ERROR_INVALID_IMAGE
        })?;
    }
    let bytes = linked::write(serial, &contents.texts);
    kernel::add_image(&bytes, contents);
    let bytes = linker.image.insert(bytes);
    image.set(bytes.as_mut_ptr().cast());
    size.set(bytes.len());
    world.objects.linked = serial;
    Ok(())
}

pub(crate) fn destroy(world: &mut World, state: CUlinkState) -> Answer {
    world.linker(state)?;
    world.objects.linkers.remove(state.addr());
    Ok(())
}
