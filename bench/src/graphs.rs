//! The works on graphs. All graphs are chains of the kernel with three arguments.

pub(crate) mod plain;
pub(crate) mod raw;
pub(crate) mod replay;
pub(crate) mod safe;
pub(crate) mod theirs;

/// The sizes of graphs.
pub(crate) const SIZES: [Size; 4] = [
    Size {
        nodes: 1,
        batch: 32,
        instantiate: "graph: instantiate 1 node",
        launch: "graph: launch 1 node",
    },
    Size {
        nodes: 10,
        batch: 16,
        instantiate: "graph: instantiate 10 nodes",
        launch: "graph: launch 10 nodes",
    },
    Size {
        nodes: NODES,
        batch: 8,
        instantiate: "graph: instantiate 100 nodes",
        launch: "graph: launch 100 nodes",
    },
    Size {
        nodes: 1000,
        batch: 2,
        instantiate: "graph: instantiate 1,000 nodes",
        launch: "graph: launch 1,000 nodes",
    },
];

pub(crate) struct Size {
    pub(crate) nodes: usize,
    /// The number of graphs to instantiate in one batch.
    pub(crate) batch: usize,
    /// The names of the operations.
    pub(crate) instantiate: &'static str,
    pub(crate) launch: &'static str,
}

/// The number of nodes of the graphs that are changed and destroyed.
pub(crate) const NODES: usize = 100;

/// The number of graphs to destroy in one batch.
pub(crate) const DOOMED: usize = 8;
