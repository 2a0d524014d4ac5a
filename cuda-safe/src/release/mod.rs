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
//! 1. In a host function of this crate, no driver call is allowed: stop. Stop also on a thread that cannot make
//!    the call ([`Destroy::thread`]).
//! 2. Count a call on each stream of the owners, so that no capture begins there. Stop if one of them is
//!    capturing.
//! 3. On a thread that runs another callback of the driver, stop, unless the call waits for nothing.
//! 4. Enter the relaxed capture mode, unless the call disturbs no capture ([`Destroy::is_quiet`]).
//! 5. Wait for the work that the call must come after.
//! 6. Call the driver. If it wants a current context, call it again with that of the owners.
//!
//! Events, streams and stream-ordered memory skip steps that cannot apply to them: see [`release_now`] and
//! [`release_stream_ordered`].
//!
//! # Three outcomes
//!
//! - **Released.** Handle and owners are dropped, and with them what they kept alive.
//! - **Deferred.** The obstacle ends by itself: a capture, a callback, a query that the driver did not
//!   answer, or the wrong thread. The handle and a clone of the owners enter the release queue. Every function that creates,
//!   copies or synchronizes calls [`drain`] first, which repeats the attempts.
//! - **Leaked.** The driver refused the call, the attempts are used up, or the thread has ended that alone can make the
//!   call. The handle learns of it
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
mod thread;

pub(crate) use attempt::{
    MAX_RETRIES, may_block, relaxed, release_now, release_stream_ordered, restore_mode,
};
pub(crate) use thread::OwnThread;

use crate::call::{Answer, ContextHandle, Entered, Outcome, Result, count_leak, fork, out};
use crate::capture_state::StreamRef;
use crate::sync::{Mutex, lock};
use attempt::{Failure, attempt};
use cuda_sys::{CUevent, Zeroable};
use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The handle of an object that one driver call destroys, or of a right that one driver call ends.
///
/// Each kind of object implements this beside the object. A value that is passed to
/// [`release`] stands for the object: its creator gives the object up, and
/// neither uses nor releases it otherwise.
///
/// A handle may own other values. They are dropped with it: after the call has succeeded, or after
/// [`has_leaked`](Self::has_leaked).
pub(crate) trait Destroy: Send + 'static {
    /// Returns the name of the object in messages, with its article.
    fn name(&self) -> &'static str;

    /// Calls the driver.
    ///
    /// # Safety
    /// The value was passed to a release with its owners, no earlier call has succeeded, and the work
    /// that [`after`](Self::after) names precedes this call.
    unsafe fn destroy(&self) -> Answer;

    /// Returns the work that must precede the call.
    fn after(&self) -> After {
        After::Nothing
    }

    /// Returns whether the call waits for nothing, disturbs no capture, and is permitted on callback
    /// threads (measured).
    fn is_quiet(&self) -> bool {
        false
    }

    /// Returns the thread that alone can make the call, if not every thread can. On other threads the release is
    /// deferred.
    fn thread(&self) -> Option<&OwnThread> {
        None
    }

    /// Returns what a failed release leaves behind.
    fn leftover(&self) -> Leftover {
        Leftover::Nothing
    }

    /// Called after the call has succeeded, while no capture can begin on the streams of the owners.
    fn has_been_destroyed(&mut self) {}

    /// Called if the object will never be destroyed. An implementation leaks what the driver continues to
    /// use.
    fn has_leaked(&self, _owners: &dyn Keep) {}
}

/// Implements [`Destroy`] for a handle that one driver call destroys. The row has the type, the name of the object,
/// what differs from the defaults of the trait, and the call. Other methods of the trait follow after a `;`.
///
/// ```text
/// destroy! {
///     Handle<CUarray> as "a CUDA array", after Uses, leaves Object, quiet true;
///     // SAFETY: …
///     |its| unsafe { answer!(cuArrayDestroy(its.0)) }
/// }
/// ```
///
/// expands to
///
/// ```text
/// impl Destroy for Handle<CUarray> {
///     fn name(&self) -> &'static str {
///         "a CUDA array"
///     }
///     unsafe fn destroy(&self) -> Answer {
///         let its = self;
///         unsafe { answer!(cuArrayDestroy(its.0)) }
///     }
///     fn after(&self) -> After {
///         After::Uses
///     }
///     fn leftover(&self) -> Leftover {
///         Leftover::Object
///     }
///     fn is_quiet(&self) -> bool {
///         true
///     }
/// }
/// ```
macro_rules! destroy {
    (
        $handle:ty as $name:literal
            $(, after $after:ident)? $(, leaves $leftover:ident)? $(, quiet $quiet:literal)?;
        |$its:ident| $call:expr
        $(; $($other:tt)*)?
    ) => {
        impl $crate::release::Destroy for $handle {
            #[inline]
            fn name(&self) -> &'static str {
                $name
            }

            #[inline(always)]
            unsafe fn destroy(&self) -> $crate::call::function::Answer {
                let $its = self;
                $call
            }

            $(#[inline]
            fn after(&self) -> $crate::release::After {
                $crate::release::After::$after
            })?

            $(#[inline]
            fn leftover(&self) -> $crate::release::Leftover {
                $crate::release::Leftover::$leftover
            })?

            $(#[inline]
            fn is_quiet(&self) -> bool {
                $quiet
            })?

            $($($other)*)?
        }
    };
}
pub(crate) use destroy;

impl Destroy for Box<dyn Destroy> {
    #[inline]
    fn name(&self) -> &'static str {
        (**self).name()
    }

    #[inline]
    unsafe fn destroy(&self) -> Answer {
        // SAFETY: the caller promises what the object in the box needs.
        unsafe { (**self).destroy() }
    }

    #[inline]
    fn after(&self) -> After {
        (**self).after()
    }

    #[inline]
    fn is_quiet(&self) -> bool {
        (**self).is_quiet()
    }

    #[inline]
    fn thread(&self) -> Option<&OwnThread> {
        (**self).thread()
    }

    #[inline]
    fn leftover(&self) -> Leftover {
        (**self).leftover()
    }

    #[inline]
    fn has_been_destroyed(&mut self) {
        (**self).has_been_destroyed();
    }

    #[inline]
    fn has_leaked(&self, owners: &dyn Keep) {
        (**self).has_leaked(owners);
    }
}

/// The work that must precede a call that destroys an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// None, or the driver waits for it during the call.
    Nothing,
    /// Work on the streams of the owners. The call is enqueued there, which orders it and waits for
    /// nothing.
    StreamOrder,
    /// The events and the work on the streams of the owners. The thread waits for them.
    Uses,
    /// The events of the owners, and all work of their context. The thread waits for both. The context
    /// is current during the call.
    AllWork,
}

/// What the failed release of an object leaves behind if the driver refused it because the context is
/// destroyed, the process exits, or an earlier error is fatal. (Any other refusal is reported as a leak.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leftover {
    /// Nothing if the context is destroyed, because the object belonged to the context. After a fatal
    /// error, a leak that is counted.
    Nothing,
    /// The object, which belongs to the device or the process, and outlives the context. The leak is
    /// counted.
    Object,
    /// Memory that other work may still use. The leak is always reported.
    MemoryInUse,
}

/// The pointer that identifies an object or memory in the driver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handle<P>(pub(crate) P);

// SAFETY: another thread can only pass the pointer to the driver, which takes it on any thread. Every
// other use of a pointer is unsafe and needs an argument of its own.
unsafe impl<T> Send for Handle<*mut T> {}
// SAFETY: as for `Send`, also for several threads at once.
unsafe impl<T> Sync for Handle<*mut T> {}

/// What an object needs until it is destroyed: its context, and every value that must outlive it.
pub(crate) trait Keep {
    /// Returns the context to make current if the driver requires one.
    fn context(&self) -> Option<&dyn ContextHandle>;

    /// Returns whether one of the owners is borrowed, so that a release must not be deferred.
    fn is_borrowed(&self) -> bool;

    /// Returns a clone, which keeps the owners alive while the release is deferred.
    fn keep(&self) -> Box<dyn Keep + Send>;

    /// Returns the streams on which the object was used. A release is deferred while one of them is
    /// capturing.
    fn streams(&self) -> [Option<StreamRef<'_>>; 2] {
        [None, None]
    }

    /// Returns events that were recorded after uses of the object.
    fn events(&self) -> Vec<CUevent> {
        Vec::new()
    }

    /// Leaks the owners.
    fn leak(&self) {
        std::mem::forget(self.keep());
    }
}

/// Implements [`Keep`] for owners that a clone keeps alive. The row has the type, and an expression for each
/// method; `streams` and `events` may be absent:
///
/// ```text
/// owners! {
///     Reading |its| {
///         context: Some(its.stream.context()),
///         is_borrowed: its.stream.is_borrowed(),
///         streams: [Some(its.stream.by_ref()), None],
///     }
/// }
/// ```
macro_rules! owners {
    ($owners:ty |$its:ident| {
        context: $context:expr,
        is_borrowed: $borrowed:expr,
        $(streams: $streams:expr,)?
        $(events: $events:expr,)?
    }) => {
        impl $crate::release::Keep for $owners {
            #[inline]
            #[allow(unused_variables, reason = "the expression may be a constant")]
            fn context(&self) -> Option<&dyn $crate::call::ContextHandle> {
                let $its = self;
                $context
            }

            #[inline]
            #[allow(unused_variables, reason = "the expression may be a constant")]
            fn is_borrowed(&self) -> bool {
                let $its = self;
                $borrowed
            }

            #[inline]
            fn keep(&self) -> Box<dyn $crate::release::Keep + Send> {
                Box::new(<$owners as Clone>::clone(self))
            }

            $(#[inline]
            fn streams(&self) -> [Option<$crate::capture_state::StreamRef<'_>>; 2] {
                let $its = self;
                $streams
            })?

            $(#[inline]
            fn events(&self) -> Vec<cuda_sys::CUevent> {
                let $its = self;
                $events
            })?
        }
    };
}
pub(crate) use owners;

/// The owners of a context: none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Root {
    pub(crate) is_borrowed: bool,
}

owners! {
    Root |its| {
        context: None,
        is_borrowed: its.is_borrowed,
    }
}

/// An object whose handle owns everything that the object needs. Dropping this releases the object.
#[derive(Debug)]
pub(crate) struct Owned<H: Destroy>(ManuallyDrop<H>);

impl<H: Destroy> Owned<H> {
    pub(crate) fn new(handle: H) -> Self {
        Self(ManuallyDrop::new(handle))
    }

    /// Destroys the object now, in the current state of the thread.
    ///
    /// # Errors
    /// Errors of the driver call. The object is then dropped.
    ///
    /// # Safety
    /// See [`Destroy::destroy`].
    pub(crate) unsafe fn destroy(self) -> Result<()> {
        // SAFETY: the caller's promise. The value stands for the object.
        unsafe { self.0.destroy() }.result()?;
        let mut destroyed = ManuallyDrop::new(self);
        // SAFETY: the drop of this value does not run, and the handle is not used again.
        unsafe { ManuallyDrop::drop(&mut destroyed.0) };
        Ok(())
    }
}

impl<H: Destroy> Deref for Owned<H> {
    type Target = H;

    fn deref(&self) -> &H {
        &self.0
    }
}

impl<H: Destroy> Drop for Owned<H> {
    fn drop(&mut self) {
        // SAFETY: the handle is not used again.
        let handle = unsafe { ManuallyDrop::take(&mut self.0) };
        release(handle, &Root { is_borrowed: false });
    }
}

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
struct Deferred {
    /// Declared before the owners, so that it is dropped first.
    handle: Box<dyn Destroy>,
    owners: Box<dyn Keep + Send>,
    /// The number of retries so far after a query failed.
    retries: u32,
}

static QUEUE: Mutex<VecDeque<Deferred>> = Mutex::new(VecDeque::new());
static QUEUED: AtomicUsize = AtomicUsize::new(0);

/// Returns the number of deferred releases.
///
/// A release is deferred during a capture of its stream, or on a driver callback thread. The next call
/// that creates, copies or synchronizes retries it, and so does [`attempt_deferred_releases`]. The release
/// of a resource of OpenGL is retried only in the thread that registered it, and the resource is leaked if that thread
/// has ended.
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
fn push(release: Deferred) {
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
        let Some(release) = pop() else { return };
        retry(release);
    }
}

#[inline]
fn retry(mut release: Deferred) {
    let (handle, owners) = (&mut *release.handle, &*release.owners);
    let Err(failure) = attempt(handle, owners) else { return };
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
