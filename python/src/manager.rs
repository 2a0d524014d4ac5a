//! The memory manager of a device's primary context, used by this package and by other libraries
//! that are configured to allocate with it.

mod memory;
mod plugin;
mod stats;
mod torch;

pub(crate) use memory::{PyHostMemory, PyMemory};
pub(crate) use torch::{_torch_functions, _torch_streams};

use crate::error::{Failure, Result};
use crate::lifetime::ending::{attached, calling, detached};
use crate::lifetime::hold::{Closable, Owner};
use crate::objects::{DeviceLike, PyDevice};
use crate::primary::{is_gone, primary_now, used};
use cuda_memory::{
    CachingManager, CachingOptions, LimitManager, OrderedManager, StatisticsManager,
};
use cuda_safe::Context;
use cuda_safe::context::MemoryInfo;
use cuda_safe::manager::{Block, CleanupGuard, DriverManager, IpcHandle, MemoryManager};
use memory::StreamLike;
use plugin::PluginManager;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};
use std::sync::{Arc, Mutex, PoisonError};

/// The concrete types of the memory managers, each with statistics.
type Caching = StatisticsManager<CachingManager>;
type Ordered = StatisticsManager<LimitManager<OrderedManager>>;
type Plain = StatisticsManager<LimitManager<DriverManager>>;
type Plugin = StatisticsManager<LimitManager<PluginManager>>;

/// The choice for devices that are used for the first time from now on.
static CHOSEN: Mutex<Option<Chosen>> = Mutex::new(None);

#[derive(Clone, PartialEq, Eq)]
struct Chosen {
    kind: Kind,
    limit: Option<usize>,
}

#[derive(Clone)]
enum Kind {
    Caching,
    Ordered,
    Driver,
    /// A Python class.
    Plugin(Arc<Owner>),
}

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Plugin(class), Self::Plugin(other)) => class.is(other),
            _ => self.name() == other.name(),
        }
    }
}

impl Eq for Kind {}

impl Kind {
    fn name(&self) -> &'static str {
        match self {
            Self::Caching => "caching",
            Self::Ordered => "ordered",
            Self::Driver => "driver",
            Self::Plugin(_) => "plugin",
        }
    }

    /// Returns the built-in manager with this name.
    fn named(name: &str) -> Option<Self> {
        let all = [Self::Caching, Self::Ordered, Self::Driver];
        all.into_iter().find(|kind| kind.name() == name)
    }

    /// Converts an argument: a name, or a class.
    fn of(manager: &Bound<'_, PyAny>) -> Result<Self> {
        let Ok(name) = manager.cast::<PyString>() else {
            plugin::check_class(manager)?;
            let class = Owner::new(manager.clone().unbind());
            return Ok(Self::Plugin(Arc::new(class)));
        };
        let name = name.to_str()?;
        Self::named(name).ok_or_else(|| {
            Failure::invalid(format!(
                "{name:?} is not a memory manager: use \"caching\", \"ordered\", \"driver\" or a class"
            ))
        })
    }
}

impl Chosen {
    const DEFAULT: Self = Self { kind: Kind::Caching, limit: None };

    /// Registers the choice for contexts that are created from now on.
    fn apply(&self) -> Result<()> {
        let max_bytes = self.limit.unwrap_or(0);
        let limit = self.limit.unwrap_or(usize::MAX);
        match &self.kind {
            Kind::Caching => cuda_safe::manager::set_memory_manager(move |context| {
                let options = CachingOptions {
                    // 0 means no limit.
                    max_bytes,
                    ..CachingOptions::default()
                };
                let pool = CachingManager::with(context, options)?;
                Ok::<Caching, _>(StatisticsManager::new(pool))
            }),
            Kind::Ordered => cuda_safe::manager::set_memory_manager(move |context| {
                let limited = LimitManager::new(OrderedManager::new(context)?, limit);
                Ok::<Ordered, _>(StatisticsManager::new(limited))
            }),
            Kind::Driver => cuda_safe::manager::set_memory_manager(move |context| {
                let limited = LimitManager::new(DriverManager::new(context)?, limit);
                Ok::<Plain, _>(StatisticsManager::new(limited))
            }),
            Kind::Plugin(class) => {
                let class = Arc::clone(class);
                cuda_safe::manager::set_memory_manager(move |context| {
                    let limited = LimitManager::new(PluginManager::new(context, &class)?, limit);
                    Ok::<Plugin, _>(StatisticsManager::new(limited))
                })
            }
        }?;
        Ok(())
    }
}

/// Returns the name and limit of a context's manager, which may differ from the current choice.
fn chosen_for(context: &Context) -> Result<Option<(&'static str, Option<usize>)>> {
    let of = |kind, limit: usize, none: usize| (kind, (limit != none).then_some(limit));
    if let Some(manager) = context.memory_manager_as::<Caching>()? {
        let limit = manager.inner().options().max_bytes;
        return Ok(Some(of("caching", limit, 0)));
    }
    if let Some(manager) = context.memory_manager_as::<Ordered>()? {
        return Ok(Some(of("ordered", manager.inner().limit(), usize::MAX)));
    }
    if let Some(manager) = context.memory_manager_as::<Plain>()? {
        return Ok(Some(of("driver", manager.inner().limit(), usize::MAX)));
    }
    if let Some(manager) = context.memory_manager_as::<Plugin>()? {
        return Ok(Some(of("plugin", manager.inner().limit(), usize::MAX)));
    }
    Ok(None)
}

/// Returns a context's manager if it is written in Python.
fn plugin_of(context: &Context) -> Result<Option<&PluginManager>> {
    let manager = context.memory_manager_as::<Plugin>()?;
    Ok(manager.map(|manager| manager.inner().inner()))
}

fn is_chosen() -> bool {
    let chosen = CHOSEN.lock().unwrap_or_else(PoisonError::into_inner);
    chosen.is_some()
}

/// Sets the choice, unless one was made before and may not be replaced.
fn choose(wanted: Chosen, may_replace: bool) -> Result<()> {
    // No driver or Python call is made while the lock is held, so other threads do not wait long.
    let mut chosen = CHOSEN.lock().unwrap_or_else(PoisonError::into_inner);
    if chosen.is_some() && !may_replace {
        return Ok(());
    }
    wanted.apply()?;
    let before = chosen.replace(wanted);
    drop(chosen);
    // This may be the last reference to a class.
    drop(before);
    Ok(())
}

/// The environment variable that selects a manager: a name, or a module.
const VARIABLE: &str = "CUDA_SAFE_MEMORY_MANAGER";

/// Applies the choice of the environment if none was made before. `primary.rs` calls it before the first use
/// of a device. A failure is returned to the caller, and the next call tries again.
pub(crate) fn choose_from_environment() -> Result<()> {
    if is_chosen() {
        return Ok(());
    }
    let Some(value) = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) else {
        return Ok(());
    };
    let name = value.to_string_lossy();
    let kind = match Kind::named(&name) {
        Some(kind) => kind,
        // No lock is held, because the module may use this package.
        None => attached(|py| class_of_module(py, &name)).unwrap_or(Err(Failure::Ended))?,
    };
    choose(Chosen { kind, limit: None }, false)
}

/// Returns the class that a module declares for Numba's memory management.
fn class_of_module(py: Python<'_>, name: &str) -> Result<Kind> {
    let class = || -> Result<Kind> {
        let class = py.import(name)?.getattr("_numba_memory_manager")?;
        plugin::check_class(&class)?;
        Ok(Kind::Plugin(Arc::new(Owner::new(class.unbind()))))
    };
    class().map_err(|why| {
        let text = format!(
            "{VARIABLE}={name}: the class _numba_memory_manager of this module cannot be used as a \
             memory manager"
        );
        let error = PyErr::from(Failure::invalid(text));
        error.set_cause(py, Some(PyErr::from(why)));
        error.into()
    })
}

fn without_manager(ordinal: usize) -> Failure {
    Failure::invalid(format!(
        "device {ordinal} is already in use without a memory manager: \
         call cuda_safe.set_memory_manager before the first use of a device"
    ))
}

/// Chooses the memory manager of devices that are used for the first time from now on. A device
/// keeps its memory manager, or keeps having none, until its primary context is reset;
/// `memory_manager()` returns it.
///
/// `manager` is "caching", a pool that caches freed memory; "ordered", the driver's pools with
/// stream-ordered memory; "driver", synchronous allocations of the driver, freed in batches; or a
/// class with the methods of Numba's memory managers, of which one instance is created for each
/// device: see `cuda_safe.plugin`. `limit` is the maximum number of bytes that the caching pool may
/// reserve, or that the other managers may have in use.
///
/// Without a call of this function, the environment variable `CUDA_SAFE_MEMORY_MANAGER` selects the
/// memory manager: one of the three names, or the name of a module whose attribute
/// `_numba_memory_manager` is the class.
#[pyfunction]
#[pyo3(
    signature = (manager = None, *, limit = None),
    text_signature = "(manager='caching', *, limit=None)"
)]
pub(crate) fn set_memory_manager(
    manager: Option<&Bound<'_, PyAny>>,
    limit: Option<usize>,
) -> Result<()> {
    let kind = manager.map_or(Ok(Kind::Caching), Kind::of)?;
    if limit == Some(0) {
        return Err(Failure::invalid("the limit must be at least 1 byte"));
    }
    choose(Chosen { kind, limit }, true)
}

/// Chooses "caching" for libraries that allocate with this package, if no choice was made before.
#[pyfunction]
pub(crate) fn _choose_memory_manager() -> Result<()> {
    choose_from_environment()?;
    if !is_chosen() {
        if let Some((ordinal, _)) = used().next() {
            return Err(without_manager(ordinal));
        }
        choose(Chosen::DEFAULT, false)?;
    }
    Ok(())
}

/// Returns the context of a device that has a memory manager. It may block.
fn managed(ordinal: u32) -> Result<Context> {
    _choose_memory_manager()?;
    with_manager(primary_now(ordinal)?)
}

fn with_manager(context: Context) -> Result<Context> {
    match context.memory_manager()?.is_some() {
        true => Ok(context),
        // Another thread created the context before the choice.
        false => Err(without_manager(context.device().ordinal() as usize)),
    }
}

/// Returns the memory manager of a device, or None if arrays are allocated by the driver because no
/// manager was chosen before the device's first use.
#[pyfunction]
#[pyo3(signature = (device = None))]
pub(crate) fn memory_manager(
    py: Python<'_>,
    device: Option<DeviceLike>,
) -> Result<Option<PyMemoryManager>> {
    detached(py, choose_from_environment)?;
    if !is_chosen() {
        return Ok(None);
    }
    let ordinal = DeviceLike::ordinal(py, device)?;
    detached(py, || {
        let context = primary_now(ordinal)?;
        let is_there = context.memory_manager()?.is_some();
        Ok::<_, Failure>(is_there.then_some(PyMemoryManager(context)))
    })
}

/// The memory manager of a device. It allocates the memory of this package's arrays, and of other
/// libraries that are configured to use it.
#[pyclass(frozen, eq, hash, name = "MemoryManager", module = "cuda_safe")]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct PyMemoryManager(Context);

fn manager_of(context: &Context) -> Result<&dyn MemoryManager> {
    refuse_gone(context)?;
    let manager = context.memory_manager()?;
    manager.ok_or_else(|| without_manager(context.device().ordinal() as usize))
}

/// Refuses a context that other code has reset, because its memory no longer exists.
#[inline]
fn refuse_gone(context: &Context) -> Result<()> {
    match is_gone(context) {
        false => Ok(()),
        true => Err(Failure::invalid(format!(
            "the primary context of device {} was reset (by numba.cuda.close() or cudaDeviceReset), \
             which invalidated this memory manager: call cuda_safe.memory_manager() to get the new one",
            context.device().ordinal()
        ))),
    }
}

#[pymethods]
impl PyMemoryManager {
    /// Returns the memory manager of a device for another library, choosing "caching" if no choice
    /// was made. If the device's primary context was reset, this is a new manager.
    #[staticmethod]
    #[pyo3(signature = (device = None))]
    fn _of(py: Python<'_>, device: Option<DeviceLike>) -> Result<Self> {
        let ordinal = DeviceLike::ordinal(py, device)?;
        let context = detached(py, || {
            _choose_memory_manager()?;
            with_manager(primary_now(ordinal)?)
        })?;
        Ok(Self(context))
    }

    /// The device of the memory manager.
    #[getter]
    fn device(&self) -> PyDevice {
        PyDevice(self.0.device())
    }

    /// "caching", "ordered", "driver", or "plugin" for a manager that is written in Python.
    #[getter]
    fn kind(&self) -> Result<Option<&'static str>> {
        Ok(chosen_for(&self.0)?.map(|(kind, _)| kind))
    }

    /// The instance of the class that was set, for a manager that is written in Python.
    #[getter]
    fn plugin(&self, py: Python<'_>) -> Result<Option<Py<PyAny>>> {
        Ok(plugin_of(&self.0)?.map(|plugin| plugin.plugin(py)))
    }

    /// The maximum number of bytes that may be reserved or in use, or None for no limit.
    #[getter]
    fn limit(&self) -> Result<Option<usize>> {
        Ok(chosen_for(&self.0)?.and_then(|(_, limit)| limit))
    }

    /// Returns a `MemoryStatistics`. This inspects the whole pool, so do not call it often.
    fn statistics<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        refuse_gone(&self.0)?;
        let stats = detached(py, || stats::of(&self.0))?;
        stats.into_python(py)
    }

    /// Returns the bytes that are free for allocations, including cached memory, and the total.
    fn memory_info<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        let MemoryInfo { free, total, .. } = detached(py, || stats::memory_info(&self.0))?;
        calling(py, || {
            let class = py.import("cuda_safe._types")?.getattr("MemoryInfo")?;
            class.call1((free, total))
        })
    }

    /// Returns cached memory to the driver until at most `keep` bytes are cached. Returns the
    /// number of freed bytes. It may wait for all work of the device.
    #[pyo3(signature = (keep = 0))]
    fn trim(&self, py: Python<'_>, keep: usize) -> Result<usize> {
        detached(py, || {
            torch::settle();
            Ok::<_, Failure>(manager_of(&self.0)?.trim(keep)?)
        })
    }

    /// Returns a context manager. Within its `with` block, a clean-up that would wait for work is
    /// deferred. Such blocks can be nested.
    fn defer_cleanup(&self, py: Python<'_>) -> Result<PyCleanup> {
        let guard = detached(py, || {
            let manager = manager_of(&self.0)?;
            Ok::<_, Failure>(match plugin_of(&self.0)? {
                Some(plugin) => plugin.defer()?,
                None => manager.defer_cleanup(),
            })
        })?;
        Ok(PyCleanup { guard: Closable::new("with block", guard) })
    }

    /// Allocates device memory for use on a stream; the memory is also freed in the order of this
    /// stream. Without a stream it is reused after all work of the device. This also holds for a
    /// stream that is given by its handle only, because nothing keeps that stream alive. A
    /// capturing stream is refused.
    #[pyo3(signature = (size, stream = None))]
    fn _allocate(
        &self,
        py: Python<'_>,
        size: usize,
        stream: Option<StreamLike>,
    ) -> Result<PyMemory> {
        refuse_gone(&self.0)?;
        PyMemory::allocate(py, &self.0, size, stream)
    }

    /// Allocates managed memory.
    fn _allocate_managed(&self, py: Python<'_>, size: usize, is_global: bool) -> Result<PyMemory> {
        refuse_gone(&self.0)?;
        PyMemory::allocate_managed(py, &self.0, size, is_global)
    }

    /// Allocates page-locked host memory, with `from_driver` without a manager that is written in Python.
    #[pyo3(signature = (size, mapped, portable, write_combined, from_driver = false))]
    fn _allocate_host(
        &self,
        py: Python<'_>,
        size: usize,
        mapped: bool,
        portable: bool,
        write_combined: bool,
        from_driver: bool,
    ) -> Result<PyHostMemory> {
        refuse_gone(&self.0)?;
        let context = &self.0;
        PyHostMemory::allocate(py, context, size, mapped, portable, write_combined, from_driver)
    }

    /// Page-locks memory of `owner`, which is kept alive until the memory is unlocked. With `from_driver`,
    /// no manager that is written in Python is involved.
    #[pyo3(signature = (owner, address, size, mapped, from_driver = false))]
    fn _pin(
        &self,
        py: Python<'_>,
        owner: Py<PyAny>,
        address: usize,
        size: usize,
        mapped: bool,
        from_driver: bool,
    ) -> Result<PyHostMemory> {
        refuse_gone(&self.0)?;
        let owner = Owner::new(owner);
        PyHostMemory::pin(py, &self.0, owner, address, size, mapped, from_driver)
    }

    /// Returns the IPC handle of the driver allocation that contains some memory, and the offset in
    /// it.
    fn _ipc_handle<'py>(
        &self,
        py: Python<'py>,
        address: u64,
        size: usize,
    ) -> Result<(Bound<'py, PyBytes>, u64)> {
        refuse_gone(&self.0)?;
        if let Some(plugin) = plugin_of(&self.0)? {
            if let Some(block) = plugin.block_at(address) {
                let handle = detached(py, || plugin.ipc_handle(&block))?;
                let offset = handle.offset() + (address - block.address);
                return Ok((PyBytes::new(py, handle.as_bytes()), offset));
            }
        }
        let block = Block { address, size, token: 0 };
        // With each of these managers, memory without a stream is a synchronous driver allocation
        // or a part of one, so the driver finds it by its address.
        let handle = detached(py, || IpcHandle::of(&self.0, &block))?;
        Ok((PyBytes::new(py, handle.as_bytes()), handle.offset()))
    }

    /// Frees all memory that is not in use.
    fn _reset(&self, py: Python<'_>) -> Result<()> {
        if is_gone(&self.0) {
            return Ok(());
        }
        detached(py, || {
            torch::settle();
            manager_of(&self.0)?.reset();
            Ok::<_, Failure>(())
        })
    }

    fn __repr__(&self) -> String {
        let kind = self.kind().ok().flatten().unwrap_or("none");
        format!("<MemoryManager {kind:?} of device {}>", self.0.device().ordinal())
    }
}

/// A context manager that defers clean-up, from `MemoryManager.defer_cleanup`.
#[pyclass(frozen, name = "_Cleanup", module = "cuda_safe._native")]
pub(crate) struct PyCleanup {
    guard: Closable<CleanupGuard>,
}

#[pymethods]
impl PyCleanup {
    fn __enter__<'py>(slf: &Bound<'py, Self>) -> Bound<'py, Self> {
        slf.clone()
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) {
        self.guard.close(py);
    }
}
