//! What is set for the whole process.

use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};

static SYNC: AtomicBool = AtomicBool::new(true);
static EXPORT_STREAM: AtomicBool = AtomicBool::new(true);

/// Whether arrays of others are put in order with their stream.
pub(crate) fn sync() -> bool {
    SYNC.load(Ordering::Relaxed)
}

/// Whether arrays are exported with their stream.
pub(crate) fn export_stream() -> bool {
    EXPORT_STREAM.load(Ordering::Relaxed)
}

/// Reads the environment, when the module is loaded: "0" turns off.
pub(crate) fn read_environment() {
    let is_on = |name| std::env::var_os(name).is_none_or(|value| value != "0");
    SYNC.store(is_on("CUDA_SAFE_ARRAY_INTERFACE_SYNC"), Ordering::Relaxed);
    let export = is_on("CUDA_SAFE_ARRAY_INTERFACE_EXPORT_STREAM");
    EXPORT_STREAM.store(export, Ordering::Relaxed);
}

/// `cuda_safe.config`: what is set for the whole process.
#[pyclass(frozen, name = "Config", module = "cuda_safe")]
pub(crate) struct PyConfig;

#[pymethods]
impl PyConfig {
    /// Whether arrays of others are put in order with the stream that they are exported with. Off, the
    /// stream is ignored, and races are the user's. `CUDA_SAFE_ARRAY_INTERFACE_SYNC=0` is the same.
    #[getter]
    fn array_interface_sync(&self) -> bool {
        sync()
    }

    #[setter]
    fn set_array_interface_sync(&self, on: bool) {
        SYNC.store(on, Ordering::Relaxed);
    }

    /// Whether arrays are exported with their stream. Off, that is always None, and races are the
    /// user's. `CUDA_SAFE_ARRAY_INTERFACE_EXPORT_STREAM=0` is the same.
    #[getter]
    fn array_interface_export_stream(&self) -> bool {
        export_stream()
    }

    #[setter]
    fn set_array_interface_export_stream(&self, on: bool) {
        EXPORT_STREAM.store(on, Ordering::Relaxed);
    }

    fn __repr__(&self) -> String {
        let (sync, export) = (sync(), export_stream());
        format!("<Config: array_interface_sync={sync}, array_interface_export_stream={export}>")
    }
}
