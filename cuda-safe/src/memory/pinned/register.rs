//! Registration of vectors as pinned memory.

use super::{Managed, PinnedBuffer, PinnedFlags, Source};
use crate::call::{Invalid, Rejected, Result, answer, call, without_current};
use crate::context::Context;
use crate::manager::HostBlock;
use crate::release;
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
