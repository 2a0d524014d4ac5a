//! What the driver keeps for each thread: its stack of contexts and its capture mode.

use cuda_sys::CUstreamCaptureMode;
use std::cell::{Cell, RefCell};

thread_local! {
    static STACK: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    static MODE: Cell<CUstreamCaptureMode> =
        const { Cell::new(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL) };
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

pub(crate) fn push(context: usize) {
    STACK.with_borrow_mut(|stack| stack.push(context));
}

pub(crate) fn pop() -> Option<usize> {
    STACK.with_borrow_mut(Vec::pop)
}

pub(crate) fn current() -> Option<usize> {
    STACK.with_borrow(|stack| stack.last().copied())
}

pub(crate) fn depth() -> usize {
    STACK.with_borrow(Vec::len)
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

/// Runs a callback.
pub(crate) fn callback(f: impl FnOnce()) {
    IN_CALLBACK.set(true);
    f();
    IN_CALLBACK.set(false);
}
