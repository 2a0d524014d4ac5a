//! A session of ONNX Runtime on a stream and memory of this library: see README.md.

mod session;

use cuda_safe::{Context, Device, DeviceBuffer};
use session::StreamSession;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let stream = Context::primary(&Device::get(0)?)?.stream()?;
    let environment = ort::init().build()?;
    let model = include_bytes!("double.onnx");
    // SAFETY: the stream belongs to the primary context.
    let mut session = unsafe { StreamSession::new(&stream, &environment, model) }?;

    let input = DeviceBuffer::from_slice(&stream, &[1.0, 2.0, 3.0])?;
    let mut output = DeviceBuffer::zeroed(&stream, 3)?;
    // SAFETY: the stream is not captured.
    unsafe { session.run((&input, &[3]), (&mut output, &[3])) }?;
    assert_eq!(output.to_vec()?, [2.0, 4.0, 6.0]); // no wait is needed before the copy
    println!("ONNX Runtime has doubled a buffer on a stream");
    Ok(())
}
