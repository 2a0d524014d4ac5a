//! Streams and their capture.

use super::Out;
use super::context::pointer;
use crate::account::mistake;
use crate::exec::Work;
use crate::handles::State;
use crate::objects::{Capture, Stream};
use crate::thread;
use crate::world::{Answer, World};
use core::ffi::{c_int, c_uint, c_ulonglong};
use cuda_sys::{
    CUevent, CUgraph, CUresult, CUstream, CUstream_flags, CUstreamCaptureMode as Mode,
    CUstreamCaptureStatus as Status,
};

/// An H200 has priorities 0 to -5.
pub(super) const HIGHEST_PRIORITY: i32 = -5;

impl World {
    pub(super) fn make_stream(
        &mut self,
        context: usize,
        green: Option<usize>,
        flags: u32,
        priority: i32,
    ) -> Answer<CUstream> {
        if flags & !CUstream_flags::CU_STREAM_NON_BLOCKING.0 != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let id = self.new_id();
        let handle = self.streams.insert(Stream {
            context,
            green,
            id,
            blocking: flags == CUstream_flags::CU_STREAM_DEFAULT.0,
            priority: priority.clamp(HIGHEST_PRIORITY, 0),
            last: None,
            capture: None,
        });
        Ok(pointer(handle))
    }

    /// A call that captures in a stricter mode forbid: it breaks them, and is refused.
    pub(super) fn forbidden_in_capture(&mut self) -> Answer {
        let here = crate::thread::id();
        if thread::mode() == Mode::CU_STREAM_CAPTURE_MODE_RELAXED {
            return Ok(());
        }
        let mut broken = false;
        for (_, stream) in self.streams.iter_mut() {
            let Some(capture) = &mut stream.capture else {
                continue;
            };
            let concerned = match capture.mode {
                Mode::CU_STREAM_CAPTURE_MODE_GLOBAL => true,
                Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL => capture.thread == here,
                _ => false,
            };
            if concerned {
                capture.status = Status::CU_STREAM_CAPTURE_STATUS_INVALIDATED;
                broken = true;
            }
        }
        if broken {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        Ok(())
    }

    /// A wait or a question on a stream that is being recorded breaks the recording.
    fn forbidden_on_capturing(&mut self, stream: usize) -> Answer {
        let its = self.streams.get_mut(stream);
        let Some(capture) = its.and_then(|its| its.capture.as_mut()) else {
            return Ok(());
        };
        capture.status = Status::CU_STREAM_CAPTURE_STATUS_INVALIDATED;
        Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    }

    /// Whether work given to a stream is recorded instead of run; counts it.
    pub(super) fn captured(&mut self, stream: usize) -> Answer<bool> {
        let its = self.streams.get_mut(stream);
        match its.and_then(|its| its.capture.as_mut()) {
            None => Ok(false),
            Some(capture) if capture.status != Status::CU_STREAM_CAPTURE_STATUS_ACTIVE => {
                Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
            }
            Some(capture) => {
                capture.nodes += 1;
                Ok(true)
            }
        }
    }

    /// Gives work to a stream, or to the graph that is made of it.
    pub(super) fn give_or_capture(&mut self, stream: usize, work: Work) -> Answer {
        if !self.captured(stream)? {
            self.give(stream, work, Vec::new());
        }
        Ok(())
    }
}

pub(super) fn create(world: &mut World, stream: &mut Out<CUstream>, flags: c_uint) -> Answer {
    create_with_priority(world, stream, flags, 0)
}

pub(super) fn create_with_priority(
    world: &mut World,
    stream: &mut Out<CUstream>,
    flags: c_uint,
    priority: c_int,
) -> Answer {
    stream.required()?;
    let current = world.current()?;
    // A stream made while a green context's view is current is that green context's.
    let green = match world.context(current)?.kind {
        crate::objects::ContextKind::View(green) => Some(green),
        _ => None,
    };
    let owner = world.owner_of(current)?;
    let made = world.make_stream(owner, green, flags, priority)?;
    stream.set(made);
    Ok(())
}

pub(super) fn destroy(world: &mut World, stream: CUstream) -> Answer {
    let handle = stream.addr();
    match world.streams.state(handle) {
        State::Alive => {}
        State::Dead => {
            mistake("a stream is destroyed twice, or after its context");
            return Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED);
        }
        State::Unknown => return Err(CUresult::CUDA_ERROR_INVALID_HANDLE),
    }
    // Its work goes on without it: the executor still has the queue.
    world.streams.remove(handle);
    Ok(())
}

pub(super) fn synchronize(world: &mut World, stream: CUstream) -> Answer {
    world.wait_for(|world| {
        let stream = world.stream(stream.addr())?;
        world.forbidden_on_capturing(stream)?;
        world.forbidden_in_capture()?;
        Ok(world.executor.last(stream))
    })
}

pub(super) fn query(world: &mut World, stream: CUstream) -> Answer {
    let stream = world.stream(stream.addr())?;
    world.forbidden_on_capturing(stream)?;
    if world.executor.is_idle(stream) {
        return Ok(());
    }
    // Asking again and again has to end: each question runs something.
    world.step()?;
    Err(CUresult::CUDA_ERROR_NOT_READY)
}

pub(super) fn wait_event(
    world: &mut World,
    stream: CUstream,
    event: CUevent,
    _flags: c_uint,
) -> Answer {
    let stream = world.stream(stream.addr())?;
    let after = world.event(event.addr())?.recorded;
    if world.captured(stream)? {
        return Ok(());
    }
    world.give(stream, Work::Nothing, after.into_iter().collect());
    Ok(())
}

pub(super) fn priority(world: &mut World, stream: CUstream, priority: &mut Out<c_int>) -> Answer {
    priority.required()?;
    let stream = world.stream(stream.addr())?;
    priority.set(world.streams.get(stream).map_or(0, |its| its.priority));
    Ok(())
}

pub(super) fn id(world: &mut World, stream: CUstream, id: &mut Out<c_ulonglong>) -> Answer {
    id.required()?;
    let stream = world.stream(stream.addr())?;
    id.set(world.streams.get(stream).map_or(0, |its| its.id));
    Ok(())
}

pub(super) fn is_capturing(
    world: &mut World,
    stream: CUstream,
    status: &mut Out<Status>,
) -> Answer {
    status.required()?;
    let stream = world.stream(stream.addr())?;
    let capture = world
        .streams
        .get(stream)
        .and_then(|its| its.capture.as_ref());
    status.set(capture.map_or(Status::CU_STREAM_CAPTURE_STATUS_NONE, |its| its.status));
    Ok(())
}

pub(super) fn begin_capture(world: &mut World, stream: CUstream, mode: Mode) -> Answer {
    // The default streams cannot be recorded.
    if stream.addr() <= cuda_sys::CU_STREAM_PER_THREAD.addr() {
        return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    let stream = world.stream(stream.addr())?;
    let its = world.streams.get_mut(stream);
    let its = its.ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    if its.capture.is_some() {
        return Err(CUresult::CUDA_ERROR_ILLEGAL_STATE);
    }
    its.capture = Some(Capture {
        mode,
        thread: crate::thread::id(),
        status: Status::CU_STREAM_CAPTURE_STATUS_ACTIVE,
        nodes: 0,
    });
    Ok(())
}

pub(super) fn end_capture(world: &mut World, stream: CUstream, graph: &mut Out<CUgraph>) -> Answer {
    graph.required()?;
    let stream = world.stream(stream.addr())?;
    let its = world.streams.get_mut(stream);
    let capture = its.and_then(|its| its.capture.take());
    let capture = capture.ok_or(CUresult::CUDA_ERROR_ILLEGAL_STATE)?;
    if capture.status != Status::CU_STREAM_CAPTURE_STATUS_ACTIVE {
        graph.set(core::ptr::null_mut());
        return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    graph.set(pointer(world.graphs.insert(capture.nodes)));
    Ok(())
}

pub(super) fn destroy_graph(world: &mut World, graph: CUgraph) -> Answer {
    match world.graphs.remove(graph.addr()) {
        Some(_) => Ok(()),
        None => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

pub(super) fn exchange_mode(_: &mut World, mode: &mut Option<&mut Mode>) -> Answer {
    let mode = mode.as_mut().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    **mode = thread::exchange_mode(**mode);
    Ok(())
}
