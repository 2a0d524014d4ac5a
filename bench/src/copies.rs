//! Measures copies one by one and in batches, on one thread and on several.

use crate::time::{Spread, together};
use crate::work::ok;
use crate::{Fallible, driver};
use cuda_safe::memory::CopyBatch;
use cuda_safe::{Context, Device, DeviceBuffer, Stream};
use cuda_sys::{CUmemcpyAttributes, CUmemcpySrcAccessOrder, CUresult, Zeroable};

/// The size of a copy in bytes, and the number of copies before a wait, less than a queue of the driver holds.
const SIZE: usize = 4096;
const COPIES: usize = 256;

/// A way to copy.
struct Way {
    name: &'static str,
    run: Run,
    /// The number of copies of a batch, or `None` for calls that copy once.
    batch: Option<usize>,
}

/// Copies `COPIES` times, and does not wait.
type Run = fn(&mut Memory<'_>, Option<usize>);

const C: Run = |memory, batch| memory.raw(batch);
const SAFE: Run = |memory, batch| memory.safe(batch);

const WAYS: [Way; 8] = [
    way("C: one by one", C, None),
    way("C: batches of 16", C, Some(16)),
    way("C: batches of 256", C, Some(256)),
    way("C: batches of one", C, Some(1)),
    way("`cuda-safe`: one by one", SAFE, None),
    way("`cuda-safe`: batches of 16", SAFE, Some(16)),
    way("`cuda-safe`: batches of 256", SAFE, Some(256)),
    way("`cuda-safe`: batches of one", SAFE, Some(1)),
];

const fn way(name: &'static str, run: Run, batch: Option<usize>) -> Way {
    Way { name, run, batch }
}

/// The memory of one thread, and its stream.
struct Memory<'a> {
    stream: &'a Stream,
    source: DeviceBuffer<u8>,
    target: DeviceBuffer<u8>,
}

impl Memory<'_> {
    /// With functions of `cuda-sys`, which call the driver as C does.
    fn raw(&mut self, batch: Option<usize>) {
        let (to, from, stream) = (self.target.as_raw(), self.source.as_raw(), self.stream.as_raw());
        for first in (0..COPIES).step_by(batch.unwrap_or(1)) {
            let at = (first % 256 * SIZE) as u64;
            if let Some(count) = batch {
                self.raw_batch(at, count);
                continue;
            }
            // SAFETY: both sides have this part.
            let code = unsafe { cuda_sys::cuMemcpyDtoDAsync_v2(to + at, from + at, SIZE, stream) };
            assert_eq!(code, CUresult::CUDA_SUCCESS);
        }
    }

    fn raw_batch(&self, at: u64, count: usize) {
        let parts = || (0..count as u64).map(move |part| at + part * SIZE as u64);
        let mut to: Vec<u64> = parts().map(|at| self.target.as_raw() + at).collect();
        let mut from: Vec<u64> = parts().map(|at| self.source.as_raw() + at).collect();
        let mut sizes = vec![SIZE; count];
        let mut attributes = CUmemcpyAttributes::zeroed();
        attributes.srcAccessOrder = CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
        let mut first = 0;
        // SAFETY: the lists have `count` entries, and both sides have these parts.
        let code = unsafe {
            cuda_sys::cuMemcpyBatchAsync_v2(
                to.as_mut_ptr(),
                from.as_mut_ptr(),
                sizes.as_mut_ptr(),
                count,
                &raw mut attributes,
                &raw mut first,
                1,
                self.stream.as_raw(),
            )
        };
        assert_eq!(code, CUresult::CUDA_SUCCESS);
    }

    fn safe(&mut self, batch: Option<usize>) {
        let per_call = batch.unwrap_or(1);
        for first in (0..COPIES).step_by(per_call) {
            let at = first % 256 * SIZE;
            let mut target = ok(self.target.slice_mut(at..at + per_call * SIZE));
            let source = ok(self.source.slice(at..at + per_call * SIZE));
            if batch.is_none() {
                ok(target.copy_from(source));
                continue;
            }
            let mut batch = CopyBatch::with_capacity(self.stream, per_call);
            let targets = ok(target.chunks_exact_mut(SIZE));
            for (target, source) in targets.zip(ok(source.chunks_exact(SIZE))) {
                ok(batch.push(target, source));
            }
            ok(batch.enqueue());
        }
    }
}

pub(crate) fn run(rounds: usize, threads: usize) -> Fallible<()> {
    let driver = driver::open(false)?;
    if driver.is_null() {
        return Err("--copies needs a GPU".into());
    }
    println!("{}\n", driver.name());
    let context = Context::primary(&Device::get(0)?)?;
    let streams: Vec<Stream> = (0..threads).map(|_| context.stream()).collect::<Result<_, _>>()?;
    let mut memories = Vec::new();
    for stream in &streams {
        memories.push(Memory {
            stream,
            source: DeviceBuffer::zeroed(stream, 256 * SIZE)?,
            target: DeviceBuffer::zeroed(stream, 256 * SIZE)?,
        });
    }
    println!(
        "| copies of {SIZE} bytes on the device, ns per copy | 1 thread | {threads} threads, own streams | slower by |"
    );
    println!("|---|--:|--:|--:|");
    let mut times = vec![[Vec::new(), Vec::new()]; WAYS.len()];
    // Alternately, so that other load on the machine affects all of them equally.
    for round in 0..rounds.min(51) + 1 {
        for (way, times) in WAYS.iter().zip(&mut times) {
            let run = |memory: &mut Memory<'_>| (way.run)(memory, way.batch);
            let alone = together(&context, COPIES, &mut memories[..1], run)?;
            context.synchronize()?;
            let all = together(&context, COPIES, &mut memories, run)?;
            context.synchronize()?;
            if round != 0 {
                times[0].push(alone);
                times[1].push(all);
            }
        }
    }
    for (way, times) in WAYS.iter().zip(times) {
        let [alone, all] = times.map(Spread::of);
        println!(
            "| {} | {:.0} [{:.0}..{:.0}] | {:.0} [{:.0}..{:.0}] | {:.1} |",
            way.name,
            alone.median,
            alone.low,
            alone.high,
            all.median,
            all.low,
            all.high,
            all.median / alone.median,
        );
    }
    Ok(())
}
