//! Events: marks in streams, for order and for time.

mod ipc;

pub use ipc::EventIpcHandle;

use crate::call::{answer, call, newest_or, without_current};
use crate::context::Context;
use crate::error::Result;
use crate::hold::Hold;
use crate::invalid::Invalid;
use crate::release::{self, Resource, release_at_once};
use crate::stream::{Stream, others_may_capture, ready, refuse_inside, same_context};
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
    /// What it shares with its clones, of `Arc::into_raw`; null as long as there was none, and it is this one
    /// that destroys the event.
    owner: AtomicPtr<Owner>,
    context: Context,
}

/// Who has an event, for all of its clones.
struct Owner {
    raw: CUevent,
    hold: Hold,
    context: Context,
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

    /// Destroyed by somebody else.
    fn held(raw: CUevent, context: &Context, hold: Hold) -> Self {
        Self {
            raw,
            owner: Owner::share(raw, context, hold),
            context: context.clone(),
        }
    }

    /// Takes over an event: it is destroyed with the last clone.
    ///
    /// # Safety
    /// `raw` is an event of `context` that is alive, and nobody else destroys it.
    pub unsafe fn from_raw(raw: CUevent, context: &Context) -> Self {
        others_may_capture();
        Self::own(raw, context)
    }

    /// An event that somebody else owns: never destroyed here.
    ///
    /// # Safety
    /// `raw` is an event of `context` that stays alive until the last clone of this is gone.
    pub unsafe fn borrow_raw(raw: CUevent, context: &Context) -> Self {
        others_may_capture();
        Self::held(raw, context, Hold::Borrowed)
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
        others_may_capture();
        Self::held(raw, context, Hold::Foreign(Box::new(owner)))
    }

    /// Never destroys the event: it and its context stay until the process ends.
    pub fn leak(self) -> CUevent {
        let raw = self.as_raw();
        std::mem::forget(self);
        raw
    }

    /// The driver's handle. It stays this object's: do not destroy it.
    ///
    /// Whoever has it may record it in a capture, of which streams that wait for it become a part: see
    /// [`Stream::as_raw`].
    #[inline]
    pub fn as_raw(&self) -> CUevent {
        others_may_capture();
        self.raw()
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
    /// # Errors
    /// The stream is of another context.
    ///
    /// Since CUDA 2.0. Raw: [`cuEventRecord`](fn@cuda_sys::cuEventRecord).
    #[doc(alias = "cuEventRecord")]
    #[inline]
    pub fn record(&self, stream: &Stream) -> Result<()> {
        same_context("the event", self.context(), stream.context())?;
        let (event, stream) = (self.raw(), stream.raw());
        without_current(self.context(), move || {
            // SAFETY: the event and the stream are alive.
            unsafe { answer!(cuEventRecord(event, stream)) }
        })
    }

    /// `cuEventRecordWithFlags(event, stream, EXTERNAL)`: makes the record itself a part of what a
    /// captured stream records. It is made by each launch of the graph, and who waits for the event
    /// outside of the graph waits for that; [`record`](Self::record) in a capture is an order within
    /// the graph only. The graph holds the event. (A second call asks which capture it is.)
    ///
    /// # Errors
    /// The stream is of another context; `CUDA_ERROR_INVALID_VALUE` if it is not captured.
    ///
    /// Since CUDA 11.1. Raw: [`cuEventRecordWithFlags`](fn@cuda_sys::cuEventRecordWithFlags).
    #[doc(alias = "cuEventRecordWithFlags")]
    pub fn record_external(&self, stream: &Stream) -> Result<()> {
        same_context("the event", self.context(), stream.context())?;
        let flags = CUevent_record_flags::CU_EVENT_RECORD_EXTERNAL.0;
        without_current(self.context(), || {
            // SAFETY: the event and the stream are alive; the graph keeps the event.
            unsafe { answer!(cuEventRecordWithFlags(self.raw(), stream.raw(), flags)) }
        })?;
        stream.may_need_event(self);
        Ok(())
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
    fn share(raw: CUevent, context: &Context, hold: Hold) -> AtomicPtr<Self> {
        let context = context.clone();
        let owner = Arc::new(Self { raw, hold, context });
        AtomicPtr::new(Arc::into_raw(owner).cast_mut())
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if self.hold.is_owned() {
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
    /// The owner, which the first clone makes. (No lock: a forked child would find it taken.)
    fn shared_owner(&self) -> *const Owner {
        let found = self.owner.load(Ordering::Acquire);
        if !found.is_null() {
            return found;
        }
        let (null, made) = (found, Owner::share(self.raw, &self.context, Hold::Owned));
        let made = made.into_inner();
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
