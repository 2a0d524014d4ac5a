//! Statistics of memory managers.

use super::{Caching, Ordered, Plain, Plugin, manager_of};
use crate::error::Result;
use crate::lifetime::ending::calling;
use cuda_memory::Statistics;
use cuda_safe::Context;
use cuda_safe::context::MemoryInfo;
use cuda_safe::manager::MemoryManager;
use cuda_safe::memory::pool::attribute::{RESERVED_CURRENT, RESERVED_HIGH};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The fields of `MemoryStatistics`. A field is None if the manager does not know the value.
#[derive(Default)]
pub(super) struct Stats {
    asked: Option<Statistics>,
    /// Bytes reserved from the driver: the current value and the maximum.
    reserved: Option<usize>,
    reserved_peak: Option<usize>,
    /// Cached bytes, and their fragmentation.
    cached: usize,
    fragmentation: Option<f64>,
    /// The number of requests to the driver for memory.
    slabs_added: Option<u64>,
    hits: Option<u64>,
    misses: Option<u64>,
    stream_waits: Option<u64>,
    host_waits: Option<u64>,
}

/// Returns the statistics of a context's manager.
pub(super) fn of(context: &Context) -> Result<Stats> {
    if let Some(manager) = context.memory_manager_as::<Caching>()? {
        let cache = manager.inner().stats();
        return Ok(Stats {
            asked: Some(manager.statistics()),
            reserved: Some(cache.reserved),
            reserved_peak: Some(cache.reserved_peak),
            cached: cache.cached(),
            fragmentation: Some(cache.fragmentation()),
            slabs_added: Some(cache.slabs_added),
            hits: Some(cache.hits),
            misses: Some(cache.misses),
            stream_waits: Some(cache.stream_waits),
            host_waits: Some(cache.host_waits),
        });
    }
    if let Some(manager) = context.memory_manager_as::<Ordered>()? {
        let (_, pending) = manager.base().pending();
        let mut stats =
            Stats { asked: Some(manager.statistics()), cached: pending, ..Stats::default() };
        // These numbers are for the device's default pool, including other users of it.
        if let Some(pool) = manager.inner().inner().pool() {
            let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
            stats.reserved = Some(bytes(pool.attribute(RESERVED_CURRENT)?));
            stats.reserved_peak = Some(bytes(pool.attribute(RESERVED_HIGH)?));
        }
        return Ok(stats);
    }
    if let Some(manager) = context.memory_manager_as::<Plugin>()? {
        return Ok(Stats {
            asked: Some(manager.statistics()),
            cached: manager.inner().inner().pending(),
            ..Stats::default()
        });
    }
    if let Some(manager) = context.memory_manager_as::<Plain>()? {
        let (_, pending) = manager.base().pending();
        let asked = manager.statistics();
        return Ok(Stats {
            reserved: Some(asked.used + pending),
            cached: pending,
            slabs_added: Some(asked.allocated),
            asked: Some(asked),
            ..Stats::default()
        });
    }
    Ok(Stats::default())
}

impl Stats {
    pub(super) fn into_python(self, py: Python<'_>) -> Result<Bound<'_, PyAny>> {
        calling(py, || {
            let fields = PyDict::new(py);
            if let Some(asked) = &self.asked {
                fields.set_item("allocated", asked.allocated)?;
                fields.set_item("freed", asked.freed)?;
                fields.set_item("failed", asked.failed)?;
                fields.set_item("used", asked.used)?;
                fields.set_item("used_peak", asked.high)?;
            }
            fields.set_item("cached", self.cached)?;
            fields.set_item("reserved", self.reserved)?;
            fields.set_item("reserved_peak", self.reserved_peak)?;
            fields.set_item("fragmentation", self.fragmentation)?;
            fields.set_item("slabs_added", self.slabs_added)?;
            fields.set_item("hits", self.hits)?;
            fields.set_item("misses", self.misses)?;
            fields.set_item("stream_waits", self.stream_waits)?;
            fields.set_item("host_waits", self.host_waits)?;
            let class = py.import("cuda_safe._types")?.getattr("MemoryStatistics")?;
            class.call((), Some(&fields))
        })
    }
}

/// Returns free and total memory, both within the limit. A caching pool applies its limit only to
/// memory from the driver, so its limit is applied here.
pub(super) fn memory_info(context: &Context) -> Result<MemoryInfo> {
    let mut info = manager_of(context)?.memory_info()?;
    if let Some(pool) = context.memory_manager_as::<Caching>()? {
        let pool = pool.inner();
        // 0 means no limit.
        if let limit @ 1.. = pool.options().max_bytes {
            let in_use = pool.stats().in_use;
            info.free = info.free.min(limit.saturating_sub(in_use));
            info.total = info.total.min(limit);
        }
    }
    Ok(info)
}
