//! Attributes, settings and occupancy of kernels.

use crate::scenarios::{HOPPER, SHARED, invalid, primary};
use crate::trace::Trace;
use cuda_safe::LaunchConfig;
use cuda_safe::context::CachePreference;
use cuda_safe::launch::LaunchAttributes;
use cuda_safe::launch::OccupancyOptions;
use cuda_safe::module::attribute as of;
use cuda_safe::{CUresult, Invalid, Module, Result};

pub(crate) fn attributes(trace: &mut Trace) -> Result<()> {
    let context = primary()?;
    Module::loading_mode()?;
    let kernel = Module::from_ptx(&context, SHARED)?.kernel("bounded")?;
    assert_eq!(kernel.attribute(of::MAX_THREADS_PER_BLOCK)?, 64);
    assert_eq!(kernel.attribute(of::STATIC_SHARED_BYTES)?, 1024);
    kernel.set_attribute(of::MAX_DYNAMIC_SHARED_BYTES, 100 * 1024)?;
    assert_eq!(kernel.attribute(of::MAX_DYNAMIC_SHARED_BYTES)?, 100 * 1024);
    kernel.set_attribute(of::CARVEOUT, of::Carveout::Percent(30))?;
    kernel.set_cache_preference(CachePreference::Shared)?;
    kernel.load()?;
    assert!(kernel.is_loaded()?);
    let is_newer = invalid(|why| matches!(why, Invalid::UnknownAttribute { .. }));
    match trace.provoke(|| kernel.attribute(of::SHARED_MEMORY_MODE)) {
        // If the query of the driver's version fails, the driver's error code is returned unchanged.
        Err(error) if error.code() == Some(CUresult::CUDA_ERROR_INVALID_VALUE) => {}
        Err(error) if !is_newer(&error) => return Err(error),
        _ => {}
    }
    trace.drops_from_here()
}

pub(crate) fn occupancy(trace: &mut Trace) -> Result<()> {
    let context = primary()?;
    let kernel = Module::from_ptx(&context, HOPPER)?.kernel("cluster_ranks")?;
    assert_eq!(kernel.max_active_blocks(1024, Default::default())?, 2);
    let options = OccupancyOptions {
        shared_bytes: 1024,
        max_threads: Some(512),
        keep_caching: true,
        ..Default::default()
    };
    assert_eq!(kernel.suggested_block(options)?.threads, 512);
    let with = kernel.suggested_block_with(|threads| threads as usize, options)?;
    assert_eq!(with.threads, 512);
    assert_eq!(kernel.available_shared_bytes(2, 128)?, 48 * 1024);
    let config = LaunchConfig::linear(8, 128);
    let pairs = LaunchAttributes { cluster: Some([2, 1, 1]), ..Default::default() };
    assert_eq!(kernel.max_cluster_size(config, &pairs)?, 8);
    let stream = context.stream()?;
    assert_eq!(kernel.max_cluster_size_on(&stream, config, &pairs)?, 8);
    assert!(kernel.max_active_clusters(config, &pairs)? > 8);
    // Queries the kernel while a context other than the kernel's context is current.
    let other = cuda_safe::Context::new(&context.device(), Default::default())?;
    other.with_current(|_| kernel.max_active_blocks(32, Default::default()))??;
    trace.drops_from_here()
}
