//! Objects of other code: taken over, borrowed, or kept alive by an owner.

use crate::scenarios::{VECTOR, primary, raw};
use crate::trace::Trace;
use cuda_safe::module::Library;
use cuda_safe::{Context, DeviceBuffer, Event, Module, Result, Stream};

pub(crate) fn run(trace: &mut Trace) -> Result<()> {
    let primary = primary()?;
    contexts(trace, &primary)?;
    objects(trace, &primary)?;
    memory(trace, &primary.stream()?)?;
    trace.drops_from_here()
}

fn contexts(trace: &mut Trace, primary: &Context) -> Result<()> {
    let handle = raw::context(&primary.device())?;
    // SAFETY: the context was just created, and its ownership is transferred.
    let taken_over = match unsafe { Context::from_raw(handle) } {
        Ok(context) => context,
        Err(error) => {
            // The scenario still owns the context.
            raw::destroy_context(handle);
            return Err(error);
        }
    };
    taken_over.stream()?.synchronize()?;
    let handle = taken_over.as_raw();
    // SAFETY: the owner is the context itself.
    let foreign = unsafe { Context::from_foreign(handle, taken_over) }?;
    foreign.event()?;
    trace.drop(foreign);

    let _lent = Lent(primary, cuda_sim::stack_depth());
    // SAFETY: `primary` outlives the borrowed context, and is kept alive even if it stays on the
    // stack.
    let borrowed = unsafe { Context::borrow_raw(primary.as_raw()) }?;
    borrowed.memory_info()?;
    borrowed.stream()?.synchronize()
}

/// Keeps the promise of the owner of a borrowed context: the context stays alive while it is used
/// or on a stack.
struct Lent<'a>(&'a Context, usize);

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if cuda_sim::stack_depth() > self.1 {
            std::mem::forget(self.0.clone());
        }
    }
}

fn objects(trace: &mut Trace, context: &Context) -> Result<()> {
    let handle = raw::stream(context)?;
    // SAFETY: the stream was just created, and its ownership is transferred.
    let stream = unsafe { Stream::from_raw(handle, context) }?;
    // SAFETY: `stream` outlives the borrowed stream.
    unsafe { Stream::borrow_raw(stream.as_raw(), context) }?.synchronize()?;
    // SAFETY: the owner is a clone of the stream.
    let foreign = unsafe { Stream::from_foreign(stream.as_raw(), context, stream.clone()) }?;

    let handle = raw::event(context)?;
    // SAFETY: the event was just created, and its ownership is transferred.
    let event = unsafe { Event::from_raw(handle, context) }?;
    event.record(&foreign)?;
    drop(stream);
    // SAFETY: the owner is the event itself.
    unsafe { Event::from_foreign(event.as_raw(), context, event.clone()) }?.synchronize()?;
    // SAFETY: `event` outlives the borrowed event.
    unsafe { Event::borrow_raw(event.as_raw(), context) }?.is_complete()?;

    let handle = raw::module(context, VECTOR)?;
    // SAFETY: the module was just created, and its ownership is transferred.
    let module = unsafe { Module::from_raw(handle, context) }?;
    // SAFETY: the owner is the module itself.
    let add = unsafe { Module::from_foreign(handle, context, module) }?.kernel("add")?;
    add.parameters()?;

    let handle = raw::library(VECTOR)?;
    // SAFETY: the library was just created, and its ownership is transferred.
    let library = unsafe { Library::from_raw(handle) }?;
    // SAFETY: the owner is the library itself.
    let scale = unsafe { Library::from_foreign(handle, library) }?.kernel(context, "scale")?;
    scale.parameters()?;
    foreign.synchronize()?;
    trace.drop((event, foreign, add, scale));
    Ok(())
}

fn memory(trace: &mut Trace, stream: &Stream) -> Result<()> {
    let address = raw::memory(stream, 64)?;
    // SAFETY: the memory was just allocated, and its ownership is transferred.
    let mut buffer = unsafe { DeviceBuffer::<u32>::from_raw(address, 16, stream) }?;
    buffer.fill(7)?;
    let (address, its_stream) = buffer.into_raw();
    // SAFETY: the buffer released ownership.
    let owner = unsafe { DeviceBuffer::<u32>::from_raw(address, 16, &its_stream) }?;
    // SAFETY: `owner` keeps the memory alive, and is dropped on that stream.
    let foreign = unsafe { DeviceBuffer::<u32>::from_foreign(address, 16, stream, owner) }?;
    // SAFETY: `foreign` outlives the borrowed buffer.
    let borrowed = unsafe { DeviceBuffer::<u32>::borrow_raw(address, 16, stream) }?;
    assert_eq!(borrowed.to_vec()?, [7; 16]);
    trace.drop((borrowed, foreign));
    Ok(())
}
