//! The software driver of `cuda-sim` as a shared library, for programs in any language.
//!
//! ```text
//! cargo build -p cuda-sim-cdylib
//! mkdir driver && cp target/debug/libcuda_sim_cdylib.so driver/libcuda.so.1
//! CUDA_SIM=h200@12.4 LD_LIBRARY_PATH=driver PROGRAM
//! ```
//!
//! - `CUDA_SIM` names the profile; without it there is an H200. With a value that names none the
//!   library says so on stderr, and answers as a driver without a device. It is read when the
//!   library is loaded.
//! - Functions are found as in the profile's driver, by `dlsym` and by `cuGetProcAddress`: those
//!   newer than it are not there. In a program that was linked with them, and bound when it was
//!   started, they answer `CUDA_ERROR_NOT_FOUND`.
//! - What is not played answers `CUDA_ERROR_NOT_SUPPORTED`.
//! - No kernel runs here: kernels are functions that a Rust program registers.
//!
//! Nothing links this crate.

mod driver;
mod errors;
mod exports;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod hide;
mod lookup;
