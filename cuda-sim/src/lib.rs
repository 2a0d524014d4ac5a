//! A software CUDA driver: programs on `cuda-safe` or `cuda-sys` are developed and tested without a
//! GPU, and fail on demand as no GPU would.
//!
//! ```
//! use cuda_sim::Profile;
//!
//! cuda_sim::install(Profile::h200())?;
//! // From here on this process has one H200 with a driver for CUDA 13.0.
//! let mut version = 0;
//! // SAFETY: the pointer is to an i32 that lives through the call.
//! let result = unsafe { cuda_sys::cuDriverGetVersion(&raw mut version) };
//! assert!(result.is_success());
//! assert_eq!(version, 13000);
//! # Ok::<_, cuda_sys::InstallError>(())
//! ```
//!
//! - **Deterministic.** There are no threads in it. Work given to a stream runs when something
//!   waits or asks for it, as late as its order allows, and a [seed](Profile::with_seed) chooses
//!   among the streams that have work ready: a missing wait, an early free, a stale read shows,
//!   every time, and the seed replays it.
//! - **Honest.** What a real driver refuses it refuses with the same code. What a real driver
//!   accepts although it is wrong, or crashes on, it reports as a [mistake](mistakes), by the rule
//!   that was broken. A device and driver whose answers are not recorded from a real one are
//!   marked *unverified (from documentation)*.
//! - **Faults** on demand ([`fault`]): the n-th call, a function's n-th, all of them, once or from
//!   then on, for a thread or the process; memory that ends at a limit.
//! - **Schedules** ([`explore`]): a scenario of several threads under many interleavings, each
//!   reproducible from its seed, with misuse, leaks, deadlocks and panics as violations.
//! - **Accounting**: every [call](calls) in order, what is [alive], each thread's stack.
//!
//! [`testing`] is a page on testing one's own crate with it.
//!
//! # What it is not
//! Not an emulator: PTX is read for its variables and its kernels' names, parameters and limits, and
//! not run. A kernel is a [function on the host](kernel) that is registered under its name. No timing. It
//! plays the functions that `cuda-safe` calls, and a few that C programs call in their place; every
//! other function answers `CUDA_ERROR_NOT_SUPPORTED`.

mod account;
mod api;
mod blocking;
mod call;
mod capture;
mod exec;
pub mod explore;
pub mod fault;
mod handles;
mod hook;
pub mod kernel;
mod members;
mod memory;
mod needs;
mod objects;
mod profile;
mod ptx;
mod sms;
#[doc = include_str!("testing.md")]
pub mod testing {}
mod thread;
mod world;

pub use account::{
    Alive, Argument, Call, alive, calls, clear_calls, mistakes, record_arguments, stack_depth,
    stack_depths,
};
pub use api::ipc::shared_by_another;
#[cfg(unix)]
pub use api::pool_ipc::{
    pool_memory_shared_by_another, pool_of_device_shared_by_another, pool_shared_by_another,
};
pub use call::blocked;
pub use hook::set_call_hook;
pub use profile::{Profile, UnknownProfile};

use core::ffi::{CStr, c_void};
use cuda_sys::InstallError;

/// Puts the software driver in the place of the real one, for the whole process.
///
/// # Errors
/// The process has a driver already: this comes before the first use of `cuda-sys`.
pub fn install(profile: Profile) -> Result<(), InstallError> {
    let driver = profile.driver;
    world::start(profile, || {
        // SAFETY: for each name this answers null, or the function of that name in `api`, whose type
        // is checked there to be that of the symbol, and which keeps what is known of the driver's
        // rules; or one of the symbol's type that does nothing.
        unsafe { cuda_sys::install(move |name: &CStr| find(name, driver)) }
    })
}

/// The address of a function, if a driver of that version has it.
fn find(name: &CStr, driver: cuda_sys::CudaVersion) -> *const c_void {
    let function = name.to_str().ok().and_then(cuda_sys::Function::find);
    match function {
        Some(function) if function.since() <= driver => api::find(function),
        _ => core::ptr::null(),
    }
}
