//! Who allocates in a device's primary context: one manager for this package, and for the libraries
//! that are told to allocate here.

mod figures;
mod memory;
mod plugin;
mod torch;

pub(crate) use memory::{PyHostMemory, PyMemory};
pub(crate) use torch::{_torch_functions, _torch_streams};

use crate::device::{DeviceLike, PyDevice, is_gone, primary_asked, primary_now, used};
use crate::ending::{calling, detached};
use crate::error::{Failure, Result};
use crate::hold::{Closable, Owner};
use cuda_safe::manager::{
    Block, CachingManager, CachingOptions, CleanupGuard, DriverManager, IpcHandle, LimitManager,
    MemoryManager, OrderedManager, StatisticsManager,
};
use cuda_safe::{Context, MemoryInfo};
use memory::StreamLike;
use plugin::PluginManager;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};
use std::sync::{Arc, Mutex, PoisonError};

/// The managers that there are, with what each is made of. All count what they are asked for.
type Caching = StatisticsManager<CachingManager>;
type Ordered = StatisticsManager<LimitManager<OrderedManager>>;
type Plain = StatisticsManager<LimitManager<DriverManager>>;
type Plugin = StatisticsManager<LimitManager<PluginManager>>;

/// What was chosen, for the devices that are used from then on.
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
    /// A class of Python.
    Plugin(Arc<Py<PyAny>>),
}

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Plugin(class), Self::Plugin(other)) => class.as_ptr() == other.as_ptr(),
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

    /// One of those that have a name.
    fn named(name: &str) -> Option<Self> {
        let all = [Self::Caching, Self::Ordered, Self::Driver];
        all.into_iter().find(|kind| kind.name() == name)
    }

    /// What a caller says: a name, or a class.
    fn of(manager: &Bound<'_, PyAny>) -> Result<Self> {
        let Ok(name) = manager.cast::<PyString>() else {
            plugin::check_class(manager)?;
            return Ok(Self::Plugin(Arc::new(manager.clone().unbind())));
        };
        let name = name.to_str()?;
        Self::named(name).ok_or_else(|| {
            Failure::invalid(format!(
                "{name:?} is no memory manager: there are \"caching\", \"ordered\" and \"driver\""
            ))
        })
    }
}

impl Chosen {
    const DEFAULT: Self = Self {
        kind: Kind::Caching,
        limit: None,
    };

    /// Has the contexts that are made from now on allocate so.
    fn apply(&self) -> Result<()> {
        let max_bytes = self.limit.unwrap_or(0);
        let limit = self.limit.unwrap_or(usize::MAX);
        match &self.kind {
            Kind::Caching => cuda_safe::manager::set_memory_manager(move |context| {
                let options = CachingOptions {
                    // 0 is none.
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

/// What a context's own manager is, by its name and limit, whatever is chosen meanwhile for others.
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

/// The manager written in Python of a context, if it has one.
fn plugin_of(context: &Context) -> Result<Option<&PluginManager>> {
    let manager = context.memory_manager_as::<Plugin>()?;
    Ok(manager.map(|manager| manager.inner().inner()))
}

fn is_chosen() -> bool {
    let chosen = CHOSEN.lock().unwrap_or_else(PoisonError::into_inner);
    chosen.is_some()
}

/// Chooses, unless something else was chosen before and may not be replaced.
fn choose(wanted: Chosen, may_replace: bool) -> Result<()> {
    // No call of the driver, and none of Python: nobody waits long for it.
    let mut chosen = CHOSEN.lock().unwrap_or_else(PoisonError::into_inner);
    if chosen.is_some() && !may_replace {
        return Ok(());
    }
    wanted.apply()?;
    let before = chosen.replace(wanted);
    drop(chosen);
    // It may be the last reference to a class.
    drop(before);
    Ok(())
}

/// The variable that chooses a manager: one by its name, or that of a module.
const VARIABLE: &str = "CUDA_SAFE_MEMORY_MANAGER";

/// Chooses what the environment says, if nothing was chosen before: called before the first use of a device. A
/// failure is that of the call, and the next one tries again.
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
        // No lock is held: the module may use this package.
        None => Python::try_attach(|py| calling(py, || class_of_module(py, &name)))
            .unwrap_or(Err(Failure::Ended))?,
    };
    choose(Chosen { kind, limit: None }, false)
}

/// The class that a module names for Numba as well.
fn class_of_module(py: Python<'_>, name: &str) -> Result<Kind> {
    let class = || -> Result<Kind> {
        let class = py.import(name)?.getattr("_numba_memory_manager")?;
        plugin::check_class(&class)?;
        Ok(Kind::Plugin(Arc::new(class.unbind())))
    };
    class().map_err(|why| {
        let text = format!(
            "{VARIABLE}={name}: the class _numba_memory_manager of this module cannot be used as a memory manager"
        );
        let error = PyErr::from(Failure::invalid(text));
        error.set_cause(py, Some(PyErr::from(why)));
        Failure::Python(error)
    })
}

fn without_manager(ordinal: usize) -> Failure {
    Failure::invalid(format!(
        "device {ordinal} is in use already, without a memory manager: \
         cuda_safe.set_memory_manager comes before the first use of a device"
    ))
}

/// Chooses the memory manager of the devices that are used for the first time from now on. A device keeps the
/// manager that it has, or none, until its primary context is reset; `memory_manager()` returns it.
///
/// `manager` is "caching", a pool that keeps what was freed; "ordered", the pools of the driver, stream-ordered;
/// "driver", synchronous memory of the driver, freed in batches; or a class with the methods of Numba's
/// memory managers, of which one instance is created for each device: see `cuda_safe.plugin`. `limit` is in
/// bytes: what the pool may reserve, or what the others may hand out.
///
/// Without a call of this function the environment variable `CUDA_SAFE_MEMORY_MANAGER` chooses: one of the three
/// names, or the name of a module whose attribute `_numba_memory_manager` is the class.
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
        return Err(Failure::invalid("a limit of no byte"));
    }
    choose(Chosen { kind, limit }, true)
}

/// For libraries that allocate here: "caching", if nothing was chosen before.
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

/// The context of a device for those who allocate with its manager. It may wait.
fn managed(ordinal: u32) -> Result<Context> {
    _choose_memory_manager()?;
    with_manager(primary_now(ordinal)?)
}

fn with_manager(context: Context) -> Result<Context> {
    match context.memory_manager()?.is_some() {
        true => Ok(context),
        // It was made by another thread, before that.
        false => Err(without_manager(context.device().ordinal() as usize)),
    }
}

/// Who allocates on a device; None, if that is the driver, as nothing was chosen before its first use.
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

/// Who allocates on a device: for this package's arrays, and for the libraries that were told to
/// allocate here.
#[pyclass(frozen, eq, hash, name = "MemoryManager", module = "cuda_safe")]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct PyMemoryManager(Context);

fn manager_of(context: &Context) -> Result<&dyn MemoryManager> {
    refuse_gone(context)?;
    let manager = context.memory_manager()?;
    manager.ok_or_else(|| without_manager(context.device().ordinal() as usize))
}

/// Refuses a context that other code has reset: its memory is no more.
#[inline]
fn refuse_gone(context: &Context) -> Result<()> {
    match is_gone(context) {
        false => Ok(()),
        true => Err(Failure::invalid(format!(
            "the primary context of device {} was reset (by numba.cuda.close(), or cudaDeviceReset): what was \
             made in it is gone, and this memory manager with it; cuda_safe.memory_manager() is the new one",
            context.device().ordinal()
        ))),
    }
}

#[pymethods]
impl PyMemoryManager {
    /// That of a device, for a library that allocates with it: "caching", if none was chosen. If the
    /// device's primary context was reset it is a new one.
    #[staticmethod]
    #[pyo3(signature = (device = None))]
    fn _of(py: Python<'_>, device: Option<DeviceLike>) -> Result<Self> {
        let ordinal = DeviceLike::ordinal(py, device)?;
        let context = detached(py, || {
            _choose_memory_manager()?;
            with_manager(primary_asked(ordinal)?)
        })?;
        Ok(Self(context))
    }

    /// The device.
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
        Ok(plugin_of(&self.0)?.and_then(|plugin| plugin.plugin(py)))
    }

    /// The bytes that it may have of the driver, or hand out; None: as many as there are.
    #[getter]
    fn limit(&self) -> Result<Option<usize>> {
        Ok(chosen_for(&self.0)?.and_then(|(_, limit)| limit))
    }

    /// What it was asked for, and what it has. It looks at everything, and is for now and then.
    fn statistics<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        refuse_gone(&self.0)?;
        let figures = detached(py, || figures::of(&self.0))?;
        figures.into_python(py)
    }

    /// The bytes that are free for allocations, with what is kept, and all there are.
    fn memory_info<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        let MemoryInfo { free, total, .. } = detached(py, || figures::memory_info(&self.0))?;
        calling(py, || {
            let class = py.import("cuda_safe._types")?.getattr("MemoryInfo")?;
            class.call1((free, total))
        })
    }

    /// Gives kept memory back to the driver, until no more than `keep` bytes are kept; how many were
    /// given back. It may wait for all work of the device.
    #[pyo3(signature = (keep = 0))]
    fn trim(&self, py: Python<'_>, keep: usize) -> Result<usize> {
        detached(py, || {
            torch::settle();
            Ok::<_, Failure>(manager_of(&self.0)?.trim(keep)?)
        })
    }

    /// In a `with` block of what this returns, clean-up that waits for work is held back. Such blocks nest.
    fn defer_cleanup(&self, py: Python<'_>) -> Result<PyCleanup> {
        let guard = detached(py, || {
            let manager = manager_of(&self.0)?;
            Ok::<_, Failure>(match plugin_of(&self.0)? {
                Some(plugin) => plugin.defer()?,
                None => manager.defer_cleanup(),
            })
        })?;
        Ok(PyCleanup {
            guard: Closable::new("with block", guard),
        })
    }

    /// Device memory in the order of a stream, in which it is freed; or of none: then it is used again
    /// behind all work of the device, and so is memory for a stream by its handle alone, which nobody
    /// keeps. One that is captured is refused.
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

    /// Managed memory.
    fn _allocate_managed(&self, py: Python<'_>, size: usize, is_global: bool) -> Result<PyMemory> {
        refuse_gone(&self.0)?;
        PyMemory::allocate_managed(py, &self.0, size, is_global)
    }

    /// Page-locked memory of the host.
    fn _allocate_host(
        &self,
        py: Python<'_>,
        size: usize,
        mapped: bool,
        portable: bool,
        write_combined: bool,
    ) -> Result<PyHostMemory> {
        refuse_gone(&self.0)?;
        PyHostMemory::allocate(py, &self.0, size, mapped, portable, write_combined)
    }

    /// Pins memory of `owner`, which is kept until that is undone.
    fn _pin(
        &self,
        py: Python<'_>,
        owner: Py<PyAny>,
        address: usize,
        size: usize,
        mapped: bool,
    ) -> Result<PyHostMemory> {
        refuse_gone(&self.0)?;
        PyHostMemory::pin(py, &self.0, Owner::new(owner), address, size, mapped)
    }

    /// For another process: the handle of the driver's allocation that some memory lies in, and where.
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
        let block = Block {
            address,
            size,
            token: 0,
        };
        // Memory of nobody's order is plain memory of the driver's, or a part of that, with each of these
        // managers: so the driver knows it by its address.
        let handle = detached(py, || IpcHandle::of(&self.0, &block))?;
        Ok((PyBytes::new(py, handle.as_bytes()), handle.offset()))
    }

    /// Gives back what is in nobody's hands.
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
        format!(
            "<MemoryManager {kind:?} of device {}>",
            self.0.device().ordinal()
        )
    }
}

/// A `with` block in which clean-up is held back; of `MemoryManager.defer_cleanup`.
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
