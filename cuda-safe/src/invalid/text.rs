//! What was given and what is possible, in words.

use super::Invalid;
use std::fmt;

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
            Self::WorkqueueSetting {
                setting,
                given,
                possible,
            } => write!(
                f,
                "{given} as the {setting} of work queues: it is {possible}"
            ),
            Self::WorkqueuesOfOtherDevice { its, expected } => write!(
                f,
                "the work queues are of device {its}, and the groups of device {expected}"
            ),
            Self::CurrentElsewhere => f.write_str(
                "the green context is current on another thread: it may be on one at a time",
            ),
            Self::GreenContextInUse => f.write_str(
                "another thread is inside a driver call on the green context, which takes one call at a \
                 time: try again when that call has returned",
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
            Self::StreamOfPool => f.write_str(
                "the stream is of a pool's partition, whose green context is the pool's own: other streams \
                 are to be had of the partition",
            ),
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
            Self::CallsUnderWay { what, calls, last } => write!(
                f,
                "cannot {what} now: {calls} calls on it are under way on other threads (the last to \
                 begin was {last}); end them first, or try again"
            ),
            Self::OtherCapture { what } => write!(
                f,
                "cannot {what}: it belongs to another capture, which has not ended"
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
