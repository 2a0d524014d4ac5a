//! The messages of [`Invalid`].

use super::Invalid;
use std::fmt;

impl fmt::Display for Invalid {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DeviceOrdinal { ordinal, count } => {
                write!(
                    f,
                    "there is no device {ordinal}: the number of devices is {count}, and ordinals \
                     start at 0"
                )
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
                "cannot split {sm_count} SMs into groups of at least {min} SMs"
            ),
            Self::NoGroups => f.write_str(
                "no groups of SMs: a split, a partition request and a green context need at least one group",
            ),
            Self::ZeroPartitionSize { index } => write!(
                f,
                "the requested size of partition {index} (zero-based) is 0: request at least 1 SM, 1 percent \
                 or the weight 1"
            ),
            Self::SplitFlags { flags } => write!(
                f,
                "split flags {flags:#x} are not valid: set either 1 (ignore co-scheduling) or 2 \
                 (maximum potential cluster size), or neither"
            ),
            Self::SplitFlagsNeedNewerDriver { driver } => {
                write!(f, "split flags need CUDA 12.5; this driver offers {driver}")
            }
            Self::SplitInUse { device, holder } => {
                write!(f, "the SMs of device {device} are already partitioned")?;
                if !holder.is_empty() {
                    write!(f, " by \"{holder}\"")?;
                }
                f.write_str(
                    ": another split would assign the same SMs again (Overlap::Allow permits this)",
                )
            }
            Self::GroupRequest {
                index,
                sm_count,
                coscheduled,
                rule,
            } => {
                write!(f, "group {index} (zero-based) with {sm_count} SMs")?;
                if *coscheduled != 0 {
                    write!(f, ", co-scheduled in sets of {coscheduled}")?;
                }
                write!(f, ": {rule}")
            }
            Self::GroupFlags { index, flags } => write!(
                f,
                "the flags {flags:#x} of group {index} (zero-based) are not valid: the known flags \
                 are 1 (backfill), 2 (locality domain) and 4 (supplemental SMs of other locality \
                 domains)"
            ),
            Self::GroupFlagsNeedNewerDriver { since, driver } => write!(
                f,
                "the flags of the group need CUDA {since}; this driver offers {driver}"
            ),
            Self::SeveralRests => f.write_str("only one partition can have the size \"the rest\""),
            Self::NoSuchPartitions {
                sizes,
                sm_count,
                single,
            } => {
                let size =
                    |size: &Option<u32>| size.map_or("the rest".to_owned(), |n| n.to_string());
                let names: Vec<String> = sizes.iter().map(size).collect();
                let total: u64 = sizes.iter().flatten().map(|size| u64::from(*size)).sum();
                let left = u64::from(*sm_count).checked_sub(total);
                write!(
                    f,
                    "cannot split {sm_count} SMs into partitions of {}: ",
                    names.join(", ")
                )?;
                match (left, single) {
                    (None, _) => write!(f, "they need {total} SMs"),
                    (Some(0), _) if sizes.contains(&None) => {
                        f.write_str("no SMs are left for the rest")
                    }
                    (_, Some(driver)) => write!(
                        f,
                        "a partition of several groups needs CUDA 12.5; this driver offers {driver}"
                    ),
                    (_, None) => f.write_str(
                        "the sizes do not fit after rounding; SmResource::equal_splits returns \
                         sizes that are possible",
                    ),
                }
            }
            Self::SecondWorkqueues => f.write_str(
                "the descriptor already has work queues: a green context has at most one set of \
                 them",
            ),
            Self::WorkqueueSetting {
                setting,
                given,
                possible,
            } => write!(
                f,
                "the {setting} of work queues must be {possible}, but is {given}"
            ),
            Self::WorkqueuesOfOtherDevice { its, expected } => write!(
                f,
                "the work queues belong to device {its}, but the groups of SMs belong to device \
                 {expected}"
            ),
            Self::CurrentElsewhere => f.write_str(
                "the green context is current on another thread: it can be current on only one \
                 thread at a time",
            ),
            Self::GreenContextInUse => f.write_str(
                "another thread is in a driver call on the green context, which allows one call at \
                 a time: try again after that call has returned",
            ),
            Self::GreenContextIsCaptured => f.write_str(
                "a stream of the green context, or the event, was being captured: recording or \
                 waiting for an event on the whole green context has invalidated the capture",
            ),
            Self::PoolInUse { holder, parts } => {
                f.write_str("the partition pool")?;
                if !holder.is_empty() {
                    write!(f, " \"{holder}\"")?;
                }
                write!(
                    f,
                    " is in use: {parts} leased partitions have not been returned. A partition is returned \
                     when it, its streams, and the buffers and graphs that use these streams are dropped"
                )
            }
            Self::PartitionInUse { holder } => {
                f.write_str("the partition of the pool")?;
                if !holder.is_empty() {
                    write!(f, " \"{holder}\"")?;
                }
                f.write_str(
                    " has streams, or memory that is bound to its streams: drop them before you \
                     split it",
                )
            }
            Self::StreamOfPool => f.write_str(
                "the stream belongs to a partition of a pool, and the pool owns its green context: \
                 create other streams from the partition",
            ),
            Self::GroupsOfDifferentSplits => f.write_str(
                "the groups of a green context must come from one split of one device: groups of \
                 different splits may contain the same SMs",
            ),
            Self::GroupsThatDiffer { what, first, other } => write!(
                f,
                "the groups of a green context must have the same {what}, but two of them have \
                 {first} and {other}"
            ),
            Self::SeveralGroupsNeedNewerDriver { groups, driver } => write!(
                f,
                "{groups} groups in one green context need CUDA 12.5; this driver offers {driver}"
            ),
            Self::BlockingGreenStream => f.write_str(
                "a stream of a green context is always non-blocking and cannot synchronize with \
                 the legacy default stream: set StreamOptions::blocking to false",
            ),
            Self::StreamIsCaptured => f.write_str(
                "the stream is being captured: a capture cannot contain an allocation, an \
                 operation on host memory or a host function, because the graph would run it \
                 later, several times or never (a GraphRecorder records copies, host functions and \
                 memory that the graph owns; Stream::capture_host_function captures a function \
                 that the graph owns)",
            ),
            Self::NotCaptured { what } => write!(
                f,
                "{what} is only possible on a stream of a capture that this crate began \
                 (Stream::capture)"
            ),
            Self::RecorderWithoutGraph => f.write_str(
                "a capture of this graph recorder failed, and the driver destroyed the graph: \
                 record a new graph",
            ),
            Self::CallsInProgress { what, calls, last } => write!(
                f,
                "cannot {what} now: {calls} calls on it are in progress (the last to start was {last}); \
                 wait until they return, or try again"
            ),
            Self::OtherCapture { what } => write!(
                f,
                "cannot {what}: it belongs to another capture, which must end first"
            ),
            Self::BorrowedCannotWait => f.write_str(
                "the object was dropped during a capture or in a host function, where it cannot be \
                 released, and its release cannot be deferred, because its context or stream is \
                 only borrowed (use from_foreign, which takes an owner that keeps the handle \
                 alive)",
            ),
            Self::AccessWindow { hit_ratio, miss } => write!(
                f,
                "an access policy with the hit ratio {hit_ratio} and the miss property {miss} is \
                 not valid: the ratio must be from 0 to 1, and the miss property cannot be \
                 persisting"
            ),
            Self::TooManyOperations { count, max } => write!(
                f,
                "{count} memory operations are too many: a batch takes at most {max}"
            ),
            Self::UnknownMemoryOperation { operation, flags } => write!(
                f,
                "the node has a memory operation of type {operation} with the flags {flags:#x}, which \
                 this version of cuda-safe does not know: read it with cuGraphBatchMemOpNodeGetParams"
            ),
            Self::NoMemoryOperations { memory, address } => write!(
                f,
                "a memory operation is not possible at {address:#x}, which is {memory} memory: the \
                 driver supports device memory of cuMemAlloc and pinned memory"
            ),
            Self::InterprocessTiming => {
                f.write_str("an interprocess event cannot record time: create it without timing")
            }
            Self::EmptyImage => f.write_str("the module image is empty"),
            Self::TruncatedImage { needed, given } => write!(
                f,
                "the module image is truncated: its header requires {needed} bytes, but the image \
                 has {given}"
            ),
            Self::NotAnImage { starts_with } => write!(
                f,
                "the module image is not a cubin or fatbin: it starts with the bytes \
                 {starts_with:02x?}"
            ),
            Self::NotPtx => f.write_str(
                "the text is not PTX: PTX starts, after comments, with the directive .version",
            ),
            Self::CudaSource => f.write_str(
                "the text is CUDA C++ source code, not PTX: compile it to PTX first, with NVRTC at \
                 run time (the crate cuda-nvrtc) or with nvcc -ptx",
            ),
            Self::NulInText { position } => {
                write!(f, "the text contains a NUL byte at offset {position}")
            }
            Self::PathEncoding => f.write_str(
                "the path is not valid Unicode, and the driver takes paths as text on this system",
            ),
            Self::PathLength { length, max } => write!(
                f,
                "the path has {length} bytes, and the driver takes at most {max}"
            ),
            Self::CoredumpOfProcess { setting } => write!(
                f,
                "the setting {setting} of core dumps applies to the process, not to a context: use \
                 `CoredumpSettings::apply`"
            ),
            Self::ProcessId { pid } => write!(f, "{pid} is not a process id"),
            Self::ProcessState { pid, state, needed } => write!(
                f,
                "process {pid} is {state}, and the operation needs a process that is {needed}"
            ),
            Self::NoSuchKernel { name, available } => {
                write!(f, "there is no kernel \"{name}\"")?;
                match available {
                    None => Ok(()),
                    Some(names) if names.is_empty() => f.write_str(": the module has no kernels"),
                    Some(names) => write!(f, "; available: {}", names.join(", ")),
                }
            }
            Self::ArgumentCount {
                kernel,
                parameters,
                given,
            } => write!(
                f,
                "kernel \"{kernel}\" takes {parameters} parameters, but {given} arguments were \
                 given"
            ),
            Self::ArgumentSize {
                kernel,
                index,
                parameter,
                given,
            } => write!(
                f,
                "kernel \"{kernel}\": argument {index} (zero-based) has {given} bytes, but the \
                 parameter has {parameter}"
            ),
            Self::NoSuchGlobal { name } => write!(f, "the module has no variable \"{name}\""),
            Self::GlobalLayout {
                name,
                size,
                address,
                element,
                align,
            } => write!(
                f,
                "the variable \"{name}\" ({size} bytes at {address:#x}) is not an array of \
                 elements with {element} bytes and an alignment of {align} bytes"
            ),
            Self::JitOption {
                option,
                given,
                possible,
            } => write!(
                f,
                "the JIT option {option} must be {possible}, but is {given}"
            ),
            Self::JitOptionNeedsNewerDriver {
                option,
                since,
                driver,
            } => write!(
                f,
                "the JIT option {option} needs CUDA {since}; this driver offers {driver}"
            ),
            Self::LaunchAttribute {
                attribute,
                given,
                possible,
            } => write!(
                f,
                "the launch attribute {attribute} must be {possible}, but is {given}"
            ),
            Self::LaunchConfig { grid, block } => write!(
                f,
                "cannot launch a grid of {grid:?} with blocks of {block:?}: every dimension must \
                 be at least 1, and a block must have fewer than 2^32 threads"
            ),
            Self::OtherContext {
                what,
                its,
                expected,
            } => write!(
                f,
                "{what} belongs to {its}, but the operation runs in {expected}"
            ),
            Self::OtherStream {
                what,
                its,
                expected,
            } => write!(
                f,
                "{what} is bound to stream {its}, but the operation runs on stream {expected}"
            ),
            Self::Lengths { source, target } => {
                write!(
                    f,
                    "cannot copy {source} elements to {target} elements: the lengths must be equal"
                )
            }
            Self::Range { start, end, len } => {
                write!(
                    f,
                    "the range {start}..{end} is out of bounds for {len} elements"
                )
            }
            Self::EmptyChunks => f.write_str("chunks must have at least one element"),
            Self::SeveralBuffers => f.write_str("cannot join ranges of different pinned buffers"),
            Self::MissingRanges { given: 0, .. } => f.write_str("there are no ranges to join"),
            Self::MissingRanges { given, existing } => write!(
                f,
                "cannot join {given} of the {existing} ranges of a pinned buffer: wait for the \
                 copies of the other ranges and join all of them, or drop the others"
            ),
            Self::Cast {
                address,
                size,
                element,
                align,
            } => write!(
                f,
                "cannot cast {size} bytes at {address:#x} to elements with {element} bytes and an \
                 alignment of {align} bytes"
            ),
            Self::Region {
                region,
                extent,
                len,
            } => write!(
                f,
                "a region of {} x {} x {} elements at offset {} with a pitch of {} elements and {} \
                 rows per slice is out of bounds for {len} elements, or its rows or slices overlap",
                extent.width, extent.height, extent.depth, region.offset, region.pitch, region.rows
            ),
            Self::PitchSize { size, pitch: None } => write!(
                f,
                "pitched memory cannot have elements of {size} bytes: the driver aligns rows for \
                 elements of 1, 2, 4, 8 and 16 bytes"
            ),
            Self::PitchSize {
                size,
                pitch: Some(pitch),
            } => write!(
                f,
                "a pitch of {pitch} bytes is too small, or is not a multiple of the element size \
                 of {size} bytes"
            ),
            Self::ForeignMemory => f.write_str(
                "the memory is foreign-owned, and its owner relies on the stream that the memory \
                 is bound to: it cannot be shared or bound to another stream",
            ),
            Self::OtherManager => f.write_str(
                "the memory belongs to a memory manager, but the stream's context object has no \
                 manager or a different one",
            ),
            Self::NoMemoryManager => f.write_str(
                "the context has no memory manager: set the manager before you create the context",
            ),
            Self::ManagerVersion { version, expected } => write!(
                f,
                "the memory manager implements interface version {version}, but this crate \
                 requires version {expected}"
            ),
            Self::MemoryLimit { limit, used, asked } => write!(
                f,
                "cannot allocate {asked} bytes: the memory manager has a limit of {limit} bytes, \
                 and {used} bytes are in use"
            ),
            Self::OrderWithoutStream { what } => write!(
                f,
                "{what} needs the order of a stream, but `Order::NONE` has none: use `Order::of`"
            ),
            Self::NotShareable { memory } => write!(
                f,
                "{memory} memory cannot be exported to other processes: export device memory of \
                 cuMemAlloc, or memory of a shareable memory pool"
            ),
            Self::IpcKind { its, expected } => write!(
                f,
                "the handle is for {its}, but this function opens {expected}: a context opens \
                 memory of cuMemAlloc, and an imported pool opens memory of that pool"
            ),
            Self::PoolHandles { supported } => {
                f.write_str(
                    "memory pools are shared as POSIX file descriptors, which this device does not \
                     support; it supports ",
                )?;
                let kinds = [
                    (1, "POSIX file descriptors"),
                    (2, "Windows handles (WIN32)"),
                    (4, "older Windows handles (WIN32_KMT)"),
                    (8, "fabric handles"),
                ];
                let names: Vec<&str> = kinds
                    .iter()
                    .filter(|(bit, _)| supported & bit != 0)
                    .map(|(_, name)| *name)
                    .collect();
                match names.is_empty() {
                    true => write!(f, "no known handle type ({supported:#x})"),
                    false => f.write_str(&names.join(", ")),
                }
            }
            Self::NotOfPool => f.write_str("the buffer was not allocated from this memory pool"),
            Self::MemoryOfOtherDevice { its, expected } => write!(
                f,
                "the shared memory belongs to device {its}, but the context belongs to device \
                 {expected}"
            ),
            Self::ManagerCannot { what } => write!(f, "this memory manager cannot {what}"),
            Self::NoAccessToPool { pool, device } => write!(
                f,
                "device {device} has no read and write access to the memory pool of {pool}: call \
                 MemoryPool::grant_access"
            ),
            Self::NotRegistered => f.write_str(
                "the pinned memory was allocated by the driver and not registered: there is no \
                 vector to return",
            ),
            Self::TooLarge { len, size } => {
                write!(
                    f,
                    "{len} elements of {size} bytes are too large: the size in bytes exceeds the \
                     address space"
                )
            }
            Self::FillSize { size } => write!(
                f,
                "cannot fill memory with a pattern of {size} bytes: the driver supports 1, 2 and 4 \
                 bytes"
            ),
            Self::ContextStack { expected, found } => write!(
                f,
                "the current context of the thread should be {expected:#x}, but is {found:#x}: \
                 other code changed the context stack; nothing was popped"
            ),
            Self::OpenGuards { guards } => write!(
                f,
                "a context cannot be bound to a thread on which {guards} guards of current \
                 contexts are open or were forgotten, because the end of a guard restores the \
                 context before it: bind the context first, or end the guards"
            ),
            Self::GuardOrder { inner } => write!(
                f,
                "a guard of the current context ended before {inner} guards that were created \
                 after it, or those could not pop their context: nothing was popped"
            ),
            Self::ArrayInterface { key, problem } => {
                write!(f, "array interface, {key}: {problem}")
            }
            Self::View { what, problem } => write!(f, "array view, {what}: {problem}"),
            Self::Array { what, problem } => write!(f, "CUDA array, {what}: {problem}"),
            Self::Texture { what, problem } => {
                write!(f, "texture or surface object, {what}: {problem}")
            }
            Self::Dlpack { field, problem } => write!(f, "DLPack, {field}: {problem}"),
            Self::OtherGraphNode { node, graph } => write!(
                f,
                "{node} was given to graph {graph}: a node belongs to the graph that it was added \
                 to (Graph::node_in_clone finds the node of a clone)"
            ),
            Self::NoSuchNode { node } => write!(
                f,
                "{node} does not exist here: it was removed, or added after the graph was \
                 instantiated or cloned"
            ),
            Self::NodeKind {
                node,
                found,
                expected,
            } => write!(f, "{node} is of the kind \"{found}\", not \"{expected}\""),
            Self::RepeatedDependency { node } => {
                write!(f, "{node} appears twice in the dependencies of a new node")
            }
            Self::Edge { from, to, problem } => {
                write!(f, "the edge from {from} to {to} {problem}")
            }
            Self::EmptyNode { what } => write!(
                f,
                "{what} that does nothing cannot be a node of a graph: add an empty node instead"
            ),
            Self::GraphCycle { node } => {
                write!(
                    f,
                    "the edges of the graph form a cycle through or before {node}"
                )
            }
            Self::UnorderedAccess {
                first,
                second,
                buffer,
            } => write!(
                f,
                "{first} and {second} use the same bytes of buffer {buffer}, and at least one of \
                 them writes: add a full edge, or a path of full edges, between them"
            ),
            Self::Instantiation { node, reason, code } => {
                f.write_str("the driver cannot instantiate the graph")?;
                if let Some(node) = node {
                    write!(f, " because of {node}")?;
                }
                write!(f, ": {reason} ({code})")
            }
            Self::InstantiateOptions => f.write_str(
                "an executable graph cannot be launched by kernels and free its memory on launch: \
                 set either device_launch or auto_free_on_launch",
            ),
            Self::SecondExecutable { graph } => write!(
                f,
                "graph {graph} owns memory or has conditional nodes, and has an executable graph \
                 already, whose launches are not ordered with those of another one: drop it first, \
                 and with conditional nodes wait for its launches"
            ),
            Self::GraphOwnsMemory { what } => write!(
                f,
                "the graph owns memory and therefore cannot {what}: move it \
                 (Graph::add_child_moved), or use shared buffers"
            ),
            Self::MemoryNodes { what } => write!(
                f,
                "a graph with allocation or free nodes cannot {what}: build and instantiate another \
                 graph"
            ),
            Self::UnallocatedAccess {
                node,
                allocation,
                problem,
            } => write!(
                f,
                "{node} uses allocation {allocation} of the graph while it is not allocated: \
                 {problem}"
            ),
            Self::FreedTwice { allocation } => write!(
                f,
                "allocation {allocation} of the graph has a free node already"
            ),
            Self::AllocationAlive {
                allocation,
                is_taken,
            } => match is_taken {
                false => write!(
                    f,
                    "allocation {allocation} of an earlier launch is not freed: add a free node \
                     (Graph::add_free), instantiate with auto_free_on_launch, or take the memory \
                     (ExecutableGraph::take_allocation) and drop the buffer before the next launch"
                ),
                true => write!(
                    f,
                    "allocation {allocation} of an earlier launch belongs to a buffer \
                     (ExecutableGraph::take_allocation), or its release is deferred: drop the buffer \
                     before the next launch"
                ),
            },
            Self::AllocationOnBorrowedStream { allocation } => write!(
                f,
                "the launch keeps allocation {allocation}, which is freed later on the stream, but the \
                 stream is borrowed: add a free node (Graph::add_free), or launch on an owned stream"
            ),
            Self::AllocationNotAlive { allocation } => write!(
                f,
                "allocation {allocation} cannot be taken: no launch of this executable graph keeps it. \
                 Launch the graph first, and do not free the allocation with a free node"
            ),
            Self::ForeignGraph => f.write_str(
                "the graph belongs to other code: it cannot be moved into another graph or be \
                 captured into, because this crate does not destroy it (copy it with \
                 Graph::add_child or Graph::try_clone)",
            ),
            Self::GraphInItself => {
                f.write_str("a graph cannot be a child of itself: add a clone (Graph::try_clone)")
            }
            Self::BufferOfOtherGraph { buffer, graph } => write!(
                f,
                "the memory belongs to graph {buffer}, and graph {graph} cannot use it"
            ),
            Self::GraphBorrows => f.write_str(
                "the graph was captured and uses memory that it does not own: launch it with the \
                 unsafe function launch_unchecked, or record it with a GraphRecorder",
            ),
            Self::BorrowedStream => f.write_str(
                "the stream is borrowed and cannot be kept alive until the launch is complete: \
                 launch with the unsafe function launch_unchecked",
            ),
            Self::OtherPartition { stream, kernel } => write!(
                f,
                "the stream belongs to {stream}, but the kernels of the graph run in {kernel}, whatever \
                 stream the graph is launched on: launch it on a stream of the ordinary context \
                 (Context::stream), or add the kernels with the green context"
            ),
            Self::UnknownGreenContext => f.write_str(
                "the stream may belong to a green context that is not known here, so a kernel node \
                 cannot run there: pass the GreenContext, or capture the kernel on the stream",
            ),
            Self::OtherGraph { graph, expected } => write!(
                f,
                "the executable graph was instantiated from graph {expected}, not from graph {graph}"
            ),
            Self::UpdatedFromOtherGraph => f.write_str(
                "the executable graph was updated from another graph, so it is not known which of \
                 its nodes use which memory: update it as a whole",
            ),
            Self::ConditionalHandleOfOtherGraph { handle, graph } => write!(
                f,
                "the conditional handle belongs to graph {handle}, and graph {graph} cannot use it: \
                 create one with Graph::conditional_handle"
            ),
            Self::ConditionalHandleUsed { node } => write!(
                f,
                "the conditional handle belongs to {node}: create a handle for each conditional node"
            ),
            Self::ConditionalHandleWithoutNode { count } => write!(
                f,
                "{count} conditional handles of the graph have no node, and the driver cannot \
                 instantiate such a graph: add a conditional node for each handle"
            ),
            Self::NotInBody { node, reason } => write!(
                f,
                "the body of a conditional node cannot contain this {node}: {reason}"
            ),
            Self::NoSuchBody { node, index, count } => write!(
                f,
                "{node} has no body {index} (zero-based): it has {count} bodies"
            ),
            Self::NoBodies => f.write_str("a switch has at least one body, and 0 were requested"),
            Self::BodyReplaced => f.write_str(
                "the function that changed a body of a conditional node replaced the body by \
                 another graph: the graph that the body belongs to was leaked and cannot be used \
                 any more",
            ),
            Self::RemovedConditional { node } => write!(
                f,
                "{node} cannot be removed: its handle would have no node, and the driver cannot \
                 instantiate such a graph"
            ),
            Self::GraphHasConditionals { what } => write!(
                f,
                "the graph has conditional handles or nodes, or belongs to a conditional node, and \
                 therefore cannot {what}"
            ),
            Self::NotDeviceLaunch => f.write_str(
                "kernels cannot launch the executable graph: instantiate it with the option \
                 device_launch",
            ),
            Self::NotUnicode => f.write_str("the text is not Unicode"),
            Self::Granularity {
                what,
                bytes,
                granularity,
            } => write!(
                f,
                "{what} of {bytes} bytes is not a positive multiple of the granularity, which is \
                 {granularity} bytes"
            ),
            Self::NoAccess { device } => write!(
                f,
                "device {device} cannot read and write this virtual memory: call \
                 Mapping::set_access first"
            ),
            Self::NotMapping => f.write_str("the buffer is not a mapping of virtual memory"),
            Self::MissingDevices { devices, added } => write!(
                f,
                "the multicast object has {devices} devices, of which {added} were added: call \
                 MulticastTeam::add for each, or complete_elsewhere if other processes add the rest"
            ),
            Self::AboveCapacity { len, capacity } => write!(
                f,
                "{len} elements exceed the capacity of the growable buffer, which is {capacity}"
            ),
            Self::MemoryIsBeingUnmapped => f.write_str(
                "another driver call is unmapping memory of the growable buffer: try again after that \
                 call has returned",
            ),
            Self::DmaBuf { address, bytes } => write!(
                f,
                "{bytes} bytes at {address:#x} cannot be exported as a DMA-BUF: pass whole pages of the \
                 host, of a synchronous allocation (DeviceBuffer::zeroed_sync) or of virtual memory"
            ),
            Self::Residency {
                part,
                sample,
                bytes,
            } => write!(
                f,
                "a query in parts of {part} bytes with a sample in every {sample} bytes, of a range of \
                 {bytes} bytes: parts have from 1 byte to the whole range, and samples at most a part"
            ),
            Self::TensorMap {
                parameter,
                given,
                rule,
            } => write!(f, "{parameter} of a tensor map {rule}, and is {given}"),
            Self::Handle { what, value } => write!(f, "{value:#x} is not a valid {what}"),
        }
    }
}
