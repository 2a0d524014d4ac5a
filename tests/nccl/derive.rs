//! Communicators from others, and the orderly end.

use crate::machine::{all, communicators, streams};
use cuda_nccl::{Communicator, Config, Error, NcclVersion, ReduceOp, group};
use cuda_safe::DeviceBuffer;
use std::time::{Duration, Instant};

/// Runs a function for each communicator on a thread of its own, since the calls wait for each other.
fn each<T: Send + 'static>(
    communicators: Vec<Communicator>,
    f: impl Fn(Communicator) -> T + Copy + Send + 'static,
) -> Vec<T> {
    let threads: Vec<_> =
        communicators.into_iter().map(|its| std::thread::spawn(move || f(its))).collect();
    threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
}

#[test]
fn a_split_orders_ranks_by_their_keys() {
    let all = or_skip!(all());
    let count = all.len() as u32;
    let split = each(all, move |its| {
        // Two colors; the keys reverse the order. The last of three or more ranks has no color.
        let rank = its.rank();
        let color = (count < 3 || rank != count - 1).then_some(rank % 2);
        let split = its.split(color, -(rank as i32), None).expect("a split");
        assert_eq!(split.is_some(), color.is_some());
        let split = split?;
        let members = (0..count).filter(|other| {
            let has_color = count < 3 || *other != count - 1;
            has_color && other % 2 == rank % 2
        });
        let members: Vec<u32> = members.collect();
        let place = members.iter().rev().position(|member| *member == rank).expect("a member");
        assert_eq!((split.rank(), split.ranks()), (place as u32, members.len() as u32));
        let mut sum = DeviceBuffer::from_slice(split.stream(), &[rank + 1; 3]).expect("memory");
        split.all_reduce_in_place(&mut sum, ReduceOp::Sum).expect("a sum");
        let expected: u32 = members.iter().map(|member| member + 1).sum();
        assert_eq!(sum.to_vec().expect("a copy"), [expected; 3]);
        // The new communicator outlives the old one.
        drop(its);
        split.all_reduce_in_place(&mut sum, ReduceOp::Max).expect("a maximum");
        split.finalize().expect("an orderly end");
        Some(())
    });
    assert!(split.iter().any(Option::is_some));
}

#[test]
fn a_shrunken_communicator_has_the_other_ranks() {
    let all = or_skip!(communicators(2));
    let since = NcclVersion::new(2, 27, 3);
    let has = cuda_nccl::version().expect("a library") >= since;
    each(all, move |its| {
        if its.rank() == 0 {
            return;
        }
        match its.shrink(&[0], false, None) {
            Ok(shrunken) => {
                assert_eq!((shrunken.rank(), shrunken.ranks()), (0, 1));
                let mut one =
                    DeviceBuffer::from_slice(shrunken.stream(), &[7_u8; 2]).expect("memory");
                shrunken.all_reduce_in_place(&mut one, ReduceOp::Sum).expect("a sum");
                assert_eq!(one.to_vec().expect("a copy"), [7, 7]);
            }
            Err(Error::Missing(missing)) => {
                assert!(!has);
                assert_eq!(missing.since, Some(since));
            }
            Err(error) => panic!("{error}"),
        }
    });
}

/// An abort of a communicator ends the creation of another one from it, which waits for a rank.
#[test]
fn an_abort_ends_the_creation_of_a_smaller_communicator() {
    let streams = or_skip!(streams(3));
    let since = NcclVersion::new(2, 27, 3);
    if cuda_nccl::version().expect("a library") < since {
        return;
    }
    let config = Config { interruptible: true, ..Default::default() };
    let mut all = Communicator::init_all(&streams, &config).expect("communicators");
    let its = all.remove(1);
    let abort = its.abort_handle();
    let waiting = std::thread::spawn(move || its.shrink(&[0], false, None).map(|_| ()));
    std::thread::sleep(Duration::from_millis(100));
    assert!(!waiting.is_finished(), "another rank does not call it");
    abort.abort().expect("an abort");
    let begin = Instant::now();
    while !waiting.is_finished() {
        assert!(begin.elapsed() < Duration::from_secs(20), "the abort ends the creation");
        std::thread::yield_now();
    }
    let answer = waiting.join().expect("no panic");
    assert!(matches!(answer, Err(Error::Aborted)), "{answer:?}");
    for other in &all {
        other.abort_handle().abort().expect("an abort");
    }
}

#[test]
fn an_end_completes_the_work() {
    let all = or_skip!(all());
    let ranks = all.len() as u32;
    let ones = |its: &Communicator| DeviceBuffer::from_slice(its.stream(), &[1_u32; 1 << 18]);
    let mut buffers: Vec<_> = all.iter().map(ones).collect::<Result<_, _>>().expect("memory");
    group(|group| {
        for (its, buffer) in all.iter().zip(&mut buffers) {
            group.all_reduce_in_place(its, buffer, ReduceOp::Sum)?;
        }
        Ok(())
    })
    .expect("a sum");
    each(all, |its| its.finalize().expect("an end"));
    for buffer in &buffers {
        assert_eq!(buffer.to_vec().expect("a copy")[..4], [ranks; 4]);
    }
}
