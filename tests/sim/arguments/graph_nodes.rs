//! Changes and queries of the nodes of graphs.

use super::{Row, Stage, field, value};
use crate::prelude::*;
use cuda_safe::graph::{Node, NodeAttribute, node_attribute};
use cuda_safe::launch::{AccessPolicyWindow, MemoryDomainMap};

/// A kernel node in which every number is different.
const CONFIG: LaunchConfig = LaunchConfig::new([14, 2, 3], [4, 5, 6]).with_shared_bytes(768);

fn kernel(s: &Stage, graph: &mut Graph) -> Result<Node<kind::Kernel>> {
    let kernel = s.kernel.typed::<()>()?;
    // SAFETY: the kernel accesses nothing.
    unsafe { graph.add_kernel(&[], &s.context, &kernel, CONFIG, ()) }
}

fn parameters() -> Vec<Row> {
    vec![
        Row::of("cuGraphKernelNodeSetParams", |s| {
            let mut graph = Graph::new(&s.context)?;
            let node = kernel(s, &mut graph)?;
            let kernel = s.kernel.typed::<()>()?;
            let config = LaunchConfig::new([7, 8, 9], [1, 2, 3]).with_shared_bytes(256);
            // SAFETY: the kernel accesses nothing.
            unsafe { graph.set_kernel(node, &s.context, &kernel, config, ()) }
        })
        .calls("cuGraphKernelNodeSetParams_v2")
        .with(
            field("params", |its: &CUDA_KERNEL_NODE_PARAMS| {
                let grid = [its.gridDimX, its.gridDimY, its.gridDimZ];
                let block = [its.blockDimX, its.blockDimY, its.blockDimZ];
                (grid, block, its.sharedMemBytes)
            }),
            ([7, 8, 9], [1, 2, 3], 256),
        ),
        Row::of("cuGraphMemcpyNodeSetParams", |s| {
            let mut graph = Graph::new(&s.context)?;
            let mut a = graph.own(DeviceBuffer::<u8>::zeroed(&s.stream, 8)?)?;
            let b = graph.own(DeviceBuffer::<u8>::zeroed(&s.stream, 8)?)?;
            let c = graph.own(DeviceBuffer::<u8>::zeroed(&s.stream, 8)?)?;
            let node = graph.add_copy(&[], &mut a, &b)?;
            graph.set_copy(node, &mut a, &c)?;
            Ok((a.as_raw(), c.as_raw(), 8))
        })
        .calls("cuGraphMemcpyNodeSetParams")
        .with_told(field("copy", |its: &CUDA_MEMCPY3D| {
            (its.dstDevice, its.srcDevice, its.WidthInBytes)
        })),
        Row::of("cuGraphMemsetNodeSetParams", |s| {
            let mut graph = Graph::new(&s.context)?;
            let mut a = graph.own(DeviceBuffer::<u16>::zeroed(&s.stream, 8)?)?;
            let node = graph.add_fill(&[], &mut a, 1)?;
            graph.set_fill(node, &mut a, 9)?;
            Ok((a.as_raw(), 9, 2, 8))
        })
        .calls("cuGraphMemsetNodeSetParams")
        .with_told(field("params", |its: &CUDA_MEMSET_NODE_PARAMS| {
            (its.dst, its.value, its.elementSize, its.width)
        })),
        Row::call("cuGraphHostNodeSetParams", |s| {
            let mut graph = Graph::new(&s.context)?;
            let node = graph.add_host_function(&[], || ())?;
            graph.set_host_function(node, || ())
        }),
        Row::of("cuGraphEventRecordNodeSetEvent", |s| {
            let mut graph = Graph::new(&s.context)?;
            let node = graph.add_event_record(&[], &s.context.event()?)?;
            let event = s.context.event()?;
            graph.set_event_record(node, &event)?;
            Ok(event.as_raw())
        })
        .calls("cuGraphEventRecordNodeSetEvent")
        .with_told(value::<CUevent>("event")),
        Row::of("cuGraphEventWaitNodeSetEvent", |s| {
            let mut graph = Graph::new(&s.context)?;
            let node = graph.add_event_wait(&[], &s.context.event()?)?;
            let event = s.context.event()?;
            graph.set_event_wait(node, &event)?;
            Ok(event.as_raw())
        })
        .calls("cuGraphEventWaitNodeSetEvent")
        .with_told(value::<CUevent>("event")),
        Row::call("cuGraphEventRecordNodeGetEvent", |s| {
            let mut graph = Graph::new(&s.context)?;
            let node = graph.add_event_record(&[], &s.context.event()?)?;
            graph.raw_node_event(node)
        }),
        Row::call("cuGraphEventWaitNodeGetEvent", |s| {
            let mut graph = Graph::new(&s.context)?;
            let node = graph.add_event_wait(&[], &s.context.event()?)?;
            graph.raw_node_event(node)
        }),
        Row::call("cuGraphChildGraphNodeGetGraph", |s| {
            let mut graph = Graph::new(&s.context)?;
            let node = graph.add_child(&[], &mut Graph::new(&s.context)?)?;
            graph.child(node).map(drop)
        }),
    ]
}

/// A row for an attribute of a kernel node.
fn attribute<T: Copy + PartialEq + Debug + 'static>(attribute: NodeAttribute<T>, given: T) -> Row {
    let id = attribute.as_raw();
    Row::of("cuGraphKernelNodeSetAttribute", move |s| {
        let mut graph = Graph::new(&s.context)?;
        let node = kernel(s, &mut graph)?;
        // SAFETY: the kernel does nothing, whatever its attributes.
        unsafe { graph.set_kernel_attribute(node, attribute, given) }?;
        assert_eq!(graph.kernel_attribute(node, attribute)?, given);
        Ok(())
    })
    .calls("cuGraphKernelNodeSetAttribute")
    .with(value::<CUkernelNodeAttrID>("id"), id)
}

fn attributes() -> Vec<Row> {
    let window = AccessPolicyWindow {
        address: 0x4000,
        bytes: 320,
        hit_ratio: 0.5,
        hit: CUaccessProperty::CU_ACCESS_PROPERTY_PERSISTING,
        miss: CUaccessProperty::CU_ACCESS_PROPERTY_STREAMING,
    };
    let map = MemoryDomainMap { default: 3, remote: 2 };
    let spread = CUclusterSchedulingPolicy::CU_CLUSTER_SCHEDULING_POLICY_SPREAD;
    let remote = CUlaunchMemSyncDomain::CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE;
    type Mode = CUlaunchAttributePortableClusterMode;
    let portable = Mode::CU_LAUNCH_PORTABLE_CLUSTER_MODE_REQUIRE_PORTABLE;
    let shared = CUsharedMemoryMode::CU_SHARED_MEMORY_MODE_ALLOW_NON_PORTABLE;
    vec![
        attribute(node_attribute::ACCESS_POLICY, window),
        attribute(node_attribute::COOPERATIVE, true),
        attribute(node_attribute::CLUSTER, [7, 2, 1]),
        attribute(node_attribute::PREFERRED_CLUSTER, [7, 2, 3]),
        attribute(node_attribute::CLUSTER_SCHEDULING, spread),
        attribute(node_attribute::PORTABLE_CLUSTER_MODE, portable),
        attribute(node_attribute::PRIORITY, -2),
        attribute(node_attribute::MEMORY_DOMAIN, remote),
        attribute(node_attribute::MEMORY_DOMAIN_MAP, map),
        attribute(node_attribute::CARVEOUT, 40),
        attribute(node_attribute::SHARED_MEMORY_MODE, shared),
        attribute(node_attribute::NVLINK_CENTRIC, true),
        Row::of("CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE", |s| {
            let mut graph = Graph::new(&s.context)?;
            let node = kernel(s, &mut graph)?;
            // SAFETY: no kernel gets the handle.
            let handle = unsafe { graph.make_device_updatable(node) }?;
            assert_ne!(handle.as_raw(), 0);
            Ok(())
        })
        .calls("cuGraphKernelNodeSetAttribute")
        .with(
            field("value", |its: &CUkernelNodeAttrValue| {
                // SAFETY: the fields are numbers, for which any bits are valid.
                unsafe { its.deviceUpdatableKernelNode }.deviceUpdatable
            }),
            1,
        ),
        Row::call("cuGraphKernelNodeGetAttribute", |s| {
            let mut graph = Graph::new(&s.context)?;
            let node = kernel(s, &mut graph)?;
            graph.kernel_attribute(node, node_attribute::PRIORITY)
        }),
        Row::of("cuGraphKernelNodeCopyAttributes", |s| {
            let mut graph = Graph::new(&s.context)?;
            let (from, to) = (kernel(s, &mut graph)?, kernel(s, &mut graph)?);
            let priority = node_attribute::PRIORITY;
            // SAFETY: the kernel does nothing, whatever its attributes.
            unsafe { graph.set_kernel_attribute(from, priority, -2) }?;
            // SAFETY: as above.
            unsafe { graph.copy_kernel_attributes(from, to) }?;
            assert_eq!(graph.kernel_attribute(to, priority)?, -2);
            Ok(first_node(&graph))
        })
        .calls("cuGraphKernelNodeCopyAttributes")
        .with_told(value::<CUgraphNode>("from")),
    ]
}

/// Returns the raw handle of the first node.
fn first_node(graph: &Graph) -> CUgraphNode {
    let mut node = std::ptr::null_mut();
    let mut count = 1;
    let (place, room) = (&raw mut node, &raw mut count);
    // SAFETY: the graph is alive, and there is room for one node.
    let code = unsafe { cuGraphGetNodes(graph.as_raw(), place, room) };
    assert!(code.is_success());
    node
}

/// A graph with one memory operation, on a word that outlives it.
fn one_operation(
    s: &Stage,
) -> Result<(DeviceBuffer<u32>, Graph, Node<kind::MemoryOperations>, MemoryOperation)> {
    let word = DeviceBuffer::<u32>::zeroed_sync(&s.stream, 1)?;
    let write = |value| MemoryOperation::Write32 { address: word.as_raw(), value };
    let (first, second) = (write(5), write(6));
    let mut graph = Graph::new(&s.context)?;
    // SAFETY: the graph is not launched.
    let node = unsafe { graph.add_memory_operations(&[], &[first]) }?;
    Ok((word, graph, node, second))
}

fn operations() -> Vec<Row> {
    vec![
        Row::of("cuGraphAddBatchMemOpNode", |s| {
            one_operation(s)?;
            Ok((s.context.as_raw(), 1, 0))
        })
        .calls("cuGraphAddBatchMemOpNode")
        .with_told(field("params", |its: &CUDA_BATCH_MEM_OP_NODE_PARAMS| {
            (its.ctx, its.count, its.flags)
        })),
        Row::call("cuGraphBatchMemOpNodeGetParams", |s| {
            let (_word, graph, node, _) = one_operation(s)?;
            graph.memory_operations(node)
        }),
        Row::call("cuGraphBatchMemOpNodeSetParams", |s| {
            let (_word, mut graph, node, other) = one_operation(s)?;
            // SAFETY: the graph is not launched.
            unsafe { graph.set_memory_operations(node, &[other]) }?;
            assert_eq!(graph.memory_operations(node)?, [other]);
            Ok(())
        }),
        Row::call("cuGraphExecBatchMemOpNodeSetParams", |s| {
            let (_word, graph, node, other) = one_operation(s)?;
            let mut executable = graph.instantiate()?;
            let mut nodes = executable.nodes(&graph)?;
            // SAFETY: the graph is not launched.
            unsafe { nodes.set_memory_operations(node, &[other]) }
        }),
    ]
}

fn semaphores() -> Vec<Row> {
    vec![
        Row::call("cuGraphAddExternalSemaphoresSignalNode", |s| {
            // SAFETY: there is no semaphore, here and below.
            unsafe { Graph::new(&s.context)?.add_semaphore_signals(&[], &[]) }
        }),
        Row::call("cuGraphAddExternalSemaphoresWaitNode", |s| {
            // SAFETY: as above.
            unsafe { Graph::new(&s.context)?.add_semaphore_waits(&[], &[]) }
        }),
        signals("cuGraphExternalSemaphoresSignalNodeGetParams", |graph, node| {
            graph.semaphore_signals(node).map(drop)
        }),
        signals("cuGraphExternalSemaphoresSignalNodeSetParams", |graph, node| {
            // SAFETY: as above.
            unsafe { graph.set_semaphore_signals(node, &[]) }
        }),
        signals("cuGraphExecExternalSemaphoresSignalNodeSetParams", |graph, node| {
            let mut executable = graph.instantiate()?;
            let mut nodes = executable.nodes(graph)?;
            // SAFETY: as above.
            unsafe { nodes.set_semaphore_signals(node, &[]) }
        }),
        waits("cuGraphExternalSemaphoresWaitNodeGetParams", |graph, node| {
            graph.semaphore_waits(node).map(drop)
        }),
        waits("cuGraphExternalSemaphoresWaitNodeSetParams", |graph, node| {
            // SAFETY: as above.
            unsafe { graph.set_semaphore_waits(node, &[]) }
        }),
        waits("cuGraphExecExternalSemaphoresWaitNodeSetParams", |graph, node| {
            let mut executable = graph.instantiate()?;
            let mut nodes = executable.nodes(graph)?;
            // SAFETY: as above.
            unsafe { nodes.set_semaphore_waits(node, &[]) }
        }),
    ]
}

/// A row whose action uses a node that signals no semaphores.
fn signals(
    function: &'static str,
    act: impl Fn(&mut Graph, Node<kind::SemaphoreSignal>) -> Result<()> + 'static,
) -> Row {
    Row::call(function, move |s| {
        let mut graph = Graph::new(&s.context)?;
        // SAFETY: there is no semaphore.
        let node = unsafe { graph.add_semaphore_signals(&[], &[]) }?;
        act(&mut graph, node)
    })
}

/// A row whose action uses a node that waits for no semaphores.
fn waits(
    function: &'static str,
    act: impl Fn(&mut Graph, Node<kind::SemaphoreWait>) -> Result<()> + 'static,
) -> Row {
    Row::call(function, move |s| {
        let mut graph = Graph::new(&s.context)?;
        // SAFETY: there is no semaphore.
        let node = unsafe { graph.add_semaphore_waits(&[], &[]) }?;
        act(&mut graph, node)
    })
}

pub(super) fn rows() -> Vec<Row> {
    let mut rows = parameters();
    rows.extend(attributes());
    rows.extend(operations());
    rows.extend(semaphores());
    rows
}
