//! Programs: the work of a graph, and the conditional nodes, which run programs.

use super::{Executor, Work};
use crate::memory::Memory;
use std::sync::Arc;

/// The work of a graph. A step depends on steps before it.
#[derive(Clone, Default)]
pub(crate) struct Program {
    pub(crate) steps: Vec<Step>,
}

#[derive(Clone)]
pub(crate) struct Step {
    pub(crate) work: Work,
    /// The indices of the steps that this one depends on.
    pub(crate) after: Vec<usize>,
}

impl Program {
    /// Adds a step and returns its index.
    pub(crate) fn push(&mut self, work: Work, after: Vec<usize>) -> usize {
        self.steps.push(Step { work, after });
        self.steps.len() - 1
    }
}

/// The work of a conditional node.
#[derive(Clone)]
pub(crate) struct Conditional {
    /// The handle whose value decides.
    pub(crate) handle: u64,
    pub(crate) form: Form,
    pub(crate) bodies: Vec<Arc<Program>>,
}

/// The types of conditional nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    If,
    While,
    Switch,
}

impl Conditional {
    /// Returns the body that runs for a value.
    fn body(&self, value: u32) -> Option<&Arc<Program>> {
        let index = match self.form {
            Form::If => usize::from(value == 0),
            Form::While if value == 0 => return None,
            Form::While => 0,
            Form::Switch => value as usize,
        };
        self.bodies.get(index)
    }
}

impl Executor {
    /// Enqueues the steps of a program, each ordered only after the steps that it depends on.
    pub(crate) fn start(&mut self, program: &Program) -> Vec<u64> {
        let mut given: Vec<u64> = Vec::new();
        for step in &program.steps {
            let after = step.after.iter().filter_map(|place| given.get(*place));
            let after = after.copied().collect();
            given.push(self.give_aside(step.work.clone(), after));
        }
        given
    }

    /// Makes an operation that has not run depend on others.
    pub(crate) fn delay(&mut self, id: u64, after: &[u64]) {
        let Some(stream) = self.stream_of(id) else {
            return;
        };
        self.begin(stream);
        for before in after {
            if let Some(order) = &mut self.order {
                order.order_after(id, *before);
            }
            if let Some(its) = self.operations.get_mut(before) {
                its.followers.push(id);
                if let Some(its) = self.operations.get_mut(&id) {
                    its.missing += 1;
                }
            }
        }
        self.note_first(stream);
    }

    /// Runs a conditional node, which is the operation `id`: starts the body that its value selects, or
    /// completes the node. The node stays incomplete while a body runs.
    pub(super) fn enter(&mut self, id: u64, its: &Conditional, memory: &Memory) {
        match its.body(memory.conditional(its.handle)) {
            Some(body) => {
                if let Some(order) = &mut self.order {
                    order.begin_source(id);
                }
                self.source = self.operations.get(&id).map(|its| its.function);
                let steps = self.start(body);
                self.give_aside(Work::EndOfBody(id), steps);
                self.end_source();
            }
            None => {
                self.finish(id);
            }
        }
    }

    /// Continues a conditional node after one of its bodies.
    pub(super) fn end_body(&mut self, id: u64, memory: &Memory) {
        match self.operations.get(&id).map(|its| &its.work) {
            Some(Work::Conditional(its)) if its.form == Form::While => {
                let its = its.clone();
                self.enter(id, &its, memory);
            }
            _ => {
                self.finish(id);
            }
        }
    }
}
