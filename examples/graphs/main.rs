//! Captures work as a graph, extends it by hand, launches it, changes it, and draws it.
//!
//! Two channels of samples pass through the same kernels, each on a stream of its own. The example enqueues
//! this work in the streams, and captures the same function as a graph, which one call launches. It measures
//! both in one run. Then it changes one kernel of the executable graph, and draws the graph from the graph's
//! own answers about its nodes and edges.
//!
//! Run it with `cargo run --release --example graphs -- --svg graph.svg`. Without `--svg FILE` it draws
//! nothing. `--sim PROFILE` runs it on the software driver, where times are meaningless.

mod draw;
#[path = "../support/mod.rs"]
mod support;

use cuda_safe::capture::CaptureMode;
use cuda_safe::graph::{Node, NodeId, kind};
use cuda_safe::{
    Context, Device, DeviceBuffer, Event, Graph, LaunchConfig, Module, Result, Stream, TypedKernel,
};
use std::process::ExitCode;
use std::time::Instant;
use support::stats::{Rounds, microseconds};

const SAMPLES: u32 = 1 << 14;
const CONFIG: LaunchConfig = LaunchConfig::linear(SAMPLES / 256, 256);
/// The factors of the kernels of each channel.
const FACTORS: [i32; 5] = [2, 3, 2, 3, 2];
const ROUNDS: usize = 20;
const LAUNCHES: usize = 50;

/// Multiplies samples by a factor and adds an offset.
type Scale = TypedKernel<(&'static mut [i32], i32, i32, u32)>;

fn main() -> ExitCode {
    support::main(run)
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let sim = support::take_sim(&mut arguments)?;
    let path = match arguments.as_slice() {
        [] => None,
        [option, path] if option == "--svg" => Some(path),
        _ => return Err("the options are --sim PROFILE and --svg FILE".into()),
    };
    let line = support::choose(sim.as_deref())?;
    if let Some(line) = &line {
        support::say(line, false);
    }
    let device = Device::get(0)?;
    println!("{}, CUDA {}", device.name()?, cuda_safe::version()?);
    let context = Context::primary(&device)?;
    let module = Module::from_ptx(&context, include_str!("../../tests/kernels/vector.ptx"))?;
    let scale: Scale = module.kernel("scale")?.typed()?;

    let mut by_streams = Pipeline::new(&context)?;
    let mut captured = Pipeline::new(&context)?;
    let stream = captured.first.stream.clone();
    let mut graph = stream.capture(CaptureMode::default(), |_| captured.enqueue(&scale))?;

    // By hand: an event that is recorded when both channels are complete.
    let ends = ends(&mut graph)?;
    graph.add_event_record(&ends, &captured.complete)?;

    // The graph takes the buffers, which nothing else can use while it is launched.
    let Pipeline { first, second, complete, .. } = captured;
    let (mut first, mut second) = (graph.own(first.samples)?, graph.own(second.samples)?);
    // SAFETY: the captured work uses these buffers only, and each of its kernels is ordered after the one
    // before. `scale` keeps the kernel loaded while this function launches the graph.
    unsafe { graph.assume_owned() };
    let mut executable = graph.instantiate()?;

    let mut by_graph = [Rounds::default(), Rounds::default()];
    let mut by_stream = [Rounds::default(), Rounds::default()];
    for _ in 0..ROUNDS {
        measure(&mut by_graph, &complete, || executable.launch(&stream))?;
        let complete = by_streams.complete.clone();
        measure(&mut by_stream, &complete, || by_streams.run(&scale))?;
    }
    println!("\nmicroseconds (p50)                  calls   to the end");
    row("one launch of the graph", &by_graph);
    row("the same work by streams", &by_stream);
    let ratio = by_stream[1].ratio(&by_graph[1], 50.0);
    println!(
        "the streams take {:.2} times as long as the graph (95 % bounds {:.2} to {:.2})",
        ratio.value, ratio.lower, ratio.upper
    );
    if line.is_some() {
        println!("the software driver does not model time, so these times are meaningless");
    }

    let product: i32 = FACTORS.iter().product();
    let samples = executable.access(&mut first, &stream)?;
    assert_eq!(samples.as_slice().to_vec()?, by_streams.first.samples.to_vec()?);
    drop(samples);

    // Another factor for the last kernel of the second channel.
    let last: Node<kind::Kernel> = graph.typed(ends[1])?;
    let arguments = (&mut second, 5, 0, SAMPLES);
    let mut nodes = executable.nodes(&graph)?;
    // SAFETY: the kernel accesses the samples of the buffer, after the other kernels of the channel.
    unsafe { nodes.set_kernel(last, &context, &scale, CONFIG, arguments) }?;
    executable.launch(&stream)?;
    let samples = executable.access(&mut second, &stream)?;
    let changed = samples.as_slice().to_vec()?[0];
    println!("\nthe samples of the second channel: {product}, and {changed} after the change");
    if let Some(path) = path {
        let svg = draw::svg(&mut graph)?;
        std::fs::write(path, svg).map_err(|why| format!("writing {path}: {why}"))?;
    }
    Ok(())
}

/// Two channels, whose work runs at the same time.
struct Pipeline {
    first: Channel,
    second: Channel,
    fork: Event,
    join: Event,
    /// Recorded after the work of both channels.
    complete: Event,
}

struct Channel {
    stream: Stream,
    samples: DeviceBuffer<i32>,
}

impl Pipeline {
    fn new(context: &Context) -> Result<Self> {
        Ok(Self {
            first: Channel::new(context)?,
            second: Channel::new(context)?,
            fork: context.event()?,
            join: context.event()?,
            complete: context.event()?,
        })
    }

    /// Enqueues the work of both channels, between a fork and a join of their streams.
    fn enqueue(&mut self, scale: &Scale) -> Result<()> {
        self.fork.record(&self.first.stream)?;
        self.second.stream.wait_event(&self.fork)?;
        self.first.enqueue(scale)?;
        self.second.enqueue(scale)?;
        self.join.record(&self.second.stream)?;
        self.first.stream.wait_event(&self.join)
    }

    fn run(&mut self, scale: &Scale) -> Result<()> {
        self.enqueue(scale)?;
        self.complete.record(&self.first.stream)
    }
}

impl Channel {
    fn new(context: &Context) -> Result<Self> {
        let stream = context.stream()?;
        let samples = DeviceBuffer::zeroed(&stream, SAMPLES as usize)?;
        Ok(Self { stream, samples })
    }

    fn enqueue(&mut self, scale: &Scale) -> Result<()> {
        self.samples.fill(1)?;
        for factor in FACTORS {
            let arguments = (&mut self.samples, factor, 0, SAMPLES);
            // SAFETY: the kernel accesses the first `SAMPLES` elements of the buffer, which has as many.
            unsafe { scale.launch(&self.stream, CONFIG, arguments) }?;
        }
        Ok(())
    }
}

/// Returns the nodes that no other node comes after.
fn ends(graph: &mut Graph) -> Result<Vec<NodeId>> {
    let edges = graph.edges()?;
    let mut nodes = graph.nodes()?;
    nodes.retain(|node| edges.iter().all(|edge| edge.from != *node));
    Ok(nodes)
}

/// Adds a round of times: of the calls, and from before them until the event is complete.
fn measure(
    times: &mut [Rounds; 2],
    complete: &Event,
    mut launch: impl FnMut() -> Result<()>,
) -> Result<()> {
    let (mut calls, mut whole) = (Vec::new(), Vec::new());
    for _ in 0..LAUNCHES {
        let start = Instant::now();
        launch()?;
        calls.push(start.elapsed().as_nanos() as u64);
        complete.synchronize()?;
        whole.push(start.elapsed().as_nanos() as u64);
    }
    times[0].push(calls);
    times[1].push(whole);
    Ok(())
}

fn row(name: &str, [calls, whole]: &[Rounds; 2]) {
    let of = |times: &Rounds| microseconds(times.percentile(50.0));
    println!("{name:32}{:>9}{:>13}", of(calls), of(whole));
}
