//! The release queue, which holds deferred releases.

use super::attempt::attempt;
use super::{Destroy, Keep};
use crate::call::fork;
use crate::sync::Mutex;
use std::collections::VecDeque;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

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
    let mut queue = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
    queue.push_back(release);
    QUEUED.store(queue.len(), Ordering::Release);
}

#[inline]
fn pop() -> Option<Deferred> {
    let mut queue = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
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
