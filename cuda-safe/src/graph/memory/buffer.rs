//! Device memory that a graph owns.

use super::alloc::GraphAllocation;
use super::copy::{CopySource, CopyTarget, Part};
use crate::call::{Rejected, Result, convert, copy, debug, debug_struct};
use crate::capture_state::{Retain, retain};
use crate::context::Context;
use crate::graph::{
    Earlier, Graph, Lifetime, MemoryOrder, NodeArgument, NodeUses, new_buffer_number,
};
use crate::memory::DeviceBuffer;
pub(crate) use crate::memory::buffer::allocation::Allocation;
pub(crate) use crate::memory::buffer::slice::within;
use crate::release::{self, Keep};
use crate::stream::Stream;
use core::ffi::c_void;
use cuda_sys::CUdeviceptr;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Range, RangeBounds};
use std::sync::Arc;

/// Device memory that a [`Graph`] owns: a handle of `len` elements of `T`. Returned by [`Graph::own`].
///
/// Nodes of the graph take `&GraphBuffer` to read it and `&mut GraphBuffer` to write it. The borrow ends
/// when the node is added. [`slice`](Self::slice) and [`slice_mut`](Self::slice_mut) name a part.
///
/// Other code uses the memory through [`ExecutableGraph::access`](crate::ExecutableGraph::access) or
/// [`read_access`](crate::ExecutableGraph::read_access), which order the use with the launches. [`into_buffer`](Self::into_buffer) returns the memory when no graph
/// uses it any more.
///
/// The memory is released when this handle, the graph and its executable graph are dropped, and the
/// launches are complete.
pub struct GraphBuffer<T> {
    memory: Arc<GraphMemory>,
    len: usize,
    elements: PhantomData<T>,
}

/// A part of a [`GraphBuffer`] or a [`GraphAllocation`](crate::graph::GraphAllocation), for nodes that read it.
pub struct GraphSlice<'a, T> {
    memory: &'a dyn NodeMemory,
    start: usize,
    len: usize,
    elements: PhantomData<&'a T>,
}

/// A part of a [`GraphBuffer`] or a [`GraphAllocation`](crate::graph::GraphAllocation), for nodes that write it.
pub struct GraphSliceMut<'a, T> {
    whole: GraphSlice<'a, T>,
    elements: PhantomData<&'a mut T>,
}

/// Memory that nodes of a graph can use.
pub(crate) trait NodeMemory: fmt::Debug + Send + Sync {
    /// Returns the memory for the nodes that use it.
    fn kept(&self) -> Arc<dyn Retain>;

    /// Returns the address of device memory.
    fn address(&self) -> CUdeviceptr {
        0
    }

    /// Returns the address of host memory.
    fn host_address(&self) -> Option<*mut c_void> {
        None
    }

    fn context(&self) -> &Context;

    /// Returns the number of the graph that owns the memory.
    fn graph(&self) -> u64;

    /// Returns the number of the buffer.
    fn number(&self) -> u64;

    /// Returns how a use relates to the lifetime of the memory.
    fn lifetime(&self) -> Lifetime {
        Lifetime::OfGraph
    }
}

/// Device memory that a graph owns.
pub(super) struct GraphMemory {
    /// The number of the buffer.
    number: u64,
    order: Arc<MemoryOrder>,
    allocation: Allocation,
}

impl Graph {
    /// Moves a buffer into the graph, whose nodes can then read and write it.
    ///
    /// Creates an event and records it on the stream of the buffer (`cuEventRecord`). Launches wait for
    /// it, so the earlier work on the buffer precedes them. Does not block.
    ///
    /// # Errors
    /// - [`Invalid::ForeignMemory`](crate::Invalid::ForeignMemory) if the buffer does not own its memory, because the lifetime of the
    ///   memory was promised for the buffer's stream.
    /// - [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured).
    /// - Errors from the driver.
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
        match buffer.mark_written() {
            Ok(written) => {
                let order = self.memory_order();
                order.add(Earlier::Event(written));
                let len = buffer.len();
                let memory = Arc::new(GraphMemory {
                    number: new_buffer_number(),
                    order,
                    allocation: buffer.into_allocation(),
                });
                let weak = Arc::downgrade(&memory);
                memory.order.add_memory(weak);
                Ok(GraphBuffer { memory, len, elements: PhantomData })
            }
            Err(error) => Err(Rejected::new(error, buffer)),
        }
    }
}

impl<T> GraphBuffer<T> {
    /// Returns the buffer, bound to the stream that it was bound to before, if no graph uses it any
    /// more: the graph and its executable graph were dropped, and the launches are complete.
    ///
    /// # Errors
    /// Returns this handle if a graph or a launch may still use the memory. Synchronize the streams of
    /// the launches first. If another thread is releasing the objects of a launch at the same time, a
    /// later call succeeds.
    pub fn into_buffer(self) -> Result<DeviceBuffer<T>, Self> {
        release::drain();
        let Self { memory, len, .. } = self;
        match Arc::try_unwrap(memory) {
            // The launches are complete, and the stream is ordered after each access from outside: each
            // guard ensured this when it was dropped.
            Ok(memory) => Ok(DeviceBuffer::of_allocation(memory.allocation, len)),
            Err(memory) => Err(Self { memory, len, elements: PhantomData }),
        }
    }

    pub(super) fn memory(&self) -> &Arc<GraphMemory> {
        &self.memory
    }
}

impl<'a, T> GraphSlice<'a, T> {
    /// Returns all `len` elements of memory.
    pub(super) fn new(memory: &'a dyn NodeMemory, len: usize) -> Self {
        Self { memory, start: 0, len, elements: PhantomData }
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the part has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns a part of this part.
    ///
    /// # Errors
    /// [`Invalid::Range`](crate::Invalid::Range) if the range is not within this part.
    pub fn slice(self, range: impl RangeBounds<usize>) -> Result<Self> {
        let (start, end) = within(&range, self.len)?;
        Ok(Self { start: self.start + start, len: end - start, ..self })
    }

    /// Returns the device address of the first element.
    pub(crate) fn address(&self) -> CUdeviceptr {
        self.memory.address() + (self.start * size_of::<T>()) as u64
    }

    /// Returns the address of the first element, if the memory is on the host.
    pub(super) fn host_address(&self) -> Option<*mut c_void> {
        let start = self.memory.host_address()?;
        Some(start.wrapping_byte_add(self.start * size_of::<T>()))
    }

    #[cfg(feature = "tensor-map")]
    pub(crate) fn context(&self) -> &'a Context {
        self.memory.context()
    }

    /// Returns the bytes of the part.
    #[cfg(feature = "tensor-map")]
    pub(crate) fn as_bytes(&self) -> GraphSlice<'a, u8> {
        let size = size_of::<T>();
        let (start, len) = (self.start * size, self.len * size);
        GraphSlice { memory: self.memory, start, len, elements: PhantomData }
    }

    /// Notes that a node uses the elements in this range.
    #[inline]
    pub(crate) fn declare(
        &self,
        range: Range<usize>,
        writes: bool,
        uses: &mut NodeUses<'_>,
    ) -> Result<()> {
        let byte = |index| (self.start + index) * size_of::<T>();
        let bytes = byte(range.start)..byte(range.end);
        uses.add(self.memory, bytes, writes, self.memory.lifetime())
    }
}

impl<'a, T> GraphSliceMut<'a, T> {
    /// Returns all `len` elements of memory, which is borrowed mutably.
    pub(super) fn new(memory: &'a dyn NodeMemory, len: usize) -> Self {
        Self { whole: GraphSlice::new(memory, len), elements: PhantomData }
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.whole.len
    }

    /// Returns whether the part has no elements.
    pub fn is_empty(&self) -> bool {
        self.whole.is_empty()
    }

    /// Returns a part of this part.
    ///
    /// # Errors
    /// [`Invalid::Range`](crate::Invalid::Range) if the range is not within this part.
    pub fn slice(self, range: impl RangeBounds<usize>) -> Result<Self> {
        Ok(Self { whole: self.whole.slice(range)?, elements: PhantomData })
    }

    /// Divides the part into two disjoint ones at `middle`, which one node can take both.
    ///
    /// # Errors
    /// [`Invalid::Range`](crate::Invalid::Range) if `middle` is greater than the length.
    #[doc(alias = "split_at_mut")]
    pub fn split_at(self, middle: usize) -> Result<(Self, Self)> {
        let before = self.whole.slice(..middle)?;
        let from = self.whole.slice(middle..)?;
        let part = |whole| Self { whole, elements: PhantomData };
        Ok((part(before), part(from)))
    }

    pub(super) fn as_whole(&self) -> GraphSlice<'_, T> {
        self.whole
    }

    pub(crate) fn into_whole(self) -> GraphSlice<'a, T> {
        self.whole
    }
}

impl GraphMemory {
    /// Returns the stream that the memory was bound to before, and is released on.
    #[inline]
    pub(super) fn stream(&self) -> &Stream {
        self.allocation.stream()
    }
}

impl NodeMemory for Arc<GraphMemory> {
    #[inline]
    fn kept(&self) -> Arc<dyn Retain> {
        Self::clone(self)
    }

    #[inline]
    fn address(&self) -> CUdeviceptr {
        self.allocation.address()
    }

    #[inline]
    fn context(&self) -> &Context {
        self.stream().context()
    }

    #[inline]
    fn graph(&self) -> u64 {
        self.order.graph()
    }

    #[inline]
    fn number(&self) -> u64 {
        self.number
    }
}

retain! {
    GraphMemory |its, other| {
        is_same: its.number == other.number,
        is_borrowed: its.stream().is_borrowed(),
    }
}

copy! { [T] GraphSlice<'_, T> }

debug_struct! {
    GraphMemory |its| {
        number: its.number, graph: its.order.graph(),
        address: format_args!("{:#x}", its.allocation.address()), ..
    }
}

debug_struct! {
    [T] GraphSlice<'_, T> |its| {
        memory: its.memory, start: its.start, len: its.len
    }
}

debug! {
    [T] GraphSliceMut<'_, T> |its, f| f.debug_tuple("GraphSliceMut").field(&its.whole).finish()
}

/// Implements what buffers and allocations of a graph have in common: their parts, and their uses as arguments
/// of kernels, sources and targets.
macro_rules! memory_of_graph {
    ($name:ident) => {
        impl<T> $name<T> {
            /// Returns the number of elements.
            pub fn len(&self) -> usize {
                self.len
            }

            /// Returns whether the memory has no elements.
            pub fn is_empty(&self) -> bool {
                self.len == 0
            }

            /// Returns the number of the memory, which error messages name. It is unique in the process.
            pub fn number(&self) -> u64 {
                self.memory.number()
            }

            /// Returns the device address, or 0 if there are no bytes. The memory of an allocation node exists
            /// there only within a launch, or while a launch keeps it.
            pub fn as_raw(&self) -> CUdeviceptr {
                self.memory.address()
            }

            /// Borrows the whole memory for nodes that read it.
            pub fn as_slice(&self) -> GraphSlice<'_, T> {
                GraphSlice::new(&self.memory, self.len)
            }

            /// Borrows the whole memory for nodes that write it.
            pub fn as_mut_slice(&mut self) -> GraphSliceMut<'_, T> {
                GraphSliceMut::new(&self.memory, self.len)
            }

            /// Borrows a part of the memory for nodes that read it.
            ///
            /// # Errors
            /// [`Invalid::Range`](crate::Invalid::Range) if the range is not within the memory.
            pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<GraphSlice<'_, T>> {
                self.as_slice().slice(range)
            }

            /// Borrows a part of the memory for nodes that write it.
            ///
            /// # Errors
            /// [`Invalid::Range`](crate::Invalid::Range) if the range is not within the memory.
            pub fn slice_mut(
                &mut self,
                range: impl RangeBounds<usize>,
            ) -> Result<GraphSliceMut<'_, T>> {
                self.as_mut_slice().slice(range)
            }
        }

        convert! {
            ['a, T] |memory: &'a $name<T>| -> GraphSlice<'a, T> { memory.as_slice() }
            ['a, T] |memory: &'a mut $name<T>| -> GraphSliceMut<'a, T> { memory.as_mut_slice() }
        }

        impl<T: 'static> NodeArgument<&[T]> for &$name<T> {
            fn bytes(self, index: usize, uses: &mut NodeUses<'_>) -> Result<CUdeviceptr> {
                self.as_slice().bytes(index, uses)
            }
        }

        impl<T: 'static> NodeArgument<&mut [T]> for &mut $name<T> {
            fn bytes(self, index: usize, uses: &mut NodeUses<'_>) -> Result<CUdeviceptr> {
                self.as_mut_slice().bytes(index, uses)
            }
        }

        impl<T> CopySource<T> for &$name<T> {
            fn part(&self) -> Part<'_, T> {
                Part::Slice(self.as_slice())
            }
        }

        impl<T> CopyTarget<T> for &mut $name<T> {
            fn part(&self) -> GraphSlice<'_, T> {
                self.as_slice()
            }
        }

        debug_struct! { [T] $name<T> |its| { memory: its.memory, len: its.len } }
    };
}

memory_of_graph!(GraphBuffer);
memory_of_graph!(GraphAllocation);
