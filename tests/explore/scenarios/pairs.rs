//! All pairs of an operation and a kind of capture.

use super::captures::{self, Captures};
use super::{Flag, Part, Scenario, Stage, managers, mapped_memory, memory, objects, order};
use cuda_sim::explore;

/// An operation of one thread while another thread captures its stream.
#[derive(Clone, Copy)]
pub(super) struct Operation {
    pub(super) name: &'static str,
    /// Creates the objects of the operation. The returned part is the operation itself.
    pub(super) prepare: fn(&Stage) -> Part,
    pub(super) devices: u32,
    /// Chooses the memory manager of the contexts.
    pub(super) manager: Option<fn()>,
    /// Whether the operation may lose an object, if the loss is reported.
    pub(super) may_report: bool,
    /// Whether the stream may have a host function that waits for the capturing thread. False if a
    /// capture retains an object of the operation whose release blocks, and if the operation frees
    /// memory without a known stream, or loads a module. In these cases the driver itself blocks
    /// the capturing thread until the host function returns.
    pub(super) with_host_function: bool,
}

impl Operation {
    pub(super) const fn new(name: &'static str, prepare: fn(&Stage) -> Part) -> Self {
        Self {
            name,
            prepare,
            devices: 1,
            manager: None,
            may_report: false,
            with_host_function: true,
        }
    }

    /// Marks that the operation blocks other threads inside the driver while it waits for all work.
    pub(super) const fn stopping_others(self) -> Self {
        Self { with_host_function: false, ..self }
    }
}

pub(super) fn all() -> Vec<Scenario> {
    let tables = [
        memory::OPERATIONS,
        objects::OPERATIONS,
        order::OPERATIONS,
        managers::OPERATIONS,
        mapped_memory::OPERATIONS,
    ];
    let operations: Vec<Operation> = tables.concat();
    let mut scenarios = Vec::new();
    for captures in captures::ALL {
        for operation in &operations {
            scenarios.push(pair(*operation, *captures, false));
            if captures.with_host_function && operation.with_host_function {
                scenarios.push(pair(*operation, *captures, true));
            }
        }
    }
    scenarios
}

/// Runs the operation on one thread and the capture on another. With a host function, the stream
/// gets one that waits for the capturing thread.
fn pair(operation: Operation, captures: Captures, with_host_function: bool) -> Scenario {
    let suffix = if with_host_function { "-busy" } else { "" };
    let name = format!("{}{suffix}/{}", captures.name, operation.name);
    let body = move || {
        if let Some(choose) = operation.manager {
            choose();
        }
        let stage = Stage::new();
        let operate = (operation.prepare)(&stage);
        let capture = (captures.prepare)(&stage);
        if with_host_function {
            let done = stage.done.clone();
            let waits = stage.stream.launch_host_function(move || done.wait());
            waits.expect("a host function");
        }
        run(&stage, operate, capture, captures.is_open_before);
    };
    let scenario = Scenario { may_report: operation.may_report, ..Scenario::new(name, body) };
    scenario.on_devices(operation.devices)
}

fn run(stage: &Stage, operate: Part, capture: Part, is_open_before: bool) {
    let open = stage.open.clone();
    let operates = explore::spawn("the operation", move || {
        if is_open_before {
            open.wait();
        }
        operate()
    });
    let done = stage.done.clone();
    let captures = explore::spawn("the capture", move || {
        // Also set after a failure, because other threads wait for it.
        let _done = SetAtEnd(done);
        capture()
    });
    let kept = (captures.join(), operates.join());
    // Deferred releases wait for the stream. Nothing is being captured at this point.
    let _ = stage.stream.synchronize();
    drop(kept);
}

struct SetAtEnd(Flag);

impl Drop for SetAtEnd {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// Asserts the contents that were read, if the read succeeded.
#[track_caller]
pub(super) fn expect_contents(what: &str, read: cuda_safe::Result<Vec<u32>>, expected: u32) {
    if let Ok(read) = read {
        let is_right = read.iter().all(|element| *element == expected);
        assert!(is_right, "wrong contents after {what}: {read:x?}");
    }
}
