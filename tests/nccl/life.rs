//! Communicators and their buffers and streams are dropped in every order.

use crate::common::child::in_child;
use crate::machine::{all, communicators, is_software, no_misuses, streams};
use cuda_nccl::{Communicator, Config, ReduceOp, group};
use cuda_safe::{Context, Device, DeviceBuffer};

/// A communicator moves between threads, and a handle for aborts is shared.
#[test]
fn a_communicator_is_send_and_an_abort_is_shared() {
    fn send<T: Send>() {}
    fn sync<T: Sync>() {}
    send::<Communicator>();
    send::<cuda_nccl::Abort>();
    sync::<cuda_nccl::Abort>();
    send::<cuda_nccl::Registered<u8>>();
    send::<cuda_nccl::Failure>();
    send::<cuda_nccl::Error>();
    sync::<cuda_nccl::Error>();
}

#[test]
fn objects_are_dropped_in_any_order() {
    for order in 0..6 {
        let streams = or_skip!(streams(1));
        let its = Communicator::init_all(&streams, &Config::default()).expect("one").remove(0);
        let mut buffer = DeviceBuffer::<f32>::zeroed(&streams[0], 1000).expect("memory");
        its.all_reduce_in_place(&mut buffer, ReduceOp::Sum).expect("a sum");
        match order {
            0 => {
                drop(buffer);
                drop(its);
                drop(streams);
            }
            1 => {
                drop(its);
                drop(buffer);
                drop(streams);
            }
            2 => {
                drop(streams);
                drop(buffer);
                drop(its);
            }
            3 => {
                drop(streams);
                drop(its);
                drop(buffer);
            }
            // On another thread, without a current context.
            4 => std::thread::spawn(move || drop((its, buffer, streams))).join().expect("no panic"),
            // In a host function, where the driver refuses calls.
            _ => {
                let stream = streams[0].clone();
                stream.launch_host_function(move || drop(its)).expect("a host function");
                stream.synchronize().expect("complete work");
                drop(buffer);
            }
        }
    }
}

/// A leaked communicator does nothing else.
#[test]
fn a_forgotten_communicator_is_only_leaked() {
    in_child(&[], || {
        let its = or_skip!(communicators(1)).remove(0);
        let mut buffer = DeviceBuffer::from_slice(its.stream(), &[1_u8; 8]).expect("memory");
        its.all_reduce_in_place(&mut buffer, ReduceOp::Sum).expect("a sum");
        let stream = its.stream().clone();
        std::mem::forget(its);
        assert_eq!(buffer.to_vec().expect("a copy"), [1; 8]);
        drop(buffer);
        stream.synchronize().expect("complete work");
    });
}

/// Creates and ends communicators. The memory that NCCL allocates is freed.
fn cycles(count: usize, devices: usize, is_aborted: bool) {
    let context = Context::primary(&Device::get(0).expect("a device")).expect("a context");
    let free = || context.memory_info().expect("the free memory").free;
    let mut before = 0;
    let begin = std::time::Instant::now();
    for cycle in 0..count {
        let all = or_skip!(communicators(devices));
        let mut buffers = Vec::new();
        for its in &all {
            buffers.push(DeviceBuffer::<f32>::zeroed_sync(its.stream(), 256).expect("memory"));
        }
        group(|group| {
            for (its, buffer) in all.iter().zip(&mut buffers) {
                group.all_reduce_in_place(its, buffer, ReduceOp::Sum)?;
            }
            Ok(())
        })
        .expect("a sum");
        for its in &all {
            its.stream().synchronize().expect("complete work");
        }
        if is_aborted {
            // Each abort takes some tenths of a second.
            std::thread::scope(|scope| {
                for its in &all {
                    let abort = its.abort_handle();
                    scope.spawn(move || abort.abort().expect("an abort"));
                }
            });
        }
        drop((buffers, all));
        if cycle == 2 {
            before = free();
        }
    }
    let lost = before.saturating_sub(free());
    println!(
        "{count} cycles with {devices} ranks, aborted: {is_aborted}: {lost} bytes lost, {:?}",
        begin.elapsed()
    );
    no_misuses();
    // One communicator needs some megabytes.
    assert!(lost < 8 << 20, "{lost} bytes are lost");
}

#[test]
fn cycles_of_creation_and_abort_leak_nothing() {
    let devices = or_skip!(all()).len();
    let count = std::env::var("CUDA_NCCL_CYCLES").ok().and_then(|count| count.parse().ok());
    cycles(count.unwrap_or(if is_software() { 100 } else { 10 }), devices, true);
}

#[test]
fn cycles_of_creation_and_drop_leak_nothing() {
    let devices = or_skip!(all()).len();
    cycles(if is_software() { 100 } else { 5 }, devices, false);
}
