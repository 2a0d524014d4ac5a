//! One allocator for a process: how is it chosen, what does it do, and what does its memory look like over
//! time?
//!
//! `cargo run --example memory_manager -- --svg memory.svg` does what a training loop does with memory, on
//! two streams, with a caching pool, and draws it; `--trace FILE` writes a trace for
//! `cuda-bench --managers --trace FILE`; `--sim PROFILE` is for the software driver.

mod picture;
#[path = "../support/mod.rs"]
mod support;

use cuda_safe::manager::{
    CachingManager, LoggingManager, MemoryManager, StatisticsManager, set_memory_manager,
};
use cuda_safe::{Context, Device, DeviceBuffer, Stream};
use std::io::{BufWriter, Write};
use std::process::ExitCode;

/// A caching pool, with everything that it is asked for written down and counted.
type Manager = StatisticsManager<LoggingManager<CachingManager>>;

const STEPS: usize = 60;
const LAYERS: usize = 12;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
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

    // Chosen before the context is made, for each that is made from now on.
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
    let manager = manager.ok_or("the context has the manager that was chosen")?;
    train(&streams, manager)?;

    let statistics = manager.statistics();
    let pool = manager.inner().inner().figures();
    println!(
        "{} allocations, {} of them without a look beyond the thread's own; at most {} MiB in use, {} MiB taken",
        statistics.allocated,
        pool.hits,
        statistics.high >> 20,
        pool.reserved_high >> 20,
    );
    println!(
        "{} MiB kept in {} slabs, {:.0} % in pieces; {} waits of a stream for another, {} of the host",
        pool.kept() >> 20,
        pool.slabs,
        100.0 * pool.fragmentation(),
        pool.stream_waits,
        pool.host_waits,
    );
    let given_back = manager.trim(0)?;
    println!("{} MiB given back to the driver", given_back >> 20);
    manager.sample();
    if let Some(path) = svg {
        let name = context.device().name()?;
        std::fs::write(&path, picture::draw(&manager.timeline(), &name))?;
        println!("wrote {path}");
    }
    manager.inner().flush()?;
    Ok(())
}

/// A file, or where there can be none nothing, with a word.
fn create(path: &str) -> Box<dyn Write + Send> {
    match std::fs::File::create(path) {
        Ok(file) => Box::new(file),
        Err(error) => {
            eprintln!("{path}: {error}");
            Box::new(std::io::sink())
        }
    }
}

/// What a training step does with memory: activations that grow and go, gradients, a batch of another size
/// now and then, and copies on a stream of their own.
fn train(streams: &[Stream; 2], manager: &Manager) -> cuda_safe::Result<()> {
    let [compute, copies] = streams;
    let weights: Vec<DeviceBuffer<f32>> = (0..LAYERS)
        .map(|layer| DeviceBuffer::zeroed(compute, (layer % 4 + 1) << 16))
        .collect::<Result<_, _>>()?;
    for step in 0..STEPS {
        let batch = if step % 20 == 19 { 3 } else { 8 };
        let input = DeviceBuffer::<f32>::zeroed(copies, batch << 15)?.rebind(compute)?;
        let mut activations = Vec::new();
        for layer in 0..LAYERS {
            activations.push(DeviceBuffer::<f32>::zeroed(
                compute,
                (batch * (layer % 3 + 1)) << 14,
            )?);
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
