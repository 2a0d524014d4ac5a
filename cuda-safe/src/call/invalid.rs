//! Invalid arguments: a table with a row for each variant, grouped by the rooms that return them.
//!
//! A row is the documentation, the name and the fields of a variant, and its text: a format string that names
//! the fields, and parts of it that functions here compute.

use crate::call::region::{Extent, Region};
use crate::call::texts::texts;
use cuda_sys::{CUdeviceptr, CUresult, CudaVersion};
use std::ffi::CString;

texts! {
    /// An argument that this crate rejects, or for which it explains the error of the driver.
    ///
    /// This is the content of [`Error::Invalid`](crate::Error::Invalid). The `Display` text names the
    /// operation, the given value and the valid values.
    #[allow(missing_docs, reason = "the text of each variant shows the fields")]
    pub enum Invalid {
        // any room
        /// The driver is too old for the operation or option `what`.
        NeedsNewerDriver { what: &'static str, since: CudaVersion, driver: CudaVersion } =>
            "{what} needs CUDA {since}; this driver offers {driver}";
        /// A raw handle that is not an object of the kind `what`.
        Handle { what: &'static str, value: usize } => "{value:#x} is not a valid {what}";
        /// The objects of one operation belong to different contexts.
        OtherContext { what: &'static str, its: String, expected: String } =>
            "{what} belongs to {its}, but the operation runs in {expected}";
        /// The buffer is bound to a different stream than that of the operation.
        OtherStream { what: String, its: String, expected: String } =>
            "{what} is bound to stream {its}, but the operation runs on stream {expected}: memory is bound to it with \
             `rebind`, or used on several streams with `share`";
        /// A release that cannot run now and cannot be deferred, because the context or stream of the object is
        /// borrowed.
        BorrowedCannotWait =>
            "the object was dropped during a capture or in a host function, where it cannot be released, and its \
             release cannot be deferred, because its context or stream is only borrowed (use from_foreign, which \
             takes an owner that keeps the handle alive)";
        /// A deferred release that only a thread could make that has ended.
        ThreadHasEnded =>
            "the object was dropped where it cannot be released, and its release was deferred, but the thread has \
             ended that alone can make it: the thread that registers a resource of OpenGL must end its mappings while \
             their streams are not captured, or outlive the captures and call attempt_deferred_releases";
        /// A NUL byte inside a name or PTX text. `position` is its byte offset.
        NulInText { position: usize } => "the text contains a NUL byte at offset {position}";
        /// Text for the driver that is not Unicode.
        NotUnicode => "the text is not Unicode";
        /// A path that is not valid Unicode, on a system whose driver takes paths as text.
        PathEncoding => "the path is not valid Unicode, and the driver takes paths as text on this system";
        /// A path that is too long for the driver. The lengths are in bytes.
        PathLength { length: usize, max: usize } =>
            "the path has {length} bytes, and the driver takes at most {max}";

        // capture_state
        /// An allocation, an operation on host memory or on an external semaphore, or a host function, on a stream that
        /// is captured.
        StreamIsCaptured =>
            "the stream is being captured: a capture cannot contain an allocation, an operation on host memory or \
             on an external semaphore, or a host function, because the graph would run it later, several times or \
             never (a GraphRecorder records copies, host functions and memory that the graph owns; \
             Stream::capture_host_function captures a function that the graph owns)";
        /// An operation that is only possible in a capture that this crate began.
        NotCaptured { what: &'static str } =>
            "{what} is only possible on a stream of a capture that this crate began (Stream::capture)";
        /// A capture cannot begin or be joined while other calls on the stream or event are in progress.
        CallsInProgress { what: &'static str, calls: u32, last: &'static str } =>
            "cannot {what} now: {calls} calls on it are in progress (the last to start was {last}); wait until \
             they return, or try again";
        /// The stream or event belongs to another capture, which has not ended.
        OtherCapture { what: &'static str } => "cannot {what}: it belongs to another capture, which must end first";

        // device
        /// No device has this ordinal.
        DeviceOrdinal { ordinal: u32, count: u32 } =>
            "there is no device {ordinal}: the number of devices is {count}, and ordinals start at 0";
        /// The driver is too old for an attribute of a device, a kernel or a launch.
        UnknownAttribute { attribute: &'static str, since: CudaVersion, driver: CudaVersion } =>
            "the attribute {attribute} needs CUDA {since}; this driver offers {driver}";

        // context
        /// The current context is not the one that the guard made current.
        ContextStack { expected: usize, found: usize } =>
            "the current context of the thread should be {expected:#x}, but is {found:#x}: other code changed the \
             context stack; nothing was popped";
        /// A context is bound to a thread on which guards of current contexts are open.
        OpenGuards { guards: usize } =>
            "a context cannot be bound to a thread on which {guards} guards of current contexts are open or were \
             forgotten, because the end of a guard restores the context before it: bind the context first, or end \
             the guards";
        /// A guard ended while `inner` later guards were still open or had failed to pop their context.
        GuardOrder { inner: usize } =>
            "a guard of the current context ended before {inner} guards that were created after it, or those could \
             not pop their context: nothing was popped";

        // stream, event
        /// An access policy with an invalid hit ratio, or with a persisting miss property.
        AccessWindow { hit_ratio: String, miss: String } =>
            "an access policy with the hit ratio {hit_ratio} and the miss property {miss} is not valid: the ratio \
             must be from 0 to 1, and the miss property cannot be persisting";
        /// Too many memory operations in one batch.
        TooManyOperations { count: usize, max: usize } =>
            "{count} memory operations are too many: a batch takes at most {max}";
        /// A memory operation on a kind of memory that the driver does not support there.
        NoMemoryOperations { memory: &'static str, address: CUdeviceptr } =>
            "a memory operation is not possible at {address:#x}, which is {memory} memory: the driver supports \
             device memory of cuMemAlloc and pinned memory";
        /// The time between events without timing, or without a record.
        NoElapsedTime =>
            "the time between two events needs events of one device that were created with timing \
             (EventOptions::timing) and have been recorded";
        /// An interprocess event with timing.
        InterprocessTiming => "an interprocess event cannot record time: create it without timing";

        // module
        /// An empty module image, or empty PTX text.
        EmptyImage => "the module image is empty";
        /// A module image that is shorter than its header says.
        TruncatedImage { needed: u64, given: u64 } =>
            "the module image is truncated: its header requires {needed} bytes, but the image has {given}";
        /// A module image that is neither a cubin nor a fatbin.
        NotAnImage { starts_with: [u8; 4] } =>
            "the module image is not a cubin or fatbin: it starts with the bytes {starts_with:02x?}";
        /// Text that does not start, after comments, with the PTX directive `.version`.
        NotPtx => "the text is not PTX: PTX starts, after comments, with the directive .version";
        /// CUDA C++ source code where PTX is expected. The driver compiles only PTX.
        CudaSource =>
            "the text is CUDA C++ source code, not PTX: compile it to PTX first, with NVRTC at run time (the crate \
             cuda-nvrtc) or with nvcc -ptx";
        /// The module has no kernel of this name. `available` holds the names of its kernels, if the driver can
        /// list them.
        NoSuchKernel { name: String, available: Option<Vec<String>> } =>
            "there is no kernel \"{name}\"{}", available_kernels(available.as_deref());
        /// The module has no variable of this name.
        NoSuchGlobal { name: String } => "the module has no variable \"{name}\"";
        /// A buffer of a variable, whose size is not a multiple of the element size or whose address is not aligned
        /// for the element type.
        GlobalLayout { name: String, size: usize, address: u64, element: usize, align: usize } =>
            "the variable \"{name}\" ({size} bytes at {address:#x}) is not an array of elements with {element} \
             bytes and an alignment of {align} bytes";
        /// A JIT option with an invalid value.
        JitOption { option: &'static str, given: String, possible: &'static str } =>
            "the JIT option {option} must be {possible}, but is {given}";
        /// The driver is too old for a JIT option.
        JitOptionNeedsNewerDriver { option: &'static str, since: CudaVersion, driver: CudaVersion } =>
            "the JIT option {option} needs CUDA {since}; this driver offers {driver}";

        // launch
        /// The number of arguments differs from the number of parameters of the kernel.
        ArgumentCount { kernel: String, parameters: usize, given: usize } =>
            "kernel \"{kernel}\" takes {parameters} parameters, but {given} arguments were given";
        /// An argument and its parameter have different sizes, in bytes. `index` is zero-based.
        ArgumentSize { kernel: String, index: usize, parameter: usize, given: usize } =>
            "kernel \"{kernel}\": argument {index} (zero-based) has {given} bytes, but the parameter has \
             {parameter}";
        /// A launch attribute with an invalid value.
        LaunchAttribute { attribute: &'static str, given: String, possible: &'static str } =>
            "the launch attribute {attribute} must be {possible}, but is {given}";
        /// A grid or block with a dimension of zero, or a block of 2^32 or more threads.
        LaunchConfig { grid: [u32; 3], block: [u32; 3] } =>
            "cannot launch a grid of {grid:?} with blocks of {block:?}: every dimension must be at least 1, and a \
             block must have fewer than 2^32 threads";

        // manager
        /// Memory of a manager with a stream whose context object has no manager or a different one.
        OtherManager =>
            "the memory belongs to a memory manager, but the stream's context object has no manager or a different \
             one";
        /// An operation that needs a memory manager, in a context without one.
        NoMemoryManager => "the context has no memory manager: set the manager before you create the context";
        /// A memory manager that implements a different version of the interface.
        ManagerVersion { version: u32, expected: u32 } =>
            "the memory manager implements interface version {version}, but this crate requires version {expected}";
        /// An operation that the memory manager does not support.
        ManagerCannot { what: &'static str } => "this memory manager cannot {what}";
        /// An allocation that would exceed the limit of a manager. All values are in bytes.
        MemoryLimit { limit: u64, used: u64, asked: u64 } =>
            "cannot allocate {asked} bytes: the memory manager has a limit of {limit} bytes, and {used} bytes are \
             in use";
        /// An operation of a memory manager that must be ordered on a stream, with an order without one.
        OrderWithoutStream { what: &'static str } =>
            "{what} needs the order of a stream, but `Order::NONE` has none: use `Order::of`";
        /// An export of memory of a kind that other processes cannot open.
        NotShareable { memory: &'static str } =>
            "{memory} memory cannot be exported to other processes: export device memory of cuMemAlloc, or memory \
             of a shareable memory pool";
        /// A handle of shared memory, of a different kind than the function opens.
        IpcKind { its: String, expected: String } =>
            "the handle is for {its}, but this function opens {expected}: a context opens memory of cuMemAlloc, \
             and an imported pool opens memory of that pool";
        /// Shared memory of a different device than that of the context. Both values are UUIDs.
        MemoryOfOtherDevice { its: String, expected: String } =>
            "the shared memory belongs to device {its}, but the context belongs to device {expected}";

        // memory
        /// A size in bytes that exceeds the address space.
        TooLarge { len: usize, size: usize } =>
            "{len} elements of {size} bytes are too large: the size in bytes exceeds the address space";
        /// The source and the target of a copy have different numbers of elements.
        Lengths { source: usize, target: usize } =>
            "cannot copy {source} elements to {target} elements: the lengths must be equal";
        /// A range that is out of bounds for `len` elements.
        Range { start: usize, end: usize, len: usize } =>
            "the range {start}..{end} is out of bounds for {len} elements";
        /// Chunks of zero elements.
        EmptyChunks => "chunks must have at least one element";
        /// Ranges of different pinned buffers, which cannot be joined.
        SeveralBuffers => "cannot join ranges of different pinned buffers";
        /// Some ranges of a pinned buffer, which cannot be joined without the others.
        MissingRanges { given: usize, existing: usize } => "{}", missing_ranges(*given, *existing);
        /// Device memory whose size is not a multiple of the size of the elements that it was cast to, or whose
        /// address is not aligned for them. All sizes are in bytes.
        Cast { address: CUdeviceptr, size: usize, element: usize, align: usize } =>
            "cannot cast {size} bytes at {address:#x} to elements with {element} bytes and an alignment of {align} \
             bytes";
        /// A 2-D or 3-D region that is out of bounds for `len` elements, or whose rows or slices overlap.
        Region { region: Region, extent: Extent, len: usize } =>
            "a region of {} x {} x {} elements at offset {} with a pitch of {} elements and {} rows per slice is \
             out of bounds for {len} elements, or its rows or slices overlap",
            extent.width, extent.height, extent.depth, region.offset, region.pitch, region.rows;
        /// Pitched memory with an element size, in bytes, that the driver does not support; or a pitch, in bytes,
        /// that is not a multiple of the element size or is shorter than a row.
        PitchSize { size: usize, pitch: Option<usize> } => "{}", wrong_pitch(*size, *pitch);
        /// A fill pattern with a size, in bytes, that the driver does not support.
        FillSize { size: usize } =>
            "cannot fill memory with a pattern of {size} bytes: the driver supports 1, 2 and 4 bytes";
        /// Foreign-owned memory that is shared or bound to another stream. Its owner relies on the stream that it
        /// was given.
        ForeignMemory =>
            "the memory is foreign-owned, and its owner relies on the stream that the memory is bound to: it \
             cannot be shared or bound to another stream";
        /// Unregistration of pinned memory that the driver allocated and that belongs to no vector.
        NotRegistered =>
            "the pinned memory was allocated by the driver and not registered: there is no vector to return";
        /// The device does not share memory pools as file descriptors. `supported` is the mask of the handle types
        /// that it supports.
        PoolHandles { supported: u32 } =>
            "memory pools are shared as POSIX file descriptors, which this device does not support; it supports {}",
            handle_types(*supported);
        /// A buffer that was not allocated from the memory pool.
        NotOfPool => "the buffer was not allocated from this memory pool";
        /// The device of the stream has no read and write access to the memory pool.
        NoAccessToPool { pool: String, device: u32 } =>
            "device {device} has no read and write access to the memory pool of {pool}: call \
             MemoryPool::grant_access";
        /// An export as a DMA-BUF of memory that does not consist of whole pages of the host, or that is of a kind
        /// that the driver does not export.
        DmaBuf { address: CUdeviceptr, bytes: usize } =>
            "{bytes} bytes at {address:#x} cannot be exported as a DMA-BUF: pass whole pages of the host, of a \
             synchronous allocation (DeviceBuffer::zeroed_sync) or of virtual memory";
        /// A query of the locations of managed memory, in parts that do not fit the range. All values are in bytes.
        Residency { part: usize, sample: usize, bytes: usize } =>
            "a query in parts of {part} bytes with a sample in every {sample} bytes, of a range of {bytes} bytes: \
             parts have from 1 byte to the whole range, and samples at most a part";

        // green
        /// The minimum group size of a split exceeds the number of SMs.
        SplitAboveResource { min: u32, sm_count: u32 } =>
            "cannot split {sm_count} SMs into groups of at least {min} SMs";
        /// A split into zero groups, or a green context without a group.
        NoGroups => "no groups of SMs: a split, a partition request and a green context need at least one group";
        /// Split flags that exclude each other, or that are not defined.
        SplitFlags { flags: u32 } =>
            "split flags {flags:#x} are not valid: set either 1 (ignore co-scheduling) or 2 (maximum potential \
             cluster size), or neither";
        /// SMs of the device are in use under another split.
        SplitInUse { device: i32, holder: String } =>
            "the SMs of device {device} are already partitioned{}: another split would assign the same SMs again \
             (Overlap::Allow permits this)", by(holder);
        /// A group of an exact split that breaks a rule for groups. `index` is zero-based.
        GroupRequest { index: usize, sm_count: u32, coscheduled: u32, rule: &'static str } =>
            "group {index} (zero-based) with {sm_count} SMs{}: {rule}", in_sets(*coscheduled);
        /// Group flags that this crate does not know. `index` is zero-based.
        GroupFlags { index: usize, flags: u32 } =>
            "the flags {flags:#x} of group {index} (zero-based) are not valid: the known flags are 1 (backfill), 2 \
             (locality domain) and 4 (supplemental SMs of other locality domains)";
        /// A requested partition size of 0 SMs, 0 percent or the weight 0. `index` is zero-based.
        ZeroPartitionSize { index: usize } =>
            "the requested size of partition {index} (zero-based) is 0: request at least 1 SM, 1 percent or the \
             weight 1";
        /// More than one partition has the size "the rest".
        SeveralRests => "only one partition can have the size \"the rest\"";
        /// The SMs cannot be split into partitions of these sizes. `None` is "the rest". `single` is the version of
        /// the driver if that driver does not support several groups in one partition.
        NoSuchPartitions { sizes: Vec<Option<u32>>, sm_count: u32, single: Option<CudaVersion> } =>
            "cannot split {sm_count} SMs into partitions of {}", partitions(sizes, *sm_count, *single);
        /// Work queues for a descriptor that already has work queues.
        SecondWorkqueues => "the descriptor already has work queues: a green context has at most one set of them";
        /// A setting of work queues with an invalid value.
        WorkqueueSetting { setting: &'static str, given: u32, possible: &'static str } =>
            "the {setting} of work queues must be {possible}, but is {given}";
        /// The work queues and the groups of SMs belong to different devices.
        WorkqueuesOfOtherDevice { its: u32, expected: u32 } =>
            "the work queues belong to device {its}, but the groups of SMs belong to device {expected}";
        /// The green context is current on another thread.
        CurrentElsewhere =>
            "the green context is current on another thread: it can be current on only one thread at a time";
        /// Another thread is in a driver call on the green context and does not return from it.
        GreenContextInUse =>
            "another thread is in a driver call on the green context, which allows one call at a time: try again \
             after that call has returned";
        /// An event operation on a whole green context while one of its streams, or the event, is captured.
        GreenContextIsCaptured =>
            "a stream of the green context, or the event, was being captured: recording or waiting for an event on \
             the whole green context has invalidated the capture";
        /// The partition pool is in use: some of its partitions are leased.
        PoolInUse { holder: String, parts: usize } =>
            "the partition pool{} is in use: {parts} leased partitions have not been returned. A partition is \
             returned when it, its streams, and the buffers and graphs that use these streams are dropped",
            label(holder);
        /// A split of a pool's partition that has streams.
        PartitionInUse { holder: String } =>
            "the partition of the pool{} has streams, or memory that is bound to its streams: drop them before you \
             split it", label(holder);
        /// A request for the green context of a stream that belongs to a partition pool.
        StreamOfPool =>
            "the stream belongs to a partition of a pool, and the pool owns its green context: create other \
             streams from the partition";
        /// One green context with groups of different splits or devices.
        GroupsOfDifferentSplits =>
            "the groups of a green context must come from one split of one device: groups of different splits may \
             contain the same SMs";
        /// The groups of one green context differ in the property `what`.
        GroupsThatDiffer { what: &'static str, first: u32, other: u32 } =>
            "the groups of a green context must have the same {what}, but two of them have {first} and {other}";
        /// A blocking stream in a green context. Such a stream cannot wait for the default stream.
        BlockingGreenStream =>
            "a stream of a green context is always non-blocking and cannot synchronize with the legacy default \
             stream: set StreamOptions::blocking to false";

        // graph, capture
        /// A node of another graph than `graph`, which is a number.
        OtherGraphNode { node: String, graph: u64 } =>
            "{node} was given to graph {graph}: a node belongs to the graph that it was added to \
             (Graph::node_in_clone finds the node of a clone)";
        /// A node that was removed, or that does not exist in this graph or executable graph.
        NoSuchNode { node: String } =>
            "{node} does not exist here: it was removed, or added after the graph was instantiated or cloned";
        /// A node of another kind.
        NodeKind { node: String, found: String, expected: String } =>
            "{node} is of the kind \"{found}\", not \"{expected}\"";
        /// A node that appears twice in the dependencies of a new node.
        RepeatedDependency { node: String } => "{node} appears twice in the dependencies of a new node";
        /// An edge that cannot be added or removed.
        Edge { from: String, to: String, problem: &'static str } => "the edge from {from} to {to} {problem}";
        /// A node that would do nothing: its memory has no bytes, or its batch no operations.
        EmptyNode { what: &'static str } =>
            "{what} that does nothing cannot be a node of a graph: add an empty node instead";
        /// A memory operation of a graph that this crate does not know, because foreign code or a newer driver made
        /// it. The numbers are those of the driver.
        UnknownMemoryOperation { operation: u32, flags: u32 } =>
            "the node has a memory operation of type {operation} with the flags {flags:#x}, which this version of \
             cuda-safe does not know: read it with cuGraphBatchMemOpNodeGetParams";
        /// The edges of a graph form a cycle.
        GraphCycle { node: String } => "the edges of the graph form a cycle through or before {node}";
        /// Two nodes of a graph use the same memory, one of them writes, and no path of full edges leads from one
        /// to the other. `buffer` is the number of the buffer.
        UnorderedAccess { first: String, second: String, buffer: u64 } =>
            "{first} and {second} use the same bytes of buffer {buffer}, and at least one of them writes: add a \
             full edge, or a path of full edges, between them";
        /// A use of a graph recorder after a failed capture, which destroyed the graph.
        RecorderWithoutGraph =>
            "a capture of this graph recorder failed, and the driver destroyed the graph: record a new graph";
        /// A graph that the driver cannot instantiate, with the node that it named.
        Instantiation { node: Option<String>, reason: &'static str, code: CUresult } =>
            "the driver cannot instantiate the graph{}: {reason} ({code})", because_of(node.as_deref());
        /// Options of an instantiation that exclude each other.
        InstantiateOptions =>
            "an executable graph cannot be launched by kernels and free its memory on launch: set either \
             device_launch or auto_free_on_launch";
        /// A second executable graph of a graph that owns memory or has conditional nodes. `graph` is the number of
        /// the graph.
        SecondExecutable { graph: u64 } =>
            "graph {graph} owns memory or has conditional nodes, and has an executable graph already, whose \
             launches are not ordered with those of another one: drop it first, and with conditional nodes wait \
             for its launches";
        /// An operation that a graph does not permit because it owns memory.
        GraphOwnsMemory { what: &'static str } =>
            "the graph owns memory and therefore cannot {what}: move it (Graph::add_child_moved), or use shared \
             buffers";
        /// An operation that a graph does not permit because it has allocation or free nodes.
        MemoryNodes { what: &'static str } =>
            "a graph with allocation or free nodes cannot {what}: build and instantiate another graph";
        /// A node that uses memory of an allocation node while it is not allocated. `allocation` is the number of
        /// the memory.
        UnallocatedAccess { node: String, allocation: u64, problem: &'static str } =>
            "{node} uses allocation {allocation} of the graph while it is not allocated: {problem}";
        /// A second free node for the memory of an allocation node.
        FreedTwice { allocation: u64 } => "allocation {allocation} of the graph has a free node already";
        /// A launch that allocates memory that an earlier launch has allocated, and that is not freed. `is_taken`
        /// says whether a buffer owns it.
        AllocationAlive { allocation: u64, is_taken: bool } =>
            "allocation {allocation} of an earlier launch {}", alive(*is_taken);
        /// A launch on a borrowed stream that keeps the memory of an allocation node.
        AllocationOnBorrowedStream { allocation: u64 } =>
            "the launch keeps allocation {allocation}, which is freed later on the stream, but the stream is \
             borrowed: add a free node (Graph::add_free), or launch on an owned stream";
        /// Memory of an allocation node that no launch keeps.
        AllocationNotAlive { allocation: u64 } =>
            "allocation {allocation} cannot be taken: no launch of this executable graph keeps it. Launch the \
             graph first, and do not free the allocation with a free node";
        /// A graph of other code that is moved into another graph, or captured into.
        ForeignGraph =>
            "the graph belongs to other code: it cannot be moved into another graph or be captured into, because \
             this crate does not destroy it (copy it with Graph::add_child or Graph::try_clone)";
        /// A graph that is added to itself as a child graph.
        GraphInItself => "a graph cannot be a child of itself: add a clone (Graph::try_clone)";
        /// Memory of another graph than the one that uses it. Both values are numbers of graphs.
        BufferOfOtherGraph { buffer: u64, graph: u64 } =>
            "the memory belongs to graph {buffer}, and graph {graph} cannot use it";
        /// A launch by safe code of a graph that uses memory that it does not own.
        GraphBorrows =>
            "the graph was captured and uses memory that it does not own: launch it with the unsafe function \
             launch_unchecked, or record it with a GraphRecorder";
        /// A launch of a graph by safe code on a borrowed stream.
        BorrowedStream =>
            "the stream is borrowed and cannot be kept alive until the launch is complete: launch with the unsafe \
             function launch_unchecked";
        /// A launch of a graph on a stream of a green context in which none of its kernels runs. `stream` is that
        /// green context, and `kernel` the context of a kernel.
        OtherPartition { stream: String, kernel: String } =>
            "the stream belongs to {stream}, but the kernels of the graph run in {kernel}, whatever stream the \
             graph is launched on: launch it on a stream of the ordinary context (Context::stream), or add the \
             kernels with the green context";
        /// A stream of other code, or of a pool of green contexts, as the context of a kernel node.
        UnknownGreenContext =>
            "the stream may belong to a green context that is not known here, so a kernel node cannot run there: \
             pass the GreenContext, or capture the kernel on the stream";
        /// An executable graph that was instantiated from another graph. Both values are numbers of graphs.
        OtherGraph { graph: u64, expected: u64 } =>
            "the executable graph was instantiated from graph {expected}, not from graph {graph}";
        /// A change of one node of an executable graph that was updated from another graph, or from its own with other
        /// nodes or edges.
        UpdatedFromOtherGraph =>
            "the executable graph was updated from another graph, or from its own after its nodes or edges had changed, \
             so it is not known which of its nodes use which memory: update it as a whole";
        /// A conditional handle of another graph than the one that uses it. Both values are numbers of graphs.
        ConditionalHandleOfOtherGraph { handle: u64, graph: u64 } =>
            "the conditional handle belongs to graph {handle}, and graph {graph} cannot use it: create one with \
             Graph::conditional_handle";
        /// A conditional handle that a node uses already.
        ConditionalHandleUsed { node: String } =>
            "the conditional handle belongs to {node}: create a handle for each conditional node";
        /// Conditional handles that no node uses, in a graph that is instantiated.
        ConditionalHandleWithoutNode { count: usize } =>
            "{count} conditional handles of the graph have no node, and the driver cannot instantiate such a \
             graph: add a conditional node for each handle";
        /// A node that the bodies of conditional nodes cannot contain.
        NotInBody { node: String, reason: &'static str } =>
            "the body of a conditional node cannot contain this {node}: {reason}";
        /// A body that the node does not have. `index` is zero-based.
        NoSuchBody { node: String, index: u32, count: usize } =>
            "{node} has no body {index} (zero-based): it has {count} bodies";
        /// A switch without bodies.
        NoBodies => "a switch has at least one body, and 0 were requested";
        /// A function that changed a body replaced it by another graph.
        BodyReplaced =>
            "the function that changed a body of a conditional node replaced the body by another graph: the graph \
             that the body belongs to was leaked and cannot be used any more";
        /// A removal of a conditional node.
        RemovedConditional { node: String } =>
            "{node} cannot be removed: its handle would have no node, and the driver cannot instantiate such a \
             graph";
        /// An operation that a graph does not permit because it has conditional handles or nodes.
        GraphHasConditionals { what: &'static str } =>
            "the graph has conditional handles or nodes, or belongs to a conditional node, and therefore cannot \
             {what}";
        /// An executable graph that kernels cannot launch.
        NotDeviceLaunch =>
            "kernels cannot launch the executable graph: instantiate it with the option device_launch";

        // virtual_memory
        /// A size or an offset of virtual memory that is not a positive multiple of the granularity.
        Granularity { what: &'static str, bytes: usize, granularity: usize } =>
            "{what} of {bytes} bytes is not a positive multiple of the granularity, which is {granularity} bytes";
        /// Virtual memory that a device cannot read and write. `device` is an ordinal.
        NoAccess { device: u32 } =>
            "device {device} cannot read and write this virtual memory: call Mapping::set_access first";
        /// A buffer that is not a mapping of virtual memory.
        NotMapping => "the buffer is not a mapping of virtual memory";
        /// A multicast object to which fewer devices were added than it has.
        MissingDevices { devices: u32, added: usize } =>
            "the multicast object has {devices} devices, of which {added} were added: call MulticastTeam::add for \
             each, or complete_elsewhere if other processes add the rest";
        /// A signal of a timeline semaphore that would not increase its value. `last` is the value of the signal before.
        TimelineValue { value: u64, last: u64 } =>
            "the timeline semaphore cannot be signaled with {value}: the signal before has the value {last}, and the \
             value must grow";
        /// A signal of a binary semaphore that is signaled.
        SemaphoreSignaled =>
            "the binary semaphore is signaled already: enqueue a wait, or call wait_submitted if the other API has \
             submitted one";
        /// A wait for a binary semaphore that is not signaled.
        SemaphoreNotSignaled =>
            "the binary semaphore has no signal to wait for: enqueue one, or call signal_submitted if the other API \
             has submitted one";
        /// A length above the number of elements for which a growable buffer has addresses.
        AboveCapacity { len: usize, capacity: usize } =>
            "{len} elements exceed the capacity of the growable buffer, which is {capacity}";
        /// A growable buffer that grows while another call unmaps its memory and does not return.
        MemoryIsBeingUnmapped =>
            "another driver call is unmapping memory of the growable buffer: try again after that call has \
             returned";

        // array, tensor_map
        /// A CUDA array that cannot be created or used this way. `what` is the rejected property.
        Array { what: &'static str, problem: String } => "CUDA array, {what}: {problem}";
        /// A texture or surface object that the driver would accept although it cannot work. `what` is the rejected
        /// property.
        Texture { what: &'static str, problem: String } => "texture or surface object, {what}: {problem}";
        /// A parameter of a tensor map that breaks a rule.
        TensorMap { parameter: &'static str, given: String, rule: &'static str } =>
            "{parameter} of a tensor map {rule}, and is {given}";

        // interop
        /// A key of an array interface that is missing or has an invalid value.
        ArrayInterface { key: &'static str, problem: String } => "array interface, {key}: {problem}";
        /// An invalid view of an array.
        View { what: &'static str, problem: String } => "array view, {what}: {problem}";
        /// A field of a DLPack tensor, or an argument of the DLPack protocol, with an invalid value.
        Dlpack { field: &'static str, problem: String } => "DLPack, {field}: {problem}";

        // process
        /// A setting of core dumps that applies to the process, for a context.
        CoredumpOfProcess { setting: &'static str } =>
            "the setting {setting} of core dumps applies to the process, not to a context: use \
             `CoredumpSettings::apply`";
        /// A process id that the driver cannot receive.
        ProcessId { pid: u32 } => "{pid} is not a process id";
        /// A process that is not in the state that an operation needs.
        ProcessState { pid: u32, state: &'static str, needed: &'static str } =>
            "process {pid} is {state}, and the operation needs a process that is {needed}";
    }
}

impl std::error::Error for Invalid {}

/// Converts text without a NUL byte to a C string.
#[inline]
pub(crate) fn c_text(text: impl Into<Vec<u8>>) -> Result<CString, Invalid> {
    CString::new(text).map_err(|error| Invalid::NulInText { position: error.nul_position() })
}

/// Returns the label of an object, in quotes, or nothing if it has none.
#[inline]
fn label(holder: &str) -> String {
    if holder.is_empty() { String::new() } else { format!(" \"{holder}\"") }
}

#[inline]
fn by(holder: &str) -> String {
    if holder.is_empty() { String::new() } else { format!(" by \"{holder}\"") }
}

#[inline]
fn because_of(node: Option<&str>) -> String {
    node.map_or(String::new(), |node| format!(" because of {node}"))
}

#[inline]
fn in_sets(size: u32) -> String {
    if size == 0 { String::new() } else { format!(", co-scheduled in sets of {size}") }
}

/// Returns the sizes of partitions, and why the SMs cannot be split into them.
#[inline]
fn partitions(sizes: &[Option<u32>], sm_count: u32, single: Option<CudaVersion>) -> String {
    let size = |size: &Option<u32>| size.map_or("the rest".to_owned(), |n| n.to_string());
    let names: Vec<String> = sizes.iter().map(size).collect();
    let total: u64 = sizes.iter().flatten().map(|size| u64::from(*size)).sum();
    let why = match (u64::from(sm_count).checked_sub(total), single) {
        (None, _) => format!("they need {total} SMs"),
        (Some(0), _) if sizes.contains(&None) => "no SMs are left for the rest".to_owned(),
        (_, Some(driver)) => {
            format!("a partition of several groups needs CUDA 12.5; this driver offers {driver}")
        }
        (_, None) => "the sizes do not fit after rounding; SmResource::equal_splits returns sizes \
                      that are possible"
            .to_owned(),
    };
    format!("{}: {why}", names.join(", "))
}

#[inline]
fn available_kernels(kernels: Option<&[String]>) -> String {
    match kernels {
        None => String::new(),
        Some([]) => ": the module has no kernels".to_owned(),
        Some(names) => format!("; available: {}", names.join(", ")),
    }
}

#[inline]
fn missing_ranges(given: usize, existing: usize) -> String {
    if given == 0 {
        return "there are no ranges to join".to_owned();
    }
    format!(
        "cannot join {given} of the {existing} ranges of a pinned buffer: wait for the copies of \
         the other ranges and join all of them, or drop the others"
    )
}

#[inline]
fn wrong_pitch(size: usize, pitch: Option<usize>) -> String {
    match pitch {
        None => format!(
            "pitched memory cannot have elements of {size} bytes: the driver aligns rows for \
             elements of 1, 2, 4, 8 and 16 bytes"
        ),
        Some(pitch) => format!(
            "a pitch of {pitch} bytes is too small, or is not a multiple of the element size of \
             {size} bytes"
        ),
    }
}

/// Returns the names of the handle types of a mask.
#[inline]
fn handle_types(mask: u32) -> String {
    let kinds = [
        (1, "POSIX file descriptors"),
        (2, "Windows handles (WIN32)"),
        (4, "older Windows handles (WIN32_KMT)"),
        (8, "fabric handles"),
    ];
    let names = kinds.iter().filter(|(bit, _)| mask & bit != 0).map(|(_, name)| *name);
    match names.collect::<Vec<_>>() {
        names if names.is_empty() => format!("no known handle type ({mask:#x})"),
        names => names.join(", "),
    }
}

#[inline]
fn alive(is_taken: bool) -> &'static str {
    match is_taken {
        false => {
            "is not freed: add a free node (Graph::add_free), instantiate with \
             auto_free_on_launch, or take the memory (ExecutableGraph::take_allocation) and drop \
             the buffer before the next launch"
        }
        true => {
            "belongs to a buffer (ExecutableGraph::take_allocation), or its release is deferred: \
             drop the buffer before the next launch"
        }
    }
}
