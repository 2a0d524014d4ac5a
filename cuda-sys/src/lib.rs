//! Raw bindings of the CUDA driver API: every function, type and constant of NVIDIA's headers. The
//! functions are resolved in the driver at run time.
//!
//! ```no_run
//! use cuda_sys::{CUresult, cuDeviceGetCount, cuInit, out};
//!
//! fn device_count() -> Result<i32, CUresult> {
//!     // SAFETY: cuInit takes no pointer.
//!     unsafe { cuInit(0) }.ok()?;
//!     // SAFETY: `out` passes a valid pointer.
//!     out(|count| unsafe { cuDeviceGetCount(count) })
//! }
//!
//! match device_count() {
//!     Ok(count) => println!("{count} devices"),
//!     Err(error) => println!("no CUDA here: {error}"),
//! }
//! ```
//!
//! # Rules
//! - **One build for every driver.** Nothing is linked, and no feature selects a CUDA version. A program
//!   starts without a driver. Calling a function that the driver does not have returns an error code.
//! - **Exact names.** The crate root contains the newest ABI of each function under the name of its
//!   symbol ([`cuMemAlloc_v2`](fn@cuMemAlloc_v2); a search for `cuMemAlloc` also finds its page). Older
//!   ABIs are in [`abi`], and the variants for the per-thread default stream are in [`ptds`]. The
//!   meaning of a name never changes. Each name is a function, and as a type it is the type of a pointer
//!   to that function.
//! - **The newest ABI can need a newer driver than an older one.** For example,
//!   [`cuEventElapsedTime_v2`](fn@cuEventElapsedTime_v2) exists since CUDA 12.8, but every driver has
//!   [`abi::cuEventElapsedTime`](fn@abi::cuEventElapsedTime). The documentation of a function names its
//!   older versions, and since when each exists.
//! - **[`CUDA_VERSION`] is the version of the headers** from which the bindings were generated, not that of a
//!   toolkit or driver on this machine. [`driver_version`] returns the version of the driver.
//! - **C enums are integers with named constants** ([`CUresult`]). A newer driver may return a value
//!   that has no name in these headers; it is a valid value.
//! - **Results must be used.** [`CUresult::ok`] converts a code to a `Result`, and [`out`] returns what a
//!   function writes through a pointer.
//! - **Structs are zero by default**, because the driver requires their reserved fields to be zero.
//!
//! # Without a driver
//! No function panics. A call without a driver library returns `CUDA_ERROR_NOT_INITIALIZED`. A call of a
//! function that is newer than the driver returns `CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER`, and a call of
//! a function that this driver does not have for another reason returns `CUDA_ERROR_NOT_FOUND`. For
//! details, [`load`] returns which files were tried and why each was rejected, and [`Function::address`]
//! returns which function is missing and the version that introduced it.
//!
//! # Source of the functions
//! The first call of any function opens the driver, which then stays open. The driver is `libcuda.so.1`
//! (on Windows `nvcuda.dll` in the system folder), or the file named by the environment variable
//! `CUDA_SYS_LIBRARY`, or the file passed to [`load_from`] before the first call. A program that runs
//! with more privileges than its user should not let the environment choose the file. [`install`]
//! replaces the driver by any other source of functions.
//!
//! # Other libraries
//! [`lazy_extern!`] declares functions of any other library, for example NVRTC, NCCL or cuBLAS, which are
//! found in the same way: a [`Library`] is opened at the first call of one of its functions and stays open. If
//! the library or the function is missing, the call returns a [`SymbolError`].
//!
//! # Safety
//! Every function is `unsafe` because the driver, like other C code, trusts its arguments. The
//! documentation of each function links to NVIDIA's page, which states the requirements.

#[cfg(not(target_pointer_width = "64"))]
compile_error!(
    "cuda-sys needs a 64-bit target: NVIDIA ships only 64-bit drivers, and the struct layouts differ"
);

mod bindings;
mod debug_text;
mod functions;
pub mod image;
mod library;
mod loader;
mod out;
mod result;
mod version;

#[doc(inline)]
pub use bindings::*;
#[doc(inline)]
pub use functions::*;
#[doc(hidden)]
pub use library::Slot;
pub use library::{
    Attempt, AttemptFailure, InstallError, Library, LibrarySearch, LoadError, MissingSymbol,
    SymbolError,
};
pub use loader::{
    Function, MissingFunction, Unavailable, close, driver_version, extension, install,
    library_path, load, load_from,
};
pub use out::out;
pub use version::{CudaVersion, ParseVersionError};
