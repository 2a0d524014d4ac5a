//! The order of allocations and frees relative to the work of a stream.

use super::{MemoryManager, current, with_wrapped};
use crate::call::{ContextHandle, Result, refuse_in_host_function, without_current};
use crate::capture_state as capture;
use crate::capture_state::{Operation, StreamRef, is_default, refuse_captured};
use crate::context::Context;
use crate::release::Keep;
use crate::stream::{CaptureMode, Stream};
use cuda_sys::{CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, CUstream};
use std::fmt;
use std::marker::PhantomData;

/// The order of an allocation or free: relative to the work of a stream, or without a stream.
///
/// Stream-ordered memory is used by work that is enqueued on the stream after the allocation and before
/// the free, so the same stream can reuse it at once. Memory without a stream can be used by work on
/// any stream. It is reused after all work of the context at the time of its free is complete.
#[derive(Clone, Copy)]
pub struct Order<'a>(Kind<'a>);

#[derive(Clone, Copy)]
enum Kind<'a> {
    None,
    Of(&'a Stream),
    Persistent(CUstream),
    Passing(CUstream),
}

impl<'a> Order<'a> {
    /// An order without a stream.
    pub const NONE: Self = Self(Kind::None);

    /// Returns the order of `stream`.
    #[inline]
    pub fn of(stream: &'a Stream) -> Self {
        Self(Kind::Of(stream))
    }

    /// Returns the order of a stream that is owned by other code (PyTorch, for example) and stays
    /// alive. The handles 0 and 1 of the legacy default stream are valid; they mean that of the manager's
    /// context. The per-thread default stream, handle 2, is always [transient](Self::transient).
    ///
    /// # Safety
    /// The handle is 0 or 1, or a stream of the manager's context. That stream stays alive until all
    /// memory that was allocated in its order is freed. After that, it stays alive until the manager
    /// either has been [notified](StreamEnd::of_raw) that the stream ends, or has been dropped. It is
    /// not captured while a manager is called with it. (A manager uses the handle only within calls
    /// that receive it.)
    #[inline]
    pub unsafe fn persistent(stream: CUstream) -> Self {
        capture::handle_is_shared();
        match stream.addr() == CU_STREAM_PER_THREAD.addr() {
            true => Self(Kind::Passing(stream)),
            false => Self(Kind::Persistent(stream)),
        }
    }

    /// Returns the order of a stream that is owned by other code and may be destroyed after the call.
    /// Memory that is freed in this order gets an event at once.
    ///
    /// # Safety
    /// The handle is 2, or a stream of the manager's context that is alive during the call. It is not
    /// captured.
    #[inline]
    pub unsafe fn transient(stream: CUstream) -> Self {
        capture::handle_is_shared();
        Self(Kind::Passing(stream))
    }

    /// Returns the handle of the stream, if there is one. Other code can then capture the stream; see
    /// [`Stream::as_raw`]. To compare streams, use [`key`](Self::key).
    #[inline]
    pub fn as_raw(self) -> Option<CUstream> {
        match self.0 {
            Kind::Of(stream) => Some(stream.as_raw()),
            _ => self.raw(),
        }
    }

    /// Returns a number that identifies the stream among the live streams of its context, or `None`
    /// without a stream. It is the address of the handle: 1 for the legacy default stream, also if the
    /// order was created with the handle 0, and 2 for the per-thread default stream.
    ///
    /// After the stream has ended, another stream may have the same key.
    #[inline]
    pub fn key(self) -> Option<usize> {
        self.raw().map(|raw| raw.addr().max(CU_STREAM_LEGACY.addr()))
    }

    /// Returns the handle of the stream, if there is one, for calls of this crate.
    #[inline]
    pub(crate) fn raw(self) -> Option<CUstream> {
        match self.0 {
            Kind::None => None,
            Kind::Of(stream) => Some(stream.raw()),
            Kind::Persistent(raw) | Kind::Passing(raw) => Some(raw),
        }
    }

    /// Returns the stream, if it is a [`Stream`] of this crate.
    #[inline]
    pub fn stream(self) -> Option<&'a Stream> {
        match self.0 {
            Kind::Of(stream) => Some(stream),
            _ => None,
        }
    }

    /// Returns whether the stream may be destroyed after the call: the order was created by
    /// [transient](Self::transient), or the stream is [borrowed](Stream::borrow_raw).
    #[inline]
    pub fn is_transient(self) -> bool {
        match self.0 {
            Kind::Of(stream) => stream.is_borrowed(),
            Kind::Passing(_) => true,
            Kind::None | Kind::Persistent(_) => false,
        }
    }

    /// Returns whether the stream may end without a [notification](MemoryManager::stream_ends) of
    /// `manager`: the order is [transient](Self::is_transient), or the stream is a [`Stream`] of a
    /// context whose manager neither is `manager` nor [wraps](MemoryManager::wrapped) it.
    ///
    /// A manager keeps nothing about such a stream beyond the call.
    #[inline]
    pub fn is_transient_for(self, manager: &dyn MemoryManager) -> bool {
        if self.is_transient() {
            return true;
        }
        let Some(stream) = self.stream() else {
            // The end of a persistent stream is notified by the code that owns it.
            return false;
        };
        let notified = stream.context().made_manager();
        let mut notified = notified.into_iter().flat_map(with_wrapped);
        !notified.any(|its| is_same(its, manager))
    }

    /// Makes a driver call on the stream. A default stream is that of `context`. Does nothing without a
    /// stream.
    pub(crate) fn call(
        self,
        context: &Context,
        mut call: impl FnMut(CUstream) -> Result<()>,
    ) -> Result<()> {
        let Some(raw) = self.raw() else { return Ok(()) };
        if is_default(raw) {
            let _current = context.enter()?;
            return call(raw);
        }
        without_current(context, || call(raw))
    }
}

/// Returns whether both are the same object. A wrapper may have the same address as its inner manager,
/// so their types are compared too.
#[inline]
fn is_same(one: &dyn MemoryManager, other: &dyn MemoryManager) -> bool {
    std::ptr::addr_eq(one, other) && one.as_any().type_id() == other.as_any().type_id()
}

/// A stream that ends. The value proves that the stream is alive and that its holder may announce its
/// end.
///
/// For a [`Stream`], only this crate creates one, when the last clone is dropped.
#[derive(Debug)]
pub struct StreamEnd<'a> {
    raw: CUstream,
    stream: PhantomData<&'a ()>,
}

impl<'a> StreamEnd<'a> {
    /// Returns the end of a stream, given by its handle, that is alive for the lifetime of the borrow.
    #[inline]
    pub(crate) fn of(raw: &'a CUstream) -> Self {
        let stream = PhantomData;
        Self { raw: *raw, stream }
    }

    /// Returns the end of a stream that is owned by other code, was used in a [persistent](Order::persistent)
    /// order, and is about to be destroyed.
    ///
    /// # Safety
    /// The stream stays alive until this value is dropped, is not captured, and no other thread uses it
    /// in an order meanwhile.
    #[inline]
    pub unsafe fn of_raw(raw: CUstream) -> Self {
        let stream = PhantomData;
        Self { raw, stream }
    }

    /// Notifies a manager, and every manager that it [wraps](MemoryManager::wrapped).
    #[inline]
    pub fn notify(&self, manager: &dyn MemoryManager) {
        for its in with_wrapped(manager) {
            let _current = current::try_enter(its);
            its.stream_ends(self);
        }
    }

    /// Returns the order of the stream, for work that must be enqueued on it before it ends. The order is
    /// [transient](Order::is_transient).
    #[inline]
    pub fn order(&self) -> Order<'_> {
        Order(Kind::Passing(self.raw))
    }

    /// Returns the handle of the stream. After the stream has ended, it may be the handle of another
    /// stream.
    #[inline]
    pub fn as_raw(&self) -> CUstream {
        self.raw
    }
}

impl fmt::Debug for Order<'_> {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, raw) = match self.0 {
            Kind::None => return f.write_str("None"),
            Kind::Of(stream) => ("Of", stream.raw()),
            Kind::Persistent(raw) => ("Persistent", raw),
            Kind::Passing(raw) => ("Passing", raw),
        };
        f.debug_tuple(name).field(&raw).finish()
    }
}

/// The owners of memory that is released in an order.
pub(crate) struct OrderOwners<'a> {
    pub(crate) order: Order<'a>,
    pub(crate) context: &'a Context,
}

impl Keep for OrderOwners<'_> {
    #[inline]
    fn context(&self) -> Option<&dyn ContextHandle> {
        Some(self.context)
    }

    #[inline]
    fn is_borrowed(&self) -> bool {
        match self.order.0 {
            Kind::Of(stream) => stream.is_borrowed() || self.context.is_borrowed(),
            Kind::Persistent(raw) if !is_default(raw) => true,
            Kind::None | Kind::Persistent(_) => self.context.is_borrowed(),
            Kind::Passing(_) => true,
        }
    }

    #[inline]
    fn keep(&self) -> Box<dyn Keep + Send> {
        match self.order.0 {
            Kind::Of(stream) => Box::new((stream.clone(), self.context.clone())),
            // A release with a raw stream is never deferred: the stream counts as borrowed, so that its
            // end does not have to wait for the release queue.
            Kind::None | Kind::Persistent(_) | Kind::Passing(_) => Box::new(self.context.clone()),
        }
    }

    #[inline]
    fn streams(&self) -> [Option<StreamRef<'_>>; 2] {
        let stream = match self.order.0 {
            Kind::Of(stream) => Some(stream.by_ref()),
            Kind::Persistent(raw) | Kind::Passing(raw) if !is_default(raw) => {
                Some(StreamRef::without_state(raw))
            }
            _ => None,
        };
        [stream, None]
    }
}

/// Enqueues an operation on the stream of an order. Enqueues nothing for an order without a stream.
///
/// Memory that is allocated on a captured stream belongs to the graph, and an event that is recorded
/// there does not order real execution. So a manager enqueues nothing on a captured stream.
///
/// # Errors
/// The stream is captured; the errors of `call`.
pub(crate) fn enqueue(
    order: Order<'_>,
    operation: Operation,
    context: &Context,
    call: impl FnMut(CUstream) -> Result<()>,
) -> Result<()> {
    let _call = match order.stream() {
        Some(stream) => Some(stream.uncaptured(operation)?),
        None => {
            // SAFETY: the order promises that the stream is alive; a default stream is that of the
            // context.
            order.call(context, |raw| unsafe { refuse_captured(raw) })?;
            None
        }
    };
    order.call(context, call)
}

/// Enqueues an operation on the stream of an order, for a release.
///
/// # Errors
/// The stream is captured; the caller is a host function; the errors of `call`.
pub(crate) fn enqueue_now(
    order: Order<'_>,
    operation: Operation,
    context: &Context,
    call: impl FnMut(CUstream) -> Result<()>,
) -> Result<()> {
    refuse_in_host_function()?;
    enqueue(order, operation, context, call)
}

/// Makes driver calls that could invalidate captures of other threads, such as an allocation or the
/// query of an event, in a way that does not.
///
/// While a capture may be open, `calls` runs in the mode
/// [`Relaxed`](CaptureMode::Relaxed). See [`CaptureMode::with`].
///
/// # Errors
/// The driver refuses to change the mode; errors of `calls`.
pub fn without_invalidating_captures<T>(calls: impl FnOnce() -> Result<T>) -> Result<T> {
    if capture::may_be_open() { CaptureMode::Relaxed.with(calls)? } else { calls() }
}
