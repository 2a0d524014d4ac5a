//! Raw handles, out of objects and into them; and how objects print themselves.

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

/// What a foreign object keeps alive.
fn owner() -> (Arc<()>, Arc<()>) {
    let owner = Arc::new(());
    (Arc::clone(&owner), owner)
}

#[test]
fn a_context_goes_out_and_comes_back() {
    let device = need!(common::gpu());
    let raw = Context::create(&device, ContextFlags::empty())
        .expect("a context")
        .leak();
    // SAFETY: the context was leaked, and is taken over.
    let back = unsafe { Context::from_raw(raw) }.expect("alive");
    assert_eq!((back.as_raw(), back.device()), (raw, device));
    let stream = back.stream().expect("a stream");
    // SAFETY: `back` is alive for longer.
    let borrowed = unsafe { Context::borrow_raw(raw) }.expect("alive");
    assert_eq!(HashSet::from([back.clone(), borrowed]).len(), 1);
    drop(back);
    stream.synchronize().expect("the stream holds it");
    drop(stream);
}

#[test]
fn a_stream_goes_out_and_comes_back() {
    let context = need!(common::context());
    let raw = context.stream().expect("a stream").leak();
    let (watch, keep) = owner();
    // SAFETY: the stream was leaked, and is alive.
    let foreign = unsafe { Stream::from_foreign(raw, &context, keep) }.expect("a stream");
    foreign.synchronize().expect("alive");
    assert_eq!(Arc::strong_count(&watch), 2);
    drop(foreign);
    assert_eq!(Arc::strong_count(&watch), 1);
    // SAFETY: as above, and taken over.
    let owned = unsafe { Stream::from_raw(raw, &context) }.expect("a stream");
    owned.synchronize().expect("alive");
    let (watch, keep) = owner();
    let none = std::ptr::null_mut();
    // SAFETY: it is refused.
    let refused = unsafe { Stream::from_foreign(none, &context, keep) }.expect_err("stream 0");
    assert_eq!(Arc::strong_count(&watch), 2, "the owner is given back");
    drop(refused.value);
    let raw = owned.leak();
    // SAFETY: the stream was leaked, so this is its end.
    assert!(unsafe { cuStreamDestroy_v2(raw) }.is_success());
}

#[test]
fn an_event_goes_out_and_comes_back() {
    let context = need!(common::context());
    let raw = context.event().expect("an event").leak();
    let (watch, keep) = owner();
    // SAFETY: the event was leaked, and is alive.
    let foreign = unsafe { Event::from_foreign(raw, &context, keep) };
    assert!(foreign.is_done().expect("alive"));
    let clone = foreign.clone();
    drop(foreign);
    assert_eq!(Arc::strong_count(&watch), 2, "the clone keeps it");
    drop(clone);
    assert_eq!(Arc::strong_count(&watch), 1);
    // SAFETY: as above.
    let borrowed = unsafe { Event::borrow_raw(raw, &context) };
    drop(borrowed.clone());
    borrowed.synchronize().expect("alive");
    drop(borrowed);
    // SAFETY: as above, and taken over.
    let owned = unsafe { Event::from_raw(raw, &context) };
    drop(owned.clone());
    owned.synchronize().expect("alive");
    let raw = owned.leak();
    // SAFETY: the event was leaked, so this is its end.
    assert!(unsafe { cuEventDestroy_v2(raw) }.is_success());
}

#[test]
fn modules_and_libraries_go_out_and_come_back() {
    let context = need!(common::context());
    let raw = vector(&context).leak();
    let (watch, keep) = owner();
    // SAFETY: the module was leaked, and is loaded.
    let foreign = unsafe { Module::from_foreign(raw, &context, keep) };
    let kernel = foreign.kernel("add").expect("loaded");
    drop(foreign);
    assert_eq!(Arc::strong_count(&watch), 2, "the kernel holds it");
    drop(kernel);
    assert_eq!(Arc::strong_count(&watch), 1);
    // SAFETY: as above.
    let borrowed = unsafe { Module::borrow_raw(raw, &context) };
    borrowed.kernel("add").expect("loaded");
    drop(borrowed);
    // SAFETY: as above, and taken over.
    let owned = unsafe { Module::from_raw(raw, &context) };
    owned.kernel("scale").expect("loaded");
    let raw = owned.leak();
    // SAFETY: the module was leaked, so this is its end.
    assert!(unsafe { cuModuleUnload(raw) }.is_success());

    need!(common::since(12, 0));
    let raw = Library::from_ptx(crate::kernels::VECTOR)
        .expect("the test kernels")
        .leak();
    let (watch, keep) = owner();
    // SAFETY: the library was leaked, and is loaded.
    let foreign = unsafe { Library::from_foreign(raw, keep) };
    foreign.kernel(&context, "add").expect("loaded");
    drop(foreign);
    assert_eq!(Arc::strong_count(&watch), 1);
    // SAFETY: as above.
    let borrowed = unsafe { Library::borrow_raw(raw) };
    borrowed.kernel(&context, "add").expect("loaded");
    drop(borrowed);
    // SAFETY: as above, and taken over.
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
fn objects_print_what_they_are() {
    let context = need!(common::context());
    let stream = context.stream().expect("a stream");
    let module = vector(&context);
    let add = module.kernel("add").expect("is there");
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
fn memory_and_work_under_way_print_what_they_are() {
    let context = need!(common::context());
    let stream = context.stream().expect("a stream");
    let mut buffer = DeviceBuffer::from_slice(&stream, &[1u8; 64]).expect("memory");
    let host = PinnedBuffer::<u8>::zeroed(&context, 64).expect("memory");
    let pending = buffer.copy_to_pinned(host).expect("a copy");
    let done = stream.done().expect("a future");
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
        (format!("{done:?}"), "Done"),
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
