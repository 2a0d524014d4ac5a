//! Invalid arguments.

mod text;

/// An argument that this crate rejects, or for which it explains the error of the driver.
///
/// This is the content of [`Error::Invalid`](crate::Error::Invalid). The `Display` text names the
/// operation, the given value and the valid values.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the text of each variant shows the fields")]
pub enum Invalid {
    /// No device has this ordinal.
    DeviceOrdinal { ordinal: u32, count: u32 },
    /// The driver is too old for an attribute of a device, a kernel or a launch.
    UnknownAttribute {
        attribute: &'static str,
        since: cuda_sys::CudaVersion,
        driver: cuda_sys::CudaVersion,
    },
    /// The driver is too old for the operation or option `what`.
    NeedsNewerDriver {
        what: &'static str,
        since: cuda_sys::CudaVersion,
        driver: cuda_sys::CudaVersion,
    },
    /// The minimum group size of a split exceeds the number of SMs.
    SplitAboveResource { min: u32, sm_count: u32 },
    /// A split into zero groups, or a green context without a group.
    NoGroups,
    /// Split flags that exclude each other, or that are not defined.
    SplitFlags { flags: u32 },
    /// Split flags, on a CUDA 12.4 driver.
    SplitFlagsNeedNewerDriver { driver: cuda_sys::CudaVersion },
    /// SMs of the device are in use under another split.
    SplitInUse { device: i32, holder: String },
    /// A group of an exact split that breaks a rule for groups. `index` is zero-based.
    GroupRequest { index: usize, sm_count: u32, coscheduled: u32, rule: &'static str },
    /// Group flags that this crate does not know. `index` is zero-based.
    GroupFlags { index: usize, flags: u32 },
    /// The driver is too old for flags of a group.
    GroupFlagsNeedNewerDriver { since: cuda_sys::CudaVersion, driver: cuda_sys::CudaVersion },
    /// A requested partition size of 0 SMs, 0 percent or the weight 0. `index` is zero-based.
    ZeroPartitionSize { index: usize },
    /// More than one partition has the size "the rest".
    SeveralRests,
    /// The SMs cannot be split into partitions of these sizes. `None` is "the rest". `single` is the
    /// version of the driver if that driver does not support several groups in one partition.
    NoSuchPartitions {
        sizes: Vec<Option<u32>>,
        sm_count: u32,
        single: Option<cuda_sys::CudaVersion>,
    },
    /// Work queues for a descriptor that already has work queues.
    SecondWorkqueues,
    /// A setting of work queues with an invalid value.
    WorkqueueSetting { setting: &'static str, given: u32, possible: &'static str },
    /// The work queues and the groups of SMs belong to different devices.
    WorkqueuesOfOtherDevice { its: u32, expected: u32 },
    /// The green context is current on another thread.
    CurrentElsewhere,
    /// Another thread is in a driver call on the green context and does not return from it.
    GreenContextInUse,
    /// An event operation on a whole green context while one of its streams, or the event, is captured.
    GreenContextIsCaptured,
    /// The partition pool is in use: some of its partitions are leased.
    PoolInUse { holder: String, parts: usize },
    /// A split of a pool's partition that has streams.
    PartitionInUse { holder: String },
    /// A request for the green context of a stream that belongs to a partition pool.
    StreamOfPool,
    /// One green context with groups of different splits or devices.
    GroupsOfDifferentSplits,
    /// The groups of one green context differ in the property `what`.
    GroupsThatDiffer { what: &'static str, first: u32, other: u32 },
    /// Several groups in one green context, on a CUDA 12.4 driver.
    SeveralGroupsNeedNewerDriver { groups: usize, driver: cuda_sys::CudaVersion },
    /// A blocking stream in a green context. Such a stream cannot wait for the default stream.
    BlockingGreenStream,
    /// An allocation, an operation on host memory or a host function, on a stream that is captured.
    StreamIsCaptured,
    /// An operation that is only possible in a capture that this crate began.
    NotCaptured { what: &'static str },
    /// A use of a graph recorder after a failed capture, which destroyed the graph.
    RecorderWithoutGraph,
    /// A capture cannot begin or be joined while other calls on the stream or event are in progress.
    CallsInProgress { what: &'static str, calls: u32, last: &'static str },
    /// The stream or event belongs to another capture, which has not ended.
    OtherCapture { what: &'static str },
    /// A release that cannot run now and cannot be deferred, because the context or stream of the object
    /// is borrowed.
    BorrowedCannotWait,
    /// An access policy with an invalid hit ratio, or with a persisting miss property.
    AccessWindow { hit_ratio: String, miss: String },
    /// Too many memory operations in one batch.
    TooManyOperations { count: usize, max: usize },
    /// A memory operation on a kind of memory that the driver does not support there.
    NoMemoryOperations { memory: &'static str, address: cuda_sys::CUdeviceptr },
    /// A memory operation of a graph that this crate does not know, because foreign code or a newer
    /// driver made it. The numbers are those of the driver.
    UnknownMemoryOperation { operation: u32, flags: u32 },
    /// An interprocess event with timing.
    InterprocessTiming,
    /// An empty module image, or empty PTX text.
    EmptyImage,
    /// A module image that is shorter than its header says.
    TruncatedImage { needed: u64, given: u64 },
    /// A module image that is neither a cubin nor a fatbin.
    NotAnImage { starts_with: [u8; 4] },
    /// Text that does not start, after comments, with the PTX directive `.version`.
    NotPtx,
    /// CUDA C++ source code where PTX is expected. The driver compiles only PTX.
    CudaSource,
    /// A NUL byte inside a name or PTX text. `position` is its byte offset.
    NulInText { position: usize },
    /// A path that is not valid Unicode, on a system whose driver takes paths as text.
    PathEncoding,
    /// A path that is too long for the driver. The lengths are in bytes.
    PathLength { length: usize, max: usize },
    /// A setting of core dumps that applies to the process, for a context.
    CoredumpOfProcess { setting: &'static str },
    /// A process id that the driver cannot receive.
    ProcessId { pid: u32 },
    /// A process that is not in the state that an operation needs.
    ProcessState { pid: u32, state: &'static str, needed: &'static str },
    /// The module has no kernel of this name. `available` holds the names of its kernels, if the driver
    /// can list them.
    NoSuchKernel { name: String, available: Option<Vec<String>> },
    /// The number of arguments differs from the number of parameters of the kernel.
    ArgumentCount { kernel: String, parameters: usize, given: usize },
    /// An argument and its parameter have different sizes, in bytes. `index` is zero-based.
    ArgumentSize { kernel: String, index: usize, parameter: usize, given: usize },
    /// The module has no variable of this name.
    NoSuchGlobal { name: String },
    /// A buffer of a variable, whose size is not a multiple of the element size or whose address is not
    /// aligned for the element type.
    GlobalLayout { name: String, size: usize, address: u64, element: usize, align: usize },
    /// A JIT option with an invalid value.
    JitOption { option: &'static str, given: String, possible: &'static str },
    /// The driver is too old for a JIT option.
    JitOptionNeedsNewerDriver {
        option: &'static str,
        since: cuda_sys::CudaVersion,
        driver: cuda_sys::CudaVersion,
    },
    /// A launch attribute with an invalid value.
    LaunchAttribute { attribute: &'static str, given: String, possible: &'static str },
    /// A grid or block with a dimension of zero, or a block of 2^32 or more threads.
    LaunchConfig { grid: [u32; 3], block: [u32; 3] },
    /// The objects of one operation belong to different contexts.
    OtherContext { what: &'static str, its: String, expected: String },
    /// The buffer is bound to a different stream than that of the operation.
    OtherStream { what: String, its: String, expected: String },
    /// The source and the target of a copy have different numbers of elements.
    Lengths { source: usize, target: usize },
    /// A range that is out of bounds for `len` elements.
    Range { start: usize, end: usize, len: usize },
    /// Chunks of zero elements.
    EmptyChunks,
    /// Ranges of different pinned buffers, which cannot be joined.
    SeveralBuffers,
    /// Some ranges of a pinned buffer, which cannot be joined without the others.
    MissingRanges { given: usize, existing: usize },
    /// Device memory whose size is not a multiple of the size of the elements that it was cast to, or
    /// whose address is not aligned for them. All sizes are in bytes.
    Cast { address: cuda_sys::CUdeviceptr, size: usize, element: usize, align: usize },
    /// A 2-D or 3-D region that is out of bounds for `len` elements, or whose rows or slices overlap.
    Region { region: crate::call::region::Region, extent: crate::call::region::Extent, len: usize },
    /// Pitched memory with an element size, in bytes, that the driver does not support; or a pitch, in
    /// bytes, that is not a multiple of the element size or is shorter than a row.
    PitchSize { size: usize, pitch: Option<usize> },
    /// Foreign-owned memory that is shared or bound to another stream. Its owner relies on the stream
    /// that it was given.
    ForeignMemory,
    /// Memory of a manager with a stream whose context object has no manager or a different one.
    OtherManager,
    /// An operation that needs a memory manager, in a context without one.
    NoMemoryManager,
    /// A memory manager that implements a different version of the interface.
    ManagerVersion { version: u32, expected: u32 },
    /// An allocation that would exceed the limit of a manager. All values are in bytes.
    MemoryLimit { limit: u64, used: u64, asked: u64 },
    /// An operation of a memory manager that must be ordered on a stream, with an order without one.
    OrderWithoutStream { what: &'static str },
    /// An export of memory of a kind that other processes cannot open.
    NotShareable { memory: &'static str },
    /// A handle of shared memory, of a different kind than the function opens.
    IpcKind { its: String, expected: String },
    /// The device does not share memory pools as file descriptors. `supported` is the mask of the handle
    /// types that it supports.
    PoolHandles { supported: u32 },
    /// A buffer that was not allocated from the memory pool.
    NotOfPool,
    /// Shared memory of a different device than that of the context. Both values are UUIDs.
    MemoryOfOtherDevice { its: String, expected: String },
    /// An operation that the memory manager does not support.
    ManagerCannot { what: &'static str },
    /// The device of the stream has no read and write access to the memory pool.
    NoAccessToPool { pool: String, device: u32 },
    /// Unregistration of pinned memory that the driver allocated and that belongs to no vector.
    NotRegistered,
    /// A size in bytes that exceeds the address space.
    TooLarge { len: usize, size: usize },
    /// A fill pattern with a size, in bytes, that the driver does not support.
    FillSize { size: usize },
    /// The current context is not the one that the guard made current.
    ContextStack { expected: usize, found: usize },
    /// A context is bound to a thread on which guards of current contexts are open.
    OpenGuards { guards: usize },
    /// A guard ended while `inner` later guards were still open or had failed to pop their context.
    GuardOrder { inner: usize },
    /// A key of an array interface that is missing or has an invalid value.
    ArrayInterface { key: &'static str, problem: String },
    /// An invalid view of an array.
    View { what: &'static str, problem: String },
    /// A CUDA array that cannot be created or used this way. `what` is the rejected property.
    Array { what: &'static str, problem: String },
    /// A texture or surface object that the driver would accept although it cannot work. `what` is the
    /// rejected property.
    Texture { what: &'static str, problem: String },
    /// A field of a DLPack tensor, or an argument of the DLPack protocol, with an invalid value.
    Dlpack { field: &'static str, problem: String },
    /// A node of another graph than `graph`, which is a number.
    OtherGraphNode { node: String, graph: u64 },
    /// A node that was removed, or that does not exist in this graph or executable graph.
    NoSuchNode { node: String },
    /// A node of another kind.
    NodeKind { node: String, found: String, expected: String },
    /// A node that appears twice in the dependencies of a new node.
    RepeatedDependency { node: String },
    /// An edge that cannot be added or removed.
    Edge { from: String, to: String, problem: &'static str },
    /// A node that would do nothing: its memory has no bytes, or its batch no operations.
    EmptyNode { what: &'static str },
    /// The edges of a graph form a cycle.
    GraphCycle { node: String },
    /// Two nodes of a graph use the same memory, one of them writes, and no path of full edges leads
    /// from one to the other. `buffer` is the number of the buffer.
    UnorderedAccess { first: String, second: String, buffer: u64 },
    /// A graph that the driver cannot instantiate, with the node that it named.
    Instantiation { node: Option<String>, reason: &'static str, code: cuda_sys::CUresult },
    /// Options of an instantiation that exclude each other.
    InstantiateOptions,
    /// A second executable graph of a graph that owns memory or has conditional nodes. `graph` is the
    /// number of the graph.
    SecondExecutable { graph: u64 },
    /// An operation that a graph does not permit because it owns memory.
    GraphOwnsMemory { what: &'static str },
    /// An operation that a graph does not permit because it has allocation or free nodes.
    MemoryNodes { what: &'static str },
    /// A node that uses memory of an allocation node while it is not allocated. `allocation` is the number
    /// of the memory.
    UnallocatedAccess { node: String, allocation: u64, problem: &'static str },
    /// A second free node for the memory of an allocation node.
    FreedTwice { allocation: u64 },
    /// A launch that allocates memory that an earlier launch has allocated, and that is not freed.
    /// `is_taken` says whether a buffer owns it.
    AllocationAlive { allocation: u64, is_taken: bool },
    /// A launch on a borrowed stream that keeps the memory of an allocation node.
    AllocationOnBorrowedStream { allocation: u64 },
    /// Memory of an allocation node that no launch keeps.
    AllocationNotAlive { allocation: u64 },
    /// A graph of other code that is moved into another graph, or captured into.
    ForeignGraph,
    /// A graph that is added to itself as a child graph.
    GraphInItself,
    /// Memory of another graph than the one that uses it. Both values are numbers of graphs.
    BufferOfOtherGraph { buffer: u64, graph: u64 },
    /// A launch by safe code of a graph that uses memory that it does not own.
    GraphBorrows,
    /// A launch of a graph by safe code on a borrowed stream.
    BorrowedStream,
    /// A launch of a graph on a stream of a green context in which none of its kernels runs. `stream` is
    /// that green context, and `kernel` the context of a kernel.
    OtherPartition { stream: String, kernel: String },
    /// A stream of other code, or of a pool of green contexts, as the context of a kernel node.
    UnknownGreenContext,
    /// An executable graph that was instantiated from another graph. Both values are numbers of graphs.
    OtherGraph { graph: u64, expected: u64 },
    /// A change of one node of an executable graph that was updated from another graph.
    UpdatedFromOtherGraph,
    /// A conditional handle of another graph than the one that uses it. Both values are numbers of graphs.
    ConditionalHandleOfOtherGraph { handle: u64, graph: u64 },
    /// A conditional handle that a node uses already.
    ConditionalHandleUsed { node: String },
    /// Conditional handles that no node uses, in a graph that is instantiated.
    ConditionalHandleWithoutNode { count: usize },
    /// A node that the bodies of conditional nodes cannot contain.
    NotInBody { node: String, reason: &'static str },
    /// A body that the node does not have. `index` is zero-based.
    NoSuchBody { node: String, index: u32, count: usize },
    /// A switch without bodies.
    NoBodies,
    /// A function that changed a body replaced it by another graph.
    BodyReplaced,
    /// A removal of a conditional node.
    RemovedConditional { node: String },
    /// An operation that a graph does not permit because it has conditional handles or nodes.
    GraphHasConditionals { what: &'static str },
    /// An executable graph that kernels cannot launch.
    NotDeviceLaunch,
    /// Text for the driver that is not Unicode.
    NotUnicode,
    /// A size or an offset of virtual memory that is not a positive multiple of the granularity.
    Granularity { what: &'static str, bytes: usize, granularity: usize },
    /// Virtual memory that a device cannot read and write. `device` is an ordinal.
    NoAccess { device: u32 },
    /// A buffer that is not a mapping of virtual memory.
    NotMapping,
    /// A multicast object to which fewer devices were added than it has.
    MissingDevices { devices: u32, added: usize },
    /// A length above the number of elements for which a growable buffer has addresses.
    AboveCapacity { len: usize, capacity: usize },
    /// A growable buffer that grows while another call unmaps its memory and does not return.
    MemoryIsBeingUnmapped,
    /// An export as a DMA-BUF of memory that does not consist of whole pages of the host, or that is of
    /// a kind that the driver does not export.
    DmaBuf { address: cuda_sys::CUdeviceptr, bytes: usize },
    /// A query of the locations of managed memory, in parts that do not fit the range. All values are in
    /// bytes.
    Residency { part: usize, sample: usize, bytes: usize },
    /// A parameter of a tensor map that breaks a rule.
    TensorMap { parameter: &'static str, given: String, rule: &'static str },
    /// A raw handle that is not an object of the kind `what`.
    Handle { what: &'static str, value: usize },
}

impl std::error::Error for Invalid {}
