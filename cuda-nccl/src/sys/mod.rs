//! Raw bindings of NCCL: every function, type and constant of `nccl.h`.
//!
//! Nothing is linked. The library is opened at the first call of one of its functions, and stays open. A call
//! returns a [`SymbolError`](cuda_sys::SymbolError) instead of a result code if the library cannot be opened, or if
//! it does not have the function, because it is older than the version in the documentation of the function. One
//! build works with every NCCL from 2.18 on: the structs of the newest header begin with those of older ones, and
//! NCCL reads as much of a struct as it knows.
//!
//! ```
//! use cuda_nccl::sys::{ncclGetVersion, ncclResult_t};
//!
//! let mut version = 0;
//! // SAFETY: the pointer is valid for a write.
//! match unsafe { ncclGetVersion(&raw mut version) } {
//!     Ok(ncclResult_t::ncclSuccess) => println!("NCCL {version}"),
//!     Ok(code) => println!("{code:?}"),
//!     Err(error) => println!("{error}"),
//! }
//! ```
//!
//! # The library
//! [`NCCL`] is searched for in the places that [`LibrarySearch`] lists: the file that the environment variable
//! `CUDA_NCCL_LIBRARY` names, the dynamic linker, toolkits, conda, and the packages `nvidia-nccl-cu12` and
//! `nvidia-nccl-cu13` of PyPI. [`Library::install`] uses functions of this program instead, such as those of
//! `cuda_sim::nccl`.
//!
//! The second name of each function, which begins with `pnccl`, is not bound: it exists for profilers that replace
//! the first one.

mod bindings;

#[doc(inline)]
pub use bindings::*;

use cuda_sys::{Library, LibrarySearch};

/// The library of NCCL. The page of this [module](crate::sys) says where it is searched for.
// SAFETY: the initializers of NCCL have no requirements.
pub static NCCL: Library = unsafe { Library::with_search(|| SEARCH.candidates()) };

const SEARCH: LibrarySearch = LibrarySearch {
    variable: "CUDA_NCCL_LIBRARY",
    files: if cfg!(windows) { &["nccl.dll"] } else { &["libnccl.so.2", "libnccl.so"] },
    packages: &["nvidia/nccl"],
};
