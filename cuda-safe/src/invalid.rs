//! Arguments that cannot be right.

use std::fmt;

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
    /// Work queues of another device than the groups of SMs.
    WorkqueuesOfOtherDevice { its: u32, expected: u32 },
    /// A green context that is current on another thread.
    CurrentElsewhere,
    /// An event of a whole green context of which a stream is recorded into a graph.
    GreenContextIsCaptured,
    /// Partitions of a pool that are handed out.
    PoolInUse { holder: String, parts: usize },
    /// A partition of a pool that is to be split, and has streams.
    PartitionInUse { holder: String },
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

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DeviceOrdinal { ordinal, count } => {
                write!(f, "there is no device {ordinal}: the driver has {count}")
            }
            Self::UnknownAttribute {
                attribute,
                since,
                driver,
            } => write!(
                f,
                "the attribute {attribute} needs CUDA {since}; this driver offers {driver}"
            ),
            Self::NeedsNewerDriver {
                what,
                since,
                driver,
            } => write!(f, "{what} needs CUDA {since}; this driver offers {driver}"),
            Self::SplitAboveResource { min, sm_count } => write!(
                f,
                "groups of at least {min} multiprocessors cannot come out of {sm_count}"
            ),
            Self::NoGroups => f.write_str("a partition needs at least one group"),
            Self::SplitFlags { flags } => write!(
                f,
                "split flags {flags:#x}: the driver knows 1 (ignore co-scheduling) and 2 (maximum \
                 potential cluster size), one of them at a time"
            ),
            Self::SplitFlagsNeedNewerDriver { driver } => {
                write!(f, "split flags need CUDA 12.5; this driver offers {driver}")
            }
            Self::SplitInUse { device, holder } => {
                write!(
                    f,
                    "the multiprocessors of device {device} are partitioned already"
                )?;
                if !holder.is_empty() {
                    write!(f, ", for \"{holder}\"")?;
                }
                f.write_str(
                    ": a second split would hand out the same ones (Overlap::Allow does so)",
                )
            }
            Self::GroupRequest {
                index,
                sm_count,
                coscheduled,
                rule,
            } => {
                write!(f, "group {index} of {sm_count} multiprocessors")?;
                if *coscheduled != 0 {
                    write!(f, ", {coscheduled} to a cluster")?;
                }
                write!(f, ": {rule}")
            }
            Self::GroupFlags { index, flags } => write!(
                f,
                "flags {flags:#x} of group {index}: there are 1 (backfill), 2 (a locality domain) and 4 \
                 (supplemental multiprocessors of others)"
            ),
            Self::GroupFlagsNeedNewerDriver { since, driver } => write!(
                f,
                "flags of the group need CUDA {since}; this driver offers {driver}"
            ),
            Self::SeveralRests => {
                f.write_str("only one partition can have all that the others leave")
            }
            Self::NoSuchPartitions {
                wishes,
                sm_count,
                single,
            } => {
                let wish =
                    |wish: &Option<u32>| wish.map_or("the rest".to_owned(), |n| n.to_string());
                let wishes: Vec<String> = wishes.iter().map(wish).collect();
                write!(
                    f,
                    "{sm_count} multiprocessors cannot be split into partitions of {}",
                    wishes.join(", ")
                )?;
                match single {
                    None => Ok(()),
                    Some(driver) => write!(
                        f,
                        ": partitions of several groups need CUDA 12.5; this driver offers {driver}"
                    ),
                }
            }
            Self::SecondWorkqueues => f.write_str("a green context has at most one set of work queues"),
            Self::WorkqueuesOfOtherDevice { its, expected } => write!(
                f,
                "the work queues are of device {its}, and the groups of device {expected}"
            ),
            Self::CurrentElsewhere => f.write_str(
                "the green context is current on another thread: it may be on one at a time",
            ),
            Self::GreenContextIsCaptured => f.write_str(
                "a stream of the green context, or the event, is being recorded into a graph: an event \
                 of the whole context has broken that",
            ),
            Self::PoolInUse { holder, parts } => {
                f.write_str("the pool of partitions")?;
                if !holder.is_empty() {
                    write!(f, " \"{holder}\"")?;
                }
                write!(
                    f,
                    " is in use: {parts} parts of a partitioning are handed out"
                )
            }
            Self::PartitionInUse { holder } => {
                f.write_str("the partition of the pool")?;
                if !holder.is_empty() {
                    write!(f, " \"{holder}\"")?;
                }
                f.write_str(" has streams, or memory bound to them: it is split when they are dropped")
            }
            Self::GroupsOfDifferentSplits => f.write_str(
                "a green context takes groups of one split of one device: others may be the same \
                 multiprocessors twice",
            ),
            Self::GroupsThatDiffer { what, first, other } => write!(
                f,
                "groups of one green context have one {what}, and these have {first} and {other}"
            ),
            Self::SeveralGroupsNeedNewerDriver { groups, driver } => write!(
                f,
                "{groups} groups in one green context need CUDA 12.5; this driver offers {driver}"
            ),
            Self::BlockingGreenStream => f.write_str(
                "a stream of a green context is always non-blocking: it does not wait for the \
                 legacy default stream",
            ),
            Self::StreamIsCaptured => f.write_str(
                "the stream is being recorded into a graph, which takes no allocation, host memory or \
                 host function: it would run this later, more than once or never",
            ),
            Self::BorrowedCannotWait => f.write_str(
                "it was dropped in a capture or a host function, where it cannot be released, and \
                 cannot wait, as the context or stream that it needs is only borrowed (one with an \
                 owner would stay)",
            ),
            Self::AccessWindow { hit_ratio, miss } => write!(
                f,
                "an access policy with a hit ratio of {hit_ratio} and {miss} misses: the ratio is \
                 from 0 to 1, and misses do not persist"
            ),
            Self::TooManyOperations { count, max } => write!(
                f,
                "{count} memory operations in a batch, which takes {max}"
            ),
            Self::NoMemoryOperations { memory, address } => write!(
                f,
                "a memory operation at {address:#x}, which is {memory} memory: the driver has them \
                 for plain device memory and for pinned memory"
            ),
            Self::InterprocessTiming => {
                f.write_str("an event for other processes takes no time: it is made without timing")
            }
            Self::EmptyImage => f.write_str("the module is empty"),
            Self::TruncatedImage { needed, given } => write!(
                f,
                "the module image is truncated: its header speaks of {needed} bytes, and there \
                 are {given}"
            ),
            Self::NotAnImage { starts_with } => write!(
                f,
                "not a cubin or fatbin: it starts with the bytes {starts_with:02x?}"
            ),
            Self::NotPtx => f.write_str(
                "not PTX: such text begins, after comments, with the directive .version",
            ),
            Self::NulInText { position } => {
                write!(f, "a NUL byte inside the text, at byte {position}")
            }
            Self::NoSuchKernel { name, available } => {
                write!(f, "no kernel \"{name}\"")?;
                match available {
                    None => Ok(()),
                    Some(names) if names.is_empty() => f.write_str(": there is none at all"),
                    Some(names) => write!(f, "; there is {}", names.join(", ")),
                }
            }
            Self::ArgumentCount {
                kernel,
                parameters,
                given,
            } => write!(
                f,
                "kernel \"{kernel}\" has {parameters} parameters, and {given} arguments are given"
            ),
            Self::ArgumentSize {
                kernel,
                index,
                parameter,
                given,
            } => write!(
                f,
                "kernel \"{kernel}\": parameter {index} has {parameter} bytes, and the argument \
                 has {given}"
            ),
            Self::NoSuchGlobal { name } => write!(f, "no variable \"{name}\" in the module"),
            Self::GlobalLayout {
                name,
                size,
                address,
                element,
                align,
            } => write!(
                f,
                "the variable \"{name}\" of {size} bytes at {address:#x} is no array of elements of \
                 {element} bytes, aligned to {align}"
            ),
            Self::JitOption {
                option,
                given,
                possible,
            } => write!(
                f,
                "the compiler's option {option} is {given}, and can be {possible}"
            ),
            Self::JitOptionNeedsNewerDriver {
                option,
                since,
                driver,
            } => write!(
                f,
                "the compiler's option {option} needs CUDA {since}; this driver offers {driver}"
            ),
            Self::LaunchAttribute {
                attribute,
                given,
                possible,
            } => write!(
                f,
                "the launch attribute {attribute} is {given}, and can be {possible}"
            ),
            Self::LaunchConfig { grid, block } => write!(
                f,
                "no launch of a grid {grid:?} of blocks {block:?}: every extent is at least 1, \
                 and together they stay below 2^32 threads a block"
            ),
            Self::OtherContext {
                what,
                its,
                expected,
            } => write!(
                f,
                "{what} belongs to {its}, and the operation to {expected}"
            ),
            Self::OtherStream {
                what,
                its,
                expected,
            } => write!(
                f,
                "{what} is bound to stream {its}, and the operation runs on stream {expected}"
            ),
            Self::Lengths { source, target } => {
                write!(
                    f,
                    "a copy from {source} elements to {target}: the lengths differ"
                )
            }
            Self::Range { start, end, len } => {
                write!(f, "the range {start}..{end} is not within {len} elements")
            }
            Self::Region {
                region,
                extent,
                len,
            } => write!(
                f,
                "a box of {} x {} x {} elements at {} with rows {} apart and {} rows a slice is not \
                 within {len} elements, or overlaps itself",
                extent.width, extent.height, extent.depth, region.offset, region.pitch, region.rows
            ),
            Self::PitchSize { size, pitch: None } => write!(
                f,
                "rows are aligned for elements of 1, 2, 4, 8 and 16 bytes, not of {size}"
            ),
            Self::PitchSize {
                size,
                pitch: Some(pitch),
            } => write!(
                f,
                "rows {pitch} bytes apart do not fit elements of {size} bytes"
            ),
            Self::ForeignMemory => f.write_str(
                "the memory is somebody else's, who keeps it for the stream that it is bound to",
            ),
            Self::OtherManager => f.write_str(
                "memory of a memory manager stays with the objects of its context, which the stream's is \
                 without",
            ),
            Self::NoMemoryManager => f.write_str(
                "the context has no memory manager: one is chosen before the context is made",
            ),
            Self::ManagerVersion { version, expected } => write!(
                f,
                "a memory manager of interface version {version}: this is version {expected}"
            ),
            Self::MemoryLimit { limit, used, asked } => write!(
                f,
                "{asked} bytes of a memory manager whose limit is {limit}, with {used} in use"
            ),
            Self::NotShareable { memory } => write!(
                f,
                "other processes cannot open {memory} memory by a handle: plain device memory they can, and \
                 that of a memory pool which was made shareable"
            ),
            Self::IpcKind { its, expected } => write!(
                f,
                "a handle of {its} where one of {expected} is opened: a context opens plain memory, and an \
                 imported pool memory of the pool"
            ),
            Self::PoolHandles { supported } => {
                f.write_str(
                    "memory pools are shared by POSIX file descriptors here, by which this device shares \
                     none; it has ",
                )?;
                let kinds = [
                    (1, "POSIX file descriptors"),
                    (2, "handles of Windows (WIN32)"),
                    (4, "older handles of Windows (WIN32_KMT)"),
                    (8, "fabric handles"),
                ];
                let names: Vec<&str> = kinds
                    .iter()
                    .filter(|(bit, _)| supported & bit != 0)
                    .map(|(_, name)| *name)
                    .collect();
                match names.is_empty() {
                    true => write!(f, "no kind of handle that is known ({supported:#x})"),
                    false => f.write_str(&names.join(", ")),
                }
            }
            Self::NotOfPool => f.write_str("the buffer is not memory of this pool"),
            Self::MemoryOfOtherDevice { its, expected } => write!(
                f,
                "shared memory of the device {its}, to be opened in a context of {expected}"
            ),
            Self::ManagerCannot { what } => write!(f, "this memory manager cannot {what}"),
            Self::NoAccessToPool { pool, device } => write!(
                f,
                "device {device} has no access to the memory pool of {pool}: \
                 MemoryPool::grant_access gives it"
            ),
            Self::NotRegistered => f.write_str(
                "the pinned memory was allocated by the driver: there is no vector to give back",
            ),
            Self::TooLarge { len, size } => {
                write!(
                    f,
                    "{len} elements of {size} bytes are more than can be addressed"
                )
            }
            Self::FillSize { size } => write!(
                f,
                "memory can be set to patterns of 1, 2 and 4 bytes, not of {size}"
            ),
            Self::ContextStack { expected, found } => write!(
                f,
                "the thread's current context should be {expected:#x} and is {found:#x}: somebody \
                 changed the stack of contexts; nothing was popped"
            ),
            Self::GuardOrder { inner } => write!(
                f,
                "a guard of the current context ended before {inner} made after it, or these could \
                 not pop: nothing was popped"
            ),
            Self::ArrayInterface { key, problem } => {
                write!(f, "array interface, {key}: {problem}")
            }
            Self::View { what, problem } => write!(f, "view of an array, {what}: {problem}"),
            Self::Dlpack { field, problem } => write!(f, "DLPack, {field}: {problem}"),
            Self::Handle { what, value } => write!(f, "{value:#x} is no {what}"),
        }
    }
}

impl std::error::Error for Invalid {}
