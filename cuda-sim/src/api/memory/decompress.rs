//! Batches of decompressions. Unverified (from documentation).

use crate::api::memory::batch::{Place, place};
use crate::api::prelude::*;
use crate::exec::{Decompression, Format, Work};
use crate::memory::{Kind, Use};
use cuda_sys::{CUmemDecompressAlgorithm as Algorithm, CUmemDecompressParams};

/// The value that says that an error belongs to no operation.
const NONE: usize = usize::MAX;

/// The greatest size of one operation. The software driver has chosen it.
pub(crate) const MAXIMUM: u32 = 4 << 20;

/// Returns whether a device has a decompression engine.
pub(crate) fn has_engine(world: &World) -> bool {
    world.settings.profile.gpu.capability.0 >= 10
}

/// Returns whether the engine can access the memory at an address.
pub(crate) fn is_capable(world: &World, address: u64) -> bool {
    let is_of_engine =
        |pool: usize| world.objects.pools.get(pool).is_some_and(|pool| pool.usage != 0);
    let its = world.objects.memory.containing(address);
    has_engine(world)
        && its.is_some_and(|(_, its)| match its.kind {
            Kind::Plain => true,
            Kind::Ordered { .. } => its.pool.is_some_and(is_of_engine),
        })
}

fn operation(world: &World, its: &CUmemDecompressParams) -> Answer<Decompression> {
    let format = match its.algo {
        Algorithm::CU_MEM_DECOMPRESS_ALGORITHM_DEFLATE => Format::Deflate,
        Algorithm::CU_MEM_DECOMPRESS_ALGORITHM_SNAPPY => Format::Snappy,
        Algorithm::CU_MEM_DECOMPRESS_ALGORITHM_LZ4 => Format::Lz4,
        _ => return Err(INVALID),
    };
    let (from, to) = (its.src.expose_provenance() as u64, its.dst.expose_provenance() as u64);
    let (written, len) = (its.dstActBytes.expose_provenance() as u64, its.srcNumBytes);
    if len == 0 || len > MAXIMUM as usize || its.padding.iter().any(|byte| *byte != 0) {
        return Err(INVALID);
    }
    let sides = [
        (from, len, Use::Read),
        (to, its.dstNumBytes.max(1), Use::Write),
        (written, size_of::<u32>(), Use::Write),
    ];
    for (address, len, wanted) in sides {
        if place(world, address, len, wanted)? != Place::Device || !is_capable(world, address) {
            return Err(INVALID);
        }
    }
    Ok(Decompression { format, from, len, to, written })
}

pub(crate) fn batch(
    world: &mut World,
    operations: *mut CUmemDecompressParams,
    count: usize,
    flags: c_uint,
    failed: Out<usize>,
    stream: CUstream,
) -> Answer {
    failed.set(NONE);
    let stream = world.stream(stream.addr())?;
    fail_if(operations.is_null() || count == 0 || flags != 0, INVALID)?;
    fail_if(!has_engine(world), CUresult::CUDA_ERROR_NOT_SUPPORTED)?;
    crate::api::memory::batch::not_capturing(world, stream)?;
    let mut work = Vec::with_capacity(count);
    for index in 0..count {
        let place = operations.wrapping_add(index);
        // SAFETY: the caller passes `count` operations.
        let its = unsafe { place.read() };
        match operation(world, &its) {
            Ok(its) => work.push(Work::Decompress(Box::new(its))),
            Err(code) => {
                failed.set(index);
                return Err(code);
            }
        }
    }
    world.give(stream, Work::All(work), Vec::new());
    Ok(())
}
