//! Conversion of objects into raw handles and back, and their `Debug` output.

use crate::common;
use crate::kernels::vector;
use crate::need;
use cuda_safe::sys::{cuEventDestroy_v2, cuModuleUnload, cuStreamDestroy_v2};
use cuda_safe::{
    Context, ContextFlags, CopyBatch, DeviceBuffer, Event, Library, ManagedBuffer, MappedBuffer,
    MemoryLocation, MemoryPool, Module, PinnedBuffer, PitchedBuffer, Stream, attribute,
};
use std::collections::HashSet;
use std::sync::Arc;

/// Returns an owner that foreign objects keep alive.
fn owner() -> (Arc<()>, Arc<()>) {
    let owner = Arc::new(());
    (Arc::clone(&owner), owner)
}

#[test]
fn a_context_survives_into_raw_and_from_raw() {
    let device = need!(common::gpu());
    let raw = Context::create(&device, ContextFlags::empty())
        .expect("a context")
        .into_raw();
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
    let context = need!(common::context());
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
    let refused = unsafe { Stream::from_foreign(none, &context, keep) }.expect_err("stream 0");
    assert_eq!(Arc::strong_count(&watch), 2, "the owner is returned");
    drop(refused.value);
    let raw = owned.into_raw();
    // SAFETY: `into_raw` released ownership of the stream, which is destroyed here.
    assert!(unsafe { cuStreamDestroy_v2(raw) }.is_success());
}

#[test]
fn an_event_survives_into_raw_and_from_raw() {
    let context = need!(common::context());
    let raw = context.event().expect("an event").into_raw();
    let (watch, keep) = owner();
    // SAFETY: `into_raw` released ownership of the event, which is alive.
    let foreign = unsafe { Event::from_foreign(raw, &context, keep) };
    assert!(foreign.is_done().expect("alive"));
    let clone = foreign.clone();
    drop(foreign);
    assert_eq!(
        Arc::strong_count(&watch),
        2,
        "the clone keeps the owner alive"
    );
    drop(clone);
    assert_eq!(Arc::strong_count(&watch), 1);
    // SAFETY: as above.
    let borrowed = unsafe { Event::borrow_raw(raw, &context) };
    drop(borrowed.clone());
    borrowed.synchronize().expect("alive");
    drop(borrowed);
    // SAFETY: as above, and ownership is transferred.
    let owned = unsafe { Event::from_raw(raw, &context) };
    drop(owned.clone());
    owned.synchronize().expect("alive");
    let raw = owned.into_raw();
    // SAFETY: `into_raw` released ownership of the event, which is destroyed here.
    assert!(unsafe { cuEventDestroy_v2(raw) }.is_success());
}

#[test]
fn modules_and_libraries_survive_into_raw_and_from_raw() {
    let context = need!(common::context());
    let raw = vector(&context).into_raw();
    let (watch, keep) = owner();
    // SAFETY: `into_raw` released ownership of the module, which is loaded.
    let foreign = unsafe { Module::from_foreign(raw, &context, keep) };
    let kernel = foreign.kernel("add").expect("loaded");
    drop(foreign);
    assert_eq!(Arc::strong_count(&watch), 2, "the kernel keeps it alive");
    drop(kernel);
    assert_eq!(Arc::strong_count(&watch), 1);
    // SAFETY: as above.
    let borrowed = unsafe { Module::borrow_raw(raw, &context) };
    borrowed.kernel("add").expect("loaded");
    drop(borrowed);
    // SAFETY: as above, and ownership is transferred.
    let owned = unsafe { Module::from_raw(raw, &context) };
    owned.kernel("scale").expect("loaded");
    let raw = owned.into_raw();
    // SAFETY: `into_raw` released ownership of the module, which is unloaded here.
    assert!(unsafe { cuModuleUnload(raw) }.is_success());

    need!(common::since(12, 0));
    let raw = Library::from_ptx(crate::kernels::VECTOR)
        .expect("the test kernels")
        .into_raw();
    let (watch, keep) = owner();
    // SAFETY: `into_raw` released ownership of the library, which is loaded.
    let foreign = unsafe { Library::from_foreign(raw, keep) };
    foreign.kernel(&context, "add").expect("loaded");
    drop(foreign);
    assert_eq!(Arc::strong_count(&watch), 1);
    // SAFETY: as above.
    let borrowed = unsafe { Library::borrow_raw(raw) };
    borrowed.kernel(&context, "add").expect("loaded");
    drop(borrowed);
    // SAFETY: as above, and ownership is transferred.
    let owned = unsafe { Library::from_raw(raw) };
    assert_eq!(owned.as_raw(), raw);
    owned.kernel(&context, "add").expect("loaded");
}

#[test]
fn foreign_memory_is_freed_by_its_owner() {
    let context = need!(common::context());
    let stream = context.stream().expect("a stream");
    let buffer = DeviceBuffer::from_slice(&stream, &[5u16; 8]).expect("a copy");
    let address = buffer.as_raw();
    // SAFETY: the owner is the buffer itself, on the same stream.
    let foreign = unsafe { DeviceBuffer::<u16>::from_foreign(address, 8, &stream, buffer) };
    assert_eq!(foreign.to_vec().expect("a copy"), [5; 8]);
    assert_eq!(foreign.stream(), &stream);
}

#[test]
fn debug_output_describes_objects() {
    let context = need!(common::context());
    let stream = context.stream().expect("a stream");
    let module = vector(&context);
    let add = module.kernel("add").expect("found");
    let typed = add
        .typed::<(&[f32], &[f32], &mut [f32], u32)>()
        .expect("its parameters");
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
        (
            format!(
                "{:?}",
                DeviceBuffer::<u8>::zeroed(&stream, 3).expect("memory")
            ),
            "u8",
        ),
        (format!("{pinned:?}"), "[0, 0]"),
        (
            format!("{:?}", MemoryPool::default_of(&context).expect("a pool")),
            "MemoryPool",
        ),
        (
            format!("{:?}", MappedBuffer::new(mapped, &stream).expect("mapped")),
            "MappedBuffer",
        ),
        (
            MemoryLocation::Device(context.device()).to_string(),
            "device 0",
        ),
        (
            MemoryLocation::HostNuma(3).to_string(),
            "NUMA node 3 of the host",
        ),
        (format!("{module:?}"), "Module"),
        (format!("{add:?}"), "\"add\""),
        (format!("{typed:?}"), "&mut [f32]"),
        (format!("{:?}", attribute::WARP_SIZE), "WARP_SIZE"),
        (
            format!("{:?}", context.make_current().expect("current")),
            "CurrentContext",
        ),
        (
            format!("{:?}", context.device().uuid().expect("known")),
            "GPU-",
        ),
    ];
    for (text, part) in texts {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    if let Ok(sms) = cuda_safe::green::SmResource::of_device(&context.device()) {
        assert!(format!("{sms:?}").contains("sm_count"));
    }
    if let Ok(library) = Library::from_ptx(crate::kernels::VECTOR) {
        assert!(format!("{library:?}").contains("Library"));
    }
}

#[test]
fn debug_output_describes_memory_and_pending_work() {
    let context = need!(common::context());
    let stream = context.stream().expect("a stream");
    let mut buffer = DeviceBuffer::from_slice(&stream, &[1u8; 64]).expect("memory");
    let host = PinnedBuffer::<u8>::zeroed(&context, 64).expect("memory");
    let pending = buffer.copy_to_pinned(host).expect("a copy");
    let done = stream.completion().expect("a future");
    let plane = PitchedBuffer::<u8>::zeroed(&stream, 4, 4).expect("memory");
    let shared = DeviceBuffer::from_slice(&stream, &[1u8; 64])
        .and_then(|buffer| Ok(buffer.share()?))
        .expect("shared memory");
    let peer = shared.on_peer(&stream).expect("a reader");
    assert_eq!(
        (shared.len(), shared.is_empty(), peer.is_empty()),
        (64, false, false)
    );
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
    stream
        .copy_scope(|scope| texts.push((format!("{scope:?}"), "CopyScope")))
        .expect("a wait");
    context
        .with_current(|current| texts.push((format!("{:?}", current.legacy_stream()), "Default")))
        .expect("current");
    if let Ok(managed) = ManagedBuffer::<u8>::zeroed(&stream, 4) {
        texts.push((format!("{managed:?}"), "ManagedBuffer"));
    }
    for (text, part) in texts {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}
