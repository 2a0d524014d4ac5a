//! Communicators of three ranks, each on a thread: they are created, used, split, aborted and dropped.

use super::{Scenario, context};
use cuda_nccl::{Abort, Communicator, Config, Error, ReduceOp, UniqueId, group};
use cuda_safe::DeviceBuffer;
use cuda_sim::explore::{self, spawn};
use std::sync::{Arc, Mutex};

const RANKS: u32 = 3;

pub(super) fn all() -> Vec<Scenario> {
    let ranks = |name, is_interruptible, body: fn(&Rank)| {
        Scenario::new(name, move || run(is_interruptible, body)).on_devices(RANKS)
    };
    vec![
        ranks("collectives/work", false, complete_work),
        ranks("collectives/work, interruptible", true, complete_work),
        ranks("collectives/abort", false, aborted_work),
        ranks("collectives/abort, interruptible", true, aborted_work),
        ranks("collectives/a missing rank", false, a_missing_rank),
        ranks("collectives/an error", true, an_error),
        ranks("collectives/drop and abort", false, drop_and_abort),
        ranks("collectives/growth", false, growth),
        ranks("collectives/growth, interruptible", true, growth),
        ranks("collectives/growth and abort", true, growth_and_abort),
    ]
}

/// What a thread knows.
struct Rank {
    communicator: Mutex<Option<Communicator>>,
    rank: u32,
    /// The handles of the ranks that have been created.
    aborts: Arc<Mutex<Vec<Abort>>>,
}

/// Creates the communicators on three threads, and runs a function on each.
fn run(is_interruptible: bool, body: fn(&Rank)) {
    let id = UniqueId::new().expect("an id");
    let aborts: Arc<Mutex<Vec<Abort>>> = Arc::default();
    let threads: Vec<_> = (0..RANKS)
        .map(|rank| {
            let aborts = Arc::clone(&aborts);
            spawn(["rank 0", "rank 1", "rank 2"][rank as usize], move || {
                let stream = context(rank).stream().expect("a stream");
                let config = Config { interruptible: is_interruptible, ..Default::default() };
                let its = Communicator::init(&stream, &id, rank, RANKS, &config).expect("init");
                aborts.lock().expect("no panic").push(its.abort_handle());
                body(&Rank { communicator: Mutex::new(Some(its)), rank, aborts });
            })
        })
        .collect();
    threads.into_iter().for_each(explore::JoinHandle::join);
}

impl Rank {
    fn take(&self) -> Communicator {
        self.communicator.lock().expect("no panic").take().expect("a communicator")
    }

    /// Aborts all ranks, when all have been created.
    fn abort_all(&self) {
        self.abort(RANKS as usize);
    }

    /// Aborts so many communicators, when all have been created.
    fn abort(&self, count: usize) {
        explore::wait_until(|| self.aborts.try_lock().is_ok_and(|aborts| aborts.len() == count));
        let aborts = self.aborts.lock().expect("no panic").clone();
        aborts.iter().for_each(|abort| abort.abort().expect("an abort"));
    }
}

/// Sums the ranks, and checks the sum unless the operation was aborted.
fn sum(its: &Communicator) -> Result<(), Error> {
    let mut sum = DeviceBuffer::from_slice(its.stream(), &[1_u32; 4])?;
    its.all_reduce_in_place(&mut sum, ReduceOp::Sum)?;
    let sum = sum.to_vec()?;
    its.check()?;
    assert_eq!(sum, [its.ranks(); 4]);
    Ok(())
}

/// Exchanges a value with both neighbors.
fn exchange(its: &Communicator) -> Result<(), Error> {
    let (rank, ranks) = (its.rank(), its.ranks());
    let own = DeviceBuffer::from_slice(its.stream(), &[rank])?;
    let mut received = DeviceBuffer::<u32>::zeroed(its.stream(), 1)?;
    group(|group| {
        group.send(its, &own, (rank + 1) % ranks)?;
        group.receive(its, &mut received, (rank + ranks - 1) % ranks)
    })?;
    let received = received.to_vec()?;
    its.check()?;
    assert_eq!(received, [(rank + ranks - 1) % ranks]);
    Ok(())
}

/// A program of a rank. Each step may find that the communicator was aborted.
fn program(its: &Communicator) -> Result<(), Error> {
    sum(its)?;
    exchange(its)?;
    let half = its.split(Some(its.rank() % 2), 0, None)?.expect("a color");
    sum(&half)?;
    half.finalize()?;
    let buffer = DeviceBuffer::<u32>::zeroed(its.stream(), 4)?;
    // SAFETY: all ranks run this program.
    let mut registered = unsafe { its.register(buffer) }?;
    let buffer = registered.as_mut_slice();
    its.broadcast_in_place(buffer, 2)?;
    sum(its)
}

fn complete_work(rank: &Rank) {
    let its = rank.take();
    program(&its).expect("no error");
    match rank.rank {
        0 => its.finalize().expect("an end"),
        _ => drop(its),
    }
}

/// Accepts an abort.
#[track_caller]
fn or_aborted(done: Result<(), Error>) {
    match done {
        Ok(()) | Err(Error::Aborted) => {}
        Err(error) => panic!("{error}"),
    }
}

/// One thread aborts all communicators at any time. An interruptible one may also wait in a call, such as the split.
fn aborted_work(rank: &Rank) {
    let its = rank.take();
    if rank.rank == 0 {
        rank.abort_all();
    } else if rank.rank == 1 || its.stream().context().device().ordinal() > 1 {
        // The split of a communicator that is not interruptible waits for the others.
        or_aborted(sum(&its).and_then(|()| exchange(&its)));
    }
    drop(its);
}

/// A rank never makes the call, and ends the others.
fn a_missing_rank(rank: &Rank) {
    let its = rank.take();
    if rank.rank == 2 {
        rank.abort_all();
        return;
    }
    let done = sum(&its);
    assert!(matches!(done, Err(Error::Aborted)), "{done:?}");
}

/// A rank has an error in the background, and aborts all.
fn an_error(rank: &Rank) {
    let its = rank.take();
    if rank.rank == 1 {
        let raw = its.with_raw(|raw| raw).expect("a handle");
        assert!(cuda_sim::nccl::set_error(raw.cast(), 2));
        assert!(matches!(its.check(), Err(Error::Nccl(_))));
        rank.abort_all();
        return;
    }
    or_aborted(program(&its));
}

/// Splits off the first two ranks, and returns the id with which their communicator grows.
fn begin_growth(its: &Communicator) -> Result<(Option<Communicator>, UniqueId), Error> {
    let color = (its.rank() < 2).then_some(0);
    let half = its.split(color, 0, None)?;
    let mut id = DeviceBuffer::<u8>::zeroed(its.stream(), UniqueId::BYTES)?;
    if let Some(half) = half.as_ref().filter(|half| half.rank() == 0) {
        id.copy_from_slice(half.growth_id()?.as_bytes())?;
    }
    its.broadcast_in_place(&mut id, 0)?;
    Ok((half, UniqueId::try_from(&*id.to_vec()?)?))
}

/// Two ranks grow to three. The old communicator is dropped before the new one is used.
fn growth(rank: &Rank) {
    let its = rank.take();
    let (half, id) = begin_growth(&its).expect("an id");
    let grown = match half {
        Some(half) => {
            let id = (half.rank() == 0).then_some(id);
            half.grow(RANKS, id.as_ref(), None)
        }
        None => Communicator::join(its.stream(), &id, 2, RANKS, &Config::default()),
    };
    drop(its);
    sum(&grown.expect("a larger communicator")).expect("no error");
}

/// The new rank does not join, and ends the others.
fn growth_and_abort(rank: &Rank) {
    let its = rank.take();
    let (half, id) = begin_growth(&its).expect("an id");
    let Some(half) = half else {
        return rank.abort(RANKS as usize + 2);
    };
    rank.aborts.lock().expect("no panic").push(half.abort_handle());
    let id = (half.rank() == 0).then_some(id);
    let grown = half.grow(RANKS, id.as_ref(), None);
    assert!(matches!(grown, Err(Error::Aborted)), "{grown:?}");
}

/// A drop waits for an operation that the other ranks do not enqueue, until an abort.
fn drop_and_abort(rank: &Rank) {
    let its = rank.take();
    if rank.rank == 0 {
        let mut buffer = DeviceBuffer::<u32>::zeroed(its.stream(), 4).expect("memory");
        or_aborted(its.all_reduce_in_place(&mut buffer, ReduceOp::Sum));
        drop(its);
        drop(buffer);
        return;
    }
    if rank.rank == 1 {
        rank.abort_all();
    }
    drop(its);
}
