//! Runs a kernel: adds two vectors on the GPU and checks the sum.
//!
//! NVRTC compiles the kernel from CUDA C++, if it is installed (`pip install nvidia-cuda-nvrtc`) and not newer than
//! the driver. Otherwise the PTX that lies beside the source is used, as in a program that is built with `nvcc`.
//!
//! Run it with `cargo run --example vector_add`, and with `-- --sim PROFILE` on the software driver.

#[path = "../support/mod.rs"]
mod support;

use cuda_nvrtc::Program;
use cuda_safe::{Context, Device, DeviceBuffer, LaunchConfig, Module};
use std::process::ExitCode;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    support::main(|| run().map(|wrong| ExitCode::from(u8::from(wrong != 0))))
}

fn run() -> Result<usize> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let sim = support::take_sim(&mut arguments)?;
    if let Some(line) = support::choose(sim.as_deref())? {
        support::say(&line, false);
    }
    let wrong = add(1 << 20)?;
    println!("{} sums, {wrong} wrong", 1 << 20);
    Ok(wrong)
}

/// Adds vectors of `n` elements and returns the number of wrong sums.
fn add(n: u32) -> Result<usize> {
    let device = Device::get(0)?;
    println!("running on {}", device.name()?);
    let context = Context::primary(&device)?;
    let stream = context.stream()?;

    let add = load(&context)?.kernel("add")?.typed::<(&[f32], &[f32], &mut [f32], u32)>()?;

    let a: Vec<f32> = (0..n).map(|i| i as f32).collect();
    let b: Vec<f32> = (0..n).map(|i| (2 * i) as f32).collect();
    let device_a = DeviceBuffer::from_slice(&stream, &a)?;
    let device_b = DeviceBuffer::from_slice(&stream, &b)?;
    let mut device_sum = DeviceBuffer::zeroed(&stream, n as usize)?;

    let config = LaunchConfig::for_elements(n as usize, 256)?;
    // SAFETY: `add` reads the first n elements of both inputs and writes the first n elements of the
    // output, and all three buffers have n elements.
    unsafe { add.launch(&stream, config, (&device_a, &device_b, &mut device_sum, n)) }?;

    let sums = device_sum.to_vec()?;
    let right = |(sum, (a, b)): (&f32, (&f32, &f32))| *sum == a + b;
    Ok(n as usize - sums.iter().zip(a.iter().zip(&b)).filter(|x| right(*x)).count())
}

/// Compiles the kernels from CUDA C++, or loads their PTX.
fn load(context: &Context) -> Result<Module> {
    let compile = || {
        let program = Program::new(include_str!("../../tests/kernels/vector.cu"));
        program.compile_for(&context.device())?.load(context)
    };
    match compile() {
        // NVRTC is not installed, or it is not for this device or this driver.
        Err(error) if error.is_unavailable() => {
            let ptx = include_str!("../../tests/kernels/vector.ptx");
            Ok(Module::from_ptx(context, ptx)?)
        }
        compiled => Ok(compiled?),
    }
}
