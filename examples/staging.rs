//! How does one upload data without waiting? Uploads chunks through a ring of pinned ranges while the
//! GPU works on the chunks that are already there.
//!
//! `cargo run --example staging`, with `-- --sim PROFILE` on the software driver.

mod support;

use cuda_safe::memory::Pending;
use cuda_safe::{Context, Device, DeviceBuffer, LaunchConfig, Module, PinnedBuffer, Result};
use std::collections::VecDeque;
use std::process::ExitCode;

const CHUNK: usize = 1 << 16;
const RING: usize = 3;

fn main() -> ExitCode {
    support::main(run)
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let sim = support::take_sim(&mut arguments)?;
    if let Some(line) = support::choose(sim.as_deref())? {
        support::say(&line, false);
    }
    let context = Context::primary(&Device::get(0)?)?;
    let chunks = upload(&context, 20, |n, chunk| chunk.fill(n as i32))?;
    for (n, chunk) in chunks.iter().enumerate() {
        assert_eq!(chunk.to_vec()?, [2 * n as i32 + 1; CHUNK]);
    }
    println!("{} chunks of {CHUNK} elements through {RING} pinned ranges", chunks.len());
    Ok(())
}

/// Uploads `count` chunks, which `read` fills, and computes `2 * x + 1` for each element on the GPU.
fn upload(
    context: &Context,
    count: usize,
    read: impl Fn(usize, &mut [i32]),
) -> Result<Vec<DeviceBuffer<i32>>> {
    let (copies, compute) = (context.stream()?, context.stream()?);
    let module = Module::from_ptx(context, include_str!("../tests/kernels/vector.ptx"))?;
    let scale = module.kernel("scale")?.typed::<(&mut [i32], i32, i32, u32)>()?;
    let config = LaunchConfig::for_elements(CHUNK, 256)?;

    let mut free = PinnedBuffer::zeroed(context, RING * CHUNK)?.into_chunks(CHUNK)?;
    let mut in_flight = VecDeque::with_capacity(RING);
    let mut chunks = Vec::with_capacity(count);
    for n in 0..count {
        if free.is_empty() {
            // Blocks until the oldest copy has completed, not until the later ones have.
            free.extend(in_flight.pop_front().map(Pending::synchronize).transpose()?);
        }
        let Some(mut range) = free.pop() else { break };
        read(n, &mut range);
        let mut chunk = DeviceBuffer::uninit(&copies, CHUNK)?;
        in_flight.push_back(chunk.copy_from_pinned(range)?);
        chunk.rebind(&compute)?; // the GPU waits for the copy, the host does not
        // SAFETY: `scale` accesses the first CHUNK elements of the chunk, which has as many.
        unsafe { scale.launch(&compute, config, (&mut chunk, 2, 1, CHUNK as u32)) }?;
        chunks.push(chunk);
    }
    Ok(chunks)
}
