//! Memory of graphs that are recorded.

use super::{CopySource, CopyTarget, GraphBuffer, GraphPinned, GraphSliceMut};
use crate::call::{Rejected, Result};
use crate::graph::{GraphRecorder, Node, kind};
use crate::memory::{DeviceBuffer, PinnedBuffer};
use bytemuck::NoUninit;

impl GraphRecorder {
    /// Allocates device memory that the graph owns, with all bytes 0 before the first launch. Calls
    /// [`DeviceBuffer::zeroed`] and [`own`](Self::own).
    ///
    /// A launch does not set the bytes to 0 again: [`fill`](Self::fill) does.
    ///
    /// # Errors
    /// See [`DeviceBuffer::zeroed`] and [`own`](Self::own).
    pub fn zeroed<T>(&mut self, len: usize) -> Result<GraphBuffer<T>> {
        let buffer = DeviceBuffer::zeroed(self.stream(), len)?;
        self.own(buffer)
    }

    /// Allocates device memory that the graph owns, without initializing it. Calls
    /// [`DeviceBuffer::uninit`] and [`own`](Self::own).
    ///
    /// # Errors
    /// See [`DeviceBuffer::uninit`] and [`own`](Self::own).
    pub fn uninit<T>(&mut self, len: usize) -> Result<GraphBuffer<T>> {
        let buffer = DeviceBuffer::uninit(self.stream(), len)?;
        self.own(buffer)
    }

    /// Moves a buffer into the graph. See [`Graph::own`](crate::Graph::own).
    ///
    /// # Errors
    /// See [`Graph::own`](crate::Graph::own);
    /// [`Invalid::RecorderWithoutGraph`](crate::Invalid::RecorderWithoutGraph).
    /// [`try_own`](Self::try_own) returns the buffer with the error.
    pub fn own<T>(&mut self, buffer: DeviceBuffer<T>) -> Result<GraphBuffer<T>> {
        Ok(self.try_own(buffer)?)
    }

    /// Does the same as [`own`](Self::own), but returns the unchanged buffer with the error.
    ///
    /// # Errors
    /// See [`own`](Self::own).
    pub fn try_own<T>(
        &mut self,
        buffer: DeviceBuffer<T>,
    ) -> Result<GraphBuffer<T>, Rejected<DeviceBuffer<T>>> {
        match self.graph() {
            Ok(graph) => graph.try_own(buffer),
            Err(error) => Err(Rejected::new(error, buffer)),
        }
    }

    /// Moves a pinned buffer into the graph. See [`Graph::own_pinned`](crate::Graph::own_pinned).
    ///
    /// # Errors
    /// [`Invalid::RecorderWithoutGraph`](crate::Invalid::RecorderWithoutGraph). The buffer is then
    /// dropped.
    pub fn own_pinned<T: Send + 'static>(
        &mut self,
        buffer: PinnedBuffer<T>,
    ) -> Result<GraphPinned<T>> {
        Ok(self.graph()?.own_pinned(buffer))
    }

    /// Adds a fill of all elements of `target`. See [`Graph::add_fill`](crate::Graph::add_fill).
    ///
    /// # Errors
    /// See [`Graph::add_fill`](crate::Graph::add_fill);
    /// [`Invalid::RecorderWithoutGraph`](crate::Invalid::RecorderWithoutGraph).
    pub fn fill<'a, T: NoUninit>(
        &mut self,
        target: impl Into<GraphSliceMut<'a, T>>,
        value: T,
    ) -> Result<Node<kind::Fill>> {
        self.add(|graph, dependencies| graph.add_fill(dependencies, target, value))
    }

    /// Adds a copy of all elements of `source` to `target`. See
    /// [`Graph::add_copy`](crate::Graph::add_copy).
    ///
    /// # Errors
    /// See [`Graph::add_copy`](crate::Graph::add_copy);
    /// [`Invalid::RecorderWithoutGraph`](crate::Invalid::RecorderWithoutGraph).
    pub fn copy<T>(
        &mut self,
        target: impl CopyTarget<T>,
        source: impl CopySource<T>,
    ) -> Result<Node<kind::Copy>> {
        self.add(|graph, dependencies| graph.add_copy(dependencies, target, source))
    }
}
