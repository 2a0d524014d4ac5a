//! The methods of `DeviceArray` in Python.

use super::index::{self, View};
use super::memory::Memory;
use super::{
    Kept, PyDeviceArray, PyPinnedArray, as_cuda_array, dlpack, exchange, has_interface, host,
    strided,
};
use crate::config;
use crate::error::{Failure, Result};
use crate::lifetime::ending::{attached, calling, detached};
use crate::objects::{PyContext, PyDevice, PyStream, stream_or_current};
use crate::stream_handle::StreamHandle;
use cuda_safe::interop::Layout;
use cuda_safe::interop::dlpack::MemoryKind;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use pyo3::{PyTraverseError, PyVisit};
use std::sync::atomic::Ordering;

#[pymethods]
impl PyDeviceArray {
    /// Allocates an array on `stream` with uninitialized elements. `dtype` is a numpy.dtype or a
    /// value from which NumPy creates one ("f4", "float32", float). The default stream is
    /// `Stream.current()`.
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
        let stream = stream_or_current(py, stream.as_ref().map(Py::get))?;
        Self::allocate(py, stream, dtype, &shape)
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
        // An empty array may have elements of any size.
        if !array.array.layout.is_empty() {
            let item = strided::zeroed(array.itemsize())?;
            array.fill_with(py, &item)?;
        }
        Ok(array)
    }

    /// Allocates an array and sets all elements to `value`.
    #[staticmethod]
    #[pyo3(signature = (shape, value, dtype = None, *, stream = None))]
    fn full(
        py: Python<'_>,
        shape: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        dtype: Option<&Bound<'_, PyAny>>,
        stream: Option<Py<PyStream>>,
    ) -> Result<Self> {
        let array = Self::empty(py, shape, dtype, stream)?;
        array.fill(py, value)?;
        Ok(array)
    }

    /// Allocates an array with a copy of host data: a NumPy array, a value from which NumPy creates
    /// one, or a buffer (bytes, array.array, memoryview). Returns when the copy is complete.
    #[staticmethod]
    #[pyo3(signature = (source, *, stream = None))]
    fn from_host(
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        stream: Option<Py<PyStream>>,
    ) -> Result<Self> {
        let source = host::HostArray::of(source)?;
        let stream = stream_or_current(py, stream.as_ref().map(Py::get))?;
        let array = Self::allocate(py, stream, source.dtype.clone(), source.layout.shape())?;
        array.copy_host(py, &source)?;
        Ok(array)
    }

    /// The extents of the dimensions.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyTuple>> {
        Ok(PyTuple::new(py, self.array.layout.shape())?)
    }

    /// The distance in bytes to the next element along each dimension.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyTuple>> {
        Ok(PyTuple::new(py, self.array.layout.strides())?)
    }

    /// The number of dimensions.
    #[getter]
    fn ndim(&self) -> usize {
        self.array.layout.shape().len()
    }

    /// The number of elements.
    #[getter]
    fn size(&self) -> usize {
        self.array.layout.len().unwrap_or(usize::MAX)
    }

    /// The size of an element in bytes.
    #[getter]
    fn itemsize(&self) -> usize {
        self.array.dtype.item_size()
    }

    /// The size of all elements in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.size().saturating_mul(self.itemsize())
    }

    /// The type of the elements as a numpy.dtype. Requires NumPy; `typestr` and `descr` do not.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        host::numpy_dtype(py, &self.array.dtype)
    }

    /// The type of the elements as a NumPy type string, for example "<f4".
    #[getter]
    fn typestr(&self) -> String {
        self.array.dtype.typestr()
    }

    /// The fields of a record in NumPy's format, or None.
    #[getter]
    fn descr<'py>(&self, py: Python<'py>) -> Result<Option<Bound<'py, PyList>>> {
        host::descr(py, &self.array.dtype)
    }

    /// The address of the first element on the device, or 0 if the array is empty.
    #[getter]
    fn address(&self) -> Result<u64> {
        self.look(Memory::set_used)?;
        self.set_exported();
        Ok(self.array.address)
    }

    /// Whether writing to the array is forbidden.
    #[getter]
    fn read_only(&self) -> bool {
        self.array.read_only
    }

    /// Whether the elements are contiguous with the last dimension varying fastest (C order).
    #[getter]
    fn is_c_contiguous(&self) -> bool {
        self.array.layout.is_c_contiguous()
    }

    /// Whether the elements are contiguous with the first dimension varying fastest (Fortran
    /// order).
    #[getter]
    fn is_f_contiguous(&self) -> bool {
        self.array.layout.is_f_contiguous()
    }

    /// The stream on which all work on the array runs and with which it is exported. It is None if
    /// the producer named no stream; calls then return only when their work is complete.
    #[getter]
    pub(super) fn stream(&self, py: Python<'_>) -> Result<Option<PyStream>> {
        let Kept { memory, owner } = self.kept(py)?;
        memory.set_used();
        let Some(lane) = memory.lane() else {
            return Ok(None);
        };
        let StreamHandle::Handle(handle, context) = lane else {
            return Ok(Some(PyStream::of_lane(lane.clone())));
        };
        // The owner keeps the stream alive, or the caller of the import promised to do so.
        let owner = owner.unwrap_or_else(|| py.None());
        Ok(Some(PyStream::foreign(*handle, context, owner)?))
    }

    /// The device that has the memory.
    #[getter]
    fn device(&self) -> Result<PyDevice> {
        self.look(|memory| PyDevice(memory.context().device()))
    }

    /// The context in which work on the array runs.
    #[getter]
    fn context(&self) -> Result<PyContext> {
        self.look(|memory| PyContext(memory.context().clone()))
    }

    /// The object that keeps foreign memory alive, or None.
    #[getter]
    fn owner(&self, py: Python<'_>) -> Result<Option<Py<PyAny>>> {
        Ok(self.kept(py)?.owner)
    }

    /// Sets all elements to `value`, in stream order.
    fn fill(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> Result<()> {
        let item = host::item_bytes(&self.array.dtype, value)?;
        self.fill_with(py, item.as_bytes())
    }

    /// Allocates a copy in C order on the same stream. If the array has no stream, the copy is on
    /// the device's default stream.
    pub(super) fn copy(&self, py: Python<'_>) -> Result<Self> {
        self.copy_in(py, MemoryKind::Device)
    }

    /// Copies the elements of `source` into this array. The type must be the same, and the shape
    /// must be broadcastable to the shape of this array. A copy of a device array is ordered with
    /// both streams, and so is a copy of a `PinnedArray`. A copy of another host array returns when
    /// it is complete.
    fn copy_from(&self, py: Python<'_>, source: &Bound<'_, PyAny>) -> Result<()> {
        if let Ok(source) = source.cast::<Self>() {
            return self.copy_array(py, source.get());
        }
        if let Ok(source) = source.cast::<PyPinnedArray>() {
            return self.copy_array(py, &source.get().array);
        }
        if has_interface(source)? {
            return self.copy_array(py, &as_cuda_array(source, true)?);
        }
        let source = host::HostArray::of(source)?;
        self.copy_host(py, &source)
    }

    /// Copies the elements to `out`, or to a new NumPy array, and returns it. Waits for the work on
    /// the array.
    #[pyo3(signature = (out = None))]
    fn copy_to_host<'py>(
        &self,
        py: Python<'py>,
        out: Option<Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyAny>> {
        host::copy_to_host(py, self, out)
    }

    /// Returns the bytes of all elements in C order. Waits for the work on the array. Does not
    /// require NumPy.
    fn to_bytes<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyBytes>> {
        let contiguous = Layout::c_contiguous(self.array.layout.shape(), self.itemsize())?;
        let bytes = contiguous.byte_range().end.unsigned_abs();
        let bytes = PyBytes::new_with(py, bytes, |to| {
            // SAFETY: `to` has the size of all elements, and no other code has access to it yet.
            Ok(unsafe { self.copy_out(py, to.as_mut_ptr(), &contiguous) }?)
        });
        Ok(bytes?)
    }

    /// Returns a view with permuted dimensions. Without arguments, the dimensions are reversed.
    #[pyo3(signature = (*axes))]
    fn transpose(&self, py: Python<'_>, axes: &Bound<'_, PyTuple>) -> Result<Self> {
        let axes = host::numbers(axes)?;
        let layout = index::transpose(&self.array.layout, axes)?;
        self.view_of(py, layout)
    }

    /// A view with reversed dimensions.
    #[getter(T)]
    fn transposed(&self, py: Python<'_>) -> Result<Self> {
        self.view_of(py, index::transpose(&self.array.layout, None)?)
    }

    /// Returns a view with another shape. One extent may be -1. Raises an exception if this is not
    /// possible without a copy.
    #[pyo3(signature = (*shape))]
    fn reshape(&self, py: Python<'_>, shape: &Bound<'_, PyTuple>) -> Result<Self> {
        let shape = host::numbers(shape)?.unwrap_or_default();
        self.view_of(py, index::reshape(&self.array.layout, &shape)?)
    }

    /// Returns a view of the same bytes as elements of another type of the same size.
    fn view_as(&self, py: Python<'_>, dtype: &Bound<'_, PyAny>) -> Result<Self> {
        let (dtype, inner) = host::dtype(py, Some(dtype))?;
        if dtype.item_size() != self.itemsize() || !inner.is_empty() {
            return Err(Failure::invalid(format!(
                "elements of {} as {dtype}: their sizes differ",
                self.array.dtype
            )));
        }
        let layout = self.array.layout.clone();
        self.view(py, dtype, View { offset: 0, layout })
    }

    /// Returns a view that refuses writes.
    fn as_read_only(&self, py: Python<'_>) -> Result<Self> {
        let mut view = self.view_of(py, self.array.layout.clone())?;
        view.array.read_only = true;
        // The address of an empty layout is not used.
        Ok(view)
    }

    /// Orders all work that was submitted to `stream` so far before later work on the array's
    /// stream. Call this before the array is handed over or released, if work on it ran on another
    /// stream. The host does not wait, except for an array without a stream.
    fn join(&self, py: Python<'_>, stream: &Bound<'_, PyAny>) -> Result<()> {
        let near = self.look(|memory| memory.context().device().ordinal())?;
        let other = PyStream::lane_of_object(py, stream, None, Some(near))?;
        // These references keep the producer alive, which keeps the stream alive, even if another
        // thread closes the array.
        let kept = self.kept(py)?;
        let lane = kept.memory.lane().cloned();
        let joined = detached(py, move || match lane {
            Some(lane) => lane.wait_stream(&other),
            None => other.synchronize(),
        });
        kept.release(py);
        joined
    }

    /// Waits for the work on the array.
    pub(super) fn synchronize(&self, py: Python<'_>) -> Result<()> {
        // An array without a stream has no pending work.
        let kept = self.kept(py)?;
        let waited = match kept.memory.lane().cloned() {
            Some(lane) => detached(py, move || lane.synchronize()),
            None => Ok(()),
        };
        kept.release(py);
        waited
    }

    /// Releases the memory, which is freed when its last view is released. If the address was
    /// exported, the memory stays allocated until this object is deleted, because code that keeps
    /// this object may use it.
    pub(super) fn close(&self, py: Python<'_>) {
        self.is_closed.store(true, Ordering::Relaxed);
        if self.is_exported.load(Ordering::Relaxed) {
            return;
        }
        let kept = self.lock().take();
        if let Some(kept) = kept {
            kept.release(py);
        }
    }

    /// Whether the array was closed.
    #[getter]
    pub(super) fn closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// The CUDA Array Interface, version 3. It keeps nothing alive; the consumer must keep this
    /// object alive.
    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(Failure::closed("array"));
        }
        if let Some(interface) = self.interface.get() {
            if config::export_stream() {
                self.look(|_| ())?;
                // The consumer may modify its copy.
                return Ok(interface.bind(py).copy()?);
            }
        }
        self.export(py)
    }

    /// Returns the kind of the memory (2: device, 3: pinned host, 13: managed) and the number of
    /// the device, for DLPack.
    fn __dlpack_device__(&self) -> Result<(i32, i32)> {
        self.look(dlpack::device)
    }

    /// Returns a capsule with a DLPack tensor, of version 1 if the consumer supports it. The
    /// consumer's `stream` (None is the legacy default stream) waits for the work on the array; -1
    /// means no ordering. The tensor keeps the memory alive.
    ///
    /// `dl_device` is the device of the array, or `(1, 0)` for the host. For the host, this method
    /// waits for the work on the array and ignores `stream`. It copies device memory, unless `copy`
    /// is false, which raises a `BufferError`; it copies pinned and managed memory only if `copy`
    /// is true. On the device, the elements are copied only if `copy` is true.
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
        dlpack::answer(py, self, &request)
    }

    /// DLPack's C functions for arrays of this type (`DLPackExchangeAPI`, version 1.3), which need
    /// no Python call. A consumer works on the stream that `current_work_stream` returns, which is
    /// `Stream.current()`; each export orders the work on the array before this stream. A
    /// `DLTensor` is returned only for arrays that are on this stream and not read-only.
    #[classattr]
    fn __dlpack_c_exchange_api__(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        exchange::capsule(py)
    }

    fn __getitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> Result<Self> {
        if let Some(name) = index::field_name(key) {
            return self.field(py, name.to_str()?);
        }
        let view = calling(py, || index::index(&self.array.layout, key))?;
        self.view(py, self.array.dtype.clone(), view)
    }

    fn __setitem__(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> Result<()> {
        self.refuse_read_only()?;
        let target = self.__getitem__(py, key)?;
        if value.is_instance_of::<Self>() || has_interface(value)? {
            return target.copy_from(py, value);
        }
        match host::values(&target.array, value)? {
            host::Values::One(item) => target.fill_with(py, item.as_bytes()),
            host::Values::Each(source) => target.copy_host(py, &source),
        }
    }

    fn __len__(&self) -> Result<usize> {
        self.first_extent()
    }

    /// Raises a `TypeError`. Without this method NumPy would copy the array element by element.
    #[pyo3(signature = (*_args, **_kwargs))]
    fn __array__(
        &self,
        _args: &Bound<'_, PyTuple>,
        _kwargs: Option<&Bound<'_, PyDict>>,
    ) -> Result<()> {
        Err(pyo3::exceptions::PyTypeError::new_err(
            "a device array is not copied to the host implicitly: use copy_to_host(), or \
             numpy.from_dlpack(array, device=\"cpu\")",
        )
        .into())
    }

    fn __repr__(&self) -> String {
        let shape = self.array.layout.shape();
        let closed = if self.closed() { ", closed" } else { "" };
        format!("<DeviceArray {} {shape:?}{closed}>", self.array.dtype)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> std::result::Result<(), PyTraverseError> {
        // If the lock is taken, the array is in use, and its owner is too.
        if let Ok(kept) = self.kept.try_lock() {
            if let Some(owner) = kept.as_ref().and_then(|kept| kept.owner.as_ref()) {
                visit.call(owner)?;
            }
        }
        Ok(())
    }

    fn __clear__(&self) {
        // The release may call this object again, so the lock must not be held.
        let kept = self.lock().take();
        if let Some(kept) = kept {
            attached(|py| kept.release(py));
        }
    }
}
