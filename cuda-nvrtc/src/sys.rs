//! Raw bindings of NVRTC and nvJitLink: every function, type and constant of `nvrtc.h` and `nvJitLink.h`.
//!
//! Nothing is linked. Each library is opened at the first call of one of its functions, and stays open. A
//! call returns a [`SymbolError`](cuda_sys::SymbolError) instead of a result code if the library cannot be
//! opened, or if it does not have the function, because it is older than the version in the documentation of
//! the function.
//!
//! ```
//! use cuda_nvrtc::sys::{nvrtcResult, nvrtcVersion};
//!
//! let (mut major, mut minor) = (0, 0);
//! // SAFETY: both pointers are valid for writes.
//! match unsafe { nvrtcVersion(&raw mut major, &raw mut minor) } {
//!     Ok(nvrtcResult::NVRTC_SUCCESS) => println!("NVRTC {major}.{minor}"),
//!     Ok(code) => println!("{code:?}"),
//!     Err(error) => println!("{error}"),
//! }
//! ```
//!
//! # The libraries
//! [`NVRTC`] and [`NVJITLINK`] are searched for in this order:
//!
//! 1. The file that the environment variable `CUDA_NVRTC_LIBRARY` or `CUDA_NVJITLINK_LIBRARY` names. If it
//!    is set, nothing else is tried. [`Library::load_from`](cuda_sys::Library::load_from) before the first
//!    use does the same without a variable.
//! 2. The dynamic linker, which knows `LD_LIBRARY_PATH`, the system's folders, and libraries that the process
//!    has already opened.
//! 3. The toolkit that `CUDA_HOME` or `CUDA_PATH` names.
//! 4. The active conda environment (`CONDA_PREFIX`).
//! 5. The packages `nvidia-cuda-nvrtc` and `nvidia-nvjitlink` from PyPI, in the active virtual environment
//!    (`VIRTUAL_ENV`), in `PYTHONPATH`, in the installations of the `python3` and `python` in `PATH`, and in
//!    the packages of the user.
//! 6. The usual folders of toolkits: `/usr/local/cuda`, `/usr/local/cuda-*`, `/opt/cuda`, and on Windows
//!    `C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA`.
//!
//! In each place, the newest version since CUDA 11.2 (nvJitLink: 12.3) is used. The error of a library that
//! was not found lists every place. A program that runs with more privileges than its user should not let the
//! environment choose the file: it calls `load_from`.

mod bindings;
mod search;

#[doc(inline)]
pub use bindings::*;
pub use search::{NVJITLINK, NVRTC};
