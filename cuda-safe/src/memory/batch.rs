//! Several device-to-device copies in one call.

use super::{DeviceSlice, DeviceSliceMut, same_length};
use crate::base::call::{answer, call, newest_or, without_current};
use crate::base::error::{Error, Result};
use crate::driver::stream::Stream;
use cuda_sys::{CUdeviceptr, CUmemcpyAttributes, CUmemcpySrcAccessOrder};
use std::fmt;
use std::marker::PhantomData;

/// A batch of device-to-device copies that are enqueued on one stream in one call.
///
/// The copies run after earlier work on the stream and before later work. They are not ordered
/// among each other, which makes no difference, because every target is borrowed mutably.
///
/// ```no_run
/// use cuda_safe::{Context, CopyBatch, Device, DeviceBuffer};
///
/// let stream = Context::primary(&Device::get(0)?)?.stream()?;
/// let from = DeviceBuffer::from_slice(&stream, &[1u32, 2, 3, 4])?;
/// let mut low = DeviceBuffer::<u32>::uninit(&stream, 2)?;
/// let mut high = DeviceBuffer::<u32>::uninit(&stream, 2)?;
/// let mut batch = CopyBatch::new(&stream);
/// batch.push(&mut low, from.slice(..2)?)?;
/// batch.push(&mut high, from.slice(2..)?)?;
/// batch.enqueue()?;
/// # Ok::<_, cuda_safe::Error>(())
/// ```
#[must_use = "nothing is copied until it is enqueued"]
pub struct CopyBatch<'a> {
    stream: &'a Stream,
    targets: Vec<CUdeviceptr>,
    sources: Vec<CUdeviceptr>,
    sizes: Vec<usize>,
    memory: PhantomData<&'a mut ()>,
}

impl<'a> CopyBatch<'a> {
    /// Creates an empty batch for copies on `stream`.
    pub fn new(stream: &'a Stream) -> Self {
        Self {
            stream,
            targets: Vec::new(),
            sources: Vec::new(),
            sizes: Vec::new(),
            memory: PhantomData,
        }
    }

    /// Adds a copy of all elements of `source` to `target`.
    ///
    /// # Errors
    /// - [`Invalid::Lengths`](crate::Invalid::Lengths) if the lengths differ.
    /// - [`Invalid::OtherStream`](crate::Invalid::OtherStream) if `source` or `target` is bound to
    ///   another stream than the batch.
    pub fn push<T: 'a>(
        &mut self,
        target: impl Into<DeviceSliceMut<'a, T>>,
        source: impl Into<DeviceSlice<'a, T>>,
    ) -> Result<()> {
        let (target, source) = (target.into(), source.into());
        same_length(source.len(), target.len())?;
        source.check_stream(|| "the source of the copy".to_owned(), self.stream)?;
        let to = target.as_slice();
        to.check_stream(|| "the target of the copy".to_owned(), self.stream)?;
        if target.size_bytes() != 0 {
            self.targets.push(target.as_raw());
            self.sources.push(source.as_raw());
            self.sizes.push(target.size_bytes());
        }
        Ok(())
    }

    /// Returns the number of copies. Copies without bytes are not counted.
    pub fn len(&self) -> usize {
        self.sizes.len()
    }

    /// Returns whether the batch has no copies.
    pub fn is_empty(&self) -> bool {
        self.sizes.is_empty()
    }

    /// Enqueues all copies on the stream. Does not block the host.
    ///
    /// Calls `cuMemcpyBatchAsync(targets, sources, sizes, count, …, stream)`. On drivers before
    /// CUDA 12.8 and on streams of green contexts, calls `cuMemcpyDtoDAsync` once for each copy.
    ///
    /// # Errors
    /// Errors from the driver. Some of the copies may have been enqueued in this case.
    ///
    /// Since CUDA 12.8 (from 13.0 on through `cuMemcpyBatchAsync_v2`). Raw:
    /// [`cuMemcpyBatchAsync_v2`](fn@cuda_sys::cuMemcpyBatchAsync_v2).
    #[doc(alias = "cuMemcpyBatchAsync")]
    pub fn enqueue(mut self) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        // On these streams, a real driver (580) crashes if any of the memory is stream-ordered.
        if self.stream.may_have_green_context() {
            return self.enqueue_each();
        }
        // Without a current context, a real driver (580) returns `CUDA_ERROR_INVALID_VALUE`, which
        // does not name the cause.
        let _current = self.stream.context().enter()?;
        let batch = newest_or(self.enqueue_newest(), || self.enqueue_older());
        match batch {
            Err(Error::Missing(_)) => self.enqueue_each(),
            done => done,
        }
    }

    fn enqueue_newest(&mut self) -> Result<()> {
        let (mut attributes, mut first) = (stream_ordered_source(), 0);
        let (to, from) = (self.targets.as_mut_ptr(), self.sources.as_mut_ptr());
        let (sizes, count) = (self.sizes.as_mut_ptr(), self.sizes.len());
        let (attributes, first) = (&raw mut attributes, &raw mut first);
        let stream = self.stream.raw();
        // SAFETY: all three lists have `count` entries, and the single set of attributes applies
        // from the first copy on. The two sides of each copy have the given size, are bound to this
        // stream, and are freed in the order of this stream or after a wait. Targets do not overlap
        // with any other memory of the batch, because they are borrowed mutably.
        unsafe {
            call!(cuMemcpyBatchAsync_v2(
                to, from, sizes, count, attributes, first, 1, stream
            ))
        }
    }

    fn enqueue_older(&mut self) -> Result<()> {
        let (mut attributes, mut first, mut failed) = (stream_ordered_source(), 0, 0);
        let (to, from) = (self.targets.as_mut_ptr(), self.sources.as_mut_ptr());
        let (sizes, count) = (self.sizes.as_mut_ptr(), self.sizes.len());
        let (attributes, first) = (&raw mut attributes, &raw mut first);
        let (failed, stream) = (&raw mut failed, self.stream.raw());
        // SAFETY: as in `enqueue_newest`. The output for the index of the failed copy is a local
        // variable.
        unsafe {
            call!(abi::cuMemcpyBatchAsync(
                to, from, sizes, count, attributes, first, 1, failed, stream
            ))
        }
    }

    fn enqueue_each(&self) -> Result<()> {
        let stream = self.stream.raw();
        for ((to, from), size) in self.targets.iter().zip(&self.sources).zip(&self.sizes) {
            without_current(self.stream.context(), || {
                // SAFETY: as in `enqueue_newest`.
                unsafe { answer!(cuMemcpyDtoDAsync_v2(*to, *from, *size, stream)) }
            })?;
        }
        Ok(())
    }
}

/// Returns copy attributes that access the source in stream order.
fn stream_ordered_source() -> CUmemcpyAttributes {
    CUmemcpyAttributes {
        srcAccessOrder: CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
        ..Default::default()
    }
}

impl fmt::Debug for CopyBatch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopyBatch")
            .field("stream", self.stream)
            .field("copies", &self.len())
            .finish()
    }
}
