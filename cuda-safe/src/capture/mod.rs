//! Stream capture: work that is enqueued in a stream becomes a graph instead of being executed.

mod dependencies;
pub(crate) mod graphics;
mod into;
pub(crate) mod recapture;

pub use crate::stream::CaptureMode;
pub use graphics::{GraphicsCapture, GraphicsCommands};
pub use recapture::{Recapture, RecapturedNode};

use crate::call::{
    Error, Invalid, Outcome, Rejected, Report, Result, answer, c_enum, count_leak, fork,
    out_without_current, refuse_if, report, without_current,
};
use crate::capture::recapture::Changes;
use crate::capture_state::{CapturedBy, DriverStatus, Open, Operation, Retain, any_open};
use crate::graph::{Before, BodyPlace, Graph, HostFunction, Retained, UserObject};
use crate::release;
use crate::stream::Stream;
use cuda_sys::{CUgraph, CUresult, CUstreamCaptureStatus};
use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

c_enum! {
    /// The capture status of a stream (`CUstreamCaptureStatus`).
    pub enum CaptureStatus = CUstreamCaptureStatus or Other {
        /// The stream is not captured. Its work is executed.
        None = CU_STREAM_CAPTURE_STATUS_NONE,
        /// The stream is captured.
        Active = CU_STREAM_CAPTURE_STATUS_ACTIVE,
        /// An unsafe call has invalidated the capture. The stream stays in this state until the capture
        /// ends.
        Invalidated = CU_STREAM_CAPTURE_STATUS_INVALIDATED,
    }
}

/// An open capture of a stream, returned by [`Stream::begin_capture`],
/// [`Stream::begin_capture_into`] and [`Stream::begin_capture_into_body`].
///
/// [`end`](Self::end) ends the capture and returns the graph. Dropping this value ends the
/// capture and discards the captured work. If the work was captured into a graph, dropping this value
/// discards that graph.
///
/// This type is not `Send`, because the driver requires that the same thread begins and ends a capture.
/// If the value is forgotten, the stream remains captured and is never destroyed.
#[must_use = "dropping a capture discards the captured work"]
#[derive(Debug)]
pub struct Capture {
    stream: Stream,
    open: Arc<Open>,
    /// The graph that gets the nodes, if it existed before, or if handles of its nodes were returned.
    destination: Option<Destination>,
    /// Whether the capture has already ended.
    is_over: bool,
    not_send: PhantomData<*mut ()>,
}

impl Stream {
    /// Captures the work that `record` enqueues in the stream, and returns the graph. Calls
    /// [`begin_capture`](Self::begin_capture) and [`end`](Capture::end).
    ///
    /// The capture also ends if `record` fails or panics. `record` may return any error type that
    /// implements `From<Error>`, such as the error type of a library. If the compiler cannot infer that
    /// type, because `record` uses `?` and ends with `Ok(())`, name it:
    /// `stream.capture::<Error>(mode, |stream| …)`.
    ///
    /// Allocations, copies from and to host memory, and host functions that run once are rejected. A
    /// [`GraphRecorder`](crate::graph::GraphRecorder) records them into a graph that owns the memory.
    ///
    /// # Errors
    /// The error of `record`; the errors of [`begin_capture`](Self::begin_capture) and
    /// [`end`](Capture::end).
    ///
    /// Since CUDA 10.1.
    ///
    /// ```no_run
    /// use cuda_safe::{Context, Device, DeviceBuffer};
    /// use cuda_safe::capture::CaptureMode;
    ///
    /// let stream = Context::primary(&Device::get(0)?)?.stream()?;
    /// let mut buffer = DeviceBuffer::<u32>::zeroed(&stream, 1000)?;
    /// let graph = stream.capture(CaptureMode::default(), |_| buffer.fill(7))?;
    /// let graph = graph.instantiate()?;
    /// // SAFETY: the buffer stays alive until the work is complete, and is bound to this stream.
    /// unsafe { graph.launch_unchecked(&stream) }?;
    /// assert_eq!(buffer.to_vec()?, [7; 1000]);
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    pub fn capture<E: From<Error>>(
        &self,
        mode: CaptureMode,
        record: impl FnOnce(&Self) -> Result<(), E>,
    ) -> Result<Graph, E> {
        let capture = self.begin_capture(mode)?;
        record(self)?;
        Ok(capture.end()?)
    }

    /// Begins a capture: work that any thread enqueues in the stream is captured and not executed. Calls
    /// `cuStreamBeginCapture`.
    ///
    /// A second stream joins the capture when it [waits](Self::wait_event) for an event that is recorded
    /// in this stream. This stream must wait for the second stream before the capture ends. The
    /// following table lists the effect of operations on a captured stream:
    ///
    /// | operation | in a capture |
    /// |---|---|
    /// | launches, fills, copies between buffers, [`Event::record`](crate::Event::record), [`wait_event`](Self::wait_event), memory operations | captured |
    /// | [`capture_host_function`](Self::capture_host_function) | captured, and the graph owns the function |
    /// | allocations, such as [`DeviceBuffer::uninit`](crate::DeviceBuffer::uninit) | rejected: the memory would belong to the graph and exist only during its launches |
    /// | copies from and to slices and pinned buffers, [`launch_host_function`](Self::launch_host_function), [`completion`](Self::completion) | rejected: a launch could use memory or values that no longer exist |
    /// | [`rebind`](crate::DeviceBuffer::rebind), [`share`](crate::DeviceBuffer::share), [`SharedBuffer::on`](crate::SharedBuffer::on) | rejected: a captured wait does not order real execution |
    /// | [`synchronize`](Self::synchronize), [`is_complete`](Self::is_complete), waits for captured events and for earlier [`Pending`](crate::memory::Pending) copies | an error of the driver, which invalidates the capture |
    /// | drops of buffers that are bound to the stream | released after the capture |
    ///
    /// A rejected operation returns [`Invalid::StreamIsCaptured`],
    /// and the capture continues. A [`GraphRecorder`](crate::graph::GraphRecorder) records this work: its graph
    /// owns device memory and pinned memory at fixed addresses, and can be launched by safe code.
    ///
    /// # Errors
    /// - [`Invalid::CallsInProgress`]: another thread is in a call of
    ///   this crate on the stream, and still was after several attempts. No capture was begun.
    /// - [`Invalid::OtherCapture`]: the stream is already captured.
    /// - The errors of the driver call.
    ///
    /// A second driver call (`cuStreamGetCaptureInfo`) gets the ID of the capture.
    ///
    /// Since CUDA 10.1. Raw: [`cuStreamBeginCapture_v2`](fn@cuda_sys::cuStreamBeginCapture_v2).
    #[doc(alias = "cuStreamBeginCapture")]
    #[inline]
    pub fn begin_capture(&self, mode: CaptureMode) -> Result<Capture> {
        Ok(self.begin(None, || {
            // SAFETY: the stream is alive.
            unsafe { answer!(cuStreamBeginCapture_v2(self.raw(), mode.raw())) }
        })?)
    }

    /// Begins a capture with a driver call. On an error, the graph is returned if it still exists.
    fn begin<O: Outcome>(
        &self,
        destination: Option<Destination>,
        call: impl FnMut() -> O,
    ) -> Result<Capture, Rejected<Option<Graph>>> {
        let rejected = |error: Error, destination: Option<Destination>| {
            Rejected::new(error, destination.map(Destination::into_graph))
        };
        release::drain();
        refuse_if!(fork::in_child(), rejected(Error::Forked, destination));
        let open = Open::new();
        let state = self.state();
        let beginning = match state.begin(&open) {
            Ok(beginning) => beginning,
            Err(seen) => {
                return Err(rejected(state.refused("begin a capture", seen), destination));
            }
        };
        open.add(&self.member());
        open.list();
        let result = match without_current(self.context(), call) {
            Err(error) if has_not_begun(&error) => {
                open.close();
                return Err(rejected(error, destination));
            }
            result => result,
        };
        let mut capture = Capture {
            stream: self.clone(),
            open,
            destination,
            is_over: false,
            not_send: PhantomData,
        };
        if let (Err(_), Some(destination)) = (&result, &mut capture.destination) {
            destination.on_failure = OnFailure::Unknown;
        }
        match result.and_then(|()| self.capture_id()) {
            Ok(id) => {
                if let Some(id) = id {
                    capture.open.set_driver_id(id);
                }
                drop(beginning);
                Ok(capture)
            }
            Err(error) => {
                let has_graph = capture.destination.is_some();
                let graph = capture.end().ok().filter(|_| has_graph);
                Err(Rejected::new(error, graph))
            }
        }
    }

    /// Returns the capture status of the stream. Calls `cuStreamIsCapturing`.
    ///
    /// # Errors
    /// Only the errors that every call can return. See [`Error`]. An invalidated capture
    /// is a status, not an error.
    ///
    /// Since CUDA 10.0. Raw: [`cuStreamIsCapturing`](fn@cuda_sys::cuStreamIsCapturing).
    #[doc(alias = "cuStreamIsCapturing")]
    #[inline]
    pub fn capture_status(&self) -> Result<CaptureStatus> {
        self.ask_driver().map(CaptureStatus::from_raw)
    }

    /// Returns the ID of the capture to which the stream belongs, or `None` if the stream is not
    /// captured. Calls `cuStreamGetCaptureInfo`.
    ///
    /// The ID is unique in the process, including later captures. All streams of one capture have the
    /// same ID. The driver also returns the graph under construction, but it owns that graph until the
    /// capture ends, so this function does not return it.
    ///
    /// # Errors
    /// Only the errors that every call can return. See [`Error`].
    ///
    /// Since CUDA 11.3 (from 12.3 on through `cuStreamGetCaptureInfo_v3`). Raw:
    /// [`cuStreamGetCaptureInfo_v3`](fn@cuda_sys::cuStreamGetCaptureInfo_v3).
    #[doc(alias = "cuStreamGetCaptureInfo")]
    #[inline]
    pub fn capture_id(&self) -> Result<Option<u64>> {
        Ok(match self.driver_status()? {
            DriverStatus::Active(id) => Some(id),
            _ => None,
        })
    }
}

impl Capture {
    /// Returns the captured stream.
    #[inline]
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Ends the capture and returns the graph. Calls `cuStreamEndCapture`.
    ///
    /// # Errors
    /// `CUDA_ERROR_STREAM_CAPTURE_INVALIDATED` if the capture was invalidated;
    /// `CUDA_ERROR_STREAM_CAPTURE_UNJOINED` if this stream does not wait for another stream that joined
    /// the capture. On any error the captured work is discarded, and the stream is no longer captured.
    ///
    /// Since CUDA 10.0. Raw: [`cuStreamEndCapture`](fn@cuda_sys::cuStreamEndCapture).
    #[doc(alias = "cuStreamEndCapture")]
    #[inline]
    pub fn end(self) -> Result<Graph> {
        let mut this = self;
        let graph = this.end_capture();
        this.is_over = true;
        graph
    }

    #[inline]
    fn end_capture(&mut self) -> Result<Graph> {
        refuse_if!(fork::in_child(), Error::Forked);
        let first = match self.end_once() {
            Err(error) if !has_ended(&error) => error,
            ended => return self.close(ended),
        };
        // Losing the captured work is better than a stream that stays captured, so this tries again.
        match self.end_once() {
            Err(second) if !has_ended(&second) && !is_destroyed(&second) => {
                if let Some(destination) = self.destination.take() {
                    destination.leak();
                }
                report(&Report::Capture { error: second });
            }
            // If the second attempt returns a graph, it is dropped here.
            second => drop(self.close(second)),
        }
        Err(first)
    }

    /// Closes the ended capture, and moves the retained objects to the graph, if there is one.
    #[inline]
    fn close(&mut self, ended: Result<CUgraph>) -> Result<Graph> {
        let retained = self.open.close();
        let own = self.stream.retained().into();
        match (ended, self.destination.take()) {
            (Ok(raw), None) => {
                let graph = Graph::captured(raw, self.stream.context(), own);
                Ok(graph.with_retained(retained))
            }
            (Ok(_), Some(destination)) => Ok(destination.ended(own, retained)),
            (Err(error), destination) => {
                destination.into_iter().for_each(Destination::fail);
                Err(error)
            }
        }
    }

    #[inline]
    fn end_once(&self) -> Result<CUgraph> {
        // SAFETY: the stream is alive, and `out` passes a valid pointer.
        out_without_current(self.stream.context(), |place| unsafe {
            answer!(cuStreamEndCapture(self.stream.raw(), place))
        })
    }
}

/// Returns whether an error of the begin means that no capture has begun. An error of earlier work does
/// not tell, but after a fatal error no stream is captured any more.
#[inline]
fn has_not_begun(error: &Error) -> bool {
    let is_captured = error.code() == Some(CUresult::CUDA_ERROR_ILLEGAL_STATE);
    is_captured || error.is_refusal() || error.is_fatal()
}

/// Returns whether the error means that the capture has ended without a graph, so that it must not be
/// ended again.
#[inline]
fn has_ended(error: &Error) -> bool {
    matches!(
        error.code(),
        Some(
            CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                | CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED
                | CUresult::CUDA_ERROR_STREAM_CAPTURE_MERGE
                // Other code has ended the capture.
                | CUresult::CUDA_ERROR_ILLEGAL_STATE
        )
    )
}

/// Returns whether the error means that the stream no longer exists, because its context was destroyed,
/// or that the process can no longer use the GPU.
#[inline]
fn is_destroyed(error: &Error) -> bool {
    error.is_fatal()
        || matches!(
            error.code(),
            Some(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED | CUresult::CUDA_ERROR_DEINITIALIZED)
        )
}

impl Drop for Capture {
    #[inline]
    fn drop(&mut self) {
        if !self.is_over {
            // A failure was already reported, or only means that the captured work is discarded.
            let _ = self.end_capture();
        }
    }
}

/// A graph that exists while a capture adds nodes to it.
#[derive(Debug)]
struct Destination {
    graph: Graph,
    /// If `graph` is the body of a conditional node: the graph that contains the body.
    around: Option<Around>,
    /// The nodes before the capture.
    before: Before,
    on_failure: OnFailure,
    /// The nodes that a recapture has changed.
    changes: Option<Arc<Changes>>,
}

/// The graph that contains a body, with the place of the body.
#[derive(Debug)]
struct Around {
    graph: Graph,
    place: BodyPlace,
}

/// What becomes of the graph if the capture fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnFailure {
    /// The driver destroys it (measured with driver 580).
    Destroyed,
    /// It is undefined, and the caller destroys it.
    Undefined,
    /// It is not known whether the capture has begun.
    Unknown,
}

impl Destination {
    /// Returns the graph, which contains the body if the work was captured into one.
    #[inline]
    fn into_graph(self) -> Graph {
        match self.around {
            Some(around) => around.close(&self.graph),
            None => self.graph,
        }
    }

    /// Returns the graph after the capture has ended, with the objects that the captured work needs.
    #[inline]
    fn ended(mut self, own: Retained, retained: Vec<Arc<dyn Retain>>) -> Graph {
        self.graph = self.graph.with_captured(own, retained);
        self.into_graph()
    }

    /// Gives the graph up after the capture has failed.
    #[inline]
    fn fail(self) {
        match self.on_failure {
            OnFailure::Destroyed => {
                self.graph.abandon();
                // It is not known what the driver does with a graph whose body it has destroyed, so that
                // graph is not used any more.
                if let Some(around) = self.around {
                    count_leak();
                    around.graph.abandon();
                }
            }
            OnFailure::Undefined => drop(self.graph),
            OnFailure::Unknown => self.leak(),
        }
    }

    /// Leaks the graph, to which a capture that cannot be ended may still add nodes.
    #[inline]
    fn leak(self) {
        count_leak();
        std::mem::forget(self);
    }
}

impl Around {
    /// Returns the graph, which contains the body.
    #[inline]
    fn close(self, body: &Graph) -> Graph {
        let Self { mut graph, place } = self;
        graph.close_body(&place, body);
        graph
    }
}

impl Stream {
    /// Captures a host function, which each launch of the graph runs once on a driver thread. Calls
    /// `cuLaunchHostFunc`.
    ///
    /// The graph owns the function. If the function panics,
    /// [`ExecutableGraph::take_panic`](crate::ExecutableGraph::take_panic) returns the panic, and the
    /// launch continues. See [`Graph::add_host_function`](crate::Graph::add_host_function). If another thread ends or
    /// invalidates the capture during this call, the driver may run the function now, so the function is leaked.
    ///
    /// # Errors
    /// - [`Invalid::NotCaptured`] if the stream is not part of a capture that this crate began. Use
    ///   [`launch_host_function`](Self::launch_host_function) to run a function now.
    /// - `CUDA_ERROR_STREAM_CAPTURE_INVALIDATED`.
    ///
    /// Since CUDA 10.0. Raw: [`cuLaunchHostFunc`](fn@cuda_sys::cuLaunchHostFunc).
    ///
    /// ```no_run
    /// use cuda_safe::{Context, Device};
    /// use cuda_safe::capture::CaptureMode;
    ///
    /// let stream = Context::primary(&Device::get(0)?)?.stream()?;
    /// let graph = stream.capture(CaptureMode::default(), |stream| {
    ///     stream.capture_host_function(|| println!("launched"))
    /// })?;
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    #[doc(alias = "cuLaunchHostFunc")]
    pub fn capture_host_function(&self, function: impl Fn() + Send + Sync + 'static) -> Result<()> {
        let entry = self.entry(Operation::HostFunction)?;
        // The capture has a driver ID once the driver has begun it.
        let begun = match &entry.captured_by {
            CapturedBy::Crate(open) => open.driver_id().map(|id| (open, id)),
            _ => None,
        };
        let what = "a host function of a graph";
        let (open, id) = begun.ok_or(Invalid::NotCaptured { what })?;
        // Another thread may have ended the capture.
        let status = self.driver_status()?;
        refuse_if!(status == DriverStatus::None, Invalid::NotCaptured { what });
        let function = HostFunction::new(function);
        let parameters = function.parameters();
        let retained = Retained::HostFunction(Arc::clone(&function));
        open.retain(Arc::new(retained));
        let launched = without_current(self.context(), || {
            let (run, data) = (parameters.fn_, parameters.userData);
            // SAFETY: the stream is alive. The graph owns the function until its launches are complete. If it is
            // not certain that the call was captured, the function is leaked below.
            unsafe { answer!(cuLaunchHostFunc(self.raw(), run, data)) }
        });
        // No stream joins or begins a capture while this call is counted. So if the stream is part of the capture now,
        // it was before. Otherwise another thread has ended or invalidated the capture, and the driver may run the
        // function now.
        let is_captured = || self.driver_status().is_ok_and(|its| its == DriverStatus::Active(id));
        if !launched.as_ref().is_err_and(Error::is_refusal) && !is_captured() {
            count_leak();
            std::mem::forget(function);
        }
        launched
    }
}

impl Stream {
    /// Runs `enqueue`, which enqueues work in this stream through its raw handle. If a capture of this
    /// crate captures the stream, its graph retains `objects`.
    ///
    /// The objects stay alive until the graph is dropped and all launches of its executable graphs are
    /// complete, as with [`Graph::retain`](crate::Graph::retain). If the stream is not captured,
    /// `objects` is not called. No capture of this crate begins on the stream, and none is joined by a
    /// wait of this crate, until `enqueue` returns.
    ///
    /// # Errors
    /// [`Invalid::CallsInProgress`] if another thread is in a wait by
    /// which the stream may join a capture; errors of the driver when it is asked for the capture.
    /// `enqueue` is then not called.
    ///
    /// ```no_run
    /// use cuda_safe::{Context, Device, DeviceBuffer, check, sys};
    /// use cuda_safe::capture::CaptureMode;
    /// use std::sync::{Arc, Mutex};
    ///
    /// let stream = Context::primary(&Device::get(0)?)?.stream()?;
    /// let buffer = Arc::new(Mutex::new(DeviceBuffer::<u8>::zeroed(&stream, 1000)?));
    /// let address = buffer.lock().unwrap().as_raw();
    /// let capture = stream.begin_capture(CaptureMode::default())?;
    /// let code = stream.enqueue_retaining(
    ///     || vec![buffer.clone()],
    ///     // SAFETY: the buffer has 1,000 bytes, and is retained by the graph.
    ///     || unsafe { sys::cuMemsetD8Async(address, 7, 1000, stream.as_raw()) },
    /// )?;
    /// check(code, "cuMemsetD8Async")?;
    /// drop(buffer);
    /// let graph = capture.end()?;
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    pub fn enqueue_retaining<R>(
        &self,
        objects: impl FnOnce() -> Vec<Arc<dyn Any + Send + Sync>>,
        enqueue: impl FnOnce() -> R,
    ) -> Result<R> {
        let call = self.enter(Operation::Enqueue);
        if call.seen().capture().is_none() && !any_open() {
            // A capture that is open now was begun after the call was counted, on another stream.
            return Ok(enqueue());
        }
        let entry = call.resolve(Operation::Enqueue, || self.ask_driver())?;
        let open = match &entry.captured_by {
            CapturedBy::None => None,
            CapturedBy::Crate(open) => Some(Arc::clone(open)),
            // The stream may have joined a capture of this crate through foreign code.
            CapturedBy::Foreign => {
                let open = self.capture_id()?.and_then(Open::with_driver_id);
                open.inspect(|open| open.add(&self.member()))
            }
        };
        if let Some(open) = open {
            for object in objects() {
                open.retain(UserObject::retained(object));
            }
        }
        Ok(enqueue())
    }
}
