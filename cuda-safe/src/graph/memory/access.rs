//! Access to the memory of a graph from outside.

use super::GraphBuffer;
use super::buffer::{GraphMemory, NodeMemory};
use crate::call::{Invalid, Result, convert, debug_struct, refuse_if};
use crate::event::Event;
use crate::graph::ExecutableGraph;
pub(crate) use crate::memory::buffer::shared::Reads;
use crate::memory::{DeviceSlice, DeviceSliceMut};
use crate::release::{Keep, owners, release};
use crate::stream::{Stream, same_context};
use std::marker::PhantomData;
use std::sync::Arc;

/// The right to use memory of a graph on a stream, between launches. Returned by
/// [`ExecutableGraph::access`].
///
/// Dropping it does not block. If it is forgotten, the next launch waits for the stream nevertheless,
/// and the memory is never released.
#[must_use = "the right to use the memory ends when it is dropped"]
pub struct GraphAccess<'a, T> {
    using: Using,
    len: usize,
    borrowed: PhantomData<&'a mut T>,
}

/// The right to read memory of a graph on a stream, between launches. Returned by
/// [`ExecutableGraph::read_access`].
///
/// Dropping it does not block. If it is forgotten, the next launch waits for the stream nevertheless,
/// and the memory is never released.
#[must_use = "the right to read the memory ends when it is dropped"]
pub struct GraphReadAccess<'a, T> {
    using: Using,
    len: usize,
    borrowed: PhantomData<&'a T>,
}

/// An access without an element type.
#[derive(Clone)]
struct Using {
    /// The event to record after the access, or `None` if it is on the stream on which the memory is
    /// released.
    end: Option<Event>,
    stream: Stream,
    memory: Arc<GraphMemory>,
}

impl ExecutableGraph {
    /// Returns the right to use a buffer of the graph on `stream`, until the returned value is dropped.
    /// [`read_access`](Self::read_access) needs only a shared borrow of the buffer.
    ///
    /// The stream waits for all launches so far, and the next launch waits for the stream. Both happen
    /// on the GPU: each is an event (`cuEventRecord`, `cuStreamWaitEvent`). Nothing is launched meanwhile,
    /// because the executable graph is borrowed mutably.
    ///
    /// # Errors
    /// - [`Invalid::BufferOfOtherGraph`] if this executable graph does not use the memory of the
    ///   buffer's graph.
    /// - [`Invalid::OtherContext`] if the stream belongs to another context.
    /// - [`Invalid::BorrowedStream`] if the stream is borrowed, because the next launch waits for it.
    /// - [`Invalid::StreamIsCaptured`], also if a stream of an earlier launch is capturing.
    /// - Errors from the driver.
    pub fn access<'a, T>(
        &'a mut self,
        buffer: &'a mut GraphBuffer<T>,
        stream: &Stream,
    ) -> Result<GraphAccess<'a, T>> {
        Ok(GraphAccess {
            using: self.use_memory(buffer.memory(), stream)?,
            len: buffer.len(),
            borrowed: PhantomData,
        })
    }

    /// Returns the right to read a buffer of the graph on `stream`, until the returned value is dropped.
    ///
    /// The stream waits for all launches so far, and the next launch waits for the stream, as with
    /// [`access`](Self::access). Nothing is launched meanwhile, because the executable graph is borrowed
    /// mutably.
    ///
    /// # Errors
    /// See [`access`](Self::access).
    ///
    /// ```no_run
    /// use cuda_safe::{ExecutableGraph, Result, Stream};
    /// use cuda_safe::graph::GraphBuffer;
    ///
    /// fn result(graph: &mut ExecutableGraph, sums: &GraphBuffer<f32>, stream: &Stream) -> Result<Vec<f32>> {
    ///     graph.read_access(sums, stream)?.as_slice().to_vec()
    /// }
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    pub fn read_access<'a, T>(
        &'a mut self,
        buffer: &'a GraphBuffer<T>,
        stream: &Stream,
    ) -> Result<GraphReadAccess<'a, T>> {
        Ok(GraphReadAccess {
            using: self.use_memory(buffer.memory(), stream)?,
            len: buffer.len(),
            borrowed: PhantomData,
        })
    }

    /// Orders the work that follows on `stream` after the launches, and before the next one.
    #[inline]
    fn use_memory(&mut self, memory: &Arc<GraphMemory>, stream: &Stream) -> Result<Using> {
        same_context("the stream", stream.context(), memory.context())?;
        if !self.has_claimed(memory.graph()) {
            return Err(Invalid::BufferOfOtherGraph {
                buffer: memory.graph(),
                graph: self.graph_number(),
            }
            .into());
        }
        refuse_if!(stream.is_borrowed(), Invalid::BorrowedStream);
        let end = if stream == memory.stream() { None } else { Some(stream.context().event()?) };
        self.exchange_order(stream)?;
        Ok(Using { end, stream: stream.clone(), memory: Arc::clone(memory) })
    }
}

impl<T> GraphAccess<'_, T> {
    /// Borrows the memory for reading on the stream.
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        DeviceSlice::new(self.using.memory.address(), self.len, &self.using.stream)
    }

    /// Borrows the memory for reading and writing on the stream.
    pub fn as_mut_slice(&mut self) -> DeviceSliceMut<'_, T> {
        DeviceSliceMut::new(self.using.memory.address(), self.len, &self.using.stream)
    }

    /// Returns the stream on which the memory may be used.
    pub fn stream(&self) -> &Stream {
        &self.using.stream
    }
}

impl<T> GraphReadAccess<'_, T> {
    /// Borrows the memory for reading on the stream.
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        DeviceSlice::new(self.using.memory.address(), self.len, &self.using.stream)
    }

    /// Returns the stream on which the memory may be read.
    pub fn stream(&self) -> &Stream {
        &self.using.stream
    }
}

convert! {
    ['a, T] |access: &'a GraphReadAccess<'_, T>| -> DeviceSlice<'a, T> { access.as_slice() }
    ['a, T] |access: &'a GraphAccess<'_, T>| -> DeviceSlice<'a, T> { access.as_slice() }
    ['a, T] |access: &'a mut GraphAccess<'_, T>| -> DeviceSliceMut<'a, T> { access.as_mut_slice() }
}

impl<T> Drop for GraphAccess<'_, T> {
    fn drop(&mut self) {
        self.using.end();
    }
}

impl<T> Drop for GraphReadAccess<'_, T> {
    fn drop(&mut self) {
        self.using.end();
    }
}

impl Using {
    /// Lets the stream on which the memory is released wait for the access, as for a reader.
    #[inline]
    fn end(&self) {
        if let Some(end) = &self.end {
            let reads = Reads::new(end, self.stream.raw(), self.memory.stream().raw());
            release(reads, self);
        }
    }
}

owners! {
    Using |its| {
        context: Some(its.stream.context()),
        is_borrowed: its.stream.is_borrowed() || its.memory.stream().is_borrowed(),
        streams: [&its.stream, its.memory.stream()].map(|its| Some(its.by_ref())),
    }
}

debug_struct! {
    [T] GraphAccess<'_, T> |its| {
        memory: its.using.memory, stream: its.using.stream, ..
    }
}

debug_struct! {
    [T] GraphReadAccess<'_, T> |its| {
        memory: its.using.memory, stream: its.using.stream, ..
    }
}
