use crate::common;
use crate::module::kernels::{Scale, VECTOR, kernel};
use bytemuck::{Pod, Zeroable};
use cuda_safe::interop::{
    ArrayInterface, ArrayView, ArrayViewMut, Dtype, Field, Index, Kind, Layout, Record, StreamSync,
    TypeString,
};
use cuda_safe::{Context, DeviceBuffer, Error, Invalid, LaunchConfig, TypedKernel};

/// Returns 0, 1, 2, … in rows of a hundred, so that each number shows its place.
fn numbered(context: &Context, shape: [usize; 3]) -> (DeviceBuffer<u32>, Vec<u32>) {
    let stream = context.stream().expect("a stream");
    let [planes, rows, columns] = shape.map(|extent| extent as u32);
    let number = |at: u32| {
        let (plane, row) = (at / (rows * columns), at / columns % rows);
        plane * 10_000 + row * 100 + at % columns
    };
    let numbers: Vec<u32> = (0..planes * rows * columns).map(number).collect();
    let buffer = DeviceBuffer::from_slice(&stream, &numbers).expect("memory");
    (buffer, numbers)
}

#[track_caller]
fn refused<T>(done: Result<T, Error>, expected: &str, words: &str) {
    match common::invalid(done) {
        Invalid::View { what, problem } => {
            assert_eq!(what, expected, "{problem}");
            assert!(problem.contains(words), "{problem}");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn parts_of_an_array_are_copied_out() {
    let context = or_skip!(common::context());
    let (buffer, numbers) = numbered(&context, [3, 4, 5]);
    let array = ArrayView::new(&buffer, &[3, 4, 5]).expect("a view");
    assert_eq!(array.to_vec().expect("a copy"), numbers);
    let (every, at, all) = (Index::step_by, Index::At, Index::ALL);
    let cases: [(&[Index], Vec<u32>); 9] = [
        (&[at(1), at(2), at(3)], vec![10203]),
        (&[at(-1), at(0)], vec![20000, 20001, 20002, 20003, 20004]),
        // A column, which has rows of one element.
        (&[at(0), all, at(2)], vec![2, 102, 202, 302]),
        // Every second element of a row.
        (&[at(0), at(1), every(2)], vec![100, 102, 104]),
        // A plane with gaps between its rows.
        (&[at(2), (1..3).into(), (0..2).into()], vec![20100, 20101, 20200, 20201]),
        // A volume with gaps between rows and planes.
        (
            &[every(2), (2..).into(), (3..).into()],
            vec![203, 204, 303, 304, 20203, 20204, 20303, 20304],
        ),
        // One column of all planes.
        (&[all, every(2), at(4)], vec![4, 204, 10004, 10204, 20004, 20204]),
        (&[Index::NewAxis, Index::Rest, at(0), at(0)], vec![0, 10000, 20000]),
        (&[(2..2).into()], vec![]),
    ];
    for (by, expected) in cases {
        let part = array.index(by).expect("a part");
        assert_eq!(part.to_vec().expect("a copy"), expected, "{by:?}");
    }
    let row = array.index(&[at(1), at(1)]).expect("a row");
    let slice = row.as_slice().expect("it has no gaps");
    assert_eq!(slice.len(), 5);
    let flat = array.reshaped(&[12, 5]).expect("no copy");
    let last = flat.index(&[at(-1)]).expect("a row");
    assert_eq!(last.to_vec().expect("a copy"), numbers[55..]);
}

#[test]
fn views_with_unsupported_strides_are_not_copied() {
    let context = or_skip!(common::context());
    let (mut buffer, _) = numbered(&context, [3, 4, 5]);
    let array = ArrayView::new(&buffer, &[3, 4, 5]).expect("a view");
    let backwards = array.index(&[Index::reversed(1)]).expect("a part");
    let thin = array.index(&[Index::ALL, Index::step_by(3), Index::step_by(2)]).expect("a part");
    assert_eq!(thin.layout().shape(), [3, 2, 3]);
    let wide = array.broadcast_to(&[2, 3, 4, 5]).expect("a broadcast view");
    for view in [array.transposed(), backwards, thin, wide] {
        refused(view.to_vec(), "copy", "in one call");
    }
    refused(array.copy_to_slice(&mut [0; 7]), "copy", "7 elements");
    let one = array.index(&[Index::At(0); 3]).expect("one");
    let huge = one.broadcast_to(&[usize::MAX / 8, 2]).expect("a broadcast view");
    refused(huge.to_vec(), "copy", "addressed");

    let mut array = ArrayViewMut::new(&mut buffer, &[60]).expect("a view");
    refused(array.copy_from_slice(&[0; 61]), "copy", "61 elements");
}

/// A complex number needs only the alignment of its parts.
#[test]
fn strides_that_are_no_multiple_of_the_element_size_are_not_copied() {
    let (_, stream) = or_skip!(common::context_and_stream());
    let mut buffer = DeviceBuffer::<[f32; 2]>::zeroed(&stream, 6).expect("memory");
    let layout = Layout::strided(&[3], &[12], 8).expect("a layout");
    let view = ArrayView::with_layout(&buffer, 0, layout.clone()).expect("aligned");
    refused(view.to_vec(), "copy", "in one call");
    let mut view = ArrayViewMut::with_layout(&mut buffer, 0, layout).expect("aligned");
    refused(view.fill([1.0; 2]), "copy", "in one call");
}

#[test]
fn views_report_the_address_of_their_first_element() {
    let context = or_skip!(common::context());
    let (mut buffer, _) = numbered(&context, [1, 4, 5]);
    let base = buffer.as_raw();
    let part = [Index::At(-1), Index::reversed(2)];
    let array = ArrayView::new(&buffer, &[4, 5]).expect("a view");
    assert_eq!(array.as_raw(), base);
    assert_eq!(array.index(&part).expect("a part").as_raw(), base + 4 * 19);
    let pair = Layout::strided(&[2], &[4], 4).expect("a layout");
    let view = ArrayView::with_layout(&buffer, 18, pair).expect("the last two elements");
    assert_eq!(view.as_raw(), base + 4 * 18);
    let array = ArrayViewMut::new(&mut buffer, &[4, 5]).expect("a view");
    assert_eq!(array.as_raw(), base);
    assert_eq!(array.index(&part).expect("a part").as_raw(), base + 4 * 19);
}

#[test]
fn only_the_selected_parts_of_an_array_are_written() {
    let context = or_skip!(common::context());
    let (mut buffer, mut numbers) = numbered(&context, [3, 4, 5]);
    let array = ArrayViewMut::new(&mut buffer, &[3, 4, 5]).expect("a view");
    let inner = [Index::At(1), (1..3).into(), (1..4).into()];
    let mut part = array.index(&inner).expect("a part");
    part.copy_from_slice(&[1, 2, 3, 4, 5, 6]).expect("a copy");
    assert_eq!(part.as_view().to_vec().expect("a copy"), [1, 2, 3, 4, 5, 6]);
    part.index(&[Index::ALL, Index::At(0)]).expect("a column").fill(9).expect("a fill");
    numbers[26..29].copy_from_slice(&[9, 2, 3]);
    numbers[31..34].copy_from_slice(&[9, 5, 6]);
    assert_eq!(buffer.to_vec().expect("a copy"), numbers);

    // From column to column, and the whole array.
    let array = ArrayViewMut::new(&mut buffer, &[12, 5]).expect("a view");
    let (mut low, high) = array.split_at(1, 2).expect("two parts");
    let high = high.index(&[Index::ALL, (1..).into()]).expect("a part");
    low.copy_from(high.as_view()).expect("a copy");
    for row in numbers.chunks_mut(5) {
        row.copy_within(3..5, 0);
    }
    assert_eq!(buffer.to_vec().expect("a copy"), numbers);
    let stream = buffer.stream().clone();
    let other = DeviceBuffer::from_slice(&stream, &[1u32, 2]).expect("memory");
    let other = ArrayView::new(&other, &[2]).expect("a view");
    let mut array = ArrayViewMut::new(&mut buffer, &[5, 12]).expect("a view");
    refused(array.reborrow().copy_from(other), "copy", "of [2]");
    // An empty array is copied whatever its strides are.
    let (_, nothing) = array.reborrow().split_at(0, 5).expect("two parts");
    let mut nothing = nothing.index(&[Index::ALL, Index::reversed(5)]).expect("a part");
    let own = DeviceBuffer::<u32>::zeroed(&stream, 0).expect("no memory");
    nothing.copy_from(ArrayView::new(&own, &[0, 3]).expect("a view")).expect("no copy");
    nothing.fill(1).expect("no fill");
    assert!(nothing.as_view().to_vec().expect("no copy").is_empty());
    array.fill(7).expect("a fill");
    assert_eq!(buffer.to_vec().expect("a copy"), [7; 60]);
}

#[test]
fn impossible_views_are_refused() {
    let context = or_skip!(common::context());
    let (mut buffer, _) = numbered(&context, [1, 4, 5]);
    let strided =
        |shape: &[usize], strides: &[isize]| Layout::strided(shape, strides, 4).expect("a layout");
    refused(ArrayView::new(&buffer, &[3, 7]), "shape", "20 elements");
    let of = |first, layout| ArrayView::with_layout(&buffer, first, layout);
    of(19, strided(&[20], &[-4])).expect("backwards");
    of(20, strided(&[0], &[4])).expect("nothing");
    of(0, strided(&[1000], &[0])).expect("a broadcast view");
    refused(of(18, strided(&[20], &[-4])), "memory", "beyond 20");
    refused(of(1, strided(&[20], &[4])), "memory", "beyond 20");
    refused(of(usize::MAX, strided(&[], &[])), "memory", "beyond 20");
    refused(of(0, strided(&[2], &[6])), "elements", "aligned to 4");
    refused(of(0, Layout::c_contiguous(&[20], 1).expect("a layout")), "elements", "not 1");
    let array = of(0, strided(&[4, 5], &[20, 4])).expect("a view");
    refused(array.index(&[Index::At(4)]), "index", "index 4 is out of range");
    refused(array.index(&[Index::At(0); 3]), "index", "3 indices");
    refused(array.index(&[Index::step_by(0)]), "index", "step of 0");
    refused(array.index(&[Index::Rest; 2]), "index", "2 times");
    refused(array.permuted(&[0, 0]), "order", "once");
    refused(array.broadcast_to(&[4, 6]), "shape", "broadcast");
    refused(array.transposed().reshaped(&[20]), "shape", "a copy");
    refused(array.reshaped(&[21]), "shape", "as many");

    let twice = ArrayViewMut::with_layout(&mut buffer, 0, strided(&[2, 20], &[0, 4]));
    refused(twice, "elements", "overlap");
    let array = ArrayViewMut::new(&mut buffer, &[4, 5]).expect("a view");
    refused(array.split_at(2, 0), "split", "dimension 2");
    let array = ArrayViewMut::new(&mut buffer, &[4, 5]).expect("a view");
    refused(array.split_at(0, 5), "split", "5 in dimension 0");
}

#[test]
fn a_view_is_an_argument_on_its_stream_only() {
    let (context, [stream, other]) = or_skip!(common::context_and_streams());
    let mut buffer = DeviceBuffer::<i32>::zeroed(&stream, 20).expect("memory");
    let kernel: TypedKernel<(&mut [i32], i32, i32, u32)> = kernel(&context, VECTOR, "scale");
    let config = LaunchConfig::linear(1, 32);
    let array = ArrayViewMut::new(&mut buffer, &[4, 5]).expect("a view");
    let mut row = array.index(&[Index::At(2)]).expect("a row");
    // SAFETY: the kernel accesses the first five elements from that address on, which are the row.
    unsafe { kernel.launch(&stream, config, (&mut row, 0, 7, 5)) }.expect("a launch");
    // SAFETY: as above.
    let refused = unsafe { kernel.launch(&other, config, (&mut row, 0, 7, 5)) };
    assert!(matches!(common::invalid(refused), Invalid::OtherStream { .. }));
    let mut expected = [0; 20];
    expected[10..15].fill(7);
    assert_eq!(buffer.to_vec().expect("a copy"), expected);
}

/// A record of `numpy.dtype([("position", "f4", 3), ("id", "u4")])`.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
struct Particle {
    position: [f32; 3],
    id: u32,
}

#[test]
fn records_and_bools_are_viewed_as_types_of_their_size() {
    let (_, stream) = or_skip!(common::context_and_stream());
    let position = [1.0, 2.0, 3.0];
    let sent = [7, 8].map(|id| Particle { position, id });
    let buffer = DeviceBuffer::from_slice(&stream, &sent).expect("memory");
    let float = TypeString::native(Kind::Float, 4).expect("f4");
    let number = TypeString::native(Kind::Uint, 4).expect("u4");
    let field = |name: &str, offset, ty, shape| Field {
        name: name.to_owned(),
        title: None,
        offset,
        dtype: Dtype::Plain(ty),
        shape,
    };
    let fields = vec![field("position", 0, float, vec![3]), field("id", 12, number, vec![])];
    let record = Dtype::Record(Record::new(fields, 16).expect("a record"));
    let array = |dtype: Dtype, address| {
        let layout = Layout::c_contiguous(&[2], dtype.item_size()).expect("a layout");
        let array = ArrayInterface::new(dtype, layout, address).expect("right");
        // SAFETY: all work on the buffer is on this stream, and the buffer outlives the array.
        let imported = unsafe { array.import_untyped(&stream, StreamSync::Ignore, ()) };
        imported.expect("an import")
    };
    let particles = array(record, buffer.as_raw());
    assert!(particles.view::<u32>().is_err(), "no number");
    let view = particles.view_bits::<Particle>().expect("a view");
    assert_eq!(view.to_vec().expect("a copy"), sent);
    let bool = TypeString::native(Kind::Bool, 1).expect("b1");
    let bools = array(Dtype::Plain(bool), buffer.as_raw() + 12);
    assert!(bools.view::<u8>().is_err(), "another type");
    let view = bools.view_bits::<u8>().expect("a view");
    assert_eq!(view.to_vec().expect("a copy"), 7u32.to_ne_bytes()[..2]);
}

#[test]
fn an_imported_array_is_viewed_as_its_own_type() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let mut buffer = DeviceBuffer::<i32>::zeroed(&stream, 20).expect("memory");
    Scale::new(&context).run(&stream, &mut buffer, 0, 3).expect("a launch");
    let ty = TypeString::native(Kind::Int, 4).expect("i4");
    let column = Layout::strided(&[4], &[20], 4).expect("a layout");
    let of = |layout: Layout, address| ArrayInterface::new(ty, layout, address).expect("right");
    let base = buffer.as_raw();
    let array = of(column.clone(), base + 8);
    // SAFETY: all work on the buffer is on this stream, and the buffer outlives the array.
    let imported = unsafe { array.import_untyped(&stream, StreamSync::Ignore, ()) };
    let mut imported = imported.expect("an import");
    let mut view = imported.view_mut::<i32>().expect("it is writable");
    let exported = view.array_interface().expect("an interface");
    assert!(!exported.is_read_only() && *exported.layout() == column);
    view.copy_from_slice(&[4, 5, 6, 7]).expect("a copy");
    let view = imported.view::<i32>().expect("a view");
    assert_eq!(view.to_vec().expect("a copy"), [4, 5, 6, 7]);
    let exported = view.array_interface().expect("an interface");
    assert!(exported.is_read_only() && exported.stream().is_some());
    let text = imported.view::<f32>().expect_err("i4").to_string();
    assert!(text.contains("typestr"), "{text}");

    let bits = imported.view_bits::<[u8; 4]>().expect("the same size");
    assert_eq!(bits.to_vec().expect("a copy"), [4u32, 5, 6, 7].map(u32::to_ne_bytes));
    let mut bits = imported.view_bits_mut::<f32>().expect("it is writable");
    bits.copy_from_slice(&[1.0; 4]).expect("a copy");
    let view = imported.view::<i32>().expect("a view");
    assert_eq!(view.to_vec().expect("a copy"), [1.0f32.to_bits() as i32; 4]);
    refused(imported.view_bits::<u64>().map(drop), "elements", "of 8 bytes, not 4");

    let odd = of(column.clone(), base + 2);
    let constant = of(column, base).read_only();
    let twice = of(Layout::strided(&[4], &[0], 4).expect("a layout"), base);
    for (array, words) in [(odd, "not aligned"), (constant, "read-only"), (twice, "overlap")] {
        // SAFETY: as above.
        let imported = unsafe { array.import_untyped(&stream, StreamSync::Ignore, ()) };
        let mut imported = imported.expect("an import");
        let text = imported.view_mut::<i32>().expect_err(words).to_string();
        assert!(text.contains(words), "{text}");
        let text = imported.view_bits_mut::<u32>().expect_err(words).to_string();
        assert!(text.contains(words), "{text}");
        let bytes = imported.view_bits::<[u8; 4]>();
        assert!(bytes.is_ok(), "bytes have no alignment");
    }
}
