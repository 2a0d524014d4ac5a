//! Memory that is exchanged with other libraries: array interfaces, DLPack tensors and views.

pub(crate) mod dlpack;
pub(crate) mod views;

use crate::common::{self, child};
use crate::module::kernels::{LONG, RecordSmid, Scale};
use cuda_safe::capture::CaptureMode;
use cuda_safe::interop::{
    ArrayInterface, ExportedStream, ImportedArray, Index, Kind, Layout, StreamSync, TypeString,
};
use cuda_safe::virtual_memory::{PhysicalMemory, PhysicalOptions, Reservation};
use cuda_safe::{Context, DeviceBuffer, Error, Invalid, Stream};
use std::sync::Arc;

/// The number of elements of an array.
const LEN: usize = if cfg!(miri) { 80 } else { 1 << 12 };

/// The kernels of a test. They stay loaded until its end, because unloading a module waits for the work
/// that should be pending. For the same reason, tests of an order run in a child process: other tests
/// unload modules of the same context.
struct Kernels {
    scale: Scale,
    record: RecordSmid,
}

impl Kernels {
    fn new(context: &Context) -> Self {
        Self { scale: Scale::new(context), record: RecordSmid::new(context) }
    }

    /// Enqueues work that overtakes work of other streams only if these wait for it: about 100 ms on a
    /// GPU, and many operations for the software driver, which selects the next stream at random.
    fn delay(&self, stream: &Stream) {
        let mut smids = self.record.run(stream, 1, LONG);
        for _ in 0..20 {
            smids.fill(0).expect("a fill");
        }
    }

    /// Returns a buffer of a producer with pending work on it, and its array interface.
    fn produced(&self, context: &Context) -> (DeviceBuffer<i32>, ArrayInterface) {
        let stream = context.stream().expect("a stream");
        let mut buffer = DeviceBuffer::<i32>::zeroed(&stream, LEN).expect("memory");
        self.delay(&stream);
        self.scale.run(&stream, &mut buffer, 1, 5).expect("a launch");
        let array = buffer.array_interface().expect("an interface");
        (buffer, array)
    }

    /// Multiplies the elements of an imported array by 10 on its stream, and drops the array.
    #[track_caller]
    fn use_array(&self, mut array: ImportedArray<i32>) {
        let stream = array.stream().clone();
        let slice = array.as_mut_slice().expect("it is writable");
        self.scale.run(&stream, slice, 10, 0).expect("a launch");
    }

    /// Checks that later work of the producer comes after that of [`use_array`](Self::use_array).
    #[track_caller]
    fn check_returned(&self, buffer: &mut DeviceBuffer<i32>) {
        let home = buffer.stream().clone();
        self.scale.run(&home, &mut *buffer, 1, 1).expect("a launch");
        assert_eq!(buffer.to_vec().expect("a copy"), [51; LEN]);
    }
}

fn refusal<T>(done: Result<T, impl Into<Error>>) -> &'static str {
    match common::invalid(done) {
        Invalid::ArrayInterface { key, .. } => key,
        other => panic!("{other}"),
    }
}

#[test]
fn an_array_is_ordered_across_streams_in_both_directions() {
    child::with_context(|context| {
        let kernels = Kernels::new(&context);
        for sync in [StreamSync::WaitEvent, StreamSync::Synchronize] {
            let (mut buffer, array) = kernels.produced(&context);
            let stream = context.stream().expect("a stream");
            // SAFETY: the buffer owns the memory and the stream, and is next used after the array is
            // dropped.
            let imported = unsafe { array.import::<i32>(&stream, sync, ()) }.expect("an import");
            assert_eq!((imported.len(), imported.stream()), (LEN, &stream));
            let mut copy = DeviceBuffer::<i32>::uninit(&stream, LEN).expect("memory");
            copy.copy_from(&imported).expect("a copy");
            kernels.delay(&stream);
            kernels.use_array(imported);
            // The producer continues after the consumer's work.
            kernels.check_returned(&mut buffer);
            assert_eq!(copy.to_vec().expect("a copy"), [5; LEN]);
        }
    });
}

#[test]
fn an_array_on_a_default_stream_is_ordered() {
    child::with_context(|context| {
        let kernels = Kernels::new(&context);
        let current = context.make_current().expect("current");
        for exported in [ExportedStream::Legacy, ExportedStream::PerThread] {
            for sync in [StreamSync::WaitEvent, StreamSync::Synchronize] {
                let (buffer, array) = kernels.produced(&context);
                let event = context.event().expect("an event");
                event.record(buffer.stream()).expect("a record");
                let default = match exported {
                    ExportedStream::PerThread => current.per_thread_stream(),
                    _ => current.legacy_stream(),
                };
                default.wait_event(&event).expect("a wait");
                let array = array.with_stream(Some(exported));
                let stream = context.stream().expect("a stream");
                // SAFETY: the buffer outlives the array, and no other work uses it meanwhile.
                let imported =
                    unsafe { array.import::<i32>(&stream, sync, ()) }.expect("an import");
                // A copy to the host would also wait for the legacy stream.
                let mut copy = DeviceBuffer::<i32>::uninit(&stream, LEN).expect("memory");
                copy.copy_from(&imported).expect("a copy");
                drop(imported);
                assert_eq!(copy.to_vec().expect("a copy"), [5; LEN]);
            }
        }
        current.end().expect("innermost");
    });
}

#[test]
fn an_array_on_the_consumers_stream_needs_no_synchronization() {
    let context = or_skip!(common::context());
    let kernels = Kernels::new(&context);
    let (mut buffer, array) = kernels.produced(&context);
    let stream = buffer.stream().clone();
    // SAFETY: the buffer is next used after the array is dropped.
    let imported = unsafe { array.import::<i32>(&stream, StreamSync::WaitEvent, ()) };
    kernels.use_array(imported.expect("an import"));
    kernels.check_returned(&mut buffer);
}

#[test]
fn an_array_without_a_stream_is_returned_after_the_work_on_it() {
    let context = or_skip!(common::context());
    let kernels = Kernels::new(&context);
    for sync in [StreamSync::WaitEvent, StreamSync::Synchronize] {
        let (buffer, array) = kernels.produced(&context);
        buffer.stream().synchronize().expect("a wait");
        let stream = context.stream().expect("a stream");
        let array = array.with_stream(None);
        // SAFETY: the work on the buffer has completed, and the buffer outlives the array.
        let imported = unsafe { array.import::<i32>(&stream, sync, ()) }.expect("an import");
        kernels.delay(&stream);
        kernels.use_array(imported);
        assert!(stream.is_complete().expect("an answer"));
        assert_eq!(buffer.to_vec().expect("a copy"), [50; LEN]);
    }
}

#[test]
fn an_array_imported_with_ignore_is_not_waited_for() {
    child::with_context(|context| {
        let kernels = Kernels::new(&context);
        let (buffer, array) = kernels.produced(&context);
        let other = context.stream().expect("a stream");
        // SAFETY: nothing accesses the memory before the work on the buffer has completed, and the
        // buffer outlives the array.
        let imported =
            unsafe { array.import::<i32>(&other, StreamSync::Ignore, ()) }.expect("an import");
        // The stream has nothing to wait for, and neither has the host.
        other.synchronize().expect("a wait");
        let is_complete = || buffer.stream().is_complete().expect("a query");
        assert!(!is_complete(), "the import waits for the producer");
        buffer.stream().synchronize().expect("a wait");
        assert_eq!(imported.as_slice().to_vec().expect("a copy")[7], 5);
        // The producer does not wait either.
        kernels.delay(&other);
        drop(imported);
        buffer.stream().synchronize().expect("a wait");
        assert!(!other.is_complete().expect("a query"), "the producer waits for the consumer");
        other.synchronize().expect("a wait");
    });
}

#[test]
fn an_array_of_another_type_is_refused_and_its_owner_dropped() {
    let context = or_skip!(common::context());
    let kernels = Kernels::new(&context);
    let (_buffer, array) = kernels.produced(&context);
    let stream = context.stream().expect("a stream");
    let owner = Arc::new(());
    // SAFETY: the call is refused and accesses nothing.
    let other = unsafe { array.import::<f32>(&stream, StreamSync::Ignore, Arc::clone(&owner)) };
    assert_eq!(refusal(other), "typestr");
    assert_eq!(Arc::strong_count(&owner), 1);

    let ty = TypeString::native(Kind::Int, 4).expect("i4");
    let of =
        |layout: Layout, address| ArrayInterface::new(ty, layout, address).expect("an interface");
    let (base, all) = (array.address(), LEN);
    let contiguous = |len: usize| Layout::c_contiguous(&[len], 4).expect("a layout");
    let cases = [
        (of(Layout::strided(&[8], &[8], 4).expect("a layout"), base), "strides"),
        (of(contiguous(all + 1), base), "data"),
        (of(contiguous(8), base + 2), "data"),
        (of(contiguous(8), base + 4 * (all as u64 - 4)), "data"),
        (of(contiguous(8), base).with_mask(Some(of(contiguous(8), base))), "mask"),
    ];
    for (array, key) in cases {
        // SAFETY: the call is refused and accesses nothing.
        let refused = unsafe { array.import::<i32>(&stream, StreamSync::Ignore, ()) };
        assert_eq!(refusal(refused), key);
    }
    let read_only = of(contiguous(8), base).read_only();
    // SAFETY: the buffer outlives the array, and no other work uses it meanwhile.
    let mut imported =
        unsafe { read_only.import::<i32>(&stream, StreamSync::Ignore, ()) }.expect("an import");
    assert!(imported.is_read_only());
    assert_eq!(refusal(imported.as_mut_slice().map(|_| ())), "data");
}

/// As in expandable segments of PyTorch.
#[test]
fn an_array_may_lie_in_several_mappings_of_a_reservation() {
    let (context, stream) = or_skip!(common::context_and_stream());
    or_skip!(common::has_virtual_memory(&context.device()));
    let size = PhysicalOptions::new(context.device()).granularity().expect("the granularity");
    let space = Reservation::new(4 * size).expect("a reservation");
    let map = |offset| {
        let memory = PhysicalMemory::new(context.device(), size).expect("physical memory");
        space.map(offset, memory).expect("a mapping")
    };
    let _mappings = [map(0), map(size), map(3 * size)];
    let import = |start: usize, len: usize| {
        let layout = Layout::c_contiguous(&[len], 1).expect("a layout");
        let bytes = TypeString::native(Kind::Uint, 1).expect("u1");
        let array = ArrayInterface::new(bytes, layout, space.address() + start as u64);
        let array = array.expect("an interface");
        // SAFETY: the memory outlives the array, and no other work uses it.
        unsafe { array.import::<u8>(&stream, StreamSync::Ignore, ()) }.map(drop)
    };
    import(size - 1, 2).expect("both bytes are mapped");
    import(0, 2 * size).expect("all bytes are mapped");
    for (start, len, words) in [
        (size, size + 1, "no memory is mapped"),
        (2 * size - 1, size + 2, "no memory is mapped"),
        (3 * size, size + 1, "exceeds the allocation"),
    ] {
        match common::invalid(import(start, len)) {
            Invalid::ArrayInterface { key: "data", problem } => {
                assert!(problem.contains(words), "{problem}");
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn an_empty_array_is_imported() {
    let context = or_skip!(common::context());
    let stream: Stream = context.stream().expect("a stream");
    let empty = DeviceBuffer::<f64>::zeroed(&stream, 0).expect("no memory");
    let array = empty.array_interface().expect("an interface");
    assert_eq!(array.to_raw().data, Some((0, false)));
    let other = context.stream().expect("a stream");
    // SAFETY: the array is empty.
    let imported =
        unsafe { array.import::<f64>(&other, StreamSync::WaitEvent, empty) }.expect("an import");
    assert!(imported.is_empty());
    assert!(imported.as_slice().to_vec().expect("no copy").is_empty());
}

#[test]
fn an_untyped_import_accepts_any_type_and_layout() {
    let context = or_skip!(common::context());
    let kernels = Kernels::new(&context);
    let (buffer, array) = kernels.produced(&context);
    let stream = buffer.stream();
    let (base, size) = (array.address(), 4 * LEN as isize);
    let layout = |shape: &[usize], strides: &[isize], item| {
        Layout::strided(shape, strides, item).expect("a layout")
    };
    let dtype = |text: &str| -> TypeString { text.parse().expect("a type") };
    let reversed = layout(&[5, 2], &[-64, 4], 2);
    let array = ArrayInterface::new(dtype(">f2"), reversed.clone(), base + 256).expect("right");
    // SAFETY: the buffer owns the stream and outlives the array.
    let imported =
        unsafe { array.import_untyped(stream, StreamSync::WaitEvent, ()) }.expect("an import");
    assert_eq!(imported.as_raw(), base + 256);
    assert_eq!(imported.dtype().typestr(), ">f2");
    assert_eq!(*imported.layout(), reversed);
    assert!(!imported.is_read_only());
    drop(imported);
    let beyond = [
        (reversed, base + 255),
        (layout(&[2], &[size], 1), base),
        (layout(&[3], &[0], 4), base + size as u64 - 2),
    ];
    for (layout, address) in beyond {
        let bytes = dtype(&format!("|V{}", layout.item_size()));
        let array = ArrayInterface::new(bytes, layout, address).expect("right");
        // SAFETY: the call is refused and accesses nothing.
        let refused = unsafe { array.import_untyped(stream, StreamSync::Ignore, ()) };
        assert_eq!(refusal(refused), "data");
    }
}

#[test]
fn an_array_is_used_on_the_stream_of_its_producer() {
    let context = or_skip!(common::context());
    let kernels = Kernels::new(&context);
    let (mut buffer, array) = kernels.produced(&context);
    let stream = context.stream().expect("a stream");
    let owner = Arc::new(());
    let sync = StreamSync::ProducerStream;
    // SAFETY: the buffer owns the memory and the stream, and is next used after the array is
    // dropped.
    let imported = unsafe { array.import::<i32>(&stream, sync, Arc::clone(&owner)) };
    let imported = imported.expect("an import");
    assert_eq!(imported.stream(), buffer.stream());
    let theirs = imported.stream().clone();
    kernels.use_array(imported);
    kernels.check_returned(&mut buffer);
    // A clone of the stream keeps the owner alive.
    assert_eq!(Arc::strong_count(&owner), 2);
    let bound = DeviceBuffer::<u8>::zeroed(&theirs, 8).expect("memory");
    drop(theirs);
    assert_eq!(Arc::strong_count(&owner), 2);
    drop(bound);
    assert_eq!(Arc::strong_count(&owner), 1);
}

#[test]
fn the_consumers_stream_is_used_if_the_producer_gives_none() {
    let context = or_skip!(common::context());
    let kernels = Kernels::new(&context);
    for exported in [None, Some(ExportedStream::Legacy), Some(ExportedStream::PerThread)] {
        let (buffer, array) = kernels.produced(&context);
        buffer.stream().synchronize().expect("a wait");
        let array = array.with_stream(exported);
        let stream = context.stream().expect("a stream");
        // SAFETY: the buffer outlives the array, and no other work uses it meanwhile.
        let imported = unsafe { array.import::<i32>(&stream, StreamSync::ProducerStream, ()) };
        let imported = imported.expect("an import");
        assert_eq!(*imported.stream(), stream);
        kernels.delay(&stream);
        kernels.use_array(imported);
        if exported != Some(ExportedStream::Legacy) {
            assert!(stream.is_complete().expect("an answer"));
        }
        stream.synchronize().expect("a wait");
        assert_eq!(buffer.to_vec().expect("a copy"), [50; LEN]);
    }
}

#[test]
fn a_producer_stream_that_is_captured_or_of_another_context_is_refused() {
    let (context, other) = or_skip!(common::two_contexts());
    let kernels = Kernels::new(&context);
    let (buffer, array) = kernels.produced(&context);
    let stream = context.stream().expect("a stream");
    let sync = StreamSync::ProducerStream;
    let capture = buffer.stream().begin_capture(CaptureMode::ThreadLocal);
    let capture = capture.expect("a capture");
    // SAFETY: the call is refused and accesses nothing.
    let refused = unsafe { array.import::<i32>(&stream, sync, ()) };
    assert_eq!(common::invalid(refused), Invalid::StreamIsCaptured);
    let joined = ExportedStream::joined(&stream, [buffer.stream()]);
    assert_eq!(common::invalid(joined), Invalid::StreamIsCaptured);
    drop(capture.end().expect("a graph"));

    let foreign = other.stream().expect("a stream");
    let array = array.with_stream(Some(ExportedStream::of(&foreign)));
    // SAFETY: the call is refused and accesses nothing.
    let refused = common::invalid(unsafe { array.import::<i32>(&stream, sync, ()) });
    assert!(matches!(refused, Invalid::OtherContext { .. }), "{refused}");
}

#[test]
fn streams_with_work_on_an_array_are_joined_into_the_exported_stream() {
    child::with_context(|context| {
        let kernels = Kernels::new(&context);
        let (mut buffer, _) = kernels.produced(&context);
        let home = buffer.stream().clone();
        home.synchronize().expect("a wait");
        let [side, other] = common::streams(&context);
        let (low, high) = buffer.as_mut_slice().split_at(LEN / 2).expect("two parts");
        for (stream, part) in [(&side, low), (&other, high)] {
            let whole = LEN / 2;
            // SAFETY: the buffer stays alive, its stream has no work on it, and the parts do not
            // overlap.
            let foreign = unsafe { DeviceBuffer::from_foreign(part.as_raw(), whole, stream, ()) };
            let mut foreign = foreign.expect("memory");
            kernels.delay(stream);
            kernels.scale.run(stream, &mut foreign, 10, 0).expect("a launch");
        }
        let stream = ExportedStream::joined(&home, [&side, &home, &other]).expect("joined");
        assert_eq!(stream, ExportedStream::of(&home));
        let array = buffer.array_interface().expect("an interface");
        let array = array.with_stream(Some(stream));
        let consumer = context.stream().expect("a stream");
        // SAFETY: the buffer owns the memory and the stream, and outlives the array.
        let imported = unsafe { array.import::<i32>(&consumer, StreamSync::WaitEvent, ()) }
            .expect("an import");
        assert_eq!(imported.as_slice().to_vec().expect("a copy"), [50; LEN]);
    });
}

#[test]
fn a_mask_is_imported_on_request() {
    let (context, home) = or_skip!(common::context_and_stream());
    let values = DeviceBuffer::from_slice(&home, &[1i32, 2, 3, 4, 5, 6]).expect("memory");
    let side = context.stream().expect("a stream");
    let valid = DeviceBuffer::from_slice(&side, &[1u8, 0, 2]).expect("memory");
    let of = |text: &str, shape: &[usize], buffer: &dyn Fn() -> u64| {
        let ty: TypeString = text.parse().expect("a type");
        let layout = Layout::c_contiguous(shape, ty.item_size()).expect("a layout");
        ArrayInterface::new(ty, layout, buffer()).expect("an interface")
    };
    let whole = |mask: ArrayInterface| {
        of("<i4", &[2, 3], &|| values.as_raw())
            .with_stream(Some(ExportedStream::of(&home)))
            .with_mask(Some(mask))
    };
    let mask = of("|b1", &[3], &|| valid.as_raw()).with_stream(Some(ExportedStream::of(&side)));
    let array = whole(mask.clone());
    let stream = context.stream().expect("a stream");
    // SAFETY: the call is refused and accesses nothing.
    let refused = unsafe { array.import_untyped(&stream, StreamSync::WaitEvent, ()) };
    assert_eq!(refusal(refused), "mask");
    for sync in [StreamSync::Synchronize, StreamSync::WaitEvent, StreamSync::ProducerStream] {
        // SAFETY: the buffers own the memory and the streams, and outlive the arrays.
        let imported = unsafe { array.import_masked(&stream, sync, ()) }.expect("an import");
        let view = imported.mask_view().expect("bytes").expect("a mask");
        assert_eq!(view.layout().shape(), [2, 3]);
        let row = view.index(&[Index::At(1)]).expect("a row");
        assert_eq!(row.to_vec().expect("a copy"), [1, 0, 2]);
        assert_eq!(view.stream(), imported.stream());
        let values = imported.view::<i32>().expect("of that type");
        assert_eq!(values.to_vec().expect("a copy"), [1, 2, 3, 4, 5, 6]);
    }
    // An array without a mask imports with no mask. An array of numbers imports as its own type. A
    // mask in an unknown place is refused.
    // SAFETY: as above.
    let plain =
        unsafe { mask.import_masked(&stream, StreamSync::WaitEvent, ()) }.expect("an import");
    assert!(plain.mask().is_none() && plain.mask_view().expect("none").is_none());
    let numbers = whole(of("<i4", &[3], &|| values.as_raw()));
    // SAFETY: as above.
    let numbers = unsafe { numbers.import_masked(&stream, StreamSync::WaitEvent, ()) };
    let numbers = numbers.expect("an import");
    assert_eq!(refusal(numbers.mask_view()), "mask");
    let mask = numbers.mask().expect("a mask");
    let mask = mask.view::<i32>().expect("of that type");
    assert_eq!(mask.to_vec().expect("a copy"), [1, 2, 3]);
    let beyond = whole(of("|b1", &[3], &|| valid.as_raw() + 1));
    // SAFETY: the call is refused and accesses nothing.
    let beyond = unsafe { beyond.import_masked(&stream, StreamSync::WaitEvent, ()) };
    assert_eq!(refusal(beyond), "data");
}
