//! What waits for a moment in which it can be released.

use super::{Answer, Parent, Resource, release_again};
use crate::call::fail;
use crate::fork;
use crate::invalid::Invalid;
use crate::report::{Report, report};
use crate::sync::Mutex;
use std::collections::VecDeque;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

struct Waiting {
    resource: Resource,
    parent: Box<dyn Parent + Send>,
    /// How often it was put off for want of an answer.
    before: u32,
}

static QUEUE: Mutex<VecDeque<Waiting>> = Mutex::new(VecDeque::new());
static QUEUED: AtomicUsize = AtomicUsize::new(0);

/// Has a release wait, unless what it hangs on may be gone before its turn comes.
pub(super) fn put_off(
    resource: Resource,
    parent: &(impl Parent + ?Sized),
    before: u32,
    why: Answer,
) {
    if !parent.is_borrowed() {
        return enqueue(resource, parent, before);
    }
    resource.keep_what_is_used(parent);
    report(&Report::Leaked {
        what: resource.name(),
        error: match why {
            Answer::Said(code, function) | Answer::Unknown(code, function) => fail(function, code),
            Answer::Later => Invalid::BorrowedCannotWait.into(),
        },
    });
}

/// Returns the number of releases that are deferred: during a capture of their stream, or on a driver
/// callback thread. The next call that creates, copies or synchronizes attempts them again.
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

/// Releases what had to wait. Whatever creates, copies or synchronises calls this first.
#[inline]
pub(crate) fn drain() {
    // A forked child has the queue, and perhaps its lock, of a moment in another process.
    if QUEUED.load(Ordering::Acquire) != 0 && !fork::in_child() {
        drain_queue();
    }
}

#[cold]
fn drain_queue() {
    // Those of now: what still has to wait goes to the end of the queue. One by one, so that a
    // foreign owner that panics when it is dropped leaves the others where they are.
    for _ in 0..QUEUED.load(Ordering::Acquire) {
        let Some(waiting) = dequeue() else {
            return;
        };
        release_again(waiting.resource, &*waiting.parent, waiting.before);
    }
}
