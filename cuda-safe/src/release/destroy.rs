//! Handles of objects that are released.

use super::Keep;
use crate::call::Answer;

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
