//! Collective operations between GPUs with NCCL.
//!
//! ```no_run
//! use cuda_nccl::{Communicator, Config, Launch, ReduceOp, UniqueId};
//! use cuda_safe::{Context, Device, DeviceBuffer};
//!
//! # fn main() -> Result<(), cuda_nccl::Error> {
//! // Started by `torchrun --nproc-per-node 2 --no-python program`: one process for each GPU.
//! let launch = Launch::from_env()?;
//! let stream = Context::primary(&Device::get(launch.local_rank)?)?.stream()?;
//! let id = UniqueId::exchange(&launch)?;
//! let communicator =
//!     Communicator::init(&stream, &id, launch.rank, launch.world_size, &Config::default())?;
//!
//! let mut sums = DeviceBuffer::from_slice(&stream, &[launch.rank as f32; 1000])?;
//! communicator.all_reduce_in_place(&mut sums, ReduceOp::Sum)?;
//! println!("{:?}", &sums.to_vec()?[..4]);
//! # Ok(())
//! # }
//! ```
//!
//! - A [`Communicator`] is one rank of a group of GPUs. Its operations are work on its stream, like a kernel launch:
//!   a call enqueues the operation and returns. An operation waits for the other ranks on the GPU.
//! - [`group()`] makes several operations one: of several GPUs of this thread, or sends and receipts that would
//!   otherwise wait for each other.
//! - [`Abort`] ends the operations of a communicator from any thread. A watchdog is a thread with such a handle.
//! - [`Registered`] memory is accessed by other GPUs without copies. [`NcclManager`] allocates such memory.
//! - [`sys`] has every function of NCCL.
//!
//! The [guide](guide::several_gpus) explains how to use them together.
//!
//! # The library
//! Nothing is linked at build time, and no feature selects a version. NCCL 2.23 or later is found at run time;
//! [`sys`] lists the places. Without it every call returns [`Error::Load`], which lists what was tried. A function
//! that an old library does not have returns [`Error::Missing`], with the version that it needs.
//!
//! # Contexts
//! NCCL works in the primary context of a device, makes it current, and leaves it current. Every call of this crate
//! runs with that context current, and restores the context of the caller afterwards. A communicator needs a stream
//! of the primary context, or of a green context on it.
//!
//! # Failures
//! An operation whose peers never call it waits forever, on the GPU. [`Abort::abort`] ends it. After that, every
//! call returns [`Error::Aborted`] and drops do nothing. This watchdog aborts a communicator when work takes more
//! than 30 seconds, or when NCCL has reported an error:
//!
//! ```no_run
//! use cuda_nccl::{Abort, Communicator};
//! use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
//! use std::time::Duration;
//!
//! /// Returns a channel. A message starts the time again, and a drop of the channel ends the watchdog.
//! fn watch(communicator: &Communicator) -> Sender<()> {
//!     let (progress, messages) = channel();
//!     let abort: Abort = communicator.abort_handle();
//!     std::thread::spawn(move || {
//!         let mut idle = Duration::ZERO;
//!         loop {
//!             match messages.recv_timeout(Duration::from_millis(100)) {
//!                 Ok(()) => idle = Duration::ZERO,
//!                 Err(RecvTimeoutError::Timeout) => idle += Duration::from_millis(100),
//!                 Err(RecvTimeoutError::Disconnected) => return,
//!             }
//!             if idle > Duration::from_secs(30) || abort.error().is_some() {
//!                 let _ = abort.abort();
//!                 return;
//!             }
//!         }
//!     });
//!     progress
//! }
//! ```
//!
//! # Not wrapped
//! These functions are only in [`sys`]: one-sided operations (`ncclPutSignal` and others), options of a single
//! collective, several ids for one communicator, suspension, parameters, encryption, and the simulation of groups.
//! The interface for kernels is not bound. The page [`functions`](guide::functions) has a table.

mod abort;
mod call;
mod collective;
mod communicator;
mod config;
mod derive;
mod element;
mod error;
mod group;
pub mod guide;
mod launch;
mod memory;
mod operation;
mod reduction;
mod registered;
mod registration;
mod shared;
pub mod sys;
mod unique_id;
mod version;

pub use abort::{Abort, Failure};
pub use call::version;
pub use communicator::Communicator;
pub use config::{Config, CtaPolicy};
pub use element::{BFloat16, Element, Float8E4M3, Float8E5M2, Float16};
pub use error::{Error, Invalid, MissingFunction, NcclError, Result};
pub use group::{Group, capture_group, group};
pub use launch::Launch;
pub use memory::NcclManager;
pub use reduction::{ReduceOp, Reduction};
pub use registered::Registered;
pub use unique_id::UniqueId;
pub use version::NcclVersion;
