//! Several copies in one call: between device memory, and between device and host memory.

mod attributes;
mod host;
pub(crate) mod volume;

pub use attributes::{CopyAttributes, SourceOrder};

use crate::call::{
    Error, Result, answer, call, copy_without_current, debug_struct, newest_or,
    refuse_in_host_function,
};
use crate::capture_state::Operation;
use crate::memory::copy::scope::LeakInUse;
use crate::memory::{DeviceSlice, DeviceSliceMut, same_length};
use crate::release;
use crate::stream::{Stream, same_stream};
use attributes::Access;
use cuda_sys::{CUdeviceptr, CUmemcpyAttributes};
use std::marker::PhantomData;
use volume::Volume;

/// A batch of copies that are enqueued on one stream in one call.
///
/// [`push`](Self::push) adds a copy between device memory. [`push_from_slice`](Self::push_from_slice),
/// [`push_from_pinned`](Self::push_from_pinned) and [`push_to_pinned`](Self::push_to_pinned) add copies
/// from and to host memory. Each has a variant for 2-D and 3-D regions
/// ([`push_3d`](Self::push_3d)). [`push_to_array`](Self::push_to_array),
/// [`push_from_array`](Self::push_from_array) and [`push_array`](Self::push_array) add copies of texels.
/// [`enqueue`](Self::enqueue) makes the call.
/// [`CopyScope::enqueue`](crate::memory::CopyScope::enqueue) makes it without waiting for the host memory.
///
/// The copies run after earlier work on the stream and before later work. They are not ordered
/// among each other, which makes no difference, because every target is borrowed mutably.
///
/// A batch is one call, and its sources can be read during that call ([`CopyAttributes`]). It is not
/// faster: on an H200 with driver 580, a copy of 4 KiB in a batch costs the host as much as a single copy,
/// on one thread and on eight (`cuda-bench --copies --threads 8`).
///
/// ```no_run
/// use cuda_safe::{Context, Device, DeviceBuffer};
/// use cuda_safe::memory::CopyBatch;
///
/// let stream = Context::primary(&Device::get(0)?)?.stream()?;
/// let from = DeviceBuffer::from_slice(&stream, &[1u32, 2, 3, 4])?;
/// let mut low = DeviceBuffer::<u32>::uninit(&stream, 2)?;
/// let mut high = DeviceBuffer::<u32>::uninit(&stream, 2)?;
/// let mut batch = CopyBatch::new(&stream);
/// batch.push(&mut low, from.slice(..2)?)?;
/// batch.push_from_slice(&mut high, &[5, 6])?;
/// batch.enqueue()?;
/// # Ok::<_, cuda_safe::Error>(())
/// ```
#[must_use = "nothing is copied until it is enqueued"]
pub struct CopyBatch<'a> {
    pub(crate) stream: &'a Stream,
    /// One-dimensional copies: the target, the source, the size and the direction of each.
    targets: Vec<CUdeviceptr>,
    sources: Vec<CUdeviceptr>,
    sizes: Vec<usize>,
    directions: Vec<Direction>,
    /// The distinct attributes of copies that follow each other, and the indices of their first copies.
    sets: Vec<CUmemcpyAttributes>,
    firsts: Vec<usize>,
    /// The last one of `sets`.
    access: Option<Access>,
    pub(crate) volumes: Vec<Volume>,
    pub(crate) has_arrays: bool,
    pub(crate) attributes: CopyAttributes,
    host: HostSides<'a>,
    memory: PhantomData<&'a mut ()>,
}

/// The host memory of a batch.
#[derive(Default)]
struct HostSides<'a> {
    /// Pinned memory, which the device may use until a wait.
    pinned: Vec<Borrowed<'a>>,
    /// The size of all one-dimensional slices in bytes.
    slice_bytes: usize,
    /// Whether there are regions of slices.
    has_slice_regions: bool,
}

type Borrowed<'a> = &'a mut (dyn LeakInUse + Send + Sync + 'a);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    OnDevice,
    FromHost,
    ToHost,
}

/// The calls that enqueued the copies of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Calls {
    Batch,
    OneForEach,
}

impl<'a> CopyBatch<'a> {
    /// Creates an empty batch for copies on `stream`.
    #[inline]
    pub fn new(stream: &'a Stream) -> Self {
        Self::with_capacity(stream, 0)
    }

    /// Creates an empty batch for copies on `stream`, with memory for the lists of `copies`
    /// one-dimensional copies. More copies can be added.
    #[inline]
    pub fn with_capacity(stream: &'a Stream, copies: usize) -> Self {
        Self {
            stream,
            targets: Vec::with_capacity(copies),
            sources: Vec::with_capacity(copies),
            sizes: Vec::with_capacity(copies),
            directions: Vec::with_capacity(copies),
            sets: Vec::new(),
            firsts: Vec::new(),
            access: None,
            volumes: Vec::new(),
            has_arrays: false,
            attributes: CopyAttributes::default(),
            host: HostSides::default(),
            memory: PhantomData,
        }
    }

    /// Sets the attributes of the copies that are added from now on.
    #[inline]
    pub fn set_attributes(&mut self, attributes: CopyAttributes) {
        self.attributes = attributes;
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
        same_stream("the source of the copy", source.stream(), self.stream)?;
        same_stream("the target of the copy", target.stream(), self.stream)?;
        let access = self.attributes.of_device_source();
        let (to, from) = (target.as_raw(), source.as_raw());
        self.add(to, from, target.size_bytes(), Direction::OnDevice, access);
        Ok(())
    }

    #[inline]
    fn add(
        &mut self,
        to: CUdeviceptr,
        from: CUdeviceptr,
        bytes: usize,
        direction: Direction,
        access: Access,
    ) {
        if bytes == 0 {
            return;
        }
        if self.access.as_ref().is_none_or(|last| *last != access) {
            self.access = Some(access);
            self.sets.push(access.raw());
            self.firsts.push(self.sizes.len());
        }
        self.targets.push(to);
        self.sources.push(from);
        self.sizes.push(bytes);
        self.directions.push(direction);
    }

    /// Returns the number of copies. Copies without bytes are not counted.
    #[inline]
    pub fn len(&self) -> usize {
        self.sizes.len() + self.volumes.len()
    }

    /// Returns whether the batch has no copies.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the stream that the copies are enqueued on.
    #[inline]
    pub fn stream(&self) -> &'a Stream {
        self.stream
    }

    /// Enqueues all copies on the stream. If the batch uses no host memory, this does not block the host.
    ///
    /// If the batch uses host memory, this blocks the host until all copies and all earlier work on the
    /// stream have completed. A batch whose only host memory are slices of at most 64 KiB in total
    /// ([`push_from_slice`](Self::push_from_slice)) blocks the host only until the slices have been read.
    /// [`CopyScope::enqueue`](crate::memory::CopyScope::enqueue) does not wait.
    ///
    /// Calls `cuMemcpyBatchAsync(targets, sources, sizes, count, …, stream)`, and for 2-D and 3-D regions
    /// `cuMemcpy3DBatchAsync(count, copies, 0, stream)`. A batch of one copy calls
    /// `cuMemcpyWithAttributesAsync` or `cuMemcpy3DWithAttributesAsync` instead, since CUDA 13.2
    /// (unverified, from documentation). On drivers before CUDA 12.8 and on streams of green contexts,
    /// makes one call for each copy, which ignores the attributes.
    ///
    /// If the wait fails, it is repeated a few times, and captures of other streams do not affect these waits. If
    /// they also fail, it is unknown whether the device still uses the pinned memory. It is then leaked together with
    /// the stream and its context, and reported as
    /// [`Report::Leaked`](crate::Report::Leaked). The borrowed buffers are left empty.
    ///
    /// # Errors
    /// - [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured) if the batch uses host memory or
    ///   arrays.
    /// - [`Error::InHostFunction`] inside a host function if the batch uses host memory.
    /// - Errors from the driver. Some of the copies may have been enqueued in this case. A capture of the
    ///   stream is refused with `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED`.
    /// - Errors from earlier work on the stream, if this waits.
    ///
    /// Since CUDA 12.8 (from 13.0 on through `cuMemcpyBatchAsync_v2` and `cuMemcpy3DBatchAsync_v2`). Raw:
    /// [`cuMemcpyBatchAsync_v2`](fn@cuda_sys::cuMemcpyBatchAsync_v2),
    /// [`cuMemcpy3DBatchAsync_v2`](fn@cuda_sys::cuMemcpy3DBatchAsync_v2),
    /// [`cuMemcpyWithAttributesAsync`](fn@cuda_sys::cuMemcpyWithAttributesAsync),
    /// [`cuMemcpy3DWithAttributesAsync`](fn@cuda_sys::cuMemcpy3DWithAttributesAsync).
    #[doc(alias = "cuMemcpyBatchAsync")]
    #[doc(alias = "cuMemcpy3DBatchAsync")]
    #[doc(alias = "cuMemcpyWithAttributesAsync")]
    #[doc(alias = "cuMemcpy3DWithAttributesAsync")]
    #[inline]
    pub fn enqueue(mut self) -> Result<()> {
        if !self.uses_host_memory() {
            return self.give().map(drop);
        }
        // This check comes before the copies, because the wait after them would be rejected.
        refuse_in_host_function()?;
        release::drain();
        let _call = self.stream.uncaptured(Operation::HostCopy)?;
        let given = self.give();
        let is_done = match &given {
            Ok(Calls::Batch) => self.host.is_read_during_call(),
            // A single copy from a slice that is pinned memory reads it after the call.
            Ok(Calls::OneForEach) => false,
            // The error may be from earlier work, and copies may be in progress.
            Err(_) => false,
        };
        if is_done {
            return Ok(());
        }
        let pinned = self.host.pinned.drain(..);
        let waited = self.stream.wait_for_host_copies(|error| {
            pinned.for_each(|buffer| buffer.leak_in_use(self.stream, error));
        });
        given.and(waited)
    }

    /// Takes the pinned memory. The caller keeps it borrowed until a wait for the stream, which comes
    /// before the end of `'a`.
    #[inline]
    pub(crate) fn take_pinned(&mut self) -> impl Iterator<Item = Borrowed<'a>> {
        std::mem::take(&mut self.host.pinned).into_iter()
    }

    /// Enqueues all copies, and does not wait for them.
    #[inline]
    pub(crate) fn enqueue_in_scope(mut self) -> Result<()> {
        self.give().map(drop)
    }

    #[inline]
    fn uses_host_memory(&self) -> bool {
        self.host.slice_bytes != 0 || self.host.has_slice_regions || !self.host.pinned.is_empty()
    }

    #[inline]
    fn give(&mut self) -> Result<Calls> {
        match self.has_arrays {
            true => self.give_arrays(),
            false => self.give_copies(),
        }
    }

    /// Enqueues the copies on a stream that is not captured: single copies could be captured, but a graph
    /// must not contain the handles of arrays.
    #[cold]
    #[inline]
    fn give_arrays(&mut self) -> Result<Calls> {
        let _call = self.stream.uncaptured(Operation::ArrayCopy)?;
        self.give_copies()
    }

    #[inline]
    fn give_copies(&mut self) -> Result<Calls> {
        if self.is_empty() {
            return Ok(Calls::Batch);
        }
        // On these streams, a real driver (580) crashes if any of the memory is stream-ordered.
        if self.stream.may_have_green_context() {
            return self.enqueue_each();
        }
        // Without a current context, a real driver (580) returns `CUDA_ERROR_INVALID_VALUE`, which
        // does not name the cause.
        let current = self.stream.context().enter()?;
        let batches = match self.enqueue_lines() {
            Ok(()) => volume::enqueue(&mut self.volumes, self.stream),
            failed => failed,
        };
        drop(current);
        match batches {
            // Drivers have both functions or neither.
            Err(Error::Missing(_)) => self.enqueue_each(),
            done => done.map(|()| Calls::Batch),
        }
    }

    /// Enqueues the one-dimensional copies.
    #[inline]
    fn enqueue_lines(&mut self) -> Result<()> {
        match self.sizes.len() {
            0 => return Ok(()),
            1 => match self.enqueue_one() {
                Err(Error::Missing(_)) => {}
                enqueued => return enqueued,
            },
            _ => {}
        }
        newest_or(self.enqueue_newest(), || self.enqueue_older())
    }

    #[inline]
    fn enqueue_one(&self) -> Result<()> {
        let (to, from, bytes) = (self.targets[0], self.sources[0], self.sizes[0]);
        let (set, stream) = (self.sets.as_ptr().cast_mut(), self.stream.raw());
        // SAFETY: as in `enqueue_newest`.
        unsafe { call!(cuMemcpyWithAttributesAsync(to, from, bytes, set, stream)) }
    }

    #[inline]
    fn enqueue_newest(&self) -> Result<()> {
        let (to, from) = (self.targets.as_ptr().cast_mut(), self.sources.as_ptr().cast_mut());
        let (sizes, count) = (self.sizes.as_ptr().cast_mut(), self.sizes.len());
        let (attributes, sets) = (self.sets.as_ptr().cast_mut(), self.sets.len());
        let (firsts, stream) = (self.firsts.as_ptr().cast_mut(), self.stream.raw());
        // SAFETY: all three lists have `count` entries, which the driver reads, and both lists of
        // attributes have `sets` entries. The two sides of each copy have the given size. Device memory
        // is bound to this stream, and is freed in the order of this stream or after a wait. Host memory
        // stays borrowed until the driver has read it during the call, or until a wait. Targets do not
        // overlap with any other memory of the batch, because they are borrowed mutably.
        unsafe {
            call!(cuMemcpyBatchAsync_v2(to, from, sizes, count, attributes, firsts, sets, stream))
        }
    }

    #[inline]
    fn enqueue_older(&self) -> Result<()> {
        let (to, from) = (self.targets.as_ptr().cast_mut(), self.sources.as_ptr().cast_mut());
        let (sizes, count) = (self.sizes.as_ptr().cast_mut(), self.sizes.len());
        let (attributes, sets) = (self.sets.as_ptr().cast_mut(), self.sets.len());
        let (firsts, stream) = (self.firsts.as_ptr().cast_mut(), self.stream.raw());
        let mut failed = 0;
        // SAFETY: as in `enqueue_newest`. The output for the index of the failed copy is a local
        // variable.
        unsafe {
            call!(abi::cuMemcpyBatchAsync(
                to,
                from,
                sizes,
                count,
                attributes,
                firsts,
                sets,
                &raw mut failed,
                stream
            ))
        }
    }

    /// Makes one call for each copy.
    #[inline]
    fn enqueue_each(&self) -> Result<Calls> {
        let lines = self.targets.iter().zip(&self.sources).zip(&self.sizes);
        for (((to, from), size), direction) in lines.zip(&self.directions) {
            let (to, from, size, stream) = (*to, *from, *size, self.stream.raw());
            copy_without_current(self.stream.context(), || match direction {
                // SAFETY: as in `enqueue_newest`.
                Direction::OnDevice => unsafe {
                    answer!(cuMemcpyDtoDAsync_v2(to, from, size, stream))
                },
                Direction::FromHost => {
                    let from = host::pointer(from).cast_const();
                    // SAFETY: as in `enqueue_newest`.
                    unsafe { answer!(cuMemcpyHtoDAsync_v2(to, from, size, stream)) }
                }
                Direction::ToHost => {
                    let to = host::pointer(to);
                    // SAFETY: as in `enqueue_newest`.
                    unsafe { answer!(cuMemcpyDtoHAsync_v2(to, from, size, stream)) }
                }
            })?;
        }
        for volume in &self.volumes {
            volume.enqueue_single(self.stream)?;
        }
        Ok(Calls::OneForEach)
    }
}

debug_struct! { CopyBatch<'_> |its| { stream: its.stream, copies: its.len() } }
