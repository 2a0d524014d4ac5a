//! The green contexts of streams.

use super::GreenContext;
use super::context::Inner;
use crate::call::error::Result;
use crate::context::Context;
use crate::stream::{DefaultStream, ExecutionContext, Partition, Stream};
use std::any::Any;
use std::sync::Arc;

impl Partition for Inner {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }

    fn context(&self) -> &Context {
        self.context()
    }

    fn sm_count(&self) -> u32 {
        self.sm_count
    }

    fn is_borrowed(&self) -> bool {
        self.is_borrowed()
    }

    fn is_same(&self, other: &dyn Partition) -> bool {
        other.as_any().downcast_ref() == Some(self)
    }

    fn with_current(self: Arc<Self>, call: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        GreenContext { inner: self }.under_view(call)
    }
}

impl GreenContext {
    /// Returns the context of work that runs in this green context.
    pub(crate) fn execution_context(&self) -> ExecutionContext {
        ExecutionContext::Green(Arc::clone(&self.inner) as Arc<dyn Partition>)
    }

    fn of_partition(partition: &Arc<dyn Partition>) -> Option<Self> {
        let inner = Arc::clone(partition).into_any().downcast().ok()?;
        Some(Self { inner })
    }
}

impl Stream {
    /// Returns the green context in which the stream was created, if any.
    pub fn green_context(&self) -> Option<GreenContext> {
        GreenContext::of_partition(self.partition()?)
    }
}

impl DefaultStream<'_> {
    /// Returns the green context of this default stream, or `None` for a stream of an ordinary context.
    ///
    /// This function makes no driver call: for the legacy stream, the result of `cuStreamGetGreenCtx`
    /// depends on the current context, and for the per-thread stream the call is documented to fail
    /// while a green context is current.
    pub fn green_context(&self) -> Option<GreenContext> {
        GreenContext::of_partition(self.partition()?)
    }
}
