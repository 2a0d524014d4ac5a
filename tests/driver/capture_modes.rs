//! What breaks a capture, by its mode and by the thread that calls: as an H200 (driver 580) has it.

use crate::kernels::VECTOR;
use cuda_safe::sys::CUstreamCaptureStatus as Status;
use cuda_safe::sys::{self, CUevent, CUmodule, CUresult, CUstream, CUstreamCaptureMode as Mode};
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
    FreePinned,
    DestroyStream,
    DestroyEvent,
    UnloadModule,
    AllocateInOrder,
    FreeInOrder,
    CreateStream,
    CopyBack,
}

use Call::*;

/// The calls, and whether they were measured on the capturing thread, too.
const CALLS: [(Call, bool); 15] = [
    (SynchronizeContext, true),
    (SynchronizeOtherStream, true),
    (QueryEvent, true),
    (Allocate, true),
    (Free, true),
    (AllocatePinned, true),
    (LoadModule, true),
    (FreePinned, true),
    (DestroyStream, true),
    (DestroyEvent, false),
    (UnloadModule, true),
    (AllocateInOrder, false),
    (FreeInOrder, false),
    (CreateStream, false),
    (CopyBack, false),
];

/// Whether the call is refused, and breaks the capture.
fn breaks(call: Call, mode: Mode, same_thread: bool) -> bool {
    match call {
        LoadModule | DestroyStream | DestroyEvent | CreateStream | CopyBack => false,
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
    ordered: u64,
    host: *mut c_void,
    module: CUmodule,
    stream: CUstream,
    mark: CUevent,
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
        let (mut host, mut module, mut stream, mut mark) =
            (null_mut(), null_mut(), null_mut(), null_mut());
        // SAFETY: as above.
        well(unsafe { sys::cuMemHostAlloc(&raw mut host, 64, 0) });
        let text = CString::new(VECTOR).expect("no NUL");
        // SAFETY: as above; the text ends with a NUL.
        well(unsafe { sys::cuModuleLoadData(&raw mut module, text.as_ptr().cast()) });
        // SAFETY: as above.
        well(unsafe { sys::cuStreamCreate(&raw mut stream, 1) });
        // SAFETY: as above.
        well(unsafe { sys::cuEventCreate(&raw mut mark, 2) });
        let mut ordered = 0;
        // SAFETY: as above.
        well(unsafe { sys::cuMemAllocAsync(&raw mut ordered, 64, other.as_raw()) });
        other.synchronize().expect("a wait");
        drop(current);
        Self {
            context: context.clone(),
            other,
            event,
            memory,
            made: 0,
            ordered,
            host,
            module,
            stream,
            mark,
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
            AllocatePinned => {
                let mut host = null_mut();
                // SAFETY: the pointer is to a local. (The process ends soon.)
                unsafe { sys::cuMemHostAlloc(&raw mut host, 64, 0) }
            }
            LoadModule => {
                let (mut module, text) = (null_mut(), text.as_ptr().cast());
                // SAFETY: the pointer is to a local, and the text ends with a NUL.
                unsafe { sys::cuModuleLoadData(&raw mut module, text) }
            }
            // SAFETY: this and what follows are this value's, and go once.
            FreePinned => unsafe { sys::cuMemFreeHost(self.host) },
            // SAFETY: as above.
            DestroyStream => unsafe { sys::cuStreamDestroy_v2(self.stream) },
            // SAFETY: as above.
            DestroyEvent => unsafe { sys::cuEventDestroy_v2(self.mark) },
            // SAFETY: as above; none of its kernels runs.
            UnloadModule => unsafe { sys::cuModuleUnload(self.module) },
            // SAFETY: the pointer is to a place of this value, and the stream is alive.
            AllocateInOrder => unsafe {
                sys::cuMemAllocAsync(&raw mut self.made, 64, self.other.as_raw())
            },
            // SAFETY: as above.
            FreeInOrder => unsafe { sys::cuMemFreeAsync(self.ordered, self.other.as_raw()) },
            CreateStream => {
                let mut stream = null_mut();
                // SAFETY: the pointer is to a local.
                unsafe { sys::cuStreamCreate(&raw mut stream, 1) }
            }
            CopyBack => {
                let mut bytes = [0u8; 64];
                // SAFETY: both have 64 bytes.
                unsafe { sys::cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), self.memory, 64) }
            }
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
                for (call, is_known_there) in CALLS {
                    for same_thread in [true, false] {
                        if same_thread && !is_known_there {
                            continue;
                        }
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
