//! Graphs that are instantiated, launched or destroyed after an object they use was destroyed. A
//! real driver crashes on most of these (measured).

use crate::prelude::*;
use crate::software::misuses::succeeds;
use CUstreamCaptureMode as Mode;

const VECTOR: &str = concat!(include_str!("../../kernels/vector.ptx"), "\0");
const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
const DESTROYED: CUresult = CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED;

fn stream() -> CUstream {
    let mut stream = null_mut();
    // SAFETY: the pointer refers to a local variable.
    succeeds(unsafe { cuStreamCreate(&raw mut stream, 1) });
    stream
}

fn memory() -> u64 {
    let mut address = 0;
    // SAFETY: the pointer refers to a local variable.
    succeeds(unsafe { cuMemAlloc_v2(&raw mut address, 64) });
    address
}

fn capture(stream: CUstream, work: impl FnOnce(CUstream) -> CUresult) -> CUgraph {
    let mut graph = null_mut();
    // SAFETY: the stream is alive.
    succeeds(unsafe { cuStreamBeginCapture_v2(stream, Mode::CU_STREAM_CAPTURE_MODE_RELAXED) });
    succeeds(work(stream));
    // SAFETY: the stream is alive, and the pointer refers to a local variable.
    succeeds(unsafe { cuStreamEndCapture(stream, &raw mut graph) });
    graph
}

fn instantiate(graph: CUgraph) -> Result<CUgraphExec, CUresult> {
    let mut made = null_mut();
    // SAFETY: the graph is alive, and the pointer refers to a local variable.
    let code = unsafe { cuGraphInstantiateWithFlags(&raw mut made, graph, 0) };
    if code.is_success() { Ok(made) } else { Err(code) }
}

fn launch(executable: CUgraphExec, stream: CUstream) -> CUresult {
    // SAFETY: the graph and the stream are alive. An object that the graph uses is not, which this
    // test is about.
    unsafe { cuGraphLaunch(executable, stream) }
}

/// Captures `work`, lets `destroy` destroy an object that the graph uses, and checks that
/// instantiating and launching the graph are refused, each with a misuse of these words.
#[track_caller]
fn stale(
    on: CUstream,
    work: impl FnOnce(CUstream) -> CUresult,
    destroy: impl FnOnce() -> CUresult,
    (code, words): (CUresult, &str),
) -> CUgraphExec {
    let other = stream();
    let graph = capture(on, work);
    let executable = instantiate(graph).expect("before the destruction");
    succeeds(launch(executable, other));
    // SAFETY: the stream is alive.
    succeeds(unsafe { cuStreamSynchronize(other) });
    assert_eq!(cuda_sim::misuses(), [""; 0]);
    succeeds(destroy());
    assert_eq!(instantiate(graph), Err(code));
    found(&format!("a graph is instantiated after the {words}"));
    assert_eq!(launch(executable, other), code);
    found(&format!("a graph is launched after the {words}"));
    assert_eq!(cuda_sim::misuses().len(), 2, "{:?}", cuda_sim::misuses());
    // SAFETY: the graph is alive.
    succeeds(unsafe { cuGraphDestroy(graph) });
    executable
}

/// [`planted`] with the context current.
#[track_caller]
fn current(body: impl FnOnce(&Context)) {
    let (context, _stream) = &in_child!(expecting_misuse());
    // SAFETY: the context is alive.
    succeeds(unsafe { cuCtxSetCurrent(context.as_raw()) });
    body(context);
}

fn event() -> CUevent {
    let mut event = null_mut();
    // SAFETY: the pointer refers to a local variable.
    succeeds(unsafe { cuEventCreate(&raw mut event, 0) });
    event
}

fn kernel(function: CUfunction, stream: CUstream) -> CUresult {
    // SAFETY: the kernel has no parameters and does nothing.
    unsafe { cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, null_mut(), null_mut()) }
}

fn destroy_executable(executable: CUgraphExec) -> CUresult {
    // SAFETY: the graph is alive and is not used again.
    unsafe { cuGraphExecDestroy(executable) }
}

#[test]
fn a_graph_that_records_a_destroyed_event_is_refused() {
    current(|_| {
        let event = event();
        let executable = stale(
            stream(),
            // SAFETY: event and stream are alive.
            |stream| unsafe { cuEventRecordWithFlags(event, stream, 1) },
            // SAFETY: the contract is violated on purpose: the graph still uses the event, which is
            // the misuse.
            || unsafe { cuEventDestroy_v2(event) },
            (INVALID, "event of a node was destroyed"),
        );
        succeeds(destroy_executable(executable));
    });
}

#[test]
fn a_graph_that_waits_for_a_destroyed_event_is_refused() {
    current(|_| {
        let event = event();
        let executable = stale(
            stream(),
            // SAFETY: event and stream are alive.
            |stream| unsafe { cuStreamWaitEvent(stream, event, 1) },
            // SAFETY: the contract is violated on purpose: the graph still uses the event, which is
            // the misuse.
            || unsafe { cuEventDestroy_v2(event) },
            (INVALID, "event of a node was destroyed"),
        );
        succeeds(destroy_executable(executable));
    });
}

#[test]
fn a_graph_with_a_kernel_of_an_unloaded_module_is_refused() {
    current(|_| {
        let (mut module, mut function): (CUmodule, CUfunction) = (null_mut(), null_mut());
        // SAFETY: the text ends with a NUL, and the pointer refers to a local variable.
        succeeds(unsafe { cuModuleLoadData(&raw mut module, VECTOR.as_ptr().cast()) });
        // SAFETY: the module is alive, and the pointer refers to a local variable.
        succeeds(unsafe { cuModuleGetFunction(&raw mut function, module, c"nothing".as_ptr()) });
        let executable = stale(
            stream(),
            |stream| kernel(function, stream),
            // SAFETY: the contract is violated on purpose: the graph still uses the module, which
            // is the misuse.
            || unsafe { cuModuleUnload(module) },
            (INVALID, "module of a kernel was unloaded"),
        );
        succeeds(destroy_executable(executable));
    });
}

#[test]
fn a_graph_with_a_kernel_of_an_unloaded_library_is_refused() {
    current(|_| {
        let (mut library, mut its, mut function): (CUlibrary, _, _) =
            (null_mut(), null_mut(), null_mut());
        let (no, none) = (null_mut(), null_mut());
        let text = VECTOR.as_ptr().cast();
        // SAFETY: the text ends with a NUL, and the pointer refers to a local variable.
        succeeds(unsafe {
            cuLibraryLoadData(&raw mut library, text, no, none, 0, null_mut(), null_mut(), 0)
        });
        // SAFETY: the library is alive, and the pointer refers to a local variable.
        succeeds(unsafe { cuLibraryGetKernel(&raw mut its, library, c"nothing".as_ptr()) });
        // SAFETY: the kernel is alive, and the pointer refers to a local variable.
        succeeds(unsafe { cuKernelGetFunction(&raw mut function, its) });
        stale(
            stream(),
            |stream| kernel(function, stream),
            // SAFETY: the contract is violated on purpose: the graph still uses the library, which
            // is the misuse.
            || unsafe { cuLibraryUnload(library) },
            (INVALID, "module of a kernel was unloaded"),
        );
    });
}

#[test]
fn a_graph_with_a_freed_pinned_source_is_refused() {
    current(|_| {
        let (mut host, device) = (null_mut(), memory());
        // SAFETY: the pointer refers to a local variable.
        succeeds(unsafe { cuMemHostAlloc(&raw mut host, 64, 0) });
        stale(
            stream(),
            // SAFETY: both sides have 64 bytes.
            |stream| unsafe { cuMemcpyHtoDAsync_v2(device, host, 64, stream) },
            || {
                // SAFETY: the contract is violated on purpose: the graph still uses the memory,
                // which is the misuse.
                succeeds(unsafe { cuMemFreeHost(host) });
                // Other memory may have the same address by then.
                // SAFETY: nothing uses the memory.
                unsafe { cuMemHostRegister_v2(host, 64, 0) }
            },
            (INVALID, "pinned source of a copy was freed"),
        );
    });
}

/// As measured: the launch is accepted, and the copy fails.
#[test]
fn a_graph_with_an_unregistered_source_fails_when_it_runs() {
    current(|_| {
        let mut bytes = vec![0u8; 4096];
        let (host, device): (*mut c_void, _) = (bytes.as_mut_ptr().cast(), memory());
        // SAFETY: the memory stays alive until it is unregistered.
        succeeds(unsafe { cuMemHostRegister_v2(host, 4096, 0) });
        let on = stream();
        let graph = capture(on, |stream| {
            // SAFETY: both sides have 64 bytes.
            unsafe { cuMemcpyHtoDAsync_v2(device, host, 64, stream) }
        });
        let executable = instantiate(graph).expect("the memory is registered");
        // SAFETY: the memory was registered.
        succeeds(unsafe { cuMemHostUnregister(host) });
        succeeds(launch(executable, on));
        // SAFETY: the stream is alive.
        assert!(!unsafe { cuStreamSynchronize(on) }.is_success());
        found("the pinned source of a copy");
    });
}

/// Creates a context that is not current.
fn created() -> CUcontext {
    let (mut context, mut popped) = (null_mut(), null_mut());
    // SAFETY: the pointer refers to a local variable.
    succeeds(unsafe { cuCtxCreate_v4(&raw mut context, null_mut(), 0, 0) });
    // SAFETY: the pointer refers to a local variable.
    succeeds(unsafe { cuCtxPopCurrent_v2(&raw mut popped) });
    context
}

#[test]
fn a_graph_of_a_destroyed_context_is_refused_even_by_its_destruction() {
    current(|context| {
        let its = created();
        // SAFETY: the context is alive.
        succeeds(unsafe { cuCtxSetCurrent(its) });
        let (on, device) = (stream(), memory());
        // SAFETY: the context is alive.
        succeeds(unsafe { cuCtxSetCurrent(context.as_raw()) });
        let executable = stale(
            on,
            // SAFETY: the memory has 64 bytes.
            |stream| unsafe { cuMemsetD8Async(device, 1, 64, stream) },
            // SAFETY: the contract is violated on purpose: the graph still uses the context, which
            // is the misuse.
            || unsafe { cuCtxDestroy_v2(its) },
            (DESTROYED, "context of a node was destroyed"),
        );
        assert_eq!(destroy_executable(executable), DESTROYED);
        found("a graph is destroyed after the context of a node");
    });
}

#[test]
fn a_graph_with_a_copy_needs_the_context_of_its_source() {
    in_child!();
    crate::start(Profile::h200());
    let own = crate::context();
    // SAFETY: the context is alive.
    succeeds(unsafe { cuCtxSetCurrent(own.as_raw()) });
    let to = memory();
    let other = created();
    // SAFETY: the context is alive.
    succeeds(unsafe { cuCtxSetCurrent(other) });
    let from = memory();
    // SAFETY: as above.
    succeeds(unsafe { cuCtxSetCurrent(own.as_raw()) });
    stale(
        stream(),
        // SAFETY: both sides have 64 bytes.
        |stream| unsafe { cuMemcpyDtoDAsync_v2(to, from, 64, stream) },
        // SAFETY: the contract is violated on purpose: the graph still uses the context, which
        // is the misuse.
        || unsafe { cuCtxDestroy_v2(other) },
        (DESTROYED, "context of a node was destroyed"),
    );
}

#[test]
fn a_graph_of_a_destroyed_green_context_is_refused() {
    current(|context| {
        let green = crate::green::green(context);
        let (mut on, device) = (null_mut(), memory());
        // SAFETY: the green context is alive, and the pointer refers to a local variable.
        succeeds(unsafe { cuGreenCtxStreamCreate(&raw mut on, green.as_raw(), 1, 0) });
        let executable = stale(
            on,
            // SAFETY: the memory has 64 bytes.
            |stream| unsafe { cuMemsetD8Async(device, 1, 64, stream) },
            || {
                // SAFETY: the stream is alive and is not used again.
                succeeds(unsafe { cuStreamDestroy_v2(on) });
                // SAFETY: the contract is violated on purpose: the graph still uses the green
                // context, which is the misuse.
                unsafe { cuGreenCtxDestroy(green.as_raw()) }
            },
            (DESTROYED, "green context of a node was destroyed"),
        );
        // As measured on an H200.
        succeeds(destroy_executable(executable));
        std::mem::forget(green);
    });
}
