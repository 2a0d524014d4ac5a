//! The memory that the graphs of a device use.

use crate::call::{Result, call, out};
use crate::device::Device;
use cuda_sys::CUgraphMem_attribute as Attribute;

/// The memory that allocation nodes use on a device, in bytes. Returned by [`Device::graph_memory`].
///
/// The driver counts the memory of executable graphs after their first launch, also while no launch runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct GraphMemoryUsage {
    /// The memory that graphs use.
    pub used: u64,
    /// The high-water mark of `used`.
    pub used_high: u64,
    /// The memory that is reserved for graphs. It includes the used memory.
    pub reserved: u64,
    /// The high-water mark of `reserved`.
    pub reserved_high: u64,
}

impl Device {
    /// Returns the memory that allocation nodes use on the device. Calls `cuDeviceGetGraphMemAttribute`
    /// four times.
    ///
    /// # Errors
    /// Only the errors that every call can return. See [`Error`](crate::Error).
    ///
    /// Since CUDA 11.4. Raw:
    /// [`cuDeviceGetGraphMemAttribute`](fn@cuda_sys::cuDeviceGetGraphMemAttribute).
    #[doc(alias = "cuDeviceGetGraphMemAttribute")]
    #[inline]
    pub fn graph_memory(&self) -> Result<GraphMemoryUsage> {
        let get = |attribute| -> Result<u64> {
            out(|place: *mut u64| {
                let (device, place) = (self.as_raw(), place.cast());
                // SAFETY: the values of all attributes have 64 bits, and `out` passes a valid pointer.
                unsafe { call!(cuDeviceGetGraphMemAttribute(device, attribute, place)) }
            })
        };
        Ok(GraphMemoryUsage {
            used: get(Attribute::CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT)?,
            used_high: get(Attribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)?,
            reserved: get(Attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT)?,
            reserved_high: get(Attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)?,
        })
    }

    /// Sets both high-water marks of [`graph_memory`](Self::graph_memory) to the current values. Calls
    /// `cuDeviceSetGraphMemAttribute` twice.
    ///
    /// # Errors
    /// Only the errors that every call can return. See [`Error`](crate::Error).
    ///
    /// Since CUDA 11.4. Raw:
    /// [`cuDeviceSetGraphMemAttribute`](fn@cuda_sys::cuDeviceSetGraphMemAttribute).
    #[doc(alias = "cuDeviceSetGraphMemAttribute")]
    #[inline]
    pub fn reset_graph_memory_high(&self) -> Result<()> {
        let reset = |attribute| {
            // The only value that the driver accepts.
            let mut value = 0u64;
            let place = (&raw mut value).cast();
            // SAFETY: the values of all attributes have 64 bits, and the pointer refers to a local variable.
            unsafe { call!(cuDeviceSetGraphMemAttribute(self.as_raw(), attribute, place)) }
        };
        reset(Attribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)?;
        reset(Attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
    }

    /// Returns reserved memory that no graph uses now to the system. Calls `cuDeviceGraphMemTrim`.
    ///
    /// Executable graphs stay valid, and reserve memory again when they are launched.
    ///
    /// # Errors
    /// Only the errors that every call can return. See [`Error`](crate::Error).
    ///
    /// Since CUDA 11.4. Raw: [`cuDeviceGraphMemTrim`](fn@cuda_sys::cuDeviceGraphMemTrim).
    #[doc(alias = "cuDeviceGraphMemTrim")]
    #[inline]
    pub fn trim_graph_memory(&self) -> Result<()> {
        // SAFETY: the call takes no pointers.
        unsafe { call!(cuDeviceGraphMemTrim(self.as_raw())) }
    }
}
