//! Closures that are called for core dumps.

use crate::call::{
    Closures, Result, answer, argument, call, debug_struct, fork, init, run_host_function,
};
use crate::release::{Root, destroy, release_now};
use cuda_sys::{CUcoredumpCallbackHandle, CUdevice};
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A core dump that begins or is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DumpEvent {
    /// The process with the fault.
    pub pid: u32,
    /// The ordinal of the device.
    pub device: u32,
}

type Closure = dyn Fn(DumpEvent) + Send + Sync;

static CLOSURES: Closures<Closure> = Closures::new();

/// A closure that is called for each core dump. Dropping this deregisters the closure.
///
/// # The closure
/// It runs while the driver writes the dump, and the dump waits for it. It must make no CUDA calls, as in
/// a host function: functions of this crate that wait return
/// [`Error::InHostFunction`](crate::Error::InHostFunction), and objects that are dropped in it are released
/// later. A panic in the closure is ignored.
///
/// While this is dropped on one thread, the closure may still be running on another one, and return after
/// the drop.
#[must_use = "dropping this deregisters the closure"]
pub struct DumpCallback {
    number: usize,
    registered: Registered,
}

/// The moment at which a closure is called, and the handle of its registration.
#[derive(Clone, Copy, Debug)]
enum Registered {
    Start(CUcoredumpCallbackHandle),
    Complete(CUcoredumpCallbackHandle),
}

// SAFETY: the driver deregisters a callback on any thread. The handle is passed to nothing else.
unsafe impl Send for Registered {}
// SAFETY: a shared reference gives no access to the handle, except to copy it.
unsafe impl Sync for Registered {}

impl DumpCallback {
    /// Registers a closure that is called when a dump begins. Calls `cuCoredumpRegisterStartCallback`.
    ///
    /// # Errors
    /// [`Error::Missing`](crate::Error::Missing) before CUDA 13.2; `CUDA_ERROR_NOT_PERMITTED` in such a
    /// closure.
    ///
    /// Since CUDA 13.2. Raw:
    /// [`cuCoredumpRegisterStartCallback`](fn@cuda_sys::cuCoredumpRegisterStartCallback),
    /// [`cuCoredumpDeregisterStartCallback`](fn@cuda_sys::cuCoredumpDeregisterStartCallback).
    #[doc(alias = "cuCoredumpRegisterStartCallback")]
    #[doc(alias = "cuCoredumpDeregisterStartCallback")]
    pub fn on_start(closure: impl Fn(DumpEvent) + Send + Sync + 'static) -> Result<Self> {
        Self::register(Arc::new(closure), |data, raw| {
            // SAFETY: the function takes any argument, and the pointer is to a local variable.
            let done = unsafe { call!(cuCoredumpRegisterStartCallback(Some(run), data, raw)) };
            done.map(|()| Registered::Start as fn(_) -> _)
        })
    }

    /// Registers a closure that is called when a dump is in its file. Calls
    /// `cuCoredumpRegisterCompleteCallback`.
    ///
    /// # Errors
    /// See [`on_start`](Self::on_start).
    ///
    /// Since CUDA 13.2. Raw:
    /// [`cuCoredumpRegisterCompleteCallback`](fn@cuda_sys::cuCoredumpRegisterCompleteCallback),
    /// [`cuCoredumpDeregisterCompleteCallback`](fn@cuda_sys::cuCoredumpDeregisterCompleteCallback).
    #[doc(alias = "cuCoredumpRegisterCompleteCallback")]
    #[doc(alias = "cuCoredumpDeregisterCompleteCallback")]
    pub fn on_complete(closure: impl Fn(DumpEvent) + Send + Sync + 'static) -> Result<Self> {
        Self::register(Arc::new(closure), |data, raw| {
            // SAFETY: the function takes any argument, and the pointer is to a local variable.
            let done = unsafe { call!(cuCoredumpRegisterCompleteCallback(Some(run), data, raw)) };
            done.map(|()| Registered::Complete as fn(_) -> _)
        })
    }

    /// Registers a closure with a call that receives the argument and the place of the handle.
    fn register(
        closure: Arc<Closure>,
        call: impl FnOnce(
            *mut c_void,
            &mut CUcoredumpCallbackHandle,
        ) -> Result<fn(CUcoredumpCallbackHandle) -> Registered>,
    ) -> Result<Self> {
        init::init()?;
        let number = CLOSURES.insert(closure);
        let mut raw = std::ptr::null_mut();
        match call(argument(number), &mut raw) {
            Ok(moment) => Ok(Self { number, registered: moment(raw) }),
            Err(error) => {
                CLOSURES.remove(number);
                Err(error)
            }
        }
    }
}

debug_struct! { DumpCallback |_its| { .. } }

impl Drop for DumpCallback {
    #[inline]
    fn drop(&mut self) {
        // A forked child may have inherited the table in a locked state.
        let closure = (!fork::in_child()).then(|| CLOSURES.remove(self.number));
        release_now(self.registered, &Root { is_borrowed: false });
        // Its drop may panic.
        drop(closure);
    }
}

destroy! {
    Registered as "a callback of core dumps";
    |its| {
        match *its {
            // SAFETY: the caller guarantees that the callback is still registered.
            Self::Start(raw) => unsafe { answer!(cuCoredumpDeregisterStartCallback(raw)) },
            // SAFETY: see above.
            Self::Complete(raw) => unsafe { answer!(cuCoredumpDeregisterCompleteCallback(raw)) },
        }
    }
}

#[inline]
unsafe extern "C" fn run(data: *mut c_void, pid: c_int, device: CUdevice) {
    // A closure that was dropped meanwhile is no longer in the table.
    let Some(closure) = CLOSURES.get(data) else {
        return;
    };
    let event = DumpEvent { pid: pid.unsigned_abs(), device: device.unsigned_abs() };
    run_host_function(|| {
        // A panic must not unwind into the driver. The closure is also dropped inside: this may be the
        // last reference.
        let done = catch_unwind(AssertUnwindSafe(move || closure(event)));
        if let Err(payload) = done {
            // The drop of the payload could panic, too.
            std::mem::forget(payload);
        }
    });
}
