//! Arrays in pinned host memory.

use super::memory::host_address;
use super::to_host::wait;
use super::{PyDeviceArray, as_cuda_array, dlpack, has_interface, host, interface};
use crate::error::{Failure, Result};
use crate::lifetime::once::intern;
use crate::objects::{PyStream, stream_or_current};
use cuda_safe::interop::Dtype;
use cuda_safe::interop::dlpack::MemoryKind;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

/// An array in pinned host memory. The host and the device use the same memory, so copies from and
/// to a `DeviceArray` run in stream order, and the host does not wait for them.
///
/// NumPy uses the memory through `numpy()` or `numpy.asarray(array)`, which wait for the work on
/// the array. Call `synchronize()` before the host uses the memory again after a later copy.
#[pyclass(frozen, name = "PinnedArray", module = "cuda_safe", weakref)]
pub(crate) struct PyPinnedArray {
    /// The same memory as an array for the device.
    pub(super) array: PyDeviceArray,
    /// The address for the host, or 0 if the array is empty.
    host: u64,
}

impl PyPinnedArray {
    fn allocate(
        py: Python<'_>,
        shape: &[usize],
        dtype: Dtype,
        stream: Option<&Py<PyStream>>,
    ) -> Result<Self> {
        let stream = stream_or_current(py, stream.map(Py::get))?;
        let array = PyDeviceArray::allocate_in(py, stream, dtype, shape, MemoryKind::Pinned)?;
        let host = host_address(py, array.array.address)?;
        let host = host.ok_or_else(|| Failure::invalid("the driver knows no host address"))?;
        Ok(Self { array, host })
    }

    /// Sets all bytes from `source`, or to 0. The array must be new.
    fn write(&self, source: Option<&host::HostArray<'_>>) {
        let to: *mut u8 = std::ptr::with_exposed_provenance_mut(self.host as usize);
        // An empty array has no memory.
        let bytes = match self.array.array.layout.is_empty() {
            true => return,
            false => self.array.array.layout.byte_range().end.unsigned_abs(),
        };
        match source {
            // SAFETY: both have this many bytes, and no other code has access to the new array yet.
            Some(source) => unsafe { to.copy_from_nonoverlapping(source.start(), bytes) },
            // SAFETY: as above.
            None => unsafe { to.write_bytes(0, bytes) },
        }
    }
}

#[pymethods]
impl PyPinnedArray {
    /// Allocates an array with uninitialized elements, which is used in the order of `stream`.
    /// `dtype` and the default of `stream` are those of `DeviceArray.empty`.
    #[staticmethod]
    #[pyo3(signature = (shape, dtype = None, *, stream = None))]
    fn empty(
        py: Python<'_>,
        shape: &Bound<'_, PyAny>,
        dtype: Option<&Bound<'_, PyAny>>,
        stream: Option<Py<PyStream>>,
    ) -> Result<Self> {
        let (dtype, inner) = host::dtype(py, dtype)?;
        let shape = [host::shape(shape)?, inner].concat();
        Self::allocate(py, &shape, dtype, stream.as_ref())
    }

    /// Allocates an array and sets all bytes to 0.
    #[staticmethod]
    #[pyo3(signature = (shape, dtype = None, *, stream = None))]
    fn zeros(
        py: Python<'_>,
        shape: &Bound<'_, PyAny>,
        dtype: Option<&Bound<'_, PyAny>>,
        stream: Option<Py<PyStream>>,
    ) -> Result<Self> {
        let array = Self::empty(py, shape, dtype, stream)?;
        array.write(None);
        Ok(array)
    }

    /// Allocates an array with a copy of host data, as `DeviceArray.from_host` does.
    #[staticmethod]
    #[pyo3(signature = (source, *, stream = None))]
    fn from_host(
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        stream: Option<Py<PyStream>>,
    ) -> Result<Self> {
        let source = host::HostArray::of(source)?;
        let dtype = source.dtype.clone();
        let array = Self::allocate(py, source.layout.shape(), dtype, stream.as_ref())?;
        array.write(Some(&source));
        Ok(array)
    }

    /// The extents of the dimensions.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyTuple>> {
        Ok(PyTuple::new(py, self.array.array.layout.shape())?)
    }

    /// The number of dimensions.
    #[getter]
    fn ndim(&self) -> usize {
        self.array.array.layout.shape().len()
    }

    /// The number of elements.
    #[getter]
    fn size(&self) -> usize {
        self.array.array.layout.len().unwrap_or(usize::MAX)
    }

    /// The size of an element in bytes.
    #[getter]
    fn itemsize(&self) -> usize {
        self.array.array.dtype.item_size()
    }

    /// The size of all elements in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.size().saturating_mul(self.itemsize())
    }

    /// The type of the elements as a numpy.dtype. Requires NumPy; `typestr` and `descr` do not.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        host::numpy_dtype(py, &self.array.array.dtype)
    }

    /// The type of the elements as a NumPy type string, for example "<f4".
    #[getter]
    fn typestr(&self) -> String {
        self.array.array.dtype.typestr()
    }

    /// The fields of a record in NumPy's format, or None.
    #[getter]
    fn descr<'py>(&self, py: Python<'py>) -> Result<Option<Bound<'py, PyList>>> {
        host::descr(py, &self.array.array.dtype)
    }

    /// The stream on which the work on the array runs.
    #[getter]
    fn stream(&self, py: Python<'_>) -> Result<Option<PyStream>> {
        self.array.stream(py)
    }

    /// Returns a `DeviceArray` on the same memory and stream, which the device uses over the bus:
    /// for indexing, fills and other libraries' kernels.
    fn as_device_array(&self, py: Python<'_>) -> Result<PyDeviceArray> {
        self.array.view_of(py, self.array.array.layout.clone())
    }

    /// Copies the elements of an array on a device, or of another pinned array, into this array, in
    /// the order of both streams. The type must be the same, and the shape must be broadcastable to
    /// the shape of this array. The host does not wait. `DeviceArray.copy_from(pinned)` copies in
    /// the other direction.
    fn copy_from(&self, py: Python<'_>, source: &Bound<'_, PyAny>) -> Result<()> {
        if let Ok(source) = source.cast::<PyDeviceArray>() {
            return self.array.copy_array(py, source.get());
        }
        if let Ok(source) = source.cast::<Self>() {
            return self.array.copy_array(py, &source.get().array);
        }
        if has_interface(source)? {
            return self.array.copy_array(py, &as_cuda_array(source, true)?);
        }
        Err(PyTypeError::new_err(
            "the source is not on a device: to copy host data, assign to numpy()[...]",
        )
        .into())
    }

    /// Waits for the work on the array, and returns a NumPy array on the same memory.
    fn numpy<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, PyAny>> {
        host::shared(slf.as_any())
    }

    /// Waits for the work on the array.
    fn synchronize(&self, py: Python<'_>) -> Result<()> {
        self.array.synchronize(py)
    }

    /// Releases the memory, which is freed after the work on it. If the address was exported, the
    /// memory stays allocated until this object is deleted.
    fn close(&self, py: Python<'_>) {
        self.array.close(py);
    }

    /// Whether the array was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.array.closed()
    }

    /// NumPy's array interface, version 3. Reading it waits for the work on the array. It keeps
    /// nothing alive; the consumer must keep this object alive.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        // This comes first, so that a concurrent `close` does not free the memory.
        self.array.set_exported();
        wait(py, &self.array)?;
        let interface = interface::write(py, &self.array.array, None)?;
        interface.set_item(intern!(py, "data"), (self.host, false))?;
        interface.del_item(intern!(py, "stream"))?;
        Ok(interface)
    }

    /// Returns the device type of pinned host memory, 3, and the number 0, for DLPack.
    fn __dlpack_device__(&self) -> Result<(i32, i32)> {
        self.array.look(dlpack::device)
    }

    /// Returns a capsule with a DLPack tensor, as `DeviceArray.__dlpack__` does. Without a
    /// `stream`, the consumer may be the host, so this waits for the work on the array.
    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<i64>,
        max_version: Option<&Bound<'py, PyTuple>>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> Result<Bound<'py, PyAny>> {
        let request = dlpack::Request {
            stream,
            max_version: dlpack::version(max_version)?,
            device: dl_device,
            copy,
        };
        dlpack::answer(py, &self.array, &request)
    }

    fn __len__(&self) -> Result<usize> {
        self.array.first_extent()
    }

    fn __repr__(&self) -> String {
        let its = &self.array.array;
        let closed = if self.closed() { ", closed" } else { "" };
        format!("<PinnedArray {} {:?}{closed}>", its.dtype, its.layout.shape())
    }
}
