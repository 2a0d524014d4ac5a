//! Streams.

pub(crate) mod attributes;
pub(crate) mod memory_op;

use crate::api::prelude::*;
use crate::exec::Work;
use crate::state::handles::State;
use crate::state::objects::Stream;
use cuda_sys::{CUevent_wait_flags, CUstream_flags};

/// The priorities of an H200 are 0 to -5.
pub(crate) const HIGHEST_PRIORITY: i32 = -5;

fn check_flags(flags: u32) -> Answer {
    fail_if(flags & !CUstream_flags::CU_STREAM_NON_BLOCKING.0 != 0, INVALID)
}

impl World {
    pub(crate) fn make_stream(
        &mut self,
        context: usize,
        green: Option<usize>,
        flags: u32,
        priority: i32,
    ) -> Answer<CUstream> {
        check_flags(flags)?;
        let id = self.new_id();
        let handle = self.add_stream(Stream {
            blocking: flags == CUstream_flags::CU_STREAM_DEFAULT.0,
            priority: priority.clamp(HIGHEST_PRIORITY, 0),
            ..Stream::new(context, green, id)
        });
        Ok(pointer(handle))
    }
}

pub(crate) fn create(world: &mut World, stream: Out<CUstream>, flags: c_uint) -> Answer {
    create_with_priority(world, stream, flags, 0)
}

pub(crate) fn create_with_priority(
    world: &mut World,
    stream: Out<CUstream>,
    flags: c_uint,
    priority: c_int,
) -> Answer {
    stream.required()?;
    check_flags(flags)?;
    let current = world.current()?;
    // A stream that is created while the view of a green context is current belongs to the green
    // context.
    let green = match world.context(current)?.kind {
        crate::state::objects::ContextKind::View(green) => Some(green),
        _ => None,
    };
    let owner = world.owner_of(current)?;
    let made = world.make_stream(owner, green, flags, priority)?;
    stream.put(made)
}

pub(crate) fn destroy(world: &mut World, stream: CUstream) -> Answer {
    let handle = stream.addr();
    match world.objects.streams.state(handle) {
        State::Alive => {}
        State::Dead => {
            misuse("a stream is destroyed twice, or after its context");
            return Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED);
        }
        State::Unknown => return Err(CUresult::CUDA_ERROR_INVALID_HANDLE),
    }
    // The stream's work continues: the executor still has the queue.
    world.remove_stream(handle);
    Ok(())
}

pub(crate) fn synchronize(world: &mut World, stream: CUstream) -> Answer {
    world.wait_for(|world| {
        let stream = world.stream(stream.addr())?;
        world.forbidden_on_capturing(stream)?;
        world.forbidden_in_capture()?;
        Ok(world.last_to_wait_for(stream))
    })
}

pub(crate) fn query(world: &mut World, stream: CUstream) -> Answer {
    let stream = world.stream(stream.addr())?;
    world.forbidden_on_capturing(stream)?;
    world.forbidden_in_capture()?;
    if world.runs.executor.is_idle(stream) {
        world.host_learns_idle(stream);
        return Ok(());
    }
    // A polling loop must end, so each query runs one operation.
    world.poll()?;
    Err(CUresult::CUDA_ERROR_NOT_READY)
}

pub(crate) fn wait_event(
    world: &mut World,
    stream: CUstream,
    event: CUevent,
    flags: c_uint,
) -> Answer {
    // Measured: a capture that forbids the call takes precedence over wrong flags.
    let stream = world.stream(stream.addr())?;
    let recording = world.recording(stream)?;
    let external = match CUevent_wait_flags(flags) {
        CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT => false,
        CUevent_wait_flags::CU_EVENT_WAIT_EXTERNAL => true,
        _ => return Err(INVALID),
    };
    if event.is_null() {
        recording.into_iter().for_each(|capture| world.break_capture(capture));
        return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
    let its = world.event(event.addr())?;
    let (captured, recorded) = (its.captured.clone(), its.recorded);
    match (external, recording) {
        (true, None) => return Err(CUresult::CUDA_ERROR_ILLEGAL_STATE),
        (true, Some(_)) if !captured.as_ref().is_some_and(|its| world.is_over(its)) => {
            let event = event.addr();
            return world.give_or_capture(stream, Work::WaitFor { event });
        }
        _ => {}
    }
    if let Some(captured) = captured {
        let joined = world.join_capture(stream, &captured);
        if joined.is_err() {
            recording.into_iter().for_each(|capture| world.break_capture(capture));
        }
        return joined;
    }
    if let Some(recording) = recording {
        if recorded.is_none() {
            return Ok(());
        }
        // The graph would depend on work outside of it.
        world.break_capture(recording);
        return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    }
    world.give(stream, Work::Nothing, recorded.into_iter().collect());
    Ok(())
}

pub(crate) fn priority(world: &mut World, stream: CUstream) -> Answer<c_int> {
    let stream = world.stream(stream.addr())?;
    world.recording(stream)?;
    Ok(world.objects.streams.get(stream).map_or(0, |its| its.priority))
}

pub(crate) fn id(world: &mut World, stream: CUstream) -> Answer<c_ulonglong> {
    let stream = world.stream(stream.addr())?;
    // Measured: this invalidates the capture of the stream, as a wait does.
    world.forbidden_on_capturing(stream)?;
    Ok(world.objects.streams.get(stream).map_or(0, |its| its.id))
}
