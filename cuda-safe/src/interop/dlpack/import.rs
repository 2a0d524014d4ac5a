//! Import of tensors as memory for work on a stream.

use super::dtype::DataType;
use super::managed::{ManagedTensor, MemoryKind};
use super::refused;
use crate::call::{Invalid, Result};
use crate::interop::{
    ArrayInterface, Dtype, Element, ExportedStream, Imported, ImportedArray, StreamSync,
};
use crate::stream::Stream;

impl ManagedTensor {
    /// Sets the stream on which the producer continues to use the memory after the deleter was
    /// called. DLPack does not report it, so this is for callers that know the producer. With it,
    /// [`StreamSync::WaitEvent`] needs no wait of the host when the import is dropped, and
    /// [`StreamSync::ProducerStream`] has a stream for the work.
    #[must_use]
    #[inline]
    pub fn with_producer_stream(mut self, stream: Option<ExportedStream>) -> Self {
        self.stream = stream;
        self
    }

    /// Imports the tensor for work on `stream`. The producer must have been asked to order its own
    /// work before this stream ([`ConsumerStream`](super::ConsumerStream)). When the
    /// [`ImportedArray`] is dropped, its work is waited for or ordered according to `sync`, and
    /// then the deleter is called.
    ///
    /// Unless the [producer's stream](Self::with_producer_stream) is known, the host waits for
    /// `stream` at that time, because DLPack does not report where the producer continues.
    ///
    /// # Errors
    /// [`Invalid::Dlpack`] if the elements have another [type](Self::dtype) than `T`, or if the memory
    /// is on another [device](Self::device) than the stream; and the errors of
    /// [`ArrayInterface::import`]. On an error, the tensor is dropped, which calls the deleter. To keep
    /// it, import its [`array_interface`](Self::array_interface) with a clone of an `Arc` of the tensor
    /// as the owner.
    ///
    /// # Safety
    /// The memory must stay valid until the deleter is called: readable and, unless it is marked as
    /// read-only, writable by the stream's device, with valid bits for `T`. All work on the memory
    /// so far must be complete, or `stream` must be ordered after it. No other code may work on the
    /// memory until the deleter is called. A stream that was set with
    /// [`with_producer_stream`](Self::with_producer_stream) must be alive until then, and belong to
    /// the same context. See also [`ArrayInterface::import`].
    pub unsafe fn import<T: Element>(
        self,
        stream: &Stream,
        sync: StreamSync,
    ) -> Result<ImportedArray<T>> {
        let array = self.interface_for::<T>(stream)?;
        // SAFETY: the caller's promise; the interface describes the tensor, which is the owner.
        unsafe { array.import(stream, sync, self) }
    }

    /// Imports the tensor, of any type and layout, for work on `stream`. This is like
    /// [`import`](Self::import), but interprets the elements as `dtype`. [`DataType::numpy`]
    /// returns the NumPy type of the tensor if there is one.
    ///
    /// # Errors
    /// [`Invalid::ArrayInterface`] if `dtype` has another size than the elements;
    /// [`Invalid::Dlpack`] if the memory is on another device than the stream; and the errors of
    /// [`ArrayInterface::import_untyped`]. On an error, the tensor is dropped. See
    /// [`import`](Self::import).
    ///
    /// # Safety
    /// See [`import`](Self::import). The bits must be valid for every type that the memory is used
    /// as.
    pub unsafe fn import_untyped(
        self,
        dtype: impl Into<Dtype>,
        stream: &Stream,
        sync: StreamSync,
    ) -> Result<Imported> {
        self.check_device(stream)?;
        let array = self.array_interface_as(dtype)?;
        // SAFETY: the caller's promise; the interface describes the tensor, which is the owner.
        unsafe { array.import_untyped(stream, sync, self) }
    }

    fn interface_for<T: Element>(&self, stream: &Stream) -> Result<ArrayInterface, Invalid> {
        let expected = DataType::of::<T>();
        if self.description.dtype != expected {
            let problem = format!("{} where {expected} is expected", self.description.dtype);
            return Err(refused("dtype", problem));
        }
        self.check_device(stream)?;
        self.array_interface()
    }

    #[inline]
    fn check_device(&self, stream: &Stream) -> Result<(), Invalid> {
        let (tensor_device, stream_device) =
            (self.description.device, stream.context().device().ordinal());
        if self.description.memory == MemoryKind::Device && tensor_device != stream_device {
            let problem =
                format!("memory of device {tensor_device} for a stream of device {stream_device}");
            return Err(refused("device", problem));
        }
        Ok(())
    }
}
