//! The native half of the Python package `cuda_safe`, on the crate of that name.
//!
//! One file a class; `lane.rs` has all calls of the driver that `cuda-safe` has no safe form for, as
//! they name streams of others. Whatever may wait lets other threads of Python run: releases too
//! (`hold.rs`).

mod array;
mod config;
mod context;
mod current;
mod device;
mod ending;
mod error;
mod event;
mod green;
mod hold;
mod lane;
mod manager;
mod once;
mod pointer;
mod stream;

use crate::ending::detached;
use error::Result;
use pyo3::prelude::*;

/// The CUDA version that the driver offers, as (13, 0).
#[pyfunction]
fn driver_version(py: Python<'_>) -> Result<(i32, i32)> {
    let version = detached(py, cuda_safe::version)?;
    Ok((version.major(), version.minor()))
}

/// How many objects of the driver this process has leaked: those that could not be released.
#[pyfunction]
fn leaked() -> u64 {
    cuda_safe::leaked()
}

/// The native half of `cuda_safe`.
#[pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::array::{PyDeviceArray, as_cuda_array, from_cuda_array_interface, from_dlpack};
    #[pymodule_export]
    use super::config::PyConfig;
    #[pymodule_export]
    use super::context::PyContext;
    #[pymodule_export]
    use super::device::PyDevice;
    #[pymodule_export]
    use super::ending::{_end, _forked};
    #[pymodule_export]
    use super::event::PyEvent;
    #[pymodule_export]
    use super::green::{PyGreenContext, PySmGroup, PySmResource};
    #[pymodule_export]
    use super::manager::{
        _choose_memory_manager, _torch_functions, _torch_streams, PyCleanup, PyHostMemory,
        PyMemory, PyMemoryManager, memory_manager, set_memory_manager,
    };
    #[pymodule_export]
    use super::pointer::pointer_attributes;
    #[pymodule_export]
    use super::stream::PyStream;
    #[pymodule_export]
    use super::{driver_version, leaked};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::config::read_environment();
        module.add("config", super::config::PyConfig)
    }
}
