//! How driver calls are made and fail: undocumented answers, errors, fatal errors, and calls in host functions.

pub(crate) mod answers;
pub(crate) mod deprecated;
pub(crate) mod fatal;
pub(crate) mod in_host_function;
pub(crate) mod library_error;
pub(crate) mod probes;
pub(crate) mod raw;
pub(crate) mod raw_waits;
pub(crate) mod recorded;
