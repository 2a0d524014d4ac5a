//! Kernels that launch kernels, in a green context. NVIDIA documents that such a module may add two
//! SMs, which all partitions share, on compute capability 9.x. Measured on an H200 with driver 580:
//! the kernel of the stream runs on the SMs of its partition and two more, and the kernels that it
//! launches run on all SMs of the device.

use crate::common;
use crate::green::{alone, device};
use crate::or_skip;
use cuda_safe::device::attribute;
use cuda_safe::green::{GreenContext, SmProbe, SmResource, SplitByCount};
use cuda_safe::{Context, Device, DeviceBuffer, LaunchConfig, Module, Stream, TypedKernel};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = include_str!("../kernels/dynamic.cu");

/// The number of SMs that dynamic parallelism may add to a partition on compute capability 9.x.
const ADDED: usize = 2;

/// The number of blocks of the parent, and of each kernel that they launch.
const PARENTS: u32 = 512;
const CHILDREN: u32 = 32;
const CYCLES: u32 = 20_000;
/// A value that is not an SM number.
const NONE: u32 = u32::MAX;

/// Returns NVIDIA's compiler: the one that `NVCC` names, or the one in `PATH` or in the toolkit's
/// usual folder.
fn nvcc() -> Option<PathBuf> {
    let named = std::env::var_os("NVCC").map(PathBuf::from);
    let places = [PathBuf::from("nvcc"), "/usr/local/cuda/bin/nvcc".into()];
    let is_there = |nvcc: &PathBuf| {
        let version = Command::new(nvcc).arg("--version").output();
        version.is_ok_and(|version| version.status.success())
    };
    let found = named.into_iter().chain(places).find(is_there);
    if found.is_none() {
        common::skip("needs nvcc, which links NVIDIA's device runtime");
    }
    found
}

/// Returns the compute capability.
fn capability(device: &Device) -> (u32, u32) {
    let ask = |attribute| device.attribute(attribute).expect("known");
    (ask(attribute::COMPUTE_CAPABILITY_MAJOR), ask(attribute::COMPUTE_CAPABILITY_MINOR))
}

/// Compiles the kernels of `source` for the device and links them with NVIDIA's device runtime. `name` is
/// the name of the files.
pub(crate) fn image(device: &Device, name: &str, source: &str) -> Option<Vec<u8>> {
    let nvcc = nvcc()?;
    let (major, minor) = capability(device);
    let architecture = format!("-arch=sm_{major}{minor}");
    let folder = common::scratch().join(format!("{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder to compile in");
    let [code, object, linked] =
        ["cu", "o", "cubin"].map(|kind| folder.join(format!("{name}.{kind}")));
    fs::write(&code, source).expect("writing the source");
    let run = |command: &mut Command| {
        let output = command.arg(&architecture).output();
        let output = output.expect("starting nvcc");
        let messages = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}:\n{messages}");
    };
    run(Command::new(&nvcc).args(["-dc", "-o"]).args([&object, &code]));
    run(Command::new(&nvcc)
        .args(["-dlink", "-cubin", "-o"])
        .args([&linked, &object])
        .arg("-lcudadevrt"));
    let image = fs::read(&linked).expect("the image that nvcc linked");
    fs::remove_dir_all(&folder).expect("removing the compiled files");
    Some(image)
}

type Parent = TypedKernel<(&'static mut [u32], &'static mut [u32], u32, u32)>;

/// Returns the SMs that the parent's blocks ran on, and those of the kernels that they launched.
fn run(parent: &Parent, stream: &Stream) -> [BTreeSet<u32>; 2] {
    let filled = |blocks: u32| {
        let mut places = DeviceBuffer::<u32>::uninit(stream, blocks as usize).expect("memory");
        places.fill(NONE).expect("a fill");
        places
    };
    let (mut parents, mut children) = (filled(PARENTS), filled(PARENTS * CHILDREN));
    let arguments = (&mut parents, &mut children, CHILDREN, CYCLES);
    let config = LaunchConfig::linear(PARENTS, 32);
    // SAFETY: each block of the parent writes one element of the first memory, and each block that
    // it launches writes one of the second, which has enough elements for each; the parent ends
    // after its children.
    unsafe { parent.launch(stream, config, arguments) }.expect("a launch");
    [parents, children].map(|places| {
        let sms: BTreeSet<u32> = places.to_vec().expect("a copy").into_iter().collect();
        assert!(!sms.contains(&NONE), "every block ran");
        sms
    })
}

#[test]
fn a_kernel_that_launches_kernels_runs_on_its_partition_and_two_more_sms() {
    let _alone = alone();
    let device = or_skip!(device());
    let image = or_skip!(image(&device, "dynamic", SOURCE));
    let context = Context::primary(&device).expect("a context");
    let split = SmResource::of_device(&device).expect("a resource");
    let split = split.split_by_count(SplitByCount {
        min: 16,
        max_groups: Some(2),
        ..SplitByCount::default()
    });
    let greens = split.expect("a split").groups.into_iter().map(|group| {
        let green = GreenContext::new([group]).expect("a green context");
        let stream = green.stream().expect("a stream");
        (green, stream)
    });
    let greens: Vec<_> = greens.collect();
    let probe = SmProbe::new(&context).expect("a probe");
    // Before a kernel that launches kernels is loaded, partitions have disjoint SMs.
    let own: Vec<BTreeSet<u32>> = greens
        .iter()
        .map(|(green, stream)| {
            let own = probe.sms(stream).expect("a trace");
            assert_eq!(own.len(), green.sm_count() as usize);
            own
        })
        .collect();
    assert!(own[0].is_disjoint(&own[1]));

    // SAFETY: nvcc compiled the image from the source above.
    let module = unsafe { Module::from_image(&context, &image) }.expect("the driver loads it");
    let parent = module.kernel("parent").expect("a kernel");
    let parent: Parent = parent.typed().expect("its parameters");
    let most = if capability(&device).0 == 9 { ADDED } else { 0 };
    for ((_, stream), own) in greens.iter().zip(&own) {
        let [parents, children] = run(&parent, stream);
        let added: Vec<&u32> = parents.difference(own).collect();
        eprintln!(
            "note: dynamic parallelism in {} SMs: the parent ran on {}, its children on {}; added to the parent: {added:?}",
            own.len(),
            parents.len(),
            children.len()
        );
        assert!(added.len() <= most, "{added:?}");
        // The crate's diagnostic finds no other SMs, and names the reason.
        let trace = probe.trace(stream).expect("a trace");
        if let Some(added) = trace.added {
            assert!(added.count as usize <= most, "{added:?}");
            assert!(added.by_dynamic_parallelism, "{added:?}");
        }
    }
}
