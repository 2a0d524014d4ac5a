//! Ranks in several processes.

use crate::common::{scratch, skip};
use crate::machine::{is_software, streams};
use cuda_nccl::{Communicator, Config, Launch, ReduceOp, UniqueId};
use cuda_safe::{Context, Device, DeviceBuffer};
use std::process::Command;
use std::time::Duration;

const RANKS: u32 = 2;

/// Starts this test in a process for each rank, with variables of a launcher. In such a process, returns its rank.
fn rank(test: &str, variables: &[(&str, String)]) -> Option<u32> {
    if let Ok(rank) = std::env::var("RANK") {
        return rank.parse().ok();
    }
    let program = std::env::current_exe().expect("this program");
    let children = (0..RANKS).map(|rank| {
        let mut child = Command::new(&program);
        child.args(["--exact", test, "--nocapture"]).env("RANK", rank.to_string());
        child.env("WORLD_SIZE", RANKS.to_string()).env("LOCAL_RANK", rank.to_string());
        child.envs(variables.iter().map(|(name, value)| (name, value)));
        child.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        child.spawn().expect("a process")
    });
    let children: Vec<_> = children.collect();
    for child in children {
        let output = child.wait_with_output().expect("an end");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stdout));
    }
    None
}

/// Returns a folder that did not exist.
fn folder(name: &str) -> std::path::PathBuf {
    let folder = scratch().join(format!("nccl-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

fn work(communicator: &Communicator) {
    let (rank, stream) = (communicator.rank(), communicator.stream());
    for round in 1..=3 {
        let mut sum =
            DeviceBuffer::from_slice(stream, &[(rank + round) as f32; 100]).expect("memory");
        communicator.all_reduce_in_place(&mut sum, ReduceOp::Sum).expect("a sum");
        let expected = (0..RANKS).map(|rank| (rank + round) as f32).sum::<f32>();
        assert_eq!(sum.to_vec().expect("a copy"), [expected; 100]);
    }
    let mut received = DeviceBuffer::<u32>::zeroed(stream, 3).expect("memory");
    let own = DeviceBuffer::from_slice(stream, &[rank; 3]).expect("memory");
    cuda_nccl::group(|group| {
        group.send(communicator, &own, 1 - rank)?;
        group.receive(communicator, &mut received, 1 - rank)
    })
    .expect("an exchange");
    assert_eq!(received.to_vec().expect("a copy"), [1 - rank; 3]);
    let alone = communicator.split(Some(rank), 0, None).expect("a split").expect("a color");
    assert_eq!((alone.rank(), alone.ranks()), (0, 1));
}

/// The stream of a rank on its own device.
fn stream(rank: u32) -> cuda_safe::Stream {
    let context = Context::primary(&Device::get(rank).expect("a device")).expect("a context");
    context.stream().expect("a stream")
}

#[test]
fn ranks_of_two_processes_meet_through_a_file() {
    if cfg!(miri) {
        return skip("needs processes");
    }
    or_skip!(streams(2));
    let folder = folder("file");
    let shared = folder.display().to_string();
    let variables = [("CUDA_SIM_NCCL_FOLDER", shared.clone()), ("ID_FILE", format!("{shared}/id"))];
    if let Some(rank) = rank("processes::ranks_of_two_processes_meet_through_a_file", &variables) {
        let file = std::env::var("ID_FILE").expect("the file");
        let id = UniqueId::through_file(file, rank, Duration::from_secs(20)).expect("an id");
        let stream = stream(rank);
        let its = Communicator::init(&stream, &id, rank, RANKS, &Config::default());
        let its = its.expect("a communicator");
        work(&its);
        its.finalize().expect("an end");
    } else if is_software() {
        let left = std::fs::read_dir(&folder).expect("the folder").count();
        assert_eq!(left, 1, "only the file with the id is left");
    }
}

#[test]
fn ranks_of_two_processes_meet_through_a_port() {
    if cfg!(miri) {
        return skip("needs processes");
    }
    or_skip!(streams(2));
    // A port that is free now.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    drop(listener);
    let variables = [
        ("CUDA_SIM_NCCL_FOLDER", folder("port").display().to_string()),
        ("MASTER_ADDR", "127.0.0.1".to_owned()),
        ("MASTER_PORT", "1".to_owned()),
        ("CUDA_NCCL_PORT", port.to_string()),
    ];
    if rank("processes::ranks_of_two_processes_meet_through_a_port", &variables).is_some() {
        let launch = Launch::from_env().expect("a launcher");
        let id = UniqueId::exchange(&launch).expect("an id");
        let stream = stream(launch.local_rank);
        let its =
            Communicator::init(&stream, &id, launch.rank, launch.world_size, &Config::default());
        work(&its.expect("a communicator"));
    }
}

/// Ends the process of a rank that waits for another one for too long.
fn watch(its: &Communicator) {
    let abort = its.abort_handle();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(20));
        abort.abort().expect("an abort");
    });
}

/// Sums the ranks, and checks the sum.
fn sum(its: &Communicator) {
    let mut sum = DeviceBuffer::from_slice(its.stream(), &[its.rank() + 1; 10]).expect("memory");
    its.all_reduce_in_place(&mut sum, ReduceOp::Sum).expect("a sum");
    let sum = sum.to_vec().expect("a copy");
    its.check().expect("no abort");
    assert_eq!(sum, [3; 10]);
}

/// One process drops the old communicator while an operation of the new one waits for it.
#[test]
fn a_split_of_two_processes_outlives_the_old_communicator() {
    if cfg!(miri) {
        return skip("needs processes");
    }
    or_skip!(streams(2));
    let folder = folder("split");
    let shared = folder.display().to_string();
    let variables = [("CUDA_SIM_NCCL_FOLDER", shared.clone()), ("ID_FILE", format!("{shared}/id"))];
    let test = "processes::a_split_of_two_processes_outlives_the_old_communicator";
    if let Some(rank) = rank(test, &variables) {
        let file = std::env::var("ID_FILE").expect("the file");
        let id = UniqueId::through_file(file, rank, Duration::from_secs(20)).expect("an id");
        let stream = stream(rank);
        let its = Communicator::init(&stream, &id, rank, RANKS, &Config::default()).expect("one");
        let split = its.split(Some(0), 0, None).expect("a split").expect("a color");
        watch(&split);
        if rank == 1 {
            // The other process begins its operation.
            std::thread::sleep(Duration::from_millis(500));
        }
        drop(its);
        sum(&split);
        split.finalize().expect("an end");
    } else if is_software() {
        let left = std::fs::read_dir(&folder).expect("the folder").count();
        assert_eq!(left, 1, "only the file with the id is left");
    }
}

#[test]
fn a_process_joins_a_communicator_that_grows() {
    if cfg!(miri) {
        return skip("needs processes");
    }
    or_skip!(streams(2));
    or_skip!(crate::growth::version());
    let folder = folder("growth");
    let shared = folder.display().to_string();
    let variables = [("CUDA_SIM_NCCL_FOLDER", shared.clone()), ("ID_FILE", format!("{shared}/id"))];
    let test = "processes::a_process_joins_a_communicator_that_grows";
    if let Some(rank) = rank(test, &variables) {
        let (file, stream) = (std::env::var("ID_FILE").expect("the file"), stream(rank));
        let grown = if rank == 0 {
            let old = Communicator::init_all(&[stream], &Config::default()).expect("one").remove(0);
            let id = old.growth_id().expect("an id");
            let partial = format!("{file}.partial");
            std::fs::write(&partial, id.as_bytes()).expect("a file");
            std::fs::rename(partial, file).expect("the file");
            old.grow(2, Some(&id), None).expect("a larger communicator")
        } else {
            let id = UniqueId::through_file(file, rank, Duration::from_secs(20)).expect("an id");
            Communicator::join(&stream, &id, 1, 2, &Config::default()).expect("a new rank")
        };
        watch(&grown);
        assert_eq!((grown.rank(), grown.ranks()), (rank, 2));
        sum(&grown);
        grown.finalize().expect("an end");
    } else if is_software() {
        let left = std::fs::read_dir(&folder).expect("the folder").map(|its| its.expect("a file"));
        let left: Vec<_> = left.map(|its| its.file_name()).collect();
        assert_eq!(left, ["id"], "only the file with the id is left");
    }
}

/// The other process stops without a word. The operation waits until it is aborted.
#[test]
fn a_process_that_stops_does_not_hang_the_other_one() {
    if cfg!(miri) {
        return skip("needs processes");
    }
    or_skip!(streams(2));
    let folder = folder("stop");
    let shared = folder.display().to_string();
    let variables = [("CUDA_SIM_NCCL_FOLDER", shared.clone()), ("ID_FILE", format!("{shared}/id"))];
    let Some(rank) =
        rank("processes::a_process_that_stops_does_not_hang_the_other_one", &variables)
    else {
        return;
    };
    let file = std::env::var("ID_FILE").expect("the file");
    let id = UniqueId::through_file(file, rank, Duration::from_secs(20)).expect("an id");
    let stream = stream(rank);
    let its = Communicator::init(&stream, &id, rank, RANKS, &Config::default()).expect("one");
    let mut sum = DeviceBuffer::from_slice(&stream, &[1.0_f32; 100]).expect("memory");
    its.all_reduce_in_place(&mut sum, ReduceOp::Sum).expect("a sum");
    stream.synchronize().expect("complete work");
    if rank == 1 {
        // Alive, but without the second operation, until the other process has ended its work.
        std::thread::sleep(Duration::from_millis(1500));
        std::process::exit(0);
    }
    its.all_reduce_in_place(&mut sum, ReduceOp::Sum).expect("a sum that waits");
    let abort = its.abort_handle();
    let watchdog = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        abort.abort()
    });
    let begin = std::time::Instant::now();
    stream.synchronize().expect("the operation ends");
    let took = begin.elapsed();
    watchdog.join().expect("no panic").expect("an abort");
    assert!(took < Duration::from_millis(1200), "{took:?}");
}
