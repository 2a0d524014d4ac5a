//! Several copies in one call: between device memory, and between device and host memory.

use super::pending::LeakInUse;
use super::volume::{Copy, Side};
use crate::call::{
    Error, Extent, Region, Result, answer, c_enum, call, copy_without_current, debug_struct,
    newest_or, refuse_in_host_function,
};
use crate::capture_state::Operation;
use crate::memory::{DeviceSlice, DeviceSliceMut, MemoryLocation, PinnedBuffer, same_length};
use crate::stream::{Stream, same_stream};
use bytemuck::{AnyBitPattern, NoUninit};
use core::ffi::c_void;
use cuda_sys::{
    CUDA_MEMCPY3D_BATCH_OP, CUdeviceptr, CUextent3D, CUmemLocation, CUmemcpy3DOperand,
    CUmemcpy3DOperand_st__bindgen_ty_1__bindgen_ty_1 as Pointer,
    CUmemcpy3DOperand_st__bindgen_ty_1__bindgen_ty_2 as Texels, CUmemcpy3DOperandType,
    CUmemcpyAttributes, CUmemcpyFlags, CUmemcpySrcAccessOrder, CUmemorytype, CUoffset3D, Zeroable,
};
use std::marker::PhantomData;

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
    #[doc(alias = "cuMemcpyBatchAsync", alias = "cuMemcpy3DBatchAsync")]
    #[doc(alias = "cuMemcpyWithAttributesAsync", alias = "cuMemcpy3DWithAttributesAsync")]
    #[inline]
    pub fn enqueue(mut self) -> Result<()> {
        if !self.uses_host_memory() {
            return self.give().map(drop);
        }
        // This check comes before the copies, because the wait after them would be rejected.
        refuse_in_host_function()?;
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
        if self.has_arrays { self.give_arrays() } else { self.give_copies() }
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
            Ok(()) => enqueue_volumes(&mut self.volumes, self.stream),
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
                    let from = pointer(from).cast_const();
                    // SAFETY: as in `enqueue_newest`.
                    unsafe { answer!(cuMemcpyHtoDAsync_v2(to, from, size, stream)) }
                }
                Direction::ToHost => {
                    let to = pointer(to);
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

/// Attributes of copies in a [`CopyBatch`](crate::memory::CopyBatch) (`CUmemcpyAttributes`).
///
/// [`CopyBatch::set_attributes`](crate::memory::CopyBatch::set_attributes) sets them.
///
/// Later versions may add fields: end each value with `..Default::default()`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CopyAttributes {
    /// When a copy reads pinned memory. The default is [`SourceOrder::Stream`].
    pub pinned_source: SourceOrder,
    /// A hint: where the source is expected to be, if it is managed memory or memory of the host that
    /// the device can access. The driver may ignore it. The default is none.
    pub source_location: Option<MemoryLocation>,
    /// A hint: where the target should be, if it is managed memory or memory of the host that the
    /// device can access. The driver may ignore it. The default is none.
    pub target_location: Option<MemoryLocation>,
    /// A hint: whether the copy should run beside kernels, also if it is then slower. The driver may
    /// ignore it. The default is false.
    pub overlap_with_compute: bool,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

c_enum! {
    /// When a copy of a [`CopyBatch`](crate::memory::CopyBatch) reads a source in pinned memory
    /// (`CUmemcpySrcAccessOrder`).
    ///
    /// The order of other sources follows from their kind. Device memory is always read in stream order. A
    /// slice is read during the call, or in stream order if it is larger than 64 KiB.
    #[derive(Default)]
    #[non_exhaustive]
    pub enum SourceOrder = CUmemcpySrcAccessOrder {
        /// After earlier work on the stream.
        #[default]
        Stream = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
        /// At any time, also before earlier work on the stream has completed.
        Any = CU_MEMCPY_SRC_ACCESS_ORDER_ANY,
    }
}

/// How a copy accesses its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    order: CUmemcpySrcAccessOrder,
    attributes: CopyAttributes,
}

impl CopyAttributes {
    #[inline]
    pub(crate) fn of_device_source(self) -> Access {
        self.with_order(CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM)
    }

    #[inline]
    fn of_pinned_source(self) -> Access {
        self.with_order(self.pinned_source.raw())
    }

    /// Returns the access of a source that the driver reads during the call.
    #[inline]
    fn of_small_slice(self) -> Access {
        self.with_order(CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL)
    }

    #[inline]
    fn with_order(self, order: CUmemcpySrcAccessOrder) -> Access {
        Access { order, attributes: self }
    }
}

impl Access {
    #[inline]
    pub(crate) fn order(&self) -> CUmemcpySrcAccessOrder {
        self.order
    }

    #[inline]
    pub(crate) fn source(&self) -> CUmemLocation {
        location(self.attributes.source_location)
    }

    #[inline]
    pub(crate) fn target(&self) -> CUmemLocation {
        location(self.attributes.target_location)
    }

    #[inline]
    pub(crate) fn flags(&self) -> u32 {
        if self.attributes.overlap_with_compute {
            CUmemcpyFlags::CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE.0
        } else {
            CUmemcpyFlags::CU_MEMCPY_FLAG_DEFAULT.0
        }
    }

    #[inline]
    fn raw(&self) -> CUmemcpyAttributes {
        CUmemcpyAttributes {
            srcAccessOrder: self.order(),
            srcLocHint: self.source(),
            dstLocHint: self.target(),
            flags: self.flags(),
        }
    }
}

#[inline]
fn location(hint: Option<MemoryLocation>) -> CUmemLocation {
    hint.map_or_else(CUmemLocation::default, MemoryLocation::raw)
}

/// The size up to which the slices of a batch are read during the call that copies them. A real driver
/// (580) reads a pageable source of 256 KiB after such a call has returned, although it is told not to.
/// Whether it reads several smaller ones during the call was not measured, so this limits their sum.
const READ_DURING_CALL: usize = 64 << 10;

impl HostSides<'_> {
    /// Returns whether the device uses none of this memory after the call has returned. Up to which size a
    /// driver reads the rows of regions during the call was not measured.
    #[inline]
    fn is_read_during_call(&self) -> bool {
        self.pinned.is_empty() && !self.has_slice_regions && self.slice_bytes <= READ_DURING_CALL
    }
}

impl<'a> CopyBatch<'a> {
    /// Adds a copy of a slice to `target`.
    ///
    /// The slice can be pageable or pinned memory. If all slices of the batch have at most 64 KiB together,
    /// they are read before [`enqueue`](Self::enqueue) returns. Otherwise `enqueue` waits for the copies.
    ///
    /// There is no copy *to* a slice, because a driver (580) writes to pageable memory after the call has
    /// returned. Copy to a [`PinnedBuffer`] instead, or use
    /// [`DeviceSlice::copy_to_slice`](crate::DeviceSlice::copy_to_slice).
    ///
    /// # Errors
    /// - [`Invalid::Lengths`](crate::Invalid::Lengths) if the lengths differ.
    /// - [`Invalid::OtherStream`](crate::Invalid::OtherStream) if `target` is bound to another stream
    ///   than the batch.
    pub fn push_from_slice<T: NoUninit>(
        &mut self,
        target: impl Into<DeviceSliceMut<'a, T>>,
        source: &'a [T],
    ) -> Result<()> {
        let target = target.into();
        same_length(source.len(), target.len())?;
        same_stream("the target of the copy", target.stream(), self.stream)?;
        let bytes = target.size_bytes();
        self.host.slice_bytes = self.host.slice_bytes.saturating_add(bytes);
        let access = if bytes > READ_DURING_CALL {
            self.attributes.of_device_source()
        } else {
            self.attributes.of_small_slice()
        };
        let (to, from) = (target.as_raw(), address(source.as_ptr()));
        self.add(to, from, bytes, Direction::FromHost, access);
        Ok(())
    }

    /// Adds a copy of all elements of pinned memory to `target`. The memory stays borrowed until the copy
    /// has completed.
    ///
    /// # Errors
    /// See [`push_from_slice`](Self::push_from_slice).
    pub fn push_from_pinned<T: NoUninit + Send + Sync>(
        &mut self,
        target: impl Into<DeviceSliceMut<'a, T>>,
        source: &'a mut PinnedBuffer<T>,
    ) -> Result<()> {
        let target = target.into();
        same_length(source.count(), target.len())?;
        same_stream("the target of the copy", target.stream(), self.stream)?;
        let access = self.attributes.of_pinned_source();
        let (to, from) = (target.as_raw(), address(source.start()));
        self.add(to, from, target.size_bytes(), Direction::FromHost, access);
        self.host.pinned.push(source);
        Ok(())
    }

    /// Adds a copy of all elements of `source` to pinned memory. The memory stays borrowed until the copy
    /// has completed.
    ///
    /// # Errors
    /// - [`Invalid::Lengths`](crate::Invalid::Lengths) if the lengths differ.
    /// - [`Invalid::OtherStream`](crate::Invalid::OtherStream) if `source` is bound to another stream
    ///   than the batch.
    pub fn push_to_pinned<T: AnyBitPattern + Send + Sync>(
        &mut self,
        source: impl Into<DeviceSlice<'a, T>>,
        target: &'a mut PinnedBuffer<T>,
    ) -> Result<()> {
        let source = source.into();
        same_length(source.len(), target.count())?;
        same_stream("the source of the copy", source.stream(), self.stream)?;
        let access = self.attributes.of_device_source();
        let (to, from) = (address(target.start()), source.as_raw());
        self.add(to, from, source.size_bytes(), Direction::ToHost, access);
        self.host.pinned.push(target);
        Ok(())
    }
}

/// Returns host memory as an address of the driver, which is the same with unified addressing.
fn address<T>(start: *const T) -> CUdeviceptr {
    start.expose_provenance() as u64
}

/// Returns the pointer that [`address`] made an address of.
#[inline]
fn pointer(address: CUdeviceptr) -> *mut c_void {
    #[allow(clippy::cast_possible_truncation, reason = "64-bit targets only")]
    std::ptr::with_exposed_provenance_mut(address as usize)
}

/// The copy of a 2-D or 3-D region, as a part of a batch and as a single copy.
pub(crate) struct Volume {
    pub(crate) operation: CUDA_MEMCPY3D_BATCH_OP,
    pub(crate) single: Copy,
}

impl<'a> CopyBatch<'a> {
    /// Adds a copy of a 2-D or 3-D region of `source` to a region of `target`.
    ///
    /// # Errors
    /// - [`Invalid::Region`](crate::Invalid::Region) if a region is not within its memory, or if its rows
    ///   or slices overlap.
    /// - [`Invalid::OtherStream`](crate::Invalid::OtherStream) if `source` or `target` is bound to
    ///   another stream than the batch.
    pub fn push_3d<T: 'a>(
        &mut self,
        extent: Extent,
        target: impl Into<DeviceSliceMut<'a, T>>,
        region: Region,
        source: impl Into<DeviceSlice<'a, T>>,
        from: Region,
    ) -> Result<()> {
        let (target, source) = (target.into(), source.into());
        let to = region.checked(extent, target.len())?;
        let from = from.checked(extent, source.len())?;
        same_stream("the source of the copy", source.stream(), self.stream)?;
        same_stream("the target of the copy", target.stream(), self.stream)?;
        if let (Some(to), Some(from)) = (to, from) {
            let to = Side::of_device(&target.as_slice(), to);
            let from = Side::of_device(&source, from);
            self.add_volume::<T>(extent, &from, &to, self.attributes.of_device_source());
        }
        Ok(())
    }

    /// Adds a copy of a 2-D or 3-D region of a slice to a region of `target`.
    ///
    /// The slice can be pageable or pinned memory. [`enqueue`](Self::enqueue) waits for the copy.
    ///
    /// # Errors
    /// See [`push_3d`](Self::push_3d).
    pub fn push_3d_from_slice<T: NoUninit>(
        &mut self,
        extent: Extent,
        target: impl Into<DeviceSliceMut<'a, T>>,
        region: Region,
        source: &'a [T],
        from: Region,
    ) -> Result<()> {
        let target = target.into();
        let to = region.checked(extent, target.len())?;
        let from = from.checked(extent, source.len())?;
        same_stream("the target of the copy", target.stream(), self.stream)?;
        if let (Some(to), Some(from)) = (to, from) {
            let to = Side::of_device(&target.as_slice(), to);
            let from = Side::of_host(source.as_ptr(), from);
            self.host.has_slice_regions = true;
            self.add_volume::<T>(extent, &from, &to, self.attributes.of_device_source());
        }
        Ok(())
    }

    /// Adds a copy of a 2-D or 3-D region of pinned memory to a region of `target`. The pinned memory
    /// stays borrowed until the copy has completed.
    ///
    /// # Errors
    /// See [`push_3d`](Self::push_3d).
    pub fn push_3d_from_pinned<T: NoUninit + Send + Sync>(
        &mut self,
        extent: Extent,
        target: impl Into<DeviceSliceMut<'a, T>>,
        region: Region,
        source: &'a mut PinnedBuffer<T>,
        from: Region,
    ) -> Result<()> {
        let target = target.into();
        let to = region.checked(extent, target.len())?;
        let from = from.checked(extent, source.count())?;
        same_stream("the target of the copy", target.stream(), self.stream)?;
        if let (Some(to), Some(from)) = (to, from) {
            let to = Side::of_device(&target.as_slice(), to);
            let from = Side::of_host(source.start(), from);
            self.add_volume::<T>(extent, &from, &to, self.attributes.of_pinned_source());
        }
        self.host.pinned.push(source);
        Ok(())
    }

    /// Adds a copy of a 2-D or 3-D region of `source` to a region of pinned memory. The pinned memory
    /// stays borrowed until the copy has completed. Elements between the rows of the region in pinned
    /// memory are not changed.
    ///
    /// # Errors
    /// See [`push_3d`](Self::push_3d).
    pub fn push_3d_to_pinned<T: AnyBitPattern + Send + Sync>(
        &mut self,
        extent: Extent,
        source: impl Into<DeviceSlice<'a, T>>,
        region: Region,
        target: &'a mut PinnedBuffer<T>,
        to: Region,
    ) -> Result<()> {
        let source = source.into();
        let from = region.checked(extent, source.len())?;
        let to = to.checked(extent, target.count())?;
        same_stream("the source of the copy", source.stream(), self.stream)?;
        if let (Some(to), Some(from)) = (to, from) {
            let to = Side::of_host(target.start(), to);
            let from = Side::of_device(&source, from);
            self.add_volume::<T>(extent, &from, &to, self.attributes.of_device_source());
        }
        self.host.pinned.push(target);
        Ok(())
    }

    /// Adds a copy that is not empty. Between arrays and memory, lengths are in texels, and else in bytes.
    pub(crate) fn add_volume<T>(&mut self, extent: Extent, from: &Side, to: &Side, access: Access) {
        let single = Copy::new::<T>(extent, from, to);
        let (bytes, height, depth) = (extent.width * size_of::<T>(), extent.height, extent.depth);
        if bytes == 0 {
            return;
        }
        let has_array = from.is_array() || to.is_array();
        let unit = if has_array { size_of::<T>() } else { 1 };
        let operation = CUDA_MEMCPY3D_BATCH_OP {
            src: operand(from, unit, access.source()),
            dst: operand(to, unit, access.target()),
            extent: CUextent3D { width: bytes / unit, height, depth },
            srcAccessOrder: access.order(),
            flags: access.flags(),
        };
        self.volumes.push(Volume { operation, single });
        self.has_arrays |= has_array;
    }
}

/// Returns a side of a copy whose lengths are multiples of `unit` bytes.
#[inline]
fn operand(side: &Side, unit: usize, hint: CUmemLocation) -> CUmemcpy3DOperand {
    let mut operand = CUmemcpy3DOperand::zeroed();
    if side.is_array() {
        let [x, y, z] = side.at;
        operand.type_ = CUmemcpy3DOperandType::CU_MEMCPY_OPERAND_TYPE_ARRAY;
        operand.op.array = Texels { array: side.array, offset: CUoffset3D { x, y, z } };
        return operand;
    }
    let ptr = match side.kind {
        CUmemorytype::CU_MEMORYTYPE_HOST => address(side.host),
        _ => side.device,
    };
    operand.type_ = CUmemcpy3DOperandType::CU_MEMCPY_OPERAND_TYPE_POINTER;
    let row = side.pitch / unit;
    operand.op.ptr = Pointer { ptr, rowLength: row, layerHeight: side.rows, locHint: hint };
    operand
}

/// Enqueues copies, in the current context.
#[inline]
fn enqueue_volumes(volumes: &mut [Volume], stream: &Stream) -> Result<()> {
    let mut operations: Vec<_> = volumes.iter().map(|volume| volume.operation).collect();
    match operations.as_mut_slice() {
        [] => Ok(()),
        [one] => newest_or(enqueue_volume(one, stream), || {
            enqueue_volume_batch(std::slice::from_mut(one), stream)
        }),
        several => enqueue_volume_batch(several, stream),
    }
}

#[inline]
fn enqueue_volume(operation: &mut CUDA_MEMCPY3D_BATCH_OP, stream: &Stream) -> Result<()> {
    let stream = stream.raw();
    // SAFETY: the region of each side is within its memory. The rest is argued in
    // `CopyBatch::enqueue_newest`.
    unsafe { call!(cuMemcpy3DWithAttributesAsync(&raw mut *operation, 0, stream)) }
}

#[inline]
fn enqueue_volume_batch(operations: &mut [CUDA_MEMCPY3D_BATCH_OP], stream: &Stream) -> Result<()> {
    let (count, operations) = (operations.len(), operations.as_mut_ptr());
    let stream = stream.raw();
    newest_or(
        // SAFETY: the list has `count` entries, and the region of each side is within its memory. The
        // rest is argued in `CopyBatch::enqueue_newest`.
        unsafe { call!(cuMemcpy3DBatchAsync_v2(count, operations, 0, stream)) },
        || {
            let mut failed = 0;
            // SAFETY: see the previous call. The output for the index of the failed copy is a local
            // variable.
            unsafe {
                call!(abi::cuMemcpy3DBatchAsync(count, operations, &raw mut failed, 0, stream))
            }
        },
    )
}

impl Volume {
    #[inline]
    fn enqueue_single(&self, stream: &Stream) -> Result<()> {
        // SAFETY: see `CopyBatch::enqueue_newest`.
        unsafe { self.single.enqueue(stream.context(), stream.raw()) }
    }
}
