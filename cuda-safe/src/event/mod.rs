//! Events: markers in streams, for ordering and timing.

mod cache;
mod ipc;
mod slots;
mod wait;

pub use cache::{cached, destroy_cached, set_reuse};
pub use ipc::EventIpcHandle;

use crate::call::{
    Answer, Error, Invalid, Ownership, Result, answer, call, debug_struct, ends_all_work,
    expect_handle, fork, newest_or, out, refuse_if, refuse_in_host_function, without_current,
};
use crate::capture_state::{CapturedBy, Entry, Kind, Operation, State, retain};
use crate::context::Context;
use crate::release::{self, Handle, Keep, MAX_RETRIES, destroy, owners, release_now};
use crate::stream::{Stream, query_result, same_context};
use cache::Place;
use cuda_sys::{CUevent, CUevent_flags, CUevent_record_flags, CUresult};
use std::any::Any;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

/// A CUDA event (`CUevent`). Create one with [`Context::event`].
///
/// A recorded event completes when the work enqueued on the stream before the record is complete.
///
/// Clones share the event. It keeps its context alive. Dropping it waits for nothing, and streams
/// that already wait for it keep waiting.
///
/// # Reuse
/// A dropped event is cached for the next event that the thread creates with the same [`Context`] object
/// and the same options, which then calls no driver function. Up to 16 events are cached for each
/// thread and each combination of options. They are destroyed when the last clone of that `Context` is
/// dropped, or by [`destroy_cached`].
///
/// Other events are destroyed when they are dropped: those that were cloned, whose handle was taken,
/// that are shared with other processes, or that a graph, a launch or a whole context has recorded.
/// [`set_reuse`] turns the reuse off.
///
/// A reused event acts as a new one: it counts as complete until it is recorded. Streams that wait for
/// an earlier record keep waiting for that record.
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
pub struct Event(ManuallyDrop<Arc<Owner>>);

/// The owner of an event, shared by all of its clones.
struct Owner {
    raw: CUevent,
    ownership: Ownership,
    /// The place to which the event returns when it is dropped, if it may be reused.
    place: Option<Place>,
    /// Whether the event was cloned, or something other than the objects of this crate may use the handle.
    is_lent: AtomicBool,
    /// The [address](Context::address) of the context, so that a record compares it once. 0 if the event
    /// was reused and not recorded since: the record that the driver knows is not one of this event.
    recorded_in: AtomicUsize,
    context: Context,
    /// The capture state of the handle, shared with other objects that have the same handle.
    state: Arc<State>,
}

// SAFETY: the driver allows several threads to use an event at the same time.
unsafe impl Send for Owner {}
// SAFETY: see `Send`.
unsafe impl Sync for Owner {}

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
            refuse_if!(timing, Invalid::InterprocessTiming);
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

    /// Creates an event of this context. Calls `cuEventCreate`, unless a dropped event is
    /// [reused](Event#reuse).
    ///
    /// # Errors
    /// [`Invalid::InterprocessTiming`]; `CUDA_ERROR_OUT_OF_MEMORY`; an error of earlier work.
    ///
    /// Since CUDA 2.0. Raw: [`cuEventCreate`](fn@cuda_sys::cuEventCreate),
    /// [`cuEventDestroy_v2`](fn@cuda_sys::cuEventDestroy_v2).
    #[doc(alias = "cuEventCreate", alias = "cuEventDestroy")]
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
        cache::take(self, flags).or_else(|(context, place)| self.create_new(flags, context, place))
    }

    #[inline]
    fn create_new(&self, flags: u32, context: Self, place: Option<Place>) -> Result<Event> {
        let current = self.enter()?;
        // SAFETY: `out` passes a valid pointer, and this context is current.
        let raw = out(|place| unsafe { call!(cuEventCreate(place, flags)) })?;
        drop(current);
        Ok(Event::new(raw, Ownership::Owned, place, context, State::new(Kind::Event)))
    }
}

impl Event {
    #[inline]
    fn new(
        raw: CUevent,
        ownership: Ownership,
        place: Option<Place>,
        context: Context,
        state: Arc<State>,
    ) -> Self {
        let (is_lent, recorded_in) = (AtomicBool::new(false), AtomicUsize::new(context.address()));
        let owner = Owner { raw, ownership, place, is_lent, recorded_in, context, state };
        Self(ManuallyDrop::new(Arc::new(owner)))
    }

    /// Wraps an event whose handle other code knows.
    #[inline]
    fn wrap(raw: CUevent, context: &Context, ownership: Ownership) -> Result<Self> {
        expect_handle("event", raw)?;
        let state = State::of_shared(Kind::Event, raw.addr());
        Ok(Self::new(raw, ownership, None, context.clone(), state))
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
        self.state().publish(self.handle().addr());
        self.raw()
    }

    /// Returns the capture state of the handle.
    #[inline]
    pub(crate) fn state(&self) -> &Arc<State> {
        &self.0.state
    }

    /// Returns the raw handle for a driver call. The event is not reused after it. For records and waits
    /// of streams, see [`raw_to_record`](Self::raw_to_record) and [`raw_to_wait`](Self::raw_to_wait).
    #[inline]
    pub(crate) fn raw(&self) -> CUevent {
        self.lend();
        self.raw_to_record()
    }

    /// Prevents that the event is reused.
    #[inline]
    fn lend(&self) {
        self.0.is_lent.store(true, Ordering::Relaxed);
    }

    /// Returns the raw handle, to compare it.
    #[inline]
    pub(crate) fn handle(&self) -> CUevent {
        self.0.raw
    }

    /// Returns the raw handle for a record on a stream that is not capturing.
    #[inline]
    pub(crate) fn raw_to_record(&self) -> CUevent {
        self.0.recorded_in.store(self.context().address(), Ordering::Relaxed);
        self.0.raw
    }

    /// Returns the raw handle for a wait, which has no effect if this is `None`.
    #[inline]
    pub(crate) fn raw_to_wait(&self) -> Option<CUevent> {
        (self.0.recorded_in.load(Ordering::Relaxed) != 0).then_some(self.0.raw)
    }

    /// Returns whether the event, or its context, is borrowed.
    #[inline]
    pub(crate) fn is_borrowed(&self) -> bool {
        matches!(self.0.ownership, Ownership::Borrowed) || self.0.context.depends_on_borrowed()
    }

    /// Returns the context in which the event was created.
    #[inline]
    pub fn context(&self) -> &Context {
        &self.0.context
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
    #[doc(alias = "record_event")]
    #[doc(alias = "cuEventRecord")]
    #[inline]
    pub fn record(&self, stream: &Stream) -> Result<()> {
        if self.0.recorded_in.load(Ordering::Relaxed) != stream.context().address() {
            self.compare_contexts(stream)?;
        }
        let call = stream.enter(Operation::Record);
        if !call.seen().is_plain() {
            drop(call);
            return self.record_captured(stream);
        }
        self.enqueue_again(stream)
    }

    #[cold]
    #[inline(never)]
    fn compare_contexts(&self, stream: &Stream) -> Result<()> {
        same_context("the event", self.context(), stream.context())?;
        self.raw_to_record();
        Ok(())
    }

    /// Records the event on a stream that is capturing, or that foreign code may capture.
    #[cold]
    #[inline(never)]
    fn record_captured(&self, stream: &Stream) -> Result<()> {
        let entry = stream.entry(Operation::Record)?;
        self.prepare_record(&entry)?;
        self.enqueue_record(stream)
    }

    /// Prepares a record on a stream that may be capturing.
    ///
    /// # Errors
    /// See [`State::prepare_record`].
    #[inline]
    pub(crate) fn prepare_record(&self, stream: &Entry<'_>) -> Result<()> {
        self.state().prepare_record(stream)?;
        if !matches!(stream.captured_by, CapturedBy::None) {
            self.lend();
        }
        Ok(())
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

    /// Records an event on a stream. The caller counts a call on the stream, or has prepared a captured
    /// record.
    ///
    /// # Errors
    /// Errors of the driver.
    #[inline(always)]
    pub(crate) fn enqueue_record(&self, stream: &Stream) -> Result<()> {
        self.raw_to_record();
        self.enqueue_again(stream)
    }

    /// [`enqueue_record`](Self::enqueue_record) for an event that is not reused, or was recorded since.
    #[inline(always)]
    fn enqueue_again(&self, stream: &Stream) -> Result<()> {
        let (event, stream) = (self.handle(), stream.raw());
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
    /// Errors of the work; [`Error::Forked`].
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
        let Some(event) = self.raw_to_wait() else { return fork::refuse_in_child() };
        // SAFETY: the event is alive.
        without_current(self.context(), || unsafe { answer!(cuEventSynchronize(event)) })
    }

    /// Returns whether the work of the last record is complete. Calls `cuEventQuery`.
    ///
    /// # Errors
    /// Errors of the work; [`Error::Forked`].
    ///
    /// Since CUDA 2.0. Raw: [`cuEventQuery`](fn@cuda_sys::cuEventQuery).
    #[doc(alias = "cuEventQuery")]
    #[inline]
    pub fn is_complete(&self) -> Result<bool> {
        // SAFETY: the event is alive.
        let is_complete = query_result(without_current(self.context(), || unsafe {
            answer!(cuEventQuery(self.handle()))
        }))?;
        Ok(is_complete || self.raw_to_wait().is_none())
    }

    /// Returns the time from `start` to this event. Calls `cuEventElapsedTime`.
    ///
    /// Both events must have [timing](EventOptions::timing), must have been recorded, and must be
    /// complete. The device clock has a resolution of about half a microsecond.
    ///
    /// # Errors
    /// [`Invalid::NoElapsedTime`] without timing or a record; `CUDA_ERROR_NOT_READY` before both events are
    /// complete.
    ///
    /// Since CUDA 2.0 (through `cuEventElapsedTime_v2` since 12.8). Raw:
    /// [`cuEventElapsedTime_v2`](fn@cuda_sys::cuEventElapsedTime_v2).
    #[doc(alias = "elapsed_ms")]
    #[doc(alias = "cuEventElapsedTime")]
    #[inline]
    pub fn elapsed_since(&self, start: &Self) -> Result<Duration> {
        let mut milliseconds = 0.0f32;
        let (Some(from), Some(to)) = (start.raw_to_wait(), self.raw_to_wait()) else {
            return Err(Invalid::NoElapsedTime.into());
        };
        let time = &raw mut milliseconds;
        without_current(self.context(), || {
            newest_or(
                // SAFETY: both events are alive, and the pointer refers to a local variable.
                unsafe { call!(cuEventElapsedTime_v2(time, from, to)) },
                // SAFETY: both events are alive, and the pointer refers to a local variable.
                || unsafe { call!(abi::cuEventElapsedTime(time, from, to)) },
            )
        })
        .map_err(|error| match error.code() {
            Some(CUresult::CUDA_ERROR_INVALID_HANDLE) => Invalid::NoElapsedTime.into(),
            _ => error,
        })?;
        // The difference of two simultaneous records may be slightly negative.
        let seconds = f64::from(milliseconds.max(0.0)) / 1e3;
        Ok(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
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
        // A clone may be retained by a graph whose launches record the event later.
        self.lend();
        Self(self.0.clone())
    }
}

impl Drop for Event {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the value is neither used nor dropped again.
        let owner = unsafe { ManuallyDrop::take(&mut self.0) };
        cache::keep_or_destroy(owner);
    }
}

debug_struct! { Event |its| { raw: its.handle(), context: its.context() } }

retain! {
    Event |its, other| {
        is_same: its.handle() == other.handle(),
        is_borrowed: Self::is_borrowed(its),
        publish: its.as_raw(),
    }
}

/// The last use of an object by the work on a stream: all work that is on the stream when
/// [`record`](Self::record) is called first.
pub(crate) struct LastUse {
    stream: Stream,
    /// Recorded after the last use. It exists before, because a drop must not fail.
    end: Event,
    /// The number of a [`Progress`].
    progress: AtomicU8,
    /// The number of queries by [`obstacle`](Self::obstacle) that the driver did not answer.
    unanswered: AtomicU32,
}

/// What is known about the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Nothing, and the event is not recorded. (The driver counts such an event as complete.)
    Unknown = 0,
    /// The event is recorded after the work.
    Recorded = 1,
    Complete = 2,
}

const RECORDED: u8 = Progress::Recorded as u8;
const COMPLETE: u8 = Progress::Complete as u8;

impl LastUse {
    /// `end` is an event that no other code uses.
    #[inline]
    pub(crate) fn new(stream: &Stream, end: Event) -> Self {
        Self {
            stream: stream.clone(),
            end,
            progress: AtomicU8::new(Progress::Unknown as u8),
            unanswered: AtomicU32::new(0),
        }
    }

    #[inline]
    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Returns the event that is recorded after the work.
    #[inline]
    pub(crate) fn end(&self) -> &Event {
        &self.end
    }

    /// Returns what earlier calls found out. Calls no driver function.
    #[inline]
    pub(crate) fn progress(&self) -> Progress {
        match self.progress.load(Ordering::Acquire) {
            RECORDED => Progress::Recorded,
            COMPLETE => Progress::Complete,
            _ => Progress::Unknown,
        }
    }

    /// Records the event, unless the work is complete or the event is recorded. Does not block.
    ///
    /// The caller counts a call on the stream, and has set the relaxed capture mode.
    ///
    /// # Errors
    /// Errors of the driver.
    #[inline]
    pub(crate) fn record(&self) -> Result<Progress> {
        let known = self.progress();
        if known != Progress::Unknown {
            return Ok(known);
        }
        let found = if self.stream.is_complete()? {
            Progress::Complete
        } else {
            self.end.enqueue_record(&self.stream)?;
            Progress::Recorded
        };
        self.progress.store(found as u8, Ordering::Release);
        Ok(found)
    }

    /// Returns whether the work is complete. `waits` waits for it.
    ///
    /// The caller counts a call on the stream, and has set the relaxed capture mode.
    ///
    /// # Errors
    /// Errors of the driver.
    #[inline]
    pub(crate) fn is_over(&self, waits: bool) -> Result<bool> {
        match self.record()? {
            Progress::Complete => Ok(true),
            _ if waits => self.end.wait_for_record().map(|()| true),
            _ => self.end.is_complete(),
        }
    }

    /// Returns `None` if the work is complete, and otherwise the answer of a release that comes after it.
    /// Waits for the work if the stream is borrowed, since its owner may destroy it at any time.
    ///
    /// The release is repeated while the work runs, and [`MAX_RETRIES`] times if the driver does not say
    /// whether it does.
    ///
    /// An error that ends all work is not taken for the end of the work: no release succeeds after it, so
    /// nothing is gained, and everything is lost if the driver returned it only once.
    ///
    /// The caller counts a call on the stream, and has set the relaxed capture mode.
    #[inline]
    pub(crate) fn obstacle(&self) -> Option<Answer> {
        const NOT_READY: Answer =
            Answer { call: "cuEventQuery", code: CUresult::CUDA_ERROR_NOT_READY };
        let (call, code) = match self.is_over(self.stream.is_borrowed()) {
            Ok(true) => return None,
            Ok(false) => return Some(NOT_READY),
            Err(Error::Driver(error)) => (error.call, error.code),
            Err(_) => (NOT_READY.call, CUresult::CUDA_ERROR_UNKNOWN),
        };
        let is_final = ends_all_work(code)
            || code == CUresult::CUDA_ERROR_NOT_PERMITTED
            || self.unanswered.fetch_add(1, Ordering::Relaxed) >= MAX_RETRIES;
        Some(if is_final { Answer { call, code } } else { NOT_READY })
    }
}

/// The owners of an object that is destroyed, or returned to its foreign owner, after events.
#[derive(Clone)]
pub(crate) struct AfterEvents {
    pub(crate) events: Vec<Event>,
    #[allow(dead_code, reason = "held, not read")]
    pub(crate) owner: Option<Arc<dyn Any + Send + Sync>>,
    pub(crate) context: Context,
}

owners! {
    AfterEvents |its| {
        context: Some(&its.context),
        is_borrowed: its.context.depends_on_borrowed(),
        events: its.events.iter().map(Event::handle).collect(),
    }
}
