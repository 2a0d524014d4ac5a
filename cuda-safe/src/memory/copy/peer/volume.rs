//! Copies of 2-D and 3-D regions from other contexts and devices.

use super::PeerReader;
use crate::call::{Extent, Region, Result, answer, without_current};
use crate::capture_state::Operation;
use crate::memory::DeviceSliceMut;
use crate::stream::same_stream;
use cuda_sys::{CUDA_MEMCPY3D_PEER, CUmemorytype};

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
        let (Some(to), Some(from)) = (to, from) else {
            return Ok(());
        };
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
