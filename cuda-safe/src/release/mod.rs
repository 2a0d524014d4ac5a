//! The release of driver objects: how a drop becomes a driver call, a deferred release, or a reported
//! leak.
//!
//! # Two values
//!
//! The `Drop` of an object calls [`release`] with two values:
//!
//! - The **handle** stands for the object. It implements [`Destroy`], beside the object: the name for
//!   messages, the driver call, and the work that the call comes [`After`].
//! - The **owners** are what the object needs until it is destroyed: its context, streams, and other
//!   objects. They implement [`Keep`]. The drop only borrows them.
//!
//! This module knows no object. Each release is compiled for its handle, so a `Drop` pays only for the
//! steps that its object needs. Handle and owners are boxed only when a release is deferred.
//!
//! # One attempt
//!
//! [`attempt`](attempt::attempt) does these steps, and stops at the first one that fails:
//!
//! 1. In a host function of this crate, no driver call is allowed: stop.
//! 2. Count a call on each stream of the owners, so that no capture begins there. Stop if one of them is
//!    capturing.
//! 3. On a thread that runs another callback of the driver, stop, unless the call waits for nothing.
//! 4. Enter the relaxed capture mode, unless the call disturbs no capture ([`Destroy::is_quiet`]).
//! 5. Wait for the work that the call must come after.
//! 6. Call the driver. If it wants a current context, call it again with that of the owners.
//!
//! Events, streams and stream-ordered memory skip steps that cannot apply to them: see `at_once.rs`.
//!
//! # Three outcomes
//!
//! - **Released.** Handle and owners are dropped, and with them what they kept alive.
//! - **Deferred.** The obstacle ends by itself: a capture, a callback, or a query that the driver did not
//!   answer. The handle and a clone of the owners enter the release queue. Every function that creates,
//!   copies or synchronizes calls [`drain`] first, which repeats the attempts.
//! - **Leaked.** The driver refused the call, or the attempts are used up. The handle learns of it
//!   ([`Destroy::has_leaked`]), and the leak is reported, or only counted if nothing can be done about it
//!   ([`Leftover`]).
//!
//! # Rules
//!
//! They have measurements on a real driver behind them:
//!
//! - A release never panics, and leaves the caller's current context unchanged.
//! - Earlier errors do not prevent a release. After a fatal error, the driver refuses every release,
//!   and the object is leaked without a report.
//! - In a forked child no driver call is made, because the driver crashes there. The object is counted
//!   as leaked.
//! - A right to read shared memory is released too. If that fails, the memory is leaked, because it
//!   must never be written or freed.
//! - When the process exits, the driver returns `DEINITIALIZED`. All objects are destroyed then, and
//!   nothing remains to be done.
//! - On the threads of driver callbacks, the driver refuses most calls (`NOT_PERMITTED`), and a call that
//!   waits for all work would wait for the callback itself.
//! - Possible obstacles are queried before the release. If the driver does not answer a query, the
//!   release is deferred too, but only for a limited number of attempts; then the object is reported
//!   as leaked.
//! - An object that depends on a borrowed context or stream is never deferred: its foreign owner does
//!   not know the release queue, and may destroy the context or stream as soon as everything created
//!   with it is dropped. Such an object is leaked and reported.
//! - A release counts as a call on the streams on which it enqueues work, so no capture begins there
//!   meanwhile.
//! - A release on one thread would invalidate captures of the whole process, so releases run in the
//!   relaxed capture mode.

mod attempt;
pub(crate) mod attempts;
mod destroy;

pub(crate) use attempt::{
    MAX_RETRIES, may_block, relaxed, release_now, release_stream_ordered, restore_mode,
};
pub(crate) use destroy::{After, Destroy, Handle, Keep, Leftover, Owned, Root, destroy, owners};

use crate::call::{ContextHandle, Entered, Result, count_leak, fork, out};
use crate::release::attempt::Failure;
use crate::release::attempt::attempt;
use crate::sync::{Mutex, lock};
use cuda_sys::Zeroable;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Destroys an object now, or as soon as that is possible.
// Always inlined, so that the compiler removes the steps that this object does not need.
#[inline(always)]
pub(crate) fn release(mut handle: impl Destroy, owners: &impl Keep) {
    if fork::in_child() {
        count_leak();
    } else if let Err(failure) = attempt(&mut handle, owners) {
        has_failed(handle, owners, failure);
    }
}

/// Defers a release, unless the object depends on a borrowed one.
pub(crate) fn later(handle: impl Destroy, owners: &impl Keep) {
    has_failed(handle, owners, Failure::Obstacle);
}

/// Defers a release whose first attempt failed, or leaks the object.
#[cold]
#[inline(never)]
fn has_failed(handle: impl Destroy, owners: &dyn Keep, failure: Failure) {
    if let Some(retries) = failure.retries_or_leak(&handle, owners, 0) {
        push(Deferred { handle: Box::new(handle), owners: owners.keep(), retries });
    }
}

/// A deferred release.
pub(super) struct Deferred {
    /// Declared before the owners, so that it is dropped first.
    pub(super) handle: Box<dyn Destroy>,
    pub(super) owners: Box<dyn Keep + Send>,
    /// The number of retries so far after a query failed.
    pub(super) retries: u32,
}

static QUEUE: Mutex<VecDeque<Deferred>> = Mutex::new(VecDeque::new());
static QUEUED: AtomicUsize = AtomicUsize::new(0);

/// Returns the number of deferred releases.
///
/// A release is deferred during a capture of its stream, or on a driver callback thread. The next call
/// that creates, copies or synchronizes retries it, and so does [`attempt_deferred_releases`].
#[inline]
pub fn deferred_releases() -> usize {
    QUEUED.load(Ordering::Acquire)
}

/// Retries the [deferred releases](deferred_releases) now. A release that is still not possible stays
/// deferred. The call may block, as the drop of each object may ([`reference::releases`]).
///
/// [`reference::releases`]: crate::reference::releases
#[inline]
pub fn attempt_deferred_releases() {
    drain();
}

#[inline]
pub(super) fn push(release: Deferred) {
    let mut queue = lock(&QUEUE);
    queue.push_back(release);
    QUEUED.store(queue.len(), Ordering::Release);
}

#[inline]
fn pop() -> Option<Deferred> {
    let mut queue = lock(&QUEUE);
    let first = queue.pop_front();
    QUEUED.store(queue.len(), Ordering::Release);
    first
}

/// Retries deferred releases. Every function that creates, copies or synchronizes calls this first.
#[inline]
pub(crate) fn drain() {
    // A forked child inherits the queue, and perhaps a locked mutex, from its parent process.
    if QUEUED.load(Ordering::Acquire) != 0 && !fork::in_child() {
        drain_queue();
    }
}

#[cold]
#[inline]
fn drain_queue() {
    // Only the releases that are queued now are retried, because a release that is deferred again is
    // appended to the queue. They are dequeued one by one, so that a foreign owner that panics when it
    // is dropped leaves the others in the queue.
    for _ in 0..QUEUED.load(Ordering::Acquire) {
        let Some(release) = pop() else {
            return;
        };
        retry(release);
    }
}

#[inline]
fn retry(mut release: Deferred) {
    let (handle, owners) = (&mut *release.handle, &*release.owners);
    let Err(failure) = attempt(handle, owners) else {
        return;
    };
    if let Some(retries) = failure.retries_or_leak(handle, owners, release.retries) {
        release.retries = retries;
        push(release);
    }
}

/// Returns the object that a call creates through its pointer. See [`out`].
#[inline(always)]
pub(crate) fn create<T: Zeroable>(call: impl FnOnce(*mut T) -> Result<()>) -> Result<T> {
    drain();
    out(call)
}

/// Returns the object that a call creates with a context current.
#[inline(always)]
pub(crate) fn create_in<T: Zeroable>(
    context: &(impl ContextHandle + ?Sized),
    call: impl FnOnce(*mut T) -> Result<()>,
) -> Result<T> {
    drain();
    let _current = Entered::new(context)?;
    out(call)
}
