//! What breaks a capture, by its mode and by the thread that calls: as an H200 (driver 580) has it.

use crate::kernels::VECTOR;
use cuda_safe::sys::CUstreamCaptureStatus as Status;
use cuda_safe::sys::{self, CUmodule, CUresult, CUstream, CUstreamCaptureMode as Mode};
use cuda_safe::{Context, Event, Stream};
use std::ffi::{CString, c_void};
use std::ptr::null_mut;

/// What is called while a stream is captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    SynchronizeContext,
    SynchronizeOtherStream,
    QueryEvent,
    Allocate,
    Free,
    AllocatePinned,
    LoadModule,
}

use Call::*;

const CALLS: [Call; 7] = [
    SynchronizeContext,
    SynchronizeOtherStream,
    QueryEvent,
    Allocate,
    Free,
    AllocatePinned,
    LoadModule,
];

/// Whether the call is refused, and breaks the capture.
fn breaks(call: Call, mode: Mode, same_thread: bool) -> bool {
    match call {
        LoadModule => false,
        SynchronizeContext => true,
        _ => match mode {
            Mode::CU_STREAM_CAPTURE_MODE_GLOBAL => true,
            Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL => same_thread,
            _ => false,
        },
    }
}

/// What the calls are made on, and what they make.
struct Things {
    context: Context,
    other: Stream,
    event: Event,
    memory: u64,
    made: u64,
    host: *mut c_void,
    module: CUmodule,
}

// SAFETY: handles and addresses of the driver, which any thread may use.
unsafe impl Send for Things {}

impl Things {
    fn new(context: &Context) -> Self {
        let other = context.stream().expect("a stream");
        let event = context.event().expect("an event");
        event.record(&other).expect("a record");
        other.synchronize().expect("a wait");
        let mut memory = 0;
        let current = context.make_current().expect("current");
        // SAFETY: the pointer is to a local.
        well(unsafe { sys::cuMemAlloc_v2(&raw mut memory, 64) });
        drop(current);
        Self {
            context: context.clone(),
            other,
            event,
            memory,
            made: 0,
            host: null_mut(),
            module: null_mut(),
        }
    }

    fn make(&mut self, call: Call) -> CUresult {
        let text = CString::new(VECTOR).expect("no NUL");
        let _current = self.context.make_current().expect("current");
        match call {
            // SAFETY: no arguments.
            SynchronizeContext => unsafe { sys::cuCtxSynchronize() },
            // SAFETY: the stream is alive.
            SynchronizeOtherStream => unsafe { sys::cuStreamSynchronize(self.other.as_raw()) },
            // SAFETY: the event is alive.
            QueryEvent => unsafe { sys::cuEventQuery(self.event.as_raw()) },
            // SAFETY: the pointer is to a place of this value.
            Allocate => unsafe { sys::cuMemAlloc_v2(&raw mut self.made, 64) },
            Free => {
                // SAFETY: it is this value's, which forgets it if this succeeds.
                let code = unsafe { sys::cuMemFree_v2(self.memory) };
                if code.is_success() {
                    self.memory = 0;
                }
                code
            }
            // SAFETY: the pointer is to a place of this value.
            AllocatePinned => unsafe { sys::cuMemHostAlloc(&raw mut self.host, 64, 0) },
            LoadModule => {
                let (place, text) = (&raw mut self.module, text.as_ptr().cast());
                // SAFETY: the pointer is to a place of this value, and the text ends with a NUL.
                unsafe { sys::cuModuleLoadData(place, text) }
            }
        }
    }
}

impl Drop for Things {
    fn drop(&mut self) {
        let _current = self.context.make_current().expect("current");
        for address in [self.memory, self.made] {
            if address != 0 {
                // SAFETY: it is this value's.
                well(unsafe { sys::cuMemFree_v2(address) });
            }
        }
        if !self.host.is_null() {
            // SAFETY: as above.
            well(unsafe { sys::cuMemFreeHost(self.host) });
        }
        if !self.module.is_null() {
            // SAFETY: as above; none of its kernels runs.
            well(unsafe { sys::cuModuleUnload(self.module) });
        }
    }
}

#[track_caller]
fn well(code: CUresult) {
    assert_eq!(code, CUresult::CUDA_SUCCESS);
}

fn begin(stream: CUstream, mode: Mode) {
    // SAFETY: the stream is alive.
    well(unsafe { sys::cuStreamBeginCapture_v2(stream, mode) });
}

/// Ends a capture: the status that it had, and the code of its end.
fn end(stream: CUstream) -> (Status, CUresult) {
    let mut status = Status::default();
    // SAFETY: the stream is alive, and the pointer is to a local.
    well(unsafe { sys::cuStreamIsCapturing(stream, &raw mut status) });
    let mut graph = null_mut();
    // SAFETY: as above.
    let code = unsafe { sys::cuStreamEndCapture(stream, &raw mut graph) };
    if !graph.is_null() {
        // SAFETY: the graph is this function's.
        well(unsafe { sys::cuGraphDestroy(graph) });
    }
    (status, code)
}

mod provoked {
    use super::*;
    use crate::common::{self, child};
    use crate::need;

    #[test]
    fn calls_break_captures_by_their_mode_and_thread() {
        need!(common::gpu());
        child::in_child(&[], || {
            let context = need!(common::context());
            let modes = [
                Mode::CU_STREAM_CAPTURE_MODE_GLOBAL,
                Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                Mode::CU_STREAM_CAPTURE_MODE_RELAXED,
            ];
            let mut wrong = Vec::new();
            for mode in modes {
                for call in CALLS {
                    for same_thread in [true, false] {
                        let stream = context.stream().expect("a stream");
                        let mut things = Things::new(&context);
                        begin(stream.as_raw(), mode);
                        let code = if same_thread {
                            things.make(call)
                        } else {
                            std::thread::scope(|scope| {
                                let things = &mut things;
                                let there = scope.spawn(move || things.make(call));
                                there.join().expect("no panic")
                            })
                        };
                        let seen = (code, end(stream.as_raw()));
                        let broken = breaks(call, mode, same_thread);
                        let expected = if broken {
                            let code = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
                            let end = CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
                            let status = Status::CU_STREAM_CAPTURE_STATUS_INVALIDATED;
                            (code, (status, end))
                        } else {
                            let status = Status::CU_STREAM_CAPTURE_STATUS_ACTIVE;
                            (CUresult::CUDA_SUCCESS, (status, CUresult::CUDA_SUCCESS))
                        };
                        if seen != expected {
                            wrong.push(format!(
                                "{call:?}, {mode:?}, same thread {same_thread}: {seen:?}"
                            ));
                        }
                    }
                }
            }
            assert!(wrong.is_empty(), "{wrong:#?}");
        });
    }
}
