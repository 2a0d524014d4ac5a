//! Modules and kernels that were compiled at run time.

mod argument;

use crate::array;
use crate::error::{Failure, Result};
use crate::lifetime::ending::detached;
use crate::lifetime::hold::Closable;
use crate::objects::PyStream;
use argument::{Argument, Parameter};
use cuda_nvrtc::Compiled;
use cuda_safe::module::attribute as kernel_attribute;
use cuda_safe::{Kernel, LaunchConfig, Module};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use std::sync::Arc;

/// A loaded program (`compile`). Its kernels keep it loaded.
#[pyclass(frozen, name = "Module", module = "cuda_safe", weakref)]
pub(crate) struct PyCodeModule {
    module: Closable<Module>,
    compiled: Arc<Compiled>,
}

impl PyCodeModule {
    pub(crate) fn new(module: Module, compiled: Arc<Compiled>) -> Self {
        Self { module: Closable::new("module", module), compiled }
    }
}

#[pymethods]
impl PyCodeModule {
    /// Returns a kernel by its symbol (the name of an `extern "C"` function), or by one of the `names` that were
    /// passed to `compile`.
    fn kernel(&self, py: Python<'_>, name: &str) -> Result<PyKernel> {
        let module = self.module.get()?;
        let symbol = self.compiled.lowered_name(name).unwrap_or(name);
        let kernel = detached(py, || module.kernel(symbol))?;
        let ptx = self.compiled.ptx().unwrap_or_default();
        let parameters = argument::parameters(ptx, symbol).ok_or_else(|| {
            Failure::invalid(format!("the PTX does not declare the parameters of {symbol}"))
        })?;
        Ok(PyKernel { kernel: Closable::new("kernel", kernel), name: name.to_owned(), parameters })
    }

    /// The PTX text.
    #[getter]
    fn ptx(&self) -> Option<&str> {
        self.compiled.ptx()
    }

    /// The cubin, or None if NVRTC is older than the device.
    #[getter]
    fn cubin<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.compiled.cubin().map(|cubin| PyBytes::new(py, cubin))
    }

    /// The log of the compiler, which contains the warnings.
    #[getter]
    fn log(&self) -> &str {
        self.compiled.log()
    }

    fn __repr__(&self) -> String {
        format!("<Module for {}>", self.compiled.target())
    }
}

/// A kernel of a `Module`.
#[pyclass(frozen, name = "Kernel", module = "cuda_safe", weakref)]
pub(crate) struct PyKernel {
    kernel: Closable<Kernel>,
    name: String,
    parameters: Vec<Parameter>,
}

#[pymethods]
impl PyKernel {
    /// Launches the kernel, and does not wait for it. `grid` is the number of blocks and `block` the number of
    /// threads of a block, each with up to three dimensions.
    ///
    /// An array is passed as a pointer to its first element: a `DeviceArray`, or another object that has
    /// `__cuda_array_interface__`. None is a null pointer. A bool, int or float is converted to the type of its
    /// parameter, and NumPy's scalars too. A struct is passed as `bytes`, or as a NumPy scalar.
    ///
    /// The launch runs on `stream`, by default the stream of the first array, or else the current stream. It is
    /// ordered with the streams of all arrays. In a capture, the graph keeps the kernel and the arrays of this
    /// package alive.
    ///
    /// The kernel must not access memory outside of the arrays, and must not write to read-only arrays. An int for a
    /// pointer is an address, which is not checked. Errors in the kernel appear at a later call.
    #[pyo3(signature = (grid, block, *arguments, stream = None, shared_bytes = 0))]
    fn launch(
        &self,
        py: Python<'_>,
        grid: Dimensions,
        block: Dimensions,
        arguments: &Bound<'_, PyTuple>,
        stream: Option<&Bound<'_, PyAny>>,
        shared_bytes: u32,
    ) -> Result<()> {
        let kernel = self.kernel.get()?;
        let (expected, given) = (self.parameters.len(), arguments.len());
        if expected != given {
            return Err(Failure::invalid(format!(
                "the kernel {} has {expected} parameters, and {given} arguments were given",
                self.name
            )));
        }
        let mut bytes = Vec::new();
        let mut arrays = Vec::new();
        for (index, (parameter, value)) in self.parameters.iter().zip(arguments).enumerate() {
            match parameter.argument(&value, &self.name, index)? {
                Argument::Bytes(value) => bytes.push(value),
                Argument::Array(array) => {
                    bytes.push(array.address().to_ne_bytes().to_vec());
                    arrays.push(array);
                }
            }
        }
        let ordinal = kernel.context().device().ordinal();
        let stream = match stream {
            Some(stream) => Some(PyStream::lane_of_object(py, stream, None, Some(ordinal))?),
            None => None,
        };
        let config = LaunchConfig::new(grid.0, block.0).with_shared_bytes(shared_bytes);
        // A graph that captures the launch keeps the kernel loaded.
        let in_graphs = Arc::new(kernel.clone());
        array::run(py, stream, ordinal, arrays, in_graphs, |stream| {
            let mut launch = kernel.launch_builder(stream);
            for value in &bytes {
                launch.arg_bytes(value);
            }
            // SAFETY: the caller in Python promises that the kernel accesses only the arrays. The arguments have the
            // types of the parameters.
            Ok(unsafe { launch.launch(config) }?)
        })
    }

    /// The name with which the kernel was obtained.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// The types of the parameters: `"f32"`, `"u64"` (also a pointer), or `"b8[16]"` for a struct of 16 bytes.
    #[getter]
    fn parameters(&self) -> Vec<String> {
        self.parameters.iter().map(ToString::to_string).collect()
    }

    /// The maximum number of threads of a block, which the registers of the kernel limit.
    #[getter]
    fn max_threads_per_block(&self, py: Python<'_>) -> Result<u32> {
        let kernel = self.kernel.get()?;
        detached(py, || kernel.attribute(kernel_attribute::MAX_THREADS_PER_BLOCK))
    }

    fn __repr__(&self) -> String {
        format!("<Kernel {}({})>", self.name, self.parameters().join(", "))
    }
}

/// The dimensions of a grid or a block: one number, or up to three.
pub(crate) struct Dimensions([u32; 3]);

impl<'py> FromPyObject<'_, 'py> for Dimensions {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(number) = given.extract::<u32>() {
            return Ok(Self([number, 1, 1]));
        }
        let numbers: Vec<u32> = given.extract()?;
        let mut dimensions = [1; 3];
        match dimensions.get_mut(..numbers.len()) {
            Some(given) if !numbers.is_empty() => given.copy_from_slice(&numbers),
            _ => {
                let count = numbers.len();
                let text = format!("{count} dimensions, where one to three are possible");
                return Err(Failure::invalid(text).into());
            }
        }
        Ok(Self(dimensions))
    }
}
