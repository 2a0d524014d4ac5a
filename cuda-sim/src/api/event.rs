//! Creates, destroys, records and queries events.

use crate::api::prelude::*;
use crate::exec::Work;
use crate::state::handles::State;
use crate::state::objects::Event;
use cuda_sys::{CUevent_flags, CUevent_record_flags};

pub(super) fn create(world: &mut World, flags: c_uint) -> Answer<CUevent> {
    let known = CUevent_flags::CU_EVENT_BLOCKING_SYNC
        | CUevent_flags::CU_EVENT_DISABLE_TIMING
        | CUevent_flags::CU_EVENT_INTERPROCESS;
    let interprocess = flags & CUevent_flags::CU_EVENT_INTERPROCESS.0 != 0;
    let timing = flags & CUevent_flags::CU_EVENT_DISABLE_TIMING.0 == 0;
    fail_if(flags & !known.0 != 0 || (interprocess && timing), INVALID)?;
    let context = world.current()?;
    let context = world.owner_of(context)?;
    let handle = world.add_event(Event {
        context,
        timing,
        interprocess,
        captured: None,
        recorded: None,
        time: None,
    });
    Ok(pointer(handle))
}

pub(super) fn destroy(world: &mut World, event: CUevent) -> Answer {
    match world.objects.events.state(event.addr()) {
        State::Alive => {
            world.remove_event(event.addr());
            Ok(())
        }
        State::Dead => {
            misuse("an event is destroyed twice, or after its context");
            Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED)
        }
        State::Unknown => Err(CUresult::CUDA_ERROR_INVALID_HANDLE),
    }
}

pub(super) fn record(world: &mut World, event: CUevent, stream: CUstream) -> Answer {
    record_with_flags(world, event, stream, 0)
}

pub(super) fn record_with_flags(
    world: &mut World,
    event: CUevent,
    stream: CUstream,
    flags: c_uint,
) -> Answer {
    let stream = world.stream(stream.addr())?;
    let external = match CUevent_record_flags(flags) {
        CUevent_record_flags::CU_EVENT_RECORD_DEFAULT => false,
        CUevent_record_flags::CU_EVENT_RECORD_EXTERNAL => true,
        _ => return Err(INVALID),
    };
    world.recording(stream)?;
    let context = world.event(event.addr())?.context;
    let home = world.objects.streams.get(stream);
    // Measured: a node of a graph records an event of another device.
    let is_node = external && home.is_some_and(|its| its.capture.is_some());
    fail_if(external && !is_node, CUresult::CUDA_ERROR_ILLEGAL_STATE)?;
    if home.map(|its| its.context) != Some(context) && !is_node {
        return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
    let work = Work::Record { event: event.addr() };
    if world.recording(stream)?.is_some() {
        if external {
            return world.give_or_capture(stream, work);
        }
        let branch = world.objects.streams.get(stream).and_then(|its| its.capture.clone());
        if let Some(event) = world.objects.events.get_mut(event.addr()) {
            event.captured = branch;
        }
        return Ok(());
    }
    let operation = world.give(stream, work, Vec::new());
    if let Some(event) = world.objects.events.get_mut(event.addr()) {
        event.captured = None;
        event.recorded = Some(operation);
        event.time = None;
    }
    Ok(())
}

pub(super) fn synchronize(world: &mut World, event: CUevent) -> Answer {
    world.wait_for(|world| {
        world.forbidden_on_captured(event.addr())?;
        let recorded = world.event(event.addr())?.recorded;
        world.forbidden_in_capture()?;
        Ok(recorded)
    })
}

pub(super) fn query(world: &mut World, event: CUevent) -> Answer {
    world.forbidden_on_captured(event.addr())?;
    let recorded = world.event(event.addr())?.recorded;
    world.forbidden_in_capture()?;
    let Some(operation) = recorded else {
        return Ok(());
    };
    if world.runs.executor.is_done(operation) {
        world.host_learns(operation);
        return Ok(());
    }
    world.poll()?;
    Err(CUresult::CUDA_ERROR_NOT_READY)
}

/// Returns the time between two events of one context. Time is not modeled: each operation takes one
/// millisecond. The rule about the context is from a test of `RustaCUDA`.
pub(super) fn elapsed(world: &mut World, start: CUevent, end: CUevent) -> Answer<f32> {
    if world.event(start.addr())?.context != world.event(end.addr())?.context {
        return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
    let mut recorded = [0; 2];
    for (recorded, event) in recorded.iter_mut().zip([start, end]) {
        world.not_captured(event.addr())?;
        let event = world.event(event.addr())?;
        let its = event.recorded.filter(|_| event.timing);
        *recorded = its.ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    }
    let mut times = [0; 2];
    for ((time, event), recorded) in times.iter_mut().zip([start, end]).zip(recorded) {
        *time = world.event(event.addr())?.time.ok_or(CUresult::CUDA_ERROR_NOT_READY)?;
        world.host_learns(recorded);
    }
    Ok(times[1] as f32 - times[0] as f32)
}
