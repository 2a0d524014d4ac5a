//! Memory managers: what to allocate from, what to cache, and what to record.
//!
//! They implement [`MemoryManager`] over the memory of the driver or over other managers.

mod caching;
mod forward;
mod limit;
mod logging;
mod ordered;
mod statistics;
pub mod trace;

pub use caching::{CacheStats, CachingManager, CachingOptions};
pub use limit::{Fallback, FallbackManager, LimitManager};
pub use logging::{LeakManager, LoggingManager, Outstanding};
pub use ordered::OrderedManager;
pub use statistics::{Sample, Statistics, StatisticsManager, Timeline};

use crate::memory::manager::{
    Block, CleanupGuard, DeferOptions, DriverManager, DriverMemory, HostBlock, INTERFACE_VERSION,
    IpcHandle, MemoryManager, Order, StreamEnd, check_version, current, is_out_of_memory, lock,
    with_wrapped,
};
