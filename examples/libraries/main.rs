//! Multiplies matrices with cuBLAS and transforms a signal with cuFFT, on one stream of this crate. The
//! libraries are found at run time; the program says which one is missing.

mod cublas;
mod cufft;
#[path = "../support/mod.rs"]
mod support;

use cublas::{Blas, CUBLAS};
use cuda_safe::{Context, Device, DeviceBuffer, Stream};
use cufft::{CUFFT, Transform};
use std::convert::Infallible;
use std::error::Error;
use std::process::ExitCode;

fn main() -> ExitCode {
    support::main(|| {
        // No short circuit: a library is tried even if the other one fails.
        let is_complete = report("cuBLAS", multiply()) & report("cuFFT", transform());
        Ok::<_, Infallible>(ExitCode::from(u8::from(!is_complete)))
    })
}

fn report(name: &str, result: Result<String, Box<dyn Error>>) -> bool {
    match &result {
        Ok(text) => println!("{name}: {text}"),
        Err(error) => eprintln!("{name}: {error}"),
    }
    result.is_ok()
}

fn stream() -> cuda_safe::Result<Stream> {
    Context::primary(&Device::get(0)?)?.stream()
}

fn multiply() -> Result<String, Box<dyn Error>> {
    CUBLAS.load()?;
    let stream = stream()?;
    let mut blas = Blas::new(&stream)?;
    let a = DeviceBuffer::from_slice(&stream, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])?;
    let b = DeviceBuffer::from_slice(&stream, &[1.0, 0.0, 2.0])?;
    let mut c = DeviceBuffer::zeroed(&stream, 2)?;
    // SAFETY: the stream is not captured.
    unsafe { blas.multiply([2, 1, 3], [&a, &b], &mut c) }?;
    Ok(format!("[1 2 3; 4 5 6] · [1; 0; 2] = {:?}, by {:?}", c.to_vec()?, CUBLAS.path()))
}

fn transform() -> Result<String, Box<dyn Error>> {
    CUFFT.load()?;
    let stream = stream()?;
    let mut transform = Transform::new(&stream, 4)?;
    let mut signal = DeviceBuffer::from_slice(&stream, &[[1.0, 0.0]; 4])?;
    // SAFETY: the stream is not captured.
    unsafe { transform.run(&mut signal, false) }?;
    Ok(format!("a constant 1 becomes {:?}, by {:?}", signal.to_vec()?, CUFFT.path()))
}
