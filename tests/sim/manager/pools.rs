//! Memory of the driver's memory pools, allocated and freed through the base of a manager.

use crate::prelude::*;

const EXCHANGE: &str = "cuThreadExchangeStreamCaptureMode";
const DESTROY: &str = "cuMemPoolDestroy";

fn base(context: &Context) -> DriverMemory {
    DriverMemory::new(context, DeferOptions::default()).expect("a base")
}

fn pool(context: &Context) -> MemoryPool {
    MemoryPool::new(context, MemoryPoolOptions::default()).expect("a pool")
}

fn free(base: &DriverMemory, block: Block, pool: &MemoryPool, order: Order<'_>) {
    // SAFETY: the tests free each block of the pool once, and nothing uses it.
    unsafe { base.free_to_pool(block, pool, order) };
}

/// Returns the functions of `made` that order the destruction of a pool. While a capture may be open, a
/// free waits for all work.
fn waits_and_destroys(made: &[&'static str]) -> Vec<&'static str> {
    let names = ["cuEventSynchronize", "cuCtxSynchronize_v2", "cuMemFree_v2", DESTROY];
    made.iter().copied().filter(|its| names.contains(its)).collect()
}

#[test]
fn pool_memory_is_allocated_and_freed_in_stream_order() {
    let (_end, context, stream) = in_child!(on_stream());
    let (base, pool) = (base(&context), pool(&context));
    for order in [Order::of(&stream), persistent(stream.as_raw())] {
        let mut block = None;
        let allocate = calls(|| {
            block = Some(base.allocate_from_pool(&pool, 100, order).expect("memory"));
        });
        assert_eq!(allocate.last(), Some(&"cuMemAllocFromPoolAsync"));
        let block = block.expect("it was allocated");
        assert_eq!(block.size, 100);
        let guard = base.defer_cleanup();
        let freed = calls(|| free(&base, block, &pool, order));
        let its = |name: &&&str| **name == "cuMemFreeAsync" || **name == EXCHANGE;
        let freed: Vec<_> = freed.iter().filter(its).collect();
        assert_eq!(freed, [&EXCHANGE, &"cuMemFreeAsync", &EXCHANGE]);
        drop(guard);
    }
    context.synchronize().expect("a wait");
    assert_eq!(alive().device_allocations, 0);
    let made = calls(|| drop(pool));
    assert_eq!(waits_and_destroys(&made), ["cuMemFree_v2", DESTROY]);
}

#[test]
fn pool_memory_without_a_stream_is_freed_after_all_work() {
    let (_end, context, stream) = in_child!(on_stream());
    let (base, pool) = (base(&context), pool(&context));
    let order = Order::of(&stream);
    let block = base.allocate_from_pool(&pool, 100, order).expect("memory");
    free(&base, block, &pool, Order::NONE);
    let block = base.allocate_from_pool(&pool, 100, order).expect("memory");
    free(&base, block, &pool, persistent(CU_STREAM_LEGACY));
    assert_eq!(base.pending(), (2, 200));
    drop(pool);
    assert_eq!(alive().pools, 1, "the memory keeps it alive");
    assert!(base.flush());
    context.synchronize().expect("a wait");
    assert_eq!((alive().device_allocations, alive().pools), (0, 0));
}

#[test]
fn a_pool_is_not_destroyed_before_its_memory() {
    let (_end, context) = in_child!(leaking());
    let stream = context.stream().expect("a stream");
    let (base, pool) = (base(&context), pool(&context));
    let block = base.allocate_from_pool(&pool, 100, Order::of(&stream));
    block.expect("memory that is never freed");
    let made = calls(|| drop((pool, base)));
    assert!(!made.contains(&DESTROY), "{made:?}");
    assert_eq!(alive().pools, 1);
}

/// The driver continues to use a pool that is destroyed before its memory.
#[test]
fn a_pool_whose_memory_leaks_is_not_destroyed() {
    let (_end, context) = in_child!(leaking());
    let stream = context.stream().expect("a stream");
    let (base, pool) = (base(&context), pool(&context));
    let order = persistent(stream.as_raw());
    let block = base.allocate_from_pool(&pool, 100, order).expect("memory");
    let refused = fail("cuMemFreeAsync", 1, CUresult::CUDA_ERROR_NOT_PERMITTED);
    free(&base, block, &pool, order);
    assert_eq!((refused.hits(), cuda_safe::leaked()), (1, 1));
    drop(pool);
    assert_eq!(alive().pools, 1);
}

#[test]
fn an_allocation_from_a_pool_needs_a_stream_of_its_own() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let (base, pool) = (base(&context), pool(&context));
    let refused = |order| invalid(base.allocate_from_pool(&pool, 100, order));
    let none = refused(Order::NONE);
    assert!(matches!(none, Invalid::OrderWithoutStream { .. }), "{none}");
    let legacy = refused(persistent(CU_STREAM_LEGACY));
    assert!(matches!(legacy, Invalid::Handle { value: 1, .. }), "{legacy}");
}

#[test]
fn a_pool_of_another_context_is_refused() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let created = Context::new(&context.device(), ContextFlags::empty()).expect("a context");
    let stream = context.stream().expect("a stream");
    let (base, pool) = (base(&context), pool(&created));
    let refused = base.allocate_from_pool(&pool, 100, Order::of(&stream));
    assert!(
        matches!(&refused, Err(Error::Invalid(what))
            if matches!(**what, Invalid::OtherContext { .. })),
        "{refused:?}"
    );
}

/// A wait for the context of the pool would not cover the free.
#[test]
fn a_free_on_a_stream_of_another_context_completes_before_the_pool_is_destroyed() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let created = Context::new(&context.device(), ContextFlags::empty()).expect("a context");
    let (stream, other) = (context.stream().expect("a"), created.stream().expect("b"));
    let (base, pool) = (base(&context), pool(&context));
    let block = base.allocate_from_pool(&pool, 100, Order::of(&stream)).expect("memory");
    stream.synchronize().expect("the memory exists");
    let freed = calls(|| free(&base, block, &pool, Order::of(&other)));
    let place = |name| freed.iter().position(|its| *its == name);
    let record = place("cuEventRecord");
    assert!(record.is_some() && place("cuMemFreeAsync") < record, "{freed:?}");
    let made = calls(|| drop(pool));
    let order = waits_and_destroys(&made);
    assert_eq!(order.first(), Some(&"cuEventSynchronize"), "{made:?}");
    assert_eq!(order.last(), Some(&DESTROY));
    created.synchronize().expect("a wait");
}

/// The owner of a foreign pool must not destroy it before the frees are complete.
#[test]
fn the_owner_of_a_foreign_pool_is_dropped_after_all_work() {
    /// Notes how many driver calls were made before its drop.
    struct Owner(Arc<AtomicUsize>, #[allow(dead_code, reason = "held, not read")] MemoryPool);
    impl Drop for Owner {
        fn drop(&mut self) {
            self.0.store(cuda_sim::calls().len(), Ordering::SeqCst);
        }
    }
    let (_end, context, stream) = in_child!(on_stream());
    let (base, own) = (base(&context), pool(&context));
    let dropped = Arc::new(AtomicUsize::new(0));
    let owner = Owner(Arc::clone(&dropped), own.clone());
    // SAFETY: the owner keeps the pool alive.
    let pool = unsafe { MemoryPool::from_foreign(own.as_raw(), &context, owner) }.expect("a pool");
    drop(own);
    let order = Order::of(&stream);
    let block = base.allocate_from_pool(&pool, 100, order).expect("memory");
    free(&base, block, &pool, order);
    let made = calls(|| drop(pool));
    let dropped = dropped.load(Ordering::SeqCst);
    let before = &made[..dropped];
    assert!(before.contains(&"cuCtxSynchronize_v2"), "{made:?}");
    assert!(!before.contains(&DESTROY), "{made:?}");
    assert!(made.contains(&DESTROY), "{made:?}");
}

#[test]
fn a_block_before_its_allocation_has_no_handle() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let options = MemoryPoolOptions { shareable: true, ..Default::default() };
    let pool = MemoryPool::new(&context, options).expect("a pool");
    let stream = context.stream().expect("a stream");
    let (base, order) = (base(&context), Order::of(&stream));
    let block = base.allocate_from_pool(&pool, 1000, order).expect("memory");
    let part = Block { address: block.address + 100, size: 50, ..block };
    let handle = IpcHandle::of_pool_memory(&pool, block.address, &part).expect("a handle");
    assert_eq!((handle.offset(), handle.size()), (100, 50));
    let refused = IpcHandle::of_pool_memory(&pool, part.address, &block);
    assert!(
        matches!(&refused, Err(Error::Invalid(what))
            if matches!(**what, Invalid::NotShareable { .. })),
        "{refused:?}"
    );
    free(&base, block, &pool, order);
}
