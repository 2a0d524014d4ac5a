//! Managed memory: one address for host and device.

mod batch;
mod range;

pub use range::{Advice, ManagedRange, RangeInfo};

use super::allocation::{Allocation, Managed, Release};
use super::bytes_of;
use super::slice::{self, DeviceSlice, DeviceSliceMut, within};
use crate::attribute::CONCURRENT_MANAGED_ACCESS;
use crate::call::{answer, call, without_current};
use crate::capture::Operation;
use crate::device::Device;
use crate::error::{Rejected, Result};
use crate::release;
use crate::stream::Stream;
use bytemuck::AnyBitPattern;
use cuda_sys::{CUdeviceptr, CUmemAttach_flags};
use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// `cuMemAllocManaged`: memory at one address for host and device, which the driver moves to where
/// it is used; bound to a stream.
///
/// The device has it as a slice, by [`device`](Self::device) and [`device_mut`](Self::device_mut),
/// in the order of the stream. The host has it by [`host`](Self::host), which waits for the stream.
/// Parts can be [prefetched and advised on](ManagedRange).
///
/// There are systems (Windows, WSL, some small devices) where the host may not touch such memory
/// while kernels run: [`CONCURRENT_MANAGED_ACCESS`] is false for the device. There the buffer is
/// attached (`cuStreamAttachMemAsync`) to the host by `host`, and to the stream by the next
/// `device`; which is one more call of the driver each. Copies to plain slices
/// ([`DeviceSlice::to_vec`] and its kin) are refused by the driver there, as they are made in
/// another stream. Elsewhere nothing is attached to anything.
///
/// Freeing it waits for *all* running work. (Where the context has a [memory manager](crate::manager),
/// that allocates and frees.)
///
/// ```no_run
/// use cuda_safe::{Context, Device, ManagedBuffer, MemoryLocation};
///
/// let device = Device::get(0)?;
/// let stream = Context::primary(&device)?.stream()?;
/// let mut buffer = ManagedBuffer::<i32>::zeroed(&stream, 1000)?;
/// buffer.host()?.fill(3);
/// buffer.range(..)?.prefetch(MemoryLocation::Device(device))?;
/// buffer.device_mut()?.fill(4)?; // or a launch with buffer.device_mut()? as an argument
/// assert_eq!(buffer.host()?[999], 4);
/// # Ok::<_, cuda_safe::Error>(())
/// ```
pub struct ManagedBuffer<T> {
    memory: Allocation,
    len: usize,
    /// Whether the stream has the memory; none where host and device both may.
    stream_has_it: Option<AtomicBool>,
    elements: PhantomData<T>,
}

impl<T: AnyBitPattern> ManagedBuffer<T> {
    /// `cuMemAllocManaged(&address, bytes, flags)`: managed memory, all bytes 0 once the stream
    /// comes to it.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY`; `CUDA_ERROR_NOT_SUPPORTED`
    /// ([`MANAGED_MEMORY`](crate::attribute::MANAGED_MEMORY)); a length that cannot be addressed.
    ///
    /// Since CUDA 6.0. Raw: [`cuMemAllocManaged`](fn@cuda_sys::cuMemAllocManaged).
    #[doc(alias = "cuMemAllocManaged")]
    pub fn zeroed(stream: &Stream, len: usize) -> Result<Self> {
        let mut buffer = Self::allocate(stream, len)?;
        let mut all = buffer.device_mut()?;
        // The host is to see zeros, which a recording would not make.
        let _call = stream.uncaptured(Operation::Fill)?;
        all.zero()?;
        Ok(buffer)
    }

    /// `cuMemAllocManaged(&address, bytes, flags)`, with a copy of `slice`, which the host writes: nothing is given to the
    /// stream.
    ///
    /// # Errors
    /// As for [`zeroed`](Self::zeroed).
    ///
    /// Since CUDA 6.0. Raw: [`cuMemAllocManaged`](fn@cuda_sys::cuMemAllocManaged).
    #[doc(alias = "cuMemAllocManaged")]
    pub fn from_slice(stream: &Stream, slice: &[T]) -> Result<Self> {
        let buffer = Self::allocate(stream, slice.len())?;
        if buffer.size_bytes() != 0 {
            let to = buffer.host_address();
            // SAFETY: the memory is as long, and elsewhere; it was just allocated for the host to
            // use at any time, and the device has not been given it yet.
            unsafe { std::ptr::copy_nonoverlapping(slice.as_ptr(), to, slice.len()) };
        }
        Ok(buffer)
    }

    /// Memory with whatever is in it, which the host may touch until the stream is given it.
    fn allocate(stream: &Stream, len: usize) -> Result<Self> {
        release::drain();
        let bytes = bytes_of::<T>(len)?;
        let concurrent = stream
            .context()
            .device()
            .attribute(CONCURRENT_MANAGED_ACCESS)?;
        let mut address = 0;
        let mut release = Release::Nothing;
        let manager = stream.context().memory_manager()?.filter(|_| bytes != 0);
        if let Some(manager) = manager {
            let global = first_attached() == CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL;
            let block = manager.allocate_managed(bytes, global)?;
            address = block.address;
            release = Release::Managed(Managed {
                size: block.size,
                token: block.token,
                migrates: true,
            });
        } else if bytes != 0 {
            let flags = first_attached().0;
            let _current = stream.context().enter()?;
            // SAFETY: the pointer is to a local, and the current context is the stream's.
            unsafe { call!(cuMemAllocManaged(&raw mut address, bytes, flags)) }?;
            release = Release::Plain;
        }
        Ok(Self::own(address, len, stream, release, concurrent))
    }

    /// Takes over managed memory: it is freed with `cuMemFree`.
    ///
    /// # Errors
    /// The device does not tell whether it and the host may touch managed memory at once; then the
    /// memory is still the caller's.
    ///
    /// # Safety
    /// `address` is the start of an allocation of `cuMemAllocManaged` that holds `len` elements and
    /// is aligned for `T`, that nobody else frees or uses, and whose uses on devices up to now come
    /// before what `stream` is given next. On a device without
    /// [`CONCURRENT_MANAGED_ACCESS`] it is not attached to all streams (`CU_MEM_ATTACH_GLOBAL`).
    pub unsafe fn from_raw(address: CUdeviceptr, len: usize, stream: &Stream) -> Result<Self> {
        let concurrent = concurrent_access(stream)?;
        Ok(Self::own(address, len, stream, Release::Plain, concurrent))
    }

    /// Managed memory that somebody else owns: never freed here.
    ///
    /// # Errors
    /// As for [`from_raw`](Self::from_raw).
    ///
    /// # Safety
    /// As for [`from_raw`](Self::from_raw), but that the memory may be a part of an allocation where
    /// the device has [`CONCURRENT_MANAGED_ACCESS`], and that it stays allocated and is used by
    /// nobody else until this is gone and what was given to `stream` before is done.
    pub unsafe fn borrow_raw(address: CUdeviceptr, len: usize, stream: &Stream) -> Result<Self> {
        let concurrent = concurrent_access(stream)?;
        let release = Release::Borrowed;
        Ok(Self::own(address, len, stream, release, concurrent))
    }

    /// Managed memory that `owner` keeps: never freed here, and `owner` is dropped with this.
    ///
    /// # Errors
    /// As for [`from_raw`](Self::from_raw); the owner is given back.
    ///
    /// # Safety
    /// As for [`borrow_raw`](Self::borrow_raw), but that it is `owner` that keeps the memory; and
    /// dropping `owner` is in order with, or waits for, what was given to `stream` before.
    pub unsafe fn from_foreign<O: Any + Send + Sync>(
        address: CUdeviceptr,
        len: usize,
        stream: &Stream,
        owner: O,
    ) -> Result<Self, Rejected<O>> {
        match concurrent_access(stream) {
            Ok(concurrent) => {
                let release = Release::Foreign(Box::new(owner));
                Ok(Self::own(address, len, stream, release, concurrent))
            }
            Err(error) => Err(Rejected::new(error, owner)),
        }
    }

    fn own(
        address: CUdeviceptr,
        len: usize,
        stream: &Stream,
        release: Release,
        concurrent: bool,
    ) -> Self {
        Self {
            memory: Allocation::new(address, stream, release),
            len,
            stream_has_it: (!concurrent).then(|| AtomicBool::new(false)),
            elements: PhantomData,
        }
    }

    /// The elements, for the host: waits for the stream (and `cuStreamAttachMemAsync`, where the
    /// device then has to keep away).
    ///
    /// # Errors
    /// Those of the work given to the stream.
    ///
    /// Since CUDA 6.0. Raw: [`cuStreamAttachMemAsync`](fn@cuda_sys::cuStreamAttachMemAsync).
    #[doc(alias = "cuStreamAttachMemAsync")]
    pub fn host(&mut self) -> Result<&mut [T]> {
        release::drain();
        if self.size_bytes() != 0 {
            if let Some(stream_has_it) = &self.stream_has_it {
                // Should the call fail nobody knows who has it, and the next use asks again.
                stream_has_it.store(false, Ordering::Release);
                self.attach(CUmemAttach_flags::CU_MEM_ATTACH_HOST)?;
            }
        }
        self.stream().wait_for_work()?;
        if self.size_bytes() == 0 {
            let none = std::ptr::NonNull::<T>::dangling().as_ptr();
            // SAFETY: there is no byte, so any aligned address will do.
            return Ok(unsafe { std::slice::from_raw_parts_mut(none, self.len) });
        }
        // SAFETY: there are `len` elements (any bits are a `T`) from there on, aligned as pages
        // are. All work on them that was given to the device is done; what is given to it takes
        // them from this buffer, which is borrowed mutably for as long as the slice. Where the host
        // must keep away while other work runs, the memory is attached to the host.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.host_address(), self.len) })
    }
}

impl<T> ManagedBuffer<T> {
    /// All of it as device memory, to read (with `cuStreamAttachMemAsync`, where the host had it
    /// alone).
    ///
    /// # Errors
    /// Those of attaching it to the stream, where that has to be; elsewhere none.
    ///
    /// Since CUDA 6.0. Raw: [`cuStreamAttachMemAsync`](fn@cuda_sys::cuStreamAttachMemAsync).
    #[doc(alias = "cuStreamAttachMemAsync")]
    pub fn device(&self) -> Result<DeviceSlice<'_, T>> {
        self.give_to_stream()?;
        Ok(DeviceSlice::new(self.as_raw(), self.len, self.stream()))
    }

    /// All of it as device memory, to read and write.
    ///
    /// # Errors
    /// As for [`device`](Self::device).
    pub fn device_mut(&mut self) -> Result<DeviceSliceMut<'_, T>> {
        self.give_to_stream()?;
        Ok(DeviceSliceMut::new(self.as_raw(), self.len, self.stream()))
    }

    /// A part of it, to advise on and prefetch. The elements share pages with their neighbours,
    /// which the driver moves whole.
    ///
    /// # Errors
    /// [`Invalid::Range`](crate::Invalid::Range): it is not within the buffer.
    pub fn range(&self, elements: impl RangeBounds<usize>) -> Result<ManagedRange<'_>> {
        let (start, end) = within(&elements, self.len)?;
        Ok(ManagedRange::new(
            self.as_raw() + (start * size_of::<T>()) as u64,
            (end - start) * size_of::<T>(),
            self.stream(),
        ))
    }

    /// The address, for host and device; 0 if there is no byte.
    pub fn as_raw(&self) -> CUdeviceptr {
        self.memory.address()
    }

    /// Gives the address and the stream out. Freeing is now the caller's, with `cuMemFree`.
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

    /// The stream that all work on the memory runs on.
    pub fn stream(&self) -> &Stream {
        self.memory.stream()
    }

    fn host_address(&self) -> *mut T {
        // Of an address in this process, as managed memory has them.
        #[allow(clippy::cast_possible_truncation, reason = "the crate is for 64 bits")]
        std::ptr::with_exposed_provenance_mut(self.as_raw() as usize)
    }

    /// Attaches the memory to the stream, if it has to be and is not.
    fn give_to_stream(&self) -> Result<()> {
        match &self.stream_has_it {
            Some(stream_has_it) if self.size_bytes() != 0 => {
                if !stream_has_it.load(Ordering::Acquire) {
                    // Two threads at once do this twice, which is as good.
                    self.attach(CUmemAttach_flags::CU_MEM_ATTACH_SINGLE)?;
                    stream_has_it.store(true, Ordering::Release);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Attaches all of the memory, in the order of its stream.
    fn attach(&self, to: CUmemAttach_flags) -> Result<()> {
        let (stream, address) = (self.stream().raw(), self.as_raw());
        let attach = || {
            // SAFETY: the memory is managed, and starts there; all work on it is this stream's.
            unsafe { answer!(cuStreamAttachMemAsync(stream, address, 0, to.0)) }
        };
        let context = self.stream().context();
        let _call = self.stream().uncaptured(Operation::Attach)?;
        without_current(context, attach)
    }
}

/// Who has memory at first: all, if no device has to keep away while the host has it; else the host,
/// whichever stream it is bound to, until it is attached to that.
///
/// To devices that need not keep away either means the same; but compute-sanitizer takes what they do
/// with the host's for a mistake.
fn first_attached() -> CUmemAttach_flags {
    static ALL_CONCURRENT: OnceLock<bool> = OnceLock::new();
    let ask = || {
        let is_concurrent = |device: Device| device.attribute(CONCURRENT_MANAGED_ACCESS);
        let devices = Device::all().unwrap_or_default();
        // Where one does not tell, the host has the memory, which is right for all.
        !devices.is_empty()
            && devices
                .into_iter()
                .all(|its| is_concurrent(its).unwrap_or(false))
    };
    // No thread waits for another one's calls of the driver.
    let known = ALL_CONCURRENT.get().copied().unwrap_or_else(ask);
    if *ALL_CONCURRENT.get_or_init(|| known) {
        CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL
    } else {
        CUmemAttach_flags::CU_MEM_ATTACH_HOST
    }
}

/// Whether a stream's device and the host may touch managed memory at once.
fn concurrent_access(stream: &Stream) -> Result<bool> {
    stream
        .context()
        .device()
        .attribute(CONCURRENT_MANAGED_ACCESS)
}

impl<T> fmt::Debug for ManagedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = DeviceSlice::<T>::new(self.as_raw(), self.len, self.stream());
        slice::debug("ManagedBuffer", &all, f)
    }
}
