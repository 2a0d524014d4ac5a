//! What the driver keeps for each thread: its stack of contexts and its capture mode.

use cuda_sys::CUstreamCaptureMode;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::mem::ManuallyDrop;
use std::sync::{Mutex, PoisonError};
use std::thread::ThreadId;

thread_local! {
    /// Never dropped: a program's own last words, after the end of thread locals, call the driver.
    static STACK: ManuallyDrop<RefCell<Vec<usize>>> =
        const { ManuallyDrop::new(RefCell::new(Vec::new())) };
    static MODE: Cell<CUstreamCaptureMode> =
        const { Cell::new(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL) };
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
    static IN_KERNEL: Cell<bool> = const { Cell::new(false) };
    static ID: Cell<Option<ThreadId>> = const { Cell::new(None) };
}

/// Who calls. Kept, as std does not tell it at the very end of a thread, where C still may call.
pub(crate) fn id() -> ThreadId {
    let id = ID.get().unwrap_or_else(|| std::thread::current().id());
    ID.set(Some(id));
    id
}

pub(crate) fn push(context: usize) {
    STACK.with(|stack| stack.borrow_mut().push(context));
    note_depth();
}

/// The threads that have contexts on their stacks, and how many.
static DEPTHS: Mutex<Option<HashMap<ThreadId, usize>>> = Mutex::new(None);

fn note_depth() {
    let (id, depth) = (id(), depth());
    let mut depths = DEPTHS.lock().unwrap_or_else(PoisonError::into_inner);
    let known = depths.get_or_insert_default();
    if depth != 0 {
        known.insert(id, depth);
    } else {
        known.remove(&id);
        if known.is_empty() {
            // What is never dropped is not to keep memory either.
            *depths = None;
        }
    }
}

pub(crate) fn depths() -> Vec<(ThreadId, usize)> {
    let depths = DEPTHS.lock().unwrap_or_else(PoisonError::into_inner);
    depths
        .iter()
        .flatten()
        .map(|(id, depth)| (*id, *depth))
        .collect()
}

pub(crate) fn pop() -> Option<usize> {
    let popped = STACK.with(|stack| {
        let mut stack = stack.borrow_mut();
        let popped = stack.pop();
        if stack.is_empty() {
            // What is never dropped is not to keep memory either.
            *stack = Vec::new();
        }
        popped
    });
    note_depth();
    popped
}

pub(crate) fn current() -> Option<usize> {
    STACK.with(|stack| stack.borrow().last().copied())
}

pub(crate) fn depth() -> usize {
    STACK.with(|stack| stack.borrow().len())
}

/// The mode of this thread; `mode` takes its place.
pub(crate) fn exchange_mode(mode: CUstreamCaptureMode) -> CUstreamCaptureMode {
    MODE.replace(mode)
}

pub(crate) fn mode() -> CUstreamCaptureMode {
    MODE.get()
}

/// Whether this thread is running a callback of the driver's.
pub(crate) fn in_callback() -> bool {
    IN_CALLBACK.get()
}

/// Whether this thread is running a kernel, which it does under the driver's lock.
pub(crate) fn in_kernel() -> bool {
    IN_KERNEL.get()
}

/// Runs a kernel.
pub(crate) fn kernel<T>(f: impl FnOnce() -> T) -> T {
    struct Inside;
    impl Drop for Inside {
        fn drop(&mut self) {
            IN_KERNEL.set(false);
        }
    }
    IN_KERNEL.set(true);
    // It ends with a panic as well.
    let _inside = Inside;
    f()
}

/// Runs a callback, as on a thread of the driver's: with a stack and a mode of its own. It may be
/// inside of another one.
pub(crate) fn callback(f: impl FnOnce()) {
    let inside = IN_CALLBACK.replace(true);
    let mode = MODE.replace(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL);
    let stack = STACK.with(|stack| stack.take());
    f();
    STACK.with(|its| its.replace(stack));
    MODE.set(mode);
    IN_CALLBACK.set(inside);
}
