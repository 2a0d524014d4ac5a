//! Memory of other contexts and devices: copies, and access of kernels.

use super::{DeviceBuffer, DeviceSlice, DeviceSliceMut, SharedBuffer, SharedReader, same_length};
use crate::call::{answer, without_current};
use crate::capture::Operation;
use crate::error::Result;
use crate::stream::Stream;
use std::fmt;

/// The right to read a [`SharedBuffer`] on a stream of another context, of this or another device;
/// of [`SharedBuffer::on_peer`].
///
/// It is a source of copies ([`DeviceSliceMut::copy_from_peer`]). Its end is that of a
/// [`SharedReader`].
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
#[must_use = "it is the right to read, as long as it lives"]
pub struct PeerReader<T>(SharedReader<T>);

impl<T> SharedBuffer<T> {
    /// The right to read on a stream of any context and device, as [`on`](Self::on) gives it for
    /// those of its own: makes the stream wait for what was written (`cuStreamWaitEvent`), and makes
    /// an event for the end of the reads.
    ///
    /// # Errors
    /// [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured); those of the driver.
    ///
    /// Since CUDA 3.2. Raw: [`cuStreamWaitEvent`](fn@cuda_sys::cuStreamWaitEvent).
    #[doc(alias = "cuStreamWaitEvent")]
    pub fn on_peer(&self, stream: &Stream) -> Result<PeerReader<T>> {
        self.reader(stream).map(PeerReader)
    }
}

impl<T> PeerReader<T> {
    /// The number of elements.
    pub fn len(&self) -> usize {
        self.0.as_slice().len()
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The stream that it may be read on.
    pub fn stream(&self) -> &Stream {
        self.0.stream()
    }

    /// The memory itself, for kernels on the reader's stream.
    ///
    /// # Safety
    /// Kernels of the stream's context can reach the memory, until what is given to the stream
    /// while this is borrowed is done: plain memory by
    /// [`Context::enable_peer_access`](crate::Context::enable_peer_access), that of a pool by the
    /// access of the pool.
    pub unsafe fn as_slice(&self) -> DeviceSlice<'_, T> {
        self.0.as_slice()
    }
}

impl<T> DeviceSliceMut<'_, T> {
    /// `cuMemcpyPeerAsync(this, context, source, its_context, bytes, stream)`: copies memory of another
    /// context or device here, in the order of the stream that both are bound to.
    ///
    /// # Errors
    /// [`Invalid::Lengths`](crate::Invalid::Lengths) if the lengths differ,
    /// [`Invalid::OtherStream`](crate::Invalid::OtherStream) if the streams do;
    /// [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured), as a driver (580) cannot capture
    /// this copy.
    ///
    /// Since CUDA 4.0. Raw: [`cuMemcpyPeerAsync`](fn@cuda_sys::cuMemcpyPeerAsync).
    #[doc(alias = "cuMemcpyPeerAsync")]
    pub fn copy_from_peer(&mut self, source: &PeerReader<T>) -> Result<()> {
        let from = source.0.as_slice();
        same_length(from.len(), self.len())?;
        from.check_stream(|| "the source of the copy".to_owned(), self.stream())?;
        if self.size_bytes() == 0 {
            return Ok(());
        }
        // A driver (580) refuses to capture it, and breaks the capture.
        let _call = self.stream().uncaptured(Operation::PeerCopy)?;
        let (to, context) = (self.as_raw(), self.stream().context().as_raw());
        let (from, its_context) = (from.as_raw(), source.0.home().context().as_raw());
        let (bytes, stream) = (self.size_bytes(), self.stream().raw());
        without_current(self.stream().context(), || {
            // SAFETY: both hold `bytes`, each is of its context, which is alive, and both are used
            // and freed in the order of this stream, which the reader sees to for the source.
            unsafe {
                answer!(cuMemcpyPeerAsync(
                    to,
                    context,
                    from,
                    its_context,
                    bytes,
                    stream
                ))
            }
        })
    }
}

impl<T> DeviceBuffer<T> {
    /// Copies memory of another context or device here: [`DeviceSliceMut::copy_from_peer`].
    ///
    /// # Errors
    /// As there.
    pub fn copy_from_peer(&mut self, source: &PeerReader<T>) -> Result<()> {
        self.as_mut_slice().copy_from_peer(source)
    }
}

impl<T> fmt::Debug for PeerReader<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PeerReader").field(&self.0).finish()
    }
}
