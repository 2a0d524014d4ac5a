//! Fills of 1-D and 2-D memory. A fill of no bytes does nothing, whatever its address is (measured).

use super::memory::{call_waits, check_given_on};
use crate::exec::Work;
use crate::memory::Use;
use crate::state::graph::fill::FillNode;
use crate::state::graph::node::Kind;
use crate::state::{Answer, World};
use core::ffi::c_uint;
use cuda_sys::{CUdeviceptr, CUresult, CUstream};

fn fill(
    world: &mut World,
    at: CUdeviceptr,
    pattern: Vec<u8>,
    count: usize,
    stream: CUstream,
) -> Answer {
    let stream = world.stream(stream.addr())?;
    if count == 0 {
        return world.recording(stream).map(drop);
    }
    let size = pattern.len().checked_mul(count);
    let size = size.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    if at % pattern.len() as u64 != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    check_given_on(world, stream, at, size, Use::Write)?;
    world.give_or_capture(stream, Work::Fill { at, pattern, count })
}

/// Fills memory in the order of the default stream with the function `give`. The call does not wait for device
/// memory.
pub(super) fn fill_now(
    world: &mut World,
    at: CUdeviceptr,
    give: impl FnOnce(&mut World) -> Answer,
) -> Answer {
    let stream = world.stream(0)?;
    world.wait_for(|world| {
        let waits = call_waits(world, stream, &[at]);
        give(world)?;
        Ok(waits.then(|| world.last_to_wait_for(stream)).flatten())
    })
}

pub(super) fn fill_now_8(world: &mut World, at: CUdeviceptr, value: u8, count: usize) -> Answer {
    fill_now(world, at, |world| {
        fill_8(world, at, value, count, core::ptr::null_mut())
    })
}

pub(super) fn fill_now_16(world: &mut World, at: CUdeviceptr, value: u16, count: usize) -> Answer {
    fill_now(world, at, |world| {
        fill_16(world, at, value, count, core::ptr::null_mut())
    })
}

pub(super) fn fill_now_32(
    world: &mut World,
    at: CUdeviceptr,
    value: c_uint,
    count: usize,
) -> Answer {
    fill_now(world, at, |world| {
        fill_32(world, at, value, count, core::ptr::null_mut())
    })
}

pub(super) fn fill_8(
    world: &mut World,
    at: CUdeviceptr,
    value: u8,
    count: usize,
    stream: CUstream,
) -> Answer {
    fill(world, at, vec![value], count, stream)
}

pub(super) fn fill_16(
    world: &mut World,
    at: CUdeviceptr,
    value: u16,
    count: usize,
    stream: CUstream,
) -> Answer {
    fill(world, at, value.to_ne_bytes().to_vec(), count, stream)
}

pub(super) fn fill_32(
    world: &mut World,
    at: CUdeviceptr,
    value: c_uint,
    count: usize,
    stream: CUstream,
) -> Answer {
    fill(world, at, value.to_ne_bytes().to_vec(), count, stream)
}

fn fill_plane(
    world: &mut World,
    at: CUdeviceptr,
    pitch: usize,
    pattern: &[u8],
    [width, height]: [usize; 2],
    stream: CUstream,
) -> Answer {
    let stream = world.stream(stream.addr())?;
    if width == 0 || height == 0 {
        return world.recording(stream).map(drop);
    }
    let size = pattern.len().checked_mul(width);
    let size = size.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
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

pub(super) fn fill_plane_8(
    world: &mut World,
    at: CUdeviceptr,
    pitch: usize,
    value: u8,
    width: usize,
    height: usize,
    stream: CUstream,
) -> Answer {
    fill_plane(world, at, pitch, &[value], [width, height], stream)
}

pub(super) fn fill_plane_16(
    world: &mut World,
    at: CUdeviceptr,
    pitch: usize,
    value: u16,
    width: usize,
    height: usize,
    stream: CUstream,
) -> Answer {
    let pattern = value.to_ne_bytes();
    fill_plane(world, at, pitch, &pattern, [width, height], stream)
}

pub(super) fn fill_plane_32(
    world: &mut World,
    at: CUdeviceptr,
    pitch: usize,
    value: c_uint,
    width: usize,
    height: usize,
    stream: CUstream,
) -> Answer {
    let pattern = value.to_ne_bytes();
    fill_plane(world, at, pitch, &pattern, [width, height], stream)
}

pub(super) fn fill_plane_now_8(
    world: &mut World,
    at: CUdeviceptr,
    pitch: usize,
    value: u8,
    width: usize,
    height: usize,
) -> Answer {
    fill_now(world, at, |world| {
        let stream = core::ptr::null_mut();
        fill_plane_8(world, at, pitch, value, width, height, stream)
    })
}

pub(super) fn fill_plane_now_16(
    world: &mut World,
    at: CUdeviceptr,
    pitch: usize,
    value: u16,
    width: usize,
    height: usize,
) -> Answer {
    fill_now(world, at, |world| {
        let stream = core::ptr::null_mut();
        fill_plane_16(world, at, pitch, value, width, height, stream)
    })
}

pub(super) fn fill_plane_now_32(
    world: &mut World,
    at: CUdeviceptr,
    pitch: usize,
    value: c_uint,
    width: usize,
    height: usize,
) -> Answer {
    fill_now(world, at, |world| {
        let stream = core::ptr::null_mut();
        fill_plane_32(world, at, pitch, value, width, height, stream)
    })
}
