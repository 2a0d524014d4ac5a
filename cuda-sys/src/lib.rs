//! The CUDA driver API, raw and whole: every function, type and constant of NVIDIA's headers,
//! found in the driver at run time.
//!
//! - **One build for every driver.** Nothing is linked and nothing selects a CUDA version: a
//!   program starts without a driver, and a function that the driver does not have is an error
//!   code where it is called.
//! - **Exact names.** The crate root has the newest ABI of each function by the name of its
//!   symbol ([`cuMemAlloc_v2`](fn@cuMemAlloc_v2); its page is also found as `cuMemAlloc`). Older
//!   ABIs are in [`abi`], the variants for the per-thread default stream in [`ptds`].
//!   A name means one thing for ever. Each name is a function, and as a type the pointer to it.
//! - **C enums are numbers with names** ([`CUresult`]): a newer driver may answer a number that
//!   no header names yet, and that is a value like others.
//! - **Structs are zero by default**, as their reserved parts have to be.
//!
//! ```no_run
//! use cuda_sys::{CUresult, cuDeviceGetCount, cuInit};
//!
//! let mut count = 0;
//! // SAFETY: cuInit takes no pointer.
//! let mut result = unsafe { cuInit(0) };
//! if result == CUresult::CUDA_SUCCESS {
//!     // SAFETY: the pointer is to an i32 that lives through the call.
//!     result = unsafe { cuDeviceGetCount(&raw mut count) };
//! }
//! match result {
//!     CUresult::CUDA_SUCCESS => println!("{count} devices"),
//!     error => println!("no CUDA here: {error}"),
//! }
//! ```
//!
//! # Without a driver
//! Nothing panics. A call without a driver library answers `CUDA_ERROR_NOT_INITIALIZED`, one of a
//! function newer than the driver `CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER`, one of a function that
//! this driver does not have at all `CUDA_ERROR_NOT_FOUND`. The typed answers are beside it:
//! [`load`] says which files were tried and why none would do, [`Function::address`] which
//! function is missing and since when there is one.
//!
//! # Where the functions come from
//! The first call of any function opens the driver, and it stays open: `libcuda.so.1`
//! (on Windows `nvcuda.dll` of the system folder), or the file that the environment variable
//! `CUDA_SYS_LIBRARY` names (a program with more rights than its user should not leave that to the
//! environment), or the one given to [`load_from`] before. [`install`] puts any other
//! source in its place.
//!
//! # Safety
//! Every function is `unsafe` for the reason that C is: the driver trusts its arguments.
//! NVIDIA's page, linked from each function, says what it needs.

#[cfg(not(target_pointer_width = "64"))]
compile_error!(
    "cuda-sys needs a 64-bit target: NVIDIA ships no other drivers, and the layouts differ"
);

mod bindings;
mod function;
mod loader;
mod result;
mod version;

#[doc(inline)]
pub use bindings::*;
pub use function::{Function, MissingFunction, Unavailable};
pub use loader::{
    Attempt, AttemptFailure, InstallError, LoadError, close, driver_version, install, library_path,
    load, load_from,
};
pub use version::{CudaVersion, ParseVersionError};
