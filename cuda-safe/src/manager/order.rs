//! In which stream's order memory is handed out and taken back.

use super::{MemoryManager, current, with_wrapped};
use crate::call::without_current;
use crate::capture;
use crate::context::Context;
use crate::error::Result;
use crate::release::{Parent, Root};
use crate::stream::{OrderedOn, Stream, is_default};
use cuda_sys::CUstream;
use std::fmt;
use std::marker::PhantomData;

/// The stream in whose order memory is allocated or freed; or none.
///
/// Memory of a stream's order is used by work that is given to that stream after the allocation and
/// before the free; so it can be used again for the same stream at once. Memory of no stream's order is
/// anybody's: it is used again when all work of the context at the time of its free is done.
#[derive(Clone, Copy)]
pub struct Order<'a>(Kind<'a>);

#[derive(Clone, Copy)]
enum Kind<'a> {
    None,
    Of(&'a Stream),
    Lasting(CUstream),
    Passing(CUstream),
}

impl<'a> Order<'a> {
    /// Of no stream.
    pub const NONE: Self = Self(Kind::None);

    /// Of a stream.
    #[inline]
    pub fn of(stream: &'a Stream) -> Self {
        Self(Kind::Of(stream))
    }

    /// Of a stream of other code (PyTorch's, say) that stays; the default streams are among those, by
    /// their handles 0 and 1, and mean those of the manager's context.
    ///
    /// # Safety
    /// The handle is 0 or 1, or a stream of the manager's context. That stream is alive until all memory that
    /// was allocated in its order is freed, and then until the manager either has been
    /// [told](StreamEnd::of_raw) of its end or has ended. It is not captured while a manager is called with it.
    /// (A manager makes no call with the handle but in a call that names it.)
    pub unsafe fn lasting(stream: CUstream) -> Self {
        capture::handle_is_shared();
        Self(Kind::Lasting(stream))
    }

    /// The same, of a stream that came here before.
    ///
    /// # Safety
    /// As for [`lasting`](Self::lasting).
    pub(crate) unsafe fn known(stream: CUstream) -> Self {
        Self(Kind::Lasting(stream))
    }

    /// Of a stream of other code that may be destroyed after the call: what is freed in its order gets an
    /// event behind it. The thread's own default stream is one, by its handle 2.
    ///
    /// # Safety
    /// The handle is 2, or a stream of the manager's context that is alive during the call. It is not
    /// captured.
    pub unsafe fn passing(stream: CUstream) -> Self {
        capture::handle_is_shared();
        Self(Kind::Passing(stream))
    }

    /// The handle of the stream, if there is one.
    pub fn as_raw(self) -> Option<CUstream> {
        match self.0 {
            Kind::Of(stream) => Some(stream.as_raw()),
            _ => self.raw(),
        }
    }

    /// The same for calls of this crate.
    #[inline]
    pub(crate) fn raw(self) -> Option<CUstream> {
        match self.0 {
            Kind::None => None,
            Kind::Of(stream) => Some(stream.raw()),
            Kind::Lasting(raw) | Kind::Passing(raw) => Some(raw),
        }
    }

    /// The stream, if it is one of this crate's.
    #[inline]
    pub fn stream(self) -> Option<&'a Stream> {
        match self.0 {
            Kind::Of(stream) => Some(stream),
            _ => None,
        }
    }

    /// Whether the stream may be gone after the call: it was said so, or the stream is only
    /// [lent](Stream::borrow_raw).
    #[inline]
    pub fn is_passing(self) -> bool {
        match self.0 {
            Kind::Of(stream) => Parent::is_borrowed(stream),
            Kind::Passing(_) => true,
            Kind::None | Kind::Lasting(_) => false,
        }
    }

    /// Makes a call that names the stream; the default ones are those of the context.
    pub(crate) fn call(
        self,
        context: &Context,
        mut call: impl FnMut(CUstream) -> Result<()>,
    ) -> Result<()> {
        let Some(raw) = self.raw() else {
            return Ok(());
        };
        if is_default(raw) {
            let _current = context.enter()?;
            return call(raw);
        }
        without_current(context, || call(raw))
    }
}

/// A stream that ends: the proof that it is alive, and that whoever tells of its end may do so.
///
/// Only this crate makes one of a [`Stream`], when the last clone is dropped.
#[derive(Debug)]
pub struct StreamEnd<'a> {
    raw: CUstream,
    stream: PhantomData<&'a ()>,
}

impl<'a> StreamEnd<'a> {
    /// Of a stream, known by its handle, that lives as long as the borrow.
    pub(crate) fn of(raw: &'a CUstream) -> Self {
        let stream = PhantomData;
        Self { raw: *raw, stream }
    }

    /// Of a stream of other code, which was named in a [lasting](Order::lasting) order and is about to be
    /// destroyed.
    ///
    /// # Safety
    /// The stream is alive until this is dropped, is not captured, and no other thread names it in an order
    /// meanwhile.
    pub unsafe fn of_raw(raw: CUstream) -> Self {
        let stream = PhantomData;
        Self { raw, stream }
    }

    /// Tells a manager, and every manager that it is [around](MemoryManager::wrapped).
    pub fn tell(&self, manager: &dyn MemoryManager) {
        for its in with_wrapped(manager) {
            let _current = current::try_enter(its);
            its.stream_ends(self);
        }
    }

    /// Returns the handle of the stream. After the end it may be the handle of another stream.
    pub fn as_raw(&self) -> CUstream {
        self.raw
    }
}

impl fmt::Debug for Order<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, raw) = match self.0 {
            Kind::None => return f.write_str("None"),
            Kind::Of(stream) => ("Of", stream.raw()),
            Kind::Lasting(raw) => ("Lasting", raw),
            Kind::Passing(raw) => ("Passing", raw),
        };
        f.debug_tuple(name).field(&raw).finish()
    }
}

/// What a release in an order hangs on.
pub(crate) struct OrderParent<'a> {
    pub(crate) order: Order<'a>,
    pub(crate) context: &'a Context,
}

impl Parent for OrderParent<'_> {
    fn context(&self) -> Option<&Context> {
        Some(self.context)
    }

    fn ordered_on(&self) -> [Option<OrderedOn<'_>>; 2] {
        let on = match self.order.0 {
            Kind::Of(stream) => Some(OrderedOn::Stream(stream)),
            Kind::Lasting(raw) | Kind::Passing(raw) if !is_default(raw) => {
                Some(OrderedOn::Raw(raw))
            }
            _ => None,
        };
        [on, None]
    }

    fn keep(&self) -> Box<dyn Parent + Send> {
        match self.order.0 {
            Kind::Of(stream) => Box::new((stream.clone(), self.context.clone())),
            Kind::None | Kind::Lasting(_) => Box::new(self.context.clone()),
            // It does not come to that: such a one is borrowed, as is a lasting one, whose end need not wait
            // for the queue.
            Kind::Passing(_) => Box::new(Root { is_borrowed: true }),
        }
    }

    fn is_borrowed(&self) -> bool {
        match self.order.0 {
            Kind::Of(stream) => Parent::is_borrowed(stream) || Parent::is_borrowed(self.context),
            Kind::Lasting(raw) if !is_default(raw) => true,
            Kind::None | Kind::Lasting(_) => Parent::is_borrowed(self.context),
            Kind::Passing(_) => true,
        }
    }
}
