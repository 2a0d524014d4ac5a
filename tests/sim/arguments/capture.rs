//! Captures into graphs, their dependencies, recaptures, and captures into graphics commands.

use super::{On, Row, Stage, field, value};
use crate::prelude::*;
use cuda_safe::capture::{Capture, GraphicsCommands};
use cuda_safe::graph::EdgeKind;

const MODE: CaptureMode = CaptureMode::Relaxed;
const COMMANDS: usize = 0x2000;

fn begun(s: &Stage) -> Result<Capture> {
    let mut graph = Graph::new(&s.context)?;
    let node = graph.add_empty(&[])?;
    s.stream.begin_capture_into(graph, &[node.id()], MODE)
}

/// Begins a capture, and changes its dependencies to the nodes so far with `change`.
fn changed(
    s: &Stage,
    capture: Capture,
    change: impl Fn(&mut Capture, &[cuda_safe::graph::CaptureDependency]) -> Result<()>,
) -> Result<()> {
    let mut capture = capture;
    s.stream.capture_host_function(|| ())?;
    // SAFETY: no other thread uses the stream.
    let dependencies = unsafe { capture.dependencies() }?;
    assert_eq!(dependencies[0].1, EdgeKind::Full);
    change(&mut capture, &dependencies)
}

fn dependencies() -> Vec<Row> {
    let flags = |name: &str| {
        format!("CUstreamUpdateCaptureDependencies_flags::CU_STREAM_{name}_CAPTURE_DEPENDENCIES")
    };
    let function = "cuStreamUpdateCaptureDependencies_v2";
    let set = CUstreamUpdateCaptureDependencies_flags::CU_STREAM_SET_CAPTURE_DEPENDENCIES;
    let add = CUstreamUpdateCaptureDependencies_flags::CU_STREAM_ADD_CAPTURE_DEPENDENCIES;
    let sets = |s: &Stage| changed(s, begun(s)?, |its, nodes| its.set_dependencies(nodes));
    let adds = |s: &Stage| changed(s, begun(s)?, |its, nodes| its.add_dependencies(nodes));
    let older = |s: &Stage| {
        let capture = s.stream.begin_capture(MODE)?;
        changed(s, capture, |its, nodes| its.set_dependencies(nodes))
    };
    vec![
        Row::new(&flags("SET"), sets, function, value("flags"), set.0),
        Row::new(&flags("ADD"), adds, function, value("flags"), add.0),
        Row::new(function, sets, function, field("edges", |its: &CUgraphEdgeData| its.type_), 0_u8),
        Row::call("cuStreamUpdateCaptureDependencies", older).on(On::Oldest),
    ]
}

fn begins() -> Vec<Row> {
    let relaxed = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    let mode = || value("mode");
    vec![
        Row::of("cuStreamBeginCaptureToGraph", |s| begun(s)?.end())
            .calls("cuStreamBeginCaptureToGraph")
            .with(mode(), relaxed),
        Row::of("cuStreamBeginCaptureToGraph", |s| begun(s)?.end_with_nodes())
            .calls("cuStreamBeginCaptureToGraph")
            .with(value("count"), 1_usize),
        Row::of("cuStreamBeginRecaptureToGraph", |s| {
            let graph = Graph::new(&s.context)?;
            s.stream.begin_recapture(graph, MODE)?.end()
        })
        .calls("cuStreamBeginRecaptureToGraph")
        .with(mode(), relaxed),
    ]
}

fn to_graphics(s: &Stage, commands: fn(*mut c_void) -> GraphicsCommands) -> Result<()> {
    let commands = commands(without_provenance_mut(COMMANDS));
    // SAFETY: the software driver has no graphics clients and refuses every call.
    unsafe { s.stream.begin_capture_to_graphics(commands) }.map(drop)
}

fn graphics() -> Vec<Row> {
    let list = |s: &Stage| to_graphics(s, GraphicsCommands::D3d12CommandList);
    let buffer = |s: &Stage| to_graphics(s, GraphicsCommands::VulkanCommandBuffer);
    let cig = "params.streamCigParams";
    let kind = || field(cig, |its: &CUstreamCigParam| its.streamSharedDataType);
    let data = || field(cig, |its: &CUstreamCigParam| its.streamSharedData.addr());
    let d3d12 = CUstreamCigDataType::STREAM_CIG_DATA_TYPE_D3D12_COMMAND_LIST;
    let vulkan = CUstreamCigDataType::STREAM_CIG_DATA_TYPE_VULKAN_COMMAND_BUFFER_HANDLE_NV;
    let name = |kind: &str| format!("CUstreamCigDataType::STREAM_CIG_DATA_TYPE_{kind}");
    let (d3d12_name, vulkan_name) =
        (name("D3D12_COMMAND_LIST"), name("VULKAN_COMMAND_BUFFER_HANDLE_NV"));
    let function = "cuStreamBeginCaptureToCig";
    let is_given = |its: &CUstreamCigCaptureParams| !its.streamCigParams.is_null();
    let params = "CUstreamCigCaptureParams::streamCigParams";
    vec![
        Row::new(&d3d12_name, list, function, kind(), d3d12).refused(),
        Row::new(&vulkan_name, buffer, function, kind(), vulkan).refused(),
        Row::new("CUstreamCigParam::streamSharedDataType", buffer, function, kind(), vulkan)
            .refused(),
        Row::new("CUstreamCigParam::streamSharedData", list, function, data(), COMMANDS).refused(),
        Row::new(params, list, function, field("params", is_given), true).refused(),
    ]
}

pub(super) fn rows() -> Vec<Row> {
    let mut rows = begins();
    rows.extend(dependencies());
    rows.extend(graphics());
    rows
}
