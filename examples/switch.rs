//! Measures how fast a program can change the partitions of a GPU while it runs.
//!
//! Two partitionings of the same multiprocessors (SMs) alternate, through a pool that caches them. Each
//! measurement runs from the request for the other partitioning to the end of a first, empty kernel on
//! it. It is compared with a launch of that kernel and a wait for it without a switch.
//!
//! Run it with `cargo run --release --example switch`. `-- --sim PROFILE` runs it on the software
//! driver, where times are meaningless. `-- --switches N` sets the number of switches.

mod support;

use cuda_safe::green::{
    GreenPool, GreenPoolOptions, Lease, PartitionRequest, PartitionSize, SmProbe,
};
use cuda_safe::{Context, Device, LaunchConfig, Module, Result, Stream, TypedKernel};
use std::process::ExitCode;
use std::time::Instant;
use support::stats::{Rounds, microseconds};

const ROUNDS: usize = 10;

fn main() -> ExitCode {
    support::main(run)
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
    row("launch and wait, no switch", &times.launch);
    row("switch, launch, wait: old work complete", &times.done);
    row("switch, launch, wait: old work running", &times.under_way);
    let ratio = times.done.ratio(&times.launch, 50.0);
    println!(
        "\na switch and a launch take {:.2} times as long as a launch (p50; 95 % bounds {:.2} to {:.2})",
        ratio.value, ratio.lower, ratio.upper
    );
    let stats = program.pool.stats()?;
    println!(
        "the pool: {} leases, {} of them switches; {} partitionings created, {} after the first use of each",
        stats.leases,
        stats.switches,
        stats.created,
        stats.created - program.made_cold
    );
    if line.is_some() {
        println!(
            "the software driver does not model time, so these times are meaningless. Its record of calls:"
        );
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
    partitionings: [PartitionRequest; 2],
    /// The index of the leased partitioning.
    current: usize,
    lease: Option<Lease>,
    streams: Vec<Stream>,
    /// Number of partitionings created until each was used once.
    made_cold: u64,
}

impl Program {
    fn new(device: &Device) -> Result<Self> {
        let context = Context::primary(device)?;
        let module = Module::from_ptx(&context, include_str!("../tests/kernels/vector.ptx"))?;
        let partitioning = |urgent| PartitionRequest {
            sizes: vec![PartitionSize::Sms(urgent), PartitionSize::Rest],
            ..Default::default()
        };
        let options = GreenPoolOptions { label: "the example".to_owned(), ..Default::default() };
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
        // Both partitionings are created here, and never again.
        program.switch()?;
        program.switch()?;
        program.made_cold = program.pool.stats()?.created;
        Ok(program)
    }

    /// Returns the current partitioning to the pool and leases the other one.
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

    /// Launches a kernel on each partition.
    fn launch_everywhere(&self) -> Result<()> {
        self.streams.iter().try_for_each(|stream| self.launch(stream))
    }

    fn launch(&self, stream: &Stream) -> Result<()> {
        // SAFETY: the kernel accesses no memory.
        unsafe { self.kernel.launch(stream, LaunchConfig::linear(1, 32), ()) }
    }

    fn first_kernel(&self) -> Result<()> {
        self.launch(&self.streams[0])?;
        self.streams[0].synchronize()
    }

    /// Prints where the partitions of both partitionings run, before the measurement.
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

    /// Returns the driver calls of a switch, as recorded by the software driver.
    fn calls_of_a_switch(&mut self) -> Result<Vec<&'static str>> {
        self.launch_everywhere()?;
        cuda_sim::clear_calls();
        self.switch()?;
        let calls = cuda_sim::calls();
        Ok(calls.iter().map(|call| call.function).collect())
    }
}

/// Returns the time of `work` in nanoseconds.
fn timed(work: impl FnOnce() -> Result<()>) -> Result<u64> {
    let start = Instant::now();
    work()?;
    Ok(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX))
}
