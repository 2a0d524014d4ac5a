//! Capture state: which streams are capturing, and which calls of this crate are in progress on them.
//!
//! Each stream has a [`State`]. An event gets one as soon as a stream waits for it. A state holds one
//! atomic word, the capture word: the number of calls in progress and the open capture. All objects
//! with the same handle share one state.
//!
//! A call that must not be captured, or that must know whether it is, increments the call count and
//! reads the capture in one atomic operation, calls the driver, and decrements the count. A capture
//! begins only while the count is zero. The capture state therefore cannot change between the check and
//! the driver call, and no thread waits for another: a capture that cannot begin fails after a bounded
//! number of attempts.
//!
//! Calls that a capture may record, and that need only the context of their stream, are not counted:
//! launches, fills, and copies between buffers of one context. They behave the same whether they run
//! before or after a capture begins.
//!
//! # Three kinds of work on a stream
//!
//! | In a capture, the work | The function writes | For example |
//! |---|---|---|
//! | is recorded | `without_current`, without a count | launches, fills, copies within a context |
//! | is refused | `let _call = stream.uncaptured(operation)?`, which first attempts deferred releases if the operation may wait | allocations, host copies, waits |
//! | is recorded, and the graph retains an object, or streams join | `let entry = stream.entry(operation)?` | host functions, records, waits for events |
//!
//! Records and waits first call `Stream::enter`, which only counts, because most streams are neither captured nor
//! shared. Default streams and streams of releases have the same functions on [`State`] and [`StreamRef`].
//!
//! # Shared handles
//!
//! A handle that foreign code knows is *shared*. Foreign code may capture with it, so each counted call
//! on such a stream asks the driver. Waits propagate this to the streams that actually join such a
//! capture.

mod open;
mod state;
mod word;

pub(crate) use open::{Member, Open, Retain, retain};
pub(crate) use state::{
    CallGuard, CapturedBy, Entry, ForeignStream, Kind, Operation, State, StreamRef, capture_status,
    is_default, refuse_captured, wait_captured,
};

use crate::call::{Result, call, newest_or, out};
use cuda_sys::{CUstream, CUstreamCaptureStatus};

/// Returns whether a capture of this crate is open.
#[inline]
pub(crate) fn any_open() -> bool {
    open::any()
}

/// Returns whether a capture that a call could invalidate may be open: a capture of this crate, or one
/// of foreign code, which can know streams of this crate only by a shared handle.
#[inline]
pub(crate) fn may_be_open() -> bool {
    open::any() || state::any_shared()
}

/// Records that foreign code has streams in the contexts of this crate and may capture them.
#[inline]
pub(crate) fn handle_is_shared() {
    if !state::any_shared() {
        state::set_any_shared();
    }
}

/// The driver's answer about the capture status of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DriverStatus {
    /// The stream is not capturing.
    None,
    /// The stream belongs to the capture with this driver ID.
    Active(u64),
    /// The stream belongs to a capture that was invalidated.
    Invalidated,
    /// A status that only a newer driver knows.
    Other(u32),
}

/// Asks the driver whether a stream is capturing.
///
/// # Safety
/// The stream must be alive, or a default stream of the current context.
#[inline]
pub(crate) unsafe fn is_capturing(stream: CUstream) -> Result<CUstreamCaptureStatus> {
    // SAFETY: the caller guarantees that the stream is valid, and `out` passes a valid pointer.
    out(|place| unsafe { call!(cuStreamIsCapturing(stream, place)) })
}

/// Asks the driver which capture a stream belongs to.
///
/// # Safety
/// See [`is_capturing`].
#[inline]
pub(crate) unsafe fn driver_status(stream: CUstream) -> Result<DriverStatus> {
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    let mut id = 0;
    let (place, number) = (&raw mut status, &raw mut id);
    let (graph, nodes, edges, count) =
        (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
    newest_or(
        // SAFETY: the caller guarantees that the stream is valid. Two pointers refer to local
        // variables, and the driver writes nothing through null pointers.
        unsafe {
            call!(cuStreamGetCaptureInfo_v3(stream, place, number, graph, nodes, edges, count))
        },
        || {
            // SAFETY: the caller guarantees that the stream is valid. Two pointers refer to local
            // variables, and the driver writes nothing through null pointers.
            unsafe {
                call!(abi::cuStreamGetCaptureInfo_v2(stream, place, number, graph, nodes, count))
            }
        },
    )?;
    Ok(match status {
        CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE => DriverStatus::None,
        CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE => DriverStatus::Active(id),
        CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_INVALIDATED => DriverStatus::Invalidated,
        CUstreamCaptureStatus(number) => DriverStatus::Other(number),
    })
}
