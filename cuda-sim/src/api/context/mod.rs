//! Contexts and the context stack.

pub(crate) mod settings;

use crate::api::prelude::*;
use crate::state::objects::ContextKind;
use crate::thread;
use cuda_sys::{CUcigDataType, CUctxCreateParams, CUexecAffinityParam};

/// Returns a handle as a C pointer.
pub(crate) fn pointer<T>(handle: usize) -> *mut T {
    core::ptr::without_provenance_mut(handle)
}

/// Returns the fatal error, if there was one.
fn not_failed(world: &World) -> Answer {
    world.runs.fatal.map_or(Ok(()), Err)
}

pub(crate) fn retain(world: &mut World, context: Out<CUcontext>, device: CUdevice) -> Answer {
    let number = world.device(device)?;
    context.required()?;
    let (handle, retains) = world.objects.primaries[number];
    if retains == 0 || world.objects.contexts.get(handle).is_none() {
        // Measured: after a fatal error, an active context can be retained, but none created.
        not_failed(world)?;
        let flags = world.settings.primary_flags[number];
        world.make_context(handle, number, flags, ContextKind::Primary);
    }
    world.objects.primaries[number].1 += 1;
    context.put(pointer(handle))
}

pub(crate) fn release(world: &mut World, device: CUdevice) -> Answer {
    let number = world.device(device)?;
    let (handle, retains) = world.objects.primaries[number];
    match retains {
        0 => {
            misuse("a primary context is released more often than it was retained");
            Err(CUresult::CUDA_ERROR_INVALID_CONTEXT)
        }
        1 => {
            let failed_before = world.runs.fatal.is_some();
            let waited = world.end_context(handle)?;
            world.objects.primaries[number].1 = 0;
            // Measured: the last release after a fatal error succeeds.
            if failed_before { Ok(()) } else { waited }
        }
        _ => {
            world.objects.primaries[number].1 -= 1;
            Ok(())
        }
    }
}

pub(crate) fn create(
    world: &mut World,
    context: Out<CUcontext>,
    flags: c_uint,
    device: CUdevice,
) -> Answer {
    let number = world.device(device)?;
    context.required()?;
    crate::api::context::settings::check_flags(world, flags)?;
    let handle = world.objects.contexts.reserve();
    world.make_context(handle, number, flags, ContextKind::Created);
    thread::push(handle);
    world.note_current();
    context.put(pointer(handle))
}

pub(crate) fn create_v3(
    world: &mut World,
    context: Out<CUcontext>,
    params: *mut CUexecAffinityParam,
    count: c_int,
    flags: c_uint,
    device: CUdevice,
) -> Answer {
    fail_if(!params.is_null() || count != 0, CUresult::CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY)?;
    create(world, context, flags, device)
}

pub(crate) fn create_v4(
    world: &mut World,
    context: Out<CUcontext>,
    params: *mut CUctxCreateParams,
    flags: c_uint,
    device: CUdevice,
) -> Answer {
    // SAFETY: the caller passes null or a pointer to parameters.
    if let Some(params) = unsafe { params.as_ref() } {
        // SAFETY: the caller passes null or a pointer to parameters of a graphics client; their type
        // says what the shared data are.
        if let Some(client) = unsafe { params.cigParams.as_ref() } {
            // Measured: for a queue the driver does not check the pointer.
            let is_blob = client.sharedDataType == CUcigDataType::CIG_DATA_TYPE_NV_BLOB;
            return Err(if is_blob && client.sharedData.is_null() {
                INVALID
            } else {
                CUresult::CUDA_ERROR_NOT_SUPPORTED
            });
        }
        let (affinity, count) = (params.execAffinityParams, params.numExecAffinityParams);
        return create_v3(world, context, affinity, count, flags, device);
    }
    create(world, context, flags, device)
}

pub(crate) fn destroy(world: &mut World, context: CUcontext) -> Answer {
    fail_if(context.is_null(), INVALID)?;
    let handle = context.addr();
    if world.context(handle)?.kind != ContextKind::Created {
        return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    // The context is destroyed even after a fatal error.
    let _ = world.end_context(handle)?;
    if thread::current() == Some(handle) {
        thread::pop();
        world.note_current();
    }
    Ok(())
}

/// Increments the use count of the current context.
pub(crate) fn attach(world: &mut World, flags: c_uint) -> Answer<CUcontext> {
    fail_if(flags != 0, INVALID)?;
    let current = world.current()?;
    if let Some(its) = world.objects.contexts.get_mut(current) {
        its.attached += 1;
    }
    Ok(pointer(current))
}

/// Decrements the use count of the current context. A created context is destroyed when its count
/// reaches zero. The count neither keeps nor destroys a primary context (measured with driver 580) or
/// the view of a green context (unverified).
pub(crate) fn detach(world: &mut World, context: CUcontext) -> Answer {
    let handle = context.addr();
    world.context(handle)?;
    fail_if(thread::current() != Some(handle), CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
    match world.objects.contexts.get_mut(handle) {
        Some(its) if its.attached > 0 => {
            its.attached -= 1;
            Ok(())
        }
        Some(its) if its.kind != ContextKind::Created => Ok(()),
        _ => destroy(world, context),
    }
}

pub(crate) fn get_current(_: &mut World, context: Out<CUcontext>) -> Answer {
    fail_if(thread::in_callback(), CUresult::CUDA_ERROR_NOT_PERMITTED)?;
    context.required()?;
    context.put(pointer(thread::current().unwrap_or(0)))
}

pub(crate) fn set_current(world: &mut World, context: CUcontext) -> Answer {
    fail_if(thread::in_callback(), CUresult::CUDA_ERROR_NOT_PERMITTED)?;
    let handle = context.addr();
    if handle != 0 {
        world.context(handle)?;
    }
    thread::pop();
    if handle != 0 {
        thread::push(handle);
    }
    world.note_current();
    Ok(())
}

pub(crate) fn push(world: &mut World, context: CUcontext) -> Answer {
    fail_if(thread::in_callback(), CUresult::CUDA_ERROR_NOT_PERMITTED)?;
    fail_if(context.is_null(), INVALID)?;
    world.context(context.addr())?;
    thread::push(context.addr());
    world.note_current();
    Ok(())
}

pub(crate) fn pop(world: &mut World, context: Out<CUcontext>) -> Answer {
    fail_if(thread::in_callback(), CUresult::CUDA_ERROR_NOT_PERMITTED)?;
    let popped = thread::pop().ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
    world.note_current();
    context.put(pointer(popped))
}

pub(crate) fn device(world: &mut World, device: Out<CUdevice>) -> Answer {
    let current = world.current()?;
    device_of(world, device, pointer(current))
}

pub(crate) fn device_of(world: &mut World, device: Out<CUdevice>, context: CUcontext) -> Answer {
    device.required()?;
    let handle = world.context_or_current(context.addr())?;
    let number = world.context(handle)?.device;
    device.put(CUdevice::try_from(number).unwrap_or(0))
}

pub(crate) fn id(world: &mut World, context: CUcontext) -> Answer<c_ulonglong> {
    let handle = world.context_or_current(context.addr())?;
    Ok(world.context(handle)?.id)
}

pub(crate) fn synchronize(world: &mut World) -> Answer {
    let current = world.current()?;
    synchronize_one(world, pointer(current))
}

pub(crate) fn synchronize_one(world: &mut World, context: CUcontext) -> Answer {
    let context = world.context_or_current(context.addr())?;
    crate::api::context::settings::refuse_captured(world, context)?;
    world.run_all()
}
