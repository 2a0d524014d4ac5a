//! Arguments that the crate rejects before it calls NCCL, and errors of NCCL.

use crate::machine::{communicators, streams};
use cuda_nccl::{Communicator, Config, Error, Invalid, ReduceOp, Reduction, UniqueId, group, sys};
use cuda_safe::{Context, ContextFlags, Device, DeviceBuffer};

#[track_caller]
fn invalid<T: std::fmt::Debug>(answer: Result<T, Error>) -> Invalid {
    match answer {
        Err(Error::Invalid(invalid)) => *invalid,
        answer => panic!("{answer:?}"),
    }
}

#[test]
fn buffers_must_fit_the_operation() {
    let its = or_skip!(communicators(1)).remove(0);
    let stream = its.stream();
    let other = stream.context().stream().expect("a stream");
    let four = DeviceBuffer::<f32>::zeroed(stream, 4).expect("memory");
    let mut three = DeviceBuffer::<f32>::zeroed(stream, 3).expect("memory");
    let mut foreign = DeviceBuffer::<f32>::zeroed(&other, 4).expect("memory");

    let answer = invalid(its.all_reduce(&four, &mut three, ReduceOp::Sum));
    assert!(matches!(answer, Invalid::Length { len: 3, expected: 4, .. }), "{answer}");
    let answer = invalid(its.all_reduce(&four, &mut foreign, ReduceOp::Sum));
    assert!(matches!(answer, Invalid::OtherStream { what: "the target", .. }), "{answer}");
    assert!(answer.to_string().contains("rebind"), "{answer}");
    let answer = invalid(its.send(&foreign, 0));
    assert!(matches!(answer, Invalid::OtherStream { what: "the source", .. }), "{answer}");
    let answer = invalid(its.broadcast(Some(four.as_slice()), &mut three, 0));
    assert!(matches!(answer, Invalid::Length { len: 4, expected: 3, .. }), "{answer}");
    let answer = invalid(its.all_gather(&four, &mut three));
    assert!(matches!(answer, Invalid::Length { len: 4, expected: 3, .. }), "{answer}");
    let factor = Reduction::ScaledSumOf(four.as_slice());
    let answer = invalid(its.all_reduce_in_place(&mut three, factor));
    assert!(matches!(answer, Invalid::Length { what: "the factor", len: 4, .. }), "{answer}");
}

#[test]
fn parts_must_divide_the_buffer() {
    let mut all = or_skip!(communicators(2));
    let second = all.pop().expect("two");
    let mut three = DeviceBuffer::<u8>::zeroed(second.stream(), 3).expect("memory");
    let answer = invalid(second.all_gather_in_place(&mut three));
    assert!(matches!(answer, Invalid::NotDivisible { len: 3, ranks: 2, .. }), "{answer}");
    let answer = invalid(second.reduce_scatter_in_place(&mut three, ReduceOp::Sum));
    assert!(matches!(answer, Invalid::NotDivisible { len: 3, ranks: 2, .. }), "{answer}");
}

#[test]
fn the_root_needs_its_buffer_and_ranks_exist() {
    let its = or_skip!(communicators(1)).remove(0);
    let mut buffer = DeviceBuffer::<u8>::zeroed(its.stream(), 4).expect("memory");
    let answer = invalid(its.reduce(&buffer, None, ReduceOp::Sum, 0));
    assert!(matches!(answer, Invalid::NoBuffer { what: "a target" }), "{answer}");
    let answer = invalid(its.scatter(None, &mut buffer, 0));
    assert!(matches!(answer, Invalid::NoBuffer { what: "a source" }), "{answer}");
    let answer = invalid(its.broadcast_in_place(&mut buffer, 1));
    assert!(matches!(answer, Invalid::Rank { rank: 1, ranks: 1, .. }), "{answer}");
    let answer = invalid(its.send(&buffer, 7));
    assert!(matches!(answer, Invalid::Rank { what: "the receiver", rank: 7, .. }), "{answer}");
    let answer = invalid(its.shrink(&[], false, None));
    assert!(matches!(answer, Invalid::Empty { .. }), "{answer}");
    let answer = invalid(its.shrink(&[5], false, None));
    assert!(matches!(answer, Invalid::Rank { rank: 5, .. }), "{answer}");
}

#[test]
fn a_communicator_needs_the_primary_context_and_a_valid_rank() {
    let streams = or_skip!(streams(1));
    let id = UniqueId::new().expect("an id");
    let answer = invalid(Communicator::init(&streams[0], &id, 1, 1, &Config::default()));
    assert!(matches!(answer, Invalid::Rank { rank: 1, ranks: 1, .. }), "{answer}");
    let answer = invalid(Communicator::init_all(&[], &Config::default()));
    assert!(matches!(answer, Invalid::Empty { .. }), "{answer}");
    let device = Device::get(0).expect("a device");
    let own = Context::new(&device, ContextFlags::empty()).expect("a context");
    let stream = own.stream().expect("a stream");
    let answer = invalid(Communicator::init(&stream, &id, 0, 1, &Config::default()));
    assert!(matches!(answer, Invalid::NotPrimary { .. }), "{answer}");
}

#[test]
fn a_group_that_fails_or_panics_enqueues_nothing() {
    let its = or_skip!(communicators(1)).remove(0);
    let mut buffer = DeviceBuffer::from_slice(its.stream(), &[3_u32; 4]).expect("memory");
    let two = DeviceBuffer::from_slice(its.stream(), &[2_u32]).expect("memory");
    let answer: Result<(), Error> = group(|group| {
        group.all_reduce_in_place(&its, &mut buffer, Reduction::ScaledSumOf(two.as_slice()))?;
        Err(Error::Aborted)
    });
    assert!(answer.is_err());
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        group(|group| {
            group.all_reduce_in_place(&its, &mut buffer, Reduction::ScaledSumOf(two.as_slice()))?;
            panic!("an expected panic");
            #[allow(unreachable_code, reason = "the type of the closure")]
            Ok(())
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(buffer.to_vec().expect("a copy"), [3; 4]);
    its.all_reduce_in_place(&mut buffer, Reduction::ScaledSum(2)).expect("the communicator works");
    assert_eq!(buffer.to_vec().expect("a copy"), [6; 4]);
    group(|_| Ok(())).expect("an empty group");
}

#[test]
fn errors_of_nccl_leave_the_communicator_usable() {
    let its = or_skip!(communicators(1)).remove(0);
    let mut buffer = DeviceBuffer::<u8>::zeroed(its.stream(), 4).expect("memory");
    let address = core::ptr::without_provenance_mut(buffer.as_raw() as usize);
    let (ty, op) = (sys::ncclDataType_t(99), sys::ncclRedOp_t::ncclSum);
    let stream = its.stream().as_raw();
    let code = its.with_raw(|comm| {
        // SAFETY: the communicator and the buffer are alive; NCCL has no such type, which is an error.
        unsafe { sys::ncclAllReduce(address, address, 4, ty, op, comm, stream) }
    });
    let code = code.expect("no error of this crate").expect("a function");
    assert_eq!(code, sys::ncclResult_t::ncclInvalidArgument);
    its.check().expect("the communicator is well");
    its.all_reduce_in_place(&mut buffer, ReduceOp::Sum).expect("a sum");
}

#[test]
fn names_without_nul_are_accepted() {
    let streams = or_skip!(streams(1));
    let config = Config { name: Some("one\0two".to_owned()), ..Default::default() };
    let answer = invalid(Communicator::init_all(&streams, &config));
    assert!(matches!(answer, Invalid::Nul { what: "the name" }), "{answer}");
    let config = Config {
        name: Some("test".to_owned()),
        min_ctas: Some(1),
        max_ctas: Some(2),
        split_share: Some(false),
        ..Default::default()
    };
    Communicator::init_all(&streams, &config).expect("a communicator");
}
