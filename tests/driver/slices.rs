use crate::common;
use crate::kernels::Scale;
use crate::need;
use cuda_safe::{DeviceBuffer, Error, Invalid};

#[test]
fn a_part_of_a_buffer_is_copied_filled_and_read() {
    let context = need!(common::context());
    let stream = context.stream().expect("a stream");
    let mut buffer = DeviceBuffer::from_slice(&stream, &[1, 2, 3, 4, 5, 6]).expect("a copy");
    let mut part = buffer.slice_mut(1..3).expect("a part");
    part.copy_from_slice(&[20, 30]).expect("a copy");
    part.reborrow()
        .slice(1..)
        .expect("a part")
        .fill(31)
        .expect("a fill");
    assert_eq!(part.as_slice().to_vec().expect("a copy"), [20, 31]);
    buffer
        .slice_mut(4..=5)
        .expect("a part")
        .zero()
        .expect("a fill");
    assert_eq!(buffer.to_vec().expect("a copy"), [1, 20, 31, 4, 0, 0]);
    let mut two = [0; 2];
    buffer
        .slice(2..4)
        .expect("a part")
        .copy_to_slice(&mut two)
        .expect("a copy");
    assert_eq!(two, [31, 4]);
}

#[test]
fn disjoint_parts_of_one_buffer_are_copied_onto_each_other() {
    let context = need!(common::context());
    let stream = context.stream().expect("a stream");
    let mut buffer = DeviceBuffer::from_slice(&stream, &[1u8, 2, 3, 4]).expect("a copy");
    let (mut low, high) = buffer.as_mut_slice().split_at(2).expect("two parts");
    low.copy_from(high).expect("a copy");
    assert_eq!(buffer.to_vec().expect("a copy"), [3, 4, 3, 4]);
}

#[test]
fn a_part_can_be_a_kernel_argument() {
    let context = need!(common::context());
    let stream = context.stream().expect("a stream");
    let mut buffer = DeviceBuffer::from_slice(&stream, &[1, 2, 3, 4]).expect("a copy");
    Scale::new(&context)
        .run(&stream, buffer.slice_mut(1..3).expect("a part"), 10, 0)
        .expect("a launch");
    assert_eq!(buffer.to_vec().expect("a copy"), [1, 20, 30, 4]);
}

#[test]
fn a_part_may_be_empty_and_at_the_end() {
    let context = need!(common::context());
    let stream = context.stream().expect("a stream");
    let mut buffer = DeviceBuffer::from_slice(&stream, &[1u16, 2]).expect("a copy");
    let mut end = buffer.slice_mut(2..).expect("the end");
    assert!(end.is_empty());
    end.copy_from_slice(&[]).expect("no copy");
    end.zero().expect("no fill");
    assert!(end.as_slice().to_vec().expect("no copy").is_empty());
}

#[test]
fn a_part_beyond_a_buffer_is_refused() {
    let context = need!(common::context());
    let stream = context.stream().expect("a stream");
    let buffer = DeviceBuffer::<u32>::zeroed(&stream, 4).expect("memory");
    #[allow(clippy::reversed_empty_ranges, reason = "that is refused")]
    let refusals = [
        (buffer.slice(3..5), (3, 5)),
        (buffer.slice(5..), (5, 4)),
        (buffer.slice(2..1), (2, 1)),
        (buffer.slice(0..=usize::MAX), (0, usize::MAX)),
    ];
    for (refusal, (start, end)) in refusals {
        match refusal {
            Err(Error::Invalid(invalid)) => {
                assert_eq!(*invalid, Invalid::Range { start, end, len: 4 });
            }
            done => panic!("{done:?}"),
        }
    }
}

#[test]
fn a_rebound_buffer_waits_for_its_previous_work() {
    let context = need!(common::context());
    let streams: Vec<_> = (0..4)
        .map(|_| context.stream().expect("a stream"))
        .collect();
    let scale = Scale::new(&context);
    let mut buffer = DeviceBuffer::<i32>::zeroed(&streams[0], 1 << 16).expect("memory");
    for stream in streams.iter().cycle().take(12) {
        buffer = buffer.rebind(stream).expect("another stream");
        assert_eq!(buffer.stream(), stream);
        scale.run(stream, &mut buffer, 1, 1).expect("a launch");
    }
    assert_eq!(buffer.to_vec().expect("a copy"), vec![12; 1 << 16]);
}

#[test]
fn borrowed_memory_cannot_be_rebound() {
    let context = need!(common::context());
    let (a, b) = (
        context.stream().expect("a stream"),
        context.stream().expect("a stream"),
    );
    let owner = DeviceBuffer::<u32>::zeroed(&a, 4).expect("memory");
    // SAFETY: the owner outlives the borrowed buffer, which is the only one used.
    let borrowed = unsafe { DeviceBuffer::<u32>::borrow_raw(owner.as_raw(), 4, &a) };
    let rejected = borrowed.rebind(&b).expect_err("it is borrowed");
    assert!(matches!(&rejected.error, Error::Invalid(why) if **why == Invalid::ForeignMemory));
    assert_eq!(rejected.value.to_vec().expect("a copy"), [0; 4]);
}
