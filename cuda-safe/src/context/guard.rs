//! Making a context current for a time, with a pop that looks first.

use super::Context;
use crate::call::call;
use crate::error::{Error, Result};
use crate::invalid::Invalid;
use crate::report::{Report, count_leak, report};
use crate::stream::Panicked;
use cuda_sys::CUcontext;
use std::cell::{Cell, OnceCell};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::Arc;

thread_local! {
    /// How many [`CurrentContext`]s that pushed this thread has open: they end in reverse order. (What
    /// pushed nothing has nothing to pop, and may end, or be forgotten, as it likes.)
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// The guard of [`Context::make_current`]: while it lives, the context is current on this thread.
///
/// It owns a clone of the context. Guards of one thread are to be ended in reverse order. One that
/// cannot be ended rightly, or is forgotten, leaves what it pushed on the stack, so the guards around
/// it cannot pop either: all of their contexts stay alive for ever, and nothing worse happens.
#[must_use = "the context is current only while this guard lives"]
#[derive(Debug)]
pub struct CurrentContext {
    context: Context,
    /// Its place among this thread's guards that pushed, from 1; none if it pushed nothing.
    pushed: Option<usize>,
    /// What host functions of its default streams panic with.
    panicked: OnceCell<Arc<Panicked>>,
    /// What is current is a matter of one thread.
    not_send: PhantomData<*mut ()>,
}

impl Context {
    /// Makes the context current on this thread until the guard is dropped: looks with
    /// `cuCtxGetCurrent`, and pushes with `cuCtxPushCurrent` only if another is current.
    ///
    /// The closure form, [`with_current`](Self::with_current), cannot be misnested. A guard of a context that
    /// was current already relies on whoever made it so: only [`finish`](CurrentContext::finish) tells
    /// whether it still was at the end.
    ///
    /// # Errors
    /// The driver refuses, as it does on the threads of its callbacks.
    ///
    /// Since CUDA 4.0. Raw: [`cuCtxPushCurrent_v2`](fn@cuda_sys::cuCtxPushCurrent_v2),
    /// [`cuCtxPopCurrent_v2`](fn@cuda_sys::cuCtxPopCurrent_v2),
    /// [`cuCtxGetCurrent`](fn@cuda_sys::cuCtxGetCurrent).
    #[doc(alias = "cuCtxPushCurrent")]
    #[doc(alias = "cuCtxPopCurrent")]
    #[doc(alias = "cuCtxGetCurrent")]
    #[inline]
    pub fn make_current(&self) -> Result<CurrentContext> {
        let pushed = enter_counted(self.as_raw())?;
        Ok(CurrentContext::new(self.clone(), pushed))
    }

    /// `cuCtxPushCurrent` and `cuCtxPopCurrent`, if another is current: runs `f` with the context
    /// current on this thread, and restores what was current before, a panic in `f` included.
    ///
    /// # Errors
    /// As for [`make_current`](Self::make_current); then `f` is not called.
    ///
    /// Since CUDA 4.0. Raw: [`cuCtxPushCurrent_v2`](fn@cuda_sys::cuCtxPushCurrent_v2),
    /// [`cuCtxPopCurrent_v2`](fn@cuda_sys::cuCtxPopCurrent_v2).
    ///
    /// ```no_run
    /// # use cuda_safe::{Context, Device};
    /// # let context = Context::primary(&Device::get(0)?)?;
    /// context.with_current(|_| {
    ///     // A C library called here works in our context.
    /// })?;
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    #[doc(alias = "cuCtxPushCurrent")]
    #[doc(alias = "cuCtxPopCurrent")]
    #[inline]
    pub fn with_current<R>(&self, f: impl FnOnce(&CurrentContext) -> R) -> Result<R> {
        let pushed = enter_counted(self.as_raw())?;
        // SAFETY: never dropped, so it is no share of its own, and gone before the one it is a copy of.
        let context = unsafe { std::ptr::read(self) };
        let lent = Lent(ManuallyDrop::new(CurrentContext::new(context, pushed)));
        Ok(f(&lent.0))
    }

    /// For the length of one call of this crate.
    #[inline]
    pub(crate) fn enter(&self) -> Result<Entered<'_>> {
        Ok(Entered {
            context: self,
            pushed: enter(self.as_raw())?,
            not_send: PhantomData,
        })
    }
}

impl CurrentContext {
    #[inline]
    fn new(context: Context, pushed: Option<usize>) -> Self {
        Self {
            context,
            pushed,
            panicked: OnceCell::new(),
            not_send: PhantomData,
        }
    }

    /// The context that is current.
    pub fn context(&self) -> &Context {
        &self.context
    }

    pub(crate) fn panicked(&self) -> &Arc<Panicked> {
        self.panicked.get_or_init(Arc::default)
    }

    /// Ends the guard and says whether the stack was as it should be. Dropping it tells
    /// [`set_report_hook`](crate::set_report_hook)'s function instead; and looks only if there is
    /// something to pop.
    ///
    /// # Errors
    /// [`Invalid::ContextStack`]: another context is current than this guard's.
    /// [`Invalid::GuardOrder`]: guards that were made after this one, and pushed, are still open or
    /// could not pop. Nothing was popped, and the context, which is somewhere on the stack, is never
    /// released.
    pub fn finish(mut self) -> Result<()> {
        self.end_now()
    }

    /// [`finish`](Self::finish) by reference. The drop after it does nothing.
    pub(crate) fn end_now(&mut self) -> Result<()> {
        match self.pushed {
            Some(_) => self.leave(),
            None => expect_current(self.context.as_raw()),
        }
    }

    /// Pops what was pushed, if anything was.
    #[inline(always)]
    fn leave(&mut self) -> Result<()> {
        let Some(place) = self.pushed.take() else {
            return Ok(());
        };
        match self.pop_push(place) {
            Ok(()) => Ok(()),
            Err(error) => Err(self.stays(error)),
        }
    }

    #[cold]
    #[inline(never)]
    fn stays(&self, error: Error) -> Error {
        leak_on_stack(&self.context);
        error
    }

    #[inline(always)]
    fn pop_push(&self, place: usize) -> Result<()> {
        // At the end of a thread there may be no counter, and nothing left to check.
        let open = DEPTH.try_with(Cell::get).unwrap_or(place);
        if open != place {
            return Err(Invalid::GuardOrder {
                inner: open.saturating_sub(place),
            }
            .into());
        }
        // Not if the pop fails: the guards around this one are not to pop what is left here.
        pop(self.context.as_raw())?;
        let _ = DEPTH.try_with(|depth| depth.set(place - 1));
        Ok(())
    }

    #[inline(always)]
    fn end(&mut self) {
        if let Err(error) = self.leave() {
            report(&Report::ContextStack { error });
        }
    }
}

impl Drop for CurrentContext {
    #[inline]
    fn drop(&mut self) {
        self.end();
    }
}

/// A guard with a copy of the caller's share of the context in place of one of its own.
struct Lent(ManuallyDrop<CurrentContext>);

impl Drop for Lent {
    #[inline(always)]
    fn drop(&mut self) {
        if self.0.pushed.is_some() || self.0.panicked.get().is_some() {
            self.end();
        }
    }
}

impl Lent {
    #[inline(never)]
    fn end(&mut self) {
        self.0.end();
        drop(self.0.panicked.take());
    }
}

/// [`CurrentContext`] without a clone: it does not leave this crate, so nobody forgets it, and
/// nothing but one call of the driver happens while it lives.
pub(crate) struct Entered<'context> {
    context: &'context Context,
    pushed: bool,
    not_send: PhantomData<*mut ()>,
}

impl Drop for Entered<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.pushed {
            leave(self.context);
        }
    }
}

/// By itself, so that the end of what pushed nothing is one look.
#[inline(never)]
fn leave(context: &Context) {
    if let Err(error) = pop(context.as_raw()) {
        stays_on_stack(context, error);
    }
}

/// The rare half of the end of a guard.
#[cold]
#[inline(never)]
fn stays_on_stack(context: &Context, error: Error) {
    leak_on_stack(context);
    report(&Report::ContextStack { error });
}

/// A context that stays on a stack of contexts must not be released: its handle would be dead
/// there, and the driver crashes on some uses of a dead current context.
pub(super) fn leak_on_stack(context: &Context) {
    context.stay();
    count_leak();
}

/// The current context of this thread; null if there is none.
#[inline]
fn current() -> Result<CUcontext> {
    let mut current = std::ptr::null_mut();
    // SAFETY: the pointer is to a local.
    unsafe { call!(cuCtxGetCurrent(&raw mut current)) }?;
    Ok(current)
}

/// Makes a context current for a guard; its place among those of this thread, if that took a push.
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
    let place = DEPTH.with(|depth| depth.replace(depth.get() + 1)) + 1;
    Ok(Some(place))
}

/// Makes a context current; whether that took a push.
#[inline]
fn enter(raw: CUcontext) -> Result<bool> {
    if current()? == raw {
        return Ok(false);
    }
    push(raw)?;
    Ok(true)
}

#[inline]
fn push(raw: CUcontext) -> Result<()> {
    // SAFETY: the context is alive: its owner is borrowed or cloned by the guard.
    unsafe { call!(cuCtxPushCurrent_v2(raw)) }
}

/// Runs `f` with a context current that has no [`Context`] yet.
pub(super) fn with_raw_current<T>(raw: CUcontext, f: impl FnOnce() -> Result<T>) -> Result<T> {
    let pushed = enter(raw)?;
    let done = f();
    if pushed {
        pop(raw)?;
    }
    done
}

/// Pops `raw` off this thread's stack if it is on top; else pops nothing and says so.
#[inline(always)]
pub(super) fn pop(raw: CUcontext) -> Result<()> {
    expect_current(raw)?;
    let mut popped = std::ptr::null_mut();
    // SAFETY: the pointer is to a local.
    unsafe { call!(cuCtxPopCurrent_v2(&raw mut popped)) }
}

#[inline]
fn expect_current(raw: CUcontext) -> Result<()> {
    let found = current()?;
    if found == raw {
        return Ok(());
    }
    Err(other_current(raw, found))
}

#[cold]
#[inline(never)]
fn other_current(raw: CUcontext, found: CUcontext) -> Error {
    Invalid::ContextStack {
        expected: raw.addr(),
        found: found.addr(),
    }
    .into()
}
