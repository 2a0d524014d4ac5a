//! The stream with which a consumer requests a tensor.

use super::refused;
use crate::call::{Invalid, Result, call};
use crate::interop::ExportedStream;
use crate::interop::import::call_in_context;
use crate::stream::Stream;

/// The argument of `__dlpack__(stream=…)`: the consumer's stream, which the producer makes wait for
/// its own work before it returns.
///
/// In contrast, the [`ExportedStream`] of an array interface is the producer's stream, with which
/// the consumer must order its own work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConsumerStream {
    /// -1, no ordering by the producer.
    NoSync,
    /// None or 1, the legacy default stream.
    Legacy,
    /// 2, the per-thread default stream of the requesting thread.
    PerThread,
    /// A stream, by its handle.
    Handle(u64),
}

impl ConsumerStream {
    /// Converts the argument of `__dlpack__`.
    ///
    /// # Errors
    /// [`Invalid::Dlpack`] for 0, which may mean either default stream, and for numbers that are
    /// not handles.
    #[inline]
    pub fn from_number(number: Option<i128>) -> Result<Self, Invalid> {
        match number {
            Some(-1) => Ok(Self::NoSync),
            None | Some(1) => Ok(Self::Legacy),
            Some(2) => Ok(Self::PerThread),
            Some(0) => Err(refused(
                "stream",
                "0 is ambiguous: use 1 for the legacy default stream, 2 for the per-thread default \
                 stream, or -1 for no ordering",
            )),
            Some(handle) => match u64::try_from(handle) {
                Ok(handle) => Ok(Self::Handle(handle)),
                Err(_) => Err(refused("stream", format!("{handle} is not a stream handle"))),
            },
        }
    }

    /// Returns the number for the argument.
    #[inline]
    pub fn number(&self) -> i128 {
        match *self {
            Self::NoSync => -1,
            Self::Legacy => 1,
            Self::PerThread => 2,
            Self::Handle(handle) => handle.into(),
        }
    }

    /// Returns the value for a stream of this crate, on which the tensor will be used.
    #[inline]
    pub fn of(stream: &Stream) -> Self {
        Self::Handle(ExportedStream::of(stream).number())
    }

    /// Makes the consumer's stream wait for all work submitted to `stream` so far. The producer
    /// calls this. It creates an event and calls `cuEventRecord` and `cuStreamWaitEvent`. It does
    /// nothing if both are the same stream, or for [`NoSync`](Self::NoSync).
    ///
    /// # Errors
    /// [`Invalid::StreamIsCaptured`] if `stream` is capturing, or an error of the driver.
    ///
    /// # Safety
    /// A stream given by its handle must be alive.
    ///
    /// Raw: [`cuStreamWaitEvent`](fn@cuda_sys::cuStreamWaitEvent).
    #[doc(alias = "cuStreamWaitEvent")]
    #[inline]
    pub unsafe fn wait_stream(&self, stream: &Stream) -> Result<()> {
        let Some(exported) = self.exported() else { return Ok(()) };
        let raw = exported.raw()?;
        if raw == stream.raw() {
            return Ok(());
        }
        let context = stream.context();
        let event = context.event()?;
        event.record_uncaptured(stream)?;
        let wait = || {
            // SAFETY: the caller promised that the stream is alive, or it is a default stream of
            // the current context; the driver keeps what it needs of the event.
            unsafe { call!(cuStreamWaitEvent(raw, event.handle(), 0)) }
        };
        call_in_context(context, exported.is_default(), wait)
    }

    /// Returns the stream as that of an array interface, or `None` for no ordering.
    #[inline]
    pub(super) fn exported(&self) -> Option<ExportedStream> {
        match *self {
            Self::NoSync => None,
            Self::Legacy => Some(ExportedStream::Legacy),
            Self::PerThread => Some(ExportedStream::PerThread),
            Self::Handle(handle) => Some(ExportedStream::Handle(handle)),
        }
    }
}
