//! The stream that an array is exported with.

use crate::error::Result;
use crate::invalid::Invalid;
use crate::stream::Stream;
use cuda_sys::{CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, CUstream};

/// The `stream` of an array interface: with what a consumer has to get in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "i128", into = "i128"))]
pub enum ExportedStream {
    /// 1: the legacy default stream.
    Legacy,
    /// 2: the default stream of the thread.
    PerThread,
    /// A stream, by its handle.
    Handle(u64),
}

impl ExportedStream {
    /// Reads the number in the interface.
    ///
    /// # Errors
    /// [`Invalid::ArrayInterface`] for 0, which the specification forbids, and for numbers that are not
    /// handles. [`ReadOptions::ignore_stream`](super::ReadOptions::ignore_stream) accepts 0.
    pub fn from_number(number: i128) -> Result<Self, Invalid> {
        let refused = |problem: String| super::refused("stream", problem);
        match number {
            0 => Err(refused(
                "the specification forbids 0, which may mean None (no stream), 1 (the legacy default stream) or 2 \
                 (the default stream of the thread). Numba exports 0 for arrays on its default stream. To accept \
                 such an array, order the work on it yourself and ignore the stream: `sync=False` in Python, \
                 `ReadOptions::ignore_stream` in Rust"
                    .to_owned(),
            )),
            1 => Ok(Self::Legacy),
            2 => Ok(Self::PerThread),
            handle => match u64::try_from(handle) {
                Ok(handle) => Ok(Self::Handle(handle)),
                Err(_) => Err(refused(format!("{handle} is no handle of a stream"))),
            },
        }
    }

    /// Of a stream here, which all work on an array is in. It has to live as long as what is exported
    /// with it.
    pub fn of(stream: &Stream) -> Self {
        Self::Handle(stream.as_raw().expose_provenance() as u64)
    }

    /// Of a stream here that was made to wait for what each of the others has been given up to now: for
    /// an array that several streams have work on. To get in order with the one is then enough.
    ///
    /// That is an event made for each of the others, recorded in it (`cuEventRecord`), and a wait for it
    /// (`cuStreamWaitEvent`). The thread does not wait. The others may be of another context or device.
    /// Work on a default stream joins by [`DefaultStream::record`](crate::DefaultStream::record) and
    /// [`Stream::wait`].
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
    /// [`Invalid::StreamIsCaptured`], for either: a capture orders the work of its graph only; those of the driver, and then some of the others may have been joined.
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
            // Ours alone: recorded by somebody else in between, it would be another order.
            let event = other.context().event()?;
            event.record_uncaptured(other)?;
            stream.wait_private(&event)?;
        }
        Ok(Self::of(stream))
    }

    /// The number for the interface.
    pub fn number(&self) -> u64 {
        match *self {
            Self::Legacy => 1,
            Self::PerThread => 2,
            Self::Handle(handle) => handle,
        }
    }

    /// Whether it is another stream in each context, or on each thread.
    pub(super) fn is_default(&self) -> bool {
        !matches!(self, Self::Handle(_))
    }

    /// The handle.
    pub(super) fn raw(&self) -> Result<CUstream, Invalid> {
        match *self {
            Self::Legacy => Ok(CU_STREAM_LEGACY),
            Self::PerThread => Ok(CU_STREAM_PER_THREAD),
            Self::Handle(handle) => {
                let handle = usize::try_from(handle)
                    .map_err(|_| super::refused("stream", format!("{handle} is no handle")))?;
                Ok(std::ptr::with_exposed_provenance_mut(handle))
            }
        }
    }
}
