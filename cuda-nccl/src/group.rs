//! Groups: several operations as one.

use crate::call::nccl;
use crate::collective::collectives;
use crate::communicator::Communicator;
use crate::error::Result;
use crate::operation::{Operation, outside_capture};
use crate::shared::Locked;
use cuda_safe::Context;
use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// Operations that are enqueued together, at the end of [`group()`].
pub struct Group<'env> {
    operations: Vec<Operation<'env>>,
    /// Makes the lifetime invariant, so that borrowed values outlive the call of `group`.
    env: PhantomData<&'env mut &'env ()>,
}

impl fmt::Debug for Group<'_> {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("operations", &self.operations.len()).finish()
    }
}

/// Enqueues several operations as one. Calls `ncclGroupStart` and `ncclGroupEnd`.
///
/// The operations run together, so a send and a receipt between two ranks do not wait for each other, and neither do
/// operations of several communicators of one thread. They can be of several communicators, with at most one collective
/// operation of each that the others must wait for.
///
/// The closure only collects the operations. They are enqueued after it has returned: other work that the closure
/// enqueues on the same streams comes before them. If the closure panics or returns an error, none is enqueued. Buffers
/// and communicators are borrowed from outside of the closure until then.
///
/// # Errors
/// The error of the closure; [`Invalid::Captured`](crate::Invalid::Captured); [`Error::Aborted`](crate::Error::Aborted);
/// errors of NCCL and the driver. NCCL enqueues none of the operations if it rejects one.
///
/// ```no_run
/// # use cuda_nccl::{Communicator, group};
/// # use cuda_safe::DeviceBuffer;
/// # fn exchange(communicator: &Communicator, mine: &DeviceBuffer<f32>, mut theirs: DeviceBuffer<f32>)
/// # -> cuda_nccl::Result<()> {
/// let next = (communicator.rank() + 1) % communicator.ranks();
/// let previous = (communicator.rank() + communicator.ranks() - 1) % communicator.ranks();
/// group(|group| {
///     group.send(communicator, mine, next)?;
///     group.receive(communicator, &mut theirs, previous)
/// })?;
/// # Ok(())
/// # }
/// ```
///
/// Raw: [`ncclGroupStart`](fn@crate::sys::ncclGroupStart), [`ncclGroupEnd`](fn@crate::sys::ncclGroupEnd).
#[doc(alias = "ncclGroupStart", alias = "ncclGroupEnd")]
pub fn group<'env, R>(f: impl FnOnce(&mut Group<'env>) -> Result<R>) -> Result<R> {
    let (operations, returned) = collect(f)?;
    let communicators = distinct(&operations);
    let each = |communicator: &Communicator, enqueue: &mut dyn FnMut() -> Result<()>| {
        outside_capture(communicator, enqueue)
    };
    within(&communicators, &each, &mut || run(&operations, &communicators))?;
    Ok(returned)
}

/// Does the same as [`group()`] while the streams of the communicators are captured. The operations become part of the
/// graphs, which keep the communicators alive.
///
/// # Errors
/// See [`group()`].
///
/// # Safety
/// Until the graphs and all executable graphs of them are dropped, and their launches are complete:
/// - The buffers are alive, and no other work uses them without an order.
/// - No [registration](crate::Registered) of a buffer is ended: neither [`Registered`](crate::Registered) values are
///   dropped, nor are their buffers taken.
/// - No communicator is aborted or [finalized](Communicator::finalize), unless no launch follows and none is running.
///
/// ```no_run
/// use cuda_nccl::{Communicator, ReduceOp, capture_group};
/// use cuda_safe::DeviceBuffer;
/// use cuda_safe::capture::CaptureMode;
///
/// # fn record(communicator: &Communicator, buffer: &mut DeviceBuffer<f32>) -> Result<(), Box<dyn std::error::Error>> {
/// let stream = communicator.stream();
/// let capture = stream.begin_capture(CaptureMode::ThreadLocal)?;
/// // SAFETY: the buffer outlives the graph, and the communicator is not aborted.
/// unsafe {
///     capture_group(|group| group.all_reduce_in_place(communicator, &mut *buffer, ReduceOp::Sum))
/// }?;
/// let graph = capture.end()?.instantiate()?;
/// // SAFETY: the buffer is alive, and only work on this stream uses it.
/// unsafe { graph.launch_unchecked(stream) }?;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "ncclGroupStart", alias = "ncclGroupEnd")]
pub unsafe fn capture_group<'env, R>(f: impl FnOnce(&mut Group<'env>) -> Result<R>) -> Result<R> {
    let (operations, returned) = collect(f)?;
    let communicators = distinct(&operations);
    let retaining = |communicator: &Communicator, enqueue: &mut dyn FnMut() -> Result<()>| {
        let owner: Arc<dyn Any + Send + Sync> = communicator.owner.clone();
        communicator.stream().enqueue_retaining(|| vec![owner], enqueue)?
    };
    within(&communicators, &retaining, &mut || run(&operations, &communicators))?;
    Ok(returned)
}

fn collect<'env, R>(
    f: impl FnOnce(&mut Group<'env>) -> Result<R>,
) -> Result<(Vec<Operation<'env>>, R)> {
    let mut group = Group { operations: Vec::new(), env: PhantomData };
    let returned = f(&mut group)?;
    Ok((group.operations, returned))
}

/// Returns the communicators of operations, each once.
#[inline]
fn distinct<'a>(operations: &[Operation<'a>]) -> Vec<&'a Communicator> {
    let mut found: Vec<&Communicator> = Vec::new();
    for operation in operations {
        let its = operation.communicator;
        if !found.iter().any(|other| Arc::ptr_eq(&other.shared, &its.shared)) {
            found.push(its);
        }
    }
    found
}

/// A function that enqueues work on the stream of a communicator.
type Enqueue<'a> = &'a dyn Fn(&Communicator, &mut dyn FnMut() -> Result<()>) -> Result<()>;

/// Enqueues work on the streams of all communicators.
#[inline]
fn within(
    communicators: &[&Communicator],
    each: Enqueue<'_>,
    enqueue: &mut dyn FnMut() -> Result<()>,
) -> Result<()> {
    match communicators {
        [] => enqueue(),
        [first, rest @ ..] => each(first, &mut || within(rest, each, enqueue)),
    }
}

/// Enqueues the operations as a group of NCCL. Only calls of NCCL are made inside of it.
#[inline]
fn run(operations: &[Operation<'_>], communicators: &[&Communicator]) -> Result<()> {
    let mut locked: Vec<(&Communicator, Locked<'_>)> = Vec::with_capacity(communicators.len());
    for communicator in communicators {
        locked.push((communicator, communicator.shared.lock()?));
    }
    let Some(first) = communicators.first() else {
        return Ok(());
    };
    let progress = first.shared.primary.with_current(|_| {
        // SAFETY: the group ends below, and the calls until then do not unwind.
        unsafe { nccl!(ncclGroupStart()) }?;
        let enqueued = operations
            .iter()
            .try_for_each(|operation| enqueue(operation, &locked, &first.shared.primary));
        // SAFETY: the group was started above.
        let ended = unsafe { nccl!(ncclGroupEnd()) };
        enqueued.and(ended)
    })??;
    for (communicator, handle) in &mut locked {
        communicator.shared.complete(handle, progress)?;
    }
    Ok(())
}

/// Passes an operation to NCCL, which enqueues it at the end of the group. `current` is the current context.
#[inline]
fn enqueue(
    operation: &Operation<'_>,
    locked: &[(&Communicator, Locked<'_>)],
    current: &Context,
) -> Result<()> {
    let shared = &operation.communicator.shared;
    let its = locked.iter().find(|(its, _)| Arc::ptr_eq(&its.shared, shared));
    let Some((_, handle)) = its else {
        return Ok(());
    };
    let comm = handle.raw();
    // SAFETY: the communicator is locked until the end of the group, and its context is current. The buffers are
    // borrowed until then, and bound to the stream: safe code uses and frees them in its order.
    let enqueue = || unsafe { operation.enqueue(comm) };
    match shared.primary == *current {
        true => enqueue(),
        false => shared.primary.with_current(|_| enqueue())?,
    }?;
    Ok(())
}

impl<'a> Group<'a> {
    #[inline]
    fn push(&mut self, operation: Operation<'a>) {
        self.operations.push(operation);
    }
}

collectives!(grouped);
