//! The stream that a consumer asks for an array on.

use super::refused;
use crate::call::{call, without_current};
use crate::error::Result;
use crate::interop::ExportedStream;
use crate::invalid::Invalid;
use crate::stream::Stream;

/// The argument of `__dlpack__(stream=…)`: the consumer's stream, which the producer makes wait for
/// its own work before it returns.
///
/// Another thing than the [`ExportedStream`] of an array interface: that is the producer's, and it is
/// for the consumer to get in order with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConsumerStream {
    /// -1: the producer is to put nothing in order.
    NoSync,
    /// None, or 1: the legacy default stream.
    Legacy,
    /// 2: the default stream of the thread that asks.
    PerThread,
    /// A stream, by its handle.
    Handle(u64),
}

impl ConsumerStream {
    /// Of the argument, as it came.
    ///
    /// # Errors
    /// [`Invalid::Dlpack`] for 0, which may mean either default stream, and for numbers that are no
    /// handle.
    pub fn from_number(number: Option<i128>) -> Result<Self, Invalid> {
        match number {
            Some(-1) => Ok(Self::NoSync),
            None | Some(1) => Ok(Self::Legacy),
            Some(2) => Ok(Self::PerThread),
            Some(0) => Err(refused(
                "stream",
                "0 is not clear: 1 is for the legacy default stream, 2 for the default stream of the \
                 thread, -1 for no order at all",
            )),
            Some(handle) => match u64::try_from(handle) {
                Ok(handle) => Ok(Self::Handle(handle)),
                Err(_) => Err(refused(
                    "stream",
                    format!("{handle} is no handle of a stream"),
                )),
            },
        }
    }

    /// The argument to ask with.
    pub fn number(&self) -> i128 {
        match *self {
            Self::NoSync => -1,
            Self::Legacy => 1,
            Self::PerThread => 2,
            Self::Handle(handle) => handle.into(),
        }
    }

    /// Of a stream here, on which what is asked for will be used.
    pub fn of(stream: &Stream) -> Self {
        Self::Handle(ExportedStream::of(stream).number())
    }

    /// The producer's part: makes the consumer's stream wait for what `stream` has been given up to now
    /// (`cuEventRecord`, `cuStreamWaitEvent`, with an event made for it). Nothing if they are the same,
    /// or there is to be no order.
    ///
    /// # Errors
    /// [`Invalid::StreamIsCaptured`]; those of the driver.
    ///
    /// # Safety
    /// A handle is of a stream that is alive.
    ///
    /// Raw: [`cuStreamWaitEvent`](fn@cuda_sys::cuStreamWaitEvent).
    #[doc(alias = "cuStreamWaitEvent")]
    pub unsafe fn wait_for(&self, stream: &Stream) -> Result<()> {
        let Some(consumers) = self.exported() else {
            return Ok(());
        };
        let raw = consumers.raw()?;
        if raw == stream.raw() {
            return Ok(());
        }
        let context = stream.context();
        let event = context.event()?;
        event.record_uncaptured(stream)?;
        let wait = || {
            // SAFETY: the caller promised that the stream is alive, or it is a default one of the
            // current context; the driver keeps what it needs of the event.
            unsafe { call!(cuStreamWaitEvent(raw, event.raw(), 0)) }
        };
        if consumers.is_default() {
            let _current = context.enter()?;
            return wait();
        }
        without_current(context, wait)
    }

    /// The same as the stream of an array interface; none: there is to be no order.
    pub(super) fn exported(&self) -> Option<ExportedStream> {
        match *self {
            Self::NoSync => None,
            Self::Legacy => Some(ExportedStream::Legacy),
            Self::PerThread => Some(ExportedStream::PerThread),
            Self::Handle(handle) => Some(ExportedStream::Handle(handle)),
        }
    }
}
