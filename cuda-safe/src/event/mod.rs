//! Events: markers in streams, for ordering and timing.

mod after;
mod context;
mod default;
mod ipc;
mod last_use;
mod retained;
mod wait;

pub(crate) use after::AfterEvents;
pub use ipc::EventIpcHandle;
pub(crate) use last_use::{LastUse, Progress};

use crate::call::{
    Invalid, Ownership, Result, answer, call, debug_struct, expect_handle, newest_or, out,
    refuse_in_host_function, without_current,
};
use crate::capture_state::{CapturedBy, Kind, Operation, State};
use crate::context::Context;
use crate::release::{self, Handle, destroy, release_now};
use crate::stream::{Stream, query_result, same_context};
use cuda_sys::{CUevent, CUevent_flags, CUevent_record_flags};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

/// A CUDA event (`CUevent`). Create one with [`Context::event`].
///
/// A recorded event completes when the work enqueued on the stream before the record is complete.
///
/// Clones share the event. It keeps its context alive. Destroying it waits for nothing, and streams
/// that already wait for it keep waiting.
///
/// ```no_run
/// use cuda_safe::{Context, Device, DeviceBuffer, EventOptions};
///
/// let context = Context::primary(&Device::get(0)?)?;
/// let (first, second) = (context.stream()?, context.stream()?);
/// let options = EventOptions { timing: true, ..Default::default() };
/// let (start, end) = (context.event_with(options)?, context.event_with(options)?);
/// let mut buffer = DeviceBuffer::<u8>::uninit(&first, 1 << 20)?;
/// start.record(&first)?;
/// buffer.fill(1)?;
/// end.record(&first)?;
/// // Work enqueued on the second stream from now on runs after the fill. The thread does not block.
/// second.wait_event(&end)?;
/// end.synchronize()?;
/// println!("the fill took {:?}", end.elapsed_since(&start)?);
/// # Ok::<_, cuda_safe::Error>(())
/// ```
pub struct Event {
    raw: CUevent,
    /// The state shared with clones, from `Arc::into_raw`. It is null until the first clone, wait or
    /// captured record; until then, this object destroys the event.
    owner: AtomicPtr<Owner>,
    context: Context,
}

/// The owner of an event, shared by all of its clones.
struct Owner {
    raw: CUevent,
    ownership: Ownership,
    context: Context,
    /// The capture state of the handle, shared with other objects that have the same handle.
    state: Arc<State>,
}

// SAFETY: the driver allows several threads to use an event at the same time.
unsafe impl Send for Owner {}
// SAFETY: see `Send`.
unsafe impl Sync for Owner {}
// SAFETY: see `Owner`.
unsafe impl Send for Event {}
// SAFETY: see `Owner`.
unsafe impl Sync for Event {}

/// Options for [`Context::event_with`]. The default is an event for ordering only, which is the
/// cheapest.
///
/// Later versions may add fields: end each value with `..Default::default()`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EventOptions {
    /// Whether the event records timestamps, for [`Event::elapsed_since`].
    pub timing: bool,
    /// Whether [`Event::synchronize`] blocks the thread instead of spinning.
    pub blocking_sync: bool,
    /// Whether other processes may use the event, through [`Event::ipc_handle`]. Cannot be combined
    /// with `timing`.
    pub interprocess: bool,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl EventOptions {
    #[inline]
    fn flags(self) -> Result<u32> {
        let Self { timing, blocking_sync, interprocess, _non_exhaustive: () } = self;
        let mut flags = CUevent_flags::CU_EVENT_DEFAULT;
        if !timing {
            flags |= CUevent_flags::CU_EVENT_DISABLE_TIMING;
        }
        if blocking_sync {
            flags |= CUevent_flags::CU_EVENT_BLOCKING_SYNC;
        }
        if interprocess {
            if timing {
                return Err(Invalid::InterprocessTiming.into());
            }
            flags |= CUevent_flags::CU_EVENT_INTERPROCESS;
        }
        Ok(flags.0)
    }
}

impl Context {
    /// Creates an [event](Event) of this context, for ordering only.
    ///
    /// # Errors
    /// See [`event_with`](Self::event_with).
    #[inline]
    pub fn event(&self) -> Result<Event> {
        self.event_with(EventOptions::default())
    }

    /// Creates an event of this context. Calls `cuEventCreate`.
    ///
    /// # Errors
    /// [`Invalid::InterprocessTiming`]; `CUDA_ERROR_OUT_OF_MEMORY`; an error of earlier work.
    ///
    /// Since CUDA 2.0. Raw: [`cuEventCreate`](fn@cuda_sys::cuEventCreate),
    /// [`cuEventDestroy_v2`](fn@cuda_sys::cuEventDestroy_v2).
    #[doc(alias = "cuEventCreate")]
    #[doc(alias = "cuEventDestroy")]
    #[inline]
    pub fn event_with(&self, options: EventOptions) -> Result<Event> {
        let flags = options.flags()?;
        release::drain();
        self.create_event(flags)
    }

    /// Creates an event for ordering only. Unlike [`event`](Self::event), it may be called during a
    /// release.
    #[inline]
    pub(crate) fn event_now(&self) -> Result<Event> {
        self.create_event(EventOptions::default().flags()?)
    }

    #[inline(always)]
    fn create_event(&self, flags: u32) -> Result<Event> {
        let _current = self.enter()?;
        // SAFETY: `out` passes a valid pointer, and this context is current.
        let raw = out(|place| unsafe { call!(cuEventCreate(place, flags)) })?;
        Ok(Event::new_owned(raw, self))
    }
}

impl Event {
    /// Takes ownership of a new event, which is destroyed when the last clone is dropped.
    #[inline]
    fn new_owned(raw: CUevent, context: &Context) -> Self {
        Self { raw, owner: AtomicPtr::default(), context: context.clone() }
    }

    /// Wraps an event whose handle foreign code knows.
    #[inline]
    fn wrap(raw: CUevent, context: &Context, ownership: Ownership) -> Result<Self> {
        expect_handle("event", raw)?;
        let state = State::of_shared(Kind::Event, raw.addr());
        Ok(Self {
            raw,
            owner: Owner::share(raw, context, ownership, state),
            context: context.clone(),
        })
    }

    /// Takes ownership of `raw`. The event is destroyed when the last clone is dropped.
    ///
    /// # Errors
    /// [`Invalid::Handle`] if `raw` is null.
    ///
    /// # Safety
    /// `raw` must be a live event of `context` that no other code destroys.
    #[inline]
    pub unsafe fn from_raw(raw: CUevent, context: &Context) -> Result<Self> {
        Self::wrap(raw, context, Ownership::Owned)
    }

    /// Wraps an event that foreign code owns. It is never destroyed here.
    ///
    /// # Errors
    /// [`Invalid::Handle`] if `raw` is null.
    ///
    /// # Safety
    /// `raw` must be an event of `context` that stays alive until the last clone of the returned object
    /// is dropped.
    #[inline]
    pub unsafe fn borrow_raw(raw: CUevent, context: &Context) -> Result<Self> {
        Self::wrap(raw, context, Ownership::Borrowed)
    }

    /// Wraps an event that `owner` keeps alive. It is never destroyed here. `owner` is dropped after
    /// the last clone of the returned object.
    ///
    /// # Errors
    /// [`Invalid::Handle`] if `raw` is null. `owner` is then dropped.
    ///
    /// # Safety
    /// `raw` must be an event of `context` that stays alive as long as `owner` does.
    pub unsafe fn from_foreign(
        raw: CUevent,
        context: &Context,
        owner: impl Any + Send + Sync,
    ) -> Result<Self> {
        Self::wrap(raw, context, Ownership::Foreign(Box::new(owner)))
    }

    /// Releases ownership and returns the raw handle. This crate never destroys the event; the event
    /// and its context stay alive until the process exits.
    #[inline]
    pub fn into_raw(self) -> CUevent {
        let raw = self.as_raw();
        std::mem::forget(self);
        raw
    }

    /// Returns the raw handle without giving up ownership. Do not destroy it.
    ///
    /// From now on, foreign code may record this event in a capture, and a stream that waits for it
    /// then joins that capture. Each wait for the event therefore asks the driver whether the stream
    /// did (`cuStreamGetCaptureInfo`). Foreign code must not record the event in a capture while
    /// another thread is inside a call of this crate on it. See [`Stream::as_raw`].
    #[inline]
    pub fn as_raw(&self) -> CUevent {
        self.state().publish(self.raw.addr());
        self.raw()
    }

    /// Returns the capture state of the handle.
    #[inline]
    pub(crate) fn state(&self) -> &Arc<State> {
        // SAFETY: the pointer comes from `Arc::into_raw`, and this event holds a reference count until
        // it is dropped.
        &unsafe { &*self.shared_owner() }.state
    }

    /// Returns the raw handle, for driver calls made by this crate.
    #[inline]
    pub(crate) fn raw(&self) -> CUevent {
        self.raw
    }

    /// Returns whether the event, or its context, is borrowed.
    #[inline]
    pub(crate) fn is_borrowed(&self) -> bool {
        let is_borrowed = |owner: &Owner| matches!(owner.ownership, Ownership::Borrowed);
        self.owner().is_some_and(is_borrowed) || self.context.depends_on_borrowed()
    }

    #[inline]
    fn owner(&self) -> Option<&Owner> {
        // SAFETY: the pointer is null or comes from `Arc::into_raw`, and this event holds a reference
        // count until it is dropped.
        unsafe { self.owner.load(Ordering::Acquire).as_ref() }
    }

    /// Returns the context in which the event was created.
    #[inline]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Records the event: it then completes when all work enqueued on the stream so far is complete.
    /// Calls `cuEventRecord`.
    ///
    /// A new record replaces the previous one. On a capturing stream, the event orders only the work of
    /// that capture.
    ///
    /// # Errors
    /// The stream belongs to another context. During a capture: [`Invalid::CallsInProgress`] if another
    /// thread is in a wait call for this event, and [`Invalid::OtherCapture`] if the event was recorded
    /// in another open capture.
    ///
    /// Since CUDA 2.0. Raw: [`cuEventRecord`](fn@cuda_sys::cuEventRecord).
    #[doc(alias = "cuEventRecord")]
    #[inline]
    pub fn record(&self, stream: &Stream) -> Result<()> {
        same_context("the event", self.context(), stream.context())?;
        let call = stream.enter(Operation::Record);
        if !call.seen().is_plain() {
            drop(call);
            return self.record_captured(stream);
        }
        self.enqueue_record(stream)
    }

    /// Records the event on a stream that is capturing, or that foreign code may capture.
    #[cold]
    #[inline(never)]
    fn record_captured(&self, stream: &Stream) -> Result<()> {
        let entry = stream.entry(Operation::Record)?;
        self.state().prepare_record(&entry)?;
        self.enqueue_record(stream)
    }

    /// Records an event that no other code has on a stream that is not capturing.
    ///
    /// # Errors
    /// [`Invalid::StreamIsCaptured`]; errors of the driver.
    #[inline]
    pub(crate) fn record_uncaptured(&self, stream: &Stream) -> Result<()> {
        let _call = stream.uncaptured(Operation::Record)?;
        self.enqueue_record(stream)
    }

    #[inline(always)]
    pub(crate) fn enqueue_record(&self, stream: &Stream) -> Result<()> {
        let (event, stream) = (self.raw(), stream.raw());
        without_current(self.context(), move || {
            // SAFETY: the event and the stream are alive.
            unsafe { answer!(cuEventRecord(event, stream)) }
        })
    }

    /// Adds a node to a captured graph that records the event on each launch. Calls
    /// `cuEventRecordWithFlags` with `CU_EVENT_RECORD_EXTERNAL`.
    ///
    /// Waiting for the event outside the graph then waits for that record. In contrast,
    /// [`record`](Self::record) during a capture only orders work within the graph. The graph retains
    /// the event.
    ///
    /// # Errors
    /// The stream belongs to another context; `CUDA_ERROR_ILLEGAL_STATE` if it is not capturing.
    ///
    /// Since CUDA 11.1. Raw: [`cuEventRecordWithFlags`](fn@cuda_sys::cuEventRecordWithFlags).
    #[doc(alias = "cuEventRecordWithFlags")]
    #[inline]
    pub fn record_external(&self, stream: &Stream) -> Result<()> {
        same_context("the event", self.context(), stream.context())?;
        let entry = stream.entry(Operation::Record)?;
        if let CapturedBy::Crate(open) = &entry.captured_by {
            open.retain(Arc::new(self.clone()));
        }
        let flags = CUevent_record_flags::CU_EVENT_RECORD_EXTERNAL.0;
        without_current(self.context(), || {
            // SAFETY: the event and the stream are alive, and the graph retains the event.
            unsafe { answer!(cuEventRecordWithFlags(self.raw(), stream.raw(), flags)) }
        })
    }

    /// Blocks until the work of the last record is complete. Calls `cuEventSynchronize`.
    ///
    /// An event that was never recorded counts as complete.
    ///
    /// # Errors
    /// Errors of the work; [`Error::Forked`](crate::Error::Forked).
    ///
    /// Since CUDA 2.0. Raw: [`cuEventSynchronize`](fn@cuda_sys::cuEventSynchronize).
    #[doc(alias = "cuEventSynchronize")]
    #[inline]
    pub fn synchronize(&self) -> Result<()> {
        refuse_in_host_function()?;
        release::drain();
        self.wait_for_record()
    }

    /// Waits for the last record, also during a drop: it attempts no deferred releases. It must not be
    /// called inside a host function.
    #[inline]
    pub(crate) fn wait_for_record(&self) -> Result<()> {
        // SAFETY: the event is alive.
        without_current(self.context(), || unsafe { answer!(cuEventSynchronize(self.raw())) })
    }

    /// Returns whether the work of the last record is complete. Calls `cuEventQuery`.
    ///
    /// # Errors
    /// Errors of the work; [`Error::Forked`](crate::Error::Forked).
    ///
    /// Since CUDA 2.0. Raw: [`cuEventQuery`](fn@cuda_sys::cuEventQuery).
    #[doc(alias = "cuEventQuery")]
    #[inline]
    pub fn is_complete(&self) -> Result<bool> {
        // SAFETY: the event is alive.
        query_result(without_current(self.context(), || unsafe {
            answer!(cuEventQuery(self.raw()))
        }))
    }

    /// Returns the time from `start` to this event. Calls `cuEventElapsedTime`.
    ///
    /// Both events must have [timing](EventOptions::timing), must have been recorded, and must be
    /// complete. The device clock has a resolution of about half a microsecond.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_HANDLE` without timing or a record; `CUDA_ERROR_NOT_READY` before both
    /// events are complete.
    ///
    /// Since CUDA 2.0 (through `cuEventElapsedTime_v2` since 12.8). Raw:
    /// [`cuEventElapsedTime_v2`](fn@cuda_sys::cuEventElapsedTime_v2).
    #[doc(alias = "cuEventElapsedTime")]
    #[inline]
    pub fn elapsed_since(&self, start: &Self) -> Result<Duration> {
        let mut milliseconds = 0.0f32;
        let (from, to) = (start.raw(), self.raw());
        let time = &raw mut milliseconds;
        without_current(self.context(), || {
            newest_or(
                // SAFETY: both events are alive, and the pointer refers to a local variable.
                unsafe { call!(cuEventElapsedTime_v2(time, from, to)) },
                // SAFETY: both events are alive, and the pointer refers to a local variable.
                || unsafe { call!(abi::cuEventElapsedTime(time, from, to)) },
            )
        })?;
        // The difference of two simultaneous records may be slightly negative.
        let seconds = f64::from(milliseconds.max(0.0)) / 1e3;
        Ok(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
    }
}

impl Owner {
    /// Creates an owner with one reference count.
    #[inline]
    fn share(
        raw: CUevent,
        context: &Context,
        ownership: Ownership,
        state: Arc<State>,
    ) -> AtomicPtr<Self> {
        let owner = Arc::new(Self { raw, ownership, context: context.clone(), state });
        AtomicPtr::new(Arc::into_raw(owner).cast_mut())
    }
}

destroy! {
    Handle<CUevent> as "an event", quiet true;
    // SAFETY: the handle stands for the event, and the caller promises that this is the first call.
    |its| unsafe { answer!(cuEventDestroy_v2(its.0)) }
}

impl Drop for Owner {
    #[inline]
    fn drop(&mut self) {
        if self.ownership.is_owned() {
            self.state.unpublish();
            release_now(Handle(self.raw), &self.context);
        }
    }
}

impl Clone for Event {
    #[inline]
    fn clone(&self) -> Self {
        let owner = self.shared_owner();
        // SAFETY: the pointer comes from `Arc::into_raw`, and this event holds a reference count.
        unsafe { Arc::increment_strong_count(owner) };
        Self {
            raw: self.raw,
            owner: AtomicPtr::new(owner.cast_mut()),
            context: self.context.clone(),
        }
    }
}

impl Event {
    /// Returns the state shared by all clones. This takes no lock, because a forked child might find it
    /// locked forever.
    #[inline]
    fn shared_owner(&self) -> *const Owner {
        let owner = self.owner.load(Ordering::Acquire);
        if owner.is_null() {
            return self.create_owner();
        }
        owner
    }

    #[cold]
    #[inline(never)]
    fn create_owner(&self) -> *const Owner {
        let state = State::new(Kind::Event);
        let new = Owner::share(self.raw, &self.context, Ownership::Owned, state);
        let (null, new) = (std::ptr::null_mut(), new.into_inner());
        let exchanged =
            (self.owner).compare_exchange(null, new, Ordering::AcqRel, Ordering::Acquire);
        let Err(existing) = exchanged else {
            return new;
        };
        // SAFETY: the pointer is the only reference to the owner created above, which no other thread
        // has seen.
        let mut unused = unsafe { Arc::from_raw(new) };
        if let Some(unused) = Arc::get_mut(&mut unused) {
            unused.ownership = Ownership::Borrowed;
        }
        existing
    }
}

impl Drop for Event {
    #[inline]
    fn drop(&mut self) {
        let owner = *self.owner.get_mut();
        if owner.is_null() {
            release_now(Handle(self.raw), &self.context);
        } else {
            // SAFETY: the pointer comes from `Arc::into_raw`, and this drops the reference count that
            // the event holds.
            drop(unsafe { Arc::from_raw(owner) });
        }
    }
}

debug_struct! { Event |its| { raw: its.raw, context: its.context() } }
