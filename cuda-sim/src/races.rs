#![doc = include_str!("races.md")]

pub(crate) mod log;
pub(crate) mod order;
pub(crate) mod report;
pub(crate) mod sites;
pub(crate) mod sources;

pub use report::{Access, Place, Race, RacingMemory, RacingOperation, ThreadAccess};

pub(crate) use log::{AccessLog, Conflict};
pub(crate) use order::{Described, Operation, Order};
pub(crate) use report::element;
