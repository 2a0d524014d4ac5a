//! Host memory of managers: how it is allocated and released, and how guards defer its release.

use super::{context_with, manager_as};
use crate::common::{self, child};
use cuda_memory::{
    CachingManager, Fallback, FallbackManager, LeakManager, LimitManager, LoggingManager,
    OrderedManager, StatisticsManager,
};
use cuda_safe::manager::{DriverManager, MappedMemory, MemoryManager, MemoryPointer, PinnedMemory};
use cuda_safe::memory::{PinnedFlags, PinnedOptions};
use cuda_safe::sys::cuMemHostGetFlags;
use cuda_safe::{Context, Device, PinnedBuffer};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

/// Returns a vector that the test also keeps alive, with its address.
fn shared_bytes() -> (Arc<Vec<u8>>, NonNull<u8>) {
    let mut bytes = vec![0u8; 8192];
    let start = NonNull::new(bytes.as_mut_ptr()).expect("not null");
    (Arc::new(bytes), start)
}

fn pin(
    context: &Context,
    owner: &Arc<Vec<u8>>,
    start: NonNull<u8>,
) -> cuda_safe::Result<PinnedMemory> {
    let (owner, size) = (Arc::clone(owner), owner.len());
    // SAFETY: the vector is kept alive, and its bytes do not move.
    unsafe { PinnedMemory::pin(context, owner, start, size, PinnedFlags::empty()) }
}

#[test]
fn guards_defer_the_clean_up_of_host_memory() {
    child::with_gpu(|device| {
        let context = context_with(&device, DriverManager::new);
        let manager: &DriverManager = manager_as(&context);
        let pending = || manager.base().pending().0;
        let (owner, start) = shared_bytes();
        let (other, mapped) = shared_bytes();
        let outer = manager.defer_cleanup();
        let inner = manager.defer_cleanup();
        drop(pin(&context, &owner, start).expect("pinned"));
        let (kept, size) = (Arc::clone(&other), other.len());
        // SAFETY: the vector is kept alive, and its bytes do not move.
        let mapped =
            unsafe { MappedMemory::pin(&context, kept, mapped, size, PinnedFlags::empty()) };
        drop(mapped.expect("pinned"));
        drop(PinnedBuffer::register(&context, vec![1u8; 8192]).expect("pinned"));
        drop(PinnedMemory::allocate(&context, 100, PinnedFlags::empty()).expect("memory"));
        let owners = || (Arc::strong_count(&owner), Arc::strong_count(&other));
        assert_eq!((pending(), owners()), (4, (2, 2)));
        drop(inner);
        manager.reset();
        assert!(!manager.base().flush());
        assert_eq!((pending(), owners()), (4, (2, 2)), "the outer guard lives");
        drop(outer);
        assert_eq!((pending(), owners()), (4, (2, 2)), "the end of a guard frees nothing");
        for _ in 4..10 {
            drop(MemoryPointer::allocate(&context, 100).expect("memory"));
        }
        assert_eq!((pending(), owners()), (10, (2, 2)));
        drop(MemoryPointer::allocate(&context, 100).expect("memory"));
        assert_eq!((pending(), owners()), (0, (1, 1)), "the free after ten deferred ones");
        // Without a guard the memory is unregistered at once, so it can be registered again.
        drop(pin(&context, &owner, start).expect("pinned"));
        assert_eq!((pending(), owners()), (0, (1, 1)));
    });
}

#[test]
fn memory_whose_clean_up_is_deferred_can_be_pinned_again() {
    child::with_gpu(|device| {
        let context = context_with(&device, DriverManager::new);
        let manager: &DriverManager = manager_as(&context);
        let (owner, start) = shared_bytes();
        let _guard = manager.defer_cleanup();
        drop(PinnedMemory::allocate(&context, 100, PinnedFlags::empty()).expect("memory"));
        for _ in 0..3 {
            drop(pin(&context, &owner, start).expect("pinned"));
            assert_eq!(Arc::strong_count(&owner), 2, "only the last release is deferred");
            assert_eq!(manager.base().pending().0, 2);
        }
        let held = pin(&context, &owner, start).expect("pinned");
        // The memory still has an owner, so it cannot be released to register it again.
        pin(&context, &owner, start).expect_err("it is already pinned");
        assert_eq!(manager.base().pending().0, 1, "the allocated memory is deferred");
        drop(held);
    });
}

#[test]
fn finalizers_of_host_memory_run_once_and_before_the_owner_is_dropped() {
    /// Records its drop.
    struct Owner(Arc<Mutex<Vec<&'static str>>>);

    impl Drop for Owner {
        fn drop(&mut self) {
            self.0.lock().expect("no panic").push("owner");
        }
    }

    child::with_context(|context| {
        let log = Arc::new(Mutex::new(Vec::new()));
        let owner =
            || -> Option<Box<dyn Any + Send + Sync>> { Some(Box::new(Owner(Arc::clone(&log)))) };
        let take = || std::mem::take(&mut *log.lock().expect("no panic"));
        let finalizer = || {
            let log = Arc::clone(&log);
            Box::new(move || log.lock().expect("no panic").push("finalizer"))
        };
        let (bytes, start) = shared_bytes();
        let size = bytes.len();

        // SAFETY: only the host uses the memory, which stays alive.
        let pinned =
            unsafe { PinnedMemory::from_raw(&context, start, size, owner(), Some(finalizer())) }
                .expect("memory");
        assert_eq!((pinned.as_ptr(), pinned.size()), (start.as_ptr(), size));
        assert!(pinned.owner().is_some_and(|owner| owner.is::<Owner>()));
        assert!(format!("{pinned:?}").contains("is_mapped: false"));
        let again = pinned.clone();
        drop(pinned);
        assert_eq!(take(), [""; 0], "a clone owns it");
        std::thread::spawn(move || drop(again)).join().expect("no panic");
        assert_eq!(take(), ["finalizer", "owner"]);

        // SAFETY: as above.
        let mapped = unsafe {
            MappedMemory::from_raw(&context, start, size, 4096, owner(), Some(finalizer()))
        }
        .expect("memory");
        assert_eq!((mapped.as_raw(), mapped.size()), (4096, size));
        assert!(format!("{mapped:?}").contains("is_mapped: true"));
        drop(mapped);
        assert_eq!(take(), ["finalizer", "owner"]);

        // SAFETY: as above.
        let owned = unsafe { PinnedMemory::from_raw(&context, start, size, owner(), None) };
        drop(owned.expect("memory"));
        assert_eq!(take(), ["owner"]);
        let end = finalizer();
        // SAFETY: as above.
        let mapped =
            unsafe { MappedMemory::from_raw(&context, start, size, 4096, None, Some(end)) };
        drop(mapped.expect("memory"));
        assert_eq!(take(), ["finalizer"]);
        // SAFETY: as above.
        drop(unsafe { PinnedMemory::from_raw(&context, start, size, None, None) }.expect("memory"));
        assert_eq!(take(), [""; 0], "it is borrowed");

        let its = Arc::clone(&log);
        let panics = Box::new(move || {
            its.lock().expect("no panic").push("finalizer");
            panic!("on purpose");
        });
        // SAFETY: as above.
        let pinned =
            unsafe { PinnedMemory::from_raw(&context, start, size, owner(), Some(panics)) }
                .expect("memory");
        catch_unwind(AssertUnwindSafe(|| drop(pinned))).expect_err("the finalizer's");
        assert_eq!(take(), ["finalizer", "owner"]);
    });
}

/// Returns the flags that the driver was given for host memory.
fn flags_of(context: &Context, start: *mut u8) -> PinnedFlags {
    let mut flags = 0;
    let _current = context.make_current().expect("current");
    // SAFETY: the driver allocated the memory, and the other pointer refers to a local variable.
    let code = unsafe { cuMemHostGetFlags(&raw mut flags, start.cast()) };
    assert!(code.is_success(), "{code}");
    PinnedFlags::from_bits_retain(flags)
}

/// Checks that the driver has the requested flags. A real driver adds flags that are always set
/// with unified addressing, and reports the flags of the whole block for a part of it (580).
#[track_caller]
fn expect_flags(found: PinnedFlags, asked: PinnedFlags) {
    match common::is_software() {
        true => assert_eq!(found, asked | PinnedFlags::MAPPED),
        false => {
            let write_combined = |flags: PinnedFlags| flags.contains(PinnedFlags::WRITE_COMBINED);
            assert_eq!(write_combined(found), write_combined(asked));
        }
    }
}

#[track_caller]
fn passes_flags_on<M: MemoryManager>(
    device: &Device,
    make: impl Fn(&Context) -> cuda_safe::Result<M> + Send + Sync + 'static,
) {
    let context = context_with(device, make);
    assert!(context.memory_manager_as::<M>().expect("made").is_some());
    for bits in if cfg!(miri) { 7..8 } else { 0..8 } {
        let [portable, mapped, write_combined] = [0, 1, 2].map(|bit| bits >> bit & 1 == 1);
        let options = PinnedOptions { portable, mapped, write_combined, ..Default::default() };
        let mut asked = PinnedFlags::empty();
        asked.set(PinnedFlags::PORTABLE, portable);
        asked.set(PinnedFlags::WRITE_COMBINED, write_combined);
        let pinned = PinnedMemory::allocate(&context, 100, asked).expect("memory");
        expect_flags(flags_of(&context, pinned.as_ptr()), asked);
        asked.set(PinnedFlags::MAPPED, mapped);
        let buffer = PinnedBuffer::<u8>::zeroed_with(&context, 100, options).expect("memory");
        expect_flags(buffer.flags().expect("known"), asked);
        asked.set(PinnedFlags::MAPPED, true);
        let mapped = MappedMemory::allocate(&context, 100, asked).expect("memory");
        expect_flags(flags_of(&context, mapped.as_ptr()), asked);
    }
    let buffer = PinnedBuffer::<u8>::zeroed(&context, 100).expect("memory");
    expect_flags(buffer.flags().expect("known"), PinnedFlags::PORTABLE);
}

#[test]
fn flags_of_pinned_memory_reach_the_driver_through_every_manager() {
    child::with_gpu(|device| {
        passes_flags_on(&device, DriverManager::new);
        passes_flags_on(&device, OrderedManager::new);
        passes_flags_on(&device, CachingManager::new);
        passes_flags_on(&device, |context| {
            Ok(LimitManager::new(DriverManager::new(context)?, 1 << 20))
        });
        passes_flags_on(&device, |context| {
            Ok(FallbackManager::new(DriverManager::new(context)?, Fallback::Host))
        });
        passes_flags_on(&device, |context| {
            Ok(StatisticsManager::new(DriverManager::new(context)?))
        });
        passes_flags_on(&device, |context| {
            Ok(LoggingManager::new(DriverManager::new(context)?, std::io::sink()))
        });
        passes_flags_on(&device, |context| Ok(LeakManager::new(DriverManager::new(context)?)));
    });
}
