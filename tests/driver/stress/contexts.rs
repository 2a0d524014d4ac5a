//! Contexts: which one is current, queries, and waits for all of their work.

use super::worker::Worker;
use super::{buffers, events};
use crate::common;
use cuda_safe::context::Limit;
use cuda_safe::memory::pool::attribute::{RESERVED_CURRENT, USED_CURRENT};
use cuda_safe::{Context, Result};
use std::sync::PoisonError;

fn context(worker: &mut Worker<'_>) -> Context {
    worker.home().context.clone()
}

/// Makes contexts current inside of each other, with work in between.
pub(super) fn nested(worker: &mut Worker<'_>) -> Result<()> {
    let (outer, middle, inner) = (context(worker), context(worker), context(worker));
    let outer = outer.make_current()?;
    middle.with_current(|_| -> Result<()> {
        let innermost = inner.make_current()?;
        buffers::make(worker)?;
        innermost.end()?;
        events::make(worker)
    })??;
    buffers::check(worker)?;
    outer.end()
}

pub(super) fn ask(worker: &mut Worker<'_>) -> Result<()> {
    let context = context(worker);
    assert!(context.memory_info()?.total > 0);
    context.flags()?;
    context.api_version()?;
    assert!(context.limit(Limit::PrintfFifoSize)? > 0);
    let priorities = context.stream_priorities()?;
    assert!(priorities.contains(&0), "{priorities:?}");
    Ok(())
}

/// Checks what the driver reports for the address of a buffer.
pub(super) fn ask_addresses(worker: &mut Worker<'_>) -> Result<()> {
    buffers::with_buffer(worker, |_, known| {
        let buffer = &known.buffer;
        if buffer.is_empty() {
            return Ok(());
        }
        // The wait ensures that the memory is allocated.
        buffer.stream().synchronize()?;
        let context = buffer.stream().context();
        let info = context.pointer_info(buffer.as_raw())?.expect("the driver allocated it");
        assert!(info.range.contains(&buffer.as_raw()), "{info:?}");
        assert_eq!(info.device, Some(context.device().ordinal()));
        Ok(())
    })
}

/// Waits for a whole context. This invalidates captures, so it excludes them.
pub(super) fn wait_for_all(worker: &mut Worker<'_>) -> Result<()> {
    if worker.below(8) != 0 {
        return Ok(());
    }
    let context = context(worker);
    let captures = &worker.arena.captures;
    let _none = captures.write().unwrap_or_else(PoisonError::into_inner);
    context.synchronize()
}

/// Records an event of all work of one context, and makes all of another wait for it. Excludes
/// captures as above.
pub(super) fn record_all(worker: &mut Worker<'_>) -> Result<()> {
    if worker.below(8) != 0 || !common::offers(12, 5) {
        return Ok(());
    }
    let (recorded, waiting) = (context(worker), context(worker));
    let event = recorded.event()?;
    let captures = &worker.arena.captures;
    let _none = captures.write().unwrap_or_else(PoisonError::into_inner);
    recorded.record_event(&event)?;
    waiting.wait_event(&event)
}

pub(super) fn pools(worker: &mut Worker<'_>) -> Result<()> {
    let pool = &worker.home().pool;
    if worker.below(4) == 0 {
        return pool.trim_to(0);
    }
    pool.attribute(USED_CURRENT)?;
    pool.attribute(RESERVED_CURRENT)?;
    Ok(())
}
