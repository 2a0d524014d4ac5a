//! Managed memory, which host and device access at the same address.

mod range;

pub use range::{Advice, ManagedRange, RangeInfo};

use super::buffer::allocation::{Managed, Release};
use super::buffer::slice;
use super::{DeviceBuffer, DeviceSlice, DeviceSliceMut};
use crate::call::{Result, answer, bytes_of, call, debug, expect_memory, out, without_current};
use crate::capture_state::Operation;
use crate::device::Device;
use crate::device::attribute::CONCURRENT_MANAGED_ACCESS;
use crate::manager::Block;
use crate::release;
use crate::stream::Stream;
use bytemuck::AnyBitPattern;
use cuda_sys::{CUdeviceptr, CUmemAttach_flags};
use std::any::Any;
use std::ops::RangeBounds;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// An owned buffer in managed memory, bound to a stream. Host and device access it at the same
/// address, and the driver migrates it to where it is used.
///
/// Allocated with `cuMemAllocManaged` by [`zeroed`](Self::zeroed) or
/// [`from_slice`](Self::from_slice). [`device`](Self::device) and [`device_mut`](Self::device_mut)
/// return slices for work on the stream. [`host`](Self::host) waits for the stream and returns a
/// host slice. [`range`](Self::range) returns a part of the buffer that can be [prefetched and
/// advised on](ManagedRange).
///
/// On some systems (Windows, WSL, some small devices) the host must not access managed memory while
/// kernels run. [`CONCURRENT_MANAGED_ACCESS`] is false for such a device. There, `host` attaches
/// the buffer to the host (`cuStreamAttachMemAsync`), and the next `device` attaches it to the
/// stream. Each of these is one additional driver call. On these systems the driver also rejects
/// synchronous copies to ordinary slices, such as [`DeviceSlice::to_vec`], because these copies run
/// on another stream. On all other systems nothing is attached.
///
/// Freeing the memory waits for *all* running work. If the context has a [memory
/// manager](crate::manager), the manager allocates and frees the memory.
///
/// ```no_run
/// use cuda_safe::{Context, Device};
/// use cuda_safe::memory::{ManagedBuffer, MemoryLocation};
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
    buffer: DeviceBuffer<T>,
    /// Whether the memory is attached to the stream, or `None` if host and device may access it
    /// concurrently.
    attached_to_stream: Option<AtomicBool>,
}

impl<T: AnyBitPattern> ManagedBuffer<T> {
    /// Allocates managed memory and enqueues a fill that sets all bytes to 0.
    ///
    /// Calls `cuMemAllocManaged(&address, bytes, flags)`.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    /// - `CUDA_ERROR_NOT_SUPPORTED` on devices without managed memory
    ///   ([`MANAGED_MEMORY`](crate::device::attribute::MANAGED_MEMORY)).
    /// - [`Invalid::TooLarge`](crate::Invalid::TooLarge) if `len` elements do not fit in the
    ///   address space.
    /// - [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured).
    ///
    /// Since CUDA 6.0. Raw: [`cuMemAllocManaged`](fn@cuda_sys::cuMemAllocManaged).
    #[doc(alias = "cuMemAllocManaged")]
    pub fn zeroed(stream: &Stream, len: usize) -> Result<Self> {
        let mut buffer = Self::allocate(stream, len)?;
        let mut all = buffer.device_mut()?;
        // The host must see zeros, and a captured fill would not run now.
        let _call = stream.uncaptured(Operation::Fill)?;
        all.zero()?;
        Ok(buffer)
    }

    /// Allocates managed memory and copies `slice` to it. The host itself copies, so it waits for
    /// no work on the stream.
    ///
    /// Calls `cuMemAllocManaged(&address, bytes, flags)`.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    /// - `CUDA_ERROR_NOT_SUPPORTED` on devices without managed memory
    ///   ([`MANAGED_MEMORY`](crate::device::attribute::MANAGED_MEMORY)).
    ///
    /// Since CUDA 6.0. Raw: [`cuMemAllocManaged`](fn@cuda_sys::cuMemAllocManaged).
    #[doc(alias = "cuMemAllocManaged")]
    pub fn from_slice(stream: &Stream, slice: &[T]) -> Result<Self> {
        let buffer = Self::allocate(stream, slice.len())?;
        if buffer.size_bytes() != 0 {
            let to = buffer.host_address();
            // SAFETY: both sides have the same length and do not overlap. The memory was just
            // allocated in a state in which the host may access it at any time, and no device work
            // uses it yet.
            unsafe { std::ptr::copy_nonoverlapping(slice.as_ptr(), to, slice.len()) };
        }
        Ok(buffer)
    }

    /// Allocates uninitialized memory, which the host may access until it is attached to the
    /// stream.
    fn allocate(stream: &Stream, len: usize) -> Result<Self> {
        release::drain();
        let bytes = bytes_of::<T>(len)?;
        let concurrent = stream.context().device().attribute(CONCURRENT_MANAGED_ACCESS)?;
        let manager = stream.context().memory_manager()?;
        let (address, release) = if bytes == 0 {
            (0, Release::Nothing)
        } else if let Some(manager) = manager {
            let global = initial_attachment() == CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL;
            let Block { address, size, token } = manager.allocate_managed(bytes, global)?;
            (address, Release::Managed(Managed { size, token, migrates: true }))
        } else {
            let flags = initial_attachment().0;
            let _current = stream.context().enter()?;
            // SAFETY: the pointer is valid, and the current context is the stream's context.
            let address = out(|place| unsafe { call!(cuMemAllocManaged(place, bytes, flags)) })
                .map_err(|error| error.with_requested_bytes(bytes))?;
            (address, Release::Sync)
        };
        Ok(Self::of_buffer(DeviceBuffer::own(address, len, stream, release), concurrent))
    }

    /// Takes ownership of managed memory. The memory is freed with `cuMemFree`.
    ///
    /// # Errors
    /// [`Invalid::Handle`](crate::Invalid::Handle) if the address is 0 and the buffer has bytes;
    /// [`Invalid::TooLarge`](crate::Invalid::TooLarge); an error from the driver if
    /// [`CONCURRENT_MANAGED_ACCESS`] cannot be queried. The caller then keeps ownership of the memory.
    ///
    /// # Safety
    /// - `address` is the start of an allocation made with `cuMemAllocManaged` that holds `len`
    ///   elements and is aligned for `T`. It may be 0 if the buffer has no bytes.
    /// - No other code frees or uses the memory.
    /// - All previous uses of the memory on devices are ordered before the work that is enqueued on
    ///   `stream` from now on.
    /// - On a device without [`CONCURRENT_MANAGED_ACCESS`], the memory is not attached to all
    ///   streams (`CU_MEM_ATTACH_GLOBAL`).
    pub unsafe fn from_raw(address: CUdeviceptr, len: usize, stream: &Stream) -> Result<Self> {
        expect_memory::<T>(address, len)?;
        let concurrent = concurrent_access(stream)?;
        let release = match address {
            // The address of a buffer without bytes.
            0 => Release::Nothing,
            _ => Release::Sync,
        };
        Ok(Self::of_buffer(DeviceBuffer::own(address, len, stream, release), concurrent))
    }

    /// Borrows managed memory that other code owns. The memory is never freed by this buffer.
    ///
    /// # Errors
    /// See [`from_raw`](Self::from_raw).
    ///
    /// # Safety
    /// The requirements of [`from_raw`](Self::from_raw) apply, with two differences:
    ///
    /// - If the device has [`CONCURRENT_MANAGED_ACCESS`], the memory may be a part of an
    ///   allocation.
    /// - The memory stays allocated, and no other code uses it, until this buffer has been dropped
    ///   and the work enqueued on `stream` before the drop has completed.
    pub unsafe fn borrow_raw(address: CUdeviceptr, len: usize, stream: &Stream) -> Result<Self> {
        // SAFETY: the caller promises more.
        let buffer = unsafe { DeviceBuffer::borrow_raw(address, len, stream) }?;
        Ok(Self::of_buffer(buffer, concurrent_access(stream)?))
    }

    /// Uses managed memory that `owner` keeps allocated. The buffer never frees the memory;
    /// dropping the buffer drops `owner`.
    ///
    /// # Errors
    /// See [`from_raw`](Self::from_raw). On an error, `owner` is dropped; to keep it, pass a clone of an
    /// `Arc`.
    ///
    /// # Safety
    /// The requirements of [`borrow_raw`](Self::borrow_raw) apply, except that `owner` keeps the
    /// memory allocated. In addition, dropping `owner` waits for the work enqueued on `stream`
    /// before, or is ordered after this work.
    pub unsafe fn from_foreign(
        address: CUdeviceptr,
        len: usize,
        stream: &Stream,
        owner: impl Any + Send + Sync,
    ) -> Result<Self> {
        // SAFETY: the caller promises more.
        let buffer = unsafe { DeviceBuffer::from_foreign(address, len, stream, owner) }?;
        Ok(Self::of_buffer(buffer, concurrent_access(stream)?))
    }

    fn of_buffer(buffer: DeviceBuffer<T>, concurrent: bool) -> Self {
        Self { buffer, attached_to_stream: (!concurrent).then(|| AtomicBool::new(false)) }
    }

    /// Waits for the stream and returns the elements as a host slice.
    ///
    /// Where host and device may not access the memory concurrently, attaches it to the host first
    /// (`cuStreamAttachMemAsync`).
    ///
    /// # Errors
    /// Errors from the work on the stream, and from attaching the memory to the host.
    ///
    /// Since CUDA 6.0. Raw: [`cuStreamAttachMemAsync`](fn@cuda_sys::cuStreamAttachMemAsync).
    #[doc(alias = "cuStreamAttachMemAsync")]
    pub fn host(&mut self) -> Result<&mut [T]> {
        release::drain();
        if self.size_bytes() != 0 {
            if let Some(attached_to_stream) = &self.attached_to_stream {
                // If the call fails, the attachment is unknown, and the next use attaches the
                // memory again.
                attached_to_stream.store(false, Ordering::Release);
                self.attach(CUmemAttach_flags::CU_MEM_ATTACH_HOST)?;
            }
        }
        self.stream().wait_for_work()?;
        if self.size_bytes() == 0 {
            let none = std::ptr::NonNull::<T>::dangling().as_ptr();
            // SAFETY: the slice has no bytes, so any aligned address is valid.
            return Ok(unsafe { std::slice::from_raw_parts_mut(none, self.len()) });
        }
        // SAFETY: there are `len` elements at this address, every bit pattern is a valid `T`, and
        // the memory is aligned to pages. All device work on the elements has completed. New device
        // work would have to borrow this buffer, which is mutably borrowed for as long as the slice
        // exists. Where the host must not access the memory while other work runs, the memory is
        // attached to the host.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.host_address(), self.len()) })
    }
}

impl<T> ManagedBuffer<T> {
    /// Borrows the whole buffer as device memory, for reading.
    ///
    /// Where host and device may not access the memory concurrently, attaches it to the stream
    /// first (`cuStreamAttachMemAsync`), unless it is already attached.
    ///
    /// # Errors
    /// Errors from attaching the memory to the stream, if that is necessary. Otherwise none.
    ///
    /// Since CUDA 6.0. Raw: [`cuStreamAttachMemAsync`](fn@cuda_sys::cuStreamAttachMemAsync).
    #[doc(alias = "cuStreamAttachMemAsync")]
    pub fn device(&self) -> Result<DeviceSlice<'_, T>> {
        self.attach_to_stream()?;
        Ok(self.buffer.as_slice())
    }

    /// Borrows the whole buffer as device memory, for reading and writing.
    ///
    /// # Errors
    /// See [`device`](Self::device).
    pub fn device_mut(&mut self) -> Result<DeviceSliceMut<'_, T>> {
        self.attach_to_stream()?;
        Ok(self.buffer.as_mut_slice())
    }

    /// Returns a part of the buffer, for advice and prefetches.
    ///
    /// The driver migrates whole pages, so neighboring elements on the same page are migrated too.
    ///
    /// # Errors
    /// [`Invalid::Range`](crate::Invalid::Range) if the range is not within the buffer.
    pub fn range(&self, elements: impl RangeBounds<usize>) -> Result<ManagedRange<'_>> {
        let part = self.buffer.slice(elements)?;
        Ok(ManagedRange::new(part.as_raw(), part.size_bytes(), part.stream()))
    }

    /// Returns the address, which is the same for host and device, or 0 if the buffer has no bytes.
    pub fn as_raw(&self) -> CUdeviceptr {
        self.buffer.as_raw()
    }

    /// Releases ownership and returns the address and the stream. The caller must free the memory
    /// with `cuMemFree`. Memory from a [memory manager](crate::manager) is never freed, and its
    /// context is never released.
    pub fn into_raw(self) -> (CUdeviceptr, Stream) {
        self.buffer.into_raw()
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Returns whether the buffer has no elements.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Returns the size of all elements in bytes.
    pub fn size_bytes(&self) -> usize {
        self.buffer.size_bytes()
    }

    /// Returns the stream that the buffer is bound to.
    pub fn stream(&self) -> &Stream {
        self.buffer.stream()
    }

    fn host_address(&self) -> *mut T {
        // The address is valid in this process, because managed memory has the same address for
        // host and device.
        #[allow(clippy::cast_possible_truncation, reason = "64-bit targets only")]
        std::ptr::with_exposed_provenance_mut(self.as_raw() as usize)
    }

    /// Attaches the memory to the stream if this is required and has not been done yet.
    fn attach_to_stream(&self) -> Result<()> {
        match &self.attached_to_stream {
            Some(attached_to_stream) if self.size_bytes() != 0 => {
                if !attached_to_stream.load(Ordering::Acquire) {
                    // If two threads get here at once, both attach the memory, which is harmless.
                    self.attach(CUmemAttach_flags::CU_MEM_ATTACH_SINGLE)?;
                    attached_to_stream.store(true, Ordering::Release);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Enqueues an operation that attaches all of the memory.
    fn attach(&self, to: CUmemAttach_flags) -> Result<()> {
        let (stream, address) = (self.stream().raw(), self.as_raw());
        let attach = || {
            // SAFETY: the memory is managed and starts at this address, and all work on it is
            // enqueued on this stream.
            unsafe { answer!(cuStreamAttachMemAsync(stream, address, 0, to.0)) }
        };
        let context = self.stream().context();
        let _call = self.stream().uncaptured(Operation::Attach)?;
        without_current(context, attach)
    }
}

/// Returns the initial attachment of managed memory: global if all devices support concurrent
/// access, and otherwise the host, until the memory is attached to its stream.
///
/// For devices with concurrent access both have the same effect, but compute-sanitizer reports
/// device accesses to memory that is attached to the host as errors.
#[inline]
fn initial_attachment() -> CUmemAttach_flags {
    static ALL_CONCURRENT: OnceLock<bool> = OnceLock::new();
    let ask = || {
        let is_concurrent = |device: Device| device.attribute(CONCURRENT_MANAGED_ACCESS);
        let devices = Device::all().unwrap_or_default();
        // If a device does not answer, attach the memory to the host, which is correct for all
        // devices.
        !devices.is_empty() && devices.into_iter().all(|its| is_concurrent(its).unwrap_or(false))
    };
    // No thread waits here for another thread's driver calls.
    let known = ALL_CONCURRENT.get().copied().unwrap_or_else(ask);
    if *ALL_CONCURRENT.get_or_init(|| known) {
        CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL
    } else {
        CUmemAttach_flags::CU_MEM_ATTACH_HOST
    }
}

/// Returns whether the stream's device and the host may access managed memory concurrently.
#[inline]
fn concurrent_access(stream: &Stream) -> Result<bool> {
    stream.context().device().attribute(CONCURRENT_MANAGED_ACCESS)
}

debug! { [T] ManagedBuffer<T> |its, f| slice::debug("ManagedBuffer", &its.buffer.as_slice(), f) }
