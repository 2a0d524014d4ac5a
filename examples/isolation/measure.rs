//! The series: a short kernel alone and with neighbors, with priorities and in partitions.

use crate::Error;
use crate::ask::Options;
use crate::kernels::Kernels;
use crate::neighbour::{Kind, Load, Neighbour};
use crate::support::stats::Rounds;
use cuda_safe::green::{PartitionRequest, PartitionSize, SmOverlap, SmProbe, SmResource};
use cuda_safe::{Context, Device, DeviceBuffer, LaunchConfig, Result, Stream, StreamOptions};
use std::time::{Duration, Instant};

/// The short kernel's numbers of blocks, of threads per block, and of elements that a thread reads.
pub(crate) const BLOCKS: u32 = 16;
pub(crate) const THREADS: u32 = 256;
const STEPS: u32 = 8;

/// Number of warm-up launches.
const WARM_UP: u32 = 20;

/// How the short kernel and its neighbor are isolated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Way {
    /// A higher stream priority.
    Priority,
    /// Partitions of the SMs.
    Green,
}

pub(crate) struct Series {
    pub(crate) neighbour: Option<Kind>,
    pub(crate) way: Way,
    pub(crate) rounds: Rounds,
}

impl Series {
    pub(crate) fn name(&self) -> &'static str {
        match (self.neighbour, self.way) {
            (None, Way::Priority) => "alone",
            (None, Way::Green) => "alone, in its partition",
            (Some(Kind::Compute), Way::Priority) => "compute neighbor, priority only",
            (Some(Kind::Compute), Way::Green) => "compute neighbor, green contexts",
            (Some(Kind::Bandwidth), Way::Priority) => "bandwidth neighbor, priority only",
            (Some(Kind::Bandwidth), Way::Green) => "bandwidth neighbor, green contexts",
        }
    }
}

/// The streams of one kind of isolation.
struct Pair {
    urgent: Stream,
    other: Stream,
}

pub(crate) struct Measured {
    pub(crate) series: Vec<Series>,
    /// The number of SMs in the short kernel's partition and in the neighbor's.
    pub(crate) sms: [u32; 2],
    /// The SMs on which the partitions ran, from the probe.
    pub(crate) overlap: SmOverlap,
    pub(crate) plan: Plan,
}

/// The number of rounds and launches.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) rounds: u32,
    pub(crate) launches: u32,
    limit: Duration,
}

pub(crate) fn run(
    device: &Device,
    options: &Options,
    simulated: bool,
) -> std::result::Result<Measured, Error> {
    let (rounds, launches) = if simulated { (2, 20) } else { (5, 1000) };
    let plan = Plan {
        rounds: options.rounds.unwrap_or(rounds),
        launches: options.launches.unwrap_or(launches),
        limit: options.limit,
    };
    let context = Context::primary(device)?;
    let kernels = Kernels::load(&context)?;
    let load = Load::of(&context, simulated)?;

    // A lower number is a higher priority.
    let priorities = context.stream_priorities()?;
    let of_priority = |priority| StreamOptions { priority, ..Default::default() };
    let (low, high) = (*priorities.end(), *priorities.start());
    let plain = Pair {
        urgent: context.stream_with(of_priority(high))?,
        other: context.stream_with(of_priority(low))?,
    };
    let partitions = SmResource::of_device(device)?.partition(&PartitionRequest {
        sizes: vec![PartitionSize::Sms(options.sms), PartitionSize::Rest],
        label: "the example".to_owned(),
        ..Default::default()
    })?;
    let mut greens = Vec::new();
    for part in partitions.parts {
        greens.push(part.create()?);
    }
    let green = Pair {
        urgent: greens[0].stream_with(of_priority(high))?,
        other: greens[1].stream_with(of_priority(low))?,
    };
    let overlap = SmProbe::new(&context)?.compare(&green.urgent, &green.other)?;

    let mut series = Vec::new();
    for neighbour in [None, Some(Kind::Compute), Some(Kind::Bandwidth)] {
        for way in [Way::Priority, Way::Green] {
            series.push(Series { neighbour, way, rounds: Rounds::default() });
        }
    }
    for round in 0..plan.rounds as usize {
        let count = series.len();
        for turn in 0..count {
            // The order differs from round to round, so that no series is always first.
            let its = &mut series[(turn + round) % count];
            let pair = match its.way {
                Way::Priority => &plain,
                Way::Green => &green,
            };
            let measured = measure(&kernels, pair, its.neighbour, load, plan)?;
            its.rounds.push(measured);
        }
    }
    Ok(Measured { series, sms: [greens[0].sm_count(), greens[1].sm_count()], overlap, plan })
}

/// Measures a series in one round. A time runs from before the launch to after the wait for it, in
/// nanoseconds.
fn measure(
    kernels: &Kernels,
    pair: &Pair,
    neighbour: Option<Kind>,
    load: Load,
    plan: Plan,
) -> Result<Vec<u64>> {
    let threads = (BLOCKS * THREADS) as usize;
    let data = DeviceBuffer::<f32>::zeroed(&pair.urgent, threads * STEPS as usize)?;
    let mut out = DeviceBuffer::<f32>::zeroed(&pair.urgent, threads)?;
    let config = LaunchConfig::linear(BLOCKS, THREADS);
    let mut neighbour =
        neighbour.map(|kind| Neighbour::new(kind, kernels, &pair.other, load)).transpose()?;

    let mut times = Vec::with_capacity(plan.launches as usize);
    let begin = Instant::now();
    for launch in 0..WARM_UP + plan.launches {
        if let Some(neighbour) = &mut neighbour {
            neighbour.keep_going()?;
        }
        let start = Instant::now();
        // SAFETY: the kernel reads STEPS elements and writes one element for each of its threads, and
        // the buffers have that many elements.
        unsafe { kernels.respond.launch(&pair.urgent, config, (&data, &mut out, STEPS)) }?;
        pair.urgent.synchronize()?;
        let time = start.elapsed();
        if launch >= WARM_UP {
            times.push(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
            if begin.elapsed() > plan.limit {
                break;
            }
        }
    }
    // No work of this series continues during the next one.
    neighbour.map_or(Ok(()), Neighbour::end)?;
    Ok(times)
}
