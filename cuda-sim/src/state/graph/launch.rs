//! Launches of executable graphs.

use super::executable::Executable;
use super::node::Kind;
use crate::exec::{Conditional, Program, Work};
use crate::state::INVALID;
use crate::state::{Answer, World, fail_if};
use cuda_sys::CUgraphInstantiate_flags as Flags;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The memory that a launch allocates and frees.
#[derive(Default)]
struct MemoryPlan {
    /// Allocations of an earlier launch that this one frees first.
    stale: Vec<u64>,
    allocations: Vec<u64>,
    frees: Vec<u64>,
}

impl World {
    /// Fails if a node of an executable graph references a destroyed object.
    pub(crate) fn check_executable(&self, executable: &Executable, how: &str) -> Answer {
        let mut nodes = executable.nodes.values();
        nodes.try_for_each(|its| self.check_node(&its.kind, &its.needs, how))
    }

    /// Enqueues a launch on a stream. `limit` is the memory of a device. Returns an operation that the
    /// launch must wait for, if there is one.
    pub(crate) fn launch_graph(
        &mut self,
        handle: usize,
        stream: usize,
        limit: u64,
    ) -> Answer<Option<u64>> {
        let executable = self.executable(handle)?;
        self.check_executable(executable, "launched")?;
        let plan = self.plan_memory(executable)?;
        let program = self.program(handle, executable, &plan, false);
        let (last, footprint) = (executable.last, executable.footprint.clone());
        self.allocate_for_launch(&plan, limit)?;
        self.objects.memory.forget_graph_launch(handle, &footprint);
        let start = self.give(stream, Work::Nothing, last.into_iter().collect());
        if let Some(order) = &mut self.runs.executor.order {
            order.begin_launch(stream);
        }
        let (mut given, mut awaited) = (Vec::new(), Vec::new());
        for step in program.steps {
            let mut after = vec![start];
            after.extend(step.after.iter().filter_map(|place| given.get(*place)));
            let records = match step.work {
                Work::Record { event } => Some(event),
                Work::WaitFor { event } => {
                    after.extend(self.objects.events.get(event).and_then(|its| its.recorded));
                    None
                }
                _ => None,
            };
            let is_awaited = step.work.is_awaited();
            let operation = self.runs.executor.give_aside(step.work.staged(), after);
            if let Some(event) = records.and_then(|event| self.objects.events.get_mut(event)) {
                event.recorded = Some(operation);
                event.captured = None;
                event.time = None;
            }
            awaited.extend(is_awaited.then_some(operation));
            given.push(operation);
        }
        if let Some(order) = &mut self.runs.executor.order {
            order.end_launch();
        }
        let end = self.give(stream, Work::Nothing, given);
        let footprint = self.objects.memory.note_graph_launch(handle, &plan.allocations);
        if let Some(its) = self.objects.executables.get_mut(handle) {
            its.last = Some(end);
            let executor = &self.runs.executor;
            its.ends.retain(|end| !executor.is_done(*end));
            its.ends.push(end);
            its.was_launched = true;
            its.footprint = footprint;
        }
        self.note_upload(handle);
        let waits = !awaited.is_empty();
        Ok(waits.then(|| self.runs.executor.give_aside(Work::Nothing, awaited)))
    }

    /// Enqueues the launches that a kernel has made. The launch of the kernel's graph waits for them.
    pub(crate) fn start_from_device(&mut self) {
        for (own, launched) in std::mem::take(&mut self.objects.memory.device_launches) {
            let Some(executable) = self.objects.executables.get(launched) else {
                continue;
            };
            let program = self.program(launched, executable, &MemoryPlan::default(), true);
            let steps = self.runs.executor.start_after_kernel(&program);
            // The launches of a graph run one after another, so the first one that is not complete runs.
            let ends = self.objects.executables.get(own).map(|its| &its.ends);
            let mut ends = ends.into_iter().flatten().copied();
            if let Some(end) = ends.find(|end| !self.runs.executor.is_done(*end)) {
                self.runs.executor.delay(end, &steps);
            }
        }
    }

    /// Allows kernels to launch an executable graph that was uploaded, if it was created for that.
    pub(crate) fn note_upload(&mut self, handle: usize) {
        let its = self.objects.executables.get(handle);
        if its.is_some_and(|its| its.has(Flags::CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)) {
            self.objects.memory.device_launchable.insert(handle);
        }
    }

    /// Returns what a launch allocates and frees. Fails if memory is allocated or freed twice (measured).
    fn plan_memory(&self, executable: &Executable) -> Answer<MemoryPlan> {
        let frees_first = executable.has(Flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
        let mut plan = MemoryPlan::default();
        let mut live: BTreeMap<u64, bool> = BTreeMap::new();
        for node in executable.orders.values().flatten() {
            let Some(its) = executable.nodes.get(node) else {
                continue;
            };
            match &its.kind {
                Kind::Allocate(its) => {
                    let address = its.address;
                    if self.objects.memory.will_be_live(address) {
                        fail_if(!frees_first, INVALID)?;
                        plan.stale.push(address);
                    }
                    live.insert(address, true);
                    plan.allocations.push(address);
                }
                Kind::Free(address) => plan.frees.push(*address),
                _ => {}
            }
        }
        for address in &plan.frees {
            let is_live = live.insert(*address, false);
            if !is_live.unwrap_or_else(|| self.objects.memory.will_be_live(*address)) {
                return Err(INVALID);
            }
        }
        Ok(plan)
    }

    /// Enters the allocations and frees of a launch, or none of them if there is too little memory.
    fn allocate_for_launch(&mut self, plan: &MemoryPlan, limit: u64) -> Answer {
        for address in &plan.stale {
            self.objects.memory.note_free(*address);
        }
        let mut made = Vec::new();
        for address in &plan.allocations {
            match self.objects.memory.allocate_for_graph(*address, limit) {
                Ok(is_new) => made.push((*address, is_new)),
                Err(code) => {
                    for (address, is_new) in made {
                        self.objects.memory.cancel_for_graph(address, is_new);
                    }
                    for address in &plan.stale {
                        self.objects.memory.cancel_free(*address);
                    }
                    return Err(code);
                }
            }
        }
        for address in &plan.frees {
            self.objects.memory.note_free(*address);
        }
        Ok(())
    }

    /// Returns the work of a launch from the host or from the device.
    fn program(
        &self,
        handle: usize,
        executable: &Executable,
        plan: &MemoryPlan,
        on_device: bool,
    ) -> Program {
        let mut program = Program::default();
        let mut first: Vec<usize> = Vec::new();
        for address in &plan.stale {
            first.push(program.push(Work::Free(*address), Vec::new()));
        }
        let values = executable.conditionals.iter();
        let values = values.filter_map(|(handle, default)| Some((*handle, (*default)?)));
        let values: Vec<(u64, u32)> = values.collect();
        if !values.is_empty() {
            first.push(program.push(Work::SetConditionals(values), Vec::new()));
        }
        let root = (executable.root, on_device);
        self.add_steps(handle, executable, root, &first, &mut program);
        program
    }

    /// Adds the nodes of a graph, which the host or the device launches, to a program after the steps
    /// `first`. Returns their steps.
    fn add_steps(
        &self,
        handle: usize,
        executable: &Executable,
        (graph, on_device): (usize, bool),
        first: &[usize],
        program: &mut Program,
    ) -> Vec<usize> {
        let mut steps: BTreeMap<usize, usize> = BTreeMap::new();
        for node in executable.orders.get(&graph).into_iter().flatten() {
            let Some(its) = executable.nodes.get(node) else {
                continue;
            };
            let mut after: Vec<usize> = first.to_vec();
            after.extend(its.after.iter().filter_map(|before| steps.get(before)));
            let work = match &its.kind {
                _ if !its.is_enabled => Work::Nothing,
                Kind::Kernel(its) => {
                    let mut call = its.call.clone();
                    call.executable = Some(handle);
                    Work::Kernel(Box::new(call))
                }
                Kind::Copy(its) => its.work(&self.objects.memory, on_device),
                Kind::Fill(its) => its.work(),
                Kind::Host(its) => its.work(),
                Kind::Empty => Work::Nothing,
                Kind::Wait(event) => Work::WaitFor { event: *event },
                Kind::Record(event) => Work::Record { event: *event },
                Kind::Allocate(its) => Work::Allocate(its.address),
                Kind::Free(address) => Work::Free(*address),
                Kind::Operations(_) | Kind::Signal(_) | Kind::Await(_) => {
                    // Each operation is a step, since one may wait.
                    for work in its.kind.works() {
                        after = vec![program.push(work.clone(), after)];
                    }
                    Work::Nothing
                }
                Kind::Child(child) => {
                    let begin = program.push(Work::Nothing, after);
                    after =
                        self.add_steps(handle, executable, (*child, on_device), &[begin], program);
                    after.push(begin);
                    Work::Nothing
                }
                Kind::Conditional(its) => {
                    let body = |graph: &usize| {
                        let mut body = Program::default();
                        self.add_steps(handle, executable, (*graph, true), &[], &mut body);
                        Arc::new(body)
                    };
                    Work::Conditional(Box::new(Conditional {
                        handle: its.handle,
                        form: its.form,
                        bodies: its.bodies.iter().map(body).collect(),
                    }))
                }
            };
            steps.insert(*node, program.push(work, after));
        }
        steps.into_values().collect()
    }
}
