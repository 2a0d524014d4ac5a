//! What arrays do, for Python.

use super::index::{self, View};
use super::memory::Memory;
use super::{Kept, PyDeviceArray, as_cuda_array, dlpack, has_interface, host, strided};
use crate::context::PyContext;
use crate::device::PyDevice;
use crate::ending::detached;
use crate::error::{Failure, Result};
use crate::lane::Lane;
use crate::stream::PyStream;
use crate::{config, current, hold};
use cuda_safe::interop::Layout;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use pyo3::{PyTraverseError, PyVisit};
use std::sync::atomic::Ordering;

#[pymethods]
impl PyDeviceArray {
    /// A new array, with whatever is in its memory. `dtype` is NumPy's, or what makes one ("f4",
    /// "float32", float); without a stream it is on `Stream.current()`.
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
        let stream = current::stream(py, stream.as_ref().map(Py::get))?;
        Self::allocate(py, stream, dtype, &shape)
    }

    /// A new array, all bytes 0.
    #[staticmethod]
    #[pyo3(signature = (shape, dtype = None, *, stream = None))]
    fn zeros(
        py: Python<'_>,
        shape: &Bound<'_, PyAny>,
        dtype: Option<&Bound<'_, PyAny>>,
        stream: Option<Py<PyStream>>,
    ) -> Result<Self> {
        let array = Self::empty(py, shape, dtype, stream)?;
        // Elements that are not there may be of any size.
        if !array.array.layout.is_empty() {
            let item = strided::zeroed(array.itemsize())?;
            array.fill_with(py, &item)?;
        }
        Ok(array)
    }

    /// A new array, all elements `value`.
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

    /// A new array with a copy of one of the host: NumPy's, what makes one, or a buffer (bytes,
    /// array.array, memoryview). Returns when the copy is done.
    #[staticmethod]
    #[pyo3(signature = (source, *, stream = None))]
    fn from_host(
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        stream: Option<Py<PyStream>>,
    ) -> Result<Self> {
        let source = host::HostArray::of(source)?;
        let stream = current::stream(py, stream.as_ref().map(Py::get))?;
        let array = Self::allocate(py, stream, source.dtype.clone(), source.layout.shape())?;
        array.copy_host(py, &source)?;
        Ok(array)
    }

    /// The extents.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyTuple>> {
        Ok(PyTuple::new(py, self.array.layout.shape())?)
    }

    /// The bytes to the next element along each dimension.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyTuple>> {
        Ok(PyTuple::new(py, self.array.layout.strides())?)
    }

    /// How many dimensions there are.
    #[getter]
    fn ndim(&self) -> usize {
        self.array.layout.shape().len()
    }

    /// How many elements there are.
    #[getter]
    fn size(&self) -> usize {
        self.array.layout.len().unwrap_or(usize::MAX)
    }

    /// The bytes of an element.
    #[getter]
    fn itemsize(&self) -> usize {
        self.array.dtype.item_size()
    }

    /// The bytes of all elements.
    #[getter]
    fn nbytes(&self) -> usize {
        self.size().saturating_mul(self.itemsize())
    }

    /// The type of the elements as a numpy.dtype. Needs NumPy; `typestr` and `descr` do not.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        host::numpy_dtype(py, &self.array.dtype)
    }

    /// The type of the elements as NumPy writes it, as "<f4".
    #[getter]
    fn typestr(&self) -> String {
        self.array.dtype.typestr()
    }

    /// The fields of a record as NumPy describes them, or None.
    #[getter]
    fn descr<'py>(&self, py: Python<'py>) -> Result<Option<Bound<'py, PyList>>> {
        host::descr(py, &self.array.dtype)
    }

    /// The address of the first element on the device; 0 if there is none.
    #[getter]
    fn address(&self) -> Result<u64> {
        self.look(Memory::set_used)?;
        self.is_exported.store(true, Ordering::Relaxed);
        Ok(self.array.address)
    }

    /// Whether it must not be written.
    #[getter]
    fn read_only(&self) -> bool {
        self.array.read_only
    }

    /// Whether the elements lie one behind the other, the last dimension varying fastest.
    #[getter]
    fn is_c_contiguous(&self) -> bool {
        self.array.layout.is_c_contiguous()
    }

    /// Whether the elements lie one behind the other, the first dimension varying fastest.
    #[getter]
    fn is_f_contiguous(&self) -> bool {
        self.array.layout.is_f_contiguous()
    }

    /// The stream that all work on it runs on, and that it is exported with; None for an array of a
    /// producer that names none: then the calls here return when their work is done.
    #[getter]
    fn stream(&self, py: Python<'_>) -> Result<Option<PyStream>> {
        let Kept { memory, owner } = self.kept(py)?;
        memory.set_used();
        let Some(lane) = memory.lane() else {
            return Ok(None);
        };
        let Lane::Handle(handle, context) = lane else {
            return Ok(Some(PyStream::of_lane(lane.clone())));
        };
        // The owner keeps the stream, or whoever made the import promised to.
        let owner = hold::Owner::new(owner.unwrap_or_else(|| py.None()));
        let stream = crate::stream::foreign(*handle, context, owner)?;
        Ok(Some(PyStream::of(stream)))
    }

    /// The device that the memory is on.
    #[getter]
    fn device(&self) -> Result<PyDevice> {
        self.look(|memory| PyDevice(memory.context().device()))
    }

    /// The context that work on it runs in.
    #[getter]
    fn context(&self) -> Result<PyContext> {
        self.look(|memory| PyContext(memory.context().clone()))
    }

    /// The object that keeps the memory, if it is somebody else's.
    #[getter]
    fn owner(&self, py: Python<'_>) -> Result<Option<Py<PyAny>>> {
        Ok(self.kept(py)?.owner)
    }

    /// Sets all elements to a value, in the order of the stream.
    fn fill(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> Result<()> {
        let item = host::item_bytes(&self.array.dtype, value)?;
        self.fill_with(py, item.as_bytes())
    }

    /// A new array with the same elements in C order, on the same stream; of an array without one, on
    /// the device's default stream.
    pub(super) fn copy(&self, py: Python<'_>) -> Result<Self> {
        let lane = self.look(|memory| memory.lane().cloned())?;
        let stream = match lane {
            Some(Lane::Stream(stream)) => stream,
            Some(lane) => {
                let ordinal = lane.context().device().ordinal();
                crate::device::default_stream(py, ordinal)?
            }
            None => {
                let ordinal = self.look(|memory| memory.context().device().ordinal())?;
                crate::device::default_stream(py, ordinal)?
            }
        };
        let (dtype, shape) = (self.array.dtype.clone(), self.array.layout.shape());
        let mut copy = Self::allocate(py, stream, dtype, shape)?;
        copy.array.exchange = self.array.exchange;
        let (to, from) = (&copy.array, &self.array);
        copy.work(py, Some(self), |lane| {
            // SAFETY: both are kept alive, of one shape and type; the target is new.
            unsafe { strided::copy(lane, to.elements(), from.elements()) }
        })?;
        Ok(copy)
    }

    /// Copies elements here: of an array of a device, in the order of both streams; or of one of the
    /// host, and then it returns when that is done. The type is the same, and the shape can be
    /// broadcast to this one.
    fn copy_from(&self, py: Python<'_>, source: &Bound<'_, PyAny>) -> Result<()> {
        if let Ok(source) = source.cast::<Self>() {
            return self.copy_array(py, source.get());
        }
        if has_interface(source)? {
            return self.copy_array(py, &as_cuda_array(source, true)?);
        }
        let source = host::HostArray::of(source)?;
        self.copy_host(py, &source)
    }

    /// The elements as an array of NumPy's: `out`, or a new one. Waits for the work on them.
    #[pyo3(signature = (out = None))]
    fn copy_to_host<'py>(
        &self,
        py: Python<'py>,
        out: Option<Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyAny>> {
        host::copy_to_host(py, self, out)
    }

    /// The bytes of all elements, in C order. Waits for the work on them. Needs no NumPy.
    fn to_bytes<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyBytes>> {
        let contiguous = Layout::c_contiguous(self.array.layout.shape(), self.itemsize())?;
        let bytes = contiguous.byte_range().end.unsigned_abs();
        let bytes = PyBytes::new_with(py, bytes, |to| {
            // SAFETY: it is as long as all elements, and nobody else has it yet.
            Ok(unsafe { self.copy_out(py, to.as_mut_ptr(), &contiguous) }?)
        });
        Ok(bytes?)
    }

    /// The same elements with the dimensions in another order, without a copy; reversed if no axes are
    /// given.
    #[pyo3(signature = (*axes))]
    fn transpose(&self, py: Python<'_>, axes: &Bound<'_, PyTuple>) -> Result<Self> {
        let axes = host::numbers(axes)?;
        let layout = index::transpose(&self.array.layout, axes)?;
        self.view_of(py, layout)
    }

    /// The same elements with the dimensions reversed, without a copy.
    #[getter(T)]
    fn transposed(&self, py: Python<'_>) -> Result<Self> {
        self.view_of(py, index::transpose(&self.array.layout, None)?)
    }

    /// The same elements with another shape, without a copy: an exception where there is no such view.
    /// One extent may be -1.
    #[pyo3(signature = (*shape))]
    fn reshape(&self, py: Python<'_>, shape: &Bound<'_, PyTuple>) -> Result<Self> {
        let shape = host::numbers(shape)?.unwrap_or_default();
        self.view_of(py, index::reshape(&self.array.layout, &shape)?)
    }

    /// The same bytes as elements of another type of the same size, without a copy.
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

    /// The same array that is not to be written through.
    fn as_read_only(&self, py: Python<'_>) -> Result<Self> {
        let mut view = self.view_of(py, self.array.layout.clone())?;
        view.array.read_only = true;
        // Of a layout without an element the address is no part.
        Ok(view)
    }

    /// Work given to the stream up to now comes before what the array's stream is given from now on:
    /// for work on the array that ran on another stream, before it is handed over or let go of. Nobody
    /// waits, but for an array without a stream.
    fn join(&self, py: Python<'_>, stream: &Bound<'_, PyAny>) -> Result<()> {
        let near = self.look(|memory| memory.context().device().ordinal())?;
        let other = PyStream::lane_of_object(py, stream, None, Some(near))?;
        // With it the producer, who keeps the stream, whoever closes it meanwhile.
        let kept = self.kept(py)?;
        let lane = kept.memory.lane().cloned();
        let joined = detached(py, move || match lane {
            Some(lane) => lane.follow(&other),
            None => other.synchronize(),
        });
        kept.release(py);
        joined
    }

    /// Waits for the work on it.
    fn synchronize(&self, py: Python<'_>) -> Result<()> {
        // One without a stream has no work that is not done.
        let kept = self.kept(py)?;
        let waited = match kept.memory.lane().cloned() {
            Some(lane) => detached(py, move || lane.synchronize()),
            None => Ok(()),
        };
        kept.release(py);
        waited
    }

    /// Lets go of the memory, which is freed with the last view of it. If the address was handed out,
    /// the memory stays until this object is gone, as others may use it that keep the object.
    fn close(&self, py: Python<'_>) {
        self.is_closed.store(true, Ordering::Relaxed);
        if self.is_exported.load(Ordering::Relaxed) {
            return;
        }
        let kept = self.lock().take();
        if let Some(kept) = kept {
            kept.release(py);
        }
    }

    /// Whether it was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// For consumers of the CUDA Array Interface, version 3. It keeps nothing alive: the consumer keeps
    /// this object.
    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(Failure::closed("array"));
        }
        if let Some(interface) = self.interface.get() {
            if config::export_stream() {
                // Consumers may write into theirs.
                return Ok(interface.bind(py).copy()?);
            }
        }
        self.export(py)
    }

    /// For consumers of DLPack: the kind of the memory (2: a device's, 3: pinned, 13: managed), and the
    /// number of the device.
    fn __dlpack_device__(&self) -> Result<(i32, i32)> {
        self.look(dlpack::device)
    }

    /// For consumers of DLPack: a capsule with a tensor, of version 1 if the consumer knows that. The
    /// consumer's `stream` (None is the legacy default stream) is put behind the work on the array;
    /// -1: there is no order. The tensor keeps the memory.
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
        };
        if copy == Some(true) {
            let copied = self.copy(py)?;
            return dlpack::export(py, &copied.array, copied.kept(py)?, true, &request);
        }
        dlpack::export(py, &self.array, self.kept(py)?, false, &request)
    }

    fn __getitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> Result<Self> {
        if let Some(name) = index::field_name(key) {
            return self.field(py, name.to_str()?);
        }
        let view = index::index(&self.array.layout, key)?;
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
        let first = self.array.layout.shape().first();
        first.copied().ok_or_else(|| {
            pyo3::exceptions::PyTypeError::new_err("an array without dimensions has no length")
                .into()
        })
    }

    /// NumPy would copy element by element.
    #[pyo3(signature = (*_args, **_kwargs))]
    fn __array__(
        &self,
        _args: &Bound<'_, PyTuple>,
        _kwargs: Option<&Bound<'_, PyDict>>,
    ) -> Result<()> {
        Err(pyo3::exceptions::PyTypeError::new_err(
            "an array of a device is not copied to the host by itself: use copy_to_host()",
        )
        .into())
    }

    fn __repr__(&self) -> String {
        let shape = self.array.layout.shape();
        let closed = if self.closed() { ", closed" } else { "" };
        format!("<DeviceArray {} {shape:?}{closed}>", self.array.dtype)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> std::result::Result<(), PyTraverseError> {
        // Taken, it is in use, and so is the owner.
        if let Ok(kept) = self.kept.try_lock() {
            if let Some(owner) = kept.as_ref().and_then(|kept| kept.owner.as_ref()) {
                visit.call(owner)?;
            }
        }
        Ok(())
    }

    fn __clear__(&self) {
        // Letting go of it may lead back here: not under the lock.
        let kept = self.lock().take();
        if let Some(kept) = kept {
            Python::attach(|py| kept.release(py));
        }
    }
}
