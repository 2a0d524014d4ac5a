//! The software driver itself: faults, misuses, the call log, and the explorer.

pub(crate) mod call_log;
pub(crate) mod explore;
pub(crate) mod faults;
pub(crate) mod freed_data;
pub(crate) mod misuses;
pub(crate) mod raw_calls;
