//! The default streams, which are other ones in each context or thread.

use super::capture::{capture_id, refuse_captured_raw};
use super::gate::OPEN;
use super::host::{self, Panicked};
use super::needs::{self, Need};
use super::{Home, others_may_capture, ready, refuse_inside, same_context};
use crate::call::call;
use crate::context::{Context, CurrentContext};
use crate::error::Result;
use crate::event::Event;
use crate::release;
use cuda_sys::{CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, CUstream};
use std::fmt;
use std::sync::atomic::Ordering;

/// One of the default streams of a context that is current: where code works that names no stream.
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
        }
    }
}

impl DefaultStream<'_> {
    /// The handle, 1 or 2: of this stream while its context is current, on this thread.
    pub fn as_raw(&self) -> CUstream {
        self.raw
    }

    /// The context.
    pub fn context(&self) -> &Context {
        self.guard.context()
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
            let _current = self.context().enter()?;
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
        let _current = self.context().enter()?;
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
        let _current = self.context().enter()?;
        // SAFETY: as in `synchronize`; the event is alive, and the driver keeps what it needs of it.
        unsafe { call!(cuStreamWaitEvent(self.raw, event.raw(), 0)) }?;
        // The thread's own one may be part of a capture now.
        if self.raw == CU_STREAM_PER_THREAD && OPEN.load(Ordering::SeqCst) != 0 {
            let home = Home::Context(self.context().clone());
            // SAFETY: as in `synchronize`.
            needs::note(unsafe { capture_id(self.raw) }, Need::Home(home));
        }
        Ok(())
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
        // The thread's own stream is other code's as well.
        others_may_capture();
        let _current = self.context().enter()?;
        // SAFETY: as in `synchronize`; the event is alive.
        unsafe { call!(cuEventRecord(event.raw(), self.raw)) }
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
        let _current = self.context().enter()?;
        // SAFETY: as in `synchronize`.
        unsafe { refuse_captured_raw(self.raw) }?;
        host::launch(function, self.panicked(), |run, data| {
            // SAFETY: as in `synchronize`; the function takes the box that `data` is, once.
            unsafe { call!(cuLaunchHostFunc(self.raw, run, data)) }
        })
    }

    fn panicked(&self) -> &std::sync::Arc<Panicked> {
        self.guard.panicked()
    }
}

impl fmt::Debug for DefaultStream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DefaultStream")
            .field("raw", &self.raw)
            .field("context", self.context())
            .finish()
    }
}
