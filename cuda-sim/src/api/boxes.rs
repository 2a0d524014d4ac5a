//! 2-D and 3-D copies.

use super::Out;
use super::batch::Plan;
use super::copy::host_bytes;
use super::memory::{check_given, check_pool_access};
use crate::exec::Work;
use crate::memory::Use;
use crate::state::graph::copy::{self as graph, CopyNode};
use crate::state::graph::node::Kind;
use crate::state::{Answer, World};
use core::ffi::c_uint;
use cuda_sys::{
    CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUarray, CUdeviceptr, CUmemorytype as Type,
    CUresult, CUstream, Zeroable,
};

/// Alignment of rows. Unverified (from documentation).
const PITCH: usize = 512;

pub(super) fn allocate(
    world: &mut World,
    address: &mut Out<CUdeviceptr>,
    pitch: &mut Out<usize>,
    width: usize,
    height: usize,
    element: c_uint,
) -> Answer {
    pitch.required()?;
    if !matches!(element, 4 | 8 | 16) || width == 0 || height == 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let between = width
        .checked_next_multiple_of(PITCH)
        .ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    let size = between
        .checked_mul(height)
        .ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    super::memory::allocate(world, address, size)?;
    pitch.set(between);
    Ok(())
}

/// One side of a copy, from which the start of each row is computed. Arrays are device memory here.
#[derive(Clone, Copy)]
struct Side {
    is_host: bool,
    /// Where the first row starts.
    start: usize,
    pitch: usize,
    rows: usize,
}

/// One side as the caller describes it.
struct Described {
    kind: Type,
    host: usize,
    device: u64,
    array: CUarray,
    /// The position in bytes, rows and slices.
    at: [usize; 3],
    pitch: usize,
    rows: usize,
}

impl Described {
    fn find(&self, world: &World, [width, height, depth]: [usize; 3]) -> Answer<Side> {
        let [x, y, z] = self.at;
        let (is_host, base, pitch, rows) = match self.kind {
            Type::CU_MEMORYTYPE_HOST => (true, self.host, self.pitch, self.rows),
            Type::CU_MEMORYTYPE_DEVICE => (false, address(self.device), self.pitch, self.rows),
            Type::CU_MEMORYTYPE_UNIFIED => {
                let memory = &world.memory;
                let is_device =
                    memory.containing(self.device).is_some() || memory.is_virtual(self.device);
                let host = memory.host_around(self.device).map(|(_, host, _)| host);
                let start = host.unwrap_or(address(self.device));
                (!is_device, start, self.pitch, self.rows)
            }
            Type::CU_MEMORYTYPE_ARRAY => {
                let array = world.array(self.array.addr())?;
                let texels = array.texels();
                let rows = texels.slice / texels.pitch.max(1);
                let fits = |at: usize, len: usize, all: usize| {
                    at.checked_add(len).is_some_and(|end| end <= all)
                };
                let slices = texels.extent[2].max(1);
                if !fits(x, width, texels.pitch)
                    || !fits(y, height, rows)
                    || !fits(z, depth, slices)
                {
                    return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
                }
                (false, address(texels.address), texels.pitch, rows)
            }
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        };
        let is_apart = pitch >= width && (depth <= 1 || rows >= height);
        if !is_apart {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let offset = z.checked_mul(rows).and_then(|its| its.checked_add(y));
        let offset = offset.and_then(|its| its.checked_mul(pitch)?.checked_add(x));
        let start = offset.and_then(|its| base.checked_add(its));
        Ok(Side {
            is_host,
            start: start.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?,
            pitch,
            rows,
        })
    }
}

fn address(device: u64) -> usize {
    usize::try_from(device).unwrap_or(usize::MAX)
}

impl Side {
    fn row(&self, row: usize, slice: usize) -> usize {
        let rows = slice.saturating_mul(self.rows).saturating_add(row);
        self.start.saturating_add(rows.saturating_mul(self.pitch))
    }
}

/// A 2-D or 3-D copy, in bytes.
struct BoxCopy {
    from: Side,
    to: Side,
    width: usize,
    height: usize,
    depth: usize,
    /// Whether the caller named the context of each side, which then needs no access from the other's device.
    is_between_contexts: bool,
}

impl BoxCopy {
    fn of_plane(world: &World, copy: *const CUDA_MEMCPY2D) -> Answer<Self> {
        // SAFETY: the caller passes null or a pointer to a copy.
        let copy = unsafe { copy.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        Self::new(
            world,
            &Described {
                kind: copy.srcMemoryType,
                host: copy.srcHost.expose_provenance(),
                device: copy.srcDevice,
                array: copy.srcArray,
                at: [copy.srcXInBytes, copy.srcY, 0],
                pitch: copy.srcPitch,
                rows: copy.Height,
            },
            &Described {
                kind: copy.dstMemoryType,
                host: copy.dstHost.expose_provenance(),
                device: copy.dstDevice,
                array: copy.dstArray,
                at: [copy.dstXInBytes, copy.dstY, 0],
                pitch: copy.dstPitch,
                rows: copy.Height,
            },
            [copy.WidthInBytes, copy.Height, 1],
        )
    }

    fn of_volume(world: &World, copy: *const CUDA_MEMCPY3D) -> Answer<Self> {
        // SAFETY: the caller passes null or a pointer to a copy.
        let copy = unsafe { copy.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        if copy.srcLOD != 0 || copy.dstLOD != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        Self::new(
            world,
            &Described {
                kind: copy.srcMemoryType,
                host: copy.srcHost.expose_provenance(),
                device: copy.srcDevice,
                array: copy.srcArray,
                at: [copy.srcXInBytes, copy.srcY, copy.srcZ],
                pitch: copy.srcPitch,
                rows: copy.srcHeight,
            },
            &Described {
                kind: copy.dstMemoryType,
                host: copy.dstHost.expose_provenance(),
                device: copy.dstDevice,
                array: copy.dstArray,
                at: [copy.dstXInBytes, copy.dstY, copy.dstZ],
                pitch: copy.dstPitch,
                rows: copy.dstHeight,
            },
            [copy.WidthInBytes, copy.Height, copy.Depth],
        )
    }

    fn new(world: &World, from: &Described, to: &Described, extent: [usize; 3]) -> Answer<Self> {
        let [width, height, depth] = extent;
        Ok(Self {
            from: from.find(world, extent)?,
            to: to.find(world, extent)?,
            width,
            height,
            depth,
            is_between_contexts: false,
        })
    }

    /// Returns the start of each row on both sides.
    fn rows(&self) -> impl Iterator<Item = (usize, usize)> {
        let slices = (0..self.depth).flat_map(|z| (0..self.height).map(move |y| (y, z)));
        slices.map(|(y, z)| (self.from.row(y, z), self.to.row(y, z)))
    }

    /// Returns the copies of the rows. The call waits for a copy to pageable memory, as for one within
    /// host memory.
    fn plan(&self, world: &World, stream: usize) -> Answer<Plan> {
        let len = self.width;
        let mut plan = Plan::default();
        for (from, to) in self.rows() {
            let is_pinned = |host: usize| world.memory.is_pinned(host, len);
            for (side, start, wanted) in [
                (&self.from, from as u64, Use::Read),
                (&self.to, to as u64, Use::Write),
            ] {
                if side.is_host {
                    continue;
                }
                check_given(world, start, len, wanted)?;
                if !self.is_between_contexts {
                    check_pool_access(world, stream, start)?;
                }
            }
            let is_null = (self.from.is_host && from == 0) || (self.to.is_host && to == 0);
            if is_null && len != 0 {
                return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
            }
            plan.work.push(match (self.from.is_host, self.to.is_host) {
                (false, false) => Work::CopyOnDevice {
                    from: from as u64,
                    to: to as u64,
                    len,
                },
                (true, false) if is_pinned(from) => {
                    let to = to as u64;
                    Work::CopyInPinned { to, from, len }
                }
                (true, false) => Work::CopyIn {
                    to: to as u64,
                    bytes: host_bytes(core::ptr::with_exposed_provenance(from), len)?,
                },
                (false, true) if is_pinned(to) => {
                    let from = from as u64;
                    Work::CopyOut { from, to, len }
                }
                (false, true) => {
                    plan.waits = true;
                    let from = from as u64;
                    Work::CopyOutHost { from, to, len }
                }
                (true, true) => {
                    plan.waits = true;
                    Work::CopyOnHost { from, to, len }
                }
            });
        }
        Ok(plan)
    }

    fn give(&self, world: &mut World, stream: CUstream) -> Answer {
        let stream = world.stream(stream.addr())?;
        if let Some(capture) = world.recording(stream)? {
            let mut copy = self.node();
            super::graph::copy::check(world, &copy)?;
            let home = world.streams.get(stream).map(|its| its.context);
            super::graph::copy::check_pools(world, &copy, home)?;
            copy.is_pinned = !copy.is_pageable(&world.memory);
            return world.capture_node(capture, stream, Kind::Copy(Box::new(copy)));
        }
        world.wait_for(|world| Ok(self.plan(world, stream)?.give(world, stream)))
    }

    fn node(&self) -> CopyNode {
        let side = |side: &Side| graph::Side {
            kind: match side.is_host {
                true => Type::CU_MEMORYTYPE_HOST,
                false => Type::CU_MEMORYTYPE_DEVICE,
            },
            x: 0,
            y: 0,
            z: 0,
            host: if side.is_host { side.start } else { 0 },
            device: if side.is_host { 0 } else { side.start as u64 },
            pitch: side.pitch,
            rows: side.rows,
        };
        CopyNode {
            from: side(&self.from),
            to: side(&self.to),
            extent: [self.width, self.height, self.depth],
            is_pinned: false,
            context: 0,
        }
    }

    /// Copies synchronously, in the order of the default stream.
    fn make(&self, world: &mut World) -> Answer {
        let stream = world.stream_of_copies()?;
        world.wait_for(|world| {
            let mut plan = self.plan(world, stream)?;
            plan.waits = true;
            Ok(plan.give(world, stream))
        })
    }
}

pub(super) fn copy_plane(world: &mut World, copy: *const CUDA_MEMCPY2D) -> Answer {
    BoxCopy::of_plane(world, copy)?.make(world)
}

pub(super) fn copy_plane_async(
    world: &mut World,
    copy: *const CUDA_MEMCPY2D,
    stream: CUstream,
) -> Answer {
    BoxCopy::of_plane(world, copy)?.give(world, stream)
}

pub(super) fn copy_volume(world: &mut World, copy: *const CUDA_MEMCPY3D) -> Answer {
    BoxCopy::of_volume(world, copy)?.make(world)
}

pub(super) fn copy_volume_async(
    world: &mut World,
    copy: *const CUDA_MEMCPY3D,
    stream: CUstream,
) -> Answer {
    BoxCopy::of_volume(world, copy)?.give(world, stream)
}

/// Returns a copy between contexts as a copy, and checks the contexts.
fn between(world: &World, copy: *const CUDA_MEMCPY3D_PEER) -> Answer<BoxCopy> {
    // SAFETY: the caller passes null or a pointer to a copy.
    let copy = unsafe { copy.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let plain = CUDA_MEMCPY3D {
        srcXInBytes: copy.srcXInBytes,
        srcY: copy.srcY,
        srcZ: copy.srcZ,
        srcLOD: copy.srcLOD,
        srcMemoryType: copy.srcMemoryType,
        srcHost: copy.srcHost,
        srcDevice: copy.srcDevice,
        srcArray: copy.srcArray,
        srcPitch: copy.srcPitch,
        srcHeight: copy.srcHeight,
        dstXInBytes: copy.dstXInBytes,
        dstY: copy.dstY,
        dstZ: copy.dstZ,
        dstLOD: copy.dstLOD,
        dstMemoryType: copy.dstMemoryType,
        dstHost: copy.dstHost,
        dstDevice: copy.dstDevice,
        dstArray: copy.dstArray,
        dstPitch: copy.dstPitch,
        dstHeight: copy.dstHeight,
        WidthInBytes: copy.WidthInBytes,
        Height: copy.Height,
        Depth: copy.Depth,
        ..CUDA_MEMCPY3D::zeroed()
    };
    let mut made = BoxCopy::of_volume(world, &raw const plain)?;
    made.is_between_contexts = true;
    let sides = [(&made.from, copy.srcContext), (&made.to, copy.dstContext)];
    for (side, context) in sides {
        if side.is_host {
            continue;
        }
        let device = world.context(context.addr())?.device;
        let holder = world.memory.containing(side.start as u64);
        if holder.is_some_and(|(_, holder)| holder.device != device) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
    }
    Ok(made)
}

/// Unverified (from documentation), as the next one.
pub(super) fn copy_between(world: &mut World, copy: *const CUDA_MEMCPY3D_PEER) -> Answer {
    between(world, copy)?.make(world)
}

/// Like the function for 1-D copies, it cannot be captured.
pub(super) fn copy_between_async(
    world: &mut World,
    copy: *const CUDA_MEMCPY3D_PEER,
    stream: CUstream,
) -> Answer {
    let copy = between(world, copy)?;
    let home = world.stream(stream.addr())?;
    world.forbidden_on_capturing(home)?;
    copy.give(world, stream)
}
