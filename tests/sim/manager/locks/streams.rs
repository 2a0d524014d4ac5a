//! The streams that a pool uses on its own, and until when.

use crate::manager::inside::{SMALL, bytes, small, with};
use crate::prelude::*;

fn pool(context: &Context) -> &CachingManager {
    let pool = context.memory_manager_as::<CachingManager>();
    pool.expect("made").expect("the chosen manager")
}

/// Allocates and frees in the order of a stream whose end is not reported to the pool.
fn use_unheard(context: &Context, unheard: &Context) {
    let stream = context.stream().expect("a stream");
    for size in [1000, SMALL, 2 * SMALL] {
        let ended = unheard.stream().expect("a stream");
        for _ in 0..3 {
            let block = pool(context).allocate(size, Order::of(&ended)).expect("memory");
            // SAFETY: the block belongs to this manager, and no work has used it. (The pool treats
            // the stream as transient.)
            unsafe { pool(context).free(block, Order::of(&ended)) };
        }
        ended.synchronize().expect("a wait");
        drop(ended);
        let before = pool(context).stats();
        drop(bytes(&stream, size));
        let after = pool(context).stats();
        assert_eq!(
            (after.slabs_added, after.host_waits),
            (before.slabs_added, before.host_waits),
            "the memory is reused"
        );
        // These allocations look at the memory that all streams have freed.
        drop((bytes(&stream, SMALL), bytes(&stream, 3 * SMALL)));
        pool(context).trim(0).expect("a trim");
    }
    drop(stream);
    pool(context).trim(0).expect("a trim");
    let stats = pool(context).stats();
    assert_eq!((stats.in_use, stats.reserved), (0, 0));
}

#[test]
fn a_stream_unknown_to_the_manager_is_treated_as_transient() {
    let (_end, context) = in_child!(with(small));
    let unheard = pool(&context).base().context().clone();
    use_unheard(&context, &unheard);
}

#[test]
fn a_stream_of_another_context_is_treated_as_transient() {
    let (_end, context) = in_child!(with(small));
    let other = Context::new(&context.device(), ContextFlags::empty()).expect("a context");
    use_unheard(&context, &other);
}

/// A second object, which the pool does not know, owns the handle of a stream of the manager's
/// context.
#[test]
fn events_are_recorded_on_a_foreign_stream_only_in_calls_that_name_it() {
    let (_end, context) = in_child!(with(small));
    let raw_owner = pool(&context).base().context().stream().expect("a stream");
    let raw = raw_owner.as_raw();
    let other = context.stream().expect("a stream");
    // SAFETY: the stream is alive and not captured, and its end is reported below.
    let order = unsafe { Order::persistent(raw) };
    let recorded = |f: &dyn Fn()| {
        cuda_sim::clear_calls();
        f();
        cuda_sim::calls().iter().filter(|its| its.function == "cuEventRecord").count()
    };
    let use_once = || drop(MemoryPointer::allocate_in(&context, SMALL, order).expect("memory"));
    let alone = || {
        use_once();
        use_once();
    };
    assert_eq!(recorded(&alone), 0, "no other stream needs it");
    let by_other = || drop(bytes(&other, SMALL));
    assert_eq!(recorded(&by_other), 0, "the call does not name it");
    assert_eq!(recorded(&use_once), 1, "now another stream needs it");
    raw_owner.synchronize().expect("a wait");
    let before = pool(&context).stats().slabs;
    drop([bytes(&other, SMALL), bytes(&other, SMALL)]);
    assert_eq!(pool(&context).stats().slabs, before, "reused by the other stream");
    use_once();
    // SAFETY: the stream is alive and not captured, and no other thread names it.
    let end = unsafe { StreamEnd::of_raw(raw) };
    assert_eq!(end.as_raw(), raw);
    end.notify(pool(&context));
    drop(raw_owner);
    drop((bytes(&other, SMALL), bytes(&other, 2 * SMALL)));
    pool(&context).trim(0).expect("a trim");
    drop(other);
}

/// Another thread drops the last clone while this thread records an event on the stream, so the
/// stream ends here.
#[test]
fn a_stream_may_be_dropped_while_an_event_is_recorded_on_it() {
    static LAST: Mutex<Option<Stream>> = Mutex::new(None);
    static IS_DROPPED: AtomicBool = AtomicBool::new(false);
    let (_end, context) = in_child!(with(small));
    let (one, two) = (context.stream().expect("a"), context.stream().expect("b"));
    drop(bytes(&two, 1000));
    let mut memory = bytes(&one, SMALL);
    memory.fill(1).expect("a fill");
    drop((memory, bytes(&one, 3000)));
    *LAST.lock().expect("no panic") = Some(one);
    set_call_hook(|function| {
        let last = match function {
            "cuEventRecord" => LAST.lock().expect("no panic").take(),
            _ => None,
        };
        if let Some(last) = last {
            let dropping = std::thread::spawn(move || drop(last));
            dropping.join().expect("it does not wait");
            IS_DROPPED.store(true, Ordering::SeqCst);
            assert_eq!(cuda_sim::alive().streams, 2, "it is kept alive during the call");
        }
    });
    let held: Vec<_> = (0..4).map(|_| bytes(&two, SMALL)).collect();
    set_call_hook(|_| {});
    assert!(IS_DROPPED.load(Ordering::SeqCst));
    assert_eq!(cuda_sim::alive().streams, 1);
    drop(held);
    pool(&context).trim(0).expect("a trim");
    let stats = pool(&context).stats();
    assert_eq!((stats.in_use, stats.reserved), (0, 0));
    drop(two);
}
