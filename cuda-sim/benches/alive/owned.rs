//! Graphs of the safe layer, whose nodes own their kernel, context and buffers.

use crate::measure::{Measure, pick};
use cuda_safe::graph::{GraphBuffer, Node, kind};
use cuda_safe::{Context, Device, DeviceBuffer, Graph, LaunchConfig, Module, Result, TypedKernel};
use std::cell::{Cell, RefCell};

const PTX: &str = ".version 7.0
.target sm_70
.address_size 64
.visible .entry step(.param .u64 from, .param .u64 to, .param .u32 count) { ret; }
";

type Step = TypedKernel<(&'static [f32], &'static mut [f32], u32)>;

/// A graph whose kernels depend on each other in turn.
struct Chain {
    context: Context,
    kernel: Step,
    config: LaunchConfig,
    graph: Graph,
    from: GraphBuffer<f32>,
    to: GraphBuffer<f32>,
    last: Option<Node<kind::Kernel>>,
}

impl Chain {
    fn new(context: &Context, kernel: &Step) -> Result<Self> {
        let stream = context.stream()?;
        let mut graph = Graph::new(context)?;
        let from = graph.own(DeviceBuffer::zeroed(&stream, 1024)?)?;
        let to = graph.own(DeviceBuffer::zeroed(&stream, 1024)?)?;
        let config = LaunchConfig::for_elements(1, 1)?;
        let (context, kernel) = (context.clone(), kernel.clone());
        Ok(Self { context, kernel, config, graph, from, to, last: None })
    }

    fn add(&mut self) -> Result<Node<kind::Kernel>> {
        let last = self.last.map(|node| node.id());
        let arguments = (&self.from, &mut self.to, 8);
        let (context, kernel) = (&self.context, &self.kernel);
        // SAFETY: the kernel does nothing.
        let node = unsafe {
            self.graph.add_kernel(last.as_slice(), context, kernel, self.config, arguments)
        }?;
        self.last = Some(node);
        Ok(node)
    }

    fn change(&mut self, node: Node<kind::Kernel>, value: u32) -> Result<()> {
        let arguments = (&self.from, &mut self.to, value);
        // SAFETY: the kernel does nothing.
        unsafe { self.graph.set_kernel(node, &self.context, &self.kernel, self.config, arguments) }
    }
}

pub(crate) fn measure(measure: &Measure) -> Result<()> {
    cuda_sim::kernel::register("step", |_| Ok(()));
    let context = Context::primary(&Device::get(0)?)?;
    let kernel = Module::from_ptx(&context, PTX)?.kernel("step")?.typed()?;
    let new = || Chain::new(&context, &kernel).expect("the software driver creates a graph");
    let chain = RefCell::new(new());
    let add = || chain.borrow_mut().add().expect("the software driver adds a node");
    measure.kind(
        "nodes of a chain of cuda-safe",
        100_000,
        |_| add(),
        &mut [
            ("add", &mut |_, _| {
                add();
            }),
            ("change", &mut |all, at| {
                let changed = chain.borrow_mut().change(pick(all, at), at as u32);
                changed.expect("the software driver changes a node");
            }),
        ],
        |_| drop(chain.replace(new())),
    );
    let parts = Cell::new(0);
    measure.whole(
        "chain of cuda-safe, per node: add all, destroy",
        100_000,
        |count| parts.set(count),
        || {
            let mut chain = new();
            for _ in 0..parts.get() {
                chain.add().expect("the software driver adds a node");
            }
        },
        || {},
    );
    Ok(())
}
