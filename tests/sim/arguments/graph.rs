//! Graphs: nodes, edges, instantiation and updates.

use super::{On, Row, Stage, field, value};
use crate::prelude::*;
use cuda_safe::graph::GraphAllocation;
use cuda_safe::graph::{EdgeKind, Node};

/// A graph with a node of each kind, and what its nodes use.
struct All {
    graph: Graph,
    buffer: GraphBuffer<u8>,
    other: GraphBuffer<u8>,
    kernel: Node<kind::Kernel>,
    copy: Node<kind::Copy>,
    fill: Node<kind::Fill>,
    host: Node<kind::HostFunction>,
    record: Node<kind::EventRecord>,
    wait: Node<kind::EventWait>,
    child: Node<kind::Child>,
    empty: Node<kind::Empty>,
}

const ONE: LaunchConfig = LaunchConfig::linear(1, 1);

fn all(s: &Stage) -> Result<All> {
    let mut graph = Graph::new(&s.context)?;
    let mut buffer = graph.own(DeviceBuffer::zeroed(&s.stream, 8)?)?;
    let other = graph.own(DeviceBuffer::zeroed(&s.stream, 8)?)?;
    let event = s.context.event()?;
    let typed = s.kernel.typed::<()>()?;
    // SAFETY: the kernel accesses nothing.
    let kernel = unsafe { graph.add_kernel(&[], &s.context, &typed, ONE, ()) }?;
    let copy = graph.add_copy(&[], &mut buffer, &other)?;
    let fill = graph.add_fill(&[copy.id()], &mut buffer, 1)?;
    Ok(All {
        host: graph.add_host_function(&[], || ())?,
        record: graph.add_event_record(&[], &event)?,
        wait: graph.add_event_wait(&[], &event)?,
        child: graph.add_child(&[], &mut Graph::new(&s.context)?)?,
        empty: graph.add_empty(&[kernel.id()])?,
        graph,
        buffer,
        other,
        kernel,
        copy,
        fill,
    })
}

/// Returns a row whose action uses a graph with a node of each kind.
fn with(function: &'static str, act: impl Fn(&Stage, &mut All) -> Result<()> + 'static) -> Row {
    Row::call(function, move |s| act(s, &mut all(s)?))
}

/// Returns a row whose action also uses its executable graph.
fn changed(
    function: &'static str,
    act: impl Fn(&Stage, &mut All, &mut ExecutableGraph) -> Result<()> + 'static,
) -> Row {
    with(function, move |s, its| {
        let mut executable = its.graph.instantiate()?;
        act(s, its, &mut executable)
    })
}

fn flags() -> Vec<Row> {
    let row = |flag: &str, value: u64, options: InstantiateOptions<'static>| {
        Row::of(
            &format!("CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_{flag}"),
            move |s| {
                let upload = (value == 2).then_some(&s.stream);
                let options = InstantiateOptions { upload, ..options };
                Graph::new(&s.context)?.instantiate_with(&options)
            },
        )
        .calls("cuGraphInstantiateWithParams")
        .with(field("params", |its: &CUDA_GRAPH_INSTANTIATE_PARAMS| its.flags), value)
    };
    let none = InstantiateOptions::default();
    vec![
        row("AUTO_FREE_ON_LAUNCH", 1, InstantiateOptions { auto_free_on_launch: true, ..none }),
        row("UPLOAD", 2, none),
        row("DEVICE_LAUNCH", 4, InstantiateOptions { device_launch: true, ..none }),
        row("USE_NODE_PRIORITY", 8, InstantiateOptions { use_node_priority: true, ..none }),
    ]
}

/// Adds an allocation with these access rights.
fn add_alloc(
    all: &mut All,
    access: &[(Device, MemoryAccess)],
) -> Result<(Node<kind::Alloc>, GraphAllocation<u8>)> {
    let options = AllocOptions { access, ..AllocOptions::default() };
    all.graph.add_alloc(&[], 8, &options)
}

fn memory() -> Vec<Row> {
    type Parameters = CUDA_MEM_ALLOC_NODE_PARAMS_v1;
    let access = Row::of("CUDA_MEM_ALLOC_NODE_PARAMS_v1::accessDescs", |s| {
        let access = [(s.device, MemoryAccess::ReadWrite)];
        add_alloc(&mut all(s)?, &access)
    })
    .calls("cuGraphAddMemAllocNode")
    .with(field("params", |its: &Parameters| its.accessDescCount), 1usize);
    let size = Row::of("CUDA_MEM_ALLOC_NODE_PARAMS_v1::bytesize", |s| add_alloc(&mut all(s)?, &[]))
        .calls("cuGraphAddMemAllocNode")
        .with(field("params", |its: &Parameters| its.bytesize), 8usize);
    vec![access, size]
}

fn usage() -> Vec<Row> {
    vec![
        Row::call("cuDeviceGetGraphMemAttribute", |s| s.device.graph_memory()),
        Row::call("cuDeviceSetGraphMemAttribute", |s| s.device.reset_graph_memory_high()),
        Row::call("cuDeviceGraphMemTrim", |s| s.device.trim_graph_memory()),
    ]
}

fn edges() -> impl Iterator<Item = Row> {
    let type_ = "CUgraphDependencyType::CU_GRAPH_DEPENDENCY_TYPE";
    let rows = [
        (format!("{type_}_DEFAULT"), EdgeKind::Full, (0, 0)),
        (format!("{type_}_PROGRAMMATIC"), EdgeKind::Programmatic, (1, 1)),
        ("CUgraphEdgeData::from_port".to_owned(), EdgeKind::LaunchOrder, (2, 0)),
        ("CUgraphEdgeData::type_".to_owned(), EdgeKind::ProgrammaticLaunchOrder, (2, 1)),
    ];
    rows.into_iter().map(|(name, kind, value)| {
        Row::of(&name, move |s| {
            let mut graph = Graph::new(&s.context)?;
            let kernel = s.kernel.typed::<()>()?;
            // SAFETY: the kernel accesses nothing.
            let from = unsafe { graph.add_kernel(&[], &s.context, &kernel, ONE, ()) }?;
            // SAFETY: as above.
            let to = unsafe { graph.add_kernel(&[], &s.context, &kernel, ONE, ()) }?;
            graph.add_dependency_with(from, to, kind)
        })
        .calls("cuGraphAddDependencies_v2")
        .with(field("edges", |its: &CUgraphEdgeData| (its.from_port, its.type_)), value)
    })
}

fn conditionals() -> Vec<Row> {
    type Add = fn(&mut Graph, ConditionalHandle) -> Result<Node<kind::Conditional>>;
    let row = |name: &str, add: Add, value: (u32, u32)| {
        Row::of(name, move |s| {
            let mut graph = Graph::new(&s.context)?;
            let handle = graph.conditional_handle(&s.context, None)?;
            add(&mut graph, handle)
        })
        .calls("cuGraphAddNode_v2")
        .with(
            field("params", |its: &CUgraphNodeParams| {
                // SAFETY: the row adds a conditional node, whose parameters are in this field.
                let its = unsafe { its.__bindgen_anon_1.conditional };
                (its.type_.0, its.size)
            }),
            value,
        )
    };
    let type_ = |name: &str| format!("CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_{name}");
    vec![
        row(&type_("IF"), |graph, handle| graph.add_if(&[], handle, |_| Ok(())), (0, 1)),
        row(
            "cuGraphAddNode_v2",
            |graph, handle| graph.add_if_else(&[], handle, |_| Ok(()), |_| Ok(())),
            (0, 2),
        ),
        row(&type_("WHILE"), |graph, handle| graph.add_while(&[], handle, |_| Ok(())), (1, 1)),
        row(
            &type_("SWITCH"),
            |graph, handle| graph.add_switch(&[], handle, 3, |_, _| Ok(())),
            (2, 3),
        ),
        Row::of("cuGraphConditionalHandleCreate.defaultLaunchValue", |s| {
            let mut graph = Graph::new(&s.context)?;
            graph.conditional_handle(&s.context, Some(5))
        })
        .calls("cuGraphConditionalHandleCreate")
        .with(|call| Some((value::<u32>("default")(call)?, value::<u32>("flags")(call)?)), (5, 1)),
        Row::of("cuGraphConditionalHandleCreate", |s| {
            let mut graph = Graph::new(&s.context)?;
            graph.conditional_handle(&s.context, None)
        })
        .calls("cuGraphConditionalHandleCreate")
        .with(value("flags"), 0u32),
    ]
}

fn built() -> Vec<Row> {
    let mut rows: Vec<Row> = [
        "cuGraphCreate",
        "cuGraphAddKernelNode_v2",
        "cuGraphAddMemcpyNode",
        "cuGraphAddMemsetNode",
        "cuGraphAddHostNode",
        "cuGraphAddEventRecordNode",
        "cuGraphAddEventWaitNode",
        "cuGraphAddChildGraphNode",
        "cuGraphAddEmptyNode",
    ]
    .into_iter()
    .map(|function| with(function, |_, _| Ok(())))
    .collect();
    rows.extend([
        Row::call("cuGraphAddNode_v2", |s| {
            let child = Graph::new(&s.context)?;
            Graph::new(&s.context)?.add_child_moved(&[], child)
        }),
        with("cuGraphRemoveDependencies_v2", |_, its| {
            its.graph.remove_dependency(its.kernel, its.empty)
        }),
        with("cuGraphDestroyNode", |_, its| its.graph.remove(its.empty)),
        Row::call("cuGraphClone", |s| Graph::new(&s.context)?.try_clone()),
        Row::call("cuGraphNodeFindInClone", |s| {
            let mut graph = Graph::new(&s.context)?;
            let node = graph.add_empty(&[])?;
            graph.try_clone()?.node_in_clone(node)
        }),
        Row::call("cuGraphInstantiateWithFlags", |s| Graph::new(&s.context)?.instantiate())
            .on(On::Oldest),
        with("cuGraphGetNodes", |_, its| its.graph.nodes().map(drop)),
        with("cuGraphGetRootNodes", |_, its| its.graph.roots().map(drop)),
        with("cuGraphGetEdges_v2", |_, its| its.graph.edges().map(drop)),
        with("cuGraphNodeGetDependencies_v2", |_, its| its.graph.dependencies(its.fill).map(drop)),
        with("cuGraphNodeGetDependentNodes_v2", |_, its| its.graph.dependents(its.copy).map(drop)),
        with("cuGraphKernelNodeGetParams_v2", |_, its| {
            its.graph.kernel_config(its.kernel).map(drop)
        }),
        with("cuGraphMemcpyNodeGetParams", |_, its| its.graph.copy_parameters(its.copy).map(drop)),
        with("cuGraphMemsetNodeGetParams", |_, its| its.graph.fill_parameters(its.fill).map(drop)),
        with("cuGraphGetId", |_, its| its.graph.tools_id().map(drop)),
        with("cuGraphNodeGetLocalId", |_, its| its.graph.node_local_id(its.fill).map(drop)),
        with("cuGraphNodeGetToolsId", |_, its| its.graph.node_tools_id(its.fill).map(drop)),
        with("cuGraphAddMemAllocNode", |_, its| add_alloc(its, &[]).map(drop)),
        with("cuGraphAddMemFreeNode", |_, its| {
            let (node, mut memory) = add_alloc(its, &[])?;
            its.graph.add_free(&[node.id()], &mut memory).map(drop)
        }),
        with("cuGraphMemAllocNodeGetParams", |_, its| {
            let (node, _) = add_alloc(its, &[])?;
            its.graph.alloc_parameters(node).map(drop)
        }),
        with("cuGraphMemFreeNodeGetParams", |_, its| {
            let (node, mut memory) = add_alloc(its, &[])?;
            let free = its.graph.add_free(&[node.id()], &mut memory)?;
            its.graph.free_parameters(free).map(drop)
        }),
        with("cuGraphDebugDotPrint", |_, its| {
            let file = crate::common::scratch().join("a folder that does not exist/graph.dot");
            its.graph.write_dot(&file, CUgraphDebugDot_flags(0))
        })
        .refused(),
    ]);
    rows
}

fn changes() -> Vec<Row> {
    vec![
        changed("cuGraphExecGetFlags", |_, _, its| its.flags().map(drop)),
        changed("cuGraphExecGetId", |_, _, its| its.tools_id().map(drop)),
        changed("cuGraphUpload", |s, _, its| its.upload(&s.stream)),
        changed("cuGraphExecUpdate_v2", |_, all, its| its.update(&all.graph)),
        changed("cuGraphExecKernelNodeSetParams_v2", |s, all, its| {
            let kernel = s.kernel.typed::<()>()?;
            let mut nodes = its.nodes(&all.graph)?;
            // SAFETY: the kernel accesses nothing.
            unsafe { nodes.set_kernel(all.kernel, &s.context, &kernel, ONE, ()) }
        }),
        changed("cuGraphExecMemcpyNodeSetParams", |_, all, its| {
            let mut nodes = its.nodes(&all.graph)?;
            nodes.set_copy(all.copy, &mut all.buffer, &all.other)
        }),
        changed("cuGraphExecMemsetNodeSetParams", |_, all, its| {
            let mut nodes = its.nodes(&all.graph)?;
            nodes.set_fill(all.fill, &mut all.buffer, 2)
        }),
        changed("cuGraphExecHostNodeSetParams", |_, all, its| {
            its.nodes(&all.graph)?.set_host_function(all.host, || ())
        }),
        changed("cuGraphExecEventRecordNodeSetEvent", |s, all, its| {
            its.nodes(&all.graph)?.set_event_record(all.record, &s.context.event()?)
        }),
        changed("cuGraphExecEventWaitNodeSetEvent", |s, all, its| {
            its.nodes(&all.graph)?.set_event_wait(all.wait, &s.context.event()?)
        }),
        changed("cuGraphExecChildGraphNodeSetParams", |s, all, its| {
            let child = Graph::new(&s.context)?;
            its.nodes(&all.graph)?.set_child(all.child, &child)
        }),
        changed("cuGraphNodeSetEnabled", |_, all, its| {
            its.nodes(&all.graph)?.set_enabled(all.fill, false)
        }),
        changed("cuGraphNodeGetEnabled", |_, all, its| {
            its.nodes(&all.graph)?.is_enabled(all.fill).map(drop)
        }),
    ]
}

pub(super) fn rows() -> Vec<Row> {
    let mut rows = flags();
    rows.extend(edges());
    rows.extend(memory());
    rows.extend(usage());
    rows.extend(conditionals());
    rows.extend(built());
    rows.extend(changes());
    rows
}
