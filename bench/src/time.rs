//! Measures time. Each round measures every layer, so that other load on the machine affects all of them
//! equally.

use crate::work::{Layer, Operation, Work, ok};
use crate::{Fallible, plain};
use cuda_safe::Context;
use std::sync::Barrier;
use std::time::Instant;

/// The median of many values, and their 5th and 95th percentiles.
#[derive(Clone, Copy)]
pub(crate) struct Spread {
    pub(crate) low: f64,
    pub(crate) median: f64,
    pub(crate) high: f64,
}

impl Spread {
    pub(crate) fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let last = values.len().saturating_sub(1) as f64;
        let at = |part: f64| values.get((part * last).round() as usize).copied();
        let at = |part| at(part).unwrap_or(f64::NAN);
        Self { low: at(0.05), median: at(0.5), high: at(0.95) }
    }
}

pub(crate) struct Measured {
    pub(crate) name: &'static str,
    pub(crate) calls: &'static str,
    /// The number of graph nodes that an operation concerns, or 0.
    pub(crate) nodes: usize,
    pub(crate) layers: Vec<(Layer, Times)>,
}

pub(crate) struct Times {
    /// Nanoseconds per operation.
    pub(crate) each: Spread,
    /// The ratio to plain C in the same round.
    pub(crate) ratio: Spread,
}

/// Number of warm-up rounds.
const WARM: usize = 3;

pub(crate) fn run(operations: &mut [Operation], rounds: usize) -> Vec<Measured> {
    operations.iter_mut().map(|operation| measure(operation, rounds)).collect()
}

fn measure(operation: &mut Operation, rounds: usize) -> Measured {
    let rounds = rounds.min(operation.rounds);
    let warm = if operation.rounds == usize::MAX { WARM } else { 1 };
    let count = operation.works.len();
    let mut times = vec![Vec::with_capacity(rounds); count];
    for round in 0..warm + rounds {
        // The order of the layers rotates from round to round.
        for turn in 0..count {
            let place = (round + turn) % count;
            let work = &mut operation.works[place].1;
            let time = batch(work, operation.batch, operation.bare);
            if round >= warm {
                times[place].push(time);
            }
        }
    }
    // C is the first layer.
    let base = times[0].clone();
    let layers = operation.works.iter().zip(times).map(|((layer, _), times)| {
        let ratios = times.iter().zip(&base).map(|(time, base)| time / base).collect();
        let times = Times { ratio: Spread::of(ratios), each: Spread::of(times) };
        (*layer, times)
    });
    Measured {
        name: operation.name,
        calls: operation.calls,
        nodes: operation.nodes,
        layers: layers.collect(),
    }
}

fn batch(work: &mut Work, batch: usize, bare: bool) -> f64 {
    (work.before)();
    plain::wait();
    plain::make_current(!bare);
    let start = Instant::now();
    (work.run)(batch);
    let time = start.elapsed();
    plain::make_current(true);
    plain::wait();
    time.as_nanos() as f64 / batch as f64
}

/// Returns the time in nanoseconds that a thread needs for one of `count` calls, which `run` makes, if there is
/// one thread for each of `objects`.
pub(crate) fn together<T: Send>(
    context: &Context,
    count: usize,
    objects: &mut [T],
    run: impl Fn(&mut T) + Copy + Send,
) -> Fallible<f64> {
    let barrier = Barrier::new(objects.len());
    let times: Vec<f64> = std::thread::scope(|scope| {
        let threads: Vec<_> = objects
            .iter_mut()
            .map(|its| {
                let barrier = &barrier;
                scope.spawn(move || {
                    ok(context.bind_to_thread());
                    barrier.wait();
                    let start = Instant::now();
                    run(its);
                    start.elapsed().as_secs_f64() * 1e9 / count as f64
                })
            })
            .collect();
        let ends = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
        ends.collect::<Result<_, _>>()
    })
    .map_err(|_| "a thread panicked")?;
    Ok(times.iter().sum::<f64>() / times.len() as f64)
}
