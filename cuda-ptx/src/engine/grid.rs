//! Grids: the order in which blocks run, and the host threads that run them.

use super::Launch;
use super::access::Regions;
use super::block::{Host, Progress, Unit, count, order};
use super::fault::{Fault, FaultKind, Raise};
use super::interleave::Interleaver;
use super::watch::Watch;
use crate::device::Device;
use crate::program::{Inst, Op};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Rounds that a cluster runs before another one does.
const ROUNDS: u32 = 16;
/// Clusters that one host thread runs in turn.
const RESIDENT: usize = 128;

/// Runs a kernel to its end.
///
/// # Errors
/// The kernel does something that ends it on a GPU, or an instruction that is not supported.
pub fn run(launch: &Launch<'_>, device: &dyn Device) -> Result<(), Box<Fault>> {
    let Some(kernel) = launch.program.kernels.get(launch.kernel) else { return Ok(()) };
    // A kernel without effect may have a grid that would take hours.
    if matches!(kernel.image.code.first(), Some(Inst { guard: None, op: Op::Exit })) {
        let threads = count(launch.grid).saturating_mul(count(launch.block));
        add(launch, &[threads]);
        return Ok(());
    }
    let clusters = count(launch.grid) / count(launch.cluster).max(1);
    let grid = [const { AtomicU64::new(0) }; 4];
    let shared = Shared {
        launch,
        device,
        clusters,
        next: AtomicU64::new(0),
        steps: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
        fault: Mutex::new(None),
    };
    let threads = match Watch::is_needed(launch) || launch.interleaving.is_some() {
        true => 1,
        false => (launch.threads as u64).min(clusters).max(1),
    };
    if threads == 1 {
        shared.work(&grid, 1);
    } else {
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| shared.work(&grid, threads));
            }
        });
    }
    let fault = shared.fault.into_inner().unwrap_or_else(PoisonError::into_inner);
    fault.map_or(Ok(()), |(_, fault)| Err(fault))
}

/// Adds executions to the counters of a launch.
fn add(launch: &Launch<'_>, counts: &[u64]) {
    for (total, count) in launch.counts.unwrap_or_default().iter().zip(counts) {
        total.fetch_add(*count, Ordering::Relaxed);
    }
}

/// What the host threads of a launch share.
struct Shared<'a> {
    launch: &'a Launch<'a>,
    device: &'a dyn Device,
    clusters: u64,
    next: AtomicU64,
    steps: AtomicU64,
    is_over: AtomicBool,
    /// The error of the cluster with the lowest number.
    fault: Mutex<Option<(u64, Box<Fault>)>>,
}

impl<'a> Shared<'a> {
    /// Runs clusters until none is left, and adds the executions of their instructions.
    fn work(&'a self, grid: &'a [AtomicU64], threads: u64) {
        let launch = self.launch;
        let mut host = Host {
            launch,
            device: self.device,
            regions: Regions::new(grid),
            steps: 0,
            counts: vec![0; launch.counts.map_or(0, <[_]>::len)],
            watch: Watch::new(launch, self.device),
            interleaver: launch.interleaving.map(Interleaver::new),
        };
        self.run_clusters(&mut host, threads);
        add(launch, &host.counts);
    }

    fn run_clusters(&'a self, host: &mut Host<'a, 'a>, threads: u64) {
        let launch = self.launch;
        let limit = match launch.is_cooperative {
            true => self.clusters.div_ceil(threads) as usize,
            false => RESIDENT,
        };
        let mut running: VecDeque<(u64, Unit)> = VecDeque::new();
        let mut spare: Vec<Unit> = Vec::new();
        loop {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            // A cluster that starts runs at once, but an interleaving chooses among all.
            let wanted =
                if host.interleaver.is_some() { limit } else { limit.min(running.len() + 1) };
            while running.len() < wanted {
                let turn = self.next.fetch_add(1, Ordering::Relaxed);
                if turn >= self.clusters {
                    break;
                }
                let at = order(launch.seed, turn as usize, self.clusters as usize) as u64;
                let mut unit = spare.pop().unwrap_or_default();
                unit.start(launch, at);
                running.push_front((at, unit));
            }
            if let Some(interleaver) = &mut host.interleaver {
                running.rotate_left(interleaver.below(running.len()));
            }
            let Some((at, mut unit)) = running.pop_front() else { return };
            let before = host.steps;
            let done = match host.interleaver.is_some() {
                false => unit.run(host, ROUNDS),
                true => unit.run_any(host),
            };
            let done = done.and_then(|progress| {
                let total = self.steps.fetch_add(host.steps - before, Ordering::Relaxed);
                if launch.steps != 0 && total > launch.steps {
                    let text = format!("the kernel runs more than {} operations", launch.steps);
                    return Err(unit.report(launch, Raise::new(FaultKind::StepLimit, 0, text)));
                }
                Ok(progress)
            });
            match done {
                Ok(Progress::Done) => {
                    if let Some(watch) = &mut host.watch {
                        watch.end_unit();
                    }
                    spare.push(unit);
                }
                Ok(Progress::Running) => running.push_back((at, unit)),
                Err(fault) => {
                    let mut first = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
                    if first.as_ref().is_none_or(|(before, _)| at < *before) {
                        *first = Some((at, fault));
                    }
                    self.is_over.store(true, Ordering::Relaxed);
                    return;
                }
            }
        }
    }
}
