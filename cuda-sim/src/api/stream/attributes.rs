//! Stream attributes, and the contexts of streams. Unverified (from documentation), except for contexts.

use crate::api::launch::attribute::bytes as attribute_bytes;
use crate::api::prelude::*;
use crate::api::stream::HIGHEST_PRIORITY;
use cuda_sys::{
    CUaccessProperty, CUlaunchAttributeID as Id, CUlaunchMemSyncDomain, CUlaunchMemSyncDomainMap,
    CUstream_flags, CUstreamAttrID, CUstreamAttrValue, CUsynchronizationPolicy, CudaVersion,
};

/// The number of memory synchronization domains of an H200.
const DOMAINS: u8 = 4;

/// Returns the value of an attribute that was not set on a stream.
fn default_value(id: Id, priority: i32) -> Option<CUstreamAttrValue> {
    let mut value = CUstreamAttrValue::default();
    match id {
        Id::CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW | Id::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN => {}
        Id::CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY => {
            // The value that an H200 returns, which is not a valid policy.
            value.syncPolicy = CUsynchronizationPolicy(u32::MAX);
        }
        Id::CU_LAUNCH_ATTRIBUTE_PRIORITY => value.priority = priority,
        Id::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP => {
            value.memSyncDomainMap = CUlaunchMemSyncDomainMap { default_: 0, remote: 1 };
        }
        _ => return None,
    }
    Some(value)
}

/// Returns whether the driver supports an attribute of streams.
fn is_known(world: &World, id: Id) -> bool {
    let needed = match id {
        Id::CU_LAUNCH_ATTRIBUTE_PRIORITY => CudaVersion::new(11, 8),
        Id::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN | Id::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP => {
            CudaVersion::new(12, 0)
        }
        _ => CudaVersion::new(11, 0),
    };
    world.settings.profile.driver >= needed
}

pub(crate) fn get(
    world: &mut World,
    stream: CUstream,
    id: CUstreamAttrID,
) -> Answer<CUstreamAttrValue> {
    let stream = world.stream(stream.addr())?;
    world.recording(stream)?;
    let its = world.objects.streams.get(stream);
    let its = its.ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    let set = its.attributes.get(&id.0).map(|pad| CUstreamAttrValue { pad: *pad });
    let known = default_value(id, its.priority).filter(|_| is_known(world, id));
    let default = known.ok_or(INVALID)?;
    Ok(set.unwrap_or(default))
}

pub(crate) fn set(
    world: &mut World,
    stream: CUstream,
    id: CUstreamAttrID,
    value: *const CUstreamAttrValue,
) -> Answer {
    let stream = world.stream(stream.addr())?;
    // SAFETY: the caller passes null or a pointer to a value.
    let value = unsafe { value.as_ref() };
    let value = value.ok_or(INVALID)?;
    if default_value(id, 0).is_none() || !is_known(world, id) || !is_allowed(id, value) {
        return Err(INVALID);
    }
    let its = world.objects.streams.get_mut(stream);
    let its = its.ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    if id == Id::CU_LAUNCH_ATTRIBUTE_PRIORITY {
        // SAFETY: this is the field of the attribute, an integer.
        its.priority = unsafe { value.priority }.clamp(HIGHEST_PRIORITY, 0);
        return Ok(());
    }
    its.attributes.insert(id.0, attribute_bytes(id, value));
    Ok(())
}

fn is_allowed(id: Id, value: &CUstreamAttrValue) -> bool {
    match id {
        Id::CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW => {
            // SAFETY: this is the field of the attribute and contains only numbers.
            let window = unsafe { value.accessPolicyWindow };
            let last = CUaccessProperty::CU_ACCESS_PROPERTY_PERSISTING;
            (0.0..=1.0).contains(&window.hitRatio)
                && window.hitProp.0 <= last.0
                && window.missProp.0 < last.0
        }
        Id::CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY => {
            // SAFETY: this is the field of the attribute, a number.
            let policy = unsafe { value.syncPolicy };
            let last = CUsynchronizationPolicy::CU_SYNC_POLICY_BLOCKING_SYNC;
            (1..=last.0).contains(&policy.0)
        }
        Id::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN => {
            // SAFETY: this is the field of the attribute, a number.
            let domain = unsafe { value.memSyncDomain };
            domain.0 <= CUlaunchMemSyncDomain::CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE.0
        }
        Id::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP => {
            // SAFETY: this is the field of the attribute and contains only numbers.
            let map = unsafe { value.memSyncDomainMap };
            map.default_ < DOMAINS && map.remote < DOMAINS
        }
        _ => true,
    }
}

pub(crate) fn copy(world: &mut World, to: CUstream, from: CUstream) -> Answer {
    let (to, from) = (world.stream(to.addr())?, world.stream(from.addr())?);
    for stream in [to, from] {
        world.recording(stream)?;
    }
    let its = world.objects.streams.get(from);
    let its = its.ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    let (attributes, priority) = (its.attributes.clone(), its.priority);
    let (context, green) = (its.context, its.green);
    match world.objects.streams.get_mut(to) {
        // Measured.
        Some(its) if its.context == context && its.green != green => Err(INVALID),
        Some(its) if its.context == context => {
            its.attributes = attributes;
            its.priority = priority;
            Ok(())
        }
        _ => Err(CUresult::CUDA_ERROR_INVALID_HANDLE),
    }
}

pub(crate) fn flags(world: &mut World, stream: CUstream) -> Answer<c_uint> {
    let stream = world.stream(stream.addr())?;
    // Measured: this invalidates the capture of the stream, as a wait does.
    world.forbidden_on_capturing(stream)?;
    let blocking = world.objects.streams.get(stream).is_some_and(|its| its.blocking);
    Ok(if blocking {
        CUstream_flags::CU_STREAM_DEFAULT.0
    } else {
        CUstream_flags::CU_STREAM_NON_BLOCKING.0
    })
}

pub(crate) fn device(world: &mut World, stream: CUstream) -> Answer<CUdevice> {
    let stream = world.stream(stream.addr())?;
    // Measured: this invalidates the capture of the stream, as a wait does.
    world.forbidden_on_capturing(stream)?;
    let its = world.objects.streams.get(stream).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    let number = world.context(its.context)?.device;
    Ok(CUdevice::try_from(number).unwrap_or(0))
}

/// For a stream of a green context, returns the view of the green context (measured). Unverified (from
/// documentation): from CUDA 12.5 to 12.9 such a stream has no context.
pub(crate) fn context(world: &mut World, stream: CUstream) -> Answer<CUcontext> {
    let stream = world.stream(stream.addr())?;
    world.recording(stream)?;
    let its = world.objects.streams.get(stream);
    let its = its.ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    let without = CudaVersion::new(12, 5)..CudaVersion::new(13, 0);
    if its.green.is_some() && without.contains(&world.settings.profile.driver) {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    let view = its.green.and_then(|green| world.objects.greens.get(green));
    Ok(pointer(view.map_or(its.context, |green| green.view)))
}

pub(crate) fn green(world: &mut World, stream: CUstream) -> Answer<CUgreenCtx> {
    let stream = world.stream(stream.addr())?;
    world.recording(stream)?;
    let its = world.objects.streams.get(stream).and_then(|its| its.green);
    Ok(its.map_or(core::ptr::null_mut(), pointer))
}

/// Returns both contexts of a stream. For a stream of a green context these are the primary context
/// (unverified, from documentation) and the green context.
pub(crate) fn contexts(
    world: &mut World,
    stream: CUstream,
    context: Out<CUcontext>,
    green: Out<CUgreenCtx>,
) -> Answer {
    green.set(self::green(world, stream)?);
    let stream = world.stream(stream.addr())?;
    let its = world.objects.streams.get(stream);
    let its = its.ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    context.put(pointer(its.context))
}
