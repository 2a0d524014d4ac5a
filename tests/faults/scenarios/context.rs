//! Contexts, and guards of the current one.

use super::primary;
use crate::trace::Trace;
use cuda_safe::context::Limit;
use cuda_safe::{Context, ContextFlags, Device, Result};

pub(super) fn contexts(trace: &mut Trace) -> Result<()> {
    let device = Device::get(0)?;
    let primary = Context::primary(&device)?;
    let again = Context::primary(&device)?;
    assert_eq!(primary, again);
    let own = Context::new(&device, ContextFlags::SCHED_YIELD)?;
    assert_ne!(primary, own);
    assert_eq!(own.device(), device);
    let clone = own.clone();
    trace.drop(own);
    clone.synchronize()?;
    primary.synchronize()?;
    assert!(primary.memory_info()?.free > 0);
    assert!(clone.memory_info()?.total > 0);
    trace.drop(primary);
    again.synchronize()?;
    trace.drops_from_here()
}

pub(super) fn settings(trace: &mut Trace) -> Result<()> {
    let device = Device::get(0)?;
    let flags = device.primary_state()?.flags;
    device.set_primary_flags(flags)?;
    let own = Context::new(&device, ContextFlags::empty())?;
    own.set_limit(Limit::StackSize, own.limit(Limit::StackSize)?)?;
    own.set_cache_preference(own.cache_preference()?)?;
    own.set_flags(own.flags()?)?;
    own.api_version()?;
    assert!(own.stream_priorities()?.contains(&0));
    own.reset_persisting_l2()?;
    trace.drops_from_here()
}

pub(super) fn events(trace: &mut Trace) -> Result<()> {
    let context = primary()?;
    let (stream, event) = (context.stream()?, context.event()?);
    context.record_event(&event)?;
    context.wait_event(&event)?;
    stream.synchronize()?;
    event.synchronize()?;
    trace.drops_from_here()
}

pub(super) fn bound(trace: &mut Trace) -> Result<()> {
    let primary = primary()?;
    // The context is on the stack of the thread until the thread ends.
    trace.until_the_thread_ends(|trace| {
        let own = Context::new(&primary.device(), ContextFlags::empty())?;
        own.bind_to_thread()?;
        own.bind_to_thread()?;
        own.event()?;
        primary.memory_info()?;
        trace.drop(own);
        trace.drops_from_here()
    })
}

pub(super) fn guards(trace: &mut Trace) -> Result<()> {
    let primary = primary()?;
    let own = Context::new(&primary.device(), ContextFlags::empty())?;
    let outer = primary.make_current()?;
    assert_eq!(outer.context(), &primary);
    {
        let inner = own.make_current()?;
        // An operation on a context that is not current pushes it and pops it.
        primary.memory_info()?;
        let again = own.make_current()?;
        own.memory_info()?;
        again.end()?;
        inner.end()?;
    }
    let stream = primary.with_current(|_| own.stream())??;
    stream.synchronize()?;
    outer.end()?;
    own.with_current(|_| primary.with_current(|_| own.memory_info()))???;
    drop(primary.make_current()?);
    trace.drops_from_here()
}
