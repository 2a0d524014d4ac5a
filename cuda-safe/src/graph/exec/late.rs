//! Executable graphs that are destroyed after their launches.
//!
//! Destroying most executable graphs waits for nothing, and running launches continue. With conditional
//! nodes, the call waits for all running work, even of other streams, and for a graph that kernels can
//! launch it waits for its own launches (driver 580). Such an executable graph enters the release queue
//! first, so that a drop does not wait for its launches: a loop may never end.

use crate::graph::exec::changes::Retired;
use crate::graph::exec::executable::Objects;
use crate::graph::exec::retire::Used;
use crate::graph::nodes::allocation::Unfreed;
use crate::graph::rules::order::Claim;
use crate::release::{Handle, destroy, release};
use cuda_sys::CUgraphExec;

/// An executable graph that is destroyed when this value is dropped.
pub(crate) struct LateExecutable {
    /// `None` only while this value is dropped.
    handle: Option<ClaimingHandle>,
    objects: Objects,
    retired: Retired,
}

/// The handle of an executable graph, which exists once at a time.
struct ClaimingHandle {
    raw: Handle<CUgraphExec>,
    /// The right to instantiate the graph, which ends when the executable graph is destroyed.
    #[allow(dead_code, reason = "held, not read")]
    claims: Vec<Claim>,
}

impl LateExecutable {
    #[inline]
    pub(crate) fn new(
        raw: CUgraphExec,
        claims: Vec<Claim>,
        objects: Objects,
        retired: Retired,
    ) -> Self {
        let raw = Handle(raw);
        Self { handle: Some(ClaimingHandle { raw, claims }), objects, retired }
    }
}

impl Used for (LateExecutable, Vec<Unfreed>) {
    #[inline]
    fn leak_functions(&self) {
        self.0.retired.leak_functions();
        self.0.objects.leak_functions();
    }
}

destroy! {
    ClaimingHandle as "an executable graph";
    // SAFETY: the caller keeps the promise for this handle.
    |its| unsafe { its.raw.destroy() }
}

impl Drop for LateExecutable {
    #[inline]
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            release(handle, &self.objects);
        }
    }
}
