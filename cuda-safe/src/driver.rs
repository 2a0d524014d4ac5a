//! The objects of the driver: devices, contexts, streams, events, modules, launches and graphs.

pub mod checkpoint;
pub(crate) mod context;
pub mod coredump;
pub mod device;
pub(crate) mod event;
pub(crate) mod graph;
pub(crate) mod launch;
pub mod logs;
pub(crate) mod module;
pub mod profiler;
pub(crate) mod stream;
