//! The driver's state of each thread: the context stack and the capture mode.

use cuda_sys::CUstreamCaptureMode;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::mem::ManuallyDrop;
use std::sync::{Mutex, PoisonError};
use std::thread::ThreadId;

thread_local! {
    /// Never dropped, because a program may still call the driver when the thread-local variables of the
    /// thread are destroyed.
    static STACK: ManuallyDrop<RefCell<Vec<usize>>> =
        const { ManuallyDrop::new(RefCell::new(Vec::new())) };
    static MODE: Cell<CUstreamCaptureMode> =
        const { Cell::new(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL) };
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
    static IN_KERNEL: Cell<bool> = const { Cell::new(false) };
    static PER_THREAD_DEFAULT: Cell<bool> = const { Cell::new(false) };
    static IN_DUMP_CALLBACK: Cell<bool> = const { Cell::new(false) };
    static ID: Cell<Option<ThreadId>> = const { Cell::new(None) };
}

/// Returns the id of the calling thread. The id is cached, because std does not return it late in the
/// destruction of a thread, when C code may still call.
pub(crate) fn id() -> ThreadId {
    ID.get().unwrap_or_else(|| {
        let id = std::thread::current().id();
        ID.set(Some(id));
        id
    })
}

pub(crate) fn push(context: usize) {
    STACK.with(|stack| stack.borrow_mut().push(context));
    note_depth();
}

/// The threads that have contexts on their stacks, with the number of contexts.
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
            // The static is never dropped, so an empty map must not keep memory.
            *depths = None;
        }
    }
}

pub(crate) fn depths() -> Vec<(ThreadId, usize)> {
    let depths = DEPTHS.lock().unwrap_or_else(PoisonError::into_inner);
    depths.iter().flatten().map(|(id, depth)| (*id, *depth)).collect()
}

pub(crate) fn pop() -> Option<usize> {
    let popped = STACK.with(|stack| {
        let mut stack = stack.borrow_mut();
        let popped = stack.pop();
        if stack.is_empty() {
            // The stack is never dropped, so an empty one must not keep memory.
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

/// Sets the capture mode of this thread and returns the previous one.
pub(crate) fn exchange_mode(mode: CUstreamCaptureMode) -> CUstreamCaptureMode {
    MODE.replace(mode)
}

pub(crate) fn mode() -> CUstreamCaptureMode {
    MODE.get()
}

/// Returns whether this thread is running a callback of the driver.
pub(crate) fn in_callback() -> bool {
    IN_CALLBACK.get()
}

/// Returns whether stream 0 of the current call is the per-thread default stream.
pub(crate) fn has_per_thread_default() -> bool {
    PER_THREAD_DEFAULT.get()
}

/// Makes a call for which stream 0 is the per-thread default stream.
pub(crate) fn with_per_thread_default<T>(f: impl FnOnce() -> T) -> T {
    let before = PER_THREAD_DEFAULT.replace(true);
    let result = f();
    PER_THREAD_DEFAULT.set(before);
    result
}

/// Returns whether this thread is running a callback of a core dump.
pub(crate) fn in_dump_callback() -> bool {
    IN_DUMP_CALLBACK.get()
}

/// Runs a callback of a core dump.
pub(crate) fn dump_callback(f: impl FnOnce()) {
    let inside = IN_DUMP_CALLBACK.replace(true);
    f();
    IN_DUMP_CALLBACK.set(inside);
}

/// Returns whether this thread is running a kernel. Kernels run while the driver's lock is held.
pub(crate) fn in_kernel() -> bool {
    IN_KERNEL.get()
}

/// Runs a kernel on this thread.
pub(crate) fn kernel<T>(f: impl FnOnce() -> T) -> T {
    struct Inside;
    impl Drop for Inside {
        fn drop(&mut self) {
            IN_KERNEL.set(false);
        }
    }
    IN_KERNEL.set(true);
    // The guard also resets the flag if the kernel panics.
    let _inside = Inside;
    f()
}

/// Runs a callback as if on a driver thread, with its own context stack and capture mode. The call may
/// be nested in another callback.
pub(crate) fn callback(f: impl FnOnce()) {
    let inside = IN_CALLBACK.replace(true);
    let mode = MODE.replace(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL);
    let per_thread_default = PER_THREAD_DEFAULT.replace(false);
    let stack = STACK.with(|stack| stack.take());
    f();
    STACK.with(|its| its.replace(stack));
    PER_THREAD_DEFAULT.set(per_thread_default);
    MODE.set(mode);
    IN_CALLBACK.set(inside);
}
