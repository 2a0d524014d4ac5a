//! Memory managers: the driver manager, and the behavior that all managers share.
//!
//! The choice of a manager applies to the whole process, so each test runs in a child process.

pub(crate) mod current;
pub(crate) mod defaults;
pub(crate) mod host;
pub(crate) mod managers;
pub(crate) mod managers_kernels;
pub(crate) mod reset;
pub(crate) mod timeline;
mod watched;

use self::watched::{Observer, Watched};
use crate::common::{self, child};
use crate::module::kernels::Busy;
use cuda_memory::{
    CachingManager, CachingOptions, Fallback, FallbackManager, LeakManager, LimitManager,
    LoggingManager, StatisticsManager,
};
use cuda_safe::green::{GreenContext, SmResource, SplitByCount};
use cuda_safe::manager::{
    AutoFreePointer, Block, DeferOptions, DriverManager, DriverMemory, INTERFACE_VERSION,
    MappedMemory, MemoryManager, MemoryPointer, Order, PinnedMemory, clear_memory_manager,
    set_default_memory_manager, set_memory_manager,
};
use cuda_safe::memory::{ManagedBuffer, MappedBuffer, PinnedFlags, PitchedBuffer};
use cuda_safe::{Context, ContextFlags, Device, DeviceBuffer, Invalid, PinnedBuffer};
use std::any::Any;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Chooses a manager, and returns the primary context, which has it.
fn context_with<M: MemoryManager>(
    device: &Device,
    make: impl Fn(&Context) -> cuda_safe::Result<M> + Send + Sync + 'static,
) -> Context {
    set_memory_manager(make).expect("a matching version");
    Context::primary(device).expect("a context")
}

/// Returns the manager of a context, which is the one that was chosen.
#[track_caller]
fn manager_as<M: MemoryManager>(context: &Context) -> &M {
    context.memory_manager_as().expect("made").expect("the chosen manager")
}

/// Counts the calls of a manager.
type Counting = Watched<Arc<Counts>>;

#[derive(Debug, Default)]
struct Counts {
    made: AtomicUsize,
    gone: AtomicUsize,
    allocated: AtomicUsize,
    freed: AtomicUsize,
    ended: AtomicUsize,
}

impl Counts {
    fn of(&self) -> (usize, usize) {
        let of = |count: &AtomicUsize| count.load(Ordering::SeqCst);
        (of(&self.allocated), of(&self.freed))
    }

    fn one(count: &AtomicUsize) {
        count.fetch_add(1, Ordering::SeqCst);
    }
}

impl Observer for Arc<Counts> {
    fn called(&self, method: &'static str) {
        match method {
            "drop" => Counts::one(&self.gone),
            "allocate" | "allocate_host" | "allocate_managed" | "pin" => {
                Counts::one(&self.allocated);
            }
            "free" | "free_host" | "free_managed" | "unpin" | "release_pin" => {
                Counts::one(&self.freed);
            }
            "stream_ends" => Counts::one(&self.ended),
            _ => {}
        }
    }
}

/// Chooses a manager that counts its calls, and returns the counts.
fn choose_counting() -> Arc<Counts> {
    let counts = Arc::new(Counts::default());
    let its = Arc::clone(&counts);
    set_memory_manager(move |context| {
        Counts::one(&its.made);
        Ok(Watched { inner: DriverManager::new(context)?, observer: Arc::clone(&its) })
    })
    .expect("a matching version");
    counts
}

#[test]
fn all_memory_of_a_context_is_allocated_by_its_manager() {
    child::with_gpu(|device| {
        let counts = choose_counting();
        let context = Context::primary(&device).expect("a context");
        assert_eq!(counts.made.load(Ordering::SeqCst), 0, "not before it is used");
        let stream = context.stream().expect("a stream");

        let mut buffer = DeviceBuffer::from_slice(&stream, &[3i32; 100]).expect("memory");
        assert_eq!(counts.made.load(Ordering::SeqCst), 1);
        assert_eq!(counts.of(), (1, 0));
        buffer.fill(4).expect("a fill");
        assert_eq!(buffer.to_vec().expect("a copy"), [4; 100]);
        let other = context.stream().expect("a stream");
        buffer.rebind(&other).expect("another stream");
        drop((buffer, other));
        assert_eq!(counts.of(), (1, 1));

        drop(DeviceBuffer::<u8>::zeroed_sync(&stream, 10).expect("memory"));
        assert_eq!(counts.of(), (2, 2));
        let mut plane = PitchedBuffer::<f32>::zeroed(&stream, 30, 20).expect("memory");
        plane.copy_from_slice(&[2.0; 600]).expect("a copy");
        assert_eq!(plane.to_vec().expect("a copy"), [2.0; 600]);
        drop(plane);
        assert_eq!(counts.of(), (3, 3));
        let shared = DeviceBuffer::from_slice(&stream, &[1u8; 10]).expect("memory");
        let shared = shared.share().expect("shared");
        drop(shared.on(&context.stream().expect("a stream")).expect("read"));
        drop(shared);
        assert_eq!(counts.of(), (4, 4));

        let pinned = PinnedBuffer::<u16>::zeroed(&context, 100).expect("memory");
        assert_eq!(*pinned, [0; 100]);
        let mut mapped = MappedBuffer::new(pinned, &stream).expect("mapped");
        mapped.as_mut_slice().fill(7).expect("a fill");
        assert_eq!(*mapped.host().expect("a wait"), [7; 100]);
        drop(mapped);
        assert_eq!(counts.of(), (5, 5));
        let vector = PinnedBuffer::register(&context, vec![1u32; 5000]).expect("pinned");
        assert_eq!(vector.unregister().expect("unpinned"), [1; 5000]);
        assert_eq!(counts.of(), (6, 6));
        drop(PinnedBuffer::register(&context, vec![1u32; 5000]).expect("pinned"));
        assert_eq!(counts.of(), (7, 7));
        let mut managed = ManagedBuffer::<u8>::zeroed(&stream, 50).expect("memory");
        assert_eq!(*managed.host().expect("a wait"), [0; 50]);
        drop(managed);
        assert_eq!(counts.of(), (8, 8));

        // An empty buffer allocates nothing.
        drop(DeviceBuffer::<u8>::zeroed(&stream, 0).expect("no memory"));
        drop(PinnedBuffer::<u8>::zeroed(&context, 0).expect("no memory"));
        assert_eq!(counts.of(), (8, 8));
        assert_eq!(counts.ended.load(Ordering::SeqCst), 2);
    });
}

#[test]
fn a_manager_is_dropped_with_its_context() {
    child::with_gpu(|device| {
        let counts = choose_counting();
        let context = Context::primary(&device).expect("a context");
        let other = Context::primary(&device).expect("the same context");
        let stream = context.stream().expect("a stream");
        let buffer = DeviceBuffer::<u8>::zeroed(&stream, 10).expect("memory");
        drop(DeviceBuffer::<u8>::zeroed(&other.stream().expect("a stream"), 10).expect("memory"));
        assert_eq!(counts.made.load(Ordering::SeqCst), 1, "one for both");
        drop((stream, context, other));
        assert_eq!(counts.gone.load(Ordering::SeqCst), 0);
        // The buffer is the last owner of the context.
        std::thread::spawn(move || drop(buffer)).join().expect("no panic");
        assert_eq!(counts.gone.load(Ordering::SeqCst), 1);
        assert_eq!(counts.of(), (2, 2));
        assert!(!device.primary_state().expect("known").active);
    });
}

#[test]
fn a_choice_applies_to_later_contexts_only() {
    child::with_gpu(|device| {
        let before = Context::primary(&device).expect("a context");
        let counts = choose_counting();
        assert!(before.memory_manager().expect("none").is_none());
        let same = Context::primary(&device).expect("the same context");
        assert!(same.memory_manager().expect("none").is_none());
        drop((before, same));
        let context = Context::primary(&device).expect("a context");
        assert_eq!(manager_as::<Counting>(&context).observer.made.load(Ordering::SeqCst), 1);
        clear_memory_manager();
        assert!(context.memory_manager().expect("kept").is_some());
        drop(context);
        assert_eq!(counts.gone.load(Ordering::SeqCst), 1);
        let context = Context::primary(&device).expect("a context");
        assert!(context.memory_manager().expect("none").is_none());
        let error = MemoryPointer::allocate(&context, 1).expect_err("no manager");
        assert_eq!(error, Invalid::NoMemoryManager.into());
    });
}

#[test]
fn a_default_manager_does_not_replace_that_of_the_program() {
    child::with_gpu(|device| {
        let before = Context::primary(&device).expect("a context");
        assert!(set_default_memory_manager(DriverManager::new).expect("a matching version"));
        assert!(!set_default_memory_manager(DriverManager::new).expect("a matching version"));
        let of = |context: &Context| {
            let driver = context.memory_manager_as::<DriverManager>();
            let counting = context.memory_manager_as::<Counting>();
            (driver.expect("made").is_some(), counting.expect("made").is_some())
        };
        // The existing context stays without a manager.
        assert_eq!(of(&before), (false, false));
        drop(before);
        let context = Context::primary(&device).expect("a context");
        assert_eq!(of(&context), (true, false));
        drop(context);
        choose_counting();
        let held = Arc::new(());
        let its = Arc::clone(&held);
        let is_set = set_default_memory_manager(move |context| {
            let _ = &its;
            DriverManager::new(context)
        });
        assert!(!is_set.expect("a matching version"));
        assert_eq!(Arc::strong_count(&held), 1, "the function is dropped");
        let context = Context::primary(&device).expect("a context");
        assert_eq!(of(&context), (false, true));
        clear_memory_manager();
        assert!(set_default_memory_manager(DriverManager::new).expect("a matching version"));
    });
}

#[test]
fn each_context_has_its_own_manager() {
    child::with_gpu(|device| {
        let counts = choose_counting();
        let context = Context::primary(&device).expect("a context");
        let own = Context::new(&device, ContextFlags::empty()).expect("a context");
        let memory = MemoryPointer::allocate(&context, 100).expect("memory");
        let others = MemoryPointer::allocate(&own, 100).expect("memory");
        assert_eq!(counts.made.load(Ordering::SeqCst), 2);
        drop((own, others));
        assert_eq!(counts.gone.load(Ordering::SeqCst), 1);
        drop((context, memory));
        assert_eq!(counts.gone.load(Ordering::SeqCst), 2);
    });
}

#[test]
fn a_stream_whose_end_is_not_reported_to_the_manager_is_refused() {
    child::with_gpu(|device| {
        let context = context_with(&device, DriverManager::new);
        let without = manager_as::<DriverManager>(&context).base().context().clone();
        let stream = without.stream().expect("a stream");
        let error = MemoryPointer::allocate_in(&context, 64, Order::of(&stream));
        assert_eq!(error.expect_err("its end is not reported"), Invalid::OtherManager.into());
        drop((stream, without));
    });
}

#[test]
fn a_manager_of_another_context_is_refused() {
    child::with_gpu(|device| {
        let other = Context::new(&device, ContextFlags::empty()).expect("a context");
        let its = other.clone();
        let context = context_with(&device, move |_| DriverManager::new(&its));
        let invalid = common::invalid(MemoryPointer::allocate(&context, 64));
        assert!(matches!(invalid, Invalid::OtherContext { .. }), "it would wait there: {invalid}");
        clear_memory_manager();
    });
}

/// A manager with another interface version.
#[derive(Debug)]
struct Newer(DriverManager);

// SAFETY: every call is forwarded to the inner manager.
unsafe impl MemoryManager for Newer {
    fn interface_version() -> u32 {
        INTERFACE_VERSION + 1
    }

    fn base(&self) -> &DriverMemory {
        self.0.base()
    }

    fn allocate(&self, size: usize, order: Order<'_>) -> cuda_safe::Result<Block> {
        self.0.allocate(size, order)
    }

    unsafe fn free(&self, block: Block, order: Order<'_>) {
        // SAFETY: the caller upholds the same contract.
        unsafe { self.0.free(block, order) }
    }
}

#[test]
fn a_manager_of_another_version_is_refused() {
    let refused = set_memory_manager(|context| Ok(Newer(DriverManager::new(context)?)));
    let error = refused.expect_err("another version").to_string();
    assert!(error.contains("version 2"), "{error}");
}

/// A minimal manager, for device memory only.
#[derive(Debug)]
struct Minimal {
    base: DriverMemory,
    /// The calls, in order.
    log: Arc<Mutex<Vec<&'static str>>>,
    /// How many more times the initialization fails.
    failures: Arc<AtomicUsize>,
}

// SAFETY: the driver manager allocates the memory.
unsafe impl MemoryManager for Minimal {
    fn interface_version() -> u32 {
        1
    }

    fn base(&self) -> &DriverMemory {
        &self.base
    }

    fn initialize(&self) -> cuda_safe::Result<()> {
        self.log.lock().expect("no panic").push("initialize");
        let fewer = |left: usize| left.checked_sub(1);
        match self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer) {
            Ok(_) => Err(Invalid::ManagerCannot { what: "start" }.into()),
            Err(_) => Ok(()),
        }
    }

    fn allocate(&self, size: usize, _: Order<'_>) -> cuda_safe::Result<Block> {
        self.log.lock().expect("no panic").push("allocate");
        self.base.allocate(size)
    }

    unsafe fn free(&self, block: Block, order: Order<'_>) {
        // SAFETY: the caller upholds the same contract.
        unsafe { self.base.free(block, order) }
    }
}

/// Chooses such a manager, wrapped by `wrap`.
fn choose_minimal<M: MemoryManager>(
    failures: usize,
    wrap: impl Fn(&Context, Minimal) -> cuda_safe::Result<M> + Send + Sync + 'static,
) -> Arc<Mutex<Vec<&'static str>>> {
    let log = Arc::new(Mutex::default());
    let (its, failures) = (Arc::clone(&log), Arc::new(AtomicUsize::new(failures)));
    set_memory_manager(move |context| {
        let minimal = Minimal {
            base: DriverMemory::new(context, DeferOptions::default())?,
            log: Arc::clone(&its),
            failures: Arc::clone(&failures),
        };
        wrap(context, minimal)
    })
    .expect("a matching version");
    log
}

#[test]
fn a_manager_is_initialized_once_before_its_first_use() {
    child::with_gpu(|device| {
        let log = choose_minimal(0, |_, manager| Ok(manager));
        let happened = || log.lock().expect("no panic").clone();
        let context = Context::primary(&device).expect("a context");
        assert_eq!(happened(), [""; 0], "not before it is used");
        let first = MemoryPointer::allocate(&context, 100).expect("memory");
        assert_eq!(happened(), ["initialize", "allocate"]);
        let second = MemoryPointer::allocate(&context, 100).expect("memory");
        let stream = context.stream().expect("a stream");
        drop(DeviceBuffer::<u8>::zeroed(&stream, 100).expect("memory"));
        assert_eq!(happened(), ["initialize", "allocate", "allocate", "allocate"]);
        drop((first, second));
    });
}

#[test]
fn managers_initialize_the_manager_they_wrap() {
    #[track_caller]
    fn initializes<M: MemoryManager>(
        device: &Device,
        wrap: impl Fn(&Context, Minimal) -> cuda_safe::Result<M> + Send + Sync + 'static,
    ) {
        let log = choose_minimal(0, wrap);
        let context = Context::primary(device).expect("a context");
        drop(MemoryPointer::allocate(&context, 100).expect("memory"));
        assert_eq!(*log.lock().expect("no panic"), ["initialize", "allocate"]);
    }
    child::with_gpu(|device| {
        initializes(&device, |_, inner| Ok(LimitManager::new(inner, 1 << 20)));
        initializes(&device, |_, inner| Ok(FallbackManager::new(inner, Fallback::Host)));
        initializes(&device, |_, inner| Ok(StatisticsManager::new(inner)));
        initializes(&device, |_, inner| Ok(LoggingManager::new(inner, std::io::sink())));
        initializes(&device, |_, inner| Ok(LeakManager::new(inner)));
        initializes(&device, |context, inner| {
            CachingManager::with_upstream(context, inner, CachingOptions::default())
        });
    });
}

#[test]
fn a_failed_initialization_of_a_manager_is_an_allocation_error() {
    child::with_gpu(|device| {
        let log = choose_minimal(1, |_, manager| Ok(manager));
        let context = Context::primary(&device).expect("a context");
        let error = MemoryPointer::allocate(&context, 100).expect_err("the first attempt fails");
        assert!(error.to_string().contains("start"), "{error}");
        drop(MemoryPointer::allocate(&context, 100).expect("the second attempt"));
        let log = log.lock().expect("no panic");
        assert_eq!(*log, ["initialize", "initialize", "allocate"]);
    });
}

#[test]
fn a_manager_without_memory_info_reports_that() {
    #[track_caller]
    fn has_none<M: MemoryManager>(
        device: &Device,
        wrap: impl Fn(&Context, Minimal) -> cuda_safe::Result<M> + Send + Sync + 'static,
    ) {
        choose_minimal(0, wrap);
        let context = Context::primary(device).expect("a context");
        let manager = context.memory_manager().expect("made").expect("the chosen manager");
        let invalid = common::invalid(manager.memory_info());
        assert!(matches!(invalid, Invalid::ManagerCannot { .. }), "{invalid}");
        assert!(invalid.to_string().contains("memory is free"), "{invalid}");
        // The context still returns the driver's answer.
        assert!(context.memory_info().expect("known").total > 0);
    }
    child::with_gpu(|device| {
        has_none(&device, |_, manager| Ok(manager));
        has_none(&device, |_, inner| Ok(LimitManager::new(inner, 1 << 20)));
        has_none(&device, |_, inner| Ok(StatisticsManager::new(inner)));
        has_none(&device, |context, inner| {
            CachingManager::with_upstream(context, inner, CachingOptions::default())
        });
    });
}

#[test]
fn a_second_choice_applies_to_contexts_created_afterwards() {
    child::with_gpu(|device| {
        let first = choose_counting();
        let made = Context::primary(&device).expect("a context");
        drop(MemoryPointer::allocate(&made, 100).expect("memory"));
        // The context has no manager yet, but keeps the choice that was current when it was
        // created.
        let unused = Context::new(&device, ContextFlags::empty()).expect("a context");
        let second = choose_counting();
        let later = Context::new(&device, ContextFlags::empty()).expect("a context");
        drop(MemoryPointer::allocate(&later, 100).expect("memory"));
        assert_eq!((first.of(), second.of()), ((1, 1), (1, 1)));
        drop(MemoryPointer::allocate(&made, 100).expect("memory"));
        drop(MemoryPointer::allocate(&unused, 100).expect("memory"));
        assert_eq!((first.of(), second.of()), ((3, 3), (1, 1)));
        // The primary context uses the new choice when it is created again.
        drop(made);
        let again = Context::primary(&device).expect("a context");
        drop(MemoryPointer::allocate(&again, 100).expect("memory"));
        assert_eq!((first.of(), second.of()), ((3, 3), (2, 2)));
    });
}

#[test]
fn a_failed_construction_of_a_manager_is_an_allocation_error() {
    child::with_gpu(|device| {
        let tries = AtomicUsize::new(0);
        set_memory_manager(move |context| {
            if tries.fetch_add(1, Ordering::SeqCst) == 0 {
                return Err(Invalid::ManagerCannot { what: "work today" }.into());
            }
            // This allocation uses the driver directly, because the context has no manager yet.
            let stream = Context::primary(&context.device())?.stream()?;
            drop(DeviceBuffer::<u8>::zeroed(&stream, 100)?);
            DriverManager::new(context)
        })
        .expect("a matching version");
        let stream =
            Context::primary(&device).and_then(|context| context.stream()).expect("a stream");
        let error = DeviceBuffer::<u8>::zeroed(&stream, 10).expect_err("not today");
        assert!(error.to_string().contains("today"), "{error}");
        drop(DeviceBuffer::<u8>::zeroed(&stream, 10).expect("the second attempt"));
        drop(stream);
        assert!(!device.primary_state().expect("known").active);
    });
}

/// Returns a context with the driver manager.
fn own(device: &Device, options: DeferOptions) -> Context {
    context_with(device, move |context| DriverManager::with(context, options))
}

fn pending(context: &Context) -> (usize, usize) {
    manager_as::<DriverManager>(context).base().pending()
}

#[test]
fn frees_are_deferred_up_to_a_count() {
    child::with_gpu(|device| {
        let context = own(&device, DeferOptions::default());
        let free = || drop(MemoryPointer::allocate(&context, 1 << 20).expect("memory"));
        for count in 1..=10 {
            free();
            assert_eq!(pending(&context), (count, count << 20));
        }
        free();
        assert_eq!(pending(&context), (0, 0));
        // Host memory counts as a free, but its size does not count.
        drop(PinnedMemory::allocate(&context, 5000, PinnedFlags::empty()).expect("memory"));
        assert_eq!(pending(&context), (1, 0));
        context.memory_manager().expect("made").expect("the chosen manager").reset();
        assert_eq!(pending(&context), (0, 0));
    });
}

#[test]
fn frees_are_deferred_up_to_a_share_of_memory() {
    child::with_gpu(|device| {
        let total = device.total_memory().expect("known");
        let options = DeferOptions { share: 3.5e6 / total as f64, ..Default::default() };
        let context = own(&device, options);
        let free = || drop(MemoryPointer::allocate(&context, 1_000_000).expect("memory"));
        free();
        free();
        assert_eq!(pending(&context), (2, 2_000_000));
        free();
        free();
        assert_eq!(pending(&context).0, 0, "more than the share");
    });
}

#[test]
fn the_default_deferral_is_ten_frees_and_a_fifth_of_the_memory() {
    let DeferOptions { count, share, .. } = DeferOptions::default();
    assert_eq!((count, share), (10, 0.2));
    child::with_gpu(|device| {
        let total = device.total_memory().expect("known");
        let context = context_with(&device, DriverManager::new);
        let base = manager_as::<DriverManager>(&context).base();
        let free = |size| {
            let block = base.allocate(100).expect("memory");
            // SAFETY: no work has used the memory, and only the counted size is changed.
            unsafe { base.free(Block { size, ..block }, Order::NONE) };
        };
        let (most, more) = (total / 100 * 19, total / 100 * 2);
        free(most);
        assert_eq!(pending(&context), (1, most));
        free(more);
        assert_eq!(pending(&context), (0, 0), "more than a fifth");
    });
}

#[test]
fn guards_defer_clean_up_and_nest() {
    child::with_gpu(|device| {
        let context = own(&device, DeferOptions::default());
        let manager = context.memory_manager().expect("made").expect("the chosen manager");
        let free = || drop(MemoryPointer::allocate(&context, 100).expect("memory"));
        let (outer, inner) = (manager.defer_cleanup(), manager.defer_cleanup());
        (0..20).for_each(|_| free());
        drop(inner);
        free();
        assert_eq!(pending(&context).0, 21);
        manager.reset();
        assert_eq!(manager.trim(0).expect("nothing"), 0);
        drop(outer);
        assert_eq!(pending(&context).0, 21, "the end of a guard frees nothing");
        free();
        assert_eq!(pending(&context).0, 0, "the next free releases them");

        // A guard does not keep the manager alive.
        let guard = manager.defer_cleanup();
        free();
        drop(context);
        assert!(!device.primary_state().expect("known").active);
        drop(guard);
    });
}

#[test]
fn memory_pointers_have_numbers_and_stream_orders() {
    child::with_gpu(|device| {
        let context = own(&device, DeferOptions::default());
        let stream = context.stream().expect("a stream");
        let first = MemoryPointer::allocate(&context, 100).expect("memory");
        let second = MemoryPointer::allocate_on(&stream, 200).expect("memory");
        assert!(first.id() < second.id());
        assert_eq!((first.size(), second.size()), (100, 200));
        assert_eq!(first.as_raw() % 256, 0);
        let block = second.block().expect("a manager's");
        assert_eq!((block.address, block.size), (second.as_raw(), 200));
        // SAFETY: no work has used the memory.
        unsafe { first.free_in(Order::of(&stream)) };
        // SAFETY: the handle is the legacy default stream.
        let legacy = unsafe { Order::persistent(std::ptr::null_mut()) };
        let third = MemoryPointer::allocate_in(&context, 300, legacy).expect("memory");
        drop((third, second));
        assert_eq!(pending(&context), (3, 600));

        let managed = MemoryPointer::allocate_managed(&context, 64, true).expect("memory");
        assert_eq!(managed.block(), None);
    });
}

#[test]
fn finalizers_run_once_on_any_thread() {
    child::with_context(|context| {
        let (runs, owner) = (Arc::new(AtomicUsize::new(0)), Arc::new(()));
        let make = || {
            let runs = Arc::clone(&runs);
            let finalizer = move || {
                runs.fetch_add(1, Ordering::SeqCst);
            };
            let kept: Box<dyn Any + Send + Sync> = Box::new(Arc::clone(&owner));
            // SAFETY: nothing accesses the address.
            unsafe {
                MemoryPointer::from_raw(&context, 512, 16, Some(kept), Some(Box::new(finalizer)))
            }
            .expect("memory")
        };
        let one = make();
        assert!(one.owner().is_some_and(|owner| owner.is::<Arc<()>>()));
        std::thread::spawn(move || drop(one)).join().expect("no panic");
        assert_eq!(runs.load(Ordering::SeqCst), 1);

        let shared = AutoFreePointer::from(make());
        let part = shared.part(4, 8).expect("within");
        assert_eq!((part.as_raw(), part.size()), (516, 8));
        assert!(part.part(4, 5).is_none());
        drop(shared);
        assert_eq!((part.references(), runs.load(Ordering::SeqCst)), (1, 1));
        drop(part);
        assert_eq!(runs.load(Ordering::SeqCst), 2);
        assert_eq!(Arc::strong_count(&owner), 1);
    });
}

#[test]
fn host_memory_is_mapped_pinned_and_owned() {
    child::with_gpu(|device| {
        let context = own(&device, DeferOptions::default());
        let mapped = MappedMemory::allocate(&context, 100, PinnedFlags::PORTABLE).expect("memory");
        assert_ne!(mapped.as_raw(), 0);
        let again = mapped.clone();
        assert_eq!(again.id(), mapped.id());
        drop(mapped);
        assert_eq!(pending(&context), (0, 0), "a clone owns it");
        drop(again);
        assert_eq!(pending(&context), (1, 0), "its free is deferred");

        let mut bytes = vec![7u8; 8192];
        let start = NonNull::new(bytes.as_mut_ptr()).expect("not null");
        let owner = Arc::new(bytes);
        let (kept, none) = (Arc::clone(&owner), PinnedFlags::empty());
        // SAFETY: the vector is kept alive, and its bytes do not move.
        let pinned = unsafe { PinnedMemory::pin(&context, kept, start, 8192, none) };
        let pinned = pinned.expect("pinned");
        assert!(pinned.owner().is_some());
        assert_eq!(Arc::strong_count(&owner), 2);
        drop(pinned);
        assert_eq!(Arc::strong_count(&owner), 1, "no guard lives");
    });
}

/// Managers rely on this behavior if they do not know which streams have used the memory.
#[test]
fn freeing_synchronous_memory_waits_for_streams_of_green_contexts_too() {
    child::with_gpu(|device| {
        or_skip!(common::since(12, 4));
        let split = SmResource::of_device(&device).expect("SMs");
        let one = SplitByCount { min: 16, max_groups: Some(1), ..Default::default() };
        let split = split.split_by_count(one);
        let green = GreenContext::new(split.expect("groups").groups).expect("a green context");
        let stream = green.stream().expect("a stream");
        let base = DriverMemory::new(stream.context(), DeferOptions::default()).expect("made");
        let block = base.allocate(100).expect("memory");
        let busy = Busy::new(stream.context(), &stream);
        // SAFETY: no work has used the memory.
        unsafe { base.free(block, Order::NONE) };
        assert!(base.flush());
        assert!(stream.is_complete().expect("asked"), "the free has waited");
        drop(busy);
    });
}
