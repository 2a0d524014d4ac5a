//! Device resources, splits, descriptors and green contexts.

pub(crate) mod split;
pub(crate) mod workqueue;

use crate::api::prelude::*;
use crate::profile::sms::{granularity, split_by_count as counts};
use crate::state::green::{Descriptor, Group, Queues, WORDS};
use crate::state::handles::State;
use crate::state::objects::{ContextKind, Green};
use cuda_sys::{
    CUdevResource, CUdevResourceDesc, CUdevResourceType as Type, CUdevSmResource,
    CUdevSmResourceSplitByCount_flags as Flags, CUgreenCtxCreate_flags, CUstream_flags,
    CudaVersion,
};
use std::collections::BTreeSet;

/// Marks a resource that this driver created.
const MARK: u32 = 0x5349_4d31;

impl Group {
    pub(crate) fn of(resource: &CUdevResource) -> Answer<Self> {
        if resource.type_ != Type::CU_DEV_RESOURCE_TYPE_SM {
            return Err(CUresult::CUDA_ERROR_INVALID_RESOURCE_TYPE);
        }
        let word = |index: usize| {
            let bytes = &resource._internal_padding[4 * index..4 * index + 4];
            u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
        };
        if word(0) != MARK {
            misuse("a resource that the driver did not make, or that was not copied whole");
            return Err(INVALID);
        }
        Ok(Self {
            device: word(1),
            split: word(2),
            count: word(3),
            within: word(4),
            alignment: word(5),
            flags: word(6),
            domain: word(7),
            is_remainder: word(8) != 0,
            sms: core::array::from_fn(|index| word(9 + index)),
        })
    }

    /// Returns SMs that are not from a split.
    fn whole(world: &World, device: usize, count: u32, within: u64, sms: [u32; WORDS]) -> Self {
        Self {
            device: u32::try_from(device).unwrap_or(0),
            split: 0,
            count,
            within: u32::try_from(within).unwrap_or(0),
            alignment: granularity(&world.settings.profile, false).multiple,
            flags: 0,
            domain: 0,
            is_remainder: false,
            sms,
        }
    }

    /// Returns the remainder, without the guarantees of groups.
    pub(crate) fn remainder(self) -> Self {
        Self { alignment: self.alignment.min(2), flags: 0, domain: 0, is_remainder: true, ..self }
    }

    /// Returns the resource in its C representation. Fields that are newer than the driver are zero.
    pub(crate) fn resource(self, world: &World) -> CUdevResource {
        let mut resource =
            CUdevResource { type_: Type::CU_DEV_RESOURCE_TYPE_SM, ..CUdevResource::default() };
        let words = [
            MARK,
            self.device,
            self.split,
            self.count,
            self.within,
            self.alignment,
            self.flags,
            self.domain,
            u32::from(self.is_remainder),
        ];
        let words = words.into_iter().chain(self.sms);
        for (place, word) in resource._internal_padding.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        let mut sm = CUdevSmResource { smCount: self.count, ..CUdevSmResource::default() };
        let since = |major, minor| world.settings.profile.driver >= CudaVersion::new(major, minor);
        // Measured: the driver for CUDA 13.0 does not report this of parts of a split. Unverified (from
        // documentation): newer ones do.
        if since(13, 1) || since(13, 0) && self.split == 0 {
            let usual = granularity(&world.settings.profile, false);
            let is_finer = self.alignment < usual.multiple;
            sm.minSmPartitionSize = granularity(&world.settings.profile, is_finer).min;
            sm.smCoscheduledAlignment = self.alignment;
        }
        if since(13, 1) {
            sm.flags = self.flags;
        }
        if since(13, 4) {
            sm.localityDomainId = self.domain;
        }
        resource.__bindgen_anon_1.sm = sm;
        resource
    }

    pub(crate) fn sms(self) -> impl Iterator<Item = u32> {
        let numbers = 0..32 * WORDS as u32;
        numbers.filter(move |sm| self.sms[*sm as usize / 32] >> (sm % 32) & 1 != 0)
    }
}

pub(crate) fn bits(sms: impl IntoIterator<Item = u32>) -> [u32; WORDS] {
    let mut bits = [0; WORDS];
    for sm in sms {
        bits[sm as usize / 32] |= 1 << (sm % 32);
    }
    bits
}

/// Returns a green context that is not destroyed. The error code for a destroyed one is measured with
/// driver 580 for `cuGreenCtxDestroy`, and unverified (from documentation) for the other functions.
fn alive(world: &World, green: CUgreenCtx) -> Answer<&Green> {
    let known = world.objects.greens.get(green.addr());
    known.ok_or_else(|| {
        if world.objects.greens.state(green.addr()) != State::Dead {
            return CUresult::CUDA_ERROR_INVALID_CONTEXT;
        }
        misuse("a green context is used, or destroyed, after it was destroyed");
        CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED
    })
}

fn is_sm(kind: Type) -> bool {
    kind == Type::CU_DEV_RESOURCE_TYPE_SM
}

pub(crate) fn device_resource(
    world: &mut World,
    device: CUdevice,
    resource: Out<CUdevResource>,
    kind: Type,
) -> Answer {
    let number = world.device(device)?;
    resource.required()?;
    if !is_sm(kind) {
        resource.set(workqueue::resource(world, number, Queues::USUAL, None, kind)?);
        return Ok(());
    }
    let sms = world.settings.profile.gpu.sms;
    let all = Group::whole(world, number, sms, 0, bits(0..sms));
    resource.put(all.resource(world))
}

pub(crate) fn resource(
    world: &mut World,
    green: CUgreenCtx,
    resource: Out<CUdevResource>,
    kind: Type,
) -> Answer {
    let green = alive(world, green)?;
    resource.required()?;
    if !is_sm(kind) {
        let its = workqueue::resource(world, green.device, green.queues, Some(green.id), kind)?;
        resource.set(its);
        return Ok(());
    }
    let sms = bits(green.sms.iter().copied());
    let alignment = green.alignment;
    let group = Group::whole(world, green.device, green.sm_count, green.id, sms);
    resource.put(Group { alignment, ..group }.resource(world))
}

pub(crate) fn context_resource(
    world: &mut World,
    context: CUcontext,
    resource: Out<CUdevResource>,
    kind: Type,
) -> Answer {
    let its = world.context(context.addr())?;
    let (device, view, id) = (its.device, its.kind, its.id);
    if !is_sm(kind) && !matches!(view, ContextKind::View(_)) {
        resource.required()?;
        let its = workqueue::resource(world, device, Queues::USUAL, Some(id), kind)?;
        resource.set(its);
        return Ok(());
    }
    match view {
        ContextKind::View(green) => self::resource(world, pointer(green), resource, kind),
        ContextKind::Primary | ContextKind::Created => {
            let device = c_int::try_from(device).unwrap_or(0);
            device_resource(world, device, resource, kind)
        }
    }
}

pub(crate) fn stream_resource(
    world: &mut World,
    stream: CUstream,
    resource: Out<CUdevResource>,
    kind: Type,
) -> Answer {
    let stream = world.stream(stream.addr())?;
    fail_if(!is_sm(kind), CUresult::CUDA_ERROR_INVALID_RESOURCE_TYPE)?;
    let its = world.objects.streams.get(stream);
    let (context, green) = its.map_or((0, None), |its| (its.context, its.green));
    match green {
        Some(green) => self::resource(world, pointer(green), resource, kind),
        None => context_resource(world, pointer(context), resource, kind),
    }
}

pub(crate) fn split_by_count(
    world: &mut World,
    groups: *mut CUdevResource,
    count: &mut Option<&mut c_uint>,
    input: *const CUdevResource,
    remainder: Out<CUdevResource>,
    flags: c_uint,
    min: c_uint,
) -> Answer {
    let both = Flags::CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING.0
        | Flags::CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE.0;
    let count = count.as_mut().ok_or(INVALID)?;
    // SAFETY: the caller passes null or a pointer to a resource.
    let input = unsafe { input.as_ref() }.ok_or(INVALID)?;
    let input = Group::of(input)?;
    fail_if(flags & both == both, INVALID)?;
    // Unverified (from documentation).
    let clusters = Flags::CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE.0;
    fail_if(flags & clusters != 0 && world.settings.profile.gpu.capability.0 < 9, INVALID)?;
    if flags & !both != 0 {
        misuse(format!("split flags {flags:#x}: the driver ignores unknown flags"));
    }
    // Measured: room for no group is refused.
    fail_if(!groups.is_null() && **count == 0, INVALID)?;
    if min > input.count || input.split != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    }
    // Measured: SMs without alignment cannot be aligned again.
    let ignoring = flags & Flags::CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING.0 != 0
        || input.alignment < granularity(&world.settings.profile, false).multiple;
    let (size, possible) = counts(&world.settings.profile, input.count, min, ignoring);
    if groups.is_null() {
        **count = possible;
        return Ok(());
    }
    let given = possible.min(**count);
    world.objects.splits += 1;
    let part = |first: u32, count: u32| Group {
        split: world.objects.splits,
        count,
        alignment: granularity(&world.settings.profile, ignoring).multiple,
        sms: bits(input.sms().skip(first as usize).take(count as usize)),
        ..input
    };
    for index in 0..given {
        let group = part(index * size, size).resource(world);
        // SAFETY: the caller passes room for `count` resources.
        let place = unsafe { groups.add(index as usize) };
        // SAFETY: the caller passes room for `count` resources.
        unsafe { place.write(group) };
    }
    **count = given;
    let rest = input.count - given * size;
    remainder.put(match rest {
        0 => CUdevResource::default(),
        rest => part(given * size, rest).remainder().resource(world),
    })
}

pub(crate) fn descriptor(
    world: &mut World,
    resources: *mut CUdevResource,
    count: c_uint,
) -> Answer<CUdevResourceDesc> {
    fail_if(resources.is_null(), INVALID)?;
    if count == 0 {
        misuse("cuDevResourceGenerateDesc without resources: driver 580 crashes");
        return Err(INVALID);
    }
    if count > 1 && world.settings.profile.driver < CudaVersion::new(12, 5) {
        return Err(CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    }
    let mut groups: Vec<Group> = Vec::new();
    let mut queues = None;
    for index in 0..count as usize {
        // SAFETY: the caller passes `count` resources.
        let resource = unsafe { resources.add(index) };
        // SAFETY: the caller passes `count` resources.
        let resource = unsafe { &*resource };
        if let Some(its) = workqueue::queues(world, resource) {
            if queues.replace(its?).is_some() {
                return Err(CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
            }
            continue;
        }
        let group = Group::of(resource)?;
        if groups.iter().any(|other| other.device != group.device) {
            misuse("a descriptor of resources of different devices");
            return Err(CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
        }
        if groups.iter().any(|other| other.split != group.split) {
            misuse("a descriptor of resources of different splits, which driver 580 accepts");
        }
        if groups.contains(&group) {
            misuse("a descriptor with the same resource twice, which driver 580 accepts");
        }
        // Unverified (from documentation).
        let since = |major, minor| world.settings.profile.driver >= CudaVersion::new(major, minor);
        let differs = groups.first().is_some_and(|first| {
            (since(13, 1) && first.alignment != group.alignment)
                || (since(13, 4) && first.domain != group.domain)
        });
        fail_if(differs, CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION)?;
        groups.push(group);
    }
    fail_if(groups.is_empty(), CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION)?;
    let queues = queues.unwrap_or(Queues::USUAL);
    let made = world.objects.descriptors.insert(Descriptor { groups, queues });
    Ok(pointer(made))
}

pub(crate) fn create(
    world: &mut World,
    green: Out<CUgreenCtx>,
    descriptor: CUdevResourceDesc,
    device: CUdevice,
    flags: c_uint,
) -> Answer {
    let number = world.device(device)?;
    green.required()?;
    let wanted = CUgreenCtxCreate_flags::CU_GREEN_CTX_DEFAULT_STREAM.0;
    let none_allowed = world.settings.profile.driver >= CudaVersion::new(13, 3);
    fail_if(flags != wanted && !(none_allowed && flags == 0), INVALID)?;
    let Descriptor { groups, queues } =
        world.objects.descriptors.get(descriptor.addr()).ok_or(INVALID)?.clone();
    if groups.iter().any(|group| group.device as usize != number) {
        misuse("a green context is created from a descriptor of another device");
        return Err(CUresult::CUDA_ERROR_INVALID_DEVICE);
    }
    let sms: BTreeSet<u32> = groups.iter().flat_map(|group| group.sms()).collect();
    let sm_count = groups.iter().map(|group| group.count).sum();
    // The green contexts that it is a part of, directly or indirectly.
    let mut wholes: Vec<u64> = groups.iter().map(|its| u64::from(its.within)).collect();
    for group in &groups {
        let whole = world.objects.green_ids.get(&u64::from(group.within));
        let whole = whole.and_then(|handle| world.objects.greens.get(*handle));
        wholes.extend(whole.into_iter().flat_map(|its| &its.wholes));
    }

    // The green context retains the primary context.
    let (primary, retains) = world.objects.primaries[number];
    if retains == 0 {
        let flags = world.settings.primary_flags[number];
        world.make_context(primary, number, flags, ContextKind::Primary);
    }
    world.objects.primaries[number].1 += 1;

    let id = world.new_id();
    let view = world.objects.contexts.reserve();
    let handle = world.objects.greens.insert(Green {
        device: number,
        id,
        sms: sms.into_iter().collect(),
        sm_count,
        alignment: groups.iter().map(|group| group.alignment).min().unwrap_or(0),
        wholes,
        queues,
        view,
    });
    world.objects.green_ids.insert(id, handle);
    world.make_context(view, number, 0, ContextKind::View(handle));
    green.put(pointer(handle))
}

/// Does not wait: work that runs or is queued in the green context completes (measured).
pub(crate) fn destroy(world: &mut World, green: CUgreenCtx) -> Answer {
    let handle = green.addr();
    let its = alive(world, green)?;
    let (device, view, id) = (its.device, its.view, its.id);
    if world.objects.primaries[device].1 == 1 {
        // The primary context is destroyed too, and its destruction waits for all work. This comes
        // first, because this function runs again after each callback.
        let _ = world.run_down()?;
    }
    let streams: Vec<usize> = world.objects.members.green_streams.of(handle).collect();
    // Unverified (from documentation): detached streams can still be destroyed.
    let may_detach = world.settings.profile.driver >= CudaVersion::new(13, 1);
    let mut has_streams = false;
    for stream in streams {
        let its = world.objects.streams.get_mut(stream);
        let Some(its) = its.filter(|its| !its.is_default) else {
            world.remove_stream(stream);
            continue;
        };
        has_streams = true;
        if may_detach {
            its.is_detached = true;
            world.leave_capture(stream);
        } else {
            // The stream cannot be used any more, not even be destroyed (measured).
            world.remove_stream(stream);
        }
    }
    if has_streams && !may_detach {
        misuse("a green context is destroyed before its streams: on driver 580 they leak");
    }
    world.objects.contexts.remove(view);
    world.objects.green_ids.remove(&id);
    world.objects.greens.remove(handle);
    crate::api::context::release(world, c_int::try_from(device).unwrap_or(0))
}

pub(crate) fn stream(
    world: &mut World,
    green: CUgreenCtx,
    flags: c_uint,
    priority: c_int,
) -> Answer<CUstream> {
    let its = alive(world, green)?;
    fail_if(flags != CUstream_flags::CU_STREAM_NON_BLOCKING.0, INVALID)?;
    let primary = world.objects.primaries[its.device].0;
    world.make_stream(primary, Some(green.addr()), flags, priority)
}

pub(crate) fn id(world: &mut World, green: CUgreenCtx) -> Answer<c_ulonglong> {
    let current = world.current().and_then(|current| world.context(current));
    // Unverified (from documentation): null names the current green context.
    let green = match current.map(|its| its.kind) {
        Ok(ContextKind::View(current)) if green.is_null() => pointer(current),
        _ => green,
    };
    Ok(alive(world, green)?.id)
}

pub(crate) fn view(world: &mut World, green: CUgreenCtx) -> Answer<CUcontext> {
    view_of(world, green)
}

/// Returns the context that represents a green context. Both have the same streams.
fn view_of(world: &World, green: CUgreenCtx) -> Answer<CUcontext> {
    Ok(pointer(alive(world, green)?.view))
}

pub(crate) fn record(world: &mut World, green: CUgreenCtx, event: CUevent) -> Answer {
    let view = view_of(world, green)?;
    crate::api::context::settings::record(world, view, event)
}

pub(crate) fn wait(world: &mut World, green: CUgreenCtx, event: CUevent) -> Answer {
    let view = view_of(world, green)?;
    crate::api::context::settings::wait(world, view, event)
}
