//! Measures operations between two GPUs and a kernel on each, alone and at the same time, with and without green
//! contexts.

use crate::Fallible;
use crate::time::Spread;
use cuda_nccl::{Communicator, Config, ReduceOp, group};
use cuda_safe::green::{GreenContext, SmResource, SplitByCount};
use cuda_safe::{Context, Device, DeviceBuffer, LaunchConfig, Module, Stream, TypedKernel};
use std::time::Instant;

const PTX: &str = include_str!("../busy.ptx");
/// The elements of an operation: 64 MiB.
const LEN: usize = 16 << 20;
/// The operations between two waits.
const OPERATIONS: usize = 10;
/// The SMs for NCCL.
const SMS: u32 = 16;

type Busy = TypedKernel<(&'static mut [f32], u32)>;

/// The streams of one device: for operations and for kernels.
struct Place {
    operations: Stream,
    kernels: Stream,
    _partitions: Vec<GreenContext>,
}

/// One GPU with its work.
struct Gpu {
    place: Place,
    kernel: Busy,
    result: DeviceBuffer<f32>,
}

pub(super) fn run(rounds: usize) -> Fallible<()> {
    let devices = Device::all()?;
    let Some(devices) = devices.get(..2) else {
        println!("\nno second GPU: partitions are not measured");
        return Ok(());
    };
    println!(
        "\n| | all_reduce of 64 MiB, alone, µs | beside a kernel | kernel, alone, ms | beside all_reduce |"
    );
    println!("|---|--:|--:|--:|--:|");
    let whole = |device: &Device| {
        let context = Context::primary(device)?;
        let [operations, kernels] = [context.stream()?, context.stream()?];
        Ok(Place { operations, kernels, _partitions: Vec::new() })
    };
    row("the whole GPU for both", rounds, devices, &Config::default(), whole)?;
    let config = Config { max_ctas: Some(SMS), ..Default::default() };
    row(&format!("at most {SMS} blocks for NCCL"), rounds, devices, &config, whole)?;
    let partitioned = |device: &Device| {
        let split = SplitByCount { min: SMS, max_groups: Some(1), ..Default::default() };
        let split = SmResource::of_device(device)?.split_by_count(split)?;
        let rest = split.remainder.ok_or("no SMs are left")?;
        let partitions = [GreenContext::new(split.groups)?, GreenContext::new([rest])?];
        let [operations, kernels] = [partitions[0].stream()?, partitions[1].stream()?];
        Ok(Place { operations, kernels, _partitions: partitions.into() })
    };
    row(
        &format!("{SMS} SMs for NCCL, the others for the kernel"),
        rounds,
        devices,
        &config,
        partitioned,
    )
}

fn row(
    name: &str,
    rounds: usize,
    devices: &[Device],
    config: &Config,
    place: impl Fn(&Device) -> Fallible<Place>,
) -> Fallible<()> {
    let mut gpus = Vec::new();
    for device in devices {
        let place = place(device)?;
        let kernel = Module::from_ptx(&Context::primary(device)?, PTX)?.kernel("busy")?.typed()?;
        let result = DeviceBuffer::zeroed(&place.kernels, 1)?;
        gpus.push(Gpu { place, kernel, result });
    }
    let streams: Vec<Stream> = gpus.iter().map(|gpu| gpu.place.operations.clone()).collect();
    let communicators = Communicator::init_all(&streams, config)?;
    let mut buffers = Vec::new();
    for stream in &streams {
        buffers.push(DeviceBuffer::<f32>::zeroed(stream, LEN)?);
    }
    let mut times: [Vec<f64>; 4] = Default::default();
    for round in 0..=rounds {
        let operations = operations(&communicators, &mut buffers)?;
        let kernels = {
            let begin = launch(&mut gpus)?;
            wait_for_kernels(&gpus)?;
            begin.elapsed().as_secs_f64() * 1e3
        };
        let begin = launch(&mut gpus)?;
        let operations_beside = self::operations(&communicators, &mut buffers)?;
        wait_for_kernels(&gpus)?;
        let kernels_beside = begin.elapsed().as_secs_f64() * 1e3;
        // The first round is a warm-up.
        if round > 0 {
            let all = [operations, operations_beside, kernels, kernels_beside];
            times.iter_mut().zip(all).for_each(|(times, time)| times.push(time));
        }
    }
    print!("| {name} |");
    for times in times {
        let Spread { low, median, high } = Spread::of(times);
        print!(" {median:.1} ({low:.1} .. {high:.1}) |");
    }
    println!();
    Ok(())
}

/// Returns the microseconds of one operation.
fn operations(communicators: &[Communicator], buffers: &mut [DeviceBuffer<f32>]) -> Fallible<f64> {
    let begin = Instant::now();
    for _ in 0..OPERATIONS {
        group(|group| {
            for (its, buffer) in communicators.iter().zip(&mut *buffers) {
                group.all_reduce_in_place(its, buffer, ReduceOp::Sum)?;
            }
            Ok(())
        })?;
    }
    for its in communicators {
        its.stream().synchronize()?;
    }
    Ok(begin.elapsed().as_secs_f64() * 1e6 / OPERATIONS as f64)
}

/// Launches a kernel of some milliseconds on each GPU.
fn launch(gpus: &mut [Gpu]) -> Fallible<Instant> {
    let begin = Instant::now();
    for gpu in gpus {
        let config = LaunchConfig::linear(132 * 8, 256);
        // SAFETY: the kernel writes the only element of the result.
        unsafe { gpu.kernel.launch(&gpu.place.kernels, config, (&mut gpu.result, 400_000)) }?;
    }
    Ok(begin)
}

fn wait_for_kernels(gpus: &[Gpu]) -> Fallible<()> {
    for gpu in gpus {
        gpu.place.kernels.synchronize()?;
    }
    Ok(())
}
