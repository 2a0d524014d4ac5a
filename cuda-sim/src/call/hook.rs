//! A function of a test that runs before each driver call.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

type Hook = Arc<dyn Fn(&'static str) + Send + Sync>;

static HOOK: RwLock<Option<Hook>> = RwLock::new(None);
static IS_SET: AtomicBool = AtomicBool::new(false);

thread_local! {
    static IN_HOOK: Cell<bool> = const { Cell::new(false) };
}

/// Sets a function that runs before each driver call, with the symbol's name as its argument.
///
/// The function runs on the calling thread, and the software driver holds no lock meanwhile. It may call
/// the driver and wait for other threads, so a test can show what other threads can do while this thread
/// is inside a driver call. Driver calls of the function itself do not run it again.
pub fn set_call_hook(hook: impl Fn(&'static str) + Send + Sync + 'static) {
    *HOOK.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(hook));
    IS_SET.store(true, Ordering::Release);
}

pub(crate) fn before(function: &'static str) {
    if !IS_SET.load(Ordering::Acquire) || IN_HOOK.replace(true) {
        return;
    }
    let hook = HOOK.read().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(hook) = hook {
        hook(function);
    }
    IN_HOOK.set(false);
}
