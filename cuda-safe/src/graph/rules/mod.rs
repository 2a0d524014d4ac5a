//! What a graph checks and orders: edges, conflicting accesses, the owners of each node's objects, and the work that
//! launches must come after.
//!
//! # The order of launches
//!
//! The driver orders the launches of one executable graph, and nothing else. This crate orders everything else
//! that uses the memory of a graph, so that a launch is safe:
//!
//! ```text
//! work on a buffer before Graph::own ────────┐
//! access on a stream (GraphAccess) ──────────┤
//! launches of the executable graph before ───┴─> MemoryOrder of the graph
//!                                                     │ new entries, through the Claim
//! events that external nodes wait for ──────────┐     │
//!                                               v     v
//!                                        earlier work of Launches
//!                                                     │ Launches::admit: the stream waits for each entry
//!                                                     v
//!                                              cuGraphLaunch ──> the stream is noted, the entries are removed
//!                                                     │
//! objects of changed and dropped nodes ──> Retired    │ events on the noted streams
//!                                             │       v
//!                                             └─> AfterLaunches ──> the objects are dropped
//! ```
//!
//! | Type | Meaning |
//! |---|---|
//! | [`Earlier`](order::Earlier) | work that a launch must come after: an event, or everything on a stream |
//! | [`EarlierWork`](order::EarlierWork) | a list of such work; the number of an entry says whether an executable graph knows it |
//! | [`MemoryOrder`](order::MemoryOrder) | the earlier work of all memory that one graph owns |
//! | [`Claim`](order::Claim) | the right of one executable graph to launch work on that memory, and the entries that it knows |
//! | [`Launches`](crate::graph::exec::launches::Launches) | the streams with launches, and the earlier work that the next launch waits for |
//! | [`GraphAccess`](crate::graph::GraphAccess) | an access from outside: its stream waits for the launches, and later launches wait for the stream |
//! | [`KeptAllocations`](crate::graph::nodes::allocation::KeptAllocations) | memory that a launch allocates and does not free: a launch waits for the free of a buffer |
//! | [`AfterLaunches`](crate::graph::exec::launches::AfterLaunches) | objects that are dropped after the launches so far |
//!
//! A launch on the stream of the last launch waits for nothing new if no entry was added since: `Launches` then
//! [admits](crate::graph::exec::launches::Launches::is_admitted) the stream with one comparison.

pub(crate) mod access;
pub(crate) mod edges;
pub(crate) mod order;
pub(crate) mod owners;
