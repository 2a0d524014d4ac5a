//! Vectors as pinned memory.

use super::{Managed, PinnedBuffer, PinnedFlags, Source};
use crate::call::{answer, call, without_current};
use crate::context::Context;
use crate::error::{Rejected, Result};
use crate::invalid::Invalid;
use crate::release;
use cuda_sys::{CU_MEMHOSTREGISTER_DEVICEMAP, CU_MEMHOSTREGISTER_PORTABLE};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

/// How a vector is registered. (For the device to read only, or of another device's memory, are for
/// what is no vector: memory that the host may not write, and memory-mapped devices.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegisterOptions {
    /// Whether every context of the process knows it as pinned. The default is true.
    pub portable: bool,
    /// Whether kernels may reach it, as a [`MappedBuffer`](crate::MappedBuffer). (Where addressing
    /// is unified, which is everywhere today, they always may.)
    pub mapped: bool,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl Default for RegisterOptions {
    fn default() -> Self {
        Self {
            portable: true,
            mapped: false,
            _non_exhaustive: (),
        }
    }
}

impl RegisterOptions {
    fn pinned_flags(self) -> PinnedFlags {
        let Self {
            portable,
            mapped,
            _non_exhaustive: (),
        } = self;
        let mut flags = PinnedFlags::empty();
        flags.set(PinnedFlags::PORTABLE, portable);
        flags.set(PinnedFlags::MAPPED, mapped);
        flags
    }

    fn flags(self) -> u32 {
        let Self {
            portable,
            mapped,
            _non_exhaustive: (),
        } = self;
        let mut flags = 0;
        if portable {
            flags |= CU_MEMHOSTREGISTER_PORTABLE;
        }
        if mapped {
            flags |= CU_MEMHOSTREGISTER_DEVICEMAP;
        }
        flags
    }
}

impl<T: Copy> PinnedBuffer<T> {
    /// `cuMemHostRegister(vector, bytes, flags)`: pins the memory of a vector where it is, for
    /// every context. [`unregister`](Self::unregister) gives the vector back. (A boxed slice is a
    /// vector by `into_vec`, which copies nothing.)
    ///
    /// Pinning takes longer than a copy of the memory, so it is for memory that is used often. If
    /// the vector is dropped and the driver refuses to let go of it, its memory is leaked and
    /// reported: the device may still know it.
    ///
    /// # Errors
    /// As for [`register_with`](Self::register_with).
    pub fn register(context: &Context, vector: Vec<T>) -> Result<Self, Rejected<Vec<T>>> {
        Self::register_with(context, vector, RegisterOptions::default())
    }

    /// `cuMemHostRegister(start, bytes, flags)`: as [`register`](Self::register), with options.
    ///
    /// # Errors
    /// With the vector given back: `CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED` if a part of it is
    /// pinned already, which drivers may count in whole pages; `CUDA_ERROR_OUT_OF_MEMORY`;
    /// `CUDA_ERROR_NOT_SUPPORTED`
    /// ([`HOST_REGISTER_SUPPORTED`](crate::attribute::HOST_REGISTER_SUPPORTED)).
    ///
    /// Since CUDA 4.0 (from 6.5 on through `cuMemHostRegister_v2`). Raw:
    /// [`cuMemHostRegister_v2`](fn@cuda_sys::cuMemHostRegister_v2).
    #[doc(alias = "cuMemHostRegister")]
    pub fn register_with(
        context: &Context,
        mut vector: Vec<T>,
        options: RegisterOptions,
    ) -> Result<Self, Rejected<Vec<T>>> {
        release::drain();
        let bytes = vector.len() * size_of::<T>();
        let mut pinned = None;
        match context.memory_manager() {
            Err(error) => return Err(Rejected::new(error, vector)),
            Ok(None) => {}
            Ok(Some(_)) if bytes == 0 => {}
            Ok(Some(manager)) => {
                let start = NonNull::new(vector.as_mut_ptr()).unwrap_or(NonNull::dangling());
                // SAFETY: the vector has so many bytes there, which stay where they are until they are
                // unpinned.
                match unsafe { manager.pin(start.cast(), bytes, options.pinned_flags()) } {
                    Ok(block) => pinned = Some(block),
                    Err(error) => return Err(Rejected::new(error, vector)),
                }
            }
        }
        if bytes != 0 && pinned.is_none() {
            let start = vector.as_mut_ptr().cast();
            let registered = context.enter().and_then(|_current| {
                // SAFETY: the vector has so many bytes there, which stay where they are until they
                // are unregistered; the current context is this one.
                unsafe { call!(cuMemHostRegister_v2(start, bytes, options.flags())) }
            });
            if let Err(error) = registered {
                return Err(Rejected::new(error, vector));
            }
        }
        let mut vector = ManuallyDrop::new(vector);
        Ok(Self {
            start: NonNull::new(vector.as_mut_ptr()).unwrap_or(NonNull::dangling()),
            len: vector.len(),
            source: match pinned {
                None => Source::Vector {
                    capacity: vector.capacity(),
                },
                Some(block) => Managed::keep(block, Some(vector.capacity())),
            },
            context: context.clone(),
        })
    }

    /// `cuMemHostUnregister(vector)`: gives the vector back, pageable. Waits for *all* running
    /// work, as a drop does.
    ///
    /// # Errors
    /// With the buffer given back, as it was: [`Invalid::NotRegistered`] if it is no vector; those
    /// of earlier work.
    ///
    /// Since CUDA 4.0. Raw: [`cuMemHostUnregister`](fn@cuda_sys::cuMemHostUnregister).
    #[doc(alias = "cuMemHostUnregister")]
    pub fn unregister(mut self) -> Result<Vec<T>, Rejected<Self>> {
        release::drain();
        let (capacity, block) = match (&self.source, self.managed()) {
            (Source::Vector { capacity }, _) => (*capacity, None),
            (_, Some(managed)) if managed.capacity.is_some() => {
                (managed.capacity.unwrap_or(0), Some(managed.block))
            }
            _ => return Err(Rejected::new(Invalid::NotRegistered, self)),
        };
        let start = self.start.as_ptr();
        if let Some(block) = block {
            let done = self.context.expect_manager().and_then(|manager| {
                // SAFETY: this manager has pinned it, and nobody has let go of it; for copies as below.
                unsafe { manager.unpin(block) }
            });
            if let Err(error) = done {
                return Err(Rejected::new(error, self));
            }
            self.forget_managed();
        } else if self.has_memory() {
            let done = without_current(&self.context, || {
                // SAFETY: it is registered from there on; copies that were given own the buffer, so
                // none is under way.
                unsafe { answer!(cuMemHostUnregister(start.cast())) }
            });
            if let Err(error) = done {
                return Err(Rejected::new(error, self));
            }
        }
        self.source = Source::Nothing;
        // SAFETY: they are those of the vector that was registered; the buffer has just given it
        // up, and its elements are valid as those of every slice.
        Ok(unsafe { Vec::from_raw_parts(start, self.len, capacity) })
    }
}
