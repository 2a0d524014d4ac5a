//! Decompression by the engine of a device.

use crate::call::{Result, answer, c_enum, debug_struct, without_current};
use crate::capture_state::Operation;
use crate::memory::{DeviceSlice, DeviceSliceMut, same_length};
use crate::stream::{Stream, same_stream};
use cuda_sys::{CUdeviceptr, CUmemDecompressAlgorithm, CUmemDecompressParams, Zeroable};
use std::marker::PhantomData;

/// A batch of decompressions that the decompression engine of a device makes, while its SMs do other work.
///
/// The engine accesses only memory for which
/// [`PointerInfo::hw_decompress`](crate::memory::PointerInfo::hw_decompress) is true: memory of a pool with
/// [`MemoryPoolOptions::hw_decompress`](crate::memory::MemoryPoolOptions::hw_decompress), and synchronous allocations
/// ([`DeviceBuffer::zeroed_sync`](crate::DeviceBuffer::zeroed_sync)). A device has an engine if
/// [`attribute::MEM_DECOMPRESS_ALGORITHM_MASK`](crate::device::attribute::MEM_DECOMPRESS_ALGORITHM_MASK) is not
/// zero, and the mask says which formats it knows.
/// [`attribute::MEM_DECOMPRESS_MAXIMUM_LENGTH`](crate::device::attribute::MEM_DECOMPRESS_MAXIMUM_LENGTH) limits the
/// size of each decompression.
///
/// Unverified, from documentation: no test ran on a device with an engine.
///
/// ```no_run
/// use cuda_safe::{Context, Device, DeviceBuffer};
/// use cuda_safe::device::attribute;
/// use cuda_safe::memory::{CompressionFormat, DecompressBatch};
///
/// let context = Context::primary(&Device::get(0)?)?;
/// let formats = context.device().attribute(attribute::MEM_DECOMPRESS_ALGORITHM_MASK)?;
/// if formats.contains(CompressionFormat::Lz4.mask()) {
///     let stream = context.stream()?;
///     // Four literals.
///     let mut source = DeviceBuffer::<u8>::zeroed_sync(&stream, 5)?;
///     source.copy_from_slice(&[0x40, 1, 2, 3, 4])?;
///     let mut target = DeviceBuffer::<u8>::zeroed_sync(&stream, 4)?;
///     let mut written = DeviceBuffer::<u32>::zeroed_sync(&stream, 1)?;
///     let mut batch = DecompressBatch::new(&stream);
///     batch.push(CompressionFormat::Lz4, &mut target, &source, &mut written)?;
///     // SAFETY: the source is valid, and has four bytes when it is decompressed.
///     unsafe { batch.enqueue() }?;
///     assert_eq!(target.to_vec()?, [1, 2, 3, 4]);
///     assert_eq!(written.to_vec()?, [4]);
/// }
/// # Ok::<_, cuda_safe::Error>(())
/// ```
#[must_use = "nothing is decompressed until it is enqueued"]
pub struct DecompressBatch<'a> {
    stream: &'a Stream,
    operations: Vec<CUmemDecompressParams>,
    memory: PhantomData<&'a mut ()>,
}

c_enum! {
    /// The format of compressed data (`CUmemDecompressAlgorithm`).
    #[non_exhaustive]
    pub enum CompressionFormat = CUmemDecompressAlgorithm {
        /// Deflate.
        Deflate = CU_MEM_DECOMPRESS_ALGORITHM_DEFLATE,
        /// Snappy.
        Snappy = CU_MEM_DECOMPRESS_ALGORITHM_SNAPPY,
        /// LZ4.
        Lz4 = CU_MEM_DECOMPRESS_ALGORITHM_LZ4,
    }
}

impl CompressionFormat {
    /// Returns the bit of this format in
    /// [`attribute::MEM_DECOMPRESS_ALGORITHM_MASK`](crate::device::attribute::MEM_DECOMPRESS_ALGORITHM_MASK).
    #[inline]
    pub const fn mask(self) -> CUmemDecompressAlgorithm {
        self.raw()
    }
}

impl<'a> DecompressBatch<'a> {
    /// Creates an empty batch on `stream`.
    #[inline]
    pub fn new(stream: &'a Stream) -> Self {
        Self { stream, operations: Vec::new(), memory: PhantomData }
    }

    /// Adds the decompression of `source` to `target`. The engine writes the number of decompressed bytes
    /// to `written`.
    ///
    /// # Errors
    /// - [`Invalid::Lengths`](crate::Invalid::Lengths) if `written` has not exactly one element.
    /// - [`Invalid::OtherStream`](crate::Invalid::OtherStream) if memory is bound to another stream than
    ///   the batch.
    pub fn push(
        &mut self,
        format: CompressionFormat,
        target: impl Into<DeviceSliceMut<'a, u8>>,
        source: impl Into<DeviceSlice<'a, u8>>,
        written: impl Into<DeviceSliceMut<'a, u32>>,
    ) -> Result<()> {
        let (target, source, written) = (target.into(), source.into(), written.into());
        same_length(1, written.len())?;
        let stream = self.stream;
        same_stream("the compressed data", source.stream(), stream)?;
        same_stream("the target of the decompression", target.stream(), stream)?;
        same_stream("the memory for the size", written.stream(), stream)?;
        self.operations.push(CUmemDecompressParams {
            srcNumBytes: source.size_bytes(),
            dstNumBytes: target.size_bytes(),
            dstActBytes: pointer(written.as_raw()),
            src: pointer::<u8>(source.as_raw()).cast(),
            dst: pointer::<u8>(target.as_raw()).cast(),
            algo: format.mask(),
            ..CUmemDecompressParams::zeroed()
        });
        Ok(())
    }

    /// Returns the number of decompressions.
    #[inline]
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Returns whether the batch has no decompressions.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Enqueues all decompressions on the stream. Does not block the host, except for
    /// [deferred releases](crate::reference::releases#deferred-releases).
    ///
    /// Calls `cuMemBatchDecompressAsync(operations, count, 0, null, stream)`. The decompressions run after
    /// earlier work on the stream and before later work, in any order among each other.
    ///
    /// # Errors
    /// - [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured).
    /// - `CUDA_ERROR_NOT_SUPPORTED` if the device has no engine, and `CUDA_ERROR_INVALID_VALUE` if the
    ///   engine does not know a format or cannot access the memory.
    /// - Errors from earlier work.
    ///
    /// # Safety
    /// The source of each decompression is valid data of its format when the decompression runs, and has
    /// at most as many bytes as its target when it is decompressed. The engine writes as many bytes as the
    /// data says, and the size of the target is only a hint for it.
    ///
    /// Since CUDA 12.6. Raw: [`cuMemBatchDecompressAsync`](fn@cuda_sys::cuMemBatchDecompressAsync).
    #[doc(alias = "cuMemBatchDecompressAsync")]
    #[inline]
    pub unsafe fn enqueue(mut self) -> Result<()> {
        if self.operations.is_empty() {
            return Ok(());
        }
        let _call = self.stream.uncaptured(Operation::Decompression)?;
        let (operations, count) = (self.operations.as_mut_ptr(), self.operations.len());
        let stream = self.stream.raw();
        without_current(self.stream.context(), || {
            // SAFETY: the list has `count` operations. Their memory is bound to this stream, so it is
            // freed after them. The caller guarantees that the engine writes only to the targets. The
            // driver accepts a null pointer for the index of an operation that failed.
            unsafe {
                answer!(cuMemBatchDecompressAsync(
                    operations,
                    count,
                    0,
                    std::ptr::null_mut(),
                    stream
                ))
            }
        })
    }
}

/// Returns an address of device memory as the driver takes it here. The host does not access it.
fn pointer<T>(address: CUdeviceptr) -> *mut T {
    #[allow(clippy::cast_possible_truncation, reason = "64-bit targets only")]
    std::ptr::without_provenance_mut(address as usize)
}

debug_struct! { DecompressBatch<'_> |its| { stream: its.stream, len: its.len(), .. } }
