//! The calls of random programs: one line for each function, with the kinds of its arguments.
//!
//! | word | argument |
//! |---|---|
//! | `>class` | a pointer to the handle of a new object |
//! | `=class`, `=u32`, `=i32`, `=u64`, `=address` | a pointer to a result, which is compared |
//! | `=halves6` | a pointer to a structure, of which the first 6 numbers of 32 bits are compared |
//! | `=_` | a pointer to a result that differs between runs: times, numbers of objects |
//! | `class` | the handle of an object |
//! | `~class` | the handle of an object that the call destroys |
//! | `*class` | a pointer to a structure that an earlier call wrote |
//! | `&class` | an address in memory; `&any` in memory of any kind |
//! | `size` | the number of bytes of new memory |
//! | `bytes`, `bytes/2`, `bytes/4` | the length of the memory at the addresses, in bytes or elements |
//! | `1,2\|3` | a number: 1 or 2; 3 is wrong |
//! | `[chain]` `links` | the last node of the graph that uses memory, if there is one, and the number of nodes |
//! | `[word]` | a structure that `structures.rs` writes |
//! | `host` | a host function that counts its calls |
//!
//! A call with memory has one stream, or none for the legacy default stream. The memory of such a call
//! is used on this stream only, so that the bytes do not depend on the time that work takes.

use cuda_sys::Function;

/// The classes of objects. `device`, `pinned`, `managed`, `pageable` and `range` are memory.
#[rustfmt::skip]
pub(crate) const CLASSES: &[&str] = &[
    "array", "condition", "context", "desc", "device", "event", "exec", "function", "graph", "green",
    "kernel", "library", "managed", "mipmapped", "module", "node", "object", "pageable", "physical",
    "pinned", "pool", "range", "resource", "stream", "surface", "texture",
];

/// Memory that an address can point to.
pub(crate) const MEMORY: &[&str] = &["device", "managed", "pageable", "pinned", "range"];

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    New(&'static str),
    Found(&'static str),
    Result(&'static str),
    Unknown,
    Object(&'static str),
    Destroyed(&'static str),
    Structure(&'static str),
    Address(&'static str),
    Size,
    /// The length of the memory in elements of this size.
    Length(u64),
    Number {
        right: Vec<i64>,
        wrong: Vec<i64>,
    },
    Written(&'static str),
    Host,
    /// The number of nodes in the chain.
    Links,
}

#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) function: Function,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) topic: &'static str,
}

/// Returns the rows of the table.
pub(crate) fn rows() -> Vec<Row> {
    let mut topic = "";
    let mut rows = Vec::new();
    for line in TABLE.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(title) = line.strip_prefix("# ") {
            topic = title;
            continue;
        }
        let mut words = line.split_whitespace();
        let name = words.next().expect("a line that is not empty");
        let function = Function::find(name).unwrap_or_else(|| panic!("{name} is no function"));
        rows.push(Row { function, kinds: words.map(kind).collect(), topic });
    }
    rows
}

fn kind(word: &'static str) -> Kind {
    let (mark, rest) = word.split_at(1);
    match mark {
        ">" => return Kind::New(rest),
        "~" => return Kind::Destroyed(rest),
        "*" => return Kind::Structure(rest),
        "&" => return Kind::Address(rest),
        "[" => return Kind::Written(rest.trim_end_matches(']')),
        "=" => {
            return match rest {
                "_" => Kind::Unknown,
                class if CLASSES.contains(&class) => Kind::Found(class),
                number => Kind::Result(number),
            };
        }
        _ => {}
    }
    match word {
        "size" => Kind::Size,
        "bytes" => Kind::Length(1),
        "bytes/2" => Kind::Length(2),
        "bytes/4" => Kind::Length(4),
        "host" => Kind::Host,
        "links" => Kind::Links,
        class if CLASSES.contains(&class) => Kind::Object(class),
        numbers => {
            let (right, wrong) = numbers.split_once('|').unwrap_or((numbers, ""));
            let list = |text: &str| {
                let numbers = text.split(',').filter(|number| !number.is_empty());
                numbers.map(|number| number.parse().expect("a number")).collect()
            };
            Kind::Number { right: list(right), wrong: list(wrong) }
        }
    }
}

const TABLE: &str = "
# device
cuDeviceGet =u32 0|1,-1
cuDeviceGetCount =i32
cuDriverGetVersion =i32
cuDeviceGetAttribute =i32 1,10,16,41,75,83,95,115|0,1000 0|1,-1
cuDeviceGetDefaultMemPool =pool 0|1
cuDeviceGetMemPool =pool 0|1
cuDeviceSetMemPool 0 pool
cuDeviceCanAccessPeer =i32 0|1 0|1
cuDeviceGetP2PAttribute =i32 1,2,3|0,9 0|1 0
cuDevicePrimaryCtxGetState 0|1 =u32 =i32
cuDeviceGetExecAffinitySupport =i32 0|7 0|1
cuFlushGPUDirectRDMAWrites 0|3 100,200|1

# context
cuCtxGetCurrent =context
cuCtxPushCurrent_v2 context
cuCtxPushCurrent_v2 context
cuCtxPopCurrent_v2 =context
cuCtxSetCurrent context
cuCtxGetDevice =u32
cuCtxGetDevice_v2 =u32 context
cuCtxGetFlags =u32
cuCtxGetApiVersion context =u32
cuCtxGetStreamPriorityRange =i32 =i32
cuCtxGetLimit =_ 0,1,2,3,4,5,6|99
cuCtxSetLimit 1,2|99 1048576,8388608
cuCtxGetCacheConfig =u32
cuCtxSetCacheConfig 0,1,2,3|9
cuCtxGetSharedMemConfig =u32
cuCtxSetSharedMemConfig 0,1,2|7
cuCtxGetId context =_
cuCtxSynchronize
cuCtxSynchronize_v2 context
cuCtxEnablePeerAccess context 0|1
cuCtxDisablePeerAccess context
cuCtxResetPersistingL2Cache
cuCtxRecordEvent context event
cuCtxWaitEvent context event

# stream
cuStreamCreate >stream 0,1|2,16
cuStreamCreateWithPriority >stream 0,1|2 0,-1,-5,3
cuStreamDestroy_v2 ~stream
cuStreamSynchronize stream
cuStreamQuery stream
cuStreamGetFlags stream =u32
cuStreamGetPriority stream =i32
cuStreamGetDevice stream =u32
cuStreamGetCtx stream =context
cuStreamGetCtx_v2 stream =context =green
cuStreamGetId stream =_
cuStreamGetAttribute stream 1,3,8|0,2,99 =halves2
cuStreamIsCapturing stream =u32
cuStreamCopyAttributes stream stream
cuStreamWaitEvent stream event 0,1|2
cuLaunchHostFunc stream host 0
cuThreadExchangeStreamCaptureMode [mode]

# event
cuEventCreate >event 0,1,2,3|4,8,16
cuEventDestroy_v2 ~event
cuEventRecord event stream
cuEventRecordWithFlags event stream 0,1|2
cuEventQuery event
cuEventSynchronize event
cuEventElapsedTime_v2 =_ event event
cuStreamWaitEvent stream event 0,1|2

# memory
cuMemAlloc_v2 >device size
cuMemFree_v2 ~device
cuMemAllocHost_v2 >pinned size
cuMemHostAlloc >pinned size 0,1,2,3,4|8,16
cuMemFreeHost ~pinned
cuMemAllocManaged >managed size 1,2|0,4,8
cuMemFree_v2 ~managed
cuMemHostGetDevicePointer_v2 =address &pinned 0|1
cuMemHostGetFlags =u32 &pinned
cuMemGetAddressRange_v2 =address =u64 &device
cuMemGetInfo_v2 =_ =_
cuMemsetD8_v2 &device 0,90,255 bytes
cuMemsetD16_v2 &device 23130 bytes/2
cuMemsetD32_v2 &device 305419896 bytes/4
cuMemsetD8Async &device 17,34 bytes stream
cuMemsetD16Async &device 8755 bytes/2 stream
cuMemsetD32Async &device 286397204 bytes/4 stream
cuMemsetD2D8_v2 &device 64,128|1 7 0,16|129 2,4
cuMemsetD2D32Async &device 64,128|3 77 0,4,16 2,4 stream
cuMemcpyHtoD_v2 &device &pinned bytes
cuMemcpyHtoD_v2 &device &pageable bytes
cuMemcpyDtoH_v2 &pinned &device bytes
cuMemcpyDtoH_v2 &pageable &device bytes
cuMemcpyDtoD_v2 &device &device bytes
cuMemcpy &any &any bytes
cuMemcpyHtoDAsync_v2 &device &pinned bytes stream
cuMemcpyDtoHAsync_v2 &pinned &device bytes stream
cuMemcpyDtoDAsync_v2 &device &device bytes stream
cuMemcpyAsync &any &any bytes stream
cuMemcpyPeer &device context &device context bytes
cuMemcpyPeerAsync &device context &device context bytes stream
cuMemcpy2D_v2 [copy2d]
cuMemcpy2DUnaligned_v2 [copy2d]
cuMemcpy2DAsync_v2 [copy2d] stream
cuMemcpy3D_v2 [copy3d]
cuMemcpy3DAsync_v2 [copy3d] stream
cuStreamWriteValue32_v2 stream &device 1234,5678 0,1|2
cuStreamWriteValue64_v2 stream &device 123456789 0|2
cuStreamBatchMemOp_v2 stream 2 [memops] 0|1

# array
cuArrayCreate_v2 >array [array]
cuArrayCreate_v2 >array [array]
cuArray3DCreate_v2 >array [array3d]
cuArrayDestroy ~array
cuArrayGetDescriptor_v2 =halves6 array
cuArray3DGetDescriptor_v2 =halves9 array
cuArrayGetPlane =_ array 0|1
cuArrayGetMemoryRequirements =halves4 array 0|1
cuArrayGetSparseProperties =_ array
cuMemcpyHtoA_v2 array 0,0,0,16|4096 &pinned bytes
cuMemcpyAtoH_v2 &pinned array 0,0,0,16|4096 bytes
cuMemcpyDtoA_v2 array 0,0,0,16|4096 &device bytes
cuMemcpyAtoD_v2 &device array 0,0,0,16|4096 bytes
cuMemcpyHtoAAsync_v2 array 0,0,0,16|4096 &pinned bytes 0
cuMemcpyAtoHAsync_v2 &pinned array 0,0,0,16|4096 bytes 0
cuMemcpy2D_v2 [arrays2d]
cuMemcpy2DUnaligned_v2 [arrays2d]
cuMemcpy2DAsync_v2 [arrays2d] 0
cuMemcpy3D_v2 [arrays3d]
cuMemcpy3D_v2 [arrays3d]
cuMemcpy3DAsync_v2 [arrays3d] 0
cuMipmappedArrayCreate >mipmapped [array3d] 1,2,3|0,20
cuMipmappedArrayDestroy ~mipmapped
cuMipmappedArrayGetLevel >array mipmapped 0,1|30
cuTexObjectCreate >texture [view] [sampling] 0
cuTexObjectDestroy ~texture
cuTexObjectGetTextureDesc =halves26 texture
cuTexObjectGetResourceDesc =_ texture
cuSurfObjectCreate >surface [view]
cuSurfObjectDestroy ~surface

# pointer
cuPointerGetAttribute =context 1 &any
cuPointerGetAttribute =u32 2 &any
cuPointerGetAttribute =address 3 &any
cuPointerGetAttribute =address 4 &any
cuPointerGetAttribute =u32 6 &any
cuPointerGetAttribute =_ 7 &any
cuPointerGetAttribute =u32 8 &any
cuPointerGetAttribute =i32 9 &any
cuPointerGetAttribute =u32 10 &any
cuPointerGetAttribute =address 11 &any
cuPointerGetAttribute =u64 12 &any
cuPointerGetAttribute =u32 13 &any
cuPointerGetAttribute =u64 14 &any
cuPointerGetAttribute =u32 16 &any
cuPointerGetAttribute =pool 17 &any
cuPointerGetAttribute =u32 0,99 &any
cuPointerSetAttribute [flag] 6|1,2,99 &any
cuMemAdvise_v2 &managed bytes 1,2,3,4|0,9 [place]
cuMemPrefetchAsync_v2 &managed bytes [place] 0|1 stream
cuMemRangeGetAttribute =i32 4 1 &managed bytes
cuMemRangeGetAttribute =i32 4 2,4|9 &managed bytes
cuStreamAttachMemAsync stream &managed 0 1,2,4|3

# pool
cuMemPoolCreate >pool [pool]
cuMemPoolDestroy ~pool
cuMemPoolSetAttribute pool 1,2,3|4,99 [flag]
cuMemPoolGetAttribute pool 1,2,3|99 =u32
cuMemPoolGetAttribute pool 4 =u64
cuMemPoolGetAttribute pool 5,6,7,8 =_
cuMemPoolTrimTo pool 0,65536
cuMemPoolSetAccess pool [access] 1|0
cuMemPoolGetAccess =u32 pool [location]
cuMemAllocAsync >device size stream
cuMemAllocAsync >device size stream
cuMemAllocFromPoolAsync >device size pool stream
cuMemFreeAsync ~device stream

# virtual
cuMemGetAllocationGranularity =u64 [physical] 0,1|2
cuMemCreate >physical 2097152,2097152,2097152,4194304|0,4096 [physical] 0|1
cuMemRelease ~physical
cuMemAddressReserve >range 2097152,2097152,2097152,4194304|0,4096 0,2097152|3 0 0|1
cuMemAddressFree ~range 2097152|4096
cuMemMap range 2097152|4096 0|2097152 physical 0|1
cuMemMap range 2097152 0 physical 0
cuMemSetAccess range 2097152|4096 [access] 1|0
cuMemSetAccess range 2097152 [access] 1
cuMemUnmap range 2097152|4096
cuMemGetAccess =u64 [location] range
cuMemRetainAllocationHandle =physical range
cuMemGetAddressRange_v2 =address =u64 range
cuMemsetD8_v2 &range 5 0,64,4096

# module
cuModuleLoadData >module [image]
cuModuleUnload ~module
cuModuleGetFunction >function module [name]
cuModuleGetFunction >function module [name]
cuModuleGetFunctionCount =u32 module
cuModuleGetGlobal_v2 =_ =u64 module [global]
cuModuleGetLoadingMode =u32
cuFuncGetAttribute =_ 0,1,2,3,4,8,9|16,99 function
cuFuncGetAttribute =i32 0,1,3,8 function
cuFuncSetAttribute function 8,9|0,1,99 0,1024,49152|-5
cuFuncSetCacheConfig function 0,1,2,3|9
cuFuncGetModule =module function
cuFuncGetParamInfo function 0,1,3|4,9 =u64 =u64
cuFuncIsLoaded =u32 function
cuFuncLoad function
cuLaunchKernel function 1,2|0 1 1 1,32,64|0,2000 1 1 0,128|300000 stream [arguments] 0
cuLaunchKernel function 1,2 1 1 32,64 1 1 0 stream [arguments] 0
cuLaunchCooperativeKernel function 1,2 1 1 32 1 1 0 stream [arguments]
cuOccupancyMaxActiveBlocksPerMultiprocessor =i32 function 32,256,1024|0,4096 0,1024
cuOccupancyAvailableDynamicSMemPerBlock =u64 function 1,4 32,256
cuLibraryLoadData >library [image] 0 0 0 0 0 0
cuLibraryUnload ~library
cuLibraryGetKernel >kernel library [name]
cuLibraryGetKernelCount =u32 library
cuLibraryGetModule =_ library
cuLibraryGetGlobal =_ =u64 library [global]
cuKernelGetFunction >function kernel
cuKernelGetLibrary =library kernel
cuKernelGetAttribute =i32 0,1,3|99 kernel 0|1
cuKernelGetParamInfo kernel 0,1|9 =u64 =u64

# graph
cuGraphCreate >graph 0|1
cuGraphDestroy ~graph
cuGraphClone >graph graph
cuGraphAddEmptyNode >node graph [nodes] 0
cuGraphAddEmptyNode >node graph [nodes] 1
cuGraphAddMemsetNode >node graph [chain] links [memset] context
cuGraphAddMemcpyNode >node graph [chain] links [copy3d] context
cuGraphAddHostNode >node graph [chain] links [hostnode]
cuGraphAddKernelNode_v2 >node graph [chain] links [kernelnode]
cuGraphAddEventRecordNode >node graph [nodes] 0,1 event
cuGraphAddEventWaitNode >node graph [nodes] 0,1 event
cuGraphAddChildGraphNode >node graph [chain] links graph
cuGraphAddMemAllocNode >node graph [nodes] 0 [allocnode]
cuGraphDestroyNode ~node
cuGraphGetNodes graph 0 =u64
cuGraphGetRootNodes graph 0 =u64
cuGraphGetEdges_v2 graph 0 0 0 =u64
cuGraphNodeGetType node =u32
cuGraphNodeGetDependencies_v2 node 0 0 =u64
cuGraphNodeGetDependentNodes_v2 node 0 0 =u64
cuGraphAddDependencies_v2 graph [nodes] [nodes] 0 1|0
cuGraphRemoveDependencies_v2 graph [nodes] [nodes] 0 1|0
cuGraphEventRecordNodeGetEvent node =event
cuGraphEventWaitNodeGetEvent node =event
cuGraphEventRecordNodeSetEvent node event
cuGraphChildGraphNodeGetGraph node =_
cuGraphMemsetNodeSetParams node [memset]
cuGraphMemcpyNodeSetParams node [copy3d]
cuGraphHostNodeSetParams node [hostnode]
cuGraphKernelNodeSetParams_v2 node [kernelnode]
cuGraphInstantiateWithFlags >exec graph 0,1|16,64
cuGraphInstantiateWithFlags >exec graph 0
cuGraphExecDestroy ~exec
cuGraphExecGetFlags exec =u64
cuGraphUpload exec stream
cuGraphLaunch exec stream
cuGraphLaunch exec stream
cuGraphExecUpdate_v2 exec graph [update]
cuGraphNodeSetEnabled exec node 0,1
cuGraphNodeGetEnabled exec node =u32
cuGraphExecMemsetNodeSetParams exec node [memset] context
cuGraphExecKernelNodeSetParams_v2 exec node [kernelnode]
cuGraphExecMemcpyNodeSetParams exec node [copy3d] context
cuGraphExecHostNodeSetParams exec node [hostnode]
cuGraphExecEventRecordNodeSetEvent exec node event
cuGraphExecChildGraphNodeSetParams exec node graph
cuUserObjectCreate >object 0 host 1,2|0 1|0
cuUserObjectRetain object 1,2|0
cuUserObjectRelease object 1|0
cuGraphRetainUserObject graph object 1|0 0,1|2
cuGraphReleaseUserObject graph object 1|0
cuGraphConditionalHandleCreate =_ graph context 0,1 0,1|2
cuDeviceGraphMemTrim 0|1
cuDeviceGetGraphMemAttribute 0|1 0,1,2,3|9 =_

# conditional
cuGraphConditionalHandleCreate >condition graph context 0,1 1|0,2
cuGraphAddNode_v2 >node graph [chain] 0 links [conditional]
cuGraphAddKernelNode_v2 >node graph [chain] links [kernelnode]
cuGraphAddMemsetNode >node graph [chain] links [memset] context
cuGraphAddHostNode >node graph [chain] links [hostnode]
cuGraphAddChildGraphNode >node graph [chain] links graph
cuGraphNodeGetType node =u32
cuGraphGetNodes graph 0 =u64
cuGraphDestroyNode ~node
cuGraphClone >graph graph
cuGraphInstantiateWithFlags >exec graph 0
cuGraphLaunch exec stream
cuGraphLaunch exec stream
cuGraphExecUpdate_v2 exec graph [update]
cuGraphExecDestroy ~exec
cuGraphDestroy ~graph

# capture
cuStreamBeginCapture_v2 stream 0,1,2|3
cuStreamBeginCapture_v2 stream 2
cuStreamEndCapture stream >graph
cuStreamEndCapture stream >graph
cuStreamGetCaptureInfo_v3 stream =u32 =_ =_ =_ =_ =u64
cuStreamIsCapturing stream =u32
cuEventRecord event stream
cuStreamWaitEvent stream event 0
cuGraphInstantiateWithFlags >exec graph 0
cuGraphLaunch exec stream
cuMemsetD8Async &device 68,69 bytes stream
cuMemcpyDtoDAsync_v2 &device &device bytes stream
cuLaunchKernel function 1,2 1 1 32,64 1 1 0 stream [arguments] 0
cuLaunchHostFunc stream host 0
cuMemAllocAsync >device size stream
cuMemFreeAsync ~device stream
cuThreadExchangeStreamCaptureMode [mode]

# green
cuDeviceGetDevResource 0|1 >resource 1|0,2,1000
cuDeviceGetDevResource 0 >resource 1
cuDevSmResourceSplitByCount >resource [count] *resource >resource 0,1,2|4,8 1,8,16,32|133,200
cuDevSmResourceSplitByCount >resource [count] *resource >resource 0 16
cuDevResourceGenerateDesc >desc *resource 1
cuGreenCtxCreate >green desc 0|1 1|0,2
cuGreenCtxDestroy ~green
cuCtxFromGreenCtx >context green
cuGreenCtxStreamCreate >stream green 1|0,2 0,-1,-5
cuGreenCtxGetDevResource green >resource 1|0,2
cuCtxGetDevResource context >resource 1|0,2
cuStreamGetDevResource stream >resource 1|0
cuGreenCtxRecordEvent green event
cuGreenCtxWaitEvent green event
cuStreamGetGreenCtx stream =green
cuStreamGetCtx_v2 stream =context =green
cuGreenCtxGetId green =_

# creation
cuCtxCreate_v2 >context 0,1,4|64 0|1
cuCtxDestroy_v2 ~context
cuDevicePrimaryCtxSetFlags_v2 0|1 0,1,4|64
";
