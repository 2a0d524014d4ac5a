//! What every room above uses: calls and errors, captures, releases, reports.
//!
//! This room knows no object of the driver. Objects implement its traits.

pub(crate) mod attempts;
pub(crate) mod call;
pub(crate) mod capture;
pub(crate) mod closures;
pub(crate) mod current;
pub(crate) mod driver_log;
pub(crate) mod error;
#[cfg(feature = "explore")]
pub mod explore;
pub(crate) mod fork;
pub(crate) mod init;
pub(crate) mod invalid;
pub(crate) mod ownership;
pub(crate) mod region;
pub(crate) mod release;
pub(crate) mod report;
pub(crate) mod sync;
pub(crate) mod zone;
