//! The release queue, which holds deferred releases.

use super::{Answer, Parent, Resource, release_again};
use crate::base::call::fail;
use crate::base::fork;
use crate::base::invalid::Invalid;
use crate::base::report::{Report, report};
use crate::base::sync::Mutex;
use std::collections::VecDeque;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

struct Waiting {
    resource: Resource,
    parent: Box<dyn Parent + Send>,
    /// The number of retries so far after a query failed.
    before: u32,
}

static QUEUE: Mutex<VecDeque<Waiting>> = Mutex::new(VecDeque::new());
static QUEUED: AtomicUsize = AtomicUsize::new(0);

/// Defers a release, unless it depends on a borrowed object, which may be destroyed before the retry.
pub(super) fn defer(resource: Resource, parent: &(impl Parent + ?Sized), before: u32, why: Answer) {
    if !parent.is_borrowed() {
        return enqueue(resource, parent, before);
    }
    resource.leak_dependents(parent);
    report(&Report::Leaked {
        what: resource.name(),
        error: match why {
            Answer::Said(code, function) | Answer::Unknown(code, function) => fail(function, code),
            Answer::Later => Invalid::BorrowedCannotWait.into(),
        },
    });
}

/// Returns the number of deferred releases.
///
/// A release is deferred during a capture of its stream, or on a driver callback thread. The next call
/// that creates, copies or synchronizes retries it.
pub fn deferred_releases() -> usize {
    QUEUED.load(Ordering::Acquire)
}

fn enqueue(resource: Resource, parent: &(impl Parent + ?Sized), before: u32) {
    let waiting = Waiting {
        resource,
        parent: parent.keep(),
        before,
    };
    let mut queue = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
    queue.push_back(waiting);
    QUEUED.store(queue.len(), Ordering::Release);
}

fn dequeue() -> Option<Waiting> {
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
fn drain_queue() {
    // Only the releases that are queued now are retried, because a release that is deferred again is
    // appended to the queue. They are dequeued one by one, so that a foreign owner that panics when it
    // is dropped leaves the others in the queue.
    for _ in 0..QUEUED.load(Ordering::Acquire) {
        let Some(waiting) = dequeue() else {
            return;
        };
        release_again(waiting.resource, &*waiting.parent, waiting.before);
    }
}
