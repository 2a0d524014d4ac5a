//! Measures the effect of a neighbor on the latency of a short kernel, with and without green contexts.
//!
//! A short kernel is launched and waited for repeatedly: alone, next to a neighbor that keeps the GPU's
//! arithmetic units busy, and next to one that keeps its memory busy. With each neighbor there are two
//! series: one with only a higher stream priority, and one with the GPU's multiprocessors (SMs) in two
//! partitions. Each round measures all series, so that slow changes affect all of them equally.
//!
//! Run it with `cargo run --release --example isolation -- --help`.

mod ask;
mod kernels;
mod measure;
mod neighbour;
mod show;
#[path = "../support/mod.rs"]
mod support;
mod svg;

use ask::{Command, Options};
use cuda_safe::Device;
use show::Report;
use std::process::ExitCode;

type Error = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    support::main(|| match ask::parse()? {
        Command::Help => {
            print!("{}", ask::USAGE);
            Ok(())
        }
        Command::Measure(options) => isolation(&options),
    })
}

fn isolation(options: &Options) -> Result<(), Error> {
    let line = support::choose(options.sim.as_deref())?;
    if let Some(line) = &line {
        support::say(line, options.json);
    }
    let device = Device::get(options.device)?;
    let report = Report {
        driver: cuda_safe::version()?.to_string(),
        device: device.name()?,
        simulated: line.is_some(),
        measured: measure::run(&device, options, line.is_some())?,
    };
    if options.json {
        println!("{}", report.json()?);
    } else {
        print!("{}", report.text());
    }
    if let Some(path) = &options.svg {
        std::fs::write(path, svg::draw(&report))
            .map_err(|error| format!("writing {}: {error}", path.display()))?;
    }
    Ok(())
}
