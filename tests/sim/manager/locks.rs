//! Memory managers that a thread needs while another thread is inside a driver call: no lock of a
//! manager may be held across a driver call.
#![cfg(unix)]

mod panics;
mod sizes;
mod streams;

use crate::manager::inside::{SMALL, bytes, small, with};
use crate::prelude::*;
use std::io;

/// Runs `scenario` on this thread. During each of its driver calls, which blocks meanwhile, another
/// thread runs `other`. Returns the calls during which the other thread was stuck.
fn interrupted(scenario: impl FnOnce(), other: impl Fn() + Send) -> Vec<&'static str> {
    let (ask, asked) = mpsc::channel();
    let (tell, told) = mpsc::channel();
    let told = Mutex::new(told);
    let stuck = Arc::new(Mutex::new(Vec::new()));
    let is_over = Arc::new(AtomicBool::new(false));
    let (its, over) = (Arc::clone(&stuck), Arc::clone(&is_over));
    let thread = std::thread::current().id();
    let ask_again = ask.clone();
    set_call_hook(move |function| {
        if std::thread::current().id() != thread || over.load(Ordering::SeqCst) {
            return;
        }
        ask_again.send(true).expect("the other thread listens");
        let told = told.lock().expect("no panic");
        if told.recv_timeout(Duration::from_secs(3)).is_err() {
            its.lock().expect("no panic").push(function);
            over.store(true, Ordering::SeqCst);
        }
    });
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while asked.recv() == Ok(true) {
                other();
                let _ = tell.send(());
            }
        });
        scenario();
        is_over.store(true, Ordering::SeqCst);
        ask.send(false).expect("it listens");
    });
    set_call_hook(|_| {});
    let stuck = stuck.lock().expect("no panic");
    stuck.clone()
}

/// A manager that frees at once.
fn immediate(context: &Context) -> Result<DriverManager> {
    DriverManager::with(context, DeferOptions { count: 0, ..Default::default() })
}

/// A pool that frees its slabs at once.
fn small_over_immediate(context: &Context) -> Result<CachingManager> {
    let options = CachingOptions { slab_bytes: SMALL, ..Default::default() };
    CachingManager::with_upstream(context, immediate(context)?, options)
}

/// Uses memory in every way in which a manager calls the driver.
fn use_memory(context: &Context) {
    let manager = context.memory_manager().expect("made").expect("chosen");
    let (one, two) = (context.stream().expect("a"), context.stream().expect("b"));
    for size in [1000, SMALL, 3 * SMALL] {
        let mut first = bytes(&one, size);
        first.fill(1).expect("a fill");
        drop(first);
        // Queries and records events of the other stream.
        drop(bytes(&two, size));
        let loose = MemoryPointer::allocate(context, size).expect("memory");
        // SAFETY: the stream is alive and not captured.
        let transient = unsafe { Order::transient(two.as_raw()) };
        // SAFETY: no work has used the memory.
        unsafe { loose.free_in(transient) };
    }
    drop(PinnedBuffer::<u8>::zeroed(context, 100).expect("memory"));
    // The stream ends with memory freed in its order.
    drop((one, bytes(&two, 1000)));
    drop(two);
    manager.trim(0).expect("a trim");
    manager.reset();
}

/// Uses memory on another thread while enough is left. With `trims` it leaves nothing cached, and
/// nothing for the first thread to free.
fn use_meanwhile(context: &Context, stream: &Stream, trims: bool) {
    drop((bytes(stream, 1000), bytes(stream, SMALL / 2)));
    drop(MemoryPointer::allocate(context, 1000).expect("memory"));
    let ended = context.stream().expect("a stream");
    drop(bytes(&ended, 2000));
    drop(ended);
    if trims {
        let manager = context.memory_manager().expect("made").expect("chosen");
        manager.trim(0).expect("a trim");
    }
}

#[track_caller]
fn is_never_stuck<M: MemoryManager>(make: impl Fn(&Context) -> Result<M> + Send + Sync + 'static) {
    let (_end, context) = in_child!(with(make));
    let stream = context.stream().expect("a stream");
    // Creates the objects of the first use.
    drop(bytes(&stream, 1000));
    for trims in [false, true] {
        let other = || use_meanwhile(&context, &stream, trims);
        let stuck = interrupted(|| use_memory(&context), other);
        assert_eq!(stuck, [""; 0], "another thread waits for this call");
    }
    drop(stream);
}

#[test]
fn a_caching_pool_holds_no_lock_in_a_driver_call() {
    is_never_stuck(small_over_immediate);
}

#[test]
fn a_manager_with_deferred_frees_holds_no_lock_in_a_driver_call() {
    is_never_stuck(immediate);
}

#[test]
fn a_manager_over_the_pools_of_the_driver_holds_no_lock_in_a_driver_call() {
    is_never_stuck(OrderedManager::new);
}

#[test]
fn wrapping_managers_hold_no_lock_in_a_driver_call() {
    is_never_stuck(|context| {
        let limited = LimitManager::new(small(context)?, 100 * SMALL);
        let logged = LoggingManager::new(FallbackManager::new(limited, Fallback::Host), io::sink());
        Ok(LeakManager::new(StatisticsManager::new(logged)))
    });
}

/// A pool with too little memory: it makes streams wait for others, waits for all work, and
/// releases slabs.
#[test]
fn a_caching_pool_that_runs_out_holds_no_lock_in_a_driver_call() {
    let make = |context: &Context| {
        let options =
            CachingOptions { slab_bytes: SMALL, max_bytes: 4 * SMALL, ..Default::default() };
        CachingManager::with(context, options)
    };
    let (_end, context) = in_child!(with(make));
    let mine = context.stream().expect("a stream");
    // The other thread has its own slab.
    let held = bytes(&mine, 1000);
    drop(bytes(&mine, 2000));
    let (one, two) = (context.stream().expect("a"), context.stream().expect("b"));
    let stuck = interrupted(
        || {
            for size in [SMALL, SMALL / 2 + 1, 2 * SMALL, 3 * SMALL].repeat(4) {
                let mut first = DeviceBuffer::<u8>::uninit(&one, size).expect("memory");
                first.fill(1).expect("a fill");
                drop(first);
                let mut second = DeviceBuffer::<u8>::uninit(&two, size).expect("memory");
                second.fill(2).expect("a fill");
            }
            DeviceBuffer::<u8>::uninit(&two, 4 * SMALL).expect_err("a little less memory");
        },
        || {
            drop(bytes(&mine, 2000));
            // Memory that this thread cannot reuse.
            drop(MemoryPointer::allocate_on(&mine, 700).expect("memory"));
            let pool = context.memory_manager_as::<CachingManager>();
            let _ = pool.expect("made").expect("the chosen manager").stats();
        },
    );
    assert_eq!(stuck, [""; 0], "another thread waits for this call");
    let pool = context.memory_manager_as::<CachingManager>();
    let stats = pool.expect("made").expect("the chosen manager").stats();
    assert!(stats.stream_waits > 0 && stats.host_waits > 0, "{stats:?}");
    drop((held, mine, one, two));
}

/// A thread frees memory and waits in the driver for a host function, which waits for a thread that
/// allocates and frees.
#[test]
fn a_host_function_may_wait_for_a_thread_that_uses_the_pool() {
    let (_end, context) = in_child!(with(small_over_immediate));
    let (busy, other) = (context.stream().expect("a"), context.stream().expect("b"));
    let third = context.stream().expect("a stream");
    drop((bytes(&other, 1000), bytes(&third, 1000)));
    let mut memory = bytes(&busy, SMALL);
    memory.fill(1).expect("a fill");
    let (ask, asked) = mpsc::channel();
    let (tell, told) = mpsc::channel();
    busy.launch_host_function(move || {
        ask.send(()).expect("the thread listens");
        told.recv().expect("the thread answers");
    })
    .expect("enqueued");
    drop(memory);
    let (its, stream) = (&context, &other);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            asked.recv().expect("it runs");
            drop((bytes(stream, 1000), bytes(stream, 2 * SMALL)));
            drop(MemoryPointer::allocate(its, SMALL).expect("memory"));
            let ended = its.stream().expect("a stream");
            drop(bytes(&ended, 1000));
            drop(ended);
            tell.send(()).expect("it listens");
        });
        // Queries an event after the host function.
        drop([(); 2].map(|()| bytes(&third, SMALL)));
        let manager = context.memory_manager().expect("made").expect("chosen");
        manager.trim(0).expect("a trim");
    });
    drop((busy, other, third));
}

/// One thread has taken the slabs and is about to free them; another thread finds no memory
/// meanwhile.
#[test]
fn an_allocation_gets_the_memory_that_another_thread_releases() {
    let (_end, context) = in_child!(with(small));
    let _limit = limit_memory(2 * SMALL as u64);
    let stream = context.stream().expect("a stream");
    drop(bytes(&stream, 2 * SMALL));
    let manager = context.memory_manager().expect("made").expect("chosen");
    let (tell, told) = mpsc::channel();
    let is_first = AtomicBool::new(true);
    let fails = |call: &Call| {
        call.function == "cuMemAlloc_v2" && call.result == CUresult::CUDA_ERROR_OUT_OF_MEMORY
    };
    set_call_hook(move |function| {
        if function != "cuMemFree_v2" || !is_first.swap(false, Ordering::SeqCst) {
            return;
        }
        tell.send(()).expect("the test receives it");
        for _ in 0..2000 {
            std::thread::sleep(Duration::from_millis(1));
            if cuda_sim::calls().iter().filter(|its| fails(its)).count() >= 2 {
                break;
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    });
    std::thread::scope(|scope| {
        scope.spawn(|| manager.trim(0).expect("a trim"));
        told.recv().expect("it is about to free");
        drop(bytes(&stream, 2 * SMALL));
    });
    set_call_hook(|_| {});
    drop(stream);
}

/// A thread creates the manager and waits for a host function, which waits for a thread that
/// allocates.
#[test]
fn an_allocation_does_not_wait_forever_for_a_manager_under_construction() {
    let (tell, told) = mpsc::channel();
    let tell = Mutex::new(Some(tell));
    let make = move |context: &Context| {
        let tell = tell.lock().expect("no panic").take();
        if let Some(tell) = tell {
            tell.send(()).expect("the test receives it");
            context.synchronize()?;
        }
        DriverManager::new(context)
    };
    let (_end, context) = in_child!(with(make));
    let stream = context.stream().expect("a stream");
    let (finish, finished) = mpsc::channel::<()>();
    stream
        .launch_host_function(move || finished.recv().expect("the test goes on"))
        .expect("enqueued");
    std::thread::scope(|scope| {
        scope.spawn(|| drop(bytes(&stream, 10)));
        told.recv().expect("the other thread makes it");
        let error = DeviceBuffer::<u8>::uninit(&stream, 10).expect_err("not made");
        assert!(
            matches!(&error, Error::Invalid(what) if matches!(**what, Invalid::ManagerCannot { .. })),
            "{error}"
        );
        finish.send(()).expect("it waits");
    });
    drop(bytes(&stream, 10));
    drop(stream);
    let _ = set_memory_manager(DriverManager::new);
}
