//! Pinned host memory that a graph owns.

use super::GraphSlice;
use super::buffer::NodeMemory;
use crate::call::{Invalid, Result, debug, debug_struct};
use crate::capture_state::{Retain, retain};
use crate::context::Context;
use crate::graph::{ExecutableGraph, Graph, MemoryOrder, new_buffer_number};
use crate::memory::PinnedBuffer;
use crate::release;
use core::ffi::c_void;
use std::sync::Arc;

/// Pinned host memory that a [`Graph`] owns, for nodes that copy from and to the host. Returned by
/// [`Graph::own_pinned`].
///
/// A launch reads and writes the memory when the copy runs, not when it is enqueued. The host uses the
/// memory through [`ExecutableGraph::host`], which waits for the launches. Ordinary host memory cannot be
/// used by a graph, because the driver would read it during the launch call.
///
/// The memory is released when this handle, the graph and its executable graph are dropped, and the
/// launches are complete.
pub struct GraphPinned<T> {
    memory: Arc<HostMemory<T>>,
}

/// Pinned memory that a graph owns.
pub(super) struct HostMemory<T> {
    /// The number of the buffer.
    number: u64,
    order: Arc<MemoryOrder>,
    buffer: PinnedBuffer<T>,
}

// SAFETY: a shared reference gives no access to the elements: only `GraphPinned::host_slice` does, which
// borrows the one handle mutably.
unsafe impl<T: Send> Sync for HostMemory<T> {}

impl Graph {
    /// Moves a pinned buffer into the graph, whose nodes can then copy from and to it.
    ///
    /// This cannot fail: unlike device memory, a pinned buffer has no earlier work that launches must wait for.
    pub fn own_pinned<T: Send + 'static>(&mut self, buffer: PinnedBuffer<T>) -> GraphPinned<T> {
        let order = self.memory_order();
        let memory = Arc::new(HostMemory { number: new_buffer_number(), order, buffer });
        let weak = Arc::downgrade(&memory);
        memory.order.add_memory(weak);
        GraphPinned { memory }
    }
}

impl<T> GraphPinned<T> {
    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.memory.buffer.count()
    }

    /// Returns whether the memory has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of the buffer, which error messages name. It is unique in the process.
    pub fn number(&self) -> u64 {
        self.memory.number
    }

    /// Returns the buffer if no graph uses it any more: the graph and its executable graph were dropped,
    /// and the launches are complete.
    ///
    /// # Errors
    /// Returns this handle if a graph or a launch may still use the memory. Synchronize the streams of
    /// the launches first. If another thread is releasing the objects of a launch at the same time, a
    /// later call succeeds.
    pub fn into_pinned(self) -> Result<PinnedBuffer<T>, Self> {
        release::drain();
        match Arc::try_unwrap(self.memory) {
            Ok(memory) => Ok(memory.buffer),
            Err(memory) => Err(Self { memory }),
        }
    }

    /// Returns the elements.
    ///
    /// # Safety
    /// No launch that uses the memory runs or is enqueued while the slice is borrowed.
    unsafe fn host_slice(&mut self) -> &mut [T] {
        let buffer = &self.memory.buffer;
        // SAFETY: there are as many elements, which are initialized. The device does not use them, as the
        // caller promises, and this mutable borrow of the one handle excludes other host code.
        unsafe { std::slice::from_raw_parts_mut(buffer.start(), buffer.count()) }
    }
}

impl<T: Send + 'static> GraphPinned<T> {
    /// Returns all elements.
    pub(super) fn as_slice(&self) -> GraphSlice<'_, T> {
        GraphSlice::new(&self.memory, self.len())
    }
}

impl<T: Send + 'static> NodeMemory for Arc<HostMemory<T>> {
    fn kept(&self) -> Arc<dyn Retain> {
        Self::clone(self)
    }

    fn host_address(&self) -> Option<*mut c_void> {
        Some(self.buffer.start().cast())
    }

    fn context(&self) -> &Context {
        self.buffer.context()
    }

    fn graph(&self) -> u64 {
        self.order.graph()
    }

    fn number(&self) -> u64 {
        self.number
    }
}

impl ExecutableGraph {
    /// Blocks until all launches are complete, and returns the elements of a pinned buffer of the graph.
    ///
    /// Nothing is launched while the slice is borrowed, because the executable graph is borrowed mutably.
    ///
    /// # Errors
    /// - [`Invalid::BufferOfOtherGraph`] if this executable graph does not use the memory of the
    ///   buffer's graph.
    /// - [`Error::InHostFunction`](crate::Error::InHostFunction) inside a host function.
    /// - [`Invalid::StreamIsCaptured`] if a stream of an earlier launch is capturing.
    /// - Errors of the launches.
    pub fn host<'a, T>(&'a mut self, buffer: &'a mut GraphPinned<T>) -> Result<&'a mut [T]> {
        let graph = buffer.memory.order.graph();
        if !self.has_claimed(graph) {
            return Err(
                Invalid::BufferOfOtherGraph { buffer: graph, graph: self.graph_number() }.into()
            );
        }
        self.wait_for_launches()?;
        // SAFETY: only an executable graph that has claimed the memory launches work that uses it. This
        // is the one, it is borrowed as long as the slice, and its launches are complete.
        Ok(unsafe { buffer.host_slice() })
    }
}

retain! {
    [T: Send + 'static] HostMemory<T> |its, other| {
        is_same: its.number == other.number,
        is_borrowed: its.buffer.context().depends_on_borrowed(),
    }
}

debug_struct! {
    [T] HostMemory<T> |its| {
        number: its.number, graph: its.order.graph(), len: its.buffer.count(), ..
    }
}

debug! { [T] GraphPinned<T> |its, f| f.debug_tuple("GraphPinned").field(&its.memory).finish() }
