//! Context settings, and events of contexts.

use crate::api::prelude::*;
use crate::exec::Work;
use crate::state::objects::{Context, ContextKind};
use cuda_sys::{
    CUctx_flags, CUflushGPUDirectRDMAWritesScope, CUflushGPUDirectRDMAWritesTarget, CUfunc_cache,
    CUlimit, CUsharedconfig, CudaVersion,
};

/// The default limits of a context, with the versions since which they exist. Unverified (from
/// documentation).
const LIMITS: [(CUlimit, usize, CudaVersion); 11] = [
    (CUlimit::CU_LIMIT_STACK_SIZE, 1024, ALWAYS),
    (CUlimit::CU_LIMIT_PRINTF_FIFO_SIZE, 1 << 20, ALWAYS),
    (CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE, 8 << 20, ALWAYS),
    (CUlimit::CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH, 2, ALWAYS),
    (CUlimit::CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, 2048, ALWAYS),
    (CUlimit::CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 64, ALWAYS),
    (CUlimit::CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 0, ALWAYS),
    (CUlimit::CU_LIMIT_SHMEM_SIZE, 0, GRAPHICS),
    (CUlimit::CU_LIMIT_CIG_ENABLED, 0, GRAPHICS),
    (CUlimit::CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED, 0, GRAPHICS),
    (CUlimit::CU_LIMIT_PER_BLOCK_MEMORY_SIZE, 0, CudaVersion::new(13, 4)),
];

const ALWAYS: CudaVersion = CudaVersion::new(3, 1);
/// The first version with contexts for graphics clients.
const GRAPHICS: CudaVersion = CudaVersion::new(12, 5);

impl World {
    /// Returns the context whose settings apply to the current one. The view of a green context uses the
    /// settings of the primary context.
    fn settings_of_current(&mut self) -> Answer<&mut Context> {
        let current = self.current()?;
        let owner = self.owner_of(current)?;
        let context = self.objects.contexts.get_mut(owner);
        context.ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)
    }

    fn check_limit(&self, limit: CUlimit) -> Answer<usize> {
        let its = LIMITS.iter().find(|(known, ..)| *known == limit);
        let its = its.filter(|(.., since)| self.settings.profile.driver >= *since);
        let (_, default, _) = its.ok_or(INVALID)?;
        let is_depth = limit == CUlimit::CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH;
        // Measured.
        let is_unsupported = is_depth && self.settings.profile.gpu.capability.0 >= 9;
        fail_if(is_unsupported, CUresult::CUDA_ERROR_UNSUPPORTED_LIMIT)?;
        Ok(*default)
    }
}

pub(crate) fn limit(world: &mut World, limit: CUlimit) -> Answer<usize> {
    world.current()?;
    let default = world.check_limit(limit)?;
    let limits = &world.settings_of_current()?.settings.limits;
    Ok(limits.get(&limit.0).copied().unwrap_or(default))
}

pub(crate) fn set_limit(world: &mut World, limit: CUlimit, value: usize) -> Answer {
    world.current()?;
    world.forbidden_in_capture()?;
    world.check_limit(limit)?;
    let is_fixed = matches!(limit, CUlimit::CU_LIMIT_SHMEM_SIZE | CUlimit::CU_LIMIT_CIG_ENABLED);
    let context = world.settings_of_current()?;
    fail_if(is_fixed, CUresult::CUDA_ERROR_UNSUPPORTED_LIMIT)?;
    context.settings.limits.insert(limit.0, value);
    Ok(())
}

pub(crate) fn cache(world: &mut World) -> Answer<CUfunc_cache> {
    Ok(CUfunc_cache(world.settings_of_current()?.settings.cache))
}

pub(crate) fn set_cache(world: &mut World, preference: CUfunc_cache) -> Answer {
    world.current()?;
    fail_if(preference.name().is_none(), INVALID)?;
    world.forbidden_in_capture()?;
    world.settings_of_current()?.settings.cache = preference.0;
    Ok(())
}

/// The scheduling flags exclude each other.
pub(crate) fn check_flags(world: &World, flags: c_uint) -> Answer {
    let ways = flags & CUctx_flags::CU_CTX_SCHED_MASK.0;
    let known = if world.settings.profile.driver >= CudaVersion::new(12, 1) {
        CUctx_flags::CU_CTX_FLAGS_MASK
    } else {
        let last = CUctx_flags::CU_CTX_LMEM_RESIZE_TO_MAX;
        CUctx_flags((last.0 << 1) - 1)
    };
    fail_if(flags & !known.0 != 0 || ways.count_ones() > 1, INVALID)
}

/// All simulated GPUs have banks of 4 bytes. Unverified (from documentation).
pub(crate) fn bank_size(world: &mut World) -> Answer<CUsharedconfig> {
    world.current()?;
    Ok(CUsharedconfig::CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE)
}

/// Has no effect on GPUs with a fixed bank size. Unverified (from documentation).
pub(crate) fn set_bank_size(world: &mut World, config: CUsharedconfig) -> Answer {
    world.current()?;
    world.forbidden_in_capture()?;
    check_bank_size(config)
}

pub(crate) fn check_bank_size(config: CUsharedconfig) -> Answer {
    match config.name() {
        Some(_) => Ok(()),
        None => Err(INVALID),
    }
}

pub(crate) fn flags(world: &mut World) -> Answer<c_uint> {
    // Measured: contexts map host memory.
    Ok(world.settings_of_current()?.settings.flags | CUctx_flags::CU_CTX_MAP_HOST.0)
}

pub(crate) fn set_flags(world: &mut World, flags: c_uint) -> Answer {
    check_flags(world, flags)?;
    let context = world.settings_of_current()?;
    context.settings.flags = flags;
    if context.kind == ContextKind::Primary {
        let device = context.device;
        world.settings.primary_flags[device] = flags;
    }
    Ok(())
}

pub(crate) fn api_version(world: &mut World, context: CUcontext) -> Answer<c_uint> {
    world.context_or_current(context.addr())?;
    Ok(3020)
}

pub(crate) fn priorities(world: &mut World, least: Out<c_int>, greatest: Out<c_int>) -> Answer {
    world.current()?;
    least.set(0);
    greatest.put(crate::api::stream::HIGHEST_PRIORITY)
}

pub(crate) fn reset_l2(world: &mut World) -> Answer {
    world.current().map(|_| ())
}

pub(crate) fn primary_state(
    world: &mut World,
    device: CUdevice,
    flags: Out<c_uint>,
    active: Out<c_int>,
) -> Answer {
    let number = world.device(device)?;
    flags.required()?;
    active.required()?;
    flags.set(world.settings.primary_flags[number]);
    let (handle, retains) = world.objects.primaries[number];
    let is_active = retains != 0 && world.objects.contexts.get(handle).is_some();
    active.put(c_int::from(is_active))
}

pub(crate) fn set_primary_flags(world: &mut World, device: CUdevice, flags: c_uint) -> Answer {
    let number = world.device(device)?;
    check_flags(world, flags)?;
    world.settings.primary_flags[number] = flags;
    let handle = world.objects.primaries[number].0;
    if let Some(context) = world.objects.contexts.get_mut(handle) {
        context.settings.flags = flags;
    }
    Ok(())
}

pub(crate) fn reset_primary(world: &mut World, device: CUdevice) -> Answer {
    let number = world.device(device)?;
    let (handle, retains) = world.objects.primaries[number];
    if retains == 0 {
        return Ok(());
    }
    let _ = world.end_context(handle)?;
    // Measured: after a fatal error there is no context, but those who retained it can release it.
    if world.runs.fatal.is_some() {
        return Ok(());
    }
    // The context exists again at once, empty, for those that retain it.
    let flags = world.settings.primary_flags[number];
    world.make_context(handle, number, flags, ContextKind::Primary);
    Ok(())
}

/// Returns the streams of a context. Those of a primary context include the streams of its green
/// contexts.
fn streams_of(world: &World, context: usize) -> Answer<Vec<usize>> {
    if let ContextKind::View(green) = world.context(context)?.kind {
        return Ok(world.objects.members.green_streams.of(green).collect());
    }
    Ok(world.objects.members.streams.of(context).collect())
}

/// Fails if a stream of this context is capturing, and invalidates its capture, in every capture mode of
/// the thread. A primary context and its green contexts count as different contexts (measured with
/// driver 580).
pub(crate) fn refuse_captured(world: &mut World, context: usize) -> Answer {
    let home = match world.context(context)?.kind {
        ContextKind::View(green) => green,
        ContextKind::Primary | ContextKind::Created => context,
    };
    let streams: Vec<usize> = world.objects.members.captured.of(home).collect();
    let mut refused = Ok(());
    for stream in streams {
        refused = refused.and(world.forbidden_on_capturing(stream));
    }
    refused
}

pub(crate) fn record(world: &mut World, context: CUcontext, event: CUevent) -> Answer {
    let streams = streams_of(world, context.addr())?;
    let owner = world.owner_of(context.addr())?;
    fail_if(world.event(event.addr())?.context != owner, CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    refuse_captured(world, context.addr())?;
    let last = streams.iter().filter_map(|stream| world.objects.streams.get(*stream)?.last);
    let owner = world.context(owner)?;
    let (legacy, after) = (owner.legacy, last.chain(owner.after).collect());
    let work = Work::Record { event: event.addr() };
    let operation = world.give_beside(legacy, work, after);
    if let Some(event) = world.objects.events.get_mut(event.addr()) {
        event.captured = None;
        event.recorded = Some(operation);
        event.time = None;
    }
    Ok(())
}

pub(crate) fn wait(world: &mut World, context: CUcontext, event: CUevent) -> Answer {
    let streams = streams_of(world, context.addr())?;
    refuse_captured(world, context.addr())?;
    let recorded = world.event(event.addr())?.recorded;
    world.forbidden_on_captured(event.addr())?;
    for stream in streams {
        world.give(stream, Work::Nothing, recorded.into_iter().collect());
    }
    // Streams that are created later also wait, and still for what they waited for before.
    let before: Vec<u64> =
        world.context(context.addr())?.after.into_iter().chain(recorded).collect();
    let after = match before[..] {
        [] | [_] => before.first().copied(),
        _ => Some(world.runs.executor.give_aside(Work::Nothing, before)),
    };
    let context = world.objects.contexts.get_mut(context.addr());
    context.ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?.after = after;
    Ok(())
}

/// Unverified (from documentation).
pub(crate) fn flush_remote_writes(
    world: &mut World,
    target: CUflushGPUDirectRDMAWritesTarget,
    scope: CUflushGPUDirectRDMAWritesScope,
) -> Answer {
    world.current()?;
    let is_known = matches!(
        scope,
        CUflushGPUDirectRDMAWritesScope::CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER
            | CUflushGPUDirectRDMAWritesScope::CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES
    );
    let current =
        CUflushGPUDirectRDMAWritesTarget::CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX;
    fail_if(target != current || !is_known, INVALID)
}
