//! Groups: the calls of a thread that wait for the end of its group.

#![allow(non_snake_case, reason = "the names are those of C")]

use super::communicators::{Joining, current_device, replace_current};
use super::outcome::{IN_PROGRESS, INVALID_USAGE, Outcome, SUCCESS, Stop, call, refuse};
use super::{Functions, table};
use crate::account::misuse;
use crate::call::Class;
use crate::state::World;
use crate::state::nccl::operation::{Batch, Part};
use core::ffi::c_int;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

pub(super) const FUNCTIONS: Functions = table![ncclGroupStart, ncclGroupEnd];

/// The group of a thread.
#[derive(Default)]
struct Group {
    depth: usize,
    joins: Vec<Joining>,
    operations: Vec<Queued>,
    /// The first error of a call, which the end returns.
    error: Option<u32>,
}

/// An operation with its communicator and its stream.
#[derive(Clone, Debug)]
pub(super) struct Queued {
    pub(super) communicator: usize,
    pub(super) stream: usize,
    pub(super) part: Part,
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.depth != 0 {
            misuse("a thread ends while its NCCL group is open: its calls have no effect");
        }
    }
}

thread_local! {
    static GROUP: RefCell<Group> = RefCell::default();
}

/// Returns whether a group of this thread is open.
pub(super) fn is_open() -> bool {
    GROUP.with_borrow(|group| group.depth != 0)
}

/// Adds the creation of a communicator to the open group.
pub(super) fn add_join(join: Joining) {
    GROUP.with_borrow_mut(|group| group.joins.push(join));
}

/// Adds an operation to the open group.
pub(super) fn add_operation(operation: Queued) {
    GROUP.with_borrow_mut(|group| group.operations.push(operation));
}

/// Notes the error of a call, and returns it.
pub(super) fn note(code: c_int) -> c_int {
    GROUP.with_borrow_mut(|group| {
        if group.depth != 0 && code != 0 && (code as u32) != IN_PROGRESS {
            group.error.get_or_insert(code as u32);
        }
    });
    code
}

#[cfg_attr(feature = "nccl-symbols", unsafe(no_mangle))]
unsafe extern "C" fn ncclGroupStart() -> c_int {
    call(Class::Always, "ncclGroupStart", |_| {
        GROUP.with_borrow_mut(|group| group.depth += 1);
        Ok(SUCCESS)
    })
}

#[cfg_attr(feature = "nccl-symbols", unsafe(no_mangle))]
unsafe extern "C" fn ncclGroupEnd() -> c_int {
    let mut taken: Option<Group> = None;
    call(Class::Always, "ncclGroupEnd", |world| {
        if taken.is_none() {
            let open = GROUP.with_borrow_mut(|group| {
                match group.depth {
                    0 => return None,
                    1 => {}
                    _ => {
                        group.depth -= 1;
                        return Some(None);
                    }
                }
                Some(Some(std::mem::take(group)))
            });
            match open {
                None => return refuse(INVALID_USAGE, "ncclGroupEnd without ncclGroupStart"),
                Some(None) => return Ok(SUCCESS),
                Some(Some(mut group)) => {
                    group.depth = 0;
                    if let Some(code) = group.error {
                        return Err(Stop::Nccl(code));
                    }
                    enqueue(world, std::mem::take(&mut group.operations))?;
                    taken = Some(group);
                }
            }
        }
        // All join before the first one waits.
        let joins = taken.iter_mut().flat_map(|group| &mut group.joins);
        let mut joins: Vec<&mut Joining> = joins.collect();
        if !joins.is_empty() {
            let before = current_device(world)?;
            for join in &mut joins {
                join.begin(world)?;
            }
            // As in `ncclCommInitAll`, the device that was current before follows (unverified for several devices).
            replace_current(world, before)?;
        }
        let mut code = SUCCESS;
        for join in joins {
            code = code.max(join.outcome(world)?);
        }
        Ok(code)
    })
}

/// Enqueues operations: those of one communicator together.
pub(super) fn enqueue(world: &mut World, operations: Vec<Queued>) -> Outcome {
    let mut communicators: Vec<usize> = Vec::new();
    for operation in &operations {
        if !communicators.contains(&operation.communicator) {
            communicators.push(operation.communicator);
        }
    }
    for communicator in communicators {
        let own = operations.iter().filter(|its| its.communicator == communicator);
        enqueue_of(world, communicator, &own.cloned().collect::<Vec<_>>())?;
    }
    Ok(())
}

fn enqueue_of(world: &mut World, communicator: usize, operations: &[Queued]) -> Outcome {
    use crate::exec::{Joint, Work};
    use crate::state::graph::node::{Kind as NodeKind, OperationsNode};
    let its = super::communicators::alive(world, communicator)?;
    let batch: Arc<dyn Joint> = Arc::new(Batch {
        rank: its.rank,
        board: Arc::clone(&its.board),
        life: Arc::clone(&its.life),
        parts: operations.iter().map(|its| its.part.clone()).collect(),
        arrivals: Mutex::new(VecDeque::new()),
    });
    let mut streams: Vec<usize> = operations.iter().map(|its| its.stream).collect();
    streams.sort_unstable();
    streams.dedup();
    let [first, others @ ..] = &streams[..] else {
        return Ok(());
    };
    let works = [Work::Arrive(Arc::clone(&batch)), Work::Leave(batch)];
    if let Some(capture) = world.recording(*first)? {
        let node = OperationsNode::captured(works.to_vec());
        world.capture_node(capture, *first, NodeKind::Operations(Box::new(node)))?;
        return Ok(());
    }
    let [arrive, leave] = works;
    // The work begins after that of all streams, and their further work comes after it.
    let before = others.iter().filter_map(|stream| world.runs.executor.last(*stream)).collect();
    world.give(*first, arrive, before);
    let left = world.give(*first, leave, Vec::new());
    for stream in others {
        world.give(*stream, Work::Nothing, vec![left]);
    }
    for stream in &streams {
        let last = world.runs.executor.last(*stream);
        let its = super::communicators::alive(world, communicator)?;
        its.last.extend(last.map(|last| (*stream, last)));
    }
    Ok(())
}
