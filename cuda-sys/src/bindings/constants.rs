//! Macros of the headers that bindgen omits: casts, and aliases of enum constants.

use super::{CUdevice, CUlaunchAttributeID, CUstream, c_void};

/// The legacy default stream, which all threads share.
pub const CU_STREAM_LEGACY: CUstream = core::ptr::without_provenance_mut(1);
/// The per-thread default stream.
pub const CU_STREAM_PER_THREAD: CUstream = core::ptr::without_provenance_mut(2);

/// Ends the `extra` list of `cuLaunchKernel`.
pub const CU_LAUNCH_PARAM_END: *mut c_void = core::ptr::null_mut();
/// Precedes the pointer to a buffer of packed parameters in the `extra` list of `cuLaunchKernel`.
pub const CU_LAUNCH_PARAM_BUFFER_POINTER: *mut c_void = core::ptr::without_provenance_mut(1);
/// Precedes the pointer to the size of that buffer.
pub const CU_LAUNCH_PARAM_BUFFER_SIZE: *mut c_void = core::ptr::without_provenance_mut(2);

/// The CPU, in functions that take it as a device.
pub const CU_DEVICE_CPU: CUdevice = -1;
/// No device.
pub const CU_DEVICE_INVALID: CUdevice = -2;

/// Aliases of launch attributes.
macro_rules! attribute_aliases {
    ($($alias:ident = $name:ident;)*) => {
        $(pub const $alias: CUlaunchAttributeID = CUlaunchAttributeID::$name;)*
    };
}

attribute_aliases! {
    CU_KERNEL_NODE_ATTRIBUTE_ACCESS_POLICY_WINDOW = CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW;
    CU_KERNEL_NODE_ATTRIBUTE_CLUSTER_DIMENSION = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    CU_KERNEL_NODE_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE
        = CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE;
    CU_KERNEL_NODE_ATTRIBUTE_COOPERATIVE = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    CU_KERNEL_NODE_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE
        = CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE;
    CU_KERNEL_NODE_ATTRIBUTE_MEM_SYNC_DOMAIN = CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN;
    CU_KERNEL_NODE_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP = CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP;
    CU_KERNEL_NODE_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION
        = CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION;
    CU_KERNEL_NODE_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
        = CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
    CU_KERNEL_NODE_ATTRIBUTE_PRIORITY = CU_LAUNCH_ATTRIBUTE_PRIORITY;
    CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW = CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW;
    CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN = CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN;
    CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP = CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP;
    CU_STREAM_ATTRIBUTE_PRIORITY = CU_LAUNCH_ATTRIBUTE_PRIORITY;
    CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY = CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY;
}
