//! The default streams, which are other ones in each context or thread.

use super::host::{self, Panicked};
use super::needs::Need;
use super::{Home, ready, refuse_inside, same_context};
use crate::call::call;
use crate::capture::{Member, Operation, State, driver_status, is_capturing, wait_captured};
use crate::context::{Context, CurrentContext};
use crate::error::Result;
use crate::event::Event;
use crate::green::GreenContext;
use crate::release;
use cuda_sys::{CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, CUstream};
use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

/// One of the default streams of a context, or of a green context, that is current: where code works
/// that names no stream.
///
/// Their handles, 1 and 2, mean another stream in each context, or on each thread; so they are no
/// [`Stream`](crate::Stream), no buffer is bound to them, and this is got from a guard, which it borrows, and stays
/// on its thread. It is for getting in order with other code: wait for it, have it wait, mark it.
///
/// Each call looks whether the guard's context is still the current one (`cuCtxGetCurrent`), and
/// otherwise, as inside of another guard, makes it current for its own length.
///
/// ```no_run
/// use cuda_safe::{Context, Device};
///
/// let context = Context::primary(&Device::get(0)?)?;
/// let stream = context.stream()?;
/// let event = context.event()?;
/// context.with_current(|current| {
///     // A C library called here has given work to the default stream.
///     let theirs = current.legacy_stream();
///     theirs.record(&event)?;
///     stream.wait(&event)
/// })??;
/// # Ok::<_, cuda_safe::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct DefaultStream<'guard> {
    raw: CUstream,
    guard: &'guard CurrentContext,
    /// The green context whose view the guard makes current.
    green: Option<&'guard GreenContext>,
}

impl CurrentContext {
    /// The legacy default stream of the context (`CU_STREAM_LEGACY`): what the driver takes for
    /// stream 0. It and the context's *blocking* streams
    /// ([`StreamOptions::blocking`](crate::StreamOptions::blocking)) wait for each other.
    ///
    /// Since CUDA 7.0.
    #[doc(alias = "CU_STREAM_LEGACY")]
    pub fn legacy_stream(&self) -> DefaultStream<'_> {
        DefaultStream {
            raw: CU_STREAM_LEGACY,
            guard: self,
            green: None,
        }
    }

    /// This thread's own default stream of the context (`CU_STREAM_PER_THREAD`): a blocking stream.
    ///
    /// Since CUDA 7.0.
    #[doc(alias = "CU_STREAM_PER_THREAD")]
    pub fn per_thread_stream(&self) -> DefaultStream<'_> {
        DefaultStream {
            raw: CU_STREAM_PER_THREAD,
            guard: self,
            green: None,
        }
    }
}

impl<'guard> DefaultStream<'guard> {
    /// The same stream, of the green context whose view is the guard's context.
    pub(crate) fn of_green(mut self, green: &'guard GreenContext) -> Self {
        self.green = Some(green);
        self
    }

    /// The handle, 1 or 2: of this stream while its context is current, on this thread.
    pub fn as_raw(&self) -> CUstream {
        self.raw
    }

    /// The context that events and memory for this stream belong to: the primary context for the default
    /// streams of a green context.
    pub fn context(&self) -> &Context {
        match self.green {
            Some(green) => green.context(),
            None => self.guard.context(),
        }
    }

    /// Returns the green context whose default stream this is; none for a stream of an ordinary context.
    ///
    /// No driver call: `cuStreamGetGreenCtx` answers for the legacy stream by what is current, and is
    /// documented to refuse a thread's own stream while a green context is current.
    pub fn green_context(&self) -> Option<&'guard GreenContext> {
        self.green
    }

    /// `cuStreamSynchronize(stream)`: waits until all work given to the stream is done.
    ///
    /// # Errors
    /// As for [`Stream::synchronize`](crate::Stream::synchronize); of host functions those that were
    /// launched through default streams of the same guard.
    ///
    /// Since CUDA 2.0. Raw: [`cuStreamSynchronize`](fn@cuda_sys::cuStreamSynchronize).
    #[doc(alias = "cuStreamSynchronize")]
    pub fn synchronize(&self) -> Result<()> {
        refuse_inside()?;
        release::drain();
        {
            let _current = self.guard.context().enter()?;
            // SAFETY: the stream of the current context or this thread, which is always there.
            unsafe { call!(cuStreamSynchronize(self.raw)) }?;
        }
        self.panicked().take()
    }

    /// `cuStreamQuery(stream)`: whether all work given to the stream is done.
    ///
    /// # Errors
    /// Those of the work that is done; [`Error::Forked`](crate::Error::Forked).
    ///
    /// Since CUDA 2.0. Raw: [`cuStreamQuery`](fn@cuda_sys::cuStreamQuery).
    #[doc(alias = "cuStreamQuery")]
    pub fn is_idle(&self) -> Result<bool> {
        let _current = self.guard.context().enter()?;
        // SAFETY: as in `synchronize`.
        ready(unsafe { call!(cuStreamQuery(self.raw)) })
    }

    /// `cuStreamWaitEvent(stream, event, 0)`: work given to the stream from now on starts after the
    /// work that the event recorded last. The thread does not wait.
    ///
    /// The event may be of another context or device.
    ///
    /// # Errors
    /// `CUDA_ERROR_STREAM_CAPTURE_IMPLICIT` and its kin, for an event recorded in a captured stream:
    /// of the legacy stream. The thread's own one becomes part of the capture.
    ///
    /// Since CUDA 3.2. Raw: [`cuStreamWaitEvent`](fn@cuda_sys::cuStreamWaitEvent).
    #[doc(alias = "cuStreamWaitEvent")]
    pub fn wait(&self, event: &Event) -> Result<()> {
        let _current = self.guard.context().enter()?;
        let on_event = event.state().enter(Operation::Wait);
        // SAFETY: as in `synchronize`; the event is alive, and the driver keeps what it needs of it.
        let wait = || unsafe { call!(cuStreamWaitEvent(self.raw, event.raw(), 0)) };
        if on_event.seen().is_plain() || self.raw == CU_STREAM_LEGACY {
            return wait();
        }
        let state = self.state();
        let member = Member {
            state: &state,
            stream: None,
            need: Need::Home(match self.green {
                Some(green) => Home::Green(green.clone()),
                None => Home::Context(self.context().clone()),
            }),
        };
        // SAFETY: as in `synchronize`.
        let ask = || unsafe { driver_status(self.raw) };
        wait_captured(&member, (event.state(), &on_event), wait, ask)
    }

    /// `cuEventRecord(event, stream)`: has the event mark what the stream has been given up to now.
    ///
    /// # Errors
    /// The event is of another context.
    ///
    /// Since CUDA 2.0. Raw: [`cuEventRecord`](fn@cuda_sys::cuEventRecord).
    #[doc(alias = "cuEventRecord")]
    pub fn record(&self, event: &Event) -> Result<()> {
        same_context("the event", event.context(), self.context())?;
        let _current = self.guard.context().enter()?;
        if self.raw == CU_STREAM_LEGACY {
            return self.enqueue_record(event);
        }
        let state = self.state();
        let call = state.enter(Operation::Record);
        // SAFETY: as in `synchronize`.
        let entry = call.resolve(Operation::Record, || unsafe { is_capturing(self.raw) })?;
        event.state().prepare_record(&entry)?;
        self.enqueue_record(event)
    }

    /// `cuLaunchHostFunc(stream, function, data)`: as
    /// [`Stream::launch_host_function`](crate::Stream::launch_host_function). A panic in it is the
    /// error of the next [`synchronize`](Self::synchronize) of a default stream of this guard.
    ///
    /// # Errors
    /// As there.
    ///
    /// Since CUDA 10.0. Raw: [`cuLaunchHostFunc`](fn@cuda_sys::cuLaunchHostFunc).
    #[doc(alias = "cuLaunchHostFunc")]
    pub fn launch_host_function(&self, function: impl FnOnce() + Send + 'static) -> Result<()> {
        release::drain();
        let _current = self.guard.context().enter()?;
        let state = self.state();
        let call = state.enter(Operation::HostFunction);
        // SAFETY: as in `synchronize`. (Of the legacy one the driver tells that a blocking stream is
        // captured.)
        let ask = || unsafe { is_capturing(self.raw) };
        let _call = call.uncaptured(Operation::HostFunction, ask)?;
        host::launch(function, self.panicked(), |run, data| {
            // SAFETY: as in `synchronize`; the function takes the box that `data` is, once.
            unsafe { call!(cuLaunchHostFunc(self.raw, run, data)) }
        })
    }

    fn enqueue_record(&self, event: &Event) -> Result<()> {
        // SAFETY: as in `synchronize`; the event is alive.
        unsafe { call!(cuEventRecord(event.raw(), self.raw)) }
    }

    /// The capture state: of the thread's own stream, one for each thread and context. The legacy default
    /// stream is never captured.
    fn state(&self) -> Arc<State> {
        type States = Vec<(usize, Option<u64>, Arc<State>)>;
        thread_local! {
            static STATES: RefCell<States> = const { RefCell::new(Vec::new()) };
        }
        let current = self.guard.context();
        let (raw, id) = (current.as_raw().addr(), current.id());
        if self.raw == CU_STREAM_LEGACY {
            return State::of_default();
        }
        let found = STATES.try_with(|states| {
            let mut states = states.borrow_mut();
            let known = states.iter().find(|its| (its.0, its.1) == (raw, id));
            if let Some((.., state)) = known {
                return Arc::clone(state);
            }
            // One that no capture has says nothing.
            states.retain(|(.., state)| Arc::strong_count(state) > 1);
            let state = State::of_default();
            states.push((raw, id, Arc::clone(&state)));
            state
        });
        // At the end of a thread there is nothing to keep it in.
        found.unwrap_or_else(|_| State::of_default())
    }

    fn panicked(&self) -> &Arc<Panicked> {
        self.guard.panicked()
    }
}

impl fmt::Debug for DefaultStream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DefaultStream")
            .field("raw", &self.raw)
            .field("context", self.context())
            .field("green", &self.green.is_some())
            .finish()
    }
}
