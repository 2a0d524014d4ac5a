//! From the start of a process to the end of its first launch: a process for each, in turns.

use crate::Fallible;
use crate::driver::Driver;
use crate::operations::PTX;
use crate::plain;
use crate::time::Spread;
use crate::work::Layer;
use cuda_safe::{Context, Device, LaunchConfig, Module};
use cudarc::driver::{CudaContext, LaunchConfig as Config};
use std::process::Command;
use std::time::Instant;

const LAYERS: [Layer; 4] = [Layer::C, Layer::CAgain, Layer::Safe, Layer::Cudarc];

/// Starts the processes, and prints a table.
pub(crate) fn run(rounds: usize, null: bool) -> Fallible<()> {
    let program = std::env::current_exe()?;
    let mut times = [const { Vec::new() }; LAYERS.len()];
    for round in 0..rounds {
        for turn in 0..LAYERS.len() {
            let place = (round + turn) % LAYERS.len();
            let mut command = Command::new(&program);
            command.args(["--first-of", LAYERS[place].name()]);
            command.args(null.then_some("--null"));
            let start = Instant::now();
            let status = command.status()?;
            let time = start.elapsed();
            if !status.success() {
                return Err(format!("{}: {status}", LAYERS[place].name()).into());
            }
            times[place].push(time.as_secs_f64() * 1e3);
        }
    }
    println!("| a process with one launch | ms | times that of C |\n|---|--:|--:|");
    let base = times[0].clone();
    for (layer, times) in LAYERS.iter().zip(times) {
        let ratios = times.iter().zip(&base).map(|(time, base)| time / base);
        let Spread { low, median, high } = Spread::of(ratios.collect());
        let ms = Spread::of(times).median;
        println!(
            "| {} | {ms:.2} | {median:.2} ({low:.2} .. {high:.2}) |",
            layer.name()
        );
    }
    Ok(())
}

/// What such a process does.
pub(crate) fn one(layer: &str, driver: &Driver) -> Fallible<()> {
    match layer {
        "C" | "C again" => plain::first(driver),
        "cuda-safe" => {
            let context = Context::primary(&Device::get(0)?)?;
            let stream = context.stream()?;
            let kernel = Module::from_ptx(&context, PTX)?
                .kernel("none")?
                .typed::<()>()?;
            // SAFETY: the kernel does nothing.
            unsafe { kernel.launch(&stream, LaunchConfig::linear(1, 32), ()) }?;
            stream.synchronize()?;
        }
        "cudarc" => {
            let context = CudaContext::new(0)?;
            let stream = context.new_stream()?;
            let kernel = context.load_module(PTX.into())?.load_function("none")?;
            let config = Config {
                grid_dim: (1, 1, 1),
                block_dim: (32, 1, 1),
                shared_mem_bytes: 0,
            };
            // SAFETY: the kernel does nothing.
            unsafe { stream.launch_builder(&kernel).launch(config) }?;
            stream.synchronize()?;
        }
        other => return Err(format!("nobody is called {other}").into()),
    }
    Ok(())
}
