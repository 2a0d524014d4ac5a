//! 2-D and 3-D copies and fills.

use super::Out;
use super::memory::{check_given, check_given_on, copy_to_host, host_bytes};
use crate::exec::Work;
use crate::memory::Use;
use crate::state::graph::copy::{self as graph, CopyNode};
use crate::state::graph::fill::FillNode;
use crate::state::graph::node::Kind;
use crate::state::{Answer, World};
use core::ffi::c_uint;
use cuda_sys::{
    CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUdeviceptr, CUmemorytype as Type, CUresult,
    CUstream, Zeroable,
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

/// One side of a copy, from which the start of each row is computed.
#[derive(Clone, Copy)]
struct Side {
    kind: Type,
    host: usize,
    device: u64,
    pitch: usize,
    rows: usize,
}

impl Side {
    fn row(&self, row: usize, slice: usize) -> usize {
        let start = match self.kind {
            Type::CU_MEMORYTYPE_HOST => self.host,
            _ => usize::try_from(self.device).unwrap_or(usize::MAX),
        };
        start + (slice * self.rows + row) * self.pitch
    }

    fn is_host(&self) -> bool {
        self.kind == Type::CU_MEMORYTYPE_HOST
    }
}

/// A 2-D or 3-D copy, in bytes.
struct BoxCopy {
    from: Side,
    to: Side,
    width: usize,
    height: usize,
    depth: usize,
}

impl BoxCopy {
    fn of_plane(copy: *const CUDA_MEMCPY2D) -> Answer<Self> {
        // SAFETY: the caller passes null or a pointer to a copy.
        let copy = unsafe { copy.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let from = copy.srcY * copy.srcPitch + copy.srcXInBytes;
        let to = copy.dstY * copy.dstPitch + copy.dstXInBytes;
        Self::new(
            Side {
                kind: copy.srcMemoryType,
                host: copy.srcHost.expose_provenance() + from,
                device: copy.srcDevice + from as u64,
                pitch: copy.srcPitch,
                rows: copy.Height,
            },
            Side {
                kind: copy.dstMemoryType,
                host: copy.dstHost.expose_provenance() + to,
                device: copy.dstDevice + to as u64,
                pitch: copy.dstPitch,
                rows: copy.Height,
            },
            [copy.WidthInBytes, copy.Height, 1],
        )
    }

    fn of_volume(copy: *const CUDA_MEMCPY3D) -> Answer<Self> {
        // SAFETY: the caller passes null or a pointer to a copy.
        let copy = unsafe { copy.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let begin =
            |x: usize, y: usize, z: usize, pitch: usize, rows: usize| (z * rows + y) * pitch + x;
        let from = begin(
            copy.srcXInBytes,
            copy.srcY,
            copy.srcZ,
            copy.srcPitch,
            copy.srcHeight,
        );
        let to = begin(
            copy.dstXInBytes,
            copy.dstY,
            copy.dstZ,
            copy.dstPitch,
            copy.dstHeight,
        );
        Self::new(
            Side {
                kind: copy.srcMemoryType,
                host: copy.srcHost.expose_provenance() + from,
                device: copy.srcDevice + from as u64,
                pitch: copy.srcPitch,
                rows: copy.srcHeight,
            },
            Side {
                kind: copy.dstMemoryType,
                host: copy.dstHost.expose_provenance() + to,
                device: copy.dstDevice + to as u64,
                pitch: copy.dstPitch,
                rows: copy.dstHeight,
            },
            [copy.WidthInBytes, copy.Height, copy.Depth],
        )
    }

    fn new(from: Side, to: Side, [width, height, depth]: [usize; 3]) -> Answer<Self> {
        for side in [&from, &to] {
            // Arrays are not supported, nor memory of the unified type.
            if !matches!(
                side.kind,
                Type::CU_MEMORYTYPE_HOST | Type::CU_MEMORYTYPE_DEVICE
            ) {
                return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
            }
            let apart = side.pitch >= width && (depth <= 1 || side.rows >= height);
            if !apart {
                return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
            }
        }
        Ok(Self {
            from,
            to,
            width,
            height,
            depth,
        })
    }

    /// Returns the start of each row on both sides.
    fn rows(&self) -> impl Iterator<Item = (usize, usize)> {
        let slices = (0..self.depth).flat_map(|z| (0..self.height).map(move |y| (y, z)));
        slices.map(|(y, z)| (self.from.row(y, z), self.to.row(y, z)))
    }

    /// Returns the copies of the rows as stream-ordered work.
    fn work(&self, world: &World) -> Answer<Vec<Work>> {
        let len = self.width;
        self.rows()
            .map(|(from, to)| {
                if !self.from.is_host() {
                    check_given(world, from as u64, len, Use::Read)?;
                }
                if !self.to.is_host() {
                    check_given(world, to as u64, len, Use::Write)?;
                }
                Ok(match (self.from.is_host(), self.to.is_host()) {
                    (false, false) => Work::CopyOnDevice {
                        from: from as u64,
                        to: to as u64,
                        len,
                    },
                    (true, false) if world.memory.is_pinned(from, len) => {
                        let to = to as u64;
                        Work::CopyInPinned { to, from, len }
                    }
                    (true, false) => Work::CopyIn {
                        to: to as u64,
                        bytes: host_bytes(core::ptr::with_exposed_provenance(from), len)?,
                    },
                    (false, true) if world.memory.is_pinned(to, len) => {
                        let from = from as u64;
                        Work::CopyOut { from, to, len }
                    }
                    // Host-to-host copies, and copies to memory that may be written only after a wait,
                    // are not supported.
                    _ => return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
                })
            })
            .collect()
    }

    fn give(&self, world: &mut World, stream: CUstream) -> Answer {
        let stream = world.stream(stream.addr())?;
        if let Some(capture) = world.recording(stream)? {
            let mut copy = self.node();
            super::graph::copy::check(world, &copy)?;
            copy.is_pinned = !copy.is_pageable(&world.memory);
            return world.capture_node(capture, stream, Kind::Copy(Box::new(copy)));
        }
        let work = Work::All(self.work(world)?);
        world.give_or_capture(stream, work)
    }

    fn node(&self) -> CopyNode {
        let side = |side: &Side| graph::Side {
            kind: side.kind,
            x: 0,
            y: 0,
            z: 0,
            host: side.host,
            device: side.device,
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

    /// Copies synchronously, in the order of the legacy default stream.
    fn make(&self, world: &mut World) -> Answer {
        let current = world.current()?;
        let legacy = world.context(current)?.legacy;
        let to_host = !self.from.is_host() && self.to.is_host();
        world.wait_for(|world| {
            let work = if to_host {
                Vec::new()
            } else {
                self.work(world)?
            };
            Ok(Some(world.give(legacy, Work::All(work), Vec::new())))
        })?;
        if to_host {
            for (from, to) in self.rows() {
                let to = core::ptr::with_exposed_provenance_mut(to);
                copy_to_host(world, to, from as u64, self.width)?;
            }
        }
        Ok(())
    }
}

pub(super) fn copy_plane(world: &mut World, copy: *const CUDA_MEMCPY2D) -> Answer {
    BoxCopy::of_plane(copy)?.make(world)
}

pub(super) fn copy_plane_async(
    world: &mut World,
    copy: *const CUDA_MEMCPY2D,
    stream: CUstream,
) -> Answer {
    BoxCopy::of_plane(copy)?.give(world, stream)
}

pub(super) fn copy_volume(world: &mut World, copy: *const CUDA_MEMCPY3D) -> Answer {
    BoxCopy::of_volume(copy)?.make(world)
}

pub(super) fn copy_volume_async(
    world: &mut World,
    copy: *const CUDA_MEMCPY3D,
    stream: CUstream,
) -> Answer {
    BoxCopy::of_volume(copy)?.give(world, stream)
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
    let made = BoxCopy::of_volume(&raw const plain)?;
    let sides = [(&made.from, copy.srcContext), (&made.to, copy.dstContext)];
    for (side, context) in sides {
        if side.is_host() {
            continue;
        }
        let device = world.context(context.addr())?.device;
        let holder = world.memory.containing(side.device);
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

fn fill(
    world: &mut World,
    at: CUdeviceptr,
    pitch: usize,
    pattern: &[u8],
    [width, height]: [usize; 2],
    stream: CUstream,
) -> Answer {
    let stream = world.stream(stream.addr())?;
    let size = width * pattern.len();
    if at % pattern.len() as u64 != 0 || (height > 1 && pitch < size) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let mut value = [0; 4];
    value[..pattern.len()].copy_from_slice(pattern);
    let node = FillNode {
        at,
        pitch,
        value: u32::from_le_bytes(value),
        element: pattern.len(),
        width,
        height,
        context: 0,
    };
    for (at, len) in node.rows() {
        check_given_on(world, stream, at, len, Use::Write)?;
    }
    match world.recording(stream)? {
        Some(capture) => {
            world.capture_node(capture, stream, Kind::Fill(Box::new(node)))?;
        }
        None => {
            world.give(stream, node.work(), Vec::new());
        }
    }
    Ok(())
}

pub(super) fn fill_8(
    world: &mut World,
    at: CUdeviceptr,
    pitch: usize,
    value: u8,
    width: usize,
    height: usize,
    stream: CUstream,
) -> Answer {
    fill(world, at, pitch, &[value], [width, height], stream)
}

pub(super) fn fill_16(
    world: &mut World,
    at: CUdeviceptr,
    pitch: usize,
    value: u16,
    width: usize,
    height: usize,
    stream: CUstream,
) -> Answer {
    let pattern = value.to_ne_bytes();
    fill(world, at, pitch, &pattern, [width, height], stream)
}

pub(super) fn fill_32(
    world: &mut World,
    at: CUdeviceptr,
    pitch: usize,
    value: c_uint,
    width: usize,
    height: usize,
    stream: CUstream,
) -> Answer {
    let pattern = value.to_ne_bytes();
    fill(world, at, pitch, &pattern, [width, height], stream)
}
