//! Lists the GPUs of this machine and their properties.
//!
//! `cargo run --example devices` prints a summary, and with `-- --all` every attribute. `-- --report` prints
//! a text for bug reports: driver, devices, versions and environment. `--sim PROFILE` uses the software
//! driver.

mod report;
#[path = "../support/mod.rs"]
mod support;

use cuda_safe::device::attribute;
use cuda_safe::green::SmResource;
use cuda_safe::{Device, Result};
use std::process::ExitCode;

const BUILD: &str = concat!(env!("BUILD_COMPILER"), " for ", env!("BUILD_TARGET"));

fn main() -> ExitCode {
    support::main(run)
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let sim = support::take_sim(&mut arguments)?;
    if arguments.iter().any(|argument| argument == "--report") {
        // Without --sim, a report shows a missing driver rather than the software driver.
        let simulated = match sim {
            Some(profile) => support::choose(Some(&profile))?,
            None => None,
        };
        print!("{}", report::write(BUILD, simulated.as_deref(), |name| std::env::var(name).ok()));
        return Ok(());
    }
    if let Some(line) = support::choose(sim.as_deref())? {
        support::say(&line, false);
    }
    list(arguments.iter().any(|argument| argument == "--all"))?;
    Ok(())
}

fn list(all: bool) -> Result<()> {
    println!("driver: CUDA {}", cuda_safe::version()?);
    for device in Device::all()? {
        describe(&device)?;
        if all {
            for (name, value) in attribute::all(&device)? {
                println!("    {name:58} {value}");
            }
        }
    }
    Ok(())
}

fn describe(device: &Device) -> Result<()> {
    const GIB: f64 = (1u64 << 30) as f64;
    let (major, minor) = device.compute_capability()?;
    let count = |attribute| device.attribute(attribute);
    println!();
    println!("device {}: {}", device.ordinal(), device.name()?);
    println!("  {}", device.uuid()?);
    println!(
        "  PCI {:04x}:{:02x}:{:02x}",
        count(attribute::PCI_DOMAIN_ID)?,
        count(attribute::PCI_BUS_ID)?,
        count(attribute::PCI_DEVICE_ID)?
    );
    println!(
        "  compute capability {major}.{minor}, {} SMs at {} MHz",
        count(attribute::MULTIPROCESSOR_COUNT)?,
        count(attribute::CLOCK_RATE)? / 1000
    );
    println!(
        "  {:.1} GiB of memory, {} MiB of L2 cache, {} KiB of shared memory per SM",
        device.total_memory()? as f64 / GIB,
        count(attribute::L2_CACHE_SIZE)? >> 20,
        count(attribute::MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)? >> 10
    );
    println!(
        "  per block: at most {} threads and {} KiB of shared memory",
        count(attribute::MAX_THREADS_PER_BLOCK)?,
        count(attribute::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)? >> 10
    );
    println!(
        "  memory pools: {}, ECC: {}, MPS: {}",
        yes_no(device.attribute(attribute::MEMORY_POOLS_SUPPORTED)?),
        yes_no(device.attribute(attribute::ECC_ENABLED)?),
        // Drivers before CUDA 12.3 do not have this attribute.
        device.attribute(attribute::MPS_ENABLED).map_or("unknown", yes_no)
    );
    match SmResource::of_device(device) {
        Ok(sms) => match sms.properties().min_partition_size {
            Some(size) => println!("  green contexts: partitions of at least {size} SMs"),
            None => println!("  green contexts: yes"),
        },
        Err(why) => println!("  green contexts: no ({why})"),
    }
    Ok(())
}

fn yes_no(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}
