//! The works on graphs through `cuda-safe`. Each graph owns the buffers that its kernels use.

use super::{DOOMED, NODES, SIZES, Size};
use crate::operations::PTX;
use crate::work::{Work, Works, ok};
use cuda_safe::graph::GraphBuffer;
use cuda_safe::graph::{Node, kind};
use cuda_safe::{
    Context, Device, DeviceBuffer, ExecutableGraph, Graph, LaunchConfig, Module, Result, Stream,
    TypedKernel,
};

const CONFIG: LaunchConfig = LaunchConfig::linear(1, 32);

pub(crate) type Kernel = TypedKernel<(&'static [f32], &'static mut [f32], u32)>;

/// A graph of kernels that run one after another.
pub(crate) struct Chain {
    graph: Graph,
    nodes: Vec<Node<kind::Kernel>>,
    from: GraphBuffer<f32>,
    to: GraphBuffer<f32>,
}

impl Chain {
    pub(crate) fn new(stream: &Stream, kernel: &Kernel, count: usize) -> Result<Self> {
        let mut graph = Graph::new(stream.context())?;
        let buffer = || DeviceBuffer::zeroed(stream, 1024);
        let (from, to) = (graph.own(buffer()?)?, graph.own(buffer()?)?);
        let nodes = Vec::with_capacity(1024);
        let mut chain = Self { graph, nodes, from, to };
        for _ in 0..count {
            chain.add(stream, kernel);
        }
        Ok(chain)
    }

    #[inline(always)]
    fn add(&mut self, stream: &Stream, kernel: &Kernel) {
        let last = self.nodes.last().map(|node| node.id());
        let arguments = (&self.from, &mut self.to, 8);
        let (graph, context) = (&mut self.graph, stream.context());
        // SAFETY: the kernel does nothing.
        let node = unsafe { graph.add_kernel(last.as_slice(), context, kernel, CONFIG, arguments) };
        self.nodes.push(ok(node));
    }

    /// Returns an executable graph that has been launched.
    pub(crate) fn launched(&self, stream: &Stream) -> Result<ExecutableGraph> {
        let executable = self.graph.instantiate()?;
        executable.launch(stream)?;
        Ok(executable)
    }
}

/// Returns a stream and the kernel.
pub(crate) fn objects() -> Result<(Stream, Kernel)> {
    let context = Context::primary(&Device::get(0)?)?;
    let kernel = Module::from_ptx(&context, PTX)?.kernel("three")?.typed()?;
    Ok((context.stream()?, kernel))
}

pub(crate) fn works() -> Result<Works> {
    let (stream, kernel) = &objects()?;
    let (s, k) = (stream.clone(), kernel.clone());
    let chain = move |count| Chain::new(&s, &k, count);
    let (s, k, empty) = (stream.clone(), kernel.clone(), chain.clone());
    let mut works: Works = vec![
        (
            "graph: add a kernel node",
            Work::with_rest(
                chain(0)?,
                move |growing, n| {
                    for _ in 0..n {
                        growing.add(&s, &k);
                    }
                },
                move |growing| *growing = ok(empty(0)),
            ),
        ),
        ("graph: change a kernel node", change(stream, kernel, chain(NODES)?)?),
        (
            "graph: update 100 nodes",
            update(stream, &chain(NODES)?, [chain(NODES)?, chain(NODES)?])?,
        ),
    ];
    let sources: Vec<_> = (0..DOOMED).map(|_| chain(NODES)).collect::<Result<_>>()?;
    let (s, doomed) = (stream.clone(), Vec::with_capacity(DOOMED));
    let mut destroy = Work::with_rest(
        doomed,
        |doomed, n| drop(doomed.drain(..n)),
        move |doomed: &mut Vec<_>| {
            // Each graph has one executable graph at a time, and the first ones were destroyed.
            let missing = DOOMED - doomed.len();
            let made = sources[..missing].iter().map(|chain| ok(chain.launched(&s)));
            doomed.splice(..0, made);
            ok(s.synchronize());
        },
    );
    (destroy.before)();
    works.push(("graph: destroy an executable graph of 100 nodes", destroy));
    let (again, doomed) = (chain.clone(), Vec::with_capacity(DOOMED));
    let mut destroy = Work::with_rest(
        doomed,
        |doomed: &mut Vec<Chain>, n| drop(doomed.drain(..n)),
        move |doomed| doomed.resize_with(DOOMED, || ok(again(NODES))),
    );
    (destroy.before)();
    works.push(("graph: destroy a graph of 100 nodes", destroy));
    for size in &SIZES {
        works.push((size.instantiate, instantiate(size, chain.clone())?));
        let source = chain(size.nodes)?;
        let (s, executable) = (stream.clone(), source.launched(stream)?);
        works.push((size.launch, Work::each(move || ok(executable.launch(&s)))));
    }
    Ok(works)
}

/// Instantiates new graphs.
fn instantiate(size: &Size, chain: impl Fn(usize) -> Result<Chain> + 'static) -> Result<Work> {
    let Size { nodes, batch, .. } = *size;
    let sources = move || -> Result<Vec<_>> { (0..batch).map(|_| chain(nodes)).collect() };
    Ok(Work::with_rest(
        (sources()?, Vec::with_capacity(batch)),
        |(sources, made), n| {
            let sources = sources[..n].iter();
            made.extend(sources.map(|chain| ok(chain.graph.instantiate())));
        },
        move |(its, made)| {
            made.clear();
            *its = ok(sources());
        },
    ))
}

/// Changes the kernel nodes of an executable graph in turn.
fn change(stream: &Stream, kernel: &Kernel, chain: Chain) -> Result<Work> {
    let (context, kernel) = (stream.context().clone(), kernel.clone());
    let mut executable = chain.launched(stream)?;
    let Chain { graph, nodes, from, mut to } = chain;
    Ok(Work::batch(move |n| {
        for i in 0..n {
            let mut its = ok(executable.nodes(&graph));
            let (node, arguments) = (nodes[i % NODES], (&from, &mut to, i as u32));
            // SAFETY: the kernel does nothing.
            ok(unsafe { its.set_kernel(node, &context, &kernel, CONFIG, arguments) });
        }
    }))
}

/// Updates an executable graph from two other graphs in turn.
fn update(stream: &Stream, source: &Chain, chains: [Chain; 2]) -> Result<Work> {
    let mut executable = source.launched(stream)?;
    Ok(Work::batch(move |n| {
        for i in 0..n {
            ok(executable.update(&chains[i % 2].graph));
        }
    }))
}
