//! The destruction of a stream: the notification of the memory manager, and the release of the handle.

use super::{ExecutionContext, Inner, Stream};
use crate::call::{Answer, Ownership, answer, fork};
use crate::context::Extension;
use crate::release::{self, Handle, destroy, owners, release_now};
use cuda_sys::{CUresult, CUstream};
use std::sync::Arc;

impl Drop for Inner {
    #[inline]
    fn drop(&mut self) {
        let extension = self.context.any_extension();
        if extension.is_some_and(Extension::refers_to_streams) && self.notify_extension() {
            return;
        }
        if self.ownership.is_owned() {
            self.state.unpublish();
            release_now(Handle(self.raw), &self.execution_context);
        }
    }
}

impl Inner {
    /// Notifies the memory manager, which may have stream-ordered memory of this stream. Returns
    /// whether the destruction was deferred.
    #[cold]
    #[inline(never)]
    fn notify_extension(&mut self) -> bool {
        // The manager caches no memory for a borrowed stream.
        if fork::in_child() || self.is_borrowed {
            return false;
        }
        if !release::may_block() {
            self.destroy_later();
            return true;
        }
        if let Some(extension) = self.context.any_extension() {
            extension.stream_ends(&self.raw);
        }
        false
    }

    /// Defers the destruction: puts another object of the stream into the release queue. In a driver
    /// callback the manager might have to wait for a thread that waits for the callback.
    #[inline]
    fn destroy_later(&mut self) {
        let again = Stream {
            inner: Arc::new(Self {
                raw: self.raw,
                ownership: std::mem::replace(&mut self.ownership, Ownership::Borrowed),
                is_borrowed: false,
                execution_context: self.execution_context.clone(),
                context: self.context.clone(),
                state: Arc::clone(&self.state),
                host_panic: Arc::clone(&self.host_panic),
            }),
        };
        release::later(LastClone, &again);
    }
}

destroy! {
    Handle<CUstream> as "a stream", quiet true;
    // SAFETY: the handle stands for the stream, and the caller promises that this is the first call.
    |its| unsafe { answer!(cuStreamDestroy_v2(its.0)) }
}

/// The last clone of a stream, which must not be dropped in a host function. It is dropped with the
/// owners, so the driver is not called.
struct LastClone;

destroy! {
    LastClone as "the last clone of a stream", quiet true;
    |_its| Answer { call: "cuStreamDestroy_v2", code: CUresult::CUDA_SUCCESS }
}

owners! {
    ExecutionContext |its| {
        context: Some(its.context()),
        is_borrowed: {
            match its {
                ExecutionContext::Context(context) => context.is_borrowed(),
                ExecutionContext::Green(green) => green.is_borrowed(),
            }

        },
    }
}

owners! {
    Stream |its| {
        context: Some(its.context()),
        is_borrowed: its.inner.is_borrowed,
        streams: [Some(its.by_ref()), None],
    }
}
