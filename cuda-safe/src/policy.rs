//! Memory managers: what to allocate from, what to cache, and what to record.
//!
//! They implement [`MemoryManager`](crate::manager::MemoryManager) over the memory of the driver or over other managers.

mod caching;
mod check;
mod forward;
mod limit;
mod lock;
mod logging;
mod ordered;
mod statistics;
pub mod trace;

pub use caching::{CacheStats, CachingManager, CachingOptions};
pub use limit::{Fallback, FallbackManager, LimitManager};
pub use logging::{LeakManager, LoggingManager, Outstanding};
pub use ordered::OrderedManager;
pub use statistics::{Sample, Statistics, StatisticsManager, Timeline};
