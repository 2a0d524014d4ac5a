//! User code that panics inside of a pool: the pool stays consistent.

use crate::manager::inside::{SMALL, bytes, small, with};
use crate::prelude::*;

static ALLOCATION_PANICS: AtomicBool = AtomicBool::new(false);
static FREE_PANICS: AtomicBool = AtomicBool::new(false);

/// An upstream manager that panics once on request.
#[derive(Debug)]
struct Panicking(DriverManager);

// SAFETY: every call is forwarded to the inner manager.
unsafe impl MemoryManager for Panicking {
    fn interface_version() -> u32 {
        1
    }

    fn base(&self) -> &DriverMemory {
        self.0.base()
    }

    fn allocate(&self, size: usize, order: Order<'_>) -> Result<Block> {
        if ALLOCATION_PANICS.swap(false, Ordering::SeqCst) {
            panic!("on purpose");
        }
        self.0.allocate(size, order)
    }

    unsafe fn free(&self, block: Block, order: Order<'_>) {
        // SAFETY: the caller upholds the same contract.
        unsafe { self.0.free(block, order) };
        if FREE_PANICS.swap(false, Ordering::SeqCst) {
            panic!("on purpose");
        }
    }

    fn trim(&self, keep: usize) -> Result<usize> {
        self.0.trim(keep)
    }
}

#[test]
fn an_upstream_panic_in_an_allocation_does_not_count_against_the_limit() {
    let make = |context: &Context| {
        let options = CachingOptions { slab_bytes: SMALL, max_bytes: SMALL, ..Default::default() };
        let pool = CachingManager::with_upstream(
            context,
            Panicking(DriverManager::new(context)?),
            options,
        )?;
        Ok(LimitManager::new(pool, SMALL))
    };
    let (_end, context) = in_child!(with(make));
    let stream = context.stream().expect("a stream");
    for _ in 0..3 {
        ALLOCATION_PANICS.store(true, Ordering::SeqCst);
        let allocate = || DeviceBuffer::<u8>::uninit(&stream, SMALL);
        catch_unwind(AssertUnwindSafe(allocate)).expect_err("it panics");
    }
    drop(bytes(&stream, SMALL));
    drop(stream);
}

#[test]
fn an_upstream_panic_in_a_free_leaves_the_other_slabs_to_the_pool() {
    let make = |context: &Context| {
        let options = CachingOptions { slab_bytes: SMALL, ..Default::default() };
        CachingManager::with_upstream(context, Panicking(DriverManager::new(context)?), options)
    };
    let (_end, context) = in_child!(with(make));
    let stream = context.stream().expect("a stream");
    drop([(); 3].map(|()| bytes(&stream, SMALL)));
    let pool = context.memory_manager_as::<CachingManager>();
    let pool = pool.expect("made").expect("the chosen manager");
    assert_eq!(pool.stats().slabs, 3);
    FREE_PANICS.store(true, Ordering::SeqCst);
    catch_unwind(AssertUnwindSafe(|| pool.trim(0))).expect_err("it panics");
    let stats = pool.stats();
    assert_eq!((stats.slabs, stats.in_use), (2, 0));
    assert_eq!(pool.trim(0).expect("a trim"), 2 * SMALL);
    drop(stream);
}

/// The owner of a stream, which panics when it is dropped.
struct Bomb(#[allow(dead_code, reason = "kept alive, not read")] Stream);

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("on purpose");
    }
}

/// Drops the last clone of the stream while the pool records an event on it: the `record`th,
/// counted from 1.
fn drop_in_record(make: fn(&Context) -> Result<CachingManager>, record: usize) {
    static LAST: Mutex<Option<Stream>> = Mutex::new(None);
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let (_end, context) = in_child!(with(make));
    let pool = context.memory_manager_as::<CachingManager>();
    let pool = pool.expect("made").expect("the chosen manager");
    let owner = pool.base().context().stream().expect("a stream");
    let raw = owner.as_raw();
    // SAFETY: the owner keeps the stream alive.
    let stream = unsafe { Stream::from_foreign(raw, &context, Bomb(owner)) };
    let stream = stream.map_err(|_| ()).expect("no default stream");
    let mut memory = bytes(&stream, SMALL);
    memory.fill(1).expect("a fill");
    drop(memory);
    *LAST.lock().expect("no panic") = Some(stream);
    let other = context.stream().expect("a stream");
    set_call_hook(move |function| {
        if function == "cuEventRecord" && COUNT.fetch_add(1, Ordering::SeqCst) + 1 == record {
            let last = LAST.lock().expect("no panic").take();
            drop(last);
        }
    });
    // The earlier records fail, so that the pool records again.
    let fails: Vec<_> = (1..record as u64)
        .map(|nth| {
            Fault::of_function("cuEventRecord")
                .nth(nth)
                .with(CUresult::CUDA_ERROR_NOT_PERMITTED)
                .inject(Scope::Thread)
        })
        .collect();
    let allocate = || DeviceBuffer::<u8>::uninit(&other, SMALL);
    catch_unwind(AssertUnwindSafe(allocate)).expect_err("the owner panics");
    set_call_hook(|_| {});
    drop(fails);
    assert!(LAST.lock().expect("no panic").is_none());
    assert_eq!(pool.stats().in_use, 0);
    drop(bytes(&other, SMALL));
    pool.trim(0).expect("a trim");
    let stats = pool.stats();
    assert_eq!((stats.in_use, stats.reserved), (0, 0));
    drop(other);
}

#[test]
fn a_stream_owner_may_panic_while_the_pool_looks_for_memory() {
    drop_in_record(small, 1);
}

#[test]
fn a_stream_owner_may_panic_before_another_stream_waits_for_it() {
    let make = |context: &Context| {
        let options = CachingOptions { slab_bytes: SMALL, max_bytes: SMALL, ..Default::default() };
        CachingManager::with(context, options)
    };
    // The pool records twice when it looks for memory, and once for the wait.
    drop_in_record(make, 3);
}

#[test]
fn a_report_hook_may_panic_inside_a_pool() {
    // Unlike the other tests, because an object leaks.
    in_child!();
    set_memory_manager(small).expect("a matching version");
    crate::start(Profile::h200());
    let context = crate::context();
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    set_report_hook(|_| {
        CALLS.fetch_add(1, Ordering::SeqCst);
        panic!("on purpose");
    });
    let other = context.stream().expect("a stream");
    let manager = context.memory_manager().expect("made").expect("chosen");
    for _ in 0..3 {
        let stream = context.stream().expect("a stream");
        drop((bytes(&stream, 1000), bytes(&stream, SMALL)));
        drop(MemoryPointer::allocate(&context, SMALL).expect("memory"));
        let fails = Fault::of_function("cuMemFree_v2")
            .with(CUresult::CUDA_ERROR_INVALID_VALUE)
            .inject(Scope::Thread);
        manager.trim(0).expect("a trim");
        drop((fails, stream));
        drop(bytes(&other, 2 * SMALL));
    }
    assert_ne!(CALLS.load(Ordering::SeqCst), 0);
    set_report_hook(|_| {});
    drop(other);
    manager.trim(0).expect("a trim");
    let pool = context.memory_manager_as::<CachingManager>();
    let stats = pool.expect("made").expect("the chosen manager").stats();
    assert_eq!((stats.in_use, stats.reserved), (0, 0));
    assert_eq!(cuda_sim::misuses(), [""; 0]);
}
