//! What is released ([`Destroy`]), and what keeps alive whatever the release needs ([`Keep`]).

use crate::call::{Answer, ContextHandle, Outcome, Result};
use crate::capture_state::StreamRef;
use crate::release::release;
use cuda_sys::CUevent;
use std::mem::ManuallyDrop;
use std::ops::Deref;

/// The handle of an object that one driver call destroys, or of a right that one driver call ends.
///
/// Each kind of object implements this beside the object. A value that is passed to
/// [`release`](super::release) stands for the object: its creator gives the object up, and
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
