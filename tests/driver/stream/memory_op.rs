//! Memory operations: words that streams write and wait for.

use crate::common;
use crate::graph::launched;
use crate::module::kernels::pinned;
use cuda_safe::device::attribute;
use cuda_safe::memory::ManagedBuffer;
use cuda_safe::stream::{AtomicReduction, BarrierScope, MemoryOperation, WaitCondition};
use cuda_safe::{Context, DeviceBuffer, Graph, Invalid, Result, Stream, sys};

fn write(address: u64, value: u32) -> MemoryOperation {
    MemoryOperation::Write32 { address, value }
}

fn wait(address: u64, value: u32, condition: WaitCondition) -> MemoryOperation {
    MemoryOperation::Wait32 { address, value, condition, flush: false }
}

/// Enqueues memory operations on words of buffers that outlive the work of the streams and have no
/// other use.
fn give(stream: &Stream, operations: &[MemoryOperation]) {
    // SAFETY: see above.
    unsafe { stream.memory_operations(operations) }.expect("enqueued");
}

#[test]
fn elements_are_written_in_stream_order() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let mut words = DeviceBuffer::<u32>::zeroed_sync(&stream, 4).expect("memory");
    words.as_mut_slice().write_value(1, 7).expect("enqueued");
    words.as_mut_slice().write_value(3, u32::MAX).expect("enqueued");
    assert_eq!(words.to_vec().expect("a copy"), [0, 7, 0, u32::MAX]);
    for index in [4, usize::MAX] {
        let invalid = common::invalid(words.as_mut_slice().write_value(index, 1));
        assert!(matches!(invalid, Invalid::Range { .. }), "{invalid}");
    }
    let wide = context.device().attribute(attribute::CAN_USE_64_BIT_STREAM_MEM_OPS);
    if wide.is_ok_and(|wide| wide) {
        let mut words = DeviceBuffer::<u64>::zeroed_sync(&stream, 2).expect("memory");
        words.as_mut_slice().write_value(1, 1 << 40).expect("enqueued");
        assert_eq!(words.to_vec().expect("a copy"), [0, 1 << 40]);
    }
}

/// In a child process: while a stream waits for a word, a module load or a free of synchronous
/// memory on another thread waits for that stream, and the driver blocks the call that would write
/// the word.
#[test]
fn a_stream_waits_for_a_word_that_another_stream_writes() {
    common::child::with_context(|context| {
        let [producer, consumer] = common::streams(&context);
        let flags = DeviceBuffer::<u32>::zeroed_sync(&producer, 4).expect("memory");
        let mut data = DeviceBuffer::<u32>::zeroed_sync(&producer, 4).expect("memory");
        producer.synchronize().expect("a wait");
        let at = |index: u64| flags.as_raw() + 4 * index;
        let mut result = DeviceBuffer::<u32>::zeroed_sync(&consumer, 4).expect("memory");
        // SAFETY: only the producer writes the data, before it writes the flag.
        let theirs = unsafe { DeviceBuffer::<u32>::borrow_raw(data.as_raw(), 4, &consumer) };
        let theirs = theirs.expect("memory");
        let (least, bit) = (WaitCondition::AtLeast, WaitCondition::AnyBit);
        let equal = WaitCondition::Equal;
        give(&consumer, &[wait(at(0), 3, least), wait(at(1), 5, equal), wait(at(2), 2, bit)]);
        result.copy_from(&theirs).expect("a copy");
        data.fill(9).expect("a fill");
        give(&producer, &[write(at(0), 4), write(at(1), 5), write(at(2), 6)]);
        consumer.synchronize().expect("the words were written");
        assert_eq!(result.to_vec().expect("a copy"), [9; 4]);
        drop(theirs);
        assert_eq!(flags.to_vec().expect("a copy"), [4, 5, 6, 0]);
    });
}

#[test]
fn waits_use_their_condition() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let mut word = DeviceBuffer::<u32>::zeroed_sync(&stream, 2).expect("memory");
    word.copy_from_slice(&[u32::MAX, 0]).expect("a copy");
    let at = word.as_raw();
    give(
        &stream,
        &[
            wait(at, u32::MAX, WaitCondition::Equal),
            wait(at, 1 << 31, WaitCondition::AnyBit),
            // A counter that has wrapped around since.
            wait(at + 4, u32::MAX, WaitCondition::AtLeast),
            MemoryOperation::Barrier(BarrierScope::Device),
            MemoryOperation::Barrier(BarrierScope::System),
        ],
    );
    let nor = context.device().attribute(attribute::CAN_USE_STREAM_WAIT_VALUE_NOR);
    if nor.is_ok_and(|nor| nor) {
        give(&stream, &[wait(at + 4, 1, WaitCondition::Nor)]);
    }
    stream.synchronize().expect("all are there");
}

#[test]
fn single_operations_work_and_pinned_words_are_accepted() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let flag = pinned(&context, &[0]);
    let at = flag.as_ptr().addr() as u64;
    let operations = [
        write(at, 5),
        wait(at, 5, WaitCondition::Equal),
        MemoryOperation::Barrier(BarrierScope::System),
    ];
    for operation in operations {
        // SAFETY: the word outlives the wait below, and nothing else uses it.
        unsafe { stream.memory_operation(operation) }.expect("enqueued");
    }
    stream.synchronize().expect("a wait");
    assert_eq!(flag[0], 5);
}

/// In a child process, for the same reason as the test above.
#[test]
fn words_of_8_bytes_are_written_and_waited_for() {
    common::child::with_context(|context| {
        let wide = attribute::CAN_USE_64_BIT_STREAM_MEM_OPS;
        if !context.device().attribute(wide).is_ok_and(|wide| wide) {
            return common::skip("the device has no 8-byte operations");
        }
        let [producer, consumer] = common::streams(&context);
        let words = DeviceBuffer::<u64>::zeroed_sync(&producer, 2).expect("memory");
        producer.synchronize().expect("a wait");
        let (address, value) = (words.as_raw() + 8, 1 << 40);
        let condition = WaitCondition::AtLeast;
        give(&consumer, &[MemoryOperation::Wait64 { address, value, condition, flush: false }]);
        give(&producer, &[MemoryOperation::Write64 { address, value }]);
        consumer.synchronize().expect("the word was written");
        assert_eq!(words.to_vec().expect("a copy"), [0, value]);
    });
}

#[test]
fn a_batch_that_is_too_long_is_refused() {
    let (_, stream) = or_skip!(common::context_and_stream());
    let word = DeviceBuffer::<u32>::zeroed_sync(&stream, 1).expect("memory");
    give(&stream, &[]);
    let many = vec![write(word.as_raw(), 1); 256];
    // SAFETY: the call is refused and accesses nothing.
    let refused = unsafe { stream.memory_operations(&many) };
    assert_eq!(common::invalid(refused), Invalid::TooManyOperations { count: 256, max: 255 });
    give(&stream, &many[..255]);
    assert_eq!(word.to_vec().expect("a copy"), [1]);
}

#[test]
fn memory_operations_can_be_captured() {
    common::child::with_stream(|_, stream| {
        let mut words = DeviceBuffer::<u32>::zeroed_sync(&stream, 2).expect("memory");
        let graph = stream.capture(cuda_safe::capture::CaptureMode::default(), |_| {
            words.as_mut_slice().write_value(1, 7)
        });
        let graph = graph.expect("a graph").instantiate().expect("an executable graph");
        assert_eq!(words.to_vec().expect("a copy"), [0, 0]);
        // SAFETY: the words are alive and are used on this stream only.
        unsafe { graph.launch_unchecked(&stream) }.expect("a launch");
        assert_eq!(words.to_vec().expect("a copy"), [0, 7]);
    });
}

mod provoked {
    //! Calls that the driver refuses.

    use super::*;

    fn refused(done: Result<()>, kind: &str) {
        match common::invalid(done) {
            Invalid::NoMemoryOperations { memory, .. } => assert_eq!(memory, kind),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn words_in_stream_ordered_and_managed_memory_are_refused_and_the_kind_is_named() {
        let (context, stream) = or_skip!(common::context_and_stream());
        let mut ordered = DeviceBuffer::<u32>::zeroed(&stream, 4).expect("memory");
        let word = ordered.as_raw() + 4;
        for index in 0..4 {
            refused(ordered.as_mut_slice().write_value(index, 7), "stream-ordered");
        }
        let wide = context.device().attribute(attribute::CAN_USE_64_BIT_STREAM_MEM_OPS);
        if wide.is_ok_and(|wide| wide) {
            let mut ordered = DeviceBuffer::<u64>::zeroed(&stream, 2).expect("memory");
            for index in 0..2 {
                refused(ordered.as_mut_slice().write_value(index, 7), "stream-ordered");
            }
        }
        let plain = DeviceBuffer::<u32>::zeroed_sync(&stream, 4).expect("memory");
        let both = [write(plain.as_raw(), 1), write(word, 1)];
        // SAFETY: the words stay alive until the wait below, and nothing else uses them.
        let done = unsafe { stream.memory_operations(&both) };
        refused(done, "stream-ordered");
        assert_eq!(ordered.to_vec().expect("a copy"), [0; 4]);
        let managed = attribute::MANAGED_MEMORY;
        if context.device().attribute(managed).expect("known") {
            let mut managed = ManagedBuffer::<u32>::zeroed(&stream, 4).expect("memory");
            let mut words = managed.device_mut().expect("device access");
            refused(words.write_value(0, 7), "managed");
        }
    }
}

fn reduce(address: u64, value: u32, reduction: AtomicReduction) -> MemoryOperation {
    MemoryOperation::Reduce32 { address, value, reduction }
}

/// Returns whether the driver and the device have atomic operations.
fn has_reductions(context: &Context) -> bool {
    let device = context.device();
    // A driver before CUDA 13.1 does not know the attribute.
    let supported = device.attribute(attribute::ATOMIC_REDUCTION_SUPPORTED);
    supported.is_ok_and(|supported| supported)
}

#[test]
fn atomic_operations_change_words_in_streams_and_graphs() {
    let context = or_skip!(common::context());
    if !has_reductions(&context) {
        return;
    }
    let stream = context.stream().expect("a stream");
    let words = DeviceBuffer::<u32>::zeroed_sync(&stream, 3).expect("memory");
    let wide = DeviceBuffer::<u64>::zeroed_sync(&stream, 1).expect("memory");
    let (start, far) = (words.as_raw(), wide.as_raw());
    give(
        &stream,
        &[
            write(start, u32::MAX),
            reduce(start, 3, AtomicReduction::Add),
            write(start + 4, 0b1100),
            reduce(start + 4, 0b0110, AtomicReduction::And),
            reduce(start + 8, 0b0101, AtomicReduction::Or),
            reduce(start + 8, 0b0011, AtomicReduction::Or),
        ],
    );
    let add =
        MemoryOperation::Reduce64 { address: far, value: 1 << 40, reduction: AtomicReduction::Add };
    // SAFETY: the word outlives the operation, and has no other use.
    unsafe { stream.memory_operation(add) }.expect("enqueued");
    assert_eq!(words.to_vec().expect("a copy"), [2, 0b0100, 0b0111]);

    let mut graph = Graph::new(&context).expect("a graph");
    // SAFETY: the words outlive the launches, and have no other use meanwhile.
    let node = unsafe { graph.add_memory_operations(&[], &[add]) }.expect("a node");
    assert_eq!(graph.memory_operations(node).expect("its operations"), [add]);
    let executable = launched(&graph, &stream);
    executable.launch(&stream).expect("a launch");
    assert_eq!(wide.to_vec().expect("a copy"), [3 << 40]);
}

#[test]
fn atomic_operations_are_refused_by_older_drivers() {
    let context = or_skip!(common::context());
    if cuda_safe::version().expect("a driver") >= sys::CudaVersion::new(13, 1) {
        return common::skip("the driver has atomic operations");
    }
    let stream = context.stream().expect("a stream");
    let word = DeviceBuffer::<u32>::zeroed_sync(&stream, 1).expect("memory");
    let add = reduce(word.as_raw(), 1, AtomicReduction::Add);
    let mut graph = Graph::new(&context).expect("a graph");
    let refused = [
        // SAFETY: the word outlives the operation, and has no other use.
        unsafe { stream.memory_operation(add) },
        // SAFETY: as above.
        unsafe { stream.memory_operations(&[add]) },
        // SAFETY: as above.
        unsafe { graph.add_memory_operations(&[], &[add]) }.map(drop),
    ];
    for refused in refused {
        let why = common::invalid(refused);
        assert!(matches!(why, Invalid::NeedsNewerDriver { .. }), "{why}");
    }
}
