//! How fast does a program change the partitions of a GPU while it runs?
//!
//! Two partitionings of the same multiprocessors (SMs) take turns, through a pool that keeps them. Each
//! time: from the request for the other partitioning to the end of a first kernel on it, which does
//! nothing; compared with a launch of that kernel and the wait for it where nothing is switched.
//!
//! `cargo run --release --example switch`, with `-- --sim PROFILE` on the software driver (its times
//! mean nothing), `-- --switches N` for another number of switches.

mod support;

use cuda_safe::green::{GreenPool, GreenPoolOptions, Lease, Partitioning, SmProbe, Wish};
use cuda_safe::{Context, Device, LaunchConfig, Module, Result, Stream, TypedKernel};
use std::process::ExitCode;
use std::time::Instant;
use support::stats::{Rounds, microseconds};

const ROUNDS: usize = 10;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("switch: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let sim = support::take_sim(&mut arguments)?;
    let switches = match arguments.as_slice() {
        [] => 1000,
        [option, number] if option == "--switches" => number.parse()?,
        _ => return Err("the options are --sim PROFILE and --switches N".into()),
    };
    let line = support::choose(sim.as_deref())?;
    if let Some(line) = &line {
        support::say(line, false);
    }
    let device = Device::get(0)?;
    println!("{}, CUDA {}", device.name()?, cuda_safe::version()?);
    let mut program = Program::new(&device)?;
    program.show_partitions()?;
    let times = program.measure(switches)?;

    println!("\nmicroseconds{:34}     p50     p99     max", "");
    row("launch and wait, nothing is switched", &times.launch);
    row("switch, launch, wait: old work is done", &times.done);
    row(
        "switch, launch, wait: old work is under way",
        &times.under_way,
    );
    let ratio = times.done.ratio(&times.launch, 50.0);
    println!(
        "\na switch and a launch take {:.2} times as long as a launch (p50; 95 % bounds {:.2} to {:.2})",
        ratio.value, ratio.lower, ratio.upper
    );
    let figures = program.pool.figures()?;
    println!(
        "the pool: {} leases, {} of them switches; {} partitionings made, {} after each was known",
        figures.leases,
        figures.switches,
        figures.made,
        figures.made - program.made_cold
    );
    if line.is_some() {
        println!("the software driver has no time: these times mean nothing. It has an account:");
        println!("a switch calls {}", program.calls_of_a_switch()?.join(", "));
    }
    Ok(())
}

fn row(name: &str, times: &Rounds) {
    let of = |percent| microseconds(times.percentile(percent));
    let max = microseconds(times.max());
    println!("{name:46}{:>8}{:>8}{max:>8}", of(50.0), of(99.0));
}

#[derive(Default)]
struct Times {
    launch: Rounds,
    done: Rounds,
    under_way: Rounds,
}

struct Program {
    pool: GreenPool,
    kernel: TypedKernel<()>,
    probe: SmProbe,
    partitionings: [Partitioning; 2],
    /// Which of them is out.
    current: usize,
    lease: Option<Lease>,
    streams: Vec<Stream>,
    /// Partitionings that were made until each was used once.
    made_cold: u64,
}

impl Program {
    fn new(device: &Device) -> Result<Self> {
        let context = Context::primary(device)?;
        let module = Module::from_ptx(&context, include_str!("../tests/kernels/vector.ptx"))?;
        let partitioning = |urgent| Partitioning {
            wishes: vec![Wish::Sms(urgent), Wish::Rest],
            ..Default::default()
        };
        let options = GreenPoolOptions {
            label: "the example".to_owned(),
            ..Default::default()
        };
        let mut program = Self {
            pool: GreenPool::new(device, options)?,
            kernel: module.kernel("nothing")?.typed()?,
            probe: SmProbe::new(&context)?,
            partitionings: [partitioning(16), partitioning(32)],
            current: 1,
            lease: None,
            streams: Vec::new(),
            made_cold: 0,
        };
        // Both are made here, and never again.
        program.switch()?;
        program.switch()?;
        program.made_cold = program.pool.figures()?.made;
        Ok(program)
    }

    /// Gives the one partitioning back, and gets the other.
    fn switch(&mut self) -> Result<()> {
        self.current = 1 - self.current;
        self.streams.clear();
        self.lease = None;
        let lease = self.pool.lease(&self.partitionings[self.current])?;
        for partition in lease.iter() {
            self.streams.push(partition.stream()?);
        }
        self.lease = Some(lease);
        Ok(())
    }

    /// A kernel on each partition.
    fn launch_everywhere(&self) -> Result<()> {
        self.streams
            .iter()
            .try_for_each(|stream| self.launch(stream))
    }

    fn launch(&self, stream: &Stream) -> Result<()> {
        // SAFETY: the kernel touches nothing.
        unsafe { self.kernel.launch(stream, LaunchConfig::linear(1, 32), ()) }
    }

    fn first_kernel(&self) -> Result<()> {
        self.launch(&self.streams[0])?;
        self.streams[0].synchronize()
    }

    /// Where the partitions of both run, before anything is measured.
    fn show_partitions(&mut self) -> Result<()> {
        for _ in 0..2 {
            self.switch()?;
            let overlap = self.probe.compare(&self.streams[0], &self.streams[1])?;
            println!(
                "partitions that run on {} and {} SMs: {overlap}",
                overlap.first.sms.len(),
                overlap.second.sms.len()
            );
        }
        Ok(())
    }

    fn measure(&mut self, switches: usize) -> Result<Times> {
        let mut times = Times::default();
        for _ in 0..ROUNDS {
            let (mut launch, mut done, mut under_way) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..switches.div_ceil(ROUNDS) {
                launch.push(timed(|| self.first_kernel())?);

                self.launch_everywhere()?;
                self.streams.iter().try_for_each(Stream::synchronize)?;
                done.push(timed(|| {
                    self.switch()?;
                    self.first_kernel()
                })?);

                self.launch_everywhere()?;
                under_way.push(timed(|| {
                    self.switch()?;
                    self.first_kernel()
                })?);
            }
            times.launch.push(launch);
            times.done.push(done);
            times.under_way.push(under_way);
        }
        Ok(times)
    }

    /// The software driver's account of one switch.
    fn calls_of_a_switch(&mut self) -> Result<Vec<&'static str>> {
        self.launch_everywhere()?;
        cuda_sim::clear_calls();
        self.switch()?;
        let calls = cuda_sim::calls();
        Ok(calls.iter().map(|call| call.function).collect())
    }
}

/// In nanoseconds.
fn timed(work: impl FnOnce() -> Result<()>) -> Result<u64> {
    let start = Instant::now();
    work()?;
    Ok(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX))
}
