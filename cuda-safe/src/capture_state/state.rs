//! The capture state of one handle, and the guards of the calls that it counts.

use crate::call::{ContextHandle, Entered, Error, Invalid, Result, fork, without_current};
use crate::capture_state::open::{Member, Open};
use crate::capture_state::word::{CaptureId, Seen, Word};
use crate::capture_state::{DriverStatus, is_capturing};
use crate::sync::{Mutex, MutexGuard, lock, yield_now};
use cuda_sys::{CUstream, CUstreamCaptureStatus};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// The number of attempts to make a change that calls in progress prevent. Most calls take less than a
/// microsecond. With the `explore` feature, each attempt is a scheduling point.
const ATTEMPTS: u32 = if cfg!(feature = "explore") { 4 } else { 256 };

/// The kinds of counted calls, for error messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Operation {
    Allocate,
    Release,
    HostCopy,
    CopyScope,
    ArrayCopy,
    PeerCopy,
    Record,
    Wait,
    HostFunction,
    Launch,
    Attach,
    Fill,
    Begin,
    Enqueue,
    Decompression,
    FabricCopy,
    Semaphore,
    Mapping,
}

impl Operation {
    const ALL: [(Self, &'static str); 18] = [
        (Self::Allocate, "an allocation"),
        (Self::Release, "a release"),
        (Self::HostCopy, "a copy from or to host memory"),
        (Self::CopyScope, "a copy scope"),
        (Self::ArrayCopy, "a copy from or to a CUDA array"),
        (Self::PeerCopy, "a copy between contexts"),
        (Self::Record, "an event record"),
        (Self::Wait, "a wait for an event"),
        (Self::HostFunction, "the launch of a host function"),
        (Self::Launch, "a launch"),
        (Self::Attach, "the attachment of managed memory"),
        (Self::Fill, "a fill of new memory"),
        (Self::Begin, "the beginning of a capture"),
        (Self::Enqueue, "a call of other code"),
        (Self::Decompression, "a decompression"),
        (Self::FabricCopy, "a copy over the fabric"),
        (Self::Semaphore, "a signal of an external semaphore, or a wait for one"),
        (Self::Mapping, "the mapping of a registered resource, or its end"),
    ];

    /// Returns whether the operation may wait for work, so that releases may be attempted before it.
    #[inline]
    pub(crate) fn may_wait(self) -> bool {
        matches!(
            self,
            Self::HostCopy
                | Self::CopyScope
                | Self::HostFunction
                | Self::Decompression
                | Self::FabricCopy
        )
    }

    #[inline]
    fn name(number: u8) -> &'static str {
        let found = Self::ALL.iter().find(|(its, _)| *its as u8 == number);
        found.map_or("a call", |(_, name)| name)
    }
}

/// Whether foreign code has ever known a handle.
static ANY_SHARED: AtomicBool = AtomicBool::new(false);

#[inline]
pub(super) fn set_any_shared() {
    ANY_SHARED.store(true, Ordering::Relaxed);
}

#[inline]
pub(super) fn any_shared() -> bool {
    ANY_SHARED.load(Ordering::Relaxed)
}

/// The kind of handle that a state belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Stream,
    Event,
}

/// The capture state of a stream or an event, shared by all objects with the same handle.
#[derive(Debug)]
pub(crate) struct State {
    word: Word,
    /// The most recently counted [`Operation`].
    last: AtomicU8,
    /// The open capture whose ID the word contains, or a closed one.
    open: Mutex<Option<Arc<Open>>>,
    kind: Kind,
    /// The handle while it is in the table of shared handles, otherwise 0.
    published: AtomicUsize,
}

impl State {
    #[inline]
    pub(crate) fn new(kind: Kind) -> Arc<Self> {
        Arc::new(Self {
            word: Word::new(),
            last: AtomicU8::new(0),
            open: Mutex::new(None),
            kind,
            published: AtomicUsize::new(0),
        })
    }

    /// Counts a call until the guard is dropped.
    #[inline(always)]
    pub(crate) fn enter(&self, operation: Operation) -> CallGuard<'_> {
        let seen = self.word.enter();
        self.last.store(operation as u8, Ordering::Relaxed);
        CallGuard::new(self, seen)
    }

    #[inline(always)]
    fn leave(&self) {
        self.word.leave();
    }

    /// Marks the handle as shared with foreign code, and lets other objects with the same handle find
    /// this state.
    #[inline]
    pub(crate) fn publish(self: &Arc<Self>, handle: usize) {
        if !self.word.look().is_shared() {
            self.publish_now(handle);
        }
    }

    #[cold]
    #[inline(never)]
    fn publish_now(self: &Arc<Self>, handle: usize) {
        insert(self, handle);
        self.share();
    }

    /// Removes the handle from the table of shared handles when it is destroyed.
    #[inline]
    pub(crate) fn unpublish(&self) {
        if self.published.load(Ordering::Acquire) != 0 {
            remove(self);
        }
    }

    /// Creates the state of a default stream, whose handle foreign code knows.
    #[inline]
    pub(crate) fn of_default() -> Arc<Self> {
        let state = Self::new(Kind::Stream);
        state.word.share();
        state
    }

    /// Returns the state of a handle that came from foreign code, and creates it if necessary.
    #[inline]
    pub(crate) fn of_shared(kind: Kind, handle: usize) -> Arc<Self> {
        find_or_insert(kind, handle)
    }

    #[inline]
    fn share(&self) {
        set_any_shared();
        self.word.share();
    }

    /// Returns the open capture with this ID, or `None` if it was closed.
    #[inline]
    pub(crate) fn open(&self, capture: CaptureId) -> Option<Arc<Open>> {
        let open = lock(&self.open);
        open.as_ref().filter(|its| its.id() == capture).cloned()
    }

    /// Sets the capture if no call is in progress and no capture is open.
    ///
    /// The beginning of the capture counts as a call until the guard is dropped. Until then, no wait
    /// asks the driver which capture the stream has joined.
    ///
    /// # Errors
    /// The word that prevents the change, after a bounded number of attempts.
    #[inline]
    pub(crate) fn begin(&self, open: &Arc<Open>) -> Result<CallGuard<'_>, Seen> {
        let seen = self.attempt(|| self.change(open, |word| word.begin(open.id())))?;
        self.last.store(Operation::Begin as u8, Ordering::Relaxed);
        Ok(CallGuard::new(self, seen))
    }

    /// Counts a call that may make the stream join a capture. Other calls see an unresolved capture
    /// until [`resolve`](Self::resolve) or [`clear`](Self::clear).
    ///
    /// # Errors
    /// See [`begin`](Self::begin).
    #[inline]
    fn enter_unresolved(&self) -> Result<CallGuard<'_>, Seen> {
        let before = self.attempt(|| self.word.enter_unresolved())?;
        self.last.store(Operation::Wait as u8, Ordering::Relaxed);
        Ok(CallGuard::new(self, before))
    }

    /// Marks an event as recorded in a capture if no wait for it is in progress.
    ///
    /// # Errors
    /// See [`begin`](Self::begin).
    #[inline]
    fn mark(&self, open: &Arc<Open>) -> Result<Seen, Seen> {
        self.attempt(|| self.change(open, |word| word.mark(open.id())))
    }

    /// Marks an event as shared if no wait for it is in progress.
    ///
    /// # Errors
    /// See [`begin`](Self::begin).
    #[inline]
    fn share_if_idle(&self) -> Result<Seen, Seen> {
        self.attempt(|| self.word.share_if_idle())
    }

    /// Clears a capture if it is still set. Calls in progress stay counted.
    #[inline]
    pub(crate) fn clear(&self, capture: CaptureId) {
        let mut slot = lock(&self.open);
        self.word.replace(capture, None);
        let gone = slot.take_if(|open| open.id() == capture);
        drop(slot);
        drop(gone);
    }

    /// Sets the capture that the driver reported for an unresolved stream.
    #[inline]
    fn resolve(&self, open: &Arc<Open>) {
        let mut slot = lock(&self.open);
        self.word.replace(CaptureId::UNRESOLVED, Some(open.id()));
        let before = slot.replace(Arc::clone(open));
        drop(slot);
        drop(before);
    }

    /// Changes the word together with the open capture that belongs to its ID.
    fn change(
        &self,
        open: &Arc<Open>,
        change: impl FnOnce(&Word) -> Result<Seen, Seen>,
    ) -> Result<Seen, Seen> {
        let mut slot = lock(&self.open);
        let seen = change(&self.word)?;
        let before = slot.replace(Arc::clone(open));
        drop(slot);
        drop(before);
        Ok(seen)
    }

    /// Repeats an attempt as long as only calls in progress prevent the change.
    fn attempt(&self, mut attempt: impl FnMut() -> Result<Seen, Seen>) -> Result<Seen, Seen> {
        for _ in 0..ATTEMPTS {
            match attempt() {
                Err(seen) if is_passing(seen) => yield_now(),
                done => return done,
            }
        }
        attempt()
    }

    /// Counts a call while no capture is unresolved.
    ///
    /// # Errors
    /// A capture is still unresolved after a bounded number of attempts.
    #[inline]
    fn enter_resolved(&self, operation: Operation) -> Result<CallGuard<'_>, Seen> {
        for _ in 0..ATTEMPTS {
            let call = self.enter(operation);
            if call.seen().capture() != Some(CaptureId::UNRESOLVED) {
                return Ok(call);
            }
            drop(call);
            yield_now();
        }
        Err(self.word.look())
    }

    /// Returns the error of an operation that another capture or calls in progress prevent.
    #[cold]
    #[inline]
    pub(crate) fn refused(&self, what: &'static str, seen: Seen) -> Error {
        if !is_passing(seen) {
            return Invalid::OtherCapture { what }.into();
        }
        Invalid::CallsInProgress {
            what,
            calls: seen.calls().max(1),
            last: Operation::name(self.last.load(Ordering::Relaxed)),
        }
        .into()
    }
}

/// Returns whether calls in progress prevent a change, rather than only an open capture.
#[inline]
fn is_passing(seen: Seen) -> bool {
    seen.calls() != 0
}

impl Drop for State {
    #[inline]
    fn drop(&mut self) {
        self.unpublish();
    }
}

type Table = BTreeMap<(Kind, usize), Weak<State>>;

static TABLE: Mutex<Table> = Mutex::new(BTreeMap::new());

/// Locks the table. Returns `None` in a forked child, where the lock may be held forever.
#[inline]
fn table() -> Option<MutexGuard<'static, Table>> {
    let lock = || lock(&TABLE);
    (!fork::in_child()).then(lock)
}

/// Inserts the state of a handle, and replaces an entry that an earlier object may have left.
#[inline]
fn insert(state: &Arc<State>, handle: usize) {
    let Some(mut table) = table() else { return };
    state.published.store(handle, Ordering::Release);
    table.insert((state.kind, handle), Arc::downgrade(state));
}

/// Removes a state.
#[inline]
fn remove(state: &State) {
    let Some(mut table) = table() else { return };
    let handle = state.published.swap(0, Ordering::AcqRel);
    let key = (state.kind, handle);
    let is_its = |its: &Weak<State>| std::ptr::eq(its.as_ptr(), state);
    if table.get(&key).is_some_and(is_its) {
        table.remove(&key);
    }
}

/// Returns the state of a handle that came from foreign code, and creates it if no object has one.
#[inline]
fn find_or_insert(kind: Kind, handle: usize) -> Arc<State> {
    let new = State::new(kind);
    new.share();
    let Some(mut table) = table() else { return new };
    let key = (kind, handle);
    match table.get(&key).and_then(Weak::upgrade) {
        Some(state) => {
            drop(table);
            state
        }
        None => {
            new.published.store(handle, Ordering::Release);
            table.insert(key, Arc::downgrade(&new));
            new
        }
    }
}

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
    fn new(state: &'a State, seen: Seen) -> Self {
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
fn refuse_capturing(status: CUstreamCaptureStatus) -> Result<()> {
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
    let known = match (known, status) {
        // No wait moves a stream from one capture to another. If the first one was closed meanwhile, it is not known
        // which one was invalidated.
        ([before @ Some(_), _], DriverStatus::Invalidated) => [before, None],
        (known, _) => known,
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

#[cfg(test)]
mod tests {
    use super::{Kind, find_or_insert, table};

    #[test]
    fn a_state_leaves_the_table_when_its_last_object_is_dropped() {
        let key = (Kind::Event, usize::MAX);
        let is_listed = || table().is_some_and(|table| table.contains_key(&key));
        let state = find_or_insert(key.0, key.1);
        let same = find_or_insert(key.0, key.1);
        drop(state);
        assert!(is_listed());
        drop(same);
        assert!(!is_listed());
    }
}
