//! Host functions: Rust code in the order of a stream.

use super::Stream;
use crate::call::{answer, without_current};
use crate::capture::Operation;
use crate::error::{Error, Result};
use crate::release;
use crate::report::{count_leak, words_of};
use crate::sync::Mutex;
use core::ffi::c_void;
use cuda_sys::CUhostFn;
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};

/// What a host function of a stream panicked with, until a wait for the stream tells it.
#[derive(Debug, Default)]
pub(crate) struct Panicked(Mutex<Option<String>>);

impl Panicked {
    /// The panic that nobody has heard of yet.
    pub(super) fn take(&self) -> Result<()> {
        let message = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        message.map_or(Ok(()), |message| Err(Error::HostFunctionPanicked(message)))
    }

    fn keep(&self, payload: Box<dyn Any + Send>) {
        let message = words_of(payload);
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get_or_insert(message);
    }
}

/// A function that the driver has for a stream.
struct Job {
    function: Box<dyn FnOnce() + Send>,
    panicked: Arc<Panicked>,
}

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Waits are refused inside of a host function: one for its own stream would never end.
#[inline]
pub(crate) fn refuse_inside() -> Result<()> {
    if is_inside() {
        return Err(Error::InHostFunction);
    }
    Ok(())
}

/// Whether this thread is in a host function.
#[inline]
pub(crate) fn is_inside() -> bool {
    // At the end of a thread there is none.
    INSIDE.try_with(Cell::get).unwrap_or(false)
}

impl Stream {
    /// `cuLaunchHostFunc(stream, function, data)`: runs `function` on a thread of the driver's, once,
    /// when the work given to the stream before is done; the work after it waits until it returns.
    ///
    /// A panic in it becomes the error of the next [`synchronize`](Self::synchronize). In it the
    /// driver refuses most calls, and waits are refused here; what is dropped in it is released by
    /// a later call elsewhere. If the stream's work fails it is never run.
    ///
    /// # Errors
    /// Those of earlier work: then nobody knows whether the driver has the function, which is leaked,
    /// with all that it owns, if it does not run.
    ///
    /// [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured): a graph would run it more than once.
    ///
    /// Since CUDA 10.0. Raw: [`cuLaunchHostFunc`](fn@cuda_sys::cuLaunchHostFunc).
    ///
    /// ```no_run
    /// # use cuda_safe::{Context, Device};
    /// # let stream = Context::primary(&Device::get(0)?)?.stream()?;
    /// let (sender, done) = std::sync::mpsc::channel();
    /// stream.launch_host_function(move || {
    ///     // Nobody may be listening any more.
    ///     let _ = sender.send("the work before is done");
    /// })?;
    /// println!("{:?}", done.recv());
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    #[doc(alias = "cuLaunchHostFunc")]
    pub fn launch_host_function(&self, function: impl FnOnce() + Send + 'static) -> Result<()> {
        release::drain();
        let _call = self.uncaptured(Operation::HostFunction)?;
        launch(function, &self.inner.panicked, |run, data| {
            without_current(self.context(), || {
                // SAFETY: the stream is alive; the function takes the box that `data` is, once.
                unsafe { answer!(cuLaunchHostFunc(self.raw(), run, data)) }
            })
        })
    }
}

/// Has the driver run a function, which is dropped if the driver does not take it.
pub(super) fn launch(
    function: impl FnOnce() + Send + 'static,
    panicked: &Arc<Panicked>,
    launch: impl FnOnce(CUhostFn, *mut c_void) -> Result<()>,
) -> Result<()> {
    let job = Box::new(Job {
        function: Box::new(function),
        panicked: Arc::clone(panicked),
    });
    let data = Box::into_raw(job).cast::<c_void>();
    let given = launch(Some(run), data);
    match &given {
        Ok(()) => {}
        Err(error) if error.is_refusal() => {
            // SAFETY: the driver did not take it, so the box is still this function's.
            drop(unsafe { Box::from_raw(data.cast::<Job>()) });
        }
        // It may be of earlier work, and the driver have the function all the same: its box stays.
        Err(_) => count_leak(),
    }
    given
}

/// What the driver calls.
///
/// # Safety
/// `data` is a [`Job`] as a raw box, which nobody else has.
unsafe extern "C" fn run(data: *mut c_void) {
    // SAFETY: the caller's promise.
    let job = unsafe { Box::from_raw(data.cast::<Job>()) };
    let Job { function, panicked } = *job;
    run_inside(&panicked, function);
}

/// Runs something on a thread of the driver's, where waits are refused.
pub(super) fn run_inside(panicked: &Panicked, function: impl FnOnce()) {
    let before = INSIDE.try_with(|inside| inside.replace(true));
    // Unwinding into the driver would be undefined.
    if let Err(payload) = catch_unwind(AssertUnwindSafe(function)) {
        panicked.keep(payload);
    }
    if let Ok(before) = before {
        let _ = INSIDE.try_with(|inside| inside.set(before));
    }
}
