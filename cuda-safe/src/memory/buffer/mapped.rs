//! Pinned host memory that kernels access.

use crate::call::{Invalid, Result, refuse_if};
use crate::memory::PinnedBuffer;

use crate::memory::buffer::slice::{DeviceSlice, DeviceSliceMut, device_slices};
use crate::release;
use crate::stream::{Stream, same_context};
use bytemuck::AnyBitPattern;
use cuda_sys::CUdeviceptr;

/// Pinned host memory with a device address, bound to a stream. Kernels access it over the bus.
///
/// [`new`](Self::new) creates one from a [`PinnedBuffer`]. It is used like device memory, as a
/// [`DeviceSlice`] or [`DeviceSliceMut`] in work on its stream. [`host`](Self::host) waits for the
/// stream and returns the elements as a host slice. [`into_pinned`] converts it back to a
/// [`PinnedBuffer`].
///
/// Use mapped memory if a kernel accesses the data only once, or accesses only a small part of it.
/// Otherwise, device memory is faster.
///
/// Freeing the memory waits for *all* running work.
///
/// [`into_pinned`]: Self::into_pinned
///
/// ```no_run
/// use cuda_safe::{Context, Device, PinnedBuffer};
/// use cuda_safe::memory::MappedBuffer;
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
    /// Makes pinned memory accessible to work on `stream`.
    ///
    /// Calls `cuMemHostGetDevicePointer(&address, start, 0)`.
    ///
    /// # Errors
    /// On an error, `memory` is dropped. To keep it, check these conditions before:
    ///
    /// - [`Invalid::OtherContext`](crate::Invalid::OtherContext) if the stream belongs to another
    ///   context than the memory ([`PinnedBuffer::context`]).
    /// - [`Invalid::OtherManager`] if a memory manager allocated or pinned the memory, and the stream belongs to the same
    ///   context without this manager.
    /// - `CUDA_ERROR_INVALID_VALUE` if the memory is not mapped
    ///   ([`PinnedOptions::mapped`](crate::memory::PinnedOptions::mapped)) and addressing is not unified.
    ///
    /// Since CUDA 3.2. Raw: [`cuMemHostGetDevicePointer_v2`](fn@cuda_sys::cuMemHostGetDevicePointer_v2).
    #[doc(alias = "cuMemHostGetDevicePointer")]
    pub fn new(memory: PinnedBuffer<T>, stream: &Stream) -> Result<Self> {
        Ok(Self { address: address_of(&memory, stream)?, host: memory, stream: stream.clone() })
    }

    /// Waits for the stream and returns the elements as a host slice.
    ///
    /// # Errors
    /// Errors from the work on the stream.
    pub fn host(&mut self) -> Result<&mut [T]> {
        release::drain();
        self.stream.wait_for_work()?;
        Ok(&mut self.host)
    }

    /// Waits for the stream and returns the pinned memory.
    ///
    /// # Errors
    /// Errors from the work on the stream. The buffer is then dropped. To keep it, call
    /// [`host`](Self::host) first, which waits too.
    pub fn into_pinned(mut self) -> Result<PinnedBuffer<T>> {
        release::drain();
        self.stream.wait_for_work()?;
        let empty = PinnedBuffer::empty(self.host.context());
        Ok(std::mem::replace(&mut self.host, empty))
    }
}

/// Returns the device address of pinned memory, or 0 if the memory has no bytes.
fn address_of<T>(memory: &PinnedBuffer<T>, stream: &Stream) -> Result<CUdeviceptr> {
    let context = stream.context();
    same_context("the pinned memory", memory.context(), context)?;
    // A manager that is not notified of the stream's end must not get the memory back in its order.
    let is_notified = !memory.is_managed() || context.has_manager_of(memory.context());
    refuse_if!(!is_notified, Invalid::OtherManager);
    match memory.has_memory() {
        true => context.device_address(memory.as_ptr().cast_mut().cast()),
        false => Ok(0),
    }
}

impl<T> MappedBuffer<T> {
    /// Returns the device address, or 0 if the buffer has no bytes.
    pub fn as_raw(&self) -> CUdeviceptr {
        self.address
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.host.count()
    }

    /// Returns whether the buffer has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the stream that the buffer is bound to.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Borrows the whole buffer as device memory, for reading.
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        DeviceSlice::new(self.address, self.len(), &self.stream)
    }

    /// Borrows the whole buffer as device memory, for reading and writing.
    pub fn as_mut_slice(&mut self) -> DeviceSliceMut<'_, T> {
        DeviceSliceMut::new(self.address, self.len(), &self.stream)
    }
}

device_slices!(MappedBuffer);

impl<T> Drop for MappedBuffer<T> {
    fn drop(&mut self) {
        self.host.give_back(Some(&self.stream));
    }
}
