//! Objects that other code creates, with raw calls whose errors are converted to errors of this
//! crate.

use cuda_safe::error::DriverError;
use cuda_safe::sys::{
    self, CUcontext, CUdeviceptr, CUevent, CUgraph, CUhostFn, CUlibrary, CUmodule, CUresult,
    CUstream, CUstreamCaptureMode,
};
use cuda_safe::{Context, Device, Error, Result, Stream};
use std::ffi::CString;
use std::sync::{Mutex, MutexGuard, PoisonError};

fn check(code: CUresult, call: &'static str) -> Result<()> {
    if code.is_success() {
        return Ok(());
    }
    Err(Error::Driver(DriverError::new(code, call)))
}

/// Creates a context that is on no thread's stack.
pub(super) fn context(device: &Device) -> Result<CUcontext> {
    let (mut raw, mut popped) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: the pointer refers to a local variable.
    let code = unsafe { sys::abi::cuCtxCreate_v2(&raw mut raw, 0, device.as_raw()) };
    check(code, "cuCtxCreate_v2")?;
    // SAFETY: the pointer refers to a local variable.
    let code = unsafe { sys::cuCtxPopCurrent_v2(&raw mut popped) };
    let done = check(code, "cuCtxPopCurrent_v2");
    if done.is_err() {
        // The destruction removes it from the stack.
        destroy_context(raw);
    }
    done.map(|()| raw)
}

pub(super) fn destroy_context(raw: CUcontext) {
    // SAFETY: the context was created above and belongs to the caller.
    let code = unsafe { sys::cuCtxDestroy_v2(raw) };
    if !code.is_success() {
        lock(&STILL_THERE).push(raw.addr());
    }
}

pub(super) fn stream(context: &Context) -> Result<CUstream> {
    let mut raw = std::ptr::null_mut();
    let code = context.with_current(|_| {
        // SAFETY: the pointer refers to a local variable.
        unsafe { sys::cuStreamCreateWithPriority(&raw mut raw, 1, 0) }
    })?;
    check(code, "cuStreamCreateWithPriority").map(|()| raw)
}

pub(super) fn event(context: &Context) -> Result<CUevent> {
    let mut raw = std::ptr::null_mut();
    // SAFETY: the pointer refers to a local variable.
    let code = context.with_current(|_| unsafe { sys::cuEventCreate(&raw mut raw, 0) })?;
    check(code, "cuEventCreate").map(|()| raw)
}

pub(super) fn memory(stream: &Stream, bytes: usize) -> Result<CUdeviceptr> {
    let mut address = 0;
    // SAFETY: the pointer refers to a local variable, and the stream is alive.
    let code = unsafe { sys::cuMemAllocAsync(&raw mut address, bytes, stream.as_raw()) };
    check(code, "cuMemAllocAsync").map(|()| address)
}

fn text(ptx: &str) -> CString {
    CString::new(ptx).expect("text without a NUL")
}

pub(super) fn module(context: &Context, ptx: &str) -> Result<CUmodule> {
    let mut raw = std::ptr::null_mut();
    let ptx = text(ptx);
    let code = context.with_current(|_| {
        // SAFETY: the text ends with a NUL, and the pointer refers to a local variable.
        unsafe { sys::cuModuleLoadData(&raw mut raw, ptx.as_ptr().cast()) }
    })?;
    check(code, "cuModuleLoadData").map(|()| raw)
}

pub(super) fn library(ptx: &str) -> Result<CUlibrary> {
    let (mut raw, none) = (std::ptr::null_mut(), std::ptr::null_mut());
    let (keys, options) = (std::ptr::null_mut(), std::ptr::null_mut());
    let ptx = text(ptx);
    let code = ptx.as_ptr().cast();
    let more = std::ptr::null_mut();
    // SAFETY: the text ends with a NUL, the pointer refers to a local variable, and there are no
    // options.
    let code =
        unsafe { sys::cuLibraryLoadData(&raw mut raw, code, keys, none, 0, options, more, 0) };
    check(code, "cuLibraryLoadData").map(|()| raw)
}

/// Streams whose capture could not be ended. They are alive, because buffers with deferred releases
/// keep them alive.
static STILL_CAPTURING: Mutex<Vec<usize>> = Mutex::new(Vec::new());
/// Streams that were captured. Those that could not be destroyed may still be captured.
static MAY_BE_CAPTURING: Mutex<Vec<usize>> = Mutex::new(Vec::new());
/// Graphs that could not be destroyed.
static GRAPHS: Mutex<Vec<usize>> = Mutex::new(Vec::new());
/// Contexts that could not be destroyed.
static STILL_THERE: Mutex<Vec<usize>> = Mutex::new(Vec::new());

fn lock(handles: &Mutex<Vec<usize>>) -> MutexGuard<'_, Vec<usize>> {
    handles.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns all handles. The lock is released, so a handle may be added again while they are used.
fn take(handles: &Mutex<Vec<usize>>) -> Vec<usize> {
    std::mem::take(&mut *lock(handles))
}

/// Completes what could not be completed while calls were failing.
pub(super) fn clean_up() {
    let is_destroy = |call: &cuda_sim::Call| call.function == "cuStreamDestroy_v2";
    let mut destroys = cuda_sim::calls().into_iter().filter(is_destroy);
    // The last release of a primary context destroys its streams, too.
    let some_live = cuda_sim::alive().streams != 0;
    let some_live = some_live && !destroys.any(|call| call.result.is_success());
    for stream in take(&MAY_BE_CAPTURING).into_iter().filter(|_| some_live) {
        let _ = end_capture(std::ptr::without_provenance_mut(stream));
    }
    for stream in take(&STILL_CAPTURING) {
        let _ = end_capture(std::ptr::without_provenance_mut(stream));
    }
    for graph in take(&GRAPHS) {
        let _ = destroy_graph(std::ptr::without_provenance_mut(graph));
    }
    for context in take(&STILL_THERE) {
        destroy_context(std::ptr::without_provenance_mut(context));
    }
}

fn end_capture(stream: CUstream) -> Result<()> {
    let mut graph = std::ptr::null_mut();
    // SAFETY: the software driver checks handles, and the pointer refers to a local variable.
    let code = unsafe { sys::cuStreamEndCapture(stream, &raw mut graph) };
    check(code, "cuStreamEndCapture")?;
    destroy_graph(graph)
}

fn destroy_graph(graph: CUgraph) -> Result<()> {
    // SAFETY: the graph was created here, and nothing else uses it.
    let code = unsafe { sys::cuGraphDestroy(graph) };
    if !code.is_success() {
        lock(&GRAPHS).push(graph.addr());
    }
    check(code, "cuGraphDestroy")
}

/// Notes that a capture of this stream may outlive the failing calls, if the stream does.
pub(super) fn may_stay_captured(stream: &Stream) {
    lock(&MAY_BE_CAPTURING).push(stream.as_raw().addr());
}

/// A capture of a stream, which ends when it is dropped.
pub(super) struct Capturing<'a> {
    stream: &'a Stream,
    ended: bool,
}

impl<'a> Capturing<'a> {
    pub(super) fn begin(stream: &'a Stream) -> Result<Self> {
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
        // SAFETY: the stream is alive.
        let code = unsafe { sys::cuStreamBeginCapture_v2(stream.as_raw(), mode) };
        check(code, "cuStreamBeginCapture_v2")?;
        let ended = false;
        Ok(Self { stream, ended })
    }

    pub(super) fn end(mut self) -> Result<()> {
        self.ended = true;
        end_capture(self.stream.as_raw()).inspect_err(|error| self.failed(error))
    }

    fn failed(&self, error: &Error) {
        // If destroying the graph failed, the capture has ended already.
        if !matches!(error, Error::Driver(error) if error.call == "cuStreamEndCapture") {
            return;
        }
        lock(&STILL_CAPTURING).push(self.stream.as_raw().addr());
    }
}

impl Drop for Capturing<'_> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        if let Err(error) = end_capture(self.stream.as_raw()) {
            self.failed(&error);
        }
    }
}

/// Makes the driver call `function` after the earlier work on the stream.
pub(super) fn callback(stream: &Stream, function: CUhostFn) -> Result<()> {
    // SAFETY: the stream is alive, and the functions of these tests take no data.
    let code = unsafe { sys::cuLaunchHostFunc(stream.as_raw(), function, std::ptr::null_mut()) };
    check(code, "cuLaunchHostFunc")
}
