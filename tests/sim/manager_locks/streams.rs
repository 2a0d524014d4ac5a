//! Which streams a pool uses by itself, and until when.

use crate::manager_inside::{SMALL, bytes, small, with};
use cuda_safe::manager::{CachingManager, MemoryManager, MemoryPointer, Order, StreamEnd};
use cuda_safe::{Context, ContextFlags, Stream};
use cuda_sim::set_call_hook;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

fn pool(context: &Context) -> &CachingManager {
    let pool = context.memory_manager_as::<CachingManager>();
    pool.expect("made").expect("it is")
}

/// Allocates and frees in the order of a stream whose end the pool does not hear of.
fn use_unheard(context: &Context, unheard: &Context) {
    let stream = context.stream().expect("a stream");
    for size in [1000, SMALL, 2 * SMALL] {
        let ended = unheard.stream().expect("a stream");
        for _ in 0..3 {
            let block = pool(context).allocate(size, Order::of(&ended));
            let block = block.expect("memory");
            // SAFETY: it is of this manager, and nobody has used it. (The stream is passing for the pool.)
            unsafe { pool(context).free(block, Order::of(&ended)) };
        }
        ended.synchronize().expect("a wait");
        drop(ended);
        let before = pool(context).figures();
        drop(bytes(&stream, size));
        let after = pool(context).figures();
        assert_eq!(
            (after.grown, after.host_waits),
            (before.grown, before.host_waits),
            "the memory is used again"
        );
        // These look at what all streams have freed.
        drop((bytes(&stream, SMALL), bytes(&stream, 3 * SMALL)));
        pool(context).trim(0).expect("a trim");
    }
    drop(stream);
    pool(context).trim(0).expect("a trim");
    let figures = pool(context).figures();
    assert_eq!((figures.in_use, figures.reserved), (0, 0));
}

#[test]
fn a_stream_of_the_context_without_the_manager_is_passing() {
    with(small, |context| {
        let unheard = pool(&context).base().context().clone();
        use_unheard(&context, &unheard);
    });
}

#[test]
fn a_stream_of_another_context_is_passing() {
    with(small, |context| {
        let other = Context::create(&context.device(), ContextFlags::empty()).expect("a context");
        use_unheard(&context, &other);
    });
}

/// The handle of a stream of the manager's own that a second object has.
#[test]
fn a_stream_of_other_code_gets_events_in_calls_that_name_it() {
    with(small, |context| {
        let raw_owner = pool(&context).base().context().stream().expect("a stream");
        let raw = raw_owner.as_raw();
        let other = context.stream().expect("a stream");
        // SAFETY: the stream is alive, not captured, and its end is told below.
        let order = unsafe { Order::lasting(raw) };
        let recorded = |f: &dyn Fn()| {
            cuda_sim::clear_calls();
            f();
            let calls = cuda_sim::calls();
            calls
                .iter()
                .filter(|its| its.function == "cuEventRecord")
                .count()
        };
        let use_once = || drop(MemoryPointer::allocate_in(&context, SMALL, order).expect("memory"));
        let alone = || {
            use_once();
            use_once();
        };
        assert_eq!(recorded(&alone), 0, "nobody else wants it");
        let by_other = || drop(bytes(&other, SMALL));
        assert_eq!(recorded(&by_other), 0, "the call does not name it");
        assert_eq!(recorded(&use_once), 1, "now it is wanted");
        raw_owner.synchronize().expect("a wait");
        let before = pool(&context).figures().slabs;
        drop([bytes(&other, SMALL), bytes(&other, SMALL)]);
        assert_eq!(
            pool(&context).figures().slabs,
            before,
            "used again by the other stream"
        );
        use_once();
        // SAFETY: the stream is alive, not captured, and no other thread names it.
        let end = unsafe { StreamEnd::of_raw(raw) };
        assert_eq!(end.as_raw(), raw);
        end.tell(pool(&context));
        drop(raw_owner);
        drop((bytes(&other, SMALL), bytes(&other, 2 * SMALL)));
        pool(&context).trim(0).expect("a trim");
        drop(other);
    });
}

/// Another thread drops the last clone while this one records an event in the stream: the end comes here.
#[test]
fn a_stream_whose_last_clone_is_dropped_while_an_event_is_recorded() {
    static LAST: Mutex<Option<Stream>> = Mutex::new(None);
    static IS_DROPPED: AtomicBool = AtomicBool::new(false);
    with(small, |context| {
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
                assert_eq!(cuda_sim::alive().streams, 2, "it is kept for the call");
            }
        });
        let held: Vec<_> = (0..4).map(|_| bytes(&two, SMALL)).collect();
        set_call_hook(|_| {});
        assert!(IS_DROPPED.load(Ordering::SeqCst));
        assert_eq!(cuda_sim::alive().streams, 1);
        drop(held);
        pool(&context).trim(0).expect("a trim");
        let figures = pool(&context).figures();
        assert_eq!((figures.in_use, figures.reserved), (0, 0));
        drop(two);
    });
}
