//! Tensors of others as memory here.

use super::dtype::DataType;
use super::managed::{ManagedTensor, MemoryKind};
use super::refused;
use crate::error::{Rejected, Result};
use crate::interop::{
    ArrayInterface, Dtype, Element, ExportedStream, Handover, Imported, ImportedArray,
};
use crate::invalid::Invalid;
use crate::stream::Stream;

impl ManagedTensor {
    /// The same with the stream in whose order the producer goes on with the memory once it is told
    /// that this is the end. DLPack has no word for it: it is for those who know the producer, so that
    /// [`Handover::WaitByEvent`] needs no wait on the host there, and [`Handover::OnProducersStream`] has a
    /// stream to give work to.
    #[must_use]
    pub fn with_producers_stream(mut self, stream: Option<ExportedStream>) -> Self {
        self.stream = stream;
        self
    }

    /// The tensor as memory for work on `stream`, which the producer was asked to put behind its own
    /// work ([`ConsumerStream`](super::ConsumerStream)). When the [`ImportedArray`] is dropped its
    /// work is over, or in order, as `handover` says, and the deleter is called.
    ///
    /// The host waits for `stream` then, unless the
    /// [producer's stream](Self::with_producers_stream) is known: DLPack does not tell what the producer
    /// goes on with.
    ///
    /// # Errors
    /// With the tensor given back: elements of another type than `T`; memory of another device than
    /// the stream's; and as for [`ArrayInterface::import`].
    ///
    /// # Safety
    /// As for [`ArrayInterface::import`]: the memory stays, readable and, unless it is said to be
    /// read-only, writable by the stream's device, until the deleter is called, with bits allowed for
    /// `T`. All work on it up to now is done, or `stream` is behind it, and nobody else works on it until
    /// the deleter is called; a producer's stream that was given here is alive until then, and of the
    /// same context.
    pub unsafe fn import<T: Element>(
        self,
        stream: &Stream,
        handover: Handover,
    ) -> Result<ImportedArray<T>, Rejected<Self>> {
        let array = match self.interface_for::<T>(stream) {
            Ok(array) => array,
            Err(invalid) => return Err(Rejected::new(invalid, self)),
        };
        // SAFETY: the caller's promise; what the interface says is the tensor's, which is the owner.
        unsafe { array.import(stream, handover, self) }
    }

    /// The tensor, of whatever type and layout, as memory for work on `stream`: as
    /// [`import`](Self::import), with elements taken for `dtype`, which
    /// [`DataType::numpy`] names where NumPy has it.
    ///
    /// # Errors
    /// With the tensor given back: elements of another size; memory of another device than the
    /// stream's; and as for [`ArrayInterface::import_untyped`].
    ///
    /// # Safety
    /// As for [`import`](Self::import), with bits allowed for whatever it is used as.
    pub unsafe fn import_untyped(
        self,
        dtype: impl Into<Dtype>,
        stream: &Stream,
        handover: Handover,
    ) -> Result<Imported, Rejected<Self>> {
        let array = self
            .check_device(stream)
            .and_then(|()| self.array_interface_as(dtype));
        let array = match array {
            Ok(array) => array,
            Err(invalid) => return Err(Rejected::new(invalid, self)),
        };
        // SAFETY: the caller's promise; what the interface says is the tensor's, which is the owner.
        unsafe { array.import_untyped(stream, handover, self) }
    }

    fn interface_for<T: Element>(&self, stream: &Stream) -> Result<ArrayInterface, Invalid> {
        let expected = DataType::of::<T>();
        if self.said.dtype != expected {
            let problem = format!("{} where {expected} is expected", self.said.dtype);
            return Err(refused("dtype", problem));
        }
        self.check_device(stream)?;
        self.array_interface()
    }

    fn check_device(&self, stream: &Stream) -> Result<(), Invalid> {
        let (its, streams) = (self.said.device, stream.context().device().ordinal());
        if self.said.memory == MemoryKind::Device && its != streams {
            let problem = format!("memory of device {its} for a stream of device {streams}");
            return Err(refused("device", problem));
        }
        Ok(())
    }
}
