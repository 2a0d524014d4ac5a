//! Guards that make a context current, and check the current context before they pop it.

use super::Context;
use crate::call::{
    Entered, Error, HostPanic, Invalid, Report, Result, current, expect_current, leak_on_stack,
    pop, push, refuse_if, report, set_current,
};
use cuda_sys::CUcontext;
use std::cell::{Cell, OnceCell, RefCell};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::Arc;

thread_local! {
    /// The number of open [`CurrentContext`] guards of this thread that pushed a context. They must end
    /// in reverse order. (A guard that pushed nothing can end in any order, or be forgotten.)
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Returns the number of open guards of this thread that pushed a context.
#[inline]
pub(super) fn open_guards() -> usize {
    DEPTH.try_with(Cell::get).unwrap_or(0)
}

/// The guard of [`Context::make_current`]. While it is alive, the context is current on this thread.
///
/// The guard owns a clone of the context. Guards of one thread must end in reverse order of creation. A
/// guard that ends in the wrong order, or that is forgotten, leaves its context on the context stack.
/// The guards around it then cannot pop either. In this case all of these contexts are leaked, and no
/// context can be [bound](Context::bind_to_thread) to the thread any more; there is no other
/// consequence.
#[must_use = "the context is current only while this guard lives"]
#[derive(Debug)]
pub struct CurrentContext {
    context: Context,
    /// The position among the guards of this thread that pushed a context, from 1. `None` if this guard
    /// pushed nothing.
    pushed: Option<usize>,
    /// Panics of host functions of the default streams.
    host_panic: OnceCell<Arc<HostPanic>>,
    /// The current context is a property of one thread.
    not_send: PhantomData<*mut ()>,
}

impl Context {
    /// Makes the context current on this thread until the guard is dropped. Calls `cuCtxGetCurrent`,
    /// and calls `cuCtxPushCurrent` only if another context is current.
    ///
    /// Prefer the closure form [`with_current`](Self::with_current), which always nests correctly.
    /// [`bind_to_thread`](Self::bind_to_thread) makes the context current until the thread ends. If
    /// the context is already current, the guard relies on the code that made it current: only
    /// [`end`](CurrentContext::end) reports whether it was still current at the end.
    ///
    /// # Errors
    /// An error of the driver call. It always fails on driver callback threads.
    ///
    /// Since CUDA 4.0. Raw: [`cuCtxPushCurrent_v2`](fn@cuda_sys::cuCtxPushCurrent_v2),
    /// [`cuCtxPopCurrent_v2`](fn@cuda_sys::cuCtxPopCurrent_v2),
    /// [`cuCtxGetCurrent`](fn@cuda_sys::cuCtxGetCurrent).
    #[doc(alias = "cuCtxPushCurrent", alias = "cuCtxPopCurrent", alias = "cuCtxGetCurrent")]
    #[inline]
    pub fn make_current(&self) -> Result<CurrentContext> {
        let pushed = enter_counted(self.as_raw())?;
        Ok(CurrentContext::new(self.clone(), pushed))
    }

    /// Runs `f` with the context current on this thread, and then restores the previous current context,
    /// also if `f` panics. Calls `cuCtxPushCurrent` and `cuCtxPopCurrent` if another context is current.
    ///
    /// # Errors
    /// See [`make_current`](Self::make_current). On an error, `f` is not called.
    ///
    /// Since CUDA 4.0. Raw: [`cuCtxPushCurrent_v2`](fn@cuda_sys::cuCtxPushCurrent_v2),
    /// [`cuCtxPopCurrent_v2`](fn@cuda_sys::cuCtxPopCurrent_v2).
    ///
    /// ```no_run
    /// # use cuda_safe::{Context, Device};
    /// # let context = Context::primary(&Device::get(0)?)?;
    /// context.with_current(|_| {
    ///     // A C library that is called here works in this context.
    /// })?;
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    #[doc(alias = "cuCtxPushCurrent", alias = "cuCtxPopCurrent")]
    #[inline]
    pub fn with_current<R>(&self, f: impl FnOnce(&CurrentContext) -> R) -> Result<R> {
        let pushed = enter_counted(self.as_raw())?;
        // A copy and not a clone: a clone would cost 35 instructions of 53 if the context is current
        // already (`cargo xtask cost`).
        // SAFETY: the copy is never dropped, so it does not count as a reference of its own, and it ends
        // before the original.
        let context = unsafe { std::ptr::read(self) };
        let guard = BorrowedGuard(ManuallyDrop::new(CurrentContext::new(context, pushed)));
        Ok(f(&guard.0))
    }

    /// Makes the context current for the duration of one call of this crate.
    #[inline]
    pub(crate) fn enter(&self) -> Result<Entered<'_, Self>> {
        Entered::new(self)
    }
}

impl CurrentContext {
    #[inline]
    fn new(context: Context, pushed: Option<usize>) -> Self {
        Self { context, pushed, host_panic: OnceCell::new(), not_send: PhantomData }
    }

    /// Returns the context of this guard.
    #[inline]
    pub fn context(&self) -> &Context {
        &self.context
    }

    #[inline]
    pub(crate) fn host_panic(&self) -> &Arc<HostPanic> {
        self.host_panic.get_or_init(Arc::default)
    }

    /// Ends the guard and returns an error if the context stack was not in the expected state.
    ///
    /// Dropping the guard reports the error to the function of
    /// [`set_report_hook`](crate::set_report_hook) instead, and checks the stack only if the guard
    /// pushed a context.
    ///
    /// # Errors
    /// - [`Invalid::ContextStack`]: the current context is not the context of this guard.
    /// - [`Invalid::GuardOrder`]: guards that pushed a context after this one are still open or could
    ///   not pop.
    ///
    /// On an error nothing is popped. If the guard pushed its context, which is still on the stack, the
    /// context is never released.
    #[inline]
    pub fn end(mut self) -> Result<()> {
        self.end_now()
    }

    /// [`end`](Self::end) by reference. The later drop does nothing.
    #[inline]
    pub(crate) fn end_now(&mut self) -> Result<()> {
        match self.pushed {
            Some(_) => self.leave(),
            None => expect_current(self.context.as_raw()),
        }
    }

    /// Pops the context if this guard pushed it.
    #[inline(always)]
    fn leave(&mut self) -> Result<()> {
        let Some(position) = self.pushed.take() else { return Ok(()) };
        match self.pop_own_push(position) {
            Ok(()) => Ok(()),
            Err(error) => Err(self.leak_with(error)),
        }
    }

    #[cold]
    #[inline(never)]
    fn leak_with(&self, error: Error) -> Error {
        leak_on_stack(&self.context);
        error
    }

    #[inline(always)]
    fn pop_own_push(&self, position: usize) -> Result<()> {
        // While a thread exits, the counter may already be destroyed. Then there is nothing to check.
        let open_guards = DEPTH.try_with(Cell::get).unwrap_or(position);
        if open_guards != position {
            return Err(Invalid::GuardOrder { inner: open_guards.saturating_sub(position) }.into());
        }
        // If the pop fails, the counter stays: the outer guards must not pop the context that is left
        // here.
        pop(self.context.as_raw())?;
        let _ = DEPTH.try_with(|depth| depth.set(position - 1));
        Ok(())
    }

    #[inline(always)]
    fn end_or_report(&mut self) {
        if let Err(error) = self.leave() {
            report(&Report::ContextStack { error });
        }
    }
}

impl Drop for CurrentContext {
    #[inline]
    fn drop(&mut self) {
        self.end_or_report();
    }
}

/// A guard that holds a bitwise copy of the caller's [`Context`] instead of a clone.
struct BorrowedGuard(ManuallyDrop<CurrentContext>);

impl Drop for BorrowedGuard {
    #[inline(always)]
    fn drop(&mut self) {
        if self.0.pushed.is_some() || self.0.host_panic.get().is_some() {
            self.end_or_report();
        }
    }
}

impl BorrowedGuard {
    #[inline(never)]
    fn end_or_report(&mut self) {
        self.0.end_or_report();
        drop(self.0.host_panic.take());
    }
}

/// Makes a context current for a guard. Returns the position of the guard on this thread if it pushed.
#[inline(always)]
fn enter_counted(raw: CUcontext) -> Result<Option<usize>> {
    if current()? == raw {
        return Ok(None);
    }
    push_counted(raw)
}

#[inline(never)]
fn push_counted(raw: CUcontext) -> Result<Option<usize>> {
    push(raw)?;
    let position = DEPTH.with(|depth| depth.replace(depth.get() + 1)) + 1;
    Ok(Some(position))
}

thread_local! {
    static BOUND: RefCell<BoundContexts> = const { RefCell::new(BoundContexts(Vec::new())) };
}

/// The contexts that were bound to this thread. They stay alive until the thread ends: other code can
/// put a context on top of a bound one, so any of them may still be on the context stack.
struct BoundContexts(Vec<Context>);

impl Context {
    /// Makes the context current on this thread for good: until another context is bound to the thread,
    /// or the thread ends. Calls `cuCtxGetCurrent`, and calls `cuCtxSetCurrent` only if another context
    /// is current.
    ///
    /// Functions of this crate do not need this, because they make the context current themselves. Use
    /// it in a program or framework that owns its threads:
    /// - for raw calls ([`sys`](crate::sys)) beside the objects of this crate, and for libraries that
    ///   work in the current context, such as cuBLAS or the runtime API;
    /// - on a thread that creates many objects. A function that needs a current context, such as
    ///   [`event`](Self::event), then makes two driver calls instead of five.
    ///
    /// A library that is called on threads of other code should restore their context stack, and use
    /// [`with_current`](Self::with_current) instead.
    ///
    /// The bound context replaces the current context of the thread, and does not come back if other
    /// code replaces it, for example by `cudaSetDevice`. [`make_current`](Self::make_current) still
    /// makes another context current for a time. A green context can be current on one thread at a time
    /// and cannot be bound: keep the guard of
    /// [`GreenContext::make_current`](crate::green::GreenContext::make_current) instead.
    ///
    /// Each context that was bound to a thread stays alive until the thread ends, without its
    /// [memory manager](crate::manager). Then the bound contexts at the top of the context stack are
    /// popped. If a context of other code is on top of them, they are leaked and
    /// [reported](crate::set_report_hook).
    ///
    /// # Errors
    /// - [`Invalid::OpenGuards`]: a guard of a current context is open on this thread, whose end would
    ///   restore the context before it. A guard that was forgotten stays open.
    /// - An error of the driver call. It always fails on driver callback threads.
    ///
    /// Since CUDA 4.0. Raw: [`cuCtxSetCurrent`](fn@cuda_sys::cuCtxSetCurrent).
    ///
    /// ```no_run
    /// use cuda_safe::{Context, Device, sys};
    ///
    /// let context = Context::primary(&Device::get(0)?)?;
    /// let worker = std::thread::spawn(move || {
    ///     context.bind_to_thread()?;
    ///     let (mut free, mut total) = (0, 0);
    ///     // SAFETY: the pointers refer to variables.
    ///     let code = unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) };
    ///     cuda_safe::check(code, "cuMemGetInfo_v2")
    /// });
    /// worker.join().expect("no panic")?;
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    #[doc(alias = "cuCtxSetCurrent")]
    #[inline]
    pub fn bind_to_thread(&self) -> Result<()> {
        let guards = open_guards();
        refuse_if!(guards != 0, inside_guards(guards));
        if current()? != self.as_raw() {
            set_current(self.as_raw())?;
        }
        let kept = BOUND.try_with(|bound| bound.borrow_mut().keep(self));
        if kept.is_err() {
            // The thread is ending, and its thread-local variables are being destroyed.
            leak_on_stack(self);
        }
        Ok(())
    }
}

#[cold]
#[inline]
fn inside_guards(guards: usize) -> Error {
    Invalid::OpenGuards { guards }.into()
}

impl BoundContexts {
    /// Keeps a context alive until the thread ends.
    #[inline]
    fn keep(&mut self, context: &Context) {
        let is_same = |bound: &Context| Arc::ptr_eq(&bound.inner, &context.inner);
        if !self.0.last().is_some_and(is_same) {
            self.keep_other(context);
        }
    }

    #[cold]
    #[inline(never)]
    fn keep_other(&mut self, context: &Context) {
        // A borrowed context does not keep the context alive.
        let keeps = |bound: &Context| !bound.depends_on_borrowed() || context.depends_on_borrowed();
        if !self.0.iter().any(|bound| bound == context && keeps(bound)) {
            self.0.push(context.without_extension());
        }
    }

    /// Pops the bound contexts at the top of the context stack.
    ///
    /// # Errors
    /// The stack has other contexts on top, and may have bound contexts below them.
    #[inline]
    fn pop_all(&self) -> Result<()> {
        loop {
            let found = current()?;
            if found.is_null() {
                return Ok(());
            }
            if !self.0.iter().any(|bound| bound.as_raw() == found) {
                let expected = self.0.last().map_or(0, |bound| bound.as_raw().addr());
                let found = found.addr();
                return Err(Invalid::ContextStack { expected, found }.into());
            }
            pop(found)?;
        }
    }
}

impl Drop for BoundContexts {
    /// Runs when the thread ends. Thread-local variables that are destroyed later may still use the
    /// driver, so no destroyed context may be on the stack.
    #[inline]
    fn drop(&mut self) {
        if self.0.is_empty() {
            return;
        }
        if let Err(error) = self.pop_all() {
            self.0.iter().for_each(leak_on_stack);
            report(&Report::ContextStack { error });
        }
    }
}
