//! Capture: work given to a stream becomes a graph instead of being done.

use super::Stream;
use crate::call::{answer, call, without_current};
use crate::capture::{DriverStatus, Open};
use crate::error::{Error, Result};
use crate::fork;
use crate::graph::Graph;
use crate::release;
use crate::report::{Report, report};
use cuda_sys::{CUresult, CUstreamCaptureMode, CUstreamCaptureStatus};
use std::marker::PhantomData;
use std::sync::Arc;

/// `CUstreamCaptureMode`: which calls are refused, and break the capture, while it is under way.
///
/// Those are the calls that might wait for work which is recorded and never done: plain and pinned
/// allocations and their frees, waits, and others. (What is dropped here is released in a way that
/// breaks no capture.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CaptureMode {
    /// Such calls of every thread of the process: of code that knows nothing of the capture, too.
    Global,
    /// Such calls of the thread that began the capture.
    #[default]
    ThreadLocal,
    /// None.
    Relaxed,
}

impl CaptureMode {
    fn raw(self) -> CUstreamCaptureMode {
        match self {
            Self::Global => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL,
            Self::ThreadLocal => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
            Self::Relaxed => CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
        }
    }

    /// `cuThreadExchangeStreamCaptureMode(&mode)`: runs `f` with this mode on the calling thread,
    /// and puts back the one before, a panic in `f` included.
    ///
    /// A thread's mode is [`Global`](Self::Global) at first. In the relaxed one its calls break
    /// nobody's capture, and nothing tells if they should have.
    ///
    /// # Errors
    /// The driver refuses; then `f` is not called. If the mode cannot be put back, that is told to
    /// [`set_report_hook`](crate::set_report_hook)'s function.
    ///
    /// Since CUDA 10.1. Raw:
    /// [`cuThreadExchangeStreamCaptureMode`](fn@cuda_sys::cuThreadExchangeStreamCaptureMode).
    #[doc(alias = "cuThreadExchangeStreamCaptureMode")]
    pub fn with<R>(self, f: impl FnOnce() -> R) -> Result<R> {
        /// The mode that was there before, which its drop puts back.
        struct Before(CUstreamCaptureMode);
        impl Drop for Before {
            fn drop(&mut self) {
                // In a forked child the driver is out of reach.
                if !fork::in_child() {
                    release::restore_mode(self.0);
                }
            }
        }
        let mut mode = self.raw();
        // SAFETY: the pointer is to a local.
        unsafe { call!(cuThreadExchangeStreamCaptureMode(&raw mut mode)) }?;
        let _before = Before(mode);
        Ok(f())
    }
}

/// `CUstreamCaptureStatus`: whether work given to a stream is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CaptureStatus {
    /// It is done, not recorded.
    None,
    /// It is recorded.
    Active,
    /// A call that was not allowed has broken the recording, which only its end clears away.
    Invalidated,
    /// What a newer driver answered, by its number.
    Other(u32),
}

impl CaptureStatus {
    fn from_raw(raw: CUstreamCaptureStatus) -> Self {
        match raw {
            CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE => Self::None,
            CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE => Self::Active,
            CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_INVALIDATED => Self::Invalidated,
            CUstreamCaptureStatus(number) => Self::Other(number),
        }
    }
}

/// The capture of [`Stream::begin_capture`]: ends when it is dropped, and what was recorded is
/// thrown away; [`finish`](Self::finish) gives it out.
///
/// The driver wants the end on the thread of the beginning, so this is not `Send`. Forgotten, the
/// stream stays as it is, and is never destroyed.
#[must_use = "dropping it throws away what was recorded"]
#[derive(Debug)]
pub struct Capture {
    stream: Stream,
    open: Arc<Open>,
    /// Whether nothing is left to end.
    is_over: bool,
    not_send: PhantomData<*mut ()>,
}

impl Stream {
    /// Records what `record` gives to the stream: [`begin_capture`](Self::begin_capture) and
    /// [`finish`](Capture::finish). The capture ends also if `record` fails or panics.
    ///
    /// # Errors
    /// That of `record`; those of the beginning and the end.
    ///
    /// Since CUDA 10.1.
    ///
    /// ```no_run
    /// use cuda_safe::{CaptureMode, Context, Device, DeviceBuffer};
    ///
    /// let stream = Context::primary(&Device::get(0)?)?.stream()?;
    /// let mut buffer = DeviceBuffer::<u32>::zeroed(&stream, 1000)?;
    /// let graph = stream.capture(CaptureMode::default(), |_| buffer.fill(7))?;
    /// let graph = graph.instantiate()?;
    /// // SAFETY: the buffer is alive until the work is done, and on this stream.
    /// unsafe { graph.launch(&stream) }?;
    /// assert_eq!(buffer.to_vec()?, [7; 1000]);
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    pub fn capture(
        &self,
        mode: CaptureMode,
        record: impl FnOnce(&Self) -> Result<()>,
    ) -> Result<Graph> {
        let capture = self.begin_capture(mode)?;
        record(self)?;
        capture.finish()
    }

    /// `cuStreamBeginCapture(stream, mode)`: from now on work given to the stream, by any thread,
    /// is recorded and not done.
    ///
    /// A stream that [waits](Self::wait) for an event which is recorded here becomes part of the
    /// recording; before the end this stream has to wait for it in turn. What a captured stream is
    /// good for:
    ///
    /// | what | in a capture |
    /// |---|---|
    /// | launches, fills, copies between buffers, [`Event::record`](crate::Event::record), [`wait`](Self::wait), memory operations | recorded |
    /// | allocations ([`DeviceBuffer::uninit`](crate::DeviceBuffer::uninit) and its kin) | refused: it would be memory of the graph, which is there only in its launches |
    /// | copies from and to slices and pinned buffers, host functions, [`done`](Self::done) | refused: a launch would use what is gone by then |
    /// | [`rebind`](crate::DeviceBuffer::rebind), [`share`](crate::DeviceBuffer::share), [`SharedBuffer::on`](crate::SharedBuffer::on) | refused: it would be no order of what is done |
    /// | [`synchronize`](Self::synchronize), [`is_idle`](Self::is_idle), waits for recorded events and for [`Pending`](crate::Pending) copies of before | errors of the driver, which break the capture |
    /// | drops of buffers bound to it | released after the capture |
    ///
    /// "Refused" is [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured), and the capture goes on.
    ///
    /// # Errors
    /// [`Invalid::CallsUnderWay`](crate::Invalid::CallsUnderWay): another thread is inside a call of this crate on the stream, and was
    /// after a number of attempts; nothing was begun. [`Invalid::OtherCapture`](crate::Invalid::OtherCapture): the stream is captured
    /// already. Those of the driver.
    ///
    /// A second call (`cuStreamGetCaptureInfo`) asks for the number of the capture.
    ///
    /// Since CUDA 10.1. Raw: [`cuStreamBeginCapture_v2`](fn@cuda_sys::cuStreamBeginCapture_v2).
    #[doc(alias = "cuStreamBeginCapture")]
    pub fn begin_capture(&self, mode: CaptureMode) -> Result<Capture> {
        release::drain();
        if fork::in_child() {
            return Err(Error::Forked);
        }
        let open = Open::new();
        let state = self.state();
        let begins = state.begin(&open);
        let begins = begins.map_err(|seen| state.refused("begin a capture", seen))?;
        open.add(&self.member());
        open.list();
        let begun = without_current(self.context(), || {
            // SAFETY: the stream is alive.
            unsafe { answer!(cuStreamBeginCapture_v2(self.raw(), mode.raw())) }
        });
        let has_begun = !begun.as_ref().is_err_and(has_not_begun);
        if !has_begun {
            open.close();
        }
        // From here on a failure drops this, which ends the capture.
        let capture = Capture {
            stream: self.clone(),
            open,
            is_over: !has_begun,
            not_send: PhantomData,
        };
        begun?;
        if let Some(id) = self.capture_id()? {
            capture.open.set_driver_id(id);
        }
        drop(begins);
        Ok(capture)
    }

    /// `cuStreamIsCapturing(stream, &status)`: whether work given to the stream is recorded.
    ///
    /// # Errors
    /// Only those that any call may have: see [`Error`](crate::Error). A capture that was broken is a status,
    /// not an error.
    ///
    /// Since CUDA 10.0. Raw: [`cuStreamIsCapturing`](fn@cuda_sys::cuStreamIsCapturing).
    #[doc(alias = "cuStreamIsCapturing")]
    #[inline]
    pub fn capture_status(&self) -> Result<CaptureStatus> {
        self.ask_driver().map(CaptureStatus::from_raw)
    }

    /// `cuStreamGetCaptureInfo(stream, &status, &id, …)`: the number of the capture that the stream
    /// is part of, which no other capture of this process has or will have; none if work given to
    /// it is not recorded. Streams of one capture have one number.
    ///
    /// The graph under way, which the driver tells as well, is its own until the capture ends.
    ///
    /// # Errors
    /// Only those that any call may have: see [`Error`](crate::Error).
    ///
    /// Since CUDA 11.3 (from 12.3 on through `cuStreamGetCaptureInfo_v3`). Raw:
    /// [`cuStreamGetCaptureInfo_v3`](fn@cuda_sys::cuStreamGetCaptureInfo_v3).
    #[doc(alias = "cuStreamGetCaptureInfo")]
    pub fn capture_id(&self) -> Result<Option<u64>> {
        Ok(match self.driver_status()? {
            DriverStatus::Active(id) => Some(id),
            _ => None,
        })
    }
}

impl Capture {
    /// The stream that is captured.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// `cuStreamEndCapture(stream, &graph)`: the end of the capture; what was recorded.
    ///
    /// # Errors
    /// `CUDA_ERROR_STREAM_CAPTURE_INVALIDATED` if it was broken,
    /// `CUDA_ERROR_STREAM_CAPTURE_UNJOINED` if other streams are part of it for which this one does
    /// not wait. With any error the recording is thrown away, and the stream is as before.
    ///
    /// Since CUDA 10.0. Raw: [`cuStreamEndCapture`](fn@cuda_sys::cuStreamEndCapture).
    #[doc(alias = "cuStreamEndCapture")]
    pub fn finish(self) -> Result<Graph> {
        let mut this = self;
        let ended = this.end();
        this.is_over = true;
        ended
    }

    fn end(&mut self) -> Result<Graph> {
        if fork::in_child() {
            return Err(Error::Forked);
        }
        let ended = self.end_once();
        if ended.as_ref().map_or_else(has_ended, |_| true) {
            return self.close(ended);
        }
        // A recording that is lost is better than a stream that stays captured.
        match self.end_once() {
            Err(again) if !has_ended(&again) && !is_gone(&again) => {
                report(&Report::Capture { error: again });
            }
            // If it is a graph, it is dropped here.
            again => drop(self.close(again)),
        }
        ended
    }

    /// After the end: what the capture retained belongs to the graph, if there is one.
    fn close(&self, ended: Result<Graph>) -> Result<Graph> {
        let retained = self.open.close();
        ended.map(|graph| graph.with_needs(retained))
    }

    fn end_once(&self) -> Result<Graph> {
        let mut raw = std::ptr::null_mut();
        without_current(self.stream.context(), || {
            // SAFETY: the stream is alive, and the pointer is to a local.
            unsafe { answer!(cuStreamEndCapture(self.stream.raw(), &raw mut raw)) }
        })?;
        Ok(Graph::own(raw, self.stream.need()))
    }
}

/// Whether there is no capture of this stream now that was begun with this answer. An error of earlier work says
/// nothing of that; but after a fatal one nothing is captured any more.
fn has_not_begun(error: &Error) -> bool {
    let is_captured = error.code() == Some(CUresult::CUDA_ERROR_ILLEGAL_STATE);
    is_captured || error.is_refusal() || error.is_fatal()
}

/// Whether the driver refuses the graph, and not the end of the capture.
fn has_ended(error: &Error) -> bool {
    matches!(
        error.code(),
        Some(
            CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                | CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED
                | CUresult::CUDA_ERROR_STREAM_CAPTURE_MERGE
                // Somebody else has ended it.
                | CUresult::CUDA_ERROR_ILLEGAL_STATE
        )
    )
}

/// Whether the stream is gone with its context, or everything with the process.
fn is_gone(error: &Error) -> bool {
    error.is_fatal()
        || matches!(
            error.code(),
            Some(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED | CUresult::CUDA_ERROR_DEINITIALIZED)
        )
}

impl Drop for Capture {
    fn drop(&mut self) {
        if !self.is_over {
            // What went wrong has been reported, or is only that the recording is thrown away.
            let _ = self.end();
        }
    }
}
