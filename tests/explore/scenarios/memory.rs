//! Allocations, frees and copies.

use super::pairs::{Operation, expect_contents};
use super::{LEN, Part, Stage, context, keeping, part, pinned};
use cuda_safe::memory::{ManagedBuffer, MappedBuffer, MemoryPool, PitchedBuffer};
use cuda_safe::{DeviceBuffer, PinnedBuffer};

pub(super) const OPERATIONS: &[Operation] = &[
    Operation::new("allocate-zeroed", allocate_zeroed),
    Operation::new("allocate-from-slice", allocate_from_slice),
    Operation::new("allocate-sync", allocate_sync),
    Operation::new("allocate-pinned", allocate_pinned).stopping_others(),
    Operation::new("allocate-managed", allocate_managed),
    Operation::new("allocate-from-pool", allocate_from_pool),
    Operation::new("free-ordered", free_ordered),
    Operation::new("free-pool-buffer", free_pool_buffer),
    Operation::new("free-sync", free_sync),
    Operation::new("free-pitched", free_pitched),
    Operation::new("free-pinned", free_pinned).stopping_others(),
    Operation::new("free-mapped", free_mapped),
    Operation::new("free-registered", free_registered),
    Operation::new("free-managed", free_managed),
    Operation { may_report: true, ..Operation::new("free-pending", free_pending) },
    Operation::new("copy-from-slice", copy_from_slice),
    Operation::new("copy-to-slice", copy_to_slice),
    Operation {
        may_report: true,
        ..Operation::new("copy-from-pinned", copy_from_pinned).stopping_others()
    },
    Operation {
        may_report: true,
        ..Operation::new("copy-to-pinned", copy_to_pinned).stopping_others()
    },
    Operation { may_report: true, ..Operation::new("copy-scope", copy_scope).stopping_others() },
    Operation::new("fill", fill),
    Operation::new("pool", pool),
    Operation { devices: 2, ..Operation::new("copy-from-peer", copy_from_peer) },
];

fn zeroed(stage: &Stage) -> DeviceBuffer<u32> {
    let buffer = DeviceBuffer::zeroed(&stage.stream, LEN).expect("memory");
    stage.stream.synchronize().expect("a wait");
    buffer
}

fn of(stage: &Stage, value: u32) -> DeviceBuffer<u32> {
    DeviceBuffer::from_slice(&stage.stream, &[value; LEN]).expect("memory")
}

fn allocate_zeroed(stage: &Stage) -> Part {
    let (stream, done) = (stage.stream.clone(), stage.done.clone());
    part(move || {
        if let Ok(buffer) = DeviceBuffer::<u32>::zeroed(&stream, LEN) {
            done.wait();
            expect_contents("zeroed", buffer.to_vec(), 0);
        }
    })
}

fn allocate_from_slice(stage: &Stage) -> Part {
    let (stream, done) = (stage.stream.clone(), stage.done.clone());
    part(move || {
        if let Ok(buffer) = DeviceBuffer::from_slice(&stream, &[5; LEN]) {
            done.wait();
            expect_contents("from_slice", buffer.to_vec(), 5);
        }
    })
}

fn allocate_sync(stage: &Stage) -> Part {
    let (stream, done) = (stage.stream.clone(), stage.done.clone());
    part(move || {
        if let Ok(buffer) = DeviceBuffer::<u32>::zeroed_sync(&stream, LEN) {
            done.wait();
            expect_contents("an allocation of zeros", buffer.to_vec(), 0);
        }
    })
}

fn allocate_pinned(stage: &Stage) -> Part {
    let context = stage.context.clone();
    part(move || drop(PinnedBuffer::<u32>::zeroed(&context, LEN)))
}

fn allocate_managed(stage: &Stage) -> Part {
    let (stream, done) = (stage.stream.clone(), stage.done.clone());
    part(move || {
        if let Ok(mut buffer) = ManagedBuffer::from_slice(&stream, &[5; LEN]) {
            done.wait();
            expect_contents("from_slice", buffer.host().map(|host| host.to_vec()), 5);
        }
    })
}

fn allocate_from_pool(stage: &Stage) -> Part {
    let pool = MemoryPool::new(&stage.context, Default::default()).expect("a pool");
    let (stream, done) = (stage.stream.clone(), stage.done.clone());
    part(move || {
        if let Ok(buffer) = DeviceBuffer::<u32>::zeroed_from_pool(&pool, &stream, LEN) {
            done.wait();
            expect_contents("zeroed_from_pool", buffer.to_vec(), 0);
        }
    })
}

fn free_ordered(stage: &Stage) -> Part {
    let buffer = zeroed(stage);
    part(move || drop(buffer))
}

fn free_pool_buffer(stage: &Stage) -> Part {
    let pool = MemoryPool::new(&stage.context, Default::default()).expect("a pool");
    let buffer = DeviceBuffer::<u32>::uninit_from_pool(&pool, &stage.stream, LEN);
    let buffer = buffer.expect("memory");
    drop(pool);
    part(move || drop(buffer))
}

fn free_sync(stage: &Stage) -> Part {
    let buffer = DeviceBuffer::<u32>::zeroed_sync(&stage.stream, LEN).expect("memory");
    part(move || drop(buffer))
}

fn free_pitched(stage: &Stage) -> Part {
    let buffer = PitchedBuffer::<u32>::zeroed(&stage.stream, 4, 4).expect("memory");
    part(move || drop(buffer))
}

fn free_pinned(stage: &Stage) -> Part {
    let buffer = pinned(&stage.context, 1);
    part(move || drop(buffer))
}

fn free_mapped(stage: &Stage) -> Part {
    let buffer = MappedBuffer::new(pinned(&stage.context, 1), &stage.stream);
    let buffer = buffer.expect("mapped memory");
    part(move || drop(buffer))
}

fn free_registered(stage: &Stage) -> Part {
    let buffer = PinnedBuffer::register(&stage.context, vec![1u32; LEN]).expect("registered");
    part(move || drop(buffer))
}

fn free_managed(stage: &Stage) -> Part {
    let buffer = ManagedBuffer::<u32>::zeroed(&stage.stream, LEN).expect("managed memory");
    part(move || drop(buffer))
}

/// The copy may still be pending. In a capture nothing can wait for it, and its memory is leaked.
fn free_pending(stage: &Stage) -> Part {
    let mut buffer = zeroed(stage);
    let pending = buffer.copy_from_pinned(pinned(&stage.context, 3));
    let pending = pending.expect("a copy");
    keeping(move || {
        drop(pending);
        buffer
    })
}

fn copy_from_slice(stage: &Stage) -> Part {
    let (mut buffer, done) = (zeroed(stage), stage.done.clone());
    part(move || {
        if buffer.copy_from_slice(&[5; LEN]).is_ok() {
            done.wait();
            expect_contents("copy_from_slice", buffer.to_vec(), 5);
        }
    })
}

fn copy_to_slice(stage: &Stage) -> Part {
    let buffer = of(stage, 7);
    keeping(move || {
        expect_contents("copy_to_slice", buffer.to_vec(), 7);
        buffer
    })
}

fn copy_from_pinned(stage: &Stage) -> Part {
    let (mut buffer, host) = (zeroed(stage), pinned(&stage.context, 3));
    let done = stage.done.clone();
    part(move || {
        let copied = buffer.copy_from_pinned(host);
        let copied = copied.is_ok_and(|pending| pending.synchronize().is_ok());
        if copied {
            done.wait();
            expect_contents("copy_from_pinned", buffer.to_vec(), 3);
        }
    })
}

fn copy_to_pinned(stage: &Stage) -> Part {
    let (buffer, host) = (of(stage, 7), pinned(&stage.context, 3));
    keeping(move || {
        if let Ok(pending) = buffer.copy_to_pinned(host) {
            let read = pending.synchronize().map(|host| host.to_vec());
            expect_contents("copy_to_pinned", read, 7);
        }
        buffer
    })
}

/// A scope borrows the pinned memory. If its wait fails, the memory is leaked.
fn copy_scope(stage: &Stage) -> Part {
    let (mut buffer, mut host) = (zeroed(stage), pinned(&stage.context, 3));
    let (stream, done) = (stage.stream.clone(), stage.done.clone());
    part(move || {
        let copied = stream.copy_scope(|scope| scope.copy_from_pinned(&mut buffer, &mut host));
        if copied.is_ok() {
            done.wait();
            expect_contents("a copy in a scope", buffer.to_vec(), 3);
        }
    })
}

/// In a capture the fill becomes a node of the graph, which is never launched.
fn fill(stage: &Stage) -> Part {
    let mut buffer = zeroed(stage);
    keeping(move || {
        let _ = buffer.fill(9);
        buffer
    })
}

fn pool(stage: &Stage) -> Part {
    let (context, stream) = (stage.context.clone(), stage.stream.clone());
    part(move || {
        if let Ok(pool) = MemoryPool::new(&context, Default::default()) {
            let buffer = DeviceBuffer::<u32>::uninit_from_pool(&pool, &stream, LEN);
            drop(pool);
            drop(buffer);
        }
    })
}

fn copy_from_peer(stage: &Stage) -> Part {
    let peer = context(1).stream().expect("a stream");
    let source = DeviceBuffer::from_slice(&peer, &[8u32; LEN]).expect("memory");
    let source = source.share().expect("shared");
    let mut buffer = zeroed(stage);
    let stream = stage.stream.clone();
    keeping(move || {
        if let Ok(reader) = source.on_peer(&stream) {
            let _ = buffer.copy_from_peer(&reader);
        }
        buffer
    })
}
