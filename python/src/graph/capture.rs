//! Captures: `with stream.capture() as graph:`.

use super::PyGraph;
use crate::error::{Failure, Result};
use crate::lifetime::ending::{attached, detached, let_go};
use crate::lifetime::hold::Closable;
use crate::tensor::release_tensors;
use cuda_safe::Stream;
use cuda_safe::capture::{Capture, CaptureMode};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A capture of a stream, as a context manager.
#[pyclass(frozen, name = "_Capture", module = "cuda_safe")]
pub(crate) struct PyCapture {
    stream: Closable<Stream>,
    mode: CaptureMode,
    graph: Py<PyGraph>,
    /// The number of the open capture on its thread.
    number: u64,
    has_begun: AtomicBool,
    is_open: AtomicBool,
}

/// A capture must end on the thread that began it, but a Python object can move.
struct OnThread {
    number: u64,
    /// Not dropped if the thread ends within the block, because the driver may already be unloaded.
    capture: ManuallyDrop<Capture>,
}

thread_local! {
    static OPEN: RefCell<Vec<OnThread>> = const { RefCell::new(Vec::new()) };
}

/// Takes an open capture of this thread.
fn take(number: u64) -> Option<Capture> {
    OPEN.with_borrow_mut(|open| {
        let position = open.iter().rposition(|open| open.number == number)?;
        Some(ManuallyDrop::into_inner(open.remove(position).capture))
    })
}

/// Returns the capture mode with this name.
fn mode_of(name: &str) -> Result<CaptureMode> {
    match name {
        "global" => Ok(CaptureMode::Global),
        "thread_local" => Ok(CaptureMode::ThreadLocal),
        "relaxed" => Ok(CaptureMode::Relaxed),
        name => Err(Failure::invalid(format!(
            "{name:?} is not a capture mode: use \"global\", \"thread_local\" or \"relaxed\""
        ))),
    }
}

impl PyCapture {
    pub(crate) fn new(py: Python<'_>, stream: Stream, mode: &str) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Ok(Self {
            stream: Closable::new("stream", stream),
            mode: mode_of(mode)?,
            graph: Py::new(py, PyGraph::awaited())?,
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            has_begun: AtomicBool::new(false),
            is_open: AtomicBool::new(false),
        })
    }
}

#[pymethods]
impl PyCapture {
    fn __enter__(&self, py: Python<'_>) -> Result<Py<PyGraph>> {
        if self.has_begun.swap(true, Ordering::SeqCst) {
            return Err(Failure::invalid(
                "a capture can be used in one `with` block only: call `capture` again",
            ));
        }
        let begun = detached(py, || {
            let capture = self.stream.get()?.begin_capture(self.mode)?;
            let capture = ManuallyDrop::new(capture);
            let number = self.number;
            OPEN.with_borrow_mut(|open| open.push(OnThread { number, capture }));
            Ok::<_, Failure>(())
        });
        if let Err(why) = begun {
            self.graph.get().fail(py);
            return Err(why);
        }
        self.is_open.store(true, Ordering::SeqCst);
        Ok(self.graph.clone_ref(py))
    }

    /// Ends the capture. After an exception in the block, the captured work is discarded.
    #[pyo3(signature = (*exception))]
    fn __exit__(&self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> Result<()> {
        let has_failed = exception.iter().any(|part| !part.is_none());
        let graph = self.graph.get();
        let ended = detached(py, || {
            let Some(capture) = take(self.number) else {
                return Err(Failure::invalid(
                    "the capture is not open on this thread: a `with` block ends on the thread that \
                     began it",
                ));
            };
            self.is_open.store(false, Ordering::SeqCst);
            let captured = match has_failed {
                true => {
                    drop(capture);
                    None
                }
                false => Some(capture.end()),
            };
            release_tensors(None);
            if let Some(captured) = captured {
                graph.provide(captured?);
            }
            Ok(())
        });
        let is_over = !self.is_open.load(Ordering::SeqCst);
        if is_over && (has_failed || ended.is_err()) {
            graph.fail(py);
        }
        ended
    }
}

impl Drop for PyCapture {
    /// Ends a capture whose block was not left, if this is its thread. On another thread the driver
    /// does not end it, and the stream stays captured.
    fn drop(&mut self) {
        if !*self.is_open.get_mut() {
            return;
        }
        let number = self.number;
        attached(|py| {
            let_go(py, move || drop(take(number)));
            self.graph.get().fail(py);
        });
    }
}
