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

mod at_once;
mod attempt;
pub(crate) mod attempts;
mod create;
mod destroy;
mod failure;
mod keep;
mod mode;
mod owned;
mod queue;

pub(crate) use at_once::{release_now, release_stream_ordered};
pub(crate) use attempt::may_block;
pub(crate) use create::{create, create_in};
pub(crate) use destroy::{After, Destroy, Handle, Leftover, destroy};
pub(crate) use failure::MAX_RETRIES;
pub(crate) use keep::{Keep, Root, owners};
pub(crate) use mode::{relaxed, restore_mode};
pub(crate) use owned::Owned;
pub(crate) use queue::drain;
pub use queue::{attempt_deferred_releases, deferred_releases};

use crate::call::{count_leak, fork};
use crate::release::attempt::attempt;
use crate::release::failure::Failure;
use crate::release::queue::Deferred;

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
        queue::push(Deferred { handle: Box::new(handle), owners: owners.keep(), retries });
    }
}
