//! Streams, and stream objects of other libraries.

use crate::current;
use crate::error::{Failure, Result};
use crate::lifetime::ending::{calling, detached};
use crate::lifetime::hold::{Closable, Owner};
use crate::lifetime::once::intern;
use crate::primary::{UntilReset, primary, refuse_gone};
use crate::stream_handle::{Handle, StreamHandle};
use cuda_safe::interop::ExportedStream;
use cuda_safe::{Context, Stream, StreamOptions};
use pyo3::prelude::*;
use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};

/// A queue of work on a device. Work in one stream runs in order.
///
/// Within `with stream:`, new arrays of this thread use the stream. Other libraries use it through
/// its handle (`__cuda_stream__`, or `cupy.cuda.ExternalStream(stream.handle)`), which is valid as
/// long as this object or an array on it exists.
#[pyclass(frozen, name = "Stream", module = "cuda_safe", weakref)]
pub(crate) struct PyStream {
    pub(crate) lane: Closable<UntilReset<StreamHandle>>,
    pub(crate) is_closed: AtomicBool,
    /// Whether the handle was exported.
    pub(crate) is_exported: AtomicBool,
    /// The handle. It remains the hash of the object after `close`.
    pub(crate) number: u64,
}

impl PyStream {
    pub(crate) fn of(stream: Stream) -> Self {
        Self::of_lane(StreamHandle::Stream(stream))
    }

    pub(crate) fn of_lane(lane: StreamHandle) -> Self {
        Self {
            number: lane.number(),
            lane: Closable::new("stream", UntilReset::new(lane)),
            is_closed: AtomicBool::new(false),
            is_exported: AtomicBool::new(false),
        }
    }

    /// Wraps a foreign stream that `owner` keeps alive.
    pub(crate) fn foreign(handle: Handle, context: &Context, owner: Py<PyAny>) -> Result<Self> {
        Ok(Self::of(foreign(handle, context, Owner::new(owner))?))
    }

    pub(crate) fn create(
        py: Python<'_>,
        context: &Context,
        priority: i32,
        blocking: bool,
    ) -> Result<Self> {
        refuse_gone(context, "context")?;
        let options = StreamOptions { blocking, priority, ..StreamOptions::default() };
        Ok(Self::of(detached(py, || context.stream_with(options))?))
    }

    /// Returns the stream, unless it was closed, or destroyed by a reset of its context.
    pub(crate) fn lane(&self) -> Result<StreamHandle> {
        let lane = self.open()?;
        refuse_gone(lane.context(), "stream").map(|()| lane)
    }

    /// Returns the stream, unless it was closed.
    pub(crate) fn open(&self) -> Result<StreamHandle> {
        match self.is_closed.load(Ordering::SeqCst) {
            false => self.lane.look(|lane| StreamHandle::clone(lane)),
            true => Err(Failure::closed("stream")),
        }
    }

    /// Returns the handle for other code.
    pub(crate) fn export(&self) -> Result<u64> {
        // This store comes first, so that a concurrent `close` sees it or this call sees the
        // `close`.
        self.is_exported.store(true, Ordering::SeqCst);
        Ok(self.lane()?.number())
    }
}

/// Wraps a stream that `owner` keeps alive.
///
/// The garbage collector does not see this reference. If it found a cycle through the owner, it would finalize the
/// owner first, which may destroy the stream, while memory is still to be freed on it.
pub(crate) fn foreign(
    handle: Handle,
    context: &Context,
    owner: impl Any + Send + Sync,
) -> Result<Stream> {
    // SAFETY: the code that provided the handle promised that it is a stream of this context, or of
    // a green context of its device, and that the owner (or else that code itself) keeps the stream
    // alive.
    Ok(unsafe { Stream::from_foreign(handle.raw(), context, owner) }?)
}

/// Wraps a foreign stream that is not a default stream. If `device` is None, the driver is asked
/// for it.
pub(crate) fn lane_of_handle(
    py: Python<'_>,
    handle: Handle,
    device: Option<u32>,
    owner: Option<Py<PyAny>>,
) -> Result<StreamHandle> {
    let ordinal = match device {
        Some(ordinal) => ordinal,
        None => detached(py, || {
            // SAFETY: the code that provided the handle promised that it is a live stream.
            unsafe { Stream::device_of_raw(handle.raw()) }
        })?
        .ordinal(),
    };
    let context = primary(py, ordinal)?;
    let checked = check_context(handle, &context)?;
    Ok(StreamHandle::Stream(match owner {
        Some(owner) => foreign(handle, &context, Owner::new(owner))?,
        None => checked,
    }))
}

/// Wraps a foreign stream after checking that it belongs to this context or to a green context of
/// its device. The code that provided the handle keeps the stream alive.
pub(crate) fn check_context(handle: Handle, context: &Context) -> Result<Stream> {
    // SAFETY: see `foreign`; code that provides a handle without an owner keeps the stream alive.
    Ok(unsafe { Stream::borrow_checked(handle.raw(), context) }?)
}

/// Wraps a foreign stream by its number. For the number of a default stream, `default_of` returns
/// the device if `device` is None.
pub(crate) fn lane_of_number(
    py: Python<'_>,
    number: u64,
    device: Option<u32>,
    default_of: impl FnOnce() -> Result<u32>,
    owner: Option<Py<PyAny>>,
) -> Result<StreamHandle> {
    let default = || {
        let ordinal = device.map_or_else(default_of, Ok)?;
        primary(py, ordinal)
    };
    match ExportedStream::from_number(number.into()) {
        Ok(ExportedStream::Legacy) => Ok(StreamHandle::Legacy(default()?)),
        Ok(ExportedStream::PerThread) => Ok(StreamHandle::PerThread(default()?)),
        Ok(ExportedStream::Handle(number)) => {
            lane_of_handle(py, Handle::new(number)?, device, owner)
        }
        Err(_) => Err(Failure::invalid(
            "the stream 0 is ambiguous: use 1 for the legacy default stream, 2 for the per-thread one",
        )),
    }
}

/// Returns the number of a stream object of another library.
fn number_of(object: &Bound<'_, PyAny>) -> Result<u64> {
    let py = object.py();
    if let Some(protocol) = object.getattr_opt(intern!(py, "__cuda_stream__"))? {
        // In the first version of the protocol it was an attribute instead of a method.
        let answer = match protocol.is_callable() {
            true => protocol.call0()?,
            false => protocol,
        };
        let (version, number): (u64, u64) = answer.extract()?;
        if version != 0 {
            return Err(Failure::invalid(format!(
                "version {version} of __cuda_stream__ is not supported; the supported version is 0"
            )));
        }
        return Ok(number);
    }
    // These are the attributes of PyTorch and CuPy.
    for name in [intern!(py, "cuda_stream"), intern!(py, "ptr")] {
        if let Some(number) = object.getattr_opt(name)? {
            return Ok(number.extract()?);
        }
    }
    Err(Failure::invalid(format!(
        "{} is not a stream: it has no __cuda_stream__",
        object.get_type().name()?
    )))
}

/// Returns the device of another library's stream, if the object tells it (PyTorch, CuPy,
/// cuda.core).
fn device_of_object(object: &Bound<'_, PyAny>) -> PyResult<Option<u32>> {
    let py = object.py();
    let mut numbers = vec![
        object.getattr_opt(intern!(py, "device_index"))?,
        object.getattr_opt(intern!(py, "device_id"))?,
    ];
    if let Some(device) = object.getattr_opt(intern!(py, "device"))? {
        numbers.push(device.getattr_opt(intern!(py, "device_id"))?);
    }
    // CuPy uses -1 if the stream belongs to no specific device.
    let number = |number: Bound<'_, PyAny>| number.extract::<u32>().ok();
    Ok(numbers.into_iter().flatten().find_map(number))
}

/// Refuses a stream of a device other than the wanted one.
pub(crate) fn refuse_other(its: Option<u32>, wanted: Option<u32>) -> Result<()> {
    match (its, wanted) {
        (Some(its), Some(wanted)) if its != wanted => Err(Failure::invalid(format!(
            "a stream of device {its} where a stream of device {wanted} is required"
        ))),
        _ => Ok(()),
    }
}

impl PyStream {
    /// Returns the handle of a stream of this package or of another library. For a default stream
    /// whose object does not tell the device, the device is `near`, or else the current one.
    pub(crate) fn lane_of_object(
        py: Python<'_>,
        stream: &Bound<'_, PyAny>,
        device: Option<u32>,
        near: Option<u32>,
    ) -> Result<StreamHandle> {
        if let Ok(own) = stream.cast::<Self>() {
            return own.get().lane();
        }
        // Libraries that represent the default stream as 0 mean the legacy one.
        let number = calling(py, || number_of(stream))?.max(1);
        let device = match number {
            // For any other stream, the driver knows the device.
            1 | 2 => {
                let said = calling(py, || device_of_object(stream))?;
                refuse_other(said, device)?;
                said.or(device).or(near)
            }
            _ => device,
        };
        let owner = Some(stream.clone().unbind());
        lane_of_number(py, number, device, || current::device(py), owner)
    }
}

/// Returns the given stream, or else the stream for new arrays, if it can be used for allocations.
pub(crate) fn stream_or_current(py: Python<'_>, given: Option<&PyStream>) -> Result<Stream> {
    let lane = match given {
        Some(stream) => stream.lane()?,
        None => current::lane(py)?,
    };
    match lane {
        StreamHandle::Stream(stream) => Ok(stream),
        _ => Err(Failure::invalid(
            "arrays cannot be allocated on the driver's default streams: pass another stream, or none \
             to use `Device.default_stream`, which is in order with the legacy default stream",
        )),
    }
}
