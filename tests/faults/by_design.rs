//! Failures that are by design not returned as errors: which ones, and why.

use crate::trace::Span;
use cuda_safe::CUresult;

/// The functions that release an object. `Drop` returns nothing; a failure is counted as a leak and
/// reported to the report hook.
const RELEASES: [&str; 35] = [
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
    "cuMemUnmap",
    "cuMemRelease",
    "cuMemAddressFree",
    "cuArrayDestroy",
    "cuMipmappedArrayDestroy",
    "cuTexObjectDestroy",
    "cuSurfObjectDestroy",
    "cuLogsUnregisterCallback",
    "cuCoredumpDeregisterStartCallback",
    "cuCoredumpDeregisterCompleteCallback",
    "cuCheckpointProcessUnlock",
    "cuMulticastUnbind",
    "cuLogicalEndpointUnbind",
    "cuLogicalEndpointDestroy",
    "cuLogicalEndpointIdRelease",
    "cuDestroyExternalMemory",
    "cuDestroyExternalSemaphore",
    "cuGraphicsUnregisterResource",
    "cuGraphicsUnmapResources",
];

/// The functions that memory managers allocate with.
const ALLOCATIONS: [&str; 4] =
    ["cuMemAlloc_v2", "cuMemAllocManaged", "cuMemHostAlloc", "cuMemHostRegister_v2"];

/// The functions that a release calls in addition to the releasing function.
const AROUND_RELEASES: [&str; 17] = [
    // Asks whether this is a callback thread of the driver, and whether another context is current.
    "cuCtxGetCurrent",
    "cuCtxPopCurrent_v2",
    // Asks whether the stream is being captured.
    "cuStreamIsCapturing",
    // Ask whether the launches of a graph are complete. A release without an answer is deferred.
    "cuStreamQuery",
    "cuEventQuery",
    // Keeps captures of other threads valid.
    "cuThreadExchangeStreamCaptureMode",
    // Synchronous memory is freed after a wait for its stream.
    "cuStreamSynchronize",
    // Called when a reader of shared memory is dropped.
    "cuEventRecord",
    "cuStreamWaitEvent",
    // Called when a capture is dropped.
    "cuStreamEndCapture",
    // A pool is destroyed after the frees of its memory, or else is leaked. (`cuEventRecord` above
    // belongs to this too.)
    "cuCtxPushCurrent_v2",
    "cuEventCreate",
    "cuEventSynchronize",
    // A manager waits for all work before it releases its cached memory; during a capture elsewhere
    // it uses a free for that.
    "cuCtxSynchronize_v2",
    "cuCtxSynchronize",
    "cuMemAlloc_v2",
    "cuMemPoolTrimTo",
];

/// The functions with which a pool checks whether it can reuse memory of other streams, and makes a
/// stream wait for it.
const IN_A_SEARCH: [&str; 5] =
    ["cuEventCreate", "cuEventRecord", "cuEventQuery", "cuStreamIsCapturing", "cuStreamWaitEvent"];

/// The functions around the free of a slab, which a pool releases when it looks for memory.
const AROUND_SLABS: [&str; 2] = ["cuCtxGetCurrent", "cuThreadExchangeStreamCaptureMode"];

/// The functions that end a guard of the current context: its drop returns nothing and calls the
/// report hook.
const ENDS_OF_GUARDS: [&str; 2] = ["cuCtxGetCurrent", "cuCtxPopCurrent_v2"];

/// The kinds of stranded memory, each with the number of uncounted objects that stay alive with it.
const STRANDED: [(&str, u64); 5] = [
    // The stream of the copy, and the retain of its context.
    ("pinned memory that a copy may still use", 2),
    // The same, and the event of the range.
    ("a range of pinned memory that a copy may still use", 3),
    // The stream of the work, two events, and the retain of its context.
    ("an imported array that work may still use", 4),
    // The external memory, and the retain of its context.
    ("a mapped image", 2),
    // The streams of both sides, two events, and their contexts.
    ("shared memory that a reader may still use", 6),
];

/// Queries that are not essential.
const OPTIONAL: [&str; 5] = [
    // Tells which capture uses an object. If it fails, every open capture is assumed to use it.
    "cuStreamGetCaptureInfo_v3",
    // Drivers before 12.0 have no context ids.
    "cuCtxGetId",
    // Tells the driver's own SM count. If it fails, the count of the groups is used.
    "cuGreenCtxGetDevResource",
    // If it fails, the driver is assumed to have the version of the bindings.
    "cuDriverGetVersion",
    // Reads the reasons of an error, which has a code without them.
    "cuLogsDumpToMemory",
];

/// Returns whether a misuse only follows from the failure. A stream that cannot be destroyed does
/// not prevent the destruction of its green context. A thread whose current context is destroyed is
/// not taken for a callback thread, and no real driver returns this error on a callback thread.
pub(crate) fn is_consequence(
    what: &str,
    function: &str,
    code: CUresult,
    from_then_on: bool,
) -> bool {
    let of_stream = what.starts_with("a green context is destroyed before its streams")
        && (function == "cuStreamDestroy_v2" || from_then_on);
    let of_callback = what.starts_with("a host function waits for work that comes after it")
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

/// Returns how many objects stay alive with stranded memory, or `None` if the report is of another
/// kind.
pub(crate) fn kept_with(what: &str) -> Option<u64> {
    let found = STRANDED.iter().find(|(its, _)| *its == what);
    found.map(|(_, objects)| *objects)
}

/// Returns whether memory may be stranded if the call fails, because the call waits for the work
/// that uses the memory, makes a stream wait for it, or destroys the image that it is mapped as.
pub(crate) fn may_strand(function: &str, span: Option<Span>) -> bool {
    matches!(function, "cuStreamSynchronize" | "cuEventSynchronize" | "cuMipmappedArrayDestroy")
        || AROUND_RELEASES.contains(&function) && span == Some(Span::Drops)
}

/// Returns whether the failure of a call may leak an object that `cuda_safe::leaked` counts.
pub(crate) fn may_leak(function: &str, span: Option<Span>) -> bool {
    is_release(function)
        // The context stays on the stack, so it must not be released.
        || is_end_of_guard(function)
        // The driver may have accepted the function despite the error.
        || matches!(function, "cuLaunchHostFunc" | "cuStreamAddCallback")
        // Tells whether a host function was captured. If it fails, the function may run now.
        || function == "cuStreamGetCaptureInfo_v3"
        // Queries before a release, and the wait before synchronous memory is freed.
        || AROUND_RELEASES.contains(&function) && span == Some(Span::Drops)
        || AROUND_SLABS.contains(&function) && span == Some(Span::Elsewhere)
}

/// Returns whether a failing release leaves an object behind that is not counted as leaked, because
/// it is considered destroyed with its context or with the process.
pub(crate) fn is_taken_as_gone(function: &str, code: CUresult, span: Option<Span>) -> bool {
    let gone = matches!(
        code,
        CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED | CUresult::CUDA_ERROR_DEINITIALIZED
    );
    gone && may_leak(function, span) && function != "cuCtxPopCurrent_v2"
}

/// Returns why a failure was not returned as the error of the scenario, or `None` if it should have
/// been.
pub(crate) fn why_unreported(
    function: &str,
    code: CUresult,
    span: Option<Span>,
    called_again: bool,
    heard: bool,
) -> Option<&'static str> {
    if OPTIONAL.contains(&function) {
        return Some("a query that is not essential");
    }
    if span == Some(Span::ForAText) {
        return Some("a query that only improves an error text");
    }
    if is_release(function) {
        return Some("a release");
    }
    if span == Some(Span::Drops) && AROUND_RELEASES.contains(&function) {
        return Some("part of a release");
    }
    if span == Some(Span::Elsewhere) && IN_A_SEARCH.contains(&function) {
        return Some("the pool uses other memory or waits on the host instead");
    }
    if span == Some(Span::Elsewhere)
        && function == "cuMemAlloc_v2"
        && code == CUresult::CUDA_ERROR_OUT_OF_MEMORY
    {
        return Some("the pool waits for all work in another way or falls back");
    }
    if span == Some(Span::Elsewhere) && AROUND_SLABS.contains(&function) {
        return Some("part of the release of a slab");
    }
    if is_end_of_guard(function) && heard {
        return Some("the end of a guard, which is reported to the report hook");
    }
    if function == "cuThreadExchangeStreamCaptureMode" && called_again {
        return Some("the mode is exchanged at the second attempt");
    }
    if code == CUresult::CUDA_ERROR_OUT_OF_MEMORY && ALLOCATIONS.contains(&function) && called_again
    {
        return Some("the manager retries after it released its cached memory");
    }
    if code == CUresult::CUDA_ERROR_INVALID_CONTEXT && called_again {
        return Some("repeated with the context current");
    }
    None
}
