//! The objects of the driver: devices, contexts, streams, events, modules, launches and graphs.

pub(crate) mod context;
pub mod device;
pub(crate) mod event;
pub(crate) mod graph;
pub(crate) mod launch;
pub(crate) mod module;
pub(crate) mod stream;
