//! Objects that are dropped after the launches that use them.

use super::executable::Objects;
use super::launches::Noted;
use crate::call::{Answer, Error, Result, ends_all_work, fork, in_host_function};
use crate::capture_state::Operation;
use crate::context::Context;
use crate::event::{LastUse, Progress};
use crate::graph::nodes::allocation::Unfreed;
use crate::graph::rules::order::Claim;
use crate::graph::rules::owners::Slots;
use crate::graph::{Content, Earlier};
use crate::release::{Destroy, Handle, Keep, destroy, owners, relaxed, release};
use crate::sync::{Mutex, lock};
use cuda_sys::{CUgraphExec, CUresult};
use std::sync::Arc;

/// The launches of an executable graph that is dropped, or whose nodes changed.
pub(crate) struct Launched {
    launches: Vec<LastUse>,
    /// Whether the release must not be deferred, so that it waits instead.
    waits: bool,
}

/// Objects that launches use, which are dropped when the launches are complete.
///
/// The objects are dropped with this handle. Until then the release is deferred: it never blocks, unless
/// one of the objects is borrowed.
pub(crate) struct AfterLaunches {
    launches: Mutex<Vec<LastUse>>,
    waits: bool,
    used: Mutex<Used>,
}

/// What launches use.
#[derive(Default)]
pub(crate) struct Used {
    /// The executable graph, if it is destroyed after its launches.
    ///
    /// Destroying most executable graphs waits for nothing, and running launches continue. With conditional
    /// nodes, the call waits for all running work, even of other streams, and for a graph that kernels can
    /// launch it waits for its own launches (driver 580). Such an executable graph enters the release queue
    /// first, so that a drop does not wait for its launches: a loop may never end.
    pub(crate) executable: Option<ClaimingHandle>,
    pub(crate) retired: Retired,
    pub(crate) objects: Option<Objects>,
    /// Memory that is freed when it is dropped.
    #[allow(dead_code, reason = "held, not read")]
    pub(crate) unfreed: Vec<Unfreed>,
}

/// The handle of an executable graph, which exists once at a time.
pub(crate) struct ClaimingHandle {
    pub(crate) raw: Handle<CUgraphExec>,
    /// The right to instantiate the graph, which ends when the executable graph is destroyed.
    #[allow(dead_code, reason = "held, not read")]
    pub(crate) claims: Vec<Claim>,
}

/// What the release needs until it is done.
#[derive(Clone)]
struct Owners {
    context: Context,
    is_borrowed: bool,
}

impl Launched {
    /// Returns the launches on these streams, for the release of objects that they use. If one of these
    /// objects is borrowed, the release waits.
    #[inline]
    pub(crate) fn new(streams: Vec<Noted>, waits: bool) -> Self {
        let launches = streams.into_iter();
        let launches = launches.map(|Noted { stream, end }| LastUse::new(&stream, end)).collect();
        Self { launches, waits }
    }

    /// Records the events on the streams that are busy and not capturing. Returns the work that later work
    /// on the same memory must come after.
    #[inline]
    pub(crate) fn record(&self) -> Vec<Earlier> {
        let launches = self.launches.iter();
        launches
            .filter_map(|launched| match record(launched) {
                Ok(Progress::Complete) => None,
                Ok(Progress::Recorded) => Some(Earlier::Event(launched.end().clone())),
                // The event is recorded later.
                Ok(Progress::Unknown) | Err(_) => Some(Earlier::Stream(launched.stream().clone())),
            })
            .collect()
    }

    /// Frees memory on the streams whose work comes after all launches. Returns the other memory.
    #[inline]
    pub(crate) fn free_now(&self, mut unfreed: Vec<Unfreed>) -> Vec<Unfreed> {
        unfreed.retain(|its| {
            self.launches.iter().any(|launches| {
                launches.progress() != Progress::Complete && launches.stream() != its.stream()
            })
        });
        unfreed
    }

    /// Drops what the launches use after them. `context` is that of the graph.
    #[inline]
    pub(crate) fn release(self, used: Used, context: &Context) {
        let Self { launches, waits } = self;
        let owners = Owners { context: context.clone(), is_borrowed: waits };
        let (launches, used) = (Mutex::new(launches), Mutex::new(used));
        release(AfterLaunches { launches, waits, used }, &owners);
    }
}

impl Used {
    /// Leaks the host functions, because it is not known whether they run.
    #[inline]
    fn leak_functions(&self) {
        self.retired.leak_functions();
        self.objects.iter().for_each(Objects::leak_functions);
    }
}

impl Drop for Used {
    #[inline]
    fn drop(&mut self) {
        if let (Some(executable), Some(objects)) = (self.executable.take(), &self.objects) {
            release(executable, objects);
        }
    }
}

destroy! {
    ClaimingHandle as "an executable graph";
    // SAFETY: the caller keeps the promise for this handle.
    |its| unsafe { its.raw.destroy() }
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

impl Destroy for AfterLaunches {
    #[inline]
    fn name(&self) -> &'static str {
        "the objects of a graph"
    }

    /// Asks the driver whether the launches are complete. If it does not answer, the release is repeated
    /// later.
    #[inline]
    unsafe fn destroy(&self) -> Answer {
        let answer = |code| Answer { call: "cuEventQuery", code };
        let mut launches = lock(&self.launches);
        while let Some(its) = launches.last() {
            match are_over(its, self.waits) {
                Ok(true) => drop(launches.pop()),
                Err(Error::Driver(error)) if ends_all_work(error.code) => {
                    // A host function may still run.
                    lock(&self.used).leak_functions();
                    launches.clear();
                }
                Ok(false) | Err(_) => return answer(CUresult::CUDA_ERROR_NOT_READY),
            }
        }
        answer(CUresult::CUDA_SUCCESS)
    }

    /// The calls are made in the relaxed capture mode, and refused calls are repeated. A wait is not
    /// permitted on callback threads.
    #[inline]
    fn is_quiet(&self) -> bool {
        !self.waits
    }

    /// Leaks the objects, because launches may use them.
    #[inline]
    fn has_leaked(&self, _: &dyn Keep) {
        std::mem::forget(std::mem::take(&mut *lock(&self.used)));
    }
}

owners! {
    Owners |its| {
        context: Some(&its.context),
        is_borrowed: its.is_borrowed,
    }
}

/// The number of nodes for which a replaced graph counts. Its objects may include much memory, so few graphs
/// stay alive until the release.
const NODES_OF_A_GRAPH: usize = 16;

/// Objects that earlier launches may use, and later ones do not.
#[derive(Clone, Default)]
pub(crate) struct Retired(pub(super) Vec<Replaced>);

/// The replaced objects of nodes.
#[derive(Clone)]
pub(crate) enum Replaced {
    /// Of one node.
    Node(Content),
    /// Of all nodes of a graph.
    Graph(Arc<Slots>),
}

impl Retired {
    /// Adds objects, unless they are there already: an executable graph may be updated from two graphs in
    /// turn.
    #[inline]
    pub(crate) fn add(&mut self, objects: Replaced) {
        let is_same = |its: &Replaced| match (its, &objects) {
            (Replaced::Graph(one), Replaced::Graph(other)) => Arc::ptr_eq(one, other),
            _ => false,
        };
        if !self.0.iter().any(is_same) {
            self.0.push(objects);
        }
    }

    /// Returns the number of replaced nodes.
    #[inline]
    pub(super) fn count(&self) -> usize {
        let nodes = self.0.iter().map(|objects| match objects {
            Replaced::Node(_) => 1,
            Replaced::Graph(_) => NODES_OF_A_GRAPH,
        });
        nodes.sum()
    }

    /// Releases the objects after the launches so far on these streams.
    #[inline]
    pub(crate) fn release_after(self, launches: Vec<Noted>, context: &Context) {
        let launched = Launched::new(launches, self.is_borrowed());
        // Recorded now, because later launches do not use the objects.
        let _ = launched.record();
        let (executable, objects, unfreed) = (None, None, Vec::new());
        launched.release(Used { executable, retired: self, objects, unfreed }, context);
    }

    #[inline]
    fn leak_functions(&self) {
        for objects in &self.0 {
            match objects {
                Replaced::Node(content) => content.by_ref().leak_functions(),
                Replaced::Graph(slots) => slots.leak_functions(),
            }
        }
    }

    /// Takes a panic of a host function that was not returned yet.
    ///
    /// # Errors
    /// [`Error::HostFunctionPanicked`](crate::Error::HostFunctionPanicked).
    #[inline]
    pub(crate) fn take_panic(&self) -> Result<()> {
        self.0.iter().try_for_each(|objects| match objects {
            Replaced::Node(content) => content.by_ref().take_panic(),
            Replaced::Graph(slots) => slots.take_panic(),
        })
    }

    /// Returns whether one of the objects is borrowed.
    #[inline]
    pub(crate) fn is_borrowed(&self) -> bool {
        self.0.iter().any(|objects| match objects {
            Replaced::Node(content) => content.by_ref().is_borrowed(),
            Replaced::Graph(slots) => slots.is_borrowed,
        })
    }
}
