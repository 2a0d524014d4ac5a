//! Partitions a GPU and verifies that work stays in its partition.
//!
//! The program splits the GPU's multiprocessors (SMs), creates a green context and a stream for each
//! group, and shows on which SMs each partition ran, as measured by the library's probe. With
//! `--max-cluster` it also prints the maximum cluster size. With `--plan` it creates nothing and only
//! prints the partitions that it would create.
//!
//! Run it with `cargo run --release --example partition -- --help`.

mod ask;
mod plan;
mod prove;
mod show;
#[path = "../support/mod.rs"]
mod support;
mod svg;
mod table;

use ask::{Command, Options};
use cuda_safe::Device;
use show::Report;
use std::process::ExitCode;

type Error = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    // With `--json`, errors in the options are printed as JSON too.
    let json = std::env::args().any(|argument| argument == "--json");
    support::main(|| {
        let done = ask::parse().and_then(|command| match command {
            Command::Help => {
                print!("{}", ask::USAGE);
                Ok(true)
            }
            Command::Partition(options) => partition(&options),
        });
        match done {
            Ok(true) => Ok(ExitCode::SUCCESS),
            Ok(false) => Ok(ExitCode::FAILURE),
            Err(error) if json => {
                println!("{}", show::json_error(&error.to_string()));
                Ok(ExitCode::FAILURE)
            }
            Err(error) => Err(error),
        }
    })
}

/// Creates, verifies and shows the partitions. Returns whether they are disjoint, except for SMs that
/// the hardware adds.
fn partition(options: &Options) -> Result<bool, Error> {
    if let Some(line) = support::choose(options.sim.as_deref())? {
        support::say(&line, options.json);
    }
    let device = Device::get(options.device)?;
    if options.plan {
        let table = table::make(&device, &options.ask)?;
        if options.json {
            println!("{}", table.json()?);
        } else {
            print!("{}", table.text(&options.ask.to_string()));
        }
        return Ok(true);
    }
    let plan = plan::make(&device, &options.ask)?;
    let report = Report {
        driver: cuda_safe::version()?.to_string(),
        device: device.name()?,
        sms: plan.sms,
        remaining: plan.remaining,
        groups: prove::run(&device, plan.parts, options.ask.is_for_clusters())?,
    };
    if options.json {
        println!("{}", report.json()?);
    } else {
        print!("{}", report.text(&options.ask.to_string()));
    }
    if let Some(path) = &options.svg {
        std::fs::write(path, svg::draw(&report))
            .map_err(|error| format!("writing {}: {error}", path.display()))?;
    }
    Ok(report.disjoint() || report.is_by_hardware())
}
