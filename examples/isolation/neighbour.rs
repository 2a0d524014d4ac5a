//! The neighbors: endless work that is enqueued in batches, ahead of time.

use crate::kernels::Kernels;
use cuda_safe::device::attribute;
use cuda_safe::{Context, DeviceBuffer, Event, LaunchConfig, Result, Stream};
use std::collections::VecDeque;

const THREADS: u32 = 256;
/// This number of blocks of `THREADS` threads fills an SM.
const BLOCKS_PER_SM: u32 = 8;

/// For compute: the duration of a block, and the number of blocks as a multiple of those that fit.
const BLOCK_MILLISECONDS: u32 = 5;
const WAVES: u32 = 8;

/// For bandwidth: the bytes that a block reads and writes, and the number of launches in a batch.
const CHUNK_BYTES: u32 = 1 << 20;
const SWEEPS: u32 = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Compute,
    Bandwidth,
}

/// The amount of work of the neighbors.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    /// The number of blocks in a batch, or of chunks of memory.
    blocks: u32,
    chunk_bytes: u32,
    cycles: u32,
    waves: u32,
    sweeps: u32,
}

impl Load {
    pub(crate) fn of(context: &Context, simulated: bool) -> Result<Self> {
        let device = context.device();
        let sms = device.attribute(attribute::MULTIPROCESSOR_COUNT)?;
        if simulated {
            return Ok(Self { blocks: 8, chunk_bytes: 1 << 10, cycles: 1000, waves: 1, sweeps: 2 });
        }
        let kilohertz = device.attribute(attribute::CLOCK_RATE)?;
        Ok(Self {
            blocks: sms * BLOCKS_PER_SM,
            chunk_bytes: CHUNK_BYTES,
            cycles: kilohertz.saturating_mul(BLOCK_MILLISECONDS),
            waves: WAVES,
            sweeps: SWEEPS,
        })
    }
}

/// Work on a stream. Two batches are always enqueued, so that the device stays busy while one is added.
pub(crate) struct Neighbour<'a> {
    kind: Kind,
    kernels: &'a Kernels,
    stream: Stream,
    load: Load,
    out: DeviceBuffer<f32>,
    data: DeviceBuffer<u32>,
    given: VecDeque<Event>,
    idle: Vec<Event>,
}

impl<'a> Neighbour<'a> {
    pub(crate) fn new(
        kind: Kind,
        kernels: &'a Kernels,
        stream: &Stream,
        load: Load,
    ) -> Result<Self> {
        let (threads, chunks) = match kind {
            Kind::Compute => ((load.blocks * load.waves * THREADS) as usize, 0),
            Kind::Bandwidth => (0, load.blocks as usize),
        };
        let context = stream.context();
        Ok(Self {
            kind,
            kernels,
            stream: stream.clone(),
            load,
            out: DeviceBuffer::zeroed(stream, threads)?,
            data: DeviceBuffer::zeroed(stream, chunks * load.chunk_bytes as usize / 4)?,
            given: VecDeque::new(),
            idle: vec![context.event()?, context.event()?],
        })
    }

    /// Enqueues work until two batches are pending. Does not wait.
    pub(crate) fn keep_going(&mut self) -> Result<()> {
        while let Some(first) = self.given.front() {
            if !first.is_complete()? {
                break;
            }
            self.idle.extend(self.given.pop_front());
        }
        while let Some(event) = self.idle.pop() {
            self.give()?;
            event.record(&self.stream)?;
            self.given.push_back(event);
        }
        Ok(())
    }

    fn give(&mut self) -> Result<()> {
        let load = self.load;
        match self.kind {
            Kind::Compute => {
                let config = LaunchConfig::linear(load.blocks * load.waves, THREADS);
                let arguments = (&mut self.out, load.cycles);
                // SAFETY: the kernel writes one element for each of its threads, and the buffer has that
                // many elements.
                unsafe { self.kernels.compute.launch(&self.stream, config, arguments) }
            }
            Kind::Bandwidth => {
                let config = LaunchConfig::linear(load.blocks, THREADS);
                for _ in 0..load.sweeps {
                    let arguments = (&mut self.data, load.chunk_bytes / 16);
                    // SAFETY: each block accesses only its own chunk, which has this number of 16-byte
                    // words.
                    unsafe { self.kernels.sweep.launch(&self.stream, config, arguments) }?;
                }
                Ok(())
            }
        }
    }

    /// Waits for all enqueued work.
    pub(crate) fn end(mut self) -> Result<()> {
        self.given.clear();
        self.stream.synchronize()
    }
}
