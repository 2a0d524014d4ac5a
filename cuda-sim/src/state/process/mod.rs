//! What the driver keeps for the process: core dumps, logs, and the processes that use it.

pub(crate) mod coredump;
pub(crate) mod error_log;
pub(crate) mod logs;
pub(crate) mod processes;
