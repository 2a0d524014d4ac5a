//! The nodes of graphs: their types, parameters and edges.

use super::copy::CopyNode;
use super::fill::FillNode;
use crate::exec::{Call, Form, HostFunction, Work, note_given};
use crate::state::needs::Needs;
use core::ffi::c_void;
use core::sync::atomic::AtomicPtr;
use cuda_sys::{CUgraphNodeType as Type, CUhostFn, CUlaunchAttributeID};
use std::collections::BTreeMap;

/// The data of an edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Edge {
    pub(crate) from_port: u8,
    pub(crate) to_port: u8,
    pub(crate) kind: u8,
}

/// The nodes that a new node depends on, with the data of the edges.
pub(crate) type Dependencies = Vec<(usize, Edge)>;

pub(crate) struct Node {
    pub(crate) graph: usize,
    /// Its number in its graph.
    pub(crate) local: u32,
    pub(crate) kind: Kind,
    pub(crate) needs: Needs,
    /// The nodes that it depends on.
    pub(crate) after: BTreeMap<usize, Edge>,
    /// The nodes that depend on it.
    pub(crate) before: BTreeMap<usize, Edge>,
    /// Memory to which queries of the node's parameters return pointers.
    pub(crate) shown: Shown,
}

/// Memory of the driver that a query returned, valid until the next query of the same object.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    pub(crate) words: Vec<usize>,
    pub(crate) bytes: Vec<u8>,
    /// Pointers to the words and bytes. In memory, an atomic pointer is a pointer, and threads may share it.
    pub(crate) pointers: Vec<AtomicPtr<c_void>>,
}

/// The type of a node with its parameters.
#[derive(Clone)]
pub(crate) enum Kind {
    Kernel(Box<KernelNode>),
    Copy(Box<CopyNode>),
    Fill(Box<FillNode>),
    Host(HostNode),
    /// A child graph, by the handle of the embedded graph.
    Child(usize),
    Empty,
    Wait(usize),
    Record(usize),
    /// Signals of external semaphores.
    Signal(Box<SemaphoresNode>),
    /// Waits for external semaphores.
    Await(Box<SemaphoresNode>),
    Allocate(Box<AllocateNode>),
    Free(u64),
    Operations(Box<OperationsNode>),
    Conditional(Box<ConditionalNode>),
}

#[derive(Clone)]
pub(crate) struct KernelNode {
    pub(crate) call: Call,
    /// Whether the caller named the kernel as a `CUkernel`.
    pub(crate) is_library: bool,
    /// The context that the caller named.
    pub(crate) context: usize,
}

#[derive(Clone, Copy)]
pub(crate) struct HostNode {
    pub(crate) function: CUhostFn,
    /// The address of the data, which was exposed.
    pub(crate) data: usize,
    pub(crate) mode: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct AllocateNode {
    pub(crate) address: u64,
    pub(crate) size: usize,
    /// The type of the allocation, as the caller passed it.
    pub(crate) kind: u32,
    /// The location of the memory, and the devices that may access it: type, id and flags.
    pub(crate) location: (u32, i32),
    pub(crate) access: Vec<(u32, i32, u32)>,
}

#[derive(Clone)]
pub(crate) struct OperationsNode {
    pub(crate) context: usize,
    pub(crate) flags: u32,
    /// Each operation as work and as the caller described it.
    pub(crate) works: Vec<Work>,
    pub(crate) described: Vec<[u64; 6]>,
}

#[derive(Clone)]
pub(crate) struct SemaphoresNode {
    /// The semaphores, with their values and flags.
    pub(crate) list: Vec<(usize, u64, u32)>,
    pub(crate) works: Vec<Work>,
}

#[derive(Clone)]
pub(crate) struct ConditionalNode {
    pub(crate) handle: u64,
    pub(crate) form: Form,
    pub(crate) context: usize,
    pub(crate) bodies: Vec<usize>,
}

impl HostNode {
    pub(crate) fn new(function: CUhostFn, data: *mut c_void, mode: u32) -> Self {
        note_given(data);
        Self { function, data: data.expose_provenance(), mode }
    }

    pub(crate) fn data(&self) -> *mut c_void {
        core::ptr::with_exposed_provenance_mut(self.data)
    }

    pub(crate) fn work(&self) -> Work {
        Work::HostFn { function: HostFunction::Plain(self.function), data: self.data() }
    }
}

impl Kind {
    pub(crate) fn number(&self) -> Type {
        match self {
            Self::Kernel(_) => Type::CU_GRAPH_NODE_TYPE_KERNEL,
            Self::Copy(_) => Type::CU_GRAPH_NODE_TYPE_MEMCPY,
            Self::Fill(_) => Type::CU_GRAPH_NODE_TYPE_MEMSET,
            Self::Host(_) => Type::CU_GRAPH_NODE_TYPE_HOST,
            Self::Child(_) => Type::CU_GRAPH_NODE_TYPE_GRAPH,
            Self::Empty => Type::CU_GRAPH_NODE_TYPE_EMPTY,
            Self::Wait(_) => Type::CU_GRAPH_NODE_TYPE_WAIT_EVENT,
            Self::Record(_) => Type::CU_GRAPH_NODE_TYPE_EVENT_RECORD,
            Self::Signal(_) => Type::CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL,
            Self::Await(_) => Type::CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT,
            Self::Allocate(_) => Type::CU_GRAPH_NODE_TYPE_MEM_ALLOC,
            Self::Free(_) => Type::CU_GRAPH_NODE_TYPE_MEM_FREE,
            Self::Operations(_) => Type::CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
            Self::Conditional(_) => Type::CU_GRAPH_NODE_TYPE_CONDITIONAL,
        }
    }

    pub(crate) fn is_kernel(&self) -> bool {
        matches!(self, Self::Kernel(_))
    }

    /// Returns whether the node allocates or frees memory.
    pub(crate) fn is_memory(&self) -> bool {
        matches!(self, Self::Allocate(_) | Self::Free(_))
    }

    /// Returns whether device code may change the node.
    pub(crate) fn is_device_updatable(&self) -> bool {
        let id = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE;
        match self {
            Self::Kernel(its) => its.call.attributes.contains_key(&id.0),
            _ => false,
        }
    }

    /// Returns the operations of a node that has several of them.
    pub(crate) fn works(&self) -> &[Work] {
        match self {
            Self::Operations(its) => &its.works,
            Self::Signal(its) | Self::Await(its) => &its.works,
            _ => &[],
        }
    }

    /// Returns the graphs that the node owns.
    pub(crate) fn embedded(&self) -> &[usize] {
        match self {
            Self::Child(graph) => std::slice::from_ref(graph),
            Self::Conditional(its) => &its.bodies,
            _ => &[],
        }
    }

    /// Returns whether the node can be disabled (measured).
    pub(crate) fn can_be_disabled(&self) -> bool {
        matches!(self, Self::Kernel(_) | Self::Copy(_) | Self::Fill(_))
    }

    /// Returns the node that a capture makes of stream-ordered work, or `None` for work that cannot be
    /// captured. The parts of a 2-D or 3-D copy are not such work.
    pub(crate) fn of_work(work: Work) -> Option<Self> {
        Some(match work {
            Work::Kernel(call) => {
                Self::Kernel(Box::new(KernelNode { call: *call, is_library: false, context: 0 }))
            }
            Work::CopyInPinned { to, from, len } => {
                Self::Copy(Box::new(CopyNode::to_device(to, from, len, true)))
            }
            Work::CopyInHost { to, from, len } => {
                Self::Copy(Box::new(CopyNode::to_device(to, from, len, false)))
            }
            Work::CopyOut { from, to, len } => {
                Self::Copy(Box::new(CopyNode::to_host(to, from, len, true)))
            }
            Work::CopyOutHost { from, to, len } => {
                Self::Copy(Box::new(CopyNode::to_host(to, from, len, false)))
            }
            Work::CopyOnDevice { from, to, len } => {
                Self::Copy(Box::new(CopyNode::on_device(to, from, len)))
            }
            Work::Fill { at, pattern, count } => {
                Self::Fill(Box::new(FillNode::line(at, &pattern, count)))
            }
            Work::HostFn { function: HostFunction::Plain(function), data } => {
                Self::Host(HostNode::new(function, data, 0))
            }
            Work::Record { event } => Self::Record(event),
            Work::WaitFor { event } => Self::Wait(event),
            Work::Free(address) => Self::Free(address),
            work
            @ (Work::WriteValue { .. } | Work::WaitValue { .. } | Work::ReduceValue { .. }) => {
                Self::Operations(Box::new(OperationsNode::captured(vec![work])))
            }
            _ => return None,
        })
    }
}

impl OperationsNode {
    pub(crate) fn captured(works: Vec<Work>) -> Self {
        let described = works.iter().map(super::operations::describe).collect();
        Self { context: 0, flags: 0, works, described }
    }
}
