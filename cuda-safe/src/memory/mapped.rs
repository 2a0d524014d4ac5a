//! Pinned memory that kernels reach.

use super::PinnedBuffer;
use super::slice::{self, DeviceSlice, DeviceSliceMut};
use crate::call::call;
use crate::error::{Rejected, Result};
use crate::release;
use crate::stream::{Stream, same_context};
use bytemuck::AnyBitPattern;
use cuda_sys::CUdeviceptr;
use std::fmt;

/// Pinned host memory that kernels reach by an address of the device, over the bus; bound to a
/// stream.
///
/// It is used as device memory is: as a [`DeviceSlice`] or [`DeviceSliceMut`] in the order of its
/// stream. [`host`](Self::host) waits for that and lets the host have it; [`into_pinned`] ends it.
/// For what a kernel touches once, or little of; everything else is faster in device memory.
///
/// Freeing it waits for *all* running work.
///
/// [`into_pinned`]: Self::into_pinned
///
/// ```no_run
/// use cuda_safe::{Context, Device, MappedBuffer, PinnedBuffer};
///
/// let context = Context::primary(&Device::get(0)?)?;
/// let stream = context.stream()?;
/// let mut flags = MappedBuffer::new(PinnedBuffer::<u32>::zeroed(&context, 64)?, &stream)?;
/// flags.as_mut_slice().fill(7)?; // the device writes: a fill, or a kernel
/// assert_eq!(*flags.host()?, [7; 64]);
/// # Ok::<_, cuda_safe::Error>(())
/// ```
pub struct MappedBuffer<T> {
    address: CUdeviceptr,
    host: PinnedBuffer<T>,
    stream: Stream,
}

impl<T: AnyBitPattern> MappedBuffer<T> {
    /// `cuMemHostGetDevicePointer(&address, start, 0)`: lets work on `stream` reach pinned memory.
    ///
    /// # Errors
    /// With the memory given back: a stream of another context; `CUDA_ERROR_INVALID_VALUE` if the
    /// memory is not mapped ([`PinnedOptions::mapped`](crate::PinnedOptions::mapped)) and
    /// addressing is not unified.
    ///
    /// Since CUDA 3.2. Raw: [`cuMemHostGetDevicePointer_v2`](fn@cuda_sys::cuMemHostGetDevicePointer_v2).
    #[doc(alias = "cuMemHostGetDevicePointer")]
    pub fn new(
        memory: PinnedBuffer<T>,
        stream: &Stream,
    ) -> Result<Self, Rejected<PinnedBuffer<T>>> {
        match address_of(&memory, stream) {
            Ok(address) => Ok(Self {
                address,
                host: memory,
                stream: stream.clone(),
            }),
            Err(error) => Err(Rejected::new(error, memory)),
        }
    }

    /// The elements, for the host: waits for the stream.
    ///
    /// # Errors
    /// Those of the work given to the stream.
    pub fn host(&mut self) -> Result<&mut [T]> {
        release::drain();
        self.stream.wait_for_work()?;
        Ok(&mut self.host)
    }

    /// Waits for the stream, and gives the pinned memory back.
    ///
    /// # Errors
    /// With the buffer given back, as it was: those of the work given to the stream.
    pub fn into_pinned(mut self) -> Result<PinnedBuffer<T>, Rejected<Self>> {
        release::drain();
        if let Err(error) = self.stream.wait_for_work() {
            return Err(Rejected::new(error, self));
        }
        let empty = PinnedBuffer::empty(self.host.context());
        Ok(std::mem::replace(&mut self.host, empty))
    }
}

/// The address that a stream's device has for pinned memory; 0 if there is no byte.
fn address_of<T>(memory: &PinnedBuffer<T>, stream: &Stream) -> Result<CUdeviceptr> {
    same_context("the pinned memory", memory.context(), stream.context())?;
    let mut address = 0;
    if memory.has_memory() {
        let start = memory.as_ptr().cast_mut().cast();
        let _current = stream.context().enter()?;
        // SAFETY: the memory is pinned, of the context that is current, and nothing is written
        // through the pointer; the other one is to a local.
        unsafe { call!(cuMemHostGetDevicePointer_v2(&raw mut address, start, 0)) }?;
    }
    Ok(address)
}

impl<T> MappedBuffer<T> {
    /// The address on the device; 0 if there is no byte.
    pub fn as_raw(&self) -> CUdeviceptr {
        self.address
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.host.count()
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The stream that all work on the memory runs on.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// All of it as device memory, to read.
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        DeviceSlice::new(self.address, self.len(), &self.stream)
    }

    /// All of it as device memory, to read and write.
    pub fn as_mut_slice(&mut self) -> DeviceSliceMut<'_, T> {
        DeviceSliceMut::new(self.address, self.len(), &self.stream)
    }
}

impl<'a, T> From<&'a MappedBuffer<T>> for DeviceSlice<'a, T> {
    fn from(buffer: &'a MappedBuffer<T>) -> Self {
        buffer.as_slice()
    }
}

impl<'a, T> From<&'a mut MappedBuffer<T>> for DeviceSlice<'a, T> {
    fn from(buffer: &'a mut MappedBuffer<T>) -> Self {
        buffer.as_slice()
    }
}

impl<'a, T> From<&'a mut MappedBuffer<T>> for DeviceSliceMut<'a, T> {
    fn from(buffer: &'a mut MappedBuffer<T>) -> Self {
        buffer.as_mut_slice()
    }
}

impl<T> Drop for MappedBuffer<T> {
    fn drop(&mut self) {
        self.host.give_back(Some(&self.stream));
    }
}

impl<T> fmt::Debug for MappedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        slice::debug("MappedBuffer", &self.as_slice(), f)
    }
}
