//! Checks for arrays of other libraries beyond the protocols, used only if those libraries are
//! loaded.

use crate::error::{Failure, Result};
use crate::lifetime::once::{Once, intern};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyType};

/// Returns a module, if it is loaded.
fn loaded<'py>(name: &Bound<'py, PyString>) -> PyResult<Option<Bound<'py, PyAny>>> {
    static MODULES: Once<Py<PyDict>> = Once::new();
    let py = name.py();
    let modules = match MODULES.get() {
        Some(modules) => modules,
        None => {
            let modules = py.import("sys")?.getattr("modules")?;
            MODULES.keep(py, modules.cast_into::<PyDict>()?.unbind())
        }
    };
    modules.bind(py).get_item(name)
}

/// Returns a class of a module, or None while another thread is importing the module.
fn class_of<'py>(
    module: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
) -> PyResult<Option<Bound<'py, PyType>>> {
    let class = module.getattr_opt(name)?;
    Ok(class.and_then(|class| class.cast_into().ok()))
}

/// Returns CuPy's current stream object if it has this handle and `owner` is a CuPy array. CuPy
/// arrays name the stream that is current at the time of the export, and do not keep it alive.
pub(super) fn cupy_stream(owner: &Bound<'_, PyAny>, handle: u64) -> Result<Option<Py<PyAny>>> {
    let py = owner.py();
    let Some(cupy) = loaded(intern!(py, "cupy"))? else {
        return Ok(None);
    };
    match class_of(&cupy, intern!(py, "ndarray"))? {
        Some(ndarray) if owner.is_instance(&ndarray)? => {}
        _ => return Ok(None),
    }
    let cuda = cupy.getattr(intern!(py, "cuda"))?;
    let stream = cuda.call_method0(intern!(py, "get_current_stream"))?;
    let current: u64 = stream.getattr(intern!(py, "ptr"))?.extract()?;
    Ok((current == handle).then(|| stream.unbind()))
}

/// Returns whether an object is a PyTorch tensor.
fn is_tensor(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    static TENSOR: Once<Py<PyType>> = Once::new();
    let py = object.py();
    if let Some(tensor) = TENSOR.get() {
        return object.is_instance(tensor.bind(py));
    }
    let Some(torch) = loaded(intern!(py, "torch"))? else {
        return Ok(false);
    };
    let Some(tensor) = class_of(&torch, intern!(py, "Tensor"))? else {
        return Ok(false);
    };
    object.is_instance(TENSOR.keep(py, tensor.unbind()).bind(py))
}

/// PyTorch's bits, and the method that returns a tensor without the bit.
const CONJUGATE: [&str; 2] = ["conjugate", "resolve_conj"];
const NEGATIVE: [&str; 2] = ["negative", "resolve_neg"];

/// Refuses PyTorch tensors that are conjugated or negated only when read. Their memory has other
/// values than the tensor, and neither protocol can express this.
pub(super) fn refuse_lazy(
    object: &Bound<'_, PyAny>,
    refused: impl Fn(String) -> Failure,
) -> Result<()> {
    if !is_tensor(object)? {
        return Ok(());
    }
    let py = object.py();
    refuse_if(object, intern!(py, "is_conj"), CONJUGATE, &refused)?;
    refuse_if(object, intern!(py, "is_neg"), NEGATIVE, &refused)
}

/// Refuses negated tensors only, because only complex tensors are conjugated. `object` may be of
/// any type.
pub(super) fn refuse_negated(
    object: &Bound<'_, PyAny>,
    refused: impl Fn(String) -> Failure,
) -> Result<()> {
    refuse_if(object, intern!(object.py(), "is_neg"), NEGATIVE, &refused)
}

fn refuse_if(
    object: &Bound<'_, PyAny>,
    asks: &Bound<'_, PyString>,
    [bit, resolves]: [&str; 2],
    refused: &impl Fn(String) -> Failure,
) -> Result<()> {
    let Some(asks) = object.getattr_opt(asks)? else {
        return Ok(());
    };
    if asks.call0()?.is_truthy()? {
        return Err(refused(format!(
            "PyTorch's {bit} bit is set, so the values in memory differ from those of the tensor: call \
             {resolves}() to get a tensor with its values in memory"
        )));
    }
    Ok(())
}
