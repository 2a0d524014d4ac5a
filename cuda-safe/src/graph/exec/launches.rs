//! The streams on which an executable graph was launched, and the objects that retire: they are dropped after the
//! launches that use them.
//!
//! The streams are kept alive, and tell when the last launch is complete: an event is recorded on each of
//! them when the executable graph is dropped. A stream is noted before its first launch. A launch on the
//! stream that was admitted last costs one comparison.

use super::executable::Objects;
use crate::call::{Answer, Error, Invalid, Result, ends_all_work, fork, in_host_function};
use crate::capture_state::Operation;
use crate::context::Context;
use crate::event::{Event, LastUse, Progress};
use crate::graph::kind::Kind;
use crate::graph::nodes::allocation::Unfreed;
use crate::graph::rules::order::{Claim, EarlierWork};
use crate::graph::rules::owners::{ContentRef, Slots};
use crate::graph::{Content, Earlier, ExecutableGraph, Retained, kind};
use crate::release::{Destroy, Handle, Keep, destroy, owners, relaxed, release};
use crate::stream::{ExecutionContext, Partition, Stream};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, lock};
use cuda_sys::{CUgraphExec, CUresult};
use std::sync::{Arc, PoisonError};

/// The launches of an executable graph.
pub(crate) struct Launches {
    /// The identity of a noted stream whose launches come after all earlier work, or 0. In addition
    /// [`UNSAFE`] if safe code may not launch the graph, so that a launch compares only this. It is
    /// changed with the lock of `state`, so it never names a stream that is not in the list.
    admitted: AtomicU64,
    /// Whether each launch is checked, so that no stream is admitted.
    pub(crate) is_always_checked: bool,
    state: Mutex<State>,
}

struct State {
    streams: Vec<Noted>,
    /// The number of streams at which idle ones are removed.
    limit: usize,
    /// The work that launches must come after.
    earlier: EarlierWork,
}

/// A stream on which the executable graph was launched.
pub(crate) struct Noted {
    pub(crate) stream: Stream,
    /// The event that is recorded when the executable graph is dropped. It exists already, because a drop
    /// must not fail.
    pub(crate) end: Event,
}

/// The earlier work that a launch comes after: all entries below this number.
#[must_use]
pub(crate) struct Admitted(u64);

/// A bit that is 0 in the identities of streams, which are addresses.
const UNSAFE: u64 = 1;

/// The number of noted streams at which idle ones are removed for the first time. It is small with the
/// `explore` feature, so that few streams show every order of launches and removals.
const LIMIT: usize = if cfg!(feature = "explore") { 3 } else { 16 };

impl Launches {
    pub(crate) fn new(earlier: impl IntoIterator<Item = Earlier>) -> Self {
        let launches = Self {
            admitted: AtomicU64::new(0),
            state: Mutex::new(State {
                streams: Vec::new(),
                limit: LIMIT,
                earlier: EarlierWork::default(),
            }),
            is_always_checked: false,
        };
        launches.add_earlier(earlier);
        launches
    }

    /// Returns whether a stream is noted and its launches come after all earlier work, and safe code may
    /// launch the graph. The caller counts a call on the stream.
    #[inline(always)]
    pub(crate) fn is_admitted(&self, stream: &Stream) -> bool {
        self.admitted.load(Ordering::Acquire) == stream.identity()
    }

    /// Returns whether a stream is noted and its launches come after all earlier work. The caller counts a
    /// call on the stream.
    #[inline(always)]
    pub(crate) fn is_admitted_for_unsafe(&self, stream: &Stream) -> bool {
        self.admitted.load(Ordering::Acquire) & !UNSAFE == stream.identity()
    }

    /// Adds work that all launches from now on must come after.
    ///
    /// No launch is in progress.
    pub(crate) fn add_earlier(&self, earlier: impl IntoIterator<Item = Earlier>) {
        let mut replaced = Vec::new();
        {
            let mut state = lock(&self.state);
            self.admitted.store(0, Ordering::Release);
            for its in earlier {
                replaced.extend(state.earlier.add(its));
            }
        }
        drop(replaced);
    }

    /// Returns whether a stream is noted.
    ///
    /// # Errors
    /// [`Error::Forked`](crate::Error::Forked).
    #[inline]
    pub(crate) fn is_noted(&self, stream: &Stream) -> Result<bool> {
        fork::refuse_in_child()?;
        Ok(lock(&self.state).notes(stream))
    }

    /// Makes a stream wait for all earlier work, and notes it. The caller counts a call on the stream
    /// until the launch has returned.
    ///
    /// A borrowed stream is not noted, because it cannot be kept alive.
    ///
    /// # Errors
    /// Errors of the driver; a stream of the earlier work is capturing.
    #[cold]
    #[inline(never)]
    pub(crate) fn admit(&self, stream: &Stream) -> Result<Admitted> {
        fork::refuse_in_child()?;
        let (earlier, number, is_noted) = {
            let state = lock(&self.state);
            let (earlier, number) = state.earlier.all();
            (earlier, number, state.notes(stream))
        };
        earlier.iter().try_for_each(|its| its.precede(stream))?;
        if !is_noted && !stream.is_borrowed() {
            self.note(stream)?;
        }
        Ok(Admitted(number))
    }

    /// Forgets the earlier work that a successful launch came after, because the driver orders later
    /// launches after that launch. The next launch on the stream is admitted at once: that of safe code
    /// only if `is_owned` is set.
    #[inline]
    pub(crate) fn has_launched(&self, stream: &Stream, admitted: &Admitted, is_owned: bool) {
        let finished = {
            let mut state = lock(&self.state);
            // Another thread may have taken the stream out of the list to see whether it is idle. Another
            // object of the stream may be in the list, whose identity this one does not share.
            let is_noted = state.streams.iter().any(|noted| noted.is(stream));
            if is_noted && !self.is_always_checked {
                let mark = if is_owned { 0 } else { UNSAFE };
                let admitted = stream.identity() | mark;
                self.admitted.store(admitted, Ordering::Release);
            }
            state.earlier.remove_below(admitted.0)
        };
        // Dropped without the lock, because these may be the last clones.
        drop(finished);
    }

    /// Adds a stream to the list. If the list is long, removes idle streams.
    #[inline]
    fn note(&self, stream: &Stream) -> Result<()> {
        let noted = Noted { stream: stream.clone(), end: stream.context().event()? };
        let mut others = {
            let mut state = lock(&self.state);
            let others = match state.streams.len() >= state.limit {
                true => {
                    self.admitted.store(0, Ordering::Release);
                    std::mem::take(&mut state.streams)
                }
                false => Vec::new(),
            };
            state.streams.push(noted);
            others
        };
        if !others.is_empty() {
            others.retain(|noted| !is_over(noted));
            let mut state = lock(&self.state);
            state.streams.append(&mut others);
            state.limit = LIMIT.max(state.streams.len() * 2);
        }
        Ok(())
    }

    /// Makes a stream wait for all launches, and for the earlier work.
    ///
    /// No launch is in progress.
    ///
    /// # Errors
    /// Errors of the driver; one of the streams is capturing.
    #[inline]
    pub(crate) fn precede(&self, stream: &Stream) -> Result<()> {
        let work = self.all_work()?;
        work.iter().try_for_each(|its| its.precede(stream))
    }

    /// Blocks until all launches and the earlier work are complete.
    ///
    /// No launch is in progress.
    ///
    /// # Errors
    /// Errors of the work; one of the streams is capturing.
    #[inline]
    pub(crate) fn wait(&self) -> Result<()> {
        self.all_work()?.iter().try_for_each(Earlier::wait)
    }

    #[inline]
    fn all_work(&self) -> Result<Vec<Earlier>> {
        fork::refuse_in_child()?;
        let state = lock(&self.state);
        let (mut work, _) = state.earlier.all();
        let launched = state.streams.iter();
        work.extend(launched.map(|noted| Earlier::Stream(noted.stream.clone())));
        Ok(work)
    }

    /// Returns the streams, for objects that are dropped after the launches so far.
    #[inline]
    pub(crate) fn streams(&self) -> Vec<Stream> {
        let state = lock(&self.state);
        state.streams.iter().map(|noted| noted.stream.clone()).collect()
    }

    /// Takes the streams. Also returns whether launches came after all earlier work.
    #[inline]
    pub(crate) fn take(&mut self) -> (Vec<Noted>, bool) {
        let state = self.state.get_mut();
        let state = state.unwrap_or_else(PoisonError::into_inner);
        (std::mem::take(&mut state.streams), state.earlier.is_empty())
    }
}

impl State {
    /// Returns whether the list has the stream, perhaps as another object of the same handle.
    #[inline]
    fn notes(&self, stream: &Stream) -> bool {
        self.streams.iter().any(|noted| noted.stream == *stream)
    }
}

impl Noted {
    #[inline]
    fn is(&self, stream: &Stream) -> bool {
        self.stream.identity() == stream.identity()
    }
}

/// Returns whether all launches on a stream are complete, and each later one will note the stream again.
///
/// The stream is neither in the list nor admitted, so a launch notes it again. A launch that found it
/// there before is counted as a call on the stream until it has returned.
#[inline]
fn is_over(noted: &Noted) -> bool {
    // A launch whose call is counted after this one sees that the stream is not admitted: the end of this
    // call releases what was written before.
    drop(noted.stream.enter(Operation::Launch));
    let is_over = || {
        let call = noted.stream.uncaptured(Operation::Launch)?;
        // After the count, because a launch may have returned before it.
        Ok(call.seen().calls() == 0 && noted.stream.is_complete()?)
    };
    // The query would invalidate a capture of this thread otherwise.
    relaxed(is_over).unwrap_or(false)
}

/// Where the kernels of a graph run.
///
/// The driver runs a kernel in the context of its node. So a graph without a kernel in the green context
/// of its stream would use all SMs of the device, although the stream looks as if it confined the graph.
#[derive(Default)]
struct Kernels<'a> {
    /// Whether one of them runs in the green context of the stream.
    any_inside: bool,
    /// The context of a kernel outside of it.
    outside: Option<&'a ExecutionContext>,
}

impl ExecutableGraph {
    /// Checks that one of the kernels runs in the green context of the stream, if there is one, before the
    /// first launch on the stream.
    ///
    /// # Errors
    /// [`Invalid::OtherPartition`].
    #[inline]
    pub(crate) fn check_partition(&self, stream: &Stream) -> Result<()> {
        match stream.partition() {
            Some(partition) if !self.launches.is_noted(stream)? => self.check_kernels(&**partition),
            _ => Ok(()),
        }
    }

    #[cold]
    #[inline]
    fn check_kernels(&self, partition: &dyn Partition) -> Result<()> {
        let mut kernels = Kernels::default();
        let updated = self.objects.updated.as_deref();
        kernels.add(updated.unwrap_or(&self.objects.slots), partition);
        match kernels.outside {
            Some(outside) if !kernels.any_inside => Err(Invalid::OtherPartition {
                stream: describe(partition),
                kernel: match outside {
                    ExecutionContext::Context(context) => context.to_string(),
                    ExecutionContext::Green(green) => describe(&**green),
                },
            }
            .into()),
            _ => Ok(()),
        }
    }
}

impl<'a> Kernels<'a> {
    /// Adds the kernels of a graph. Those of a captured graph run in the contexts of its streams, and each
    /// of these is taken for that of a kernel. They follow the context of the graph itself, which an error
    /// names last.
    #[inline]
    fn add(&mut self, slots: &'a Slots, partition: &dyn Partition) {
        if slots.is_captured {
            slots.common.iter().rev().for_each(|its| self.add_object(its, partition));
        }
        for (_, node) in slots.iter() {
            self.add_node(node.content, partition);
        }
    }

    #[inline]
    fn add_node(&mut self, content: ContentRef<'a>, partition: &dyn Partition) {
        if let Some(child) = content.child {
            self.add(child, partition);
        }
        if content.node_type == kind::Kernel::TYPE {
            content.owners.iter().for_each(|its| self.add_object(its, partition));
        }
    }

    #[inline]
    fn add_object(&mut self, object: &'a Retained, partition: &dyn Partition) {
        match object {
            Retained::ExecutionContext(ExecutionContext::Green(its)) if its.is_same(partition) => {
                self.any_inside = true;
            }
            Retained::ExecutionContext(its) => self.outside = self.outside.or(Some(its)),
            // The green context of such a stream is not known.
            Retained::Stream(_) => self.any_inside = true,
            // A capture wraps its objects.
            Retained::Object(object) => {
                if let Some(object) = object.as_any().downcast_ref() {
                    self.add_object(object, partition);
                }
            }
            Retained::Event(_)
            | Retained::Kernel(_)
            | Retained::HostFunction(_)
            | Retained::Nothing => {}
        }
    }
}

/// Returns the description of a green context for messages.
#[inline]
fn describe(partition: &dyn Partition) -> String {
    format!("a green context of {} SMs on {}", partition.sm_count(), partition.context())
}

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
