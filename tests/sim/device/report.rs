//! The text of the example `devices` for bug reports.

use crate::prelude::*;
use cuda_safe::device::attribute;

#[path = "../../../examples/devices/report.rs"]
mod text;

/// The environment of a user, with values that a report must not show.
fn environment(name: &str) -> Option<String> {
    let value = match name {
        "CUDA_VISIBLE_DEVICES" => "0,GPU-8932f937-d72c-4106-c12f-20bd9faed9f6",
        "CUDA_SYS_LIBRARY" => "/home/alice/project/drivers/libcuda.so.1",
        "LD_PRELOAD" => "/home/alice/first.so /home/alice/second.so",
        "LD_LIBRARY_PATH" => "/home/alice/lib/a:/usr/share/cuda",
        "HOME" => "/home/alice",
        "API_TOKEN" | "CUDA_API_TOKEN" => "hunter2",
        _ => return None,
    };
    Some(value.to_owned())
}

#[test]
fn a_report_names_driver_devices_versions_and_variables() {
    let (_end, _context) = in_child!(on(Profile::h200().with_devices(2)));
    let shown = text::write("rustc for x86-64", Some("software driver"), environment);
    for expected in [
        "```text\ncrates 0.",
        "\nbuilt with rustc for x86-64",
        "\nsystem ",
        "\nsoftware driver\n",
        "\ndriver for CUDA 13.0\n",
        "\ndevice 0: NVIDIA H200, compute capability 9.0, 132 SMs, ",
        "\ndevice 1: NVIDIA H200",
        "\n  MEMORY_POOLS_SUPPORTED true\n",
        "\n  green contexts: ",
        "\nCUDA_VISIBLE_DEVICES=0,GPU-8932f937…\n",
        "\nCUDA_SYS_LIBRARY=~/…/drivers/libcuda.so.1\n",
        "\nLD_LIBRARY_PATH=~/lib/a:/…/share/cuda\n",
        "\nLD_PRELOAD=~/first.so ~/second.so\n```\n",
    ] {
        assert!(shown.contains(expected), "{expected:?} is not in\n{shown}");
    }
}

#[test]
fn a_report_has_no_secrets() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let shown = text::write("rustc for x86-64", None, environment);
    let uuid = context.device().uuid().expect("an identifier").to_string();
    for secret in ["hunter2", "alice", "d72c-4106", &uuid] {
        assert!(!shown.contains(secret), "{secret} is in\n{shown}");
    }
}

#[test]
fn a_report_of_a_machine_without_a_device_says_so() {
    in_child!();
    start(Profile::h200().with_devices(0));
    let shown = text::write("rustc for x86-64", None, |_| None);
    assert!(shown.contains("\nno devices: "), "{shown}");
}

#[test]
fn a_report_contains_the_error_of_a_device() {
    in_child!();
    start(Profile::h200());
    let _fault = Fault::of_function("cuDeviceGetName").inject(Scope::Thread);
    let shown = text::write("rustc for x86-64", None, |_| None);
    assert!(shown.contains("\ndevice 0: cuDeviceGetName"), "{shown}");
}

#[test]
fn the_attributes_of_a_report_exist() {
    let (_end, _context) = in_child!(on(Profile::h200()));
    let device = Device::get(0).expect("a device");
    let all = attribute::all(&device).expect("the attributes");
    for name in text::ATTRIBUTES {
        assert!(all.iter().any(|(known, _)| known == name), "{name}");
    }
}
