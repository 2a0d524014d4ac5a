//! How a driver call is made: the macros for calls, errors, current contexts, forked processes, and the code that
//! runs in host functions. This room knows no object of the driver.

pub(crate) mod c_enum;
pub(crate) mod closures;
pub(crate) mod current;
pub(crate) mod debug;
pub(crate) mod driver_log;
pub mod error;
pub(crate) mod fork;
pub(crate) mod function;
pub(crate) mod host_panic;
pub(crate) mod init;
pub(crate) mod invalid;
pub(crate) mod ownership;
pub(crate) mod region;
pub(crate) mod report;
pub(crate) mod size;
pub(crate) mod zone;
