//! The multiprocessors of a device.

use crate::error::Result;
use crate::lifetime::ending::detached;
use crate::lifetime::hold::Closable;
use cuda_safe::green::{GreenContext, SmResource};
use cuda_safe::{Context, Device};
use pyo3::prelude::*;

/// The source of the multiprocessors.
#[derive(Clone)]
pub(crate) enum Whole {
    Device(Device),
    Context(Context),
    Green(GreenContext),
}

/// The multiprocessors (SMs) of a device or of a green context, which can be split.
#[pyclass(frozen, name = "SmResource", module = "cuda_safe")]
pub(crate) struct PySmResource {
    /// Never closed. Releasing it may release a green context, which waits.
    pub(crate) whole: Closable<Whole>,
    /// The number of SMs when this object was created.
    pub(crate) sm_count: u32,
    pub(crate) granularity: (u32, u32),
}

impl PySmResource {
    pub(crate) fn of_device(py: Python<'_>, device: Device) -> Result<Self> {
        Self::of(py, Whole::Device(device))
    }

    pub(crate) fn of_context(py: Python<'_>, context: Context) -> Result<Self> {
        Self::of(py, Whole::Context(context))
    }

    pub(crate) fn of(py: Python<'_>, whole: Whole) -> Result<Self> {
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
    pub(crate) fn ask(&self) -> cuda_safe::Result<SmResource> {
        match self {
            Self::Device(device) => SmResource::of_device(device),
            Self::Context(context) => SmResource::of_context(context),
            Self::Green(green) => SmResource::of_green_context(green),
        }
    }
}
