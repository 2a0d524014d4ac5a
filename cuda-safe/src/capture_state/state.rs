//! The capture state of one handle.

use crate::call::{Error, Invalid, fork};
use crate::capture_state::guard::CallGuard;
use crate::capture_state::open::Open;
use crate::capture_state::word::{CaptureId, Seen, Word};
use crate::sync::{Mutex, MutexGuard, lock, yield_now};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// The number of attempts to make a change that calls in progress prevent. Most calls take less than a
/// microsecond. With the `explore` feature, each attempt is a scheduling point.
const ATTEMPTS: u32 = match cfg!(feature = "explore") {
    true => 4,
    false => 256,
};

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
}

impl Operation {
    const ALL: [(Self, &'static str); 16] = [
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
    pub(super) kind: Kind,
    /// The handle while it is in the table of shared handles, otherwise 0.
    pub(super) published: AtomicUsize,
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
    pub(super) fn leave(&self) {
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
    pub(super) fn share(&self) {
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
    pub(super) fn enter_unresolved(&self) -> Result<CallGuard<'_>, Seen> {
        let before = self.attempt(|| self.word.enter_unresolved())?;
        self.last.store(Operation::Wait as u8, Ordering::Relaxed);
        Ok(CallGuard::new(self, before))
    }

    /// Marks an event as recorded in a capture if no wait for it is in progress.
    ///
    /// # Errors
    /// See [`begin`](Self::begin).
    #[inline]
    pub(super) fn mark(&self, open: &Arc<Open>) -> Result<Seen, Seen> {
        self.attempt(|| self.change(open, |word| word.mark(open.id())))
    }

    /// Marks an event as shared if no wait for it is in progress.
    ///
    /// # Errors
    /// See [`begin`](Self::begin).
    #[inline]
    pub(super) fn share_if_idle(&self) -> Result<Seen, Seen> {
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
    pub(super) fn resolve(&self, open: &Arc<Open>) {
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
    pub(super) fn enter_resolved(&self, operation: Operation) -> Result<CallGuard<'_>, Seen> {
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
pub(super) fn insert(state: &Arc<State>, handle: usize) {
    let Some(mut table) = table() else {
        return;
    };
    state.published.store(handle, Ordering::Release);
    table.insert((state.kind, handle), Arc::downgrade(state));
}

/// Removes a state.
#[inline]
pub(super) fn remove(state: &State) {
    let Some(mut table) = table() else {
        return;
    };
    let handle = state.published.swap(0, Ordering::AcqRel);
    let key = (state.kind, handle);
    let is_its = |its: &Weak<State>| std::ptr::eq(its.as_ptr(), state);
    if table.get(&key).is_some_and(is_its) {
        table.remove(&key);
    }
}

/// Returns the state of a handle that came from foreign code, and creates it if no object has one.
#[inline]
pub(super) fn find_or_insert(kind: Kind, handle: usize) -> Arc<State> {
    let new = State::new(kind);
    new.share();
    let Some(mut table) = table() else {
        return new;
    };
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
