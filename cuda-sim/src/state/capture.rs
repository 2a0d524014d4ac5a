//! Stream captures, and the calls that invalidate them.

mod recapture;

pub(crate) use recapture::Recapture;

use super::graph::Owner;
use super::graph::node::{Dependencies, Edge, Kind};
use super::{Answer, World};
use crate::exec::Work;
use crate::state::{INVALID, fail_if};
use crate::thread;
use cuda_sys::{CUresult, CUstreamCaptureMode as Mode, CUstreamCaptureStatus as Status};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::thread::ThreadId;

/// A capture of one or several streams that has not ended.
pub(crate) struct Capture {
    pub(crate) mode: Mode,
    pub(crate) thread: ThreadId,
    pub(crate) status: Status,
    /// The stream on which the capture began and must end.
    pub(crate) origin: usize,
    /// The streams that take part in the capture.
    pub(crate) streams: BTreeSet<usize>,
    /// The graph to which nodes are added.
    pub(crate) graph: usize,
    /// Set if the capture changes the existing nodes of the graph.
    pub(crate) recapture: Option<Recapture>,
}

/// The calls that a capture forbids: those of all threads, of the thread that began it, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Forbids {
    Everywhere(ThreadId),
    On(ThreadId),
    Nowhere,
}

impl Forbids {
    /// Returns whether calls of a thread in this mode are forbidden.
    fn concerns(self, thread: ThreadId, mode: Mode) -> bool {
        match (self, mode) {
            (Self::Nowhere, _) | (_, Mode::CU_STREAM_CAPTURE_MODE_RELAXED) => false,
            (Self::On(its), _) => its == thread,
            (Self::Everywhere(its), Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) => its == thread,
            (Self::Everywhere(_), _) => true,
        }
    }
}

/// The captures that forbid the same calls.
#[derive(Default)]
struct Group {
    count: usize,
    active: BTreeSet<u64>,
}

/// Captures that have not ended, by their ids.
#[derive(Default)]
pub(crate) struct Captures {
    all: BTreeMap<u64, Capture>,
    groups: HashMap<Forbids, Group>,
}

impl Captures {
    pub(crate) fn insert(&mut self, id: u64, capture: Capture) {
        let group = self.groups.entry(capture.forbids()).or_default();
        group.count += 1;
        group.active.insert(id);
        self.all.insert(id, capture);
    }

    pub(crate) fn get(&self, id: u64) -> Option<&Capture> {
        self.all.get(&id)
    }

    fn get_mut(&mut self, id: u64) -> Option<&mut Capture> {
        self.all.get_mut(&id)
    }

    fn remove(&mut self, id: u64) -> Option<Capture> {
        let capture = self.all.remove(&id)?;
        if let Some(group) = self.groups.get_mut(&capture.forbids()) {
            group.count -= 1;
            group.active.remove(&id);
            if group.count == 0 {
                self.groups.remove(&capture.forbids());
            }
        }
        Some(capture)
    }

    fn invalidate(&mut self, id: u64) {
        if let Some(capture) = self.all.get_mut(&id) {
            capture.status = Status::CU_STREAM_CAPTURE_STATUS_INVALIDATED;
            if let Some(group) = self.groups.get_mut(&capture.forbids()) {
                group.active.remove(&id);
            }
        }
    }

    /// Invalidates the captures that forbid a call of a thread in this mode. Returns whether there were any.
    fn invalidate_concerning(&mut self, thread: ThreadId, mode: Mode) -> bool {
        let mut ids = Vec::new();
        let mut were_any = false;
        for (forbids, group) in &mut self.groups {
            if forbids.concerns(thread, mode) {
                were_any = true;
                ids.extend(std::mem::take(&mut group.active));
            }
        }
        ids.into_iter().for_each(|id| self.invalidate(id));
        were_any
    }
}

impl Capture {
    fn forbids(&self) -> Forbids {
        match self.mode {
            Mode::CU_STREAM_CAPTURE_MODE_GLOBAL => Forbids::Everywhere(self.thread),
            Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL => Forbids::On(self.thread),
            _ => Forbids::Nowhere,
        }
    }
}

/// A position in a capture. For a stream, the nodes that its next node depends on. For an event, the
/// nodes that it records.
#[derive(Clone, Debug)]
pub(crate) struct Branch {
    /// The capture, which may have ended.
    pub(crate) capture: u64,
    pub(crate) last: Dependencies,
}

impl World {
    /// Returns the capture that records the work of a stream, if any.
    pub(crate) fn recording(&mut self, stream: usize) -> Answer<Option<u64>> {
        let branch = self.objects.streams.get(stream).and_then(|its| its.capture.as_ref());
        let Some(id) = branch.map(|branch| branch.capture) else {
            return Ok(None);
        };
        if self.capture_status(stream) != Status::CU_STREAM_CAPTURE_STATUS_ACTIVE {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        }
        Ok(Some(id))
    }

    pub(crate) fn capture_status(&self, stream: usize) -> Status {
        let branch = self.objects.streams.get(stream).and_then(|its| its.capture.as_ref());
        branch.map_or(Status::CU_STREAM_CAPTURE_STATUS_NONE, |branch| {
            let capture = self.objects.captures.get(branch.capture);
            capture.map_or(Status::CU_STREAM_CAPTURE_STATUS_INVALIDATED, |its| its.status)
        })
    }

    /// Enqueues work on a stream, or adds it to the graph if the stream is capturing. Work that is no node
    /// of a graph invalidates the capture.
    pub(crate) fn give_or_capture(&mut self, stream: usize, work: Work) -> Answer {
        let Some(id) = self.recording(stream)? else {
            self.give(stream, work, Vec::new());
            return Ok(());
        };
        match Kind::of_work(work) {
            Some(kind) => self.capture_node(id, stream, kind),
            None => {
                self.break_capture(id);
                Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
            }
        }
    }

    /// Adds the next node of a capturing stream.
    pub(crate) fn capture_node(&mut self, id: u64, stream: usize, kind: Kind) -> Answer {
        let its = self.objects.streams.get(stream);
        let (context, green) = its.map_or((None, None), |its| (Some(its.context), its.green));
        let needs = self.needs_of(context, green, &kind);
        let branch = self.objects.streams.get(stream).and_then(|its| its.capture.clone());
        let (Some(branch), Some(capture)) = (branch, self.objects.captures.get(id)) else {
            return Ok(());
        };
        if capture.recapture.is_some() {
            return self.recapture_node(id, stream, (kind, needs), branch.last);
        }
        let node = self.add_node(capture.graph, kind, needs, branch.last);
        self.set_branch(stream, vec![(node, Edge::default())]);
        Ok(())
    }

    /// Sets the nodes that the next node of a capturing stream depends on.
    pub(crate) fn set_branch(&mut self, stream: usize, last: Dependencies) {
        let its = self.objects.streams.get_mut(stream);
        if let Some(branch) = its.and_then(|its| its.capture.as_mut()) {
            branch.last = last;
        }
    }

    /// Makes the next work of a stream depend on the work before an event. The stream joins the capture
    /// of the event.
    pub(crate) fn join_capture(&mut self, stream: usize, event: &Branch) -> Answer {
        let capture = self.objects.captures.get(event.capture);
        match capture.map(|capture| capture.status) {
            // Measured: after the capture, the event cannot be used until it is recorded again.
            None => return Err(INVALID),
            Some(Status::CU_STREAM_CAPTURE_STATUS_ACTIVE) => {}
            Some(_) => return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
        }
        if self.objects.streams.get(stream).is_some_and(|its| its.is_legacy) {
            self.break_capture(event.capture);
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        }
        let own = self.recording(stream)?;
        if let Some(other) = own.filter(|own| *own != event.capture) {
            self.break_capture(other);
            self.break_capture(event.capture);
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_MERGE);
        }
        if own.is_none() {
            self.enter_capture(stream, event.capture);
        }
        let its = self.objects.streams.get_mut(stream);
        if let Some(branch) = its.and_then(|its| its.capture.as_mut()) {
            for (node, edge) in &event.last {
                if branch.last.iter().all(|(its, _)| its != node) {
                    branch.last.push((*node, *edge));
                }
            }
        }
        Ok(())
    }

    /// Returns whether the capture of an event has ended.
    pub(crate) fn is_over(&self, event: &Branch) -> bool {
        self.objects.captures.get(event.capture).is_none()
    }

    pub(crate) fn break_capture(&mut self, id: u64) {
        self.objects.captures.invalidate(id);
    }

    /// Returns the captures of blocking streams of a context. They forbid the legacy default stream.
    fn captures_of_blocking(&self, context: usize) -> Vec<u64> {
        let streams = self.objects.members.capturing.of(context);
        let branches = streams.filter_map(|its| self.objects.streams.get(its)?.capture.as_ref());
        branches.map(|branch| branch.capture).collect()
    }

    /// Returns a stream whose capture is queried. Measured: a query of the legacy default stream while a
    /// blocking stream is capturing fails, but does not invalidate the capture.
    pub(crate) fn stream_of_query(&mut self, handle: usize) -> Answer<usize> {
        let is_legacy = match handle {
            0 => !thread::has_per_thread_default(),
            handle => handle == cuda_sys::CU_STREAM_LEGACY.addr(),
        };
        if is_legacy {
            let context = self.owner_of(self.current()?)?;
            let is_free = self.captures_of_blocking(context).is_empty();
            fail_if(!is_free, CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)?;
        }
        self.stream(handle)
    }

    /// Fails for work on the legacy default stream of a context while a blocking stream of the context is
    /// capturing, and invalidates the capture (measured).
    pub(crate) fn forbidden_on_legacy(&mut self, context: usize) -> Answer {
        let captures = self.captures_of_blocking(context);
        if captures.is_empty() {
            return Ok(());
        }
        captures.into_iter().for_each(|id| self.break_capture(id));
        Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
    }

    /// Called by a function that captures may forbid. If a capture forbids it on this thread, returns an
    /// error and invalidates these captures.
    pub(crate) fn forbidden_in_capture(&mut self) -> Answer {
        let were_any = self.objects.captures.invalidate_concerning(thread::id(), thread::mode());
        fail_if(were_any, CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    }

    /// Fails a wait for, or a query of, a stream that is capturing, and invalidates the capture.
    pub(crate) fn forbidden_on_capturing(&mut self, stream: usize) -> Answer {
        let branch = self.objects.streams.get(stream).and_then(|its| its.capture.as_ref());
        let Some(id) = branch.map(|branch| branch.capture) else {
            return Ok(());
        };
        self.break_capture(id);
        Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    }

    /// Fails a wait for, or a query of, an event that was recorded in a capture, and invalidates the
    /// capture.
    pub(crate) fn forbidden_on_captured(&mut self, event: usize) -> Answer {
        let captured = self.not_captured(event);
        if let Some(branch) = self.event(event)?.captured.clone() {
            self.break_capture(branch.capture);
        }
        captured
    }

    /// Fails if the last record of an event is part of a capture.
    pub(crate) fn not_captured(&self, event: usize) -> Answer {
        match self.event(event)?.captured.as_ref() {
            None => Ok(()),
            // Measured: after the capture and in an invalid one, the event cannot be used until it is recorded
            // again.
            Some(branch) => {
                let capture = self.objects.captures.get(branch.capture);
                let is_active =
                    |its: &Capture| its.status == Status::CU_STREAM_CAPTURE_STATUS_ACTIVE;
                Err(match capture.is_some_and(is_active) {
                    true => CUresult::CUDA_ERROR_CAPTURED_EVENT,
                    false => INVALID,
                })
            }
        }
    }

    /// Returns the nodes `last` and all nodes that they depend on.
    fn up_to(&self, last: &Dependencies) -> BTreeSet<usize> {
        let mut found = BTreeSet::new();
        let mut open: Vec<usize> = last.iter().map(|(node, _)| *node).collect();
        while let Some(node) = open.pop() {
            if found.insert(node) {
                let its = self.objects.nodes.get(node);
                open.extend(its.into_iter().flat_map(|its| its.after.keys()));
            }
        }
        found
    }

    /// Ends the capture that began on a stream and returns its graph. A capture that fails destroys its
    /// graph, even if the program created it (measured).
    pub(crate) fn end_capture(&mut self, stream: usize) -> Answer<usize> {
        let branch = self.objects.streams.get(stream).and_then(|its| its.capture.clone());
        let branch = branch.ok_or(CUresult::CUDA_ERROR_ILLEGAL_STATE)?;
        let capture = self.objects.captures.get(branch.capture);
        let capture = capture.ok_or(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)?;
        if capture.origin != stream {
            // Measured: the capture is invalid then.
            self.break_capture(branch.capture);
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
        }
        let is_invalid = capture.status != Status::CU_STREAM_CAPTURE_STATUS_ACTIVE;
        let may_move = capture.mode == Mode::CU_STREAM_CAPTURE_MODE_RELAXED;
        if !may_move && !is_invalid && capture.thread != thread::id() {
            // Measured: the capture is over.
            self.drop_capture(branch.capture);
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
        }
        let (graph, status) = (capture.graph, capture.status);
        let joined = self.up_to(&branch.last);
        let is_joined = capture.streams.iter().all(|stream| {
            let its = self.objects.streams.get(*stream);
            let own = its.and_then(|its| its.capture.as_ref());
            own.is_none_or(|own| own.last.iter().all(|(node, _)| joined.contains(node)))
        });
        let recapture = capture.recapture.as_ref();
        let is_whole = recapture.is_none_or(|its| its.left.is_empty());
        let code = match status {
            Status::CU_STREAM_CAPTURE_STATUS_ACTIVE if !is_whole => {
                CUresult::CUDA_ERROR_GRAPH_RECAPTURE_FAILURE
            }
            Status::CU_STREAM_CAPTURE_STATUS_ACTIVE if is_joined => {
                self.forget_capture(branch.capture);
                // The body of a conditional node stays with its node.
                if self.objects.graphs.get(graph).is_some_and(|its| its.owner == Owner::Capture) {
                    self.set_graph_owner(graph, Owner::Program);
                }
                return Ok(graph);
            }
            Status::CU_STREAM_CAPTURE_STATUS_ACTIVE => CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
            _ => CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
        };
        self.drop_capture(branch.capture);
        Err(code)
    }

    /// Removes a capture from its streams.
    fn forget_capture(&mut self, id: u64) -> Option<Capture> {
        let capture = self.objects.captures.remove(id)?;
        for handle in &capture.streams {
            if let Some(stream) = self.objects.streams.get_mut(*handle) {
                stream.capture = None;
                self.objects.members.capturing.remove(stream.context, *handle);
                self.objects.members.captured.remove(stream.home(), *handle);
            }
        }
        if let Some(graph) = self.objects.graphs.get_mut(capture.graph) {
            graph.capture = None;
        }
        Some(capture)
    }

    /// Removes a capture from its streams, and destroys its graph. The graph of a recapture is undefined
    /// then, and the program destroys it. The graph around a body is undefined too (unverified).
    fn drop_capture(&mut self, id: u64) {
        let Some(capture) = self.forget_capture(id) else {
            return;
        };
        let root = self.root_of(capture.graph);
        let is_undefined = root != capture.graph || capture.recapture.is_some();
        if let Some(root) = self.objects.graphs.get_mut(root) {
            root.is_undefined = is_undefined;
        }
        if capture.recapture.is_none() {
            self.remove_graph(capture.graph);
        }
    }

    /// Makes a stream take part in a capture.
    pub(crate) fn enter_capture(&mut self, handle: usize, id: u64) {
        if let Some(stream) = self.objects.streams.get_mut(handle) {
            stream.capture = Some(Branch { capture: id, last: Vec::new() });
            if stream.blocking {
                self.objects.members.capturing.insert(stream.context, handle);
            }
            self.objects.members.captured.insert(stream.home(), handle);
        }
        if let Some(capture) = self.objects.captures.get_mut(id) {
            capture.streams.insert(handle);
        }
    }

    /// Handles the destruction of a stream. If a capture began on this stream, it is removed, because it
    /// cannot be ended. If the stream joined a capture, the capture stays valid while another of its streams
    /// comes after the work of this stream (from a test of NVIDIA). Otherwise the capture becomes invalid
    /// (unverified).
    pub(crate) fn leave_capture(&mut self, stream: usize) {
        let Some(its) = self.objects.streams.get_mut(stream) else {
            return;
        };
        let (context, home) = (its.context, its.home());
        let Some(Branch { capture: id, last }) = its.capture.take() else {
            return;
        };
        self.objects.members.capturing.remove(context, stream);
        self.objects.members.captured.remove(home, stream);
        let Some(capture) = self.objects.captures.get_mut(id) else {
            return;
        };
        capture.streams.remove(&stream);
        if capture.origin == stream {
            self.break_capture(id);
            self.drop_capture(id);
            return;
        }
        let others: Vec<usize> = capture.streams.iter().copied().collect();
        let is_joined = others.into_iter().any(|other| {
            let its = self.objects.streams.get(other);
            let its = its.and_then(|its| its.capture.as_ref());
            let joined = its.map(|its| self.up_to(&its.last));
            joined.is_some_and(|joined| last.iter().all(|(node, _)| joined.contains(node)))
        });
        if !is_joined {
            self.break_capture(id);
        }
    }
}
