//! Serves three tenants under load, and shows the latency of each one: two that send short requests, and
//! a neighbor whose requests keep every multiprocessor (SM) busy.
//!
//! The load runs three times: without partitions, with a partition for each tenant, and once more while
//! the partitions change. Run it with `cargo run --release -p tenant-server --example serve -- --help`.

#[path = "../../../support/mod.rs"]
mod support;

use cuda_memory::CachingManager;
use cuda_safe::Device;
use cuda_safe::device::attribute;
use cuda_safe::manager::set_memory_manager;
use lexopt::{Arg, Parser, ValueExt};
use serde::Serialize;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::stats::{Rounds, microseconds};
use tenant_server::{Plan, Request, Server, Switch};

const USAGE: &str = "\
Serves three tenants under load, with and without partitions of the GPU.

usage: serve [options]

  --device N      the device (default 0)
  --sim PROFILE   use the software driver instead of a GPU: h200, ... (latencies are meaningless there)
  --requests N    number of requests of each short tenant in a phase (default 4000; --sim: 200)
  --limit SECONDS ... but a phase ends after this time (default 20)
  --json          print one JSON object
";

type Error = Box<dyn std::error::Error + Send + Sync>;

struct Tenant {
    name: &'static str,
    /// The number of clients, each of which has one request in the queue or being served.
    clients: u32,
    /// Whether it sends short requests. The others send long ones as long as the load lasts.
    is_short: bool,
}

static TENANTS: [Tenant; 3] = [
    Tenant { name: "search", clients: 2, is_short: true },
    Tenant { name: "chat", clients: 1, is_short: true },
    Tenant { name: "batch", clients: 4, is_short: false },
];
const WEIGHTS: [u32; 3] = [1, 1, 2];
/// The weights after the change under load.
const NEW_WEIGHTS: [u32; 3] = [2, 1, 1];

struct Options {
    device: u32,
    sim: Option<String>,
    requests: Option<u64>,
    limit: Duration,
    json: bool,
}

#[derive(Serialize)]
struct Report {
    device: String,
    driver: String,
    /// Whether this ran on the software driver, where latencies are meaningless.
    simulated: bool,
    phases: Vec<Phase>,
    /// How long the change under load waited for the requests that were being served.
    drain_ms: f64,
    /// How long it took after that.
    split_ms: f64,
    /// Whether no SM ran the work of two tenants, as a probe measured.
    partitions_disjoint: bool,
}

#[derive(Serialize)]
struct Phase {
    name: &'static str,
    tenants: Vec<Measured>,
}

/// The answers that a tenant got in a phase. Times are from before the request was submitted to after
/// its answer.
#[derive(Serialize)]
struct Measured {
    name: &'static str,
    sms: u32,
    submitted: usize,
    answered: usize,
    failed: usize,
    p50_us: f64,
    p99_us: f64,
    max_us: f64,
}

fn main() -> ExitCode {
    support::main(|| match parse()? {
        None => {
            print!("{USAGE}");
            Ok(())
        }
        Some(options) => run(&options),
    })
}

fn parse() -> Result<Option<Options>, Error> {
    let mut options = Options {
        device: 0,
        sim: None,
        requests: None,
        limit: Duration::from_secs(20),
        json: false,
    };
    let mut parser = Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Long("device") => options.device = parser.value()?.parse()?,
            Arg::Long("sim") => options.sim = Some(parser.value()?.string()?),
            Arg::Long("requests") => options.requests = Some(parser.value()?.parse()?),
            Arg::Long("limit") => options.limit = Duration::from_secs(parser.value()?.parse()?),
            Arg::Long("json") => options.json = true,
            Arg::Long("help") | Arg::Short('h') => return Ok(None),
            other => return Err(other.unexpected().into()),
        }
    }
    if options.requests == Some(0) {
        return Err("--requests must be at least 1".into());
    }
    Ok(Some(options))
}

fn run(options: &Options) -> Result<(), Error> {
    let line = support::choose(options.sim.as_deref())?;
    if let Some(line) = &line {
        support::say(line, options.json);
    }
    let simulated = line.is_some();
    // Before the first context, which takes its allocator when it is created.
    set_memory_manager(CachingManager::new)?;
    let device = Device::get(options.device)?;
    let load = Load::of(&device, options, simulated)?;
    let server = Server::start(&device, TENANTS.len())?;

    let mut phases = Vec::new();
    let switch = server.apply(&Plan::Shared)?;
    phases.push(load.run("shared", &server, &switch, || Ok(switch.clone()))?);
    let switch = server.apply(&Plan::Weights(WEIGHTS.to_vec()))?;
    phases.push(load.run("partitions", &server, &switch, || Ok(switch.clone()))?);
    let mut changed = switch.clone();
    phases.push(load.run("partitions change", &server, &switch, || {
        // Under load, after some requests of this phase.
        load.wait_for_answers();
        changed = server.apply(&Plan::Weights(NEW_WEIGHTS.to_vec()))?;
        Ok(changed.clone())
    })?);
    let probed = server.probe()?;
    let pairs = [(0, 1), (0, 2), (1, 2)];
    let report = Report {
        device: device.name()?,
        driver: cuda_safe::version()?.to_string(),
        simulated,
        phases,
        drain_ms: changed.drain.as_secs_f64() * 1e3,
        split_ms: changed.split.as_secs_f64() * 1e3,
        partitions_disjoint: pairs.iter().all(|(a, b)| probed[*a].is_disjoint(&probed[*b])),
    };
    match options.json {
        true => println!("{}", serde_json::to_string(&report)?),
        false => report.print(),
    }
    Ok(())
}

/// The load of a phase.
struct Load {
    requests: u64,
    limit: Duration,
    short: Request,
    long: Request,
    /// The number of answers of short requests in this phase.
    answers: AtomicU64,
}

/// The times and the number of failures of a client.
#[derive(Default)]
struct Client {
    times: Vec<u64>,
    submitted: usize,
    failed: usize,
}

impl Load {
    fn of(device: &Device, options: &Options, simulated: bool) -> Result<Self, Error> {
        let request = |len, rounds| Request { seed: 1, len, rounds };
        let sms = device.attribute(attribute::MULTIPROCESSOR_COUNT)? as usize;
        let (requests, short, long) = match simulated {
            true => (200, request(64, 4), request(512, 16)),
            // A long request fills each SM with 2048 threads, four times in a row.
            false => (4000, request(4096, 2000), request(4 * 2048 * sms, 100_000)),
        };
        Ok(Self {
            requests: options.requests.unwrap_or(requests),
            limit: options.limit,
            short,
            long,
            answers: AtomicU64::new(0),
        })
    }

    /// Runs the load once, and `change` meanwhile.
    fn run(
        &self,
        name: &'static str,
        server: &Server,
        before: &Switch,
        change: impl FnOnce() -> Result<Switch, Error>,
    ) -> Result<Phase, Error> {
        // Not measured: the first request of a tenant allocates memory of the driver.
        for (tenant, of) in TENANTS.iter().enumerate() {
            let request = if of.is_short { self.short } else { self.long };
            server.submit(tenant, request)?.wait()?;
        }
        let end = Instant::now() + self.limit;
        let is_over = AtomicBool::new(false);
        self.answers.store(0, Ordering::Relaxed);
        let (clients, changed) = std::thread::scope(|scope| {
            let start = |(tenant, of): (usize, &'static Tenant)| -> Vec<_> {
                let requests = self.requests.div_ceil(u64::from(of.clients));
                let is_over = &is_over;
                let client = move || match of.is_short {
                    true => self.short_client(server, tenant, requests, end),
                    false => self.long_client(server, tenant, is_over, end),
                };
                (0..of.clients).map(|_| scope.spawn(client)).collect()
            };
            let running: Vec<Vec<_>> = TENANTS.iter().enumerate().map(start).collect();
            let changed = change();
            let mut clients: Vec<Result<Vec<Client>, Error>> = Vec::new();
            for (running, of) in running.into_iter().zip(&TENANTS) {
                // The long requests come last.
                is_over.store(!of.is_short, Ordering::Relaxed);
                let joined = running.into_iter().map(|client| {
                    let joined = client.join();
                    joined.unwrap_or_else(|_| Err("a client has panicked".into()))
                });
                clients.push(joined.collect());
            }
            (clients, changed)
        });
        let changed = changed?;
        let mut tenants = Vec::new();
        for (tenant, clients) in clients.into_iter().enumerate() {
            let clients = clients?;
            let submitted = clients.iter().map(|client| client.submitted).sum();
            let failed = clients.iter().map(|client| client.failed).sum();
            let mut times = Rounds::default();
            for client in clients {
                times.push(client.times);
            }
            let us = |nanoseconds: u64| nanoseconds as f64 / 1000.0;
            tenants.push(Measured {
                name: TENANTS[tenant].name,
                sms: changed.sms.get(tenant).or(before.sms.get(tenant)).copied().unwrap_or(0),
                submitted,
                answered: times.count(),
                failed,
                p50_us: us(times.percentile(50.0)),
                p99_us: us(times.percentile(99.0)),
                max_us: us(times.max()),
            });
        }
        Ok(Phase { name, tenants })
    }

    /// Blocks until a quarter of the short requests of this phase are answered, or the time is over.
    fn wait_for_answers(&self) {
        let end = Instant::now() + self.limit;
        while self.answers.load(Ordering::Relaxed) < self.requests / 4 && Instant::now() < end {
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    fn short_client(
        &self,
        server: &Server,
        tenant: usize,
        requests: u64,
        end: Instant,
    ) -> Result<Client, Error> {
        let mut client = Client::default();
        for _ in 0..requests {
            if Instant::now() > end {
                break;
            }
            client.send(server, tenant, self.short)?;
            self.answers.fetch_add(1, Ordering::Relaxed);
        }
        Ok(client)
    }

    fn long_client(
        &self,
        server: &Server,
        tenant: usize,
        is_over: &AtomicBool,
        end: Instant,
    ) -> Result<Client, Error> {
        let mut client = Client::default();
        while !is_over.load(Ordering::Relaxed) && Instant::now() < end {
            client.send(server, tenant, self.long)?;
        }
        Ok(client)
    }
}

impl Client {
    fn send(&mut self, server: &Server, tenant: usize, request: Request) -> Result<(), Error> {
        let start = Instant::now();
        let ticket = server.submit(tenant, request)?;
        self.submitted += 1;
        match ticket.wait() {
            Ok(_) => self.times.push(start.elapsed().as_nanos() as u64),
            Err(error) => {
                eprintln!("serve: a request of tenant {tenant} (zero-based): {error}");
                self.failed += 1;
            }
        }
        Ok(())
    }
}

impl Report {
    fn print(&self) {
        println!("{}, CUDA {}", self.device, self.driver);
        println!(
            "\n{:20}{:10}{:>5}{:>10}{:>8}{:>10}{:>10}{:>10}",
            "", "tenant", "SMs", "answered", "failed", "p50 µs", "p99 µs", "max µs"
        );
        for phase in &self.phases {
            for (index, tenant) in phase.tenants.iter().enumerate() {
                let name = if index == 0 { phase.name } else { "" };
                let us = |microseconds_of: f64| microseconds((microseconds_of * 1e3) as u64);
                println!(
                    "{name:20}{:10}{:>5}{:>10}{:>8}{:>10}{:>10}{:>10}",
                    tenant.name,
                    tenant.sms,
                    tenant.answered,
                    tenant.failed,
                    us(tenant.p50_us),
                    us(tenant.p99_us),
                    us(tenant.max_us)
                );
            }
        }
        let all = self.phases.iter().flat_map(|phase| &phase.tenants);
        let lost: usize =
            all.map(|tenant| tenant.submitted - tenant.answered - tenant.failed).sum();
        println!(
            "\nthe change under load waited {:.2} ms for the requests that were being served, and took \
             {:.2} ms after that; {lost} requests were lost",
            self.drain_ms, self.split_ms
        );
        match self.partitions_disjoint {
            true => println!("no SM ran the work of two tenants, as a probe measured"),
            false => println!("a probe found SMs that ran the work of two tenants"),
        }
        if self.simulated {
            println!("the software driver does not model time, so these times are meaningless");
        }
    }
}
