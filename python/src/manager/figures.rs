//! What managers have, and what happened.

use super::{Caching, Ordered, Plain, Plugin, manager_of};
use crate::ending::calling;
use crate::error::Result;
use cuda_safe::manager::{MemoryManager, Statistics};
use cuda_safe::pool::attribute::{RESERVED_CURRENT, RESERVED_HIGH};
use cuda_safe::{Context, MemoryInfo};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// `MemoryStatistics`, before it is that. What a manager does not know is none.
#[derive(Default)]
pub(super) struct Figures {
    asked: Option<Statistics>,
    /// Bytes of the driver's, now and at the most.
    reserved: Option<usize>,
    reserved_high: Option<usize>,
    /// Bytes that are kept, and how far those are in pieces.
    kept: usize,
    fragmentation: Option<f64>,
    /// How often the driver was asked for memory.
    grown: Option<u64>,
    hits: Option<u64>,
    misses: Option<u64>,
    stream_waits: Option<u64>,
    host_waits: Option<u64>,
}

/// Those of a context's manager.
pub(super) fn of(context: &Context) -> Result<Figures> {
    if let Some(manager) = context.memory_manager_as::<Caching>()? {
        let cache = manager.inner().figures();
        return Ok(Figures {
            asked: Some(manager.statistics()),
            reserved: Some(cache.reserved),
            reserved_high: Some(cache.reserved_high),
            kept: cache.kept(),
            fragmentation: Some(cache.fragmentation()),
            grown: Some(cache.grown),
            hits: Some(cache.hits),
            misses: Some(cache.misses),
            stream_waits: Some(cache.stream_waits),
            host_waits: Some(cache.host_waits),
        });
    }
    if let Some(manager) = context.memory_manager_as::<Ordered>()? {
        let (_, pending) = manager.base().pending();
        let mut figures = Figures {
            asked: Some(manager.statistics()),
            kept: pending,
            ..Figures::default()
        };
        // Of the device's own pool, whoever uses it.
        if let Some(pool) = manager.inner().inner().pool() {
            let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
            figures.reserved = Some(bytes(pool.attribute(RESERVED_CURRENT)?));
            figures.reserved_high = Some(bytes(pool.attribute(RESERVED_HIGH)?));
        }
        return Ok(figures);
    }
    if let Some(manager) = context.memory_manager_as::<Plugin>()? {
        return Ok(Figures {
            asked: Some(manager.statistics()),
            kept: manager.inner().inner().pending(),
            ..Figures::default()
        });
    }
    if let Some(manager) = context.memory_manager_as::<Plain>()? {
        let (_, pending) = manager.base().pending();
        let asked = manager.statistics();
        return Ok(Figures {
            reserved: Some(asked.used + pending),
            kept: pending,
            grown: Some(asked.allocated),
            asked: Some(asked),
            ..Figures::default()
        });
    }
    Ok(Figures::default())
}

impl Figures {
    pub(super) fn into_python(self, py: Python<'_>) -> Result<Bound<'_, PyAny>> {
        calling(py, || {
            let fields = PyDict::new(py);
            if let Some(asked) = &self.asked {
                fields.set_item("allocated", asked.allocated)?;
                fields.set_item("freed", asked.freed)?;
                fields.set_item("failed", asked.failed)?;
                fields.set_item("used", asked.used)?;
                fields.set_item("used_high", asked.high)?;
            }
            fields.set_item("kept", self.kept)?;
            fields.set_item("reserved", self.reserved)?;
            fields.set_item("reserved_high", self.reserved_high)?;
            fields.set_item("fragmentation", self.fragmentation)?;
            fields.set_item("grown", self.grown)?;
            fields.set_item("hits", self.hits)?;
            fields.set_item("misses", self.misses)?;
            fields.set_item("stream_waits", self.stream_waits)?;
            fields.set_item("host_waits", self.host_waits)?;
            let class = py.import("cuda_safe._types")?.getattr("MemoryStatistics")?;
            class.call((), Some(&fields))
        })
    }
}

/// What is free, and all there is: within the limit, also of a pool, which knows its own at the driver only.
pub(super) fn memory_info(context: &Context) -> Result<MemoryInfo> {
    let mut info = manager_of(context)?.memory_info()?;
    if let Some(pool) = context.memory_manager_as::<Caching>()? {
        let pool = pool.inner();
        // 0 is none.
        if let limit @ 1.. = pool.options().max_bytes {
            let in_use = pool.figures().in_use;
            info.free = info.free.min(limit.saturating_sub(in_use));
            info.total = info.total.min(limit);
        }
    }
    Ok(info)
}
