//! Kernels that launch graphs. The software driver plays this in `tests/sim/graph/late.rs`.

use crate::common;
use crate::dynamic::image;
use crate::or_skip;
use cuda_safe::graph::{DeviceGraph, InstantiateOptions};
use cuda_safe::{Context, DeviceBuffer, Graph, LaunchConfig, Module, TypedKernel};

const SOURCE: &str = include_str!("../kernels/launcher.cu");
const ONE: LaunchConfig = LaunchConfig::linear(1, 1);

#[test]
fn a_kernel_launches_a_graph_at_each_launch_of_its_own() {
    let device = or_skip!(common::real_gpu());
    or_skip!(common::since(12, 0));
    let image = or_skip!(image(&device, "launcher", SOURCE));
    let context = Context::primary(&device).expect("a context");
    let (stream, other) = (context.stream(), context.stream());
    let (stream, other) = (stream.expect("a stream"), other.expect("a stream"));
    // SAFETY: nvcc compiled the image from the source above.
    let module = unsafe { Module::from_image(&context, &image) }.expect("the driver loads it");
    let start = module.kernel("start").expect("a kernel");
    let start: TypedKernel<(DeviceGraph,)> = start.typed().expect("its parameters");
    let scale = Module::from_ptx(&context, include_str!("../kernels/vector.ptx"));
    let scale = scale.and_then(|module| module.kernel("scale"));
    let scale: TypedKernel<(&mut [i32], i32, i32, u32)> =
        scale.and_then(|kernel| kernel.typed()).expect("the test kernel");

    let mut work = Graph::new(&context).expect("a graph");
    let buffer = DeviceBuffer::from_slice(&stream, &[1]).expect("memory");
    let mut data = work.own(buffer).expect("the graph owns it");
    // SAFETY: the kernel doubles one element.
    unsafe { work.add_kernel(&[], &context, &scale, ONE, (&mut data, 2, 0, 1)) }.expect("a node");
    let options = InstantiateOptions { device_launch: true, ..Default::default() };
    let work = work.instantiate_with(&options);
    let work = DeviceGraph::new(work.expect("an executable graph"), &other).expect("an upload");

    let mut graph = Graph::new(&context).expect("a graph");
    // SAFETY: the kernel launches the graph that it gets, once in each launch of its own graph.
    unsafe { graph.add_kernel(&[], &context, &start, ONE, (&work,)) }.expect("a node");
    let executable = graph.instantiate().expect("an executable graph");
    drop((graph, module, start));
    for _ in 0..3 {
        executable.launch(&stream).expect("a launch");
    }
    drop(executable);
    let work = work.into_executable();
    stream.synchronize().expect("a wait");
    let mut work = work.or_else(DeviceGraph::into_executable).expect("no launch uses it");
    let access = work.access(&mut data, &stream).expect("access");
    assert_eq!(access.as_slice().to_vec().expect("a copy"), [8]);
}
