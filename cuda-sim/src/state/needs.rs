//! Objects that a graph references but does not own. If one of them was destroyed before the graph is
//! instantiated or launched, a real driver crashes (measured), or continues with another object at that
//! address.

use super::capture::Node;
use super::objects::Executable;
use super::{Answer, World};
use crate::account::misuse;
use crate::exec::Work;
use crate::memory::{HostKind, Kind};
use cuda_sys::CUresult;

/// These codes are unverified, because a real driver crashes.
const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
const DESTROYED: CUresult = CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED;

/// The objects that a node references beside those in its work.
#[derive(Clone, Debug, Default)]
pub(crate) struct Needs {
    /// Contexts by handle and id, because the handle of a primary context is reused.
    contexts: Vec<(usize, u64)>,
    green: Option<usize>,
    /// Pinned source memory of copies that the driver allocated, by address and id.
    pinned: Vec<(usize, u64)>,
}

impl World {
    /// Returns the objects that a node references, at the time of its capture.
    pub(crate) fn needs_of(&self, stream: usize, work: &Work) -> Needs {
        let its = self.streams.get(stream);
        let mut contexts: Vec<usize> = its.map(|its| its.context).into_iter().collect();
        contexts.extend(self.contexts_of_copies(work));
        let id = |context: usize| Some((context, self.contexts.get(context)?.id));
        Needs {
            contexts: contexts.into_iter().filter_map(id).collect(),
            green: its.and_then(|its| its.green),
            pinned: self.pinned_sources(work),
        }
    }

    /// Returns the contexts of synchronous memory that a copy uses (measured: that of the source, and
    /// that of a target on another device). Pool memory has no context.
    fn contexts_of_copies(&self, work: &Work) -> Vec<usize> {
        match work {
            Work::CopyOnDevice { from, to, .. } => {
                let memory = [*from, *to].map(|address| self.memory.containing(address));
                let memory = memory.into_iter().flatten().map(|(_, its)| its);
                let plain = memory.filter(|its| its.kind == Kind::Plain);
                plain.map(|its| its.context).collect()
            }
            Work::All(parts) => parts
                .iter()
                .flat_map(|its| self.contexts_of_copies(its))
                .collect(),
            _ => Vec::new(),
        }
    }

    /// Registered memory is not included: if it was unregistered, the copy fails when it runs
    /// (measured).
    fn pinned_sources(&self, work: &Work) -> Vec<(usize, u64)> {
        match work {
            Work::CopyInPinned { from, .. } => {
                let host = self.memory.host_at(*from);
                let host = host.filter(|(_, host)| matches!(host.kind, HostKind::Pinned(_)));
                host.map(|(start, host)| (start, host.id))
                    .into_iter()
                    .collect()
            }
            // A 2-D or 3-D copy consists of copies of its rows.
            Work::All(parts) => {
                let mut all: Vec<_> = parts
                    .iter()
                    .flat_map(|its| self.pinned_sources(its))
                    .collect();
                all.dedup();
                all
            }
            _ => Vec::new(),
        }
    }

    /// Fails if a node references a destroyed object. `how` says what happens to the graph.
    pub(crate) fn check_nodes(&self, nodes: &[Node], how: &str) -> Answer {
        for node in nodes {
            self.check_contexts(&node.needs, how)?;
            self.check_green(&node.needs, how)?;
            self.check_pinned(&node.needs, how)?;
            self.check_work(&node.work, how)?;
        }
        Ok(())
    }

    /// Fails if an executable graph is destroyed after a context of its nodes.
    pub(crate) fn check_destruction(&self, executable: &Executable) -> Answer {
        let mut nodes = executable.nodes.iter();
        nodes.try_for_each(|node| self.check_contexts(&node.needs, "destroyed"))
    }

    fn check_contexts(&self, needs: &Needs, how: &str) -> Answer {
        let is_alive = |(context, id): &(usize, u64)| {
            let its = self.contexts.get(*context);
            its.is_some_and(|its| its.id == *id)
        };
        if needs.contexts.iter().all(is_alive) {
            return Ok(());
        }
        misuse(format!(
            "a graph is {how} after the context of a node was destroyed"
        ));
        Err(DESTROYED)
    }

    fn check_green(&self, needs: &Needs, how: &str) -> Answer {
        if needs.green.is_none_or(|its| self.greens.get(its).is_some()) {
            return Ok(());
        }
        misuse(format!(
            "a graph is {how} after the green context of a node was destroyed"
        ));
        Err(DESTROYED)
    }

    fn check_pinned(&self, needs: &Needs, how: &str) -> Answer {
        let is_alive = |(start, id): &(usize, u64)| {
            let host = self.memory.host_at(*start);
            host.is_some_and(|(_, host)| host.id == *id)
        };
        if needs.pinned.iter().all(is_alive) {
            return Ok(());
        }
        misuse(format!(
            "a graph is {how} after the pinned source of a copy was freed"
        ));
        Err(INVALID)
    }

    fn check_work(&self, work: &Work, how: &str) -> Answer {
        match work {
            Work::Record { event } | Work::WaitFor { event } => {
                if self.events.get(*event).is_some() {
                    return Ok(());
                }
                misuse(format!(
                    "a graph is {how} after the event of a node was destroyed"
                ));
                Err(INVALID)
            }
            Work::Kernel(call) => {
                let module = call.kernel.module;
                let library = self.libraries.get(module);
                if self.modules.get(module).or(library).is_some() {
                    return Ok(());
                }
                misuse(format!(
                    "a graph is {how} after the module of a kernel was unloaded"
                ));
                Err(INVALID)
            }
            // A 2-D or 3-D copy consists of copies of its rows.
            Work::All(parts) => parts.iter().try_for_each(|part| self.check_work(part, how)),
            _ => Ok(()),
        }
    }
}
