//! Events: marks in streams, for order and for time.

mod ipc;

pub use ipc::EventIpcHandle;

use crate::call::{answer, call, newest_or, without_current};
use crate::capture::{CapturedBy, Kind, Operation, State};
use crate::context::Context;
use crate::error::Result;
use crate::hold::Hold;
use crate::invalid::Invalid;
use crate::release::{self, Resource, release_at_once};
use crate::stream::{Need, Stream, ready, refuse_inside, same_context};
use cuda_sys::{CUevent, CUevent_flags, CUevent_record_flags};
use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

/// `CUevent`: recorded in a stream, it is reached when the work given to the stream before is done.
///
/// Clones share the event; it holds its context. Destroying waits for nothing, and streams that
/// wait for it go on waiting.
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
/// // What the second stream is given from now on comes after the fill. Nobody waits here.
/// second.wait(&end)?;
/// end.synchronize()?;
/// println!("the fill took {:?}", end.elapsed_since(&start)?);
/// # Ok::<_, cuda_safe::Error>(())
/// ```
pub struct Event {
    raw: CUevent,
    /// What it shares with its clones, of `Arc::into_raw`; null until the first clone, wait or captured
    /// record, and until then it is this one that destroys the event.
    owner: AtomicPtr<Owner>,
    context: Context,
}

/// Who has an event, for all of its clones.
struct Owner {
    raw: CUevent,
    hold: Hold,
    context: Context,
    /// Of the handle: other objects of it have the same.
    state: Arc<State>,
}

// SAFETY: the driver lets any thread use an event, several at once.
unsafe impl Send for Owner {}
// SAFETY: as for Send.
unsafe impl Sync for Owner {}
// SAFETY: as for Owner.
unsafe impl Send for Event {}
// SAFETY: as for Owner.
unsafe impl Sync for Event {}

/// How an event is made. The default is for order only, which is the cheapest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EventOptions {
    /// Whether it takes the time, for [`Event::elapsed_since`].
    pub timing: bool,
    /// Whether [`Event::synchronize`] sleeps instead of spinning.
    pub blocking_sync: bool,
    /// Whether other processes may use it, through [`Event::ipc_handle`]. Not with timing.
    pub interprocess: bool,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl EventOptions {
    fn flags(self) -> Result<u32> {
        let Self {
            timing,
            blocking_sync,
            interprocess,
            _non_exhaustive: (),
        } = self;
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
    /// An [event](Event) of this context, for order only.
    ///
    /// # Errors
    /// As for [`event_with`](Self::event_with).
    pub fn event(&self) -> Result<Event> {
        self.event_with(EventOptions::default())
    }

    /// `cuEventCreate(&event, flags)`: an event of this context.
    ///
    /// # Errors
    /// [`Invalid::InterprocessTiming`]; `CUDA_ERROR_OUT_OF_MEMORY`, or one of earlier work.
    ///
    /// Since CUDA 2.0. Raw: [`cuEventCreate`](fn@cuda_sys::cuEventCreate),
    /// [`cuEventDestroy_v2`](fn@cuda_sys::cuEventDestroy_v2).
    #[doc(alias = "cuEventCreate")]
    #[doc(alias = "cuEventDestroy")]
    pub fn event_with(&self, options: EventOptions) -> Result<Event> {
        let flags = options.flags()?;
        release::drain();
        self.create_event(flags)
    }

    /// An event for order only, in the middle of a release.
    pub(crate) fn event_now(&self) -> Result<Event> {
        self.create_event(EventOptions::default().flags()?)
    }

    #[inline(always)]
    fn create_event(&self, flags: u32) -> Result<Event> {
        let mut raw = std::ptr::null_mut();
        let _current = self.enter()?;
        // SAFETY: the pointer is to a local, and the current context is this one.
        unsafe { call!(cuEventCreate(&raw mut raw, flags)) }?;
        Ok(Event::own(raw, self))
    }
}

impl Event {
    /// Destroyed with the last clone.
    fn own(raw: CUevent, context: &Context) -> Self {
        Self {
            raw,
            owner: AtomicPtr::default(),
            context: context.clone(),
        }
    }

    /// An event whose handle other code knows.
    fn shared(raw: CUevent, context: &Context, hold: Hold) -> Self {
        let state = State::of_shared(Kind::Event, raw.addr());
        Self {
            raw,
            owner: Owner::share(raw, context, hold, state),
            context: context.clone(),
        }
    }

    /// Takes over an event: it is destroyed with the last clone.
    ///
    /// # Safety
    /// `raw` is an event of `context` that is alive, and nobody else destroys it.
    pub unsafe fn from_raw(raw: CUevent, context: &Context) -> Self {
        Self::shared(raw, context, Hold::Owned)
    }

    /// An event that somebody else owns: never destroyed here.
    ///
    /// # Safety
    /// `raw` is an event of `context` that stays alive until the last clone of this is gone.
    pub unsafe fn borrow_raw(raw: CUevent, context: &Context) -> Self {
        Self::shared(raw, context, Hold::Borrowed)
    }

    /// An event that `owner` keeps alive: never destroyed here, and `owner` is dropped after the
    /// last clone of this.
    ///
    /// # Safety
    /// `raw` is an event of `context` that stays alive as long as `owner` is.
    pub unsafe fn from_foreign(
        raw: CUevent,
        context: &Context,
        owner: impl Any + Send + Sync,
    ) -> Self {
        Self::shared(raw, context, Hold::Foreign(Box::new(owner)))
    }

    /// Never destroys the event: it and its context stay until the process ends.
    pub fn leak(self) -> CUevent {
        let raw = self.as_raw();
        std::mem::forget(self);
        raw
    }

    /// The driver's handle. It stays this object's: do not destroy it.
    ///
    /// From now on other code may record this event in a capture, which a stream that waits for it joins.
    /// So each wait for it asks the driver whether the stream did (`cuStreamGetCaptureInfo`). Other code
    /// must not record it in a capture while a call of this crate on it is under way on another thread:
    /// see [`Stream::as_raw`].
    #[inline]
    pub fn as_raw(&self) -> CUevent {
        self.state().publish(self.raw.addr());
        self.raw()
    }

    /// The capture state of the handle.
    #[inline]
    pub(crate) fn state(&self) -> &Arc<State> {
        // SAFETY: of `Arc::into_raw`, of a share that this event has until its end.
        &unsafe { &*self.shared_owner() }.state
    }

    /// The driver's handle, for calls of this crate.
    #[inline]
    pub(crate) fn raw(&self) -> CUevent {
        self.raw
    }

    /// Whether it lives for as long only as somebody promised.
    pub(crate) fn is_borrowed(&self) -> bool {
        let lent = |owner: &Owner| matches!(owner.hold, Hold::Borrowed);
        self.owner().is_some_and(lent) || self.context.hangs_on_borrowed()
    }

    fn owner(&self) -> Option<&Owner> {
        // SAFETY: null, or of `Arc::into_raw` of a share that this event has until its end.
        unsafe { self.owner.load(Ordering::Acquire).as_ref() }
    }

    /// The context that the event was made in.
    #[inline]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// `cuEventRecord(event, stream)`: marks what the stream has been given up to now; a mark from
    /// before is forgotten.
    ///
    /// In a captured stream it orders the work of that capture only.
    ///
    /// # Errors
    /// The stream is of another context. In a capture: [`Invalid::CallsUnderWay`], if another thread is
    /// waiting for the event right now, and [`Invalid::OtherCapture`], if it was recorded in another open
    /// capture.
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

    /// The same in a stream that is captured, or that other code may capture.
    #[cold]
    #[inline(never)]
    fn record_captured(&self, stream: &Stream) -> Result<()> {
        let entry = stream.entry(Operation::Record)?;
        self.state().prepare_record(&entry)?;
        self.enqueue_record(stream)
    }

    /// As [`record`](Self::record), of an event that nobody else has, in a stream that is not captured.
    ///
    /// # Errors
    /// [`Invalid::StreamIsCaptured`]; those of the driver.
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

    /// `cuEventRecordWithFlags(event, stream, EXTERNAL)`: makes the record itself a part of what a
    /// captured stream records. It is made by each launch of the graph, and who waits for the event
    /// outside of the graph waits for that; [`record`](Self::record) in a capture is an order within
    /// the graph only. The graph retains the event.
    ///
    /// # Errors
    /// The stream is of another context; `CUDA_ERROR_INVALID_VALUE` if it is not captured.
    ///
    /// Since CUDA 11.1. Raw: [`cuEventRecordWithFlags`](fn@cuda_sys::cuEventRecordWithFlags).
    #[doc(alias = "cuEventRecordWithFlags")]
    pub fn record_external(&self, stream: &Stream) -> Result<()> {
        same_context("the event", self.context(), stream.context())?;
        let entry = stream.entry(Operation::Record)?;
        if let CapturedBy::Crate(open) = &entry.captured_by {
            open.retain(Need::Event(self.clone()));
        }
        let flags = CUevent_record_flags::CU_EVENT_RECORD_EXTERNAL.0;
        without_current(self.context(), || {
            // SAFETY: the event and the stream are alive; the graph keeps the event.
            unsafe { answer!(cuEventRecordWithFlags(self.raw(), stream.raw(), flags)) }
        })
    }

    /// `cuEventSynchronize(event)`: waits until the work that was recorded last is done. An event
    /// that was never recorded is done.
    ///
    /// # Errors
    /// Those of the work; [`Error::Forked`](crate::Error::Forked).
    ///
    /// Since CUDA 2.0. Raw: [`cuEventSynchronize`](fn@cuda_sys::cuEventSynchronize).
    #[doc(alias = "cuEventSynchronize")]
    pub fn synchronize(&self) -> Result<()> {
        refuse_inside()?;
        release::drain();
        // SAFETY: the event is alive.
        without_current(self.context(), || unsafe {
            answer!(cuEventSynchronize(self.raw()))
        })
    }

    /// `cuEventQuery(event)`: whether the work that was recorded last is done.
    ///
    /// # Errors
    /// Those of the work; [`Error::Forked`](crate::Error::Forked).
    ///
    /// Since CUDA 2.0. Raw: [`cuEventQuery`](fn@cuda_sys::cuEventQuery).
    #[doc(alias = "cuEventQuery")]
    #[inline]
    pub fn is_done(&self) -> Result<bool> {
        // SAFETY: the event is alive.
        ready(without_current(self.context(), || unsafe {
            answer!(cuEventQuery(self.raw()))
        }))
    }

    /// `cuEventElapsedTime(&ms, start, end)`: the time from `start` to this event, both recorded
    /// and done, with [timing](EventOptions::timing). The device's clock resolves about half a
    /// microsecond.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_HANDLE` without timing or a record, `CUDA_ERROR_NOT_READY` before both
    /// are done.
    ///
    /// Since CUDA 2.0 (from 12.8 on through `cuEventElapsedTime_v2`). Raw:
    /// [`cuEventElapsedTime_v2`](fn@cuda_sys::cuEventElapsedTime_v2).
    #[doc(alias = "cuEventElapsedTime")]
    pub fn elapsed_since(&self, start: &Self) -> Result<Duration> {
        let mut milliseconds = 0.0f32;
        let (from, to) = (start.raw(), self.raw());
        let time = &raw mut milliseconds;
        without_current(self.context(), || {
            newest_or(
                // SAFETY: both events are alive, and the pointer is to a local.
                unsafe { call!(cuEventElapsedTime_v2(time, from, to)) },
                // SAFETY: as above.
                || unsafe { call!(abi::cuEventElapsedTime(time, from, to)) },
            )
        })?;
        // Two records at the same moment may come out a hair below zero.
        let seconds = f64::from(milliseconds.max(0.0)) / 1e3;
        Ok(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
    }
}

impl Owner {
    /// A share of a new one.
    fn share(raw: CUevent, context: &Context, hold: Hold, state: Arc<State>) -> AtomicPtr<Self> {
        let owner = Arc::new(Self {
            raw,
            hold,
            context: context.clone(),
            state,
        });
        AtomicPtr::new(Arc::into_raw(owner).cast_mut())
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if self.hold.is_owned() {
            self.state.unpublish();
            release_at_once(|| Resource::Event(self.raw), &self.context);
        }
    }
}

impl Clone for Event {
    fn clone(&self) -> Self {
        let owner = self.shared_owner();
        // SAFETY: it is of `Arc::into_raw`, of a share that this event has.
        unsafe { Arc::increment_strong_count(owner) };
        Self {
            raw: self.raw,
            owner: AtomicPtr::new(owner.cast_mut()),
            context: self.context.clone(),
        }
    }
}

impl Event {
    /// What all clones share. (No lock: a forked child would find it taken.)
    #[inline]
    fn shared_owner(&self) -> *const Owner {
        let found = self.owner.load(Ordering::Acquire);
        if found.is_null() {
            return self.make_owner();
        }
        found
    }

    #[cold]
    #[inline(never)]
    fn make_owner(&self) -> *const Owner {
        let state = State::new(Kind::Event);
        let made = Owner::share(self.raw, &self.context, Hold::Owned, state);
        let (null, made) = (std::ptr::null_mut(), made.into_inner());
        let kept = (self.owner).compare_exchange(null, made, Ordering::AcqRel, Ordering::Acquire);
        let Err(earlier) = kept else {
            return made;
        };
        // SAFETY: it is the one share of what was made above, which nobody has seen.
        let mut surplus = unsafe { Arc::from_raw(made) };
        if let Some(surplus) = Arc::get_mut(&mut surplus) {
            surplus.hold = Hold::Borrowed;
        }
        earlier
    }
}

impl Drop for Event {
    #[inline]
    fn drop(&mut self) {
        let owner = *self.owner.get_mut();
        if owner.is_null() {
            release_at_once(|| Resource::Event(self.raw), &self.context);
        } else {
            // SAFETY: it is of `Arc::into_raw`, of the share that this event has, and ends with it.
            drop(unsafe { Arc::from_raw(owner) });
        }
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("raw", &self.raw)
            .field("context", self.context())
            .finish()
    }
}
