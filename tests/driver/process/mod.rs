//! Logs, core dumps and checkpoints of the process.

pub(crate) mod checkpoint;
pub(crate) mod coredump;
pub(crate) mod logs;
