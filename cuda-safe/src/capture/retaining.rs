//! Work that other code enqueues in a stream, with the objects that a graph of this work retains.

use crate::call::Result;
use crate::capture_state::{CapturedBy, Open, Operation, any_open};
use crate::graph::UserObject;
use crate::stream::Stream;
use std::any::Any;
use std::sync::Arc;

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
    /// [`Invalid::CallsInProgress`](crate::Invalid::CallsInProgress) if another thread is in a wait by
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
