//! Run-time compilation of CUDA C++ with NVRTC, and linking with nvJitLink.
//!
//! ```no_run
//! use cuda_nvrtc::{CompileOptions, Program};
//!
//! let program = Program::new("extern \"C\" __global__ void twice(float *x) { x[threadIdx.x] *= 2; }");
//! match program.compile(&CompileOptions::default()) {
//!     Ok(compiled) => println!("{}", compiled.ptx().unwrap_or_default()),
//!     Err(error) => eprintln!("{error}"),
//! }
//! ```
//!
//! - A [`Program`] is a source text with headers in memory. [`Program::compile`] returns a [`Compiled`] with PTX,
//!   a cubin or LTO-IR, the log, and the symbols of templates. It needs no GPU.
//! - [`CompileOptions`] are typed. The [`Target`] says what to generate, and for which [`Architecture`].
//! - An error of the compiler has the whole log, and the first error with its line of the source
//!   ([`CompileError`]).
//! - A [`Linker`] links several units, and optimizes across them.
//!
//! # The libraries
//! Nothing is linked at build time, and no feature selects a CUDA version. The libraries are found at run time;
//! [`sys`] lists the places. Without them every call returns [`Error::Load`], which lists what was tried. A
//! function that an old library does not have returns [`Error::Missing`], with the version that it needs.
//!
//! # Safety
//! Only functions that pass binary data of unknown origin to a library are `unsafe`. [`sys`] has the functions of
//! the libraries.

mod architecture;
mod call;
mod compiled;
mod error;
mod linker;
mod options;
mod program;
pub mod sys;

pub use architecture::{Architecture, Features, ParseArchitectureError, Target};
pub use call::{linker_version, supported_architectures, version};
pub use compiled::Compiled;
pub use error::{CompileError, Diagnostic, Error, Invalid, LinkError, MissingFunction, Result};
pub use linker::{LinkInput, LinkOptions, Linker};
pub use options::{CompileOptions, PrecompiledHeaders, Standard};
pub use program::Program;
