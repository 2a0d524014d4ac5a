//! A green context as the current context, on one thread at a time; and its events.

use super::GreenContext;
use crate::call::{answer, call, without_current};
use crate::context::{Context, CurrentContext};
use crate::error::{Error, Result};
use crate::event::Event;
use crate::invalid::Invalid;
use crate::report::{Report, report};
use crate::stream::{DefaultStream, same_context};
use cuda_sys::{CUcontext, CUresult};
use std::thread::ThreadId;

/// The guard of [`GreenContext::make_current`]: while it lives, the green context is current on this
/// thread, and on no other.
///
/// Forgotten, or not to be ended, it keeps other threads from making the green context current.
#[must_use = "the green context is current only while this guard lives"]
#[derive(Debug)]
pub struct CurrentGreenContext {
    green: GreenContext,
    guard: CurrentContext,
    has_ended: bool,
}

impl GreenContext {
    /// `cuCtxFromGreenCtx(&context, green)`: the green context as a `CUcontext`: a view, the same each
    /// time, alive as long as this is; not to be destroyed. It may be current on one thread at a time.
    ///
    /// # Errors
    /// [`Invalid::GreenContextInUse`]; those of the driver.
    ///
    /// Since CUDA 12.4. Raw: [`cuCtxFromGreenCtx`](fn@cuda_sys::cuCtxFromGreenCtx).
    #[doc(alias = "cuCtxFromGreenCtx")]
    pub fn as_raw_context(&self) -> Result<CUcontext> {
        let _lock = self.lock()?;
        self.view()
    }

    /// Under the lock.
    fn view(&self) -> Result<CUcontext> {
        let mut view = std::ptr::null_mut();
        // SAFETY: the green context is alive, and the pointer is to a local.
        unsafe { call!(cuCtxFromGreenCtx(&raw mut view, self.as_raw())) }?;
        Ok(view)
    }

    /// `cuCtxFromGreenCtx`, and [`Context::make_current`] of that: makes the green context current on
    /// this thread until the guard is dropped: foreign code that works in the current context then
    /// works on its SMs. Streams need none of this.
    ///
    /// # Errors
    /// [`Invalid::CurrentElsewhere`]: it is current on another thread;
    /// [`Invalid::GreenContextInUse`]; as for [`Context::make_current`].
    ///
    /// Since CUDA 12.4. Raw: [`cuCtxFromGreenCtx`](fn@cuda_sys::cuCtxFromGreenCtx).
    #[doc(alias = "cuCtxFromGreenCtx")]
    pub fn make_current(&self) -> Result<CurrentGreenContext> {
        let here = std::thread::current().id();
        let mut lock = self.lock()?;
        let open = match lock.current {
            Some((thread, _)) if thread != here => return Err(Invalid::CurrentElsewhere.into()),
            Some((_, open)) => open,
            None => 0,
        };
        // It holds this green context: should the view stay on the stack, so does that.
        let view = Context::view(self.view()?, self.device(), self.clone());
        let guard = view.make_current()?;
        lock.current = Some((here, open + 1));
        Ok(CurrentGreenContext {
            green: self.clone(),
            guard,
            has_ended: false,
        })
    }

    /// Makes one call with the green context current; other threads wait for their turn.
    pub(super) fn under_view(&self, call: impl FnOnce() -> Result<()>) -> Result<()> {
        let lock = self.lock()?;
        let elsewhere = |(thread, _): (ThreadId, usize)| thread != std::thread::current().id();
        if lock.current.is_some_and(elsewhere) {
            return Err(Invalid::CurrentElsewhere.into());
        }
        // It holds this green context: should the view stay on the stack, so does that.
        let view = Context::view(self.view()?, self.device(), self.clone());
        let current = view.make_current()?;
        let done = call();
        let left = current.finish();
        // The hook may want it.
        drop(lock);
        if let Err(error) = left {
            report(&Report::ContextStack { error });
        }
        done
    }

    /// `cuCtxFromGreenCtx`, and [`Context::with_current`] of that: runs `f` with the green context
    /// current on this thread, and restores what was current before, a panic in `f` included.
    ///
    /// # Errors
    /// As for [`make_current`](Self::make_current); then `f` is not called.
    ///
    /// Since CUDA 12.4. Raw: [`cuCtxFromGreenCtx`](fn@cuda_sys::cuCtxFromGreenCtx).
    #[doc(alias = "cuCtxFromGreenCtx")]
    pub fn with_current<R>(&self, f: impl FnOnce(&CurrentGreenContext) -> R) -> Result<R> {
        let current = self.make_current()?;
        Ok(f(&current))
    }

    /// `cuGreenCtxRecordEvent(green, event)`: marks what all streams of the partition have been given
    /// up to now.
    ///
    /// # Errors
    /// The event is of another context than the device's primary one;
    /// [`Invalid::GreenContextInUse`]; [`Invalid::GreenContextIsCaptured`], which breaks the capture.
    ///
    /// Since CUDA 12.4. Raw: [`cuGreenCtxRecordEvent`](fn@cuda_sys::cuGreenCtxRecordEvent).
    #[doc(alias = "cuGreenCtxRecordEvent")]
    pub fn record(&self, event: &Event) -> Result<()> {
        same_context("the event", event.context(), self.context())?;
        let _lock = self.lock()?;
        captured(without_current(self.context(), || {
            // SAFETY: the green context and the event are alive.
            unsafe { answer!(cuGreenCtxRecordEvent(self.as_raw(), event.raw())) }
        }))
    }

    /// `cuGreenCtxWaitEvent(green, event)`: all work given to the partition from now on starts after
    /// the work that the event recorded. The thread does not wait.
    ///
    /// The event may be of another context or device.
    ///
    /// # Errors
    /// [`Invalid::GreenContextInUse`]; [`Invalid::GreenContextIsCaptured`], which breaks the capture,
    /// also for an event of a capture.
    ///
    /// Since CUDA 12.4. Raw: [`cuGreenCtxWaitEvent`](fn@cuda_sys::cuGreenCtxWaitEvent).
    #[doc(alias = "cuGreenCtxWaitEvent")]
    pub fn wait(&self, event: &Event) -> Result<()> {
        let _lock = self.lock()?;
        captured(without_current(self.context(), || {
            // SAFETY: the green context and the event are alive.
            unsafe { answer!(cuGreenCtxWaitEvent(self.as_raw(), event.raw())) }
        }))
    }
}

/// What the driver says of a capture, in words.
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
    /// The green context that is current.
    pub fn green_context(&self) -> &GreenContext {
        &self.green
    }

    /// Returns the legacy default stream of the green context (`CU_STREAM_LEGACY`), which the driver also
    /// takes for stream 0 while the green context is current. Its work runs on the green context's SMs.
    ///
    /// Since CUDA 12.4.
    #[doc(alias = "CU_STREAM_LEGACY")]
    pub fn legacy_stream(&self) -> DefaultStream<'_> {
        self.guard.legacy_stream().of_green(&self.green)
    }

    /// Returns this thread's own default stream of the green context (`CU_STREAM_PER_THREAD`).
    ///
    /// Since CUDA 12.4.
    #[doc(alias = "CU_STREAM_PER_THREAD")]
    pub fn per_thread_stream(&self) -> DefaultStream<'_> {
        self.guard.per_thread_stream().of_green(&self.green)
    }

    /// Ends the guard and says whether the stack was as it should be: [`CurrentContext::finish`].
    ///
    /// # Errors
    /// As there.
    pub fn finish(mut self) -> Result<()> {
        self.leave()
    }

    fn leave(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.has_ended, true) {
            return Ok(());
        }
        // What could not be popped is on this thread's stack for good, and stays noted.
        self.guard.end_now()?;
        let mut lock = self.green.lock()?;
        lock.current = match lock.current {
            Some((thread, open)) if open > 1 => Some((thread, open - 1)),
            _ => None,
        };
        Ok(())
    }
}

impl Drop for CurrentGreenContext {
    fn drop(&mut self) {
        match self.leave() {
            // There is nothing to be told in a forked child.
            Ok(()) | Err(Error::Forked) => {}
            Err(error) => report(&Report::ContextStack { error }),
        }
    }
}
