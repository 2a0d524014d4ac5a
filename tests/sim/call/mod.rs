//! How driver calls are made: their number, the errors, the reports, and forks.

pub(crate) mod counts;
pub(crate) mod driver_log;
pub(crate) mod forks;
pub(crate) mod report_hooks;
pub(crate) mod waits;
