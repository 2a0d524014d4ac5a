//! Draws a graph: each node below the nodes that it comes after.

use crate::support::svg::{COLOURS, anchored, begin};
use cuda_safe::Graph;
use cuda_safe::Result;
use cuda_safe::graph::{EdgeKind, NodeId, NodeType, kind};
use cuda_safe::sys::CUgraphNodeType;
use std::collections::HashMap;
use std::fmt::Write;

const WIDTH: u32 = 170;
const HEIGHT: u32 = 44;
const COLUMN: u32 = WIDTH + 30;
const ROW: u32 = HEIGHT + 34;
const MARGIN: u32 = 20;

/// The center of the upper edge of a node.
type Place = (u32, u32);

pub(crate) fn svg(graph: &mut Graph) -> Result<String> {
    let (nodes, edges) = (graph.nodes()?, graph.edges()?);
    let pairs: Vec<_> = edges.iter().map(|edge| (edge.from, edge.to)).collect();
    let layers = layers(&nodes, &pairs);
    let columns = layers.iter().map(Vec::len).max().unwrap_or(0) as u32;
    let width = 2 * MARGIN + columns * COLUMN;
    let mut places: HashMap<NodeId, Place> = HashMap::new();
    for (layer, y) in layers.iter().zip((MARGIN..).step_by(ROW as usize)) {
        let left = (width - layer.len() as u32 * COLUMN) / 2 + COLUMN / 2;
        for (node, x) in layer.iter().zip((left..).step_by(COLUMN as usize)) {
            places.insert(*node, (x, y));
        }
    }
    let mut svg = begin(width, 2 * MARGIN + layers.len() as u32 * ROW);
    for edge in &edges {
        let is_full = edge.kind == EdgeKind::Full;
        arrow(&mut svg, places[&edge.from], places[&edge.to], is_full);
    }
    for (number, node) in nodes.iter().enumerate() {
        let title = format!("{number}: {}", graph.node_type(*node)?);
        let details = details(graph, *node)?;
        let colour = colour(graph.node_type(*node)?);
        boxed(&mut svg, places[node], colour, &title, &details);
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}

/// Returns the nodes in layers: each node in the first layer below all nodes that it comes after. Within a
/// layer, the nodes are ordered by the positions of those nodes.
fn layers(nodes: &[NodeId], edges: &[(NodeId, NodeId)]) -> Vec<Vec<NodeId>> {
    let before = |node| {
        let edges = edges.iter().filter(move |(_, to)| *to == node);
        edges.map(|(from, _)| *from)
    };
    let (mut layers, mut positions) = (Vec::new(), HashMap::<NodeId, f64>::new());
    let mut rest = nodes.to_vec();
    loop {
        let is_next = |node: &NodeId| before(*node).all(|its| positions.contains_key(&its));
        let (mut layer, later): (Vec<_>, Vec<_>) = rest.into_iter().partition(is_next);
        if layer.is_empty() {
            return layers;
        }
        let mean = |node: &NodeId| {
            let its: Vec<f64> = before(*node).map(|its| positions[&its]).collect();
            its.iter().sum::<f64>() / its.len().max(1) as f64
        };
        layer.sort_by(|one, other| mean(one).total_cmp(&mean(other)));
        for (index, node) in layer.iter().enumerate() {
            positions.insert(*node, (index as f64 + 0.5) / layer.len() as f64);
        }
        layers.push(layer);
        rest = later;
    }
}

/// Returns what the graph says about a node.
fn details(graph: &Graph, node: NodeId) -> Result<String> {
    if let Ok(kernel) = graph.typed::<kind::Kernel>(node) {
        let config = graph.kernel_config(kernel)?;
        let product = |sizes: [u32; 3]| sizes.iter().product::<u32>();
        let (blocks, threads) = (product(config.grid), product(config.block));
        return Ok(format!("{blocks} blocks of {threads} threads"));
    }
    if let Ok(fill) = graph.typed::<kind::Fill>(node) {
        let its = graph.fill_parameters(fill)?;
        let bytes = its.width * its.height * its.elementSize as usize;
        return Ok(format!("{bytes} bytes with {}", its.value));
    }
    if let Ok(copy) = graph.typed::<kind::Copy>(node) {
        let its = graph.copy_parameters(copy)?;
        return Ok(format!("{} bytes", its.WidthInBytes * its.Height * its.Depth));
    }
    Ok(String::new())
}

fn colour(node_type: NodeType) -> &'static str {
    match node_type.0 {
        CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL => COLOURS[0],
        CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMCPY => COLOURS[1],
        CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMSET => COLOURS[2],
        CUgraphNodeType::CU_GRAPH_NODE_TYPE_HOST => COLOURS[3],
        _ => COLOURS[4],
    }
}

fn boxed(svg: &mut String, (x, y): Place, colour: &str, title: &str, details: &str) {
    let left = x - WIDTH / 2;
    let _ = writeln!(
        svg,
        "<rect x=\"{left}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"6\" fill=\"white\" \
         stroke=\"{colour}\" stroke-width=\"2\"/>"
    );
    let base = if details.is_empty() { 27 } else { 19 };
    anchored(svg, x, y + base, 13, "middle", title);
    anchored(svg, x, y + 35, 11, "middle", details);
}

/// Draws an edge. One that is not full, whose target may start early, is dashed.
fn arrow(svg: &mut String, from: Place, to: Place, is_full: bool) {
    let ((x, y), (to_x, to_y)) = ((from.0, from.1 + HEIGHT), (to.0, to.1 - 6));
    let middle = u32::midpoint(y, to_y);
    let dashes = if is_full { "none" } else { "4 3" };
    let _ = writeln!(
        svg,
        "<path d=\"M{x} {y} C{x} {middle} {to_x} {middle} {to_x} {to_y}\" fill=\"none\" stroke=\"#888\" \
         stroke-width=\"1.5\" stroke-dasharray=\"{dashes}\"/>\n\
         <path d=\"M{} {to_y} h8 l-4 6 z\" fill=\"#888\"/>",
        to_x - 4
    );
}
