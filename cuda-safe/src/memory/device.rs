//! Buffers in device memory.

use super::allocation::{Allocation, Release};
use super::bytes_of;
use super::slice::{self, DeviceSlice, DeviceSliceMut};
use crate::call::{answer, call, without_current};
use crate::capture::Operation;
use crate::error::{Rejected, Result};
use crate::invalid::Invalid;
use crate::manager::Choice;
use crate::release;
use crate::stream::{Stream, same_context};
use bytemuck::NoUninit;
use cuda_sys::CUdeviceptr;
use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;

/// Device memory for `len` elements of `T`, bound to a stream.
///
/// Whatever safe code does with the buffer runs on that stream, and it is freed there; so work on
/// it is in order without waits or events. Another stream in its place is an error that names
/// both; [`rebind`](Self::rebind) moves the buffer to it. Parts are [`slice`](Self::slice)s.
///
/// Stream-ordered memory ([`zeroed`](Self::zeroed), [`from_slice`](Self::from_slice),
/// [`uninit`](Self::uninit)) comes from the device's [memory pool](crate::MemoryPool), or
/// [another](Self::uninit_from_pool), and is freed without a wait.
/// Plain memory ([`plain_zeroed`](Self::plain_zeroed)) is for drivers and devices without pools:
/// freeing it waits for *all* work of the context.
/// Where the context has a [memory manager](crate::manager), both come from that, which says what a
/// free is.
///
/// The bits are the device's: reading them back takes a `T` that any bits make valid
/// ([`AnyBitPattern`](bytemuck::AnyBitPattern)), and writing a `T` without padding ([`NoUninit`]).
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
    /// `cuMemAllocAsync(&address, bytes, stream)`: memory of the pool with whatever is in it.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY`; `CUDA_ERROR_NOT_SUPPORTED` on devices without pools
    /// ([`MEMORY_POOLS_SUPPORTED`](crate::attribute::MEMORY_POOLS_SUPPORTED)); a length that
    /// cannot be addressed; [`Invalid::StreamIsCaptured`].
    ///
    /// Since CUDA 11.2. Raw: [`cuMemAllocAsync`](fn@cuda_sys::cuMemAllocAsync),
    /// [`cuMemFreeAsync`](fn@cuda_sys::cuMemFreeAsync).
    #[doc(alias = "cuMemAllocAsync")]
    #[doc(alias = "cuMemFreeAsync")]
    pub fn uninit(stream: &Stream, len: usize) -> Result<Self> {
        release::drain();
        let bytes = bytes_of::<T>(len)?;
        if bytes == 0 {
            return Ok(Self::own(0, len, stream, Release::Nothing));
        }
        if let Some(choice) = stream.context().choice() {
            return Self::uninit_managed(choice, stream, len, bytes);
        }
        let mut address = 0;
        let allocate = || {
            // SAFETY: the stream is alive, and the pointer is to a local.
            unsafe { answer!(cuMemAllocAsync(&raw mut address, bytes, stream.raw())) }
        };
        let _call = stream.uncaptured(Operation::Allocate)?;
        without_current(stream.context(), allocate)?;
        Ok(Self::own(address, len, stream, Release::Ordered))
    }

    /// Memory of the pool, all bytes 0 once the stream comes to it.
    ///
    /// # Errors
    /// As for [`uninit`](Self::uninit).
    pub fn zeroed(stream: &Stream, len: usize) -> Result<Self> {
        Self::uninit(stream, len)?.into_zeroed()
    }

    /// `cuMemAlloc(&address, bytes)`: plain memory, all bytes 0 once the stream comes to it.
    ///
    /// Freeing it waits for all work of the context.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY`; a length that cannot be addressed; [`Invalid::StreamIsCaptured`].
    ///
    /// Since CUDA 3.2. Raw: [`cuMemAlloc_v2`](fn@cuda_sys::cuMemAlloc_v2),
    /// [`cuMemFree_v2`](fn@cuda_sys::cuMemFree_v2).
    #[doc(alias = "cuMemAlloc")]
    #[doc(alias = "cuMemFree")]
    pub fn plain_zeroed(stream: &Stream, len: usize) -> Result<Self> {
        release::drain();
        let bytes = bytes_of::<T>(len)?;
        if bytes == 0 {
            return Ok(Self::own(0, len, stream, Release::Nothing));
        }
        let _call = stream.uncaptured(Operation::Allocate)?;
        let buffer = match stream.context().choice() {
            None => Self::uninit_plain(stream, len, bytes),
            Some(choice) => Self::uninit_managed(choice, stream, len, bytes),
        };
        buffer?.into_zeroed()
    }

    fn uninit_plain(stream: &Stream, len: usize, bytes: usize) -> Result<Self> {
        let mut address = 0;
        {
            let _current = stream.context().enter()?;
            // SAFETY: the pointer is to a local, and the current context is the stream's.
            unsafe { call!(cuMemAlloc_v2(&raw mut address, bytes)) }?;
        }
        Ok(Self::own(address, len, stream, Release::Plain))
    }

    /// Of the manager that the context has; or plain, while that is being made.
    #[cold]
    #[inline(never)]
    fn uninit_managed(choice: &Choice, stream: &Stream, len: usize, bytes: usize) -> Result<Self> {
        match Allocation::managed(choice, stream, bytes)? {
            Some(memory) => Ok(Self::of_allocation(memory, len)),
            None => Self::uninit_plain(stream, len, bytes),
        }
    }

    /// Stream-ordered memory with a copy of `slice`. Returns when the copy is done.
    ///
    /// # Errors
    /// As for [`uninit`](Self::uninit) and [`copy_from_slice`](Self::copy_from_slice).
    pub fn from_slice(stream: &Stream, slice: &[T]) -> Result<Self>
    where
        T: NoUninit,
    {
        let mut buffer = Self::uninit(stream, slice.len())?;
        buffer.copy_from_slice(slice)?;
        Ok(buffer)
    }

    /// Takes over stream-ordered memory: it is freed with `cuMemFreeAsync` on `stream`.
    ///
    /// # Safety
    /// `address` is the start of an allocation of `cuMemAllocAsync` or its kin (not of
    /// `cuMemAlloc`) that holds `len` elements, is aligned for `T`, is accessible to the stream's
    /// device, and that nobody else frees or uses. Its allocation and its uses up to now, which may
    /// be on other streams, come before what `stream` is given next. Its bits are allowed for `T`, as
    /// far as kernels rely on that.
    pub unsafe fn from_raw(address: CUdeviceptr, len: usize, stream: &Stream) -> Self {
        Self::own(address, len, stream, Release::Ordered)
    }

    /// Memory that somebody else owns: never freed here.
    ///
    /// # Safety
    /// `address` is memory that holds `len` elements, is aligned for `T` and accessible to the
    /// stream's device, and that stays allocated and is used by nobody else until this is gone and
    /// what was given to `stream` before is done. Its allocation and its uses up to now, which may
    /// be on other streams, come before what `stream` is given next. Its bits are allowed for `T`, as
    /// far as kernels rely on that.
    pub unsafe fn borrow_raw(address: CUdeviceptr, len: usize, stream: &Stream) -> Self {
        Self::own(address, len, stream, Release::Borrowed)
    }

    /// Memory that `owner` keeps: never freed here, and `owner` is dropped with this.
    ///
    /// # Safety
    /// As for [`borrow_raw`](Self::borrow_raw), but that it is `owner` that keeps the memory; and
    /// dropping `owner` is in order with, or waits for, what was given to `stream` before. That may
    /// happen on any thread and at any time: also where the driver refuses a free (in a host
    /// function) or a wait (there, or while the stream is captured), so `owner` copes with that.
    pub unsafe fn from_foreign(
        address: CUdeviceptr,
        len: usize,
        stream: &Stream,
        owner: impl Any + Send + Sync,
    ) -> Self {
        Self::own(address, len, stream, Release::Foreign(Box::new(owner)))
    }

    pub(super) fn own(address: CUdeviceptr, len: usize, stream: &Stream, release: Release) -> Self {
        Self::of_allocation(Allocation::new(address, stream, release), len)
    }

    /// The same with all bytes 0: now, and not in each launch of a graph.
    pub(super) fn into_zeroed(mut self) -> Result<Self> {
        let mut all = self.as_mut_slice();
        if all.size_bytes() != 0 {
            let _call = all.stream().uncaptured(Operation::Fill)?;
            all.zero()?;
        }
        Ok(self)
    }

    pub(super) fn of_allocation(memory: Allocation, len: usize) -> Self {
        Self {
            memory,
            len,
            elements: PhantomData,
        }
    }

    /// How its memory goes.
    pub(super) fn release(&self) -> &Release {
        self.memory.release()
    }

    pub(super) fn into_allocation(self) -> Allocation {
        self.memory
    }

    pub(super) fn is_foreign(&self) -> bool {
        self.memory.is_foreign()
    }

    /// The address on the device; 0 if there is no byte.
    pub fn as_raw(&self) -> CUdeviceptr {
        self.memory.address()
    }

    /// Gives the address and the stream out. Freeing is now the caller's: stream-ordered memory
    /// with `cuMemFreeAsync` or [`from_raw`](Self::from_raw), plain memory with `cuMemFree`. The
    /// owner of foreign memory is never dropped. Memory of a [manager](crate::manager) is never freed,
    /// and its context stays.
    pub fn into_raw(self) -> (CUdeviceptr, Stream) {
        self.memory.into_raw()
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes of all elements.
    pub fn size_bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// The stream that all work on the buffer runs on.
    pub fn stream(&self) -> &Stream {
        self.memory.stream()
    }

    /// All of it, to read.
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        DeviceSlice::new(self.as_raw(), self.len, self.stream())
    }

    /// All of it, to read and write.
    pub fn as_mut_slice(&mut self) -> DeviceSliceMut<'_, T> {
        DeviceSliceMut::new(self.as_raw(), self.len, self.stream())
    }

    /// A part, to read.
    ///
    /// # Errors
    /// [`Invalid::Range`]: it is not within the buffer.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<DeviceSlice<'_, T>> {
        self.as_slice().slice(range)
    }

    /// A part, to read and write. Several at once come of [`DeviceSliceMut::split_at`].
    ///
    /// # Errors
    /// [`Invalid::Range`]: it is not within the buffer.
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> Result<DeviceSliceMut<'_, T>> {
        self.as_mut_slice().slice(range)
    }

    /// Binds the buffer to another stream of its context: that makes an event, records it in the
    /// stream up to now (`cuEventRecord`), and lets the new one wait for it (`cuStreamWaitEvent`).
    /// The thread does not wait.
    ///
    /// # Errors
    /// With the buffer given back, as it was: a stream of another context;
    /// [`Invalid::ForeignMemory`], as those who keep it think of the stream that they gave;
    /// [`Invalid::OtherManager`];
    /// [`Invalid::StreamIsCaptured`]; those of the driver.
    ///
    /// Since CUDA 3.2. Raw: [`cuStreamWaitEvent`](fn@cuda_sys::cuStreamWaitEvent).
    #[doc(alias = "cuStreamWaitEvent")]
    pub fn rebind(mut self, stream: &Stream) -> Result<Self, Rejected<Self>> {
        if self.stream() == stream {
            return Ok(self);
        }
        match self.follow(stream) {
            Ok(()) => {
                self.memory.set_stream(stream);
                Ok(self)
            }
            Err(error) => Err(Rejected::new(error, self)),
        }
    }

    /// Puts what `stream` is given from now on behind all that was done with the buffer.
    fn follow(&self, stream: &Stream) -> Result<()> {
        let context = self.stream().context();
        same_context("the stream", stream.context(), context)?;
        if self.is_foreign() {
            return Err(Invalid::ForeignMemory.into());
        }
        if !self.memory.may_move_to(stream) {
            return Err(Invalid::OtherManager.into());
        }
        // Ours alone: recorded by somebody else in between, it would be another order.
        let event = context.event()?;
        // In a capture neither would order real work.
        event.record_uncaptured(self.stream())?;
        stream.wait_private(&event)
    }
}

impl<'a, T> From<&'a DeviceBuffer<T>> for DeviceSlice<'a, T> {
    fn from(buffer: &'a DeviceBuffer<T>) -> Self {
        buffer.as_slice()
    }
}

impl<'a, T> From<&'a mut DeviceBuffer<T>> for DeviceSlice<'a, T> {
    fn from(buffer: &'a mut DeviceBuffer<T>) -> Self {
        buffer.as_slice()
    }
}

impl<'a, T> From<&'a mut DeviceBuffer<T>> for DeviceSliceMut<'a, T> {
    fn from(buffer: &'a mut DeviceBuffer<T>) -> Self {
        buffer.as_mut_slice()
    }
}

impl<T> fmt::Debug for DeviceBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        slice::debug("DeviceBuffer", &self.as_slice(), f)
    }
}
