//! The software driver of `cuda-sim` as a shared library, `libcuda.so.1`, for programs in any language, and the
//! command `cuda-sim`, which runs programs on it. The README of `cuda-sim` describes both.
//!
//! ```text
//! cargo build -p cuda-sim-cdylib
//! target/debug/cuda-sim run --profile h200 --driver 12.4 PROGRAM
//! target/debug/cuda-sim library driver; LD_LIBRARY_PATH=driver PROGRAM
//! ```
//!
//! - Environment variables select the profile and other settings when the library is loaded. The page
//!   `cuda_sim::environment` lists them.
//! - `dlsym` and `cuGetProcAddress` find the same functions as in the profile's driver. Newer functions
//!   are absent. In a program that was linked against them and bound at startup, they return
//!   `CUDA_ERROR_NOT_FOUND`.
//! - Functions that are not simulated return `CUDA_ERROR_NOT_SUPPORTED`. The first call of each one is
//!   reported on stderr.
//! - A thread of the driver runs enqueued work when the program has made no call for ten milliseconds
//!   (`cuda_sim::Profile::with_driver_thread`).
//! - A kernel is a function that the program registers with `cuSimRegisterKernel`. `include/cuda_sim.h`
//!   declares it and the functions that kernels use. Only `dlsym` finds them.
//! - When the process exits, its account is written, if `CUDA_SIM_ACCOUNT` requests it.
//! - Other functions of `include/cuda_sim.h` make calls fail, make bytes inaccessible, and report the objects
//!   that are alive and the misuses.
//!
//! Other crates do not link this crate.

mod account;
mod driver;
mod errors;
mod exports;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod hide;
mod kernels;
mod lookup;
mod testing;
