//! Memory that is bound to a multicast object or a logical endpoint.

use super::mapping::Mapping;
use super::physical::{PhysicalMemory, check_part};
use crate::call::{Answer, Rejected, Result};
use crate::device::Device;
use crate::release::{self, Destroy, Leftover, Owned};
use cuda_sys::{CUdevice, CUdeviceptr, CUresult};
use std::fmt::Debug;

/// What memory is bound to: a [`MulticastObject`](super::MulticastObject) or a
/// [`LogicalEndpoint`](super::LogicalEndpoint), whose clones keep the object alive.
pub trait Target: Clone + Debug + Send + Sync + 'static {
    /// The name of a binding in messages.
    const BINDING: &'static str;
    /// The function that unbinds memory.
    const UNBIND: &'static str;

    /// Returns the granularity of offsets and sizes, and the size, in bytes.
    fn limits(&self) -> (usize, usize);

    /// Binds memory, by its address if it is mapped.
    ///
    /// # Safety
    /// The memory is mapped at the address, or at none. Until it is unbound, it stays alive, and no work of
    /// safe code uses it.
    unsafe fn bind(
        &self,
        device: Device,
        offset: usize,
        memory: &PhysicalMemory,
        address: Option<CUdeviceptr>,
    ) -> Result<()>;

    /// # Safety
    /// Memory of this device and size is bound at this offset, and kernels that used it have ended.
    unsafe fn unbind(&self, device: CUdevice, offset: usize, size: usize) -> CUresult;
}

/// Memory that can be bound: [`PhysicalMemory`], or a [`Mapping`], whose address kernels can then use.
pub trait Bindable: Source {}

impl Bindable for PhysicalMemory {}
impl Bindable for Mapping {}

/// The parts of memory that can be bound. Private, so that the crate has all implementations of [`Bindable`].
pub trait Source {
    fn memory(&self) -> &PhysicalMemory;

    fn mapped_at(&self) -> Option<CUdeviceptr>;
}

impl Source for PhysicalMemory {
    #[inline]
    fn memory(&self) -> &PhysicalMemory {
        self
    }

    #[inline]
    fn mapped_at(&self) -> Option<CUdeviceptr> {
        None
    }
}

impl Source for Mapping {
    #[inline]
    fn memory(&self) -> &PhysicalMemory {
        self.memory()
    }

    #[inline]
    fn mapped_at(&self) -> Option<CUdeviceptr> {
        Some(self.address())
    }
}

/// Memory of a device that is bound to a [`MulticastObject`](super::MulticastObject) or a
/// [`LogicalEndpoint`](super::LogicalEndpoint). Owns the memory, either
/// [`PhysicalMemory`] or a [`Mapping`], and keeps the object.
///
/// Dropping it unbinds the memory at once (`cuMulticastUnbind`, `cuLogicalEndpointUnbind`) and then drops the
/// memory. Kernels use the memory by raw addresses, so the caller of such a kernel keeps the binding until the
/// kernel has ended.
///
/// Unverified (from documentation).
#[derive(Debug)]
pub struct Binding<O: Target, M> {
    // Dropped before the memory.
    bound: Owned<Bound<O>>,
    memory: M,
}

impl<O: Target, M: Bindable> Binding<O, M> {
    pub(super) fn new(
        object: &O,
        device: Device,
        offset: usize,
        memory: M,
    ) -> Result<Self, Rejected<M>> {
        release::drain();
        let (granularity, len) = object.limits();
        let (its, address) = (memory.memory(), memory.mapped_at());
        let size = its.size();
        let bound = check_part(offset, size, granularity, len).and_then(|()| {
            // SAFETY: the binding owns the memory, and unbinds it before it is dropped. No work of safe
            // code uses memory that is not mapped, or a mapping that is not bound to a stream.
            unsafe { object.bind(device, offset, its, address) }
        });
        let ((), memory) = Rejected::unless(bound, memory)?;
        let bound = Owned::new(Bound { object: object.clone(), device, offset, size });
        Ok(Self { bound, memory })
    }
}

impl<O: Target, M> Binding<O, M> {
    /// Returns the device of the memory.
    pub fn device(&self) -> Device {
        self.bound.device
    }

    /// Returns the offset in the object, in bytes.
    pub fn offset(&self) -> usize {
        self.bound.offset
    }

    /// Returns the bound memory.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Unbinds the memory and returns it. Calls `cuMulticastUnbind` or `cuLogicalEndpointUnbind`.
    ///
    /// # Errors
    /// Errors from the driver. The binding is then dropped.
    ///
    /// Since CUDA 12.1, and 13.3 for endpoints. Raw: [`cuMulticastUnbind`](fn@cuda_sys::cuMulticastUnbind),
    /// [`cuLogicalEndpointUnbind`](fn@cuda_sys::cuLogicalEndpointUnbind).
    #[doc(alias = "cuMulticastUnbind", alias = "cuLogicalEndpointUnbind")]
    pub fn unbind(self) -> Result<M> {
        let Self { bound, memory } = self;
        // SAFETY: the binding exists. Kernels that used the memory have ended, as their callers promised.
        unsafe { bound.destroy() }?;
        Ok(memory)
    }
}

/// A binding without its memory.
#[derive(Debug)]
struct Bound<O> {
    object: O,
    device: Device,
    offset: usize,
    size: usize,
}

impl<O: Target> Destroy for Bound<O> {
    #[inline]
    fn name(&self) -> &'static str {
        O::BINDING
    }

    #[inline]
    unsafe fn destroy(&self) -> Answer {
        // SAFETY: this value stands for the binding, and the caller promises that this is the first call
        // that succeeds. Kernels that used the memory have ended, as their callers promised.
        let code = unsafe { self.object.unbind(self.device.as_raw(), self.offset, self.size) };
        Answer { call: O::UNBIND, code }
    }

    #[inline]
    fn leftover(&self) -> Leftover {
        Leftover::Object
    }

    #[inline]
    fn is_quiet(&self) -> bool {
        true
    }
}
