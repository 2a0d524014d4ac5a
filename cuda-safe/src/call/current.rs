//! Making a context current for one call.

use crate::call::error::{Error, Result};
use crate::call::function::{call, out};
use crate::call::invalid::Invalid;
use crate::call::report::{Report, count_leak, report};
use cuda_sys::CUcontext;
use std::marker::PhantomData;

/// A context that calls make current.
pub(crate) trait ContextHandle {
    fn raw(&self) -> CUcontext;

    /// Keeps the context alive until the process ends, because a context stack still contains it.
    fn never_destroy(&self);

    /// Blocks until all work of the context is done, without invalidating a capture.
    fn wait_for_all_work(&self) -> Result<()>;
}

/// A context that is current for one call of the driver. The guard does not leave this crate, so it is
/// never forgotten, and guards are dropped in reverse order.
pub(crate) struct Entered<'context, C: ContextHandle + ?Sized> {
    context: &'context C,
    pushed: bool,
    not_send: PhantomData<*mut ()>,
}

impl<'context, C: ContextHandle + ?Sized> Entered<'context, C> {
    #[inline(always)]
    pub(crate) fn new(context: &'context C) -> Result<Self> {
        Ok(Self { context, pushed: push_if_other(context.raw())?, not_send: PhantomData })
    }
}

impl<C: ContextHandle + ?Sized> Drop for Entered<'_, C> {
    #[inline]
    fn drop(&mut self) {
        if self.pushed {
            leave(self.context);
        }
    }
}

/// A separate function, so that the drop of a guard that pushed nothing is one test.
#[inline(never)]
fn leave<C: ContextHandle + ?Sized>(context: &C) {
    if let Err(error) = pop(context.raw()) {
        stays_on_stack(context, error);
    }
}

#[cold]
#[inline(never)]
fn stays_on_stack<C: ContextHandle + ?Sized>(context: &C, error: Error) {
    leak_on_stack(context);
    report(&Report::ContextStack { error });
}

/// Leaks a context that stays on a context stack. If it were destroyed, its handle on the stack would be
/// dangling, and the driver crashes on some uses of a destroyed current context.
pub(crate) fn leak_on_stack<C: ContextHandle + ?Sized>(context: &C) {
    context.never_destroy();
    count_leak();
}

/// Returns the current context of this thread, or null if there is none.
#[inline]
pub(crate) fn current() -> Result<CUcontext> {
    // SAFETY: `out` passes a valid pointer.
    out(|place| unsafe { call!(cuCtxGetCurrent(place)) })
}

/// Makes a context current. Returns whether it was pushed.
#[inline(always)]
fn push_if_other(raw: CUcontext) -> Result<bool> {
    if current()? == raw {
        return Ok(false);
    }
    push(raw)?;
    Ok(true)
}

#[inline]
pub(crate) fn push(raw: CUcontext) -> Result<()> {
    // SAFETY: the context is alive, because the guard borrows or clones its owner.
    unsafe { call!(cuCtxPushCurrent_v2(raw)) }
}

/// Replaces the current context of this thread.
#[inline]
pub(crate) fn set_current(raw: CUcontext) -> Result<()> {
    // SAFETY: the context is alive, and the caller keeps it alive while it is on the context stack.
    unsafe { call!(cuCtxSetCurrent(raw)) }
}

/// Runs `f` with a raw context current.
pub(crate) fn with_raw_current<T>(raw: CUcontext, f: impl FnOnce() -> Result<T>) -> Result<T> {
    let pushed = push_if_other(raw)?;
    let done = f();
    if pushed {
        pop(raw)?;
    }
    done
}

/// Pops `raw` off the context stack of this thread if it is on top. Otherwise pops nothing and returns
/// an error.
#[inline(always)]
pub(crate) fn pop(raw: CUcontext) -> Result<()> {
    expect_current(raw)?;
    let mut popped = std::ptr::null_mut();
    // SAFETY: the pointer is to a local.
    unsafe { call!(cuCtxPopCurrent_v2(&raw mut popped)) }
}

#[inline]
pub(crate) fn expect_current(raw: CUcontext) -> Result<()> {
    let found = current()?;
    if found == raw {
        return Ok(());
    }
    Err(other_current(raw, found))
}

#[cold]
#[inline(never)]
fn other_current(raw: CUcontext, found: CUcontext) -> Error {
    Invalid::ContextStack { expected: raw.addr(), found: found.addr() }.into()
}
