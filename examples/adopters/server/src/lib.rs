//! An example: a request server that gives each tenant a partition of the GPU.
//!
//! Each tenant has a queue and a thread, which serves one request at a time. A [`Plan`] says where the
//! work of the tenants runs: on the whole device ([`Plan::Shared`]), or in partitions of the
//! multiprocessors (SMs) whose sizes are proportional to weights ([`Plan::Weights`]).
//!
//! [`Server::apply`] changes the plan while clients send requests. It waits for the requests that are
//! being served, returns the partitions to their pool, and takes the new ones. Queued requests wait, and
//! none is lost. If the new plan is not possible, the old one stays in use.
//!
//! # Isolation
//! A request that fails, for example because there is not enough memory, is answered with its error, and
//! other tenants do not notice. But all partitions share one context: if a kernel accesses an illegal
//! address, the driver fails all later calls of the process. Tenants with kernels that are not trusted
//! need a process each.

mod error;
mod placement;
mod server;

pub use error::{Error, Result};
pub use placement::{Plan, Switch};
pub use server::{Request, Server, Ticket};
