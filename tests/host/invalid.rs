//! `cuda_safe::Invalid`: every text names the given value and the possible ones.

use cuda_safe::manager::IpcKind;
use cuda_safe::memory::{Extent, Region};
use cuda_safe::{Error, Invalid};
use cuda_sys::CudaVersion;

const DRIVER: CudaVersion = CudaVersion::new(12, 4);

/// Returns values of `Invalid`, each with words that its text must contain.
fn refusals() -> Vec<(Invalid, &'static [&'static str])> {
    let mut all = of_devices();
    all.extend(of_modules());
    all.extend(of_memory());
    all.extend(of_options());
    all.extend(of_partitions());
    all.extend(of_layouts());
    all.extend(of_graphs());
    all
}

fn of_graphs() -> Vec<(Invalid, &'static [&'static str])> {
    let (node, other) = ("node 3 (fill)".to_owned(), "node 4 (copy)".to_owned());
    vec![
        (
            Invalid::OtherGraphNode { node: "node 3 of graph 7".to_owned(), graph: 8 },
            &["node 3 of graph 7", "graph 8"],
        ),
        (
            Invalid::NoSuchNode { node: "node 3 of graph 7".to_owned() },
            &["node 3 of graph 7", "removed"],
        ),
        (
            Invalid::NodeKind {
                node: "node 3 of graph 7".to_owned(),
                found: "fill".to_owned(),
                expected: "kernel".to_owned(),
            },
            &["node 3", "fill", "kernel"],
        ),
        (Invalid::RepeatedDependency { node: node.clone() }, &["node 3 (fill)", "twice"]),
        (
            Invalid::Edge { from: node.clone(), to: other.clone(), problem: "exists already" },
            &["node 3", "node 4", "exists already"],
        ),
        (Invalid::EmptyNode { what: "a copy" }, &["a copy"]),
        (
            Invalid::UnknownMemoryOperation { operation: 8, flags: 16 },
            &["type 8", "0x10", "cuGraphBatchMemOpNodeGetParams"],
        ),
        (Invalid::GraphCycle { node: node.clone() }, &["node 3", "cycle"]),
        (
            Invalid::UnorderedAccess { first: node.clone(), second: other, buffer: 12 },
            &["node 3 (fill)", "node 4 (copy)", "buffer 12", "full edge"],
        ),
        (
            Invalid::Instantiation {
                node: Some(node),
                reason: "a reason",
                code: cuda_sys::CUresult::CUDA_ERROR_INVALID_VALUE,
            },
            &["node 3", "a reason", "INVALID_VALUE"],
        ),
        (Invalid::InstantiateOptions, &["device_launch", "auto_free_on_launch"]),
        (Invalid::SecondExecutable { graph: 7 }, &["graph 7"]),
        (Invalid::GraphOwnsMemory { what: "be cloned" }, &["be cloned", "add_child_moved"]),
        (Invalid::BufferOfOtherGraph { buffer: 7, graph: 8 }, &["graph 7", "graph 8"]),
        (Invalid::MemoryNodes { what: "lose nodes" }, &["allocation or free nodes", "lose nodes"]),
        (
            Invalid::UnallocatedAccess {
                node: "node 3 (fill)".to_owned(),
                allocation: 12,
                problem: "a problem",
            },
            &["node 3 (fill)", "allocation 12", "a problem"],
        ),
        (Invalid::FreedTwice { allocation: 12 }, &["allocation 12"]),
        (
            Invalid::AllocationAlive { allocation: 12, is_taken: false },
            &["allocation 12", "add_free", "auto_free_on_launch", "take_allocation"],
        ),
        (
            Invalid::AllocationAlive { allocation: 12, is_taken: true },
            &["allocation 12", "drop the buffer"],
        ),
        (
            Invalid::AllocationOnBorrowedStream { allocation: 12 },
            &["allocation 12", "add_free", "owned stream"],
        ),
        (Invalid::AllocationNotAlive { allocation: 12 }, &["allocation 12", "Launch the graph"]),
        (Invalid::ForeignGraph, &["add_child"]),
        (Invalid::GraphInItself, &["try_clone"]),
        (Invalid::GraphBorrows, &["launch_unchecked"]),
        (Invalid::BorrowedStream, &["launch_unchecked"]),
        (
            Invalid::OtherPartition {
                stream: "a green context of 8 SMs".to_owned(),
                kernel: "the primary context of device 0".to_owned(),
            },
            &["8 SMs", "device 0", "Context::stream"],
        ),
        (Invalid::UnknownGreenContext, &["GreenContext", "capture"]),
        (Invalid::OtherGraph { graph: 7, expected: 8 }, &["from graph 8", "graph 7"]),
        (Invalid::UpdatedFromOtherGraph, &["as a whole"]),
        (
            Invalid::ConditionalHandleOfOtherGraph { handle: 7, graph: 8 },
            &["graph 7", "graph 8", "conditional_handle"],
        ),
        (Invalid::ConditionalHandleUsed { node: "node 3".to_owned() }, &["node 3"]),
        (Invalid::ConditionalHandleWithoutNode { count: 2 }, &["2 conditional handles"]),
        (
            Invalid::NotInBody { node: "host function".to_owned(), reason: "a reason" },
            &["host function", "a reason"],
        ),
        (
            Invalid::NoSuchBody { node: "node 3".to_owned(), index: 5, count: 2 },
            &["node 3", "no body 5", "2 bodies"],
        ),
        (Invalid::NoBodies, &["at least one"]),
        (Invalid::BodyReplaced, &["leaked"]),
        (Invalid::RemovedConditional { node: "node 3".to_owned() }, &["node 3", "removed"]),
        (Invalid::GraphHasConditionals { what: "be cloned" }, &["be cloned", "conditional"]),
        (Invalid::NotDeviceLaunch, &["device_launch"]),
        (Invalid::NotUnicode, &["Unicode"]),
    ]
}

fn of_partitions() -> Vec<(Invalid, &'static [&'static str])> {
    vec![
        (
            Invalid::GroupRequest { index: 3, sm_count: 10, coscheduled: 4, rule: "a rule" },
            &["group 3", "10", "co-scheduled in sets of 4", "a rule"],
        ),
        (
            Invalid::GroupFlagsNeedNewerDriver { since: CudaVersion::new(13, 4), driver: DRIVER },
            &["13.4", "12.4"],
        ),
        (Invalid::GroupFlags { index: 2, flags: 0x30 }, &["0x30", "group 2"]),
        (
            Invalid::GroupsThatDiffer { what: "locality domain", first: 0, other: 1 },
            &["same locality domain", "0 and 1"],
        ),
        (
            Invalid::PartitionInUse { holder: "the decoder".to_owned() },
            &["\"the decoder\"", "streams"],
        ),
        (Invalid::StreamOfPool, &["partition of a pool", "from the partition"]),
        (Invalid::SeveralRests, &["only one"]),
        (
            Invalid::NoSuchPartitions {
                sizes: vec![Some(100), None],
                sm_count: 132,
                single: Some(DRIVER),
            },
            &["132", "100, the rest", "12.5", "12.4"],
        ),
        (
            Invalid::NoSuchPartitions {
                sizes: vec![Some(119), Some(119)],
                sm_count: 132,
                single: Some(DRIVER),
            },
            &["119, 119", "need 238 SMs"],
        ),
        (
            Invalid::NoSuchPartitions {
                sizes: vec![Some(132), None],
                sm_count: 132,
                single: Some(DRIVER),
            },
            &["132, the rest", "no SMs are left for the rest"],
        ),
        (
            Invalid::NoSuchPartitions {
                sizes: vec![Some(65), Some(65)],
                sm_count: 132,
                single: None,
            },
            &["65, 65", "equal_splits"],
        ),
        (Invalid::SecondWorkqueues, &["at most one"]),
        (
            Invalid::WorkqueueSetting { setting: "scope", given: 9, possible: "one of two" },
            &["the scope", "is 9", "one of two"],
        ),
        (Invalid::WorkqueuesOfOtherDevice { its: 1, expected: 0 }, &["device 1", "device 0"]),
        (Invalid::CurrentElsewhere, &["another thread"]),
        (Invalid::GreenContextInUse, &["another thread", "one call"]),
        (Invalid::GreenContextIsCaptured, &["captured", "invalidated"]),
        (
            Invalid::PoolInUse { holder: "the decoder".to_owned(), parts: 2 },
            &["\"the decoder\"", "2 leased partitions", "graphs"],
        ),
        (Invalid::GuardOrder { inner: 2 }, &["2", "nothing was popped"]),
        (Invalid::OpenGuards { guards: 3 }, &["3 guards", "bound to a thread", "end the guards"]),
        (Invalid::StreamIsCaptured, &["captured", "GraphRecorder"]),
        (
            Invalid::NotCaptured { what: "a host function of a graph" },
            &["a host function of a graph", "Stream::capture"],
        ),
        (Invalid::RecorderWithoutGraph, &["destroyed", "new graph"]),
        (
            Invalid::CallsInProgress { what: "begin a capture", calls: 2, last: "an allocation" },
            &["begin a capture", "2 calls", "an allocation", "try again"],
        ),
        (
            Invalid::OtherCapture { what: "record the event in a capture" },
            &["record the event", "another capture"],
        ),
        (Invalid::NotPtx, &[".version"]),
        (Invalid::CudaSource, &["CUDA C++", "NVRTC", "nvcc"]),
    ]
}

#[test]
fn a_pool_without_a_label_is_not_named() {
    let (holder, parts) = (String::new(), 2);
    assert_eq!(
        Invalid::PoolInUse { holder, parts }.to_string(),
        "the partition pool is in use: 2 leased partitions have not been returned. A partition is returned \
         when it, its streams, and the buffers and graphs that use these streams are dropped"
    );
    let text = Invalid::PartitionInUse { holder: String::new() };
    assert!(!text.to_string().contains('"'), "{text}");
}

fn of_layouts() -> Vec<(Invalid, &'static [&'static str])> {
    let extent = Extent::new_3d(5, 6, 7);
    vec![
        (Invalid::Range { start: 3, end: 9, len: 8 }, &["3..9", "8 elements"]),
        (Invalid::ForeignMemory, &["foreign-owned"]),
        (
            Invalid::Region { region: Region::new(extent).at(1, 0, 0), extent, len: 210 },
            &["5 x 6 x 7", "offset 1", "210"],
        ),
        (Invalid::PitchSize { size: 3, pitch: None }, &["16 bytes", "3"]),
        (Invalid::PitchSize { size: 8, pitch: Some(100) }, &["100 bytes", "8 bytes"]),
        (
            Invalid::ArrayInterface { key: "typestr", problem: "\"<x1\": why".to_owned() },
            &["typestr", "\"<x1\": why"],
        ),
        (
            Invalid::View { what: "index", problem: "5 is not within 3".to_owned() },
            &["view", "index", "5 is not within 3"],
        ),
        (
            Invalid::Array { what: "the width", problem: "200000 is more than 131072".to_owned() },
            &["CUDA array", "the width", "200000 is more than 131072"],
        ),
        (
            Invalid::Texture {
                what: "the pitch",
                problem: "20 bytes are no multiple of 32".to_owned(),
            },
            &["texture", "the pitch", "20 bytes are no multiple of 32"],
        ),
        (
            Invalid::Dlpack { field: "ndim", problem: "-1 dimensions".to_owned() },
            &["DLPack", "ndim", "-1 dimensions"],
        ),
    ]
}

fn of_devices() -> Vec<(Invalid, &'static [&'static str])> {
    vec![
        (Invalid::DeviceOrdinal { ordinal: 7, count: 3 }, &["device 7", "is 3"]),
        (
            Invalid::UnknownAttribute {
                attribute: "SOME_ATTRIBUTE",
                since: CudaVersion::new(13, 1),
                driver: DRIVER,
            },
            &["SOME_ATTRIBUTE", "13.1", "12.4"],
        ),
        (
            Invalid::NeedsNewerDriver {
                what: "a dream",
                since: CudaVersion::new(14, 2),
                driver: DRIVER,
            },
            &["a dream", "14.2", "12.4"],
        ),
        (Invalid::SplitAboveResource { min: 200, sm_count: 132 }, &["200", "132"]),
        (Invalid::NoGroups, &["at least one group"]),
        (Invalid::ZeroPartitionSize { index: 2 }, &["partition 2 (zero-based)", "0", "weight"]),
        (Invalid::SplitFlags { flags: 0x30 }, &["0x30"]),
        (Invalid::SplitFlagsNeedNewerDriver { driver: DRIVER }, &["12.5", "12.4"]),
        (
            Invalid::SplitInUse { device: 5, holder: "the decoder".to_owned() },
            &["device 5", "\"the decoder\""],
        ),
        (Invalid::GroupsOfDifferentSplits, &["one split"]),
        (
            Invalid::SeveralGroupsNeedNewerDriver { groups: 6, driver: DRIVER },
            &["6 groups", "12.5", "12.4"],
        ),
        (Invalid::BlockingGreenStream, &["non-blocking"]),
        (
            Invalid::AccessWindow { hit_ratio: "1.5".to_owned(), miss: "Persisting".to_owned() },
            &["1.5", "Persisting", "0 to 1"],
        ),
        (Invalid::TooManyOperations { count: 300, max: 255 }, &["300", "255"]),
        (Invalid::InterprocessTiming, &["interprocess", "timing"]),
        (Invalid::ContextStack { expected: 0xab, found: 0xcd }, &["0xab", "0xcd"]),
        (
            Invalid::OtherContext {
                what: "the event",
                its: "context A".to_owned(),
                expected: "context B".to_owned(),
            },
            &["the event", "context A", "context B"],
        ),
    ]
}

fn of_modules() -> Vec<(Invalid, &'static [&'static str])> {
    let kernel = || "scale".to_owned();
    vec![
        (Invalid::EmptyImage, &["empty"]),
        (Invalid::TruncatedImage { needed: 4096, given: 77 }, &["truncated", "4096", "77"]),
        (Invalid::NotAnImage { starts_with: *b"MZ\x90\0" }, &["4d, 5a, 90, 00"]),
        (Invalid::NulInText { position: 31 }, &["NUL", "31"]),
        (Invalid::PathEncoding, &["path", "Unicode"]),
        (Invalid::PathLength { length: 2000, max: 1023 }, &["2000", "1023"]),
        (Invalid::CoredumpOfProcess { setting: "pipe" }, &["pipe", "CoredumpSettings::apply"]),
        (Invalid::ProcessId { pid: 3_000_000_000 }, &["3000000000"]),
        (
            Invalid::ProcessState { pid: 77, state: "locked", needed: "running" },
            &["77", "is locked", "is running"],
        ),
        (Invalid::NoSuchKernel { name: kernel(), available: None }, &["\"scale\""]),
        (
            Invalid::NoSuchKernel { name: kernel(), available: Some(Vec::new()) },
            &["\"scale\"", "no kernels"],
        ),
        (
            Invalid::NoSuchKernel {
                name: kernel(),
                available: Some(vec!["add".to_owned(), "sub".to_owned()]),
            },
            &["\"scale\"", "add, sub"],
        ),
        (
            Invalid::ArgumentCount { kernel: kernel(), parameters: 4, given: 9 },
            &["\"scale\"", "4 parameters", "9 arguments"],
        ),
        (
            Invalid::ArgumentSize { kernel: kernel(), index: 2, parameter: 8, given: 4 },
            &["\"scale\"", "argument 2 (zero-based)", "4 bytes", "has 8"],
        ),
        (Invalid::LaunchConfig { grid: [0, 1, 2], block: [3, 4, 5] }, &["[0, 1, 2]", "[3, 4, 5]"]),
    ]
}

fn of_memory() -> Vec<(Invalid, &'static [&'static str])> {
    vec![
        (Invalid::OtherManager, &["memory manager"]),
        (
            Invalid::Granularity { what: "the size", bytes: 4097, granularity: 2_097_152 },
            &["the size", "4097", "2097152"],
        ),
        (Invalid::NoAccess { device: 3 }, &["device 3", "Mapping::set_access"]),
        (Invalid::NotMapping, &["mapping of virtual memory"]),
        (
            Invalid::MissingDevices { devices: 4, added: 3 },
            &["4 devices", "3 were added", "MulticastTeam::add"],
        ),
        (Invalid::AboveCapacity { len: 91, capacity: 90 }, &["91", "90"]),
        (Invalid::MemoryIsBeingUnmapped, &["unmapping", "growable buffer", "try again"]),
        (Invalid::NoMemoryManager, &["no memory manager"]),
        (Invalid::ManagerVersion { version: 7, expected: 1 }, &["version 7", "version 1"]),
        (
            Invalid::MemoryLimit { limit: 100, used: 60, asked: 50 },
            &["50 bytes", "limit of 100", "60 bytes are in use"],
        ),
        (
            Invalid::OrderWithoutStream { what: "a dance" },
            &["a dance needs", "Order::NONE", "Order::of"],
        ),
        (Invalid::NotShareable { memory: "odd" }, &["odd memory", "cuMemAlloc", "shareable"]),
        (
            Invalid::IpcKind {
                its: IpcKind::Pool.to_string(),
                expected: IpcKind::Synchronous.to_string(),
            },
            &["memory of a pool", "cuMemAlloc", "imported pool"],
        ),
        (
            Invalid::PoolHandles { supported: 8 | 2 },
            &["POSIX file descriptors", "Windows handles (WIN32), fabric handles"],
        ),
        (Invalid::NotOfPool, &["not allocated from this memory pool"]),
        (
            Invalid::MemoryOfOtherDevice { its: "GPU-1".to_owned(), expected: "GPU-2".to_owned() },
            &["GPU-1", "GPU-2"],
        ),
        (Invalid::ManagerCannot { what: "fly" }, &["memory manager", "cannot fly"]),
        (
            Invalid::OtherStream {
                what: "the buffer".to_owned(),
                its: "0x1".to_owned(),
                expected: "0x2".to_owned(),
            },
            &["the buffer", "0x1", "0x2"],
        ),
        (Invalid::Lengths { source: 10, target: 20 }, &["10", "20"]),
        (Invalid::EmptyChunks, &["at least one element"]),
        (Invalid::SeveralBuffers, &["different pinned buffers"]),
        (
            Invalid::MissingRanges { given: 2, existing: 5 },
            &["2 of the 5 ranges", "drop the others"],
        ),
        (Invalid::MissingRanges { given: 0, existing: 0 }, &["no ranges"]),
        (
            Invalid::Cast { address: 0x1001, size: 10, element: 4, align: 2 },
            &["10 bytes", "0x1001", "4 bytes", "alignment of 2 bytes"],
        ),
        (Invalid::TooLarge { len: usize::MAX, size: 16 }, &["18446744073709551615", "16 bytes"]),
        (Invalid::BorrowedCannotWait, &["borrowed", "owner"]),
        (Invalid::NotRegistered, &["no vector"]),
        (
            Invalid::NoAccessToPool { pool: "device 3".to_owned(), device: 6 },
            &["device 3", "device 6", "grant_access"],
        ),
        (Invalid::FillSize { size: 3 }, &["1, 2 and 4", "3"]),
        (Invalid::DmaBuf { address: 0xabc, bytes: 17 }, &["0xabc", "17", "zeroed_sync"]),
        (Invalid::Residency { part: 50, sample: 60, bytes: 40 }, &["50", "60", "40"]),
        (
            Invalid::TensorMap {
                parameter: "strides",
                given: "[24]".to_owned(),
                rule: "must be multiples of 16 bytes",
            },
            &["strides", "[24]", "multiples of 16 bytes"],
        ),
        (Invalid::Handle { what: "stream", value: 0xbad }, &["0xbad", "stream"]),
    ]
}

fn of_options() -> Vec<(Invalid, &'static [&'static str])> {
    vec![
        (Invalid::NoSuchGlobal { name: "counter".to_owned() }, &["variable \"counter\""]),
        (
            Invalid::GlobalLayout {
                name: "table".to_owned(),
                size: 6,
                address: 0x7000,
                element: 4,
                align: 2,
            },
            &["\"table\"", "6 bytes", "0x7000", "4 bytes", "alignment of 2"],
        ),
        (
            Invalid::JitOption {
                option: "optimization_level",
                given: "5".to_owned(),
                possible: "0 to 4",
            },
            &["optimization_level", "is 5", "0 to 4"],
        ),
        (
            Invalid::JitOptionNeedsNewerDriver {
                option: "split_compile",
                since: CudaVersion::new(13, 0),
                driver: DRIVER,
            },
            &["split_compile", "13.0", "12.4"],
        ),
        (
            Invalid::LaunchAttribute {
                attribute: "cluster",
                given: "[0, 1, 1]".to_owned(),
                possible: "extents of at least 1",
            },
            &["cluster", "is [0, 1, 1]", "at least 1"],
        ),
    ]
}

#[test]
fn every_refusal_names_the_given_value() {
    for (invalid, words) in refusals() {
        let text = invalid.to_string();
        for word in words {
            assert!(text.contains(word), "{invalid:?} prints {text:?}");
        }
        assert!(!text.ends_with('.') && text.trim() == text, "{text:?}");
        // The same text appears in the `Error` it converts to, which has no driver code.
        let error = Error::from(invalid);
        assert_eq!(error.to_string(), text);
        assert_eq!(error.code(), None);
    }
}
