//! Objects that a graph references but does not own. If one of them was destroyed before the graph is
//! instantiated or launched, a real driver crashes (measured), or continues with another object at that
//! address.

use super::graph::copy::CopyNode;
use super::graph::node::Kind;
use super::{Answer, World};
use crate::account::misuse;
use crate::memory::{HostKind, Kind as MemoryKind};
use crate::state::INVALID;
use cuda_sys::CUresult;

/// These codes are unverified, because a real driver crashes.
const DESTROYED: CUresult = CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED;

/// The objects that a node references beside those in its parameters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Needs {
    /// Contexts by handle and id, because the handle of a primary context is reused.
    contexts: Vec<(usize, u64)>,
    green: Option<usize>,
    /// Pinned source memory of copies that the driver allocated, by address and id.
    pinned: Option<(usize, u64)>,
}

impl World {
    /// Returns the objects that a node references now, if it runs in a context (if that is known) and in
    /// a green context.
    pub(crate) fn needs_of(
        &self,
        context: Option<usize>,
        green: Option<usize>,
        kind: &Kind,
    ) -> Needs {
        let copy = match kind {
            Kind::Copy(copy) => Some(copy),
            _ => None,
        };
        let mut contexts: Vec<usize> = context.into_iter().collect();
        contexts.extend(copy.into_iter().flat_map(|copy| self.contexts_of_copy(copy)));
        let id = |context: usize| Some((context, self.objects.contexts.get(context)?.id));
        Needs {
            contexts: contexts.into_iter().filter_map(id).collect(),
            green,
            pinned: copy.and_then(|copy| self.pinned_source(copy)),
        }
    }

    /// Returns the contexts of synchronous memory that a copy on the device uses (measured: that of the
    /// source, and that of a target on another device). Pool memory has no context.
    fn contexts_of_copy(&self, copy: &CopyNode) -> Vec<usize> {
        let sides = [&copy.from, &copy.to];
        if copy.hosts(&self.objects.memory).contains(&true) {
            return Vec::new();
        }
        let memory = sides.map(|side| self.objects.memory.containing(side.start()));
        let memory = memory.into_iter().flatten().map(|(_, its)| its);
        let plain = memory.filter(|its| its.kind == MemoryKind::Plain);
        plain.map(|its| its.context).collect()
    }

    /// Registered memory is not included: if it was unregistered, the copy fails when it runs
    /// (measured).
    fn pinned_source(&self, copy: &CopyNode) -> Option<(usize, u64)> {
        if !copy.from.is_host(&self.objects.memory) {
            return None;
        }
        let start = usize::try_from(copy.from.start()).ok()?;
        let (start, host) = self.objects.memory.host_at(start)?;
        matches!(host.kind, HostKind::Pinned(_)).then_some((start, host.id))
    }

    /// Fails if a node references a destroyed object. `how` says what happens to the graph.
    pub(crate) fn check_node<'a>(&self, kind: &'a Kind, needs: &'a Needs, how: &str) -> Answer {
        self.check_contexts(needs, how)?;
        self.check_green(needs, how)?;
        self.check_pinned(needs, how)?;
        self.check_kind(kind, how)
    }

    /// Fails if a graph is destroyed after a context of a node.
    pub(crate) fn check_contexts(&self, needs: &Needs, how: &str) -> Answer {
        let is_alive = |(context, id): &(usize, u64)| {
            let its = self.objects.contexts.get(*context);
            its.is_some_and(|its| its.id == *id)
        };
        if needs.contexts.iter().all(is_alive) {
            return Ok(());
        }
        misuse(format!("a graph is {how} after the context of a node was destroyed"));
        Err(DESTROYED)
    }

    fn check_green(&self, needs: &Needs, how: &str) -> Answer {
        if needs.green.is_none_or(|its| self.objects.greens.get(its).is_some()) {
            return Ok(());
        }
        misuse(format!("a graph is {how} after the green context of a node was destroyed"));
        Err(DESTROYED)
    }

    fn check_pinned(&self, needs: &Needs, how: &str) -> Answer {
        let is_alive = |(start, id): (usize, u64)| {
            let host = self.objects.memory.host_at(start);
            host.is_some_and(|(_, host)| host.id == id)
        };
        if needs.pinned.is_none_or(is_alive) {
            return Ok(());
        }
        misuse(format!("a graph is {how} after the pinned source of a copy was freed"));
        Err(INVALID)
    }

    pub(crate) fn check_kind(&self, kind: &Kind, how: &str) -> Answer {
        match kind {
            Kind::Record(event) | Kind::Wait(event) => {
                if self.objects.events.get(*event).is_some() {
                    return Ok(());
                }
                misuse(format!("a graph is {how} after the event of a node was destroyed"));
                Err(INVALID)
            }
            Kind::Signal(its) | Kind::Await(its) => {
                let is_alive = |(semaphore, ..): &(usize, u64, u32)| {
                    self.objects.externals.semaphores.get(*semaphore).is_some()
                };
                if its.list.iter().all(is_alive) {
                    return Ok(());
                }
                misuse(format!("a graph is {how} after the semaphore of a node was destroyed"));
                Err(INVALID)
            }
            Kind::Kernel(its) => {
                let module = its.call.kernel.module;
                let library = self.objects.libraries.get(module);
                if self.objects.modules.get(module).or(library).is_some() {
                    return Ok(());
                }
                misuse(format!("a graph is {how} after the module of a kernel was unloaded"));
                Err(INVALID)
            }
            _ => Ok(()),
        }
    }
}
