//! Native part of the Python package `cuda_safe`, based on the Rust crate of the same name.
//!
//! Each Python class has its own file. `stream_handle.rs` contains all driver calls that name
//! foreign streams, for which `cuda-safe` has no safe API. Every operation that may block,
//! including a release (`lifetime/hold.rs`), lets other Python threads run.

mod array;
mod compile;
mod config;
mod context;
mod current;
mod device;
mod error;
mod event;
mod graph;
mod green;
mod interpreter;
mod kernel;
mod lifetime;
mod manager;
mod objects;
mod pointer;
mod primary;
mod stream;
mod stream_handle;
mod tensor;

use crate::lifetime::ending::detached;
use error::Result;
use pyo3::prelude::*;

/// Returns the CUDA version that the driver supports, for example (13, 0).
#[pyfunction]
fn driver_version(py: Python<'_>) -> Result<(i32, i32)> {
    let version = detached(py, cuda_safe::version)?;
    Ok((version.major(), version.minor()))
}

/// Returns the number of driver objects that this process has leaked because they could not be
/// released.
#[pyfunction]
fn leaked() -> u64 {
    cuda_safe::leaked()
}

/// Native part of `cuda_safe`.
#[pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::array::{
        PyDeviceArray, PyPinnedArray, as_cuda_array, from_cuda_array_interface, from_dlpack,
    };
    #[pymodule_export]
    use super::compile::compile;
    #[pymodule_export]
    use super::config::PyConfig;
    #[pymodule_export]
    use super::graph::{PyCapture, PyExecutableGraph, PyGraph};
    #[pymodule_export]
    use super::green::{PyGreenContext, PySmGroup};
    #[pymodule_export]
    use super::interpreter::{_end, _forked};
    #[pymodule_export]
    use super::kernel::{PyCodeModule, PyKernel};
    #[pymodule_export]
    use super::manager::{
        _choose_memory_manager, _torch_functions, _torch_streams, PyCleanup, PyHostMemory,
        PyMemory, PyMemoryManager, memory_manager, set_memory_manager,
    };
    #[pymodule_export]
    use super::objects::{PyContext, PyDevice, PyEvent, PySmResource, PyStream};
    #[pymodule_export]
    use super::pointer::pointer_attributes;
    #[pymodule_export]
    use super::{driver_version, leaked};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::config::read_environment();
        super::primary::before_first_use(super::manager::choose_from_environment);
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("config", super::config::PyConfig)
    }
}
