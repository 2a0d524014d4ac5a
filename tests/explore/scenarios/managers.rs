//! Memory managers.

use super::pairs::{Operation, expect_contents};
use super::{LEN, Part, Stage, part};
use cuda_memory::{CachingManager, CachingOptions, OrderedManager};
use cuda_safe::manager::{DriverManager, MemoryPointer, set_memory_manager};
use cuda_safe::{Context, DeviceBuffer, PinnedBuffer};

/// Runs the operations with each manager.
macro_rules! operations {
    ($($manager:literal $choose:ident)*) => {
        pub(super) const OPERATIONS: &[Operation] = &[$(
            Operation {
                manager: Some($choose),
                ..Operation::new(concat!($manager, "-allocate"), allocate)
            },
            Operation {
                manager: Some($choose),
                ..Operation::new(concat!($manager, "-free"), free)
            },
            Operation {
                manager: Some($choose),
                ..Operation::new(concat!($manager, "-free-pointer"), free_pointer)
            },
            Operation {
                manager: Some($choose),
                ..Operation::new(concat!($manager, "-free-pinned"), free_pinned)
            },
            Operation {
                manager: Some($choose),
                ..Operation::new(concat!($manager, "-trim"), trim).stopping_others()
            },
            Operation {
                manager: Some($choose),
                ..Operation::new(concat!($manager, "-stream-end"), stream_end)
            },
        )*];
    };
}

operations! {
    "driver-manager" driver
    "ordered-manager" ordered
    "caching-manager" caching
    "expandable-manager" expandable
}

fn driver() {
    set_memory_manager(DriverManager::new).expect("a matching version");
}

fn ordered() {
    set_memory_manager(OrderedManager::new).expect("a matching version");
}

fn caching() {
    let make = |context: &Context| CachingManager::with(context, small_slabs());
    set_memory_manager(make).expect("a matching version");
}

fn expandable() {
    let make = |context: &Context| CachingManager::expandable(context, CachingOptions::default());
    set_memory_manager(make).expect("a matching version");
}

/// Options with small slabs, because the simulator stores the bytes of each slab.
pub(crate) fn small_slabs() -> CachingOptions {
    CachingOptions { slab_bytes: 64 << 10, ..Default::default() }
}

fn buffer(stage: &Stage) -> DeviceBuffer<u32> {
    let buffer = DeviceBuffer::zeroed(&stage.stream, LEN).expect("memory");
    stage.stream.synchronize().expect("a wait");
    buffer
}

fn allocate(stage: &Stage) -> Part {
    let (stream, done) = (stage.stream.clone(), stage.done.clone());
    part(move || {
        if let Ok(buffer) = DeviceBuffer::<u32>::zeroed(&stream, LEN) {
            done.wait();
            expect_contents("zeroed", buffer.to_vec(), 0);
        }
    })
}

/// Twice, so that the second allocation may reuse the memory of the first.
fn free(stage: &Stage) -> Part {
    let (buffer, stream) = (buffer(stage), stage.stream.clone());
    part(move || {
        drop(buffer);
        drop(DeviceBuffer::<u32>::uninit(&stream, LEN));
    })
}

fn free_pointer(stage: &Stage) -> Part {
    let ordered = MemoryPointer::allocate_on(&stage.stream, 64).expect("memory");
    let unordered = MemoryPointer::allocate(&stage.context, 64).expect("memory");
    part(move || {
        drop(ordered);
        drop(unordered);
    })
}

fn free_pinned(stage: &Stage) -> Part {
    let buffer = PinnedBuffer::<u32>::zeroed(&stage.context, LEN).expect("memory");
    part(move || drop(buffer))
}

fn trim(stage: &Stage) -> Part {
    drop(buffer(stage));
    let context = stage.context.clone();
    part(move || {
        if let Ok(Some(manager)) = context.memory_manager() {
            let _ = manager.trim(0);
        }
    })
}

fn stream_end(stage: &Stage) -> Part {
    let stream = stage.context.stream().expect("a stream");
    drop(DeviceBuffer::<u32>::zeroed(&stream, LEN).expect("memory"));
    let home = stage.stream.clone();
    part(move || {
        drop(stream);
        drop(DeviceBuffer::<u32>::uninit(&home, LEN));
    })
}
