//! Page-locked host memory.

mod register;

pub use register::RegisterOptions;

use super::bytes_of;
use super::vector::VectorMemory;
use crate::call::{answer, call, without_current};
use crate::context::Context;
use crate::error::Result;
use crate::fork;
use crate::manager::{HostBlock, Order};
use crate::release::{self, Parent, Resource, release};
use crate::report::count_leak;
use crate::stream::{OrderedOn, Stream};
use bitflags::bitflags;
use bytemuck::AnyBitPattern;
use core::ffi::c_void;
use cuda_sys::{
    CU_MEMHOSTALLOC_DEVICEMAP, CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_WRITECOMBINED,
};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Host memory that the device copies from and to without staging; a slice of `T`.
///
/// It is allocated ([`zeroed`](Self::zeroed)), or a vector that is [registered](Self::register).
/// Kernels reach it as a [`MappedBuffer`](super::MappedBuffer).
///
/// Freeing it waits for *all* running work, so buffers are better kept than made anew. (Where the context
/// has a [memory manager](crate::manager), that allocates, pins and frees.) A forked child
/// is not to look at it: nothing says that the driver's pages are there.
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
/// let host = copy.wait()?;
/// # Ok::<_, cuda_safe::Error>(())
/// ```
pub struct PinnedBuffer<T> {
    start: NonNull<T>,
    len: usize,
    source: Source,
    context: Context,
}

/// Whose memory it is.
#[derive(Clone, Copy)]
enum Source {
    /// Nothing was allocated, or it has gone.
    Nothing,
    /// The driver's.
    Driver,
    /// A vector's; registered, if it has a byte.
    Vector { capacity: usize },
    /// Of the context's manager: a box, as raw, so that buffers stay small and are as quickly dropped.
    Manager(NonNull<Managed>),
}

/// What the context's manager allocated or pinned.
#[derive(Clone, Copy)]
struct Managed {
    block: HostBlock,
    /// Of the vector that it pinned; none, if it is its own.
    capacity: Option<usize>,
}

// SAFETY: the buffer owns its memory, like a `Vec<T>`.
unsafe impl<T: Send> Send for PinnedBuffer<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for PinnedBuffer<T> {}

/// How pinned memory is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PinnedOptions {
    /// Whether every context of the process knows it as pinned, not only that in which it is made.
    /// The default is true. (Where addressing is unified, which is everywhere today, it always is.)
    pub portable: bool,
    /// Whether kernels may reach it, as a [`MappedBuffer`](super::MappedBuffer). (Where addressing
    /// is unified they always may.)
    pub mapped: bool,
    /// Whether it is write-combined: the device reads it faster over PCI Express, and the host
    /// *reads* it very slowly. For what the host only writes.
    pub write_combined: bool,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl Default for PinnedOptions {
    fn default() -> Self {
        Self {
            portable: true,
            mapped: false,
            write_combined: false,
            _non_exhaustive: (),
        }
    }
}

impl PinnedOptions {
    fn flags(self) -> PinnedFlags {
        let Self {
            portable,
            mapped,
            write_combined,
            _non_exhaustive: (),
        } = self;
        let mut flags = PinnedFlags::empty();
        flags.set(PinnedFlags::PORTABLE, portable);
        flags.set(PinnedFlags::MAPPED, mapped);
        flags.set(PinnedFlags::WRITE_COMBINED, write_combined);
        flags
    }
}

bitflags! {
    /// What pinned memory was made with: `CU_MEMHOSTALLOC_*`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct PinnedFlags: u32 {
        /// Pinned for every context.
        const PORTABLE = CU_MEMHOSTALLOC_PORTABLE;
        /// Kernels may reach it.
        const MAPPED = CU_MEMHOSTALLOC_DEVICEMAP;
        /// Slow to read for the host.
        const WRITE_COMBINED = CU_MEMHOSTALLOC_WRITECOMBINED;
        // Flags that newer drivers know are kept.
        const _ = !0;
    }
}

impl Managed {
    fn keep(block: HostBlock, capacity: Option<usize>) -> Source {
        Source::Manager(NonNull::from(Box::leak(Box::new(Self { block, capacity }))))
    }
}

impl<T: AnyBitPattern> PinnedBuffer<T> {
    /// Pinned memory for `len` elements, all bytes 0, pinned for every context.
    ///
    /// # Errors
    /// As for [`zeroed_with`](Self::zeroed_with).
    pub fn zeroed(context: &Context, len: usize) -> Result<Self> {
        Self::zeroed_with(context, len, PinnedOptions::default())
    }

    /// `cuMemHostAlloc(&start, bytes, flags)`: pinned memory for `len` elements, all bytes 0.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY`; a length that cannot be addressed.
    ///
    /// Since CUDA 2.2. Raw: [`cuMemHostAlloc`](fn@cuda_sys::cuMemHostAlloc),
    /// [`cuMemFreeHost`](fn@cuda_sys::cuMemFreeHost).
    #[doc(alias = "cuMemHostAlloc")]
    #[doc(alias = "cuMemFreeHost")]
    pub fn zeroed_with(context: &Context, len: usize, options: PinnedOptions) -> Result<Self> {
        release::drain();
        let bytes = bytes_of::<T>(len)?;
        let mut start = std::ptr::null_mut::<c_void>();
        let mut source = Source::Nothing;
        let manager = context.memory_manager()?.filter(|_| bytes != 0);
        if let Some(manager) = manager {
            let block = manager.allocate_host(bytes, options.flags())?;
            start = block.start.as_ptr().cast();
            source = Managed::keep(block, None);
        } else if bytes != 0 {
            let flags = options.flags().bits();
            let _current = context.enter()?;
            // SAFETY: the pointer is to a local, and the current context is this one.
            unsafe { call!(cuMemHostAlloc(&raw mut start, bytes, flags)) }?;
            source = Source::Driver;
        }
        if bytes != 0 {
            // SAFETY: so many bytes were just allocated there, and nobody has them but us.
            unsafe { std::ptr::write_bytes(start.cast::<u8>(), 0, bytes) };
        }
        Ok(Self {
            start: NonNull::new(start.cast()).unwrap_or(NonNull::dangling()),
            len,
            source,
            context: context.clone(),
        })
    }
}

impl<T> PinnedBuffer<T> {
    /// Without an element, and so without memory.
    pub(super) fn empty(context: &Context) -> Self {
        Self {
            start: NonNull::dangling(),
            len: 0,
            source: Source::Nothing,
            context: context.clone(),
        }
    }

    /// The context that the memory was made in.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// `cuMemHostGetFlags(&flags, start)`: what the memory was made with. A driver may add what is
    /// always on. Nothing for memory without a byte.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for a registered vector.
    ///
    /// Since CUDA 2.3. Raw: [`cuMemHostGetFlags`](fn@cuda_sys::cuMemHostGetFlags).
    #[doc(alias = "cuMemHostGetFlags")]
    pub fn flags(&self) -> Result<PinnedFlags> {
        let mut flags = 0;
        if self.has_memory() {
            without_current(&self.context, || {
                // SAFETY: the memory is the driver's, and the other pointer is to a local.
                unsafe {
                    answer!(cuMemHostGetFlags(
                        &raw mut flags,
                        self.start.as_ptr().cast()
                    ))
                }
            })?;
        }
        Ok(PinnedFlags::from_bits_retain(flags))
    }

    /// The number of elements, without a look at them as a slice, which nobody may have while the
    /// device writes them.
    pub(super) fn count(&self) -> usize {
        self.len
    }

    /// What the context's manager has pinned or allocated, if it has.
    fn managed(&self) -> Option<Managed> {
        match self.source {
            // SAFETY: it is a box of `Managed::keep`, which nobody has freed while this source is here.
            Source::Manager(managed) => Some(unsafe { *managed.as_ref() }),
            _ => None,
        }
    }

    /// The manager has let go of it.
    fn forget_managed(&mut self) {
        if let Source::Manager(managed) = std::mem::replace(&mut self.source, Source::Nothing) {
            // SAFETY: it is a box of `Managed::keep`, and its source has just been replaced.
            drop(unsafe { Box::from_raw(managed.as_ptr()) });
        }
    }

    /// Whether there is a byte, which the driver then knows.
    pub(super) fn has_memory(&self) -> bool {
        self.len * size_of::<T>() != 0
    }

    /// Gives the memory back, behind what the device does with it on a stream.
    pub(super) fn give_back(&mut self, used_on: Option<&Stream>) {
        let source = std::mem::replace(&mut self.source, Source::Nothing);
        let start = self.start.as_ptr();
        let both;
        let parent: &dyn Parent = match used_on {
            // Either may be what somebody else keeps.
            Some(stream) => {
                both = (stream.clone(), self.context.clone());
                &both
            }
            None => &self.context,
        };
        match source {
            Source::Nothing => {}
            Source::Driver => release(Resource::Pinned(start.cast()), parent),
            Source::Vector { capacity } if self.has_memory() => {
                // SAFETY: they are those of the vector that was registered, which has bytes; its
                // elements are `Copy` (see `register`), and it is given away here, once.
                let vector = unsafe { VectorMemory::new(start, capacity) };
                release(Resource::Registered(vector), parent);
            }
            // SAFETY: as above; without a byte of elements it was not registered.
            Source::Vector { capacity } => drop(unsafe { Vec::from_raw_parts(start, 0, capacity) }),
            Source::Manager(managed) => self.give_to_manager(managed, used_on),
        }
    }

    /// Gives memory back to the context's manager.
    #[cold]
    #[inline(never)]
    fn give_to_manager(&self, managed: NonNull<Managed>, used_on: Option<&Stream>) {
        // SAFETY: it is a box of `Managed::keep`, and its source has just been replaced.
        let managed = unsafe { Box::from_raw(managed.as_ptr()) };
        // It was allocated by the manager, so there is one. (In a forked child it is out of reach.)
        let manager = self.context.made_manager().filter(|_| !fork::in_child());
        let Some(manager) = manager else {
            return count_leak();
        };
        let order = used_on.map_or(Order::NONE, Order::of);
        match managed.capacity {
            // SAFETY: the block is of this manager, and given back here, once; safe copies of it are over
            // when they return, and by its address only that stream has used it.
            None => unsafe { manager.free_host(managed.block, order) },
            Some(capacity) => {
                // SAFETY: they are those of the vector that was pinned, which has bytes; its elements are
                // `Copy` (see `register`), and it is given away here, once.
                let vector = unsafe { VectorMemory::new(self.start.as_ptr(), capacity) };
                // SAFETY: as for the block above.
                unsafe { manager.release_pin(managed.block, vector.into_owner(), order) }
            }
        }
    }
}

/// Of memory of a context that is used on a stream.
impl Parent for (Stream, Context) {
    fn context(&self) -> Option<&Context> {
        Some(self.0.context())
    }

    fn ordered_on(&self) -> [Option<OrderedOn<'_>>; 2] {
        Parent::ordered_on(&self.0)
    }

    fn keep(&self) -> Box<dyn Parent + Send> {
        Box::new(self.clone())
    }

    fn is_borrowed(&self) -> bool {
        Parent::is_borrowed(&self.0) || Parent::is_borrowed(&self.1)
    }
}

impl<T> Deref for PinnedBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: there are `len` elements, valid from the start on (zeros, and the type allows any
        // bits; or those of a vector), aligned as the driver's pages or the vector are, and
        // borrowed with `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for PinnedBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and borrowed mutably with `self`.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T> Drop for PinnedBuffer<T> {
    fn drop(&mut self) {
        self.give_back(None);
    }
}

impl<T: fmt::Debug> fmt::Debug for PinnedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
