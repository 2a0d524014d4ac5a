//! Process-wide settings.

use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};

static SYNC: AtomicBool = AtomicBool::new(true);
static EXPORT_STREAM: AtomicBool = AtomicBool::new(true);

/// Returns whether work on imported arrays is ordered with their stream.
pub(crate) fn sync() -> bool {
    SYNC.load(Ordering::Relaxed)
}

/// Returns whether arrays are exported with their stream.
pub(crate) fn export_stream() -> bool {
    EXPORT_STREAM.load(Ordering::Relaxed)
}

/// Reads the environment when the module is loaded: "0" turns an option off. The variable of this
/// package has precedence over the one of Numba.
pub(crate) fn read_environment() {
    let is_on = |name| std::env::var_os(name).map(|value| value != "0");
    let sync = is_on("CUDA_SAFE_ARRAY_INTERFACE_SYNC").or_else(numbas_sync);
    SYNC.store(sync.unwrap_or(true), Ordering::Relaxed);
    let export = is_on("CUDA_SAFE_ARRAY_INTERFACE_EXPORT_STREAM");
    EXPORT_STREAM.store(export.unwrap_or(true), Ordering::Relaxed);
}

/// Reads Numba's variable, which is an integer. Numba ignores other values with a warning.
fn numbas_sync() -> Option<bool> {
    let value = std::env::var("NUMBA_CUDA_ARRAY_INTERFACE_SYNC").ok()?;
    let number: i64 = value.trim().parse().ok()?;
    Some(number != 0)
}

/// `cuda_safe.config`: process-wide settings.
#[pyclass(frozen, name = "Config", module = "cuda_safe")]
pub(crate) struct PyConfig;

#[pymethods]
impl PyConfig {
    /// Whether work on imported arrays is ordered with the stream that their producer exports. If
    /// it is false, the stream is ignored, and the caller must prevent data races.
    /// `CUDA_SAFE_ARRAY_INTERFACE_SYNC=0` turns it off, and so does
    /// `NUMBA_CUDA_ARRAY_INTERFACE_SYNC=0` if the first variable is not set.
    #[getter]
    fn array_interface_sync(&self) -> bool {
        sync()
    }

    #[setter]
    fn set_array_interface_sync(&self, on: bool) {
        SYNC.store(on, Ordering::Relaxed);
    }

    /// Whether arrays are exported with their stream. If it is false, the exported stream is always
    /// None, and the caller must prevent data races. `CUDA_SAFE_ARRAY_INTERFACE_EXPORT_STREAM=0`
    /// turns it off.
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
