//! Streams: queues of work on a device.

mod attributes;
mod borrow;
mod capture;
mod default;
mod done;
mod end;
mod enqueue;
mod host;
mod memory_op;
mod needs;
mod wait;

pub use attributes::{
    AccessProperty, AccessWindow, MemorySyncDomain, MemorySyncDomainMap, SynchronizationPolicy,
};
pub(crate) use borrow::has_green_context;
pub use capture::{Capture, CaptureMode, CaptureStatus};
pub use default::DefaultStream;
pub use done::Done;
pub(crate) use enqueue::{ForeignStream, OrderedOn, is_default};
pub(crate) use host::{Panicked, is_inside, refuse_inside};
pub use memory_op::{BarrierScope, MemoryOperation, WaitCondition};
pub(crate) use needs::Need;

use crate::call::{answer, call, without_current};
use crate::capture::{Kind, State};
use crate::context::Context;
use crate::error::{Error, Rejected, Result};
use crate::green::GreenContext;
use crate::hold::Hold;
use crate::invalid::Invalid;
use crate::release::{self, Parent};
use cuda_sys::{CUresult, CUstream, CUstream_flags};
use std::any::Any;
use std::fmt;
use std::sync::{Arc, Weak};

/// `CUstream`: work given to one stream runs in order; streams run beside each other.
///
/// Clones share the stream. It holds its context (or green context) and is destroyed with its last
/// clone and the last buffer bound to it; destroying waits for nothing.
///
/// Every call here that names the stream is one call of the driver, and needs no current context,
/// unless it says otherwise.
///
/// # Several devices
/// A stream works on its device, whichever context is current. Together with things of another device,
/// or of another context of the same one:
///
/// | | |
/// |---|---|
/// | [`wait`](Self::wait), [`DefaultStream::wait`] for its event | works: that is how devices get in order |
/// | [`Event::record`](crate::Event::record), [`Event::record_external`](crate::Event::record_external), [`DefaultStream::record`] of its event | an error |
/// | a stream of its that waits for an event of a [capture](Self::begin_capture) | becomes part of the capture, as any stream |
/// | [`ExecutableGraph::launch`](crate::ExecutableGraph::launch) on a stream of its | an error |
/// | [`copy_attributes_from`](Self::copy_attributes_from) a stream of its | an error |
/// | [`set_access_window`](Self::set_access_window) to its memory | an error |
/// | [`memory_operation`](Self::memory_operation) on its memory | `unsafe`: it takes [access](crate::Context::enable_peer_access) |
/// | [`is_idle`](Self::is_idle), [`synchronize`](Self::synchronize), [`done`](Self::done), host functions, and all that asks events | are of one stream or event |
///
/// ```no_run
/// use cuda_safe::{Context, Device, StreamOptions};
///
/// let context = Context::primary(&Device::get(0)?)?;
/// let stream = context.stream_with(StreamOptions { priority: -1, ..Default::default() })?;
/// stream.synchronize()?;
/// # Ok::<_, cuda_safe::Error>(())
/// ```
#[derive(Clone)]
pub struct Stream {
    inner: Arc<Inner>,
}

struct Inner {
    raw: CUstream,
    hold: Hold,
    /// Whether somebody has only lent it, or its context, and may end it as soon as this is gone.
    is_lent: bool,
    home: Home,
    /// Of its home, within reach: every call looks at it.
    context: Context,
    /// Of the handle: other objects of it have the same.
    state: Arc<State>,
    panicked: Arc<Panicked>,
}

/// Where a stream's work runs.
#[derive(Clone, Debug)]
pub(crate) enum Home {
    Context(Context),
    Green(GreenContext),
}

// SAFETY: the driver lets any thread use a stream, several at once (measured with 12).
unsafe impl Send for Inner {}
// SAFETY: as for Send.
unsafe impl Sync for Inner {}

/// How a stream is made. The default is non-blocking, of priority 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StreamOptions {
    /// Whether the stream waits for the legacy default stream, and it for this one. Not possible
    /// in a green context.
    pub blocking: bool,
    /// Lower numbers go first; 0 is the default. Values outside the device's range are clamped.
    /// A hint: nothing that runs is interrupted, and copies are not affected.
    pub priority: i32,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl StreamOptions {
    pub(crate) fn flags(self) -> u32 {
        if self.blocking {
            CUstream_flags::CU_STREAM_DEFAULT.0
        } else {
            CUstream_flags::CU_STREAM_NON_BLOCKING.0
        }
    }
}

impl Context {
    /// A [stream](Stream) of this context, non-blocking and of priority 0.
    ///
    /// # Errors
    /// As for [`stream_with`](Self::stream_with).
    pub fn stream(&self) -> Result<Stream> {
        self.stream_with(StreamOptions::default())
    }

    /// `cuStreamCreateWithPriority(&stream, flags, priority)`: a stream of this context.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY`, or one of earlier work.
    ///
    /// Since CUDA 5.5. Raw: [`cuStreamCreate`](fn@cuda_sys::cuStreamCreate),
    /// [`cuStreamCreateWithPriority`](fn@cuda_sys::cuStreamCreateWithPriority),
    /// [`cuStreamDestroy_v2`](fn@cuda_sys::cuStreamDestroy_v2).
    #[doc(alias = "cuStreamCreate")]
    #[doc(alias = "cuStreamCreateWithPriority")]
    #[doc(alias = "cuStreamDestroy")]
    pub fn stream_with(&self, options: StreamOptions) -> Result<Stream> {
        release::drain();
        let mut raw = std::ptr::null_mut();
        let _current = self.enter()?;
        // SAFETY: the pointer is to a local, and the current context is this one.
        unsafe {
            call!(cuStreamCreateWithPriority(
                &raw mut raw,
                options.flags(),
                options.priority
            ))
        }?;
        let state = State::new(Kind::Stream);
        Ok(Stream::own(
            raw,
            Home::Context(self.clone()),
            Hold::Owned,
            state,
        ))
    }
}

impl Stream {
    fn own(raw: CUstream, home: Home, hold: Hold, state: Arc<State>) -> Self {
        Self {
            inner: Arc::new(Inner {
                raw,
                is_lent: matches!(hold, Hold::Borrowed) || home.is_borrowed(),
                hold,
                context: home.context().clone(),
                home,
                state,
                panicked: Arc::default(),
            }),
        }
    }

    /// A stream just made in a green context.
    pub(crate) fn own_green(raw: CUstream, green: GreenContext) -> Self {
        Self::own(
            raw,
            Home::Green(green),
            Hold::Owned,
            State::new(Kind::Stream),
        )
    }

    /// A stream that others keep, for as long as `owner` is there.
    pub(crate) fn leased(stream: &Self, owner: impl Any + Send + Sync) -> Self {
        let home = Home::Context(stream.context().clone());
        let state = Arc::clone(stream.state());
        Self::own(stream.raw(), home, Hold::Foreign(Box::new(owner)), state)
    }

    /// Who keeps it, if it is somebody else's.
    pub(crate) fn owner(&self) -> Option<&(dyn Any + Send + Sync)> {
        match &self.inner.hold {
            Hold::Foreign(owner) => Some(&**owner),
            Hold::Owned | Hold::Borrowed => None,
        }
    }

    /// Takes over a stream: it is destroyed with the last clone.
    ///
    /// # Errors
    /// The handles 0, 1 and 2 are the default streams, which mean another stream in each context
    /// or thread: see [`DefaultStream`].
    ///
    /// # Safety
    /// `raw` is a stream of `context`, and not of a green context, that is alive and not captured, and
    /// nobody else destroys it.
    pub unsafe fn from_raw(raw: CUstream, context: &Context) -> Result<Self> {
        Self::wrap(raw, context, Hold::Owned)
    }

    /// A stream that somebody else owns: never destroyed here.
    ///
    /// A buffer bound to it cannot wait for its release: see [`Context::borrow_raw`].
    ///
    /// # Errors
    /// As for [`from_raw`](Self::from_raw).
    ///
    /// # Safety
    /// `raw` is a stream of `context`, or of a green context on its device if it is a primary one,
    /// that stays alive until the last clone of this, and everything that holds one (buffers bound
    /// to it, readers, copies under way, graphs of its work), is gone. (What this crate has leaked is
    /// not used any more.)
    pub unsafe fn borrow_raw(raw: CUstream, context: &Context) -> Result<Self> {
        Self::wrap(raw, context, Hold::Borrowed)
    }

    /// A stream that `owner` keeps alive: never destroyed here, and `owner` is dropped after the
    /// last clone of this.
    ///
    /// # Errors
    /// As for [`from_raw`](Self::from_raw); the owner is given back.
    ///
    /// # Safety
    /// `raw` is a stream of `context`, or of a green context on its device if it is a primary one,
    /// that stays alive as long as `owner` is.
    pub unsafe fn from_foreign<O: Any + Send + Sync>(
        raw: CUstream,
        context: &Context,
        owner: O,
    ) -> Result<Self, Rejected<O>> {
        match refuse_default(raw) {
            Ok(()) => {
                let hold = Hold::Foreign(Box::new(owner));
                Ok(Self::shared(raw, context, hold))
            }
            Err(error) => Err(Rejected::new(error, owner)),
        }
    }

    fn wrap(raw: CUstream, context: &Context, hold: Hold) -> Result<Self> {
        refuse_default(raw)?;
        Ok(Self::shared(raw, context, hold))
    }

    /// A stream whose handle other code knows.
    fn shared(raw: CUstream, context: &Context, hold: Hold) -> Self {
        let state = State::of_shared(Kind::Stream, raw.addr());
        Self::own(raw, Home::Context(context.clone()), hold, state)
    }

    /// The driver's handle. It stays this object's: do not destroy it.
    ///
    /// From now on other code may capture this stream, so each allocation, free, host copy, record and
    /// wait on it asks the driver first (`cuStreamIsCapturing`). Other streams are not affected, unless
    /// they join such a capture by a wait. Other code must not begin, join or end a capture of this stream
    /// while a call of this crate on it is under way on another thread, and a graph that it records here
    /// must not outlive the events and contexts that are recorded. (A handle that became known in another
    /// way, for example by a trace of the driver's calls, is not noticed: capture nothing with it.)
    #[inline]
    pub fn as_raw(&self) -> CUstream {
        self.inner.state.publish(self.raw().addr());
        self.raw()
    }

    /// The driver's handle, for calls of this crate.
    #[inline]
    pub(crate) fn raw(&self) -> CUstream {
        self.inner.raw
    }

    /// Never destroys the stream: it and its context stay until the process ends.
    pub fn leak(self) -> CUstream {
        let raw = self.as_raw();
        std::mem::forget(self);
        raw
    }

    /// The context that the stream's memory and kernels belong to: for a stream of a green
    /// context, the device's primary context.
    #[inline]
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Whether it was made here, or given over, so that what is known of it is true.
    pub(crate) fn is_own(&self) -> bool {
        self.inner.hold.is_owned()
    }

    /// The green context that the stream was made in, if it was.
    pub fn green_context(&self) -> Option<&GreenContext> {
        match &self.inner.home {
            Home::Context(_) => None,
            Home::Green(green) => Some(green),
        }
    }

    /// `cuStreamSynchronize(stream)`: waits until all work given to the stream is done.
    ///
    /// # Errors
    /// Those of the work that it waits for; [`Error::HostFunctionPanicked`];
    /// [`Error::InHostFunction`]; [`Error::Forked`].
    ///
    /// Since CUDA 2.0. Raw: [`cuStreamSynchronize`](fn@cuda_sys::cuStreamSynchronize).
    #[doc(alias = "cuStreamSynchronize")]
    pub fn synchronize(&self) -> Result<()> {
        release::drain();
        self.wait_for_work()?;
        self.inner.panicked.take()
    }

    /// The driver's answer and nothing else: that the work is done, or why that is not known.
    #[inline]
    pub(crate) fn wait_for_work(&self) -> Result<()> {
        refuse_inside()?;
        // SAFETY: the stream is alive.
        without_current(self.context(), || unsafe {
            answer!(cuStreamSynchronize(self.raw()))
        })
    }

    /// `cuStreamQuery(stream)`: whether all work given to the stream is done.
    ///
    /// # Errors
    /// Those of the work that is done; [`Error::Forked`].
    ///
    /// Since CUDA 2.0. Raw: [`cuStreamQuery`](fn@cuda_sys::cuStreamQuery).
    #[doc(alias = "cuStreamQuery")]
    #[inline]
    pub fn is_idle(&self) -> Result<bool> {
        // SAFETY: the stream is alive.
        ready(without_current(self.context(), || unsafe {
            answer!(cuStreamQuery(self.raw()))
        }))
    }

    /// `cuStreamGetPriority(stream, &priority)`: the priority that the stream really has.
    ///
    /// # Errors
    /// Only those that any call may have: see [`Error`](crate::Error).
    ///
    /// Since CUDA 5.5. Raw: [`cuStreamGetPriority`](fn@cuda_sys::cuStreamGetPriority).
    #[doc(alias = "cuStreamGetPriority")]
    pub fn priority(&self) -> Result<i32> {
        let mut priority = 0;
        // SAFETY: the stream is alive, and the pointer is to a local.
        without_current(self.context(), || unsafe {
            answer!(cuStreamGetPriority(self.raw(), &raw mut priority))
        })?;
        Ok(priority)
    }

    /// `cuStreamGetId(stream, &id)`: a number that no other stream of this process has or will
    /// have.
    ///
    /// # Errors
    /// The driver is older.
    ///
    /// Since CUDA 12.0. Raw: [`cuStreamGetId`](fn@cuda_sys::cuStreamGetId).
    #[doc(alias = "cuStreamGetId")]
    pub fn id(&self) -> Result<u64> {
        let mut id = 0;
        // SAFETY: the stream is alive, and the pointer is to a local.
        without_current(self.context(), || unsafe {
            answer!(cuStreamGetId(self.raw(), &raw mut id))
        })?;
        Ok(id)
    }
}

/// The default streams are another stream in each context or thread.
fn refuse_default(raw: CUstream) -> Result<()> {
    if is_default(raw) {
        return Err(Invalid::Handle {
            what: "stream of its own",
            value: raw.addr(),
        }
        .into());
    }
    Ok(())
}

/// The answer of a query: done, not yet, or an error.
#[inline]
pub(crate) fn ready(answer: Result<()>) -> Result<bool> {
    match answer {
        Err(error) if error.code() == Some(CUresult::CUDA_ERROR_NOT_READY) => Ok(false),
        answer => answer.map(|()| true),
    }
}

impl Home {
    /// That of memory and kernels.
    #[inline]
    pub(crate) fn context(&self) -> &Context {
        match self {
            Self::Context(context) => context,
            Self::Green(green) => green.context(),
        }
    }
}

/// Streams are equal if they are the same one.
impl PartialEq for Stream {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        // Clones, as a rule.
        Arc::ptr_eq(&self.inner, &other.inner) || self.inner.is_same(&other.inner)
    }
}

impl Eq for Stream {}

impl Inner {
    #[cold]
    #[inline(never)]
    fn is_same(&self, other: &Self) -> bool {
        // Both are alive, so one handle is one stream; handles of two contexts differ.
        self.raw == other.raw && self.context == other.context
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("raw", &self.inner.raw)
            .field("context", self.context())
            .field("green", &self.green_context().is_some())
            .finish()
    }
}

/// For error texts: the handle and the context.
impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:p} of {}", self.inner.raw, self.context())
    }
}

/// The error for things of two contexts in one operation.
#[inline]
pub(crate) fn same_context(what: &'static str, its: &Context, expected: &Context) -> Result<()> {
    if its == expected {
        return Ok(());
    }
    Err(another_context(what, its, expected))
}

#[cold]
#[inline(never)]
fn another_context(what: &'static str, its: &Context, expected: &Context) -> Error {
    other_context(what, its.to_string(), expected)
}

#[cold]
fn other_context(what: &'static str, its: String, expected: &Context) -> Error {
    Invalid::OtherContext {
        what,
        its,
        expected: expected.to_string(),
    }
    .into()
}

impl Stream {
    /// The error for something that is bound to this stream in an operation on another.
    #[cold]
    #[inline(never)]
    pub(crate) fn other_stream(&self, what: impl FnOnce() -> String, expected: &Self) -> Error {
        Invalid::OtherStream {
            what: what(),
            its: self.to_string(),
            expected: expected.to_string(),
        }
        .into()
    }
}

/// A stream that this does not keep alive.
#[derive(Clone)]
pub(crate) struct WeakStream(Weak<Inner>);

impl Stream {
    pub(crate) fn downgrade(&self) -> WeakStream {
        WeakStream(Arc::downgrade(&self.inner))
    }
}

impl WeakStream {
    /// Returns the stream, unless its last clone was dropped. Whoever has it may then drop the last clone.
    pub(crate) fn upgrade(&self) -> Option<Stream> {
        self.0.upgrade().map(|inner| Stream { inner })
    }
}
