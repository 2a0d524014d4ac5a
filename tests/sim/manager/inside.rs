//! Memory managers that host functions, threads, forks and user code use at the same time. A
//! failure here is a hang, which an alarm ends.
#![cfg(unix)]

mod logs;

use crate::prelude::*;
use cuda_safe::manager::INTERFACE_VERSION;
use std::io::{self, Write};
use std::sync::OnceLock;

unsafe extern "C" {
    // A POSIX function that ends the process after some seconds, so that a hanging test is
    // detected.
    fn alarm(seconds: core::ffi::c_uint) -> core::ffi::c_uint;
}

/// Like [`with`](crate::with), where the test must not hang. At the end, waits for all work.
pub(crate) fn with<M: MemoryManager>(
    make: impl Fn(&Context) -> Result<M> + Send + Sync + 'static,
) -> (AtEnd, Context) {
    // Miri has no `alarm`, and stops a test that hangs.
    if !cfg!(miri) {
        // SAFETY: `alarm` takes no pointer.
        unsafe { alarm(60) };
    }
    let (end, context) = crate::with(make);
    (end.after(|| crate::context().synchronize().expect("a wait")), context)
}

pub(crate) const SMALL: usize = 4 << 20;

pub(crate) fn small(context: &Context) -> Result<CachingManager> {
    CachingManager::with(context, CachingOptions { slab_bytes: SMALL, ..Default::default() })
}

pub(crate) fn bytes(stream: &Stream, len: usize) -> DeviceBuffer<u8> {
    DeviceBuffer::uninit(stream, len).expect("memory")
}

/// Drops a stream, with memory freed in its order and its last buffer, in a host function that runs
/// during an allocation: the software driver runs it on the thread that queries an event.
fn a_stream_ends_inside(context: &Context) {
    let (busy, other) = (context.stream().expect("a"), context.stream().expect("b"));
    let ended = context.stream().expect("a stream");
    drop(bytes(&ended, 1000));
    let kept = bytes(&ended, 2000);
    let mut first = bytes(&busy, SMALL);
    first.fill(1).expect("a fill");
    busy.launch_host_function(move || drop((kept, ended))).expect("enqueued");
    drop(first);
    let mut held = Vec::new();
    for _ in 0..8 {
        held.push(bytes(&other, SMALL));
    }
    drop((held, busy, other));
    context.synchronize().expect("a wait");
}

#[test]
fn a_stream_may_end_in_a_host_function_during_an_allocation() {
    let (_end, context) = in_child!(with(small));
    a_stream_ends_inside(&context);
    let pool = context.memory_manager_as::<CachingManager>();
    let pool = pool.expect("made").expect("the chosen manager");
    assert_eq!(pool.stats().in_use, 0);
    pool.trim(0).expect("a trim");
    assert_eq!(pool.stats().reserved, 0);
}

/// A manager is not told when a stream of the context without the manager ends.
#[test]
fn memory_may_be_freed_in_the_order_of_a_stream_unknown_to_the_manager() {
    let (_end, context) = in_child!(with(small));
    let stream = context.stream().expect("a stream");
    let pool = context.memory_manager_as::<CachingManager>();
    let pool = pool.expect("made").expect("the chosen manager");
    let plain = pool.base().context();
    for size in [1000, SMALL, 2 * SMALL] {
        let ended = plain.stream().expect("a stream");
        let pointer = MemoryPointer::allocate(&context, size).expect("memory");
        // SAFETY: no work has used the memory.
        unsafe { pointer.free_in(Order::of(&ended)) };
        drop(ended);
        // The pool queries which work has completed.
        drop((bytes(&stream, SMALL), bytes(&stream, 3 * SMALL)));
        pool.trim(0).expect("a trim");
    }
    context.synchronize().expect("a wait");
    pool.trim(0).expect("a trim");
    assert_eq!((pool.stats().in_use, pool.stats().reserved), (0, 0));
    drop(stream);
}

/// A callback of other code, which the crate does not recognize as its own host function.
#[test]
fn a_stream_may_end_in_a_callback_of_other_code() {
    type Kept = (DeviceBuffer<u8>, Stream);

    unsafe extern "C" fn run(data: *mut c_void) {
        // SAFETY: the data is the box below, which has no other owner.
        drop(unsafe { Box::from_raw(data.cast::<Kept>()) });
    }

    let (_end, context) = in_child!(with(small));
    let other = context.stream().expect("a stream");
    let ended = context.stream().expect("a stream");
    let kept: Box<Kept> = Box::new((bytes(&ended, 1000), ended));
    let data = Box::into_raw(kept).cast();
    // SAFETY: the stream is alive, and the function takes ownership of the box once.
    let given = unsafe { cuLaunchHostFunc(other.as_raw(), Some(run), data) };
    assert!(given.is_success());
    other.synchronize().expect("a wait");
    assert_eq!(cuda_sim::alive().streams, 2, "the stream ends later");
    drop(bytes(&other, SMALL));
    assert_eq!(cuda_sim::alive().streams, 1);
    drop(other);
}

/// The report hook may be called during any operation.
#[test]
fn a_report_hook_cannot_allocate_and_streams_dropped_in_it_end_later() {
    static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let (_end, context) = in_child!(with(small));
    let (one, two) = (context.stream().expect("a"), context.stream().expect("b"));
    let kept = Mutex::new(Some(context.stream().expect("a stream")));
    drop(bytes(&one, 100));
    let its = two.clone();
    cuda_safe::set_report_hook(move |_| {
        let stream = kept.lock().expect("no panic").take();
        let memory = DeviceBuffer::<u8>::uninit(&its, SMALL).map(drop);
        drop(stream);
        let text = memory.expect_err("no allocation in the hook").to_string();
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
    assert_eq!(cuda_sim::alive().streams, 2, "the stream of the hook has ended");
    // SAFETY: the stream was not destroyed, and has no other owner.
    drop(unsafe { Stream::from_raw(raw, &context) }.expect("a stream"));
    drop(two);
}

/// The owner of a borrowed stream may destroy it after everything created with it is dropped, so
/// the pool must not use it afterwards.
#[test]
fn a_pool_does_not_use_a_borrowed_stream_after_its_last_use() {
    let (_end, context) = in_child!(with(small));
    let other = context.stream().expect("a stream");
    for in_host_function in [false, true, true] {
        let owner = context.stream().expect("a stream");
        // SAFETY: the owner of the stream is dropped last.
        let lent = unsafe { Stream::borrow_raw(owner.as_raw(), &context) }.expect("a stream");
        let mut memory = bytes(&lent, SMALL / 2);
        memory.fill(1).expect("a fill");
        if in_host_function {
            other.launch_host_function(move || drop((memory, lent))).expect("enqueued");
            other.synchronize().expect("a wait");
        } else {
            drop((memory, lent));
        }
        drop(owner);
        // The pool looks at the memory of all streams, and must not use a destroyed one.
        let held: Vec<_> = (0..4).map(|_| bytes(&other, SMALL / 2)).collect();
        drop(held);
    }
    let manager = context.memory_manager().expect("made").expect("the chosen manager");
    manager.trim(0).expect("a trim");
    let pool = context.memory_manager_as::<CachingManager>();
    assert_eq!(pool.expect("made").expect("the chosen manager").stats().reserved, 0);
    drop(other);
}

/// The release queue owns the last clone of a stream, and the next allocation processes the queue.
#[test]
fn a_stream_in_the_release_queue_ends_in_the_next_allocation() {
    let (_end, context) = in_child!(with(OrderedManager::new));
    let other = context.stream().expect("a stream");
    let stream = context.stream().expect("a stream");
    let memory = bytes(&stream, 1000);
    other.launch_host_function(move || drop(memory)).expect("enqueued");
    other.synchronize().expect("a wait");
    drop(stream);
    assert_eq!(cuda_sim::alive().streams, 2, "the queue owns it");
    drop(bytes(&other, 10));
    assert_eq!(cuda_sim::alive().streams, 1);
}

/// A thread frees memory, which waits for a host function that frees memory too.
#[test]
fn a_host_function_does_not_wait_for_a_thread_that_waits_for_it() {
    let make = |context: &Context| {
        let options = DeferOptions { count: 0, ..Default::default() };
        DriverManager::with(context, options)
    };
    let (_end, context) = in_child!(with(make));
    let (one, two) = (context.stream().expect("a"), context.stream().expect("b"));
    let (its, freed) = (bytes(&one, 100), bytes(&one, 100));
    let (tell, told) = mpsc::channel();
    let (go, gone) = mpsc::channel::<()>();
    one.launch_host_function(move || {
        tell.send(()).expect("the test receives it");
        gone.recv().expect("the test goes on");
        drop((its, two));
    })
    .expect("enqueued");
    std::thread::scope(|scope| {
        // This thread waits in the driver.
        scope.spawn(|| drop(freed));
        scope.spawn(|| one.synchronize().expect("a wait"));
        told.recv().expect("it runs");
        // Whichever thread runs the host function, the other one reaches its wait meanwhile or
        // later.
        std::thread::sleep(Duration::from_millis(50));
        go.send(()).expect("it listens");
    });
    drop(one);
}

#[test]
fn a_manager_is_not_created_in_a_host_function() {
    static INSIDE: OnceLock<Mutex<mpsc::Receiver<Result<(), Error>>>> = OnceLock::new();
    let (tell, told) = mpsc::channel();
    let tell = Mutex::new(Some(tell));
    let make = move |context: &Context| {
        // The first caller creates the manager, and waits for a host function that needs the
        // manager too.
        let tell = tell.lock().expect("no panic").take();
        if let Some(tell) = tell {
            let _ = tell.send(());
            context.synchronize()?;
        }
        DriverManager::new(context)
    };
    let (_end, context) = in_child!(with(make));
    let stream = context.stream().expect("a stream");
    let its = stream.clone();
    let (answer, answers) = mpsc::channel();
    assert!(INSIDE.set(Mutex::new(answers)).is_ok());
    stream
        .launch_host_function(move || {
            told.recv().expect("a thread creates it");
            let made = DeviceBuffer::<u8>::uninit(&its, 10).map(drop);
            answer.send(made).expect("the test receives it");
        })
        .expect("enqueued");
    std::thread::scope(|scope| {
        scope.spawn(|| stream.synchronize().expect("a wait"));
        drop(bytes(&stream, 10));
    });
    let answer = INSIDE.get().expect("just set").lock().expect("no panic").recv().expect("it ran");
    assert!(matches!(answer, Err(Error::InHostFunction)), "{answer:?}");
    drop(stream);
}

/// One thread completes deferred frees for a long time; another thread finds no memory meanwhile.
#[test]
fn an_allocation_waits_for_the_clean_up_of_another_thread() {
    let (_end, context) = in_child!(with(DriverManager::new));
    let _limit = limit_memory(1 << 20);
    let stream = context.stream().expect("a stream");
    drop(MemoryPointer::allocate(&context, 600 << 10).expect("memory"));
    let (tell, told) = mpsc::channel();
    stream
        .launch_host_function(move || {
            tell.send(()).expect("the test receives it");
            // Until the other thread has found no memory, or for a while.
            for _ in 0..200 {
                std::thread::sleep(Duration::from_millis(1));
                let is_one = |call: &Call| {
                    call.function == "cuMemAlloc_v2"
                        && call.result == CUresult::CUDA_ERROR_OUT_OF_MEMORY
                };
                if cuda_sim::calls().iter().any(is_one) {
                    break;
                }
            }
            std::thread::sleep(Duration::from_millis(20));
        })
        .expect("enqueued");
    let manager = context.memory_manager().expect("made").expect("the chosen manager");
    std::thread::scope(|scope| {
        scope.spawn(|| manager.reset());
        told.recv().expect("the other thread waits for this");
        drop(
            MemoryPointer::allocate(&context, 600 << 10)
                .expect("memory that the other thread frees"),
        );
    });
    drop(stream);
}

/// The wait for all work allocates a byte if a capture may be open.
fn with_all_put_off(again: impl FnOnce(&Context, &Stream, usize) -> Result<MemoryPointer>) {
    const ALL: usize = 1 << 20;
    let (_end, context) = in_child!(with(OrderedManager::new));
    let stream = context.stream().expect("a stream");
    // Code with the raw handle may capture the stream.
    let _ = stream.as_raw();
    {
        let _limit = limit_memory(ALL as u64);
        let memory = MemoryPointer::allocate_on(&stream, ALL).expect("all of the memory");
        // SAFETY: nothing uses the memory.
        unsafe { memory.free_in(Order::NONE) };
        drop(again(&context, &stream, ALL).expect("memory with a deferred free"));
    }
    drop(stream);
    assert_eq!(cuda_safe::leaked(), 0);
}

#[test]
fn deferred_memory_is_reused_for_synchronous_memory_if_no_byte_is_left() {
    with_all_put_off(|context, _, size| MemoryPointer::allocate(context, size));
}

#[test]
fn deferred_memory_is_reused_for_stream_ordered_memory_if_no_byte_is_left() {
    with_all_put_off(|_, stream, size| MemoryPointer::allocate_on(stream, size));
}

#[test]
fn frees_that_the_driver_refuses_temporarily_are_retried() {
    let (_end, context) = in_child!(with(OrderedManager::new));
    let stream = context.stream().expect("a stream");
    let manager = context.memory_manager().expect("made").expect("the chosen manager");
    let free = || {
        let memory = MemoryPointer::allocate_on(&stream, 1000).expect("memory");
        // SAFETY: no work has used the memory.
        unsafe { memory.free_in(Order::NONE) };
    };
    for code in [CUresult::CUDA_ERROR_NOT_PERMITTED, CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT] {
        free();
        let fails = Fault::of_function("cuMemFreeAsync").with(code).inject(Scope::Process);
        manager.reset();
        assert_eq!(fails.hits(), 1);
        drop(fails);
        assert_eq!(cuda_safe::leaked(), 0, "{code:?}");
        context.synchronize().expect("a wait");
        assert_eq!(cuda_sim::alive().device_allocations, 0);
    }
    // The manager is dropped in a host function, with a deferred free.
    free();
    drop(context);
    let without = Context::primary(&stream.context().device()).expect("the same context");
    let helper =
        Device::get(0).and_then(|device| Context::new(&device, ContextFlags::empty())?.stream());
    let helper = helper.expect("a stream of another context");
    drop(without);
    helper.launch_host_function(move || drop(stream)).expect("enqueued");
    helper.synchronize().expect("a wait");
    drop(helper);
    assert_eq!(cuda_safe::leaked(), 0);
}

/// A manager with another interface version.
#[derive(Debug)]
struct Older(DriverManager);

// SAFETY: every call is forwarded to the inner manager.
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
        // SAFETY: the caller upholds the same contract.
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
    refused(StatisticsManager::new);
    refused(|inner| LoggingManager::new(inner, io::sink()));
    refused(|inner| LeakManager::new(StatisticsManager::new(inner)));
    let make = |context: &Context| {
        let below = Older(DriverManager::new(context)?);
        CachingManager::with_upstream(context, below, CachingOptions::default())
    };
    let (_end, context) = in_child!(with(make));
    let error = MemoryPointer::allocate(&context, 1).expect_err("another version");
    assert!(
        matches!(error, Error::Invalid(ref what)
            if matches!(**what, Invalid::ManagerVersion { version: 0, .. })),
        "{error}"
    );
}

/// All wrapping managers that contain a lock.
type All = LeakManager<StatisticsManager<LoggingManager<FallbackManager<CachingManager>>>>;

/// A slow writer, so that a fork finds it at work.
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
        let options =
            CachingOptions { slab_bytes: 64 << 10, max_bytes: 256 << 10, ..Default::default() };
        let pool = CachingManager::with(context, options)?;
        let logged = LoggingManager::new(FallbackManager::new(pool, Fallback::Host), Slow);
        Ok(LeakManager::new(StatisticsManager::new(logged)))
    };
    let (_end, context) = in_child!(with(make));
    let stream = context.stream().expect("a stream");
    // The pool falls back for this allocation.
    drop(bytes(&stream, 300 << 10));
    let manager = context.memory_manager_as::<All>().expect("made");
    let manager = manager.expect("the chosen manager");
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
                // SAFETY: `alarm` takes no pointer.
                unsafe { alarm(5) };
                let before = cuda_safe::leaked();
                drop((held.take(), pointer.take()));
                let counted = cuda_safe::leaked() >= before + 2;
                let refused = matches!(manager.trim(0), Err(Error::Forked))
                    && matches!(manager.allocate(10, Order::NONE), Err(Error::Forked))
                    && matches!(manager.memory_info(), Err(Error::Forked));
                manager.reset();
                manager.inner().sample();
                let pool = manager.inner().inner().inner().inner();
                let _ = (pool.stats(), manager.outstanding());
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
}

/// One thread closes memory of another process for a long time; another thread opens it again
/// meanwhile.
#[test]
fn memory_of_another_process_is_opened_again_after_it_is_closed() {
    let (_end, context) = in_child!(with(small));
    let own = MemoryPointer::allocate(&context, 100).expect("memory");
    let mut bytes = AutoFreePointer::from(own).export().expect("plain").handle().to_bytes();
    bytes[..64].copy_from_slice(&cuda_sim::shared_by_another(8192));
    let handle = IpcHandle::from_bytes(&bytes);
    // SAFETY: the software driver acts as the other process.
    let open = || unsafe { context.open_memory(&handle) };
    let first = open().expect("another process's");
    let stream = context.stream().expect("a stream");
    let (tell, told) = mpsc::channel();
    stream
        .launch_host_function(move || {
            tell.send(()).expect("the test receives it");
            std::thread::sleep(Duration::from_millis(50));
        })
        .expect("enqueued");
    std::thread::scope(|scope| {
        scope.spawn(|| drop(first));
        told.recv().expect("the other thread waits for this");
        drop(open().expect("after it is closed"));
    });
    // If the memory cannot be closed at once, it is closed when the release queue is processed,
    // which opening memory does.
    let again = open().expect("another process's");
    stream.launch_host_function(move || drop(again)).expect("enqueued");
    stream.synchronize().expect("a wait");
    drop(open().expect("closed before"));
    drop(stream);
}
