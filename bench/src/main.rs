//! Measures the cost of the driver API through plain C, `cuda-sys`, `cuda-safe` and cudarc in one run.
//! See the README in this folder.

mod compile;
mod copies;
mod count;
mod driver;
mod first;
mod graphs;
mod managers;
mod nccl;
mod operations;
mod parallel;
mod plain;
mod plot;
mod raw;
mod report;
mod safe;
mod theirs;
mod time;
mod transfers;
mod work;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cuda-bench [--null] [--first | --managers | --replay | --compile | --copies | --parallel | --nccl] [--rounds N] [--only TEXT] [--json FILE] [--svg FILE]

  --null       use the driver that does nothing even if there is a real one
  --rounds N   number of rounds of each operation (default 101)
  --only TEXT  only operations with TEXT in their names
  --first      measure processes with one launch instead, from their start to their end
  --managers   measure an allocation and its free with memory managers instead, on one and on several threads
  --replay     measure a chain of 100 kernels instead, as a graph and launch by launch
  --compile    measure NVRTC, the cache of compiled programs and compilations on several threads instead
  --copies     measure copies one by one and in batches instead, on one and on several threads
  --parallel   measure launches, events, allocations, fills and graph launches instead, on one and on several threads
  --nccl       measure operations of NCCL on one rank instead
  --threads N  with --managers, --compile, --copies and --parallel: number of threads (default 16)
  --trace FILE with --managers: replay a trace of allocations instead
  --json FILE  write all medians and spreads
  --svg FILE   draw all medians and spreads

  --count      for `cargo xtask cost`, under callgrind: run each operation once on the driver that does
               nothing, and print to stdout what was counted
";

struct Options {
    null: bool,
    count: bool,
    first: bool,
    managers: bool,
    replay: bool,
    compile: bool,
    copies: bool,
    parallel: bool,
    nccl: bool,
    threads: usize,
    trace: Option<String>,
    first_of: Option<String>,
    rounds: usize,
    only: String,
    json: Option<String>,
    svg: Option<String>,
}

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let options = match options() {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprint!("cuda-bench: {error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cuda-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn options() -> Fallible<Option<Options>> {
    let mut options = Options {
        null: false,
        count: false,
        first: false,
        managers: false,
        replay: false,
        compile: false,
        copies: false,
        parallel: false,
        nccl: false,
        threads: 16,
        trace: None,
        first_of: None,
        rounds: 101,
        only: String::new(),
        json: None,
        svg: None,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--null" => options.null = true,
            "--first" => options.first = true,
            "--managers" => options.managers = true,
            "--replay" => options.replay = true,
            "--compile" => options.compile = true,
            "--copies" => options.copies = true,
            "--parallel" => options.parallel = true,
            "--nccl" => options.nccl = true,
            "--trace" => options.trace = Some(value()?),
            "--threads" => options.threads = value()?.parse::<usize>()?.max(1),
            "--first-of" => options.first_of = Some(value()?),
            "--count" => options.count = true,
            "--rounds" => options.rounds = value()?.parse::<usize>()?.max(1),
            "--only" => options.only = value()?,
            "--json" => options.json = Some(value()?),
            "--svg" => options.svg = Some(value()?),
            "-h" | "--help" => return Ok(None),
            other => return Err(format!("unknown argument {other}").into()),
        }
    }
    Ok(Some(options))
}

fn run(options: &Options) -> Fallible<()> {
    if options.first {
        return first::run(options.rounds.min(21), options.null);
    }
    if options.replay {
        return graphs::replay::run(options.rounds, options.null);
    }
    if options.compile {
        return compile::run(options.rounds, options.threads);
    }
    if options.copies {
        return copies::run(options.rounds, options.threads);
    }
    if options.parallel {
        return parallel::run(options.rounds, options.threads, options.null);
    }
    if options.nccl {
        return nccl::run(options.rounds);
    }
    if options.managers {
        return managers::run(&managers::Options {
            rounds: options.rounds,
            threads: options.threads,
            null: options.null,
            trace: options.trace.as_deref(),
        });
    }
    if let Some(layer) = &options.first_of {
        return first::one(layer, &driver::open_unseen(options.null)?);
    }
    let driver = driver::open(options.null || options.count)?;
    let operations = operations::all(&driver)?;
    let (mut operations, others): (Vec<_>, Vec<_>) =
        operations.into_iter().partition(|operation| operation.name.contains(&options.only));
    // Operations use the raw handles of objects that others own, such as the module of the kernels.
    std::mem::forget(others);
    if options.count {
        count::run(&mut operations);
        return Ok(());
    }
    println!("{}\n", driver.name());
    let measured = time::run(&mut operations, options.rounds);
    print!("{}", report::table(&measured));
    if let Some(path) = &options.json {
        std::fs::write(path, report::json(driver.name(), options.rounds, &measured))?;
    }
    if let Some(path) = &options.svg {
        std::fs::write(path, plot::svg(driver.name(), &measured))?;
    }
    Ok(())
}
