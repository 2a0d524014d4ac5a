//! Communicators that grow by new ranks.

use crate::common::child::in_child;
use crate::common::skip;
use crate::machine::{communicators, is_software, no_misuses, software, streams, synchronize};
use cuda_nccl::sys::{self, ncclComm_t, ncclResult_t};
use cuda_nccl::{Communicator, Config, Error, Invalid, NcclVersion, ReduceOp, UniqueId, group};
use cuda_safe::{DeviceBuffer, Stream};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

const SINCE: NcclVersion = NcclVersion::new(2, 29, 2);

/// Reports a skip if the library is too old.
#[track_caller]
pub(crate) fn version() -> Option<()> {
    let version = cuda_nccl::version().expect("a library");
    if version < SINCE {
        skip(&format!("needs NCCL {SINCE}; there is {version}"));
        return None;
    }
    Some(())
}

/// Returns streams on so many devices, and the communicators of the first `ranks`, or reports a skip.
#[track_caller]
fn machine(ranks: usize, devices: usize) -> Option<(Vec<Stream>, Vec<Communicator>)> {
    let streams = streams(devices)?;
    version()?;
    Some((streams, communicators(ranks)?))
}

/// Grows a communicator by a rank for each stream, each rank on a thread. One of the old ranks creates the id. Returns
/// the old communicators and the new ones, in the order of the ranks.
fn grow(
    old: Vec<Communicator>,
    creator: usize,
    streams: &[Stream],
    config: &Config,
) -> (Vec<Communicator>, Vec<Communicator>) {
    let first = old.len() as u32;
    let ranks = first + streams.len() as u32;
    let id = old[creator].growth_id().expect("an id");
    let growing: Vec<_> = old
        .into_iter()
        .enumerate()
        .map(|(rank, its)| {
            let (id, config) = ((rank == creator).then_some(id), config.clone());
            thread::spawn(move || {
                let grown = its.grow(ranks, id.as_ref(), Some(&config)).expect("a larger one");
                (its, grown)
            })
        })
        .collect();
    let joining: Vec<_> = (first..)
        .zip(streams.to_vec())
        .map(|(rank, stream)| {
            let config = config.clone();
            thread::spawn(move || {
                Communicator::join(&stream, &id, rank, ranks, &config).expect("a new rank")
            })
        })
        .collect();
    let grown = growing.into_iter().map(|its| its.join().expect("no panic"));
    let (old, mut all): (Vec<_>, Vec<_>) = grown.unzip();
    all.extend(joining.into_iter().map(|its| its.join().expect("no panic")));
    for (rank, its) in all.iter().enumerate() {
        assert_eq!((its.rank() as usize, its.ranks()), (rank, ranks));
    }
    (old, all)
}

/// Gathers the ranks of a communicator, whose ranks are all here, and sums them.
fn work(all: &[Communicator]) {
    let ranks = all.len() as u32;
    let own = all.iter().map(|its| DeviceBuffer::from_slice(its.stream(), &[its.rank()]));
    let mut own: Vec<_> = own.collect::<Result<_, _>>().expect("memory");
    let room = all.iter().map(|its| DeviceBuffer::<u32>::zeroed(its.stream(), all.len()));
    let mut gathered: Vec<_> = room.collect::<Result<_, _>>().expect("memory");
    group(|group| {
        for (its, (own, target)) in all.iter().zip(own.iter().zip(&mut gathered)) {
            group.all_gather(its, own, target)?;
        }
        Ok(())
    })
    .expect("a gather");
    group(|group| {
        for (its, own) in all.iter().zip(&mut own) {
            group.all_reduce_in_place(its, own, ReduceOp::Sum)?;
        }
        Ok(())
    })
    .expect("a sum");
    for (own, gathered) in own.iter().zip(&gathered) {
        assert_eq!(gathered.to_vec().expect("a copy"), (0..ranks).collect::<Vec<_>>());
        assert_eq!(own.to_vec().expect("a copy"), [(0..ranks).sum::<u32>()]);
    }
    synchronize(all);
}

#[test]
fn two_ranks_become_three_and_four() {
    let (streams, two) = or_skip!(machine(2, 4));
    let default = Config::default();
    let (two, three) = grow(two, 1, &streams[2..3], &default);
    work(&three);
    // The old one can still be used, and can grow again.
    work(&two);
    let (two, four) = grow(two, 0, &streams[2..], &default);
    work(&four);
    let (three, other_four) = grow(three, 2, &streams[3..], &default);
    for all in [&two, &three, &four, &other_four, &two] {
        work(all);
    }
    no_misuses();
}

#[test]
fn communicators_are_dropped_in_any_order() {
    let (streams, _) = or_skip!(machine(1, 2));
    for order in 0..4 {
        let old = Communicator::init_all(&streams[..1], &Config::default()).expect("one");
        let (old, grown) = grow(old, 0, &streams[1..], &Config::default());
        match order {
            0 => {
                drop(old);
                work(&grown);
            }
            1 => {
                drop(grown);
                work(&old);
            }
            2 => {
                // The new rank first.
                grown.into_iter().rev().for_each(drop);
                drop(old);
            }
            _ => {
                let streams = streams.clone();
                thread::spawn(move || drop((grown, streams, old))).join().expect("no panic");
            }
        }
    }
    no_misuses();
}

#[test]
fn interruptible_communicators_grow() {
    let (streams, old) = or_skip!(machine(1, 2));
    let config = Config { interruptible: true, ..Default::default() };
    let (old, grown) = grow(old, 0, &streams[1..], &config);
    work(&grown);
    // It ends independently of the new one.
    old[0].abort_handle().abort().expect("an abort");
    assert!(matches!(old[0].growth_id(), Err(Error::Aborted)));
    work(&grown);
    grown.into_iter().for_each(|its| its.finalize().expect("an end"));
    no_misuses();
}

/// Runs a test in a process of its own, which ends if the test waits for too long.
fn watched(body: impl FnOnce()) {
    in_child(&[], || {
        let (end, ended) = channel::<()>();
        let watchdog = thread::spawn(move || {
            if ended.recv_timeout(Duration::from_secs(20)) == Err(RecvTimeoutError::Timeout) {
                eprintln!("the test still waits");
                std::process::exit(1);
            }
        });
        body();
        drop(end);
        watchdog.join().expect("no panic");
    });
}

/// The rank that creates the id is the last one that grows.
#[test]
fn ranks_wait_for_the_id() {
    watched(|| {
        let (streams, mut old) = or_skip!(machine(2, 3));
        let first = old.remove(0);
        let second = old.remove(0);
        let waiting = thread::spawn(move || second.grow(3, None, None));
        thread::sleep(Duration::from_millis(100));
        assert!(!waiting.is_finished(), "there is no id");
        let id = first.growth_id().expect("an id");
        // The id alone lets the other rank create its communicator.
        while is_software() && cuda_sim::alive().communicators < 3 {
            thread::yield_now();
        }
        let stream = streams[2].clone();
        let joining =
            thread::spawn(move || Communicator::join(&stream, &id, 2, 3, &Config::default()));
        let growing = thread::spawn(move || first.grow(3, Some(&id), None));
        let all = [growing, waiting, joining].map(|its| its.join().expect("no panic"));
        let all = all.map(|its| its.expect("a communicator"));
        work(&all);
        no_misuses();
    });
}

/// The new rank never joins.
#[test]
fn an_abort_ends_a_growth() {
    watched(|| {
        let streams = or_skip!(streams(2));
        or_skip!(version());
        let config = Config { interruptible: true, ..Default::default() };
        // Either communicator can be the interruptible one.
        for (of_old, of_new) in [(&config, None), (&Config::default(), Some(&config))] {
            let old = Communicator::init_all(&streams, of_old).expect("communicators");
            let aborts: Vec<_> = old.iter().map(Communicator::abort_handle).collect();
            let id = old[0].growth_id().expect("an id");
            let waiting = old.into_iter().map(|its| {
                let (id, config) = ((its.rank() == 0).then_some(id), of_new.cloned());
                thread::spawn(move || its.grow(3, id.as_ref(), config.as_ref()))
            });
            let waiting: Vec<_> = waiting.collect();
            thread::sleep(Duration::from_millis(100));
            assert!(waiting.iter().all(|its| !its.is_finished()), "the new rank does not join");
            for abort in &aborts {
                abort.abort().expect("an abort");
            }
            for answer in waiting.into_iter().map(|its| its.join().expect("no panic")) {
                assert!(matches!(answer, Err(Error::Aborted)), "{answer:?}");
            }
        }
        no_misuses();
    });
}

/// The old ranks never grow.
#[test]
fn a_new_rank_waits_for_a_limited_time() {
    let (streams, old) = or_skip!(machine(1, 2));
    let timeout = Duration::from_millis(300);
    let config = Config { interruptible: true, timeout: Some(timeout), ..Default::default() };
    let id = old[0].growth_id().expect("an id");
    let begin = Instant::now();
    let joined = Communicator::join(&streams[1], &id, 1, 2, &config);
    assert!(matches!(joined, Err(Error::Timeout(its)) if its == timeout), "{joined:?}");
    assert!(begin.elapsed() >= timeout);
}

#[test]
fn a_new_rank_is_one_of_the_larger_communicator() {
    let (streams, old) = or_skip!(machine(1, 2));
    let id = old[0].growth_id().expect("an id");
    let Err(Error::Invalid(invalid)) =
        Communicator::join(&streams[1], &id, 2, 2, &Config::default())
    else {
        panic!("an invalid rank");
    };
    assert!(matches!(*invalid, Invalid::Rank { rank: 2, ranks: 2, .. }), "{invalid}");
    refused(old[0].grow(1, Some(&id), None));
}

/// Checks that NCCL refuses a call.
#[track_caller]
fn refused<T: std::fmt::Debug>(answer: Result<T, Error>) {
    let Err(Error::Nccl(error)) = answer else {
        panic!("{answer:?}");
    };
    let codes = [ncclResult_t::ncclInvalidArgument, ncclResult_t::ncclInvalidUsage];
    assert!(codes.contains(&error.code), "{error}");
}

/// Runs a wrong call in a process of its own, and checks the misuse that it reports.
fn reports(misuse: &str, call: impl FnOnce(&Communicator, &Stream)) {
    watched(|| {
        or_skip!(software());
        let (streams, old) = or_skip!(machine(1, 2));
        call(&old[0], &streams[1]);
        let misuses = cuda_sim::misuses();
        assert!(misuses.len() == 1 && misuses[0].contains(misuse), "{misuses:?}");
        // The communicator stays usable.
        work(&old);
    });
}

#[test]
fn a_second_id_before_the_growth_is_a_misuse() {
    reports("a second id", |its, _| {
        its.growth_id().expect("an id");
        refused(its.growth_id());
    });
}

#[test]
fn a_growth_with_another_id_is_a_misuse() {
    reports("another id", |its, _| {
        its.growth_id().expect("an id");
        refused(its.grow(2, Some(&UniqueId::new().expect("an id")), None));
    });
}

#[test]
fn a_growth_of_one_rank_without_an_id_is_a_misuse() {
    reports("without the id", |its, _| refused(its.grow(2, None, None)));
}

#[test]
fn a_growth_with_an_id_from_before_a_split_is_a_misuse() {
    reports("split or shrunk", |its, _| {
        let id = its.growth_id().expect("an id");
        its.split(Some(0), 0, None).expect("a split");
        refused(its.grow(2, Some(&id), None));
    });
}

#[test]
fn a_new_rank_with_the_id_of_a_new_communicator_is_a_misuse() {
    reports("not of ncclCommGetUniqueId", |_, stream| {
        let id = UniqueId::new().expect("an id");
        refused(Communicator::join(stream, &id, 1, 2, &Config::default()));
    });
}

#[test]
fn a_new_communicator_with_the_id_of_a_growth_is_a_misuse() {
    reports("with an id of ncclCommGetUniqueId", |its, stream| {
        let id = its.growth_id().expect("an id");
        refused(Communicator::init(stream, &id, 1, 2, &Config::default()));
    });
}

#[test]
fn a_new_rank_with_the_number_of_an_old_one_is_a_misuse() {
    reports("that it already has", |its, stream| {
        let id = its.growth_id().expect("an id");
        refused(Communicator::join(stream, &id, 0, 2, &Config::default()));
    });
}

/// The right number lets the growth continue.
#[test]
fn ranks_that_disagree_on_their_number_are_a_misuse() {
    reports("different numbers of ranks", |its, stream| {
        let id = its.growth_id().expect("an id");
        let joining = {
            let stream = stream.clone();
            thread::spawn(move || Communicator::join(&stream, &id, 1, 2, &Config::default()))
        };
        while cuda_sim::alive().communicators < 2 {
            thread::yield_now();
        }
        refused(its.grow(3, Some(&id), None));
        let grown = its.grow(2, Some(&id), None).expect("a larger communicator");
        work(&[grown, joining.join().expect("no panic").expect("a new rank")]);
    });
}

#[test]
fn a_growth_that_fails_can_be_repeated() {
    in_child(&[], || {
        or_skip!(software());
        let (streams, old) = or_skip!(machine(1, 2));
        let id = old[0].growth_id().expect("an id");
        let fault = cuda_sim::nccl::fail_call("ncclCommGrow", 1, 2);
        assert!(matches!(old[0].grow(2, Some(&id), None), Err(Error::Nccl(_))));
        drop(fault);
        let joining = {
            let stream = streams[1].clone();
            thread::spawn(move || Communicator::join(&stream, &id, 1, 2, &Config::default()))
        };
        let grown = old[0].grow(2, Some(&id), None).expect("a larger communicator");
        work(&[grown, joining.join().expect("no panic").expect("a new rank")]);
        no_misuses();
    });
}

/// Makes a raw call with the context of a stream.
fn raw_grow(
    stream: &Stream,
    old: ncclComm_t,
    id: Option<&sys::ncclUniqueId>,
    rank: i32,
    place: &mut ncclComm_t,
) -> ncclResult_t {
    let id = id.map_or(core::ptr::null(), core::ptr::from_ref);
    let config = core::ptr::null_mut();
    let current = stream.context().with_current(|_| {
        // SAFETY: the communicator is null or alive, and the pointers are valid until the group of the call has ended.
        unsafe { sys::ncclCommGrow(old, 2, id, rank, place, config) }
    });
    current.expect("a context").expect("a function")
}

#[test]
fn one_thread_grows_in_a_group() {
    watched(|| {
        let (streams, old) = or_skip!(machine(1, 2));
        let id = old[0].growth_id().expect("an id");
        let id =
            sys::ncclUniqueId { internal: id.as_bytes().map(|byte| byte as core::ffi::c_char) };
        let raw = old[0].with_raw(|raw| raw).expect("a handle");
        let (first, null) = (old[0].stream(), core::ptr::null_mut());
        let [mut new, mut joined, mut other] = [null; 3];

        let invalid = ncclResult_t::ncclInvalidArgument;
        assert_eq!(raw_grow(first, raw, Some(&id), 0, &mut other), invalid, "not -1");
        assert_eq!(raw_grow(&streams[1], null, None, 1, &mut other), invalid, "no id");
        assert_eq!(raw_grow(&streams[1], null, Some(&id), -1, &mut other), invalid, "no rank");
        assert_eq!(raw_grow(&streams[1], null, Some(&id), 2, &mut other), invalid, "too large");
        assert!(other.is_null());

        // SAFETY: the group ends below.
        let begun = unsafe { sys::ncclGroupStart() }.expect("a function");
        assert_eq!(begun, ncclResult_t::ncclSuccess);
        assert_eq!(raw_grow(first, raw, Some(&id), -1, &mut new), ncclResult_t::ncclSuccess);
        assert_eq!(
            raw_grow(&streams[1], null, Some(&id), 1, &mut joined),
            ncclResult_t::ncclSuccess
        );
        // SAFETY: the group was started above.
        let ended = unsafe { sys::ncclGroupEnd() }.expect("a function");
        assert_eq!(ended, ncclResult_t::ncclSuccess);
        // SAFETY: NCCL has created the communicators on the devices of the streams, and no other code knows them.
        let its = [(new, first), (joined, &streams[1])]
            .map(|(raw, stream)| unsafe { Communicator::from_raw(raw, stream) }.expect("one"));
        work(&its);
        no_misuses();
    });
}

#[test]
fn growth_needs_a_new_library() {
    let its = or_skip!(communicators(1)).remove(0);
    let has = cuda_nccl::version().expect("a library") >= SINCE;
    match its.growth_id() {
        Ok(_) => assert!(has),
        Err(Error::Missing(missing)) => {
            assert!(!has);
            assert_eq!((missing.function, missing.since), ("ncclCommGetUniqueId", Some(SINCE)));
            let text = Error::Missing(missing).to_string();
            assert!(text.contains("needs NCCL 2.29.2"), "{text}");
        }
        Err(error) => panic!("{error}"),
    }
}
