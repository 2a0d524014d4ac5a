//! A software implementation of the CUDA driver API for tests. Programs that use `cuda-safe` or
//! `cuda-sys` run on it without a GPU, and tests can make any driver call fail.
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
//! # Rules
//! - **Installation.** [`install`] replaces the driver for the whole process. It must run before the
//!   first use of `cuda-sys`.
//! - **Determinism.** The driver starts no threads, except when a scenario runs under [`explore`] and with
//!   [`Profile::with_driver_thread`]. Work that is enqueued on a stream runs when the program waits for it or
//!   queries it, and as late as stream order allows. A [seed](Profile::with_seed) chooses among the streams
//!   that have work ready. If a missing wait, an early free or a stale read fails in one run, it fails in
//!   every run with that seed. It need not fail with every seed: if the chosen order happens to be the
//!   intended one, a read without a wait returns the right value. The [detection of races](mod@races) finds
//!   a missing order in every run.
//! - **Error codes.** If a real driver rejects a call, this driver returns the same code. If a real
//!   driver accepts an incorrect call, or crashes on it, this driver reports a [misuse](misuses) that
//!   names the violated rule. If the answers of a device or driver version were not recorded
//!   from real hardware, its profile is marked *unverified (from documentation)*.
//! - **Faults** ([`fault`]). A test can make the n-th driver call fail, the n-th call of one function,
//!   or every call. The fault applies once or permanently, to one thread or to the process. A test can
//!   also limit the device memory.
//! - **Schedules** ([`explore`]). A scenario with several threads runs under many interleavings. Each
//!   one is reproducible from its seed. Misuses, leaks, deadlocks and panics are violations.
//! - **Races** ([`races`](mod@races)). On request, the driver reports conflicting accesses by operations
//!   that no order connects, with both operations and their streams.
//! - **Checks** ([`checks`](mod@checks)). On request, the driver reports errors inside of kernels, with the
//!   instructions and the threads.
//! - **Coverage** ([`coverage`](mod@coverage)). On request, the driver counts the lines of PTX and of source that
//!   kernels execute.
//! - **Kernels** run by their PTX when the work before them is complete. Results are those of an H200; the page
//!   `fidelity` of `cuda-ptx` has the exceptions. [`Kernels`] has the other modes.
//! - **Accounting.** The crate records every [call](calls) in order, the objects that are [alive], and
//!   the context stack of each thread.
//!
//! A software NCCL ([`nccl`](mod@nccl)) connects the devices of a process, or of several.
//!
//! [`testing`] explains how to test a crate with this driver. Programs in other languages use it as a
//! `libcuda.so.1`; [`environment`] lists the variables that it reads.
//!
//! # Limitations
//! A kernel runs by its PTX, with `cuda-ptx`, or by a [host function](kernel) that is registered under the
//! kernel's name and takes its place. Kernels with only machine code, and some instructions, among them those of
//! warp groups (`wgmma`), do not run. Timing is not modeled. The driver implements the functions that
//! `cuda-safe` calls, all functions about graphs except `cuStreamBeginRecaptureToGraph`, those of virtual memory, multicast objects
//! and logical endpoints, of [external memory and semaphores](mod@external) (on Linux), of arrays, textures, surfaces and tensor maps, and a few that C
//! programs call instead, each with its variant for the per-thread default stream. Every other function returns
//! `CUDA_ERROR_NOT_SUPPORTED`, which it reports once on stderr; [`not_simulated`] lists these functions.
//!
//! The texels of compressed and packed formats can be copied but not sampled, formats of video do not
//! exist, and kernels cannot load through tensor maps. In graphs, copies within host memory and memcpy nodes that name an array are not simulated, and a programmatic edge orders as an
//! ordinary one.

mod account;
mod api;
mod call;
mod caller;
pub mod checks;
mod code;
mod compression;
pub mod coverage;
pub mod environment;
mod exec;
mod memory;
pub mod nccl;
mod profile;
pub mod races;
mod state;
/// Runs the example of the README as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
#[doc = include_str!("testing.md")]
pub mod testing {}
mod thread;

pub use account::{
    Alive, Argument, Call, CallCount, call_counts, calls, clear_calls, misuses, name_options,
    not_simulated, record_arguments, stack_depth, stack_depths, unregistered_kernels,
};
pub use api::memory::ipc::{event_shared_by_another, shared_by_another};
#[cfg(unix)]
pub use api::memory::pool_ipc::{
    pool_memory_shared_by_another, pool_of_device_shared_by_another, pool_shared_by_another,
};
#[cfg(target_os = "linux")]
pub use call::external;
pub use call::hook::set_call_hook;
pub use call::poison::{poison, unpoison};
#[doc(hidden)]
pub use call::poison::{poison_from_c, unpoison_from_c};
pub use call::report::{Report, report};
pub use call::{alive, blocked, data_freed, ended_with_contexts, explore, fault, leaks};
pub use checks::findings;
pub use coverage::coverage;
pub use exec::kernel;
pub use memory::Leak;
pub use profile::{Kernels, Profile, UnknownProfile};
pub use races::report::races;
pub use state::process::processes::{CudaProcess, add_process};
pub use state::restart_seed;

use core::ffi::{CStr, c_void};
use cuda_sys::InstallError;

/// Replaces the real driver by the software driver for the whole process.
///
/// # Errors
/// The process already has a driver. `install` must run before the first use of `cuda-sys`.
pub fn install(profile: Profile) -> Result<(), InstallError> {
    let driver = profile.driver;
    cuda_sys::Function::on_not_supported(account::note_not_simulated);
    let has_thread = profile.driver_thread;
    let coverage_file = profile.coverage_file.clone();
    state::start(profile, || {
        // SAFETY: for each name, `find` returns null or a function of that symbol's type. If `api`
        // implements the name, `find` returns that function. `api` checks its type against the type of
        // the symbol, and the function follows the documented behavior of the driver. Otherwise `find`
        // returns a function of the symbol's type that has no effect.
        unsafe { cuda_sys::install(move |name: &CStr| find(name, driver)) }
    })?;
    if let Some(file) = coverage_file {
        coverage::append_at_exit(&file);
    }
    if has_thread {
        call::driver_thread::start();
    }
    Ok(())
}

/// Returns whether this driver simulates a function. Other functions return `CUDA_ERROR_NOT_SUPPORTED`.
pub fn simulates(function: cuda_sys::Function) -> bool {
    api::simulates(function)
}

/// Returns the address of a function, or null if a driver of version `driver` does not have it.
fn find(name: &CStr, driver: cuda_sys::CudaVersion) -> *const c_void {
    let function = name.to_str().ok().and_then(cuda_sys::Function::find);
    match function {
        Some(function) if function.since() <= driver => api::find(function),
        Some(_) => core::ptr::null(),
        None => call::poison::extension(name),
    }
}
