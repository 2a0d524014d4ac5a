//! Run-time compilation of CUDA C++ with NVRTC, and linking with nvJitLink.
//!
//! ```no_run
//! use cuda_nvrtc::Program;
//! use cuda_safe::{Context, Device};
//!
//! # fn main() -> Result<(), cuda_nvrtc::Error> {
//! let device = Device::get(0)?;
//! let context = Context::primary(&device)?;
//! let program = Program::new("extern \"C\" __global__ void twice(float *x) { x[threadIdx.x] *= 2; }");
//! let module = program.compile_for(&device)?.load(&context)?;
//! let twice = module.kernel("twice")?;
//! # Ok(())
//! # }
//! ```
//!
//! - A [`Program`] is a source text with headers in memory. [`Program::compile`] returns a [`Compiled`] with PTX,
//!   a cubin or LTO-IR, the log, and the symbols of templates. It needs no GPU.
//! - [`CompileOptions`] are typed. The [`Target`] says what to generate, and for which [`Architecture`].
//! - An error of the compiler has the whole log, and the first error with its line of the source
//!   ([`CompileError`]).
//! - [`Compiled::load`] loads the code into a context of [`cuda_safe`]. It chooses between the cubin and the PTX.
//! - A [`Cache`] keeps compiled programs in memory and on disk.
//! - A [`Linker`] links several units, and optimizes across them.
//!
//! # The libraries
//! Nothing is linked at build time, and no feature selects a CUDA version. The libraries are found at run time;
//! [`sys`] lists the places. Without them every call returns [`Error::Load`], which lists what was tried. A
//! function that an old library does not have returns [`Error::Missing`], with the version that it needs.
//!
//! # Not wrapped
//! These functions are only in [`sys`]: `OptiX` IR and Tile IR, callbacks that cancel a compilation, the size of the
//! heap for precompiled headers, the headers that are bundled with newer libraries, and LTO-IR as the result of a
//! link.
//!
//! # Safety
//! Only functions that pass binary data of unknown origin to a library are `unsafe`. [`sys`] has the functions of
//! the libraries.

mod architecture;
mod cache;
mod call;
mod compiled;
mod error;
mod linker;
mod load;
mod options;
mod program;
pub mod sys;

pub use architecture::{Architecture, Features, ParseArchitectureError, Target};
pub use cache::{Cache, CacheOptions, CacheStats};
pub use call::{linker_version, supported_architectures, version};
pub use compiled::Compiled;
pub use error::{
    CompileError, Diagnostic, Error, Invalid, LinkError, MissingFunction, NotLoadable, Result,
};
pub use linker::{LinkInput, LinkOptions, Linker};
pub use options::{CompileOptions, PrecompiledHeaders, Standard};
pub use program::Program;
