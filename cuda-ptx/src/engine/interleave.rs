//! Interleavings: a random order of the warps of all blocks, and of the stores that other threads see.
//!
//! A warp may give way at each *scheduling point*: an access to global or shared memory, or a fence. A store may be
//! *delayed*, as the memory model of PTX allows: the next instructions run before other threads see it. At first only
//! its thread sees a delayed store. A fence or barrier of the block shows it to the block, and one of a wider scope
//! performs it, with all stores that the block sees. A store to the own memory of the block is performed as soon as the
//! block sees it. Any delayed store may be performed at a scheduling point of its block.
//!
//! Loads are not delayed.

use super::access::{Context, Place, Writer, after};
use super::fault::Raise;
use super::registers::LANES;
use super::warp::{Warp, lanes_of};
use super::watch::thread_of;
use crate::check::SiteId;
use crate::device::Access;
use crate::program::{Address, Op, Order, Scope, Space, Transfer};

/// A store that is delayed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delayed {
    warp: u32,
    lane: usize,
    pc: u32,
    place: Place,
    size: u32,
    value: u64,
    is_seen_by_block: bool,
}

impl Delayed {
    fn is_of(&self, warp: &Warp, mask: u32) -> bool {
        self.warp == warp.index && mask >> self.lane & 1 != 0
    }

    /// Returns whether a lane sees the store, and an access of it has one of the bytes.
    fn is_met(&self, warp: &Warp, lane: usize, place: Place, len: u64) -> bool {
        let (own, other) = match (self.place, place) {
            (Place::Global(own), Place::Global(other)) => (own, other),
            (Place::Shared(rank, own), Place::Shared(its, other)) if rank == its => {
                (own as u64, other as u64)
            }
            _ => return false,
        };
        let overlaps = own < other + len && other < own + u64::from(self.size);
        overlaps && (self.is_seen_by_block || self.is_of(warp, 1 << lane))
    }

    fn perform(&self, cx: &mut Context<'_, '_>) {
        match self.place {
            Place::Global(address) => {
                let thread = thread_of(self.warp, self.lane);
                let by = || SiteId { block: cx.id, thread, pc: self.pc };
                let bytes = (address, u64::from(self.size), Access::Write);
                // The bytes were there when the instruction was executed. Now another thread may have freed them.
                if let Ok(region) = cx.regions.find(cx.device, bytes, by) {
                    let mut writer = Writer::default();
                    writer.write(region, address, self.size, self.value);
                    writer.flush();
                }
            }
            Place::Shared(rank, at) => {
                let len = self.size as usize;
                let bytes = &self.value.to_le_bytes()[..len];
                cx.shared[rank][at..at + len].copy_from_slice(bytes);
            }
            Place::Local(_) | Place::Param(_) => {}
        }
    }
}

/// What becomes of a warp and its instruction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Turn {
    /// Whether a store is delayed, and must not be executed.
    pub(super) is_delayed: bool,
    /// Whether the warp gives way after the instruction.
    pub(super) is_over: bool,
}

/// Chooses an interleaving.
#[derive(Debug)]
pub(super) struct Interleaver {
    random: u64,
    /// A warp gives way at one scheduling point out of so many, on average.
    switch: usize,
    /// One store out of so many is delayed, on average; none if 0.
    delay: usize,
    /// One delayed store is performed at one scheduling point out of so many.
    perform: usize,
}

impl Interleaver {
    pub(super) fn new(seed: u64) -> Self {
        let mut new = Self { random: seed, switch: 1, delay: 0, perform: 1 };
        let mut one_of = |choices: [usize; 4]| choices[new.below(4)];
        let (switch, delay, perform) =
            (one_of([2, 4, 16, 64]), one_of([0, 1, 2, 8]), one_of([2, 8, 32, 128]));
        Self { switch, delay, perform, ..new }
    }

    /// Returns a random number below a limit, by the generator splitmix64.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % limit.max(1) as u64) as usize
    }

    /// Returns true once in so many times, on average, and never for 0.
    fn once_in(&mut self, times: usize) -> bool {
        times != 0 && self.below(times) == 0
    }

    /// Called before the lanes of `mask` execute an instruction.
    #[inline(never)]
    pub(super) fn before(
        warp: &Warp,
        cx: &mut Context<'_, '_>,
        op: &Op,
        mask: u32,
    ) -> Result<Turn, Raise> {
        let Some(interleaver) = &mut cx.interleaver else { return Ok(Turn::default()) };
        let switch = interleaver.switch;
        let is_over = is_point(op) && interleaver.once_in(switch);
        Self::perform(warp, cx, op, mask);
        let is_delayed = Self::delays(warp, cx, op, mask)?;
        Ok(Turn { is_delayed, is_over })
    }

    /// Performs some delayed stores, those that an instruction shows to other threads, and those whose bytes it accesses.
    fn perform(warp: &Warp, cx: &mut Context<'_, '_>, op: &Op, mask: u32) {
        if is_point(op) {
            perform_some(cx);
        }
        let is_release = |order: &Order| order.releases.then_some(order.scope);
        let (shows, address, len) = match op {
            Op::Load(its) => (None, Some(&its.address), its.bytes()),
            Op::Store(its) => {
                (its.order.as_ref().and_then(is_release), Some(&its.address), its.bytes())
            }
            Op::Atomic(its) => (is_release(&its.order), Some(&its.address), its.size),
            Op::Fence(fence) => (Some(fence.order.scope), None, 0),
            Op::Together { .. } | Op::Barrier { .. } => (Some(Scope::Cta), None, 0),
            _ if is_private(op) => return,
            _ => (Some(Scope::Device), None, 0),
        };
        if let Some(scope) = shows {
            show(warp, cx, mask, scope);
        }
        if let Some(address) = address {
            perform_met(warp, cx, mask, (address, len.into()));
        }
    }

    /// Delays a store of the lanes of `mask` instead of executing it. Returns false for other instructions, and for
    /// stores that are not delayed.
    fn delays(warp: &Warp, cx: &mut Context<'_, '_>, op: &Op, mask: u32) -> Result<bool, Raise> {
        let (Some(interleaver), Op::Store(store)) = (&mut cx.interleaver, op) else {
            return Ok(false);
        };
        let Transfer { address, size, order, elements, .. } = store;
        if *size > 8 || order.is_some_and(|order| order.releases) {
            return Ok(false);
        }
        let delay = interleaver.delay;
        if !interleaver.once_in(delay) {
            return Ok(false);
        }
        let addresses = warp.addresses(address);
        let total = u64::from(store.bytes());
        let mut places = [Place::Local(0); LANES];
        for lane in lanes_of(mask) {
            let place = (address.space, addresses[lane]);
            places[lane] = warp.place(cx, lane, place, total, Access::Write)?;
            match places[lane] {
                Place::Global(address) => {
                    warp.region(cx, lane, address, total, Access::Write)?;
                }
                Place::Shared(rank, _) if rank == cx.rank => {}
                // The memory of another block, or of the thread.
                _ => return Ok(false),
            }
        }
        for (index, element) in elements.as_slice().iter().enumerate() {
            let values = warp.registers.element(*element);
            for lane in lanes_of(mask) {
                let place = after(places[lane], index * *size as usize);
                let (warp, pc, value) = (warp.index, warp.pc, values[lane]);
                let is_seen_by_block = false;
                let new = Delayed { warp, lane, pc, place, size: *size, value, is_seen_by_block };
                cx.block.delayed.push(new);
            }
        }
        Ok(true)
    }
}

fn is_point(op: &Op) -> bool {
    let address = match op {
        Op::Load(its) | Op::Store(its) => &its.address,
        Op::Atomic(_)
        | Op::AtomicWide(_)
        | Op::Multimem(_)
        | Op::Fence(_)
        | Op::Mbarrier { .. } => return true,
        _ => return false,
    };
    matches!(address.space, Space::Generic | Space::Global | Space::Shared)
}

/// Returns whether an instruction has no effect that another thread sees. An instruction that is missing here performs
/// more stores than it must.
fn is_private(op: &Op) -> bool {
    matches!(
        op,
        Op::Nop
            | Op::Binary(..)
            | Op::Ternary(..)
            | Op::Unary(..)
            | Op::Move(..)
            | Op::MovePredicate { .. }
            | Op::Setp { .. }
            | Op::Selp { .. }
            | Op::Logic { .. }
            | Op::Convert { .. }
            | Op::Pack { .. }
            | Op::Unpack { .. }
            | Op::FrameAddress { .. }
            | Op::BranchTable { .. }
            | Op::Call { .. }
            | Op::Results(_)
    )
}

/// Shows the delayed stores of lanes to the threads of a scope.
fn show(warp: &Warp, cx: &mut Context<'_, '_>, mask: u32, scope: Scope) {
    let all = std::mem::take(&mut cx.block.delayed);
    for mut delayed in all {
        delayed.is_seen_by_block |= delayed.is_of(warp, mask);
        let is_over = match delayed.place {
            Place::Global(_) => scope > Scope::Cta,
            _ => true,
        };
        match delayed.is_seen_by_block && is_over {
            true => delayed.perform(cx),
            false => cx.block.delayed.push(delayed),
        }
    }
}

/// Performs the delayed stores that lanes see and whose bytes they access.
fn perform_met(warp: &Warp, cx: &mut Context<'_, '_>, mask: u32, (address, len): (&Address, u64)) {
    if cx.block.delayed.is_empty() {
        return;
    }
    let addresses = warp.addresses(address);
    for lane in lanes_of(mask) {
        let place = (address.space, addresses[lane]);
        // The instruction itself reports an address that is wrong.
        let Ok(place) = warp.place(cx, lane, place, len, Access::Read) else { continue };
        while let Some(at) =
            cx.block.delayed.iter().position(|its| its.is_met(warp, lane, place, len))
        {
            cx.block.delayed.remove(at).perform(cx);
        }
    }
}

/// Performs delayed stores of the block, in any order. Those of one thread to the same bytes are never delayed at the
/// same time.
fn perform_some(cx: &mut Context<'_, '_>) {
    while let (Some(interleaver), count @ 1..) = (&mut cx.interleaver, cx.block.delayed.len()) {
        let perform = interleaver.perform;
        if !interleaver.once_in(perform) {
            return;
        }
        let at = interleaver.below(count);
        cx.block.delayed.swap_remove(at).perform(cx);
    }
}
