use crate::common;
use crate::green::{context_alone, partition};
use cuda_safe::memory::{CopyBatch, Extent, PitchedBuffer, Region};
use cuda_safe::{DeviceBuffer, Error, Invalid, Result, Stream};

/// Returns memory of a whole array that holds 0, 1, 2, …
fn numbers(stream: &Stream, whole: Extent) -> DeviceBuffer<u16> {
    let len = whole.width * whole.height * whole.depth;
    let numbers: Vec<u16> = (0..len).map(|n| n as u16).collect();
    DeviceBuffer::from_slice(stream, &numbers).expect("a copy")
}

/// Returns the numbers in a region of the whole array.
fn expected(whole: Extent, at: [usize; 3], part: Extent) -> Vec<u16> {
    let [x, y, z] = at;
    let mut numbers = Vec::new();
    for k in z..z + part.depth {
        for j in y..y + part.height {
            for i in x..x + part.width {
                numbers.push(((k * whole.height + j) * whole.width + i) as u16);
            }
        }
    }
    numbers
}

#[test]
fn a_part_of_a_plane_or_volume_is_copied_on_the_device() {
    let (_, stream) = or_skip!(common::context_and_stream());
    let cases = [
        (Extent::new_2d(10, 8), [3, 2, 0], Extent::new_2d(4, 5)),
        (Extent::new_2d(10, 8), [0, 7, 0], Extent::new_2d(10, 1)),
        (Extent::new_3d(7, 5, 4), [2, 1, 1], Extent::new_3d(3, 4, 2)),
        (Extent::new_3d(7, 5, 4), [6, 4, 0], Extent::new_3d(1, 1, 4)),
    ];
    for (whole, at, part) in cases {
        let from = numbers(&stream, whole);
        let len = part.width * part.height * part.depth;
        let mut to = DeviceBuffer::<u16>::zeroed(&stream, len).expect("memory");
        let [x, y, z] = at;
        to.as_mut_slice()
            .copy_3d_from(part, Region::new(part), &from, Region::new(whole).at(x, y, z))
            .expect("a copy");
        assert_eq!(to.to_vec().expect("a copy"), expected(whole, at, part));
    }
}

#[test]
fn a_region_is_copied_to_the_device_and_back_and_leaves_its_surroundings() {
    let (_, stream) = or_skip!(common::context_and_stream());
    for depth in [1, 3] {
        let whole = Extent::new_3d(6, 5, depth);
        let part = Extent::new_3d(2, 3, depth);
        let inside = Region::new(whole).at(3, 1, 0);
        let values: Vec<u16> = (1000..).take(2 * 3 * depth).collect();
        let mut buffer = numbers(&stream, whole);
        buffer
            .as_mut_slice()
            .copy_3d_from_slice(part, inside, &values, Region::new(part))
            .expect("a copy");
        let mut changed = expected(whole, [0; 3], whole);
        let mut value = values.iter();
        for z in 0..depth {
            for y in 1..4 {
                for x in 3..5 {
                    changed[(z * 5 + y) * 6 + x] = *value.next().expect("as many");
                }
            }
        }
        assert_eq!(buffer.to_vec().expect("a copy"), changed);

        let mut back = vec![7; 6 * 5 * depth];
        buffer.as_slice().copy_3d_to_slice(part, inside, &mut back, inside).expect("a copy");
        assert_eq!(back.iter().filter(|value| **value == 7).count(), (30 - 6) * depth);
        assert_eq!(back[6 + 3], 1000);
    }
}

#[test]
fn a_region_is_filled_in_units_of_1_2_and_4_bytes() {
    let (_, stream) = or_skip!(common::context_and_stream());
    fn filled<T>(stream: &Stream, value: T) -> Result<usize>
    where
        T: cuda_safe::bytemuck::Pod + PartialEq,
    {
        let whole = Extent::new_3d(5, 4, 2);
        let mut buffer = DeviceBuffer::<T>::zeroed(stream, 40)?;
        buffer.as_mut_slice().fill_3d(
            Extent::new_3d(3, 2, 2),
            Region::new(whole).at(1, 1, 0),
            value,
        )?;
        let all = buffer.to_vec()?;
        Ok(all.iter().filter(|its| **its == value).count())
    }
    assert_eq!(filled(&stream, 0xa5u8).expect("a fill"), 12);
    assert_eq!(filled(&stream, -2i16).expect("a fill"), 12);
    assert_eq!(filled(&stream, 1.5f32).expect("a fill"), 12);
    let error = filled(&stream, 1u64).expect_err("8 bytes");
    assert!(matches!(error, Error::Invalid(why) if *why == Invalid::FillSize { size: 8 }));
}

#[test]
fn a_region_outside_of_its_memory_is_refused() {
    let (_, stream) = or_skip!(common::context_and_stream());
    let mut buffer = DeviceBuffer::<u8>::zeroed(&stream, 20).expect("memory");
    let whole = Region::new(Extent::new_2d(5, 4));
    let cases = [
        (Extent::new_2d(5, 5), whole),
        (Extent::new_2d(5, 4), whole.at(1, 0, 0)),
        (Extent::new_3d(5, 4, 2), whole),
        (Extent::new_2d(6, 2), whole),
        (Extent::new_2d(1, 2), Region { pitch: 0, ..whole }),
        (Extent::new_2d(usize::MAX, 2), whole),
        (Extent::new_3d(1, 2, usize::MAX), whole),
        (Extent::new_2d(1, 2), Region { pitch: usize::MAX, ..whole }),
        (Extent::new_2d(1, 1), whole.at(usize::MAX, 1, 1)),
    ];
    for (extent, region) in cases {
        match buffer.as_mut_slice().fill_3d(extent, region, 1) {
            Err(Error::Invalid(invalid)) => {
                let len = 20;
                let expected = Invalid::Region { region, extent, len };
                assert_eq!(*invalid, expected);
            }
            done => panic!("{extent:?}: {done:?}"),
        }
    }
    // A single row, or an empty region, fits with any pitch.
    let nowhere = Region { offset: usize::MAX, pitch: 0, rows: 0 };
    let none = Extent::new_2d(0, 3);
    let filled = buffer.as_mut_slice().fill_3d(none, nowhere, 1);
    filled.expect("nothing to fill");
    let last = Region { offset: 15, pitch: 0, rows: 0 };
    let row = Extent::new_2d(5, 1);
    buffer.as_mut_slice().fill_3d(row, last, 1).expect("the last row");
    assert_eq!(buffer.to_vec().expect("a copy")[14..], [0, 1, 1, 1, 1, 1]);
}

#[test]
fn a_pitched_plane_is_aligned_by_the_driver() {
    let (_, stream) = or_skip!(common::context_and_stream());
    let mut plane = PitchedBuffer::<f32>::zeroed(&stream, 100, 7).expect("memory");
    assert_eq!(plane.extent(), Extent::new_2d(100, 7));
    assert!(plane.pitch() >= 100);
    assert_eq!(plane.as_slice().len(), plane.pitch() * 7);
    assert_eq!(plane.to_vec().expect("a copy"), [0.0; 700]);
    let numbers: Vec<f32> = (0..700).map(|n| n as f32).collect();
    plane.copy_from_slice(&numbers).expect("a copy");
    assert_eq!(plane.to_vec().expect("a copy"), numbers);
    let third = plane.region().at(0, 2, 0).offset;
    let row = plane.as_slice().slice(third..third + 100).expect("a row");
    assert_eq!(row.to_vec().expect("a copy"), numbers[200..300]);
    plane.fill(2.0).expect("a fill");
    assert_eq!(plane.to_vec().expect("a copy"), [2.0; 700]);
    assert!(plane.copy_from_slice(&numbers[1..]).is_err());
    let empty = PitchedBuffer::<u8>::zeroed(&stream, 0, 5).expect("no memory");
    assert!(empty.to_vec().expect("no copy").is_empty());
    let invalid = common::invalid(PitchedBuffer::<[u8; 3]>::zeroed(&stream, 5, 5));
    assert_eq!(invalid, Invalid::PitchSize { size: 3, pitch: None });
}

#[test]
fn many_copies_are_enqueued_in_one_call() {
    let (_, stream) = or_skip!(common::context_and_stream());
    let whole = Extent::new_2d(100, 1);
    let from = numbers(&stream, whole);
    let mut to = DeviceBuffer::<u16>::zeroed(&stream, 100).expect("memory");
    let mut single = DeviceBuffer::<u16>::zeroed(&stream, 1).expect("memory");
    let mut three = DeviceBuffer::<u16>::zeroed(&stream, 3).expect("memory");
    let (mut low, mut high) = to.as_mut_slice().split_at(50).expect("two halves");
    let mut batch = CopyBatch::new(&stream);
    assert!(batch.is_empty());
    batch.push(low.reborrow(), from.slice(50..).expect("a half")).expect("a copy");
    batch.push(high.reborrow(), from.slice(..50).expect("a half")).expect("a copy");
    batch.push(&mut single, from.slice(7..8).expect("one")).expect("a copy");
    let refused = batch.push(&mut three, &from);
    assert!(refused.is_err(), "3 of 100");
    assert_eq!(batch.len(), 3);
    batch.enqueue().expect("the copies");
    let mut swapped = expected(whole, [0; 3], whole);
    swapped.rotate_left(50);
    assert_eq!(to.to_vec().expect("a copy"), swapped);
    assert_eq!(single.to_vec().expect("a copy"), [7]);
    CopyBatch::new(&stream).enqueue().expect("nothing");
}

/// A driver (580) crashes in this call if one of the buffers is stream-ordered.
#[test]
fn many_copies_are_enqueued_on_a_stream_of_a_green_context() {
    let (_alone, resource, context) = or_skip!(context_alone());
    let green = partition(resource);
    let own = green.stream().expect("a stream");
    // SAFETY: the stream outlives the borrowed stream.
    let borrowed = unsafe { Stream::borrow_raw(own.as_raw(), &context) }.expect("a stream");
    for stream in [&own, &borrowed] {
        let from = DeviceBuffer::from_slice(stream, &[1u16, 2, 3]).expect("memory");
        let mut to = DeviceBuffer::<u16>::zeroed(stream, 3).expect("memory");
        let mut batch = CopyBatch::new(stream);
        batch.push(&mut to, &from).expect("a copy");
        batch.enqueue().expect("the copies");
        assert_eq!(to.to_vec().expect("a copy"), [1, 2, 3]);
        drop((from, to));
        stream.synchronize().expect("a wait");
    }
}
