//! Capture state: which streams are captured, and which calls of this crate are under way on them.
//!
//! Each stream has a [`State`], and each event has one as soon as a stream waits for it. A state holds
//! one atomic word: the number of calls under way, and the open capture. All objects of one handle
//! share one state.
//!
//! A call that must not be captured, or that has to know whether it is, counts itself and reads the
//! capture in one atomic operation, calls the driver, and discounts itself. A capture begins only while
//! no call is counted. So no call changes sides between its look and the driver, and no thread waits for
//! another: a capture that cannot begin is refused after a bounded number of attempts.
//!
//! Calls that a capture may record, and that need nothing beyond the context of their stream, do not
//! count themselves: launches, fills, and copies between buffers of one context. They do the same in
//! either order with the beginning of a capture.
//!
//! A handle that other code knows is *shared*. Other code may capture with it, so each counted call on
//! such a stream asks the driver. Waits carry that on to the streams that really join such a capture.

mod events;
mod guard;
mod open;
mod state;
mod table;
mod word;

pub(crate) use events::wait_captured;
pub(crate) use guard::{CallGuard, CapturedBy, Entry, refuse_captured};
pub(crate) use open::{Member, Open};
pub(crate) use state::{Kind, Operation, State};

use crate::call::{call, newest_or};
use crate::error::Result;
use cuda_sys::{CUstream, CUstreamCaptureStatus};

/// Returns whether a capture may be open that a call could break: one of this crate, or one of other
/// code, which can know of streams here only by a shared handle.
pub(crate) fn may_be_open() -> bool {
    open::any() || state::any_shared()
}

/// Notes that other code has streams in the contexts of this crate, and may capture them.
#[inline]
pub(crate) fn handle_is_shared() {
    if !state::any_shared() {
        state::set_any_shared();
    }
}

/// What the driver says of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DriverStatus {
    /// The stream is not captured.
    None,
    /// The stream belongs to the capture with this driver number.
    Active(u64),
    /// The stream belongs to a capture that was invalidated.
    Invalidated,
    /// An answer of a newer driver.
    Other(u32),
}

/// Asks the driver whether a stream is captured.
///
/// # Safety
/// The stream is alive, or a default stream of the current context.
pub(crate) unsafe fn is_capturing(stream: CUstream) -> Result<CUstreamCaptureStatus> {
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: the caller's promise, and the pointer is to a local.
    unsafe { call!(cuStreamIsCapturing(stream, &raw mut status)) }?;
    Ok(status)
}

/// Asks the driver which capture a stream belongs to.
///
/// # Safety
/// As for [`is_capturing`].
pub(crate) unsafe fn driver_status(stream: CUstream) -> Result<DriverStatus> {
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    let mut id = 0;
    let (place, number) = (&raw mut status, &raw mut id);
    let (graph, nodes, edges, count) = (
        std::ptr::null_mut(),
        std::ptr::null_mut(),
        std::ptr::null_mut(),
        std::ptr::null_mut(),
    );
    newest_or(
        // SAFETY: the caller's promise; two pointers are to locals, and the driver writes nothing
        // through null.
        unsafe {
            call!(cuStreamGetCaptureInfo_v3(
                stream, place, number, graph, nodes, edges, count
            ))
        },
        || {
            // SAFETY: as above.
            unsafe {
                call!(abi::cuStreamGetCaptureInfo_v2(
                    stream, place, number, graph, nodes, count
                ))
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
