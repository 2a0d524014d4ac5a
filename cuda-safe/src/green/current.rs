//! Green contexts as the current context on one thread at a time, and their events.

use super::GreenContext;
use crate::call::{
    Error, Invalid, Report, Result, answer, call, fork, out, report, without_current,
};
use crate::context::{Context, CurrentContext};
use crate::event::Event;
use crate::stream::{DefaultStream, Partition, same_context};
use cuda_sys::{CUcontext, CUresult};
use std::sync::Arc;

/// A guard that keeps a green context current on this thread, and on no other thread. Returned by
/// [`GreenContext::make_current`].
///
/// If the guard is forgotten or cannot be ended, other threads cannot make the green context current.
#[must_use = "the green context is current only while this guard lives"]
#[derive(Debug)]
pub struct CurrentGreenContext {
    green: GreenContext,
    /// The same green context, as default streams see it.
    partition: Arc<dyn Partition>,
    guard: CurrentContext,
    has_ended: bool,
}

impl GreenContext {
    /// Returns the green context as a `CUcontext`, called its view. Calls `cuCtxFromGreenCtx`.
    ///
    /// The view is the same on every call and lives as long as the green context. Do not destroy it. It
    /// may be current on one thread at a time.
    ///
    /// # Errors
    /// [`Invalid::GreenContextInUse`]; errors of the driver.
    ///
    /// Since CUDA 12.4. Raw: [`cuCtxFromGreenCtx`](fn@cuda_sys::cuCtxFromGreenCtx).
    #[doc(alias = "cuCtxFromGreenCtx")]
    #[inline]
    pub fn as_raw_context(&self) -> Result<CUcontext> {
        let _lock = self.lock()?;
        self.view()
    }

    /// The caller holds the lock.
    #[inline]
    fn view(&self) -> Result<CUcontext> {
        // SAFETY: the green context is alive, and `out` passes a valid pointer.
        out(|place| unsafe { call!(cuCtxFromGreenCtx(place, self.as_raw())) })
    }

    /// Makes the green context current on this thread until the guard is dropped. Calls
    /// `cuCtxFromGreenCtx` and then [`Context::make_current`].
    ///
    /// Meanwhile, foreign code that works in the current context runs on the SMs of the partition.
    /// Streams of this crate do not need this.
    ///
    /// # Errors
    /// [`Invalid::CurrentElsewhere`] if it is current on another thread;
    /// [`Invalid::GreenContextInUse`]. See also [`Context::make_current`].
    ///
    /// Since CUDA 12.4. Raw: [`cuCtxFromGreenCtx`](fn@cuda_sys::cuCtxFromGreenCtx).
    #[doc(alias = "cuCtxFromGreenCtx")]
    #[inline]
    pub fn make_current(&self) -> Result<CurrentGreenContext> {
        let _lock = self.lock()?;
        self.calls().check_thread()?;
        // The view holds this green context, which therefore stays alive if the view cannot be popped.
        let view = Context::view(self.view()?, self.device(), self.clone());
        let guard = view.make_current()?;
        self.calls().add_guard();
        Ok(CurrentGreenContext {
            green: self.clone(),
            partition: self.partition(),
            guard,
            has_ended: false,
        })
    }

    /// Makes one call with the green context current. Other threads wait for the lock.
    pub(super) fn under_view(&self, call: impl FnOnce() -> Result<()>) -> Result<()> {
        let lock = self.lock()?;
        self.calls().check_thread()?;
        // The view holds this green context, which therefore stays alive if the view cannot be popped.
        let view = Context::view(self.view()?, self.device(), self.clone());
        let current = view.make_current()?;
        let done = call();
        let finished = current.end();
        // The report hook may need the lock.
        drop(lock);
        if let Err(error) = finished {
            report(&Report::ContextStack { error });
        }
        done
    }

    /// Runs `f` with the green context current on this thread, and then restores the previous context,
    /// even if `f` panics. Calls `cuCtxFromGreenCtx` and then [`Context::with_current`].
    ///
    /// # Errors
    /// See [`make_current`](Self::make_current). `f` is not called then.
    ///
    /// Since CUDA 12.4. Raw: [`cuCtxFromGreenCtx`](fn@cuda_sys::cuCtxFromGreenCtx).
    #[doc(alias = "cuCtxFromGreenCtx")]
    pub fn with_current<R>(&self, f: impl FnOnce(&CurrentGreenContext) -> R) -> Result<R> {
        let current = self.make_current()?;
        Ok(f(&current))
    }

    /// Records an event for the work enqueued so far on all streams of the partition. Calls
    /// `cuGreenCtxRecordEvent`.
    ///
    /// # Errors
    /// The event does not belong to the device's primary context; [`Invalid::GreenContextInUse`];
    /// [`Invalid::GreenContextIsCaptured`], which invalidates the capture.
    ///
    /// Since CUDA 12.4. Raw: [`cuGreenCtxRecordEvent`](fn@cuda_sys::cuGreenCtxRecordEvent).
    #[doc(alias = "cuGreenCtxRecordEvent")]
    #[inline]
    pub fn record_event(&self, event: &Event) -> Result<()> {
        same_context("the event", event.context(), self.context())?;
        let _lock = self.lock()?;
        captured(without_current(self.context(), || {
            // SAFETY: the green context and the event are alive.
            unsafe { answer!(cuGreenCtxRecordEvent(self.as_raw(), event.raw())) }
        }))
    }

    /// Makes all work enqueued on the partition from now on wait for an event. Calls
    /// `cuGreenCtxWaitEvent`, which does not block the thread.
    ///
    /// The event may belong to another context or device.
    ///
    /// # Errors
    /// [`Invalid::GreenContextInUse`]; [`Invalid::GreenContextIsCaptured`], which invalidates the
    /// capture and is also returned for an event of a capture.
    ///
    /// Since CUDA 12.4. Raw: [`cuGreenCtxWaitEvent`](fn@cuda_sys::cuGreenCtxWaitEvent).
    #[doc(alias = "cuGreenCtxWaitEvent")]
    #[inline]
    pub fn wait_event(&self, event: &Event) -> Result<()> {
        let _lock = self.lock()?;
        let Some(event) = event.raw_to_wait() else { return fork::refuse_in_child() };
        captured(without_current(self.context(), || {
            // SAFETY: the green context and the event are alive.
            unsafe { answer!(cuGreenCtxWaitEvent(self.as_raw(), event)) }
        }))
    }
}

/// Translates the driver's errors about captures.
#[inline]
fn captured(done: Result<()>) -> Result<()> {
    match done {
        Err(error)
            if matches!(
                error.code(),
                Some(
                    CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
                        | CUresult::CUDA_ERROR_CAPTURED_EVENT
                )
            ) =>
        {
            Err(Invalid::GreenContextIsCaptured.into())
        }
        done => done,
    }
}

impl CurrentGreenContext {
    /// Returns the green context that is current.
    #[inline]
    pub fn green_context(&self) -> &GreenContext {
        &self.green
    }

    /// Returns the legacy default stream of the green context (`CU_STREAM_LEGACY`).
    ///
    /// The driver also uses it for stream 0 while the green context is current. Its work runs on the
    /// SMs of the green context.
    ///
    /// A green context has no per-thread default stream. While one is current, every call with
    /// `CU_STREAM_PER_THREAD` fails with `CUDA_ERROR_INVALID_HANDLE` (measured with driver 580).
    ///
    /// Since CUDA 12.4.
    #[doc(alias = "CU_STREAM_LEGACY")]
    #[inline]
    pub fn legacy_stream(&self) -> DefaultStream<'_> {
        self.guard.legacy_stream().of_green(&self.partition)
    }

    /// Ends the guard and reports whether the context stack was as expected. See
    /// [`CurrentContext::end`].
    ///
    /// # Errors
    /// See [`CurrentContext::end`].
    #[inline]
    pub fn end(mut self) -> Result<()> {
        self.leave()
    }

    #[inline]
    fn leave(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.has_ended, true) {
            return Ok(());
        }
        // A view that cannot be popped stays on this thread's stack and stays recorded.
        self.guard.end_now()?;
        // The lock of the green context is not needed: another thread may hold it for as long as its call
        // blocks.
        self.green.calls().remove_guard();
        Ok(())
    }
}

impl Drop for CurrentGreenContext {
    #[inline]
    fn drop(&mut self) {
        match self.leave() {
            // A forked child has nothing to report.
            Ok(()) | Err(Error::Forked) => {}
            Err(error) => report(&Report::ContextStack { error }),
        }
    }
}
