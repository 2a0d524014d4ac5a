//! Shows how a process selects one allocator, what the allocator does, and how its memory changes over
//! time.
//!
//! `cargo run --example memory_manager -- --svg memory.svg` allocates and frees memory as a training
//! loop does, on two streams, with a caching pool, and draws a figure. `--trace FILE` writes a trace for
//! `cuda-bench --managers --trace FILE`. `--sim PROFILE` uses the software driver.

mod picture;
#[path = "../support/mod.rs"]
mod support;

use cuda_memory::{CachingManager, LoggingManager, StatisticsManager};
use cuda_safe::manager::{MemoryManager, set_memory_manager};
use cuda_safe::{Context, Device, DeviceBuffer, Stream};
use std::io::{BufWriter, Write};
use std::process::ExitCode;

/// A caching pool whose calls are logged and counted.
type Manager = StatisticsManager<LoggingManager<CachingManager>>;

const STEPS: usize = 60;
const LAYERS: usize = 12;

fn main() -> ExitCode {
    support::main(run)
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let sim = support::take_sim(&mut arguments)?;
    if let Some(line) = support::choose(sim.as_deref())? {
        support::say(&line, false);
    }
    let mut take = |name: &str| -> Option<String> {
        let at = arguments.iter().position(|its| its == name)?;
        (at + 1 < arguments.len()).then(|| arguments.drain(at..=at + 1).nth(1))?
    };
    let (svg, trace) = (take("--svg"), take("--trace"));
    if let Some(other) = arguments.first() {
        return Err(format!("unknown argument {other}").into());
    }

    // The manager is set before the context is created. It is used by every context created from now on.
    set_memory_manager(move |context| {
        let writer: Box<dyn Write + Send> = match &trace {
            Some(path) => Box::new(BufWriter::new(create(path))),
            None => Box::new(std::io::sink()),
        };
        let pool = CachingManager::new(context)?;
        Ok(StatisticsManager::new(LoggingManager::new(pool, writer)))
    })?;
    let context = Context::primary(&Device::get(0)?)?;
    let streams = [context.stream()?, context.stream()?];
    let manager = context.memory_manager_as::<Manager>()?;
    let manager = manager.ok_or("the context has the manager that was set")?;
    train(&streams, manager)?;

    let statistics = manager.statistics();
    let pool = manager.inner().inner().stats();
    println!(
        "{} allocations, {} of them from per-thread caches; at most {} MiB in use, {} MiB allocated",
        statistics.allocated,
        pool.hits,
        statistics.high >> 20,
        pool.reserved_peak >> 20,
    );
    println!(
        "{} MiB cached in {} slabs, {:.0} % fragmented; {} waits of a stream for another, {} waits of the host",
        pool.cached() >> 20,
        pool.slabs,
        100.0 * pool.fragmentation(),
        pool.stream_waits,
        pool.host_waits,
    );
    let given_back = manager.trim(0)?;
    println!("{} MiB returned to the driver", given_back >> 20);
    manager.sample();
    if let Some(path) = svg {
        let name = context.device().name()?;
        std::fs::write(&path, picture::draw(&manager.timeline(), &name))?;
        println!("wrote {path}");
    }
    manager.inner().flush()?;
    Ok(())
}

/// Creates a file. If that fails, prints the error and returns a writer that discards its input.
fn create(path: &str) -> Box<dyn Write + Send> {
    match std::fs::File::create(path) {
        Ok(file) => Box::new(file),
        Err(error) => {
            eprintln!("{path}: {error}");
            Box::new(std::io::sink())
        }
    }
}

/// Uses memory as a training step does: activations that grow and shrink, gradients, a batch of another
/// size now and then, and copies on a separate stream.
fn train(streams: &[Stream; 2], manager: &Manager) -> cuda_safe::Result<()> {
    let [compute, copies] = streams;
    let weights: Vec<DeviceBuffer<f32>> = (0..LAYERS)
        .map(|layer| DeviceBuffer::zeroed(compute, (layer % 4 + 1) << 16))
        .collect::<Result<_, _>>()?;
    for step in 0..STEPS {
        let batch = if step % 20 == 19 { 3 } else { 8 };
        let mut input = DeviceBuffer::<f32>::zeroed(copies, batch << 15)?;
        input.rebind(compute)?;
        let mut activations = Vec::new();
        for layer in 0..LAYERS {
            activations
                .push(DeviceBuffer::<f32>::zeroed(compute, (batch * (layer % 3 + 1)) << 14)?);
            drop(DeviceBuffer::<f32>::uninit(compute, batch << 13)?);
            manager.sample();
        }
        for activation in activations.into_iter().rev() {
            let gradient = DeviceBuffer::<f32>::zeroed(compute, activation.len())?;
            drop((gradient, activation));
            manager.sample();
        }
        drop(input);
        if step == STEPS / 2 {
            compute.synchronize()?;
        }
    }
    drop(weights);
    manager.sample();
    compute.synchronize()
}
