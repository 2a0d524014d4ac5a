//! The planted kernels of `cuda-ptx` under the tools of compute-sanitizer, on a GPU.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::Command;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use cuda_ptx::check::Check;
use cuda_safe::launch::LaunchAttributes;
use cuda_safe::memory::MappedBuffer;
use cuda_safe::module::JitOptions;
use cuda_safe::{Context, Device, DeviceBuffer, Error, LaunchConfig, Module, PinnedBuffer, Stream};

use crate::planted::{self, BYTES, Class, Expected, Row};
use crate::tensor::Tensor;

/// The number of processes that use the GPU at a time.
const TOGETHER: usize = 12;
/// The number of kernels that a process runs, unless one of them fails.
const BATCH: usize = 12;
/// The time after which a kernel does not end.
const PATIENCE: Duration = Duration::from_secs(6);
/// The seconds after which a process is killed.
const SECONDS: &str = "40";
/// The start of the line that begins the output of a process in the log, before its tool and its kernels.
const BEGIN: &str = "@@ ";

/// Runs kernels, given by their numbers, in this process, and prints how they end. The first that fails is the last.
///
/// # Errors
/// A number is wrong; there is no GPU.
pub(crate) fn run(numbers: &[&str]) -> Result<(), String> {
    let text = |error: Error| error.to_string();
    let context = Context::primary(&Device::get(0).map_err(text)?).map_err(text)?;
    let stream = context.stream().map_err(text)?;
    let rows: Vec<_> = planted::all().collect();
    for number in numbers {
        let index: usize = number.parse().map_err(|_| format!("{number} is no number"))?;
        let (class, row) = rows.get(index).ok_or(format!("there is no row {index}"))?;
        let (end, has_ended) = mpsc::channel::<()>();
        let watch = std::thread::spawn(move || {
            if has_ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                println!("row {index} does not end");
                // The destructors of the driver would wait for the kernel.
                std::process::abort();
            }
        });
        let result = launch(&context, &stream, class, row, &kernel_name(index));
        drop(end);
        watch.join().expect("no panic");
        match result {
            Ok(()) => println!("row {index} ends"),
            Err(error) => return Err(format!("row {index} fails: {error}")),
        }
    }
    Ok(())
}

fn kernel_name(index: usize) -> String {
    format!("row_{index}")
}

/// Launches a kernel and waits for its end.
fn launch(
    context: &Context,
    stream: &Stream,
    class: &Class,
    row: &Row,
    name: &str,
) -> Result<(), Error> {
    // Optimizations would remove barriers and accesses that have no effect on the result.
    let options = JitOptions { optimization_level: Some(0), ..JitOptions::default() };
    let module = Module::from_ptx_with(context, &class.module(row, name), &options)?;
    let kernel = module.kernel(name)?;
    let zeros = DeviceBuffer::<u8>::zeroed_sync(stream, BYTES)?;
    // Nothing is allocated after the zeros.
    let freed = DeviceBuffer::<u8>::uninit_sync(stream, BYTES)?;
    let unwritten = DeviceBuffer::<u8>::uninit_sync(stream, BYTES)?;
    let of_host = MappedBuffer::new(PinnedBuffer::<u8>::zeroed(context, BYTES)?, stream)?;
    let results = DeviceBuffer::<u8>::uninit_sync(stream, BYTES)?;
    let address = freed.as_raw();
    drop(freed);
    stream.synchronize()?;
    let addresses =
        [zeros.as_raw(), unwritten.as_raw(), of_host.as_raw(), results.as_raw(), address];
    let mut launch = kernel.launch_builder(stream);
    for address in addresses {
        launch.arg_bytes(&address.to_le_bytes());
    }
    let ([width, height], extents) = planted::TENSOR;
    let mut tensor = Tensor::tile(2, &[width, height], &extents);
    tensor.strides = vec![4 * width];
    let maps = match planted::has_maps(row.body) {
        true => [zeros.as_raw(), unwritten.as_raw()]
            .map(|address| tensor.encode(context, address))
            .to_vec(),
        false => Vec::new(),
    };
    let maps = maps.into_iter().collect::<Result<Vec<_>, _>>().expect("a valid map");
    for map in &maps {
        launch.arg_bytes(map);
    }
    let (grid, block) = row.shape;
    let config = LaunchConfig::new([grid, 1, 1], [block, 1, 1]);
    let cluster = (row.cluster > 1).then_some([row.cluster, 1, 1]);
    let attributes = LaunchAttributes { cluster, ..LaunchAttributes::default() };
    // SAFETY: the arguments are addresses, as the parameters are. The buffers exist until the kernel has ended. A kernel
    // with an error may access other memory of this process on the GPU; compute-sanitizer, under which it runs, ends it
    // before, and no other memory is used afterwards.
    unsafe { launch.launch_with(config, &attributes) }?;
    stream.synchronize()
}

/// Returns the kernels whose names contain a text, with their numbers.
fn named(filter: &str) -> impl Iterator<Item = (usize, (&'static Class, &'static Row))> + use<'_> {
    planted::all().enumerate().filter(move |(_, (class, row))| class.row_name(row).contains(filter))
}

/// A process: the numbers of the kernels that it runs, under a tool.
struct Job {
    tool: Check,
    rows: Vec<usize>,
}

/// Returns the processes for the kernels whose names contain a text, if none fails.
fn jobs(filter: &str) -> Vec<Job> {
    let jobs = Check::ALL.into_iter().flat_map(|tool| {
        // Only memcheck ends a kernel before it accesses other memory.
        let is_safe = |(_, (class, row)): &(usize, (&Class, &Row))| {
            tool == Check::Memcheck
                || class.check != Check::Memcheck
                || row.expected == Expected::Nothing
        };
        let rows: Vec<_> = named(filter).filter(is_safe).map(|(index, _)| index).collect();
        rows.chunks(BATCH).map(|rows| Job { tool, rows: rows.to_vec() }).collect::<Vec<_>>()
    });
    jobs.collect()
}

/// Runs the kernels whose names contain a text under each tool, and writes what the tools print.
///
/// # Errors
/// A process cannot be started; the file cannot be written.
pub(crate) fn record(sanitizer: &str, log: &str, filter: &str) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    let this = std::env::current_exe().map_err(text)?;
    let file = Mutex::new(std::fs::File::create(log).map_err(text)?);
    let jobs = Mutex::new(jobs(filter));
    let next = || jobs.lock().expect("no panic").pop();
    let work = || {
        while let Some(Job { tool, rows }) = next() {
            let mut command = Command::new("timeout");
            command.args(["-s", "KILL", SECONDS, sanitizer, "--tool", tool.name()]);
            command.args([
                "--report-api-errors",
                "no",
                "--show-backtrace",
                "no",
                "--print-limit",
                "0",
            ]);
            command.arg(&this).arg("planted").args(rows.iter().map(ToString::to_string));
            let output = command.output().map_err(text)?;
            let printed =
                String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            let ended = rows
                .iter()
                .take_while(|row| has_line(&printed, &format!("row {row} ends")))
                .count();
            // The kernels after one that fails run in another process.
            let (ran, rest) = rows.split_at(rows.len().min(ended + 1));
            if !rest.is_empty() {
                jobs.lock().expect("no panic").push(Job { tool, rows: rest.to_vec() });
            }
            let ran: Vec<String> = ran.iter().map(ToString::to_string).collect();
            let section = format!("{BEGIN}{tool} {}\n{printed}\n", ran.join(" "));
            file.lock().expect("no panic").write_all(section.as_bytes()).map_err(text)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..TOGETHER).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no panic"))
    })
}

fn has_line(text: &str, line: &str) -> bool {
    text.lines().any(|its| its == line)
}

/// Prints what each tool finds in each kernel of the log of [`record`]: the first line of the first report.
///
/// # Errors
/// The log cannot be read; it has a kernel under one tool, and not under another.
pub(crate) fn verdicts(log: &str) -> Result<(), String> {
    let text = std::fs::read_to_string(log).map_err(|error| error.to_string())?;
    let mut verdicts = BTreeMap::new();
    for section in text.split(&format!("\n{BEGIN}")) {
        let (head, output) = section.split_once('\n').unwrap_or((section, ""));
        let mut words = head.trim_start_matches(BEGIN).split(' ');
        let tool = words.next().unwrap_or_default();
        for number in words {
            verdicts.insert((tool, number.to_owned()), verdict(output, number));
        }
    }
    println!("kernel\thash\t{}", Check::ALL.map(Check::name).join("\t"));
    let has = |index: usize| verdicts.keys().any(|(_, number)| *number == index.to_string());
    for (index, (class, row)) in planted::all().enumerate().filter(|(index, _)| has(*index)) {
        let is_unsafe = class.check == Check::Memcheck && row.expected != Expected::Nothing;
        let of_tool = |tool: Check| match verdicts.get(&(tool.name(), index.to_string())) {
            Some(verdict) => Ok(verdict.as_str()),
            None if is_unsafe && tool != Check::Memcheck => Ok("not run"),
            None => Err(format!("the log has no row {index} under {tool}")),
        };
        let all = Check::ALL.into_iter().map(of_tool).collect::<Result<Vec<_>, _>>()?;
        println!("{}\t{}\t{}", class.row_name(row), class.hash(row), all.join("\t"));
    }
    Ok(())
}

/// Returns what a process found in a kernel, or how the kernel ended.
fn verdict(output: &str, number: &str) -> String {
    let kernel = format!("row_{number}+");
    // A report is a line without indentation, and indented lines.
    let mut last = "";
    for part in output.split("\n========= ") {
        if !part.starts_with(' ') {
            last = part.lines().next().unwrap_or_default();
        }
        if part.contains(&kernel) {
            return last.split(" at row_").next().unwrap_or_default().to_owned();
        }
    }
    let of_row = |end: &str| output.contains(&format!("row {number} {end}"));
    match () {
        () if has_line(output, &format!("row {number} ends")) => "nothing",
        () if of_row("does not end") => "no end",
        () if of_row("fails") => "an error of the driver",
        () => "the process ended",
    }
    .to_owned()
}
