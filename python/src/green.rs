//! Green contexts: partitions of a device's multiprocessors.

use crate::context::PyContext;
use crate::current;
use crate::device::PyDevice;
use crate::ending::detached;
use crate::error::{Failure, Result};
use crate::event::PyEvent;
use crate::hold::Closable;
use crate::stream::PyStream;
use cuda_safe::Rejected;
use cuda_safe::StreamOptions;
use cuda_safe::green::{
    ExactSplit, GreenContext, GroupFlags, GroupRequest, Overlap, Partitioning, SmGroup, SmResource,
    Split, SplitByCount, SplitFlags, Wish,
};
use cuda_safe::{Context, Device};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// Whose multiprocessors.
#[derive(Clone)]
enum Whole {
    Device(Device),
    Context(Context),
    Green(GreenContext),
}

/// The multiprocessors (SMs) of a device, or of a green context, to be split.
#[pyclass(frozen, name = "SmResource", module = "cuda_safe")]
pub(crate) struct PySmResource {
    /// Never closed; but a green context may go with it, which waits.
    whole: Closable<Whole>,
    /// As they were when this was made.
    sm_count: u32,
    granularity: (u32, u32),
}

impl PySmResource {
    pub(crate) fn of_device(py: Python<'_>, device: Device) -> Result<Self> {
        Self::of(py, Whole::Device(device))
    }

    pub(crate) fn of_context(py: Python<'_>, context: Context) -> Result<Self> {
        Self::of(py, Whole::Context(context))
    }

    fn of(py: Python<'_>, whole: Whole) -> Result<Self> {
        let resource = detached(py, || whole.ask())?;
        let granularity = resource.granularity()?;
        Ok(Self {
            whole: Closable::new("resource", whole),
            sm_count: resource.sm_count(),
            granularity: (granularity.min, granularity.multiple),
        })
    }
}

impl Whole {
    fn ask(&self) -> cuda_safe::Result<SmResource> {
        match self {
            Self::Device(device) => SmResource::of_device(device),
            Self::Context(context) => SmResource::of_context(context),
            Self::Green(green) => SmResource::of_green_context(green),
        }
    }
}

fn overlap(allow: bool) -> Overlap {
    match allow {
        true => Overlap::Allow,
        false => Overlap::Refuse,
    }
}

fn split_flags(ignore_coscheduling: bool, max_cluster: bool) -> SplitFlags {
    let mut flags = SplitFlags::empty();
    flags.set(SplitFlags::IGNORE_SM_COSCHEDULING, ignore_coscheduling);
    flags.set(SplitFlags::MAX_POTENTIAL_CLUSTER_SIZE, max_cluster);
    flags
}

/// A split by count, of whatever it is.
fn by_count(
    min: u32,
    max_groups: Option<u32>,
    ignore_coscheduling: bool,
    max_cluster: bool,
) -> SplitByCount {
    SplitByCount {
        min,
        max_groups,
        flags: split_flags(ignore_coscheduling, max_cluster),
        ..SplitByCount::default()
    }
}

/// The same into groups of these sizes, alike but for that.
fn exact(sizes: Vec<u32>, coscheduled: u32, backfill: bool) -> ExactSplit {
    let mut flags = GroupFlags::empty();
    flags.set(GroupFlags::BACKFILL, backfill);
    let request = |size| GroupRequest {
        coscheduled,
        flags,
        ..GroupRequest::of(size)
    };
    ExactSplit {
        groups: sizes.into_iter().map(request).collect(),
        ..ExactSplit::default()
    }
}

fn groups_of(split: Split) -> (Vec<PySmGroup>, Option<PySmGroup>) {
    let groups = split.groups.into_iter().map(PySmGroup::of).collect();
    (groups, split.remainder.map(PySmGroup::of))
}

/// A part for `SmResource.partition`: so many SMs, a share as "50%", "equal", or the rest.
fn wish(part: &Bound<'_, PyAny>) -> Result<Wish> {
    if part.is_none() {
        return Ok(Wish::Rest);
    }
    if let Ok(sms) = part.extract::<u32>() {
        return Ok(Wish::Sms(sms));
    }
    let text = part.extract::<String>().unwrap_or_default();
    if text == "equal" {
        return Ok(Wish::Equal);
    }
    let share = text
        .strip_suffix('%')
        .and_then(|share| share.trim().parse().ok());
    share.map(Wish::Percent).ok_or_else(|| {
        Failure::invalid(
            "a part is a number of SMs, a share of them as \"50%\", \"equal\", or None: the rest",
        )
    })
}

#[pymethods]
impl PySmResource {
    /// The device.
    #[getter]
    fn device(&self) -> Result<PyDevice> {
        Ok(PyDevice(match self.whole.get()? {
            Whole::Device(device) => device,
            Whole::Context(context) => context.device(),
            Whole::Green(green) => green.device(),
        }))
    }

    /// How many SMs there are.
    #[getter]
    fn sm_count(&self) -> u32 {
        self.sm_count
    }

    /// The SMs of the smallest group that a split gives.
    #[getter]
    fn min_group(&self) -> u32 {
        self.granularity.0
    }

    /// The SMs of a group are a multiple of this.
    #[getter]
    fn group_multiple(&self) -> u32 {
        self.granularity.1
    }

    /// Groups of one size: of `min` SMs at least, which the driver rounds up. Gives the groups, and
    /// what is left over, or None.
    ///
    /// While they, or green contexts of them, are there, a second split of the device is refused, and
    /// the exception has this one's `label`; unless it says `allow_overlap`.
    #[pyo3(signature = (
        min, max_groups = None, *, label = "", allow_overlap = false, ignore_coscheduling = false,
        max_cluster = false
    ))]
    #[allow(clippy::too_many_arguments, reason = "they have names in Python")]
    fn split_by_count(
        &self,
        py: Python<'_>,
        min: u32,
        max_groups: Option<u32>,
        label: &str,
        allow_overlap: bool,
        ignore_coscheduling: bool,
        max_cluster: bool,
    ) -> Result<(Vec<PySmGroup>, Option<PySmGroup>)> {
        let split = SplitByCount {
            overlap: overlap(allow_overlap),
            label: label.to_owned(),
            ..by_count(min, max_groups, ignore_coscheduling, max_cluster)
        };
        let whole = self.whole.get()?;
        let split = detached(py, move || {
            Ok::<_, cuda_safe::Error>(whole.ask()?.split_by_count(split)?)
        })?;
        Ok(groups_of(split))
    }

    /// Groups of the given sizes, exactly, from one split (a driver for CUDA 13.1 or later); a size of
    /// 0 is as many as there can be. With `backfill`, what cannot be had as a cluster is filled up.
    /// Gives the groups, and what is left over, or None.
    #[pyo3(signature = (
        sizes, *, coscheduled = 0, backfill = false, label = "", allow_overlap = false
    ))]
    fn split(
        &self,
        py: Python<'_>,
        sizes: Vec<u32>,
        coscheduled: u32,
        backfill: bool,
        label: &str,
        allow_overlap: bool,
    ) -> Result<(Vec<PySmGroup>, Option<PySmGroup>)> {
        let split = ExactSplit {
            overlap: overlap(allow_overlap),
            label: label.to_owned(),
            ..exact(sizes, coscheduled, backfill)
        };
        let whole = self.whole.get()?;
        let split = detached(py, move || {
            Ok::<_, cuda_safe::Error>(whole.ask()?.split(split)?)
        })?;
        Ok(groups_of(split))
    }

    /// Green contexts of the sizes that are wished, on any driver: each part is a number of SMs, a
    /// share as "50%", "equal" for as many as each other of these, or None, once, for the rest. They have
    /// as many SMs at least (shares may be rounded down; `sm_count` says how many it became), and share
    /// none.
    #[pyo3(signature = (
        parts, *, label = "", allow_overlap = false, ignore_coscheduling = false, max_cluster = false
    ))]
    fn partition(
        &self,
        py: Python<'_>,
        parts: Vec<Bound<'_, PyAny>>,
        label: &str,
        allow_overlap: bool,
        ignore_coscheduling: bool,
        max_cluster: bool,
    ) -> Result<Vec<PyGreenContext>> {
        let wishes: Result<Vec<Wish>> = parts.iter().map(wish).collect();
        let partitioning = Partitioning {
            wishes: wishes?,
            flags: split_flags(ignore_coscheduling, max_cluster),
            overlap: overlap(allow_overlap),
            label: label.to_owned(),
            ..Partitioning::default()
        };
        let whole = self.whole.get()?;
        let made = detached(py, move || {
            let partitions = whole.ask()?.partition(&partitioning)?;
            let create = |part: cuda_safe::green::Part| Ok(part.create()?);
            let made: cuda_safe::Result<Vec<GreenContext>> =
                partitions.parts.into_iter().map(create).collect();
            made
        })?;
        Ok(made.into_iter().map(PyGreenContext::of).collect())
    }

    fn __repr__(&self) -> String {
        format!("<SmResource: {} SMs>", self.sm_count)
    }
}

/// A group of multiprocessors out of a split, to make one green context of, or smaller groups.
#[pyclass(frozen, name = "SmGroup", module = "cuda_safe")]
pub(crate) struct PySmGroup {
    sm_count: u32,
    group: Closable<SmGroup>,
}

impl PySmGroup {
    fn of(group: SmGroup) -> Self {
        Self {
            sm_count: group.sm_count(),
            group: Closable::new("group of SMs (or split, or used in a green context)", group),
        }
    }

    /// Uses it up for smaller groups; if that fails it is as it was.
    fn split_into(
        &self,
        py: Python<'_>,
        split: impl FnOnce(SmGroup) -> std::result::Result<Split, Rejected<SmGroup>> + Send,
    ) -> Result<(Vec<Self>, Option<Self>)> {
        let group = self.group.take()?;
        match detached(py, || Ok::<_, Failure>(split(group)))? {
            Ok(split) => Ok(groups_of(split)),
            Err(rejected) => {
                self.group.put_back(rejected.value);
                Err(rejected.error.into())
            }
        }
    }
}

#[pymethods]
impl PySmGroup {
    /// How many SMs there are.
    #[getter]
    fn sm_count(&self) -> u32 {
        self.sm_count
    }

    /// Smaller groups of one size, as those of `SmResource.split_by_count`; this one is used up. They are
    /// of its SMs, so no other split is in their way.
    ///
    /// Each time that makes a green context of it, which stays with them; when it is destroyed, its memory
    /// does not come back as a whole.
    #[pyo3(signature = (min, max_groups = None, *, ignore_coscheduling = false, max_cluster = false))]
    fn split_by_count(
        &self,
        py: Python<'_>,
        min: u32,
        max_groups: Option<u32>,
        ignore_coscheduling: bool,
        max_cluster: bool,
    ) -> Result<(Vec<Self>, Option<Self>)> {
        let split = by_count(min, max_groups, ignore_coscheduling, max_cluster);
        self.split_into(py, move |group| group.split_by_count(split))
    }

    /// Smaller groups of the given sizes, exactly, as those of `SmResource.split` (a driver for CUDA 13.1
    /// or later); this one is used up. A driver that splits no group makes a green context of it, as for
    /// `split_by_count`.
    #[pyo3(signature = (sizes, *, coscheduled = 0, backfill = false))]
    fn split(
        &self,
        py: Python<'_>,
        sizes: Vec<u32>,
        coscheduled: u32,
        backfill: bool,
    ) -> Result<(Vec<Self>, Option<Self>)> {
        let split = exact(sizes, coscheduled, backfill);
        self.split_into(py, move |group| group.split(split))
    }

    /// Gives the SMs back without using them.
    fn close(&self, py: Python<'_>) {
        self.group.close(py);
    }

    fn __repr__(&self) -> String {
        format!("<SmGroup: {} SMs>", self.sm_count)
    }
}

/// A partition of a device: what its streams are given runs on its multiprocessors only. CuPy,
/// PyTorch and Numba work there if they are given one of its streams.
///
/// `with green:` makes it current on this thread, and on no other. It lives as long as its streams and
/// the arrays on them; its end waits for all work of the device.
#[pyclass(frozen, name = "GreenContext", module = "cuda_safe", weakref)]
pub(crate) struct PyGreenContext(Closable<GreenContext>);

impl PyGreenContext {
    fn of(green: GreenContext) -> Self {
        Self(Closable::new("green context", green))
    }
}

#[pymethods]
impl PyGreenContext {
    /// A green context of groups out of one split, each of which it uses up. (Drivers before CUDA 12.5
    /// take one group only.)
    #[new]
    fn new(py: Python<'_>, groups: Vec<Py<PySmGroup>>) -> Result<Self> {
        let mut taken = Vec::new();
        let put_back = |taken: Vec<SmGroup>| {
            for (object, group) in groups.iter().zip(taken) {
                object.get().group.put_back(group);
            }
        };
        for object in &groups {
            match object.get().group.take() {
                Ok(group) => taken.push(group),
                Err(why) => {
                    put_back(taken);
                    return Err(why);
                }
            }
        }
        match detached(py, || Ok::<_, Failure>(GreenContext::new(taken)))? {
            Ok(green) => Ok(Self::of(green)),
            Err(rejected) => {
                put_back(rejected.value);
                Err(rejected.error.into())
            }
        }
    }

    /// The device.
    #[getter]
    fn device(&self) -> Result<PyDevice> {
        Ok(PyDevice(self.0.get()?.device()))
    }

    /// The context of its memory and kernels: the primary one of the device.
    #[getter]
    fn context(&self) -> Result<PyContext> {
        Ok(PyContext(self.0.get()?.context().clone()))
    }

    /// The driver's handle, a `CUgreenCtx`. It stays this object's.
    #[getter]
    fn handle(&self) -> Result<usize> {
        Ok(self.0.get()?.as_raw().addr())
    }

    /// How many SMs it has, as the driver says.
    #[getter]
    fn sm_count(&self) -> Result<u32> {
        Ok(self.0.get()?.sm_count())
    }

    /// A number that no other green context of this process has or will have (a driver for CUDA 12.9
    /// or later).
    #[getter]
    fn id(&self) -> Result<u64> {
        Ok(self.0.get()?.id()?)
    }

    /// A stream whose work runs on this partition. It keeps the green context.
    #[pyo3(signature = (*, priority = 0))]
    fn stream(&self, py: Python<'_>, priority: i32) -> Result<PyStream> {
        let green = self.0.get()?;
        let options = StreamOptions {
            priority,
            ..StreamOptions::default()
        };
        Ok(PyStream::of(detached(py, move || {
            green.stream_with(options)
        })?))
    }

    /// Its multiprocessors. They are in use: a split of them is one more of the device, and refused as
    /// such unless it says `allow_overlap`. To have smaller parts that share none, split an `SmGroup`
    /// before it becomes a green context.
    fn sm_resource(&self, py: Python<'_>) -> Result<PySmResource> {
        PySmResource::of(py, Whole::Green(self.0.get()?))
    }

    /// Records in an event the work that all streams of the green context have been given up to now. Without
    /// an event, creates one. Returns the event, which has to be of the device's primary context.
    ///
    /// Raises an exception if one of the streams is being captured, which invalidates that capture. Calls
    /// `cuGreenCtxRecordEvent` (since CUDA 12.4).
    #[pyo3(signature = (event = None))]
    fn record_event(&self, py: Python<'_>, event: Option<Py<PyEvent>>) -> Result<Py<PyEvent>> {
        let green = self.0.get()?;
        let event = PyEvent::given(py, event, green.context())?;
        let its = event.get().event()?;
        detached(py, move || green.record(&its))?;
        Ok(event)
    }

    /// Makes all work that is given to the green context from now on wait for the work that the event
    /// recorded. The host does not wait. The event may be of another context or device.
    ///
    /// Raises an exception if one of the streams, or the event, is being captured, which invalidates that
    /// capture. Calls `cuGreenCtxWaitEvent` (since CUDA 12.4).
    fn wait_event(&self, py: Python<'_>, event: &PyEvent) -> Result<()> {
        let (green, event) = (self.0.get()?, event.event()?);
        detached(py, move || green.wait(&event))
    }

    /// Lets go of it: it is destroyed, which waits for all work of the device, when its streams and the
    /// arrays on them are gone as well.
    fn close(&self, py: Python<'_>) {
        self.0.close(py);
    }

    /// Whether it was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.0.is_closed()
    }

    fn __enter__<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, Self>> {
        current::enter_green(slf.as_any(), &slf.get().0.get()?)?;
        Ok(slf.clone())
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(slf: &Bound<'_, Self>, _exception: &Bound<'_, PyTuple>) -> Result<()> {
        current::leave(slf.as_any())
    }

    fn __repr__(&self) -> String {
        match self.0.get() {
            Ok(green) => format!("<GreenContext: {} SMs>", green.sm_count()),
            Err(_) => "<GreenContext, closed>".to_owned(),
        }
    }
}
