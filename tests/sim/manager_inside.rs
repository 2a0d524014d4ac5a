//! Memory managers where host functions, threads, forks and user code meet in them. What goes wrong here
//! hangs; an alarm ends it.
#![cfg(unix)]

mod logs;

use crate::common::{self, child};
use crate::{check, context, start};
use core::ffi::c_void;
use cuda_safe::manager::{
    Block, CachingManager, CachingOptions, DriverManager, DriverMemory, Fallback, FallbackManager,
    INTERFACE_VERSION, IpcHandle, LeakManager, LimitManager, LoggingManager, MemoryManager,
    MemoryPointer, Order, OrderedManager, SerialManager, StatisticsManager, set_memory_manager,
};
use cuda_safe::sys::cuLaunchHostFunc;
use cuda_safe::{CUresult, Context, DeviceBuffer, Error, Invalid, Result, Stream};
use cuda_sim::Profile;
use cuda_sim::fault::{Fault, Scope, limit_memory};
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

unsafe extern "C" {
    // POSIX: ends the process after so many seconds, so that a test that hangs is seen.
    fn alarm(seconds: core::ffi::c_uint) -> core::ffi::c_uint;
}

pub(crate) fn with<M: MemoryManager>(
    make: impl Fn(&Context) -> Result<M> + Send + Sync + 'static,
    body: impl FnOnce(Context),
) {
    child::in_child(&[], || {
        // SAFETY: it takes no pointer.
        unsafe { alarm(60) };
        set_memory_manager(make).expect("the version fits");
        start(Profile::h200());
        body(context());
        context().synchronize().expect("a wait");
        check();
    });
}

pub(crate) const SMALL: usize = 4 << 20;

pub(crate) fn small(context: &Context) -> Result<CachingManager> {
    let options = CachingOptions {
        slab_bytes: SMALL,
        ..Default::default()
    };
    CachingManager::with(context, options)
}

pub(crate) fn bytes(stream: &Stream, len: usize) -> DeviceBuffer<u8> {
    DeviceBuffer::uninit(stream, len).expect("memory")
}

/// A stream ends, with memory of its order and its last buffer, in a host function that runs in the middle
/// of an allocation: the software driver runs it on the thread that asks an event.
fn a_stream_ends_inside(context: &Context) {
    let (busy, other) = (context.stream().expect("a"), context.stream().expect("b"));
    let ended = context.stream().expect("a stream");
    drop(bytes(&ended, 1000));
    let kept = bytes(&ended, 2000);
    let mut first = bytes(&busy, SMALL);
    first.fill(1).expect("a fill");
    busy.launch_host_function(move || drop((kept, ended)))
        .expect("given");
    drop(first);
    let mut held = Vec::new();
    for _ in 0..8 {
        held.push(bytes(&other, SMALL));
    }
    drop((held, busy, other));
    context.synchronize().expect("a wait");
}

#[test]
fn a_stream_that_ends_in_a_host_function_in_the_middle_of_an_allocation() {
    with(small, |context| {
        a_stream_ends_inside(&context);
        let pool = context.memory_manager_as::<CachingManager>();
        let pool = pool.expect("made").expect("it is");
        assert_eq!(pool.figures().in_use, 0);
        pool.trim(0).expect("a trim");
        assert_eq!(pool.figures().reserved, 0);
    });
}

/// A manager does not hear of the end of a stream of the context without it.
#[test]
fn memory_that_is_freed_in_the_order_of_a_stream_of_the_plain_context() {
    with(small, |context| {
        let stream = context.stream().expect("a stream");
        let pool = context.memory_manager_as::<CachingManager>();
        let pool = pool.expect("made").expect("it is");
        let plain = pool.base().context();
        for size in [1000, SMALL, 2 * SMALL] {
            let ended = plain.stream().expect("a stream");
            let pointer = MemoryPointer::allocate(&context, size).expect("memory");
            // SAFETY: nobody has used it.
            unsafe { pointer.free_in(Order::of(&ended)) };
            drop(ended);
            // Looks for what has come to its end meanwhile.
            drop((bytes(&stream, SMALL), bytes(&stream, 3 * SMALL)));
            pool.trim(0).expect("a trim");
        }
        context.synchronize().expect("a wait");
        pool.trim(0).expect("a trim");
        assert_eq!((pool.figures().in_use, pool.figures().reserved), (0, 0));
        drop(stream);
    });
}

/// Other code's callback, which the crate does not know as a host function of its own.
#[test]
fn a_stream_that_ends_in_a_callback_of_other_code() {
    type Kept = (DeviceBuffer<u8>, Stream);

    unsafe extern "C" fn run(data: *mut c_void) {
        // SAFETY: it is the box below, which nobody else has.
        drop(unsafe { Box::from_raw(data.cast::<Kept>()) });
    }

    let make = |context: &Context| Ok(SerialManager::new(small(context)?));
    with(make, |context| {
        let other = context.stream().expect("a stream");
        let ended = context.stream().expect("a stream");
        let kept: Box<Kept> = Box::new((bytes(&ended, 1000), ended));
        let data = Box::into_raw(kept).cast();
        // SAFETY: the stream is alive, and the function takes the box once.
        let given = unsafe { cuLaunchHostFunc(other.as_raw(), Some(run), data) };
        assert!(given.is_success());
        other.synchronize().expect("a wait");
        assert_eq!(cuda_sim::alive().streams, 2, "it ends later");
        drop(bytes(&other, SMALL));
        assert_eq!(cuda_sim::alive().streams, 1);
        drop(other);
    });
}

/// The report hook is called in the middle of anything.
#[test]
fn a_report_hook_allocates_nothing_and_ends_no_stream_of_a_manager() {
    static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
    with(small, |context| {
        let (one, two) = (context.stream().expect("a"), context.stream().expect("b"));
        let kept = Mutex::new(Some(context.stream().expect("a stream")));
        drop(bytes(&one, 100));
        let its = two.clone();
        cuda_safe::set_report_hook(move |_| {
            let stream = kept.lock().expect("no panic").take();
            let memory = DeviceBuffer::<u8>::uninit(&its, SMALL).map(drop);
            drop(stream);
            let text = memory.expect_err("not in here").to_string();
            SEEN.lock().expect("no panic").push(text);
        });
        let fails = Fault::of_function("cuStreamDestroy_v2")
            .with(CUresult::CUDA_ERROR_UNKNOWN)
            .inject(Scope::Thread);
        let raw = one.as_raw();
        drop(one);
        drop(fails);
        cuda_safe::set_report_hook(|_| {});
        assert_eq!(SEEN.lock().expect("no panic").len(), 1);
        drop(bytes(&two, SMALL));
        assert_eq!(cuda_sim::alive().streams, 2, "that of the hook has ended");
        // SAFETY: it was not destroyed, and nobody else has it.
        drop(unsafe { Stream::from_raw(raw, &context) }.expect("a stream"));
        drop(two);
    });
}

/// Whoever lends a stream may destroy it as soon as everything made with it is gone: nothing is kept for it.
#[test]
fn a_pool_uses_no_lent_stream_when_it_is_given_back() {
    with(small, |context| {
        let other = context.stream().expect("a stream");
        for in_host_function in [false, true, true] {
            let owner = context.stream().expect("a stream");
            // SAFETY: its owner is dropped last.
            let lent = unsafe { Stream::borrow_raw(owner.as_raw(), &context) }.expect("a stream");
            let mut memory = bytes(&lent, SMALL / 2);
            memory.fill(1).expect("a fill");
            if in_host_function {
                other
                    .launch_host_function(move || drop((memory, lent)))
                    .expect("given");
                other.synchronize().expect("a wait");
            } else {
                drop((memory, lent));
            }
            drop(owner);
            // It looks at all that streams were given, and finds no dead one.
            let held: Vec<_> = (0..4).map(|_| bytes(&other, SMALL / 2)).collect();
            drop(held);
        }
        let manager = context.memory_manager().expect("made").expect("it is");
        manager.trim(0).expect("a trim");
        let pool = context.memory_manager_as::<CachingManager>();
        assert_eq!(pool.expect("made").expect("it is").figures().reserved, 0);
        drop(other);
    });
}

#[test]
fn a_stream_that_ends_in_a_host_function_does_not_wait_for_its_own_threads_turn() {
    let make = |context: &Context| Ok(SerialManager::new(small(context)?));
    with(make, |context| {
        a_stream_ends_inside(&context);
        let manager = context.memory_manager_as::<SerialManager<CachingManager>>();
        let pool = manager.expect("made").expect("it is").inner();
        assert_eq!(pool.figures().in_use, 0);
    });
}

/// The queue of releases has the last clone of a stream, and the next allocation looks through it.
#[test]
fn a_stream_that_ends_in_the_queue_does_not_wait_for_its_own_threads_turn() {
    let make = |context: &Context| Ok(SerialManager::new(OrderedManager::new(context)?));
    with(make, |context| {
        let other = context.stream().expect("a stream");
        let stream = context.stream().expect("a stream");
        let memory = bytes(&stream, 1000);
        other
            .launch_host_function(move || drop(memory))
            .expect("given");
        other.synchronize().expect("a wait");
        drop(stream);
        assert_eq!(cuda_sim::alive().streams, 2, "the queue has it");
        drop(bytes(&other, 10));
        assert_eq!(cuda_sim::alive().streams, 1);
    });
}

/// A thread has its turn, and waits for a host function that gives memory back.
#[test]
fn a_host_function_does_not_wait_for_the_turn_of_a_thread_that_waits_for_it() {
    let make = |context: &Context| {
        let options = cuda_safe::manager::DeferOptions {
            count: 0,
            ..Default::default()
        };
        Ok(SerialManager::new(DriverManager::with(context, options)?))
    };
    with(make, |context| {
        let (one, two) = (context.stream().expect("a"), context.stream().expect("b"));
        let (its, freed) = (bytes(&one, 100), bytes(&one, 100));
        let (tell, told) = mpsc::channel();
        let (go, gone) = mpsc::channel::<()>();
        one.launch_host_function(move || {
            tell.send(()).expect("the test listens");
            gone.recv().expect("the test goes on");
            drop((its, two));
        })
        .expect("given");
        std::thread::scope(|scope| {
            // Has its turn, and waits in the driver; or waits for its turn.
            scope.spawn(|| drop(freed));
            scope.spawn(|| one.synchronize().expect("a wait"));
            told.recv().expect("it runs");
            // Whichever of both runs it, the other comes to its wait meanwhile, or later.
            std::thread::sleep(Duration::from_millis(50));
            go.send(()).expect("it listens");
        });
        drop(one);
    });
}

#[test]
fn a_manager_is_not_made_in_a_host_function() {
    static INSIDE: OnceLock<Mutex<mpsc::Receiver<Result<(), Error>>>> = OnceLock::new();
    let (tell, told) = mpsc::channel();
    let tell = Mutex::new(Some(tell));
    let make = move |context: &Context| {
        // Whoever asks first makes it, and waits for a host function that asks as well.
        if let Some(tell) = tell.lock().expect("no panic").take() {
            let _ = tell.send(());
            context.synchronize()?;
        }
        DriverManager::new(context)
    };
    with(make, |context| {
        let stream = context.stream().expect("a stream");
        let its = stream.clone();
        let (answer, answers) = mpsc::channel();
        assert!(INSIDE.set(Mutex::new(answers)).is_ok());
        stream
            .launch_host_function(move || {
                told.recv().expect("somebody makes it");
                let made = DeviceBuffer::<u8>::uninit(&its, 10).map(drop);
                answer.send(made).expect("the test listens");
            })
            .expect("given");
        std::thread::scope(|scope| {
            scope.spawn(|| stream.synchronize().expect("a wait"));
            drop(bytes(&stream, 10));
        });
        let answers = INSIDE.get().expect("just set").lock().expect("no panic");
        let answer = answers.recv().expect("it ran");
        assert!(matches!(answer, Err(Error::InHostFunction)), "{answer:?}");
        drop(stream);
    });
}

/// One thread frees what was put off, for long; another finds no memory meanwhile.
#[test]
fn an_allocation_waits_for_the_clean_up_of_another_thread() {
    with(DriverManager::new, |context| {
        let _limit = limit_memory(1 << 20);
        let stream = context.stream().expect("a stream");
        let freed = MemoryPointer::allocate(&context, 600 << 10).expect("memory");
        drop(freed);
        let (tell, told) = mpsc::channel();
        stream
            .launch_host_function(move || {
                tell.send(()).expect("the test listens");
                // Until the other one has found none, or for a while.
                for _ in 0..200 {
                    std::thread::sleep(Duration::from_millis(1));
                    let is_one = |call: &cuda_sim::Call| {
                        call.function == "cuMemAlloc_v2"
                            && call.result == CUresult::CUDA_ERROR_OUT_OF_MEMORY
                    };
                    if cuda_sim::calls().iter().any(is_one) {
                        break;
                    }
                }
                std::thread::sleep(Duration::from_millis(20));
            })
            .expect("given");
        let manager = context.memory_manager().expect("made").expect("it is");
        std::thread::scope(|scope| {
            scope.spawn(|| manager.reset());
            told.recv().expect("it waits for this");
            drop(MemoryPointer::allocate(&context, 600 << 10).expect("what the other one frees"));
        });
        drop(stream);
    });
}

/// The wait for all work, where a capture may be open, allocates a byte.
fn with_all_put_off(again: impl FnOnce(&Context, &Stream, usize) -> Result<MemoryPointer>) {
    const ALL: usize = 1 << 20;
    with(OrderedManager::new, |context| {
        let stream = context.stream().expect("a stream");
        // Whoever has the handle may capture it.
        let _ = stream.as_raw();
        {
            let _limit = limit_memory(ALL as u64);
            let memory = MemoryPointer::allocate_on(&stream, ALL).expect("all there is");
            // SAFETY: nobody uses it.
            unsafe { memory.free_in(Order::NONE) };
            drop(again(&context, &stream, ALL).expect("what was put off"));
        }
        drop(stream);
        assert_eq!(cuda_safe::leaked(), 0);
    });
}

#[test]
fn plain_memory_is_what_was_put_off_where_no_byte_is_left_to_wait_with() {
    with_all_put_off(|context, _, size| MemoryPointer::allocate(context, size));
}

#[test]
fn memory_in_order_is_what_was_put_off_where_no_byte_is_left_to_wait_with() {
    with_all_put_off(|_, stream, size| MemoryPointer::allocate_on(stream, size));
}

#[test]
fn frees_of_a_pool_that_a_moment_refuses_are_tried_again() {
    with(OrderedManager::new, |context| {
        let stream = context.stream().expect("a stream");
        let manager = context.memory_manager().expect("made").expect("it is");
        let free = || {
            let memory = MemoryPointer::allocate_on(&stream, 1000).expect("memory");
            // SAFETY: nobody has used it.
            unsafe { memory.free_in(Order::NONE) };
        };
        for code in [
            CUresult::CUDA_ERROR_NOT_PERMITTED,
            CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
        ] {
            free();
            let fails = Fault::of_function("cuMemFreeAsync")
                .with(code)
                .inject(Scope::Process);
            manager.reset();
            assert_eq!(fails.hits(), 1);
            drop(fails);
            assert_eq!(cuda_safe::leaked(), 0, "{code:?}");
            context.synchronize().expect("a wait");
            assert_eq!(cuda_sim::alive().device_allocations, 0);
        }
        // The end of the manager in a host function, with one that is put off.
        free();
        drop(context);
        let without = Context::primary(&stream.context().device()).expect("the same one");
        let helper = cuda_safe::Device::get(0).and_then(|device| {
            Context::create(&device, cuda_safe::ContextFlags::empty())?.stream()
        });
        let helper = helper.expect("a stream of another context");
        drop(without);
        helper
            .launch_host_function(move || drop(stream))
            .expect("given");
        helper.synchronize().expect("a wait");
        drop(helper);
        assert_eq!(cuda_safe::leaked(), 0);
    });
}

/// A manager of another time.
#[derive(Debug)]
struct Older(DriverManager);

// SAFETY: all is the inner one's.
unsafe impl MemoryManager for Older {
    fn interface_version() -> u32 {
        INTERFACE_VERSION - 1
    }

    fn base(&self) -> &DriverMemory {
        self.0.base()
    }

    fn allocate(&self, size: usize, order: Order<'_>) -> Result<Block> {
        self.0.allocate(size, order)
    }

    unsafe fn free(&self, block: Block, order: Order<'_>) {
        // SAFETY: the caller's promise.
        unsafe { self.0.free(block, order) }
    }
}

#[test]
fn a_wrapped_manager_of_another_version_is_refused() {
    #[track_caller]
    fn refused<M: MemoryManager>(wrap: impl Fn(Older) -> M + Send + Sync + 'static) {
        let set = set_memory_manager(move |context| Ok(wrap(Older(DriverManager::new(context)?))));
        let error = set.expect_err("another version").to_string();
        assert!(error.contains("version 0"), "{error}");
    }
    refused(|inner| LimitManager::new(inner, 1));
    refused(|inner| FallbackManager::new(inner, Fallback::Host));
    refused(SerialManager::new);
    refused(StatisticsManager::new);
    refused(|inner| LoggingManager::new(inner, io::sink()));
    refused(|inner| LeakManager::new(SerialManager::new(inner)));
    let make = |context: &Context| {
        let below = Older(DriverManager::new(context)?);
        CachingManager::over(context, below, CachingOptions::default())
    };
    with(make, |context| {
        let error = MemoryPointer::allocate(&context, 1).expect_err("another version");
        assert!(
            matches!(error, Error::Invalid(ref what)
                if matches!(**what, Invalid::ManagerVersion { version: 0, .. })),
            "{error}"
        );
    });
}

/// All wrappers that have something to lock.
type All =
    LeakManager<StatisticsManager<LoggingManager<SerialManager<FallbackManager<CachingManager>>>>>;

/// Takes its time, so that a fork finds it at work.
struct Slow;

impl Write for Slow {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        std::thread::sleep(Duration::from_micros(200));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_forked_child_waits_for_no_lock_of_a_manager() {
    let make = |context: &Context| {
        let options = CachingOptions {
            slab_bytes: 64 << 10,
            max_bytes: 256 << 10,
            ..Default::default()
        };
        let pool = CachingManager::with(context, options)?;
        let serial = SerialManager::new(FallbackManager::new(pool, Fallback::Host));
        let logged = LoggingManager::new(serial, Slow);
        Ok(LeakManager::new(StatisticsManager::new(logged)))
    };
    with(make, |context| {
        let stream = context.stream().expect("a stream");
        // It falls back.
        drop(bytes(&stream, 300 << 10));
        let manager = context.memory_manager_as::<All>().expect("made");
        let manager = manager.expect("it is");
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let own = context.stream().expect("a stream");
                    while !stop.load(Ordering::Relaxed) {
                        drop(bytes(&own, 3000));
                        manager.inner().sample();
                        manager.trim(0).expect("a trim");
                    }
                });
            }
            let mut held = Some(bytes(&stream, 100));
            let forked = |_| {
                let pointer = MemoryPointer::allocate(&context, 100).expect("memory");
                let mut pointer = Some(pointer);
                let clean = common::fork::in_fork(|| {
                    // SAFETY: it takes no pointer.
                    unsafe { alarm(5) };
                    let before = cuda_safe::leaked();
                    drop((held.take(), pointer.take()));
                    let counted = cuda_safe::leaked() >= before + 2;
                    let refused = matches!(manager.trim(0), Err(Error::Forked))
                        && matches!(manager.allocate(10, Order::NONE), Err(Error::Forked))
                        && matches!(manager.memory_info(), Err(Error::Forked));
                    manager.reset();
                    manager.inner().sample();
                    let pool = manager.inner().inner().inner().inner().inner();
                    let _ = (pool.figures(), manager.outstanding());
                    let _ = manager.inner().inner().flush();
                    let _ = (manager.inner().timeline(), manager.base().flush());
                    counted && refused
                });
                drop(pointer);
                clean
            };
            // A fork takes half a second on some machines.
            let all = (0..15).all(forked);
            stop.store(true, Ordering::Relaxed);
            assert!(all, "a child hung, or called the driver");
            drop(held);
        });
        drop(stream);
    });
}

/// One thread closes memory of another process, for long; another opens it again meanwhile.
#[test]
fn memory_of_another_process_is_opened_again_when_it_is_closed() {
    with(small, |context| {
        let own = MemoryPointer::allocate(&context, 100).expect("memory");
        let own = cuda_safe::manager::AutoFreePointer::from(own);
        let mut bytes = own.export().expect("plain").handle().to_bytes();
        bytes[..64].copy_from_slice(&cuda_sim::shared_by_another(8192));
        let handle = IpcHandle::from_bytes(&bytes);
        // SAFETY: the software driver plays the other process.
        let open = || unsafe { context.open_memory(&handle) };
        let first = open().expect("another process's");
        let stream = context.stream().expect("a stream");
        let (tell, told) = mpsc::channel();
        stream
            .launch_host_function(move || {
                tell.send(()).expect("the test listens");
                std::thread::sleep(Duration::from_millis(50));
            })
            .expect("given");
        std::thread::scope(|scope| {
            scope.spawn(|| drop(first));
            told.recv().expect("it waits for this");
            drop(open().expect("as soon as it is closed"));
        });
        // Where it cannot be closed now, it is when the queue is looked through: which opening does.
        let again = open().expect("another process's");
        stream
            .launch_host_function(move || drop(again))
            .expect("given");
        stream.synchronize().expect("a wait");
        drop(open().expect("closed before"));
        drop(stream);
    });
}
