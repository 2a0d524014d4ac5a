//! What the threads of the stress test do.

use super::worker::{Item, Known, Worker};
use cuda_safe::{DeviceBuffer, EventOptions, PinnedBuffer, Rejected, Result, StreamOptions};
use std::sync::atomic::Ordering;

pub(super) struct Action {
    pub(super) name: &'static str,
    pub(super) run: fn(&mut Worker<'_>) -> Result<()>,
}

macro_rules! actions {
    ($($name:ident)*) => {
        pub(super) const ALL: [Action; [$(stringify!($name)),*].len()] = [
            $(Action { name: stringify!($name), run: $name }),*
        ];
    };
}

actions! {
    make_stream make_stream drop_stream
    make_buffer make_buffer make_buffer
    check_buffer fill_part copy_in scale scale scale_part copy_on_device rebind
    share read_shared read_shared unshare
    pinned_in pinned_out pinned_out end_copy lend
    make_event record_event wait_event wait_event ask_event
    host_function current module ask_context
    leave pick_up pick_up end_item
}

fn make_stream(worker: &mut Worker<'_>) -> Result<()> {
    let arena = worker.arena;
    let options = StreamOptions {
        priority: worker.below(3) as i32 - 2,
        ..StreamOptions::default()
    };
    let homes = arena.contexts.len() + arena.greens.len();
    let stream = match worker.below(homes) {
        home if home < arena.contexts.len() => arena.contexts[home].0.stream_with(options)?,
        home => arena.greens[home - arena.contexts.len()].stream_with(options)?,
    };
    let mut streams = arena.streams.lock().expect("no thread panicked");
    streams.push(stream);
    Ok(())
}

fn drop_stream(worker: &mut Worker<'_>) -> Result<()> {
    let at = worker.below(64);
    let mut streams = worker.arena.streams.lock().expect("no thread panicked");
    let stream = (streams.len() > 8).then(|| {
        let at = at % streams.len();
        streams.swap_remove(at)
    });
    drop(streams);
    drop(stream);
    Ok(())
}

fn make_buffer(worker: &mut Worker<'_>) -> Result<()> {
    let stream = worker.stream()?;
    let elements = worker.numbers();
    let (buffer, elements) = match worker.below(8) {
        0 => {
            let len = elements.len();
            (DeviceBuffer::plain_zeroed(&stream, len)?, vec![0; len])
        }
        1 => {
            let len = elements.len();
            (DeviceBuffer::zeroed(&stream, len)?, vec![0; len])
        }
        _ => (DeviceBuffer::from_slice(&stream, &elements)?, elements),
    };
    worker.keep(Item::Buffer(Known { buffer, elements }));
    Ok(())
}

fn check_buffer(worker: &mut Worker<'_>) -> Result<()> {
    let Some(known) = worker.take_buffer() else {
        return Ok(());
    };
    known.check()?;
    worker.keep(Item::Buffer(known));
    Ok(())
}

/// Does something with a buffer and keeps it.
fn with_buffer(
    worker: &mut Worker<'_>,
    f: impl FnOnce(&mut Worker<'_>, &mut Known) -> Result<()>,
) -> Result<()> {
    let Some(mut known) = worker.take_buffer() else {
        return Ok(());
    };
    f(worker, &mut known)?;
    worker.keep(Item::Buffer(known));
    Ok(())
}

fn fill_part(worker: &mut Worker<'_>) -> Result<()> {
    with_buffer(worker, |worker, known| {
        let start = worker.below(known.elements.len() + 1);
        let end = start + worker.below(known.elements.len() - start + 1);
        let value = worker.below(100) as i32;
        known.buffer.slice_mut(start..end)?.fill(value)?;
        known.elements[start..end].fill(value);
        Ok(())
    })
}

fn copy_in(worker: &mut Worker<'_>) -> Result<()> {
    with_buffer(worker, |worker, known| {
        let value = worker.below(100) as i32;
        known
            .elements
            .iter_mut()
            .for_each(|element| *element ^= value);
        known.buffer.copy_from_slice(&known.elements)
    })
}

fn scale(worker: &mut Worker<'_>) -> Result<()> {
    with_buffer(worker, |worker, known| {
        if known.elements.is_empty() {
            return Ok(());
        }
        let stream = known.buffer.stream().clone();
        let scale = worker.arena.scale(stream.context());
        scale.run(&stream, &mut known.buffer, 3, 1)?;
        let new = |element: &mut i32| *element = element.wrapping_mul(3).wrapping_add(1);
        known.elements.iter_mut().for_each(new);
        Ok(())
    })
}

fn scale_part(worker: &mut Worker<'_>) -> Result<()> {
    with_buffer(worker, |worker, known| {
        let Some(last) = known.elements.len().checked_sub(1) else {
            return Ok(());
        };
        let start = worker.below(last + 1);
        let stream = known.buffer.stream().clone();
        let scale = worker.arena.scale(stream.context());
        scale.run(&stream, known.buffer.slice_mut(start..)?, 1, 7)?;
        let new = |element: &mut i32| *element = element.wrapping_add(7);
        known.elements[start..].iter_mut().for_each(new);
        Ok(())
    })
}

fn copy_on_device(worker: &mut Worker<'_>) -> Result<()> {
    with_buffer(worker, |worker, known| {
        let stream = known.buffer.stream().clone();
        let mut copy = DeviceBuffer::uninit(&stream, known.elements.len())?;
        copy.copy_from(&known.buffer)?;
        let elements = known.elements.clone();
        worker.keep(Item::Buffer(Known {
            buffer: copy,
            elements,
        }));
        Ok(())
    })
}

fn rebind(worker: &mut Worker<'_>) -> Result<()> {
    let Some(Known { buffer, elements }) = worker.take_buffer() else {
        return Ok(());
    };
    let stream = worker.stream_beside(buffer.stream())?;
    let buffer = buffer.rebind(&stream)?;
    worker.keep(Item::Buffer(Known { buffer, elements }));
    Ok(())
}

fn share(worker: &mut Worker<'_>) -> Result<()> {
    let Some(Known { buffer, elements }) = worker.take_buffer() else {
        return Ok(());
    };
    worker.keep(Item::Shared(buffer.share()?, elements));
    Ok(())
}

fn read_shared(worker: &mut Worker<'_>) -> Result<()> {
    let shared = worker.take(|item| match item {
        Item::Shared(shared, elements) => Ok((shared, elements)),
        other => Err(other),
    });
    let Some((shared, elements)) = shared else {
        return Ok(());
    };
    let stream = worker.stream_beside(shared.stream())?;
    let reader = shared.on(&stream)?;
    let mut copy = DeviceBuffer::uninit(&stream, elements.len())?;
    copy.copy_from(&reader)?;
    worker.keep(Item::Shared(shared.clone(), elements.clone()));
    worker.keep(Item::Reader(reader, elements.clone()));
    worker.keep(Item::Buffer(Known {
        buffer: copy,
        elements,
    }));
    Ok(())
}

fn unshare(worker: &mut Worker<'_>) -> Result<()> {
    let shared = worker.take(|item| match item {
        Item::Shared(shared, elements) => Ok((shared, elements)),
        other => Err(other),
    });
    let Some((shared, elements)) = shared else {
        return Ok(());
    };
    let item = match shared.into_buffer() {
        Ok(buffer) => Item::Buffer(Known { buffer, elements }),
        Err(shared) => Item::Shared(shared, elements),
    };
    worker.keep(item);
    Ok(())
}

fn pinned_in(worker: &mut Worker<'_>) -> Result<()> {
    with_buffer(worker, |worker, known| {
        let stream = known.buffer.stream().clone();
        let mut host = PinnedBuffer::zeroed(stream.context(), known.elements.len())?;
        known.elements.reverse();
        host.copy_from_slice(&known.elements);
        let pending = known.buffer.copy_from_pinned(host);
        let pending = pending.map_err(|Rejected { error, .. }| error)?;
        worker.keep(Item::Pending(pending, known.elements.clone()));
        Ok(())
    })
}

fn pinned_out(worker: &mut Worker<'_>) -> Result<()> {
    with_buffer(worker, |worker, known| {
        let stream = known.buffer.stream().clone();
        let host = PinnedBuffer::zeroed(stream.context(), known.elements.len())?;
        let pending = known.buffer.copy_to_pinned(host);
        let pending = pending.map_err(|Rejected { error, .. }| error)?;
        worker.keep(Item::Pending(pending, known.elements.clone()));
        Ok(())
    })
}

fn end_copy(worker: &mut Worker<'_>) -> Result<()> {
    let pending = worker.take(|item| match item {
        Item::Pending(pending, elements) => Ok((pending, elements)),
        other => Err(other),
    });
    if let Some((pending, elements)) = pending {
        pending.is_done()?;
        assert_eq!(*pending.wait()?, elements);
    }
    Ok(())
}

fn lend(worker: &mut Worker<'_>) -> Result<()> {
    with_buffer(worker, |_, known| {
        let stream = known.buffer.stream().clone();
        let mut host = PinnedBuffer::zeroed(stream.context(), known.elements.len())?;
        stream.copy_scope(|scope| scope.copy_to_pinned(&known.buffer, &mut host))??;
        assert_eq!(*host, known.elements);
        Ok(())
    })
}

fn make_event(worker: &mut Worker<'_>) -> Result<()> {
    let which = worker.below(2);
    let options = EventOptions {
        timing: worker.below(2) == 0,
        blocking_sync: worker.below(2) == 0,
        ..EventOptions::default()
    };
    let event = worker.arena.contexts[which].0.event_with(options)?;
    worker.keep(Item::Event(event));
    Ok(())
}

/// An event of this thread, which stays.
fn event(worker: &mut Worker<'_>) -> Option<cuda_safe::Event> {
    let event = worker.take(|item| match item {
        Item::Event(event) => Ok(event),
        other => Err(other),
    })?;
    worker.keep(Item::Event(event.clone()));
    Some(event)
}

fn record_event(worker: &mut Worker<'_>) -> Result<()> {
    let stream = worker.stream()?;
    match event(worker) {
        Some(event) if event.context() == stream.context() => event.record(&stream),
        _ => Ok(()),
    }
}

fn wait_event(worker: &mut Worker<'_>) -> Result<()> {
    let stream = worker.stream()?;
    match event(worker) {
        Some(event) => stream.wait(&event),
        None => Ok(()),
    }
}

fn ask_event(worker: &mut Worker<'_>) -> Result<()> {
    let Some(event) = event(worker) else {
        return Ok(());
    };
    if worker.below(2) == 0 {
        event.is_done().map(|_| ())
    } else {
        event.synchronize()
    }
}

fn host_function(worker: &mut Worker<'_>) -> Result<()> {
    let stream = worker.stream()?;
    let arena = worker.arena;
    let ran = std::sync::Arc::clone(&arena.ran);
    stream.launch_host_function(move || {
        ran.fetch_add(1, Ordering::SeqCst);
    })?;
    arena.given.fetch_add(1, Ordering::SeqCst);
    if worker.below(4) == 0 {
        stream.synchronize()?;
    }
    Ok(())
}

fn current(worker: &mut Worker<'_>) -> Result<()> {
    let arena = worker.arena;
    let (outer, inner) = (worker.below(2), worker.below(2));
    arena.contexts[outer].0.with_current(|_| {
        let nested = arena.contexts[inner]
            .0
            .with_current(|_| make_buffer(worker));
        nested.and_then(|made| made)
    })?
}

fn module(worker: &mut Worker<'_>) -> Result<()> {
    // It waits for all work: seldom.
    if worker.below(8) != 0 {
        return Ok(());
    }
    let which = worker.below(2);
    let context = &worker.arena.contexts[which].0;
    let nothing = crate::kernels::nothing(context);
    let stream = context.stream()?;
    // SAFETY: the kernel does nothing.
    unsafe { nothing.launch(&stream, cuda_safe::LaunchConfig::linear(1, 1), ()) }
}

fn ask_context(worker: &mut Worker<'_>) -> Result<()> {
    let which = worker.below(2);
    let context = &worker.arena.contexts[which].0;
    assert!(context.memory_info()?.total > 0);
    context.flags()?;
    if worker.below(16) == 0 {
        context.synchronize()?;
    }
    Ok(())
}

fn leave(worker: &mut Worker<'_>) -> Result<()> {
    let Some(item) = worker.take(Ok) else {
        return Ok(());
    };
    let mut mailbox = worker.arena.mailbox.lock().expect("no thread panicked");
    mailbox.push(item);
    Ok(())
}

fn pick_up(worker: &mut Worker<'_>) -> Result<()> {
    let mut mailbox = worker.arena.mailbox.lock().expect("no thread panicked");
    let item = mailbox.pop();
    drop(mailbox);
    if let Some(item) = item {
        worker.keep(item);
    }
    Ok(())
}

fn end_item(worker: &mut Worker<'_>) -> Result<()> {
    let Some(item) = worker.take(Ok) else {
        return Ok(());
    };
    match item {
        Item::Buffer(known) => known.check(),
        Item::Reader(reader, elements) => {
            assert_eq!(reader.as_slice().to_vec()?, elements);
            Ok(())
        }
        Item::Pending(pending, elements) => {
            assert_eq!(*pending.wait()?, elements);
            Ok(())
        }
        Item::Shared(..) | Item::Event(_) => Ok(()),
    }
}
