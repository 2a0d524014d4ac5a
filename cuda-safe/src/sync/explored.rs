//! Locks that call the hooks of a schedule explorer (feature `explore`).
//!
//! Each type wraps the lock of the standard library and adds a scheduling point. If the lock is taken,
//! the thread waits in the explorer until the lock is free. Without hooks the thread blocks as usual.

use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{
    LockResult, OnceLock, PoisonError, TryLockError, TryLockResult, WaitTimeoutResult,
};
use std::time::Duration;

type CallSite = &'static Location<'static>;

struct Hooks {
    is_explored: fn() -> bool,
    point: fn(CallSite),
    wait: fn(CallSite, &mut (dyn FnMut() -> bool + Send)),
    yield_now: fn(CallSite),
}

static HOOKS: OnceLock<Hooks> = OnceLock::new();

/// Sets the hooks for the process. Later calls change nothing.
///
/// - `is_explored` returns whether the explorer controls the calling thread. The other hooks are called
///   only on such threads.
/// - `point` is called before a lock is taken. It lets other threads run.
/// - `wait` is called when another thread holds the lock. It blocks until the condition holds.
/// - `yield_now` is called when a thread repeats an attempt. It lets other threads run first.
///
/// The last three hooks receive the source location of the operation.
///
/// `cuda_sim::explore` provides these functions: `is_explored`, `point_at`, `wait_at` and `yield_at`.
#[inline]
pub fn set_hooks(
    is_explored: fn() -> bool,
    point: fn(CallSite),
    wait: fn(CallSite, &mut (dyn FnMut() -> bool + Send)),
    yield_now: fn(CallSite),
) {
    // A second call changes nothing.
    let _ = HOOKS.set(Hooks { is_explored, point, wait, yield_now });
}

/// Returns the hooks if the explorer controls this thread.
#[inline]
fn hooks() -> Option<&'static Hooks> {
    HOOKS.get().filter(|hooks| (hooks.is_explored)())
}

/// A scheduling point before an attempt to take a lock.
#[track_caller]
#[inline]
fn point() {
    if let Some(hooks) = hooks() {
        (hooks.point)(Location::caller());
    }
}

/// Lets other threads run before this thread repeats an attempt. A loop that waits for another thread without a lock
/// must call it.
#[track_caller]
#[inline]
pub fn yield_now() {
    match hooks() {
        Some(hooks) => (hooks.yield_now)(Location::caller()),
        None => std::thread::yield_now(),
    }
}

/// Atomics with a scheduling point before each operation.
pub(crate) mod atomic {
    pub(crate) use std::sync::atomic::Ordering;

    /// Defines methods that are a scheduling point and then do what the method of this name of the inner type
    /// does.
    macro_rules! points {
        ($($method:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {$(
            #[track_caller]
            #[inline]
            pub(crate) fn $method(&self, $($argument: $type),*) -> $result {
                super::point();
                self.0.$method($($argument),*)
            }
        )*};
    }

    #[derive(Debug)]
    pub(crate) struct AtomicPtr<T>(std::sync::atomic::AtomicPtr<T>);

    impl<T> AtomicPtr<T> {
        #[inline]
        pub(crate) const fn new(value: *mut T) -> Self {
            Self(std::sync::atomic::AtomicPtr::new(value))
        }

        /// Is no scheduling point: a change that follows is one.
        #[inline]
        pub(crate) fn load(&self, order: Ordering) -> *mut T {
            self.0.load(order)
        }

        points! {
            swap(value: *mut T, order: Ordering) -> *mut T;
            compare_exchange(old: *mut T, new: *mut T, success: Ordering, failure: Ordering)
                -> Result<*mut T, *mut T>;
        }
    }

    #[derive(Debug)]
    pub(crate) struct AtomicU64(std::sync::atomic::AtomicU64);

    impl AtomicU64 {
        #[inline]
        pub(crate) const fn new(value: u64) -> Self {
            Self(std::sync::atomic::AtomicU64::new(value))
        }

        points! {
            load(order: Ordering) -> u64;
            store(value: u64, order: Ordering) -> ();
            fetch_add(value: u64, order: Ordering) -> u64;
            fetch_sub(value: u64, order: Ordering) -> u64;
            fetch_or(value: u64, order: Ordering) -> u64;
        }

        #[track_caller]
        pub(crate) fn fetch_update(
            &self,
            set: Ordering,
            fetch: Ordering,
            change: impl FnMut(u64) -> Option<u64>,
        ) -> Result<u64, u64> {
            super::point();
            self.0.fetch_update(set, fetch, change)
        }
    }
}

/// A [`std::sync::Mutex`] whose operations are scheduling points.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized> {
    lock: std::sync::Mutex<T>,
}

/// The guard of a [`Mutex`].
#[derive(Debug)]
pub struct MutexGuard<'a, T: ?Sized> {
    guard: std::sync::MutexGuard<'a, T>,
    mutex: &'a Mutex<T>,
}

impl<T> Mutex<T> {
    /// Creates an unlocked mutex.
    pub const fn new(value: T) -> Self {
        Self { lock: std::sync::Mutex::new(value) }
    }
}

impl<T: ?Sized> Mutex<T> {
    fn guard<'a>(&'a self, guard: std::sync::MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        MutexGuard { guard, mutex: self }
    }

    /// See [`std::sync::Mutex::lock`]. An explored thread does not block in the lock, but waits in the
    /// explorer.
    ///
    /// # Errors
    /// A thread panicked while it held the lock.
    #[track_caller]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>>
    where
        T: Send,
    {
        let Some(hooks) = hooks() else {
            return match self.lock.lock() {
                Ok(guard) => Ok(self.guard(guard)),
                Err(guard) => Err(PoisonError::new(self.guard(guard.into_inner()))),
            };
        };
        let place = Location::caller();
        (hooks.point)(place);
        let mut is_free = || !matches!(self.lock.try_lock(), Err(TryLockError::WouldBlock));
        loop {
            match self.try_now() {
                Ok(guard) => return Ok(guard),
                Err(TryLockError::Poisoned(guard)) => return Err(guard),
                Err(TryLockError::WouldBlock) => (hooks.wait)(place, &mut is_free),
            }
        }
    }

    /// See [`std::sync::Mutex::try_lock`].
    ///
    /// # Errors
    /// The lock is held, or a thread panicked while it held the lock.
    #[track_caller]
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        point();
        self.try_now()
    }

    fn try_now(&self) -> TryLockResult<MutexGuard<'_, T>> {
        match self.lock.try_lock() {
            Ok(guard) => Ok(self.guard(guard)),
            Err(TryLockError::Poisoned(guard)) => {
                let guard = self.guard(guard.into_inner());
                Err(TryLockError::Poisoned(PoisonError::new(guard)))
            }
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
        }
    }

    /// See [`std::sync::Mutex::get_mut`].
    ///
    /// # Errors
    /// A thread panicked while it held the lock.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.lock.get_mut()
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

#[derive(Debug, Default)]
pub(crate) struct Condvar {
    condvar: std::sync::Condvar,
    /// The number of notifications.
    notified: AtomicU64,
}

impl Condvar {
    #[inline]
    pub(crate) const fn new() -> Self {
        Self { condvar: std::sync::Condvar::new(), notified: AtomicU64::new(0) }
    }

    #[inline]
    pub(crate) fn notify_all(&self) {
        self.notified.fetch_add(1, Ordering::Release);
        self.condvar.notify_all();
    }

    /// Waits for a notification. An explored thread waits without a time limit, so that a wait that
    /// only its limit would end is found as a deadlock.
    #[track_caller]
    pub(crate) fn wait_timeout<'a, T: Send>(
        &self,
        guard: MutexGuard<'a, T>,
        limit: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let mutex = guard.mutex;
        if let Some(hooks) = hooks() {
            let before = self.notified.load(Ordering::Acquire);
            drop(guard);
            (hooks.wait)(Location::caller(), &mut || {
                self.notified.load(Ordering::Acquire) != before
            });
            let guard = mutex.lock().unwrap_or_else(PoisonError::into_inner);
            // A wait with zero duration does not block. It is only needed for its result type, which
            // has no public constructor.
            return self.finish(guard, Duration::ZERO);
        }
        self.finish(guard, limit)
    }

    fn finish<'a, T: Send>(
        &self,
        guard: MutexGuard<'a, T>,
        limit: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let mutex = guard.mutex;
        match self.condvar.wait_timeout(guard.guard, limit) {
            Ok((guard, result)) => Ok((mutex.guard(guard), result)),
            Err(error) => {
                let (guard, result) = error.into_inner();
                Err(PoisonError::new((mutex.guard(guard), result)))
            }
        }
    }
}
