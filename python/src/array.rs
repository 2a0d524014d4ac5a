//! Arrays.

mod dlpack;
mod exchange;
mod host;
mod index;
mod interface;
mod memory;
mod strided;

use crate::context::PyContext;
use crate::current;
use crate::device::PyDevice;
use crate::ending::calling;
use crate::error::{Failure, Result};
use crate::lane::{At, Lane};
use crate::stream::PyStream;
use crate::{config, hold};
use cuda_safe::Stream;
use cuda_safe::interop::dlpack::DataType;
use cuda_safe::interop::{Dtype, Layout};
use index::View;
use memory::{Memory, Order};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use pyo3::{PyTraverseError, PyVisit};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use strided::Elements;

/// What an array is, and where.
#[derive(Clone)]
struct Array {
    dtype: Dtype,
    /// What the elements are to DLPack, where NumPy has no such type.
    exchange: Option<DataType>,
    layout: Layout,
    /// Of the first element; 0 if there is none.
    address: u64,
    read_only: bool,
}

impl Array {
    fn elements(&self) -> Elements<'_> {
        Elements {
            at: At::Device(self.address),
            layout: &self.layout,
        }
    }
}

/// What an array keeps alive.
struct Kept {
    memory: Arc<Memory>,
    /// The producer of memory that is not ours.
    owner: Option<Py<PyAny>>,
}

impl Kept {
    fn clone_ref(&self, py: Python<'_>) -> Self {
        Self {
            memory: Arc::clone(&self.memory),
            owner: self.owner.as_ref().map(|owner| owner.clone_ref(py)),
        }
    }

    /// Lets go of it, without the GIL if that may wait.
    fn release(self, py: Python<'_>) {
        let Self { memory, owner } = self;
        if let Some(memory) = Arc::into_inner(memory) {
            if memory.may_wait() {
                py.detach(move || drop(memory));
            }
        }
        if let Some(owner) = owner {
            calling(py, || drop(owner));
        }
    }
}

/// An array in memory of a device, in the order of a stream: all work on it runs there, and nobody
/// waits for it but who copies to the host.
///
/// It has NumPy's types and layouts. An index gives a view: numbers, slices, `...`, `None`, and the
/// names of fields. Others take it by `__cuda_array_interface__` or `__dlpack__`, without a copy.
#[pyclass(frozen, name = "DeviceArray", module = "cuda_safe", weakref)]
pub(crate) struct PyDeviceArray {
    array: Array,
    kept: Mutex<Option<Kept>>,
    is_closed: AtomicBool,
    /// Whether somebody else may use the memory by its address.
    is_exported: AtomicBool,
    interface: PyOnceLock<Py<PyDict>>,
}

impl PyDeviceArray {
    fn new(array: Array, memory: Arc<Memory>, owner: Option<Py<PyAny>>) -> Self {
        Self {
            array,
            kept: Mutex::new(Some(Kept { memory, owner })),
            is_closed: AtomicBool::new(false),
            is_exported: AtomicBool::new(false),
            interface: PyOnceLock::new(),
        }
    }

    /// A new array, with whatever is in its memory.
    fn allocate(py: Python<'_>, stream: Stream, dtype: Dtype, shape: &[usize]) -> Result<Self> {
        let layout = Layout::c_contiguous(shape, dtype.item_size())?;
        let bytes = layout.byte_range().end.unsigned_abs();
        let (memory, address) = py.detach(move || Memory::allocate(&stream, bytes))?;
        let array = Array {
            dtype,
            exchange: None,
            layout,
            address,
            read_only: false,
        };
        Ok(Self::new(array, memory.into(), None))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it keeps alive, if it is not closed.
    fn kept(&self, py: Python<'_>) -> Result<Kept> {
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(Failure::closed("array"));
        }
        let kept = self.lock().as_ref().map(|kept| kept.clone_ref(py));
        kept.ok_or_else(|| Failure::closed("array"))
    }

    /// Looks at what it keeps alive.
    fn look<R>(&self, f: impl FnOnce(&Memory) -> R) -> Result<R> {
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(Failure::closed("array"));
        }
        let lock = self.lock();
        let kept = lock.as_ref().ok_or_else(|| Failure::closed("array"))?;
        Ok(f(&kept.memory))
    }

    /// Does work on the memory, and perhaps on that of another array, in order.
    fn work(
        &self,
        py: Python<'_>,
        other: Option<&Self>,
        work: impl FnOnce(&Lane) -> Result<()> + Send,
    ) -> Result<()> {
        // Both stay alive meanwhile, whoever closes them.
        let kept = self.kept(py)?;
        let others = other.map(|other| other.kept(py)).transpose()?;
        let mut order = Order::of(py, &kept.memory)?;
        if let Some(others) = &others {
            order = order.and(&others.memory)?;
        }
        let done = py.detach(move || order.run(work));
        kept.release(py);
        if let Some(others) = others {
            others.release(py);
        }
        done
    }

    /// An array on the same memory.
    fn view(&self, py: Python<'_>, dtype: Dtype, view: View) -> Result<Self> {
        let Kept { memory, owner } = self.kept(py)?;
        let View { offset, layout } = view;
        let address = match layout.is_empty() {
            true => 0,
            false => self.array.address.wrapping_add_signed(offset as i64),
        };
        let array = Array {
            // Of a field, or of another type, it is no part.
            exchange: self.array.exchange.filter(|_| dtype == self.array.dtype),
            dtype,
            layout,
            address,
            read_only: self.array.read_only,
        };
        Ok(Self::new(array, memory, owner))
    }

    fn view_of(&self, py: Python<'_>, layout: Layout) -> Result<Self> {
        let view = View { offset: 0, layout };
        self.view(py, self.array.dtype.clone(), view)
    }

    fn refuse_read_only(&self) -> Result<()> {
        match self.array.read_only {
            true => Err(Failure::read_only()),
            false => Ok(()),
        }
    }

    /// Sets all elements to one, given as its bytes.
    fn fill_with(&self, py: Python<'_>, item: &[u8]) -> Result<()> {
        self.refuse_read_only()?;
        if item.len() != self.array.dtype.item_size() {
            return Err(Failure::invalid(format!(
                "a value of {} bytes for elements of {}",
                item.len(),
                self.array.dtype.item_size()
            )));
        }
        if item.is_empty() {
            return Ok(());
        }
        let Array {
            layout, address, ..
        } = &self.array;
        self.work(py, None, |lane| {
            // SAFETY: the memory is kept alive, and the view is within it; the item is an element.
            unsafe { strided::fill(lane, *address, layout, item) }
        })
    }

    /// Copies an array of the same type, whose shape is broadcast to this one's.
    fn copy_array(&self, py: Python<'_>, source: &Self) -> Result<()> {
        self.refuse_read_only()?;
        let (to, from) = (&self.array, &source.array);
        if to.dtype != from.dtype {
            return Err(Failure::invalid(format!(
                "elements of {} for elements of {}",
                from.dtype, to.dtype
            )));
        }
        let Some(layout) = index::broadcast(&from.layout, to.layout.shape()) else {
            return Err(Failure::invalid(format!(
                "the shape {:?} cannot be broadcast to {:?}",
                from.layout.shape(),
                to.layout.shape()
            )));
        };
        if to.layout.ranges_overlap(to.address, &layout, from.address) {
            // Perhaps the same elements in another order.
            let apart = source.copy(py)?;
            return self.copy_array(py, &apart);
        }
        let from = Elements {
            at: At::Device(from.address),
            layout: &layout,
        };
        self.work(py, Some(source), |lane| {
            // SAFETY: both are kept alive, the views are within the memory, of one shape and type, and
            // do not overlap.
            unsafe { strided::copy(lane, to.elements(), from) }
        })
    }
}

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
        let item = vec![0; array.array.dtype.item_size()];
        array.fill_with(py, &item)?;
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
        // The producer keeps its stream.
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
    fn copy(&self, py: Python<'_>) -> Result<Self> {
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
        let mut bytes = vec![0u8; self.nbytes()];
        let contiguous = Layout::c_contiguous(self.array.layout.shape(), self.itemsize())?;
        // SAFETY: the vector is as long as all elements.
        unsafe { self.copy_out(py, bytes.as_mut_ptr(), &contiguous) }?;
        Ok(PyBytes::new(py, &bytes))
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
    /// for work on the array that ran on another stream, before it is handed over. Nobody waits, but
    /// for an array without a stream.
    fn join(&self, py: Python<'_>, stream: &Bound<'_, PyAny>) -> Result<()> {
        let device = self.look(|memory| memory.context().device().ordinal())?;
        let device = crate::device::DeviceLike::Ordinal(device);
        let other = PyStream::from_object(py, stream, Some(device))?.lane()?;
        let lane = self.look(|memory| memory.lane().cloned())?;
        py.detach(move || match lane {
            Some(lane) => lane.follow(&other),
            None => other.synchronize(),
        })
    }

    /// Waits for the work on it.
    fn synchronize(&self, py: Python<'_>) -> Result<()> {
        // One without a stream has no work that is not done.
        match self.look(|memory| memory.lane().cloned())? {
            Some(lane) => py.detach(move || lane.synchronize()),
            None => Ok(()),
        }
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
        if let Some(interface) = self.interface.get(py) {
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
        drop(kept);
    }
}

impl PyDeviceArray {
    #[cold]
    fn export<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let stream = self.look(|memory| {
            memory.set_used();
            memory.lane().map(Lane::number)
        })?;
        self.is_exported.store(true, Ordering::Relaxed);
        if !config::export_stream() {
            return interface::write(py, &self.array, None);
        }
        let interface = interface::write(py, &self.array, stream)?;
        let copy = interface.copy()?;
        // If another thread was faster, that has the same in it.
        let _ = self.interface.set(py, interface.unbind());
        Ok(copy)
    }

    /// The field of a record, in each element.
    fn field(&self, py: Python<'_>, name: &str) -> Result<Self> {
        let field = match &self.array.dtype {
            Dtype::Record(record) => record.fields().iter().find(|field| field.name == name),
            Dtype::Plain(_) => None,
        };
        let field = field.ok_or_else(|| {
            Failure::from(pyo3::exceptions::PyKeyError::new_err(format!(
                "elements of {} have no field \"{name}\"",
                self.array.dtype
            )))
        })?;
        let inner = Layout::c_contiguous(&field.shape, field.dtype.item_size())?;
        let shape = [self.array.layout.shape(), inner.shape()].concat();
        let strides = [self.array.layout.strides(), inner.strides()].concat();
        let view = View {
            offset: isize::try_from(field.offset).unwrap_or(0),
            layout: Layout::strided(&shape, &strides, field.dtype.item_size())?,
        };
        self.view(py, field.dtype.clone(), view)
    }
}

impl Drop for PyDeviceArray {
    fn drop(&mut self) {
        let kept = self.kept.get_mut().unwrap_or_else(PoisonError::into_inner);
        let Some(kept) = kept.take() else { return };
        let mut kept = Some(kept);
        let released = Python::try_attach(|py| {
            if let Some(kept) = kept.take() {
                kept.release(py);
            }
        });
        if released.is_none() {
            // The interpreter is no more: nothing of it can be let go of.
            std::mem::forget(kept);
        }
    }
}

fn has_interface(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = object.py();
    calling(py, || {
        object.hasattr(intern!(py, "__cuda_array_interface__"))
    })
}

/// The array of an object that has the CUDA Array Interface, without a copy. It keeps the object, and
/// is in the order of the stream that the object names: all work on it runs there.
///
/// With `sync` off, or `config.array_interface_sync`, that stream is ignored, and races are the
/// caller's.
#[pyfunction]
#[pyo3(signature = (obj, sync = true))]
pub(crate) fn as_cuda_array(obj: &Bound<'_, PyAny>, sync: bool) -> Result<PyDeviceArray> {
    let py = obj.py();
    let interface = calling(py, || {
        obj.getattr_opt(intern!(py, "__cuda_array_interface__"))
    })?;
    let Some(interface) = interface else {
        return Err(pyo3::exceptions::PyTypeError::new_err(format!(
            "a {} has no __cuda_array_interface__",
            obj.get_type().name()?
        ))
        .into());
    };
    interface::import(&interface, Some(obj.clone().unbind()), sync)
}

/// The array that an interface describes, without a copy. It keeps `owner`; without one it is for the
/// caller to keep the memory, and the stream that the interface names.
#[pyfunction]
#[pyo3(signature = (desc, owner = None, sync = true))]
pub(crate) fn from_cuda_array_interface(
    desc: &Bound<'_, PyAny>,
    owner: Option<Py<PyAny>>,
    sync: bool,
) -> Result<PyDeviceArray> {
    interface::import(desc, owner, sync)
}

/// The array of an object that has DLPack, without a copy unless `copy` asks for one.
///
/// Its producer puts its work so far before that of `stream`, which by default is the stream of the
/// innermost `with` block of one, or else the default stream of the device: all work on the array runs
/// there. What the producer does from now on is for the caller to order (`stream.wait`); when the last
/// view is gone the work on it is waited for, and the producer is told.
#[pyfunction]
#[pyo3(signature = (obj, *, stream = None, copy = None))]
pub(crate) fn from_dlpack(
    obj: &Bound<'_, PyAny>,
    stream: Option<Py<PyStream>>,
    copy: Option<bool>,
) -> Result<PyDeviceArray> {
    dlpack::import(obj, stream.as_ref().map(Py::get), copy)
}
