//! The data of a `DeviceArray`. `methods.rs` has the methods that Python sees.

mod dlpack;
mod exchange;
mod host;
mod index;
mod interface;
mod memory;
mod methods;
mod peers;
mod pinned;
mod strided;
mod to_host;
mod used;

use crate::config;
use crate::error::{Failure, Result};
use crate::lifetime::ending::{attached, calling, detached, let_go, let_go_of};
use crate::lifetime::hold::Owner;
use crate::lifetime::once::{Once, intern};
use crate::objects::PyStream;
use crate::primary::refuse_gone;
use crate::stream_handle::{At, StreamHandle};
use cuda_safe::Stream;
use cuda_safe::interop::dlpack::{DataType, MemoryKind};
use cuda_safe::interop::{Dtype, Layout};
use exchange::Description;
use index::View;
use memory::{Memory, Order, device_address};
pub(crate) use pinned::PyPinnedArray;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::any::Any;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use strided::Elements;
pub(crate) use used::{UsedArray, run};

/// Description of the elements of an array and their address.
#[derive(Clone)]
struct Array {
    dtype: Dtype,
    /// The DLPack type of the elements, if NumPy has no such type.
    exchange: Option<DataType>,
    layout: Layout,
    /// The address of the first element, or 0 if the array is empty.
    address: u64,
    read_only: bool,
}

impl Array {
    fn elements(&self) -> Elements<'_> {
        Elements { at: At::Device(self.address), layout: &self.layout }
    }
}

/// Owners of the memory of an array.
struct Kept {
    memory: Arc<Memory>,
    /// The producer, for foreign memory.
    owner: Option<Py<PyAny>>,
}

impl Kept {
    fn clone_ref(&self, py: Python<'_>) -> Self {
        Self {
            memory: Arc::clone(&self.memory),
            owner: self.owner.as_ref().map(|owner| owner.clone_ref(py)),
        }
    }

    /// Returns what a graph keeps alive of the array. Waits for the GIL, which the caller does not
    /// hold.
    fn in_graphs(&self) -> Arc<dyn Any + Send + Sync> {
        self.memory.in_graphs(|| {
            let owner = self.owner.as_ref()?;
            // Without an interpreter, the process ends.
            attached(|py| Owner::new(owner.clone_ref(py)))
        })
    }

    /// Drops the references, without the GIL if this may block.
    fn release(self, py: Python<'_>) {
        let Self { memory, owner } = self;
        if let Some(memory) = Arc::into_inner(memory) {
            match memory.may_wait() {
                true => let_go(py, move || drop(memory)),
                // The release may notify the producer.
                false => let_go_of(py, memory),
            }
        }
        if let Some(owner) = owner {
            let_go_of(py, owner);
        }
    }
}

/// An array in device memory. All work on it runs in order on its stream; the host waits only for
/// copies to host memory.
///
/// The array has NumPy's types and layouts. Indexing with integers, slices, `...`, `None` or field
/// names returns a view. Other libraries use the array without a copy, through
/// `__cuda_array_interface__` or `__dlpack__`.
#[pyclass(frozen, name = "DeviceArray", module = "cuda_safe", weakref)]
pub(crate) struct PyDeviceArray {
    array: Array,
    kept: Mutex<Option<Kept>>,
    is_closed: AtomicBool,
    /// Whether other code may have the address of the memory.
    is_exported: AtomicBool,
    interface: Once<Py<PyDict>>,
    description: Once<Arc<Description>>,
}

impl PyDeviceArray {
    fn new(array: Array, memory: Arc<Memory>, owner: Option<Py<PyAny>>) -> Self {
        Self {
            array,
            kept: Mutex::new(Some(Kept { memory, owner })),
            is_closed: AtomicBool::new(false),
            is_exported: AtomicBool::new(false),
            interface: Once::new(),
            description: Once::new(),
        }
    }

    /// Allocates a new array with uninitialized elements.
    fn allocate(py: Python<'_>, stream: Stream, dtype: Dtype, shape: &[usize]) -> Result<Self> {
        Self::allocate_in(py, stream, dtype, shape, MemoryKind::Device)
    }

    /// Allocates a new array in memory of a kind that a device can access.
    fn allocate_in(
        py: Python<'_>,
        stream: Stream,
        dtype: Dtype,
        shape: &[usize],
        kind: MemoryKind,
    ) -> Result<Self> {
        let layout = Layout::c_contiguous(shape, dtype.item_size()).map_err(|_| {
            let size = dtype.item_size();
            Failure::invalid(format!(
                "{shape:?} elements of {size} bytes are more than can be addressed"
            ))
        })?;
        let bytes = layout.byte_range().end.unsigned_abs();
        let context = stream.context().clone();
        let (memory, address) = detached(py, move || Memory::allocate_in(&stream, bytes, kind))?;
        let address = match kind {
            _ if bytes == 0 || layout.is_empty() => 0,
            MemoryKind::Pinned => device_address(&context, address)?,
            _ => address,
        };
        let array = Array { dtype, exchange: None, layout, address, read_only: false };
        Ok(Self::new(array, memory.into(), None))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns new references to the owners, or an error if the array was closed, or if its memory was
    /// freed by a reset of its context.
    fn kept(&self, py: Python<'_>) -> Result<Kept> {
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(Failure::closed("array"));
        }
        let kept = self.lock().as_ref().map(|kept| kept.clone_ref(py));
        let kept = kept.ok_or_else(|| Failure::closed("array"))?;
        match refuse_gone(kept.memory.context(), "array") {
            Ok(()) => Ok(kept),
            Err(failure) => {
                kept.release(py);
                Err(failure)
            }
        }
    }

    /// Notes that other code may have the address of the memory, so that `close` does not free it.
    fn set_exported(&self) {
        self.is_exported.store(true, Ordering::Relaxed);
    }

    /// Calls `f` with the memory, or returns an error if the array was closed, or if its memory was freed
    /// by a reset of its context.
    fn look<R>(&self, f: impl FnOnce(&Memory) -> R) -> Result<R> {
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(Failure::closed("array"));
        }
        let lock = self.lock();
        let kept = lock.as_ref().ok_or_else(|| Failure::closed("array"))?;
        refuse_gone(kept.memory.context(), "array")?;
        Ok(f(&kept.memory))
    }

    /// Runs work on the memory, and optionally on that of another array, in stream order.
    fn work(
        &self,
        py: Python<'_>,
        other: Option<&Self>,
        work: impl FnOnce(&StreamHandle) -> Result<()> + Send,
    ) -> Result<()> {
        // These references keep both alive during the work, even if another thread closes the
        // arrays.
        let kept = self.kept(py)?;
        let others = other.map(|other| other.kept(py)).transpose()?;
        let mut order = Order::of(py, &kept.memory)?;
        if let Some(others) = &others {
            order = order.and(&others.memory)?;
        }
        let objects = || {
            let others = others.as_ref().map(Kept::in_graphs);
            std::iter::once(kept.in_graphs()).chain(others).collect()
        };
        let done = detached(py, || order.run(objects, work));
        kept.release(py);
        if let Some(others) = others {
            others.release(py);
        }
        done
    }

    /// Returns an array that shares the memory.
    fn view(&self, py: Python<'_>, dtype: Dtype, view: View) -> Result<Self> {
        let Kept { memory, owner } = self.kept(py)?;
        let View { offset, layout } = view;
        let address = match layout.is_empty() {
            true => 0,
            false => self.array.address.wrapping_add_signed(offset as i64),
        };
        let array = Array {
            // A field, or a view as another type, does not have the DLPack type.
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

    /// Sets all elements to the value with the bytes `item`.
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
        let Array { layout, address, .. } = &self.array;
        self.work(py, None, |lane| {
            // SAFETY: the memory is kept alive during the call, the view is within it, and `item`
            // has the size of an element.
            unsafe { strided::fill(lane, *address, layout, item) }
        })
    }

    /// Allocates a copy in C order, in memory of a kind that a device can access, on the same
    /// stream. If the array has no stream, the copy is on the device's default stream.
    fn copy_in(&self, py: Python<'_>, kind: MemoryKind) -> Result<Self> {
        let (lane, ordinal) = self.look(|memory| {
            let ordinal = memory.context().device().ordinal();
            (memory.lane().cloned(), ordinal)
        })?;
        let stream = match lane {
            Some(StreamHandle::Stream(stream)) => stream,
            _ => crate::primary::default_stream(py, ordinal)?,
        };
        let (dtype, shape) = (self.array.dtype.clone(), self.array.layout.shape());
        let mut copy = Self::allocate_in(py, stream, dtype, shape, kind)?;
        copy.array.exchange = self.array.exchange;
        let (to, from) = (&copy.array, &self.array);
        copy.work(py, Some(self), |lane| {
            // SAFETY: both arrays are kept alive and have the same shape and type, and the target
            // is new.
            unsafe { strided::copy(lane, to.elements(), from.elements()) }
        })?;
        Ok(copy)
    }

    /// Returns the extent of the first dimension, or an error if there is none.
    fn first_extent(&self) -> Result<usize> {
        let first = self.array.layout.shape().first();
        first.copied().ok_or_else(|| {
            pyo3::exceptions::PyTypeError::new_err("an array without dimensions has no length")
                .into()
        })
    }

    /// Copies an array of the same type, whose shape is broadcast to the shape of this array.
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
            // The two may be the same elements in different order.
            let apart = source.copy(py)?;
            return self.copy_array(py, &apart);
        }
        let from = Elements { at: At::Device(from.address), layout: &layout };
        self.work(py, Some(source), |lane| {
            // SAFETY: both memories are kept alive during the call, the views are within them, have
            // the same shape and type, and do not overlap.
            unsafe { strided::copy(lane, to.elements(), from) }
        })
    }
}

impl PyDeviceArray {
    #[cold]
    fn export<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        // This comes first, so that a `close` of another thread does not free the memory.
        self.set_exported();
        let memory = self.kept(py)?.memory;
        memory.set_used();
        memory.grant_peer_access(py);
        let stream = memory.lane().map(StreamHandle::number);
        if !config::export_stream() {
            return interface::write(py, &self.array, None);
        }
        let interface = interface::write(py, &self.array, stream)?;
        // Fields are lists, which the consumer may modify.
        if matches!(self.array.dtype, Dtype::Record(_)) {
            return Ok(interface);
        }
        let copy = interface.copy()?;
        // If another thread was faster, it has stored the same contents.
        self.interface.keep(py, interface.unbind());
        Ok(copy)
    }

    /// Returns a view of a field of all records.
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
        let mut kept = ManuallyDrop::new(kept);
        // If the interpreter has been finalized, Python objects cannot be released.
        // SAFETY: the value is taken only here.
        attached(|py| unsafe { ManuallyDrop::take(&mut kept) }.release(py));
    }
}

fn has_interface(object: &Bound<'_, PyAny>) -> Result<bool> {
    let py = object.py();
    calling(py, || object.hasattr(intern!(py, "__cuda_array_interface__")))
}

/// Returns the address of the first element of an array of this package or of another library.
pub(crate) fn address_of(array: &Bound<'_, PyAny>) -> Result<u64> {
    if let Ok(array) = array.cast::<PyDeviceArray>() {
        let array = array.get();
        array.look(|_| array.array.address)
    } else {
        calling(array.py(), || interface::address(&interface_of(array)?))
    }
}

/// Returns the value of `__cuda_array_interface__`.
fn interface_of<'py>(object: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
    let py = object.py();
    let interface = object.getattr_opt(intern!(py, "__cuda_array_interface__"))?;
    let Some(interface) = interface else {
        return Err(pyo3::exceptions::PyTypeError::new_err(format!(
            "an object of type {} has no __cuda_array_interface__: DeviceArray.from_host copies \
             host data to a device",
            object.get_type().name()?
        ))
        .into());
    };
    Ok(interface)
}

/// Imports an object that has the CUDA Array Interface, without a copy. The array keeps the object
/// alive. All work on the array runs on the stream that the object names.
///
/// That stream must stay alive as long as the array, its views and its `stream`, so the object must
/// keep it alive. CuPy's arrays do not: they name CuPy's current stream, and the returned array
/// keeps that stream object alive. But a `cupy.cuda.ExternalStream` does not own its stream, so the
/// caller must keep that stream alive.
///
/// If `sync` or `config.array_interface_sync` is false, that stream is ignored, and the caller must
/// prevent data races. Only then is the stream 0 accepted, which the specification forbids and
/// Numba exports for arrays on its default stream.
#[pyfunction]
#[pyo3(signature = (obj, sync = true))]
pub(crate) fn as_cuda_array(obj: &Bound<'_, PyAny>, sync: bool) -> Result<PyDeviceArray> {
    calling(obj.py(), || interface::import(&interface_of(obj)?, Some(obj.clone().unbind()), sync))
}

/// Imports the array that an interface describes, without a copy. The array keeps `owner` alive. If
/// `owner` is None, or does not keep alive the memory or the stream that the interface names, the
/// caller must keep these alive as long as the array, its views and its `stream`. If `owner` is a
/// CuPy array and the stream is CuPy's current stream, the returned array keeps that stream object
/// alive.
///
/// Python's collector runs the `__del__` methods of all objects of a reference cycle before it clears
/// them. An owner that frees the memory in `__del__` must not refer to the array.
#[pyfunction]
#[pyo3(signature = (desc, owner = None, sync = true))]
pub(crate) fn from_cuda_array_interface(
    desc: &Bound<'_, PyAny>,
    owner: Option<Py<PyAny>>,
    sync: bool,
) -> Result<PyDeviceArray> {
    calling(desc.py(), || interface::import(desc, owner, sync))
}

/// Imports an object that supports DLPack. The elements are copied only if `copy` is true.
///
/// All work on the array runs on `stream`. The default is the stream of the innermost `with
/// stream:` block, or else the default stream of the device. The producer orders its previous work
/// before this stream. The caller must order later work of the producer (`stream.wait`). Releasing
/// the last view waits for the work on the array and then notifies the producer.
#[pyfunction]
#[pyo3(signature = (obj, *, stream = None, copy = None))]
pub(crate) fn from_dlpack(
    obj: &Bound<'_, PyAny>,
    stream: Option<Py<PyStream>>,
    copy: Option<bool>,
) -> Result<PyDeviceArray> {
    calling(obj.py(), || dlpack::import(obj, stream.as_ref().map(Py::get), copy))
}
