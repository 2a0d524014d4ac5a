//! Events in captures: a record marks its event, and a wait for a marked event may join the capture.

use super::DriverStatus;
use super::Operation;
use super::guard::{CallGuard, CapturedBy, Entry};
use super::open::{Member, Open};
use super::state::State;
use super::word::CaptureId;
use crate::error::{Error, Result};
use crate::fork;
use std::sync::Arc;

impl State {
    /// Prepares an event for a record in a captured stream. The mark stays until the capture is closed.
    ///
    /// # Errors
    /// A wait for the event is under way, or another open capture has marked it.
    pub(crate) fn prepare_record(self: &Arc<Self>, stream: &Entry<'_>) -> Result<()> {
        match &stream.captured_by {
            CapturedBy::Nobody => Ok(()),
            CapturedBy::Crate(open) => {
                let marked = self.mark(open);
                marked.map_err(|seen| self.refused(RECORD, seen))?;
                // Added later: a capture that is closed meanwhile records nothing more.
                if !open.add_state(self) {
                    self.clear(open.id());
                }
                Ok(())
            }
            CapturedBy::OtherCode => {
                let shared = self.share_if_idle();
                shared.map_err(|seen| self.refused(RECORD, seen))?;
                Ok(())
            }
        }
    }
}

const RECORD: &str = "record the event in a capture";

/// Makes the driver call of a wait for an event that is marked or shared, by which the stream may join a
/// capture.
///
/// # Errors
/// Calls on the stream are under way; those of `call`.
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
    if fork::in_child() {
        return Err(Error::Forked);
    }
    let guard = state.enter_unresolved();
    let guard = guard.map_err(|seen| state.refused("wait for an event of a capture", seen))?;
    let before = guard.seen().capture();
    let before = before.and_then(|capture| state.open(capture));
    // Before the call: the capture may be ended by another thread right after it.
    match &marked {
        Some(open) => open.add(stream),
        None => Open::retain_in_all(&stream.need),
    }
    let called = call();
    // Without an answer the stream counts as captured.
    let status = ask().unwrap_or(DriverStatus::Invalidated);
    settle(stream, [before, marked], status);
    drop(guard);
    called
}

/// Enters what the driver says of a stream after a wait: one of the captures that are known, another one
/// of this crate, or one of other code.
fn settle(stream: &Member<'_>, known: [Option<Arc<Open>>; 2], status: DriverStatus) {
    let state = stream.state;
    // Its number is known when a capture has begun, so the one that was marked may have none yet.
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
