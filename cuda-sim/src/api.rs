//! The functions that C code calls, and the table that finds them by name.
//!
//! # Safety
//! For each pointer, a row says what the caller of the driver guarantees. `out` is null or points to a
//! place where one value can be written. `must` is the same, and the driver answers null with
//! `CUDA_ERROR_INVALID_VALUE` before it does anything else. `result` is `must`, but the body does not
//! receive the place: the row writes the value that the body returns there. `in` is null, which is
//! answered in the same way, or points to one value that can be read. `inout` is null or points to one
//! value that can be read and written. `val` is passed on unchanged. With these guarantees the bodies are
//! safe code; the few that take arrays and text justify their accesses themselves. A length in brackets
//! after a pointer is the number of values that the driver reads there; see
//! [`record_arguments`](crate::record_arguments).

#![allow(clippy::too_many_arguments, reason = "NVIDIA's lists of parameters")]

#[macro_use]
mod row;

pub(crate) mod array;
pub(crate) mod capture;
pub(crate) mod context;
pub(crate) mod device;
pub(crate) mod event;
pub(crate) mod external;
pub(crate) mod graph;
pub(crate) mod green;
pub(crate) mod launch;
pub(crate) mod memory;
pub(crate) mod module;
pub(crate) mod process;
pub(crate) mod stream;
pub(crate) mod virtual_memory;

pub(crate) use row::Out;

use crate::account::arguments;
use crate::call::{Class, call};
use crate::thread;
use cuda_sys::{
    CU_DEV_SM_RESOURCE_GROUP_PARAMS, CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY_MEMORY_REQUIREMENTS,
    CUDA_ARRAY_SPARSE_PROPERTIES, CUDA_ARRAY3D_DESCRIPTOR, CUDA_BATCH_MEM_OP_NODE_PARAMS,
    CUDA_EXT_SEM_SIGNAL_NODE_PARAMS, CUDA_EXT_SEM_WAIT_NODE_PARAMS,
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC, CUDA_EXTERNAL_MEMORY_HANDLE_DESC,
    CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC, CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC,
    CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS,
    CUDA_FABRIC_COPY_BATCH_OP, CUDA_GRAPH_INSTANTIATE_PARAMS, CUDA_HOST_NODE_PARAMS,
    CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1, CUDA_MEM_ALLOC_NODE_PARAMS, CUDA_MEMCPY2D,
    CUDA_MEMCPY3D, CUDA_MEMCPY3D_BATCH_OP, CUDA_MEMCPY3D_PEER, CUDA_MEMSET_NODE_PARAMS,
    CUDA_RESOURCE_DESC, CUDA_RESOURCE_VIEW_DESC, CUDA_TEXTURE_DESC, CUGLDeviceList, CUarrayMapInfo,
    CUatomicOperation, CUcheckpointCheckpointArgs, CUcheckpointLockArgs, CUcheckpointRestoreArgs,
    CUcheckpointUnlockArgs, CUcliqueInfo, CUcoredumpCallbackHandle, CUcoredumpSettings,
    CUcoredumpStatusCallback, CUctxCreateParams, CUdevResource, CUdevResourceDesc,
    CUdevResourceType, CUdevice_P2PAttribute, CUdevice_attribute, CUeglFrame,
    CUeglStreamConnection, CUexecAffinityParam, CUexecAffinityType, CUexternalMemory,
    CUexternalSemaphore, CUflushGPUDirectRDMAWritesScope, CUflushGPUDirectRDMAWritesTarget,
    CUfunc_cache, CUfunction_attribute, CUfunctionLoadingState, CUgraphConditionalHandle,
    CUgraphEdgeData, CUgraphExecUpdateResult, CUgraphExecUpdateResultInfo, CUgraphMem_attribute,
    CUgraphNodeParams, CUgraphNodeType, CUgraphRecaptureCallback, CUgraphicsResource, CUhostFn,
    CUipcEventHandle, CUipcMemHandle, CUjit_option, CUjitInputType, CUkernelNodeAttrID,
    CUkernelNodeAttrValue, CUlaunchConfig, CUlibraryOption, CUlimit, CUlinkState, CUlogIterator,
    CUlogicalEndpointId, CUlogicalEndpointProp, CUlogsCallback, CUlogsCallbackHandle, CUmem_advise,
    CUmem_range_attribute, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationGranularity_flags,
    CUmemAllocationHandleType, CUmemAllocationProp, CUmemAllocationType, CUmemDecompressParams,
    CUmemGenericAllocationHandle, CUmemLocation, CUmemPool_attribute, CUmemPoolProps,
    CUmemPoolPtrExportData, CUmemRangeHandleType, CUmemcpyAttributes, CUmemoryPool,
    CUmipmappedArray, CUmoduleLoadingMode, CUmulticastGranularity_flags, CUmulticastObjectProp,
    CUoccupancyB2DSize, CUpointer_attribute, CUprocessState, CUsharedconfig, CUstreamAttrID,
    CUstreamAttrValue, CUstreamBatchMemOpParams, CUstreamCallback, CUstreamCaptureMode,
    CUstreamCaptureStatus, CUstreamCigCaptureParams, CUsurfObject, CUtensorMap,
    CUtensorMapDataType, CUtensorMapFloatOOBfill, CUtensorMapIm2ColWideMode, CUtensorMapInterleave,
    CUtensorMapL2promotion, CUtensorMapSwizzle, CUtexObject, CUuserObject, CUuuid, EGLImageKHR,
    EGLStreamKHR, EGLSyncKHR, EGLint, Function, GLenum, GLuint, VdpDevice, VdpGetProcAddress,
    VdpOutputSurface, VdpVideoSurface,
};
use prelude::*;

/// The names that most files about calls use.
mod prelude {
    pub(super) use super::Out;
    pub(super) use super::context::pointer;
    pub(super) use crate::account::misuse;
    pub(super) use crate::state::{Answer, INVALID, World, fail_if};
    pub(super) use core::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
    pub(super) use cuda_sys::{
        CUarray, CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphExec,
        CUgraphNode, CUgreenCtx, CUkernel, CUlibrary, CUmodule, CUresult, CUstream,
    };
}

use cuda_sys as newest;
use cuda_sys::abi as older;

functions! { find_newest newest
    Always cuInit(flags: val c_uint) => device::init;
    Always cuDriverGetVersion(version: result c_int) => device::version;

    Always cuLogsRegisterCallback(function: val CUlogsCallback, data: val *mut c_void, handle: out CUlogsCallbackHandle) => process::logs::register;
    Always cuLogsUnregisterCallback(handle: val CUlogsCallbackHandle) => process::logs::unregister;
    Always cuLogsCurrent(iterator: result CUlogIterator, flags: val c_uint) => process::logs::current;
    Always cuLogsDumpToMemory(iterator: inout CUlogIterator, buffer: val *mut c_char, size: inout usize, flags: val c_uint) => process::logs::dump_to_memory;
    Always cuLogsDumpToFile(iterator: inout CUlogIterator, path: val *const c_char, flags: val c_uint) => process::logs::dump_to_file;
    Usual cuCoredumpGetAttribute(attribute: val CUcoredumpSettings, value: val *mut c_void, size: inout usize) => process::coredump::get;
    Usual cuCoredumpSetAttribute(attribute: val CUcoredumpSettings, value: val *mut c_void [bytes size.as_ref().map_or(0, |size| *size)], size: inout usize) => process::coredump::set;
    Always cuCoredumpGetAttributeGlobal(attribute: val CUcoredumpSettings, value: val *mut c_void, size: inout usize) => process::coredump::get_global;
    Always cuCoredumpSetAttributeGlobal(attribute: val CUcoredumpSettings, value: val *mut c_void [bytes size.as_ref().map_or(0, |size| *size)], size: inout usize) => process::coredump::set_global;
    Always cuCoredumpRegisterStartCallback(function: val CUcoredumpStatusCallback, data: val *mut c_void, handle: out CUcoredumpCallbackHandle) => process::coredump::register_start;
    Always cuCoredumpRegisterCompleteCallback(function: val CUcoredumpStatusCallback, data: val *mut c_void, handle: out CUcoredumpCallbackHandle) => process::coredump::register_complete;
    Always cuCoredumpDeregisterStartCallback(handle: val CUcoredumpCallbackHandle) => process::coredump::deregister_start;
    Always cuCoredumpDeregisterCompleteCallback(handle: val CUcoredumpCallbackHandle) => process::coredump::deregister_complete;
    Always cuCheckpointProcessGetState(pid: val c_int, state: result CUprocessState) => process::state;
    Always cuCheckpointProcessGetRestoreThreadId(pid: val c_int, thread: result c_int) => process::restore_thread;
    Always cuCheckpointProcessLock(pid: val c_int, options: inout CUcheckpointLockArgs) => process::lock;
    Always cuCheckpointProcessCheckpoint(pid: val c_int, options: inout CUcheckpointCheckpointArgs) => process::checkpoint;
    Always cuCheckpointProcessRestore(pid: val c_int, options: inout CUcheckpointRestoreArgs) => process::restore;
    Always cuCheckpointProcessUnlock(pid: val c_int, options: inout CUcheckpointUnlockArgs) => process::unlock;
    Usual cuProfilerStart() => process::profile;
    Usual cuProfilerStop() => process::profile;

    Surviving cuDeviceGetCount(count: result c_int) => device::count;
    Surviving cuDeviceGet(device: result CUdevice, ordinal: val c_int) => device::get;
    Surviving cuDeviceGetName(name: val *mut c_char, len: val c_int, device: val CUdevice) => device::name;
    Surviving cuDeviceGetUuid_v2(uuid: out CUuuid, device: val CUdevice) => device::uuid;
    Usual cuDeviceGetLuid(luid: val *mut c_char, mask: out c_uint, device: val CUdevice) => device::luid;
    Surviving cuDeviceTotalMem_v2(bytes: out usize, device: val CUdevice) => device::total_memory;
    Surviving cuDeviceGetPCIBusId(text: val *mut c_char, len: val c_int, device: val CUdevice) => device::bus_id;
    Usual cuDeviceComputeCapability(major: out c_int, minor: out c_int, device: val CUdevice) => device::capability;
    Surviving cuDeviceGetAttribute(value: out c_int, attribute: val CUdevice_attribute, device: val CUdevice) => device::attribute;

    Usual cuDeviceGetCliqueCount(count: result usize, device: val CUdevice) => device::clique_count;
    Usual cuDeviceGetCliqueInfo(cliques: val *mut CUcliqueInfo, count: val *mut usize, device: val CUdevice) => device::cliques;
    Usual cuDeviceGetFabricClusterUuid(uuid: result CUuuid, device: val CUdevice) => device::fabric_cluster;
    Usual cuDeviceGetByPCIBusId(device: result CUdevice, bus_id: val *const c_char) => device::peer::by_bus_id;
    Surviving cuDeviceCanAccessPeer(can: result c_int, device: val CUdevice, peer: val CUdevice) => device::peer::can_access;
    Usual cuDeviceGetP2PAttribute(value: result c_int, attribute: val CUdevice_P2PAttribute, device: val CUdevice, peer: val CUdevice) => device::peer::attribute;
    Usual cuDeviceGetP2PAtomicCapabilities(capabilities: val *mut c_uint, operations: val *const CUatomicOperation [count], count: val c_uint, device: val CUdevice, peer: val CUdevice) => device::peer::atomics;
    Usual cuDeviceGetHostAtomicCapabilities(capabilities: val *mut c_uint, operations: val *const CUatomicOperation [count], count: val c_uint, device: val CUdevice) => device::peer::host_atomics;
    Usual cuDeviceGetExecAffinitySupport(can: result c_int, kind: val CUexecAffinityType, device: val CUdevice) => device::peer::affinity_support;

    Surviving cuDevicePrimaryCtxRetain(context: out CUcontext, device: val CUdevice) => context::retain;
    Surviving cuDevicePrimaryCtxRelease_v2(device: val CUdevice) => context::release;
    Usual cuCtxCreate_v4(context: out CUcontext, params: val *mut CUctxCreateParams [1], flags: val c_uint, device: val CUdevice) => context::create_v4;
    Robust cuCtxDestroy_v2(context: val CUcontext) => context::destroy;
    Usual cuCtxAttach(context: result CUcontext, flags: val c_uint) => context::attach;
    Robust cuCtxDetach(context: val CUcontext) => context::detach;
    Robust cuCtxGetCurrent(context: out CUcontext) => context::get_current;
    Robust cuCtxSetCurrent(context: val CUcontext) => context::set_current;
    Robust cuCtxPushCurrent_v2(context: val CUcontext) => context::push;
    Robust cuCtxPopCurrent_v2(context: out CUcontext) => context::pop;
    Surviving cuCtxGetDevice(device: out CUdevice) => context::device;
    Usual cuCtxGetDevice_v2(device: out CUdevice, context: val CUcontext) => context::device_of;
    Robust cuCtxGetId(context: val CUcontext, id: result c_ulonglong) => context::id;
    Usual cuCtxSynchronize() => context::synchronize;
    Usual cuCtxSynchronize_v2(context: val CUcontext) => context::synchronize_one;
    Usual cuCtxGetLimit(value: result usize, limit: val CUlimit) => context::settings::limit;
    Usual cuCtxSetLimit(limit: val CUlimit, value: val usize) => context::settings::set_limit;
    Usual cuCtxGetCacheConfig(preference: result CUfunc_cache) => context::settings::cache;
    Usual cuCtxSetCacheConfig(preference: val CUfunc_cache) => context::settings::set_cache;
    Usual cuCtxGetSharedMemConfig(config: result CUsharedconfig) => context::settings::bank_size;
    Usual cuCtxSetSharedMemConfig(config: val CUsharedconfig) => context::settings::set_bank_size;
    Usual cuFlushGPUDirectRDMAWrites(target: val CUflushGPUDirectRDMAWritesTarget, scope: val CUflushGPUDirectRDMAWritesScope) => context::settings::flush_remote_writes;
    Surviving cuCtxGetFlags(flags: result c_uint) => context::settings::flags;
    Usual cuCtxSetFlags(flags: val c_uint) => context::settings::set_flags;
    Surviving cuCtxGetApiVersion(context: val CUcontext, version: result c_uint) => context::settings::api_version;
    Usual cuCtxGetStreamPriorityRange(least: out c_int, greatest: out c_int) => context::settings::priorities;
    Usual cuCtxResetPersistingL2Cache() => context::settings::reset_l2;
    Usual cuCtxRecordEvent(context: val CUcontext, event: val CUevent) => context::settings::record;
    Usual cuCtxWaitEvent(context: val CUcontext, event: val CUevent) => context::settings::wait;
    Surviving cuDevicePrimaryCtxGetState(device: val CUdevice, flags: out c_uint, active: out c_int) => context::settings::primary_state;
    Usual cuDevicePrimaryCtxSetFlags_v2(device: val CUdevice, flags: val c_uint) => context::settings::set_primary_flags;
    Robust cuDevicePrimaryCtxReset_v2(device: val CUdevice) => context::settings::reset_primary;
    Usual cuCtxGetExecAffinity(affinity: out CUexecAffinityParam, kind: val CUexecAffinityType) => device::peer::affinity;
    Usual cuCtxEnablePeerAccess(peer: val CUcontext, flags: val c_uint) => device::peer::enable;
    Usual cuCtxDisablePeerAccess(peer: val CUcontext) => device::peer::disable;
    Usual cuMemGetInfo_v2(free: out usize, total: out usize) => memory::info;

    Usual cuStreamCreate(stream: out CUstream, flags: val c_uint) => stream::create;
    Usual cuStreamCreateWithPriority(stream: out CUstream, flags: val c_uint, priority: val c_int) => stream::create_with_priority;
    InCallbacks cuStreamDestroy_v2(stream: val CUstream) => stream::destroy;
    InCallbacks cuStreamSynchronize | cuStreamSynchronize_ptsz(stream: val CUstream) => stream::synchronize;
    InCallbacks cuStreamQuery | cuStreamQuery_ptsz(stream: val CUstream) => stream::query;
    InCallbacks cuStreamWaitEvent | cuStreamWaitEvent_ptsz(stream: val CUstream, event: val CUevent, flags: val c_uint) => stream::wait_event;
    Usual cuStreamGetPriority | cuStreamGetPriority_ptsz(stream: val CUstream, priority: result c_int) => stream::priority;
    Usual cuStreamGetFlags | cuStreamGetFlags_ptsz(stream: val CUstream, flags: result c_uint) => stream::attributes::flags;
    Usual cuStreamGetCtx | cuStreamGetCtx_ptsz(stream: val CUstream, context: result CUcontext) => stream::attributes::context;
    Usual cuStreamGetCtx_v2 | cuStreamGetCtx_v2_ptsz(stream: val CUstream, context: must CUcontext, green: must CUgreenCtx) => stream::attributes::contexts;
    Usual cuStreamGetGreenCtx(stream: val CUstream, green: result CUgreenCtx) => stream::attributes::green;
    Usual cuStreamGetAttribute | cuStreamGetAttribute_ptsz(stream: val CUstream, id: val CUstreamAttrID, value: result CUstreamAttrValue) => stream::attributes::get;
    Usual cuStreamSetAttribute | cuStreamSetAttribute_ptsz(stream: val CUstream, id: val CUstreamAttrID, value: val *const CUstreamAttrValue [1]) => stream::attributes::set;
    Usual cuStreamCopyAttributes | cuStreamCopyAttributes_ptsz(to: val CUstream, from: val CUstream) => stream::attributes::copy;
    Usual cuStreamWriteValue32_v2 | cuStreamWriteValue32_v2_ptsz(stream: val CUstream, address: val CUdeviceptr, value: val u32, flags: val c_uint) => stream::memory_op::write_32;
    Usual cuStreamWriteValue64_v2 | cuStreamWriteValue64_v2_ptsz(stream: val CUstream, address: val CUdeviceptr, value: val u64, flags: val c_uint) => stream::memory_op::write_64;
    Usual cuStreamWaitValue32_v2 | cuStreamWaitValue32_v2_ptsz(stream: val CUstream, address: val CUdeviceptr, value: val u32, flags: val c_uint) => stream::memory_op::wait_32;
    Usual cuStreamWaitValue64_v2 | cuStreamWaitValue64_v2_ptsz(stream: val CUstream, address: val CUdeviceptr, value: val u64, flags: val c_uint) => stream::memory_op::wait_64;
    Usual cuStreamBatchMemOp_v2 | cuStreamBatchMemOp_v2_ptsz(stream: val CUstream, count: val c_uint, operations: val *mut CUstreamBatchMemOpParams [count], flags: val c_uint) => stream::memory_op::batch;
    Usual cuStreamGetId | cuStreamGetId_ptsz(stream: val CUstream, id: result c_ulonglong) => stream::id;
    Usual cuStreamGetDevice | cuStreamGetDevice_ptsz(stream: val CUstream, device: result CUdevice) => stream::attributes::device;
    InCallbacks cuStreamIsCapturing | cuStreamIsCapturing_ptsz(stream: val CUstream, status: result CUstreamCaptureStatus) => capture::is_capturing;
    Usual cuStreamBeginCapture_v2 | cuStreamBeginCapture_v2_ptsz(stream: val CUstream, mode: val CUstreamCaptureMode) => capture::begin;
    Usual cuStreamEndCapture | cuStreamEndCapture_ptsz(stream: val CUstream, graph: must CUgraph) => capture::end;
    Robust cuThreadExchangeStreamCaptureMode(mode: inout CUstreamCaptureMode) => capture::exchange_mode;
    Usual cuStreamBeginCaptureToGraph | cuStreamBeginCaptureToGraph_ptsz(stream: val CUstream, graph: val CUgraph, nodes: val *const CUgraphNode [count], edges: val *const CUgraphEdgeData [count], count: val usize, mode: val CUstreamCaptureMode) => capture::begin_to_graph;
    Usual cuStreamGetCaptureInfo_v3 | cuStreamGetCaptureInfo_v3_ptsz(stream: val CUstream, status: out CUstreamCaptureStatus, id: out c_ulonglong, graph: out CUgraph, nodes: out *const CUgraphNode, edges: out *const CUgraphEdgeData, count: out usize) => capture::info_with_edges;
    Usual cuStreamBeginRecaptureToGraph | cuStreamBeginRecaptureToGraph_ptsz(stream: val CUstream, mode: val CUstreamCaptureMode, graph: val CUgraph, callback: val CUgraphRecaptureCallback, data: val *mut c_void) => capture::begin_recapture;
    Usual cuStreamBeginCaptureToCig | cuStreamBeginCaptureToCig_ptsz(stream: val CUstream, params: val *mut CUstreamCigCaptureParams [1]) => capture::begin_to_graphics;
    Usual cuStreamEndCaptureToCig | cuStreamEndCaptureToCig_ptsz(stream: val CUstream) => capture::end_to_graphics;
    Usual cuStreamUpdateCaptureDependencies_v2 | cuStreamUpdateCaptureDependencies_v2_ptsz(stream: val CUstream, nodes: val *mut CUgraphNode [count], edges: val *const CUgraphEdgeData [count], count: val usize, flags: val c_uint) => capture::update_dependencies;

    Surviving cuGraphCreate(graph: result CUgraph, flags: val c_uint) => graph::create;
    Surviving cuGraphDestroy(graph: val CUgraph) => graph::destroy;
    Usual cuGraphClone(made: result CUgraph, graph: val CUgraph) => graph::clone;
    Usual cuGraphNodeFindInClone(found: result CUgraphNode, original: val CUgraphNode, clone: val CUgraph) => graph::find_in_clone;
    Usual cuGraphDestroyNode(node: val CUgraphNode) => graph::destroy_node;
    Usual cuGraphDebugDotPrint(graph: val CUgraph, path: val *const c_char, flags: val c_uint) => graph::dot::print;

    Usual cuGraphAddNode_v2(node: out CUgraphNode, graph: val CUgraph, nodes: val *const CUgraphNode [count], edges: val *const CUgraphEdgeData [count], count: val usize, params: inout CUgraphNodeParams) => graph::params::add;
    Usual cuGraphAddNode_v3(node: out CUgraphNode, graph: val CUgraph, nodes: val *const CUgraphNode [count], edges: val *const CUgraphEdgeData [count], count: val usize, params: inout CUgraphNodeParams) => graph::params::add_checked;
    Usual cuGraphNodeGetParams(node: val CUgraphNode, params: result CUgraphNodeParams) => graph::params::params;
    Usual cuGraphNodeSetParams(node: val CUgraphNode, params: val *mut CUgraphNodeParams [1]) => graph::params::set_params;
    Usual cuGraphNodeSetParams_v2(node: val CUgraphNode, params: val *mut CUgraphNodeParams [1]) => graph::params::set_params_checked;
    Usual cuGraphAddKernelNode_v2(node: out CUgraphNode, graph: val CUgraph, nodes: val *const CUgraphNode [count], count: val usize, params: val *const CUDA_KERNEL_NODE_PARAMS [1]) => graph::kernel::add;
    Usual cuGraphKernelNodeGetParams_v2(node: val CUgraphNode, params: result CUDA_KERNEL_NODE_PARAMS) => graph::kernel::params;
    Usual cuGraphKernelNodeSetParams_v2(node: val CUgraphNode, params: val *const CUDA_KERNEL_NODE_PARAMS [1]) => graph::kernel::set_params;
    Usual cuGraphKernelNodeGetAttribute(node: val CUgraphNode, id: val CUkernelNodeAttrID, value: result CUkernelNodeAttrValue) => graph::kernel::get_attribute;
    Usual cuGraphKernelNodeSetAttribute(node: val CUgraphNode, id: val CUkernelNodeAttrID, value: in CUkernelNodeAttrValue) => graph::kernel::set_attribute;
    Usual cuGraphKernelNodeCopyAttributes(to: val CUgraphNode, from: val CUgraphNode) => graph::kernel::copy_attributes;
    Usual cuGraphAddMemcpyNode(node: out CUgraphNode, graph: val CUgraph, nodes: val *const CUgraphNode [count], count: val usize, copy: in CUDA_MEMCPY3D, context: val CUcontext) => graph::copy::add;
    Usual cuGraphMemcpyNodeGetParams(node: val CUgraphNode, copy: result CUDA_MEMCPY3D) => graph::copy::params;
    Usual cuGraphMemcpyNodeSetParams(node: val CUgraphNode, copy: in CUDA_MEMCPY3D) => graph::copy::set_params;
    Usual cuGraphAddMemsetNode(node: out CUgraphNode, graph: val CUgraph, nodes: val *const CUgraphNode [count], count: val usize, params: in CUDA_MEMSET_NODE_PARAMS, context: val CUcontext) => graph::fill::add;
    Usual cuGraphMemsetNodeGetParams(node: val CUgraphNode, params: result CUDA_MEMSET_NODE_PARAMS) => graph::fill::params;
    Usual cuGraphMemsetNodeSetParams(node: val CUgraphNode, params: in CUDA_MEMSET_NODE_PARAMS) => graph::fill::set_params;
    Usual cuGraphAddHostNode(node: out CUgraphNode, graph: val CUgraph, nodes: val *const CUgraphNode [count], count: val usize, params: in CUDA_HOST_NODE_PARAMS) => graph::add_node::<graph::simple::Host>;
    Usual cuGraphHostNodeGetParams(node: val CUgraphNode, params: result CUDA_HOST_NODE_PARAMS) => graph::simple::host;
    Usual cuGraphHostNodeSetParams(node: val CUgraphNode, params: in CUDA_HOST_NODE_PARAMS) => graph::set_node::<graph::simple::Host>;
    Usual cuGraphAddChildGraphNode(node: out CUgraphNode, graph: val CUgraph, nodes: val *const CUgraphNode [count], count: val usize, child: val CUgraph) => graph::simple::add_child;
    Usual cuGraphChildGraphNodeGetGraph(node: val CUgraphNode, graph: result CUgraph) => graph::simple::child;
    Usual cuGraphAddEmptyNode(node: out CUgraphNode, graph: val CUgraph, nodes: val *const CUgraphNode [count], count: val usize) => graph::simple::add_empty;
    Usual cuGraphAddEventRecordNode(node: out CUgraphNode, graph: val CUgraph, nodes: val *const CUgraphNode [count], count: val usize, event: val CUevent) => graph::add_node::<graph::simple::Record>;
    Usual cuGraphEventRecordNodeGetEvent(node: val CUgraphNode, event: result CUevent) => graph::simple::record_event;
    Usual cuGraphEventRecordNodeSetEvent(node: val CUgraphNode, event: val CUevent) => graph::set_node::<graph::simple::Record>;
    Usual cuGraphAddEventWaitNode(node: out CUgraphNode, graph: val CUgraph, nodes: val *const CUgraphNode [count], count: val usize, event: val CUevent) => graph::add_node::<graph::simple::Wait>;
    Usual cuGraphEventWaitNodeGetEvent(node: val CUgraphNode, event: result CUevent) => graph::simple::wait_event;
    Usual cuGraphEventWaitNodeSetEvent(node: val CUgraphNode, event: val CUevent) => graph::set_node::<graph::simple::Wait>;
    Usual cuGraphAddExternalSemaphoresSignalNode(node: out CUgraphNode, graph: val CUgraph, nodes: val *const CUgraphNode [count], count: val usize, params: in CUDA_EXT_SEM_SIGNAL_NODE_PARAMS) => graph::add_node::<graph::semaphores::Signal>;
    Usual cuGraphExternalSemaphoresSignalNodeGetParams(node: val CUgraphNode, params: result CUDA_EXT_SEM_SIGNAL_NODE_PARAMS) => graph::semaphores::signal;
    Usual cuGraphExternalSemaphoresSignalNodeSetParams(node: val CUgraphNode, params: in CUDA_EXT_SEM_SIGNAL_NODE_PARAMS) => graph::set_node::<graph::semaphores::Signal>;
    Usual cuGraphAddExternalSemaphoresWaitNode(node: out CUgraphNode, graph: val CUgraph, nodes: val *const CUgraphNode [count], count: val usize, params: in CUDA_EXT_SEM_WAIT_NODE_PARAMS) => graph::add_node::<graph::semaphores::Await>;
    Usual cuGraphExternalSemaphoresWaitNodeGetParams(node: val CUgraphNode, params: result CUDA_EXT_SEM_WAIT_NODE_PARAMS) => graph::semaphores::r#await;
    Usual cuGraphExternalSemaphoresWaitNodeSetParams(node: val CUgraphNode, params: in CUDA_EXT_SEM_WAIT_NODE_PARAMS) => graph::set_node::<graph::semaphores::Await>;
    Usual cuGraphAddMemAllocNode(node: out CUgraphNode, graph: val CUgraph, nodes: val *const CUgraphNode [count], count: val usize, params: inout CUDA_MEM_ALLOC_NODE_PARAMS) => graph::memory::add;
    Usual cuGraphMemAllocNodeGetParams(node: val CUgraphNode, params: result CUDA_MEM_ALLOC_NODE_PARAMS) => graph::memory::params;
    Usual cuGraphAddMemFreeNode(node: out CUgraphNode, graph: val CUgraph, nodes: val *const CUgraphNode [count], count: val usize, address: val CUdeviceptr) => graph::memory::add_free;
    Usual cuGraphMemFreeNodeGetParams(node: val CUgraphNode, address: result CUdeviceptr) => graph::memory::free_params;
    Usual cuGraphAddBatchMemOpNode(node: out CUgraphNode, graph: val CUgraph, nodes: val *const CUgraphNode [count], count: val usize, params: in CUDA_BATCH_MEM_OP_NODE_PARAMS) => graph::add_node::<graph::operations::Operations>;
    Usual cuGraphBatchMemOpNodeGetParams(node: val CUgraphNode, params: result CUDA_BATCH_MEM_OP_NODE_PARAMS) => graph::operations::params;
    Usual cuGraphBatchMemOpNodeSetParams(node: val CUgraphNode, params: in CUDA_BATCH_MEM_OP_NODE_PARAMS) => graph::set_node::<graph::operations::Operations>;
    Usual cuGraphConditionalHandleCreate(handle: result CUgraphConditionalHandle, graph: val CUgraph, context: val CUcontext, default: val c_uint, flags: val c_uint) => graph::conditional::create_handle;

    Usual cuGraphAddDependencies_v2(graph: val CUgraph, from: val *const CUgraphNode [count], to: val *const CUgraphNode [count], edges: val *const CUgraphEdgeData [count], count: val usize) => graph::edge::add;
    Usual cuGraphRemoveDependencies_v2(graph: val CUgraph, from: val *const CUgraphNode [count], to: val *const CUgraphNode [count], edges: val *const CUgraphEdgeData [count], count: val usize) => graph::edge::remove;
    Usual cuGraphGetNodes(graph: val CUgraph, nodes: val *mut CUgraphNode, count: inout usize) => graph::query::nodes;
    Usual cuGraphGetRootNodes(graph: val CUgraph, nodes: val *mut CUgraphNode, count: inout usize) => graph::query::roots;
    Usual cuGraphGetEdges_v2(graph: val CUgraph, from: val *mut CUgraphNode, to: val *mut CUgraphNode, edges: val *mut CUgraphEdgeData, count: inout usize) => graph::query::edges;
    Usual cuGraphNodeGetDependencies_v2(node: val CUgraphNode, nodes: val *mut CUgraphNode, edges: val *mut CUgraphEdgeData, count: inout usize) => graph::query::dependencies;
    Usual cuGraphNodeGetDependentNodes_v2(node: val CUgraphNode, nodes: val *mut CUgraphNode, edges: val *mut CUgraphEdgeData, count: inout usize) => graph::query::dependents;
    Usual cuGraphNodeGetType(node: val CUgraphNode, kind: result CUgraphNodeType) => graph::query::kind;
    Usual cuGraphNodeGetContainingGraph(node: val CUgraphNode, graph: result CUgraph) => graph::query::containing;
    Usual cuGraphNodeGetLocalId(node: val CUgraphNode, id: result c_uint) => graph::query::local_id;
    Usual cuGraphNodeGetToolsId(node: val CUgraphNode, id: result c_ulonglong) => graph::query::tools_id;
    Usual cuGraphGetId(graph: val CUgraph, id: result c_uint) => graph::query::graph_id;
    Usual cuGraphExecGetId(executable: val CUgraphExec, id: result c_uint) => graph::query::executable_id;

    Usual cuGraphInstantiateWithFlags(executable: result CUgraphExec, graph: val CUgraph, flags: val c_ulonglong) => graph::executable::instantiate;
    Usual cuGraphInstantiateWithParams | cuGraphInstantiateWithParams_ptsz(executable: must CUgraphExec, graph: val CUgraph, params: inout CUDA_GRAPH_INSTANTIATE_PARAMS) => graph::executable::instantiate_with;
    Usual cuGraphExecGetFlags(executable: val CUgraphExec, flags: result c_ulonglong) => graph::executable::flags;
    Usual cuGraphUpload | cuGraphUpload_ptsz(executable: val CUgraphExec, stream: val CUstream) => graph::executable::upload;
    InCallbacks cuGraphLaunch | cuGraphLaunch_ptsz(executable: val CUgraphExec, stream: val CUstream) => graph::executable::launch;
    Surviving cuGraphExecDestroy(executable: val CUgraphExec) => graph::executable::destroy;
    Usual cuGraphExecUpdate_v2(executable: val CUgraphExec, graph: val CUgraph, info: out CUgraphExecUpdateResultInfo) => graph::update::update;
    Usual cuGraphExecNodeSetParams(executable: val CUgraphExec, node: val CUgraphNode, params: val *mut CUgraphNodeParams [1]) => graph::update::set_params;
    Usual cuGraphExecKernelNodeSetParams_v2(executable: val CUgraphExec, node: val CUgraphNode, params: val *const CUDA_KERNEL_NODE_PARAMS [1]) => graph::update::set_kernel;
    Usual cuGraphExecMemcpyNodeSetParams(executable: val CUgraphExec, node: val CUgraphNode, copy: in CUDA_MEMCPY3D, context: val CUcontext) => graph::update::set_copy;
    Usual cuGraphExecMemsetNodeSetParams(executable: val CUgraphExec, node: val CUgraphNode, params: in CUDA_MEMSET_NODE_PARAMS, context: val CUcontext) => graph::update::set_fill;
    Usual cuGraphExecHostNodeSetParams(executable: val CUgraphExec, node: val CUgraphNode, params: in CUDA_HOST_NODE_PARAMS) => graph::update::set_node::<graph::simple::Host>;
    Usual cuGraphExecChildGraphNodeSetParams(executable: val CUgraphExec, node: val CUgraphNode, child: val CUgraph) => graph::update::set_child;
    Usual cuGraphExecEventRecordNodeSetEvent(executable: val CUgraphExec, node: val CUgraphNode, event: val CUevent) => graph::update::set_node::<graph::simple::Record>;
    Usual cuGraphExecEventWaitNodeSetEvent(executable: val CUgraphExec, node: val CUgraphNode, event: val CUevent) => graph::update::set_node::<graph::simple::Wait>;
    Usual cuGraphExecExternalSemaphoresSignalNodeSetParams(executable: val CUgraphExec, node: val CUgraphNode, params: in CUDA_EXT_SEM_SIGNAL_NODE_PARAMS) => graph::update::set_node::<graph::semaphores::Signal>;
    Usual cuGraphExecExternalSemaphoresWaitNodeSetParams(executable: val CUgraphExec, node: val CUgraphNode, params: in CUDA_EXT_SEM_WAIT_NODE_PARAMS) => graph::update::set_node::<graph::semaphores::Await>;
    Usual cuGraphExecBatchMemOpNodeSetParams(executable: val CUgraphExec, node: val CUgraphNode, params: in CUDA_BATCH_MEM_OP_NODE_PARAMS) => graph::update::set_node::<graph::operations::Operations>;
    Usual cuGraphNodeSetEnabled(executable: val CUgraphExec, node: val CUgraphNode, is_enabled: val c_uint) => graph::update::set_enabled;
    Usual cuGraphNodeGetEnabled(executable: val CUgraphExec, node: val CUgraphNode, is_enabled: result c_uint) => graph::update::enabled;

    Usual cuDeviceGetGraphMemAttribute(device: val CUdevice, attribute: val CUgraphMem_attribute, value: val *mut c_void) => graph::memory::attribute;
    Usual cuDeviceSetGraphMemAttribute(device: val CUdevice, attribute: val CUgraphMem_attribute, value: val *mut c_void [bytes 8]) => graph::memory::set_attribute;
    Usual cuDeviceGraphMemTrim(device: val CUdevice) => graph::memory::trim;
    Usual cuUserObjectCreate(object: result CUuserObject, data: val *mut c_void, destroy: val CUhostFn, count: val c_uint, flags: val c_uint) => graph::user_object::create;
    InCallbacks cuUserObjectRetain(object: val CUuserObject, count: val c_uint) => graph::user_object::retain;
    Robust cuUserObjectRelease(object: val CUuserObject, count: val c_uint) => graph::user_object::release;
    Usual cuGraphRetainUserObject(graph: val CUgraph, object: val CUuserObject, count: val c_uint, flags: val c_uint) => graph::user_object::retain_in_graph;
    Usual cuGraphReleaseUserObject(graph: val CUgraph, object: val CUuserObject, count: val c_uint) => graph::user_object::release_in_graph;

    Usual cuLaunchHostFunc | cuLaunchHostFunc_ptsz(stream: val CUstream, function: val CUhostFn, data: val *mut c_void) => launch::host_function;
    Usual cuStreamAddCallback | cuStreamAddCallback_ptsz(stream: val CUstream, callback: val CUstreamCallback, data: val *mut c_void, flags: val c_uint) => launch::callback;

    Usual cuEventCreate(event: result CUevent, flags: val c_uint) => event::create;
    InCallbacks cuEventDestroy_v2(event: val CUevent) => event::destroy;
    InCallbacks cuEventRecord | cuEventRecord_ptsz(event: val CUevent, stream: val CUstream) => event::record;
    InCallbacks cuEventRecordWithFlags | cuEventRecordWithFlags_ptsz(event: val CUevent, stream: val CUstream, flags: val c_uint) => event::record_with_flags;
    Usual cuEventSynchronize(event: val CUevent) => event::synchronize;
    InCallbacks cuEventQuery(event: val CUevent) => event::query;
    Usual cuEventElapsedTime_v2(milliseconds: result f32, start: val CUevent, end: val CUevent) => event::elapsed;

    Usual cuMemAlloc_v2(address: out CUdeviceptr, size: val usize) => memory::allocate;
    Usual cuMemFree_v2(address: val CUdeviceptr) => memory::free;
    Usual cuMemAllocAsync | cuMemAllocAsync_ptsz(address: out CUdeviceptr, size: val usize, stream: val CUstream) => memory::allocate_async;
    Usual cuMemFreeAsync | cuMemFreeAsync_ptsz(address: val CUdeviceptr, stream: val CUstream) => memory::free_async;
    Usual cuMemHostAlloc(start: out *mut c_void, size: val usize, flags: val c_uint) => memory::host::allocate;
    Usual cuMemAllocHost_v2(start: out *mut c_void, size: val usize) => memory::host::allocate_simply;
    Usual cuMemFreeHost(start: val *mut c_void) => memory::host::free;
    Usual cuMemHostGetFlags(flags: result c_uint, start: val *mut c_void) => memory::host::flags;
    Usual cuMemHostGetDevicePointer_v2(address: result CUdeviceptr, start: val *mut c_void, flags: val c_uint) => memory::host::device_pointer;
    Usual cuMemHostRegister_v2(start: val *mut c_void, size: val usize, flags: val c_uint) => memory::host::register;
    Usual cuMemHostUnregister(start: val *mut c_void) => memory::host::unregister;

    Usual cuIpcGetMemHandle(handle: result CUipcMemHandle, address: val CUdeviceptr) => memory::ipc::get;
    Usual cuIpcOpenMemHandle_v2(address: result CUdeviceptr, handle: val CUipcMemHandle, flags: val c_uint) => memory::ipc::open;
    Usual cuIpcCloseMemHandle(address: val CUdeviceptr) => memory::ipc::close;
    Usual cuIpcGetEventHandle(handle: result CUipcEventHandle, event: val CUevent) => memory::ipc::get_event;
    Usual cuIpcOpenEventHandle(event: result CUevent, handle: val CUipcEventHandle) => memory::ipc::open_event;

    Usual cuMemAllocManaged(address: must CUdeviceptr, size: val usize, flags: val c_uint) => memory::managed::allocate;
    Usual cuStreamAttachMemAsync | cuStreamAttachMemAsync_ptsz(stream: val CUstream, address: val CUdeviceptr, size: val usize, flags: val c_uint) => memory::managed::attach;
    Usual cuMemAdvise_v2(address: val CUdeviceptr, size: val usize, advice: val CUmem_advise, location: val CUmemLocation) => memory::managed::advise;
    Usual cuMemPrefetchAsync_v2 | cuMemPrefetchAsync_v2_ptsz(address: val CUdeviceptr, size: val usize, location: val CUmemLocation, flags: val c_uint, stream: val CUstream) => memory::managed::prefetch;
    Usual cuMemPrefetchBatchAsync | cuMemPrefetchBatchAsync_ptsz(addresses: val *mut CUdeviceptr [count], sizes: val *mut usize [count], count: val usize, locations: val *mut CUmemLocation [location_count], firsts: val *mut usize [location_count], location_count: val usize, flags: val c_ulonglong, stream: val CUstream) => memory::managed::prefetch_batch;
    Usual cuMemDiscardBatchAsync | cuMemDiscardBatchAsync_ptsz(addresses: val *mut CUdeviceptr [count], sizes: val *mut usize [count], count: val usize, flags: val c_ulonglong, stream: val CUstream) => memory::managed::discard_batch;
    Usual cuMemDiscardAndPrefetchBatchAsync | cuMemDiscardAndPrefetchBatchAsync_ptsz(addresses: val *mut CUdeviceptr [count], sizes: val *mut usize [count], count: val usize, locations: val *mut CUmemLocation [location_count], firsts: val *mut usize [location_count], location_count: val usize, flags: val c_ulonglong, stream: val CUstream) => memory::managed::discard_and_prefetch_batch;
    Usual cuMemRangeGetAttributes(data: val *mut *mut c_void, sizes: val *mut usize, attributes: val *mut CUmem_range_attribute [count], count: val usize, address: val CUdeviceptr, size: val usize) => memory::managed::attributes;
    Usual cuMemRangeGetAttribute(data: val *mut c_void, data_size: val usize, attribute: val CUmem_range_attribute, address: val CUdeviceptr, size: val usize) => memory::managed::attribute;
    Usual cuMemGetLocationInfo(address: val CUdeviceptr, size: val usize, part: val usize, sample: val usize, locations: val *mut CUmemLocation) => memory::managed::locations;

    Usual cuMemPoolCreate(pool: result CUmemoryPool, props: in CUmemPoolProps) => memory::pool::create;
    Usual cuMemPoolDestroy(pool: val CUmemoryPool) => memory::pool::destroy;
    Usual cuMemPoolGetAttribute(pool: val CUmemoryPool, attribute: val CUmemPool_attribute, value: val *mut c_void) => memory::pool::attribute;
    Usual cuMemPoolSetAttribute(pool: val CUmemoryPool, attribute: val CUmemPool_attribute, value: val *mut c_void [bytes memory::pool::size_of_attribute(attribute)]) => memory::pool::set_attribute;
    Usual cuMemPoolTrimTo(pool: val CUmemoryPool, keep: val usize) => memory::pool::trim;
    Usual cuMemPoolGetAccess(access: result CUmemAccess_flags, pool: val CUmemoryPool, location: val *mut CUmemLocation [1]) => memory::pool::access;
    Usual cuMemPoolSetAccess(pool: val CUmemoryPool, map: val *const CUmemAccessDesc [count], count: val usize) => memory::pool::set_access;
    Usual cuMemAllocFromPoolAsync | cuMemAllocFromPoolAsync_ptsz(address: out CUdeviceptr, size: val usize, pool: val CUmemoryPool, stream: val CUstream) => memory::pool::allocate;
    Surviving cuDeviceGetDefaultMemPool(pool: result CUmemoryPool, device: val CUdevice) => memory::pool::default_of_device;
    Usual cuDeviceGetMemPool(pool: result CUmemoryPool, device: val CUdevice) => memory::pool::of_device;
    Usual cuDeviceSetMemPool(device: val CUdevice, pool: val CUmemoryPool) => memory::pool::set_of_device;
    Usual cuMemPoolExportToShareableHandle(place: val *mut c_void, pool: val CUmemoryPool, kind: val CUmemAllocationHandleType, flags: val c_ulonglong) => memory::pool_ipc::export_pool;
    Usual cuMemPoolImportFromShareableHandle(pool: result CUmemoryPool, handle: val *mut c_void, kind: val CUmemAllocationHandleType, flags: val c_ulonglong) => memory::pool_ipc::import_pool;
    Usual cuMemPoolExportPointer(data: result CUmemPoolPtrExportData, address: val CUdeviceptr) => memory::pool_ipc::export_memory;
    Usual cuMemPoolImportPointer(address: result CUdeviceptr, pool: val CUmemoryPool, data: val *mut CUmemPoolPtrExportData) => memory::pool_ipc::import_memory;
    Usual cuMemGetDefaultMemPool(pool: result CUmemoryPool, location: val *mut CUmemLocation [1], kind: val CUmemAllocationType) => memory::pool::default_at;
    Usual cuMemGetMemPool(pool: result CUmemoryPool, location: val *mut CUmemLocation [1], kind: val CUmemAllocationType) => memory::pool::at;
    Usual cuMemSetMemPool(location: val *mut CUmemLocation [1], kind: val CUmemAllocationType, pool: val CUmemoryPool) => memory::pool::set_at;

    Surviving cuMemAddressReserve(address: result CUdeviceptr, size: val usize, alignment: val usize, hint: val CUdeviceptr, flags: val c_ulonglong) => virtual_memory::reserve;
    Usual cuMemAddressFree(address: val CUdeviceptr, size: val usize) => virtual_memory::free;
    Usual cuMemCreate(handle: result CUmemGenericAllocationHandle, size: val usize, properties: in CUmemAllocationProp, flags: val c_ulonglong) => virtual_memory::create;
    Usual cuMemRelease(handle: val CUmemGenericAllocationHandle) => virtual_memory::release;
    Usual cuMemMap(address: val CUdeviceptr, size: val usize, offset: val usize, handle: val CUmemGenericAllocationHandle, flags: val c_ulonglong) => virtual_memory::map;
    Usual cuMemUnmap(address: val CUdeviceptr, size: val usize) => virtual_memory::unmap;
    Usual cuMemSetAccess(address: val CUdeviceptr, size: val usize, access: val *const CUmemAccessDesc [count], count: val usize) => virtual_memory::set_access;
    Usual cuMemGetAccess(flags: result c_ulonglong, location: val *const CUmemLocation [1], address: val CUdeviceptr) => virtual_memory::access;
    Usual cuMemGetAllocationGranularity(granularity: result usize, properties: val *const CUmemAllocationProp [1], option: val CUmemAllocationGranularity_flags) => virtual_memory::granularity;
    Usual cuMemGetAllocationPropertiesFromHandle(properties: result CUmemAllocationProp, handle: val CUmemGenericAllocationHandle) => virtual_memory::properties_of;
    Usual cuMemRetainAllocationHandle(handle: result CUmemGenericAllocationHandle, address: val *mut c_void) => virtual_memory::retain;
    Usual cuMemExportToShareableHandle(place: val *mut c_void, handle: val CUmemGenericAllocationHandle, kind: val CUmemAllocationHandleType, flags: val c_ulonglong) => virtual_memory::export;
    Usual cuMemImportFromShareableHandle(handle: result CUmemGenericAllocationHandle, descriptor: val *mut c_void, kind: val CUmemAllocationHandleType) => virtual_memory::import;

    Usual cuMemGetHandleForAddressRange(place: val *mut c_void, address: val CUdeviceptr, size: val usize, kind: val CUmemRangeHandleType, flags: val c_ulonglong) => virtual_memory::range_handle;
    Usual cuMulticastCreate(object: result CUmemGenericAllocationHandle, properties: val *const CUmulticastObjectProp [1]) => virtual_memory::multicast::create;
    Usual cuMulticastAddDevice(object: val CUmemGenericAllocationHandle, device: val CUdevice) => virtual_memory::multicast::add_device;
    Usual cuMulticastBindMem(object: val CUmemGenericAllocationHandle, offset: val usize, memory: val CUmemGenericAllocationHandle, start: val usize, size: val usize, flags: val c_ulonglong) => virtual_memory::multicast::bind_memory;
    Usual cuMulticastBindMem_v2(object: val CUmemGenericAllocationHandle, device: val CUdevice, offset: val usize, memory: val CUmemGenericAllocationHandle, start: val usize, size: val usize, flags: val c_ulonglong) => virtual_memory::multicast::bind_memory_on;
    Usual cuMulticastBindAddr(object: val CUmemGenericAllocationHandle, offset: val usize, address: val CUdeviceptr, size: val usize, flags: val c_ulonglong) => virtual_memory::multicast::bind_address;
    Usual cuMulticastBindAddr_v2(object: val CUmemGenericAllocationHandle, device: val CUdevice, offset: val usize, address: val CUdeviceptr, size: val usize, flags: val c_ulonglong) => virtual_memory::multicast::bind_address_on;
    Usual cuMulticastUnbind(object: val CUmemGenericAllocationHandle, device: val CUdevice, offset: val usize, size: val usize) => virtual_memory::multicast::unbind;
    Usual cuMulticastGetGranularity(granularity: result usize, properties: val *const CUmulticastObjectProp [1], option: val CUmulticastGranularity_flags) => virtual_memory::multicast::granularity;

    Usual cuLogicalEndpointIdReserve(first: result CUlogicalEndpointId, count: val u32) => virtual_memory::endpoint::reserve_ids;
    Usual cuLogicalEndpointIdRelease(first: val CUlogicalEndpointId, count: val u32) => virtual_memory::endpoint::release_ids;
    Usual cuLogicalEndpointGetLimits(alignment: must u64, size: must u64, properties: in CUlogicalEndpointProp) => virtual_memory::endpoint::limits;
    Usual cuLogicalEndpointCreate(id: val CUlogicalEndpointId, properties: in CUlogicalEndpointProp) => virtual_memory::endpoint::create;
    Usual cuLogicalEndpointAddDevice(id: val CUlogicalEndpointId, device: val CUdevice) => virtual_memory::endpoint::add_device;
    Usual cuLogicalEndpointQuery(first: val CUlogicalEndpointId, count: val u32, status: result c_int) => virtual_memory::endpoint::query;
    Usual cuLogicalEndpointDestroy(id: val CUlogicalEndpointId) => virtual_memory::endpoint::destroy;
    Usual cuLogicalEndpointBindMem(id: val CUlogicalEndpointId, device: val CUdevice, offset: val u64, memory: val CUmemGenericAllocationHandle, start: val u64, size: val u64, flags: val c_ulonglong) => virtual_memory::endpoint::bind_memory;
    Usual cuLogicalEndpointBindAddr(id: val CUlogicalEndpointId, device: val CUdevice, offset: val u64, address: val *mut c_void, size: val u64, flags: val c_ulonglong) => virtual_memory::endpoint::bind_address;
    Usual cuLogicalEndpointUnbind(id: val CUlogicalEndpointId, device: val CUdevice, offset: val u64, size: val u64) => virtual_memory::endpoint::unbind;

    Surviving cuPointerGetAttribute(data: val *mut c_void, attribute: val CUpointer_attribute, address: val CUdeviceptr) => memory::pointer::attribute;
    Usual cuPointerGetAttributes(count: val c_uint, attributes: val *mut CUpointer_attribute [count], data: val *mut *mut c_void, address: val CUdeviceptr) => memory::pointer::attributes;
    Usual cuPointerSetAttribute(value: val *const c_void [bytes 4], attribute: val CUpointer_attribute, address: val CUdeviceptr) => memory::pointer::set_attribute;
    Usual cuMemGetAddressRange_v2(start: out CUdeviceptr, size: out usize, address: val CUdeviceptr) => memory::pointer::range;

    Usual cuMemcpyHtoD_v2 | cuMemcpyHtoD_v2_ptds(to: val CUdeviceptr, from: val *const c_void, size: val usize) => memory::copy::copy_in;
    Usual cuMemcpyDtoH_v2 | cuMemcpyDtoH_v2_ptds(to: val *mut c_void, from: val CUdeviceptr, size: val usize) => memory::copy::copy_out;
    Usual cuMemcpyHtoDAsync_v2 | cuMemcpyHtoDAsync_v2_ptsz(to: val CUdeviceptr, from: val *const c_void, size: val usize, stream: val CUstream) => memory::copy::copy_in_async;
    Usual cuMemcpyDtoHAsync_v2 | cuMemcpyDtoHAsync_v2_ptsz(to: val *mut c_void, from: val CUdeviceptr, size: val usize, stream: val CUstream) => memory::copy::copy_out_async;
    Usual cuMemcpyDtoDAsync_v2 | cuMemcpyDtoDAsync_v2_ptsz(to: val CUdeviceptr, from: val CUdeviceptr, size: val usize, stream: val CUstream) => memory::copy::copy_on_device_async;
    Usual cuMemcpyAsync | cuMemcpyAsync_ptsz(to: val CUdeviceptr, from: val CUdeviceptr, size: val usize, stream: val CUstream) => memory::copy::copy_async;
    Usual cuMemcpy | cuMemcpy_ptds(to: val CUdeviceptr, from: val CUdeviceptr, size: val usize) => memory::copy::copy;
    Usual cuMemcpyPeer | cuMemcpyPeer_ptds(to: val CUdeviceptr, its: val CUcontext, from: val CUdeviceptr, others: val CUcontext, size: val usize) => device::peer::copy_now;
    Usual cuMemcpyPeerAsync | cuMemcpyPeerAsync_ptsz(to: val CUdeviceptr, its: val CUcontext, from: val CUdeviceptr, others: val CUcontext, size: val usize, stream: val CUstream) => device::peer::copy;
    Usual cuMemAllocPitch_v2(address: out CUdeviceptr, pitch: must usize, width: val usize, height: val usize, element: val c_uint) => memory::copies_2d_3d::allocate;
    Usual cuMemcpy2D_v2 | cuMemcpy2D_v2_ptds(copy: val *const CUDA_MEMCPY2D [1]) => memory::copies_2d_3d::copy_plane;
    Usual cuMemcpy2DAsync_v2 | cuMemcpy2DAsync_v2_ptsz(copy: val *const CUDA_MEMCPY2D [1], stream: val CUstream) => memory::copies_2d_3d::copy_plane_async;
    Usual cuMemcpy3D_v2 | cuMemcpy3D_v2_ptds(copy: val *const CUDA_MEMCPY3D [1]) => memory::copies_2d_3d::copy_volume;
    Usual cuMemcpy3DAsync_v2 | cuMemcpy3DAsync_v2_ptsz(copy: val *const CUDA_MEMCPY3D [1], stream: val CUstream) => memory::copies_2d_3d::copy_volume_async;
    Usual cuMemcpyBatchAsync_v2 | cuMemcpyBatchAsync_v2_ptsz(to: val *mut CUdeviceptr [count], from: val *mut CUdeviceptr [count], sizes: val *mut usize [count], count: val usize, attributes: val *mut CUmemcpyAttributes [sets], firsts: val *mut usize [sets], sets: val usize, stream: val CUstream) => memory::batch::copy_batch;
    Usual cuMemcpy3DBatchAsync_v2 | cuMemcpy3DBatchAsync_v2_ptsz(count: val usize, copies: val *mut CUDA_MEMCPY3D_BATCH_OP [count], flags: val c_ulonglong, stream: val CUstream) => memory::batch::copy_volume_batch;
    Usual cuMemBatchDecompressAsync | cuMemBatchDecompressAsync_ptsz(operations: val *mut CUmemDecompressParams [count], count: val usize, flags: val c_uint, failed: out usize, stream: val CUstream) => memory::decompress::batch;
    Usual cuFabricCpyBatchAsync | cuFabricCpyBatchAsync_ptsz(count: val usize, copies: val *mut CUDA_FABRIC_COPY_BATCH_OP [count], flags: val c_ulonglong, stream: val CUstream) => virtual_memory::fabric::copy_batch;
    Usual cuMemcpyWithAttributesAsync | cuMemcpyWithAttributesAsync_ptsz(to: val CUdeviceptr, from: val CUdeviceptr, size: val usize, attributes: val *mut CUmemcpyAttributes [1], stream: val CUstream) => memory::batch::copy_with_attributes;
    Usual cuMemcpy3DWithAttributesAsync | cuMemcpy3DWithAttributesAsync_ptsz(copy: val *mut CUDA_MEMCPY3D_BATCH_OP [1], flags: val c_ulonglong, stream: val CUstream) => memory::batch::copy_volume_with_attributes;
    Usual cuMemcpy3DPeer | cuMemcpy3DPeer_ptds(copy: val *const CUDA_MEMCPY3D_PEER [1]) => memory::copies_2d_3d::copy_between;
    Usual cuMemcpy3DPeerAsync | cuMemcpy3DPeerAsync_ptsz(copy: val *const CUDA_MEMCPY3D_PEER [1], stream: val CUstream) => memory::copies_2d_3d::copy_between_async;
    Usual cuMemsetD2D8Async | cuMemsetD2D8Async_ptsz(at: val CUdeviceptr, pitch: val usize, value: val u8, width: val usize, height: val usize, stream: val CUstream) => memory::fill::fill_plane;
    Usual cuMemsetD2D16Async | cuMemsetD2D16Async_ptsz(at: val CUdeviceptr, pitch: val usize, value: val u16, width: val usize, height: val usize, stream: val CUstream) => memory::fill::fill_plane;
    Usual cuMemsetD2D32Async | cuMemsetD2D32Async_ptsz(at: val CUdeviceptr, pitch: val usize, value: val c_uint, width: val usize, height: val usize, stream: val CUstream) => memory::fill::fill_plane;
    Usual cuMemsetD8_v2 | cuMemsetD8_v2_ptds(at: val CUdeviceptr, value: val u8, count: val usize) => memory::fill::fill_now;
    Usual cuMemsetD16_v2 | cuMemsetD16_v2_ptds(at: val CUdeviceptr, value: val u16, count: val usize) => memory::fill::fill_now;
    Usual cuMemsetD32_v2 | cuMemsetD32_v2_ptds(at: val CUdeviceptr, value: val c_uint, count: val usize) => memory::fill::fill_now;
    Usual cuMemsetD2D8_v2 | cuMemsetD2D8_v2_ptds(at: val CUdeviceptr, pitch: val usize, value: val u8, width: val usize, height: val usize) => memory::fill::fill_plane_now;
    Usual cuMemsetD2D16_v2 | cuMemsetD2D16_v2_ptds(at: val CUdeviceptr, pitch: val usize, value: val u16, width: val usize, height: val usize) => memory::fill::fill_plane_now;
    Usual cuMemsetD2D32_v2 | cuMemsetD2D32_v2_ptds(at: val CUdeviceptr, pitch: val usize, value: val c_uint, width: val usize, height: val usize) => memory::fill::fill_plane_now;
    Usual cuMemsetD8Async | cuMemsetD8Async_ptsz(at: val CUdeviceptr, value: val u8, count: val usize, stream: val CUstream) => memory::fill::fill;
    Usual cuMemsetD16Async | cuMemsetD16Async_ptsz(at: val CUdeviceptr, value: val u16, count: val usize, stream: val CUstream) => memory::fill::fill;
    Usual cuMemsetD32Async | cuMemsetD32Async_ptsz(at: val CUdeviceptr, value: val c_uint, count: val usize, stream: val CUstream) => memory::fill::fill;

    Usual cuMemcpy2DUnaligned_v2 | cuMemcpy2DUnaligned_v2_ptds(copy: val *const CUDA_MEMCPY2D [1]) => memory::copies_2d_3d::copy_plane;
    Usual cuMemcpyDtoD_v2 | cuMemcpyDtoD_v2_ptds(to: val CUdeviceptr, from: val CUdeviceptr, size: val usize) => memory::copy::copy_on_device;
    Usual cuMemcpyHtoA_v2 | cuMemcpyHtoA_v2_ptds(array: val CUarray, offset: val usize, from: val *const c_void, size: val usize) => array::copy_in;
    Usual cuMemcpyHtoAAsync_v2 | cuMemcpyHtoAAsync_v2_ptsz(array: val CUarray, offset: val usize, from: val *const c_void, size: val usize, stream: val CUstream) => array::copy_in_async;
    Usual cuMemcpyAtoH_v2 | cuMemcpyAtoH_v2_ptds(to: val *mut c_void, array: val CUarray, offset: val usize, size: val usize) => array::copy_out;
    Usual cuMemcpyAtoHAsync_v2 | cuMemcpyAtoHAsync_v2_ptsz(to: val *mut c_void, array: val CUarray, offset: val usize, size: val usize, stream: val CUstream) => array::copy_out_async;
    Usual cuMemcpyDtoA_v2 | cuMemcpyDtoA_v2_ptds(array: val CUarray, offset: val usize, from: val CUdeviceptr, size: val usize) => array::copy_from_device;
    Usual cuMemcpyAtoD_v2 | cuMemcpyAtoD_v2_ptds(to: val CUdeviceptr, array: val CUarray, offset: val usize, size: val usize) => array::copy_to_device;
    Usual cuMemcpyAtoA_v2 | cuMemcpyAtoA_v2_ptds(to: val CUarray, to_offset: val usize, from: val CUarray, from_offset: val usize, size: val usize) => array::copy_to_array;

    Usual cuArrayCreate_v2(array: out CUarray, descriptor: val *const CUDA_ARRAY_DESCRIPTOR [1]) => array::create;
    Usual cuArray3DCreate_v2(array: out CUarray, descriptor: in CUDA_ARRAY3D_DESCRIPTOR) => array::create_3d;
    InCallbacks cuArrayDestroy(array: val CUarray) => array::destroy;
    Usual cuArrayGetDescriptor_v2(descriptor: result CUDA_ARRAY_DESCRIPTOR, array: val CUarray) => array::descriptor;
    Usual cuArray3DGetDescriptor_v2(descriptor: result CUDA_ARRAY3D_DESCRIPTOR, array: val CUarray) => array::descriptor_3d;
    Usual cuArrayGetPlane(plane: result CUarray, array: val CUarray, index: val c_uint) => array::plane;
    Usual cuArrayGetSparseProperties(properties: result CUDA_ARRAY_SPARSE_PROPERTIES, array: val CUarray) => array::sparse_properties;
    Usual cuArrayGetMemoryRequirements(requirements: result CUDA_ARRAY_MEMORY_REQUIREMENTS, array: val CUarray, device: val CUdevice) => array::memory_requirements;
    Usual cuMipmappedArrayCreate(array: result CUmipmappedArray, descriptor: val *const CUDA_ARRAY3D_DESCRIPTOR [1], levels: val c_uint) => array::create_mipmapped;
    InCallbacks cuMipmappedArrayDestroy(array: val CUmipmappedArray) => array::destroy_mipmapped;
    Usual cuMipmappedArrayGetLevel(level: result CUarray, array: val CUmipmappedArray, index: val c_uint) => array::level;
    Usual cuMipmappedArrayGetSparseProperties(properties: result CUDA_ARRAY_SPARSE_PROPERTIES, array: val CUmipmappedArray) => array::mipmapped_sparse_properties;
    Usual cuMipmappedArrayGetMemoryRequirements(requirements: result CUDA_ARRAY_MEMORY_REQUIREMENTS, array: val CUmipmappedArray, device: val CUdevice) => array::mipmapped_memory_requirements;
    Usual cuMemMapArrayAsync | cuMemMapArrayAsync_ptsz(list: val *mut CUarrayMapInfo [count], count: val c_uint, stream: val CUstream) => array::map;
    Usual cuImportExternalMemory(memory: result CUexternalMemory, description: in CUDA_EXTERNAL_MEMORY_HANDLE_DESC) => external::import_memory;
    Usual cuDestroyExternalMemory(memory: val CUexternalMemory) => external::destroy_memory;
    Usual cuExternalMemoryGetMappedBuffer(address: result CUdeviceptr, memory: val CUexternalMemory, description: in CUDA_EXTERNAL_MEMORY_BUFFER_DESC) => external::map_buffer;
    Usual cuExternalMemoryGetMappedMipmappedArray(array: result CUmipmappedArray, memory: val CUexternalMemory, description: in CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC) => external::map_mipmapped;
    Usual cuImportExternalSemaphore(semaphore: result CUexternalSemaphore, description: in CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC) => external::import_semaphore;
    Usual cuDestroyExternalSemaphore(semaphore: val CUexternalSemaphore) => external::destroy_semaphore;
    Usual cuSignalExternalSemaphoresAsync | cuSignalExternalSemaphoresAsync_ptsz(semaphores: val *const CUexternalSemaphore [count], parameters: val *const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS [count], count: val c_uint, stream: val CUstream) => external::signal;
    Usual cuWaitExternalSemaphoresAsync | cuWaitExternalSemaphoresAsync_ptsz(semaphores: val *const CUexternalSemaphore [count], parameters: val *const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS [count], count: val c_uint, stream: val CUstream) => external::wait;
    Usual cuGraphicsGLRegisterBuffer(resource: result CUgraphicsResource, buffer: val GLuint, flags: val c_uint) => external::graphics::register_buffer;
    Usual cuGraphicsGLRegisterImage(resource: result CUgraphicsResource, image: val GLuint, target: val GLenum, flags: val c_uint) => external::graphics::register_image;
    Usual cuGraphicsEGLRegisterImage(resource: result CUgraphicsResource, image: val EGLImageKHR, flags: val c_uint) => external::graphics::register_egl;
    Usual cuGraphicsUnregisterResource(resource: val CUgraphicsResource) => external::graphics::unregister;
    Usual cuGraphicsResourceSetMapFlags_v2(resource: val CUgraphicsResource, flags: val c_uint) => external::graphics::set_flags;
    Usual cuGraphicsMapResources | cuGraphicsMapResources_ptsz(count: val c_uint, resources: val *mut CUgraphicsResource [count], stream: val CUstream) => external::graphics::map;
    Usual cuGraphicsUnmapResources | cuGraphicsUnmapResources_ptsz(count: val c_uint, resources: val *mut CUgraphicsResource [count], stream: val CUstream) => external::graphics::unmap;
    Usual cuGraphicsResourceGetMappedPointer_v2(address: must CUdeviceptr, size: must usize, resource: val CUgraphicsResource) => external::graphics::mapped_pointer;
    Usual cuGraphicsSubResourceGetMappedArray(array: result CUarray, resource: val CUgraphicsResource, index: val c_uint, level: val c_uint) => external::graphics::mapped_array;
    Usual cuGraphicsResourceGetMappedMipmappedArray(array: result CUmipmappedArray, resource: val CUgraphicsResource) => external::graphics::mapped_mipmapped;
    Usual cuGraphicsResourceGetMappedEglFrame(frame: result CUeglFrame, resource: val CUgraphicsResource, index: val c_uint, level: val c_uint) => external::graphics::mapped_egl;
    Usual cuGLGetDevices_v2(count: must c_uint, devices: val *mut CUdevice, most: val c_uint, list: val CUGLDeviceList) => external::graphics::opengl_devices;
    Usual cuEventCreateFromEGLSync(event: must CUevent, sync: val EGLSyncKHR, flags: val c_uint) => external::graphics::egl_sync;
    Usual cuEGLStreamConsumerConnect(connection: must CUeglStreamConnection, stream: val EGLStreamKHR) => external::graphics::streams::connect_consumer;
    Usual cuEGLStreamConsumerConnectWithFlags(connection: must CUeglStreamConnection, stream: val EGLStreamKHR, flags: val c_uint) => external::graphics::streams::connect_consumer_at;
    Usual cuEGLStreamProducerConnect(connection: must CUeglStreamConnection, stream: val EGLStreamKHR, width: val EGLint, height: val EGLint) => external::graphics::streams::connect_producer;
    Usual cuEGLStreamConsumerDisconnect(connection: val *mut CUeglStreamConnection) => external::graphics::streams::disconnect_consumer;
    Usual cuEGLStreamConsumerAcquireFrame(connection: val *mut CUeglStreamConnection, resource: out CUgraphicsResource, stream: val *mut CUstream, timeout: val c_uint) => external::graphics::streams::acquire;
    Usual cuEGLStreamConsumerReleaseFrame(connection: val *mut CUeglStreamConnection, resource: val CUgraphicsResource, stream: val *mut CUstream) => external::graphics::streams::release;
    Usual cuEGLStreamProducerDisconnect(connection: val *mut CUeglStreamConnection) => external::graphics::streams::disconnect_producer;
    Usual cuEGLStreamProducerPresentFrame(connection: val *mut CUeglStreamConnection, frame: val CUeglFrame, stream: val *mut CUstream) => external::graphics::streams::present;
    Usual cuEGLStreamProducerReturnFrame(connection: val *mut CUeglStreamConnection, frame: out CUeglFrame, stream: val *mut CUstream) => external::graphics::streams::returned;
    Usual cuVDPAUGetDevice(device: must CUdevice, vdpau: val VdpDevice, get_proc_address: val VdpGetProcAddress) => external::graphics::vdpau::device;
    Usual cuVDPAUCtxCreate_v2(context: must CUcontext, flags: val c_uint, device: val CUdevice, vdpau: val VdpDevice, get_proc_address: val VdpGetProcAddress) => external::graphics::vdpau::create;
    Usual cuGraphicsVDPAURegisterVideoSurface(resource: must CUgraphicsResource, surface: val VdpVideoSurface, flags: val c_uint) => external::graphics::vdpau::register;
    Usual cuGraphicsVDPAURegisterOutputSurface(resource: must CUgraphicsResource, surface: val VdpOutputSurface, flags: val c_uint) => external::graphics::vdpau::register;
    Usual cuTexObjectCreate(object: result CUtexObject, resource: val *const CUDA_RESOURCE_DESC [1], texture: val *const CUDA_TEXTURE_DESC [1], view: val *const CUDA_RESOURCE_VIEW_DESC [1]) => array::texture::create;
    Usual cuTexObjectDestroy(object: val CUtexObject) => array::texture::destroy;
    Usual cuTexObjectGetResourceDesc(resource: result CUDA_RESOURCE_DESC, object: val CUtexObject) => array::texture::resource;
    Usual cuTexObjectGetTextureDesc(texture: result CUDA_TEXTURE_DESC, object: val CUtexObject) => array::texture::texture;
    Usual cuTexObjectGetResourceViewDesc(view: result CUDA_RESOURCE_VIEW_DESC, object: val CUtexObject) => array::texture::view;
    Usual cuSurfObjectCreate(object: result CUsurfObject, resource: val *const CUDA_RESOURCE_DESC [1]) => array::texture::create_surface;
    Usual cuSurfObjectDestroy(object: val CUsurfObject) => array::texture::destroy_surface;
    Usual cuSurfObjectGetResourceDesc(resource: result CUDA_RESOURCE_DESC, object: val CUsurfObject) => array::texture::surface_resource;

    Usual cuTensorMapEncodeTiled(place: val *mut CUtensorMap, kind: val CUtensorMapDataType, rank: val u32, address: val *mut c_void, dimensions: val *const u64 [rank.min(5)], strides: val *const u64 [rank.clamp(1, 6) - 1], extents: val *const u32 [rank.min(5)], element_strides: val *const u32 [rank.min(5)], interleave: val CUtensorMapInterleave, swizzle: val CUtensorMapSwizzle, promotion: val CUtensorMapL2promotion, fill: val CUtensorMapFloatOOBfill) => array::tensor_map::tiled;
    Usual cuTensorMapEncodeIm2col(place: val *mut CUtensorMap, kind: val CUtensorMapDataType, rank: val u32, address: val *mut c_void, dimensions: val *const u64 [rank.min(5)], strides: val *const u64 [rank.clamp(1, 6) - 1], lower: val *const c_int [rank.clamp(2, 5) - 2], upper: val *const c_int [rank.clamp(2, 5) - 2], channels: val u32, pixels: val u32, element_strides: val *const u32 [rank.min(5)], interleave: val CUtensorMapInterleave, swizzle: val CUtensorMapSwizzle, promotion: val CUtensorMapL2promotion, fill: val CUtensorMapFloatOOBfill) => array::tensor_map::im2col;
    Usual cuTensorMapEncodeIm2colWide(place: val *mut CUtensorMap, kind: val CUtensorMapDataType, rank: val u32, address: val *mut c_void, dimensions: val *const u64 [rank.min(5)], strides: val *const u64 [rank.clamp(1, 6) - 1], lower: val c_int, upper: val c_int, channels: val u32, pixels: val u32, element_strides: val *const u32 [rank.min(5)], interleave: val CUtensorMapInterleave, mode: val CUtensorMapIm2ColWideMode, swizzle: val CUtensorMapSwizzle, promotion: val CUtensorMapL2promotion, fill: val CUtensorMapFloatOOBfill) => array::tensor_map::im2col_wide;
    Usual cuTensorMapReplaceAddress(place: val *mut CUtensorMap, address: val *mut c_void) => array::tensor_map::replace_address;

    Usual cuModuleLoadData(module: result CUmodule, image: val *const c_void) => module::load;
    Usual cuModuleLoadDataEx(module: out CUmodule, image: val *const c_void, count: val c_uint, keys: val *mut CUjit_option [count], values: val *mut *mut c_void [count]) => module::load_ex;
    Usual cuModuleLoadFatBinary(module: result CUmodule, image: val *const c_void) => module::load;
    Usual cuModuleLoad(module: result CUmodule, path: val *const c_char) => module::load_file;
    Usual cuModuleUnload(module: val CUmodule) => module::unload;
    Usual cuModuleGetFunction(function: result CUfunction, module: val CUmodule, name: val *const c_char) => module::function;
    Usual cuModuleGetFunctionCount(count: out c_uint, module: val CUmodule) => module::count;
    Usual cuModuleEnumerateFunctions(functions: val *mut CUfunction, count: val c_uint, module: val CUmodule) => module::enumerate;
    Usual cuFuncGetName(name: out *const c_char, function: val CUfunction) => module::function_name;
    Usual cuFuncGetModule(module: result CUmodule, function: val CUfunction) => module::of_function;
    Usual cuFuncGetParamInfo(function: val CUfunction, index: val usize, offset: out usize, size: out usize) => module::param;
    Usual cuFuncGetParamCount(function: val CUfunction, count: out usize) => module::param_count;
    Usual cuLibraryLoadData(library: result CUlibrary, image: val *const c_void, keys: val *mut CUjit_option [count], values: val *mut *mut c_void [count], count: val c_uint, options: val *mut CUlibraryOption [options_count], option_values: val *mut *mut c_void [options_count], options_count: val c_uint) => module::load_library;
    Usual cuLibraryLoadFromFile(library: result CUlibrary, path: val *const c_char, keys: val *mut CUjit_option [count], values: val *mut *mut c_void [count], count: val c_uint, options: val *mut CUlibraryOption [options_count], option_values: val *mut *mut c_void [options_count], options_count: val c_uint) => module::load_library_file;
    Usual cuLibraryUnload(library: val CUlibrary) => module::unload_library;
    Usual cuLibraryGetKernel(kernel: result CUkernel, library: val CUlibrary, name: val *const c_char) => module::kernel;
    Usual cuLibraryGetKernelCount(count: out c_uint, library: val CUlibrary) => module::kernel_count;
    Usual cuLibraryEnumerateKernels(kernels: val *mut CUkernel, count: val c_uint, library: val CUlibrary) => module::enumerate_kernels;
    Usual cuKernelGetName(name: out *const c_char, kernel: val CUkernel) => module::kernel_name;
    Usual cuKernelGetFunction(function: result CUfunction, kernel: val CUkernel) => module::kernel_function;
    Usual cuKernelGetLibrary(library: result CUlibrary, kernel: val CUkernel) => module::library_of_kernel;
    Usual cuKernelGetAttribute(value: out c_int, attribute: val CUfunction_attribute, kernel: val CUkernel, device: val CUdevice) => module::function::kernel_attribute;
    Usual cuKernelSetAttribute(attribute: val CUfunction_attribute, value: val c_int, kernel: val CUkernel, device: val CUdevice) => module::function::set_kernel_attribute;
    Usual cuKernelSetCacheConfig(kernel: val CUkernel, preference: val CUfunc_cache, device: val CUdevice) => module::function::set_kernel_cache;
    Usual cuKernelGetParamInfo(kernel: val CUkernel, index: val usize, offset: out usize, size: out usize) => module::kernel_param;
    Usual cuKernelGetParamCount(kernel: val CUkernel, count: out usize) => module::kernel_param_count;
    Usual cuModuleGetGlobal_v2(address: out CUdeviceptr, bytes: out usize, module: val CUmodule, name: val *const c_char) => module::variable::of_module;
    Usual cuLibraryGetGlobal(address: out CUdeviceptr, bytes: out usize, library: val CUlibrary, name: val *const c_char) => module::variable::of_library;
    Usual cuLibraryGetManaged(address: out CUdeviceptr, bytes: out usize, library: val CUlibrary, name: val *const c_char) => module::variable::managed;
    Usual cuModuleGetLoadingMode(mode: result CUmoduleLoadingMode) => module::function::loading_mode;
    Usual cuFuncLoad(function: val CUfunction) => module::function::load;
    Usual cuFuncIsLoaded(state: result CUfunctionLoadingState, function: val CUfunction) => module::function::is_loaded;
    Usual cuFuncGetAttribute(value: result c_int, attribute: val CUfunction_attribute, function: val CUfunction) => module::function::attribute;
    Usual cuFuncSetAttribute(function: val CUfunction, attribute: val CUfunction_attribute, value: val c_int) => module::function::set_attribute;
    Usual cuFuncSetCacheConfig(function: val CUfunction, preference: val CUfunc_cache) => module::function::set_cache;
    Usual cuFuncSetSharedMemConfig(function: val CUfunction, config: val CUsharedconfig) => module::function::set_bank_size;
    Usual cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks: out c_int, function: val CUfunction, threads: val c_int, shared: val usize, flags: val c_uint) => launch::occupancy::active_blocks;
    Usual cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks: out c_int, function: val CUfunction, threads: val c_int, shared: val usize) => launch::occupancy::active_blocks_simply;
    Usual cuOccupancyMaxPotentialBlockSize(grid: out c_int, block: out c_int, function: val CUfunction, shared_of: val CUoccupancyB2DSize, shared: val usize, limit: val c_int) => launch::occupancy::potential_block_simply;
    Usual cuOccupancyMaxPotentialBlockSizeWithFlags(grid: out c_int, block: out c_int, function: val CUfunction, shared_of: val CUoccupancyB2DSize, shared: val usize, limit: val c_int, flags: val c_uint) => launch::occupancy::potential_block;
    Usual cuOccupancyAvailableDynamicSMemPerBlock(bytes: result usize, function: val CUfunction, blocks: val c_int, threads: val c_int) => launch::occupancy::available_shared;
    Usual cuOccupancyMaxPotentialClusterSize(size: result c_int, function: val CUfunction, config: val *const CUlaunchConfig [1]) => launch::occupancy::potential_cluster;
    Usual cuOccupancyMaxActiveClusters(clusters: result c_int, function: val CUfunction, config: val *const CUlaunchConfig [1]) => launch::occupancy::active_clusters;
    Usual cuLinkCreate_v2(count: val c_uint, keys: val *mut CUjit_option [count], values: val *mut *mut c_void [count], state: result CUlinkState) => module::linker::create;
    Usual cuLinkAddData_v2(state: val CUlinkState, kind: val CUjitInputType, data: val *mut c_void, size: val usize, name: val *const c_char, count: val c_uint, keys: val *mut CUjit_option [count], values: val *mut *mut c_void [count]) => module::linker::add_data;
    Usual cuLinkAddFile_v2(state: val CUlinkState, kind: val CUjitInputType, path: val *const c_char, count: val c_uint, keys: val *mut CUjit_option [count], values: val *mut *mut c_void [count]) => module::linker::add_file;
    Usual cuLinkComplete(state: val CUlinkState, image: must *mut c_void, size: out usize) => module::linker::complete;
    Usual cuLinkDestroy(state: val CUlinkState) => module::linker::destroy;
    Usual cuLaunchCooperativeKernel | cuLaunchCooperativeKernel_ptsz(function: val CUfunction, gx: val c_uint, gy: val c_uint, gz: val c_uint, bx: val c_uint, by: val c_uint, bz: val c_uint, shared: val c_uint, stream: val CUstream, params: val *mut *mut c_void) => launch::cooperative;
    Usual cuLaunchKernelEx | cuLaunchKernelEx_ptsz(config: val *const CUlaunchConfig [1], function: val CUfunction, params: val *mut *mut c_void, extra: val *mut *mut c_void) => launch::kernel_ex;
    Usual cuLaunchKernel | cuLaunchKernel_ptsz(function: val CUfunction, gx: val c_uint, gy: val c_uint, gz: val c_uint, bx: val c_uint, by: val c_uint, bz: val c_uint, shared: val c_uint, stream: val CUstream, params: val *mut *mut c_void, extra: val *mut *mut c_void) => launch::kernel;

    Usual cuDeviceGetDevResource(device: val CUdevice, resource: out CUdevResource, kind: val CUdevResourceType) => green::device_resource;
    Usual cuGreenCtxGetDevResource(green: val CUgreenCtx, resource: out CUdevResource, kind: val CUdevResourceType) => green::resource;
    Usual cuCtxGetDevResource(context: val CUcontext, resource: out CUdevResource, kind: val CUdevResourceType) => green::context_resource;
    Usual cuStreamGetDevResource | cuStreamGetDevResource_ptsz(stream: val CUstream, resource: out CUdevResource, kind: val CUdevResourceType) => green::stream_resource;
    Usual cuDevSmResourceSplit(groups: val *mut CUdevResource, count: val c_uint, input: in CUdevResource, remainder: out CUdevResource, flags: val c_uint, requests: val *mut CU_DEV_SM_RESOURCE_GROUP_PARAMS [count]) => green::split::exact;
    Usual cuDevSmResourceSplitByCount(groups: val *mut CUdevResource, count: inout c_uint, input: val *const CUdevResource [1], remainder: out CUdevResource, flags: val c_uint, min: val c_uint) => green::split_by_count;
    Usual cuDevResourceGenerateDesc(descriptor: result CUdevResourceDesc, resources: val *mut CUdevResource [count], count: val c_uint) => green::descriptor;
    Usual cuGreenCtxCreate(green: out CUgreenCtx, descriptor: val CUdevResourceDesc, device: val CUdevice, flags: val c_uint) => green::create;
    Usual cuGreenCtxDestroy(green: val CUgreenCtx) => green::destroy;
    Usual cuGreenCtxStreamCreate(stream: result CUstream, green: val CUgreenCtx, flags: val c_uint, priority: val c_int) => green::stream;
    Usual cuGreenCtxGetId(green: val CUgreenCtx, id: result c_ulonglong) => green::id;
    Usual cuGreenCtxRecordEvent(green: val CUgreenCtx, event: val CUevent) => green::record;
    Usual cuGreenCtxWaitEvent(green: val CUgreenCtx, event: val CUevent) => green::wait;
    Usual cuCtxFromGreenCtx(context: result CUcontext, green: val CUgreenCtx) => green::view;
}

functions! { find_older older
    Surviving cuDeviceGetUuid(uuid: out CUuuid, device: val CUdevice) => device::uuid;
    Usual cuCtxCreate_v3(context: out CUcontext, params: val *mut CUexecAffinityParam [count.max(0)], count: val c_int, flags: val c_uint, device: val CUdevice) => context::create_v3;
    Usual cuCtxCreate_v2(context: out CUcontext, flags: val c_uint, device: val CUdevice) => context::create;
    Usual cuMemcpyBatchAsync | cuMemcpyBatchAsync_ptsz(to: val *mut CUdeviceptr, from: val *mut CUdeviceptr, sizes: val *mut usize, count: val usize, attributes: val *mut CUmemcpyAttributes [sets], firsts: val *mut usize, sets: val usize, failed: out usize, stream: val CUstream) => memory::batch::copy_batch_telling;
    Usual cuMemcpy3DBatchAsync | cuMemcpy3DBatchAsync_ptsz(count: val usize, copies: val *mut CUDA_MEMCPY3D_BATCH_OP [count], failed: out usize, flags: val c_ulonglong, stream: val CUstream) => memory::batch::copy_volume_batch_telling;
    Usual cuStreamBeginCapture | cuStreamBeginCapture_ptsz(stream: val CUstream) => capture::begin_global;
    Usual cuStreamGetCaptureInfo | cuStreamGetCaptureInfo_ptsz(stream: val CUstream, status: out CUstreamCaptureStatus, id: out c_ulonglong) => capture::info_short;
    Usual cuStreamGetCaptureInfo_v2 | cuStreamGetCaptureInfo_v2_ptsz(stream: val CUstream, status: out CUstreamCaptureStatus, id: out c_ulonglong, graph: out CUgraph, nodes: out *const CUgraphNode, count: out usize) => capture::info;
    Usual cuStreamUpdateCaptureDependencies | cuStreamUpdateCaptureDependencies_ptsz(stream: val CUstream, nodes: val *mut CUgraphNode [count], count: val usize, flags: val c_uint) => capture::update_plain;
    Usual cuGraphAddNode(node: out CUgraphNode, graph: val CUgraph, nodes: val *const CUgraphNode [count], count: val usize, params: inout CUgraphNodeParams) => graph::params::add_plain;
    Usual cuGraphAddKernelNode(node: out CUgraphNode, graph: val CUgraph, nodes: val *const CUgraphNode [count], count: val usize, params: val *const CUDA_KERNEL_NODE_PARAMS_v1 [1]) => graph::kernel::add_v1;
    Usual cuGraphKernelNodeGetParams(node: val CUgraphNode, params: result CUDA_KERNEL_NODE_PARAMS_v1) => graph::kernel::params_v1;
    Usual cuGraphKernelNodeSetParams(node: val CUgraphNode, params: val *const CUDA_KERNEL_NODE_PARAMS_v1 [1]) => graph::kernel::set_params_v1;
    Usual cuGraphExecKernelNodeSetParams(executable: val CUgraphExec, node: val CUgraphNode, params: val *const CUDA_KERNEL_NODE_PARAMS_v1 [1]) => graph::update::set_kernel_v1;
    Usual cuGraphExecUpdate(executable: val CUgraphExec, graph: val CUgraph, node: out CUgraphNode, outcome: out CUgraphExecUpdateResult) => graph::update::update_telling;
    Usual cuGraphInstantiate(executable: must CUgraphExec, graph: val CUgraph, node: out CUgraphNode, text: val *mut c_char, size: val usize) => graph::executable::instantiate_telling;
    Usual cuGraphInstantiate_v2(executable: must CUgraphExec, graph: val CUgraph, node: out CUgraphNode, text: val *mut c_char, size: val usize) => graph::executable::instantiate_telling;
    Usual cuGraphAddDependencies(graph: val CUgraph, from: val *const CUgraphNode [count], to: val *const CUgraphNode [count], count: val usize) => graph::edge::add_plain;
    Usual cuGraphRemoveDependencies(graph: val CUgraph, from: val *const CUgraphNode [count], to: val *const CUgraphNode [count], count: val usize) => graph::edge::remove_plain;
    Usual cuGraphGetEdges(graph: val CUgraph, from: val *mut CUgraphNode, to: val *mut CUgraphNode, count: inout usize) => graph::query::edges_plain;
    Usual cuGraphNodeGetDependencies(node: val CUgraphNode, nodes: val *mut CUgraphNode, count: inout usize) => graph::query::dependencies_plain;
    Usual cuGraphNodeGetDependentNodes(node: val CUgraphNode, nodes: val *mut CUgraphNode, count: inout usize) => graph::query::dependents_plain;
    Usual cuEventElapsedTime(milliseconds: result f32, start: val CUevent, end: val CUevent) => event::elapsed;
    Usual cuMemAdvise(address: val CUdeviceptr, size: val usize, advice: val CUmem_advise, device: val CUdevice) => memory::managed::advise_device;
    Usual cuMemPrefetchAsync | cuMemPrefetchAsync_ptsz(address: val CUdeviceptr, size: val usize, device: val CUdevice, stream: val CUstream) => memory::managed::prefetch_device;
}

/// Returns the function that implements a symbol, with that symbol's type. For other symbols it returns
/// a function that returns `CUDA_ERROR_NOT_SUPPORTED`.
pub(crate) fn find(function: Function) -> *const c_void {
    simulated(function).unwrap_or_else(|| function.not_supported())
}

/// Returns whether this driver implements a function.
pub(crate) fn simulates(function: Function) -> bool {
    simulated(function).is_some()
}

fn simulated(function: Function) -> Option<*const c_void> {
    let found = [find_newest, find_older].into_iter();
    let mut found = found.map(|find| find(function.symbol()));
    found.find(|address| !address.is_null())
}

#[cfg(test)]
mod tests {
    use super::{find_newest, find_older};
    use cuda_sys::Function;

    #[test]
    fn each_simulated_function_has_its_variant_for_the_per_thread_default_stream() {
        let is_simulated =
            |symbol: &str| !find_newest(symbol).is_null() || !find_older(symbol).is_null();
        let mut count = 0;
        for function in Function::all().filter(|its| its.is_per_thread()) {
            let symbol = function.symbol();
            let base = symbol.trim_end_matches("_ptsz").trim_end_matches("_ptds");
            assert_eq!(is_simulated(symbol), is_simulated(base), "{symbol}");
            count += usize::from(is_simulated(symbol));
        }
        assert!(count > 90, "{count} variants");
    }
}
