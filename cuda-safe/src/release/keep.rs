//! The owners of objects that are released.

use crate::call::ContextHandle;
use crate::capture_state::StreamRef;
use cuda_sys::CUevent;

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
