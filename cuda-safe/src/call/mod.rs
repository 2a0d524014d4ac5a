//! How a driver call is made: the macros for calls, errors, current contexts, forked processes, and the code that
//! runs in host functions. This room knows no object of the driver.

pub(crate) mod c_enum;
pub(crate) mod derive;
pub(crate) mod driver_log;
pub mod error;
pub(crate) mod fork;
pub(crate) mod function;
pub(crate) mod init;
pub(crate) mod invalid;
pub(crate) mod ownership;
pub(crate) mod region;
pub(crate) mod report;
pub(crate) mod texts;
pub(crate) mod zone;

pub(crate) use c_enum::c_enum;
pub(crate) use derive::{convert, copy, debug, debug_struct};
pub(crate) use error::{
    CompileError, DriverError, Error, LaunchError, LaunchLimit, Rejected, Result, ends_all_work,
    is_fatal, refuse_if,
};
pub(crate) use function::{
    Answer, ContextHandle, Entered, Outcome, answer, call, check, copy_without_current, current,
    expect_current, fail, leak_on_stack, newest_or, out, out_without_current, pop, push,
    set_current, under_current, with_raw_current, without_current,
};
pub(crate) use invalid::{Invalid, c_text};
pub(crate) use ownership::{Ownership, expect_handle};
pub(crate) use region::{Extent, Region, bytes_of, expect_memory};
pub(crate) use report::{Report, count_leak, report};
pub(crate) use zone::{
    Closures, HostPanic, argument, in_host_function, in_report_hook, refuse_in_host_function,
    run_host_function, run_report_hook,
};
