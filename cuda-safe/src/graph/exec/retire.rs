//! Objects that are dropped after the launches that use them.

use crate::call::{Answer, Error, Result, ends_all_work, fork, in_host_function};
use crate::capture_state::Operation;
use crate::context::Context;
use crate::event::{LastUse, Progress};
use crate::graph::Earlier;
use crate::graph::exec::launches::Noted;
use crate::release::{Destroy, Keep, owners, relaxed, release};
use crate::stream::Stream;
use crate::sync::{Mutex, MutexGuard};
use cuda_sys::CUresult;
use std::sync::PoisonError;

/// Objects that launches use, which are dropped when the launches are complete.
///
/// The objects are dropped with this handle. Until then the release is deferred: it never blocks, unless
/// one of the objects is borrowed.
pub(crate) struct AfterLaunches<O> {
    launches: Mutex<Vec<LastUse>>,
    /// Whether the release must not be deferred, so that it waits instead.
    waits: bool,
    /// `None` only after they were leaked.
    objects: Mutex<Option<O>>,
}

/// Objects that launches use.
pub(crate) trait Used: Send + 'static {
    /// Leaks the host functions, because it is not known whether they run.
    fn leak_functions(&self);
}

/// What the release needs until it is done.
#[derive(Clone)]
struct Owners {
    context: Context,
    is_borrowed: bool,
}

impl AfterLaunches<()> {
    /// Returns a handle of the launches on these streams, for objects that they use. If one of these
    /// objects is borrowed, the release waits.
    #[inline]
    pub(crate) fn new(streams: Vec<Noted>, is_borrowed: bool) -> Self {
        let launches = streams.into_iter();
        let launches = launches.map(|Noted { stream, end }| LastUse::new(&stream, end));
        Self {
            launches: Mutex::new(launches.collect()),
            waits: is_borrowed,
            objects: Mutex::new(Some(())),
        }
    }

    /// Returns the handle of objects that the launches use.
    pub(crate) fn with_objects<O: Used>(self, objects: O) -> AfterLaunches<O> {
        AfterLaunches {
            launches: self.launches,
            waits: self.waits,
            objects: Mutex::new(Some(objects)),
        }
    }

    /// Records the events on the streams that are busy and not capturing. Returns the work that later work
    /// on the same memory must come after.
    #[inline]
    pub(crate) fn record(&mut self) -> Vec<Earlier> {
        let launches = self.launches.get_mut();
        let launches = launches.unwrap_or_else(PoisonError::into_inner).iter();
        launches
            .filter_map(|launched| match record(launched) {
                Ok(Progress::Complete) => None,
                Ok(Progress::Recorded) => Some(Earlier::Event(launched.end().clone())),
                // The event is recorded later.
                Ok(Progress::Unknown) | Err(_) => Some(Earlier::Stream(launched.stream().clone())),
            })
            .collect()
    }

    /// Returns whether work on a stream comes after all launches.
    #[inline]
    pub(crate) fn are_ordered_on(&self, stream: &Stream) -> bool {
        let launches = self.launches.lock().unwrap_or_else(PoisonError::into_inner);
        launches.iter().all(|its| its.progress() == Progress::Complete || its.stream() == stream)
    }
}

impl<O: Used> AfterLaunches<O> {
    fn objects(&self) -> MutexGuard<'_, Option<O>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the objects after the launches. `context` is that of the graph.
    pub(crate) fn release(self, context: &Context) {
        let owners = Owners { context: context.clone(), is_borrowed: self.waits };
        release(self, &owners);
    }
}

/// Finds out whether launches are complete, or else records their event.
///
/// # Errors
/// The stream is capturing; errors of the driver.
#[inline]
fn record(launches: &LastUse) -> Result<Progress> {
    let known = launches.progress();
    if known != Progress::Unknown || fork::in_child() || in_host_function() {
        return Ok(known);
    }
    let _call = launches.stream().uncaptured(Operation::Release)?;
    relaxed(|| launches.record())
}

/// Returns whether launches are complete.
///
/// # Errors
/// The stream is capturing; errors of the driver.
#[inline]
fn are_over(launches: &LastUse, waits: bool) -> Result<bool> {
    match record(launches)? {
        Progress::Complete => Ok(true),
        // An event that is not recorded counts as complete.
        Progress::Unknown => Ok(false),
        Progress::Recorded => relaxed(|| launches.is_over(waits)),
    }
}

impl<O: Used> Destroy for AfterLaunches<O> {
    fn name(&self) -> &'static str {
        "the objects of a graph"
    }

    /// Asks the driver whether the launches are complete. If it does not answer, the release is repeated
    /// later.
    unsafe fn destroy(&self) -> Answer {
        let answer = |code| Answer { call: "cuEventQuery", code };
        let mut launches = self.launches.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(its) = launches.last() {
            match are_over(its, self.waits) {
                Ok(true) => drop(launches.pop()),
                Err(Error::Driver(error)) if ends_all_work(error.code) => {
                    // A host function may still run.
                    if let Some(objects) = &*self.objects() {
                        objects.leak_functions();
                    }
                    launches.clear();
                }
                Ok(false) | Err(_) => return answer(CUresult::CUDA_ERROR_NOT_READY),
            }
        }
        answer(CUresult::CUDA_SUCCESS)
    }

    /// The calls are made in the relaxed capture mode, and refused calls are repeated. A wait is not
    /// permitted on callback threads.
    fn is_quiet(&self) -> bool {
        !self.waits
    }

    /// Leaks the objects, because launches may use them.
    fn has_leaked(&self, _: &dyn Keep) {
        std::mem::forget(self.objects().take());
    }
}

owners! {
    Owners |its| {
        context: Some(&its.context),
        is_borrowed: its.is_borrowed,
    }
}
