//! What is known about the nodes of a graph until they change.

use super::{ContentRef, Slots};
use crate::call::{Invalid, Result};
use crate::graph::NodeId;
use crate::graph::rules::access::{
    Access, Checked, NotAllocated, Unordered, are_evidently_ordered, check,
};
use std::sync::atomic::{AtomicBool, Ordering};

/// What is known to follow from the nodes alone.
#[derive(Default)]
pub(super) struct Facts {
    /// The accesses are ordered, in a graph that is not nested.
    are_accesses_ordered: AtomicBool,
    /// A launch need not come after events.
    has_no_events: AtomicBool,
}

impl Clone for Facts {
    #[inline]
    fn clone(&self) -> Self {
        let copy = |fact: &AtomicBool| AtomicBool::new(fact.load(Ordering::Relaxed));
        Self {
            are_accesses_ordered: copy(&self.are_accesses_ordered),
            has_no_events: copy(&self.has_no_events),
        }
    }
}

impl Slots {
    /// Checks that the accesses to the memory of the graph are ordered, in child graphs too. `changed`
    /// is the content that replaces that of a node.
    ///
    /// # Errors
    /// [`Invalid::UnorderedAccess`]; [`Invalid::UnallocatedAccess`]; [`Invalid::GraphCycle`].
    #[inline]
    pub(crate) fn check_accesses(&self, changed: Option<(NodeId, ContentRef<'_>)>) -> Result<()> {
        self.check_level(changed, false)?;
        if changed.is_none() {
            self.slots.facts.are_accesses_ordered.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Checks the accesses in a graph, which may be nested in another one.
    #[inline]
    fn check_level(
        &self,
        changed: Option<(NodeId, ContentRef<'_>)>,
        is_nested: bool,
    ) -> Result<()> {
        // What is valid in a graph that is not nested is valid in one that is.
        if changed.is_none() && self.slots.facts.are_accesses_ordered.load(Ordering::Relaxed) {
            return Ok(());
        }
        if changed.is_none() && !self.slots.has_rest {
            // Without a list of all nodes.
            let edges = self.slots.iter().map(|slot| &*slot.before);
            if are_evidently_ordered(self.slots.accesses(), edges) {
                return Ok(());
            }
        }
        let content = |index: usize| match changed {
            Some((id, content)) if id.index() == index => Some(content),
            _ => Some(self.slots.node(self.slots[index].node.as_ref()?).content),
        };
        let mut of_children: Vec<(usize, Vec<Access>)> = Vec::new();
        for index in 0..self.slots.len() {
            let child = content(index).and_then(|content| content.child);
            if let Some(child) = child {
                // The nodes of a child graph do not change.
                if changed.is_none() {
                    child.check_level(None, true)?;
                }
                let mut accesses = Vec::new();
                child.each_access(&mut |access| accesses.push(access.clone()));
                of_children.push((index, accesses));
            }
        }
        let mut of_children = of_children.iter().peekable();
        let nodes = self.slots.iter().enumerate().map(|(index, slot)| Checked {
            before: &slot.before,
            accesses: match of_children.next_if(|(child, _)| *child == index) {
                Some((_, accesses)) => accesses,
                None => content(index).map_or(&[], |content| content.accesses),
            },
        });
        let nodes: Vec<_> = nodes.collect();
        check(&nodes, is_nested).map_err(|unordered| match unordered {
            Unordered::Cycle(node) => {
                Invalid::GraphCycle { node: self.describe_index(node) }.into()
            }
            Unordered::Conflict { first, second, buffer } => Invalid::UnorderedAccess {
                first: self.describe_index(first),
                second: self.describe_index(second),
                buffer,
            }
            .into(),
            Unordered::NotAllocated { node, buffer, why } => Invalid::UnallocatedAccess {
                node: self.describe_index(node),
                allocation: buffer,
                problem: match why {
                    NotAllocated::Yet => "its allocation node comes later",
                    NotAllocated::Anymore => "a free node comes earlier",
                    NotAllocated::Ever => "its allocation node is not in this graph",
                },
            }
            .into(),
        })
    }

    /// Returns whether a launch must come after events, because of nodes here or in child graphs.
    #[inline]
    pub(super) fn has_events(&self) -> bool {
        let known = &self.slots.facts.has_no_events;
        if !self.slots.has_rest || known.load(Ordering::Relaxed) {
            return false;
        }
        let has_events = self.iter().any(|(_, node)| {
            let child = node.content.child;
            !node.content.after.is_empty() || child.is_some_and(|child| child.has_events())
        });
        known.store(!has_events, Ordering::Relaxed);
        has_events
    }
}
