//! Contexts that stay current on a thread until the thread ends.

use super::Context;
use super::guard::open_guards;
use crate::call::{
    Error, Invalid, Report, Result, current, leak_on_stack, pop, report, set_current,
};
use std::cell::RefCell;
use std::sync::Arc;

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
        if guards != 0 {
            return Err(inside_guards(guards));
        }
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
