//! Sums vectors of several GPUs, with one process for each GPU.
//!
//! `cargo run --example all_reduce` starts the processes: one for each GPU, or two on the software driver if there is
//! none. `-- --ranks N` sets their number. A launcher can start them, too:
//! `torchrun --nproc-per-node 2 --no-python target/debug/examples/all_reduce`.

mod support;

use cuda_nccl::{Communicator, Config, Launch, ReduceOp, UniqueId, sys};
use cuda_safe::{Context, Device, DeviceBuffer};
use cuda_sim::Profile;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

/// The elements of each vector.
const LEN: usize = 1 << 16;

type Fallible<T = ()> = Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    support::main(run)
}

fn run() -> Fallible {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        // A process that a launcher has started.
        [] if std::env::var_os("RANK").is_some() => {
            let launch = Launch::from_env()?;
            let id = UniqueId::exchange(&launch)?;
            work(&id, launch.rank, launch.world_size, launch.local_rank)
        }
        [] => start(None),
        ["--ranks", ranks] => start(Some(ranks.parse()?)),
        // A process that this program has started.
        ["--rank", rank, "of", ranks, "in", folder] => {
            let (rank, ranks) = (rank.parse()?, ranks.parse()?);
            if std::env::var_os("ALL_REDUCE_SOFTWARE").is_some() {
                install_software(ranks, Path::new(folder))?;
            }
            let file = Path::new(folder).join("id");
            let id = UniqueId::through_file(file, rank, Duration::from_secs(30))?;
            work(&id, rank, ranks, rank)
        }
        _ => Err("the option is --ranks N".into()),
    }
}

/// Starts a process for each rank, and waits for them.
fn start(ranks: Option<u32>) -> Fallible {
    let devices = Device::count().unwrap_or(0);
    if devices == 0 {
        println!("no GPU here: running on the software driver");
    }
    let ranks = ranks.unwrap_or(if devices == 0 { 2 } else { devices });
    let folder = Folder::new()?;
    let program = std::env::current_exe()?;
    let mut processes = Vec::new();
    for rank in 0..ranks {
        let mut command = Command::new(&program);
        command.args(["--rank", &rank.to_string(), "of", &ranks.to_string(), "in"]).arg(&folder.0);
        if devices == 0 {
            command.env("ALL_REDUCE_SOFTWARE", "1");
        }
        processes.push(command.spawn()?);
    }
    for mut process in processes {
        let status = process.wait()?;
        if !status.success() {
            return Err(format!("a rank failed: {status}").into());
        }
    }
    Ok(())
}

/// Uses the software driver and the software NCCL, whose ranks find each other in a folder.
fn install_software(devices: u32, folder: &Path) -> Fallible {
    cuda_sim::install(Profile::h200().with_devices(devices).with_nccl_folder(folder))?;
    // SAFETY: the functions have the signatures of NCCL, and are part of this program.
    unsafe { sys::NCCL.install(cuda_sim::nccl::symbol) }?;
    Ok(())
}

/// The work of one rank.
fn work(id: &UniqueId, rank: u32, ranks: u32, device: u32) -> Fallible {
    let device = Device::get(device)?;
    let stream = Context::primary(&device)?.stream()?;
    let communicator = Communicator::init(&stream, id, rank, ranks, &Config::default())?;

    // Rank r contributes r + 1 at every position.
    let mut vector = DeviceBuffer::from_slice(&stream, &[rank as f32 + 1.0; LEN])?;
    communicator.all_reduce_in_place(&mut vector, ReduceOp::Sum)?;

    let expected = (1..=ranks).sum::<u32>() as f32;
    let sums = vector.to_vec()?;
    if sums != [expected; LEN] {
        return Err(format!("rank {rank}: a wrong sum").into());
    }
    println!("rank {rank} of {ranks} on {}: each of {LEN} sums is {expected}", device.name()?);
    communicator.finalize()?;
    Ok(())
}

/// A folder that is removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> std::io::Result<Self> {
        let folder = std::env::temp_dir().join(format!("all_reduce-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        Ok(Self(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
