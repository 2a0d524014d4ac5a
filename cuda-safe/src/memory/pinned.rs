//! Pinned (page-locked) host memory.

use super::same_length;
use crate::call::{
    Error, Invalid, Rejected, Result, answer, bytes_of, call, count_leak, debug, fork, out,
    out_without_current, refuse_if, refuse_in_host_function, without_current,
};
use crate::context::{Context, PinnedMemory};
use crate::event::Event;
use crate::manager::registered::{Registered, VectorMemory};
use crate::manager::{HostBlock, Order, PinnedFlags};
use crate::release::{self, Destroy, Handle, owners, release};
use crate::stream::Stream;
use bytemuck::AnyBitPattern;
use std::fmt;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

/// An owned buffer in pinned host memory, which the device copies from and to without staging. It
/// dereferences to a slice of `T`.
///
/// [`zeroed`](Self::zeroed) and [`uninit`](Self::uninit) allocate one, and
/// [`register`](Self::register) pins the memory of a vector. [`into_chunks`](Self::into_chunks)
/// divides it into parts that can be in several copies at the same time. Kernels access pinned
/// memory as a [`MappedBuffer`](crate::memory::MappedBuffer).
///
/// Freeing the memory waits for *all* running work, so reuse buffers where possible. If the context
/// has a [memory manager](crate::manager), the manager allocates, pins and frees the memory. A
/// forked child must not access the buffer, because the driver's pages may not exist there.
///
/// ```no_run
/// use cuda_safe::{Context, Device, DeviceBuffer, PinnedBuffer};
///
/// let context = Context::primary(&Device::get(0)?)?;
/// let stream = context.stream()?;
/// let mut host = PinnedBuffer::<f32>::zeroed(&context, 1000)?;
/// host.fill(1.5);
/// let mut buffer = DeviceBuffer::zeroed(&stream, 1000)?;
/// let copy = buffer.copy_from_pinned(host)?;
/// // ... other work, and then the memory again:
/// let host = copy.synchronize()?;
/// # Ok::<_, cuda_safe::Error>(())
/// ```
pub struct PinnedBuffer<T> {
    start: NonNull<T>,
    len: usize,
    source: Source,
    context: Context,
}

/// How the memory was allocated.
#[derive(Clone, Copy)]
enum Source {
    /// Nothing was allocated, or the memory has been released.
    Nothing,
    /// Allocated by the driver.
    Driver,
    /// The memory of a vector. It is registered if it has at least one byte.
    Vector { capacity: usize },
    /// From the context's manager. A raw box, so that the buffer stays small and dropping it stays
    /// fast.
    Manager(NonNull<Managed>),
}

/// Memory that the context's manager allocated or pinned.
#[derive(Clone, Copy)]
struct Managed {
    block: HostBlock,
    /// The capacity of the vector that the manager pinned, or `None` if the manager allocated the
    /// memory.
    capacity: Option<usize>,
}

// SAFETY: the buffer owns its memory, like a `Vec<T>`.
unsafe impl<T: Send> Send for PinnedBuffer<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for PinnedBuffer<T> {}

/// Options for [`PinnedBuffer::zeroed_with`].
///
/// Later versions may add fields: end each value with `..Default::default()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PinnedOptions {
    /// Whether all contexts of the process treat the memory as pinned, not only the context in
    /// which it is allocated. The default is true. (With unified addressing, which all current
    /// platforms have, the memory is always portable.)
    pub portable: bool,
    /// Whether kernels can access the memory as a [`MappedBuffer`](crate::memory::MappedBuffer). The
    /// default is false. (With unified addressing, kernels can always access it.)
    pub mapped: bool,
    /// Whether the memory is write-combined. The device reads such memory faster over PCI Express,
    /// but the host *reads* it very slowly. Suited to memory that the host only writes. The default
    /// is false.
    pub write_combined: bool,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl Default for PinnedOptions {
    #[inline]
    fn default() -> Self {
        Self { portable: true, mapped: false, write_combined: false, _non_exhaustive: () }
    }
}

impl PinnedOptions {
    #[inline]
    fn flags(self) -> PinnedFlags {
        let Self { portable, mapped, write_combined, _non_exhaustive: () } = self;
        let mut flags = PinnedFlags::empty();
        flags.set(PinnedFlags::PORTABLE, portable);
        flags.set(PinnedFlags::MAPPED, mapped);
        flags.set(PinnedFlags::WRITE_COMBINED, write_combined);
        flags
    }
}

impl Managed {
    #[inline]
    fn keep(block: HostBlock, capacity: Option<usize>) -> Source {
        Source::Manager(NonNull::from(Box::leak(Box::new(Self { block, capacity }))))
    }
}

impl<T: AnyBitPattern> PinnedBuffer<T> {
    /// Allocates pinned memory for `len` elements and sets all bytes to 0. The memory is pinned for
    /// all contexts.
    ///
    /// # Errors
    /// See [`zeroed_with`](Self::zeroed_with).
    pub fn zeroed(context: &Context, len: usize) -> Result<Self> {
        Self::zeroed_with(context, len, PinnedOptions::default())
    }

    /// Allocates pinned memory for `len` elements with the given options and sets all bytes to 0.
    ///
    /// Calls `cuMemHostAlloc(&start, bytes, flags)`.
    ///
    /// # Errors
    /// - [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    /// - [`Invalid::TooLarge`](crate::Invalid::TooLarge) if `len` elements do not fit in the
    ///   address space.
    ///
    /// Since CUDA 2.2. Raw: [`cuMemHostAlloc`](fn@cuda_sys::cuMemHostAlloc),
    /// [`cuMemFreeHost`](fn@cuda_sys::cuMemFreeHost).
    #[doc(alias = "cuMemHostAlloc", alias = "cuMemFreeHost")]
    pub fn zeroed_with(context: &Context, len: usize, options: PinnedOptions) -> Result<Self> {
        let buffer = Self::allocate(context, len, options)?;
        let bytes = len * size_of::<T>();
        // SAFETY: the buffer has this many bytes at this address, and no other code has a pointer
        // to them. All bits 0 are a valid `T`.
        unsafe { buffer.start.cast::<u8>().write_bytes(0, bytes) };
        Ok(buffer)
    }
}

impl<T> PinnedBuffer<T> {
    /// Allocates memory without initializing it. The caller must initialize the elements before the
    /// buffer is used, unless they are `MaybeUninit`.
    fn allocate(context: &Context, len: usize, options: PinnedOptions) -> Result<Self> {
        release::drain();
        let bytes = bytes_of::<T>(len)?;
        let (manager, flags) = (context.memory_manager()?, options.flags());
        if bytes == 0 {
            let mut buffer = Self::empty(context);
            buffer.len = len;
            return Ok(buffer);
        }
        let (start, source) = if let Some(manager) = manager {
            let block = manager.allocate_host(bytes, flags)?;
            (block.start.as_ptr().cast(), Managed::keep(block, None))
        } else {
            let _current = context.enter()?;
            // SAFETY: the pointer is valid, and the current context is this context.
            let start = out(|place| unsafe { call!(cuMemHostAlloc(place, bytes, flags.bits())) })
                .map_err(|error| error.with_requested_bytes(bytes))?;
            (start.cast(), Source::Driver)
        };
        let start = NonNull::new(start).unwrap_or(NonNull::dangling());
        Ok(Self { start, len, source, context: context.clone() })
    }

    /// Returns a buffer without elements, which needs no memory.
    pub(crate) fn empty(context: &Context) -> Self {
        Self {
            start: NonNull::dangling(),
            len: 0,
            source: Source::Nothing,
            context: context.clone(),
        }
    }

    /// Returns the context in which the memory was allocated or registered.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Returns the flags that the memory was allocated with.
    ///
    /// Calls `cuMemHostGetFlags(&flags, start)`. A driver may add flags that are always on. If the
    /// buffer has no bytes, no flags are returned.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for a registered vector.
    ///
    /// Since CUDA 2.3. Raw: [`cuMemHostGetFlags`](fn@cuda_sys::cuMemHostGetFlags).
    #[doc(alias = "cuMemHostGetFlags")]
    pub fn flags(&self) -> Result<PinnedFlags> {
        if !self.has_memory() {
            return Ok(PinnedFlags::empty());
        }
        // SAFETY: the driver allocated the memory, and the other pointer is valid.
        let flags = out_without_current(&self.context, |place| unsafe {
            answer!(cuMemHostGetFlags(place, self.start.as_ptr().cast()))
        })?;
        Ok(PinnedFlags::from_bits_retain(flags))
    }

    /// Returns the number of elements without creating a slice, which must not exist while the
    /// device writes.
    pub(crate) fn count(&self) -> usize {
        self.len
    }

    pub(crate) fn start(&self) -> *mut T {
        self.start.as_ptr()
    }

    /// Returns the memory that the context's manager allocated or pinned, if any.
    fn managed(&self) -> Option<Managed> {
        match self.source {
            // SAFETY: the pointer is a box of `Managed::keep`, which is not freed while this source
            // exists.
            Source::Manager(managed) => Some(unsafe { *managed.as_ref() }),
            _ => None,
        }
    }

    /// Returns whether the context's manager allocated or pinned the memory.
    pub(crate) fn is_managed(&self) -> bool {
        matches!(self.source, Source::Manager(_))
    }

    /// Forgets memory that the manager has released.
    fn forget_managed(&mut self) {
        if let Source::Manager(managed) = std::mem::replace(&mut self.source, Source::Nothing) {
            // SAFETY: the pointer is a box of `Managed::keep`, and its source has just been
            // replaced.
            drop(unsafe { Box::from_raw(managed.as_ptr()) });
        }
    }

    /// Returns whether the buffer has at least one byte, and therefore memory that the driver
    /// knows.
    pub(crate) fn has_memory(&self) -> bool {
        self.len * size_of::<T>() != 0
    }

    /// Releases the memory after the device work on `used_on` has completed.
    pub(crate) fn give_back(&mut self, used_on: Option<&Stream>) {
        let source = std::mem::replace(&mut self.source, Source::Nothing);
        let start = self.start.as_ptr();
        match source {
            Source::Nothing => {}
            Source::Driver => {
                release_after(PinnedMemory(Handle(start.cast())), &self.context, used_on);
            }
            Source::Vector { capacity } if self.has_memory() => {
                // SAFETY: these are the address and the capacity of the registered vector, which
                // has at least one byte. Its elements are `Copy` (see `register`), and its memory
                // is released exactly once, here.
                let vector = unsafe { VectorMemory::new(start, capacity) };
                let memory = Registered::new(start.cast(), vector);
                release_after(memory, &self.context, used_on);
            }
            // SAFETY: as above. The elements have no bytes, so the memory was never registered.
            Source::Vector { capacity } => drop(unsafe { Vec::from_raw_parts(start, 0, capacity) }),
            Source::Manager(managed) => self.give_to_manager(managed, used_on),
        }
    }

    /// Returns memory to the context's manager.
    #[cold]
    #[inline(never)]
    fn give_to_manager(&self, managed: NonNull<Managed>, used_on: Option<&Stream>) {
        // SAFETY: the pointer is a box of `Managed::keep`, and its source has just been replaced.
        let managed = unsafe { Box::from_raw(managed.as_ptr()) };
        // The manager exists, because it allocated this memory. (In a forked child it must not be
        // called.)
        let manager = self.context.made_manager().filter(|_| !fork::in_child());
        let Some(manager) = manager else { return count_leak() };
        let order = used_on.map_or(Order::NONE, Order::of);
        match managed.capacity {
            // SAFETY: the block was allocated by this manager and is freed exactly once, here. Safe
            // copies from and to it completed before they returned, and only this stream has used
            // it by address. `MappedBuffer` refuses a stream whose end is not reported to the manager.
            None => unsafe { manager.free_host(managed.block, order) },
            Some(capacity) => {
                // SAFETY: these are the address and the capacity of the pinned vector, which has at
                // least one byte. Its elements are `Copy` (see `register`), and its memory is
                // released exactly once, here.
                let vector = unsafe { VectorMemory::new(self.start.as_ptr(), capacity) };
                // SAFETY: as for the block above.
                unsafe { manager.release_pin(managed.block, Box::new(vector), order) }
            }
        }
    }
}

/// Releases memory of a context after the work on `used_on`.
#[inline(never)]
fn release_after(memory: impl Destroy, context: &Context, used_on: Option<&Stream>) {
    match used_on {
        // The stream or the context may be borrowed, so both are kept.
        Some(stream) => release(memory, &(stream.clone(), context.clone())),
        None => release(memory, context),
    }
}

// The owners of memory of a context that is used on a stream.
owners! {
    (Stream, Context) |its| {
        context: Some(its.0.context()),
        is_borrowed: its.0.is_borrowed() || its.1.is_borrowed(),
        streams: its.0.streams(),
    }
}

impl<T> Deref for PinnedBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: there are `len` elements at `start`. They are valid: zeros of a type for which
        // every bit pattern is valid, elements that were initialized later, or the elements of a
        // vector. They are aligned, because
        // the driver's pages and vectors are, and they are borrowed with `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for PinnedBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and the elements are borrowed mutably with `self`.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T> Drop for PinnedBuffer<T> {
    fn drop(&mut self) {
        self.give_back(None);
    }
}

debug! { [T: fmt::Debug] PinnedBuffer<T> |its, f| f.debug_list().entries(its.iter()).finish() }

/// Options for [`PinnedBuffer::register_with`].
///
/// Later versions may add fields: end each value with `..Default::default()`.
///
/// The driver's flags for read-only memory and for memory-mapped I/O are not supported, because
/// they apply to memory that cannot be a vector: memory that the host must not write, and memory of
/// other devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegisterOptions {
    /// Whether all contexts of the process treat the memory as pinned. The default is true.
    pub portable: bool,
    /// Whether kernels can access the memory as a [`MappedBuffer`](crate::memory::MappedBuffer). The
    /// default is false. (With unified addressing, which all current platforms have, kernels can
    /// always access it.)
    pub mapped: bool,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl Default for RegisterOptions {
    #[inline]
    fn default() -> Self {
        Self { portable: true, mapped: false, _non_exhaustive: () }
    }
}

impl RegisterOptions {
    #[inline]
    fn flags(self) -> PinnedFlags {
        let Self { portable, mapped, _non_exhaustive: () } = self;
        let mut flags = PinnedFlags::empty();
        flags.set(PinnedFlags::PORTABLE, portable);
        flags.set(PinnedFlags::MAPPED, mapped);
        flags
    }
}

impl<T: Copy> PinnedBuffer<T> {
    /// Pins the memory of a vector in place, for all contexts.
    ///
    /// [`unregister`](Self::unregister) returns the vector. (A boxed slice becomes a vector with
    /// `into_vec`, without a copy.)
    ///
    /// Pinning takes longer than copying the memory, so it pays off only for memory that is used
    /// often. If the buffer is dropped and the driver fails to unregister the memory, the memory is
    /// leaked and reported, because the device may still access it.
    ///
    /// # Errors
    /// See [`register_with`](Self::register_with).
    pub fn register(context: &Context, vector: Vec<T>) -> Result<Self> {
        Self::register_with(context, vector, RegisterOptions::default())
    }

    /// Pins the memory of a vector in place, with the given options.
    ///
    /// Calls `cuMemHostRegister(start, bytes, flags)`. See [`register`](Self::register).
    ///
    /// # Errors
    /// On an error, the vector is dropped. [`try_register_with`](Self::try_register_with) returns it
    /// with the error.
    ///
    /// - `CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED` if a part of the memory is already pinned.
    ///   Drivers may check this for whole pages.
    /// - [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    /// - `CUDA_ERROR_NOT_SUPPORTED` on devices that cannot register memory
    ///   ([`HOST_REGISTER_SUPPORTED`](crate::device::attribute::HOST_REGISTER_SUPPORTED)).
    ///
    /// Since CUDA 4.0 (from 6.5 on through `cuMemHostRegister_v2`). Raw:
    /// [`cuMemHostRegister_v2`](fn@cuda_sys::cuMemHostRegister_v2).
    #[doc(alias = "cuMemHostRegister")]
    pub fn register_with(
        context: &Context,
        vector: Vec<T>,
        options: RegisterOptions,
    ) -> Result<Self> {
        Ok(Self::try_register_with(context, vector, options)?)
    }

    /// Does the same as [`register_with`](Self::register_with), but returns the vector with the error.
    ///
    /// # Errors
    /// See [`register_with`](Self::register_with).
    pub fn try_register_with(
        context: &Context,
        mut vector: Vec<T>,
        options: RegisterOptions,
    ) -> Result<Self, Rejected<Vec<T>>> {
        release::drain();
        let (start, bytes) = (vector.as_mut_ptr().cast(), vector.len() * size_of::<T>());
        let (pinned, vector) = Rejected::unless(pin(context, start, bytes, options), vector)?;
        let mut vector = ManuallyDrop::new(vector);
        Ok(Self {
            start: NonNull::new(vector.as_mut_ptr()).unwrap_or(NonNull::dangling()),
            len: vector.len(),
            source: match pinned {
                None => Source::Vector { capacity: vector.capacity() },
                Some(block) => Managed::keep(block, Some(vector.capacity())),
            },
            context: context.clone(),
        })
    }

    /// Unregisters the memory and returns the vector, which is pageable again.
    ///
    /// Calls `cuMemHostUnregister(vector)`. Waits for *all* running work, as dropping the buffer
    /// does.
    ///
    /// # Errors
    /// On an error, the buffer is dropped. [`try_unregister`](Self::try_unregister) returns it with the
    /// error.
    ///
    /// - [`Invalid::NotRegistered`] if the buffer was allocated rather than registered.
    /// - Errors from earlier work.
    ///
    /// Since CUDA 4.0. Raw: [`cuMemHostUnregister`](fn@cuda_sys::cuMemHostUnregister).
    #[doc(alias = "cuMemHostUnregister")]
    pub fn unregister(self) -> Result<Vec<T>> {
        Ok(self.try_unregister()?)
    }

    /// Does the same as [`unregister`](Self::unregister), but returns the unchanged buffer with the
    /// error.
    ///
    /// # Errors
    /// See [`unregister`](Self::unregister).
    pub fn try_unregister(mut self) -> Result<Vec<T>, Rejected<Self>> {
        release::drain();
        let (capacity, buffer) = Rejected::unless(self.unpin(), self)?;
        // SAFETY: these are the parts of the registered vector. The buffer has just given up the
        // memory, and the elements are valid, as the elements of every slice are.
        Ok(unsafe { Vec::from_raw_parts(buffer.start.as_ptr(), buffer.len, capacity) })
    }

    /// Unregisters the memory, which the buffer then no longer releases. Returns the capacity of the vector.
    fn unpin(&mut self) -> Result<usize> {
        let (capacity, block) = match (&self.source, self.managed()) {
            (Source::Vector { capacity }, _) => (*capacity, None),
            (_, Some(Managed { block, capacity: Some(capacity) })) => (capacity, Some(block)),
            _ => return Err(Invalid::NotRegistered.into()),
        };
        if let Some(block) = block {
            let manager = self.context.expect_manager()?;
            // SAFETY: this manager pinned the memory, and it has not been unpinned. The argument on
            // copies below applies here too.
            unsafe { manager.unpin(block) }?;
            self.forget_managed();
        } else if self.has_memory() {
            let start = self.start.as_ptr().cast();
            without_current(&self.context, || {
                // SAFETY: the memory at this address is registered. Copies in progress own the
                // buffer, so no copy is in progress.
                unsafe { answer!(cuMemHostUnregister(start)) }
            })?;
        }
        self.source = Source::Nothing;
        Ok(capacity)
    }
}

/// Pins the memory of a vector. Returns the block of the memory manager, if the context has one.
///
/// The caller does not move or free the memory until it is unregistered.
#[inline]
fn pin(
    context: &Context,
    start: *mut u8,
    bytes: usize,
    options: RegisterOptions,
) -> Result<Option<HostBlock>> {
    let manager = context.memory_manager().map_err(|error| error.with_requested_bytes(bytes))?;
    if bytes == 0 {
        return Ok(None);
    }
    if let Some(manager) = manager {
        let start = NonNull::new(start).unwrap_or(NonNull::dangling());
        // SAFETY: the vector has `bytes` bytes at this address, which are not moved or freed until
        // they are unpinned.
        return unsafe { manager.pin(start, bytes, options.flags()) }.map(Some);
    }
    let flags = options.flags().register_bits();
    let _current = context.enter()?;
    // SAFETY: the vector has `bytes` bytes at this address, which are not moved or freed until they
    // are unregistered. The current context is this context.
    unsafe { call!(cuMemHostRegister_v2(start.cast(), bytes, flags)) }?;
    Ok(None)
}

impl<T: Copy> PinnedBuffer<T> {
    /// Allocates pinned memory for `len` elements without initializing it. The memory is pinned for
    /// all contexts.
    ///
    /// The elements are `MaybeUninit<T>`.
    /// [`write_copy_of_slice`](PinnedBuffer::write_copy_of_slice) and
    /// [`write_with`](PinnedBuffer::write_with) initialize them and return a `PinnedBuffer<T>`.
    ///
    /// # Errors
    /// See [`uninit_with`](Self::uninit_with).
    ///
    /// ```no_run
    /// use cuda_safe::{Context, Device, PinnedBuffer};
    ///
    /// let context = Context::primary(&Device::get(0)?)?;
    /// let host = PinnedBuffer::<f32>::uninit(&context, 3)?.write_copy_of_slice(&[1.0, 2.0, 3.0])?;
    /// let squares = PinnedBuffer::<u32>::uninit(&context, 4)?.write_with(|i| (i * i) as u32);
    /// assert_eq!((&*host, &*squares), (&[1.0, 2.0, 3.0][..], &[0, 1, 4, 9][..]));
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    pub fn uninit(context: &Context, len: usize) -> Result<PinnedBuffer<MaybeUninit<T>>> {
        Self::uninit_with(context, len, PinnedOptions::default())
    }

    /// Allocates pinned memory for `len` elements with the given options, without initializing it.
    ///
    /// Calls `cuMemHostAlloc(&start, bytes, flags)`.
    ///
    /// # Errors
    /// See [`zeroed_with`](Self::zeroed_with).
    ///
    /// Since CUDA 2.2. Raw: [`cuMemHostAlloc`](fn@cuda_sys::cuMemHostAlloc).
    #[doc(alias = "cuMemHostAlloc")]
    pub fn uninit_with(
        context: &Context,
        len: usize,
        options: PinnedOptions,
    ) -> Result<PinnedBuffer<MaybeUninit<T>>> {
        PinnedBuffer::allocate(context, len, options)
    }
}

/// Initialization of the elements.
impl<T: Copy> PinnedBuffer<MaybeUninit<T>> {
    /// Copies all elements of `slice` to the buffer, which is then initialized. The host copies.
    ///
    /// # Errors
    /// [`Invalid::Lengths`](crate::Invalid::Lengths) if the lengths differ. The buffer, which has no
    /// data yet, is then dropped.
    pub fn write_copy_of_slice(mut self, slice: &[T]) -> Result<PinnedBuffer<T>> {
        same_length(slice.len(), self.len())?;
        let start = slice.as_ptr().cast::<MaybeUninit<T>>();
        // SAFETY: `MaybeUninit<T>` has the layout of `T`, and every `T` is a valid one.
        let source = unsafe { std::slice::from_raw_parts(start, slice.len()) };
        self.copy_from_slice(source);
        // SAFETY: every element was just written (the lengths are equal).
        Ok(unsafe { self.assume_init() })
    }

    /// Sets each element to the value that `value` returns for its index, from 0 on. The buffer is
    /// then initialized.
    pub fn write_with(mut self, mut value: impl FnMut(usize) -> T) -> PinnedBuffer<T> {
        for (index, element) in self.iter_mut().enumerate() {
            element.write(value(index));
        }
        // SAFETY: every element was just written.
        unsafe { self.assume_init() }
    }

    /// Converts the buffer into one with initialized elements, without writing them.
    ///
    /// # Safety
    /// Each element is initialized with a valid `T`.
    pub unsafe fn assume_init(mut self) -> PinnedBuffer<T> {
        PinnedBuffer {
            start: self.start.cast(),
            len: self.len,
            source: std::mem::replace(&mut self.source, Source::Nothing),
            context: self.context.clone(),
        }
    }
}

/// An owned part of a [`PinnedBuffer`]. It dereferences to a slice of `T`.
///
/// [`PinnedBuffer::into_chunks`] and [`PinnedBuffer::into_range`] divide a buffer into ranges, and
/// [`join`](Self::join) returns the buffer. The ranges of a buffer are disjoint, so each can be in
/// a copy of its own at the same time, on any stream. The copy owns its range
/// ([`DeviceSliceMut::copy_from_pinned`], [`DeviceSlice::copy_to_pinned`]), and [`Pending::synchronize`]
/// waits for this copy only and returns the range.
///
/// The ranges share the memory, which is freed when the last one is dropped. A range that is
/// forgotten, or leaked because the wait for its copy failed, keeps the memory allocated.
///
/// [`DeviceSlice::copy_to_pinned`]: crate::DeviceSlice::copy_to_pinned
/// [`DeviceSliceMut::copy_from_pinned`]: crate::DeviceSliceMut::copy_from_pinned
/// [`Pending::synchronize`]: crate::memory::Pending::synchronize
///
/// ```no_run
/// use cuda_safe::{Context, Device, DeviceBuffer, PinnedBuffer};
/// use cuda_safe::memory::PinnedRange;
///
/// let context = Context::primary(&Device::get(0)?)?;
/// let stream = context.stream()?;
/// let mut ranges = PinnedBuffer::<u32>::zeroed(&context, 2000)?.into_chunks(1000)?;
/// let mut buffer = DeviceBuffer::<u32>::uninit(&stream, 2000)?;
/// let mut copies = Vec::new();
/// for (mut part, mut range) in buffer.chunks_exact_mut(1000)?.zip(ranges.drain(..)) {
///     range.fill(7);
///     copies.push(part.copy_from_pinned(range)?);
/// }
/// for copy in copies {
///     ranges.push(copy.synchronize()?);
/// }
/// let host = PinnedRange::join(ranges)?;
/// assert_eq!(*host, [7; 2000]);
/// # Ok::<_, cuda_safe::Error>(())
/// ```
pub struct PinnedRange<T> {
    start: NonNull<T>,
    len: usize,
    /// The whole buffer, whose elements are accessed only through its ranges.
    whole: Arc<PinnedBuffer<T>>,
    /// Recorded after each copy, in the context of the copy's stream. Created by the first copy.
    copied: Option<Event>,
}

// SAFETY: a range owns its elements, as a `PinnedBuffer<T>` does. The buffer that the ranges share
// is only released, by the last of them; its elements need no drop.
unsafe impl<T: Send> Send for PinnedRange<T> {}
// SAFETY: as above. A shared range only borrows its elements.
unsafe impl<T: Sync> Sync for PinnedRange<T> {}

impl<T> PinnedBuffer<T> {
    /// Converts the buffer into one range with all elements, which [`PinnedRange::split_off`]
    /// divides.
    pub fn into_range(self) -> PinnedRange<T> {
        PinnedRange { start: self.start, len: self.len, whole: Arc::new(self), copied: None }
    }

    /// Divides the buffer into ranges of `len` elements. If the length of the buffer is not a
    /// multiple of `len`, the last range is shorter. An empty buffer becomes one empty range.
    ///
    /// # Errors
    /// [`Invalid::EmptyChunks`] if `len` is 0. The buffer is then dropped.
    pub fn into_chunks(self, len: usize) -> Result<Vec<PinnedRange<T>>> {
        refuse_if!(len == 0, Invalid::EmptyChunks);
        let mut ranges = Vec::with_capacity(self.len.div_ceil(len));
        let mut rest = self.into_range();
        while rest.len > len {
            let others = rest.divide(len);
            ranges.push(std::mem::replace(&mut rest, others));
        }
        ranges.push(rest);
        Ok(ranges)
    }
}

impl<T> PinnedRange<T> {
    /// Returns a range without elements, which needs no memory.
    pub(crate) fn empty(context: &Context) -> Self {
        PinnedBuffer::empty(context).into_range()
    }

    /// Joins the ranges of a buffer and returns the buffer. They may be given in any order, and
    /// ranges that were dropped may be missing.
    ///
    /// # Errors
    /// On an error, the ranges are dropped. [`try_join`](Self::try_join) returns them with the error.
    ///
    /// - [`Invalid::SeveralBuffers`] if the ranges are parts of different buffers.
    /// - [`Invalid::MissingRanges`] if there are other ranges of the buffer, for example in copies,
    ///   or if no range was given.
    pub fn join(ranges: impl IntoIterator<Item = Self>) -> Result<PinnedBuffer<T>> {
        Ok(Self::try_join(ranges)?)
    }

    /// Does the same as [`join`](Self::join), but returns the unchanged ranges with the error.
    ///
    /// # Errors
    /// See [`join`](Self::join).
    pub fn try_join(
        ranges: impl IntoIterator<Item = Self>,
    ) -> Result<PinnedBuffer<T>, Rejected<Vec<Self>>> {
        let ranges: Vec<Self> = ranges.into_iter().collect();
        let ((), mut ranges) = Rejected::unless(can_join(&ranges), ranges)?;
        let last = ranges.pop();
        drop(ranges);
        match last.map(|range| Arc::try_unwrap(range.whole)) {
            Some(Ok(buffer)) => Ok(buffer),
            // Not reached: these were all ranges of the buffer.
            _ => Err(Rejected::new(missing(0, 0), Vec::new())),
        }
    }

    /// Divides the range into two at `middle`: this range keeps the elements before `middle`, and the
    /// returned range has the rest, as in [`Vec::split_off`].
    ///
    /// # Errors
    /// [`Invalid::Range`] if `middle` is greater than the length. The range is then unchanged.
    pub fn split_off(&mut self, middle: usize) -> Result<Self> {
        if middle > self.len {
            return Err(Invalid::Range { start: middle, end: self.len, len: self.len }.into());
        }
        Ok(self.divide(middle))
    }

    /// [`split_off`](Self::split_off) for a `middle` that is known to be at most the length.
    fn divide(&mut self, middle: usize) -> Self {
        assert!(middle <= self.len);
        let rest = Self {
            // SAFETY: the buffer has `len` elements from `start` on, and `middle` is at most `len`.
            start: unsafe { self.start.add(middle) },
            len: self.len - middle,
            whole: Arc::clone(&self.whole),
            copied: None,
        };
        self.len = middle;
        rest
    }

    /// Returns the context in which the memory was allocated or registered.
    pub fn context(&self) -> &Context {
        self.whole.context()
    }

    /// Returns the number of elements without creating a slice, which must not exist while the
    /// device writes.
    pub(crate) fn count(&self) -> usize {
        self.len
    }

    pub(crate) fn start(&self) -> *mut T {
        self.start.as_ptr()
    }

    /// Ensures that there is an event of the stream's context, for a copy on `stream`.
    pub(crate) fn prepare_event(&mut self, stream: &Stream) -> Result<()> {
        let is_there = |event: &Event| event.context() == stream.context();
        if !self.copied.as_ref().is_some_and(is_there) {
            self.copied = Some(stream.context().event_now()?);
        }
        Ok(())
    }

    /// Waits for the last copy.
    pub(crate) fn wait_for_event(&mut self) -> Result<()> {
        let Some(event) = &self.copied else { return Ok(()) };
        refuse_in_host_function()?;
        event.wait_for_record()?;
        // A range does not keep other contexts than its own alive.
        if event.context() != self.whole.context() {
            self.copied = None;
        }
        Ok(())
    }

    /// Returns the event that marks the end of the last copy, or `None` before the first copy.
    pub(crate) fn event(&self) -> Option<&Event> {
        self.copied.as_ref()
    }
}

/// Checks that these are all ranges of one buffer.
fn can_join<T>(ranges: &[PinnedRange<T>]) -> Result<(), Error> {
    let Some(first) = ranges.first() else { return Err(missing(0, 0)) };
    if !ranges.iter().all(|its| Arc::ptr_eq(&its.whole, &first.whole)) {
        return Err(Invalid::SeveralBuffers.into());
    }
    // Only a range can make further ranges of its buffer, and all that are counted are here. So the
    // number can only fall, and not below the number of these ranges.
    let existing = Arc::strong_count(&first.whole);
    if existing != ranges.len() { Err(missing(ranges.len(), existing)) } else { Ok(()) }
}

#[inline]
fn missing(given: usize, existing: usize) -> Error {
    Invalid::MissingRanges { given, existing }.into()
}

impl<T> Deref for PinnedRange<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the buffer, which this range keeps allocated, has `len` valid elements from
        // `start` on. No other range has them, no code accesses them through the buffer while it
        // has ranges, and they are borrowed with `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for PinnedRange<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and the elements are borrowed mutably with `self`.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

debug! { [T: fmt::Debug] PinnedRange<T> |its, f| f.debug_list().entries(its.iter()).finish() }
