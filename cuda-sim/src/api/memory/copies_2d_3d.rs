//! 2-D and 3-D copies.

use crate::api::memory::batch::Plan;
use crate::api::memory::copy::check_host;
use crate::api::memory::{call_waits, check_access, check_given};
use crate::api::prelude::*;
use crate::memory::Use;
use crate::state::graph::copy::{CopyNode, Side};
use cuda_sys::{CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUmemorytype as Type, Zeroable};

/// Alignment of rows. Unverified (from documentation).
const PITCH: usize = 512;

pub(crate) fn allocate(
    world: &mut World,
    address: Out<CUdeviceptr>,
    pitch: Out<usize>,
    width: usize,
    height: usize,
    element: c_uint,
) -> Answer {
    fail_if(!matches!(element, 4 | 8 | 16) || width == 0 || height == 0, INVALID)?;
    let between =
        width.checked_next_multiple_of(PITCH).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    let size = between.checked_mul(height).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    crate::api::memory::allocate(world, address, size)?;
    pitch.put(between)
}

/// One side as the caller describes it.
struct Described {
    kind: Type,
    host: usize,
    device: u64,
    array: CUarray,
    /// The position in bytes, rows and slices.
    at: [usize; 3],
    /// The pitch, and the number of rows of a slice.
    distances: [usize; 2],
}

impl Described {
    /// An array becomes the device memory that contains its elements.
    fn find(&self, world: &World, extent: [usize; 3]) -> Answer<Side> {
        if self.kind != Type::CU_MEMORYTYPE_ARRAY {
            let addresses = [self.host as u64, self.device];
            return Side::new(
                &world.objects.memory,
                self.kind,
                addresses,
                self.at,
                self.distances,
                extent,
            );
        }
        let array = world.array(self.array.addr())?;
        let texels = array.texels();
        let rows = texels.slice / texels.pitch.max(1);
        let all = [texels.pitch, rows, texels.extent[2].max(1)];
        let fits = |axis: usize| {
            let end = self.at[axis].checked_add(extent[axis]);
            end.is_some_and(|end| end <= all[axis])
        };
        fail_if(!(0..3).all(fits), INVALID)?;
        let addresses = [0, texels.address];
        let distances = [texels.pitch, rows];
        let kind = Type::CU_MEMORYTYPE_DEVICE;
        Side::new(&world.objects.memory, kind, addresses, self.at, distances, extent)
    }
}

/// A 2-D or 3-D copy, in bytes.
struct BoxCopy {
    copy: CopyNode,
    /// Whether the caller named the context of each side, which then needs no access from the other's device.
    is_between_contexts: bool,
}

impl BoxCopy {
    fn of_plane(world: &World, copy: *const CUDA_MEMCPY2D) -> Answer<Self> {
        // SAFETY: the caller passes null or a pointer to a copy.
        let copy = unsafe { copy.as_ref() }.ok_or(INVALID)?;
        Self::new(
            world,
            &Described {
                kind: copy.srcMemoryType,
                host: copy.srcHost.expose_provenance(),
                device: copy.srcDevice,
                array: copy.srcArray,
                at: [copy.srcXInBytes, copy.srcY, 0],
                distances: [copy.srcPitch, 0],
            },
            &Described {
                kind: copy.dstMemoryType,
                host: copy.dstHost.expose_provenance(),
                device: copy.dstDevice,
                array: copy.dstArray,
                at: [copy.dstXInBytes, copy.dstY, 0],
                distances: [copy.dstPitch, 0],
            },
            [copy.WidthInBytes, copy.Height, 1],
        )
    }

    fn of_volume(world: &World, copy: *const CUDA_MEMCPY3D) -> Answer<Self> {
        // SAFETY: the caller passes null or a pointer to a copy.
        let copy = unsafe { copy.as_ref() }.ok_or(INVALID)?;
        fail_if(copy.srcLOD != 0 || copy.dstLOD != 0, INVALID)?;
        Self::new(
            world,
            &Described {
                kind: copy.srcMemoryType,
                host: copy.srcHost.expose_provenance(),
                device: copy.srcDevice,
                array: copy.srcArray,
                at: [copy.srcXInBytes, copy.srcY, copy.srcZ],
                distances: [copy.srcPitch, copy.srcHeight],
            },
            &Described {
                kind: copy.dstMemoryType,
                host: copy.dstHost.expose_provenance(),
                device: copy.dstDevice,
                array: copy.dstArray,
                at: [copy.dstXInBytes, copy.dstY, copy.dstZ],
                distances: [copy.dstPitch, copy.dstHeight],
            },
            [copy.WidthInBytes, copy.Height, copy.Depth],
        )
    }

    fn new(world: &World, from: &Described, to: &Described, extent: [usize; 3]) -> Answer<Self> {
        let copy = CopyNode {
            from: from.find(world, extent)?,
            to: to.find(world, extent)?,
            extent,
            is_pinned: false,
            context: 0,
        };
        Ok(Self { copy, is_between_contexts: false })
    }

    /// Fails if the memory of a row cannot be used.
    fn check(&self, world: &World, stream: usize) -> Answer {
        let len = self.copy.extent[0];
        let hosts = self.copy.hosts(&world.objects.memory);
        for (from, to) in self.copy.rows() {
            let sides = [(from, hosts[0], Use::Read), (to, hosts[1], Use::Write)];
            for (start, is_host, wanted) in sides {
                if !is_host {
                    check_given(world, start, len, wanted)?;
                    if !self.is_between_contexts {
                        check_access(world, stream, start, len, wanted)?;
                    }
                } else {
                    fail_if(start == 0, INVALID)?;
                    check_host(world, start as usize, len)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the work of the copy. Pageable memory is staged now.
    fn plan(&self, world: &World, stream: usize) -> Answer<Plan> {
        self.check(world, stream)?;
        let work = self.copy.work(&world.objects.memory, false);
        Ok(Plan { waits: work.is_awaited(), work: vec![work.staged()] })
    }

    fn give(&self, world: &mut World, stream: CUstream) -> Answer {
        let stream = world.stream(stream.addr())?;
        let capture = world.recording(stream)?;
        if self.copy.is_empty() {
            return Ok(());
        }
        if let Some(capture) = capture {
            let home = world.objects.streams.get(stream).map(|its| its.context);
            let node = crate::api::graph::copy::node(world, self.copy.clone(), home)?;
            return world.capture_node(capture, stream, node);
        }
        world.wait_for(|world| Ok(self.plan(world, stream)?.give(world, stream)))
    }

    /// Copies in the order of the default stream. The call does not wait for copies between device memory.
    fn make(&self, world: &mut World) -> Answer {
        let stream = world.stream_of_copies()?;
        if self.copy.is_empty() {
            return Ok(());
        }
        world.wait_for(|world| {
            let mut plan = self.plan(world, stream)?;
            let sides = [&self.copy.from, &self.copy.to];
            plan.waits |= sides.iter().any(|side| side.is_host(&world.objects.memory));
            plan.waits |= call_waits(world, stream, &sides.map(Side::start));
            Ok(plan.give(world, stream))
        })
    }
}

pub(crate) fn copy_plane(world: &mut World, copy: *const CUDA_MEMCPY2D) -> Answer {
    BoxCopy::of_plane(world, copy)?.make(world)
}

pub(crate) fn copy_plane_async(
    world: &mut World,
    copy: *const CUDA_MEMCPY2D,
    stream: CUstream,
) -> Answer {
    world.none_or_alive()?;
    BoxCopy::of_plane(world, copy)?.give(world, stream)
}

pub(crate) fn copy_volume(world: &mut World, copy: *const CUDA_MEMCPY3D) -> Answer {
    BoxCopy::of_volume(world, copy)?.make(world)
}

pub(crate) fn copy_volume_async(
    world: &mut World,
    copy: *const CUDA_MEMCPY3D,
    stream: CUstream,
) -> Answer {
    world.none_or_alive()?;
    BoxCopy::of_volume(world, copy)?.give(world, stream)
}

/// Returns a copy between contexts as a copy, and checks the contexts.
fn between(world: &World, copy: *const CUDA_MEMCPY3D_PEER) -> Answer<BoxCopy> {
    // SAFETY: the caller passes null or a pointer to a copy.
    let copy = unsafe { copy.as_ref() }.ok_or(INVALID)?;
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
    let sides = [(&made.copy.from, copy.srcContext), (&made.copy.to, copy.dstContext)];
    for (side, context) in sides {
        if side.is_host(&world.objects.memory) {
            continue;
        }
        let device = world.context(context.addr())?.device;
        let holder = world.objects.memory.containing(side.start());
        fail_if(holder.is_some_and(|(_, holder)| holder.device != device), INVALID)?;
    }
    Ok(made)
}

/// Unverified (from documentation), as the next one.
pub(crate) fn copy_between(world: &mut World, copy: *const CUDA_MEMCPY3D_PEER) -> Answer {
    between(world, copy)?.make(world)
}

/// Like the function for 1-D copies, it cannot be captured.
pub(crate) fn copy_between_async(
    world: &mut World,
    copy: *const CUDA_MEMCPY3D_PEER,
    stream: CUstream,
) -> Answer {
    let copy = between(world, copy)?;
    let home = world.stream(stream.addr())?;
    world.forbidden_on_capturing(home)?;
    copy.give(world, stream)
}
