//! Guards of calls in progress.

use crate::call::{ContextHandle, Entered, Error, Invalid, Result, fork, without_current};
use crate::capture_state::open::{Member, Open};
use crate::capture_state::state::{Kind, Operation, State};
use crate::capture_state::word::{CaptureId, Seen};
use crate::capture_state::{DriverStatus, is_capturing};
use cuda_sys::{CUstream, CUstreamCaptureStatus};
use std::sync::Arc;

/// A counted call. No capture begins on the handle until this guard is dropped.
#[must_use]
#[derive(Debug)]
pub(crate) struct CallGuard<'a> {
    state: &'a State,
    seen: Seen,
}

/// A counted call, and the capture of its stream.
#[derive(Debug)]
pub(crate) struct Entry<'a> {
    #[allow(dead_code, reason = "held, not read")]
    call: CallGuard<'a>,
    pub(crate) captured_by: CapturedBy,
}

/// The capture that a stream belongs to.
#[derive(Debug)]
pub(crate) enum CapturedBy {
    /// The stream is not capturing, and no capture begins on it while the call is counted.
    None,
    /// A capture that this crate began.
    Crate(Arc<Open>),
    /// A capture of foreign code.
    Foreign,
}

impl<'a> CallGuard<'a> {
    #[inline(always)]
    pub(super) fn new(state: &'a State, seen: Seen) -> Self {
        Self { state, seen }
    }

    /// Returns the capture word from before the call.
    #[inline(always)]
    pub(crate) fn seen(&self) -> Seen {
        self.seen
    }

    /// Determines which capture the stream belongs to.
    ///
    /// # Errors
    /// Errors of `ask`; calls in progress.
    #[cold]
    #[inline(never)]
    pub(crate) fn resolve(
        self,
        operation: Operation,
        ask: impl FnOnce() -> Result<CUstreamCaptureStatus>,
    ) -> Result<Entry<'a>> {
        if self.seen.is_plain() {
            return Ok(Entry { call: self, captured_by: CapturedBy::None });
        }
        fork::refuse_in_child()?;
        let call = match self.seen.capture() {
            Some(CaptureId::UNRESOLVED) => {
                let state = self.state;
                drop(self);
                let call = state.enter_resolved(operation);
                call.map_err(|seen| state.refused("use the stream", seen))?
            }
            _ => self,
        };
        // If no capture is open, it was closed in the meantime. None begins while this call is counted.
        let open = call.seen.capture();
        let open = open.and_then(|capture| call.state.open(capture));
        let captured_by = match open {
            Some(open) => CapturedBy::Crate(open),
            None if !call.seen.is_shared() => CapturedBy::None,
            None => match ask()? {
                CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE => CapturedBy::None,
                _ => CapturedBy::Foreign,
            },
        };
        Ok(Entry { call, captured_by })
    }

    /// Keeps the guard if the stream is not capturing.
    ///
    /// # Errors
    /// [`Invalid::StreamIsCaptured`]; errors of `ask`.
    #[inline(always)]
    pub(crate) fn uncaptured(
        self,
        operation: Operation,
        ask: impl FnOnce() -> Result<CUstreamCaptureStatus>,
    ) -> Result<Self> {
        if self.seen.is_plain() {
            return Ok(self);
        }
        let entry = self.resolve(operation, ask)?;
        match entry.captured_by {
            CapturedBy::None => Ok(entry.call),
            CapturedBy::Crate(_) | CapturedBy::Foreign => Err(captured()),
        }
    }
}

#[cold]
#[inline]
fn captured() -> Error {
    Invalid::StreamIsCaptured.into()
}

impl Drop for CallGuard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.state.leave();
    }
}

/// Returns an error if a stream of foreign code is capturing.
///
/// # Errors
/// [`Invalid::StreamIsCaptured`]; errors of the driver.
///
/// # Safety
/// See [`is_capturing`].
#[inline]
pub(crate) unsafe fn refuse_captured(stream: cuda_sys::CUstream) -> Result<()> {
    // SAFETY: the caller guarantees the conditions of `is_capturing`.
    refuse_capturing(unsafe { is_capturing(stream) }?)
}

/// Returns an error for the status of a stream that is capturing.
///
/// # Errors
/// [`Invalid::StreamIsCaptured`].
#[inline]
pub(super) fn refuse_capturing(status: CUstreamCaptureStatus) -> Result<()> {
    match status {
        CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE => Ok(()),
        _ => Err(captured()),
    }
}

/// A stream in which a release enqueues work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamRef<'a> {
    raw: CUstream,
    /// The capture state. `None` for a stream of other code whose caller promised that it is not captured.
    state: Option<&'a State>,
}

impl<'a> StreamRef<'a> {
    #[inline(always)]
    pub(crate) fn new(raw: CUstream, state: &'a State) -> Self {
        let state = Some(state);
        Self { raw, state }
    }

    #[inline]
    pub(crate) fn without_state(raw: CUstream) -> Self {
        Self { raw, state: None }
    }

    #[inline(always)]
    pub(crate) fn raw(self) -> CUstream {
        self.raw
    }

    /// Counts a call that must not be captured. A stream without a capture state is only checked, and the
    /// result is `None`.
    ///
    /// # Errors
    /// [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured), and the errors of the driver.
    ///
    /// # Safety
    /// The stream is alive. If it is a default stream, it is the default stream of `context`.
    #[inline(always)]
    pub(crate) unsafe fn uncaptured(
        self,
        operation: Operation,
        context: &(impl ContextHandle + ?Sized),
    ) -> Result<Option<CallGuard<'a>>> {
        let Some(state) = self.state else {
            // SAFETY: the caller's promise.
            return refuse_capturing(unsafe { capture_status(self.raw, context) }?).map(|()| None);
        };
        // SAFETY: the caller's promise.
        unsafe { uncaptured((self.raw, state), operation, context) }.map(Some)
    }
}

/// The handle of a stream that other code keeps alive. It may be a stream of this crate, or a default
/// stream.
#[derive(Clone, Debug)]
pub(crate) struct ForeignStream {
    raw: CUstream,
    state: Arc<State>,
}

// SAFETY: this is the handle of a stream, which any thread may use.
unsafe impl Send for ForeignStream {}
// SAFETY: see the argument for `Send`.
unsafe impl Sync for ForeignStream {}

impl ForeignStream {
    #[inline]
    pub(crate) fn new(raw: CUstream) -> Self {
        let state = match is_default(raw) {
            true => State::of_default(),
            false => State::of_shared(Kind::Stream, raw.addr()),
        };
        Self { raw, state }
    }

    #[inline]
    pub(crate) fn raw(&self) -> CUstream {
        self.raw
    }

    #[inline]
    pub(crate) fn by_ref(&self) -> StreamRef<'_> {
        StreamRef::new(self.raw, &self.state)
    }

    /// Counts a call that must not be captured.
    ///
    /// # Errors
    /// [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured), and the errors of the driver.
    ///
    /// # Safety
    /// The stream is alive. If it is a default stream, it is the default stream of `context`.
    #[inline]
    pub(crate) unsafe fn uncaptured(
        &self,
        operation: Operation,
        context: &(impl ContextHandle + ?Sized),
    ) -> Result<CallGuard<'_>> {
        // SAFETY: the caller's promise.
        unsafe { uncaptured((self.raw, &self.state), operation, context) }
    }
}

/// Counts a call on a stream that must not be captured.
///
/// # Errors
/// [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured), and the errors of the driver.
///
/// # Safety
/// The stream is alive. If it is a default stream, it is the default stream of `context`.
#[inline(always)]
pub(crate) unsafe fn uncaptured<'a>(
    (raw, state): (CUstream, &'a State),
    operation: Operation,
    context: &(impl ContextHandle + ?Sized),
) -> Result<CallGuard<'a>> {
    // SAFETY: the caller's promise.
    let ask = || unsafe { capture_status(raw, context) };
    state.enter(operation).uncaptured(operation, ask)
}

/// Asks the driver whether a stream is captured.
///
/// # Safety
/// The stream is alive. If it is a default stream, it is the default stream of `context`.
#[cold]
#[inline]
pub(crate) unsafe fn capture_status(
    raw: CUstream,
    context: &(impl ContextHandle + ?Sized),
) -> Result<CUstreamCaptureStatus> {
    if is_default(raw) {
        let _current = Entered::new(context)?;
        // SAFETY: the context of the default stream is current.
        return unsafe { is_capturing(raw) };
    }
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    without_current(context, || {
        // SAFETY: the caller's promise.
        status = unsafe { is_capturing(raw) }?;
        Ok(())
    })?;
    Ok(status)
}

/// Returns whether a handle is a default stream, which is a different stream in each context or thread.
#[inline]
pub(crate) fn is_default(stream: CUstream) -> bool {
    stream.addr() <= cuda_sys::CU_STREAM_PER_THREAD.addr()
}

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
