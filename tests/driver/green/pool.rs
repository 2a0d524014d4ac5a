use crate::common;
use crate::green::{again, refusal, resource_alone, smallest};
use crate::module::kernels::{RecordSmid, Scale};
use cuda_safe::green::{GreenContext, GreenPool, GreenPoolOptions, Lease, PartitionRequest};
use cuda_safe::green::{PartitionSize, PooledPartition, SmProbe, SplitByCount};
use cuda_safe::memory::{MemoryPool, MemoryPoolOptions};
use cuda_safe::{Context, Device, DeviceBuffer, Invalid, StreamOptions};
use std::sync::{Arc, Mutex, MutexGuard};

fn pool(device: &Device) -> GreenPool {
    let options = GreenPoolOptions { label: "the test".to_owned(), ..GreenPoolOptions::default() };
    GreenPool::new(device, options).expect("no other pool has the device")
}

/// Returns such a pool and a lock as that of [`alone`](crate::green::alone), or reports a skip.
fn pool_alone() -> Option<(MutexGuard<'static, ()>, GreenPool)> {
    let (lock, resource) = resource_alone()?;
    common::since(12, 5)?;
    Some((lock, pool(&resource.device())))
}

/// Returns the SMs of a smallest group.
fn unit(pool: &GreenPool) -> u32 {
    again(&pool.device()).granularity().expect("known").min
}

/// Requests partitions with these numbers of SMs.
fn sized(sms: &[u32]) -> PartitionRequest {
    let sizes = sms.iter().copied().map(PartitionSize::Sms).collect();
    PartitionRequest { sizes, ..PartitionRequest::default() }
}

/// Requests a partition of this many smallest groups, and a second one of one group.
fn two(pool: &GreenPool, units: u32) -> PartitionRequest {
    let unit = unit(pool);
    sized(&[units * unit, unit])
}

fn lease(pool: &GreenPool, asked: &PartitionRequest) -> Lease {
    pool.try_lease(asked).expect("a lease")
}

#[test]
fn freed_memory_of_a_memory_pool_holds_no_lease() {
    let (_alone, pool) = or_skip!(pool_alone());
    let context = Context::primary(&pool.device()).expect("a context");
    let memory = MemoryPool::new(&context, MemoryPoolOptions::default()).expect("a pool");
    for round in 0..3 {
        let lease = lease(&pool, &two(&pool, 1 + round));
        let stream = lease[0].stream().expect("a stream");
        drop(lease);
        let buffer = DeviceBuffer::<u8>::zeroed_from_pool(&memory, &stream, 8).expect("memory");
        assert_eq!(buffer.to_vec().expect("a copy"), [0; 8]);
    }
}

#[test]
fn a_partitioning_is_created_once_and_reused() {
    const ROUNDS: usize = if cfg!(miri) { 4 } else { 6 };
    let (_alone, pool) = or_skip!(pool_alone());
    let record = RecordSmid::new(&Context::primary(&pool.device()).expect("a context"));
    let sizes = [two(&pool, 1), two(&pool, 3)];
    let mut sms = Vec::new();
    for round in 0..ROUNDS {
        let lease = lease(&pool, &sizes[round % 2]);
        let planned: Vec<u32> = lease.plan().parts.iter().map(|part| part.sm_count).collect();
        let given: Vec<u32> = lease.iter().map(|partition| partition.sm_count()).collect();
        assert_eq!(planned, given);
        let streams = [&lease[0], &lease[1]].map(|part| part.stream().expect("a stream"));
        let ran = [&streams[0], &streams[1]].map(|stream| record.sms(stream));
        assert_eq!(ran[0].len() as u32, given[0]);
        assert!(ran[0].is_disjoint(&ran[1]));
        sms.push(ran);
    }
    assert_eq!(sms[0], sms[ROUNDS - 2], "the same partitions");
    let stats = pool.stats().expect("stats");
    assert_eq!((stats.leases, stats.switches), (ROUNDS as u64, ROUNDS as u64 - 1));
    assert_eq!((stats.created, stats.cached, stats.leased), (2, 2, 0));
}

#[test]
fn a_lease_lasts_while_any_object_of_its_partitions_is_alive() {
    let (_alone, pool) = or_skip!(pool_alone());
    let (first, second) = (two(&pool, 1), two(&pool, 2));
    let held = lease(&pool, &first);
    let stream = held[1].stream().expect("a stream");
    let buffer = DeviceBuffer::<u8>::zeroed(&stream, 10).expect("memory");
    let busy = |parts| Invalid::PoolInUse { holder: "the test".to_owned(), parts };
    assert_eq!(refusal(pool.try_lease(&second).expect_err("two partitions are in use")), busy(2));
    drop((held, stream));
    assert_eq!(refusal(pool.try_lease(&second).expect_err("one partition is in use")), busy(1));
    drop(buffer);
    lease(&pool, &second);
    // The device stays unavailable to others whether or not partitions are leased.
    let device = again(&pool.device());
    let error =
        device.split_by_count(SplitByCount::default()).expect_err("the pool has the device");
    assert_eq!(
        refusal(error),
        Invalid::SplitInUse { device: pool.device().as_raw(), holder: "the test".to_owned() }
    );
    drop(pool);
    smallest(device);
}

#[test]
fn streams_of_the_next_partitioning_wait_for_the_work_of_the_previous_one() {
    // A wait for the context invalidates the captures of other tests.
    if !crate::common::child::entered(&[]) {
        return;
    }
    let (_alone, pool) = or_skip!(pool_alone());
    let sizes = [two(&pool, 1), two(&pool, 2), two(&pool, 3)];
    let seen = Arc::new(Mutex::new(Vec::new()));
    for round in 0..9 {
        let lease = lease(&pool, &sizes[round % 3]);
        // In the first rounds the streams are new; later they are cached ones.
        for partition in lease.iter() {
            let stream = partition.stream().expect("a stream");
            let seen = Arc::clone(&seen);
            let tell = move || seen.lock().expect("no panic").push(round);
            stream.launch_host_function(tell).expect("a function");
        }
    }
    let context = Context::primary(&pool.device()).expect("a context");
    context.synchronize().expect("a wait");
    let seen = seen.lock().expect("no panic");
    assert_eq!(seen.len(), 18);
    assert!(seen.is_sorted(), "{seen:?}");
}

/// Requests a split of a part into two smallest groups.
fn halves(unit: u32) -> PartitionRequest {
    sized(&[unit; 2])
}

#[test]
fn a_part_is_split_again_and_the_result_is_cached() {
    const ROUNDS: u64 = if cfg!(miri) { 2 } else { 3 };
    let (_alone, pool) = or_skip!(pool_alone());
    let unit = unit(&pool);
    let record = RecordSmid::new(&Context::primary(&pool.device()).expect("a context"));
    let mut sms = Vec::new();
    for _ in 0..ROUNDS {
        let mut parts = lease(&pool, &two(&pool, 4)).into_partitions();
        let (whole, other) = (parts.remove(0), parts.remove(0));
        let all = record.sms(&whole.stream().expect("a stream"));
        let smaller = whole.split(&halves(unit)).expect("a split");
        let streams = [&smaller[0], &smaller[1]].map(|part| part.stream().expect("a stream"));
        let ran = [&streams[0], &streams[1]].map(|stream| record.sms(stream));
        for (part, ran) in smaller.iter().zip(&ran) {
            assert_eq!(part.sm_count() as usize, ran.len());
            assert!(ran.is_subset(&all));
        }
        assert!(ran[0].is_disjoint(&ran[1]));
        assert!(record.sms(&other.stream().expect("a stream")).is_disjoint(&all));
        sms.push((all, ran));
    }
    assert!(sms.iter().all(|these| *these == sms[0]), "the same each time");
    let stats = pool.stats().expect("stats");
    assert_eq!((stats.leases, stats.splits), (ROUNDS, ROUNDS));
    assert_eq!((stats.created, stats.cached, stats.leased), (2, 2, 0));
}

#[test]
fn a_part_is_in_use_while_its_parts_are_and_is_not_split_while_it_has_streams() {
    let (_alone, pool) = or_skip!(pool_alone());
    let unit = unit(&pool);
    let asked = two(&pool, 4);
    let whole = lease(&pool, &asked).into_partitions().remove(0);
    let stream = whole.stream().expect("a stream");
    let rejected = whole.try_split(&halves(unit)).expect_err("a stream of it");
    assert_eq!(refusal(rejected.error), Invalid::PartitionInUse { holder: "the test".to_owned() });
    drop(stream);
    let rejected = rejected.value.try_split(&halves(4 * unit)).expect_err("too many SMs");
    let smaller = rejected.value.split(&halves(unit)).expect("a split");
    let quarter = smaller.into_partitions().remove(1);
    let stream = quarter.stream().expect("a stream");
    drop(quarter);
    let out = || refusal(pool.try_lease(&asked).expect_err("a part is leased"));
    assert!(matches!(out(), Invalid::PoolInUse { parts: 1, .. }));
    drop(stream);
    lease(&pool, &asked);
}

#[test]
fn a_part_and_its_subparts_run_one_after_the_other() {
    // A wait for the context invalidates the captures of other tests.
    if !crate::common::child::entered(&[]) {
        return;
    }
    let (_alone, pool) = or_skip!(pool_alone());
    let unit = unit(&pool);
    let (wide, narrow) = (two(&pool, 4), two(&pool, 1));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let tell = |partition: &PooledPartition, round: u32| {
        let stream = partition.stream().expect("a stream");
        let seen = Arc::clone(&seen);
        let tell = move || seen.lock().expect("no panic").push(round);
        stream.launch_host_function(tell).expect("a function");
    };
    // In the first rounds everything is new; later everything is cached.
    let rounds = if cfg!(miri) { 2 } else { 10 };
    for round in (0..4 * rounds).step_by(4) {
        let whole = lease(&pool, &wide).into_partitions().remove(0);
        tell(&whole, round);
        let smaller = whole.split(&halves(unit)).expect("a split");
        smaller.iter().for_each(|part| tell(part, round + 1));
        drop(smaller);
        let whole = lease(&pool, &wide).into_partitions().remove(0);
        let other = whole.split(&halves(2 * unit)).expect("a split");
        other.iter().for_each(|part| tell(part, round + 2));
        drop(other);
        tell(&lease(&pool, &narrow)[0], round + 3);
    }
    let context = Context::primary(&pool.device()).expect("a context");
    context.synchronize().expect("a wait");
    let seen = seen.lock().expect("no panic");
    assert_eq!(seen.len() as u32, 6 * rounds);
    assert!(seen.is_sorted(), "{seen:?}");
    assert_eq!(pool.stats().expect("stats").created, 4);
}

#[test]
fn streams_are_cached_by_their_options() {
    let (_alone, pool) = or_skip!(pool_alone());
    let asked = two(&pool, 1);
    let high = StreamOptions { priority: -1, ..StreamOptions::default() };
    let handles = || {
        let lease = lease(&pool, &asked);
        let streams = [lease[0].stream(), lease[0].stream_with(high), lease[0].stream()];
        let streams = streams.map(|stream| stream.expect("a stream"));
        assert_eq!(streams[1].priority().expect("known"), -1);
        streams.map(|stream| stream.as_raw().addr())
    };
    let first = handles();
    assert!(first[0] != first[2], "two streams taken at the same time are different");
    assert_eq!(handles(), first);
}

#[test]
fn a_stream_of_a_pool_does_not_expose_its_partition() {
    let (_alone, resource) = or_skip!(resource_alone());
    let pool = pool(&resource.device());
    let lease = lease(&pool, &two(&pool, 1));
    let stream = lease[0].stream().expect("a stream");
    // These could be used to create streams that the pool does not know of.
    for stream in [&stream, &stream.clone()] {
        let why = GreenContext::of_stream(stream).expect_err("the partition belongs to the pool");
        assert_eq!(refusal(why), Invalid::StreamOfPool);
        assert!(stream.green_context().is_none());
    }
    // The SMs of a stream can still be queried.
    let probe = SmProbe::new(stream.context()).expect("a probe");
    let sms = probe.sms(&stream).expect("a trace");
    assert!(sms.len() as u32 >= lease[0].sm_count());
}

#[test]
fn threads_lease_the_pool_in_turn() {
    let (_alone, pool) = or_skip!(pool_alone());
    let context = Context::primary(&pool.device()).expect("a context");
    let scale = Scale::new(&context);
    let (threads, rounds) = if cfg!(miri) { (3, 1) } else { (8, 20) };
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (pool, scale) = (&pool, &scale);
            scope.spawn(move || {
                for round in 0..rounds {
                    let lease = pool.lease(&two(pool, 1 + (thread + round) % 3)).expect("a turn");
                    let stream = lease[0].stream().expect("a stream");
                    let mut x = DeviceBuffer::from_slice(&stream, &[1; 8]).expect("a copy");
                    scale.run(&stream, &mut x, 3, 1).expect("a launch");
                    assert_eq!(x.to_vec().expect("a copy"), [4; 8]);
                }
            });
        }
    });
    let stats = pool.stats().expect("stats");
    let leases = u64::from(threads * rounds);
    assert_eq!((stats.leases, stats.created, stats.leased), (leases, 3, 0));
}

#[test]
fn the_least_recently_used_partitioning_is_destroyed() {
    let (_alone, resource) = or_skip!(resource_alone());
    or_skip!(common::since(12, 5));
    let options = GreenPoolOptions { max_partitionings: Some(2), ..GreenPoolOptions::default() };
    let pool = GreenPool::new(&resource.device(), options).expect("no other pool has the device");
    let sizes = [two(&pool, 1), two(&pool, 2), two(&pool, 3)];
    for (asked, made) in [(0, 1), (1, 2), (0, 2), (2, 3), (0, 3), (1, 4)] {
        lease(&pool, &sizes[asked]);
        assert_eq!(pool.stats().expect("stats").created, made);
    }
    let held = lease(&pool, &sizes[1]);
    pool.trim(0).expect("no thread is switching the partitioning");
    let stats = pool.stats().expect("stats");
    assert_eq!((stats.cached, stats.destroyed), (1, 3), "one is leased");
    held[0].stream().expect("the partition is usable");
}

#[test]
fn the_counters_of_a_pool_include_leased_parts() {
    let (_alone, pool) = or_skip!(pool_alone());
    let leased = || pool.stats().expect("stats").leased;
    let mut parts = lease(&pool, &two(&pool, 1)).into_partitions();
    assert_eq!(leased(), 2);
    parts.pop();
    assert_eq!(leased(), 1);
    drop(parts);
    assert_eq!(leased(), 0);
}

#[test]
fn the_splits_of_a_destroyed_partitioning_count_as_destroyed() {
    let (_alone, pool) = or_skip!(pool_alone());
    let unit = unit(&pool);
    let whole = lease(&pool, &two(&pool, 4)).into_partitions().remove(0);
    drop(whole.split(&halves(unit)).expect("a split"));
    lease(&pool, &two(&pool, 1));
    pool.trim(1).expect("no thread is switching the partitioning");
    let stats = pool.stats().expect("stats");
    assert_eq!((stats.created, stats.destroyed, stats.cached), (3, 2, 1));
}

#[test]
fn an_impossible_partitioning_leaves_the_pool_unchanged() {
    let (_alone, pool) = or_skip!(pool_alone());
    let impossible = PartitionRequest {
        sizes: vec![PartitionSize::Percent(90), PartitionSize::Percent(90)],
        ..PartitionRequest::default()
    };
    let why = refusal(pool.lease(&impossible).expect_err("180 %"));
    assert!(matches!(why, Invalid::NoSuchPartitions { .. }), "{why}");
    lease(&pool, &two(&pool, 1));
    assert_eq!(pool.stats().expect("stats").created, 1);
}
