//! The software driver of `cuda-sim` as a shared library, `libcuda.so.1`, for programs in any language.
//!
//! ```text
//! cargo build -p cuda-sim-cdylib
//! mkdir driver && cp target/debug/libcuda_sim_cdylib.so driver/libcuda.so.1
//! CUDA_SIM=h200@12.4 LD_LIBRARY_PATH=driver PROGRAM
//! ```
//!
//! - `CUDA_SIM` selects the profile. The default is an H200. If the value is not a valid profile, the
//!   library reports this on stderr and behaves as a driver without devices. The variable is read when
//!   the library is loaded.
//! - `CUDA_SIM_RACES=1` detects races (`cuda_sim::Profile::with_race_detection`). Each race is printed on stderr
//!   when it is found, and their number when the process ends.
//! - `CUDA_SIM_LENIENT=1` continues after an illegal access of the device
//!   (`cuda_sim::Profile::with_lenient_misuse`).
//! - `dlsym` and `cuGetProcAddress` find the same functions as in the profile's driver. Newer functions
//!   are absent. In a program that was linked against them and bound at startup, they return
//!   `CUDA_ERROR_NOT_FOUND`.
//! - Functions that are not simulated return `CUDA_ERROR_NOT_SUPPORTED`. The first call of each one is
//!   reported on stderr.
//! - A thread of the driver runs enqueued work when the program has made no call for ten milliseconds
//!   (`cuda_sim::Profile::with_driver_thread`).
//! - Kernels do not run, because only Rust programs can register kernels.
//! - `include/cuda_sim.h` has functions for tests: they make a call fail, and report the objects that are
//!   alive and the misuses.
//!
//! Other crates do not link this crate.

mod driver;
mod errors;
mod exports;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod hide;
mod lookup;
mod report;
mod testing;
