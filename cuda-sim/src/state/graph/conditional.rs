//! Conditional handles.

/// A handle, whose value decides which body of its conditional node runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConditionalHandle {
    /// The graph that the handle was created for.
    pub(crate) graph: usize,
    pub(crate) context: usize,
    /// The value at the start of each launch. Without one, the value of the launch before stays.
    pub(crate) default: Option<u32>,
    /// The node that uses the handle.
    pub(crate) node: Option<usize>,
}
