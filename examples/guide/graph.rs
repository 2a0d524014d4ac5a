//! The graph of the chapter about graphs.

use crate::draw;
use cuda_safe::{Context, Device, DeviceBuffer, Graph, LaunchConfig, Module, PinnedBuffer, Result};

const N: u32 = 1000;

/// Builds the graph as the chapter does, and draws it.
pub(crate) fn draw() -> Result<String> {
    let context = Context::primary(&Device::get(0)?)?;
    let stream = context.stream()?;
    let ptx = include_str!("../../tests/documentation/kernels.ptx");
    let module = Module::from_ptx(&context, ptx)?;
    let scale = module.kernel("scale")?.typed::<(&mut [f32], f32, u32)>()?;
    let add = module.kernel("add")?.typed::<(&[f32], &[f32], &mut [f32], u32)>()?;
    let config = LaunchConfig::for_elements(N as usize, 256)?;

    let mut graph = Graph::new(&context)?;
    let pinned = || PinnedBuffer::<f32>::zeroed(&context, N as usize);
    let (input, mut output) = (graph.own_pinned(pinned()?), graph.own_pinned(pinned()?));
    let buffer = || DeviceBuffer::<f32>::zeroed(&stream, N as usize);
    let (mut left, mut right) = (graph.own(buffer()?)?, graph.own(buffer()?)?);
    let mut sum = graph.own(buffer()?)?;

    let to_left = graph.add_copy(&[], &mut left, &input)?;
    let to_right = graph.add_copy(&[], &mut right, &input)?;
    let arguments = (&mut left, 2.0, N);
    // SAFETY: the graph is never launched.
    let twice = unsafe { graph.add_kernel(&[to_left.id()], &context, &scale, config, arguments) }?;
    let arguments = (&mut right, 3.0, N);
    // SAFETY: the graph is never launched.
    let thrice =
        unsafe { graph.add_kernel(&[to_right.id()], &context, &scale, config, arguments) }?;
    let both = [twice.id(), thrice.id()];
    let arguments = (&left, &right, &mut sum, N);
    // SAFETY: the graph is never launched.
    let added = unsafe { graph.add_kernel(&both, &context, &add, config, arguments) }?;
    graph.add_copy(&[added.id()], &mut output, &sum)?;
    draw::svg(&mut graph)
}
