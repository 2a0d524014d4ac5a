//! Failures that do not come back as errors, by design: which, and why.

use crate::trace::Span;
use cuda_safe::CUresult;

/// The functions that release something. `Drop` returns nothing; what fails is counted as leaked
/// and told to the report hook.
const RELEASES: [&str; 16] = [
    "cuStreamDestroy_v2",
    "cuEventDestroy_v2",
    "cuModuleUnload",
    "cuLibraryUnload",
    "cuLinkDestroy",
    "cuMemFree_v2",
    "cuMemFreeAsync",
    "cuMemFreeHost",
    "cuMemHostUnregister",
    "cuIpcCloseMemHandle",
    "cuMemPoolDestroy",
    "cuCtxDestroy_v2",
    "cuDevicePrimaryCtxRelease_v2",
    "cuGreenCtxDestroy",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
];

/// What managers of memory allocate with.
const ALLOCATIONS: [&str; 4] = [
    "cuMemAlloc_v2",
    "cuMemAllocManaged",
    "cuMemHostAlloc",
    "cuMemHostRegister_v2",
];

/// What a release calls beside the releasing function.
const AROUND_RELEASES: [&str; 15] = [
    // Is this a thread of the driver's callbacks? Is another context current?
    "cuCtxGetCurrent",
    "cuCtxPopCurrent_v2",
    // Is the stream being captured?
    "cuStreamIsCapturing",
    // So that captures of other threads go on.
    "cuThreadExchangeStreamCaptureMode",
    // Plain memory is freed when its stream is idle.
    "cuStreamSynchronize",
    // The end of a reader of shared memory.
    "cuEventRecord",
    "cuStreamWaitEvent",
    // A capture that is dropped ends.
    "cuStreamEndCapture",
    // A pool is destroyed behind the frees of its memory; else it stays. (And the mark as above.)
    "cuCtxPushCurrent_v2",
    "cuEventCreate",
    "cuEventSynchronize",
    // A manager waits for all work before it gives back what it has kept; by a free, if others capture.
    "cuCtxSynchronize_v2",
    "cuCtxSynchronize",
    "cuMemAlloc_v2",
    "cuMemPoolTrimTo",
];

/// With what a pool finds out whether it can use memory of others, and has a stream wait for it.
const IN_A_SEARCH: [&str; 5] = [
    "cuEventCreate",
    "cuEventRecord",
    "cuEventQuery",
    "cuStreamIsCapturing",
    "cuStreamWaitEvent",
];

/// What is called around the free of a slab, which a pool gives back when it looks for memory.
const AROUND_SLABS: [&str; 2] = ["cuCtxGetCurrent", "cuThreadExchangeStreamCaptureMode"];

/// The end of a guard of the current context: it returns nothing, and tells the report hook.
const ENDS_OF_GUARDS: [&str; 2] = ["cuCtxGetCurrent", "cuCtxPopCurrent_v2"];

/// Memory that is stranded, and how many objects stay with it that are not counted themselves.
const STRANDED: [(&str, u64); 3] = [
    // The stream of the copy, and the retain of its context.
    ("pinned memory that a copy may still use", 2),
    // The stream of the work, two events, and the retain of its context.
    ("an imported array that work may still use", 4),
    // The streams of both sides, two events, and their contexts.
    ("shared memory that a reader may still use", 6),
];

/// Questions whose answer is good to have.
const OPTIONAL: [&str; 4] = [
    // Which capture needs something; without it, each that is open.
    "cuStreamGetCaptureInfo_v3",
    // Drivers before 12.0 have no ids.
    "cuCtxGetId",
    // The driver's own count of SMs; without it, that of the groups.
    "cuGreenCtxGetDevResource",
    // A driver that does not tell its version counts as that of the bindings.
    "cuDriverGetVersion",
];

/// Whether a mistake only follows from the failure: a stream that cannot be destroyed does not
/// keep its green context from being destroyed. And a thread whose current context is a dead one is no
/// callback's: no driver says that there.
pub(crate) fn is_mistake(what: &str, function: &str, code: CUresult, from_then_on: bool) -> bool {
    let of_stream = what.starts_with("a green context is destroyed before its streams")
        && (function == "cuStreamDestroy_v2" || from_then_on);
    let of_callback = what.starts_with("a host function waits for work that is behind it")
        && function == "cuCtxGetCurrent"
        && code == CUresult::CUDA_ERROR_INVALID_CONTEXT;
    of_stream || of_callback
}

pub(crate) fn is_release(function: &str) -> bool {
    RELEASES.contains(&function)
}

pub(crate) fn is_end_of_guard(function: &str) -> bool {
    ENDS_OF_GUARDS.contains(&function)
}

/// How many objects stay with memory that is stranded; none if this is no stranding.
pub(crate) fn kept_with(what: &str) -> Option<u64> {
    let found = STRANDED.iter().find(|(its, _)| *its == what);
    found.map(|(_, objects)| *objects)
}

/// Whether memory is stranded if a call fails: it waits for the work that uses the memory, or has
/// its stream wait.
pub(crate) fn may_strand(function: &str, span: Option<Span>) -> bool {
    function == "cuStreamSynchronize"
        || AROUND_RELEASES.contains(&function) && span == Some(Span::Drops)
}

/// Whether the failure of a call may leave an object behind, counted by `cuda_safe::leaked`.
pub(crate) fn may_leak(function: &str, span: Option<Span>) -> bool {
    is_release(function)
        // The context stays on the stack, so it must not be released.
        || is_end_of_guard(function)
        // The driver may have the function, whatever its answer.
        || matches!(function, "cuLaunchHostFunc" | "cuStreamAddCallback")
        // What a release asks first, and the wait before plain memory is freed.
        || AROUND_RELEASES.contains(&function) && span == Some(Span::Drops)
        || AROUND_SLABS.contains(&function) && span == Some(Span::Elsewhere)
}

/// Whether a failing release leaves an object behind that is not counted as leaked: it is taken as
/// gone with its context, or with the process.
pub(crate) fn is_taken_as_gone(function: &str, code: CUresult, span: Option<Span>) -> bool {
    let gone = matches!(
        code,
        CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED | CUresult::CUDA_ERROR_DEINITIALIZED
    );
    gone && may_leak(function, span) && function != "cuCtxPopCurrent_v2"
}

/// Why a failure did not come back as the scenario's error; none if it should have.
pub(crate) fn why_unreported(
    function: &str,
    code: CUresult,
    span: Option<Span>,
    called_again: bool,
    heard: bool,
) -> Option<&'static str> {
    if OPTIONAL.contains(&function) {
        return Some("a question whose answer is good to have");
    }
    if span == Some(Span::ForAText) {
        return Some("it would have made an error's text better");
    }
    if is_release(function) {
        return Some("a release");
    }
    if span == Some(Span::Drops) && AROUND_RELEASES.contains(&function) {
        return Some("a part of a release");
    }
    if span == Some(Span::Elsewhere) && IN_A_SEARCH.contains(&function) {
        return Some("a pool takes other memory then, or waits on the host");
    }
    if span == Some(Span::Elsewhere)
        && function == "cuMemAlloc_v2"
        && code == CUresult::CUDA_ERROR_OUT_OF_MEMORY
    {
        return Some("all work is waited for by a little host memory then, or it falls back");
    }
    if span == Some(Span::Elsewhere) && AROUND_SLABS.contains(&function) {
        return Some("a part of the release of a slab");
    }
    if is_end_of_guard(function) && heard {
        return Some("the end of a guard, told to the report hook");
    }
    if function == "cuThreadExchangeStreamCaptureMode" && called_again {
        return Some("the mode is exchanged at the second try");
    }
    if code == CUresult::CUDA_ERROR_OUT_OF_MEMORY && ALLOCATIONS.contains(&function) && called_again
    {
        return Some("a manager tries again when it has given back what it kept");
    }
    if code == CUresult::CUDA_ERROR_INVALID_CONTEXT && called_again {
        return Some("repeated with the context current");
    }
    None
}
