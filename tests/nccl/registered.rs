//! Registered memory and NCCL's allocator.

use crate::common::child::in_child;
use crate::machine::{all, communicators, is_software, no_misuses, software};
use cuda_memory::{CachingManager, CachingOptions};
use cuda_nccl::{Communicator, Error, NcclManager, ReduceOp, Registered, group};
use cuda_safe::capture::CaptureMode;
use cuda_safe::manager::{MemoryManager, Order};
use cuda_safe::{Context, Device, DeviceBuffer};
use std::time::{Duration, Instant};

fn sum(communicators: &[Communicator], buffers: &mut [Registered<f32>]) {
    group(|group| {
        for (its, buffer) in communicators.iter().zip(buffers) {
            let buffer = buffer.as_mut_slice();
            group.all_reduce_in_place(its, buffer, ReduceOp::Sum)?;
        }
        Ok(())
    })
    .expect("a sum");
}

fn register(its: &Communicator, buffer: DeviceBuffer<f32>) -> Registered<f32> {
    // SAFETY: the tests call the same operations on all ranks.
    unsafe { its.register(buffer) }.expect("a registration")
}

/// Checks what the software NCCL knows.
#[track_caller]
fn expect_registrations(its: &Communicator, count: usize) {
    if is_software() {
        let raw = its.with_raw(|raw| raw).expect("a handle");
        assert_eq!(cuda_sim::nccl::registrations(raw.cast()), Some(count));
    }
}

#[test]
fn registered_buffers_are_used_and_returned() {
    let all = or_skip!(all());
    let ranks = all.len() as f32;
    let ones = |its: &Communicator| DeviceBuffer::from_slice(its.stream(), &[1.0_f32; 1 << 16]);
    let mut buffers = Vec::new();
    for its in &all {
        // SAFETY: all ranks call the same operation.
        let registered = unsafe { its.register(ones(its).expect("memory")) };
        let mut registered = registered.expect("a registration");
        // A second registration is none.
        // SAFETY: as above.
        unsafe { registered.register(its) }.expect("nothing to do");
        expect_registrations(its, 1);
        buffers.push(registered);
    }
    sum(&all, &mut buffers);
    for (registered, its) in buffers.into_iter().zip(&all) {
        let buffer = registered.into_buffer().expect("the buffer");
        expect_registrations(its, 0);
        assert_eq!(buffer.to_vec().expect("a copy"), vec![ranks; 1 << 16]);
    }
}

/// In each of these ends, another party ends the registrations.
#[test]
fn registrations_end_with_the_value_the_communicator_or_an_abort() {
    for end in 0..5 {
        let its = or_skip!(communicators(1)).remove(0);
        let buffer = DeviceBuffer::from_slice(its.stream(), &[1.0_f32; 1024]).expect("memory");
        let mut registered = vec![register(&its, buffer)];
        expect_registrations(&its, 1);
        sum(std::slice::from_ref(&its), &mut registered);
        match end {
            0 => {
                drop(registered);
                drop(its);
            }
            1 => {
                drop(its);
                drop(registered);
            }
            2 => {
                its.abort_handle().abort().expect("an abort");
                drop(registered);
            }
            3 => {
                its.finalize().expect("an end");
                drop(registered);
            }
            _ => {
                // Leaks the memory and its registration.
                registered.into_iter().for_each(std::mem::forget);
                drop(its);
            }
        }
    }
    no_misuses();
}

/// Two ranks, each with a registered buffer, which have exchanged something, since the first operation creates
/// connections.
#[track_caller]
fn pair() -> Option<([Communicator; 2], [Registered<f32>; 2])> {
    let all: [Communicator; 2] = communicators(2)?.try_into().ok()?;
    let mut buffers = all.each_ref().map(|its| {
        register(its, DeviceBuffer::from_slice(its.stream(), &[1.0; 1024]).expect("memory"))
    });
    sum(&all, &mut buffers);
    all.iter().for_each(|its| its.stream().synchronize().expect("complete work"));
    Some((all, buffers))
}

#[test]
fn a_buffer_is_returned_after_a_drop_of_the_communicator_that_is_under_way() {
    let its = or_skip!(communicators(1)).remove(0);
    let buffer = DeviceBuffer::from_slice(its.stream(), &[1.0_f32; 4]).expect("memory");
    let registered = register(&its, buffer);
    let (release, released) = std::sync::mpsc::channel::<()>();
    its.stream().launch_host_function(move || _ = released.recv()).expect("a host function");
    let dropping = std::thread::spawn(move || drop(its));
    std::thread::sleep(Duration::from_millis(50));
    let taking = std::thread::spawn(move || registered.into_buffer());
    std::thread::sleep(Duration::from_millis(50));
    assert!(!taking.is_finished(), "the buffer is still registered");
    drop(release);
    dropping.join().expect("no panic");
    taking.join().expect("no panic").expect("the buffer");
    no_misuses();
}

/// The other rank learns nothing of the abort, and may still write the buffer.
#[test]
fn a_buffer_of_an_aborted_operation_is_leaked() {
    let ([first, second], [mut registered, other]) = or_skip!(pair());
    first.all_reduce_in_place(registered.as_mut_slice(), ReduceOp::Sum).expect("a sum");
    first.abort_handle().abort().expect("an abort");
    // SAFETY: there are no operations.
    let again = unsafe { registered.register(&first) };
    assert!(matches!(again, Err(Error::Aborted)), "{again:?}");
    let taken = registered.into_buffer();
    assert!(matches!(taken, Err(Error::Aborted)), "{taken:?}");
    // The work of the other rank is complete.
    second.abort_handle().abort().expect("an abort");
    other.into_buffer().expect("the buffer");
}

#[test]
fn a_buffer_is_leaked_if_an_abort_fails() {
    in_child(&[], || {
        or_skip!(software());
        let (all, buffers) = or_skip!(pair());
        let _fault = cuda_sim::nccl::fail_call("ncclCommAbort", 1, 3);
        all[0].abort_handle().abort().expect_err("a fault");
        let [first, second] = buffers.map(Registered::into_buffer);
        assert!(matches!(first, Err(Error::Aborted)), "{first:?}");
        second.expect("the buffer");
    });
}

/// An operation from before the capture still runs, and a query of the stream would invalidate the capture.
#[test]
fn registrations_and_communicators_do_not_end_during_a_capture() {
    in_child(&[], || {
        or_skip!(software());
        let ([first, second], [mut registered, mut other]) = or_skip!(pair());
        first.all_reduce_in_place(registered.as_mut_slice(), ReduceOp::Sum).expect("a sum");
        let capture = first.stream().begin_capture(CaptureMode::ThreadLocal).expect("a capture");
        let taken = registered.into_buffer();
        assert!(matches!(taken, Err(Error::Aborted)), "{taken:?}");
        let raw = first.with_raw(|raw| raw.cast()).expect("a handle");
        drop(first);
        capture.end().expect("the capture is valid");
        assert_eq!(cuda_sim::nccl::registrations(raw), Some(1));
        second.all_reduce_in_place(other.as_mut_slice(), ReduceOp::Sum).expect("a sum");
        drop((other, second));
        let begin = Instant::now();
        while cuda_sim::nccl::registrations(raw).is_some() {
            assert!(begin.elapsed() < Duration::from_secs(20), "another thread destroys it");
            std::thread::yield_now();
        }
        no_misuses();
    });
}

/// Allocates on each device with NCCL's allocator.
fn symmetric(its: &Communicator, len: usize) -> Registered<f32> {
    let manager = NcclManager::new(its.stream().context()).expect("a manager");
    let block = manager.allocate(len * 4, Order::of(its.stream())).expect("memory");
    // SAFETY: the memory has `len` elements; the manager, which the buffer owns, keeps it until the process ends.
    let buffer = unsafe { DeviceBuffer::from_foreign(block.address, len, its.stream(), manager) };
    Registered::new(buffer.expect("a buffer"))
}

#[test]
fn windows_are_registered_by_all_ranks() {
    // Alone: a free of such memory waits for the operations of all tests, and their ranks wait for the free.
    in_child(&[], || {
        let all = or_skip!(all());
        let ranks = all.len();
        let threads: Vec<_> = all
            .into_iter()
            .map(|its| {
                std::thread::spawn(move || {
                    let mut memory = symmetric(&its, 1 << 20);
                    // SAFETY: all ranks pass the same size, and call the same operation at the same offset.
                    let is_window = unsafe { memory.register_window(&its, true) };
                    let is_window = is_window.expect("a window or none");
                    expect_registrations(&its, 1);
                    let mut slice = memory.as_mut_slice();
                    slice.fill(1.0).expect("a fill");
                    its.all_reduce_in_place(slice, ReduceOp::Sum).expect("a sum");
                    let buffer = memory.into_buffer().expect("the buffer");
                    assert_eq!(buffer.to_vec().expect("a copy")[..8], [ranks as f32; 8]);
                    is_window
                })
            })
            .collect();
        let windows: Vec<bool> =
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
        println!("windows: {windows:?}");
        assert!(!is_software() || windows[0], "the software NCCL has windows");
        no_misuses();
        assert!(windows.iter().all(|its| *its == windows[0]), "all ranks or none: {windows:?}");
    });
}

#[test]
fn the_allocator_is_the_upstream_of_a_pool() {
    // As above.
    in_child(&[], || {
        or_skip!(all());
        let context = Context::primary(&Device::get(0).expect("a device")).expect("a context");
        let stream = context.stream().expect("a stream");
        let upstream = NcclManager::new(&context).expect("a manager");
        let pool = CachingManager::with_upstream(&context, upstream, CachingOptions::default());
        let pool = pool.expect("a pool");
        let blocks: Vec<_> = (1..20)
            .map(|size| pool.allocate(size * 1000, Order::of(&stream)).expect("memory"))
            .collect();
        for block in blocks {
            // SAFETY: the block was allocated by this pool, and no work uses it.
            unsafe { pool.free(block, Order::of(&stream)) };
        }
        assert!(pool.trim(0).expect("complete work") > 0);
        assert_eq!(pool.stats().reserved, 0);
    });
}
