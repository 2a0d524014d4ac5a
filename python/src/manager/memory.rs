//! Memory of a memory manager, for libraries that use addresses.

use super::plugin::{as_plugin, pinning};
use crate::error::{Failure, Result};
use crate::lifetime::ending::detached;
use crate::lifetime::hold::{Closable, Owner};
use crate::objects::PyStream;
use crate::primary::{OfContext, UntilReset};
use crate::stream_handle::StreamHandle;
use cuda_safe::Context;
use cuda_safe::manager::{HostPointer, MappedMemory, MemoryPointer, Order, PinnedMemory};
use cuda_safe::memory::PinnedFlags;
use cuda_safe::sys::CU_STREAM_LEGACY;
use pyo3::prelude::*;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

/// Device or managed memory, which is freed when this object is deleted, or earlier by `close`.
#[pyclass(frozen, name = "_Memory", module = "cuda_safe._native")]
pub(crate) struct PyMemory {
    memory: Closable<UntilReset<MemoryPointer>>,
    #[pyo3(get)]
    address: u64,
    #[pyo3(get)]
    size: usize,
    /// A number that is unique among all allocations of the process, past and future.
    #[pyo3(get)]
    id: u64,
}

impl OfContext for MemoryPointer {
    fn context(&self) -> &Context {
        // This calls the inherent method of the type.
        Self::context(self)
    }
}

impl OfContext for Pinned {
    fn context(&self) -> &Context {
        HostPointer::context(self)
    }
}

/// The stream of an allocation.
#[derive(FromPyObject)]
pub(crate) enum StreamLike {
    Kept(Py<PyStream>),
    /// The handle of a live stream that nothing keeps alive, or 1 or 2 for a default stream.
    Handle(u64),
}

impl PyMemory {
    fn of(memory: MemoryPointer) -> Self {
        Self {
            address: memory.as_raw(),
            size: memory.size(),
            id: memory.id(),
            memory: Closable::new("memory", UntilReset::new(memory)),
        }
    }

    pub(super) fn allocate(
        py: Python<'_>,
        context: &Context,
        size: usize,
        stream: Option<StreamLike>,
    ) -> Result<Self> {
        let lane = match stream {
            Some(StreamLike::Kept(stream)) => Some(stream.get().lane()?),
            Some(StreamLike::Handle(handle)) => {
                Some(StreamHandle::of_number(handle, context.clone())?)
            }
            None => None,
        };
        let memory = detached(py, move || {
            let order = match &lane {
                Some(StreamHandle::Stream(stream)) => Order::of(stream),
                // SAFETY: this is the default stream of the manager's context, which stays alive,
                // and is never captured.
                Some(StreamHandle::Legacy(_)) => unsafe { Order::persistent(CU_STREAM_LEGACY) },
                // Nothing keeps the stream alive, or another thread may free the memory. A graph
                // would use captured memory when it may already belong to another allocation.
                Some(stream @ (StreamHandle::PerThread(_) | StreamHandle::Handle(..))) => {
                    stream.refuse_captured()?;
                    Order::NONE
                }
                None => Order::NONE,
            };
            if let Some(other) = lane.as_ref().filter(|lane| lane.context() != context) {
                return Err(Failure::invalid(format!(
                    "a stream of device {} cannot be used for memory of device {}",
                    other.context().device().ordinal(),
                    context.device().ordinal()
                )));
            }
            Ok(MemoryPointer::allocate_in(context, size, order)?)
        })?;
        Ok(Self::of(memory))
    }

    pub(super) fn allocate_managed(
        py: Python<'_>,
        context: &Context,
        size: usize,
        is_global: bool,
    ) -> Result<Self> {
        let allocate = || MemoryPointer::allocate_managed(context, size, is_global);
        Ok(Self::of(detached(py, allocate)?))
    }
}

#[pymethods]
impl PyMemory {
    /// Frees the memory now, if it was not freed before.
    fn close(&self, py: Python<'_>) {
        self.memory.close(py);
    }

    /// Leaks the memory, which stays allocated until the process ends.
    fn leak(&self) {
        std::mem::forget(self.memory.take());
    }
}

/// Page-locked host memory, allocated here or owned by another object.
#[pyclass(frozen, name = "_HostMemory", module = "cuda_safe._native")]
pub(crate) struct PyHostMemory {
    memory: Closable<UntilReset<Pinned>>,
    /// The address for the host.
    #[pyo3(get)]
    address: usize,
    #[pyo3(get)]
    size: usize,
    #[pyo3(get)]
    id: u64,
}

enum Pinned {
    Mapped(MappedMemory),
    Other(PinnedMemory),
}

impl Deref for Pinned {
    type Target = HostPointer;

    fn deref(&self) -> &HostPointer {
        match self {
            Self::Mapped(memory) => memory,
            Self::Other(memory) => memory,
        }
    }
}

impl PyHostMemory {
    fn of(memory: Pinned) -> Self {
        Self {
            // The receiving library creates pointers from the address.
            address: memory.as_ptr().expose_provenance(),
            size: memory.size(),
            id: memory.id(),
            memory: Closable::new("memory", UntilReset::new(memory)),
        }
    }

    pub(super) fn allocate(
        py: Python<'_>,
        context: &Context,
        size: usize,
        mapped: bool,
        portable: bool,
        write_combined: bool,
        from_driver: bool,
    ) -> Result<Self> {
        let mut flags = PinnedFlags::empty();
        flags.set(PinnedFlags::PORTABLE, portable);
        flags.set(PinnedFlags::WRITE_COMBINED, write_combined);
        let allocate = || match mapped {
            true => MappedMemory::allocate(context, size, flags).map(Pinned::Mapped),
            false => PinnedMemory::allocate(context, size, flags).map(Pinned::Other),
        };
        let memory = detached(py, || match from_driver {
            true => as_plugin(allocate),
            false => allocate(),
        })?;
        Ok(Self::of(memory))
    }

    pub(super) fn pin(
        py: Python<'_>,
        context: &Context,
        owner: Owner,
        address: usize,
        size: usize,
        mapped: bool,
        from_driver: bool,
    ) -> Result<Self> {
        if address == 0 || size == 0 {
            return Err(Failure::invalid("cannot pin memory with address 0 or size 0"));
        }
        let flags = PinnedFlags::empty();
        let owner = Arc::new(owner);
        let passed = Arc::clone(&owner);
        let pin = move || {
            let start = std::ptr::with_exposed_provenance_mut::<u8>(address);
            let start = NonNull::new(start).unwrap_or(NonNull::dangling());
            match mapped {
                // SAFETY: the caller promises that the memory belongs to the owner, which is kept
                // alive.
                true => unsafe { MappedMemory::pin(context, owner, start, size, flags) }
                    .map(Pinned::Mapped),
                // SAFETY: see above.
                false => unsafe { PinnedMemory::pin(context, owner, start, size, flags) }
                    .map(Pinned::Other),
            }
        };
        let memory = detached(py, move || match from_driver {
            true => as_plugin(pin),
            false => pinning(&passed, pin),
        })?;
        Ok(Self::of(memory))
    }
}

#[pymethods]
impl PyHostMemory {
    /// Frees or unlocks the memory now, if that has not happened before.
    fn close(&self, py: Python<'_>) {
        self.memory.close(py);
    }

    /// Leaks the memory and its owner, which stay alive until the process ends.
    fn leak(&self) {
        std::mem::forget(self.memory.take());
    }
}
