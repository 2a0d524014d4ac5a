//! Memory managers.

use crate::scenarios::{primary, primary_and_streams};
use crate::trace::Trace;
use cuda_memory::{
    CachingManager, CachingOptions, Fallback, FallbackManager, LeakManager, LimitManager,
    LoggingManager, OrderedManager, StatisticsManager,
};
use cuda_safe::manager::{
    AutoFreePointer, DriverManager, IpcHandle, MappedMemory, MemoryManager, MemoryPointer, Order,
    PinnedMemory, clear_memory_manager, set_memory_manager,
};
use cuda_safe::memory::pool::attribute::USED_CURRENT;
use cuda_safe::memory::{
    ImportedPool, ManagedBuffer, MappedBuffer, MemoryPoolOptions, PinnedFlags,
};
use cuda_safe::{Context, DeviceBuffer, PinnedBuffer, Result};
use std::ptr::NonNull;

/// The choice of a manager, for one scenario.
pub(crate) struct Chosen;

impl Drop for Chosen {
    fn drop(&mut self) {
        clear_memory_manager();
    }
}

pub(crate) fn choose<M: MemoryManager>(
    make: impl Fn(&Context) -> Result<M> + Send + Sync + 'static,
) -> Chosen {
    set_memory_manager(make).expect("a matching version");
    Chosen
}

pub(crate) fn driver(trace: &mut Trace) -> Result<()> {
    let _chosen = choose(DriverManager::new);
    use_it(trace)
}

pub(crate) fn caching(trace: &mut Trace) -> Result<()> {
    let options = CachingOptions { slab_bytes: 4 << 20, ..Default::default() };
    let _chosen = choose(move |context| CachingManager::with(context, options));
    use_it(trace)
}

pub(crate) fn expandable(trace: &mut Trace) -> Result<()> {
    let _chosen = choose(|context| CachingManager::expandable(context, CachingOptions::default()));
    use_it(trace)
}

pub(crate) fn ordered(trace: &mut Trace) -> Result<()> {
    let _chosen = choose(OrderedManager::new);
    use_it(trace)
}

pub(crate) fn wrapped(trace: &mut Trace) -> Result<()> {
    let _chosen = choose(|context| {
        let options = CachingOptions { slab_bytes: 4 << 20, ..Default::default() };
        let pool = CachingManager::with_upstream(context, OrderedManager::new(context)?, options)?;
        let limited = LimitManager::new(pool, 2 << 20);
        let falls_back = FallbackManager::new(limited, Fallback::Managed);
        let logged = LoggingManager::new(falls_back, std::io::sink());
        Ok(LeakManager::new(StatisticsManager::new(logged)))
    });
    use_it(trace)
}

/// Shares memory with another process, and opens memory of another process.
pub(crate) fn shared(trace: &mut Trace) -> Result<()> {
    let _chosen = choose(CachingManager::new);
    let context = primary()?;
    let memory = AutoFreePointer::from(MemoryPointer::allocate(&context, 5000)?);
    let part = memory.part(1000, 2000).expect("within");
    let exported = part.export()?;
    let mut bytes = exported.handle().to_bytes();
    assert_eq!(IpcHandle::from_bytes(&bytes), *exported.handle());
    trace.drop((memory, part, exported));
    bytes[..64].copy_from_slice(&cuda_sim::shared_by_another(8192));
    let handle = IpcHandle::from_bytes(&bytes);
    assert_eq!(handle.device()?, Some(context.device()));
    // SAFETY: the software driver acts as the other process.
    let opened = unsafe { context.open_memory(&handle) }?;
    // SAFETY: as above.
    let again = unsafe { context.open_memory(&handle) }?;
    assert_eq!(again.as_raw(), opened.as_raw());
    trace.drop((opened, context, again));
    trace.drops_from_here()
}

/// Shares a manager's own pool with another process, and imports a pool of another process.
pub(crate) fn shared_pool(trace: &mut Trace) -> Result<()> {
    let options = MemoryPoolOptions { shareable: true, ..Default::default() };
    let _chosen = choose(move |context| OrderedManager::with(context, options));
    let (context, [stream]) = primary_and_streams()?;
    let memory = AutoFreePointer::from(MemoryPointer::allocate_on(&stream, 5000)?);
    let exported = memory.part(1000, 2000).expect("within").export()?;
    let manager = context.memory_manager_as::<OrderedManager>()?;
    let pool = manager.and_then(OrderedManager::pool).expect("its own");
    drop(pool.export()?);
    let buffer = DeviceBuffer::<u8>::uninit_from_pool(pool, &stream, 64)?;
    pool.handle_of(&buffer)?;
    let mut bytes = exported.handle().to_bytes();
    let loose = MemoryPointer::allocate_on(&stream, 64)?;
    // SAFETY: no work has used the memory.
    trace.drops(|| unsafe { loose.free_in(Order::NONE) });
    trace.drop((memory, exported, buffer));

    let descriptor = cuda_sim::pool_shared_by_another().expect("a file");
    // SAFETY: the software driver acts as the other process.
    let imported = unsafe { ImportedPool::import(&context, &descriptor) }?;
    let data = cuda_sim::pool_memory_shared_by_another(&descriptor, 8192);
    bytes[..64].copy_from_slice(&data);
    let handle = IpcHandle::from_bytes(&bytes);
    // SAFETY: as above.
    let opened = unsafe { imported.open_memory(&handle) }?;
    // SAFETY: as above.
    let again = unsafe { imported.open_memory(&handle) }?;
    assert_eq!(again.as_raw(), opened.as_raw());
    imported.attribute(USED_CURRENT)?;
    trace.drop((imported, opened, again, stream, context));
    trace.drops_from_here()
}

/// Uses a context with any manager, as a program does.
fn use_it(trace: &mut Trace) -> Result<()> {
    let (context, [stream]) = primary_and_streams()?;
    for _ in 0..3 {
        let mut buffer = DeviceBuffer::from_slice(&stream, &[2u32; 64])?;
        buffer.fill(3)?;
        assert_eq!(buffer.to_vec()?, [3; 64]);
        trace.drop(buffer);
    }
    let second = context.stream()?;
    let mut moved = DeviceBuffer::<u8>::zeroed(&stream, 100)?;
    moved.rebind(&second)?;
    trace.drop(moved);
    // Its memory is reused on the first stream.
    let again = trace.looks_elsewhere(|| DeviceBuffer::<u8>::zeroed(&stream, 100))?;
    trace.drop((second, again));

    let mut mapped = MappedBuffer::new(PinnedBuffer::<i32>::zeroed(&context, 8)?, &stream)?;
    mapped.as_mut_slice().fill(4)?;
    trace.drop(mapped);
    let vector = PinnedBuffer::register(&context, vec![5u64; 1000])?.unregister()?;
    trace.drop(PinnedBuffer::register(&context, vector)?);
    let mut managed = ManagedBuffer::<u32>::zeroed(&stream, 200)?;
    assert_eq!(managed.host()?, [0; 200]);
    trace.drop(managed);

    let manager = context.memory_manager()?.expect("the chosen manager");
    let guard = manager.defer_cleanup();
    // An expandable pool has no other memory, so it looks for that of other streams.
    let memory = trace.looks_elsewhere(|| MemoryPointer::allocate(&context, 1 << 20))?;
    let ordered = trace.looks_elsewhere(|| MemoryPointer::allocate_on(&stream, 1 << 20))?;
    // SAFETY: the handle is the legacy default stream.
    let legacy = unsafe { Order::persistent(std::ptr::null_mut()) };
    let others = trace.looks_elsewhere(|| MemoryPointer::allocate_in(&context, 1 << 20, legacy))?;
    trace.drop((memory, ordered, others, guard));
    trace.drop(MappedMemory::allocate(&context, 100, PinnedFlags::empty())?);
    let mut bytes = vec![0u8; 4096];
    let start = NonNull::new(bytes.as_mut_ptr()).expect("not null");
    // SAFETY: the vector is kept alive, and its bytes do not move.
    let pinned = unsafe { PinnedMemory::pin(&context, bytes, start, 4096, PinnedFlags::empty()) }?;
    trace.drop(pinned);
    manager.memory_info()?;
    trace.drops(|| manager.reset());
    let last = DeviceBuffer::<u8>::zeroed(&stream, 100)?;
    trace.drop((stream, context, last));
    trace.drops_from_here()
}
