//! Compiles a kernel from CUDA C++ at run time, and runs it.
//!
//! Run it with `cargo run --example compile`, and with `-- --sim PROFILE` on the software driver. It needs NVRTC,
//! for example from `pip install nvidia-cuda-nvrtc`.

#[path = "../support/mod.rs"]
mod support;

use cuda_nvrtc::Program;
use cuda_safe::{Context, Device, DeviceBuffer, LaunchConfig};
use std::error::Error;
use std::process::ExitCode;

const SOURCE: &str = r#"
extern "C" __global__ void saxpy(float a, const float *x, float *y, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] += a * x[i];
}"#;

fn main() -> ExitCode {
    support::main(|| match run() {
        // Not every machine with a GPU has NVRTC. The code says that something is missing.
        Err(error) if matches!(error.downcast_ref(), Some(cuda_nvrtc::Error::Load { .. })) => {
            println!("missing: {error}");
            Ok(ExitCode::from(77))
        }
        done => done.map(|()| ExitCode::SUCCESS),
    })
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(line) = support::choose(support::take_sim(&mut arguments)?.as_deref())? {
        println!("{line}");
    }
    let y = saxpy(2.0, &[1.0; 1000], &[3.0; 1000])?;
    println!("2 * 1 + 3 = {}", y[999]);
    Ok(())
}

/// Returns `a * x + y`.
fn saxpy(a: f32, x: &[f32], y: &[f32]) -> Result<Vec<f32>, Box<dyn Error>> {
    let device = Device::get(0)?;
    let context = Context::primary(&device)?;
    let stream = context.stream()?;
    let module = Program::new(SOURCE).compile_for(&device)?.load(&context)?;
    let saxpy = module.kernel("saxpy")?.typed::<(f32, &[f32], &mut [f32], u32)>()?;

    let n = x.len().min(y.len());
    let x = DeviceBuffer::from_slice(&stream, &x[..n])?;
    let mut y = DeviceBuffer::from_slice(&stream, &y[..n])?;
    let config = LaunchConfig::for_elements(n, 256)?;
    // SAFETY: the kernel reads the first n elements of `x` and updates those of `y`, which have n elements.
    unsafe { saxpy.launch(&stream, config, (a, &x, &mut y, u32::try_from(n)?)) }?;
    Ok(y.to_vec()?)
}
