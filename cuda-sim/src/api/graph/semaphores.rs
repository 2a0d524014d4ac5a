//! Nodes of external semaphores.

use super::{Made, Specification};
use crate::api::external;
use crate::api::prelude::*;
use crate::state::graph::node::{Kind, SemaphoresNode};
use core::sync::atomic::AtomicPtr;
use cuda_sys::{
    CUDA_EXT_SEM_SIGNAL_NODE_PARAMS, CUDA_EXT_SEM_WAIT_NODE_PARAMS,
    CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS,
    CUexternalSemaphore,
};

/// Signals of external semaphores.
pub(crate) enum Signal {}

impl Specification for Signal {
    type Params<'a> = &'a CUDA_EXT_SEM_SIGNAL_NODE_PARAMS;

    fn make(world: &mut World, params: &CUDA_EXT_SEM_SIGNAL_NODE_PARAMS) -> Answer<Made> {
        let (semaphores, array) = (params.extSemArray.cast_const(), params.paramsArray);
        // SAFETY: the caller passes the number of semaphores that the parameters state.
        let list =
            unsafe { external::list(semaphores, array, params.numExtSems, external::of_signal) }?;
        let node = external::signals(world, &list)?;
        Ok(Made::anywhere(world, Kind::Signal(Box::new(node))))
    }
}

/// Waits for external semaphores.
pub(crate) enum Await {}

impl Specification for Await {
    type Params<'a> = &'a CUDA_EXT_SEM_WAIT_NODE_PARAMS;

    fn make(world: &mut World, params: &CUDA_EXT_SEM_WAIT_NODE_PARAMS) -> Answer<Made> {
        let (semaphores, array) = (params.extSemArray.cast_const(), params.paramsArray);
        // SAFETY: the caller passes the number of semaphores that the parameters state.
        let list =
            unsafe { external::list(semaphores, array, params.numExtSems, external::of_wait) }?;
        let node = external::waits(world, &list)?;
        Ok(Made::anywhere(world, Kind::Await(Box::new(node))))
    }
}

/// The words of the parameters of a signal or a wait, and those of the value and of the flags.
const WORDS: usize = size_of::<CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS>() / size_of::<usize>();
const VALUE: usize = 0;
const FLAGS: usize =
    core::mem::offset_of!(CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, flags) / size_of::<usize>();
const _: () = assert!(
    size_of::<CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS>() == WORDS * size_of::<usize>()
        && core::mem::offset_of!(CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS, flags) / size_of::<usize>()
            == FLAGS
);

/// Returns the semaphores of a node and their parameters, in memory of the driver, and their number.
fn shown<P>(
    world: &mut World,
    node: usize,
    its: impl Fn(&Kind) -> Option<&SemaphoresNode>,
) -> Answer<(*mut CUexternalSemaphore, *const P, c_uint)> {
    let node = world.node_mut(node)?;
    let list = &its(&node.kind).ok_or(INVALID)?.list;
    let count = u32::try_from(list.len()).unwrap_or(0);
    let mut words = vec![0; list.len() * WORDS];
    for (its, (_, value, flags)) in words.chunks_exact_mut(WORDS).zip(list) {
        its[VALUE] = usize::try_from(*value).unwrap_or(usize::MAX);
        its[FLAGS] = *flags as usize;
    }
    let semaphores = list.iter().map(|(semaphore, ..)| AtomicPtr::new(pointer(*semaphore)));
    node.shown.pointers = semaphores.collect();
    node.shown.words = words;
    if count == 0 {
        return Ok((core::ptr::null_mut(), core::ptr::null(), 0));
    }
    let semaphores = node.shown.pointers.as_mut_ptr().cast();
    Ok((semaphores, node.shown.words.as_ptr().cast(), count))
}

pub(super) fn signal_of(world: &mut World, node: usize) -> Answer<CUDA_EXT_SEM_SIGNAL_NODE_PARAMS> {
    let (semaphores, array, count) = shown(world, node, |kind| match kind {
        Kind::Signal(its) => Some(its),
        _ => None,
    })?;
    Ok(CUDA_EXT_SEM_SIGNAL_NODE_PARAMS {
        extSemArray: semaphores,
        paramsArray: array,
        numExtSems: count,
    })
}

pub(crate) fn signal(
    world: &mut World,
    node: CUgraphNode,
) -> Answer<CUDA_EXT_SEM_SIGNAL_NODE_PARAMS> {
    signal_of(world, node.addr())
}

pub(super) fn await_of(world: &mut World, node: usize) -> Answer<CUDA_EXT_SEM_WAIT_NODE_PARAMS> {
    let (semaphores, array, count) = shown(world, node, |kind| match kind {
        Kind::Await(its) => Some(its),
        _ => None,
    })?;
    Ok(CUDA_EXT_SEM_WAIT_NODE_PARAMS {
        extSemArray: semaphores,
        paramsArray: array,
        numExtSems: count,
    })
}

pub(crate) fn r#await(
    world: &mut World,
    node: CUgraphNode,
) -> Answer<CUDA_EXT_SEM_WAIT_NODE_PARAMS> {
    await_of(world, node.addr())
}
