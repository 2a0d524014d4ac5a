//! Registration of vectors as pinned memory.

use super::{Managed, PinnedBuffer, PinnedFlags, Source};
use crate::call::{Invalid, Rejected, Result, answer, call, without_current};
use crate::context::Context;
use crate::release;
use cuda_sys::{CU_MEMHOSTREGISTER_DEVICEMAP, CU_MEMHOSTREGISTER_PORTABLE};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

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
    fn pinned_flags(self) -> PinnedFlags {
        let Self { portable, mapped, _non_exhaustive: () } = self;
        let mut flags = PinnedFlags::empty();
        flags.set(PinnedFlags::PORTABLE, portable);
        flags.set(PinnedFlags::MAPPED, mapped);
        flags
    }

    #[inline]
    fn flags(self) -> u32 {
        let Self { portable, mapped, _non_exhaustive: () } = self;
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
        let bytes = vector.len() * size_of::<T>();
        let mut pinned = None;
        match context.memory_manager() {
            Err(error) => return Err(Rejected::new(error.with_requested_bytes(bytes), vector)),
            Ok(None) => {}
            Ok(Some(_)) if bytes == 0 => {}
            Ok(Some(manager)) => {
                let start = NonNull::new(vector.as_mut_ptr()).unwrap_or(NonNull::dangling());
                // SAFETY: the vector has `bytes` bytes at this address, which are not moved or
                // freed until they are unpinned.
                match unsafe { manager.pin(start.cast(), bytes, options.pinned_flags()) } {
                    Ok(block) => pinned = Some(block),
                    Err(error) => return Err(Rejected::new(error, vector)),
                }
            }
        }
        if bytes != 0 && pinned.is_none() {
            let start = vector.as_mut_ptr().cast();
            let registered = context.enter().and_then(|_current| {
                // SAFETY: the vector has `bytes` bytes at this address, which are not moved or
                // freed until they are unregistered. The current context is this context.
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
                // SAFETY: this manager pinned the memory, and it has not been unpinned. The
                // argument on copies below applies here too.
                unsafe { manager.unpin(block) }
            });
            if let Err(error) = done {
                return Err(Rejected::new(error, self));
            }
            self.forget_managed();
        } else if self.has_memory() {
            let done = without_current(&self.context, || {
                // SAFETY: the memory at this address is registered. Copies in progress own the
                // buffer, so no copy is in progress.
                unsafe { answer!(cuMemHostUnregister(start.cast())) }
            });
            if let Err(error) = done {
                return Err(Rejected::new(error, self));
            }
        }
        self.source = Source::Nothing;
        // SAFETY: these are the parts of the registered vector. The buffer has just given up the
        // memory, and the elements are valid, as the elements of every slice are.
        Ok(unsafe { Vec::from_raw_parts(start, self.len, capacity) })
    }
}
