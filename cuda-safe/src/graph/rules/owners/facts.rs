//! What is known about the nodes of a graph until they change.

use super::{Content, Slot, Slots};
use crate::call::{Invalid, Result};
use crate::graph::NodeId;
use crate::graph::rules::access::{Access, Checked, NotAllocated, Unordered, check};
use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;

/// The slots of a graph. Each mutable access forgets what is known about them, so that no change can keep
/// it. The nodes of child graphs and bodies are reached through these slots too.
#[derive(Clone, Default)]
pub(super) struct SlotList {
    slots: Vec<Slot>,
    facts: Facts,
}

/// What follows from the slots alone.
#[derive(Clone, Default)]
struct Facts {
    /// Set after the accesses were found to be ordered, in a graph that is not nested.
    are_accesses_ordered: OnceLock<()>,
    has_events: OnceLock<bool>,
    has_bare_nodes: OnceLock<bool>,
}

impl Deref for SlotList {
    type Target = Vec<Slot>;

    #[inline]
    fn deref(&self) -> &Vec<Slot> {
        &self.slots
    }
}

impl DerefMut for SlotList {
    #[inline]
    fn deref_mut(&mut self) -> &mut Vec<Slot> {
        self.facts = Facts::default();
        &mut self.slots
    }
}

impl Slots {
    /// Checks that the accesses to the memory of the graph are ordered, in child graphs too. `changed`
    /// is the content that replaces that of a node.
    ///
    /// # Errors
    /// [`Invalid::UnorderedAccess`]; [`Invalid::UnallocatedAccess`]; [`Invalid::GraphCycle`].
    #[inline]
    pub(crate) fn check_accesses(&self, changed: Option<(NodeId, &Content)>) -> Result<()> {
        self.check_level(changed, false)?;
        if changed.is_none() {
            let _ = self.slots.facts.are_accesses_ordered.set(());
        }
        Ok(())
    }

    /// Checks the accesses in a graph, which may be nested in another one.
    #[inline]
    fn check_level(&self, changed: Option<(NodeId, &Content)>, is_nested: bool) -> Result<()> {
        // What is valid in a graph that is not nested is valid in one that is.
        if changed.is_none() && self.slots.facts.are_accesses_ordered.get().is_some() {
            return Ok(());
        }
        let content = |index: usize| match changed {
            Some((id, content)) if id.index() == index => Some(content),
            _ => Some(&self.slots[index].node.as_ref()?.content),
        };
        let mut of_children: Vec<(usize, Vec<Access>)> = Vec::new();
        for index in 0..self.slots.len() {
            let child = content(index).and_then(|content| content.child.as_ref());
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
                None => content(index).map_or(&[], |content| &content.accesses),
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
        *self.slots.facts.has_events.get_or_init(|| {
            let mut contents = self.iter().map(|(_, entry)| &entry.content);
            contents.any(|content| {
                let child = content.child.as_ref();
                !content.after.is_empty() || child.is_some_and(|child| child.has_events())
            })
        })
    }

    /// Returns whether no node has objects or accesses.
    #[inline]
    pub(super) fn has_bare_nodes(&self) -> bool {
        *self.slots.facts.has_bare_nodes.get_or_init(|| {
            let mut nodes = self.iter();
            nodes.all(|(_, entry)| entry.content.is_bare())
        })
    }
}
