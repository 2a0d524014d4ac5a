//! Pinned memory of all kinds: allocated with options, registered, and mapped.

use crate::common;
use crate::module::kernels::{Scale, pinned};
use cuda_safe::memory::{MappedBuffer, PinnedFlags, PinnedOptions, RegisterOptions};
use cuda_safe::{
    CUresult, Context, DeviceBuffer, DeviceSlice, Error, Invalid, LaunchConfig, Module,
    PinnedBuffer, sys,
};
use std::sync::{Mutex, MutexGuard, PoisonError};

const LEN: usize = if cfg!(miri) { 50 } else { 5000 };

/// Serializes tests, because vectors of two tests may lie in one page, which some drivers refuse to
/// register twice.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds 1 to each byte, and then 1 to each byte of the elements of more bytes at the edges.
const EDGES: &str = "
.version 6.0
.target sm_52
.address_size 64
.visible .entry edges(.param .u64 bytes, .param .u32 count) {
    .reg .pred %p<2>; .reg .b16 %h<2>; .reg .b32 %r<4>; .reg .b64 %d<3>;
    ld.param.u64 %d0, [bytes];
    ld.param.u32 %r0, [count];
    mov.u32 %r1, %tid.x;
    setp.ge.u32 %p0, %r1, %r0;
    @%p0 bra added;
    cvt.u64.u32 %d1, %r1;
    add.u64 %d1, %d0, %d1;
    ld.global.u8 %h0, [%d1];
    add.u16 %h0, %h0, 1;
    st.global.u8 [%d1], %h0;
added:
    bar.sync 0;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra end;
    ld.global.u16 %h1, [%d0+1];
    add.u16 %h1, %h1, 0x0101;
    st.global.u16 [%d0+1], %h1;
    atom.global.add.u32 %r2, [%d0+3], 0x01010101;
    ld.global.u32 %r3, [%d0+15];
    add.u32 %r3, %r3, 0x01010101;
    st.global.u32 [%d0+15], %r3;
end:
    ret;
}";

fn numbers() -> Vec<i32> {
    (0..LEN as i32).collect()
}

#[test]
fn pinned_memory_reports_its_flags() {
    let context = or_skip!(common::context());
    for (options, flags) in [
        (PinnedOptions::default(), PinnedFlags::PORTABLE),
        (
            PinnedOptions { mapped: true, write_combined: true, ..Default::default() },
            PinnedFlags::PORTABLE | PinnedFlags::MAPPED | PinnedFlags::WRITE_COMBINED,
        ),
    ] {
        let memory = PinnedBuffer::<u8>::zeroed_with(&context, 100, options).expect("memory");
        assert!(memory.flags().expect("known").contains(flags));
        assert_eq!(*memory, [0; 100]);
    }
    let none = PinnedBuffer::<u8>::zeroed(&context, 0).expect("no memory");
    assert_eq!(none.flags().expect("the buffer is empty"), PinnedFlags::empty());
}

#[test]
fn a_registered_vector_is_copied_without_a_wait_and_is_returned_unchanged() {
    let context = or_skip!(common::context());
    let _alone = one_at_a_time();
    let stream = context.stream().expect("a stream");
    let mut vector = Vec::with_capacity(LEN + 7);
    vector.extend(numbers());
    let (start, capacity) = (vector.as_ptr(), vector.capacity());
    let host = PinnedBuffer::register(&context, vector).expect("registered");
    assert_eq!(host.len(), LEN);
    let mut buffer = DeviceBuffer::<i32>::zeroed(&stream, LEN).expect("memory");
    let there = buffer.copy_from_pinned(host).expect("a copy");
    Scale::new(&context).run(&stream, &mut buffer, 2, 1).expect("a launch");
    let back = buffer.copy_to_pinned(there.synchronize().expect("a wait")).expect("a copy");
    let vector = back.synchronize().expect("a wait").unregister().expect("a vector");
    assert_eq!((vector.as_ptr(), vector.capacity()), (start, capacity));
    let right: Vec<i32> = numbers().iter().map(|x| 2 * x + 1).collect();
    assert_eq!(vector, right);
}

#[test]
fn a_vector_can_be_registered_again_after_it_was_unregistered_or_dropped() {
    let context = or_skip!(common::context());
    let _alone = one_at_a_time();
    let mut vector = numbers();
    for mapped in [false, true] {
        let options = RegisterOptions { mapped, ..Default::default() };
        let mut host = PinnedBuffer::register_with(&context, vector, options).expect("registered");
        host[0] += 1;
        vector = host.unregister().expect("a vector");
    }
    assert_eq!(vector[..3], [2, 1, 2]);
    drop(PinnedBuffer::register(&context, vector).expect("registered"));
}

#[test]
fn an_empty_vector_is_registered_and_returned() {
    let context = or_skip!(common::context());
    let empty = PinnedBuffer::register(&context, Vec::<u64>::with_capacity(9)).expect("nothing");
    assert!(empty.is_empty());
    assert!(empty.unregister().expect("a vector").capacity() >= 9);
    drop(PinnedBuffer::register(&context, Vec::<u64>::with_capacity(9)).expect("nothing"));
    let units = PinnedBuffer::register(&context, vec![(); 3]).expect("nothing");
    assert_eq!(units.unregister().expect("a vector").len(), 3);
}

#[test]
fn memory_allocated_by_the_driver_does_not_convert_to_a_vector() {
    let context = or_skip!(common::context());
    let memory = PinnedBuffer::<u8>::zeroed(&context, 64).expect("memory");
    let rejected = memory.try_unregister().expect_err("not registered");
    assert_eq!(rejected.error, Invalid::NotRegistered.into());
    assert_eq!(*rejected.value, [0; 64]);
}

/// Runs a kernel, a fill and a copy on mapped memory, with host accesses in between.
fn use_mapped(context: &Context, memory: PinnedBuffer<i32>) -> PinnedBuffer<i32> {
    let stream = context.stream().expect("a stream");
    let len = memory.len();
    let mut mapped = MappedBuffer::new(memory, &stream).expect("mapped");
    assert_eq!((mapped.len(), mapped.stream()), (len, &stream));
    assert!(!mapped.is_empty());
    let scale = Scale::new(context);
    scale.run(&stream, &mut mapped, 3, 1).expect("a launch");
    let there: Vec<i32> = (0..LEN as i32).map(|x| 3 * x + 1).collect();
    assert_eq!(mapped.host().expect("a wait"), there);
    mapped.host().expect("a wait")[0] = 100;
    scale.run(&stream, &mut mapped, 1, 1).expect("a launch");
    let part = mapped.as_slice().slice(..2).expect("within");
    assert_eq!(part.to_vec().expect("a copy"), [101, 5]);
    let mut buffer = DeviceBuffer::<i32>::zeroed(&stream, len).expect("memory");
    buffer.copy_from(&mapped).expect("a copy");
    mapped.as_mut_slice().zero().expect("a fill");
    // This is the last owner, so the conversion waits.
    let memory = mapped.into_pinned().expect("a wait");
    assert_eq!(*memory, vec![0; len]);
    assert_eq!(buffer.to_vec().expect("a copy")[..2], [101, 5]);
    memory
}

#[test]
fn kernels_access_mapped_pinned_memory() {
    let context = or_skip!(common::context());
    let options = PinnedOptions { mapped: true, ..Default::default() };
    let mut memory = PinnedBuffer::zeroed_with(&context, LEN, options).expect("memory");
    memory.copy_from_slice(&numbers());
    drop(use_mapped(&context, memory));
}

#[test]
fn kernels_access_a_mapped_registered_vector() {
    let context = or_skip!(common::context());
    let _alone = one_at_a_time();
    let options = RegisterOptions { mapped: true, ..Default::default() };
    let memory = PinnedBuffer::register_with(&context, numbers(), options).expect("registered");
    let memory = use_mapped(&context, memory);
    assert_eq!(memory.unregister().expect("a vector"), [0; LEN]);
}

#[test]
fn kernels_change_no_byte_around_registered_memory() {
    let context = or_skip!(common::context());
    let _alone = one_at_a_time();
    let stream = context.stream().expect("a stream");
    let kernel = Module::from_ptx(&context, EDGES).expect("a module").kernel("edges");
    let kernel = kernel.expect("a kernel").typed::<(u64, u32)>().expect("its parameters");
    // The elements of the kernel are aligned. The vector ends within a word, so Miri reports accesses of whole words.
    let mut vectors = std::iter::repeat_with(|| vec![0_u8; 23]);
    let mut bytes = vectors.find(|its| its.as_ptr().addr() % 8 == 0).expect("an aligned vector");
    let (start, size) = (bytes[1..].as_mut_ptr().cast(), 22);
    let current = context.make_current().expect("current");
    // SAFETY: the bytes are alive until they are unregistered.
    let registered =
        unsafe { sys::cuMemHostRegister_v2(start, size, sys::CU_MEMHOSTREGISTER_DEVICEMAP) };
    assert_eq!(registered, CUresult::CUDA_SUCCESS);
    let mut address = 0;
    // SAFETY: the bytes are registered, and the address is a variable.
    let mapped = unsafe { sys::cuMemHostGetDevicePointer_v2(&raw mut address, start, 0) };
    assert_eq!(mapped, CUresult::CUDA_SUCCESS);
    let config = LaunchConfig::new([1; 3], [32, 1, 1]);
    // SAFETY: the kernel accesses the bytes, and the host does not until it has waited.
    unsafe { kernel.launch(&stream, config, (address, size as u32)) }.expect("a launch");
    stream.synchronize().expect("no error");
    // SAFETY: the bytes are registered, and no work uses them.
    let unregistered = unsafe { sys::cuMemHostUnregister(start) };
    assert_eq!(unregistered, CUresult::CUDA_SUCCESS);
    drop(current);
    let mut right = [1; 23];
    right[0] = 0;
    right[2..8].fill(2);
    right[16..20].fill(2);
    assert_eq!(bytes, right);
}

#[test]
fn mapped_memory_is_freed_after_the_work_on_it() {
    let context = or_skip!(common::context());
    let _alone = one_at_a_time();
    let stream = context.stream().expect("a stream");
    let scale = Scale::new(&context);
    for memory in [
        PinnedBuffer::zeroed(&context, LEN).expect("memory"),
        PinnedBuffer::register(&context, numbers()).expect("registered"),
    ] {
        let mut mapped = MappedBuffer::new(memory, &stream).expect("mapped");
        scale.run(&stream, &mut mapped, 2, 2).expect("a launch");
        drop(mapped);
    }
    stream.synchronize().expect("no error");
}

#[test]
fn mapped_memory_of_another_context_or_stream_is_refused() {
    let context = or_skip!(common::context());
    let own = Context::new(&context.device(), cuda_safe::ContextFlags::empty());
    let own = own.expect("a context");
    let [stream, other] = common::streams(&context);
    let foreign = own.stream().expect("a stream");
    let error = MappedBuffer::new(pinned(&context, &[1, 2]), &foreign).expect_err("another");
    assert!(matches!(error, Error::Invalid(_)), "{error}");
    let mapped = MappedBuffer::new(pinned(&context, &[1, 2]), &stream).expect("mapped");
    let mut buffer = DeviceBuffer::<i32>::zeroed(&other, 2).expect("memory");
    let error = buffer.copy_from(&mapped).expect_err("another stream");
    assert!(matches!(error, Error::Invalid(_)), "{error}");
    let empty = PinnedBuffer::<i32>::zeroed(&context, 0).expect("no memory");
    let mut empty = MappedBuffer::new(empty, &stream).expect("the buffer is empty");
    assert_eq!(empty.as_raw(), 0);
    assert!(empty.is_empty() && empty.host().expect("a wait").is_empty());
    assert!(DeviceSlice::from(&empty).is_empty());
}

mod provoked {
    //! The driver may report that a page is already registered.

    use super::*;

    #[test]
    fn vectors_in_one_page_are_registered_or_returned() {
        let context = or_skip!(common::context());
        let _alone = one_at_a_time();
        let first = PinnedBuffer::register(&context, vec![1u8; 64]).expect("registered");
        let options = RegisterOptions::default();
        let second = match PinnedBuffer::try_register_with(&context, vec![2u8; 64], options) {
            Ok(second) => second.unregister().expect("a vector"),
            Err(rejected) => {
                let code = CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
                assert_eq!(rejected.error.code(), Some(code));
                rejected.value
            }
        };
        assert_eq!(second, [2; 64]);
        assert_eq!(first.unregister().expect("a vector"), [1; 64]);
    }
}
