//! Measures the time from the start of a process to the end of its first launch, and to the end of the
//! process. Each measurement runs in a separate process; the layers alternate.

use crate::Fallible;
use crate::driver::Driver;
use crate::operations::PTX;
use crate::plain;
use crate::time::Spread;
use crate::work::Layer;
use cuda_safe::{Context, Device, LaunchConfig, Module};
use cudarc::driver::{CudaContext, LaunchConfig as Config};
use std::process::Command;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

const LAYERS: [Layer; 4] = [Layer::C, Layer::CAgain, Layer::Safe, Layer::Cudarc];

/// Runs the processes and prints a table.
pub(crate) fn run(rounds: usize, null: bool) -> Fallible<()> {
    let program = std::env::current_exe()?;
    let mut launched = [const { Vec::new() }; LAYERS.len()];
    let mut ended = [const { Vec::new() }; LAYERS.len()];
    for round in 0..rounds {
        for turn in 0..LAYERS.len() {
            let place = (round + turn) % LAYERS.len();
            let mut command = Command::new(&program);
            command.args(["--first-of", LAYERS[place].name()]);
            command.args(null.then_some("--null"));
            let (start, began) = (Instant::now(), now());
            let output = command.output()?;
            let time = start.elapsed();
            if !output.status.success() {
                return Err(format!("{}: {}", LAYERS[place].name(), output.status).into());
            }
            let then: f64 = String::from_utf8(output.stdout)?.trim().parse()?;
            launched[place].push(then - began);
            ended[place].push(time.as_secs_f64() * 1e3);
        }
    }
    println!(
        "| from the start of a process | to its first launch, ms | times that of C | to its end, ms | times that of C |"
    );
    println!("|---|--:|--:|--:|--:|");
    for (place, layer) in LAYERS.iter().enumerate() {
        print!("| {} |", layer.name());
        for times in [&launched, &ended] {
            let ratios = times[place].iter().zip(&times[0]);
            let ratios = ratios.map(|(time, base)| time / base);
            let Spread { low, median, high } = Spread::of(ratios.collect());
            let ms = Spread::of(times[place].clone()).median;
            print!(" {ms:.2} | {median:.2} ({low:.2} .. {high:.2}) |");
        }
        println!();
    }
    Ok(())
}

/// Returns the time in milliseconds, from a clock that all processes share.
fn now() -> f64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH);
    time.map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
}

/// Prints the time. Called before anything is released.
fn is_launched() {
    println!("{:.4}", now());
}

/// Runs one layer in such a process.
pub(crate) fn one(layer: &str, driver: &Driver) -> Fallible<()> {
    match layer {
        "C" | "C again" => {
            plain::first(driver);
            is_launched();
        }
        "cuda-safe" => {
            let context = Context::primary(&Device::get(0)?)?;
            let stream = context.stream()?;
            let kernel = Module::from_ptx(&context, PTX)?.kernel("none")?.typed::<()>()?;
            // SAFETY: the kernel does nothing.
            unsafe { kernel.launch(&stream, LaunchConfig::linear(1, 32), ()) }?;
            stream.synchronize()?;
            is_launched();
        }
        "cudarc" => {
            let context = CudaContext::new(0)?;
            let stream = context.new_stream()?;
            let kernel = context.load_module(PTX.into())?.load_function("none")?;
            let config = Config { grid_dim: (1, 1, 1), block_dim: (32, 1, 1), shared_mem_bytes: 0 };
            // SAFETY: the kernel does nothing.
            unsafe { stream.launch_builder(&kernel).launch(config) }?;
            stream.synchronize()?;
            is_launched();
        }
        other => return Err(format!("there is no layer {other}").into()),
    }
    Ok(())
}
