//! Core dumps of the device: settings and callbacks.

use crate::api::prelude::*;
use crate::state::handles::Handles;
use crate::state::process::coredump::{Callback, Settings};
use crate::thread;
use cuda_sys::{
    CUcoredumpCallbackHandle, CUcoredumpSettings as Attribute, CUcoredumpStatusCallback,
    CudaVersion,
};

/// The size of a string with its NUL.
const STRING: usize = 1024;

/// The size of an attribute's value, or the largest size of a string.
fn size_of(world: &World, attribute: Attribute) -> Answer<usize> {
    let since = CudaVersion::new(12, 5);
    match attribute {
        Attribute::CU_COREDUMP_GENERATION_FLAGS if world.settings.profile.driver < since => {
            Err(INVALID)
        }
        Attribute::CU_COREDUMP_ENABLE_ON_EXCEPTION
        | Attribute::CU_COREDUMP_TRIGGER_HOST
        | Attribute::CU_COREDUMP_LIGHTWEIGHT
        | Attribute::CU_COREDUMP_ENABLE_USER_TRIGGER => Ok(1),
        Attribute::CU_COREDUMP_GENERATION_FLAGS => Ok(4),
        Attribute::CU_COREDUMP_FILE | Attribute::CU_COREDUMP_PIPE => Ok(STRING),
        _ => Err(INVALID),
    }
}

/// Reads the size. A null value asks for the size of the attribute, which this writes.
fn checked_size(
    world: &World,
    attribute: Attribute,
    value: *mut c_void,
    size: &mut Option<&mut usize>,
) -> Answer<Option<usize>> {
    let size = size.as_deref_mut().ok_or(INVALID)?;
    let expected = size_of(world, attribute)?;
    if value.is_null() {
        *size = expected;
        return Ok(None);
    }
    let fits = match expected {
        STRING => (1..=STRING).contains(size),
        _ => *size == expected,
    };
    if fits { Ok(Some(*size)) } else { Err(INVALID) }
}

/// Writes an attribute.
fn read(
    world: &World,
    settings: &Settings,
    attribute: Attribute,
    value: *mut c_void,
    size: &mut Option<&mut usize>,
) -> Answer {
    let Some(room) = checked_size(world, attribute, value, size)? else {
        return Ok(());
    };
    let bytes: Vec<u8> = match attribute {
        Attribute::CU_COREDUMP_ENABLE_ON_EXCEPTION => vec![settings.on_exception.into()],
        Attribute::CU_COREDUMP_TRIGGER_HOST => vec![settings.trigger_host.into()],
        Attribute::CU_COREDUMP_LIGHTWEIGHT => vec![settings.lightweight.into()],
        Attribute::CU_COREDUMP_ENABLE_USER_TRIGGER => vec![settings.user_trigger.into()],
        Attribute::CU_COREDUMP_GENERATION_FLAGS => settings.flags.to_ne_bytes().to_vec(),
        Attribute::CU_COREDUMP_FILE => [settings.file.as_bytes(), &[0]].concat(),
        _ => [settings.pipe.as_bytes(), &[0]].concat(),
    };
    fail_if(bytes.len() > room, INVALID)?;
    // SAFETY: the caller guarantees a place of `size` bytes, and there are no more.
    unsafe { value.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    Ok(())
}

/// Reads the bytes of a new value.
///
/// # Safety
/// `value` refers to `size` bytes.
unsafe fn bytes_of(value: *const c_void, size: usize) -> Vec<u8> {
    // SAFETY: as the caller guarantees.
    unsafe { core::slice::from_raw_parts(value.cast::<u8>(), size) }.to_vec()
}

fn write(settings: &mut Settings, attribute: Attribute, bytes: &[u8]) -> Answer {
    let flag = bytes.first().is_some_and(|byte| *byte != 0);
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(text).into_owned();
    match attribute {
        Attribute::CU_COREDUMP_ENABLE_ON_EXCEPTION => settings.on_exception = flag,
        Attribute::CU_COREDUMP_TRIGGER_HOST => settings.trigger_host = flag,
        Attribute::CU_COREDUMP_LIGHTWEIGHT => settings.lightweight = flag,
        Attribute::CU_COREDUMP_ENABLE_USER_TRIGGER => settings.user_trigger = flag,
        // A real driver accepts unknown flags.
        Attribute::CU_COREDUMP_GENERATION_FLAGS => {
            let bytes = bytes.try_into().map_err(|_| INVALID)?;
            settings.flags = u32::from_ne_bytes(bytes);
        }
        Attribute::CU_COREDUMP_PIPE if settings.user_trigger => {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        Attribute::CU_COREDUMP_PIPE => settings.pipe = text,
        _ => settings.file = text,
    }
    Ok(())
}

pub(crate) fn get(
    world: &mut World,
    attribute: Attribute,
    value: *mut c_void,
    size: &mut Option<&mut usize>,
) -> Answer {
    let context = world.current()?;
    let dumps = &world.settings.coredumps;
    let settings = dumps.of_contexts.get(&context).unwrap_or(&dumps.global);
    read(world, settings, attribute, value, size)
}

pub(crate) fn set(
    world: &mut World,
    attribute: Attribute,
    value: *mut c_void,
    size: &mut Option<&mut usize>,
) -> Answer {
    let context = world.current()?;
    let Some(size) = checked_size(world, attribute, value, size)? else {
        return Ok(());
    };
    // Unverified (from documentation): these two apply to the process only.
    if matches!(attribute, Attribute::CU_COREDUMP_ENABLE_USER_TRIGGER | Attribute::CU_COREDUMP_PIPE)
    {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    // SAFETY: the caller guarantees `size` bytes.
    let bytes = unsafe { bytes_of(value, size) };
    let dumps = &mut world.settings.coredumps;
    let settings = dumps.of_contexts.entry(context);
    write(settings.or_insert_with(|| dumps.global.clone()), attribute, &bytes)
}

pub(crate) fn get_global(
    world: &mut World,
    attribute: Attribute,
    value: *mut c_void,
    size: &mut Option<&mut usize>,
) -> Answer {
    read(world, &world.settings.coredumps.global, attribute, value, size)
}

pub(crate) fn set_global(
    world: &mut World,
    attribute: Attribute,
    value: *mut c_void,
    size: &mut Option<&mut usize>,
) -> Answer {
    let Some(size) = checked_size(world, attribute, value, size)? else {
        return Ok(());
    };
    let enables = matches!(
        attribute,
        Attribute::CU_COREDUMP_ENABLE_ON_EXCEPTION | Attribute::CU_COREDUMP_ENABLE_USER_TRIGGER
    );
    if enables && !world.settings.initialised {
        misuse("core dumps are enabled before cuInit; a real driver crashes");
        return Err(CUresult::CUDA_ERROR_NOT_INITIALIZED);
    }
    // SAFETY: the caller guarantees `size` bytes.
    let bytes = unsafe { bytes_of(value, size) };
    write(&mut world.settings.coredumps.global, attribute, &bytes)
}

pub(crate) fn register_start(
    world: &mut World,
    function: CUcoredumpStatusCallback,
    data: *mut c_void,
    handle: Out<CUcoredumpCallbackHandle>,
) -> Answer {
    register(&mut world.settings.coredumps.start_callbacks, function, data, handle)
}

pub(crate) fn register_complete(
    world: &mut World,
    function: CUcoredumpStatusCallback,
    data: *mut c_void,
    handle: Out<CUcoredumpCallbackHandle>,
) -> Answer {
    register(&mut world.settings.coredumps.complete_callbacks, function, data, handle)
}

pub(crate) fn deregister_start(world: &mut World, handle: CUcoredumpCallbackHandle) -> Answer {
    deregister(&mut world.settings.coredumps.start_callbacks, handle)
}

pub(crate) fn deregister_complete(world: &mut World, handle: CUcoredumpCallbackHandle) -> Answer {
    deregister(&mut world.settings.coredumps.complete_callbacks, handle)
}

/// Unverified (from documentation), as are the functions below: callbacks exist since CUDA 13.2.
fn register(
    callbacks: &mut Handles<Callback>,
    function: CUcoredumpStatusCallback,
    data: *mut c_void,
    handle: Out<CUcoredumpCallbackHandle>,
) -> Answer {
    refuse_in_callback()?;
    function.ok_or(INVALID)?;
    handle.put(pointer(callbacks.insert(Callback { function, data })))
}

fn deregister(callbacks: &mut Handles<Callback>, handle: CUcoredumpCallbackHandle) -> Answer {
    refuse_in_callback()?;
    if callbacks.remove(handle.addr()).is_none() {
        misuse("a core dump callback is deregistered twice, or by the function of the other kind");
        return Err(INVALID);
    }
    Ok(())
}

fn refuse_in_callback() -> Answer {
    fail_if(thread::in_dump_callback(), CUresult::CUDA_ERROR_NOT_PERMITTED)
}
