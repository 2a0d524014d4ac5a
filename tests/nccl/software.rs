//! What only the software NCCL can show: misuses, faults, and ranks that die.

use crate::common::child::in_child;
use crate::machine::{communicators, software, streams};
use cuda_nccl::sys::{self, ncclResult_t};
use cuda_nccl::{Communicator, Config, Error, NcclVersion, ReduceOp, Registered, UniqueId, group};
use cuda_safe::{DeviceBuffer, Stream};

/// The misuses of a child process.
fn misuses() -> Vec<String> {
    cuda_sim::misuses()
}

/// Runs two ranks that call something different.
fn differ(call: impl Fn(&Communicator, &mut DeviceBuffer<f32>) + Copy + Send + 'static) {
    let all = or_skip!(communicators(2));
    let threads: Vec<_> = all
        .into_iter()
        .map(|its| {
            std::thread::spawn(move || {
                let mut buffer = DeviceBuffer::<f32>::zeroed(its.stream(), 8).expect("memory");
                call(&its, &mut buffer);
                its.stream().synchronize().expect("complete work");
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
}

#[test]
fn different_operations_are_reported() {
    in_child(&[], || {
        or_skip!(software());
        differ(|its, buffer| {
            let len = if its.rank() == 0 { 4 } else { 8 };
            let part = buffer.slice_mut(..len).expect("a part");
            its.all_reduce_in_place(part, ReduceOp::Sum).expect("a sum");
        });
        differ(|its, buffer| {
            let op = if its.rank() == 0 { ReduceOp::Sum } else { ReduceOp::Max };
            its.all_reduce_in_place(buffer, op).expect("a reduction");
        });
        differ(|its, buffer| its.broadcast_in_place(buffer, its.rank()).expect("a broadcast"));
        differ(|its, buffer| match its.rank() {
            0 => its.broadcast_in_place(buffer, 0).expect("a broadcast"),
            _ => its.all_reduce_in_place(buffer, ReduceOp::Sum).expect("a sum"),
        });
        let misuses = misuses();
        assert_eq!(misuses.len(), 8, "each rank reports it: {misuses:?}");
        assert!(misuses.iter().all(|its| its.contains("call different operations")));
        for part in
            ["of 4 elements", "of 8 elements", "operation 2", "from rank 1", "ncclBroadcast"]
        {
            assert!(misuses.iter().any(|its| its.contains(part)), "{part}: {misuses:?}");
        }
    });
}

#[test]
fn a_use_after_the_end_is_reported() {
    in_child(&[], || {
        or_skip!(software());
        let its = or_skip!(communicators(1)).remove(0);
        let buffer = DeviceBuffer::<f32>::zeroed(its.stream(), 8).expect("memory");
        let raw = its.with_raw(|raw| raw).expect("a handle");
        let stream: Stream = its.stream().clone();
        let sum = || {
            let address = core::ptr::without_provenance_mut(buffer.as_raw() as usize);
            let (ty, op) = (sys::ncclDataType_t::ncclFloat32, sys::ncclRedOp_t::ncclSum);
            stream
                .context()
                // SAFETY: the software NCCL recognizes communicators that have ended.
                .with_current(|_| unsafe {
                    sys::ncclAllReduce(address, address, 8, ty, op, raw, stream.as_raw())
                })
                .expect("a context")
                .expect("a function")
        };
        // SAFETY: the communicator is alive.
        let finalized = unsafe { sys::ncclCommFinalize(raw) }.expect("a function");
        assert_eq!(finalized, ncclResult_t::ncclSuccess);
        assert_eq!(sum(), ncclResult_t::ncclInvalidUsage);
        drop(its);
        assert_eq!(sum(), ncclResult_t::ncclInvalidArgument);
        let misuses = misuses();
        assert!(misuses[0].contains("after it was finalized"), "{misuses:?}");
        assert!(misuses[1].contains("after it was destroyed"), "{misuses:?}");
    });
}

#[test]
fn memory_that_is_freed_in_flight_is_reported() {
    in_child(&[], || {
        or_skip!(software());
        let all = or_skip!(communicators(2));
        let mut buffer = DeviceBuffer::<f32>::zeroed(all[0].stream(), 8).expect("memory");
        all[0].all_reduce_in_place(&mut buffer, ReduceOp::Sum).expect("a sum");
        let other = all[0].stream().context().stream().expect("a stream");
        // SAFETY: this is the misuse: the other stream does not wait for the operation.
        let code = unsafe { cuda_safe::sys::cuMemFreeAsync(buffer.as_raw(), other.as_raw()) };
        assert!(code.is_success());
        std::mem::forget(buffer);
        other.synchronize().expect("a free");
        let mut second = DeviceBuffer::<f32>::zeroed(all[1].stream(), 8).expect("memory");
        all[1].all_reduce_in_place(&mut second, ReduceOp::Sum).expect("a sum");
        assert!(all[0].stream().synchronize().is_err());
        assert!(!misuses().is_empty());
        std::mem::forget((all, second));
    });
}

/// Returns memory of `ncclMemAlloc` in the context of a stream.
fn allocate(stream: &Stream) -> u64 {
    let mut address = std::ptr::null_mut();
    let place = &raw mut address;
    // SAFETY: the place is valid for a write.
    let code = stream.context().with_current(|_| unsafe { sys::ncclMemAlloc(place, 64) });
    assert_eq!(code.expect("a context").expect("a function"), ncclResult_t::ncclSuccess);
    address.addr() as u64
}

/// # Safety
/// No work uses the memory.
unsafe fn free(address: u64) {
    let address = std::ptr::without_provenance_mut(address as usize);
    // SAFETY: the memory was allocated by NCCL and is freed once; the caller promises the rest.
    let code = unsafe { sys::ncclMemFree(address) };
    assert_eq!(code.expect("a function"), ncclResult_t::ncclSuccess);
}

#[test]
fn memory_of_nccl_that_is_freed_in_flight_is_reported() {
    in_child(&[], || {
        or_skip!(software());
        let all = or_skip!(communicators(2));
        let address = allocate(all[0].stream());
        // SAFETY: the memory has 8 elements, and is alive until it is freed below.
        let buffer = unsafe { DeviceBuffer::<f32>::from_foreign(address, 8, all[0].stream(), ()) };
        let mut buffer = buffer.expect("a buffer");
        all[0].all_reduce_in_place(&mut buffer, ReduceOp::Sum).expect("a sum");
        std::mem::forget(buffer);
        // SAFETY: this is the misuse: the operation still uses the memory.
        unsafe { free(address) };
        let mut second = DeviceBuffer::<f32>::zeroed(all[1].stream(), 8).expect("memory");
        all[1].all_reduce_in_place(&mut second, ReduceOp::Sum).expect("a sum");
        assert!(all[0].stream().synchronize().is_err());
        assert!(!misuses().is_empty());
        std::mem::forget((all, second));
    });
}

#[test]
fn memory_of_nccl_is_freed_beside_work_that_does_not_use_it() {
    in_child(&[], || {
        or_skip!(software());
        let [stream] = <[Stream; 1]>::try_from(or_skip!(streams(1))).expect("one stream");
        let address = allocate(&stream);
        let (release, released) = std::sync::mpsc::channel::<()>();
        stream.launch_host_function(move || _ = released.recv()).expect("a host function");
        // SAFETY: no work uses the memory.
        unsafe { free(address) };
        drop(release);
        stream.synchronize().expect("complete work");
        assert_eq!(misuses(), [""; 0]);
    });
}

#[test]
fn a_group_that_stays_open_is_reported() {
    in_child(&[], || {
        or_skip!(software());
        or_skip!(streams(1));
        std::thread::spawn(|| {
            // SAFETY: this is the misuse: the group does not end.
            let code = unsafe { sys::ncclGroupStart() };
            assert_eq!(code.expect("a function"), ncclResult_t::ncclSuccess);
        })
        .join()
        .expect("no panic");
        let misuses = misuses();
        assert!(misuses.iter().any(|its| its.contains("group is open")), "{misuses:?}");
    });
}

#[test]
fn the_nth_call_fails() {
    in_child(&[], || {
        or_skip!(software());
        let its = or_skip!(communicators(1)).remove(0);
        let mut buffer = DeviceBuffer::<f32>::zeroed(its.stream(), 8).expect("memory");
        let fault = cuda_sim::nccl::fail_call("ncclAllReduce", 2, 3);
        its.all_reduce_in_place(&mut buffer, ReduceOp::Sum).expect("the first call");
        let error = its.all_reduce_in_place(&mut buffer, ReduceOp::Sum).expect_err("the second");
        assert!(fault.has_failed());
        let Error::Nccl(error) = error else {
            panic!("{error}");
        };
        assert_eq!((error.code, error.call), (ncclResult_t::ncclInternalError, "ncclAllReduce"));
        its.all_reduce_in_place(&mut buffer, ReduceOp::Sum).expect("the third call");
        for function in ["ncclGroupStart", "ncclCommInitRankConfig", "ncclGroupEnd"] {
            let fault = cuda_sim::nccl::fail_call(function, 1, 2);
            let answer =
                Communicator::init_all(std::slice::from_ref(its.stream()), &Config::default());
            assert!(answer.is_err(), "{function}");
            drop(fault);
            if function == "ncclGroupEnd" {
                // The software NCCL still has the group, which its next end closes.
                // SAFETY: a group is open.
                let _ = unsafe { sys::ncclGroupEnd() };
            }
        }
        for function in ["ncclCommDestroy", "ncclCommGetAsyncError"] {
            let its =
                Communicator::init_all(std::slice::from_ref(its.stream()), &Config::default());
            let _fault = cuda_sim::nccl::fail_call(function, 1, 1);
            drop(its);
        }
        assert_eq!(misuses(), Vec::<String>::new());
    });
}

/// With `NCCL_COMM_BLOCKING=0` in the environment, these calls return before their work is complete.
#[test]
fn the_end_of_slow_calls_is_awaited() {
    in_child(&[], || {
        or_skip!(software());
        let its = or_skip!(communicators(1)).remove(0);
        let buffer = DeviceBuffer::<f32>::zeroed(its.stream(), 8).expect("memory");
        let mut registered = Registered::new(buffer);
        let expect = |call: &mut dyn FnMut() -> bool| {
            let fault = cuda_sim::nccl::fail_call("ncclCommGetAsyncError", 1, 3);
            assert!(call() && fault.has_failed(), "the state is asked for");
        };
        let streams = std::slice::from_ref(its.stream());
        expect(&mut || Communicator::init_all(streams, &Config::default()).is_err());
        expect(&mut || its.split(Some(0), 0, None).is_err());
        // SAFETY: there are no operations.
        expect(&mut || unsafe { registered.register(&its) }.is_err());
        let taken = registered.into_buffer();
        assert!(matches!(taken, Err(Error::Aborted)), "it may be registered: {taken:?}");
    });
}

#[test]
fn an_end_after_an_error_aborts() {
    in_child(&[], || {
        or_skip!(software());
        let mut all = or_skip!(communicators(2));
        let its = all.remove(0);
        let stream = its.stream().clone();
        let mut buffer = DeviceBuffer::<f32>::zeroed(&stream, 8).expect("memory");
        its.all_reduce_in_place(&mut buffer, ReduceOp::Sum).expect("a sum");
        let raw = its.with_raw(|raw| raw).expect("a handle");
        assert!(cuda_sim::nccl::set_error(raw.cast(), 2));
        let ending = std::thread::spawn(move || its.finalize());
        let begin = std::time::Instant::now();
        while !ending.is_finished() {
            assert!(begin.elapsed().as_secs() < 20, "it waits for the other rank");
            std::thread::yield_now();
        }
        assert!(matches!(ending.join().expect("no panic"), Err(Error::Nccl(_))));
        stream.synchronize().expect("the operation has ended");
    });
}

#[test]
fn an_error_in_the_background_is_found() {
    in_child(&[], || {
        or_skip!(software());
        let its = or_skip!(communicators(1)).remove(0);
        its.check().expect("no error");
        let raw = its.with_raw(|raw| raw).expect("a handle");
        assert!(cuda_sim::nccl::set_error(raw.cast(), 2));
        let Err(Error::Nccl(error)) = its.check() else {
            panic!("an error");
        };
        assert_eq!(error.code, ncclResult_t::ncclSystemError);
        assert!(Error::Nccl(error).is_fatal());
        assert!(matches!(its.abort_handle().error(), Some(Error::Nccl(_))));
        assert!(!cuda_sim::nccl::set_error(core::ptr::null_mut(), 2));
    });
}

#[test]
fn a_rank_that_dies_is_a_remote_error_and_its_peers_hang() {
    in_child(&[], || {
        or_skip!(software());
        let all = or_skip!(communicators(2));
        let raw = all[1].with_raw(|raw| raw).expect("a handle");
        let mut buffer = DeviceBuffer::<f32>::zeroed(all[0].stream(), 8).expect("memory");
        all[0].all_reduce_in_place(&mut buffer, ReduceOp::Sum).expect("a sum");
        assert!(cuda_sim::nccl::kill(raw.cast()));
        assert!(!all[0].stream().is_complete().expect("a stream"));
        let Some(Error::Nccl(error)) = all[0].abort_handle().error() else {
            panic!("an error");
        };
        assert_eq!(error.code, ncclResult_t::ncclRemoteError);
        all.iter().for_each(|its| its.abort_handle().abort().expect("an abort"));
        all[0].stream().synchronize().expect("the operation has ended");
        drop((all, buffer));
        assert_eq!(misuses(), Vec::<String>::new());
        assert_eq!(cuda_sim::alive().communicators, 0);
    });
}

/// Before NCCL 2.28, three operations are sends and receipts.
#[test]
fn an_old_library_exchanges_parts() {
    in_child(&[], || {
        or_skip!(software());
        cuda_sim::nccl::hide(&["ncclAlltoAll", "ncclGather", "ncclScatter"]);
        cuda_sim::nccl::hide(&["ncclCommShrink", "ncclCommGetUniqueId", "ncclCommGrow"]);
        let all = or_skip!(communicators(3));
        let error = all[0].shrink(&[1], false, None).expect_err("a missing function");
        let Error::Missing(missing) = &error else {
            panic!("{error}");
        };
        assert_eq!(missing.function, "ncclCommShrink");
        assert!(error.to_string().contains("needs NCCL 2.27.3"), "{error}");
        let id = UniqueId::new().expect("an id");
        let joined = Communicator::join(all[2].stream(), &id, 3, 4, &Config::default());
        for (function, answer) in [
            ("ncclCommGetUniqueId", all[0].growth_id().map(|_| ())),
            ("ncclCommGrow", all[0].grow(4, None, None).map(|_| ())),
            ("ncclCommGrow", joined.map(|_| ())),
        ] {
            let Err(Error::Missing(missing)) = &answer else {
                panic!("{answer:?}");
            };
            assert_eq!(missing.function, function);
            assert_eq!(missing.since, Some(NcclVersion::new(2, 29, 2)));
        }
        let whole = |its: &Communicator| {
            let first = its.rank() * 3;
            DeviceBuffer::from_slice(its.stream(), &[first, first + 1, first + 2])
        };
        let sources: Vec<_> = all.iter().map(whole).collect::<Result<_, _>>().expect("memory");
        let zeros = |len| {
            let zeros = all.iter().map(|its| DeviceBuffer::<u32>::zeroed(its.stream(), len));
            zeros.collect::<Result<Vec<_>, _>>().expect("memory")
        };
        let (mut exchanged, mut gathered, mut scattered) = (zeros(3), zeros(9), zeros(1));
        group(|group| {
            for (its, (source, target)) in all.iter().zip(sources.iter().zip(&mut exchanged)) {
                group.all_to_all(its, source, target)?;
            }
            Ok(())
        })
        .expect("an exchange");
        group(|group| {
            for (its, (source, target)) in all.iter().zip(sources.iter().zip(&mut gathered)) {
                let target = (its.rank() == 1).then(|| target.as_mut_slice());
                group.gather(its, source.as_slice(), target, 1)?;
            }
            Ok(())
        })
        .expect("a gather");
        group(|group| {
            for (its, (source, target)) in all.iter().zip(sources.iter().zip(&mut scattered)) {
                let source = (its.rank() == 2).then(|| source.as_slice());
                group.scatter(its, source, target, 2)?;
            }
            Ok(())
        })
        .expect("a scatter");
        for (rank, buffer) in exchanged.iter().enumerate() {
            let rank = rank as u32;
            assert_eq!(buffer.to_vec().expect("a copy"), [rank, rank + 3, rank + 6]);
        }
        assert_eq!(gathered[1].to_vec().expect("a copy"), (0..9).collect::<Vec<u32>>());
        let all = scattered.iter().flat_map(|its| its.to_vec().expect("a copy"));
        assert_eq!(all.collect::<Vec<u32>>(), [6, 7, 8]);
    });
}

#[test]
fn ranks_must_agree_on_their_number() {
    in_child(&[], || {
        or_skip!(software());
        let streams = or_skip!(streams(2));
        let id = UniqueId::new().expect("an id");
        let config = Config { interruptible: true, ..Default::default() };
        let waits = {
            let (stream, config) = (streams[0].clone(), config.clone());
            std::thread::spawn(move || Communicator::init(&stream, &id, 0, 2, &config))
        };
        while cuda_sim::alive().communicators == 0 {
            std::thread::yield_now();
        }
        let other = Communicator::init(&streams[1], &id, 1, 3, &config);
        assert!(other.is_err());
        assert!(misuses().iter().any(|its| its.contains("different numbers of ranks")));
        // The right one lets the first one continue.
        let second = Communicator::init(&streams[1], &id, 1, 2, &config).expect("a communicator");
        assert_eq!(
            waits.join().expect("no panic").expect("a communicator").ranks(),
            second.ranks()
        );
    });
}

/// A copy that waits on one device blocks no call of another device, which its operation waits for.
#[test]
fn a_rank_that_copies_its_result_does_not_block_the_other() {
    in_child(&[], || {
        or_skip!(software());
        let [first, second]: [Communicator; 2] =
            or_skip!(communicators(2)).try_into().expect("two");
        let copying = std::thread::spawn(move || {
            let mut one = DeviceBuffer::from_slice(first.stream(), &[1_u8]).expect("memory");
            first.all_reduce_in_place(&mut one, ReduceOp::Sum).expect("a sum");
            one.to_vec().expect("a copy")
        });
        while cuda_sim::blocked() == 0 {
            std::thread::yield_now();
        }
        second.stream().context().stream().expect("a stream");
        let mut two = DeviceBuffer::from_slice(second.stream(), &[2_u8]).expect("memory");
        second.all_reduce_in_place(&mut two, ReduceOp::Sum).expect("a sum");
        assert_eq!(two.to_vec().expect("a copy"), [3]);
        assert_eq!(copying.join().expect("no panic"), [3]);
    });
}
