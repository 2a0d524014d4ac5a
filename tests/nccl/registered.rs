//! Registered memory and NCCL's allocator.

use crate::machine::{all, communicators, no_misuses};
use cuda_memory::{CachingManager, CachingOptions};
use cuda_nccl::{Communicator, NcclManager, ReduceOp, Registered, group};
use cuda_safe::manager::{MemoryManager, Order};
use cuda_safe::{Context, Device, DeviceBuffer};

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

#[test]
fn registered_buffers_are_used_and_returned() {
    let all = or_skip!(all());
    let ranks = all.len() as f32;
    let ones = |its: &Communicator| DeviceBuffer::from_slice(its.stream(), &[1.0_f32; 1 << 16]);
    let mut buffers = Vec::new();
    for its in &all {
        let mut registered = its.register(ones(its).expect("memory")).expect("a registration");
        // A second registration is none.
        registered.register(its).expect("nothing to do");
        buffers.push(registered);
    }
    sum(&all, &mut buffers);
    for registered in buffers {
        let buffer = registered.into_buffer().expect("the buffer");
        assert_eq!(buffer.to_vec().expect("a copy"), vec![ranks; 1 << 16]);
    }
}

/// In each of these ends, another party ends the registrations.
#[test]
fn registrations_end_with_the_value_the_communicator_or_an_abort() {
    for end in 0..5 {
        let its = or_skip!(communicators(1)).remove(0);
        let buffer = DeviceBuffer::from_slice(its.stream(), &[1.0_f32; 1024]).expect("memory");
        let mut registered = vec![its.register(buffer).expect("a registration")];
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
    let all = or_skip!(all());
    let ranks = all.len();
    let threads: Vec<_> = all
        .into_iter()
        .map(|its| {
            std::thread::spawn(move || {
                let mut memory = symmetric(&its, 1 << 20);
                let is_window = memory.register_window(&its, true).expect("a window or none");
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
    no_misuses();
    assert!(windows.iter().all(|its| *its == windows[0]), "all ranks or none: {windows:?}");
}

#[test]
fn the_allocator_is_the_upstream_of_a_pool() {
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
}
