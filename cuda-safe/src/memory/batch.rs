//! Many copies in one call.

use super::{DeviceSlice, DeviceSliceMut, same_length};
use crate::call::{answer, call, newest_or, without_current};
use crate::error::{Error, Result};
use crate::green::GreenContext;
use crate::stream::Stream;
use cuda_sys::{CUdeviceptr, CUmemcpyAttributes, CUmemcpySrcAccessOrder};
use std::fmt;
use std::marker::PhantomData;

/// Copies on the device that go to their stream in one call.
///
/// They run behind the stream's earlier work and before its later, and in no order among each other:
/// which makes no difference, as each target is borrowed alone.
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
/// batch.submit()?;
/// # Ok::<_, cuda_safe::Error>(())
/// ```
#[must_use = "nothing is copied until it is submitted"]
pub struct CopyBatch<'a> {
    stream: &'a Stream,
    targets: Vec<CUdeviceptr>,
    sources: Vec<CUdeviceptr>,
    sizes: Vec<usize>,
    memory: PhantomData<&'a mut ()>,
}

impl<'a> CopyBatch<'a> {
    /// Without a copy.
    pub fn new(stream: &'a Stream) -> Self {
        Self {
            stream,
            targets: Vec::new(),
            sources: Vec::new(),
            sizes: Vec::new(),
            memory: PhantomData,
        }
    }

    /// Adds a copy of all elements of `source`.
    ///
    /// # Errors
    /// [`Invalid::Lengths`](crate::Invalid::Lengths) if the lengths differ;
    /// [`Invalid::OtherStream`](crate::Invalid::OtherStream) if one of the two is bound to another
    /// stream than the batch's.
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

    /// How many copies there are.
    pub fn len(&self) -> usize {
        self.sizes.len()
    }

    /// Whether there is no copy.
    pub fn is_empty(&self) -> bool {
        self.sizes.is_empty()
    }

    /// `cuMemcpyBatchAsync(targets, sources, sizes, count, …, stream)`: gives the copies to the stream;
    /// on drivers before CUDA 12.8, and on streams of green contexts, one `cuMemcpyDtoDAsync` each.
    ///
    /// # Errors
    /// Those of the driver; some of the copies may have been given then.
    ///
    /// Since CUDA 12.8 (from 13.0 on through `cuMemcpyBatchAsync_v2`). Raw:
    /// [`cuMemcpyBatchAsync_v2`](fn@cuda_sys::cuMemcpyBatchAsync_v2).
    #[doc(alias = "cuMemcpyBatchAsync")]
    pub fn submit(mut self) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        // There a real driver (580) crashes, if one of the memories is stream-ordered.
        if GreenContext::may_have(self.stream) {
            return self.give_each();
        }
        // Without a current context a real driver (580) says INVALID_VALUE here, which tells nothing.
        let _current = self.stream.context().enter()?;
        let batch = newest_or(self.give_newest(), || self.give_older());
        match batch {
            Err(Error::Missing(_)) => self.give_each(),
            done => done,
        }
    }

    fn give_newest(&mut self) -> Result<()> {
        let (mut attributes, mut first) = (in_order_of_the_stream(), 0);
        let (to, from) = (self.targets.as_mut_ptr(), self.sources.as_mut_ptr());
        let (sizes, count) = (self.sizes.as_mut_ptr(), self.sizes.len());
        let (attributes, first) = (&raw mut attributes, &raw mut first);
        let stream = self.stream.raw();
        // SAFETY: there are `count` of each, and one set of attributes, for the first and all behind
        // it; each pair is of memory that is bound to this stream, of that size, freed in its order
        // or after a wait; targets overlap with nothing, as they are borrowed mutably.
        unsafe {
            call!(cuMemcpyBatchAsync_v2(
                to, from, sizes, count, attributes, first, 1, stream
            ))
        }
    }

    fn give_older(&mut self) -> Result<()> {
        let (mut attributes, mut first, mut failed) = (in_order_of_the_stream(), 0, 0);
        let (to, from) = (self.targets.as_mut_ptr(), self.sources.as_mut_ptr());
        let (sizes, count) = (self.sizes.as_mut_ptr(), self.sizes.len());
        let (attributes, first) = (&raw mut attributes, &raw mut first);
        let (failed, stream) = (&raw mut failed, self.stream.raw());
        // SAFETY: as above; the place for the number of the copy that failed is a local.
        unsafe {
            call!(abi::cuMemcpyBatchAsync(
                to, from, sizes, count, attributes, first, 1, failed, stream
            ))
        }
    }

    fn give_each(&self) -> Result<()> {
        let stream = self.stream.raw();
        for ((to, from), size) in self.targets.iter().zip(&self.sources).zip(&self.sizes) {
            without_current(self.stream.context(), || {
                // SAFETY: as above.
                unsafe { answer!(cuMemcpyDtoDAsync_v2(*to, *from, *size, stream)) }
            })?;
        }
        Ok(())
    }
}

/// Sources are read when the stream comes to the copies.
fn in_order_of_the_stream() -> CUmemcpyAttributes {
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
