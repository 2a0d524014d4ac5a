//! The state of the driver: its objects, under one lock, and the operations on them.

pub(crate) mod array;
pub(crate) mod blocking;
pub(crate) mod capture;
pub(crate) mod context;
pub(crate) mod driver_thread;
pub(crate) mod external;
pub(crate) mod graph;
pub(crate) mod green;
pub(crate) mod handles;
pub(crate) mod members;
pub(crate) mod module;
pub(crate) mod nccl;
pub(crate) mod needs;
pub(crate) mod objects;
mod poison;
pub(crate) mod pool;
pub(crate) mod process;
mod races;
mod run;
pub(crate) mod shared;
mod virtual_memory;
mod world;

pub use world::restart_seed;
pub(crate) use world::{Answer, INVALID, World, fail_if, lock, renew, start, try_lock, with};
