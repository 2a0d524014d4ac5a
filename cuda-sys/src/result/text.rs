//! Descriptions of the driver's error codes. With them an error can be printed without a driver.

use crate::bindings::CUresult;

/// The description of every code that the 13.5 headers define.
pub(super) const TEXTS: &[(CUresult, &str)] = &[
    (CUresult::CUDA_SUCCESS, "success"),
    (CUresult::CUDA_ERROR_INVALID_VALUE, "an argument is not valid for this call"),
    (CUresult::CUDA_ERROR_OUT_OF_MEMORY, "not enough memory, or not enough of another resource"),
    (
        CUresult::CUDA_ERROR_NOT_INITIALIZED,
        "the driver is not initialized: cuInit was not called or failed, or there is no driver library \
         (cuda_sys::load returns the reason)",
    ),
    (CUresult::CUDA_ERROR_DEINITIALIZED, "the driver is shutting down with the process"),
    (
        CUresult::CUDA_ERROR_PROFILER_DISABLED,
        "profiling is not available in this run, for example under an external profiler",
    ),
    (
        CUresult::CUDA_ERROR_PROFILER_NOT_INITIALIZED,
        "the profiler is not initialized (no longer returned)",
    ),
    (
        CUresult::CUDA_ERROR_PROFILER_ALREADY_STARTED,
        "the profiler is already running (no longer returned)",
    ),
    (
        CUresult::CUDA_ERROR_PROFILER_ALREADY_STOPPED,
        "the profiler is already stopped (no longer returned)",
    ),
    (
        CUresult::CUDA_ERROR_STUB_LIBRARY,
        "the library that was opened is the toolkit's link-time stub, not a driver",
    ),
    (
        CUresult::CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER,
        "this call needs a newer driver than the one installed",
    ),
    (
        CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE,
        "the GPU is busy or in exclusive use by another process",
    ),
    (CUresult::CUDA_ERROR_MULTICAST_RESOURCE_FULL, "no hardware resources for multicast are left"),
    (CUresult::CUDA_ERROR_NO_DEVICE, "no CUDA-capable GPU is visible to this process"),
    (
        CUresult::CUDA_ERROR_INVALID_DEVICE,
        "no such device, or the operation is not valid for this device",
    ),
    (CUresult::CUDA_ERROR_DEVICE_NOT_LICENSED, "the GPU lacks the license that CUDA needs (vGPU)"),
    (
        CUresult::CUDA_ERROR_INVALID_IMAGE,
        "the module image is not valid cubin, PTX or fat binary code",
    ),
    (
        CUresult::CUDA_ERROR_INVALID_CONTEXT,
        "no context is current, or the context is not valid for this call",
    ),
    (
        CUresult::CUDA_ERROR_CONTEXT_ALREADY_CURRENT,
        "the context is already current (no longer returned)",
    ),
    (CUresult::CUDA_ERROR_MAP_FAILED, "the resource or memory could not be mapped"),
    (CUresult::CUDA_ERROR_UNMAP_FAILED, "the resource or memory could not be unmapped"),
    (CUresult::CUDA_ERROR_ARRAY_IS_MAPPED, "the array is mapped and cannot be destroyed now"),
    (CUresult::CUDA_ERROR_ALREADY_MAPPED, "the resource is already mapped"),
    (
        CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU,
        "the module has no code that runs on this GPU; build it for this architecture",
    ),
    (CUresult::CUDA_ERROR_ALREADY_ACQUIRED, "the resource is already acquired"),
    (CUresult::CUDA_ERROR_NOT_MAPPED, "the resource is not mapped"),
    (CUresult::CUDA_ERROR_NOT_MAPPED_AS_ARRAY, "the resource is mapped, but not as an array"),
    (CUresult::CUDA_ERROR_NOT_MAPPED_AS_POINTER, "the resource is mapped, but not as a pointer"),
    (
        CUresult::CUDA_ERROR_ECC_UNCORRECTABLE,
        "the GPU found a memory (ECC) error that it could not correct",
    ),
    (
        CUresult::CUDA_ERROR_UNSUPPORTED_LIMIT,
        "this device does not support the limit that was read or set",
    ),
    (CUresult::CUDA_ERROR_CONTEXT_ALREADY_IN_USE, "the context is in use by another thread"),
    (
        CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED,
        "these two devices cannot access each other's memory",
    ),
    (CUresult::CUDA_ERROR_INVALID_PTX, "the PTX does not compile; the JIT log says why"),
    (
        CUresult::CUDA_ERROR_INVALID_GRAPHICS_CONTEXT,
        "the OpenGL or other graphics context is not valid",
    ),
    (
        CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE,
        "the GPU found an NVLink error that it could not correct",
    ),
    (
        CUresult::CUDA_ERROR_JIT_COMPILER_NOT_FOUND,
        "the driver's PTX compiler library is missing; complete the driver installation",
    ),
    (
        CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
        "the PTX is newer than this driver can compile; update the driver",
    ),
    (
        CUresult::CUDA_ERROR_JIT_COMPILATION_DISABLED,
        "the code must be compiled from PTX, which is disabled",
    ),
    (
        CUresult::CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY,
        "this device does not support the requested execution affinity",
    ),
    (
        CUresult::CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC,
        "the code synchronizes on the device in a way that this GPU no longer supports",
    ),
    (
        CUresult::CUDA_ERROR_CONTAINED,
        "a contained hardware error affected this process, which must be restarted",
    ),
    (
        CUresult::CUDA_ERROR_INSUFFICIENT_LOADER_VERSION,
        "the code needs a newer loader than the driver has; update the driver",
    ),
    (CUresult::CUDA_ERROR_INVALID_SOURCE, "the kernel source is not valid"),
    (CUresult::CUDA_ERROR_FILE_NOT_FOUND, "the file was not found"),
    (
        CUresult::CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND,
        "a symbol of a shared library was not found",
    ),
    (CUresult::CUDA_ERROR_SHARED_OBJECT_INIT_FAILED, "a shared library failed to initialize"),
    (CUresult::CUDA_ERROR_OPERATING_SYSTEM, "a call to the operating system failed"),
    (
        CUresult::CUDA_ERROR_INVALID_HANDLE,
        "a handle is not valid: its object was destroyed, or has another context or type",
    ),
    (CUresult::CUDA_ERROR_ILLEGAL_STATE, "a resource is not in a state that allows this call"),
    (
        CUresult::CUDA_ERROR_LOSSY_QUERY,
        "the result would lose information that this query cannot express",
    ),
    (CUresult::CUDA_ERROR_NOT_FOUND, "the name was not found: no such symbol, kernel or texture"),
    (
        CUresult::CUDA_ERROR_NOT_READY,
        "the work has not completed yet (a status rather than an error)",
    ),
    (
        CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
        "a kernel accessed an illegal memory address; the process cannot use the GPU any more",
    ),
    (
        CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
        "the launch needs more threads, registers or arguments than the device has",
    ),
    (
        CUresult::CUDA_ERROR_LAUNCH_TIMEOUT,
        "a kernel ran longer than the display watchdog allows, and was stopped",
    ),
    (
        CUresult::CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING,
        "the launch uses an incompatible texturing mode",
    ),
    (
        CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
        "peer access is already enabled in this direction",
    ),
    (CUresult::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "peer access is not enabled in this direction"),
    (
        CUresult::CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE,
        "the primary context is active, which this call does not allow",
    ),
    (
        CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED,
        "the context is destroyed, or is a primary context that is not initialized",
    ),
    (
        CUresult::CUDA_ERROR_ASSERT,
        "an assert failed in a kernel; the process cannot use the GPU any more",
    ),
    (
        CUresult::CUDA_ERROR_TOO_MANY_PEERS,
        "the hardware does not support more peers of this context",
    ),
    (CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "the host memory is already registered"),
    (CUresult::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "the host memory is not registered"),
    (CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR, "a kernel corrupted or overflowed its call stack"),
    (
        CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION,
        "a kernel ran an instruction that this GPU does not support",
    ),
    (
        CUresult::CUDA_ERROR_MISALIGNED_ADDRESS,
        "a kernel accessed memory at an address that is not aligned for its type",
    ),
    (
        CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE,
        "a kernel used an address of the wrong kind of memory (global, shared, local)",
    ),
    (CUresult::CUDA_ERROR_INVALID_PC, "a kernel jumped to an address where there is no code"),
    (
        CUresult::CUDA_ERROR_LAUNCH_FAILED,
        "a kernel failed on the device; the process cannot use the GPU any more",
    ),
    (
        CUresult::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
        "the cooperative launch has more blocks than can run at the same time",
    ),
    (
        CUresult::CUDA_ERROR_TENSOR_MEMORY_LEAK,
        "a kernel ended without freeing all the tensor memory that it allocated",
    ),
    (CUresult::CUDA_ERROR_NOT_PERMITTED, "the operation is not permitted here, or to this process"),
    (
        CUresult::CUDA_ERROR_NOT_SUPPORTED,
        "the operation is not supported by this device, driver or system",
    ),
    (
        CUresult::CUDA_ERROR_SYSTEM_NOT_READY,
        "the system is not ready for CUDA; on NVSwitch systems the fabric manager must run",
    ),
    (
        CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
        "the kernel driver and the user-space driver differ in version; reboot or reinstall",
    ),
    (
        CUresult::CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE,
        "the forward-compatibility libraries do not support this GPU",
    ),
    (
        CUresult::CUDA_ERROR_MPS_CONNECTION_FAILED,
        "the MPS control daemon or server could not be reached",
    ),
    (CUresult::CUDA_ERROR_MPS_RPC_FAILURE, "a call between this process and the MPS server failed"),
    (
        CUresult::CUDA_ERROR_MPS_SERVER_NOT_READY,
        "the MPS server does not accept clients while it starts or recovers; try again",
    ),
    (
        CUresult::CUDA_ERROR_MPS_MAX_CLIENTS_REACHED,
        "the MPS server has reached its maximum number of clients",
    ),
    (
        CUresult::CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED,
        "the MPS clients use all device connections",
    ),
    (CUresult::CUDA_ERROR_MPS_CLIENT_TERMINATED, "this MPS client was terminated by the server"),
    (
        CUresult::CUDA_ERROR_CDP_NOT_SUPPORTED,
        "the code uses dynamic parallelism, which is not supported here",
    ),
    (
        CUresult::CUDA_ERROR_CDP_VERSION_MISMATCH,
        "the code mixes incompatible versions of dynamic parallelism",
    ),
    (
        CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
        "the operation is not allowed while a stream is capturing",
    ),
    (
        CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
        "an earlier error has invalidated this capture; end it and start again",
    ),
    (CUresult::CUDA_ERROR_STREAM_CAPTURE_MERGE, "the call would merge two independent captures"),
    (
        CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
        "the stream is not the one on which this capture was started",
    ),
    (
        CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
        "the capture was ended before all its streams had rejoined the origin stream",
    ),
    (
        CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
        "the call would create a dependency between the capture and work outside it",
    ),
    (
        CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
        "the call would make the capture depend on the legacy default stream",
    ),
    (
        CUresult::CUDA_ERROR_CAPTURED_EVENT,
        "the event was recorded in a capture, and cannot be used outside it",
    ),
    (
        CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
        "the capture must be ended by the thread that started it",
    ),
    (CUresult::CUDA_ERROR_TIMEOUT, "the wait timed out"),
    (
        CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
        "the executable graph cannot take this change; instantiate it again",
    ),
    (
        CUresult::CUDA_ERROR_EXTERNAL_DEVICE,
        "a device other than the GPU failed while the GPU waited for it",
    ),
    (
        CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE,
        "the launch is not valid for this device because of its cluster size",
    ),
    (
        CUresult::CUDA_ERROR_FUNCTION_NOT_LOADED,
        "the function is not loaded yet; load or launch it first",
    ),
    (
        CUresult::CUDA_ERROR_INVALID_RESOURCE_TYPE,
        "the device resource has a type that this call does not accept",
    ),
    (
        CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
        "the device resources are insufficient, or incompatible with each other",
    ),
    (
        CUresult::CUDA_ERROR_KEY_ROTATION,
        "the rotation of the encryption keys failed (confidential computing)",
    ),
    (
        CUresult::CUDA_ERROR_STREAM_DETACHED,
        "the green context of this stream is destroyed; the stream can only be destroyed",
    ),
    (
        CUresult::CUDA_ERROR_GRAPH_RECAPTURE_FAILURE,
        "the recapture does not match the graph, which must now be destroyed",
    ),
    (CUresult::CUDA_ERROR_FABRIC_NOT_READY, "the fabric between the GPUs is not ready yet"),
    (CUresult::CUDA_ERROR_UNKNOWN, "the driver reports a failure without its cause"),
];
