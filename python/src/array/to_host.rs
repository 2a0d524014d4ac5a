//! DLPack export to the host (`__dlpack__(dl_device=(1, 0))`).
//!
//! The array API standard lets a consumer request a tensor on the host. The host has no streams, so
//! the producer waits for its work. Device memory is copied. Pinned and managed memory is exported
//! without a copy, unless the consumer requests one.

use super::dlpack::{self, Exported, Request, capsule_of, refused};
use super::memory::{Memory, host_address};
use super::{Array, PyDeviceArray};
use crate::error::Result;
use cuda_safe::device::attribute::CONCURRENT_MANAGED_ACCESS;
use cuda_safe::interop::Layout;
use cuda_safe::interop::dlpack::{Export, MemoryKind};
use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use std::alloc;
use std::ptr::NonNull;

/// DLPack's device type and number of the host.
pub(super) const HOST: (i32, i32) = (1, 0);

/// The alignment of tensors that dlpack.h requires.
const ALIGNMENT: usize = 256;

/// Waits for the work on an array, before the host uses its memory.
pub(super) fn wait(py: Python<'_>, array: &PyDeviceArray) -> Result<()> {
    array.work(py, None, |lane| {
        lane.refuse_captured()?;
        lane.settle()
    })
}

/// Exports an array to the host.
pub(super) fn export<'py>(
    py: Python<'py>,
    array: &PyDeviceArray,
    request: &Request,
) -> Result<Bound<'py, PyAny>> {
    // All checks come before the wait and the copy.
    let its = &array.array;
    let dtype = dlpack::dtype_of(its)?;
    let exported = Exported::new(array.kept(py)?);
    let in_place = match (request.copy, exported.memory()) {
        (Some(true), _) | (_, None) => None,
        (_, Some(memory)) => address_for_host(py, memory, its)?,
    };
    if let Some(address) = in_place {
        wait(py, array)?;
        let layout = its.layout.clone();
        let tensor = Export::new(dtype, layout, address, MemoryKind::Host, 0, exported)?;
        let tensor = match its.read_only {
            true => tensor.read_only(),
            false => tensor,
        };
        return capsule_of(py, tensor, request);
    }
    if request.copy == Some(false) {
        let problem = "the host cannot access the memory, so copy=False is not possible: omit it, or \
                       use a PinnedArray";
        return Err(refused("copy", problem));
    }
    let layout = Layout::c_contiguous(its.layout.shape(), its.layout.item_size())?;
    let memory = HostMemory::allocate(layout.byte_range().end.unsigned_abs())?;
    // SAFETY: the memory has the size of all elements, and no other code has access to it yet.
    unsafe { array.copy_out(py, memory.start.as_ptr(), &layout) }?;
    let address = memory.start.as_ptr().expose_provenance() as u64;
    let tensor = Export::new(dtype, layout, address, MemoryKind::Host, 0, memory)?;
    capsule_of(py, tensor.copied(), request)
}

/// Returns the address of the first element for the host, or None if the host cannot access the
/// memory.
fn address_for_host(py: Python<'_>, memory: &Memory, array: &Array) -> Result<Option<u64>> {
    let is_accessible = match memory.kind() {
        MemoryKind::Pinned => true,
        // Otherwise the host must not access the memory while any kernel runs on the device.
        MemoryKind::Managed => {
            let device = memory.context().device();
            device.attribute(CONCURRENT_MANAGED_ACCESS)?
        }
        _ => false,
    };
    match is_accessible {
        true => host_address(py, array.address),
        false => Ok(None),
    }
}

/// Host memory of a copy, which is not initialized when it is allocated.
struct HostMemory {
    start: NonNull<u8>,
    layout: alloc::Layout,
}

// SAFETY: this owns the memory, like a `Box<[MaybeUninit<u8>]>`.
unsafe impl Send for HostMemory {}

impl HostMemory {
    fn allocate(bytes: usize) -> Result<Self> {
        let failed =
            || PyMemoryError::new_err(format!("cannot allocate {bytes} bytes of host memory"));
        // The allocator does not support a size of 0.
        let layout =
            alloc::Layout::from_size_align(bytes.max(1), ALIGNMENT).map_err(|_| failed())?;
        // SAFETY: the size is not 0.
        let start = unsafe { alloc::alloc(layout) };
        let start = NonNull::new(start).ok_or_else(failed)?;
        Ok(Self { start, layout })
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        // SAFETY: the memory was allocated with this layout, and is released only here.
        unsafe { alloc::dealloc(self.start.as_ptr(), self.layout) }
    }
}
