//! What concerns the whole process: the log of the driver, core dumps, checkpoints, and the profiler.

pub mod checkpoint;
pub mod coredump;
pub mod logs;
pub mod profiler;
