//! Arguments that cannot be right.

mod text;

/// An argument that was refused; each says what was given and what is possible.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the fields say what the text of each shows")]
pub enum Invalid {
    /// No device has this number.
    DeviceOrdinal { ordinal: u32, count: u32 },
    /// The driver does not know an attribute of a device, a kernel or a launch.
    UnknownAttribute {
        attribute: &'static str,
        since: cuda_sys::CudaVersion,
        driver: cuda_sys::CudaVersion,
    },
    /// Something that the driver is too old for.
    NeedsNewerDriver {
        what: &'static str,
        since: cuda_sys::CudaVersion,
        driver: cuda_sys::CudaVersion,
    },
    /// A split with a minimum above what there is.
    SplitAboveResource { min: u32, sm_count: u32 },
    /// A split into no groups, or a green context of none.
    NoGroups,
    /// Flags of a split that exclude each other, or that no driver knows.
    SplitFlags { flags: u32 },
    /// Split flags on a driver of CUDA 12.4.
    SplitFlagsNeedNewerDriver { driver: cuda_sys::CudaVersion },
    /// Parts of the device's multiprocessors are in use under another split.
    SplitInUse { device: i32, holder: String },
    /// A group of an exact split that there cannot be.
    GroupRequest {
        index: usize,
        sm_count: u32,
        coscheduled: u32,
        rule: &'static str,
    },
    /// Flags of a group that this crate does not know.
    GroupFlags { index: usize, flags: u32 },
    /// Flags of a group that are newer than the driver.
    GroupFlagsNeedNewerDriver {
        since: cuda_sys::CudaVersion,
        driver: cuda_sys::CudaVersion,
    },
    /// More than one partition of all that the others leave.
    SeveralRests,
    /// Partitions that the multiprocessors cannot be split into; the driver, if it is one that does
    /// not compose a partition of several groups.
    NoSuchPartitions {
        wishes: Vec<Option<u32>>,
        sm_count: u32,
        single: Option<cuda_sys::CudaVersion>,
    },
    /// Work queues for a descriptor that has some.
    SecondWorkqueues,
    /// Work queues with a setting that there is not.
    WorkqueueSetting {
        setting: &'static str,
        given: u32,
        possible: &'static str,
    },
    /// Work queues of another device than the groups of SMs.
    WorkqueuesOfOtherDevice { its: u32, expected: u32 },
    /// A green context that is current on another thread.
    CurrentElsewhere,
    /// A call on a green context while a call of another thread on it does not return.
    GreenContextInUse,
    /// An event of a whole green context of which a stream is recorded into a graph.
    GreenContextIsCaptured,
    /// Partitions of a pool that are handed out.
    PoolInUse { holder: String, parts: usize },
    /// A partition of a pool that is to be split, and has streams.
    PartitionInUse { holder: String },
    /// A stream of a pool, of which its green context is asked.
    StreamOfPool,
    /// Groups of different splits or devices in one green context.
    GroupsOfDifferentSplits,
    /// Groups that differ in something that one green context has one of.
    GroupsThatDiffer {
        what: &'static str,
        first: u32,
        other: u32,
    },
    /// Several groups in one green context on a driver of CUDA 12.4.
    SeveralGroupsNeedNewerDriver {
        groups: usize,
        driver: cuda_sys::CudaVersion,
    },
    /// A stream of a green context cannot wait for the default stream.
    BlockingGreenStream,
    /// An allocation, host memory or a host function for a stream that is recorded into a graph.
    StreamIsCaptured,
    /// A capture cannot begin, or be joined, while other calls on the stream or event are under way.
    CallsUnderWay {
        what: &'static str,
        calls: u32,
        last: &'static str,
    },
    /// A stream or an event belongs to another capture that is still open.
    OtherCapture { what: &'static str },
    /// A release that would have to wait, of what hangs on a borrowed context or stream.
    BorrowedCannotWait,
    /// An access policy with a part that is none, or misses that persist.
    AccessWindow { hit_ratio: String, miss: String },
    /// More memory operations than a batch takes.
    TooManyOperations { count: usize, max: usize },
    /// A memory operation on memory of a kind that the driver has none for.
    NoMemoryOperations {
        memory: &'static str,
        address: cuda_sys::CUdeviceptr,
    },
    /// An event for other processes that is to take the time.
    InterprocessTiming,
    /// A module image without a byte, or PTX without text.
    EmptyImage,
    /// A module image that ends before its header says.
    TruncatedImage { needed: u64, given: u64 },
    /// Bytes that are neither a cubin nor a fatbin.
    NotAnImage { starts_with: [u8; 4] },
    /// Text that does not begin, after comments, with PTX's `.version`.
    NotPtx,
    /// A NUL byte inside a name or PTX text.
    NulInText { position: usize },
    /// No kernel of that name; the names there are, where the driver can list them.
    NoSuchKernel {
        name: String,
        available: Option<Vec<String>>,
    },
    /// Another number of arguments than the kernel has parameters.
    ArgumentCount {
        kernel: String,
        parameters: usize,
        given: usize,
    },
    /// An argument of another size than its parameter.
    ArgumentSize {
        kernel: String,
        index: usize,
        parameter: usize,
        given: usize,
    },
    /// No variable of that name in the module.
    NoSuchGlobal { name: String },
    /// A variable as a buffer of elements that it does not hold a whole number of, or that are
    /// aligned otherwise.
    GlobalLayout {
        name: String,
        size: usize,
        address: u64,
        element: usize,
        align: usize,
    },
    /// An option of the driver's compiler with a value that it cannot have.
    JitOption {
        option: &'static str,
        given: String,
        possible: &'static str,
    },
    /// An option of the driver's compiler that is newer than the driver.
    JitOptionNeedsNewerDriver {
        option: &'static str,
        since: cuda_sys::CudaVersion,
        driver: cuda_sys::CudaVersion,
    },
    /// An attribute of a launch with a value that it cannot have.
    LaunchAttribute {
        attribute: &'static str,
        given: String,
        possible: &'static str,
    },
    /// A grid or block without an extent, or above what a number holds.
    LaunchConfig { grid: [u32; 3], block: [u32; 3] },
    /// Things of two contexts in one operation.
    OtherContext {
        what: &'static str,
        its: String,
        expected: String,
    },
    /// A buffer that is bound to another stream than the operation's.
    OtherStream {
        what: String,
        its: String,
        expected: String,
    },
    /// A copy between lengths that differ.
    Lengths { source: usize, target: usize },
    /// A range that is not within `len` elements.
    Range {
        start: usize,
        end: usize,
        len: usize,
    },
    /// A box that is not within `len` elements, or whose rows or slices overlap.
    Region {
        region: crate::memory::Region,
        extent: crate::memory::Extent,
        len: usize,
    },
    /// Elements that the driver does not align rows for, or a pitch that is not a multiple of them.
    PitchSize { size: usize, pitch: Option<usize> },
    /// Memory that somebody else keeps, for the stream that they gave.
    ForeignMemory,
    /// Memory of a manager, for a stream whose context object has another one, or none.
    OtherManager,
    /// Untyped memory of a context without a memory manager.
    NoMemoryManager,
    /// A memory manager that is written for another version of the interface.
    ManagerVersion { version: u32, expected: u32 },
    /// More memory than a manager was given.
    MemoryLimit { limit: u64, used: u64, asked: u64 },
    /// Memory of a kind that other processes cannot open.
    NotShareable { memory: &'static str },
    /// A handle of shared memory of another kind than is opened there.
    IpcKind {
        its: crate::manager::IpcKind,
        expected: crate::manager::IpcKind,
    },
    /// Memory pools of the device are shared in other ways than by file descriptors; their mask.
    PoolHandles { supported: u32 },
    /// A buffer of other memory than the pool's.
    NotOfPool,
    /// Memory of another device, by its identity, than the context's.
    MemoryOfOtherDevice { its: String, expected: String },
    /// Something that a memory manager does not do.
    ManagerCannot { what: &'static str },
    /// A memory pool that work of the stream's device may not write.
    NoAccessToPool { pool: String, device: u32 },
    /// Pinned memory that is the driver's and no vector's.
    NotRegistered,
    /// More bytes than an address can count.
    TooLarge { len: usize, size: usize },
    /// A pattern that the driver cannot set memory to.
    FillSize { size: usize },
    /// The stack of current contexts is not as the guard left it.
    ContextStack { expected: usize, found: usize },
    /// A guard that was ended while guards made after it were open, or had left their push behind.
    GuardOrder { inner: usize },
    /// A key of an array interface that is missing, or says what cannot be.
    ArrayInterface { key: &'static str, problem: String },
    /// A view of an array that there cannot be.
    View { what: &'static str, problem: String },
    /// A field of a DLPack tensor that says what cannot be, or an argument of its protocol.
    Dlpack {
        field: &'static str,
        problem: String,
    },
    /// A raw handle that stands for no object of that kind.
    Handle { what: &'static str, value: usize },
}

impl std::error::Error for Invalid {}
