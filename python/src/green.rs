//! Green contexts: partitions of a device's multiprocessors.

use crate::current;
use crate::error::{Failure, Result};
use crate::lifetime::ending::detached;
use crate::lifetime::hold::Closable;
use crate::objects::{PyContext, PyDevice, PyEvent, PySmResource, PyStream, Whole};
use cuda_safe::StreamOptions;
use cuda_safe::error::Rejected;
use cuda_safe::green::{
    ExactSplit, GreenContext, GroupFlags, GroupRequest, Overlap, Part, PartitionRequest,
    PartitionSize, SmGroup, Split, SplitByCount, SplitFlags,
};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

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

/// Returns a split into groups of equal size.
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

/// Returns a split into groups of these sizes, with the same options for each group.
fn exact(sizes: Vec<u32>, coscheduled: u32, backfill: bool) -> ExactSplit {
    let mut flags = GroupFlags::empty();
    flags.set(GroupFlags::BACKFILL, backfill);
    let request = |size| GroupRequest { coscheduled, flags, ..GroupRequest::new(size) };
    ExactSplit { groups: sizes.into_iter().map(request).collect(), ..ExactSplit::default() }
}

fn groups_of(split: Split) -> (Vec<PySmGroup>, Option<PySmGroup>) {
    let groups = split.groups.into_iter().map(PySmGroup::of).collect();
    (groups, split.remainder.map(PySmGroup::of))
}

/// Converts a part of `SmResource.partition`: a number of SMs, a percentage such as "50%", "equal",
/// or None for the rest.
fn size(part: &Bound<'_, PyAny>) -> Result<PartitionSize> {
    if part.is_none() {
        return Ok(PartitionSize::Rest);
    }
    if let Ok(sms) = part.extract::<u32>() {
        return Ok(PartitionSize::Sms(sms));
    }
    let text = part.extract::<String>().unwrap_or_default();
    if text == "equal" {
        return Ok(PartitionSize::Equal);
    }
    let share = text.strip_suffix('%').and_then(|share| share.trim().parse().ok());
    share.map(PartitionSize::Percent).ok_or_else(|| {
        Failure::invalid(
            "a part must be a number of SMs, a percentage such as \"50%\", \"equal\", or None for the \
             rest",
        )
    })
}

#[pymethods]
impl PySmResource {
    /// The device of the multiprocessors.
    #[getter]
    fn device(&self) -> Result<PyDevice> {
        Ok(PyDevice(match self.whole.get()? {
            Whole::Device(device) => device,
            Whole::Context(context) => context.device(),
            Whole::Green(green) => green.device(),
        }))
    }

    /// The number of SMs.
    #[getter]
    fn sm_count(&self) -> u32 {
        self.sm_count
    }

    /// The number of SMs in the smallest group that a split can create.
    #[getter]
    fn min_group(&self) -> u32 {
        self.granularity.0
    }

    /// The number of SMs in a group is a multiple of this number.
    #[getter]
    fn group_multiple(&self) -> u32 {
        self.granularity.1
    }

    /// Splits the SMs into groups of equal size, with at least `min` SMs, which the driver rounds
    /// up. Returns the groups, and the remainder or None.
    ///
    /// While these groups or green contexts created from them exist, a second split of the device
    /// is refused unless it passes `allow_overlap`. The exception then contains the `label` of this
    /// split.
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
        let split = detached(py, move || whole.ask()?.split_by_count(split))?;
        Ok(groups_of(split))
    }

    /// Splits the SMs into groups with exactly the given sizes, in one split. Requires a driver for
    /// CUDA 13.1 or later. A size of 0 means as many SMs as possible. With `backfill`, a group may
    /// include SMs that cannot form a cluster. Returns the groups, and the remainder or None.
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
        let split = detached(py, move || whole.ask()?.split(split))?;
        Ok(groups_of(split))
    }

    /// Creates green contexts of the requested sizes, with any driver. Each part is a number of
    /// SMs, a percentage such as "50%", "equal" for a size equal to all other "equal" parts, or
    /// None (at most once) for the rest. Each green context has at least the requested number of
    /// SMs: "50%" is at least half of them, rounded up to a size that the driver supports. If the
    /// parts do not fit only because of these sizes, percentages are rounded down. `sm_count` is
    /// the actual number. The green contexts share no SMs.
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
        let sizes: Result<Vec<PartitionSize>> = parts.iter().map(size).collect();
        let partitioning = PartitionRequest {
            sizes: sizes?,
            flags: split_flags(ignore_coscheduling, max_cluster),
            overlap: overlap(allow_overlap),
            label: label.to_owned(),
            ..PartitionRequest::default()
        };
        let whole = self.whole.get()?;
        let made = detached(py, move || {
            let partitions = whole.ask()?.partition(&partitioning)?;
            let parts = partitions.parts.into_iter();
            parts.map(Part::create).collect::<Result<Vec<_>, _>>()
        })?;
        Ok(made.into_iter().map(PyGreenContext::of).collect())
    }

    fn __repr__(&self) -> String {
        format!("<SmResource: {} SMs>", self.sm_count)
    }
}

/// A group of multiprocessors from a split. It can become a green context, or be split into smaller
/// groups.
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

    /// Consumes the group and returns smaller groups. After a failure the group is unchanged.
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
    /// The number of SMs.
    #[getter]
    fn sm_count(&self) -> u32 {
        self.sm_count
    }

    /// Splits the group into smaller groups of equal size, like `SmResource.split_by_count`. This
    /// consumes the group. The new groups use only its SMs, so other splits of the device do not
    /// prevent this.
    ///
    /// Each call creates a green context from the group, which stays alive as long as the new
    /// groups. When it is destroyed, not all of its memory is freed.
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
        self.split_into(py, move |group| group.try_split_by_count(split))
    }

    /// Splits the group into smaller groups with exactly the given sizes, like `SmResource.split`.
    /// Requires a driver for CUDA 13.1 or later. This consumes the group. If the driver cannot
    /// split a group, a green context is created from it, as with `split_by_count`.
    #[pyo3(signature = (sizes, *, coscheduled = 0, backfill = false))]
    fn split(
        &self,
        py: Python<'_>,
        sizes: Vec<u32>,
        coscheduled: u32,
        backfill: bool,
    ) -> Result<(Vec<Self>, Option<Self>)> {
        let split = exact(sizes, coscheduled, backfill);
        self.split_into(py, move |group| group.try_split(split))
    }

    /// Releases the SMs without using them.
    fn close(&self, py: Python<'_>) {
        self.group.close(py);
    }

    fn __repr__(&self) -> String {
        format!("<SmGroup: {} SMs>", self.sm_count)
    }
}

/// A partition of a device. Work in its streams runs only on its multiprocessors. CuPy, PyTorch and
/// Numba use the partition if they are given one of its streams.
///
/// `with green:` makes it current on this thread only. It stays alive as long as its streams and
/// the arrays on them. Destroying it waits for all work of the device.
#[pyclass(frozen, name = "GreenContext", module = "cuda_safe", weakref)]
pub(crate) struct PyGreenContext(Closable<GreenContext>);

impl PyGreenContext {
    fn of(green: GreenContext) -> Self {
        Self(Closable::new("green context", green))
    }
}

#[pymethods]
impl PyGreenContext {
    /// Creates a green context from groups of one split and consumes the groups. Drivers before
    /// CUDA 12.5 accept only one group.
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
        match detached(py, || Ok::<_, Failure>(GreenContext::try_new(taken)))? {
            Ok(green) => Ok(Self::of(green)),
            Err(rejected) => {
                put_back(rejected.value);
                Err(rejected.error.into())
            }
        }
    }

    /// The device of the green context.
    #[getter]
    fn device(&self) -> Result<PyDevice> {
        Ok(PyDevice(self.0.get()?.device()))
    }

    /// The context of its memory and kernels: the device's primary context.
    #[getter]
    fn context(&self) -> Result<PyContext> {
        Ok(PyContext(self.0.get()?.context().clone()))
    }

    /// The driver's handle, a `CUgreenCtx`, which this object keeps owning.
    #[getter]
    fn handle(&self) -> Result<usize> {
        Ok(self.0.get()?.as_raw().addr())
    }

    /// The number of SMs, as reported by the driver.
    #[getter]
    fn sm_count(&self) -> Result<u32> {
        Ok(self.0.get()?.sm_count())
    }

    /// A number that is unique among all green contexts of the process, past and future. Requires a
    /// driver for CUDA 12.9 or later.
    #[getter]
    fn id(&self) -> Result<u64> {
        Ok(self.0.get()?.id()?)
    }

    /// Creates a stream on this partition. The stream keeps the green context alive.
    #[pyo3(signature = (*, priority = 0))]
    fn stream(&self, py: Python<'_>, priority: i32) -> Result<PyStream> {
        let green = self.0.get()?;
        let options = StreamOptions { priority, ..StreamOptions::default() };
        Ok(PyStream::of(detached(py, move || green.stream_with(options))?))
    }

    /// Returns the multiprocessors of the green context. They are in use, so a split of them counts
    /// as another split of the device, and is refused unless it passes `allow_overlap`. To get
    /// smaller partitions that share no SMs, split an `SmGroup` before it becomes a green context.
    fn sm_resource(&self, py: Python<'_>) -> Result<PySmResource> {
        PySmResource::of(py, Whole::Green(self.0.get()?))
    }

    /// Records in an event all work submitted so far to all streams of the green context, and
    /// returns the event. Without an event, creates one. An event must belong to the device's
    /// primary context.
    ///
    /// Raises an exception if one of the streams is capturing, and invalidates that capture. Calls
    /// `cuGreenCtxRecordEvent` (since CUDA 12.4).
    #[pyo3(signature = (event = None))]
    fn record_event(&self, py: Python<'_>, event: Option<Py<PyEvent>>) -> Result<Py<PyEvent>> {
        let green = self.0.get()?;
        let event = PyEvent::given(py, event, green.context())?;
        let its = event.get().event()?;
        detached(py, move || green.record_event(&its))?;
        Ok(event)
    }

    /// Makes all later work of the green context wait for the work that the event recorded. The
    /// host does not wait. The event may belong to another context or device.
    ///
    /// Raises an exception if one of the streams, or the event, is captured, and invalidates that
    /// capture. Calls `cuGreenCtxWaitEvent` (since CUDA 12.4).
    fn wait_event(&self, py: Python<'_>, event: &PyEvent) -> Result<()> {
        let (green, event) = (self.0.get()?, event.event()?);
        detached(py, move || green.wait_event(&event))
    }

    /// Releases the green context. It is destroyed when its streams and the arrays on them are
    /// released too; this waits for all work of the device.
    fn close(&self, py: Python<'_>) {
        self.0.close(py);
    }

    /// Whether the green context was closed.
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
