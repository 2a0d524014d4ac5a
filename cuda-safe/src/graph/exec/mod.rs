//! Executable graphs: instantiation, launches, changes of nodes, and the objects that retire after launches.

pub(crate) mod executable;
pub(crate) mod launches;
pub(crate) mod update;
