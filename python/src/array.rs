//! Arrays: what they are made of. `methods.rs` is what Python sees.

mod dlpack;
mod exchange;
mod host;
mod index;
mod interface;
mod memory;
mod methods;
mod peers;
mod strided;

use crate::config;
use crate::ending::{calling, detached, let_go, let_go_of};
use crate::error::{Failure, Result};
use crate::lane::{At, Lane};
use crate::once::{Once, intern};
use crate::stream::PyStream;
use cuda_safe::Stream;
use cuda_safe::interop::dlpack::DataType;
use cuda_safe::interop::{Dtype, Layout};
use index::View;
use memory::{Memory, Order};
use pyo3::prelude::*;
use pyo3::types::PyDict;
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
            match memory.may_wait() {
                true => let_go(py, move || drop(memory)),
                // It may be for its producer to hear of it.
                false => let_go_of(py, memory),
            }
        }
        if let Some(owner) = owner {
            let_go_of(py, owner);
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
    interface: Once<Py<PyDict>>,
}

impl PyDeviceArray {
    fn new(array: Array, memory: Arc<Memory>, owner: Option<Py<PyAny>>) -> Self {
        Self {
            array,
            kept: Mutex::new(Some(Kept { memory, owner })),
            is_closed: AtomicBool::new(false),
            is_exported: AtomicBool::new(false),
            interface: Once::new(),
        }
    }

    /// A new array, with whatever is in its memory.
    fn allocate(py: Python<'_>, stream: Stream, dtype: Dtype, shape: &[usize]) -> Result<Self> {
        let layout = Layout::c_contiguous(shape, dtype.item_size()).map_err(|_| {
            let size = dtype.item_size();
            Failure::invalid(format!(
                "{shape:?} elements of {size} bytes are more than can be addressed"
            ))
        })?;
        let bytes = layout.byte_range().end.unsigned_abs();
        let (memory, address) = detached(py, move || Memory::allocate(&stream, bytes))?;
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
        let done = detached(py, move || order.run(work));
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

impl PyDeviceArray {
    #[cold]
    fn export<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let memory = self.kept(py)?.memory;
        memory.set_used();
        memory.grant_peer_access(py);
        let stream = memory.lane().map(Lane::number);
        self.is_exported.store(true, Ordering::Relaxed);
        if !config::export_stream() {
            return interface::write(py, &self.array, None);
        }
        let interface = interface::write(py, &self.array, stream)?;
        // Fields are lists, which consumers may write into.
        if matches!(self.array.dtype, Dtype::Record(_)) {
            return Ok(interface);
        }
        let copy = interface.copy()?;
        // If another thread was faster, that has the same in it.
        self.interface.keep(py, interface.unbind());
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

fn has_interface(object: &Bound<'_, PyAny>) -> Result<bool> {
    let py = object.py();
    calling(py, || {
        object.hasattr(intern!(py, "__cuda_array_interface__"))
    })
}

/// The address of the first element of an array, ours or of another library.
pub(crate) fn address_of(array: &Bound<'_, PyAny>) -> Result<u64> {
    if let Ok(array) = array.cast::<PyDeviceArray>() {
        let array = array.get();
        array.look(|_| array.array.address)
    } else {
        interface::address(&interface_of(array)?)
    }
}

/// The value of `__cuda_array_interface__`.
fn interface_of<'py>(object: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
    let py = object.py();
    let interface = calling(py, || {
        object.getattr_opt(intern!(py, "__cuda_array_interface__"))
    })?;
    let Some(interface) = interface else {
        return Err(pyo3::exceptions::PyTypeError::new_err(format!(
            "a {} has no __cuda_array_interface__",
            object.get_type().name()?
        ))
        .into());
    };
    Ok(interface)
}

/// The array of an object that has the CUDA Array Interface, without a copy. It keeps the object, and
/// is in the order of the stream that the object names: all work on it runs there.
///
/// That stream has to live as long as the array, its views and its `stream`, so the object has to keep
/// it. CuPy's arrays do not: they name CuPy's current stream, which is kept here as well. But a
/// `cupy.cuda.ExternalStream` keeps nothing, and then it is for the caller to keep the stream.
///
/// If `sync` or `config.array_interface_sync` is off, that stream is ignored, and the caller has to prevent
/// races. The stream 0, which the specification forbids and Numba exports for arrays on its default stream,
/// is accepted only then.
#[pyfunction]
#[pyo3(signature = (obj, sync = true))]
pub(crate) fn as_cuda_array(obj: &Bound<'_, PyAny>, sync: bool) -> Result<PyDeviceArray> {
    interface::import(&interface_of(obj)?, Some(obj.clone().unbind()), sync)
}

/// The array that an interface describes, without a copy. It keeps `owner`. Where that does not keep the
/// memory, or the stream that the interface names, or there is none, it is for the caller to keep them
/// as long as the array, its views and its `stream`. With an array of CuPy's as the owner the stream is
/// kept here, if it is CuPy's current one.
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
