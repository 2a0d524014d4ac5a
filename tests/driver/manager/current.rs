//! The context that is current while a manager is called.

use super::manager_as;
use super::watched::{Observer, Watched};
use crate::common::child;
use cuda_memory::trace::Trace;
use cuda_memory::{
    CachingManager, CachingOptions, Fallback, FallbackManager, LeakManager, LimitManager,
    LoggingManager, StatisticsManager,
};
use cuda_safe::manager::{
    DriverManager, MappedMemory, MemoryManager, MemoryPointer, PinnedMemory, set_memory_manager,
};
use cuda_safe::memory::{ManagedBuffer, PinnedFlags};
use cuda_safe::sys::cuCtxGetCurrent;
use cuda_safe::{Context, ContextFlags, Device, DeviceBuffer, Error, PinnedBuffer, Result};
use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

/// The calls of a manager, each with the context that was current, or `None` if the driver did not
/// report it.
type Log = Arc<Mutex<Vec<(&'static str, Option<usize>)>>>;

/// Returns the current context of this thread, or 0 if there is none.
fn current() -> Option<usize> {
    let mut context = std::ptr::null_mut();
    // SAFETY: the pointer refers to a local variable.
    let code = unsafe { cuCtxGetCurrent(&raw mut context) };
    code.is_success().then(|| context.addr())
}

/// Records the current context at each call of a manager, which needs its context current or not.
#[derive(Debug)]
struct Asking<const NEEDS_CURRENT: bool>(Log);

impl<const NEEDS_CURRENT: bool> Observer for Asking<NEEDS_CURRENT> {
    const NEEDS_CURRENT_CONTEXT: bool = NEEDS_CURRENT;

    fn called(&self, method: &'static str) {
        self.0.lock().expect("no panic").push((method, current()));
    }
}

/// All methods that are called with the manager's context current.
const METHODS: [&str; 17] = [
    "allocate",
    "allocate_host",
    "allocate_managed",
    "defer_cleanup",
    "drop",
    "free",
    "free_host",
    "free_managed",
    "initialize",
    "ipc_handle",
    "memory_info",
    "pin",
    "release_pin",
    "reset",
    "stream_ends",
    "trim",
    "unpin",
];

/// Chooses such a manager, wrapped by `wrap`.
fn choose<const NEEDS_CURRENT: bool, M: MemoryManager>(
    wrap: impl Fn(&Context, Watched<Asking<NEEDS_CURRENT>>) -> Result<M> + Send + Sync + 'static,
) -> Log {
    let log = Log::default();
    let its = Arc::clone(&log);
    set_memory_manager(move |context| {
        let (inner, observer) = (DriverManager::new(context)?, Asking(Arc::clone(&its)));
        wrap(context, Watched { inner, observer })
    })
    .expect("a matching version");
    log
}

/// Calls every method on this thread. Returns the handle of the context.
fn call_all(device: &Device) -> usize {
    let context = Context::primary(device).expect("a context");
    let stream = context.stream().expect("a stream");
    drop(DeviceBuffer::<u8>::zeroed(&stream, 100).expect("memory"));
    drop(ManagedBuffer::<u8>::zeroed(&stream, 100).expect("memory"));
    let memory = MemoryPointer::allocate(&context, 100).expect("memory");
    let manager = context.memory_manager().expect("made").expect("the chosen manager");
    // Not every device can share memory with other processes.
    let _ = manager.ipc_handle(&memory.block().expect("a manager's"));
    drop(memory);
    drop(PinnedBuffer::<u8>::zeroed(&context, 100).expect("memory"));
    drop(PinnedMemory::allocate(&context, 100, PinnedFlags::empty()).expect("memory"));
    let vector = PinnedBuffer::register(&context, vec![0u8; 100]).expect("pinned");
    drop(vector.unregister().expect("unpinned"));
    let mut bytes = vec![0u8; 8192];
    let start = NonNull::new(bytes.as_mut_ptr()).expect("not null");
    // SAFETY: the vector is kept alive, and its bytes do not move.
    let mapped = unsafe { MappedMemory::pin(&context, bytes, start, 8192, PinnedFlags::empty()) };
    drop(mapped.expect("pinned"));
    manager.memory_info().expect("known");
    drop(manager.defer_cleanup());
    manager.trim(0).expect("nothing fails");
    manager.reset();
    context.as_raw().addr()
}

/// Calls every method on a new thread, with a given context current or none. Returns the handle of
/// the manager's context, and each call with the context that was current.
fn calls_with(
    device: &Device,
    log: &Log,
    other: Option<&Context>,
) -> (usize, Vec<(&'static str, usize)>) {
    let before = other.map_or(0, |other| other.as_raw().addr());
    let raw = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let guard = other.map(|other| other.make_current().expect("current"));
            let raw = call_all(device);
            assert_eq!(current(), Some(before), "the stack of the thread is unchanged");
            drop(guard);
            raw
        });
        thread.join().expect("no panic")
    });
    let calls = std::mem::take(&mut *log.lock().expect("no panic"));
    let methods: BTreeSet<_> = calls.iter().map(|(method, _)| *method).collect();
    assert_eq!(methods, BTreeSet::from(METHODS));
    let known = calls.into_iter();
    let calls = known.map(|(method, its)| (method, its.expect("told")));
    (raw, calls.collect())
}

#[test]
fn the_context_is_current_for_a_manager_that_needs_it() {
    child::with_gpu(|device| {
        let log = choose::<true, _>(|_, manager| Ok(manager));
        let other = Context::new(&device, ContextFlags::empty()).expect("a context");
        for other in [None, Some(&other)] {
            let (raw, calls) = calls_with(&device, &log, other);
            for (method, its) in calls {
                assert_eq!(its, raw, "{method} with {other:?} current before");
            }
        }
    });
}

#[test]
fn the_current_context_is_unchanged_for_a_manager_that_does_not_need_its_own() {
    child::with_gpu(|device| {
        let log = choose::<false, _>(|_, manager| Ok(manager));
        let other = Context::new(&device, ContextFlags::empty()).expect("a context");
        for other in [None, Some(&other)] {
            let before = other.map_or(0, |other| other.as_raw().addr());
            for (method, its) in calls_with(&device, &log, other).1 {
                assert_eq!(its, before, "{method}");
            }
        }
    });
}

/// Allocates and frees on a thread without a current context. Returns the context that is current
/// in the calls.
fn is_forwarded<M: MemoryManager>(
    device: &Device,
    wrap: impl Fn(&Context, Watched<Asking<true>>) -> Result<M> + Send + Sync + 'static,
) {
    let log = choose(wrap);
    let context = Context::primary(device).expect("a context");
    drop(MemoryPointer::allocate(&context, 100).expect("memory"));
    drop(PinnedMemory::allocate(&context, 100, PinnedFlags::empty()).expect("memory"));
    let manager = context.memory_manager_as::<M>().expect("made");
    assert!(manager.is_some(), "found by its type");
    drop(context.stream().expect("a stream"));
    let raw = context.as_raw().addr();
    context.memory_manager().expect("made").expect("the chosen manager").reset();
    drop(context);
    let calls = std::mem::take(&mut *log.lock().expect("no panic"));
    for method in ["initialize", "allocate", "allocate_host", "free", "stream_ends", "drop"] {
        assert!(calls.iter().any(|(its, _)| *its == method), "{method}: {calls:?}");
    }
    for (method, its) in calls {
        assert_eq!(its, Some(raw), "{method} in {}", std::any::type_name::<M>());
    }
    assert_eq!(current(), Some(0));
}

#[test]
fn wrapping_managers_need_the_context_if_the_wrapped_one_does() {
    child::with_gpu(|device| {
        is_forwarded(&device, |_, inner| Ok(inner));
        is_forwarded(&device, |_, inner| Ok(LimitManager::new(inner, 1 << 20)));
        is_forwarded(&device, |_, inner| Ok(FallbackManager::new(inner, Fallback::Host)));
        is_forwarded(&device, |_, inner| Ok(StatisticsManager::new(inner)));
        is_forwarded(&device, |_, inner| Ok(LoggingManager::new(inner, std::io::sink())));
        is_forwarded(&device, |_, inner| Ok(LeakManager::new(inner)));
        // A pool makes the context current itself when it calls its upstream manager.
        is_forwarded(&device, |context, inner| {
            let pool = CachingManager::with_upstream(context, inner, CachingOptions::default())?;
            assert!(!pool.needs_current_context());
            Ok(StatisticsManager::new(pool))
        });
    });
}

#[test]
fn memory_is_freed_in_a_host_function_without_a_current_context() {
    child::with_gpu(|device| {
        let log = choose::<true, _>(|_, manager| Ok(manager));
        let context = Context::primary(&device).expect("a context");
        let stream = context.stream().expect("a stream");
        let memory = MemoryPointer::allocate(&context, 100).expect("memory");
        let its = context.clone();
        stream
            .launch_host_function(move || {
                drop(memory);
                let error = MemoryPointer::allocate(&its, 100).expect_err("not here");
                assert!(matches!(error, Error::InHostFunction), "{error}");
            })
            .expect("enqueued");
        stream.synchronize().expect("no panic");
        let calls = log.lock().expect("no panic");
        let (method, its) = calls[calls.len() - 1];
        assert_eq!(method, "free");
        assert_ne!(its, Some(context.as_raw().addr()));
    });
}

#[test]
fn a_trace_is_replayed_with_the_context_current() {
    child::with_gpu(|device| {
        let log = choose::<true, _>(|_, manager| Ok(manager));
        let context = Context::primary(&device).expect("a context");
        let manager = manager_as::<Watched<Asking<true>>>(&context);
        let none = Trace::NO_STREAM;
        let text = format!("a 0 0 100 {none}\na 1 1 100 {none}\nf 2 0 {none}\n");
        let trace: Trace = text.parse().expect("a trace");
        // SAFETY: the trace uses no stream.
        let replayed = unsafe { trace.replay(manager, &[]) };
        assert_eq!(replayed.expect("memory").allocated, 2);
        let calls = log.lock().expect("no panic");
        // The last free releases the memory that the trace leaves allocated.
        let methods: Vec<_> = calls[1..].iter().map(|(method, _)| *method).collect();
        assert_eq!(methods, ["allocate", "allocate", "free", "free"]);
        let raw = Some(context.as_raw().addr());
        assert!(calls.iter().all(|(_, its)| *its == raw), "{calls:?}");
    });
}
