//! One driver call: faults, checks, the body, callbacks, and the record of the call.
//!
//! The modules of this one are what a test does to calls: it makes them fail, runs a function before each,
//! or decides which thread continues at each.

pub(crate) mod driver_thread;
pub mod explore;
#[cfg(target_os = "linux")]
pub mod external;
pub mod fault;
pub(crate) mod hook;
pub(crate) mod poison;
pub(crate) mod report;
#[cfg(test)]
mod tests;

use crate::account::{Alive, Argument, misuse, record, refuse_in_kernel};
use crate::exec::{Callback, HostFunction, kernel, note_freed};
use crate::memory::Leak;
use crate::state::process::{coredump, error_log};
use crate::state::{self, Answer, World, lock};
use crate::thread;
use core::ffi::c_void;
use cuda_sys::CUresult;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, MutexGuard, PoisonError};
use std::time::Duration;

/// The states in which a function may be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// In every state: before `cuInit`, on callback threads and after a fatal error.
    Always,
    /// After `cuInit`, also on callback threads and after a fatal error.
    Robust,
    /// After `cuInit` and after a fatal error, but not on callback threads.
    Surviving,
    /// After `cuInit` and on callback threads, but not after a fatal error.
    InCallbacks,
    /// After `cuInit`, but neither on callback threads nor after a fatal error.
    Usual,
}

/// Returns the error of a call that is not allowed in the current state, if it is not.
fn refusal(world: &World, class: Class) -> Option<CUresult> {
    if class == Class::Always {
        return None;
    }
    if !world.settings.initialised {
        return Some(CUresult::CUDA_ERROR_NOT_INITIALIZED);
    }
    if thread::in_callback() && matches!(class, Class::Usual | Class::Surviving) {
        return Some(CUresult::CUDA_ERROR_NOT_PERMITTED);
    }
    let survives = matches!(class, Class::Robust | Class::Surviving);
    world.runs.fatal.filter(|_| !survives)
}

/// Signaled when a callback, or a call that blocks other calls, has ended.
static ENDED: Condvar = Condvar::new();
/// Number of such ends.
static ENDS: AtomicU64 = AtomicU64::new(0);

/// Number of threads in [`wait`].
static BLOCKED: AtomicUsize = AtomicUsize::new(0);

/// Returns the number of threads that are blocked inside the driver. Such a thread waits for a host
/// function that another thread runs, or for a call of another thread that blocks it, such as
/// `cuMemFree` while it waits for work. A test can poll this number to wait until a call blocks.
pub fn blocked() -> usize {
    BLOCKED.load(Ordering::Relaxed)
}

/// Blocks the call until something has ended. The caller then evaluates its condition again. No other
/// function blocks a call on other threads.
fn wait(locked: MutexGuard<'_, Option<World>>) {
    BLOCKED.fetch_add(1, Ordering::Relaxed);
    let may_wait_for_process = locked.as_ref().is_some_and(|world| world.objects.nccl.is_shared());
    if explore::is_explored() {
        let before = ENDS.load(Ordering::Acquire);
        drop(locked);
        explore::wait_until(|| ENDS.load(Ordering::Acquire) != before);
    } else if may_wait_for_process {
        // No other process wakes this one.
        let interval = Duration::from_millis(1);
        drop(ENDED.wait_timeout(locked, interval).unwrap_or_else(PoisonError::into_inner));
    } else {
        drop(ENDED.wait(locked).unwrap_or_else(PoisonError::into_inner));
    }
    BLOCKED.fetch_sub(1, Ordering::Relaxed);
}

/// Makes blocked calls evaluate their conditions again.
pub(crate) fn wake() {
    ENDS.fetch_add(1, Ordering::Release);
    ENDED.notify_all();
}

/// What a function does to the state of the driver. It is called again after each callback or wait. (A type
/// parameter would compile the functions below once for each function of the driver.)
type Body<'a> = &'a mut dyn FnMut(&mut World) -> Answer;

/// Makes one driver call.
pub(crate) fn call(
    class: Class,
    name: &'static str,
    arguments: Vec<Argument>,
    body: Body<'_>,
) -> CUresult {
    explore::enter_call(name);
    let result = answer(class, name, arguments, body);
    explore::leave_call();
    result
}

fn answer(class: Class, name: &'static str, arguments: Vec<Argument>, body: Body<'_>) -> CUresult {
    if refuse_in_kernel(name) {
        record(name, arguments, CUresult::CUDA_ERROR_NOT_PERMITTED);
        return CUresult::CUDA_ERROR_NOT_PERMITTED;
    }
    hook::before(name);
    let refused = fault::hit(name).or_else(|| fault::strictness(name));
    let result = refused.unwrap_or_else(|| {
        // Unwinding into C is undefined behavior, and a panic here is a bug of this crate.
        catch_unwind(AssertUnwindSafe(|| guarded(class, name, body))).unwrap_or_else(|_| {
            eprintln!("cuda-sim: internal error: the software driver panicked in {name}");
            std::process::abort()
        })
    });
    let result = coredump::fatal_answer(name, result);
    record(name, arguments, result);
    error_log::note(name, result);
    // Without the lock, because dropping a kernel may call the driver.
    kernel::drop_replaced();
    result
}

/// Returns the name of a function without the suffix of its variant for the per-thread default stream. The
/// same rules apply to both.
fn without_suffix(name: &'static str) -> &'static str {
    match name.as_bytes() {
        [.., b'_', b'p', b't', b's', b'z'] | [.., b'_', b'p', b't', b'd', b's'] => {
            &name[..name.len() - "_ptsz".len()]
        }
        _ => name,
    }
}

fn guarded(class: Class, name: &'static str, body: Body<'_>) -> CUresult {
    let mut stops_others = false;
    let name = without_suffix(name);
    let code = attempt(class, name, body, &mut stops_others);
    if stops_others {
        if let Some(world) = lock().as_mut() {
            world.stop_no_more();
        }
        wake();
    }
    code
}

fn attempt(class: Class, name: &'static str, body: Body<'_>, stops_others: &mut bool) -> CUresult {
    let mut kept = None;
    let mut begun = false;
    if !thread::in_callback() {
        run_overdue();
    }
    loop {
        let callback = {
            let mut locked = lock();
            let Some(world) = locked.as_mut() else {
                return CUresult::CUDA_ERROR_NOT_INITIALIZED;
            };
            world.runs.executor.set_blocked(false);
            if let Some(code) = refusal(world, class) {
                world.abandon_wait(kept.take());
                let failed = world.failed_callbacks();
                drop(locked);
                failed.into_iter().for_each(run);
                return code;
            }
            // Other threads may have made calls since the last iteration.
            world.runs.kept = kept.take();
            world.runs.executor.calling = name;
            let stopped = match begun {
                true => Ok(()),
                false => world.stopped(name, None),
            };
            begun = stopped.is_ok();
            let answer = stopped.and_then(|()| body(world));
            world.runs.executor.note_sources(&mut world.objects.memory);
            kept = world.runs.kept.take();
            driver_thread::note_call(world);
            let waits = matches!(answer, Err(World::CALLBACK | World::WAIT));
            if !waits && world.runs.executor.has_joint() {
                // The call may have enqueued what a stream waits for, or run the work before it.
                wake();
            }
            if begun && waits && !*stops_others {
                *stops_others = world.stop_others(name, kept.and_then(|kept| kept.operation));
            }
            if !waits {
                world.abandon_wait(kept.take());
            }
            match answer {
                Err(code) if code == World::CALLBACK => world.runs.executor.callback.take(),
                Err(code) if code == World::WAIT => {
                    world.runs.executor.set_blocked(true);
                    wait(locked);
                    None
                }
                Ok(()) => {
                    let destructors = std::mem::take(&mut world.runs.destructors);
                    drop(locked);
                    destructors.into_iter().for_each(run_here);
                    return CUresult::CUDA_SUCCESS;
                }
                Err(code) => {
                    let failed = world.failed_callbacks();
                    let destructors = std::mem::take(&mut world.runs.destructors);
                    drop(locked);
                    destructors.into_iter().for_each(run_here);
                    failed.into_iter().for_each(run);
                    return code;
                }
            }
        };
        if let Some(callback) = callback {
            run(callback);
        }
    }
}

/// Runs a callback on the driver's thread that no call waits for, if there is one and the seed decides
/// that it runs before this call.
fn run_overdue() {
    let callback = {
        let mut locked = lock();
        let world = locked.as_mut().filter(|world| world.runs.fatal.is_none());
        world.and_then(|world| world.runs.executor.overdue())
    };
    callback.into_iter().for_each(run);
}

/// Runs a callback without the lock, as it may call the driver. Until the callback returns, its
/// operation stays at the front of its stream and does not count as complete.
fn run(callback: Callback) {
    if !explore::is_explored() {
        return run_here(callback);
    }
    let operation = callback.operation;
    let thread = explore::spawn_callback(move || run_here(callback));
    state::with(|world| world.runs.executor.run_on(operation, thread));
}

fn run_here(callback: Callback) {
    let (result, data) = (callback.result, callback.data);
    let may_run = callback.may_run();
    thread::callback(|| match callback.function {
        _ if !may_run => {}
        // SAFETY: the caller of `cuLaunchHostFunc` passed a function and its argument.
        HostFunction::Plain(Some(function)) => unsafe { function(data) },
        HostFunction::WithResult(Some(function), stream) => {
            // SAFETY: the caller of `cuStreamAddCallback` passed a function and its argument.
            unsafe { function(stream, result, data) };
        }
        HostFunction::Plain(None) | HostFunction::WithResult(None, _) => {}
    });
    if let Some(world) = lock().as_mut() {
        world.runs.executor.end_callback(callback.operation);
        world.runs.executor.apply_marks(&mut world.objects.memory);
        world.objects.memory.forget_sources();
    }
    wake();
}

/// Runs one operation that is ready, as a device does without a request. Returns whether one ran.
pub(crate) fn device_step() -> bool {
    device_step_if(|_| true)
}

/// The same, if the state of the driver fulfills a condition.
fn device_step_if(condition: impl FnOnce(&World) -> bool) -> bool {
    let callback = {
        let mut locked = lock();
        let Some(world) = locked.as_mut().filter(|world| condition(world)) else {
            return false;
        };
        match world.step() {
            Err(code) if code == World::CALLBACK => world.runs.executor.callback.take(),
            done => {
                if world.runs.executor.has_joint() {
                    wake();
                }
                return done.unwrap_or(false);
            }
        }
    };
    let is_some = callback.is_some();
    callback.into_iter().for_each(run);
    kernel::drop_replaced();
    is_some
}

/// Runs all work, including callbacks. Inside a callback, runs only the work that does not come after
/// it.
fn settle() {
    if thread::in_callback() {
        let _ = guarded(Class::Always, "", &mut World::run_ready);
    } else {
        let _ = guarded(Class::Always, "", &mut World::run_everything);
    }
    kernel::drop_replaced();
}

/// Returns the number of live objects of each kind. First runs all pending work, including
/// stream-ordered frees. In a host function, only work that does not come after that function runs.
pub fn alive() -> Alive {
    if refuse_in_kernel("cuda_sim::alive") {
        return Alive::default();
    }
    settle();
    state::with(|world| world.alive()).unwrap_or_default()
}

/// Returns the memory that is alive, or was when its context ended, by the places of the program that have allocated it.
/// First runs all pending work, as [`alive`] does.
///
/// The places are noted if [`Profile::with_leak_sites`](crate::Profile::with_leak_sites) is on; else none are returned.
/// Physical memory (`cuMemCreate`) is alive while a handle or a mapping keeps it. Imported memory and module variables are
/// not among them.
pub fn leaks() -> Vec<Leak> {
    if refuse_in_kernel("cuda_sim::leaks") {
        return Vec::new();
    }
    settle();
    state::with(|world| world.objects.memory.leaks()).unwrap_or_default()
}

/// Reports a misuse if a host function or the destructor of a user object still needs the data at an address. A
/// library or a test calls this when it frees the data.
///
/// The misuse is reported now if work that is enqueued or running uses the data. It is reported later if a graph
/// that references the data is launched. The function does not run then. An address that is passed to the driver
/// again stands for new data.
///
/// ```
/// # use core::ffi::c_void;
/// # unsafe extern "C" fn print(_: *mut c_void) {}
/// # cuda_sim::install(cuda_sim::Profile::h200())?;
/// # use cuda_sys::*;
/// # let (mut context, mut stream) = (core::ptr::null_mut(), core::ptr::null_mut());
/// # let check = |code: CUresult| assert!(code.is_success());
/// # // SAFETY: the pointers refer to local variables.
/// # unsafe {
/// #     check(cuInit(0));
/// #     check(cuDevicePrimaryCtxRetain(&raw mut context, 0));
/// #     check(cuCtxSetCurrent(context));
/// #     check(cuStreamCreate(&raw mut stream, 0));
/// # }
/// let text = Box::into_raw(Box::new("the text that a host function prints"));
/// // SAFETY: the stream is alive, and the function does not run after the report.
/// check(unsafe { cuLaunchHostFunc(stream, Some(print), text.cast()) });
/// // SAFETY: the box is not used afterwards.
/// drop(unsafe { Box::from_raw(text) });
/// cuda_sim::data_freed(text.cast());
/// assert_eq!(cuda_sim::misuses().len(), 1);
/// # Ok::<_, cuda_sys::InstallError>(())
/// ```
pub fn data_freed(data: *const c_void) {
    let address = data.addr();
    let used = state::with(|world| {
        let in_objects = || world.objects.user_objects.iter().any(|(_, its)| its.data == address);
        match world.runs.executor.uses_data(address, world.runs.fatal.is_some()) {
            true => Some("work that is enqueued or running uses it"),
            false => in_objects().then_some("a user object references it"),
        }
    });
    if let Some(used) = used.flatten() {
        misuse(format!("the data of a callback at {address:#x} is freed while {used}"));
    }
    note_freed(address);
}

/// Returns the objects that were alive when their context ended: destroyed, released for the last time, or
/// reset. The driver destroys them, so they are no misuse, but a program that leaks an object and then ends its
/// context has none [`alive`].
pub fn ended_with_contexts() -> Alive {
    state::with(|world| world.objects.ended_with_contexts).unwrap_or_default()
}
