//! The green contexts of streams.

use super::GreenContext;
use super::context::Inner;
use crate::call::Result;
use crate::context::Context;
use crate::stream::{DefaultStream, ExecutionContext, Partition, Stream};
use std::any::Any;
use std::sync::Arc;

impl Partition for Inner {
    #[inline]
    fn as_any(&self) -> &dyn Any {
        self
    }

    #[inline]
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }

    #[inline]
    fn context(&self) -> &Context {
        self.context()
    }

    #[inline]
    fn sm_count(&self) -> u32 {
        self.sm_count
    }

    #[inline]
    fn is_borrowed(&self) -> bool {
        self.is_borrowed()
    }

    #[inline]
    fn is_same(&self, other: &dyn Partition) -> bool {
        other.as_any().downcast_ref() == Some(self)
    }

    #[inline]
    fn with_current(self: Arc<Self>, call: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        GreenContext { inner: self }.under_view(call)
    }
}

impl GreenContext {
    /// Returns the context of work that runs in this green context.
    #[inline]
    pub(crate) fn execution_context(&self) -> ExecutionContext {
        ExecutionContext::Green(Arc::clone(&self.inner) as Arc<dyn Partition>)
    }

    #[inline]
    fn of_partition(partition: &Arc<dyn Partition>) -> Option<Self> {
        let inner = Arc::clone(partition).into_any().downcast().ok()?;
        Some(Self { inner })
    }
}

impl Stream {
    /// Returns the green context in which the stream was created, if any.
    #[inline]
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
    #[inline]
    pub fn green_context(&self) -> Option<GreenContext> {
        GreenContext::of_partition(self.partition()?)
    }
}
