//! Buffers that grow without moving.

use super::mapping::{AccessList, MappedRange, Reservation, obstacle};
use super::physical::{PhysicalMemory, PhysicalOptions, check_multiple, round_up};
use crate::call::{Answer, Invalid, Result, answer, bytes_of, count_leak, refuse_if};
use crate::device::Device;
use crate::event::{Event, LastUse};
use crate::launch::LaunchArgument;
use crate::memory::buffer::slice::device_slices;
use crate::memory::pool::MemoryAccess;
use crate::memory::{DeviceSlice, DeviceSliceMut, MemoryLocation};
use crate::release::{self, Destroy, Keep, Leftover, may_block, release};
use crate::stream::Stream;
use crate::sync::{self, Condvar, Mutex, MutexGuard};
use bytemuck::NoUninit;
use cuda_sys::{CUdeviceptr, CUresult};
use std::marker::PhantomData;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Device memory whose length changes without a copy: it never moves. Bound to a stream.
///
/// The buffer reserves addresses for its capacity, and maps physical memory to the part that is in use.
/// Growing allocates and maps more memory, and takes about 40 µs for each step; shrinking unmaps memory
/// after the work on the stream, without blocking. Addresses stay valid while the buffer exists, so
/// pointers that kernels have stored remain correct.
///
/// The memory of one buffer lies in several mappings. Raw calls that copy across them need a current context:
/// without one, driver 580 rejects copies to and from host memory with `CUDA_ERROR_INVALID_VALUE`.
///
/// Use it where the final length is unknown, such as a cache of keys and values; memory that is allocated
/// and freed often belongs to a [pool](crate::memory::MemoryPool).
///
/// # Drop
/// Dropping does not block: the memory is unmapped after the work on the stream. If the stream is
/// [borrowed](Stream::borrow_raw), the drop waits.
///
/// ```no_run
/// use cuda_safe::virtual_memory::GrowableBuffer;
/// use cuda_safe::{Context, Device};
///
/// let stream = Context::primary(&Device::get(0)?)?.stream()?;
/// // Addresses for 2^38 elements take no memory.
/// let mut buffer = GrowableBuffer::<f32>::new(&stream, 1 << 38)?;
/// let start = buffer.as_raw();
/// buffer.extend_from_slice(&[1.0, 2.0])?;
/// buffer.resize_zeroed(10_000_000)?;
/// assert_eq!(buffer.as_raw(), start);
/// buffer.truncate(2)?;
/// assert_eq!(buffer.as_slice().to_vec()?, [1.0, 2.0]);
/// # Ok::<_, cuda_safe::Error>(())
/// ```
pub struct GrowableBuffer<T> {
    space: Arc<Space>,
    stream: Stream,
    /// Recorded when the buffer is dropped. It exists before, because a drop must not fail.
    end: Event,
    len: usize,
    elements: PhantomData<T>,
}

/// Options for [`GrowableBuffer::with`].
///
/// Later versions may add fields: end each value with `..Default::default()`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrowableOptions {
    /// The smallest amount of memory that is mapped at a time, in bytes. 0 means the
    /// [granularity](PhysicalOptions::granularity). A larger step makes growing faster.
    pub step: usize,
    /// The options of the memory. `None` means memory on the device of the stream that is not shareable.
    pub memory: Option<PhysicalOptions>,
    /// Other devices that can read and write the memory.
    pub peers: Vec<Device>,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

/// The addresses and the memory of a growable buffer.
struct Space {
    reservation: Reservation,
    options: PhysicalOptions,
    granularity: usize,
    step: usize,
    /// The access to each mapping.
    access: AccessList,
    mapped: Mutex<Mapped>,
    /// Notified when [`Mapped::is_unmapping`] ends.
    has_unmapped: Condvar,
}

/// How long a growth waits for a call that unmaps memory. The call takes microseconds, unless it fails and a
/// closure of the driver's log blocks.
const LIMIT: Duration = Duration::from_secs(10);

/// The mapped part of the space.
#[derive(Default)]
struct Mapped {
    /// Adjacent ranges from the start of the reservation.
    ranges: Vec<MappedRange>,
    /// The number of bytes from the start that must stay mapped.
    required: usize,
    /// The number of times that the buffer has shrunk.
    shrinks: u64,
    /// Whether a thread unmaps the last range, without the lock.
    is_unmapping: bool,
}

impl Mapped {
    #[inline]
    fn end(&self) -> usize {
        self.ranges.last().map_or(0, MappedRange::end)
    }

    /// Returns whether a thread unmaps some of the first `bytes`.
    #[inline]
    fn unmaps_below(&self, bytes: usize) -> bool {
        let last = self.ranges.last();
        self.is_unmapping && last.is_some_and(|last| last.offset < bytes)
    }

    /// Returns the last range if nothing in it must stay mapped.
    #[inline]
    fn unused(&self) -> Option<&MappedRange> {
        let last = self.ranges.last();
        last.filter(|last| last.offset >= self.required)
    }
}

impl Space {
    #[inline]
    fn lock(&self) -> MutexGuard<'_, Mapped> {
        sync::lock(&self.mapped)
    }

    /// Requires this number of bytes. Returns how many are mapped, which is final: waits if another thread
    /// unmaps some of them.
    ///
    /// # Errors
    /// [`Invalid::MemoryIsBeingUnmapped`].
    #[inline]
    fn require_mapped(&self, bytes: usize) -> Result<usize> {
        let refused = || Err(Invalid::MemoryIsBeingUnmapped.into());
        let require = || {
            let mut mapped = self.lock();
            mapped.required = mapped.required.max(bytes);
            mapped
        };
        let mut mapped = require();
        if mapped.unmaps_below(bytes) {
            drop(mapped);
            // This can be a closure of the driver's log, inside the call that unmaps.
            if !may_block() {
                return refused();
            }
            mapped = require();
        }
        while mapped.unmaps_below(bytes) {
            let (locked, waited) = self
                .has_unmapped
                .wait_timeout(mapped, LIMIT)
                .unwrap_or_else(PoisonError::into_inner);
            mapped = locked;
            if waited.timed_out() && mapped.unmaps_below(bytes) {
                return refused();
            }
        }
        Ok(mapped.end())
    }

    /// Maps memory up to this number of bytes.
    ///
    /// Ranges that would have been unmapped after an earlier shrink stay mapped.
    ///
    /// # Errors
    /// Errors from the driver, [`Invalid::MemoryIsBeingUnmapped`]. What is mapped already stays.
    #[inline]
    fn require(&self, bytes: usize) -> Result<()> {
        let end = self.require_mapped(bytes)?;
        if bytes <= end {
            return Ok(());
        }
        // Without the lock: these calls attempt deferred releases, which may be those of this space. No
        // other thread maps memory, because the buffer is borrowed mutably.
        let wanted = round_up((bytes - end).max(self.step), self.granularity)?;
        let size = wanted.min(self.reservation.size() - end);
        self.options.check_handles()?;
        let memory = PhysicalMemory::create(size, &self.options, self.granularity)?;
        let range = self.reservation.map_range(end, memory)?;
        // SAFETY: no work uses the range yet.
        if let Err(error) = unsafe { self.access.apply(range.address(), range.size()) } {
            range.unmap_idle();
            return Err(error);
        }
        self.lock().ranges.push(range);
        Ok(())
    }
}

impl<T> GrowableBuffer<T> {
    /// Reserves addresses for `capacity` elements. The buffer is empty, and has no memory yet.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) if there is no such range of addresses (above 64 TiB on a driver 580);
    /// [`Invalid::TooLarge`].
    ///
    /// Since CUDA 10.2. Raw: [`cuMemAddressReserve`](fn@cuda_sys::cuMemAddressReserve),
    /// [`cuMemCreate`](fn@cuda_sys::cuMemCreate), [`cuMemMap`](fn@cuda_sys::cuMemMap),
    /// [`cuMemSetAccess`](fn@cuda_sys::cuMemSetAccess), [`cuMemUnmap`](fn@cuda_sys::cuMemUnmap).
    pub fn new(stream: &Stream, capacity: usize) -> Result<Self> {
        Self::with(stream, capacity, &GrowableOptions::default())
    }

    /// Reserves addresses for `capacity` elements, with options.
    ///
    /// # Errors
    /// See [`new`](Self::new). In addition: [`Invalid::Granularity`] if the step is not a multiple of the
    /// granularity.
    pub fn with(stream: &Stream, capacity: usize, options: &GrowableOptions) -> Result<Self> {
        const { assert!(size_of::<T>() != 0, "the elements of a growable buffer have bytes") };
        let device = stream.context().device();
        let GrowableOptions { step, memory, peers, _non_exhaustive: () } = options;
        let memory = memory.unwrap_or_else(|| PhysicalOptions::new(device));
        let granularity = memory.granularity()?;
        check_multiple("the step", *step, granularity)?;
        let mut access = AccessList::default();
        for device in peers.iter().copied().chain([device]) {
            access.set(MemoryLocation::Device(device), MemoryAccess::ReadWrite);
        }
        let size = round_up(bytes_of::<T>(capacity)?.max(1), granularity)?;
        Ok(Self {
            space: Arc::new(Space {
                reservation: Reservation::new(size)?,
                options: memory,
                granularity,
                step: *step,
                access,
                mapped: Mutex::default(),
                has_unmapped: Condvar::new(),
            }),
            stream: stream.clone(),
            end: stream.context().event()?,
            len: 0,
            elements: PhantomData,
        })
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the buffer has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of elements for which the buffer has addresses.
    pub fn capacity(&self) -> usize {
        self.space.reservation.size() / size_of::<T>()
    }

    /// Returns the number of bytes of physical memory that are mapped. After the buffer has shrunk, this
    /// includes memory that is unmapped later.
    pub fn mapped_bytes(&self) -> usize {
        self.space.lock().end()
    }

    /// Returns the device address of the first element, which never changes.
    pub fn as_raw(&self) -> CUdeviceptr {
        self.space.reservation.address()
    }

    /// Returns the stream that the buffer is bound to.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Borrows the whole buffer for reading.
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        DeviceSlice::new(self.as_raw(), self.len, &self.stream)
    }

    /// Borrows the whole buffer for reading and writing.
    pub fn as_mut_slice(&mut self) -> DeviceSliceMut<'_, T> {
        DeviceSliceMut::new(self.as_raw(), self.len, &self.stream)
    }

    /// Increases the length to `len` elements. The bits of the new elements are those of the memory: zero
    /// if it is mapped for the first time, and otherwise what was there before the buffer shrunk. Does
    /// nothing if the buffer is as long already.
    ///
    /// # Errors
    /// [`Invalid::AboveCapacity`]; [`Error::OutOfMemory`](crate::Error::OutOfMemory);
    /// [`Invalid::MemoryIsBeingUnmapped`]. The length is then as before.
    pub fn grow(&mut self, len: usize) -> Result<()> {
        release::drain();
        if len <= self.len {
            return Ok(());
        }
        let capacity = self.capacity();
        refuse_if!(len > capacity, Invalid::AboveCapacity { len, capacity });
        let mapped = self.space.require(len * size_of::<T>());
        match &mapped {
            Ok(()) => self.len = len,
            // A release after an earlier shrink may have found that the memory was required.
            Err(_) => self.unmap_rest(),
        }
        mapped
    }

    /// Changes the length to `len` elements, and enqueues a fill that sets the bytes of new elements to 0.
    ///
    /// # Errors
    /// See [`grow`](Self::grow) and [`truncate`](Self::truncate). If the fill fails, the length is as
    /// before.
    pub fn resize_zeroed(&mut self, len: usize) -> Result<()> {
        if len <= self.len {
            return self.truncate(len);
        }
        let before = self.len;
        self.grow(len)?;
        let zeroed = self.new_elements(before).and_then(|mut new| new.zero());
        self.keep_if(zeroed, before)
    }

    /// Appends elements that are copied from host memory. See
    /// [`DeviceSliceMut::copy_from_slice`] about the wait.
    ///
    /// # Errors
    /// See [`grow`](Self::grow) and [`DeviceSliceMut::copy_from_slice`]. The length is then as before.
    pub fn extend_from_slice(&mut self, elements: &[T]) -> Result<()>
    where
        T: NoUninit,
    {
        let before = self.len;
        let len = before.saturating_add(elements.len());
        self.grow(len)?;
        let copied = self.new_elements(before).and_then(|mut new| new.copy_from_slice(elements));
        self.keep_if(copied, before)
    }

    fn new_elements(&mut self, start: usize) -> Result<DeviceSliceMut<'_, T>> {
        self.as_mut_slice().slice(start..)
    }

    /// Returns to the length `before` if the elements after it could not be written.
    fn keep_if(&mut self, written: Result<()>, before: usize) -> Result<()> {
        if written.is_err() {
            self.len = before;
            self.unmap_rest();
        }
        written
    }

    /// Unmaps memory without elements, after the work on the stream.
    fn unmap_rest(&self) {
        // Without an event, the memory is unmapped after the next shrink.
        if let Ok(end) = self.stream.context().event() {
            self.shrink(self.len * size_of::<T>(), end, false);
        }
    }

    /// Decreases the length to `len` elements. Memory that contains no element any more is unmapped after
    /// the work on the stream. Does nothing if the buffer is as short already.
    ///
    /// Does not block. Memory that is not unmapped yet when the buffer grows again is used again.
    ///
    /// # Errors
    /// Errors from the driver. The length is then as before.
    pub fn truncate(&mut self, len: usize) -> Result<()> {
        release::drain();
        if len >= self.len {
            return Ok(());
        }
        let end = self.stream.context().event()?;
        self.len = len;
        self.shrink(len * size_of::<T>(), end, false);
        Ok(())
    }

    /// Unmaps all ranges after the first `bytes`, after the work on the stream.
    fn shrink(&self, bytes: usize, end: Event, is_last: bool) {
        let number = {
            let mut mapped = self.space.lock();
            mapped.required = bytes;
            mapped.shrinks += 1;
            let is_smaller = mapped.ranges.last().is_some_and(|last| last.offset >= bytes);
            is_smaller.then_some(mapped.shrinks)
        };
        if let Some(number) = number {
            let tail = Tail {
                space: Arc::clone(&self.space),
                number,
                is_last,
                last_use: LastUse::new(&self.stream, end),
            };
            release(tail, &self.stream);
        }
    }
}

/// The ranges that a buffer does not need any more.
struct Tail {
    space: Arc<Space>,
    /// Which shrink made them superfluous. A later one waits for later work, and unmaps them too.
    number: u64,
    /// Whether the buffer was dropped.
    is_last: bool,
    last_use: LastUse,
}

impl Destroy for Tail {
    #[inline]
    fn name(&self) -> &'static str {
        "the memory of a growable buffer"
    }

    #[inline]
    unsafe fn destroy(&self) -> Answer {
        if let Some(obstacle) = obstacle(&self.last_use) {
            return obstacle;
        }
        let mut answer = Answer { call: "cuMemUnmap", code: CUresult::CUDA_SUCCESS };
        while answer.code.is_success() {
            let (address, size) = {
                let mut mapped = self.space.lock();
                if mapped.is_unmapping {
                    // Another release of this space, whose call may run this one: closures of the driver's
                    // log complete deferred releases.
                    answer.code = CUresult::CUDA_ERROR_NOT_READY;
                    return answer;
                }
                let is_due = mapped.shrinks == self.number;
                let Some(last) = mapped.unused().filter(|_| is_due) else { return answer };
                let range = (last.address(), last.size());
                mapped.is_unmapping = true;
                range
            };
            // SAFETY: the range is exactly one mapping, and no other thread unmaps it. The work that uses it
            // is complete, and no later work does: the buffer was as short since, and grows only after
            // this call.
            answer = unsafe { answer!(cuMemUnmap(address, size)) };
            let unmapped = {
                let mut mapped = self.space.lock();
                mapped.is_unmapping = false;
                self.space.has_unmapped.notify_all();
                if answer.code.is_success() { mapped.ranges.pop() } else { None }
            };
            // Released without the lock.
            drop(unmapped);
        }
        if answer.code == CUresult::CUDA_ERROR_DEINITIALIZED {
            // The process exits. Nothing is released any more.
            self.leak();
        }
        answer
    }

    #[inline]
    fn leftover(&self) -> Leftover {
        Leftover::Object
    }

    #[inline]
    fn has_leaked(&self, _: &dyn Keep) {
        // A buffer that exists unmaps the ranges when it is dropped.
        if self.is_last {
            let ranges = self.leak();
            // The release itself is counted for one mapping: the others, the memory, and the addresses.
            (0..2 * ranges).for_each(|_| count_leak());
        }
    }
}

impl Tail {
    /// Leaks the space with its ranges. Returns how many there are.
    #[inline]
    fn leak(&self) -> usize {
        std::mem::forget(Arc::clone(&self.space));
        self.space.lock().ranges.len()
    }
}

impl<T> Drop for GrowableBuffer<T> {
    fn drop(&mut self) {
        self.shrink(0, self.end.clone(), true);
    }
}

device_slices!(GrowableBuffer);

impl<T: 'static> LaunchArgument for &GrowableBuffer<T> {
    type Param = &'static [T];
}

impl<T: 'static> LaunchArgument for &mut GrowableBuffer<T> {
    type Param = &'static mut [T];
}
