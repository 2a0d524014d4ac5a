//! The stream that an array is exported with.

use crate::call::{Invalid, Result};
use crate::stream::Stream;
use cuda_sys::{CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, CUstream};

/// The `stream` of an array interface, with which a consumer must order its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "i128", into = "i128"))]
pub enum ExportedStream {
    /// 1, the legacy default stream.
    Legacy,
    /// 2, the per-thread default stream.
    PerThread,
    /// A stream, by its handle.
    Handle(u64),
}

impl ExportedStream {
    /// Converts the number in the interface.
    ///
    /// # Errors
    /// [`Invalid::ArrayInterface`] for 0, which the specification forbids, and for numbers that are
    /// not handles. [`ReadOptions::ignore_stream`](super::ReadOptions::ignore_stream) accepts 0.
    #[inline]
    pub fn from_number(number: i128) -> Result<Self, Invalid> {
        let refused = |problem: String| super::refused("stream", problem);
        match number {
            0 => Err(refused(
                "the specification forbids 0, which may mean None (no stream), 1 (the legacy \
                 default stream) or 2 (the per-thread default stream). Numba exports 0 for arrays on \
                 its default stream. To accept such an array, order the work on it yourself and \
                 ignore the stream: `sync=False` in Python, `ReadOptions::ignore_stream` in Rust"
                    .to_owned(),
            )),
            1 => Ok(Self::Legacy),
            2 => Ok(Self::PerThread),
            handle => match u64::try_from(handle) {
                Ok(handle) => Ok(Self::Handle(handle)),
                Err(_) => Err(refused(format!("{handle} is not a stream handle"))),
            },
        }
    }

    /// Returns the value for a stream of this crate on which all work on an array runs. The stream
    /// must live as long as the exported array.
    #[inline]
    pub fn of(stream: &Stream) -> Self {
        Self::Handle(stream.as_raw().expose_provenance() as u64)
    }

    /// Makes `stream` wait for all work submitted to `others` so far, and returns the value for it.
    /// Use it for an array with work on several streams; a consumer then has to wait for one stream
    /// only.
    ///
    /// For each of the other streams, an event is created, recorded in it (`cuEventRecord`) and
    /// waited for (`cuStreamWaitEvent`). The host does not wait. The others may belong to another
    /// context or device. Join work on a default stream with
    /// [`DefaultStream::record_event`](crate::stream::DefaultStream::record_event) and [`Stream::wait_event`].
    ///
    /// ```no_run
    /// use cuda_safe::interop::ExportedStream;
    /// use cuda_safe::{Context, Device, DeviceBuffer};
    ///
    /// let context = Context::primary(&Device::get(0)?)?;
    /// let (home, side) = (context.stream()?, context.stream()?);
    /// let buffer = DeviceBuffer::<f32>::zeroed(&home, 1 << 20)?;
    /// // … unsafe launches on `side` that use the buffer's address …
    /// let stream = ExportedStream::joined(buffer.stream(), [&side])?;
    /// let array = buffer.array_interface()?.with_stream(Some(stream));
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Invalid::StreamIsCaptured`] if any of the streams is capturing, because a capture orders
    /// only the work of its graph; or an error of the driver. After an error, some of the others
    /// may have been joined.
    ///
    /// Since CUDA 3.2. Raw: [`cuStreamWaitEvent`](fn@cuda_sys::cuStreamWaitEvent).
    #[doc(alias = "cuStreamWaitEvent")]
    pub fn joined<'a>(
        stream: &Stream,
        others: impl IntoIterator<Item = &'a Stream>,
    ) -> Result<Self> {
        for other in others {
            if other == stream {
                continue;
            }
            // The event is private, because a record by other code in between would change the
            // order.
            let event = other.context().event()?;
            event.record_uncaptured(other)?;
            stream.wait_private(&event)?;
        }
        Ok(Self::of(stream))
    }

    /// Returns the number for the interface.
    #[inline]
    pub fn number(&self) -> u64 {
        match *self {
            Self::Legacy => 1,
            Self::PerThread => 2,
            Self::Handle(handle) => handle,
        }
    }

    /// Returns whether the stream is a different one in each context or on each thread.
    #[inline]
    pub(super) fn is_default(&self) -> bool {
        !matches!(self, Self::Handle(_))
    }

    /// Returns the handle.
    #[inline]
    pub(super) fn raw(&self) -> Result<CUstream, Invalid> {
        match *self {
            Self::Legacy => Ok(CU_STREAM_LEGACY),
            Self::PerThread => Ok(CU_STREAM_PER_THREAD),
            Self::Handle(handle) => {
                let handle = usize::try_from(handle).map_err(|_| {
                    super::refused("stream", format!("{handle} is not a stream handle"))
                })?;
                Ok(std::ptr::with_exposed_provenance_mut(handle))
            }
        }
    }
}
