//! Buffers in device memory.

use super::allocation::{Allocation, Release};
use super::slice::{DeviceChunksExact, DeviceChunksExactMut, device_slices};
use crate::call::{
    Invalid, Result, answer, bytes_of, call, expect_memory, out, out_without_current, refuse_if,
};
use crate::capture_state::Operation;
use crate::launch::{Argument, LaunchArgument, sealed};
use crate::manager::ManagerSlot;
use crate::memory::{DeviceSlice, DeviceSliceMut, MappedBuffer, SharedReader};
use crate::module::Global;
use crate::release;
use crate::stream::{Stream, same_context};
use bytemuck::NoUninit;
use cuda_sys::CUdeviceptr;
use std::any::Any;
use std::marker::PhantomData;
use std::ops::RangeBounds;

/// An owned buffer in device memory, with `len` elements of `T`, bound to a stream.
///
/// All work that safe code enqueues on the buffer runs on this stream, and the buffer is freed in
/// stream order. Operations are therefore ordered without waits or events. Using the buffer with
/// another stream is an error that names both streams. [`rebind`](Self::rebind) moves the buffer to
/// another stream. [`slice`](Self::slice) borrows a part of the buffer.
///
/// [`zeroed`](Self::zeroed), [`from_slice`](Self::from_slice) and [`uninit`](Self::uninit) allocate
/// stream-ordered memory from the device's current [memory pool](crate::memory::MemoryPool), and
/// [`uninit_from_pool`](Self::uninit_from_pool) from any other pool. Freeing it does not block.
/// [`zeroed_sync`](Self::zeroed_sync) and [`uninit_sync`](Self::uninit_sync) make a synchronous
/// allocation, for drivers and devices without memory pools. Freeing that memory waits for *all*
/// work of the context. If the context has a [memory manager](crate::manager), all of these
/// functions except `uninit_from_pool` allocate from the manager, and the manager frees the memory.
///
/// The elements live in device memory, where kernels can write any bits. Reading them back
/// therefore requires a `T` for which every bit pattern is valid
/// ([`AnyBitPattern`](bytemuck::AnyBitPattern)), and writing them requires a `T` without padding
/// ([`NoUninit`]).
///
/// ```no_run
/// use cuda_safe::{Context, Device, DeviceBuffer};
///
/// let stream = Context::primary(&Device::get(0)?)?.stream()?;
/// let buffer = DeviceBuffer::from_slice(&stream, &[1.0f32, 2.0, 3.0])?;
/// assert_eq!(buffer.to_vec()?, [1.0, 2.0, 3.0]);
/// # Ok::<_, cuda_safe::Error>(())
/// ```
pub struct DeviceBuffer<T> {
    memory: Allocation,
    len: usize,
    elements: PhantomData<T>,
}

impl<T> DeviceBuffer<T> {
    /// Allocates stream-ordered memory without initializing it.
    ///
    /// Calls `cuMemAllocAsync(&address, bytes, stream)`.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    /// - `CUDA_ERROR_NOT_SUPPORTED` on devices without memory pools
    ///   ([`MEMORY_POOLS_SUPPORTED`](crate::device::attribute::MEMORY_POOLS_SUPPORTED)).
    /// - [`Invalid::TooLarge`] if `len` elements do not fit in the address space.
    /// - [`Invalid::StreamIsCaptured`].
    ///
    /// Since CUDA 11.2. Raw: [`cuMemAllocAsync`](fn@cuda_sys::cuMemAllocAsync),
    /// [`cuMemFreeAsync`](fn@cuda_sys::cuMemFreeAsync).
    #[doc(alias = "cuMemAllocAsync", alias = "cuMemFreeAsync")]
    pub fn uninit(stream: &Stream, len: usize) -> Result<Self> {
        release::drain();
        let bytes = bytes_of::<T>(len)?;
        if bytes == 0 {
            return Ok(Self::own(0, len, stream, Release::Nothing));
        }
        if let Some(choice) = stream.context().choice() {
            return Self::uninit_managed(choice, stream, len, bytes);
        }
        let _call = stream.uncaptured(Operation::Allocate)?;
        // SAFETY: the stream is alive, and the pointer is valid.
        let address = out_without_current(stream.context(), |place| unsafe {
            answer!(cuMemAllocAsync(place, bytes, stream.raw()))
        })
        .map_err(|error| error.with_requested_bytes(bytes))?;
        Ok(Self::own(address, len, stream, Release::StreamOrdered))
    }

    /// Allocates stream-ordered memory and enqueues a fill that sets all bytes to 0.
    ///
    /// # Errors
    /// See [`uninit`](Self::uninit).
    #[doc(alias = "alloc_zeros")]
    pub fn zeroed(stream: &Stream, len: usize) -> Result<Self> {
        Self::uninit(stream, len)?.into_zeroed()
    }

    /// Allocates synchronous memory without initializing it.
    ///
    /// Calls `cuMemAlloc(&address, bytes)`. Freeing the memory waits for all work of the context.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    /// - [`Invalid::TooLarge`] if `len` elements do not fit in the address space.
    /// - [`Invalid::StreamIsCaptured`].
    ///
    /// Since CUDA 3.2. Raw: [`cuMemAlloc_v2`](fn@cuda_sys::cuMemAlloc_v2),
    /// [`cuMemFree_v2`](fn@cuda_sys::cuMemFree_v2).
    #[doc(alias = "cuMemAlloc", alias = "cuMemFree")]
    pub fn uninit_sync(stream: &Stream, len: usize) -> Result<Self> {
        release::drain();
        let bytes = bytes_of::<T>(len)?;
        if bytes == 0 {
            return Ok(Self::own(0, len, stream, Release::Nothing));
        }
        let _call = stream.uncaptured(Operation::Allocate)?;
        match stream.context().choice() {
            None => Self::allocate_sync(stream, len, bytes),
            Some(choice) => Self::uninit_managed(choice, stream, len, bytes),
        }
    }

    /// Allocates synchronous memory and enqueues a fill that sets all bytes to 0.
    ///
    /// # Errors
    /// See [`uninit_sync`](Self::uninit_sync).
    pub fn zeroed_sync(stream: &Stream, len: usize) -> Result<Self> {
        Self::uninit_sync(stream, len)?.into_zeroed()
    }

    fn allocate_sync(stream: &Stream, len: usize, bytes: usize) -> Result<Self> {
        let current = stream.context().enter()?;
        // SAFETY: the pointer is valid, and the current context is the stream's context.
        let address = out(|place| unsafe { call!(cuMemAlloc_v2(place, bytes)) })
            .map_err(|error| error.with_requested_bytes(bytes))?;
        drop(current);
        Ok(Self::own(address, len, stream, Release::Sync))
    }

    /// Allocates from the context's memory manager, or synchronously while the manager is being
    /// created.
    #[cold]
    #[inline(never)]
    fn uninit_managed(
        choice: &ManagerSlot,
        stream: &Stream,
        len: usize,
        bytes: usize,
    ) -> Result<Self> {
        match Allocation::managed(choice, stream, bytes)? {
            Some(memory) => Ok(Self::of_allocation(memory, len)),
            None => Self::allocate_sync(stream, len, bytes),
        }
    }

    /// Allocates stream-ordered memory and copies `slice` to it. Blocks the host until the copy and
    /// all earlier work on the stream have completed.
    ///
    /// # Errors
    /// See [`uninit`](Self::uninit) and [`copy_from_slice`](Self::copy_from_slice).
    #[doc(alias = "clone_htod")]
    pub fn from_slice(stream: &Stream, slice: &[T]) -> Result<Self>
    where
        T: NoUninit,
    {
        let mut buffer = Self::uninit(stream, slice.len())?;
        buffer.copy_from_slice(slice)?;
        Ok(buffer)
    }

    /// Takes ownership of stream-ordered memory. The memory is freed with `cuMemFreeAsync` on
    /// `stream`.
    ///
    /// # Errors
    /// [`Invalid::Handle`] if the address is 0 and the buffer has bytes; [`Invalid::TooLarge`]. The
    /// caller then keeps ownership of the memory.
    ///
    /// # Safety
    /// - `address` is the start of an allocation made with `cuMemAllocAsync` or another
    ///   stream-ordered allocation function, not with `cuMemAlloc`. It may be 0 if the buffer has no
    ///   bytes.
    /// - The allocation holds `len` elements, is aligned for `T`, and is accessible to the stream's
    ///   device.
    /// - No other code frees or uses the memory.
    /// - The allocation and all previous uses of the memory, which may be on other streams, are
    ///   ordered before the work that is enqueued on `stream` from now on.
    /// - If kernels rely on valid values of `T`, the memory contains valid values of `T`.
    #[doc(alias = "upgrade_device_ptr")]
    pub unsafe fn from_raw(address: CUdeviceptr, len: usize, stream: &Stream) -> Result<Self> {
        expect_memory::<T>(address, len)?;
        let release = match address {
            // The address of a buffer without bytes.
            0 => Release::Nothing,
            _ => Release::StreamOrdered,
        };
        Ok(Self::own(address, len, stream, release))
    }

    /// Borrows memory that other code owns. The memory is never freed by this buffer.
    ///
    /// # Errors
    /// See [`from_raw`](Self::from_raw).
    ///
    /// # Safety
    /// - `address` is memory that holds `len` elements, is aligned for `T`, and is accessible to
    ///   the stream's device.
    /// - The memory stays allocated, and no other code uses it, until this buffer has been dropped
    ///   and the work enqueued on `stream` before the drop has completed.
    /// - The allocation and all previous uses of the memory, which may be on other streams, are
    ///   ordered before the work that is enqueued on `stream` from now on.
    /// - If kernels rely on valid values of `T`, the memory contains valid values of `T`.
    pub unsafe fn borrow_raw(address: CUdeviceptr, len: usize, stream: &Stream) -> Result<Self> {
        expect_memory::<T>(address, len)?;
        Ok(Self::own(address, len, stream, Release::Borrowed))
    }

    /// Uses memory that `owner` keeps allocated. The buffer never frees the memory; dropping the
    /// buffer drops `owner`.
    ///
    /// # Errors
    /// See [`from_raw`](Self::from_raw). `owner` is then dropped.
    ///
    /// # Safety
    /// The requirements of [`borrow_raw`](Self::borrow_raw) apply, except that `owner` keeps the
    /// memory allocated. In addition:
    ///
    /// - Dropping `owner` waits for the work enqueued on `stream` before, or is ordered after this
    ///   work.
    /// - `owner` may be dropped on any thread and at any time. This includes host functions, where
    ///   the driver rejects frees and waits, and captures of the stream, during which the driver
    ///   rejects waits. `owner` must handle these cases.
    pub unsafe fn from_foreign(
        address: CUdeviceptr,
        len: usize,
        stream: &Stream,
        owner: impl Any + Send + Sync,
    ) -> Result<Self> {
        expect_memory::<T>(address, len)?;
        let release = Release::Foreign(Box::new(owner));
        Ok(Self::own(address, len, stream, release))
    }

    pub(crate) fn own(address: CUdeviceptr, len: usize, stream: &Stream, release: Release) -> Self {
        Self::of_allocation(Allocation::new(address, stream, release), len)
    }

    /// Sets all bytes to 0. The fill is never captured: it runs once now, not in each launch of a
    /// graph.
    pub(crate) fn into_zeroed(mut self) -> Result<Self> {
        let mut all = self.as_mut_slice();
        if all.size_bytes() != 0 {
            let _call = all.stream().uncaptured(Operation::Fill)?;
            all.zero()?;
        }
        Ok(self)
    }

    pub(crate) fn of_allocation(memory: Allocation, len: usize) -> Self {
        Self { memory, len, elements: PhantomData }
    }

    /// Returns how the memory is released.
    pub(crate) fn release(&self) -> &Release {
        self.memory.release()
    }

    pub(crate) fn into_allocation(self) -> Allocation {
        self.memory
    }

    pub(crate) fn is_foreign(&self) -> bool {
        self.memory.is_foreign()
    }

    /// Returns the device address, or 0 if the buffer has no bytes.
    #[doc(alias = "device_ptr")]
    pub fn as_raw(&self) -> CUdeviceptr {
        self.memory.address()
    }

    /// Releases ownership and returns the device address and the stream.
    ///
    /// The caller must free stream-ordered memory with `cuMemFreeAsync` or pass it to
    /// [`from_raw`](Self::from_raw), and must free a synchronous allocation with `cuMemFree`. The
    /// owner of foreign memory is never dropped. Memory from a [memory manager](crate::manager) is
    /// never freed, and its context is never released. [Virtual memory](crate::virtual_memory) stays
    /// mapped until the process exits; [`into_mapping`](Self::into_mapping) returns its mapping instead.
    pub fn into_raw(self) -> (CUdeviceptr, Stream) {
        self.memory.into_raw()
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the buffer has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the size of all elements in bytes.
    pub fn size_bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// Returns the stream that the buffer is bound to.
    pub fn stream(&self) -> &Stream {
        self.memory.stream()
    }

    /// Borrows the whole buffer for reading.
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        DeviceSlice::new(self.as_raw(), self.len, self.stream())
    }

    /// Borrows the whole buffer for reading and writing.
    pub fn as_mut_slice(&mut self) -> DeviceSliceMut<'_, T> {
        DeviceSliceMut::new(self.as_raw(), self.len, self.stream())
    }

    /// Borrows a part of the buffer for reading.
    ///
    /// # Errors
    /// [`Invalid::Range`] if the range is not within the buffer.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<DeviceSlice<'_, T>> {
        self.as_slice().slice(range)
    }

    /// Borrows a part of the buffer for reading and writing.
    ///
    /// [`split_at_mut`](Self::split_at_mut) and [`chunks_exact_mut`](Self::chunks_exact_mut) borrow
    /// several disjoint parts at once.
    ///
    /// # Errors
    /// [`Invalid::Range`] if the range is not within the buffer.
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> Result<DeviceSliceMut<'_, T>> {
        self.as_mut_slice().slice(range)
    }

    /// Borrows two parts of the buffer for reading: the elements before `middle`, and the rest.
    ///
    /// # Errors
    /// [`Invalid::Range`] if `middle` is greater than the length.
    pub fn split_at(&self, middle: usize) -> Result<(DeviceSlice<'_, T>, DeviceSlice<'_, T>)> {
        self.as_slice().split_at(middle)
    }

    /// Borrows two disjoint parts of the buffer for reading and writing: the elements before
    /// `middle`, and the rest.
    ///
    /// # Errors
    /// [`Invalid::Range`] if `middle` is greater than the length.
    pub fn split_at_mut(
        &mut self,
        middle: usize,
    ) -> Result<(DeviceSliceMut<'_, T>, DeviceSliceMut<'_, T>)> {
        self.as_mut_slice().split_at(middle)
    }

    /// Returns an iterator over parts of `len` elements, for reading.
    ///
    /// See [`DeviceSlice::chunks_exact`].
    ///
    /// # Errors
    /// [`Invalid::EmptyChunks`] if `len` is 0.
    pub fn chunks_exact(&self, len: usize) -> Result<DeviceChunksExact<'_, T>> {
        self.as_slice().chunks_exact(len)
    }

    /// Returns an iterator over disjoint parts of `len` elements, for reading and writing.
    ///
    /// See [`DeviceSliceMut::chunks_exact_mut`].
    ///
    /// # Errors
    /// [`Invalid::EmptyChunks`] if `len` is 0.
    pub fn chunks_exact_mut(&mut self, len: usize) -> Result<DeviceChunksExactMut<'_, T>> {
        self.as_mut_slice().chunks_exact_mut(len)
    }

    /// Allocates a copy of the buffer that is bound to the same stream. Does not block the host,
    /// except for a synchronous allocation.
    ///
    /// Enqueues the copy of the elements on the stream. The new memory is allocated as the buffer
    /// was: synchronously, from the same [memory pool](crate::memory::MemoryPool), or from the context's
    /// [memory manager](crate::manager). The copy of memory that other code owns is allocated as by
    /// [`uninit`](Self::uninit).
    ///
    /// # Errors
    /// - [`Invalid::StreamIsCaptured`].
    /// - The errors of the allocation. See [`uninit`](Self::uninit),
    ///   [`uninit_sync`](Self::uninit_sync) and [`uninit_from_pool`](Self::uninit_from_pool).
    #[doc(alias = "clone_dtod")]
    pub fn try_clone(&self) -> Result<Self> {
        let (stream, len) = (self.stream(), self.len);
        let mut copy = match self.release() {
            Release::Sync => Self::uninit_sync(stream, len),
            Release::OfPool(pool) => Self::uninit_from_pool(pool, stream, len),
            _ => Self::uninit(stream, len),
        }?;
        if self.size_bytes() != 0 {
            // The copy must run once now, not in each launch of a graph.
            let _call = stream.uncaptured(Operation::Allocate)?;
            copy.copy_from(self)?;
        }
        Ok(copy)
    }

    /// Binds the buffer to another stream of the same context, without blocking.
    ///
    /// Creates an event, records it on the current stream (`cuEventRecord`), and makes the new
    /// stream wait for it (`cuStreamWaitEvent`).
    ///
    /// # Errors
    /// On an error, the buffer stays bound to its stream.
    ///
    /// - [`Invalid::OtherContext`] if the stream belongs to another context.
    /// - [`Invalid::ForeignMemory`] if the buffer does not own its memory, because the lifetime of
    ///   the memory was promised for the original stream.
    /// - [`Invalid::OtherManager`] if the memory is from a memory manager that the stream's context
    ///   does not use.
    /// - [`Invalid::StreamIsCaptured`].
    /// - Errors from the driver.
    ///
    /// Since CUDA 3.2. Raw: [`cuStreamWaitEvent`](fn@cuda_sys::cuStreamWaitEvent).
    #[doc(alias = "cuStreamWaitEvent")]
    pub fn rebind(&mut self, stream: &Stream) -> Result<()> {
        if self.stream() != stream {
            self.follow(stream)?;
            self.memory.set_stream(stream);
        }
        Ok(())
    }

    /// Orders future work on `stream` after all work that was enqueued on the buffer.
    fn follow(&self, stream: &Stream) -> Result<()> {
        let context = self.stream().context();
        same_context("the stream", stream.context(), context)?;
        refuse_if!(self.is_foreign(), Invalid::ForeignMemory);
        refuse_if!(!self.memory.may_move_to(stream), Invalid::OtherManager);
        // The event is private. If other code recorded it again before the wait, the wait would be
        // for a different point in the stream.
        let event = context.event()?;
        // During a capture, neither call would order real execution.
        event.record_uncaptured(self.stream())?;
        stream.wait_private(&event)
    }
}

device_slices!(DeviceBuffer);

#[diagnostic::do_not_recommend]
impl<'a, T: 'static, S: Into<DeviceSlice<'a, T>>> Argument<&[T]> for S {
    #[inline]
    fn bytes(self, index: usize, launch: sealed::Target<'_>) -> Result<CUdeviceptr> {
        let slice = self.into();
        launch.check_stream(index, slice.stream())?;
        Ok(slice.as_raw())
    }
}

#[diagnostic::do_not_recommend]
impl<'a, T: 'static, S: Into<DeviceSliceMut<'a, T>>> Argument<&mut [T]> for S {
    #[inline]
    fn bytes(self, index: usize, launch: sealed::Target<'_>) -> Result<CUdeviceptr> {
        let slice = self.into();
        launch.check_stream(index, slice.stream())?;
        Ok(slice.as_raw())
    }
}

macro_rules! arguments {
    ($($argument:ty => $param:ty;)*) => {$(
        impl<T: 'static> LaunchArgument for $argument {
            type Param = $param;
        }
    )*};
}

arguments! {
    DeviceSlice<'_, T> => &'static [T];
    &DeviceBuffer<T> => &'static [T];
    &MappedBuffer<T> => &'static [T];
    &SharedReader<T> => &'static [T];
    DeviceSliceMut<'_, T> => &'static mut [T];
    &mut DeviceBuffer<T> => &'static mut [T];
    &mut MappedBuffer<T> => &'static mut [T];
}

impl Global {
    /// Returns the variable as a buffer of `T`, bound to `stream`, for stream-ordered copies, fills and
    /// launches.
    ///
    /// The buffer keeps the module loaded. Dropping it frees no memory.
    ///
    /// # Errors
    /// [`Invalid::GlobalLayout`]; the stream belongs to another context.
    ///
    /// # Safety
    /// Kernels access the variable by its name, which this crate cannot see. Until the buffer and every
    /// object created from it are dropped and the work on them is complete:
    /// - Other accesses to the variable, by kernels through its name or by other code, must be ordered
    ///   with respect to the buffer's stream: enqueued on that stream, complete before or waited for by
    ///   that stream, or enqueued on another stream after it has waited for that stream. Reads need no
    ///   order with respect to other reads.
    /// - No other buffer of the variable may exist, unless both are only read.
    /// - Bits written through the buffer must be valid for the module's kernels: for example, an index
    ///   must be in bounds, and a pointer must refer to existing memory.
    pub unsafe fn buffer<T: 'static>(&self, stream: &Stream) -> Result<DeviceBuffer<T>> {
        crate::stream::same_context("the variable", &self.context, stream.context())?;
        let (element, align) = (size_of::<T>(), align_of::<T>());
        let whole = self.size.checked_rem(element) == Some(0);
        if !whole || self.address % align as CUdeviceptr != 0 {
            return Err(Invalid::GlobalLayout {
                name: self.name().to_owned(),
                size: self.size,
                address: self.address,
                element,
                align,
            }
            .into());
        }
        let (len, owner) = (self.size / element, self.clone());
        // SAFETY: the module owns the memory, and `owner` keeps the module loaded. The memory has `len`
        // elements with the required alignment. The caller guarantees that no other code uses it. If
        // `owner` is the last owner of the module, unloading the module waits for all work.
        unsafe { DeviceBuffer::from_foreign(self.address, len, stream, owner) }
    }
}
