//! Conversion of objects into raw handles and back, and their `Debug` output.

use crate::common::{self, child};
use crate::module::kernels::{VECTOR, vector};
use cuda_safe::capture::CaptureMode;
use cuda_safe::device::attribute;
use cuda_safe::green::GreenContext;
use cuda_safe::memory::{
    CopyBatch, ManagedBuffer, MappedBuffer, MemoryLocation, MemoryPool, PitchedBuffer,
};
use cuda_safe::module::Library;
use cuda_safe::sys::{cuEventDestroy_v2, cuModuleUnload, cuStreamDestroy_v2};
use cuda_safe::{
    Context, ContextFlags, DeviceBuffer, Error, Event, ExecutableGraph, Graph, Invalid, Module,
    PinnedBuffer, Stream,
};
use std::collections::HashSet;
use std::ptr::null_mut;
use std::sync::Arc;

/// Returns an owner that foreign objects keep alive.
fn owner() -> (Arc<()>, Arc<()>) {
    let owner = Arc::new(());
    (Arc::clone(&owner), owner)
}

#[test]
fn a_context_survives_into_raw_and_from_raw() {
    let device = or_skip!(common::gpu());
    let raw = Context::new(&device, ContextFlags::empty()).expect("a context").into_raw();
    // SAFETY: `into_raw` released ownership of the context, which is taken over here.
    let back = unsafe { Context::from_raw(raw) }.expect("alive");
    assert_eq!((back.as_raw(), back.device()), (raw, device));
    let stream = back.stream().expect("a stream");
    // SAFETY: `back` outlives the borrowed context.
    let borrowed = unsafe { Context::borrow_raw(raw) }.expect("alive");
    assert_eq!(HashSet::from([back.clone(), borrowed]).len(), 1);
    drop(back);
    stream.synchronize().expect("the stream keeps it alive");
    drop(stream);
}

#[test]
fn a_stream_survives_into_raw_and_from_raw() {
    let context = or_skip!(common::context());
    let raw = context.stream().expect("a stream").into_raw();
    let (watch, keep) = owner();
    // SAFETY: `into_raw` released ownership of the stream, which is alive.
    let foreign = unsafe { Stream::from_foreign(raw, &context, keep) }.expect("a stream");
    foreign.synchronize().expect("alive");
    assert_eq!(Arc::strong_count(&watch), 2);
    drop(foreign);
    assert_eq!(Arc::strong_count(&watch), 1);
    // SAFETY: as above, and ownership is transferred.
    let owned = unsafe { Stream::from_raw(raw, &context) }.expect("a stream");
    owned.synchronize().expect("alive");
    let (watch, keep) = owner();
    let none = std::ptr::null_mut();
    // SAFETY: the call is refused and accesses nothing.
    unsafe { Stream::from_foreign(none, &context, keep) }.expect_err("stream 0");
    assert_eq!(Arc::strong_count(&watch), 1, "the owner is dropped");
    let raw = owned.into_raw();
    // SAFETY: `into_raw` released ownership of the stream, which is destroyed here.
    assert!(unsafe { cuStreamDestroy_v2(raw) }.is_success());
}

#[test]
fn an_event_survives_into_raw_and_from_raw() {
    let context = or_skip!(common::context());
    let raw = context.event().expect("an event").into_raw();
    let (watch, keep) = owner();
    // SAFETY: `into_raw` released ownership of the event, which is alive.
    let foreign = unsafe { Event::from_foreign(raw, &context, keep) }.expect("an event");
    assert!(foreign.is_complete().expect("alive"));
    let clone = foreign.clone();
    drop(foreign);
    assert_eq!(Arc::strong_count(&watch), 2, "the clone keeps the owner alive");
    drop(clone);
    assert_eq!(Arc::strong_count(&watch), 1);
    // SAFETY: as above.
    let borrowed = unsafe { Event::borrow_raw(raw, &context) }.expect("an event");
    drop(borrowed.clone());
    borrowed.synchronize().expect("alive");
    drop(borrowed);
    // SAFETY: as above, and ownership is transferred.
    let owned = unsafe { Event::from_raw(raw, &context) }.expect("an event");
    drop(owned.clone());
    owned.synchronize().expect("alive");
    let raw = owned.into_raw();
    // SAFETY: `into_raw` released ownership of the event, which is destroyed here.
    assert!(unsafe { cuEventDestroy_v2(raw) }.is_success());
}

#[test]
fn modules_and_libraries_survive_into_raw_and_from_raw() {
    let context = or_skip!(common::context());
    let raw = vector(&context).into_raw();
    let (watch, keep) = owner();
    // SAFETY: `into_raw` released ownership of the module, which is loaded.
    let foreign = unsafe { Module::from_foreign(raw, &context, keep) }.expect("a module");
    let kernel = foreign.kernel("add").expect("loaded");
    drop(foreign);
    assert_eq!(Arc::strong_count(&watch), 2, "the kernel keeps it alive");
    drop(kernel);
    assert_eq!(Arc::strong_count(&watch), 1);
    // SAFETY: as above.
    let borrowed = unsafe { Module::borrow_raw(raw, &context) }.expect("a module");
    borrowed.kernel("add").expect("loaded");
    drop(borrowed);
    // SAFETY: as above, and ownership is transferred.
    let owned = unsafe { Module::from_raw(raw, &context) }.expect("a module");
    owned.kernel("scale").expect("loaded");
    let raw = owned.into_raw();
    // SAFETY: `into_raw` released ownership of the module, which is unloaded here.
    assert!(unsafe { cuModuleUnload(raw) }.is_success());

    or_skip!(common::since(12, 0));
    let raw = Library::from_ptx(VECTOR).expect("the test kernels").into_raw();
    let (watch, keep) = owner();
    // SAFETY: `into_raw` released ownership of the library, which is loaded.
    let foreign = unsafe { Library::from_foreign(raw, keep) }.expect("a library");
    foreign.kernel(&context, "add").expect("loaded");
    drop(foreign);
    assert_eq!(Arc::strong_count(&watch), 1);
    // SAFETY: as above.
    let borrowed = unsafe { Library::borrow_raw(raw) }.expect("a library");
    borrowed.kernel(&context, "add").expect("loaded");
    drop(borrowed);
    // SAFETY: as above, and ownership is transferred.
    let owned = unsafe { Library::from_raw(raw) }.expect("a library");
    assert_eq!(owned.as_raw(), raw);
    owned.kernel(&context, "add").expect("loaded");
}

#[test]
fn a_green_context_survives_into_raw_and_from_raw() {
    // The groups of a green context that was converted to a handle stay in use for the whole process.
    child::in_child(&[], || {
        let group = crate::green::smallest(or_skip!(crate::green::resource())).groups.pop();
        let green = GreenContext::new(group).expect("a green context");
        let (primary, sm_count) = (green.context().clone(), green.sm_count());
        let raw = green.into_raw();
        // SAFETY: `into_raw` released ownership of the green context, which is alive.
        let owned = unsafe { GreenContext::from_raw(raw, &primary) }.expect("a green context");
        assert_eq!((owned.as_raw(), owned.sm_count()), (raw, sm_count));
        let stream = owned.stream().expect("a stream");
        drop(owned);
        stream.synchronize().expect("the stream keeps it alive");
        drop(stream);
        assert_eq!(cuda_safe::leaked(), 0);
    });
}

#[test]
fn graphs_are_borrowed_or_kept_alive_by_an_owner() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let graph = stream.capture(CaptureMode::default(), |_| Ok::<_, Error>(()));
    let (raw, _) = graph.expect("a graph").into_raw();
    let (watch, keep) = owner();
    // SAFETY: `into_raw` released ownership of the graph, which is alive.
    let foreign = unsafe { Graph::from_foreign(raw, &context, keep) }.expect("a graph");
    let executable = foreign.instantiate().expect("an executable graph");
    assert_eq!(Arc::strong_count(&watch), 2);
    drop(foreign);
    assert_eq!(Arc::strong_count(&watch), 1);
    let (raw_executable, _) = executable.into_raw();
    let (watch, keep) = owner();
    // SAFETY: as above.
    let foreign = unsafe { ExecutableGraph::from_foreign(raw_executable, &context, keep) };
    // SAFETY: the graph is empty.
    unsafe { foreign.expect("an executable graph").launch_unchecked(&stream) }.expect("a launch");
    assert_eq!(Arc::strong_count(&watch), 1);
    // SAFETY: as above.
    let borrowed = unsafe { ExecutableGraph::borrow_raw(raw_executable, &context) };
    drop(borrowed.expect("an executable graph"));
    // SAFETY: as above, and ownership is transferred.
    drop(unsafe { ExecutableGraph::from_raw(raw_executable, &context) }.expect("it is alive"));
    // SAFETY: as above.
    drop(unsafe { Graph::borrow_raw(raw, &context) }.expect("a graph"));
    // SAFETY: as above, and ownership is transferred.
    let owned = unsafe { Graph::from_raw(raw, &context) }.expect("a graph");
    owned.instantiate().expect("it is alive");
}

/// Checks that a constructor rejected a null handle with an error that names the object.
#[track_caller]
fn is_refused<T>(result: Result<T, impl Into<Error>>, what: &str) {
    let why = common::invalid(result);
    assert!(matches!(why, Invalid::Handle { value: 0, .. }), "{what}: {why}");
    assert!(why.to_string().contains(what), "{why}");
}

#[test]
fn constructors_from_raw_handles_reject_null() {
    let (context, stream) = or_skip!(common::context_and_stream());
    macro_rules! rejects {
        ($what:literal, $ty:ty, $($argument:expr),+) => {
            // SAFETY: the calls are refused and access nothing.
            is_refused(unsafe { <$ty>::from_raw($($argument),+) }, $what);
            // SAFETY: as above.
            is_refused(unsafe { <$ty>::borrow_raw($($argument),+) }, $what);
            let (watch, keep) = owner();
            // SAFETY: as above.
            is_refused(unsafe { <$ty>::from_foreign($($argument),+, keep) }, $what);
            assert_eq!(Arc::strong_count(&watch), 1, "the owner is dropped with the error");
        };
    }
    rejects!("context", Context, null_mut());
    rejects!("stream", Stream, null_mut(), &context);
    rejects!("event", Event, null_mut(), &context);
    rejects!("module", Module, null_mut(), &context);
    rejects!("library", Library, null_mut());
    rejects!("graph", Graph, null_mut(), &context);
    rejects!("executable graph", ExecutableGraph, null_mut(), &context);
    rejects!("memory pool", MemoryPool, null_mut(), &context);
    rejects!("green context", GreenContext, null_mut(), &context);
    rejects!("device address", DeviceBuffer<u8>, 0, 1, &stream);
    rejects!("device address", ManagedBuffer<u8>, 0, 1, &stream);
}

#[test]
fn memory_from_raw_that_exceeds_the_address_space_is_refused() {
    let (_, stream) = or_skip!(common::context_and_stream());
    // SAFETY: the calls are refused and access nothing.
    let refused = unsafe { DeviceBuffer::<u64>::borrow_raw(0x1000, usize::MAX / 8, &stream) };
    let error = refused.expect_err("too large");
    assert!(error.to_string().contains("too large"), "{error}");
}

#[test]
fn an_empty_buffer_survives_into_raw_and_from_raw() {
    // Other tests leak objects on purpose.
    child::with_stream(|_, stream| {
        let empty = DeviceBuffer::<u32>::zeroed(&stream, 0).expect("no memory");
        let (address, its_stream) = empty.into_raw();
        assert_eq!(address, 0);
        // SAFETY: a buffer without bytes has no memory.
        let back = unsafe { DeviceBuffer::<u32>::from_raw(address, 0, &its_stream) };
        drop(back.expect("no memory"));
        // SAFETY: as above.
        drop(unsafe { ManagedBuffer::<u32>::from_raw(address, 0, &stream) }.expect("no memory"));
        assert_eq!(cuda_safe::leaked(), 0, "there was nothing to free");
    });
}

#[test]
fn foreign_memory_is_freed_by_its_owner() {
    let (_, stream) = or_skip!(common::context_and_stream());
    let buffer = DeviceBuffer::from_slice(&stream, &[5u16; 8]).expect("a copy");
    let address = buffer.as_raw();
    // SAFETY: the owner is the buffer itself, on the same stream.
    let foreign =
        unsafe { DeviceBuffer::<u16>::from_foreign(address, 8, &stream, buffer) }.expect("memory");
    assert_eq!(foreign.to_vec().expect("a copy"), [5; 8]);
    assert_eq!(foreign.stream(), &stream);
}

#[test]
fn debug_output_describes_objects() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let module = vector(&context);
    let add = module.kernel("add").expect("found");
    let typed = add.typed::<(&[f32], &[f32], &mut [f32], u32)>().expect("its parameters");
    assert_eq!(typed.clone().kernel().name(), "add");
    let pinned = PinnedBuffer::<u8>::zeroed(&context, 2).expect("pinned memory");
    assert_eq!(pinned.context(), &context);
    let mapped = PinnedBuffer::<u8>::zeroed(&context, 2).expect("pinned memory");
    let texts = [
        (format!("{:?}", context.device()), "Device(0)"),
        (format!("{context:?}"), "primary"),
        (format!("{context}"), "the primary context of device 0"),
        (format!("{stream:?}"), "Stream"),
        (format!("{:?}", context.event().expect("an event")), "Event"),
        (format!("{:?}", DeviceBuffer::<u8>::zeroed(&stream, 3).expect("memory")), "u8"),
        (format!("{pinned:?}"), "[0, 0]"),
        (format!("{:?}", MemoryPool::default_of(&context).expect("a pool")), "MemoryPool"),
        (format!("{:?}", MappedBuffer::new(mapped, &stream).expect("mapped")), "MappedBuffer"),
        (MemoryLocation::Device(context.device()).to_string(), "device 0"),
        (MemoryLocation::HostNuma(3).to_string(), "NUMA node 3 of the host"),
        (format!("{module:?}"), "Module"),
        (format!("{add:?}"), "\"add\""),
        (format!("{typed:?}"), "&mut [f32]"),
        (format!("{:?}", attribute::WARP_SIZE), "WARP_SIZE"),
        (format!("{:?}", context.make_current().expect("current")), "CurrentContext"),
        (format!("{:?}", context.device().uuid().expect("known")), "GPU-"),
    ];
    for (text, part) in texts {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    if let Ok(sms) = cuda_safe::green::SmResource::of_device(&context.device()) {
        assert!(format!("{sms:?}").contains("sm_count"));
    }
    if let Ok(library) = Library::from_ptx(VECTOR) {
        assert!(format!("{library:?}").contains("Library"));
    }
}

#[test]
fn debug_output_describes_memory_and_pending_work() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let mut buffer = DeviceBuffer::from_slice(&stream, &[1u8; 64]).expect("memory");
    let host = PinnedBuffer::<u8>::zeroed(&context, 64).expect("memory");
    let pending = buffer.copy_to_pinned(host).expect("a copy");
    let done = stream.completion().expect("a future");
    let plane = PitchedBuffer::<u8>::zeroed(&stream, 4, 4).expect("memory");
    let shared = DeviceBuffer::from_slice(&stream, &[1u8; 64]).and_then(DeviceBuffer::share);
    let shared = shared.expect("shared memory");
    let peer = shared.on_peer(&stream).expect("a reader");
    assert_eq!((shared.len(), shared.is_empty(), peer.is_empty()), (64, false, false));
    let mut texts = vec![
        (format!("{pending:?}"), "Pending"),
        (format!("{done:?}"), "StreamFuture"),
        (format!("{plane:?}"), "PitchedBuffer"),
        (format!("{shared:?}"), "SharedBuffer"),
        (format!("{peer:?}"), "PeerReader"),
        (format!("{:?}", CopyBatch::new(&stream)), "CopyBatch"),
        (format!("{:?}", buffer.as_slice()), "DeviceSlice"),
        (format!("{:?}", buffer.as_mut_slice()), "DeviceSliceMut"),
    ];
    let scoped = stream.copy_scope(|scope| Ok::<_, Error>(format!("{scope:?}")));
    texts.push((scoped.expect("a wait"), "CopyScope"));
    let default = context.with_current(|current| format!("{:?}", current.legacy_stream()));
    texts.push((default.expect("current"), "Default"));
    if let Ok(managed) = ManagedBuffer::<u8>::zeroed(&stream, 4) {
        texts.push((format!("{managed:?}"), "ManagedBuffer"));
    }
    for (text, part) in texts {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}
