//! The number of blocks and clusters that fit on the device.
//!
//! Unverified (from documentation). Threads, blocks and shared memory limit the number. Registers do
//! not, because kernels are not compiled.

use crate::api::launch::Shape;
use crate::api::module::function::{most_dynamic_shared, required_cluster};
use crate::api::prelude::*;
use crate::code::Limits;
use crate::exec::FunctionSettings;
use crate::profile::Gpu;
use crate::thread;
use cuda_sys::{CUlaunchConfig, CUoccupancyB2DSize};

/// The maximum cluster size of a launch: on every device, and on current devices.
const PORTABLE_CLUSTER: u32 = 8;
const LARGEST_CLUSTER: u32 = 16;

const WARP: u32 = 32;

impl Limits {
    /// Returns the number of blocks that fit on one SM, with `threads` threads and `shared` bytes of
    /// dynamic shared memory each.
    pub(crate) fn blocks_per_sm(
        &self,
        settings: &FunctionSettings,
        gpu: &Gpu,
        threads: u32,
        shared: usize,
    ) -> u32 {
        if threads > self.threads || shared > most_dynamic_shared(self, settings) as usize {
            return 0;
        }
        let by_threads = gpu.threads_per_sm / threads.next_multiple_of(WARP);
        let bytes = self.shared as usize + shared + gpu.shared_reserved() as usize;
        let by_shared = (gpu.shared_memory_per_sm as usize).checked_div(bytes);
        let by_shared = by_shared.map_or(u32::MAX, |blocks| u32::try_from(blocks).unwrap_or(0));
        by_threads.min(by_shared).min(gpu.blocks_per_sm)
    }

    /// Returns the maximum number of blocks in a cluster.
    pub(crate) fn largest_cluster(settings: &FunctionSettings, allowed: bool) -> u32 {
        if settings.non_portable || allowed { LARGEST_CLUSTER } else { PORTABLE_CLUSTER }
    }
}

impl World {
    fn limits(&self, function: CUfunction) -> Answer<(Limits, FunctionSettings)> {
        self.current()?;
        let limits = self.kernel_info(function.addr())?.limits;
        Ok((limits, self.function(function.addr())?.settings))
    }
}

impl World {
    /// Returns the number of SMs of the stream in a configuration. Null names the default stream.
    ///
    /// Unverified (from documentation): in a green context a cluster has at most one block for each SM.
    fn sms_of_stream(&mut self, stream: CUstream) -> Answer<u32> {
        let all = self.settings.profile.gpu.sms;
        if stream.is_null() {
            return Ok(all);
        }
        let stream = self.stream(stream.addr())?;
        let green = self.objects.streams.get(stream).and_then(|its| its.green);
        let green = green.and_then(|green| self.objects.greens.get(green));
        Ok(green.map_or(all, |green| u32::try_from(green.sms.len()).unwrap_or(all)))
    }
}

fn positive(number: c_int) -> Answer<u32> {
    let number = u32::try_from(number).ok().filter(|number| *number != 0);
    number.ok_or(INVALID)
}

fn int(number: u32) -> c_int {
    c_int::try_from(number).unwrap_or(c_int::MAX)
}

pub(crate) fn active_blocks(
    world: &mut World,
    blocks: Out<c_int>,
    function: CUfunction,
    threads: c_int,
    shared: usize,
    flags: c_uint,
) -> Answer {
    blocks.required()?;
    let (limits, settings) = world.limits(function)?;
    let threads = positive(threads)?;
    fail_if(flags > 1, INVALID)?;
    let fit = limits.blocks_per_sm(&settings, world.settings.profile.gpu, threads, shared);
    blocks.put(int(fit))
}

pub(crate) fn active_blocks_simply(
    world: &mut World,
    blocks: Out<c_int>,
    function: CUfunction,
    threads: c_int,
    shared: usize,
) -> Answer {
    active_blocks(world, blocks, function, threads, shared, 0)
}

pub(crate) fn potential_block_simply(
    world: &mut World,
    grid: Out<c_int>,
    block: Out<c_int>,
    function: CUfunction,
    shared_of: CUoccupancyB2DSize,
    shared: usize,
    limit: c_int,
) -> Answer {
    potential_block(world, grid, block, function, shared_of, shared, limit, 0)
}

pub(crate) fn potential_block(
    world: &mut World,
    grid: Out<c_int>,
    block: Out<c_int>,
    function: CUfunction,
    shared_of: CUoccupancyB2DSize,
    shared: usize,
    limit: c_int,
    flags: c_uint,
) -> Answer {
    grid.required()?;
    block.required()?;
    let (limits, settings) = world.limits(function)?;
    fail_if(flags > 1, INVALID)?;
    let gpu = world.settings.profile.gpu;
    let limit = positive(limit).unwrap_or(u32::MAX).min(limits.threads);
    let (mut best, mut at) = (0, (0, 0));
    let mut aligned = limit.next_multiple_of(WARP);
    while aligned != 0 {
        let threads = aligned.min(limit);
        let shared = match shared_of {
            // SAFETY: the caller passed this function for this purpose, and it does not call the driver.
            Some(its) => thread::kernel(|| unsafe { its(int(threads)) }),
            None => shared,
        };
        let blocks = limits.blocks_per_sm(&settings, gpu, threads, shared);
        if blocks * threads > best {
            best = blocks * threads;
            at = (blocks, threads);
        }
        aligned -= WARP;
    }
    let (blocks, threads) = at;
    grid.set(int(blocks * gpu.sms));
    block.put(int(threads))
}

pub(crate) fn available_shared(
    world: &mut World,
    function: CUfunction,
    blocks: c_int,
    threads: c_int,
) -> Answer<usize> {
    let (limits, settings) = world.limits(function)?;
    let (blocks, threads) = (positive(blocks)?, positive(threads)?);
    let gpu = world.settings.profile.gpu;
    fail_if(blocks > limits.blocks_per_sm(&settings, gpu, threads, 0), INVALID)?;
    // As on an H200, the memory that the driver reserves is not subtracted.
    let share = (gpu.shared_memory_per_sm / blocks).saturating_sub(limits.shared);
    Ok(share.min(most_dynamic_shared(&limits, &settings)) as usize)
}

pub(crate) fn potential_cluster(
    world: &mut World,
    function: CUfunction,
    config: *const CUlaunchConfig,
) -> Answer<c_int> {
    let (limits, settings) = world.limits(function)?;
    // SAFETY: the caller passes null or a configuration with the number of attributes that it states.
    let shape = unsafe { Shape::of_config(world, config) }?;
    fail_if(world.settings.profile.gpu.capability.0 < 9, CUresult::CUDA_ERROR_NOT_SUPPORTED)?;
    let required = required_cluster(&limits, &settings).map(|its| its.iter().product());
    let most = Limits::largest_cluster(&settings, shape.non_portable);
    // SAFETY: `of_config` has checked that the pointer is not null.
    let stream = unsafe { &raw const (*config).hStream };
    // SAFETY: `of_config` has checked that the pointer is not null.
    let stream = unsafe { stream.read() };
    let room = world.sms_of_stream(stream)?;
    Ok(int(required.unwrap_or(most.min(room))))
}

pub(crate) fn active_clusters(
    world: &mut World,
    function: CUfunction,
    config: *const CUlaunchConfig,
) -> Answer<c_int> {
    let (limits, settings) = world.limits(function)?;
    // SAFETY: the caller passes null or a configuration with the number of attributes that it states.
    let shape = unsafe { Shape::of_config(world, config) }?;
    let gpu = world.settings.profile.gpu;
    fail_if(gpu.capability.0 < 9, CUresult::CUDA_ERROR_NOT_SUPPORTED)?;
    let required = required_cluster(&limits, &settings);
    let cluster = shape.cluster.or(required);
    let cluster = cluster.ok_or(INVALID)?;
    let blocks: u32 = cluster.iter().product();
    let threads: u32 = shape.block.iter().product();
    fail_if(blocks == 0 || threads == 0, INVALID)?;
    let shared = shape.shared as usize;
    let per_sm = limits.blocks_per_sm(&settings, gpu, threads, shared);
    Ok(int(per_sm * gpu.sms / blocks))
}
