//! Graphs as text in the DOT language.

use crate::api::prelude::*;
use crate::state::graph::node::{Kind, Node};
use core::ffi::CStr;
use cuda_sys::CUgraphDebugDot_flags as Flags;
use std::fmt::Write;

/// Writes a graph to a file. The flags for verbose output and for handles add the handle of each node;
/// the others add nothing here.
pub(crate) fn print(
    world: &mut World,
    graph: CUgraph,
    path: *const c_char,
    flags: c_uint,
) -> Answer {
    world.graph(graph.addr())?;
    fail_if(path.is_null(), INVALID)?;
    // SAFETY: the caller passes a path that ends with a NUL.
    let path = unsafe { CStr::from_ptr(path) };
    let path = path.to_str().map_err(|_| INVALID)?;
    let detailed =
        Flags::CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE | Flags::CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES;
    let mut text = "digraph dot {\n".to_owned();
    add_graph(world, graph.addr(), flags & detailed.0 != 0, &mut text);
    text.push_str("}\n");
    std::fs::write(path, text).map_err(|_| CUresult::CUDA_ERROR_OPERATING_SYSTEM)
}

/// Adds a graph, followed by the graphs that its nodes own.
fn add_graph(world: &World, graph: usize, with_handles: bool, text: &mut String) {
    let Some(its) = world.objects.graphs.get(graph) else {
        return;
    };
    let name = format!("graph_{}", its.id);
    // Writing to a string does not fail.
    let _ = writeln!(text, "subgraph cluster_{} {{", its.id);
    let _ = writeln!(text, "label=\"{name}\" graph[style=\"dashed\"];");
    let nodes =
        || its.nodes.iter().filter_map(|node| Some((*node, world.objects.nodes.get(*node)?)));
    for (handle, node) in nodes() {
        let _ = write!(text, "\"{name}_node_{}\"[shape=\"record\" label=\"", node.local);
        let _ = write!(text, "{}\\n{}\\n", node.local, label(world, node));
        if with_handles {
            let _ = write!(text, "{handle:#x}\\n");
        }
        text.push_str("\"];\n");
    }
    for (_, node) in nodes() {
        for after in node.before.keys() {
            if let Some(after) = world.objects.nodes.get(*after) {
                let (from, to) = (node.local, after.local);
                let _ = writeln!(text, "\"{name}_node_{from}\" -> \"{name}_node_{to}\";");
            }
        }
    }
    text.push_str("}\n");
    for (_, node) in nodes() {
        for embedded in node.kind.embedded() {
            add_graph(world, *embedded, with_handles, text);
        }
    }
}

fn label(world: &World, node: &Node) -> String {
    let embedded = |graph: &usize| {
        let id = world.objects.graphs.get(*graph).map_or(0, |its| its.id);
        format!("graph_{id}")
    };
    match &node.kind {
        Kind::Kernel(its) => its.call.kernel.info.name.clone(),
        Kind::Copy(copy) => {
            let letter = |is_host| if is_host { 'H' } else { 'D' };
            let from = letter(copy.from.is_host(&world.objects.memory));
            let to = letter(copy.to.is_host(&world.objects.memory));
            let bytes: usize = copy.extent.iter().product();
            format!("MEMCPY\\n({from}to{to},{bytes})")
        }
        Kind::Fill(_) => "MEMSET".to_owned(),
        Kind::Host(_) => "HOST".to_owned(),
        Kind::Child(graph) => embedded(graph),
        Kind::Empty => "EMPTY".to_owned(),
        Kind::Wait(_) => "EVENT_WAIT".to_owned(),
        Kind::Record(_) => "EVENT_RECORD".to_owned(),
        Kind::Signal(_) => "EXT_SEMAS_SIGNAL".to_owned(),
        Kind::Await(_) => "EXT_SEMAS_WAIT".to_owned(),
        Kind::Allocate(_) => "MEM_ALLOC".to_owned(),
        Kind::Free(_) => "MEM_FREE".to_owned(),
        Kind::Operations(_) => "BATCH_MEM_OP".to_owned(),
        Kind::Conditional(its) => {
            let bodies: Vec<String> = its.bodies.iter().map(embedded).collect();
            format!("CONDITIONAL\\n{}", bodies.join("\\n"))
        }
    }
}
