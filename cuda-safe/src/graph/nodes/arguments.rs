//! The arguments of kernel nodes, and the memory that a node uses.

use crate::call::{Invalid, Result, debug_struct, refuse_if};
use crate::capture_state::Retain;
use crate::context::Context;
use crate::event::Event;
use crate::graph::kind::Kind;
use crate::graph::memory::buffer::NodeMemory;
use crate::graph::memory::{GraphSlice, GraphSliceMut};
use crate::graph::rules::access::Access;
use crate::graph::rules::owners::{ContentRef, Slots};
use crate::graph::{Content, Lifetime, Retained};
use crate::launch::{KernelValue, Param, Params, Value, pointer, tuples};
use crate::memory::SharedBuffer;
use crate::stream::same_context;
use core::ffi::c_void;
use cuda_sys::{CUdeviceptr, CUtensorMap};
use std::ops::Range;
use std::sync::Arc;

/// An argument that can be passed to a kernel node for a parameter of type `P`. This trait is sealed,
/// because the node trusts the bytes and the accesses that the argument declares.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be passed to a kernel node for a parameter of type `{P}`",
    label = "not an argument of type `{P}`",
    note = "a parameter `&[T]` takes `&GraphBuffer<T>`, `&GraphAllocation<T>` or `&SharedBuffer<T>`, and a parameter `&mut [T]` takes `&mut GraphBuffer<T>` or `&mut GraphAllocation<T>`"
)]
pub trait NodeArgument<P: Param> {
    /// Returns the bytes of the argument and declares the access.
    #[doc(hidden)]
    fn bytes(self, index: usize, uses: &mut NodeUses<'_>) -> Result<P::Bytes>;
}

/// The arguments that can be passed to a kernel node for the parameters `P`: a tuple with one
/// [`NodeArgument`] per parameter. This trait is sealed.
#[diagnostic::on_unimplemented(
    message = "the arguments `{Self}` do not match the kernel parameters `{P}`",
    label = "not arguments for `{P}`",
    note = "pass a tuple with one argument for each parameter; one argument is a tuple with a comma: `(x,)`"
)]
pub trait NodeArguments<P: Params> {
    /// Checks the arguments, and calls `add` with pointers to their bytes.
    #[doc(hidden)]
    fn with_pointers<'a, R>(
        self,
        uses: &mut NodeUses<'a>,
        add: impl FnOnce(&mut [*mut c_void], &mut NodeUses<'a>) -> Result<R>,
    ) -> Result<R>;
}

/// The memory that a node uses. Other crates cannot name this type, so they cannot implement a method
/// that takes it.
pub struct NodeUses<'a> {
    /// The context in which the memory is used.
    context: &'a Context,
    /// The node that changes, while its uses so far are those from before.
    unchanged: Option<Unchanged<'a>>,
    content: &'a mut Content,
    /// The number of the graph that owns the memory.
    graph: Option<u64>,
    /// The numbers of further graphs that own memory, such as moved child graphs.
    other_graphs: Vec<u64>,
    /// The number of the graph that the conditional handles belong to.
    graph_of_handles: Option<u64>,
}

/// The content of a node that changes, and how many of its accesses are known to stay.
#[derive(Clone, Copy)]
struct Unchanged<'a> {
    content: ContentRef<'a>,
    accesses: usize,
}

debug_struct! { NodeUses<'_> |its| { context: its.context, .. } }

impl<'a> NodeUses<'a> {
    /// Returns the uses of a node, which are collected in `content`.
    #[inline]
    pub(crate) fn new(context: &'a Context, content: &'a mut Content) -> Self {
        Self {
            context,
            unchanged: None,
            content,
            graph: None,
            other_graphs: Vec::new(),
            graph_of_handles: None,
        }
    }

    /// Returns the uses of a node that has the content `before` before a change. While they stay the same,
    /// nothing is collected.
    #[inline]
    pub(crate) fn of_change(
        context: &'a Context,
        before: ContentRef<'a>,
        content: &'a mut Content,
    ) -> Self {
        // Other content has owners that are not those of its accesses, in their order.
        let is_usual = before.after.is_empty();
        let unchanged = is_usual.then_some(Unchanged { content: before, accesses: 0 });
        Self { unchanged, ..Self::new(context, content) }
    }

    /// Adds a use of memory that belongs to a graph.
    ///
    /// # Errors
    /// [`Invalid::OtherContext`].
    #[inline]
    pub(crate) fn add(
        &mut self,
        memory: &dyn NodeMemory,
        bytes: Range<usize>,
        writes: bool,
        lifetime: Lifetime,
    ) -> Result<()> {
        // Memory of the host belongs to all contexts.
        if memory.host_address().is_none() {
            same_context("the buffer", memory.context(), self.context)?;
        }
        let access = Access { buffer: memory.number(), bytes, writes, lifetime };
        if let Some(unchanged) = &mut self.unchanged {
            if unchanged.content.accesses.get(unchanged.accesses) == Some(&access) {
                unchanged.accesses += 1;
                return Ok(());
            }
            self.diverge();
        }
        let graph = memory.graph();
        if *self.graph.get_or_insert(graph) != graph {
            self.other_graphs.push(graph);
        }
        self.content.accesses.push(access);
        self.content.owners.push(Retained::Object(memory.kept()));
        Ok(())
    }

    /// Collects the uses so far, because the node will differ from before. Its graphs are known to own that
    /// memory.
    #[inline]
    fn diverge(&mut self) {
        if let Some(Unchanged { content, accesses }) = self.unchanged.take() {
            // Each access had the owner at the same index.
            self.content.owners.extend_from_slice(&content.owners[..accesses]);
            self.content.accesses.extend_from_slice(&content.accesses[..accesses]);
        }
    }

    /// Returns the objects that the node needs in addition to its memory, if all its uses are those from
    /// before.
    #[inline]
    pub(crate) fn other_owners(&self) -> Option<&'a [Retained]> {
        let Unchanged { content, accesses } = self.unchanged?;
        let is_same = accesses == content.accesses.len()
            // The handle must belong to the graph.
            && self.graph_of_handles.is_none();
        is_same.then(|| content.owners.get(accesses..))?
    }

    /// Adds a use of memory that is only read, and that was written before the event.
    ///
    /// # Errors
    /// [`Invalid::OtherContext`].
    pub(crate) fn add_shared<T>(&mut self, buffer: &SharedBuffer<T>) -> Result<()> {
        let (memory, written) = buffer.retained();
        self.retain("the shared buffer", memory, buffer.stream().context(), written)
    }

    /// Adds an object that a launch of the node uses after the event.
    ///
    /// # Errors
    /// [`Invalid::OtherContext`] if the object, which is called `what`, belongs to another context.
    #[inline]
    pub(crate) fn retain(
        &mut self,
        what: &'static str,
        object: Arc<dyn Retain>,
        context: &Context,
        after: &Event,
    ) -> Result<()> {
        same_context(what, context, self.context)?;
        self.diverge();
        self.content.owners.push(Retained::Object(object));
        self.content.after.push(after.clone());
        Ok(())
    }

    /// Adds a conditional handle that belongs to this graph.
    ///
    /// # Errors
    /// [`Invalid::ConditionalHandleOfOtherGraph`] if another argument belongs to another graph.
    #[inline]
    pub(crate) fn add_handle(&mut self, handle: u64) -> Result<()> {
        match self.graph_of_handles.replace(handle) {
            Some(graph) if graph != handle => {
                Err(Invalid::ConditionalHandleOfOtherGraph { handle, graph }.into())
            }
            _ => Ok(()),
        }
    }

    /// Returns the content of a node of the graph `slots` with these uses and further objects.
    ///
    /// # Errors
    /// [`Invalid::BufferOfOtherGraph`]; [`Invalid::ConditionalHandleOfOtherGraph`].
    #[inline]
    pub(crate) fn complete<K: Kind>(
        &mut self,
        slots: &Slots,
        owners: impl IntoIterator<Item = Retained>,
    ) -> Result<&mut Content> {
        self.diverge();
        for graph in self.graph.iter().chain(&self.other_graphs) {
            if !slots.orders.iter().any(|order| order.graph() == *graph) {
                let (buffer, graph) = (*graph, slots.number());
                return Err(Invalid::BufferOfOtherGraph { buffer, graph }.into());
            }
        }
        if let Some(handle) = self.graph_of_handles {
            let graph = slots.root();
            refuse_if!(handle != graph, Invalid::ConditionalHandleOfOtherGraph { handle, graph });
        }
        self.content.node_type = K::TYPE;
        self.content.owners.extend(owners);
        Ok(self.content)
    }
}

impl<T: KernelValue> NodeArgument<Self> for Value<T> {
    #[inline]
    fn bytes(self, _: usize, _: &mut NodeUses<'_>) -> Result<T> {
        Ok(self.0)
    }
}

macro_rules! by_value {
    ($($ty:ty)*) => {$(
        impl NodeArgument<Self> for $ty {
            #[inline]
            fn bytes(self, _: usize, _: &mut NodeUses<'_>) -> Result<Self> {
                Ok(self)
            }
        }
    )*};
}

by_value!(bool u8 i8 u16 i16 u32 i32 u64 i64 usize isize f32 f64 CUtensorMap);

/// Implements the trait for one list of parameters.
macro_rules! tuple {
    ($(($param:ident $given:ident $value:ident $index:tt))*) => {
        impl<$($param: Param, $given: NodeArgument<$param>),*> NodeArguments<($($param,)*)>
            for ($($given,)*)
        {
            #[allow(unused_mut, reason = "a kernel may have no parameters")]
            fn with_pointers<'a, Output>(
                self,
                uses: &mut NodeUses<'a>,
                add: impl FnOnce(&mut [*mut c_void], &mut NodeUses<'a>) -> Result<Output>,
            ) -> Result<Output> {
                $(let $value = self.$index.bytes($index, uses)?;)*
                add(&mut [$(pointer(&$value)),*], uses)
            }
        }
    };
}

tuples!(tuple);

impl<T: 'static> NodeArgument<&[T]> for GraphSlice<'_, T> {
    fn bytes(self, _: usize, uses: &mut NodeUses<'_>) -> Result<CUdeviceptr> {
        self.declare(0..self.len(), false, uses)?;
        Ok(self.address())
    }
}

impl<T: 'static> NodeArgument<&mut [T]> for GraphSliceMut<'_, T> {
    fn bytes(self, _: usize, uses: &mut NodeUses<'_>) -> Result<CUdeviceptr> {
        let whole = self.into_whole();
        whole.declare(0..whole.len(), true, uses)?;
        Ok(whole.address())
    }
}

impl<T: 'static> NodeArgument<&[T]> for &SharedBuffer<T> {
    fn bytes(self, _: usize, uses: &mut NodeUses<'_>) -> Result<CUdeviceptr> {
        uses.add_shared(self)?;
        Ok(self.address())
    }
}
