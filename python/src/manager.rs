//! Who allocates in a device's primary context: one manager for this package, and for the libraries
//! that are told to allocate here.

mod figures;
mod memory;
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
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use std::sync::{Mutex, PoisonError};

/// The managers that there are, with what each is made of. All count what they are asked for.
type Caching = StatisticsManager<CachingManager>;
type Ordered = StatisticsManager<LimitManager<OrderedManager>>;
type Plain = StatisticsManager<LimitManager<DriverManager>>;

/// What was chosen, for the devices that are used from then on.
static CHOSEN: Mutex<Option<Chosen>> = Mutex::new(None);

#[derive(Clone, Copy, PartialEq, Eq)]
struct Chosen {
    kind: Kind,
    limit: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Caching,
    Ordered,
    Driver,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Caching, Self::Ordered, Self::Driver];

    fn name(self) -> &'static str {
        match self {
            Self::Caching => "caching",
            Self::Ordered => "ordered",
            Self::Driver => "driver",
        }
    }

    fn of(name: &str) -> Result<Self> {
        let kind = Self::ALL.into_iter().find(|kind| kind.name() == name);
        kind.ok_or_else(|| {
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
    fn apply(self) -> Result<()> {
        let limit = self.limit.unwrap_or(usize::MAX);
        match self.kind {
            Kind::Caching => cuda_safe::manager::set_memory_manager(move |context| {
                let options = CachingOptions {
                    // 0 is none.
                    max_bytes: self.limit.unwrap_or(0),
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
        }?;
        Ok(())
    }
}

/// What a context's own manager is, whatever is chosen meanwhile for others.
fn chosen_for(context: &Context) -> Result<Option<Chosen>> {
    let of = |kind, limit: usize, none: usize| Chosen {
        kind,
        limit: (limit != none).then_some(limit),
    };
    if let Some(manager) = context.memory_manager_as::<Caching>()? {
        let limit = manager.inner().options().max_bytes;
        return Ok(Some(of(Kind::Caching, limit, 0)));
    }
    if let Some(manager) = context.memory_manager_as::<Ordered>()? {
        return Ok(Some(of(Kind::Ordered, manager.inner().limit(), usize::MAX)));
    }
    if let Some(manager) = context.memory_manager_as::<Plain>()? {
        return Ok(Some(of(Kind::Driver, manager.inner().limit(), usize::MAX)));
    }
    Ok(None)
}

fn chosen() -> Option<Chosen> {
    *CHOSEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Chooses, unless something else has been chosen by then; what has been chosen then.
fn choose(wanted: Chosen, may_replace: bool) -> Result<Chosen> {
    // No call of the driver, and none of Python: nobody waits long for it.
    let mut chosen = CHOSEN.lock().unwrap_or_else(PoisonError::into_inner);
    match *chosen {
        Some(before) if before == wanted || !may_replace => Ok(before),
        _ => {
            wanted.apply()?;
            *chosen = Some(wanted);
            Ok(wanted)
        }
    }
}

fn without_manager(ordinal: usize) -> Failure {
    Failure::invalid(format!(
        "device {ordinal} is in use already, without a memory manager: \
         cuda_safe.set_memory_manager comes before the first use of a device"
    ))
}

/// Chooses who allocates on devices that were not used before: "caching", a pool that keeps what was
/// freed; "ordered", the driver's own pools, in the order of streams; "driver", the driver's plain
/// memory, freed in batches. `limit` is in bytes: what the pool may have of the driver, or what the
/// others may hand out.
#[pyfunction]
#[pyo3(signature = (kind = "caching", *, limit = None))]
pub(crate) fn set_memory_manager(kind: &str, limit: Option<usize>) -> Result<()> {
    let wanted = Chosen {
        kind: Kind::of(kind)?,
        limit,
    };
    if limit == Some(0) {
        return Err(Failure::invalid("a limit of no byte"));
    }
    let before = chosen();
    if before == Some(wanted) {
        return Ok(());
    }
    if let Some((ordinal, _)) = used().next() {
        return Err(match before {
            None => without_manager(ordinal),
            Some(before) => Failure::invalid(format!(
                "device {ordinal} is in use already, with the memory manager {:?}{}, which it keeps",
                before.kind.name(),
                match before.limit {
                    Some(limit) => format!(" and its limit of {limit} bytes"),
                    None => String::new(),
                }
            )),
        });
    }
    choose(wanted, true)?;
    Ok(())
}

/// For libraries that allocate here: "caching", if nothing was chosen before.
#[pyfunction]
pub(crate) fn _choose_memory_manager() -> Result<()> {
    if chosen().is_none() {
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
    if chosen().is_none() {
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

    /// "caching", "ordered" or "driver".
    #[getter]
    fn kind(&self) -> Result<Option<&'static str>> {
        Ok(chosen_for(&self.0)?.map(|chosen| chosen.kind.name()))
    }

    /// The bytes that it may have of the driver, or hand out; None: as many as there are.
    #[getter]
    fn limit(&self) -> Result<Option<usize>> {
        Ok(chosen_for(&self.0)?.and_then(|chosen| chosen.limit))
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
            Ok::<_, Failure>(manager_of(&self.0)?.defer_cleanup())
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
        let block = Block {
            address,
            size,
            token: 0,
        };
        // Memory of nobody's order is plain memory of the driver's, or a part of that, with each of these
        // managers: so the driver knows it by its address.
        refuse_gone(&self.0)?;
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
