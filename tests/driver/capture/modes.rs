//! Which calls invalidate a capture, by the mode of the capture and by the calling thread, as
//! measured on an H200 (driver 580).

use crate::call::raw::succeeds;
use crate::common::{self, child};
use crate::module::kernels::VECTOR;
use cuda_safe::capture::CaptureMode;
use cuda_safe::sys::{
    self, CUevent, CUmodule, CUresult, CUstream, CUstreamCaptureMode as Mode,
    CUstreamCaptureStatus as Status,
};
use cuda_safe::{Context, ContextFlags, CudaVersion, Event, Stream};
use std::ffi::{CString, c_void};
use std::ptr::null_mut;

/// A call that is made while a stream is captured.
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
    Instantiate,
}

use Call::*;

/// The calls, each with whether it was also measured on the capturing thread.
const CALLS: [(Call, bool); 16] = [
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
    (Instantiate, true),
];

/// Returns whether the call is refused and invalidates the capture. `relaxed` says whether the
/// calling thread is in relaxed mode.
fn breaks(call: Call, mode: Mode, same_thread: bool, relaxed: bool) -> bool {
    match call {
        LoadModule | DestroyStream | DestroyEvent | CreateStream | CopyBack => false,
        SynchronizeContext => true,
        _ if relaxed => false,
        _ => match mode {
            Mode::CU_STREAM_CAPTURE_MODE_GLOBAL => true,
            Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL => same_thread,
            _ => false,
        },
    }
}

/// The objects that the calls use and create.
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

// SAFETY: these are handles and addresses of the driver, which any thread may use.
unsafe impl Send for Things {}

impl Things {
    fn new(context: &Context) -> Self {
        let other = context.stream().expect("a stream");
        let event = context.event().expect("an event");
        event.record(&other).expect("a record");
        other.synchronize().expect("a wait");
        let mut memory = 0;
        let current = context.make_current().expect("current");
        // SAFETY: the pointer refers to a local variable.
        succeeds(unsafe { sys::cuMemAlloc_v2(&raw mut memory, 64) });
        // SAFETY: the memory has 64 bytes.
        succeeds(unsafe { sys::cuMemsetD8_v2(memory, 0, 64) });
        let (mut host, mut module, mut stream, mut mark) =
            (null_mut(), null_mut(), null_mut(), null_mut());
        // SAFETY: as above.
        succeeds(unsafe { sys::cuMemHostAlloc(&raw mut host, 64, 0) });
        let text = CString::new(VECTOR).expect("no NUL");
        // SAFETY: as above, and the text ends with a NUL.
        succeeds(unsafe { sys::cuModuleLoadData(&raw mut module, text.as_ptr().cast()) });
        // SAFETY: as above.
        succeeds(unsafe { sys::cuStreamCreate(&raw mut stream, 1) });
        // SAFETY: as above.
        succeeds(unsafe { sys::cuEventCreate(&raw mut mark, 2) });
        let mut ordered = 0;
        // SAFETY: as above.
        succeeds(unsafe { sys::cuMemAllocAsync(&raw mut ordered, 64, other.as_raw()) });
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
            // SAFETY: the function has no arguments.
            SynchronizeContext => unsafe { sys::cuCtxSynchronize() },
            // SAFETY: the stream is alive.
            SynchronizeOtherStream => unsafe { sys::cuStreamSynchronize(self.other.as_raw()) },
            // SAFETY: the event is alive.
            QueryEvent => unsafe { sys::cuEventQuery(self.event.as_raw()) },
            // SAFETY: the pointer refers to a field of this value.
            Allocate => unsafe { sys::cuMemAlloc_v2(&raw mut self.made, 64) },
            Free => {
                // SAFETY: the memory belongs to this value, which forgets it if the call succeeds.
                let code = unsafe { sys::cuMemFree_v2(self.memory) };
                if code.is_success() {
                    self.memory = 0;
                }
                code
            }
            AllocatePinned => {
                let mut host = null_mut();
                // SAFETY: the pointer refers to a local variable. (The memory leaks until the
                // process exits soon.)
                unsafe { sys::cuMemHostAlloc(&raw mut host, 64, 0) }
            }
            LoadModule => {
                let (mut module, text) = (null_mut(), text.as_ptr().cast());
                // SAFETY: the pointer refers to a local variable, and the text ends with a NUL.
                unsafe { sys::cuModuleLoadData(&raw mut module, text) }
            }
            // SAFETY: this handle and the following ones belong to this value, and each is
            // destroyed once.
            FreePinned => unsafe { sys::cuMemFreeHost(self.host) },
            // SAFETY: as above.
            DestroyStream => unsafe { sys::cuStreamDestroy_v2(self.stream) },
            // SAFETY: as above.
            DestroyEvent => unsafe { sys::cuEventDestroy_v2(self.mark) },
            // SAFETY: as above, and none of its kernels is running.
            UnloadModule => unsafe { sys::cuModuleUnload(self.module) },
            // SAFETY: the pointer refers to a field of this value, and the stream is alive.
            AllocateInOrder => unsafe {
                sys::cuMemAllocAsync(&raw mut self.made, 64, self.other.as_raw())
            },
            // SAFETY: as above.
            FreeInOrder => unsafe { sys::cuMemFreeAsync(self.ordered, self.other.as_raw()) },
            CreateStream => {
                let mut stream = null_mut();
                // SAFETY: the pointer refers to a local variable.
                unsafe { sys::cuStreamCreate(&raw mut stream, 1) }
            }
            CopyBack => {
                let mut bytes = [0u8; 64];
                // SAFETY: both sides have 64 bytes.
                unsafe { sys::cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), self.memory, 64) }
            }
            Instantiate => {
                let (mut graph, mut executable) = (null_mut(), null_mut());
                // SAFETY: the pointer refers to a local variable. (The objects leak until the process exits soon.)
                succeeds(unsafe { sys::cuGraphCreate(&raw mut graph, 0) });
                let mut params = sys::CUDA_GRAPH_INSTANTIATE_PARAMS::default();
                let (place, params) = (&raw mut executable, &raw mut params);
                // SAFETY: as above, and the graph is alive.
                unsafe { sys::cuGraphInstantiateWithParams(place, graph, params) }
            }
        }
    }
}

fn begin(stream: CUstream, mode: Mode) {
    // SAFETY: the stream is alive.
    succeeds(unsafe { sys::cuStreamBeginCapture_v2(stream, mode) });
}

/// Ends a capture. Returns the status it had and the code of `cuStreamEndCapture`.
fn end(stream: CUstream) -> (Status, CUresult) {
    let mut status = Status::default();
    // SAFETY: the stream is alive, and the pointer refers to a local variable.
    succeeds(unsafe { sys::cuStreamIsCapturing(stream, &raw mut status) });
    let mut graph = null_mut();
    // SAFETY: as above.
    let code = unsafe { sys::cuStreamEndCapture(stream, &raw mut graph) };
    if !graph.is_null() {
        // SAFETY: this function owns the graph.
        succeeds(unsafe { sys::cuGraphDestroy(graph) });
    }
    (status, code)
}

mod provoked {
    use super::*;

    #[test]
    fn calls_invalidate_captures_by_their_mode_and_thread() {
        child::with_context(|context| {
            let modes = [
                Mode::CU_STREAM_CAPTURE_MODE_GLOBAL,
                Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                Mode::CU_STREAM_CAPTURE_MODE_RELAXED,
            ];
            // cuGraphInstantiateWithParams needs CUDA 12.0.
            let instantiates = cuda_safe::version().expect("a driver") >= CudaVersion::new(12, 0);
            let calls = CALLS.iter().filter(|(call, _)| instantiates || *call != Instantiate);
            let mut wrong = Vec::new();
            for mode in modes {
                for &(call, is_known_there) in calls.clone() {
                    let cases = [(true, false), (false, false), (true, true), (false, true)];
                    for (same_thread, relaxed) in cases {
                        if same_thread && !is_known_there {
                            continue;
                        }
                        let stream = context.stream().expect("a stream");
                        let mut things = Things::new(&context);
                        let mut make = move || match relaxed {
                            true => CaptureMode::Relaxed.with(|| things.make(call)),
                            false => Ok(things.make(call)),
                        };
                        begin(stream.as_raw(), mode);
                        let code = if same_thread {
                            make()
                        } else {
                            std::thread::scope(|scope| scope.spawn(make).join().expect("no panic"))
                        };
                        let code = code.expect("the mode can be changed");
                        let seen = (code, end(stream.as_raw()));
                        let broken = breaks(call, mode, same_thread, relaxed);
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
                                "{call:?}, {mode:?}, same thread {same_thread}, relaxed {relaxed}: \
                                 {seen:?}"
                            ));
                        }
                    }
                }
            }
            assert!(wrong.is_empty(), "{wrong:#?}");
        });
    }

    /// Makes a call while a stream is captured. Returns the code of the call and the status of the
    /// capture afterwards.
    fn beside_a_capture(captured: &Stream, call: impl FnOnce() -> CUresult) -> (CUresult, Status) {
        begin(captured.as_raw(), Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
        let code = CaptureMode::Relaxed.with(call).expect("the mode can be changed");
        (code, end(captured.as_raw()).0)
    }

    const KEPT: (CUresult, Status) =
        (CUresult::CUDA_SUCCESS, Status::CU_STREAM_CAPTURE_STATUS_ACTIVE);
    const BROKEN: (CUresult, Status) = (
        CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
        Status::CU_STREAM_CAPTURE_STATUS_INVALIDATED,
    );

    #[test]
    fn context_records_and_waits_invalidate_captures_of_the_contexts_streams() {
        child::with_context_since(12, 5, |context| {
            let other = Context::new(&context.device(), ContextFlags::empty()).expect("a context");
            let (event, others) = (context.event(), other.event());
            let (event, others) = (event.expect("an event"), others.expect("an event"));
            let stream = context.stream().expect("a stream");
            let (its, raw) = (context.as_raw(), event.as_raw());
            let (elsewhere, raw_elsewhere) = (other.as_raw(), others.as_raw());
            // SAFETY: the contexts and the events stay alive during all of these calls.
            let record = || unsafe { sys::cuCtxRecordEvent(its, raw) };
            // SAFETY: as above.
            let wait = || unsafe { sys::cuCtxWaitEvent(its, raw) };
            // SAFETY: as above.
            let record_elsewhere = || unsafe { sys::cuCtxRecordEvent(elsewhere, raw_elsewhere) };
            // SAFETY: as above.
            let wait_elsewhere = || unsafe { sys::cuCtxWaitEvent(elsewhere, raw_elsewhere) };
            assert_eq!(beside_a_capture(&stream, record), BROKEN);
            assert_eq!(beside_a_capture(&stream, wait), BROKEN);
            assert_eq!(beside_a_capture(&stream, record_elsewhere), KEPT);
            assert_eq!(beside_a_capture(&stream, wait_elsewhere), KEPT);
        });
    }

    #[test]
    fn a_context_wait_for_a_captured_event_joins_no_stream_to_the_capture() {
        child::with_context_since(12, 5, |context| {
            let other = Context::new(&context.device(), ContextFlags::empty()).expect("a context");
            let (stream, beside) = (context.stream(), other.stream());
            let (stream, beside) = (stream.expect("a stream"), beside.expect("a stream"));
            let event = context.event().expect("an event");
            let (its, raw) = (other.as_raw(), event.as_raw());
            let seen = beside_a_capture(&stream, || {
                // SAFETY: the event and the stream are alive.
                succeeds(unsafe { sys::cuEventRecord(raw, stream.as_raw()) });
                // SAFETY: the context and the event are alive.
                let code = unsafe { sys::cuCtxWaitEvent(its, raw) };
                let mut status = Status::default();
                // SAFETY: the stream is alive, and the pointer refers to a local variable.
                succeeds(unsafe { sys::cuStreamIsCapturing(beside.as_raw(), &raw mut status) });
                assert_eq!(status, Status::CU_STREAM_CAPTURE_STATUS_NONE);
                code
            });
            assert_eq!(seen, (CUresult::CUDA_ERROR_CAPTURED_EVENT, BROKEN.1));
        });
    }

    #[test]
    fn a_copy_between_contexts_cannot_be_captured() {
        child::with_context(|context| {
            let other = Context::new(&context.device(), ContextFlags::empty()).expect("a context");
            let stream = context.stream().expect("a stream");
            let allocate = |context: &Context| {
                let mut address = 0;
                let _current = context.make_current().expect("current");
                // SAFETY: the pointer refers to a local variable.
                succeeds(unsafe { sys::cuMemAlloc_v2(&raw mut address, 64) });
                address
            };
            let (to, from) = (allocate(&context), allocate(&other));
            let (its, others) = (context.as_raw(), other.as_raw());
            // SAFETY: both sides have 64 bytes in their contexts. (The memory leaks until the
            // process exits soon.)
            let copy =
                || unsafe { sys::cuMemcpyPeerAsync(to, its, from, others, 64, stream.as_raw()) };
            assert_eq!(beside_a_capture(&stream, copy), BROKEN);
        });
    }

    #[test]
    fn an_event_belongs_to_the_capture_that_recorded_it_last() {
        child::with_context(|context| {
            let [first, second, waiting] = common::streams(&context);
            let event = context.event().expect("an event");
            begin(first.as_raw(), Mode::CU_STREAM_CAPTURE_MODE_RELAXED);
            begin(second.as_raw(), Mode::CU_STREAM_CAPTURE_MODE_RELAXED);
            for stream in [&first, &second] {
                // SAFETY: the event and the stream are alive.
                succeeds(unsafe { sys::cuEventRecord(event.as_raw(), stream.as_raw()) });
            }
            // SAFETY: as above.
            succeeds(unsafe { sys::cuStreamWaitEvent(waiting.as_raw(), event.as_raw(), 0) });
            let ids = [&waiting, &second].map(|stream| stream.capture_id().expect("a number"));
            assert_eq!(ids[0], ids[1]);
            // A record outside of all captures makes the event belong to no capture.
            let [outside, free] = common::streams(&context);
            // SAFETY: as above.
            succeeds(unsafe { sys::cuEventRecord(event.as_raw(), outside.as_raw()) });
            // SAFETY: as above.
            succeeds(unsafe { sys::cuStreamWaitEvent(free.as_raw(), event.as_raw(), 0) });
            assert_eq!(free.capture_id().expect("an answer"), None);
            let _ = end(first.as_raw());
            let _ = end(second.as_raw());
        });
    }
}
