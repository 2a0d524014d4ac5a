//! Driver calls, the conversion of `CUresult` to `Result`, and contexts that are current for one call.

use crate::call::error::{DriverError, Error, Result};
use crate::call::fork;
use crate::call::invalid::Invalid;
use crate::call::report::{Report, count_leak, report};
use cuda_sys::{CUcontext, CUresult, Function, Unavailable, Zeroable};
use std::marker::PhantomData;

/// Calls a driver function. `unsafe { call!(cuStreamQuery(stream)) }` returns a `Result<()>` whose error
/// names the function. (In a forked child `cuda-sys` does not call the driver.)
macro_rules! call {
    (abi::$function:ident($($argument:expr),* $(,)?)) => {
        $crate::call::function::call!(@ $function, cuda_sys::abi::$function($($argument),*))
    };
    ($function:ident($($argument:expr),* $(,)?)) => {
        $crate::call::function::call!(@ $function, cuda_sys::$function($($argument),*))
    };
    (@ $function:ident, $call:expr) => {
        $crate::call::function::check($call, stringify!($function))
    };
}
pub(crate) use call;

/// Calls a driver function, but does not check the returned code, because [`without_current`] checks it.
macro_rules! answer {
    ($function:ident($($argument:expr),* $(,)?)) => {
        $crate::call::function::Answer {
            call: stringify!($function),
            code: cuda_sys::$function($($argument),*),
        }
    };
}
pub(crate) use answer;

/// Converts the result code of a raw call to a `Result`, for calls of [`sys`](crate::sys) beside the objects
/// of this crate.
///
/// `call` is the symbol name of the function, which the error contains.
///
/// ```no_run
/// use cuda_safe::{Context, Device, Error, check, sys};
///
/// let stream = Context::primary(&Device::get(0)?)?.stream()?;
/// let mut id = 0;
/// // SAFETY: the stream is alive, and the pointer is to a variable.
/// let code = unsafe { sys::cuStreamGetId(stream.as_raw(), &raw mut id) };
/// check(code, "cuStreamGetId")?;
/// # Ok::<_, Error>(())
/// ```
///
/// # Errors
/// `code` is not `CUDA_SUCCESS`: [`Error::Driver`]. If the function was not called, the reason instead:
/// [`Error::Load`] or [`Error::Missing`], or [`Error::Forked`] in a forked child.
#[inline]
pub fn check(code: CUresult, call: &'static str) -> Result<()> {
    if code.is_success() { Ok(()) } else { Err(fail(call, code)) }
}

/// The result code of a driver function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) call: &'static str,
    pub(crate) code: CUresult,
}

/// The outcome of a call. It is converted to an error only on request, which keeps the fast path small.
pub(crate) trait Outcome {
    fn is_done(&self) -> bool;
    fn result(self) -> Result<()>;
}

impl Outcome for Answer {
    #[inline]
    fn is_done(&self) -> bool {
        self.code.is_success()
    }

    #[inline]
    fn result(self) -> Result<()> {
        check(self.code, self.call)
    }
}

impl Outcome for Result<()> {
    #[inline]
    fn is_done(&self) -> bool {
        self.is_ok()
    }

    #[inline]
    fn result(self) -> Result<()> {
        self
    }
}

/// Returns the error for a code. If the driver or the function was not available, this is that reason.
#[cold]
#[inline(never)]
pub(crate) fn fail(call: &'static str, code: CUresult) -> Error {
    if fork::in_child() {
        return Error::Forked;
    }
    let perhaps_not_called = matches!(
        code,
        CUresult::CUDA_ERROR_NOT_INITIALIZED
            | CUresult::CUDA_ERROR_STUB_LIBRARY
            | CUresult::CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER
            | CUresult::CUDA_ERROR_NOT_FOUND
    );
    if perhaps_not_called {
        match Function::find(call).map(Function::address) {
            Some(Err(Unavailable::Load(error))) => return Error::Load(error),
            Some(Err(Unavailable::Missing(missing))) => return Error::Missing(missing),
            Some(Ok(_)) | None => {}
        }
    }
    Error::Driver(DriverError::of_failure(code, call))
}

/// Returns the result of the newest function, or calls the older function if the driver lacks the
/// newest.
#[inline]
pub(crate) fn newest_or(newest: Result<()>, older: impl FnOnce() -> Result<()>) -> Result<()> {
    match newest {
        Err(Error::Missing(_)) => older(),
        done => done,
    }
}

/// Makes a call that names its stream, event or memory and therefore needs no current context. If a
/// driver requires one nevertheless, the call is repeated once with `context` current.
#[inline]
pub(crate) fn without_current<O: Outcome>(
    context: &(impl ContextHandle + ?Sized),
    mut call: impl FnMut() -> O,
) -> Result<()> {
    let outcome = call();
    if outcome.is_done() {
        return Ok(());
    }
    under_current(outcome, context, call)
}

/// Makes a copy as [`without_current`] does. Without a current context, driver 580 rejects a copy across two
/// mappings of virtual memory with `CUDA_ERROR_INVALID_VALUE`, so a copy with this error is repeated too.
#[inline]
pub(crate) fn copy_without_current<O: Outcome>(
    context: &(impl ContextHandle + ?Sized),
    mut copy: impl FnMut() -> O,
) -> Result<()> {
    let outcome = copy();
    if outcome.is_done() {
        return Ok(());
    }
    copy_under_current(outcome, context, copy)
}

/// The rare path of [`copy_without_current`].
#[cold]
#[inline(never)]
fn copy_under_current<O: Outcome>(
    outcome: O,
    context: &(impl ContextHandle + ?Sized),
    mut copy: impl FnMut() -> O,
) -> Result<()> {
    match outcome.result() {
        Err(error) if error.code() == Some(CUresult::CUDA_ERROR_INVALID_VALUE) => {
            let _current = Entered::new(context)?;
            copy().result().map_err(|_| error)
        }
        result => under_current(result, context, || copy().result()),
    }
}

/// Returns the value that `call` writes through its pointer. The pointer refers to zeros, and valid until `call`
/// returns.
///
/// ```text
/// // SAFETY: the device exists, and `out` passes a valid pointer.
/// let bytes = out(|place| unsafe { call!(cuDeviceTotalMem_v2(place, self.raw)) })?;
/// ```
#[inline(always)]
pub(crate) fn out<T: Zeroable>(call: impl FnOnce(*mut T) -> Result<()>) -> Result<T> {
    let mut value = T::zeroed();
    call(&raw mut value)?;
    Ok(value)
}

/// Returns the value that a call writes through its pointer, as [`out`] does. The call needs no current context:
/// see [`without_current`].
#[inline(always)]
pub(crate) fn out_without_current<T: Zeroable, O: Outcome>(
    context: &(impl ContextHandle + ?Sized),
    mut call: impl FnMut(*mut T) -> O,
) -> Result<T> {
    out(|place| without_current(context, || call(place)))
}

/// Repeats a call that failed, with `context` current, if the driver requires that. This is the rare
/// path of [`without_current`], in a separate function, which keeps the common path short.
#[cold]
#[inline(never)]
pub(crate) fn under_current<O: Outcome>(
    outcome: O,
    context: &(impl ContextHandle + ?Sized),
    mut call: impl FnMut() -> O,
) -> Result<()> {
    match outcome.result() {
        Err(error) if error.code() == Some(CUresult::CUDA_ERROR_INVALID_CONTEXT) => {
            let _current = Entered::new(context)?;
            call().result()
        }
        result => result,
    }
}

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
