//! Each operation against results on the host, for each type, in place and not.

use crate::machine::{all, synchronize};
use cuda_nccl::{
    BFloat16, Communicator, Element, Float8E4M3, Float8E5M2, Float16, NcclVersion, ReduceOp,
    Reduction, group,
};
use cuda_safe::{DeviceBuffer, DeviceSlice};
use std::fmt::Debug;

/// The elements of each part.
const PART: usize = 5;

/// A type that holds small integers exactly, and computes with them on the host.
trait Small: Element + PartialEq + Debug {
    fn of(value: i32) -> Self;
}

macro_rules! small {
    ($($ty:ty: |$value:ident| $of:expr;)*) => {$(
        impl Small for $ty {
            fn of($value: i32) -> Self {
                $of
            }
        }
    )*};
}

small! {
    i8: |value| value as i8;
    u8: |value| value as u8;
    i32: |value| value;
    u32: |value| value as u32;
    i64: |value| value.into();
    u64: |value| value as u64;
    f32: |value| value as f32;
    f64: |value| value.into();
    Float16: |value| Float16(cuda_ptx::number::convert::f32_to_f16((value as f32).to_bits()));
    BFloat16: |value| BFloat16(cuda_ptx::number::convert::f32_to_bf16((value as f32).to_bits()));
    // The small integers by hand: 0 to 24 are exact in the first format, and some of them in the second.
    Float8E4M3: |value| Float8E4M3(of_8_bits(value, 3, 7));
    Float8E5M2: |value| Float8E5M2(of_8_bits(value, 2, 15));
}

/// Encodes a non-negative integer that has few bits.
fn of_8_bits(value: i32, mantissa_bits: u32, bias: i32) -> u8 {
    if value == 0 {
        return 0;
    }
    let exponent = value.ilog2();
    let mantissa = (value << mantissa_bits >> exponent) & ((1 << mantissa_bits) - 1);
    assert_eq!(
        value << mantissa_bits >> exponent << exponent,
        value << mantissa_bits,
        "not exact: {value}"
    );
    u8::try_from((exponent as i32 + bias) << mantissa_bits | mantissa).expect("8 bits")
}

/// The contribution of a rank at a position: 1 or 2, so that all results are exact in every type.
fn value(rank: usize, place: usize) -> i32 {
    1 + ((rank + place) % 2) as i32
}

fn contribution<T: Small>(rank: usize, len: usize) -> Vec<T> {
    (0..len).map(|place| T::of(value(rank, place))).collect()
}

/// The result of a reduction at a position.
fn combined(op: ReduceOp, ranks: usize, place: usize) -> Option<i32> {
    let all = (0..ranks).map(|rank| value(rank, place));
    Some(match op {
        ReduceOp::Sum => all.sum(),
        ReduceOp::Product => all.product(),
        ReduceOp::Max => all.max()?,
        ReduceOp::Min => all.min()?,
        // Exact only if it is a whole number.
        ReduceOp::Average => {
            let sum: i32 = all.sum();
            (sum % ranks as i32 == 0).then_some(sum / ranks as i32)?
        }
        _ => return None,
    })
}

const OPS: [ReduceOp; 5] =
    [ReduceOp::Sum, ReduceOp::Product, ReduceOp::Max, ReduceOp::Min, ReduceOp::Average];

fn results<T: Small>(op: ReduceOp, ranks: usize, len: usize) -> Vec<Option<T>> {
    (0..len).map(|place| combined(op, ranks, place).map(T::of)).collect()
}

/// Compares where the result is exact.
#[track_caller]
fn assert_results<T: Small>(actual: &[T], expected: &[Option<T>], what: &str) {
    assert_eq!(actual.len(), expected.len());
    for (place, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        if let Some(expected) = expected {
            assert_eq!(actual, expected, "{what} of {} at {place}", std::any::type_name::<T>());
        }
    }
}

fn buffers<T: Small>(communicators: &[Communicator], len: usize) -> Vec<DeviceBuffer<T>> {
    let of = |(rank, its): (usize, &Communicator)| {
        DeviceBuffer::from_slice(its.stream(), &contribution::<T>(rank, len)).expect("memory")
    };
    communicators.iter().enumerate().map(of).collect()
}

fn empty<T: Small>(communicators: &[Communicator], len: usize) -> Vec<DeviceBuffer<T>> {
    let of = |its: &Communicator| DeviceBuffer::zeroed(its.stream(), len).expect("memory");
    communicators.iter().map(of).collect()
}

/// Reads a buffer, or an untouched one.
fn read<T: Small>(buffer: &DeviceBuffer<T>) -> Vec<T> {
    buffer.to_vec().expect("a copy")
}

/// Whether NCCL multiplies elements of a type with a factor. On one rank it does not for those of 8 bits (measured with
/// 2.28), and an average of floating point numbers is such a product.
fn has_factors<T: Small>(ranks: usize) -> bool {
    let is_small = [Float8E4M3::DATA_TYPE, Float8E5M2::DATA_TYPE].contains(&T::DATA_TYPE);
    ranks > 1 || !is_small
}

fn reductions<T: Small>(communicators: &[Communicator]) {
    let ranks = communicators.len();
    for op in OPS {
        if op == ReduceOp::Average && !has_factors::<T>(ranks) {
            continue;
        }
        for root in 0..ranks {
            let sources = buffers::<T>(communicators, PART);
            let mut targets = empty::<T>(communicators, PART);
            group(|group| {
                for ((its, source), target) in communicators.iter().zip(&sources).zip(&mut targets)
                {
                    let target = (its.rank() as usize == root).then(|| target.as_mut_slice());
                    group.reduce(its, source.as_slice(), target, op, root as u32)?;
                }
                Ok(())
            })
            .expect("a reduction");
            for (rank, target) in targets.iter().enumerate() {
                match rank == root {
                    true => assert_results(&read(target), &results(op, ranks, PART), "reduce"),
                    false => assert_eq!(read(target), vec![T::of(0); PART]),
                }
            }
            let mut own = buffers::<T>(communicators, PART);
            group(|group| {
                for (its, buffer) in communicators.iter().zip(&mut own) {
                    group.reduce_in_place(its, buffer, op, root as u32)?;
                }
                Ok(())
            })
            .expect("a reduction");
            assert_results(&read(&own[root]), &results(op, ranks, PART), "reduce in place");
        }

        let sources = buffers::<T>(communicators, PART);
        let mut targets = empty::<T>(communicators, PART);
        let mut own = buffers::<T>(communicators, PART);
        let whole = buffers::<T>(communicators, PART * ranks);
        let mut parts = empty::<T>(communicators, PART);
        let mut own_parts = buffers::<T>(communicators, PART * ranks);
        group(|group| {
            for (its, (source, target)) in
                communicators.iter().zip(sources.iter().zip(&mut targets))
            {
                group.all_reduce(its, source, target, op)?;
            }
            Ok(())
        })
        .expect("a reduction");
        group(|group| {
            for (its, buffer) in communicators.iter().zip(&mut own) {
                group.all_reduce_in_place(its, buffer, op)?;
            }
            Ok(())
        })
        .expect("a reduction");
        group(|group| {
            for (its, (source, target)) in communicators.iter().zip(whole.iter().zip(&mut parts)) {
                group.reduce_scatter(its, source, target, op)?;
            }
            Ok(())
        })
        .expect("a reduction");
        group(|group| {
            for (its, buffer) in communicators.iter().zip(&mut own_parts) {
                group.reduce_scatter_in_place(its, buffer, op)?;
            }
            Ok(())
        })
        .expect("a reduction");
        let all = results::<T>(op, ranks, PART * ranks);
        for rank in 0..ranks {
            assert_results(&read(&targets[rank]), &all[..PART], "all_reduce");
            assert_results(&read(&own[rank]), &all[..PART], "all_reduce in place");
            let part = PART * rank..PART * (rank + 1);
            assert_results(&read(&parts[rank]), &all[part.clone()], "reduce_scatter");
            let own = &read(&own_parts[rank])[part.clone()];
            assert_results(own, &all[part], "reduce_scatter in place");
        }
    }
}

fn copies<T: Small>(communicators: &[Communicator]) {
    let ranks = communicators.len();
    let all: Vec<T> = (0..ranks).flat_map(|rank| contribution::<T>(rank, PART)).collect();
    for root in 0..ranks {
        let number = root as u32;
        let sources = buffers::<T>(communicators, PART);
        let wholes = buffers::<T>(communicators, PART * ranks);
        let [mut received, mut scattered] = [(); 2].map(|()| empty::<T>(communicators, PART));
        let mut own = buffers::<T>(communicators, PART);
        let mut gathered = empty::<T>(communicators, PART * ranks);
        group(|group| {
            for (its, (source, target)) in
                communicators.iter().zip(sources.iter().zip(&mut received))
            {
                let source: Option<DeviceSlice<'_, T>> =
                    (its.rank() == number).then(|| source.as_slice());
                group.broadcast(its, source, target, number)?;
            }
            Ok(())
        })
        .expect("a broadcast");
        group(|group| {
            for (its, buffer) in communicators.iter().zip(&mut own) {
                group.broadcast_in_place(its, buffer, number)?;
            }
            Ok(())
        })
        .expect("a broadcast");
        group(|group| {
            for (its, (source, target)) in
                communicators.iter().zip(sources.iter().zip(&mut gathered))
            {
                let target = (its.rank() == number).then(|| target.as_mut_slice());
                group.gather(its, source.as_slice(), target, number)?;
            }
            Ok(())
        })
        .expect("a gather");
        group(|group| {
            for (its, (source, target)) in
                communicators.iter().zip(wholes.iter().zip(&mut scattered))
            {
                let source = (its.rank() == number).then(|| source.as_slice());
                group.scatter(its, source, target, number)?;
            }
            Ok(())
        })
        .expect("a scatter");
        let (of_root, whole) =
            (contribution::<T>(root, PART), contribution::<T>(root, PART * ranks));
        for rank in 0..ranks {
            assert_eq!(read(&received[rank]), of_root, "broadcast");
            assert_eq!(read(&own[rank]), of_root, "broadcast in place");
            assert_eq!(read(&scattered[rank]), whole[PART * rank..PART * (rank + 1)], "scatter");
            let expected = if rank == root { all.clone() } else { vec![T::of(0); PART * ranks] };
            assert_eq!(read(&gathered[rank]), expected, "gather");
        }
    }

    let sources = buffers::<T>(communicators, PART);
    let wholes = buffers::<T>(communicators, PART * ranks);
    let [mut gathered, mut own, mut exchanged] =
        [(); 3].map(|()| empty::<T>(communicators, PART * ranks));
    for (rank, buffer) in own.iter_mut().enumerate() {
        let mut part = buffer.slice_mut(PART * rank..PART * (rank + 1)).expect("a part");
        part.copy_from_slice(&contribution::<T>(rank, PART)).expect("a copy");
    }
    group(|group| {
        for (its, (source, target)) in communicators.iter().zip(sources.iter().zip(&mut gathered)) {
            group.all_gather(its, source, target)?;
        }
        Ok(())
    })
    .expect("a gather");
    group(|group| {
        for (its, buffer) in communicators.iter().zip(&mut own) {
            group.all_gather_in_place(its, buffer)?;
        }
        Ok(())
    })
    .expect("a gather");
    group(|group| {
        for (its, (source, target)) in communicators.iter().zip(wholes.iter().zip(&mut exchanged)) {
            group.all_to_all(its, source, target)?;
        }
        Ok(())
    })
    .expect("an exchange");
    for rank in 0..ranks {
        assert_eq!(read(&gathered[rank]), all, "all_gather");
        assert_eq!(read(&own[rank]), all, "all_gather in place");
        let parts = (0..ranks).flat_map(|other| {
            let whole = contribution::<T>(other, PART * ranks);
            whole[PART * rank..PART * (rank + 1)].to_vec()
        });
        assert_eq!(read(&exchanged[rank]), parts.collect::<Vec<T>>(), "all_to_all");
    }
}

/// Sends to the next rank and receives from the previous one, and scaled sums by values of host and device.
fn messages_and_scales<T: Small>(communicators: &[Communicator]) {
    let ranks = communicators.len();
    let sources = buffers::<T>(communicators, PART);
    let mut targets = empty::<T>(communicators, PART);
    group(|group| {
        for (rank, (its, (source, target))) in
            communicators.iter().zip(sources.iter().zip(&mut targets)).enumerate()
        {
            group.send(its, source, ((rank + 1) % ranks) as u32)?;
            group.receive(its, target, ((rank + ranks - 1) % ranks) as u32)?;
        }
        Ok(())
    })
    .expect("messages");
    for (rank, target) in targets.iter().enumerate() {
        assert_eq!(read(target), contribution::<T>((rank + ranks - 1) % ranks, PART), "a message");
    }

    if !has_factors::<T>(ranks) {
        return;
    }
    let doubled: i32 = (0..ranks).map(|rank| 2 * value(rank, 0)).sum();
    let two = communicators.iter().map(|its| DeviceBuffer::from_slice(its.stream(), &[T::of(2)]));
    let two: Vec<DeviceBuffer<T>> = two.collect::<Result<_, _>>().expect("memory");
    for on_device in [false, true] {
        let mut targets = empty::<T>(communicators, PART);
        group(|group| {
            for (its, ((source, target), two)) in
                communicators.iter().zip(sources.iter().zip(&mut targets).zip(&two))
            {
                let op = match on_device {
                    true => Reduction::ScaledSumOf(two.as_slice()),
                    false => Reduction::ScaledSum(T::of(2)),
                };
                group.all_reduce(its, source, target, op)?;
            }
            Ok(())
        })
        .expect("a scaled sum");
        for target in &targets {
            assert_eq!(read(target)[0], T::of(doubled), "a scaled sum, on the device: {on_device}");
        }
    }
}

fn everything<T: Small>(communicators: &[Communicator]) {
    reductions::<T>(communicators);
    copies::<T>(communicators);
    messages_and_scales::<T>(communicators);
}

#[test]
fn operations_have_the_results_of_the_host_in_every_type() {
    let communicators = or_skip!(all());
    everything::<i8>(&communicators);
    everything::<u8>(&communicators);
    everything::<i32>(&communicators);
    everything::<u32>(&communicators);
    everything::<i64>(&communicators);
    everything::<u64>(&communicators);
    everything::<f32>(&communicators);
    everything::<f64>(&communicators);
    everything::<Float16>(&communicators);
    everything::<BFloat16>(&communicators);
    if cuda_nccl::version().expect("a library") >= NcclVersion::new(2, 24, 3) {
        everything::<Float8E4M3>(&communicators);
        everything::<Float8E5M2>(&communicators);
    }
}

#[test]
fn single_operations_of_threads_meet() {
    let communicators = or_skip!(all());
    let ranks = communicators.len();
    let threads: Vec<_> = communicators
        .into_iter()
        .map(|its| {
            std::thread::spawn(move || {
                let rank = its.rank() as usize;
                let mut sums = DeviceBuffer::from_slice(its.stream(), &[rank as i64 + 1; 1000]);
                let sums = sums.as_mut().expect("memory");
                its.all_reduce_in_place(&mut *sums, ReduceOp::Sum).expect("a sum");
                // In stream order after the sum.
                its.broadcast_in_place(&mut *sums, 0).expect("a broadcast");
                sums.to_vec().expect("a copy")
            })
        })
        .collect();
    let sum = (1..=ranks as i64).sum::<i64>();
    for thread in threads {
        assert_eq!(thread.join().expect("no panic"), vec![sum; 1000]);
    }
}

#[test]
fn large_operations_are_complete() {
    let communicators = or_skip!(all());
    let ranks = communicators.len();
    const LEN: usize = 1 << 20;
    let ones = |its: &Communicator| DeviceBuffer::from_slice(its.stream(), &vec![1_u32; LEN]);
    let buffers: Result<Vec<_>, _> = communicators.iter().map(ones).collect();
    let mut buffers = buffers.expect("memory");
    group(|group| {
        for (its, buffer) in communicators.iter().zip(&mut buffers) {
            group.all_reduce_in_place(its, buffer, ReduceOp::Sum)?;
        }
        Ok(())
    })
    .expect("a sum");
    synchronize(&communicators);
    for buffer in &buffers {
        assert!(buffer.to_vec().expect("a copy").iter().all(|sum| *sum as usize == ranks));
    }
}
