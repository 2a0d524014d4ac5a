//! Streams and captures, kept apart where it matters.
//!
//! Memory that is allocated in the order of a captured stream is the graph's own, and must not be
//! touched outside of its launches; a free there is a part of the graph as well. So these look whether
//! the stream is captured, and no other thread makes it so before their call of the driver is over.

use super::{Stream, is_inside};
use crate::error::{Error, Result};
use crate::fork;
use crate::sync::{RwLock, RwLockReadGuard};
use cuda_sys::CUstream;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

/// Captures that were begun here, and of which no end is known.
pub(super) static OPEN: AtomicUsize = AtomicUsize::new(0);

/// Whether other code may have begun one, of which streams of this crate can become a part: by way
/// of streams and events that both have.
static OF_OTHERS: AtomicBool = AtomicBool::new(false);

/// From now on it may: a stream or an event of other code came here, or the handle of one went out.
#[inline]
pub(crate) fn others_may_capture() {
    if !OF_OTHERS.load(Ordering::SeqCst) {
        OF_OTHERS.store(true, Ordering::SeqCst);
    }
}

/// Whether any stream may be captured, so that the driver has to be asked which.
#[inline]
pub(crate) fn a_capture_may_be_open() -> bool {
    OPEN.load(Ordering::SeqCst) != 0 || OF_OTHERS.load(Ordering::SeqCst)
}

/// What keeps streams from becoming part of a capture in the middle of a call that must not: of each
/// handle one of these, so that all objects of one stream have the same.
static GATES: [RwLock<()>; 64] = [const { RwLock::new(()) }; 64];

thread_local! {
    /// Whether this thread has a gate: what it calls then, which may be the report hook, does not wait
    /// for another one.
    static AT_A_GATE: Cell<bool> = const { Cell::new(false) };
}

/// This thread has a gate; whether it had one before.
struct AtAGate(bool);

impl AtAGate {
    #[inline]
    fn new() -> Self {
        // At the end of a thread there is nothing to keep it in.
        Self(AT_A_GATE.try_with(|at| at.replace(true)).unwrap_or(true))
    }
}

impl Drop for AtAGate {
    #[inline]
    fn drop(&mut self) {
        let _ = AT_A_GATE.try_with(|at| at.set(self.0));
    }
}

/// While it lives, no call of this crate on another thread makes a stream part of a capture.
pub(crate) struct Outside(
    #[allow(dead_code, reason = "held, not read")] Option<(RwLockReadGuard<'static, ()>, AtAGate)>,
);

impl Outside {
    /// For what concerns no stream.
    pub(crate) const OF_NONE: Self = Self(None);
}

/// Keeps a stream, known by its handle, out of captures, as [`Stream::stay_outside`] does.
#[inline]
pub(crate) fn stay_outside_raw(stream: CUstream) -> Option<Outside> {
    // What makes it part of a capture is one call of the driver, which is over soon, as a rule.
    for _ in 0..PATIENCE {
        let here = match gate_of(stream).try_read() {
            Ok(here) => here,
            Err(TryLockError::Poisoned(here)) => here.into_inner(),
            Err(TryLockError::WouldBlock) => {
                std::thread::yield_now();
                continue;
            }
        };
        return Some(Outside(Some((here, AtAGate::new()))));
    }
    None
}

#[inline]
fn gate_of(stream: CUstream) -> &'static RwLock<()> {
    // Handles are addresses of objects.
    let number = stream.addr() >> 4;
    &GATES[(number ^ number >> 6) % GATES.len()]
}

/// Calls something that must not be done in the order of a captured stream, which is known by its handle: as
/// [`Stream::outside_captures`], but for the question whether it is captured.
#[inline]
pub(crate) fn outside_captures_raw<T>(
    stream: CUstream,
    call: impl FnOnce() -> Result<T>,
) -> Result<T> {
    // The lock may be another thread's, for ever, in a forked child.
    if fork::in_child() {
        return Err(Error::Forked);
    }
    let _here = here(gate_of(stream), RwLock::read, RwLock::try_read)?;
    call()
}

/// How often a free looks whether the gate is open.
const PATIENCE: u32 = 64;

impl Stream {
    /// For allocations in the order of the stream: in a capture they would be of the graph's own
    /// memory, which must not be touched outside of its launches.
    ///
    /// No call of this crate on another thread makes the stream part of a capture meanwhile.
    #[inline]
    pub(crate) fn outside_captures<T>(&self, call: impl FnOnce() -> Result<T>) -> Result<T> {
        outside_captures_raw(self.raw(), || {
            self.refuse_captured()?;
            call()
        })
    }

    /// For frees in the order of the stream, without a wait for long: none if the stream is becoming part of a
    /// capture right now.
    #[inline]
    pub(crate) fn stay_outside(&self) -> Option<Outside> {
        stay_outside_raw(self.raw())
    }

    /// For calls that may make the stream part of a capture.
    #[inline]
    pub(super) fn entering_capture(&self, call: impl FnOnce() -> Result<()>) -> Result<()> {
        if fork::in_child() {
            return Err(Error::Forked);
        }
        let _here = here(gate_of(self.raw()), RwLock::write, RwLock::try_write)?;
        call()
    }
}

/// The lock of a gate. The call of the driver that is made with it on another thread may wait for a host
/// function to end, which so does not wait for the lock.
#[inline]
fn here<G>(
    gate: &'static RwLock<()>,
    lock: impl FnOnce(&'static RwLock<()>) -> LockResult<G>,
    try_lock: impl FnOnce(&'static RwLock<()>) -> TryLockResult<G>,
) -> Result<(G, AtAGate)> {
    let has_none = !AT_A_GATE.try_with(Cell::get).unwrap_or(true);
    let here = if has_none && !is_inside() {
        lock(gate).unwrap_or_else(PoisonError::into_inner)
    } else {
        match try_lock(gate) {
            Ok(here) => here,
            Err(TryLockError::Poisoned(here)) => here.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(Error::InHostFunction),
        }
    };
    Ok((here, AtAGate::new()))
}
