//! Events in captures: a record marks its event, and a wait for a marked event may join the capture.

use super::DriverStatus;
use super::Operation;
use super::guard::{CallGuard, CapturedBy, Entry};
use super::open::{Member, Open};
use super::state::State;
use super::word::CaptureId;
use crate::call::{Result, fork};
use std::sync::Arc;

impl State {
    /// Prepares an event for a record on a capturing stream. The mark stays until the capture is
    /// closed.
    ///
    /// # Errors
    /// A wait for the event is in progress, or another open capture has marked it.
    #[inline]
    pub(crate) fn prepare_record(self: &Arc<Self>, stream: &Entry<'_>) -> Result<()> {
        match &stream.captured_by {
            CapturedBy::None => Ok(()),
            CapturedBy::Crate(open) => {
                let marked = self.mark(open);
                marked.map_err(|seen| self.refused(RECORD, seen))?;
                // The state is added after it was marked. A capture that was closed in between records
                // nothing more.
                if !open.add_state(self) {
                    self.clear(open.id());
                }
                Ok(())
            }
            CapturedBy::Foreign => {
                let shared = self.share_if_idle();
                shared.map_err(|seen| self.refused(RECORD, seen))?;
                Ok(())
            }
        }
    }
}

const RECORD: &str = "record the event in a capture";

/// Makes the driver call for a wait on a marked or shared event. The stream may join a capture by this
/// wait.
///
/// # Errors
/// Calls on the stream are in progress; errors of `call`.
#[cold]
#[inline(never)]
pub(crate) fn wait_captured(
    stream: &Member<'_>,
    event: (&State, &CallGuard<'_>),
    call: impl FnOnce() -> Result<()>,
    ask: impl FnOnce() -> Result<DriverStatus>,
) -> Result<()> {
    let (event, seen) = (event.0, event.1.seen());
    let marked = seen.capture().and_then(|capture| event.open(capture));
    let state = stream.state;
    if marked.is_none() && !seen.is_shared() {
        // The capture was closed.
        let _call = state.enter(Operation::Wait);
        return call();
    }
    fork::refuse_in_child()?;
    let guard = state.enter_unresolved();
    let guard = guard.map_err(|seen| state.refused("wait for an event of a capture", seen))?;
    let before = guard.seen().capture();
    let before = before.and_then(|capture| state.open(capture));
    // This happens before the call, because another thread may end the capture right after it.
    match &marked {
        Some(open) => open.add(stream),
        None => Open::retain_in_all(&stream.retained),
    }
    let called = call();
    // If the driver does not answer, the stream counts as captured.
    let status = ask().unwrap_or(DriverStatus::Invalidated);
    settle(stream, [before, marked], status);
    drop(guard);
    called
}

/// Stores what the driver reports about a stream after a wait: one of the known captures, another
/// capture of this crate, or one of foreign code.
#[inline]
fn settle(stream: &Member<'_>, known: [Option<Arc<Open>>; 2], status: DriverStatus) {
    let state = stream.state;
    // The driver ID of a capture is set after the capture has begun, so the capture of the mark may not
    // have one yet.
    let listed = match status {
        DriverStatus::Active(id) => Open::with_driver_id(id),
        _ => None,
    };
    let open = listed.or_else(|| {
        let mut known = known.into_iter().flatten();
        known.find(|open| open.may_be(status) && !open.is_closed())
    });
    let Some(open) = open else {
        if status != DriverStatus::None {
            state.share();
        }
        return state.clear(CaptureId::UNRESOLVED);
    };
    open.add(stream);
    state.resolve(&open);
    if open.is_closed() {
        state.clear(open.id());
    }
}
