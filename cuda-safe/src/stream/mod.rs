//! Streams: queues of work on a device.

mod attributes;
mod borrow;
mod capture_mode;
mod default;
mod host;
pub(crate) mod memory_op;

pub use attributes::{
    AccessProperty, AccessWindow, MemorySyncDomain, MemorySyncDomainMap, SynchronizationPolicy,
};
pub use capture_mode::CaptureMode;
pub use default::DefaultStream;
pub use host::StreamFuture;
pub(crate) use host::run_inside;
pub use memory_op::{AtomicReduction, BarrierScope, MemoryOperation, WaitCondition};

use crate::call::{
    Answer, Error, HostPanic, Invalid, Ownership, Result, answer, call, debug_struct,
    ends_all_work, fork, out_without_current, refuse_if, refuse_in_host_function, without_current,
};
use crate::capture_state::{
    CallGuard, DriverStatus, Entry, Kind, Member, Operation, State, StreamRef, capture_status,
    driver_status, is_default, retain,
};
use crate::context::{Context, Extension};
use crate::release::{
    self, Handle, Keep, MAX_RETRIES, create_in, destroy, owners, relaxed, release_now,
};
use cuda_sys::{CUresult, CUstream, CUstream_flags, CUstreamCaptureStatus};
use std::any::Any;
use std::fmt;
use std::fmt::Debug;
use std::sync::{Arc, Weak};

/// A CUDA stream (`CUstream`). Work in one stream runs in order; work in different streams can run
/// concurrently.
///
/// Create a stream with [`Context::stream`] or [`GreenContext::stream`](crate::green::GreenContext::stream).
///
/// Clones share the stream. A `Stream` is one pointer; cloning it increments a reference count and
/// makes no driver call, so every object that works on the stream can own a clone. The stream keeps its
/// context or green context alive. It is destroyed when its last clone and the last buffer that is bound
/// to it are dropped. The destruction does not wait for work.
///
/// Unless documented otherwise, a function that operates on the stream makes one driver call, and does
/// not need a current context. After [`as_raw`](Self::as_raw), some functions first query whether the
/// stream is captured.
///
/// # Several devices
/// A stream works on its own device, regardless of the current context. The following table shows what
/// happens if an operation on this stream involves an object of another device, or of another context
/// of the same device:
///
/// | operation | result |
/// |---|---|
/// | [`wait_event`](Self::wait_event), [`DefaultStream::wait_event`] for an event of the other context | works, and is the way to order work of several devices |
/// | [`Event::record`](crate::Event::record), [`Event::record_external`](crate::Event::record_external), [`DefaultStream::record_event`] of an event of the other context | an error |
/// | a stream of the other context waits for an event of a [capture](Self::begin_capture) | the stream joins the capture, like any other stream |
/// | [`ExecutableGraph::launch`](crate::ExecutableGraph::launch) on a stream of the other context | an error |
/// | [`copy_attributes_from`](Self::copy_attributes_from) a stream of the other context | an error |
/// | [`set_access_window`](Self::set_access_window) to memory of the other context | an error |
/// | [`memory_operation`](Self::memory_operation) on memory of the other context | `unsafe`: needs [peer access](crate::Context::enable_peer_access) |
/// | [`is_complete`](Self::is_complete), [`synchronize`](Self::synchronize), [`completion`](Self::completion), host functions, queries of events | not applicable: these involve only one stream or event |
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
    ownership: Ownership,
    /// Whether the stream or its context is borrowed, so that its owner may destroy it as soon as this
    /// object is dropped.
    is_borrowed: bool,
    execution_context: ExecutionContext,
    /// The context of `execution_context`. Every call reads it, so it is stored here, too.
    context: Context,
    /// The capture state of the handle, shared by all objects of the handle.
    state: Arc<State>,
    host_panic: Arc<HostPanic>,
}

/// The context or green context in which the work of a stream runs.
#[derive(Clone, Debug)]
pub(crate) enum ExecutionContext {
    Context(Context),
    Green(Arc<dyn Partition>),
}

// SAFETY: the driver allows any thread to use a stream, and several threads at the same time (measured
// with 12 threads).
unsafe impl Send for Inner {}
// SAFETY: see the argument for `Send`.
unsafe impl Sync for Inner {}

/// Options for [`Context::stream_with`]. The default is a non-blocking stream with priority 0.
///
/// Later versions may add fields: end each value with `..Default::default()`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StreamOptions {
    /// Whether the stream and the legacy default stream wait for each other. Not possible in a green
    /// context.
    pub blocking: bool,
    /// The priority. Lower numbers are higher priorities; 0 is the default. Values outside the range of
    /// the device are clamped. This is a hint: running work is not preempted, and copies are not
    /// affected.
    pub priority: i32,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl StreamOptions {
    #[inline]
    pub(crate) fn flags(self) -> u32 {
        if self.blocking {
            CUstream_flags::CU_STREAM_DEFAULT.0
        } else {
            CUstream_flags::CU_STREAM_NON_BLOCKING.0
        }
    }
}

impl Context {
    /// Creates a non-blocking [stream](Stream) with priority 0.
    ///
    /// # Errors
    /// See [`stream_with`](Self::stream_with).
    #[inline]
    pub fn stream(&self) -> Result<Stream> {
        self.stream_with(StreamOptions::default())
    }

    /// Creates a stream with the given options. Calls `cuStreamCreateWithPriority`.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY`; the errors of earlier work.
    ///
    /// Since CUDA 5.5. Raw: [`cuStreamCreate`](fn@cuda_sys::cuStreamCreate),
    /// [`cuStreamCreateWithPriority`](fn@cuda_sys::cuStreamCreateWithPriority),
    /// [`cuStreamDestroy_v2`](fn@cuda_sys::cuStreamDestroy_v2).
    #[doc(alias = "cuStreamCreate", alias = "cuStreamCreateWithPriority")]
    #[doc(alias = "cuStreamDestroy")]
    #[inline]
    pub fn stream_with(&self, options: StreamOptions) -> Result<Stream> {
        // SAFETY: `create_in` passes a valid pointer, and the current context is this one.
        let raw = create_in(self, |place| unsafe {
            call!(cuStreamCreateWithPriority(place, options.flags(), options.priority))
        })?;
        let state = State::new(Kind::Stream);
        Ok(Stream::from_parts(
            raw,
            ExecutionContext::Context(self.clone()),
            Ownership::Owned,
            state,
        ))
    }
}

impl Stream {
    #[inline]
    fn from_parts(
        raw: CUstream,
        execution_context: ExecutionContext,
        ownership: Ownership,
        state: Arc<State>,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                raw,
                is_borrowed: matches!(ownership, Ownership::Borrowed)
                    || execution_context.is_borrowed(),
                ownership,
                context: execution_context.context().clone(),
                execution_context,
                state,
                host_panic: Arc::default(),
            }),
        }
    }

    /// Takes ownership of a stream that was just created in a green context.
    #[inline]
    pub(crate) fn own_green(raw: CUstream, green: Arc<dyn Partition>) -> Self {
        Self::from_parts(
            raw,
            ExecutionContext::Green(green),
            Ownership::Owned,
            State::new(Kind::Stream),
        )
    }

    /// A stream that `owner` keeps alive.
    pub(crate) fn leased(stream: &Self, owner: impl Any + Send + Sync) -> Self {
        let execution_context = ExecutionContext::Context(stream.context().clone());
        let state = Arc::clone(stream.state());
        Self::from_parts(
            stream.raw(),
            execution_context,
            Ownership::Foreign(Box::new(owner)),
            state,
        )
    }

    /// Returns the owner of a foreign-owned stream.
    #[inline]
    pub(crate) fn owner(&self) -> Option<&(dyn Any + Send + Sync)> {
        match &self.inner.ownership {
            Ownership::Foreign(owner) => Some(&**owner),
            Ownership::Owned | Ownership::Borrowed => None,
        }
    }

    /// Takes ownership of a stream. The stream is destroyed when the last clone is dropped.
    ///
    /// # Errors
    /// [`Invalid::Handle`] for the handles 0, 1 and 2. They are the default streams and mean a different
    /// stream in each context or thread. See [`DefaultStream`].
    ///
    /// # Safety
    /// `raw` is a live stream of `context`, but not of a green context. It is not being captured, and
    /// no other code destroys it.
    #[inline]
    pub unsafe fn from_raw(raw: CUstream, context: &Context) -> Result<Self> {
        Self::wrap(raw, context, Ownership::Owned)
    }

    /// Borrows a stream that other code owns. This crate never destroys it.
    ///
    /// The release of a buffer that is bound to the stream cannot be deferred. See
    /// [`Context::borrow_raw`].
    ///
    /// # Errors
    /// [`Invalid::Handle`] for the handles 0, 1 and 2. See [`from_raw`](Self::from_raw).
    ///
    /// # Safety
    /// - `raw` is a stream of `context`. If `context` is a primary context, `raw` can also be a stream
    ///   of a green context on the same device.
    /// - The stream stays alive until its last clone and every object that owns a clone is dropped.
    ///   Such objects are buffers that are bound to it, readers, pending copies and graphs of its work.
    ///   (Objects that this crate has leaked are not used any more.)
    #[inline]
    pub unsafe fn borrow_raw(raw: CUstream, context: &Context) -> Result<Self> {
        Self::wrap(raw, context, Ownership::Borrowed)
    }

    /// Borrows a stream that `owner` keeps alive. This crate never destroys the stream. It drops
    /// `owner` after the last clone.
    ///
    /// # Errors
    /// [`Invalid::Handle`] for the handles 0, 1 and 2. See [`from_raw`](Self::from_raw). On an error,
    /// `owner` is dropped; to keep it, pass a clone of an `Arc`.
    ///
    /// # Safety
    /// - `raw` is a stream of `context`. If `context` is a primary context, `raw` can also be a stream
    ///   of a green context on the same device.
    /// - The stream stays alive as long as `owner`.
    pub unsafe fn from_foreign(
        raw: CUstream,
        context: &Context,
        owner: impl Any + Send + Sync,
    ) -> Result<Self> {
        Self::wrap(raw, context, Ownership::Foreign(Box::new(owner)))
    }

    #[inline]
    fn wrap(raw: CUstream, context: &Context, ownership: Ownership) -> Result<Self> {
        refuse_default(raw)?;
        Ok(Self::shared(raw, context, ownership))
    }

    /// Wraps a stream whose handle is known to other code.
    #[inline]
    fn shared(raw: CUstream, context: &Context, ownership: Ownership) -> Self {
        let state = State::of_shared(Kind::Stream, raw.addr());
        Self::from_parts(raw, ExecutionContext::Context(context.clone()), ownership, state)
    }

    /// Returns the driver handle. The object keeps the ownership: do not destroy the handle.
    ///
    /// After this call other code may capture the stream. Therefore each allocation, free, host copy,
    /// record and wait on it first asks the driver whether it is captured (`cuStreamIsCapturing`).
    /// Other streams are not affected, unless they join such a capture by a wait.
    ///
    /// Other code must not begin, join or end a capture of this stream while a call of this crate on it
    /// is in progress on another thread, or in the closure of
    /// [`copy_scope`](Self::copy_scope). A graph that other code captures from this stream must not
    /// outlive the events and contexts that it contains. This crate does not notice if other code gets
    /// the handle in another way, for example from a trace of driver calls: do not capture with such a
    /// handle.
    #[doc(alias = "cu_stream")]
    #[inline]
    pub fn as_raw(&self) -> CUstream {
        self.inner.state.publish(self.raw().addr());
        self.raw()
    }

    /// Returns the driver handle, for calls of this crate.
    #[inline]
    pub(crate) fn raw(&self) -> CUstream {
        self.inner.raw
    }

    /// Returns the handle and leaks the stream: the stream and its context stay alive until the process
    /// ends.
    #[inline]
    pub fn into_raw(self) -> CUstream {
        let raw = self.as_raw();
        std::mem::forget(self);
        raw
    }

    /// Returns the context of the memory and the kernels of the stream. For a stream of a green context
    /// this is the primary context of the device.
    #[inline]
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Returns whether this crate owns the stream, so that its recorded properties are reliable.
    #[inline]
    pub(crate) fn is_own(&self) -> bool {
        self.inner.ownership.is_owned()
    }

    /// Returns the context or green context in which the work of the stream runs.
    #[inline]
    pub(crate) fn execution_context(&self) -> &ExecutionContext {
        &self.inner.execution_context
    }

    /// Returns a number that identifies the stream among all objects that are alive. It is not 0.
    #[inline(always)]
    pub(crate) fn identity(&self) -> u64 {
        Arc::as_ptr(&self.inner).addr() as u64
    }

    /// Returns the green context of the stream, if it was created in one.
    #[inline]
    pub(crate) fn partition(&self) -> Option<&Arc<dyn Partition>> {
        match &self.inner.execution_context {
            ExecutionContext::Context(_) => None,
            ExecutionContext::Green(green) => Some(green),
        }
    }

    /// Blocks the thread until all work in the stream is complete. Calls `cuStreamSynchronize`.
    ///
    /// # Errors
    /// The errors of that work; [`Error::HostFunctionPanicked`]; [`Error::InHostFunction`];
    /// [`Error::Forked`].
    ///
    /// Since CUDA 2.0. Raw: [`cuStreamSynchronize`](fn@cuda_sys::cuStreamSynchronize).
    #[doc(alias = "cuStreamSynchronize")]
    #[inline]
    pub fn synchronize(&self) -> Result<()> {
        release::drain();
        self.wait_for_work()?;
        self.inner.host_panic.take()
    }

    /// Returns only the result of the driver: the work is complete, or the error.
    #[inline]
    pub(crate) fn wait_for_work(&self) -> Result<()> {
        refuse_in_host_function()?;
        // SAFETY: the stream is alive.
        without_current(self.context(), || unsafe { answer!(cuStreamSynchronize(self.raw())) })
    }

    /// Waits until the device no longer uses borrowed host memory. If it may still use the memory
    /// afterwards, calls `in_use` with the error.
    ///
    /// A capture of another stream can make a wait fail at once, although this stream is not captured. It does
    /// not affect later waits in the relaxed mode.
    ///
    /// If each wait fails, pinned memory is leaked, but a slice that is pinned memory cannot be: its borrow ends,
    /// and the device may still read it. It does not write it, because copies to slices are synchronous. The reads
    /// are sound although the program may write the slice or free its memory meanwhile:
    ///
    /// - After an error that ends all work, no copy runs.
    /// - The copy gets arbitrary bytes. They are in memory of the device only, and reading elements back requires
    ///   that every bit pattern is valid. The caller has received an error instead of a completed copy.
    /// - The memory stays mapped: the driver waits for all work before it frees or unregisters pinned memory, and
    ///   it reads pageable memory through its own buffers.
    #[inline]
    pub(crate) fn wait_for_host_copies(&self, in_use: impl FnOnce(&Error)) -> Result<()> {
        let waited = self.wait_for_work();
        if let Err(error) = &waited {
            if !self.wait_again() {
                in_use(error);
            }
        }
        waited
    }

    /// Repeats a failed wait, unless the work will never run. Returns whether the work is complete.
    #[cold]
    #[inline]
    fn wait_again(&self) -> bool {
        for _ in 0..MAX_RETRIES {
            match relaxed(|| self.wait_for_work()) {
                Ok(()) => return true,
                Err(error) if error.code().is_some_and(ends_all_work) => return false,
                Err(_) => {}
            }
        }
        false
    }

    /// Returns whether all work in the stream is complete. Calls `cuStreamQuery`.
    ///
    /// # Errors
    /// The errors of completed work; [`Error::Forked`].
    ///
    /// Since CUDA 2.0. Raw: [`cuStreamQuery`](fn@cuda_sys::cuStreamQuery).
    #[doc(alias = "cuStreamQuery")]
    #[inline]
    pub fn is_complete(&self) -> Result<bool> {
        // SAFETY: the stream is alive.
        query_result(without_current(self.context(), || unsafe {
            answer!(cuStreamQuery(self.raw()))
        }))
    }

    /// Returns the actual priority of the stream. Calls `cuStreamGetPriority`.
    ///
    /// # Errors
    /// `CUDA_ERROR_STREAM_CAPTURE_INVALIDATED` if the capture of the stream is invalid.
    ///
    /// Since CUDA 5.5. Raw: [`cuStreamGetPriority`](fn@cuda_sys::cuStreamGetPriority).
    #[doc(alias = "cuStreamGetPriority")]
    #[inline]
    pub fn priority(&self) -> Result<i32> {
        // SAFETY: the stream is alive, and `out` passes a valid pointer.
        out_without_current(self.context(), |place| unsafe {
            answer!(cuStreamGetPriority(self.raw(), place))
        })
    }

    /// Returns the ID of the stream, which is unique in the process, including later streams. Calls
    /// `cuStreamGetId`.
    ///
    /// # Errors
    /// [`Error::Missing`]; `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED` if the stream is capturing. The call then
    /// invalidates the capture (measured with driver 580).
    ///
    /// Since CUDA 12.0. Raw: [`cuStreamGetId`](fn@cuda_sys::cuStreamGetId).
    #[doc(alias = "cuStreamGetId")]
    #[inline]
    pub fn id(&self) -> Result<u64> {
        // SAFETY: the stream is alive, and `out` passes a valid pointer.
        out_without_current(self.context(), |place| unsafe {
            answer!(cuStreamGetId(self.raw(), place))
        })
    }
}

/// Rejects the handles of the default streams, which mean a different stream in each context or thread.
#[inline]
fn refuse_default(raw: CUstream) -> Result<()> {
    refuse_if!(is_default(raw), Invalid::Handle { what: "non-default stream", value: raw.addr() });
    Ok(())
}

/// Converts the result of a query: complete, not ready, or an error.
#[inline]
pub(crate) fn query_result(answer: Result<()>) -> Result<bool> {
    match answer {
        Err(error) if error.code() == Some(CUresult::CUDA_ERROR_NOT_READY) => Ok(false),
        answer => answer.map(|()| true),
    }
}

impl ExecutionContext {
    /// Returns whether both are clones of one object.
    #[inline]
    pub(crate) fn is_clone_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Context(own), Self::Context(other)) => own.is_clone_of(other),
            (Self::Green(own), Self::Green(other)) => Arc::ptr_eq(own, other),
            _ => false,
        }
    }

    /// Returns the context of memory and kernels.
    #[inline]
    pub(crate) fn context(&self) -> &Context {
        match self {
            Self::Context(context) => context,
            Self::Green(green) => green.context(),
        }
    }

    /// Makes a call with this context or green context current.
    ///
    /// # Errors
    /// Errors of the call; the context cannot be made current.
    #[inline]
    pub(crate) fn with_current(&self, mut call: impl FnMut() -> Result<()>) -> Result<()> {
        match self {
            Self::Context(context) => {
                let _current = context.enter()?;
                call()
            }
            Self::Green(green) => Arc::clone(green).with_current(&mut call),
        }
    }
}

/// Two `Stream` values are equal if they are the same stream.
impl PartialEq for Stream {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        // The common case: both are clones of one object.
        Arc::ptr_eq(&self.inner, &other.inner) || self.inner.is_same(&other.inner)
    }
}

impl Eq for Stream {}

impl Inner {
    #[cold]
    #[inline(never)]
    fn is_same(&self, other: &Self) -> bool {
        // Both streams are alive, so equal handles of one context are the same stream.
        self.raw == other.raw && self.context == other.context
    }
}

debug_struct! {
    Stream |its| { raw: its.inner.raw, context: its.context(), green: its.partition().is_some() }
}

/// For error texts: the handle and the context.
impl fmt::Display for Stream {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:p} of {}", self.inner.raw, self.context())
    }
}

/// Checks that an object belongs to the context of an operation.
#[inline]
pub(crate) fn same_context(what: &'static str, actual: &Context, expected: &Context) -> Result<()> {
    if actual == expected {
        return Ok(());
    }
    Err(another_context(what, actual, expected))
}

/// Returns an error that names both streams, unless the stream of `what` is `expected`.
#[inline]
pub(crate) fn same_stream(what: impl fmt::Display, its: &Stream, expected: &Stream) -> Result<()> {
    if its == expected {
        return Ok(());
    }
    Err(another_stream(what, its, expected))
}

#[cold]
#[inline(never)]
fn another_stream(what: impl fmt::Display, its: &Stream, expected: &Stream) -> Error {
    its.other_stream(|| what.to_string(), expected)
}

#[cold]
#[inline(never)]
fn another_context(what: &'static str, actual: &Context, expected: &Context) -> Error {
    other_context(what, actual.to_string(), expected)
}

#[cold]
#[inline]
fn other_context(what: &'static str, actual: String, expected: &Context) -> Error {
    Invalid::OtherContext { what, its: actual, expected: expected.to_string() }.into()
}

impl Stream {
    /// Returns the error for an object that is bound to this stream in an operation on another stream.
    #[cold]
    #[inline(never)]
    pub(crate) fn other_stream(&self, what: impl FnOnce() -> String, expected: &Self) -> Error {
        Invalid::OtherStream { what: what(), its: self.to_string(), expected: expected.to_string() }
            .into()
    }
}

/// A weak reference to a [`Stream`], returned by [`Stream::downgrade`]. It keeps neither the stream nor
/// its context alive.
#[derive(Clone)]
pub struct WeakStream(Weak<Inner>);

impl Stream {
    /// Returns a weak reference to the stream.
    ///
    /// A [memory manager](crate::manager) stores this instead of a clone: a clone would keep alive the
    /// context that owns the manager.
    #[inline]
    pub fn downgrade(&self) -> WeakStream {
        WeakStream(Arc::downgrade(&self.inner))
    }
}

impl WeakStream {
    /// Returns the stream, or `None` if its last clone was dropped. The returned clone can become the
    /// last one, and dropping it then ends the stream.
    #[inline]
    pub fn upgrade(&self) -> Option<Stream> {
        self.0.upgrade().map(|inner| Stream { inner })
    }
}

debug_struct! { WeakStream |_its| { .. } }

impl Drop for Inner {
    #[inline]
    fn drop(&mut self) {
        let extension = self.context.any_extension();
        if extension.is_some_and(Extension::refers_to_streams) && self.notify_extension() {
            return;
        }
        if self.ownership.is_owned() {
            self.state.unpublish();
            release_now(Handle(self.raw), &self.execution_context);
        }
    }
}

impl Inner {
    /// Notifies the memory manager, which may have stream-ordered memory of this stream. Returns
    /// whether the destruction was deferred.
    #[cold]
    #[inline(never)]
    fn notify_extension(&mut self) -> bool {
        // The manager caches no memory for a borrowed stream.
        if fork::in_child() || self.is_borrowed {
            return false;
        }
        if !release::may_block() {
            self.destroy_later();
            return true;
        }
        if let Some(extension) = self.context.any_extension() {
            extension.stream_ends(&self.raw);
        }
        false
    }

    /// Defers the destruction: puts another object of the stream into the release queue. In a driver
    /// callback the manager might have to wait for a thread that waits for the callback.
    #[inline]
    fn destroy_later(&mut self) {
        let again = Stream {
            inner: Arc::new(Self {
                raw: self.raw,
                ownership: std::mem::replace(&mut self.ownership, Ownership::Borrowed),
                is_borrowed: false,
                execution_context: self.execution_context.clone(),
                context: self.context.clone(),
                state: Arc::clone(&self.state),
                host_panic: Arc::clone(&self.host_panic),
            }),
        };
        release::later(LastClone, &again);
    }
}

destroy! {
    Handle<CUstream> as "a stream", quiet true;
    // SAFETY: the handle stands for the stream, and the caller promises that this is the first call.
    |its| unsafe { answer!(cuStreamDestroy_v2(its.0)) }
}

/// The last clone of a stream, which must not be dropped in a host function. It is dropped with the
/// owners, so the driver is not called.
struct LastClone;

destroy! {
    LastClone as "the last clone of a stream", quiet true;
    |_its| Answer { call: "cuStreamDestroy_v2", code: CUresult::CUDA_SUCCESS }
}

owners! {
    ExecutionContext |its| {
        context: Some(its.context()),
        is_borrowed: {
            match its {
                ExecutionContext::Context(context) => context.is_borrowed(),
                ExecutionContext::Green(green) => green.is_borrowed(),
            }

        },
    }
}

owners! {
    Stream |its| {
        context: Some(its.context()),
        is_borrowed: its.inner.is_borrowed,
        streams: [Some(its.by_ref()), None],
    }
}

impl Stream {
    /// Returns the stream as releases see it.
    #[inline(always)]
    pub(crate) fn by_ref(&self) -> StreamRef<'_> {
        StreamRef::new(self.raw(), self.state())
    }

    /// The capture state of the handle.
    #[inline(always)]
    pub(crate) fn state(&self) -> &Arc<State> {
        &self.inner.state
    }

    /// Counts a call on the stream until the guard is dropped.
    #[inline(always)]
    pub(crate) fn enter(&self, operation: Operation) -> CallGuard<'_> {
        self.inner.state.enter(operation)
    }

    /// Counts a call that must not be captured. If the call may wait anyway, deferred releases are attempted
    /// first. Allocations are no such calls, because memory managers make them while they hold their locks.
    ///
    /// # Errors
    /// [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured); for a shared stream also the
    /// errors of the driver call.
    #[inline(always)]
    pub(crate) fn uncaptured(&self, operation: Operation) -> Result<CallGuard<'_>> {
        if operation.may_wait() {
            release::drain();
        }
        self.enter(operation).uncaptured(operation, || self.ask_driver())
    }

    /// Counts a call that may be captured, and finds the capture.
    ///
    /// # Errors
    /// For a shared stream, the errors of the driver call.
    #[inline]
    pub(crate) fn entry(&self, operation: Operation) -> Result<Entry<'_>> {
        self.enter(operation).resolve(operation, || self.ask_driver())
    }

    /// Asks the driver whether the stream is captured.
    #[inline]
    pub(crate) fn ask_driver(&self) -> Result<CUstreamCaptureStatus> {
        // SAFETY: the stream is alive, and it is not a default stream.
        unsafe { capture_status(self.raw(), self.context()) }
    }
}

impl Stream {
    /// Returns this stream as a member of a capture.
    #[inline]
    pub(crate) fn member(&self) -> Member<'_> {
        Member {
            state: self.state(),
            stream: Some(Arc::new(RetainedStream::Stream(self.clone()))),
            retained: Arc::new(self.retained()),
        }
    }

    /// Asks the driver which capture the stream belongs to.
    #[inline]
    pub(crate) fn driver_status(&self) -> Result<DriverStatus> {
        let mut status = DriverStatus::None;
        without_current(self.context(), || {
            // SAFETY: the stream is alive.
            status = unsafe { driver_status(self.raw()) }?;
            Ok(())
        })?;
        Ok(status)
    }
}

/// A green context, which keeps its partition alive.
pub(crate) trait Partition: Debug + Send + Sync {
    fn as_any(&self) -> &dyn Any;

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;

    /// Returns the primary context of the device.
    fn context(&self) -> &Context;

    /// Returns the number of SMs.
    fn sm_count(&self) -> u32;

    /// Returns whether the green context, or an object that it depends on, is borrowed.
    fn is_borrowed(&self) -> bool;

    /// Returns whether both are the same green context.
    fn is_same(&self, other: &dyn Partition) -> bool;

    /// Makes a call with the green context current.
    fn with_current(self: Arc<Self>, call: &mut dyn FnMut() -> Result<()>) -> Result<()>;
}

/// The object that a graph of a stream's work retains.
#[derive(Clone, Debug)]
pub(crate) enum RetainedStream {
    /// The context or green context of the stream.
    Home(ExecutionContext),
    /// A stream that this crate does not own. The stream keeps its context alive.
    Stream(Stream),
}

retain! {
    RetainedStream |its, other| {
        is_same: match (its, other) {
            (Self::Home(own), Self::Home(other)) => own.is_same(other),
            (Self::Stream(own), Self::Stream(other)) => own == other,
            _ => false,
        },
        is_borrowed: match its {
            Self::Home(home) => home.is_borrowed(),
            Self::Stream(stream) => stream.is_borrowed(),
        },
    }
}

impl ExecutionContext {
    /// Returns whether both are the same context or green context.
    #[inline]
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Context(own), Self::Context(other)) => own == other,
            (Self::Green(own), Self::Green(other)) => own.is_same(&**other),
            _ => false,
        }
    }
}

impl Stream {
    /// Returns the object that a graph of this stream's work retains.
    #[inline]
    pub(crate) fn retained(&self) -> RetainedStream {
        if self.inner.ownership.is_owned() {
            RetainedStream::Home(self.inner.execution_context.clone())
        } else {
            RetainedStream::Stream(self.clone())
        }
    }
}
