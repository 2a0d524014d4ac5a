//! The edges of one node.

use crate::graph::rules::access::Before;
use std::ops::Deref;

/// The edges that lead to a node. A node of a chain has one, which needs no allocation.
#[derive(Clone, Debug)]
pub(crate) enum EdgesBefore {
    One(Before),
    List(Vec<Before>),
}

impl EdgesBefore {
    #[inline]
    pub(crate) fn push(&mut self, edge: Before) {
        match self {
            Self::One(first) => *self = Self::List(vec![*first, edge]),
            Self::List(edges) if edges.capacity() == 0 => *self = Self::One(edge),
            Self::List(edges) => edges.push(edge),
        }
    }

    /// Removes the edges for which `keep` returns `false`.
    pub(crate) fn retain(&mut self, keep: impl Fn(&Before) -> bool) {
        match self {
            Self::One(edge) if keep(edge) => {}
            Self::One(_) => *self = Self::default(),
            Self::List(edges) => edges.retain(keep),
        }
    }
}

impl Default for EdgesBefore {
    #[inline]
    fn default() -> Self {
        Self::List(Vec::new())
    }
}

impl Deref for EdgesBefore {
    type Target = [Before];

    #[inline]
    fn deref(&self) -> &[Before] {
        match self {
            Self::One(edge) => std::slice::from_ref(edge),
            Self::List(edges) => edges,
        }
    }
}

impl FromIterator<Before> for EdgesBefore {
    fn from_iter<I: IntoIterator<Item = Before>>(edges: I) -> Self {
        let mut all = Self::default();
        edges.into_iter().for_each(|edge| all.push(edge));
        all
    }
}
