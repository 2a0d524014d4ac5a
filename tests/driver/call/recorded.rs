//! Compares the current driver with the recorded answers of a real one: whole tables and single
//! answers, in `cuda-sim/data/<device>-<version>/`.
//!
//! On a GPU, `CUDA_RECORD=1 cargo test --test driver recorded` records them anew. With a path
//! instead of the 1, it writes them there, for a packed test binary. In all other runs the current
//! driver must give the recorded answers, if it plays that device and version.

use crate::call::probes;
use crate::common;
use cuda_safe::Device;
use cuda_safe::device::attribute;
use std::fs;
use std::path::PathBuf;

/// The files of `cuda-sim/data`.
const RECORDED: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/recorded.rs"));

/// What the software driver has on Linux only, and not under Miri.
const ON_LINUX: [&str; 2] = ["VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED", "SPARSE_CUDA_ARRAY_SUPPORTED"];

/// Returns the name of the folder for the driver at hand: `<device>-<version>`.
fn folder(device: &Device) -> String {
    let name = device.name().expect("a name").to_lowercase().replace(' ', "-");
    let version = cuda_safe::version().expect("a driver");
    format!("{name}-{version}")
}

/// Returns the folder for new answers, or `None` if the answers are compared with the recorded
/// ones.
fn recording() -> Option<PathBuf> {
    let data = std::env::var_os("CUDA_RECORD").filter(|_| !common::is_software())?;
    if data != "1" {
        return Some(data.into());
    }
    Some(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("cuda-sim/data"))
}

/// Writes the answers, or compares each with the recorded answer to the same question.
fn settle(device: &Device, file: &str, answers: &[(String, String)]) {
    let folder = folder(device);
    if let Some(data) = recording() {
        let folder = data.join(folder);
        let (name, version) = (device.name(), cuda_safe::version());
        let (name, version) = (name.expect("a name"), version.expect("a driver"));
        let mut text = format!("# {name}, driver for CUDA {version}\n");
        for (what, answer) in answers {
            text.push_str(&format!("{what}: {answer}\n"));
        }
        fs::create_dir_all(&folder).expect("a folder to record into");
        fs::write(folder.join(file), text).expect("a file to record into");
        return;
    }
    let prefix = format!("{folder}/");
    if !RECORDED.iter().any(|(path, _)| path.starts_with(&prefix)) {
        // A GPU whose answers were never recorded lacks nothing that this test could require.
        return eprintln!("skipped recorded answers: nothing is recorded for {folder}");
    }
    let path = prefix + file;
    let recorded = RECORDED.iter().find(|(recorded, _)| *recorded == path);
    let (_, recorded) = recorded.expect("it was recorded");
    let recorded = std::str::from_utf8(recorded).expect("the recorded file is text");
    let mut differences = Vec::new();
    let mut compared = 0;
    for line in recorded.lines().filter(|line| !line.starts_with('#')) {
        let (what, answer) = line.rsplit_once(": ").expect("what: answer");
        match answers.iter().find(|(asked, _)| asked == what) {
            Some((_, given)) if given == answer => compared += 1,
            Some(_) if cfg!(any(miri, not(target_os = "linux"))) && ON_LINUX.contains(&what) => {}
            Some((_, given)) => {
                differences.push(format!("{what}: recorded {answer}, given {given}"))
            }
            None => differences.push(format!("{what}: recorded {answer}, not asked any more")),
        }
    }
    assert!(differences.is_empty(), "{file}: {differences:#?}");
    assert!(compared > 30, "{file} has {compared} answers");
}

#[test]
fn every_split_by_count_gives_the_recorded_groups() {
    let device = or_skip!(common::gpu());
    or_skip!(common::since(12, 5));
    let mut splits = Vec::new();
    for flags in 0..3 {
        for min in 0..=probes::sm_count(&device) + 1 {
            let split = probes::split(&device, flags, min);
            splits.push((format!("flags {flags}, minimum {min}"), split));
        }
    }
    settle(&device, "splits.txt", &splits);
}

/// Probes that misuse the driver. The software driver gives the same answers and reports the
/// misuses.
const MISUSES: [&str; 2] = [
    // Measured: such a context overlaps itself and reports more SMs than it runs on.
    "a descriptor with the same resource twice, which driver 580 accepts",
    "a descriptor of resources of different splits, which driver 580 accepts",
];

/// Misuses of streams that outlive their green context.
fn misuses_of_streams() -> &'static [&'static str] {
    if common::offers(13, 1) {
        // NVIDIA documents that such streams can be destroyed.
        return &["a stream is used after its green context was destroyed"];
    }
    // Measured: such streams cannot even be destroyed any more.
    &[
        "a green context is destroyed before its streams: on driver 580 they leak",
        "a stream is used after it was destroyed",
        "a stream is destroyed twice, or after its context",
    ]
}

#[test]
fn single_calls_give_the_recorded_codes() {
    common::child::with_gpu(|device| {
        or_skip!(common::since(13, 0));
        let answers = probes::answers(&device);
        settle(&device, "answers.txt", &answers);
        if common::is_software() {
            let expected = [&MISUSES, misuses_of_streams()].concat();
            assert_eq!(cuda_sim::misuses(), expected);
        }
    });
}

#[test]
fn attributes_have_the_recorded_values() {
    // Attributes that differ between machines.
    const OF_THE_MACHINE: [&str; 6] = [
        "GPU_PCI_SUBSYSTEM_ID",
        "HOST_NUMA_ID",
        // Attributes of machines with several linked devices.
        "MULTICAST_SUPPORTED",
        "NUMA_ID",
        "PCI_BUS_ID",
        "PCI_DEVICE_ID",
    ];
    let device = or_skip!(common::gpu());
    let all = attribute::all(&device).expect("the known ones").into_iter();
    let all = all.filter(|(name, _)| !OF_THE_MACHINE.contains(name));
    let all: Vec<_> = all.map(|(name, value)| (name.to_owned(), value)).collect();
    settle(&device, "attributes.txt", &all);
}
