//! Fills of 1-D and 2-D memory with a value of type `T`. A fill of no bytes does nothing, whatever its address is
//! (measured).

use crate::api::memory::{call_waits, check_given_on};
use crate::api::prelude::*;
use crate::exec::Work;
use crate::memory::Use;
use crate::state::graph::fill::FillNode;
use crate::state::graph::node::Kind;

/// Returns the size of a row of `count` values. Fails if it is too large, or if the address is not aligned to the
/// values.
fn row<T>(at: CUdeviceptr, count: usize) -> Answer<usize> {
    let size = size_of::<T>().checked_mul(count);
    let is_aligned = at % size_of::<T>() as u64 == 0;
    size.filter(|_| is_aligned).ok_or(INVALID)
}

pub(crate) fn fill<T: Into<u32>>(
    world: &mut World,
    at: CUdeviceptr,
    value: T,
    count: usize,
    stream: CUstream,
) -> Answer {
    let stream = world.stream(stream.addr())?;
    let capture = world.recording(stream)?;
    if count == 0 {
        return Ok(());
    }
    let size = row::<T>(at, count)?;
    // Measured: a capture checks only the address.
    let checked = if capture.is_some() { 1 } else { size };
    check_given_on(world, stream, at, checked, Use::Write)?;
    let pattern = value.into().to_le_bytes()[..size_of::<T>()].to_vec();
    world.give_or_capture(stream, Work::Fill { at, pattern, count })
}

pub(crate) fn fill_plane<T: Into<u32>>(
    world: &mut World,
    at: CUdeviceptr,
    pitch: usize,
    value: T,
    width: usize,
    height: usize,
    stream: CUstream,
) -> Answer {
    let stream = world.stream(stream.addr())?;
    world.recording(stream)?;
    if width == 0 || height == 0 {
        return Ok(());
    }
    let size = row::<T>(at, width)?;
    fail_if(height > 1 && pitch < size, INVALID)?;
    let node = FillNode {
        at,
        pitch,
        value: value.into(),
        element: size_of::<T>(),
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

/// Enqueues a fill in the order of the default stream. The call does not wait for device memory.
fn now(
    world: &mut World,
    at: CUdeviceptr,
    enqueue: impl FnOnce(&mut World, CUstream) -> Answer,
) -> Answer {
    let stream = world.stream(0)?;
    world.wait_for(|world| {
        let waits = call_waits(world, stream, &[at]);
        enqueue(world, core::ptr::null_mut())?;
        Ok(waits.then(|| world.last_to_wait_for(stream)).flatten())
    })
}

pub(crate) fn fill_now<T: Into<u32>>(
    world: &mut World,
    at: CUdeviceptr,
    value: T,
    count: usize,
) -> Answer {
    now(world, at, |world, stream| fill(world, at, value, count, stream))
}

pub(crate) fn fill_plane_now<T: Into<u32>>(
    world: &mut World,
    at: CUdeviceptr,
    pitch: usize,
    value: T,
    width: usize,
    height: usize,
) -> Answer {
    now(world, at, |world, stream| fill_plane(world, at, pitch, value, width, height, stream))
}
