//! Access to memory of other contexts and devices, by copies and by kernels.

use crate::call::{Extent, Region, Result, answer, debug, without_current};
use crate::capture_state::Operation;
use crate::memory::{
    DeviceBuffer, DeviceSlice, DeviceSliceMut, SharedBuffer, SharedReader, same_length,
};
use crate::stream::{Stream, same_stream};
use cuda_sys::{CUDA_MEMCPY3D_PEER, CUmemorytype};

/// The right to read a [`SharedBuffer`] on a stream of another context, which may be on another
/// device.
///
/// [`SharedBuffer::on_peer`] returns one. It is a source for [`DeviceSliceMut::copy_from_peer`].
/// Dropping it ends the right to read, as for a [`SharedReader`].
///
/// ```no_run
/// use cuda_safe::{Context, Device, DeviceBuffer};
///
/// let here = Context::primary(&Device::get(0)?)?.stream()?;
/// let there = Context::primary(&Device::get(1)?)?.stream()?;
/// let weights = DeviceBuffer::from_slice(&here, &[1.0f32; 1024])?.share()?;
/// let mut copy = DeviceBuffer::<f32>::uninit(&there, 1024)?;
/// copy.copy_from_peer(&weights.on_peer(&there)?)?;
/// # Ok::<_, cuda_safe::Error>(())
/// ```
#[must_use = "the right to read ends when it is dropped"]
pub struct PeerReader<T>(SharedReader<T>);

impl<T> SharedBuffer<T> {
    /// Returns the right to read the memory on a stream of any context or device.
    ///
    /// Makes `stream` wait for the writes (`cuStreamWaitEvent`) and creates an event that marks the
    /// end of the reads. For streams of the same context, [`on`](Self::on) returns the same right.
    ///
    /// # Errors
    /// - [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured).
    /// - Errors from the driver.
    ///
    /// Since CUDA 3.2. Raw: [`cuStreamWaitEvent`](fn@cuda_sys::cuStreamWaitEvent).
    #[doc(alias = "cuStreamWaitEvent")]
    pub fn on_peer(&self, stream: &Stream) -> Result<PeerReader<T>> {
        self.reader(stream).map(PeerReader)
    }
}

impl<T> PeerReader<T> {
    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.0.as_slice().len()
    }

    /// Returns whether the memory has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the stream on which the memory may be read.
    pub fn stream(&self) -> &Stream {
        self.0.stream()
    }

    /// Returns the memory for kernels on the reader's stream.
    ///
    /// # Safety
    /// Kernels of the stream's context must be able to access the memory until the work that is
    /// enqueued during this borrow has completed. Peer access to a synchronous allocation is
    /// enabled with [`Context::enable_peer_access`](crate::Context::enable_peer_access). Access to
    /// pool memory is granted on the pool.
    pub unsafe fn as_slice(&self) -> DeviceSlice<'_, T> {
        self.0.as_slice()
    }
}

impl<T> DeviceSliceMut<'_, T> {
    /// Enqueues a copy from memory of another context or device to this memory. Does not block the
    /// host.
    ///
    /// Calls `cuMemcpyPeerAsync(this, context, source, its_context, bytes, stream)`. The reader and
    /// this memory must be bound to the same stream.
    ///
    /// # Errors
    /// - [`Invalid::Lengths`](crate::Invalid::Lengths) if the lengths differ.
    /// - [`Invalid::OtherStream`](crate::Invalid::OtherStream) if the streams differ.
    /// - [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured), because a driver (580)
    ///   cannot capture this copy.
    ///
    /// Since CUDA 4.0. Raw: [`cuMemcpyPeerAsync`](fn@cuda_sys::cuMemcpyPeerAsync).
    #[doc(alias = "cuMemcpyPeerAsync")]
    pub fn copy_from_peer(&mut self, source: &PeerReader<T>) -> Result<()> {
        let from = source.0.as_slice();
        same_length(from.len(), self.len())?;
        same_stream("the source of the copy", from.stream(), self.stream())?;
        if self.size_bytes() == 0 {
            return Ok(());
        }
        // A driver (580) rejects this copy during a capture, and the capture is invalidated.
        let _call = self.stream().uncaptured(Operation::PeerCopy)?;
        let (to, context) = (self.as_raw(), self.stream().context().as_raw());
        let (from, its_context) = (from.as_raw(), source.0.home().context().as_raw());
        let (bytes, stream) = (self.size_bytes(), self.stream().raw());
        without_current(self.stream().context(), || {
            // SAFETY: both sides hold `bytes`, and each belongs to its context, which is alive.
            // Both are used and freed in the order of this stream; for the source, the reader
            // ensures this.
            unsafe { answer!(cuMemcpyPeerAsync(to, context, from, its_context, bytes, stream)) }
        })
    }
}

impl<T> DeviceBuffer<T> {
    /// Enqueues a copy from memory of another context or device to this buffer. Does not block the
    /// host.
    ///
    /// # Errors
    /// See [`DeviceSliceMut::copy_from_peer`].
    pub fn copy_from_peer(&mut self, source: &PeerReader<T>) -> Result<()> {
        self.as_mut_slice().copy_from_peer(source)
    }
}

debug! { [T] PeerReader<T> |its, f| f.debug_tuple("PeerReader").field(&its.0).finish() }

impl<T> DeviceSliceMut<'_, T> {
    /// Enqueues a copy of a 2-D or 3-D region of memory of another context or device to a region of this
    /// memory. Does not block the host.
    ///
    /// Calls `cuMemcpy3DPeerAsync(&copy, stream)`. The reader and this memory must be bound to the same
    /// stream.
    ///
    /// # Errors
    /// - [`Invalid::Region`](crate::Invalid::Region) if a region is not within its memory, or if its rows
    ///   or slices overlap.
    /// - [`Invalid::OtherStream`](crate::Invalid::OtherStream) if the streams differ.
    /// - [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured).
    ///
    /// Since CUDA 4.0. Raw: [`cuMemcpy3DPeerAsync`](fn@cuda_sys::cuMemcpy3DPeerAsync).
    #[doc(alias = "cuMemcpy3DPeerAsync")]
    pub fn copy_3d_from_peer(
        &mut self,
        extent: Extent,
        region: Region,
        source: &PeerReader<T>,
        from: Region,
    ) -> Result<()> {
        let memory = source.0.as_slice();
        let to = region.checked(extent, self.len())?;
        let from = from.checked(extent, memory.len())?;
        same_stream("the source of the copy", memory.stream(), self.stream())?;
        let width = extent.width * size_of::<T>();
        let (Some(to), Some(from)) = (to, from) else { return Ok(()) };
        if width == 0 {
            return Ok(());
        }
        // A driver (580) rejects copies between contexts during a capture, and the capture is
        // invalidated.
        let _call = self.stream().uncaptured(Operation::PeerCopy)?;
        let start =
            |address: u64, region: Region| address + (region.offset * size_of::<T>()) as u64;
        let copy = CUDA_MEMCPY3D_PEER {
            srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
            srcDevice: start(memory.as_raw(), from),
            srcContext: source.0.home().context().as_raw(),
            srcPitch: from.pitch * size_of::<T>(),
            srcHeight: from.rows,
            dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
            dstDevice: start(self.as_raw(), to),
            dstContext: self.stream().context().as_raw(),
            dstPitch: to.pitch * size_of::<T>(),
            dstHeight: to.rows,
            WidthInBytes: width,
            Height: extent.height,
            Depth: extent.depth,
            ..Default::default()
        };
        let stream = self.stream().raw();
        without_current(self.stream().context(), || {
            // SAFETY: the pointer is to a local variable. Both regions are within their memory, and each
            // memory belongs to its context, which is alive. Both are used and freed in the order of this
            // stream; for the source, the reader ensures this.
            unsafe { answer!(cuMemcpy3DPeerAsync(&raw const copy, stream)) }
        })
    }
}
