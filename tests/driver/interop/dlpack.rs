use super::LEN;
use crate::common::{self, child};
use crate::module::kernels::Scale;
use cuda_safe::capture::CaptureMode;
use cuda_safe::interop::dlpack::{ConsumerStream, DataType, Export, ManagedTensor, MemoryKind};
use cuda_safe::interop::{ExportedStream, ImportedArray, Layout, StreamSync, TypeString};
use cuda_safe::memory::{ManagedBuffer, MappedBuffer};
use cuda_safe::{Context, DeviceBuffer, Error, Invalid, PinnedBuffer, Stream};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Returns a buffer of a producer with pending work on it.
fn produced(context: &Context) -> DeviceBuffer<i32> {
    let stream = context.stream().expect("a stream");
    let mut buffer = DeviceBuffer::<i32>::zeroed(&stream, LEN).expect("memory");
    Scale::new(context).run(&stream, &mut buffer, 1, 5).expect("a launch");
    buffer
}

/// Exports the memory of the buffer, which keeps ownership.
fn lent<O: Any + Send + std::fmt::Debug>(buffer: &DeviceBuffer<i32>, owner: O) -> Export {
    let layout = Layout::c_contiguous(&[LEN], 4).expect("a layout");
    let device = buffer.stream().context().device().ordinal();
    let (ty, memory) = (DataType::of::<i32>(), MemoryKind::Device);
    Export::new(ty, layout, buffer.as_raw(), memory, device, owner).expect("it is valid")
}

/// Passes an export through a raw pointer, as C code does.
fn received(export: Export) -> ManagedTensor {
    let raw = export.into_raw_versioned();
    // SAFETY: this is the only owner of the pointer.
    let tensor = unsafe { ManagedTensor::from_raw_versioned(raw.as_ptr()) };
    tensor.expect("it is valid")
}

/// Exports the buffer to a consumer whose stream waits for the stream of the buffer.
fn handed_over(buffer: &DeviceBuffer<i32>, stream: &Stream, is_known: bool) -> ManagedTensor {
    let home = buffer.stream();
    // SAFETY: the stream is alive.
    unsafe { ConsumerStream::of(stream).wait_stream(home) }.expect("an order");
    let tensor = received(lent(buffer, ()));
    tensor.with_producer_stream(is_known.then(|| ExportedStream::of(home)))
}

/// Multiplies the elements of an imported array by 10 on its stream, and drops the array.
#[track_caller]
fn use_array(scale: &Scale, mut array: ImportedArray<i32>) {
    let stream = array.stream().clone();
    scale.run(&stream, array.as_mut_slice().expect("writable"), 10, 0).expect("a launch");
}

/// Checks that later work of the producer comes after that of [`use_array`].
#[track_caller]
fn check_returned(scale: &Scale, buffer: &mut DeviceBuffer<i32>) {
    let home = buffer.stream().clone();
    scale.run(&home, &mut *buffer, 1, 1).expect("a launch");
    assert_eq!(buffer.to_vec().expect("a copy"), [51; LEN]);
}

/// Reports that it was dropped.
#[derive(Debug)]
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn field<T>(done: Result<T, impl Into<Error>>) -> &'static str {
    match common::invalid(done) {
        Invalid::Dlpack { field, .. } => field,
        other => panic!("{other}"),
    }
}

#[test]
fn a_tensor_is_ordered_after_its_producer_and_before_its_later_use() {
    let context = or_skip!(common::context());
    let scale = Scale::new(&context);
    for sync in [StreamSync::WaitEvent, StreamSync::Synchronize] {
        for is_known in [false, true] {
            let mut buffer = produced(&context);
            let stream = context.stream().expect("a stream");
            let tensor = handed_over(&buffer, &stream, is_known);
            // SAFETY: the buffer owns the memory and the stream, and is next used after the array
            // is dropped.
            let array = unsafe { tensor.import::<i32>(&stream, sync) }.expect("an import");
            use_array(&scale, array);
            check_returned(&scale, &mut buffer);
        }
    }
}

#[test]
fn a_tensor_is_used_on_its_producers_stream_if_that_is_known() {
    let context = or_skip!(common::context());
    let scale = Scale::new(&context);
    for is_known in [false, true] {
        let mut buffer = produced(&context);
        let stream = context.stream().expect("a stream");
        let tensor = handed_over(&buffer, &stream, is_known);
        // SAFETY: the buffer owns the memory and the stream, and is next used after the array is
        // dropped.
        let array = unsafe { tensor.import::<i32>(&stream, StreamSync::ProducerStream) }
            .expect("an import");
        assert_eq!(array.stream(), if is_known { buffer.stream() } else { &stream });
        use_array(&scale, array);
        check_returned(&scale, &mut buffer);
    }
}

#[test]
fn default_streams_may_be_consumers_and_producers() {
    let context = or_skip!(common::context());
    let scale = Scale::new(&context);
    for consumer in [ConsumerStream::Legacy, ConsumerStream::PerThread] {
        let mut buffer = produced(&context);
        let home = buffer.stream().clone();
        // SAFETY: the handle is a default stream.
        unsafe { consumer.wait_stream(&home) }.expect("an order");
        let stream = context.stream().expect("a stream");
        let exported = match consumer {
            ConsumerStream::Legacy => ExportedStream::Legacy,
            _ => ExportedStream::PerThread,
        };
        let tensor = received(lent(&buffer, ())).with_producer_stream(Some(exported));
        // SAFETY: the buffer outlives the array, and no other work uses it meanwhile.
        let array =
            unsafe { tensor.import::<i32>(&stream, StreamSync::WaitEvent) }.expect("an import");
        use_array(&scale, array);
        // The default stream now waits for the work, and `home` waits for the default stream below.
        let event = context.event().expect("an event");
        let current = context.make_current().expect("a guard");
        let theirs = match consumer {
            ConsumerStream::Legacy => current.legacy_stream(),
            _ => current.per_thread_stream(),
        };
        theirs.record_event(&event).expect("a record");
        home.wait_event(&event).expect("a wait");
        check_returned(&scale, &mut buffer);
    }
}

#[test]
fn the_same_stream_and_ignore_need_no_synchronization() {
    let context = or_skip!(common::context());
    let buffer = produced(&context);
    let stream = buffer.stream();
    for consumer in [ConsumerStream::of(stream), ConsumerStream::NoSync] {
        // SAFETY: the stream is alive.
        unsafe { consumer.wait_stream(stream) }.expect("nothing");
    }
}

#[test]
fn memory_is_returned_after_the_work_of_a_consumer_that_does_not_wait() {
    let context = or_skip!(common::context());
    let scale = Scale::new(&context);
    let mut buffer = produced(&context);
    let home = buffer.stream().clone();
    let theirs = context.stream().expect("a stream");
    let consumer = ConsumerStream::of(&theirs);
    // SAFETY: the stream is alive.
    unsafe { consumer.wait_stream(&home) }.expect("an order");
    let dropped = Arc::new(AtomicBool::new(false));
    let mut export = lent(&buffer, Dropped(Arc::clone(&dropped)));
    // SAFETY: the stream lives until the end of the test.
    unsafe { export.release_after(consumer, &home) }.expect("an event");
    let tensor = received(export);
    // SAFETY: `release_after` orders the later work after the consumer's work.
    let array = unsafe { tensor.import::<i32>(&theirs, StreamSync::Ignore) }.expect("an import");
    use_array(&scale, array);
    assert!(dropped.load(Ordering::SeqCst));
    check_returned(&scale, &mut buffer);
}

#[test]
fn memory_is_returned_after_the_work_of_the_default_stream() {
    let context = or_skip!(common::context());
    let scale = Scale::new(&context);
    let mut buffer = produced(&context);
    let home = buffer.stream().clone();
    let theirs = context.stream().expect("a stream");
    // SAFETY: the stream is alive.
    unsafe { ConsumerStream::of(&theirs).wait_stream(&home) }.expect("an order");
    let mut export = lent(&buffer, ());
    // SAFETY: the handle is the default stream.
    unsafe { export.release_after(ConsumerStream::Legacy, &home) }.expect("an event");
    let tensor = received(export);
    // SAFETY: the default stream is ordered after the work below.
    let mut array =
        unsafe { tensor.import::<i32>(&theirs, StreamSync::Ignore) }.expect("an import");
    scale.run(&theirs, array.as_mut_slice().expect("it is writable"), 10, 0).expect("a launch");
    let event = context.event().expect("an event");
    event.record(&theirs).expect("a record");
    let legacy =
        |current: &cuda_safe::context::CurrentContext| current.legacy_stream().wait_event(&event);
    context.with_current(legacy).expect("a guard").expect("a wait");
    drop(array);
    check_returned(&scale, &mut buffer);
}

/// In a child process, because every thread may process the release queue, and another thread might
/// be processing it.
#[test]
fn memory_released_by_a_consumer_in_a_capture_is_returned_after_it() {
    child::with_context(|context| {
        let (home, theirs) = (produced(&context), context.stream().expect("a stream"));
        let dropped = Arc::new(AtomicBool::new(false));
        let mut export = lent(&home, Dropped(Arc::clone(&dropped)));
        let consumer = ConsumerStream::of(&theirs);
        // SAFETY: the stream lives until the end of the test.
        unsafe { export.release_after(consumer, home.stream()) }.expect("an event");
        let tensor = received(export);
        let capture = theirs.begin_capture(CaptureMode::ThreadLocal).expect("begins");
        drop(tensor);
        assert!(!dropped.load(Ordering::SeqCst));
        capture.end().expect("a valid capture");
        home.stream().synchronize().expect("a wait");
        assert!(dropped.load(Ordering::SeqCst));
    });
}

#[test]
fn a_per_thread_stream_is_refused_as_the_consumer_of_an_export() {
    let context = or_skip!(common::context());
    let buffer = produced(&context);
    let dropped = Arc::new(AtomicBool::new(false));
    let mut export = lent(&buffer, Dropped(Arc::clone(&dropped)));
    // SAFETY: the call is refused and accesses nothing.
    let refused = unsafe { export.release_after(ConsumerStream::PerThread, buffer.stream()) };
    assert_eq!(field(refused), "stream");
    assert!(!dropped.load(Ordering::SeqCst), "the export is unchanged");
    drop(export);
    assert!(dropped.load(Ordering::SeqCst));
}

#[test]
fn a_tensor_takes_ownership_of_its_buffer() {
    let context = or_skip!(common::context());
    for len in [LEN, 0] {
        let stream = context.stream().expect("a stream");
        let buffer = DeviceBuffer::from_slice(&stream, &vec![7u16; len]).expect("memory");
        let export = buffer.into_dlpack();
        let raw = export.expect("a tensor").into_raw();
        // SAFETY: this function is the only owner.
        let tensor = unsafe { ManagedTensor::from_raw(raw.expect("a tensor").as_ptr()) };
        let tensor = tensor.expect("it is valid");
        assert_eq!(tensor.layout().shape(), [len]);
        // SAFETY: the tensor owns the memory and belongs to this stream.
        let array =
            unsafe { tensor.import::<u16>(&stream, StreamSync::WaitEvent) }.expect("an import");
        assert_eq!(array.as_slice().to_vec().expect("a copy"), vec![7; len]);
    }
}

#[test]
fn pinned_and_managed_tensors_are_imported() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let pinned = PinnedBuffer::<f32>::zeroed(&context, 4).expect("memory");
    let mut pinned = MappedBuffer::new(pinned, &stream).expect("it is mapped");
    pinned.host().expect("memory").copy_from_slice(&[1.0; 4]);
    let managed = ManagedBuffer::from_slice(&stream, &[1.0f32; 4]).expect("memory");
    let layout = || Layout::c_contiguous(&[4], 4).expect("a layout");
    let ty = DataType::of::<f32>();
    let (first, second) = (pinned.as_raw(), managed.as_raw());
    for (address, kind) in [(first, MemoryKind::Pinned), (second, MemoryKind::Managed)] {
        let tensor = received(Export::new(ty, layout(), address, kind, 0, ()).expect("valid"));
        // SAFETY: the call is refused and accesses nothing.
        let array =
            unsafe { tensor.import::<f32>(&stream, StreamSync::Synchronize) }.expect("an import");
        assert_eq!(array.as_slice().to_vec().expect("a copy"), [1.0; 4]);
    }
}

#[test]
fn a_tensor_of_another_type_is_refused_and_its_deleter_called() {
    let context = or_skip!(common::context());
    let buffer = produced(&context);
    let stream = buffer.stream();
    let dropped = Arc::new(AtomicBool::new(false));
    let tensor = received(lent(&buffer, Dropped(Arc::clone(&dropped))));
    // SAFETY: the call is refused and accesses nothing.
    let refused = unsafe { tensor.import::<f32>(stream, StreamSync::Ignore) };
    let error = refused.expect_err("int32");
    assert!(error.to_string().contains("int32 where float32"));
    assert!(dropped.load(Ordering::SeqCst));

    // A shared tensor is kept.
    let tensor = Arc::new(received(lent(&buffer, ())));
    let array = tensor.array_interface().expect("an array");
    // SAFETY: the call is refused and accesses nothing.
    let refused = unsafe { array.import::<f32>(stream, StreamSync::Ignore, Arc::clone(&tensor)) };
    refused.expect_err("int32");
    // SAFETY: the buffer outlives the array, and no other work uses it meanwhile.
    let array = unsafe { array.import::<i32>(stream, StreamSync::WaitEvent, tensor) };
    drop(array.expect("an import"));

    let floats: TypeString = "<f4".parse().expect("a type");
    let tensor = received(lent(&buffer, ()));
    // SAFETY: the buffer outlives the array, and no other work uses it meanwhile.
    let array =
        unsafe { tensor.import_untyped(floats, stream, StreamSync::WaitEvent) }.expect("an import");
    assert_eq!(array.dtype().typestr(), "<f4");
    let longs: TypeString = "<i8".parse().expect("a type");
    let tensor = received(lent(&buffer, ()));
    // SAFETY: the call is refused and accesses nothing.
    let refused = unsafe { tensor.import_untyped(longs, stream, StreamSync::Ignore) };
    assert!(refused.expect_err("i8").to_string().contains("8 bytes"));

    let layout = Layout::c_contiguous(&[LEN], 4).expect("a layout");
    let (ty, other) = (DataType::of::<i32>(), context.device().ordinal() + 1);
    let tensor = Export::new(ty, layout, buffer.as_raw(), MemoryKind::Device, other, ());
    let tensor = received(tensor.expect("it is valid"));
    // SAFETY: the call is refused and accesses nothing.
    let refused = unsafe { tensor.import::<i32>(stream, StreamSync::Ignore) };
    assert_eq!(field(refused), "device");

    let tensor = received(lent(&buffer, ()).read_only());
    // SAFETY: the buffer outlives the array, and no other work uses it meanwhile.
    let mut array =
        unsafe { tensor.import::<i32>(stream, StreamSync::WaitEvent) }.expect("an import");
    array.as_mut_slice().expect_err("the array is read-only");
}
