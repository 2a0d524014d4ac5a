//! The state that is compared before and after a run: driver objects, the thread, and counters.

use cuda_safe::sys::{
    self, CUstreamCaptureMode as Mode, cuCtxPopCurrent_v2, cuThreadExchangeStreamCaptureMode,
};
use cuda_sim::Alive;

/// The driver's state of this thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Thread {
    /// The number of contexts on its stack.
    pub(crate) depth: usize,
    pub(crate) mode: Mode,
    /// Whether its current context, if any, was destroyed.
    pub(crate) current_is_dead: bool,
}

impl Default for Thread {
    fn default() -> Self {
        Self { depth: 0, mode: Mode::CU_STREAM_CAPTURE_MODE_GLOBAL, current_is_dead: false }
    }
}

impl Thread {
    pub(crate) fn now() -> Self {
        let mode = exchange(Mode::CU_STREAM_CAPTURE_MODE_RELAXED);
        exchange(mode);
        Self { depth: cuda_sim::stack_depth(), mode, current_is_dead: current_is_dead() }
    }

    /// Restores the state of the thread, so that the next run starts as this one did.
    pub(crate) fn restore(self) {
        while cuda_sim::stack_depth() > self.depth {
            let mut popped = std::ptr::null_mut();
            // SAFETY: the pointer refers to a local variable.
            let _ = unsafe { cuCtxPopCurrent_v2(&raw mut popped) };
        }
        exchange(self.mode);
    }
}

/// Exchanges the capture mode and returns the previous one. Before the driver is initialized, this
/// is the default mode.
fn exchange(mut mode: Mode) -> Mode {
    // SAFETY: the pointer refers to a local variable.
    let answer = unsafe { cuThreadExchangeStreamCaptureMode(&raw mut mode) };
    if answer.is_success() { mode } else { Mode::CU_STREAM_CAPTURE_MODE_GLOBAL }
}

fn current_is_dead() -> bool {
    let mut device = 0;
    // SAFETY: the pointer refers to a local variable.
    let answer = unsafe { sys::cuCtxGetDevice(&raw mut device) };
    answer == sys::CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED
}

/// The number of objects of each kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Objects([(&'static str, usize); 22]);

impl Objects {
    pub(crate) fn now() -> Self {
        let Alive {
            retains,
            contexts,
            green_contexts,
            streams,
            events,
            modules,
            libraries,
            linkers,
            graphs,
            executable_graphs,
            device_allocations,
            pinned_allocations,
            registered,
            managed_allocations,
            pools,
            physical_allocations,
            reservations,
            mappings,
            arrays,
            mipmapped_arrays,
            textures,
            surfaces,
            ..
        } = cuda_sim::alive();
        Self([
            // In this driver a green context retains its primary context itself.
            ("retain", retains.saturating_sub(green_contexts)),
            ("context", contexts),
            ("green context", green_contexts),
            ("stream", streams),
            ("event", events),
            ("module", modules),
            ("library", libraries),
            ("linker", linkers),
            ("graph", graphs),
            ("executable graph", executable_graphs),
            ("device allocation", device_allocations),
            ("pinned allocation", pinned_allocations),
            ("registration", registered),
            ("managed allocation", managed_allocations),
            ("pool", pools),
            ("physical allocation", physical_allocations),
            ("reservation", reservations),
            ("mapping", mappings),
            ("array", arrays),
            ("mipmapped array", mipmapped_arrays),
            ("texture", textures),
            ("surface", surfaces),
        ])
    }

    /// Describes the kinds that have more objects than in `other`, and counts the additional
    /// objects.
    pub(crate) fn more_than(&self, before: &Self) -> (String, u64) {
        let (mut what, mut sum) = (Vec::new(), 0);
        for ((kind, now), (_, then)) in self.0.iter().zip(before.0) {
            let more = now.saturating_sub(then);
            if more != 0 {
                what.push(format!("{more} {kind}"));
                sum += more as u64;
            }
        }
        (what.join(", "), sum)
    }

    pub(crate) fn green_contexts(&self) -> usize {
        self.0[2].1
    }

    pub(crate) fn retains(&self) -> usize {
        self.0[0].1
    }

    /// Returns how many objects there are that memory of other objects belongs to, or that are memory of
    /// other objects: they are leaked with the other object.
    pub(crate) fn shared(&self) -> usize {
        let is_shared =
            |name: &str| matches!(name, "pool" | "physical allocation" | "reservation" | "mapping");
        let shared = self.0.iter().filter(|(name, _)| is_shared(name));
        shared.map(|(_, count)| count).sum()
    }
}
