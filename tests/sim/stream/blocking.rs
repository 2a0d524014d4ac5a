//! Which calls block while another thread is inside a waiting call, as measured on an H200. No test
//! measures time: a host function runs until the test lets it return.

use crate::prelude::*;
use crate::software::misuses::succeeds;
use crate::stream::callbacks::{launch, with_misuse};
use CUstreamCaptureMode as Mode;
use cuda_sim::blocked;

const VECTOR: &str = concat!(include_str!("../../kernels/vector.ptx"), "\0");
const SUCCESS: CUresult = CUresult::CUDA_SUCCESS;

/// The objects of the calls. The handles are stored as numbers, so that threads can share them.
struct Objects {
    context: usize,
    /// The stream with the host function, which is nonblocking.
    busy: usize,
    other: usize,
    event: usize,
    function: usize,
    graph: usize,
    executable: usize,
    device: u64,
    pinned: usize,
}

fn stream(number: usize) -> CUstream {
    with_exposed_provenance_mut(number)
}

fn host(number: usize) -> *mut c_void {
    with_exposed_provenance_mut(number)
}

fn event(number: usize) -> CUevent {
    with_exposed_provenance_mut(number)
}

fn executable(number: usize) -> CUgraphExec {
    with_exposed_provenance_mut(number)
}

fn module() -> CUmodule {
    let mut module = null_mut();
    // SAFETY: the text ends with a NUL, and the pointer refers to a local variable.
    succeeds(unsafe { cuModuleLoadData(&raw mut module, VECTOR.as_ptr().cast()) });
    module
}

fn allocated() -> u64 {
    let mut address = 0;
    // SAFETY: the pointer refers to a local variable.
    succeeds(unsafe { cuMemAlloc_v2(&raw mut address, 64) });
    // SAFETY: the memory has 64 bytes.
    succeeds(unsafe { cuMemsetD8_v2(address, 0, 64) });
    address
}

fn pinned() -> usize {
    let mut start = null_mut();
    // SAFETY: the pointer refers to a local variable.
    succeeds(unsafe { cuMemHostAlloc(&raw mut start, 64, 0) });
    start.expose_provenance()
}

fn new_stream() -> CUstream {
    let mut stream = null_mut();
    // SAFETY: the pointer refers to a local variable.
    succeeds(unsafe { cuStreamCreate(&raw mut stream, 1) });
    stream
}

fn new_event() -> CUevent {
    let mut event = null_mut();
    // SAFETY: the pointer refers to a local variable.
    succeeds(unsafe { cuEventCreate(&raw mut event, 0) });
    event
}

impl Objects {
    fn new(context: &Context, busy: &Stream) -> Self {
        let raw = context.as_raw();
        // SAFETY: the context is alive.
        succeeds(unsafe { cuCtxSetCurrent(raw) });
        let (other, event, device) = (new_stream(), new_event(), allocated());
        let (mut function, mut graph, mut executable) = (null_mut(), null_mut(), null_mut());
        // SAFETY: the module is alive, and the pointer refers to a local variable.
        succeeds(unsafe { cuModuleGetFunction(&raw mut function, module(), c"nothing".as_ptr()) });
        let mode = Mode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the stream is alive.
        succeeds(unsafe { cuStreamBeginCapture_v2(other, mode) });
        // SAFETY: the memory has 64 bytes.
        succeeds(unsafe { cuMemsetD8Async(device, 1, 64, other) });
        // SAFETY: the stream is alive, and the pointer refers to a local variable.
        succeeds(unsafe { cuStreamEndCapture(other, &raw mut graph) });
        // SAFETY: the graph is alive, and the pointer refers to a local variable.
        succeeds(unsafe { cuGraphInstantiateWithFlags(&raw mut executable, graph, 0) });
        Self {
            context: raw.expose_provenance(),
            busy: busy.as_raw().expose_provenance(),
            other: other.expose_provenance(),
            event: event.expose_provenance(),
            function: function.expose_provenance(),
            graph: graph.expose_provenance(),
            executable: executable.expose_provenance(),
            device,
            pinned: pinned(),
        }
    }

    fn launch_on(&self, stream: CUstream) -> CUresult {
        let function: CUfunction = with_exposed_provenance_mut(self.function);
        // SAFETY: the kernel has no parameters and does nothing.
        unsafe { cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, null_mut(), null_mut()) }
    }

    fn record_on(&self, stream: CUstream) -> CUresult {
        // SAFETY: event and stream are alive.
        unsafe { cuEventRecord(event(self.event), stream) }
    }

    fn function_on(&self, stream: CUstream) -> CUresult {
        unsafe extern "C" fn nothing(_: *mut c_void) {}
        let function: CUhostFn = Some(nothing);
        // SAFETY: the function uses no data.
        unsafe { cuLaunchHostFunc(stream, function, null_mut()) }
    }
}

/// A call, with its name.
type Row = (&'static str, fn(&Objects) -> CUresult);

/// Work that is enqueued on a stream.
#[rustfmt::skip]
const WORK: [Row; 7] = [
    ("record", |its| its.record_on(stream(its.other))),
    ("launch", |its| its.launch_on(stream(its.other))),
    ("host function", |its| its.function_on(stream(its.other))),
    // SAFETY: the memory is alive.
    ("fill", |its| unsafe { cuMemsetD8Async(its.device, 2, 64, stream(its.other)) }),
    // SAFETY: the memory is alive.
    ("copy to pinned memory", |its| unsafe { cuMemcpyDtoHAsync_v2(host(its.pinned), its.device, 64, stream(its.other)) }),
    // SAFETY: the memory is alive.
    ("copy on the device", |its| unsafe { cuMemcpyDtoDAsync_v2(its.device, its.device + 32, 32, stream(its.other)) }),
    // SAFETY: the executable graph and the stream are alive.
    ("graph launch", |its| unsafe { cuGraphLaunch(executable(its.executable), stream(its.other)) }),
];

/// The same for the stream with the host function.
#[rustfmt::skip]
const WORK_ON_BUSY: [Row; 3] = [
    ("record on busy", |its| its.record_on(stream(its.busy))),
    ("launch on busy", |its| its.launch_on(stream(its.busy))),
    ("host function on busy", |its| its.function_on(stream(its.busy))),
];

/// Creation and destruction of objects, and synchronous copies.
#[rustfmt::skip]
const OBJECTS: [Row; 9] = [
    ("create stream", |_| { new_stream(); SUCCESS }),
    ("create event", |_| { new_event(); SUCCESS }),
    ("allocate", |_| { allocated(); SUCCESS }),
    ("allocate pinned", |_| { pinned(); SUCCESS }),
    ("instantiate", |its| {
        let mut made = null_mut();
        // SAFETY: the graph is alive, and the pointer refers to a local variable.
        unsafe { cuGraphInstantiateWithFlags(&raw mut made, with_exposed_provenance_mut(its.graph), 0) }
    }),
    ("copy from the host", |its| {
        // SAFETY: both sides have 8 bytes.
        unsafe { cuMemcpyHtoD_v2(its.device, [0u8; 8].as_ptr().cast(), 8) }
    }),
    ("copy to the host", |its| {
        let mut bytes = [0u8; 8];
        // SAFETY: both sides have 8 bytes.
        unsafe { cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), its.device, 8) }
    }),
    // The thread does not create the stream that it destroys, because that would block too.
    // SAFETY: the stream is alive and is not used again.
    ("destroy stream", |its| unsafe { cuStreamDestroy_v2(stream(its.other)) }),
    // SAFETY: the event is alive and is not used again.
    ("destroy event", |its| unsafe { cuEventDestroy_v2(event(its.event)) }),
];

#[rustfmt::skip]
const CAPTURE: [Row; 1] = [("capture", |its| {
    let mode = Mode::CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: the stream is alive.
    succeeds(unsafe { cuStreamBeginCapture_v2(stream(its.other), mode) });
    let mut graph = null_mut();
    // SAFETY: the stream is alive, and the pointer refers to a local variable.
    unsafe { cuStreamEndCapture(stream(its.other), &raw mut graph) }
})];

#[rustfmt::skip]
const NEVER: [Row; 12] = [
    // SAFETY: event and stream are alive.
    ("wait for an event", |its| unsafe { cuStreamWaitEvent(stream(its.other), event(its.event), 0) }),
    // SAFETY: event and stream are alive.
    ("wait for an event on busy", |its| unsafe { cuStreamWaitEvent(stream(its.busy), event(its.event), 0) }),
    ("stream-ordered allocation and free", |its| {
        let mut address = 0;
        // SAFETY: the stream is alive, and the pointer refers to a local variable.
        succeeds(unsafe { cuMemAllocAsync(&raw mut address, 64, stream(its.other)) });
        // SAFETY: the memory is alive and is not used again.
        unsafe { cuMemFreeAsync(address, stream(its.other)) }
    }),
    // SAFETY: the stream is alive.
    ("query stream", |its| unsafe { cuStreamQuery(stream(its.other)) }),
    // SAFETY: the event is alive.
    ("query event", |its| unsafe { cuEventQuery(event(its.event)) }),
    ("is capturing", |its| {
        let mut status = CUstreamCaptureStatus(0);
        // SAFETY: the stream is alive, and the pointer refers to a local variable.
        unsafe { cuStreamIsCapturing(stream(its.other), &raw mut status) }
    }),
    ("exchange mode", |_| {
        let mut mode = Mode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the pointer refers to a local variable.
        unsafe { cuThreadExchangeStreamCaptureMode(&raw mut mode) }
    }),
    ("memory info", |_| {
        let (mut free, mut total) = (0, 0);
        // SAFETY: the pointers refer to local variables.
        unsafe { cuMemGetInfo_v2(&raw mut free, &raw mut total) }
    }),
    ("current context", |_| {
        let mut context: CUcontext = null_mut();
        // SAFETY: the pointer refers to a local variable.
        unsafe { cuCtxGetCurrent(&raw mut context) }
    }),
    ("pointer attribute", |its| {
        let mut kind = 0u32;
        let attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
        // SAFETY: the attribute has 4 bytes, and the pointer refers to a local variable.
        unsafe { cuPointerGetAttribute((&raw mut kind).cast(), attribute, its.device) }
    }),
    ("retain", |_| {
        let mut context: CUcontext = null_mut();
        // SAFETY: the pointer refers to a local variable.
        unsafe { cuDevicePrimaryCtxRetain(&raw mut context, 0) }
    }),
    // SAFETY: the stream is alive.
    ("synchronize another stream", |its| unsafe { cuStreamSynchronize(stream(its.other)) }),
];

/// Returns whether `call` blocks while another thread is inside `waiting`, which waits for a host
/// function.
fn blocks(waiting: impl FnOnce(&Objects) -> Wait, call: fn(&Objects) -> CUresult) -> bool {
    let context = context();
    let busy = context.stream().expect("a stream");
    let objects = Objects::new(&context, &busy);
    let waiting = waiting(&objects);
    let (begins, begun) = mpsc::channel();
    let (end, ends) = mpsc::channel::<()>();
    launch(&busy, move || {
        begins.send(()).expect("the test receives it");
        ends.recv().expect("the test says when to continue");
    });
    let raw = objects.context;
    let enter = || {
        // SAFETY: the context is alive.
        succeeds(unsafe { cuCtxSetCurrent(with_exposed_provenance_mut(raw)) });
    };
    let blocks = std::thread::scope(|scope| {
        scope.spawn(|| {
            enter();
            succeeds(waiting());
        });
        begun.recv().expect("it begins");
        let calling = scope.spawn(|| {
            enter();
            let code = call(&objects);
            assert!(code.is_success() || code == CUresult::CUDA_ERROR_NOT_READY);
        });
        let blocks = loop {
            if blocked() == 1 {
                break true;
            }
            if calling.is_finished() {
                break false;
            }
            std::thread::yield_now();
        };
        assert!(!blocks || !calling.is_finished());
        end.send(()).expect("the function listens");
        blocks
    });
    assert_eq!(blocked(), 0);
    // SAFETY: the call has no preconditions.
    succeeds(unsafe { cuCtxSetCurrent(null_mut()) });
    blocks
}

/// Creates a call that waits, whose objects already exist.
type Wait = Box<dyn FnOnce() -> CUresult + Send>;

#[track_caller]
fn check(waiting: fn(&Objects) -> Wait, rows: &[Row], expected: bool) {
    for (name, call) in rows {
        assert_eq!(blocks(waiting, *call), expected, "{name}");
    }
}

fn alone(body: impl FnOnce()) {
    in_child!();
    start(Profile::h200());
    // The primary context stays alive.
    let _context = context();
    body();
    // The calls of the two threads use the same memory, and nothing orders them.
    let mut misuses = cuda_sim::misuses();
    misuses.retain(|its| !its.starts_with("race"));
    assert_eq!(misuses, [""; 0]);
}

fn free(_: &Objects) -> Wait {
    let address = allocated();
    // SAFETY: the memory is alive and is not used again.
    Box::new(move || unsafe { cuMemFree_v2(address) })
}

fn free_pinned(_: &Objects) -> Wait {
    let start = pinned();
    // SAFETY: the memory is alive and is not used again.
    Box::new(move || unsafe { cuMemFreeHost(host(start)) })
}

fn load(_: &Objects) -> Wait {
    Box::new(|| {
        module();
        SUCCESS
    })
}

fn stop_everything(waiting: fn(&Objects) -> Wait) {
    alone(|| {
        for rows in [&WORK[..], &WORK_ON_BUSY, &OBJECTS, &CAPTURE] {
            check(waiting, rows, true);
        }
        check(waiting, &NEVER, false);
    });
}

#[test]
fn a_free_blocks_other_threads_from_enqueuing_work() {
    stop_everything(free);
}

#[test]
fn a_free_of_pinned_memory_blocks_other_threads_from_enqueuing_work() {
    stop_everything(free_pinned);
}

#[test]
fn a_module_load_blocks_other_threads_from_enqueuing_work() {
    stop_everything(load);
}

#[test]
fn synchronize_calls_and_a_module_unload_block_no_call() {
    alone(|| {
        let waits: [fn(&Objects) -> Wait; 4] = [
            |its| {
                let busy = its.busy;
                // SAFETY: the stream is alive.
                Box::new(move || unsafe { cuStreamSynchronize(stream(busy)) })
            },
            // SAFETY: the call has no preconditions.
            |_| Box::new(|| unsafe { cuCtxSynchronize() }),
            |its| {
                let (busy, marks) = (its.busy, new_event().expose_provenance());
                Box::new(move || {
                    // SAFETY: event and stream are alive.
                    succeeds(unsafe { cuEventRecord(event(marks), stream(busy)) });
                    // SAFETY: the event is alive.
                    unsafe { cuEventSynchronize(event(marks)) }
                })
            },
            |_| {
                let module = module().expose_provenance();
                // SAFETY: the module is alive and is not used again.
                Box::new(move || unsafe { cuModuleUnload(with_exposed_provenance_mut(module)) })
            },
        ];
        for waiting in waits {
            for rows in [&WORK[..], &WORK_ON_BUSY, &OBJECTS, &CAPTURE, &NEVER] {
                check(waiting, rows, false);
            }
        }
    });
}

#[test]
fn a_copy_to_pageable_memory_blocks_its_stream_and_the_creation_of_objects() {
    alone(|| {
        let copy: fn(&Objects) -> Wait = |its| {
            let (busy, device) = (its.busy, its.device);
            Box::new(move || {
                let mut bytes = [0u8; 8];
                // SAFETY: both sides have 8 bytes.
                unsafe { cuMemcpyDtoHAsync_v2(bytes.as_mut_ptr().cast(), device, 8, stream(busy)) }
            })
        };
        for rows in [&WORK_ON_BUSY[..], &OBJECTS, &CAPTURE] {
            check(copy, rows, true);
        }
        for rows in [&WORK[..], &NEVER] {
            check(copy, rows, false);
        }
    });
}

#[test]
fn a_record_in_a_host_function_that_a_free_waits_for_is_refused() {
    let (_end, context) = in_child!(with_misuse("that call waits for the host function"));
    let busy = context.stream().expect("a stream");
    let objects = Objects::new(&context, &busy);
    let (sender, codes) = mpsc::channel();
    let (on, marks) = (objects.other, objects.event);
    launch(&busy, move || {
        // SAFETY: the event is alive.
        let query = unsafe { cuEventQuery(event(marks)) };
        // SAFETY: event and stream are alive.
        let record = unsafe { cuEventRecord(event(marks), stream(on)) };
        sender.send([query, record]).expect("the test receives it");
    });
    // SAFETY: the memory is alive and is not used again.
    succeeds(unsafe { cuMemFree_v2(objects.device) });
    assert_eq!(codes.recv(), Ok([SUCCESS, CUresult::CUDA_ERROR_NOT_PERMITTED]));
    std::mem::forget((busy, context));
}

#[test]
fn a_record_in_a_host_function_that_another_thread_s_free_waits_for_is_refused() {
    let (_end, context) = in_child!(with_misuse("that call waits for the host function"));
    let busy = context.stream().expect("a stream");
    let objects = Objects::new(&context, &busy);
    let (begins, begun) = mpsc::channel();
    let (sender, codes) = mpsc::channel();
    let (on, marks) = (objects.other, objects.event);
    launch(&busy, move || {
        begins.send(()).expect("the test receives it");
        while blocked() == 0 {
            std::thread::yield_now();
        }
        // SAFETY: event and stream are alive.
        let record = unsafe { cuEventRecord(event(marks), stream(on)) };
        sender.send(record).expect("the test receives it");
    });
    std::thread::scope(|scope| {
        scope.spawn(|| busy.synchronize().expect("a wait"));
        begun.recv().expect("it begins");
        // SAFETY: the memory is alive and is not used again.
        succeeds(unsafe { cuMemFree_v2(objects.device) });
    });
    assert_eq!(codes.recv(), Ok(CUresult::CUDA_ERROR_NOT_PERMITTED));
    std::mem::forget((busy, context));
}
