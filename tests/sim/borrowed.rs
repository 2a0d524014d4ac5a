//! Borrowed contexts and streams: their owner destroys them when everything made with them is
//! dropped, and nothing uses them afterwards.

use crate::{common, context, start};
use cuda_safe::sys::{CUcontext, CUstream, cuCtxDestroy_v2, cuStreamDestroy_v2};
use cuda_safe::{Context, ContextFlags, DeviceBuffer, Module, PinnedBuffer, Stream};
use cuda_sim::Profile;
use std::sync::mpsc;

const VECTOR: &str = include_str!("../kernels/vector.ptx");

/// Runs `body`; then everything but `leaks` is gone, or was never used again.
#[track_caller]
fn leaking(leaks: u64, body: impl FnOnce(&Context)) {
    common::child::in_child(&[], || {
        start(Profile::h200());
        let (sender, heard) = mpsc::channel();
        let sender = std::sync::Mutex::new(sender);
        cuda_safe::set_report_hook(move |report| {
            let sender = sender.lock().expect("no panic under it");
            sender.send(report.to_string()).expect("the test listens");
        });
        let context = context();
        body(&context);
        cuda_sim::clear_calls();
        // What waits would be released by this.
        drop(context.event().expect("an event"));
        let calls = cuda_sim::calls();
        let failed = calls.iter().find(|call| !call.result.is_success());
        assert!(failed.is_none(), "{failed:?}");
        assert_eq!(cuda_sim::mistakes(), [""; 0]);
        assert_eq!(cuda_safe::leaked(), leaks);
        let reports: Vec<String> = heard.try_iter().collect();
        assert_eq!(reports.len() as u64, leaks, "{reports:?}");
        let told = |report: &String| report.contains("borrowed");
        assert!(reports.iter().all(told), "{reports:?}");
    });
}

/// Drops something in a host function of another stream.
fn drop_in_host_function(context: &Context, what: impl Send + 'static) {
    let helper = context.stream().expect("a stream");
    let function = move || drop(what);
    helper.launch_host_function(function).expect("is given");
    helper.synchronize().expect("a wait");
}

fn lent_stream(context: &Context) -> (CUstream, Stream) {
    let raw = context.stream().expect("a stream").leak();
    // SAFETY: what is made with it is dropped before it is destroyed.
    let stream = unsafe { Stream::borrow_raw(raw, context) };
    (raw, stream.expect("a stream of its own"))
}

fn lent_context(context: &Context) -> (CUcontext, Context) {
    let own = Context::create(&context.device(), ContextFlags::empty());
    let raw = own.expect("a context").leak();
    // SAFETY: what is made in it is dropped before it is destroyed.
    let lent = unsafe { Context::borrow_raw(raw) };
    (raw, lent.expect("it is alive"))
}

fn destroy_stream(raw: CUstream) {
    // SAFETY: all that was made with it is dropped.
    let code = unsafe { cuStreamDestroy_v2(raw) };
    assert!(code.is_success(), "{code}");
}

fn destroy_context(raw: CUcontext) {
    // SAFETY: all that was made in it is dropped.
    let code = unsafe { cuCtxDestroy_v2(raw) };
    assert!(code.is_success(), "{code}");
}

#[test]
fn a_buffer_on_a_borrowed_stream_does_not_wait_for_its_release() {
    leaking(1, |context| {
        let (raw, stream) = lent_stream(context);
        let buffer = DeviceBuffer::<u8>::zeroed(&stream, 64).expect("memory");
        drop(stream);
        drop_in_host_function(context, buffer);
        destroy_stream(raw);
    });
}

#[test]
fn a_reader_on_a_borrowed_stream_does_not_wait_for_its_end() {
    leaking(1, |context| {
        let (raw, stream) = lent_stream(context);
        let home = context.stream().expect("a stream");
        let buffer = DeviceBuffer::<u8>::zeroed(&home, 64).expect("memory");
        let shared = buffer.share().expect("is written");
        let reader = shared.on(&stream).expect("a reader");
        drop(stream);
        drop_in_host_function(context, reader);
        destroy_stream(raw);
    });
}

#[test]
fn what_is_made_in_a_borrowed_context_does_not_wait_for_its_release() {
    leaking(4, |context| {
        let (raw, lent) = lent_context(context);
        let module = Module::from_ptx(&lent, VECTOR).expect("the test kernels");
        let pinned = PinnedBuffer::<u8>::zeroed(&lent, 64).expect("memory");
        let stream = lent.stream().expect("a stream");
        let event = lent.event().expect("an event");
        drop(lent);
        drop_in_host_function(context, (module, pinned, stream, event));
        destroy_context(raw);
    });
}

/// A foreign one has an owner, who waits with it.
#[test]
fn what_is_made_with_a_foreign_stream_waits_with_its_owner() {
    struct Owner(usize);
    impl Drop for Owner {
        fn drop(&mut self) {
            destroy_stream(std::ptr::with_exposed_provenance_mut(self.0));
        }
    }
    leaking(0, |context| {
        let raw = context.stream().expect("a stream").leak();
        let owner = Owner(raw.expose_provenance());
        // SAFETY: the owner destroys the stream when it is dropped.
        let stream = unsafe { Stream::from_foreign(raw, context, owner) };
        let stream = stream.map_err(|refused| refused.error).expect("a stream");
        let buffer = DeviceBuffer::<u8>::zeroed(&stream, 64).expect("memory");
        drop(stream);
        drop_in_host_function(context, buffer);
        assert_eq!(cuda_sim::alive().device_allocations, 1);
        drop(context.event().expect("an event"));
        assert_eq!(cuda_sim::alive().device_allocations, 0);
    });
}
