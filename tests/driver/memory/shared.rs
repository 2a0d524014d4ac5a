use crate::common::{self, child};
use crate::module::kernels::{Busy, Scale};
use cuda_safe::{DeviceBuffer, Invalid};

const LEN: usize = if cfg!(miri) { 50 } else { 1 << 16 };

#[test]
fn shared_memory_can_be_read_on_every_stream() {
    let (context, home) = or_skip!(common::context_and_stream());
    let mut buffer = DeviceBuffer::<i32>::zeroed(&home, LEN).expect("memory");
    // This work is still pending when the memory is shared.
    Scale::new(&context).run(&home, &mut buffer, 1, 5).expect("a launch");
    let shared = buffer.share().expect("an event");
    let copies: Vec<_> = (0..4)
        .map(|_| {
            let stream = context.stream().expect("a stream");
            let reader = shared.on(&stream).expect("a reader");
            assert_eq!(reader.stream(), &stream);
            let mut own = DeviceBuffer::<i32>::uninit(&stream, LEN).expect("memory");
            own.copy_from(&reader).expect("a copy");
            own
        })
        .collect();
    // The memory is freed after the copies on all streams.
    drop(shared);
    for own in copies {
        assert_eq!(own.to_vec().expect("a copy"), vec![5; LEN]);
    }
}

#[test]
fn shared_memory_is_written_again_after_its_readers() {
    child::with_stream(|context, home| {
        let other = context.stream().expect("a stream");
        let shared = DeviceBuffer::from_slice(&home, &[1; LEN])
            .and_then(|buffer| buffer.share())
            .expect("shared memory");
        let work = Busy::new(&context, &other);
        let mut read = DeviceBuffer::<i32>::uninit(&other, LEN).expect("memory");
        let reader = shared.on(&other).expect("a reader");
        read.copy_from(&reader).expect("a copy");
        let shared = shared.into_buffer().expect_err("there is a reader");
        drop(reader);
        let mut buffer = shared.into_buffer().expect("there is no reader");
        buffer.fill(2).expect("a fill");
        assert!(!other.is_complete().expect("a query"), "nothing waited");
        assert_eq!(buffer.to_vec().expect("a copy"), vec![2; LEN]);
        assert_eq!(read.to_vec().expect("a copy"), vec![1; LEN]);
        drop(work);
    });
}

#[test]
fn readers_outlive_the_shared_memory_and_the_writing_stream() {
    let (_, [home, other]) = or_skip!(common::context_and_streams());
    let shared = DeviceBuffer::from_slice(&home, &[3u8; 100])
        .and_then(|buffer| buffer.share())
        .expect("shared memory");
    let (here, there) = (shared.on(&home), shared.on(&other));
    drop((home, shared));
    let (here, there) = (here.expect("a reader"), there.expect("a reader"));
    assert_eq!(here.as_slice().to_vec().expect("a copy"), [3; 100]);
    drop(here);
    assert_eq!(there.as_slice().to_vec().expect("a copy"), [3; 100]);
}

#[test]
fn foreign_memory_cannot_be_shared() {
    let (_, stream) = or_skip!(common::context_and_stream());
    let memory = DeviceBuffer::from_slice(&stream, &[1u32; 4]).expect("memory");
    // SAFETY: the owner is the memory itself.
    let foreign = unsafe { DeviceBuffer::<u32>::from_foreign(memory.as_raw(), 4, &stream, memory) }
        .expect("memory");
    let rejected = foreign.try_share().expect_err("foreign memory cannot be shared");
    assert_eq!(rejected.error, Invalid::ForeignMemory.into());
    assert_eq!(rejected.value.to_vec().expect("a copy"), [1; 4]);
}

#[test]
fn a_reader_cannot_be_used_on_another_stream() {
    let context = or_skip!(common::context());
    let streams: Vec<_> = (0..3).map(|_| context.stream().expect("a stream")).collect();
    let shared = DeviceBuffer::from_slice(&streams[0], &[1u32; 4])
        .and_then(|buffer| buffer.share())
        .expect("shared memory");
    let reader = shared.on(&streams[1]).expect("a reader");
    let mut own = DeviceBuffer::<u32>::zeroed(&streams[2], 4).expect("memory");
    let invalid = common::invalid(own.copy_from(&reader));
    assert!(matches!(invalid, Invalid::OtherStream { .. }), "{invalid}");
}
