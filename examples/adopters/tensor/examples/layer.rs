//! Computes a layer of a network, first operation by operation and then as a recorded graph, and compares
//! the results and the times.
//!
//! Run it with `cargo run --release -p tensor-backend --example layer`, and with `-- --sim PROFILE` on the
//! software driver, where times are meaningless.

#[path = "../../../support/mod.rs"]
mod support;

use std::process::ExitCode;
use std::time::Instant;
use support::stats::{Rounds, microseconds};
use tensor_backend::{Backend, Executor, Result, Tensor};

const ROUNDS: usize = 20;
const RUNS: usize = 20;
const BATCH: usize = 16;
const INPUTS: usize = 64;
const OUTPUTS: usize = 32;

fn main() -> ExitCode {
    support::main(run)
}

/// Returns the sums of the rows of `max(input * weights + bias, 0)`.
fn layer<X: Executor>(x: &mut X, inputs: [&Tensor<f32, X>; 4]) -> Result<Tensor<f32, X>> {
    let [input, weights, bias, zero] = inputs;
    let product = x.matmul(input, weights)?;
    let shifted = x.add(&product, bias)?;
    let active = x.max(&shifted, zero)?;
    x.sum(&active)
}

fn run() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let line = support::choose(support::take_sim(&mut arguments)?.as_deref())?;
    if let Some(line) = &line {
        support::say(line, false);
    }
    let backend = Backend::with_pool(0)?;
    let mut eager = backend.eager()?;
    let values = |len: usize, scale: f32| (0..len).map(|i| scale * (i % 11) as f32).collect();
    let (input, weights): (Vec<f32>, Vec<f32>) =
        (values(BATCH * INPUTS, 1.0), values(INPUTS * OUTPUTS, -0.5));
    let tensors = || -> Result<[Tensor<f32>; 4]> {
        Ok([
            eager.tensor(&[BATCH, INPUTS], &input)?,
            eager.tensor(&[INPUTS, OUTPUTS], &weights)?,
            eager.tensor(&[], &[800.0])?,
            eager.tensor(&[], &[0.0])?,
        ])
    };
    let [input, weights, bias, zero] = tensors()?;
    let recorded = tensors()?;

    let mut recording = backend.record()?;
    let mut owned = Vec::new();
    for tensor in recorded {
        owned.push(recording.input(tensor)?);
    }
    let output = layer(&mut recording, [&owned[0], &owned[1], &owned[2], &owned[3]])?;
    let mut replay = recording.finish()?;

    let (mut one_by_one, mut as_graph) = (Rounds::default(), Rounds::default());
    let mut expected = Vec::new();
    for _ in 0..ROUNDS {
        let mut times = Vec::new();
        for _ in 0..RUNS {
            let start = Instant::now();
            let result = layer(&mut eager, [&input, &weights, &bias, &zero])?;
            eager.synchronize()?;
            times.push(start.elapsed().as_nanos() as u64);
            expected = result.to_vec()?;
        }
        one_by_one.push(times);
        let mut times = Vec::new();
        for _ in 0..RUNS {
            let start = Instant::now();
            replay.run()?;
            eager.synchronize()?;
            times.push(start.elapsed().as_nanos() as u64);
        }
        as_graph.push(times);
    }
    let replayed = replay.read(&output)?;
    if replayed != expected {
        return Err(format!("the graph computed {replayed:?} instead of {expected:?}").into());
    }
    println!("the sums of {BATCH} rows are equal; the first one is {}", expected[0]);
    let p50 = |times: &Rounds| microseconds(times.percentile(50.0));
    println!("operation by operation: {} µs (p50)", p50(&one_by_one));
    println!("as a recorded graph:    {} µs (p50)", p50(&as_graph));
    if let Some(pool) = backend.memory()? {
        println!("{} of the allocations came from the cache of the thread", pool.hits);
    }
    if line.is_some() {
        println!("the software driver does not model time, so these times are meaningless");
    }
    Ok(())
}
