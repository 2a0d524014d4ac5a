//! Memory managers for [`cuda_safe`]: a pool that caches memory, and wrappers with limits, fallbacks,
//! statistics and traces.
//!
//! A [memory manager](cuda_safe::manager) is the allocator of a context: it serves every buffer of
//! `cuda-safe`, and other libraries of the process. `cuda-safe` has the interface and a manager of
//! synchronous memory. This crate decides how memory is reused, using only the public interface of
//! `cuda-safe`.
//!
//! ```no_run
//! use cuda_memory::CachingManager;
//! use cuda_safe::manager::set_memory_manager;
//! use cuda_safe::{Context, Device, DeviceBuffer};
//!
//! // Applies to each context that is created from now on.
//! set_memory_manager(CachingManager::new)?;
//! let context = Context::primary(&Device::get(0)?)?;
//! let stream = context.stream()?;
//! for _ in 0..1000 {
//!     // After the first iteration, this neither calls the driver nor waits for other threads.
//!     drop(DeviceBuffer::<f32>::uninit(&stream, 1 << 18)?);
//! }
//! # Ok::<_, cuda_safe::Error>(())
//! ```
//!
//! # Managers
//! Managers that allocate:
//!
//! | manager | allocates | frees |
//! |---|---|---|
//! | [`CachingManager`] | from its cache, without a driver call; otherwise from its upstream manager | into its cache |
//! | [`CachingManager::expandable`] | from its cache, without a driver call; otherwise maps virtual memory | into its cache |
//! | [`OrderedManager`] | stream-ordered memory from a memory pool of the driver | in stream order |
//! | [`DriverManager`](cuda_safe::manager::DriverManager) of `cuda-safe` | synchronous memory (`cuMemAlloc`) | in batches; each batch waits for all work |
//!
//! Managers that wrap another manager:
//!
//! | manager | purpose |
//! |---|---|
//! | [`LimitManager`] | limits the memory in use |
//! | [`FallbackManager`] | allocates managed memory or host memory when there is no more device memory |
//! | [`StatisticsManager`] | counts allocations by size, and samples the memory in use |
//! | [`LoggingManager`] | writes a [trace] of all allocations, which can be replayed |
//! | [`LeakManager`] | lists the memory that was not freed |
//!
//! # Composition
//! A wrapper owns its inner manager, which [`inner`](LimitManager::inner) returns. The order matters: a
//! manager sees the calls of the managers around it. In this program the fallback allocates host
//! memory when the pool has reached its limit, and the statistics count both kinds of memory:
//!
//! ```no_run
//! use cuda_memory::{CachingManager, CachingOptions, Fallback, FallbackManager, StatisticsManager};
//! use cuda_safe::manager::set_memory_manager;
//! use cuda_safe::{Context, Device};
//!
//! type Manager = StatisticsManager<FallbackManager<CachingManager>>;
//!
//! set_memory_manager(|context| {
//!     let options = CachingOptions { max_bytes: 1 << 30, ..Default::default() };
//!     let pool = CachingManager::with(context, options)?;
//!     Ok(StatisticsManager::new(FallbackManager::new(pool, Fallback::Host)))
//! })?;
//! let context = Context::primary(&Device::get(0)?)?;
//! let manager = context.memory_manager_as::<Manager>()?.expect("the manager is set");
//! println!("{:?}", manager.statistics());
//! println!("{:?}", manager.inner().inner().stats());
//! # Ok::<_, cuda_safe::Error>(())
//! ```
//!
//! A [`CachingManager`] takes its slabs from any [upstream
//! manager](CachingManager::with_upstream), for example from an [`OrderedManager`], or from a manager
//! of your own.
//!
//! # Rules
//! - Every manager may be called by several threads at once. No lock is held during a call of the
//!   driver, of another manager or of user code.
//! - A free never fails. Memory that cannot be freed now is freed later, or is leaked and
//!   [reported](cuda_safe::set_report_hook).
//! - An allocation on a stream that is being captured is an error, since the memory would belong to the
//!   graph. A capture of another stream is never invalidated.
//! - No manager works in a forked child. Memory that is freed there is counted as leaked.
//! - A clean-up guard ([`defer_cleanup`](cuda_safe::manager::MemoryManager::defer_cleanup)) prevents
//!   every wait for work until it is dropped.

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
