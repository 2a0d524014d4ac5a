use crate::common::{self, child};
use crate::kernels::Scale;
use crate::need;
use cuda_safe::interop::dlpack::{ConsumerStream, DataType, Export, ManagedTensor, MemoryKind};
use cuda_safe::interop::{ExportedStream, Handover, Layout, TypeString};
use cuda_safe::{
    CaptureMode, Context, DeviceBuffer, Error, Invalid, ManagedBuffer, MappedBuffer, PinnedBuffer,
    Stream,
};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const LEN: usize = 1 << 12;

/// A buffer of a producer, with work on it under way.
fn produced(context: &Context) -> DeviceBuffer<i32> {
    let stream = context.stream().expect("a stream");
    let mut buffer = DeviceBuffer::<i32>::zeroed(&stream, LEN).expect("memory");
    Scale::new(context)
        .run(&stream, &mut buffer, 1, 5)
        .expect("a launch");
    buffer
}

/// Its memory for others, which stays the buffer's.
fn lent<O: Any + Send + std::fmt::Debug>(buffer: &DeviceBuffer<i32>, owner: O) -> Export {
    let layout = Layout::c_contiguous(&[LEN], 4).expect("a layout");
    let device = buffer.stream().context().device().ordinal();
    let (ty, memory) = (DataType::of::<i32>(), MemoryKind::Device);
    Export::new(ty, layout, buffer.as_raw(), memory, device, owner).expect("it is right")
}

/// Through the hands of C.
fn received(export: Export) -> ManagedTensor {
    let raw = export.into_raw_versioned();
    // SAFETY: nobody else has it.
    let tensor = unsafe { ManagedTensor::from_raw_versioned(raw.as_ptr()) };
    tensor.expect("it is right")
}

/// The buffer in the hands of a consumer, whose stream comes behind that of the buffer.
fn handed_over(buffer: &DeviceBuffer<i32>, stream: &Stream, is_known: bool) -> ManagedTensor {
    let home = buffer.stream();
    // SAFETY: the stream is alive.
    unsafe { ConsumerStream::of(stream).wait_for(home) }.expect("an order");
    let tensor = received(lent(buffer, ()));
    tensor.with_producers_stream(is_known.then(|| ExportedStream::of(home)))
}

/// Says whether it was dropped.
#[derive(Debug)]
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn field<T: std::fmt::Debug>(done: Result<T, impl Into<Error>>) -> &'static str {
    match done.map_err(Into::into) {
        Err(Error::Invalid(invalid)) => match *invalid {
            Invalid::Dlpack { field, .. } => field,
            other => panic!("{other}"),
        },
        done => panic!("{done:?}"),
    }
}

#[test]
fn a_tensor_is_in_order_at_both_ends() {
    let context = need!(common::context());
    let scale = Scale::new(&context);
    for handover in [Handover::WaitByEvent, Handover::Synchronize] {
        for is_known in [false, true] {
            let mut buffer = produced(&context);
            let home = buffer.stream().clone();
            let stream = context.stream().expect("a stream");
            let tensor = handed_over(&buffer, &stream, is_known);
            // SAFETY: the buffer, which has the memory and the stream, is used when this is dropped.
            let array = unsafe { tensor.import::<i32>(&stream, handover) };
            let mut array = array.map_err(Error::from).expect("an import");
            let slice = array.as_mut_slice().expect("it may be written");
            scale.run(&stream, slice, 10, 0).expect("a launch");
            drop(array);
            scale.run(&home, &mut buffer, 1, 1).expect("a launch");
            assert_eq!(buffer.to_vec().expect("a copy"), [51; LEN]);
        }
    }
}

#[test]
fn a_tensor_is_worked_on_in_its_producers_stream_where_that_is_known() {
    let context = need!(common::context());
    let scale = Scale::new(&context);
    for is_known in [false, true] {
        let mut buffer = produced(&context);
        let home = buffer.stream().clone();
        let stream = context.stream().expect("a stream");
        let tensor = handed_over(&buffer, &stream, is_known);
        // SAFETY: the buffer, which has the memory and the stream, is used when this is dropped.
        let array = unsafe { tensor.import::<i32>(&stream, Handover::OnProducersStream) };
        let mut array = array.map_err(Error::from).expect("an import");
        let theirs = array.stream().clone();
        assert_eq!(theirs, if is_known { home.clone() } else { stream });
        let slice = array.as_mut_slice().expect("it may be written");
        scale.run(&theirs, slice, 10, 0).expect("a launch");
        drop(array);
        scale.run(&home, &mut buffer, 1, 1).expect("a launch");
        assert_eq!(buffer.to_vec().expect("a copy"), [51; LEN]);
    }
}

#[test]
fn default_streams_ask_and_are_asked_too() {
    let context = need!(common::context());
    let scale = Scale::new(&context);
    for consumer in [ConsumerStream::Legacy, ConsumerStream::PerThread] {
        let mut buffer = produced(&context);
        let home = buffer.stream().clone();
        // SAFETY: it is a default stream.
        unsafe { consumer.wait_for(&home) }.expect("an order");
        let stream = context.stream().expect("a stream");
        let exported = match consumer {
            ConsumerStream::Legacy => ExportedStream::Legacy,
            _ => ExportedStream::PerThread,
        };
        let tensor = received(lent(&buffer, ())).with_producers_stream(Some(exported));
        // SAFETY: the buffer outlives this, and nobody works on it meanwhile.
        let array = unsafe { tensor.import::<i32>(&stream, Handover::WaitByEvent) };
        let mut array = array.map_err(Error::from).expect("an import");
        let slice = array.as_mut_slice().expect("it may be written");
        scale.run(&stream, slice, 10, 0).expect("a launch");
        drop(array);
        // The default stream is behind the work now, and this behind it.
        let event = context.event().expect("an event");
        let current = context.make_current().expect("a guard");
        let theirs = match consumer {
            ConsumerStream::Legacy => current.legacy_stream(),
            _ => current.per_thread_stream(),
        };
        theirs.record(&event).expect("a record");
        home.wait(&event).expect("a wait");
        scale.run(&home, &mut buffer, 1, 1).expect("a launch");
        assert_eq!(buffer.to_vec().expect("a copy"), [51; LEN]);
    }
}

#[test]
fn nothing_is_put_in_order_for_the_same_stream_or_on_demand() {
    let context = need!(common::context());
    let buffer = produced(&context);
    let stream = buffer.stream();
    for consumer in [ConsumerStream::of(stream), ConsumerStream::NoSync] {
        // SAFETY: the stream is alive.
        unsafe { consumer.wait_for(stream) }.expect("nothing");
    }
}

#[test]
fn memory_comes_back_behind_a_consumer_that_does_not_wait() {
    let context = need!(common::context());
    let scale = Scale::new(&context);
    let mut buffer = produced(&context);
    let home = buffer.stream().clone();
    let theirs = context.stream().expect("a stream");
    let consumer = ConsumerStream::of(&theirs);
    // SAFETY: the stream is alive.
    unsafe { consumer.wait_for(&home) }.expect("an order");
    let dropped = Arc::new(AtomicBool::new(false));
    let export = lent(&buffer, Dropped(Arc::clone(&dropped)));
    // SAFETY: the stream lives to the end.
    let export = unsafe { export.behind(consumer, &home) };
    let tensor = received(export.map_err(Error::from).expect("an event"));
    // SAFETY: `behind` sees to the order.
    let array = unsafe { tensor.import::<i32>(&theirs, Handover::Ignore) };
    let mut array = array.map_err(Error::from).expect("an import");
    let slice = array.as_mut_slice().expect("it may be written");
    scale.run(&theirs, slice, 10, 0).expect("a launch");
    drop(array);
    assert!(dropped.load(Ordering::SeqCst));
    scale.run(&home, &mut buffer, 1, 1).expect("a launch");
    assert_eq!(buffer.to_vec().expect("a copy"), [51; LEN]);
}

#[test]
fn memory_comes_back_behind_the_default_stream() {
    let context = need!(common::context());
    let scale = Scale::new(&context);
    let mut buffer = produced(&context);
    let home = buffer.stream().clone();
    let theirs = context.stream().expect("a stream");
    // SAFETY: the stream is alive.
    unsafe { ConsumerStream::of(&theirs).wait_for(&home) }.expect("an order");
    // SAFETY: it is the default stream.
    let export = unsafe { lent(&buffer, ()).behind(ConsumerStream::Legacy, &home) };
    let tensor = received(export.map_err(Error::from).expect("an event"));
    // SAFETY: the default stream is put behind the work below.
    let array = unsafe { tensor.import::<i32>(&theirs, Handover::Ignore) };
    let mut array = array.map_err(Error::from).expect("an import");
    let slice = array.as_mut_slice().expect("it may be written");
    scale.run(&theirs, slice, 10, 0).expect("a launch");
    let event = context.event().expect("an event");
    event.record(&theirs).expect("a record");
    let legacy = |current: &cuda_safe::CurrentContext| current.legacy_stream().wait(&event);
    context
        .with_current(legacy)
        .expect("a guard")
        .expect("a wait");
    drop(array);
    scale.run(&home, &mut buffer, 1, 1).expect("a launch");
    assert_eq!(buffer.to_vec().expect("a copy"), [51; LEN]);
}

/// In a process of its own: what waits for its turn is every thread's to look through, and another one might be
/// at it.
#[test]
fn what_a_consumer_is_done_with_in_a_capture_comes_back_after_it() {
    child::in_child(&[], || {
        let context = need!(common::context());
        let (home, theirs) = (produced(&context), context.stream().expect("a stream"));
        let dropped = Arc::new(AtomicBool::new(false));
        let export = lent(&home, Dropped(Arc::clone(&dropped)));
        // SAFETY: the stream lives to the end.
        let export = unsafe { export.behind(ConsumerStream::of(&theirs), home.stream()) };
        let tensor = received(export.map_err(Error::from).expect("an event"));
        let capture = theirs
            .begin_capture(CaptureMode::ThreadLocal)
            .expect("begins");
        drop(tensor);
        assert!(!dropped.load(Ordering::SeqCst));
        capture.finish().expect("not broken");
        home.stream().synchronize().expect("a wait");
        assert!(dropped.load(Ordering::SeqCst));
    });
}

#[test]
fn the_stream_of_a_thread_is_none_to_come_back_behind() {
    let context = need!(common::context());
    let buffer = produced(&context);
    // SAFETY: it is refused.
    let refused = unsafe { lent(&buffer, ()).behind(ConsumerStream::PerThread, buffer.stream()) };
    assert_eq!(field(refused), "stream");
}

#[test]
fn a_buffer_goes_with_its_tensor() {
    let context = need!(common::context());
    for len in [LEN, 0] {
        let stream = context.stream().expect("a stream");
        let buffer = DeviceBuffer::from_slice(&stream, &vec![7u16; len]).expect("memory");
        let export = buffer.into_dlpack().map_err(Error::from);
        let raw = export.expect("a tensor").into_raw().map_err(Error::from);
        // SAFETY: nobody else has it.
        let tensor = unsafe { ManagedTensor::from_raw(raw.expect("a tensor").as_ptr()) };
        let tensor = tensor.expect("it is right");
        assert_eq!(tensor.layout().shape(), [len]);
        // SAFETY: the tensor owns the memory, and is the stream's own.
        let array = unsafe { tensor.import::<u16>(&stream, Handover::WaitByEvent) };
        let array = array.map_err(Error::from).expect("an import");
        assert_eq!(array.as_slice().to_vec().expect("a copy"), vec![7; len]);
    }
}

#[test]
fn pinned_and_managed_memory_is_taken_as_well() {
    let context = need!(common::context());
    let stream = context.stream().expect("a stream");
    let pinned = PinnedBuffer::<f32>::zeroed(&context, 4).expect("memory");
    let mut pinned = MappedBuffer::new(pinned, &stream).expect("it is mapped");
    pinned.host().expect("memory").copy_from_slice(&[1.0; 4]);
    let managed = ManagedBuffer::from_slice(&stream, &[1.0f32; 4]).expect("memory");
    let layout = || Layout::c_contiguous(&[4], 4).expect("a layout");
    let ty = DataType::of::<f32>();
    let (first, second) = (pinned.as_raw(), managed.as_raw());
    let tensors = [
        Export::new(ty, layout(), first, MemoryKind::Pinned, 0, ()),
        Export::new(ty, layout(), second, MemoryKind::Managed, 0, ()),
    ];
    for export in tensors {
        let tensor = received(export.expect("it is right"));
        // SAFETY: the buffers outlive this, and nobody works on them meanwhile.
        let array = unsafe { tensor.import::<f32>(&stream, Handover::Synchronize) };
        let array = array.map_err(Error::from).expect("an import");
        assert_eq!(array.as_slice().to_vec().expect("a copy"), [1.0; 4]);
    }
}

#[test]
fn a_tensor_that_is_not_what_it_is_taken_for_is_refused_and_given_back() {
    let context = need!(common::context());
    let buffer = produced(&context);
    let stream = buffer.stream();
    let dropped = Arc::new(AtomicBool::new(false));
    let tensor = received(lent(&buffer, Dropped(Arc::clone(&dropped))));
    // SAFETY: it is refused.
    let refused = unsafe { tensor.import::<f32>(stream, Handover::Ignore) };
    let rejected = refused.expect_err("int32");
    assert!(rejected.to_string().contains("int32 where float32"));
    assert!(!dropped.load(Ordering::SeqCst));
    drop(rejected);
    assert!(dropped.load(Ordering::SeqCst));

    let floats: TypeString = "<f4".parse().expect("a type");
    let tensor = received(lent(&buffer, ()));
    // SAFETY: the buffer outlives this, and nobody works on it meanwhile.
    let array = unsafe { tensor.import_untyped(floats, stream, Handover::WaitByEvent) };
    let array = array.map_err(Error::from).expect("an import");
    assert_eq!(array.dtype().typestr(), "<f4");
    let longs: TypeString = "<i8".parse().expect("a type");
    let tensor = received(lent(&buffer, ()));
    // SAFETY: it is refused.
    let refused = unsafe { tensor.import_untyped(longs, stream, Handover::Ignore) };
    assert!(refused.expect_err("i8").to_string().contains("8 bytes"));

    let layout = Layout::c_contiguous(&[LEN], 4).expect("a layout");
    let (ty, other) = (DataType::of::<i32>(), context.device().ordinal() + 1);
    let tensor = Export::new(ty, layout, buffer.as_raw(), MemoryKind::Device, other, ());
    let tensor = received(tensor.expect("it is right"));
    // SAFETY: it is refused.
    let refused = unsafe { tensor.import::<i32>(stream, Handover::Ignore) };
    assert_eq!(field(refused), "device");

    let tensor = received(lent(&buffer, ()).read_only());
    // SAFETY: the buffer outlives this, and nobody works on it meanwhile.
    let array = unsafe { tensor.import::<i32>(stream, Handover::WaitByEvent) };
    let mut array = array.map_err(Error::from).expect("an import");
    array.as_mut_slice().expect_err("it is read-only");
}
