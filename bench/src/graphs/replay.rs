//! Measures a chain of 100 kernels that runs repeatedly: as a graph, and launch by launch.

use super::safe::{self, Chain};
use super::theirs::Chain as TheirChain;
use super::{NODES, plain};
use crate::time::Spread;
use crate::work::ok;
use crate::{Fallible, driver};
use cuda_safe::{DeviceBuffer, LaunchConfig};
use std::time::Instant;

/// Number of replays in a batch.
const BATCH: usize = 20;

/// A way to run the chain.
struct Way {
    name: &'static str,
    launch: Box<dyn FnMut()>,
    wait: Box<dyn Fn()>,
}

impl Way {
    fn new(name: &'static str, launch: impl FnMut() + 'static, wait: impl Fn() + 'static) -> Self {
        Self { name, launch: Box::new(launch), wait: Box::new(wait) }
    }

    /// Returns the microseconds of the launch calls, and those from before them to after the wait.
    fn replay(&mut self) -> [f64; 2] {
        let mut times = [0.0; 2];
        for _ in 0..BATCH {
            let start = Instant::now();
            (self.launch)();
            times[0] += start.elapsed().as_secs_f64();
            (self.wait)();
            times[1] += start.elapsed().as_secs_f64();
        }
        times.map(|seconds| seconds * 1e6 / BATCH as f64)
    }
}

/// Prints a table. The script `replay.py` of the Python package appends the rows of CuPy.
pub(crate) fn run(rounds: usize, null: bool) -> Fallible<()> {
    let driver = driver::open(null)?;
    println!("{}\n", driver.name());
    crate::plain::setup(&driver);
    if !plain::setup() {
        return Err("graphs need a driver for CUDA 12.0 or later".into());
    }
    let mut ways = ways()?;
    let mut times = vec![[Vec::new(), Vec::new()]; ways.len()];
    for round in 0..rounds {
        // The order rotates from round to round.
        for turn in 0..ways.len() {
            let place = (round + turn) % ways.len();
            for (times, time) in times[place].iter_mut().zip(ways[place].replay()) {
                times.push(time);
            }
        }
    }
    println!(
        "| a chain of {NODES} kernels, µs | launch calls | times that of C | launch and wait | times that of C |"
    );
    println!("|---|--:|--:|--:|--:|");
    for (way, its) in ways.iter().zip(&times) {
        print!("| {} |", way.name);
        for (its, base) in its.iter().zip(&times[0]) {
            let ratios = its.iter().zip(base).map(|(time, base)| time / base);
            let Spread { low, median, high } = Spread::of(ratios.collect());
            let time = Spread::of(its.clone()).median;
            print!(" {time:.2} | {median:.2} ({low:.2} .. {high:.2}) |");
        }
        println!();
    }
    Ok(())
}

fn ways() -> Fallible<Vec<Way>> {
    let (stream, kernel) = safe::objects()?;
    let chain = Chain::new(&stream, &kernel, NODES)?;
    let executable = chain.launched(&stream)?;
    let from = DeviceBuffer::<f32>::zeroed(&stream, 1024)?;
    let mut to = DeviceBuffer::<f32>::zeroed(&stream, 1024)?;
    let mut theirs = TheirChain::new()?;
    let graph = theirs.capture(NODES)?;
    let (s, launched, by_graph, by_stream) =
        (theirs.stream.clone(), stream.clone(), stream.clone(), stream.clone());
    let their_wait = move || {
        let stream = s.clone();
        move || ok(stream.synchronize())
    };
    Ok(vec![
        Way::new("a graph, C", plain::replay_graph, plain::wait_for_replay),
        Way::new("a graph, C again", plain::replay_graph, plain::wait_for_replay),
        Way::new(
            "a graph, cuda-safe",
            move || ok(executable.launch(&launched)),
            move || ok(by_graph.synchronize()),
        ),
        Way::new("a graph, cudarc", move || ok(graph.launch()), their_wait()),
        Way::new("a stream, C", plain::replay_stream, plain::wait_for_replay),
        Way::new(
            "a stream, cuda-safe",
            move || {
                for _ in 0..NODES {
                    let arguments = (&from, &mut to, 8);
                    // SAFETY: the kernel does nothing.
                    ok(unsafe { kernel.launch(&stream, LaunchConfig::linear(1, 32), arguments) });
                }
            },
            move || ok(by_stream.synchronize()),
        ),
        Way::new("a stream, cudarc", move || theirs.launch(NODES), their_wait()),
    ])
}
