use crate::common;
use crate::module::kernels::Scale;
use cuda_safe::{DeviceBuffer, Invalid};

#[test]
fn a_part_of_a_buffer_is_copied_filled_and_read() {
    let (_, stream) = or_skip!(common::context_and_stream());
    let mut buffer = DeviceBuffer::from_slice(&stream, &[1, 2, 3, 4, 5, 6]).expect("a copy");
    let mut part = buffer.slice_mut(1..3).expect("a part");
    part.copy_from_slice(&[20, 30]).expect("a copy");
    part.reborrow().slice(1..).expect("a part").fill(31).expect("a fill");
    assert_eq!(part.as_slice().to_vec().expect("a copy"), [20, 31]);
    buffer.slice_mut(4..=5).expect("a part").zero().expect("a fill");
    assert_eq!(buffer.to_vec().expect("a copy"), [1, 20, 31, 4, 0, 0]);
    let mut two = [0; 2];
    buffer.slice(2..4).expect("a part").copy_to_slice(&mut two).expect("a copy");
    assert_eq!(two, [31, 4]);
}

#[test]
fn disjoint_parts_of_one_buffer_are_copied_onto_each_other() {
    let (_, stream) = or_skip!(common::context_and_stream());
    let mut buffer = DeviceBuffer::from_slice(&stream, &[1u8, 2, 3, 4]).expect("a copy");
    let (mut low, high) = buffer.as_mut_slice().split_at(2).expect("two parts");
    low.copy_from(high).expect("a copy");
    assert_eq!(buffer.to_vec().expect("a copy"), [3, 4, 3, 4]);
}

#[test]
fn a_part_can_be_a_kernel_argument() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let mut buffer = DeviceBuffer::from_slice(&stream, &[1, 2, 3, 4]).expect("a copy");
    Scale::new(&context)
        .run(&stream, buffer.slice_mut(1..3).expect("a part"), 10, 0)
        .expect("a launch");
    assert_eq!(buffer.to_vec().expect("a copy"), [1, 20, 30, 4]);
}

#[test]
fn a_part_may_be_empty_and_at_the_end() {
    let (_, stream) = or_skip!(common::context_and_stream());
    let mut buffer = DeviceBuffer::from_slice(&stream, &[1u16, 2]).expect("a copy");
    let mut end = buffer.slice_mut(2..).expect("the end");
    assert!(end.is_empty());
    end.copy_from_slice(&[]).expect("no copy");
    end.zero().expect("no fill");
    assert!(end.as_slice().to_vec().expect("no copy").is_empty());
}

#[test]
fn a_part_beyond_a_buffer_is_refused() {
    let (_, stream) = or_skip!(common::context_and_stream());
    let buffer = DeviceBuffer::<u32>::zeroed(&stream, 4).expect("memory");
    #[allow(clippy::reversed_empty_ranges, reason = "that is refused")]
    let refusals = [
        (buffer.slice(3..5), (3, 5)),
        (buffer.slice(5..), (5, 4)),
        (buffer.slice(2..1), (2, 1)),
        (buffer.slice(0..=usize::MAX), (0, usize::MAX)),
    ];
    for (refusal, (start, end)) in refusals {
        assert_eq!(common::invalid(refusal), Invalid::Range { start, end, len: 4 });
    }
}

#[test]
fn a_rebound_buffer_waits_for_its_previous_work() {
    const LEN: usize = if cfg!(miri) { 40 } else { 1 << 16 };
    let context = or_skip!(common::context());
    let streams: Vec<_> = (0..4).map(|_| context.stream().expect("a stream")).collect();
    let scale = Scale::new(&context);
    let mut buffer = DeviceBuffer::<i32>::zeroed(&streams[0], LEN).expect("memory");
    for stream in streams.iter().cycle().take(12) {
        buffer.rebind(stream).expect("another stream");
        assert_eq!(buffer.stream(), stream);
        scale.run(stream, &mut buffer, 1, 1).expect("a launch");
    }
    assert_eq!(buffer.to_vec().expect("a copy"), vec![12; LEN]);
}

#[test]
fn borrowed_memory_cannot_be_rebound() {
    let (_, [a, b]) = or_skip!(common::context_and_streams());
    let owner = DeviceBuffer::<u32>::zeroed(&a, 4).expect("memory");
    // SAFETY: the owner outlives the borrowed buffer, which is the only one used.
    let borrowed = unsafe { DeviceBuffer::<u32>::borrow_raw(owner.as_raw(), 4, &a) };
    let mut borrowed = borrowed.expect("memory");
    assert_eq!(borrowed.rebind(&b).expect_err("it is borrowed"), Invalid::ForeignMemory.into());
    assert_eq!(borrowed.stream(), &a);
    assert_eq!(borrowed.to_vec().expect("a copy"), [0; 4]);
}

#[test]
fn chunks_have_equal_lengths_and_a_remainder() {
    let (_, stream) = or_skip!(common::context_and_stream());
    let mut buffer = DeviceBuffer::from_slice(&stream, &[1, 2, 3, 4, 5, 6, 7]).expect("a copy");
    let mut chunks = buffer.chunks_exact_mut(3).expect("chunks");
    assert_eq!(chunks.len(), 2);
    let mut first = chunks.next().expect("a chunk");
    let second = chunks.next_back().expect("a chunk");
    assert!(chunks.next().is_none() && chunks.next_back().is_none());
    first.copy_from(second).expect("a copy");
    chunks.into_remainder().fill(9).expect("a fill");
    let chunks = buffer.chunks_exact(3).expect("chunks");
    let lists: Vec<_> = chunks.clone().map(|chunk| chunk.to_vec().expect("a copy")).collect();
    assert_eq!(lists, [[4, 5, 6], [4, 5, 6]]);
    assert_eq!(chunks.remainder().to_vec().expect("a copy"), [9]);
    let whole = buffer.chunks_exact(8).expect("no chunks");
    assert_eq!((whole.len(), whole.remainder().len()), (0, 7));
    for refused in [buffer.chunks_exact(0).map(drop), buffer.chunks_exact_mut(0).map(drop)] {
        assert_eq!(common::invalid(refused), Invalid::EmptyChunks);
    }
}

#[test]
fn a_buffer_is_split_into_disjoint_parts() {
    let (_, stream) = or_skip!(common::context_and_stream());
    let mut buffer = DeviceBuffer::from_slice(&stream, &[1u8, 2, 3]).expect("a copy");
    let (mut low, mut high) = buffer.split_at_mut(1).expect("two parts");
    low.fill(10).expect("a fill");
    high.fill(20).expect("a fill");
    let (low, high) = buffer.split_at(2).expect("two parts");
    assert_eq!(low.to_vec().expect("a copy"), [10, 20]);
    assert_eq!(high.to_vec().expect("a copy"), [20]);
    let (all, none) = buffer.split_at(3).expect("two parts");
    assert_eq!((all.len(), none.len()), (3, 0));
    let invalid = common::invalid(buffer.split_at_mut(4));
    assert!(matches!(invalid, Invalid::Range { end: 4, len: 3, .. }), "{invalid}");
}

#[test]
fn memory_is_cast_to_elements_of_another_size() {
    let (_, stream) = or_skip!(common::context_and_stream());
    let numbers = [0x0403_0201_u32, 0x0807_0605];
    let mut buffer = DeviceBuffer::from_slice(&stream, &numbers).expect("a copy");
    let bytes = buffer.as_slice().cast::<u8>().expect("bytes");
    assert_eq!(bytes.to_vec().expect("a copy"), [1, 2, 3, 4, 5, 6, 7, 8]);
    let pairs = buffer.as_slice().cast::<[u16; 2]>().expect("pairs");
    assert_eq!(pairs.len(), 2);
    let mut bytes = buffer.as_mut_slice().cast::<u8>().expect("bytes");
    bytes.reborrow().slice(..4).expect("a part").fill(0xff).expect("a fill");
    let address = buffer.as_raw();
    let one = buffer.cast::<u64>().expect("one number");
    assert_eq!((one.as_raw(), one.len()), (address, 1));
    assert_eq!(one.to_vec().expect("a copy"), [0x0807_0605_ffff_ffff]);
    assert_eq!(one.cast::<f64>().expect("one number").len(), 1);
}

#[test]
fn a_cast_of_an_unsuitable_size_or_alignment_returns_the_memory() {
    let (_, stream) = or_skip!(common::context_and_stream());
    let buffer = DeviceBuffer::from_slice(&stream, &[1u8, 2, 3, 4, 5, 6]).expect("a copy");
    let address = buffer.as_raw();
    let rejected = buffer.try_cast::<u32>().expect_err("6 bytes");
    let cast = Invalid::Cast { address, size: 6, element: 4, align: 4 };
    assert_eq!(rejected.error, cast.into());
    let mut buffer = rejected.value;
    assert_eq!(buffer.as_slice().cast::<u16>().expect("three").len(), 3);
    let odd = buffer.slice(1..5).expect("a part");
    odd.cast::<u32>().expect_err("an odd address");
    assert_eq!(odd.cast::<[u8; 4]>().expect("an array of bytes").len(), 1);
    buffer.slice_mut(1..3).expect("a part").cast::<u16>().expect_err("an odd address");
    buffer.as_slice().cast::<()>().expect_err("no bytes are left of 6");
    let none = buffer.slice(..0).expect("a part");
    assert!(none.cast::<u64>().expect("nothing").is_empty());
    assert!(none.cast::<()>().expect("nothing").is_empty());
}
