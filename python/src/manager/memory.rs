//! Memory of a manager's, for libraries that take addresses.

use crate::device::is_gone;
use crate::ending::detached;
use crate::error::{Failure, Result};
use crate::hold::{Closable, Owner};
use crate::lane::Lane;
use crate::stream::PyStream;
use cuda_safe::manager::{HostPointer, MappedMemory, MemoryPointer, Order, PinnedMemory};
use cuda_safe::sys::CU_STREAM_LEGACY;
use cuda_safe::{Context, PinnedFlags};
use pyo3::prelude::*;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;

/// Device or managed memory, which goes back to its manager with this object, or before by `close`.
#[pyclass(frozen, name = "_Memory", module = "cuda_safe._native")]
pub(crate) struct PyMemory {
    memory: Closable<Given<MemoryPointer>>,
    #[pyo3(get)]
    address: u64,
    #[pyo3(get)]
    size: usize,
    /// A number that no other memory of the process has or will have.
    #[pyo3(get)]
    id: u64,
}

/// Memory that goes back to its manager. But not if other code has reset the context: it went with that,
/// and its address may be somebody else's.
struct Given<T: OfContext>(ManuallyDrop<T>);

trait OfContext {
    fn context(&self) -> &Context;
}

impl OfContext for MemoryPointer {
    fn context(&self) -> &Context {
        // The type's own.
        Self::context(self)
    }
}

impl OfContext for Pinned {
    fn context(&self) -> &Context {
        HostPointer::context(self)
    }
}

impl<T: OfContext> Drop for Given<T> {
    fn drop(&mut self) {
        if !is_gone(self.0.context()) {
            // SAFETY: it is dropped here alone, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.0) };
        }
    }
}

/// The stream that memory is for.
#[derive(FromPyObject)]
pub(crate) enum StreamLike {
    Kept(Py<PyStream>),
    /// One that nobody keeps, which is alive now; or 1 or 2, a default stream.
    Handle(u64),
}

impl PyMemory {
    fn of(memory: MemoryPointer) -> Self {
        Self {
            address: memory.as_raw(),
            size: memory.size(),
            id: memory.id(),
            memory: Closable::new("memory", Given(ManuallyDrop::new(memory))),
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
            Some(StreamLike::Handle(handle)) => Some(Lane::of_number(handle, context.clone())?),
            None => None,
        };
        let memory = detached(py, move || {
            let order = match &lane {
                Some(Lane::Stream(stream)) => Order::of(stream),
                // SAFETY: the default stream of the manager's context, which stays, and is never captured.
                Some(Lane::Legacy(_)) => unsafe { Order::lasting(CU_STREAM_LEGACY) },
                // Nobody keeps it, or somebody may free the memory on another thread. Of a capture it
                // would be used by a graph, and be somebody else's by then.
                Some(stream @ (Lane::PerThread(_) | Lane::Handle(..))) => {
                    stream.refuse_captured()?;
                    Order::NONE
                }
                None => Order::NONE,
            };
            if let Some(other) = lane.as_ref().filter(|lane| lane.context() != context) {
                return Err(Failure::invalid(format!(
                    "a stream of device {}, for memory of device {}",
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
    /// Gives it back now, if that has not happened.
    fn close(&self, py: Python<'_>) {
        self.memory.close(py);
    }

    /// Never gives it back: it stays until the process ends.
    fn leak(&self) {
        std::mem::forget(self.memory.take());
    }
}

/// Page-locked memory of the host: allocated, or of an owner.
#[pyclass(frozen, name = "_HostMemory", module = "cuda_safe._native")]
pub(crate) struct PyHostMemory {
    memory: Closable<Given<Pinned>>,
    /// For the host.
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
            // The library that it is for makes accesses of it.
            address: memory.as_ptr().expose_provenance(),
            size: memory.size(),
            id: memory.id(),
            memory: Closable::new("memory", Given(ManuallyDrop::new(memory))),
        }
    }

    pub(super) fn allocate(
        py: Python<'_>,
        context: &Context,
        size: usize,
        mapped: bool,
        portable: bool,
        write_combined: bool,
    ) -> Result<Self> {
        let mut flags = PinnedFlags::empty();
        flags.set(PinnedFlags::PORTABLE, portable);
        flags.set(PinnedFlags::WRITE_COMBINED, write_combined);
        let memory = detached(py, || match mapped {
            true => MappedMemory::allocate(context, size, flags).map(Pinned::Mapped),
            false => PinnedMemory::allocate(context, size, flags).map(Pinned::Other),
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
    ) -> Result<Self> {
        if address == 0 || size == 0 {
            return Err(Failure::invalid("no byte to pin"));
        }
        let flags = PinnedFlags::empty();
        let memory = detached(py, move || {
            let start = std::ptr::with_exposed_provenance_mut::<u8>(address);
            let start = NonNull::new(start).unwrap_or(NonNull::dangling());
            match mapped {
                // SAFETY: whoever calls says that the memory is the owner's, who is kept.
                true => unsafe { MappedMemory::pin(context, owner, start, size, flags) }
                    .map(Pinned::Mapped),
                // SAFETY: as above.
                false => unsafe { PinnedMemory::pin(context, owner, start, size, flags) }
                    .map(Pinned::Other),
            }
        })?;
        Ok(Self::of(memory))
    }
}

#[pymethods]
impl PyHostMemory {
    /// Gives it back now, or lets go of the owner, if that has not happened.
    fn close(&self, py: Python<'_>) {
        self.memory.close(py);
    }

    /// Never gives it back: it stays until the process ends, and so does the owner.
    fn leak(&self) {
        std::mem::forget(self.memory.take());
    }
}
