//! Memory that is registered with communicators.

use crate::call::{Progress, nccl};
use crate::communicator::Communicator;
use crate::error::{Error, Invalid, Result};
use crate::registration::Registration;
use crate::shared::{Shared, Work, outside_captures};
use crate::sys::{self, ncclComm_t};
use cuda_safe::manager::{in_forked_child, may_block};
use cuda_safe::{DeviceBuffer, DeviceSlice, DeviceSliceMut};
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A buffer that is registered with communicators: other GPUs access it without copies.
///
/// NCCL uses a registration if all ranks have registered the buffers of an operation, with the same offsets, and if the
/// memory is that of [`NcclManager`](crate::NcclManager) or other shareable memory. Otherwise it copies.
///
/// The value owns the buffer, since memory must not be freed while it is registered. A registration ends in the way
/// that fits: with the value, after the work of the stream (`ncclCommDeregister`, `ncclCommWindowDeregister`); before
/// the communicator is destroyed or finalized; or by an abort, if the work was complete. To register a buffer again with
/// the same communicator does nothing.
///
/// # Leaks
/// A drop leaks the buffer if the registration cannot end: after an abort of an operation that was not complete, since
/// other ranks learn nothing of the abort and may still access the buffer; while the stream of the communicator is
/// captured; after an error of the work; and in a host function.
///
/// # Safety of registrations
/// Other ranks access the buffer at addresses that NCCL computes from *their* arguments. So a registration is `unsafe`.
/// Until the registration has ended, and on all ranks of the communicator:
/// - Operations that belong together are the same, with the same root, element type and number of elements. A send has
///   the element type and the number of elements of its receipt.
/// - All ranks register buffers of the same size as a window. If the window is symmetric, each buffer of an operation has
///   the same offset in the windows of all ranks.
///
/// Operations on buffers that are not registered are also part of this if the buffer of a peer is.
#[derive(Debug)]
#[doc(alias = "ncclCommDeregister", alias = "ncclCommWindowDeregister")]
pub struct Registered<T> {
    /// Dropped after the registrations have ended, and leaked otherwise.
    buffer: ManuallyDrop<DeviceBuffer<T>>,
    entries: Vec<Entry>,
    /// Whether NCCL may have registered the buffer although the registration has failed.
    is_lost: bool,
}

/// One registration, and the communicator that has it.
#[derive(Debug)]
struct Entry {
    shared: Arc<Shared>,
    /// The key in the registrations of the communicator.
    key: u64,
    is_window: bool,
}

impl Communicator {
    /// Registers a buffer. Calls `ncclCommRegister`.
    ///
    /// # Errors
    /// See [`Registered::register`]. The buffer is then dropped; [`Registered::new`] and `register` keep it.
    ///
    /// # Safety
    /// The operations of all ranks [match](Registered#safety-of-registrations) until the registration has ended.
    ///
    /// Since NCCL 2.19. Raw: [`ncclCommRegister`](fn@crate::sys::ncclCommRegister).
    #[doc(alias = "ncclCommRegister")]
    pub unsafe fn register<T>(&self, buffer: DeviceBuffer<T>) -> Result<Registered<T>> {
        let mut registered = Registered::new(buffer);
        // SAFETY: the caller's promise.
        unsafe { registered.register(self) }?;
        Ok(registered)
    }
}

impl<T> Registered<T> {
    /// Returns a buffer that is not registered yet.
    #[inline]
    pub fn new(buffer: DeviceBuffer<T>) -> Self {
        Self { buffer: ManuallyDrop::new(buffer), entries: Vec::new(), is_lost: false }
    }

    /// Registers the buffer with a communicator, unless it is. Calls `ncclCommRegister`.
    ///
    /// # Errors
    /// [`Invalid::OtherDevice`]; [`Error::Aborted`]; errors of NCCL and the driver.
    ///
    /// # Safety
    /// The operations of all ranks [match](Registered#safety-of-registrations) until the registration has ended.
    ///
    /// Since NCCL 2.19. Raw: [`ncclCommRegister`](fn@crate::sys::ncclCommRegister).
    #[doc(alias = "ncclCommRegister")]
    pub unsafe fn register(&mut self, communicator: &Communicator) -> Result<()> {
        if self.is_registered(communicator, false)? {
            return Ok(());
        }
        let (address, size) = self.memory(communicator)?;
        let handle = AtomicPtr::default();
        let place = handle.as_ptr();
        let registered = self.add(
            communicator,
            false,
            |raw| {
                // SAFETY: the communicator is alive. The buffer is alive until the registration has ended. The place is
                // valid for a write, and its readers are atomic.
                unsafe { nccl!(ncclCommRegister(raw, address, size, place)) }
            },
            || {
                Some(handle.load(Ordering::Acquire))
                    .filter(|its| !its.is_null())
                    .map(Registration::Buffer)
            },
        );
        registered.map(|_| ())
    }

    /// Registers the buffers of all ranks as a window, unless this one is. Calls `ncclCommWindowRegister`. All ranks must
    /// call it, with buffers of the same size.
    ///
    /// `symmetric` promises that all ranks use the same offsets in the window for an operation, which permits faster
    /// operations. Returns whether there is a window: NCCL does not support windows everywhere.
    ///
    /// # Errors
    /// See [`register`](Self::register).
    ///
    /// # Safety
    /// The buffers of all ranks have the same size. The operations of all ranks, and with `symmetric` their offsets,
    /// [match](Registered#safety-of-registrations) until the registration has ended.
    ///
    /// Since NCCL 2.27. Raw: [`ncclCommWindowRegister`](fn@crate::sys::ncclCommWindowRegister).
    #[doc(alias = "ncclCommWindowRegister")]
    pub unsafe fn register_window(
        &mut self,
        communicator: &Communicator,
        symmetric: bool,
    ) -> Result<bool> {
        if self.is_registered(communicator, true)? {
            return Ok(true);
        }
        let (address, size) = self.memory(communicator)?;
        let flags = match symmetric {
            true => sys::NCCL_WIN_COLL_SYMMETRIC,
            false => sys::NCCL_WIN_DEFAULT,
        };
        // A thread of NCCL may write the window after the call has returned.
        let window = Box::new(AtomicPtr::default());
        let place = window.as_ptr();
        let is_window = self.add(
            communicator,
            true,
            |raw| {
                // SAFETY: as for `register`.
                unsafe { nccl!(ncclCommWindowRegister(raw, address, size, place, flags as i32)) }
            },
            || {
                Some(window.load(Ordering::Acquire))
                    .filter(|its| !its.is_null())
                    .map(Registration::Window)
            },
        );
        if is_window.is_err() {
            // That thread may still write it.
            let _ = Box::leak(window);
        }
        is_window
    }

    /// Makes a registration and notes it. Returns whether there is one.
    fn add(
        &mut self,
        communicator: &Communicator,
        is_window: bool,
        call: impl FnOnce(ncclComm_t) -> Result<Progress>,
        made: impl FnOnce() -> Option<Registration>,
    ) -> Result<bool> {
        let shared = &communicator.shared;
        outside_captures(|| {
            let mut handle = shared.lock()?;
            let raw = handle.raw();
            shared.primary.with_current(|_| call(raw))??;
            // The work of the call may continue even if it has returned `ncclSuccess`, as that of a split.
            if let Err(error) = shared.wait(&mut handle, None) {
                self.is_lost = true;
                return Err(error);
            }
            let Some(registration) = made() else {
                return Ok(false);
            };
            let key = handle.registrations.insert(registration);
            self.entries.push(Entry { shared: Arc::clone(shared), key, is_window });
            Ok(true)
        })
    }

    /// Returns whether the buffer is registered with a communicator.
    ///
    /// # Errors
    /// [`Error::Aborted`].
    fn is_registered(&self, communicator: &Communicator, is_window: bool) -> Result<bool> {
        let shared = &communicator.shared;
        // The registrations of a communicator that is alive end only in this value.
        drop(shared.lock()?);
        let same =
            |entry: &Entry| entry.is_window == is_window && Arc::ptr_eq(&entry.shared, shared);
        Ok(self.entries.iter().any(same))
    }

    /// Returns the address and the size of the buffer, for a communicator of the same device.
    fn memory(&self, communicator: &Communicator) -> Result<(*mut c_void, usize)> {
        let buffer = &*self.buffer;
        let of = |stream: &cuda_safe::Stream| stream.context().device().ordinal();
        let (memory, own) = (of(buffer.stream()), of(communicator.stream()));
        if memory != own {
            return Err(Invalid::OtherDevice { memory, communicator: own }.into());
        }
        let address = core::ptr::without_provenance_mut(buffer.as_raw() as usize);
        Ok((address, buffer.size_bytes()))
    }

    /// Returns the buffer, for reading.
    #[inline]
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        self.buffer.as_slice()
    }

    /// Returns the buffer, for reading and writing.
    #[inline]
    pub fn as_mut_slice(&mut self) -> DeviceSliceMut<'_, T> {
        self.buffer.as_mut_slice()
    }

    /// Ends the registrations, and returns the buffer. Waits until the work of the communicators' streams is complete.
    ///
    /// # Errors
    /// [`Error::Aborted`] if the buffer was leaked, because a registration could not be ended.
    pub fn into_buffer(self) -> Result<DeviceBuffer<T>> {
        let mut its = ManuallyDrop::new(self);
        match its.end() {
            // SAFETY: the value is not dropped, so the buffer is taken once.
            true => Ok(unsafe { ManuallyDrop::take(&mut its.buffer) }),
            false => Err(Error::Aborted),
        }
    }

    /// Ends the registrations. Returns whether all have ended. Otherwise the buffer must be leaked: NCCL would use the
    /// address for other memory.
    fn end(&mut self) -> bool {
        let entries = std::mem::take(&mut self.entries);
        let mut all = !self.is_lost;
        for entry in entries {
            all &= entry.shared.deregister(entry.key).is_ok();
        }
        all
    }
}

impl Shared {
    /// Ends a registration, if it has not ended, after the work of the stream. Waits for a drop of the communicator, which
    /// ends it, too.
    ///
    /// # Errors
    /// [`Error::Aborted`] and other errors if other ranks or NCCL may use the memory further.
    #[inline]
    fn deregister(&self, key: u64) -> Result<()> {
        // In these cases, the communicator cannot be locked, or cannot be used.
        if in_forked_child() || !may_block() {
            return Err(Error::Aborted);
        }
        let mut handle = self.hold();
        let Some(registration) = handle.registrations.get(key) else {
            return Ok(());
        };
        if handle.has_ended() {
            return Err(Error::Aborted);
        }
        match self.wait_for_stream() {
            Work::Complete if !handle.is_interrupted() => {}
            Work::Runs => {
                self.abort_locked(&mut handle)?;
                return match handle.registrations.get(key) {
                    None => Ok(()),
                    Some(_) => Err(Error::Aborted),
                };
            }
            Work::Captured => return Err(Invalid::Captured.into()),
            Work::Complete | Work::Unknown => return Err(Error::Aborted),
        }
        let raw = handle.raw();
        outside_captures(|| {
            // SAFETY: the communicator is alive, and its work is complete.
            self.primary.with_current(|_| unsafe { registration.end(raw) })?
        })?;
        handle.registrations.remove(key);
        Ok(())
    }
}

impl<T> Drop for Registered<T> {
    fn drop(&mut self) {
        if self.end() {
            // SAFETY: the buffer is not used afterwards, and it was not taken.
            unsafe { ManuallyDrop::drop(&mut self.buffer) };
        }
    }
}
