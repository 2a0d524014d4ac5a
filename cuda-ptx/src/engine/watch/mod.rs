//! What the checks see of a kernel while it runs.
//!
//! The engine calls a [`Watch`] before each instruction, and where the threads of a block or warp meet. Without checks
//! there is no watch, and [`Warp::run`] is compiled without the calls.

mod init;
mod race;
mod sync;

use super::Launch;
use super::access::Context;
use super::block::{block_at, site};
use super::mbarrier::State;
use super::registers::{LANES, each_lane};
use super::warp::Warp;
use crate::check::{Address as Accessed, Check, Checks, Finding, SiteId};
use crate::device::{Access, Device};
use crate::engine::tensor::Plan;
use crate::program::matrix::{Matrix, Rows};
use crate::program::{
    Address, Atomic, Barrier, Base, Bulk, CLUSTER_STEP, Condition, CopyGroup, LOCAL_WINDOW,
    Mbarrier, Multimem, Op, Order, PARAM_WINDOW, SHARED_WINDOW, Scope, Space, TensorAccess,
    TensorCopy, Together, WINDOW,
};
use init::Init;
use race::{Lanes, Race};
use std::collections::{HashMap, HashSet};
use sync::Sync;

/// The order of the elements of a bulk reduction.
const REDUCTION: Order = Order::relaxed(Scope::Device);

/// Lanes that arrive at a barrier of their block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) warp: u32,
    pub(super) mask: u32,
    pub(super) pc: u32,
    pub(super) expected: Option<u32>,
    pub(super) is_aligned: bool,
    pub(super) barrier: Barrier,
}

impl Arrival {
    /// Returns the number of the first thread in its block.
    fn first_thread(&self) -> u32 {
        thread_of(self.warp, self.mask.trailing_zeros() as usize)
    }
}

/// What an operation on an `mbarrier` does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// A test whether the phase is over.
    Wait { is_over: bool },
    /// Its initialization.
    Init,
    /// A change of its state, and whether it completes a phase. The copies that a barrier counts are complete in its own
    /// block.
    Change { completes: bool, of_copy: bool },
}

/// An instruction of a thread.
#[derive(Clone, Copy, Debug)]
struct Event {
    /// The block, and its number in its cluster.
    block: [u32; 3],
    rank: usize,
    /// The number of the thread in its block.
    thread: u32,
    pc: u32,
}

/// A place in shared memory: the rank of the block in its cluster, and the offset.
type Offset = (usize, u32);

/// What a check knows of each cluster that has begun.
#[derive(Debug, Default)]
struct Clusters<T> {
    /// The number of the cluster that runs.
    number: u64,
    current: T,
    has_begun: bool,
    /// The clusters that do not run now.
    others: HashMap<u64, T>,
}

impl<T: Default> Clusters<T> {
    /// Continues with a cluster.
    fn begin(&mut self, number: u64, new: impl FnOnce() -> T) {
        if self.has_begun && self.number == number {
            return;
        }
        let next = self.others.remove(&number).unwrap_or_else(new);
        let last = std::mem::replace(&mut self.current, next);
        if self.has_begun {
            self.others.insert(self.number, last);
        }
        (self.number, self.has_begun) = (number, true);
    }

    /// Ends the cluster that runs.
    fn end(&mut self) -> T {
        self.has_begun = false;
        std::mem::take(&mut self.current)
    }
}

/// The checks of a launch.
pub(super) struct Watch<'d> {
    reporter: Reporter<'d>,
    sync: Option<Sync>,
    race: Option<Race>,
    init: Option<Init<'d>>,
}

/// Reports findings, one for each pair of instructions.
struct Reporter<'d> {
    launch: &'d Launch<'d>,
    device: &'d dyn Device,
    /// The blocks of the cluster that runs.
    ranks: Vec<[u32; 3]>,
    reported: HashSet<(Check, u32, Option<u32>)>,
}

impl Reporter<'_> {
    fn report(
        &mut self,
        (check, text): (Check, impl FnOnce() -> String),
        event: Event,
        other: Option<Event>,
        address: Option<Accessed>,
    ) {
        if !self.reported.insert((check, event.pc, other.map(|other| other.pc))) {
            return;
        }
        let site =
            |Event { block, thread, pc, .. }| site(self.launch, SiteId { block, thread, pc });
        self.device.finding(Finding {
            check,
            text: text(),
            kernel: self.launch.program.kernels[self.launch.kernel].name.clone(),
            site: site(event),
            other: other.map(site),
            address,
        });
    }

    /// Returns the coordinates of a block, from its number among the blocks of all clusters.
    fn block_at(&self, number: u32) -> [u32; 3] {
        let size = self.launch.cluster.iter().product::<u32>().max(1);
        block_at(self.launch, (number / size).into(), (number % size).into())
    }

    fn event(&self, rank: usize, thread: u32, pc: u32) -> Event {
        Event { block: self.ranks.get(rank).copied().unwrap_or_default(), rank, thread, pc }
    }

    fn shared(&self, (rank, offset): Offset) -> Option<Accessed> {
        let block = self.ranks.get(rank).copied().unwrap_or_default();
        Some(Accessed::Shared { block, offset })
    }
}

/// Returns the number of a thread in its block.
fn thread(warp: &Warp, lane: usize) -> u32 {
    thread_of(warp.index, lane)
}

/// The same for a warp with this number.
pub(super) fn thread_of(warp: u32, lane: usize) -> u32 {
    warp * LANES as u32 + lane as u32
}

impl<'d> Watch<'d> {
    /// Returns whether a launch has a check that sees what the kernel does.
    pub(super) fn is_needed(launch: &Launch<'_>) -> bool {
        launch.checks != Checks::default()
    }

    pub(super) fn new(launch: &'d Launch<'d>, device: &'d dyn Device) -> Option<Self> {
        Self::is_needed(launch).then(|| {
            let reporter = Reporter { launch, device, ranks: Vec::new(), reported: HashSet::new() };
            let has = |check| launch.checks.contains(check);
            Self {
                reporter,
                sync: has(Check::Synccheck).then(Sync::default),
                race: has(Check::Racecheck).then(Race::default),
                init: has(Check::Initcheck).then(Init::default),
            }
        })
    }

    /// Called when the blocks of a cluster go on.
    pub(super) fn begin_unit(&mut self, number: u64, blocks: impl Iterator<Item = [u32; 3]>) {
        self.reporter.ranks.clear();
        self.reporter.ranks.extend(blocks);
        if let Some(sync) = &mut self.sync {
            sync.begin_unit(number, self.reporter.ranks.len());
        }
        if let Some(race) = &mut self.race {
            race.begin_unit(&self.reporter, number);
        }
        if let Some(init) = &mut self.init {
            init.begin_unit(&self.reporter, number);
        }
    }

    /// Called when all blocks of the cluster have ended.
    pub(super) fn end_unit(&mut self) {
        if let Some(sync) = &mut self.sync {
            sync.end_unit();
        }
        if let Some(race) = &mut self.race {
            race.end_unit();
        }
        if let Some(init) = &mut self.init {
            init.end_unit();
        }
    }

    /// Called before the lanes of `mask` look at the guard of an instruction.
    pub(super) fn condition(warp: &Warp, cx: &mut Context<'_, '_>, guard: Condition, mask: u32) {
        let Some(watch) = &mut cx.watch else { return };
        if let Some(init) = &mut watch.init {
            init.condition(&mut watch.reporter, (warp, cx.rank, mask), guard);
        }
    }

    /// Called before an instruction that the lanes of `mask` execute.
    pub(super) fn before(warp: &Warp, cx: &mut Context<'_, 'd>, op: &Op, mask: u32) {
        let plans = match op {
            Op::CopyTensor(copy) => warp.plans(cx, mask, copy),
            _ => Vec::new(),
        };
        let Some(watch) = cx.watch.take() else { return };
        if let Some(init) = &mut watch.init {
            // The check asks the rest of the context for the places of accesses.
            init.before(&mut watch.reporter, warp, cx, (op, &plans), mask);
        }
        let watch = cx.watch.insert(watch);
        let (rank, shared) = (cx.rank, &*cx.shared);
        let mut access = |address: &Address, len: u32, access, order| {
            watch.access(warp, (rank, shared), mask, address, (len, access, order));
        };
        match op {
            Op::Load(its) => access(&its.address, its.bytes(), Access::Read, its.order),
            Op::Store(its) => access(&its.address, its.bytes(), Access::Write, its.order),
            Op::Atomic(its) => watch.before_atomic(warp, (rank, shared), mask, its),
            Op::Fence(fence) => {
                if let Some(race) = &mut watch.race {
                    race.fence(rank, warp.index, mask, *fence);
                }
            }
            Op::AtomicWide(its) => access(&its.address, 16, Access::Atomic, Some(its.order)),
            Op::CopyAsync { to, from, size, .. } => {
                access(from, *size, Access::Read, None);
                access(to, *size, Access::Write, None);
                watch.copy(warp, (rank, shared), mask, to, *size);
            }
            Op::CopyBulk(its) => {
                each_lane(mask, |lane| watch.copy_bulk(warp, (rank, shared), lane, its));
            }
            Op::CopyTensor(its) => {
                for (lane, plan) in &plans {
                    watch.copy_tensor(warp, (rank, shared), (*lane, its), plan);
                }
            }
            Op::CopyGroup(step) => watch.copy_group(warp, (rank, shared), mask, *step),
            _ => {}
        }
    }

    /// Notes an access of lanes.
    fn access(
        &mut self,
        warp: &Warp,
        (rank, shared): (usize, &[Vec<u8>]),
        mask: u32,
        address: &Address,
        (len, access, order): (u32, Access, Option<Order>),
    ) {
        if self.race.is_none() && !self.sees_accesses() {
            return;
        }
        let places = places(warp, (rank, shared), mask, address, len);
        self.synchronize(warp, rank, &places, (len, access));
        if let Some(race) = &mut self.race {
            let (warp, pc) = (warp.index, warp.pc);
            let lanes = Lanes { warp, rank, pc, len, access, order, changed: mask };
            race.access(&mut self.reporter, lanes, &places, shared);
        }
    }

    /// Returns whether an ordinary access can be an error of synchronization.
    fn sees_accesses(&self) -> bool {
        self.sync.as_ref().is_some_and(Sync::sees_accesses)
    }

    /// Checks that an access comes after the copies to the memory.
    fn synchronize(
        &mut self,
        warp: &Warp,
        rank: usize,
        places: &Places,
        (len, access): (u32, Access),
    ) {
        let Some(sync) = &self.sync else { return };
        let out = &mut self.reporter;
        let event = |out: &Reporter<'_>, lane| out.event(rank, thread(warp, lane), warp.pc);
        if sync.sees_accesses() {
            each_lane(places.shared, |lane| {
                let event = event(out, lane);
                sync.access(out, event, places.at(lane), len, access);
            });
        }
        if sync.has_stores() {
            each_lane(places.global, |lane| {
                let event = event(out, lane);
                let address = places.addresses[lane];
                sync.access_global(out, event, address, len, access);
            });
        }
    }

    /// Checks an atomic operation before it is executed. Its races are found afterwards.
    fn before_atomic(
        &mut self,
        warp: &Warp,
        (rank, shared): (usize, &[Vec<u8>]),
        mask: u32,
        atomic: &Atomic,
    ) {
        if self.sees_accesses() {
            let places = places(warp, (rank, shared), mask, &atomic.address, atomic.size);
            self.synchronize(warp, rank, &places, (atomic.size, Access::Atomic));
        }
    }

    /// Called after an atomic operation of lanes. Those in `changed` wrote the value.
    pub(super) fn atomic(
        &mut self,
        warp: &Warp,
        (rank, shared): (usize, &[Vec<u8>]),
        (mask, changed): (u32, u32),
        atomic: &Atomic,
    ) {
        if let Some(init) = &mut self.init {
            init.atomic(&self.reporter, (warp, rank, shared), (mask, changed), atomic);
        }
        let Some(race) = &mut self.race else { return };
        let Atomic { address, size: len, order, .. } = *atomic;
        let places = places(warp, (rank, shared), mask, &address, len);
        let (warp, pc, order) = (warp.index, warp.pc, Some(order));
        let lanes = Lanes { warp, rank, pc, len, access: Access::Atomic, order, changed };
        race.access(&mut self.reporter, lanes, &places, shared);
    }

    /// Called before an operation of a lane at a multicast address. `starts` has the address of the bytes on each
    /// device.
    pub(super) fn multimem(
        &mut self,
        warp: &Warp,
        (rank, shared): (usize, &[Vec<u8>]),
        (lane, starts): (usize, &[u64]),
        its: &Multimem,
    ) {
        if let Some(init) = &mut self.init {
            init.multimem(&self.reporter, (warp, rank), (lane, starts), its);
        }
        let access = its.function.access();
        // Each element of a reduction is atomic by itself.
        let len = if access == Access::Atomic { its.size } else { its.bytes() };
        for start in starts {
            for offset in (0..its.bytes()).step_by(len as usize) {
                let offset = start.wrapping_add(u64::from(offset)) as i64;
                let address = Address { space: Space::Global, base: Base::None, offset };
                let range = (len, access, its.order);
                self.access(warp, (rank, shared), 1 << lane, &address, range);
            }
        }
    }

    fn copy(
        &mut self,
        warp: &Warp,
        (rank, shared): (usize, &[Vec<u8>]),
        mask: u32,
        to: &Address,
        size: u32,
    ) {
        let Some(sync) = &mut self.sync else { return };
        let places = places(warp, (rank, shared), mask, to, size);
        each_lane(places.shared, |lane| {
            let event = self.reporter.event(rank, thread(warp, lane), warp.pc);
            let (rank, offset) = places.at(lane);
            sync.copy(event, shared[rank].len(), offset..offset + size);
        });
    }

    fn copy_bulk(
        &mut self,
        warp: &Warp,
        (rank, shared): (usize, &[Vec<u8>]),
        lane: usize,
        its: &Bulk,
    ) {
        let size = warp.registers.narrow[its.size as usize][lane];
        let from = warp.addresses(&its.from)[lane];
        let to = warp.addresses(&its.to)[lane];
        let at = |space, address: u64| Address { space, base: Base::None, offset: address as i64 };
        let mut access = |address: &Address, size, access, order| {
            self.access(warp, (rank, shared), 1 << lane, address, (size, access, order));
        };
        access(&at(its.from.space, from), size, Access::Read, None);
        let targets = warp.targets(lane, to, its.multicast);
        for to in &targets {
            let to = at(its.to.space, *to);
            match its.reduce {
                None => access(&to, size, Access::Write, None),
                Some((_, step)) => {
                    for offset in (0..size).step_by(step as usize) {
                        let to = Address { offset: to.offset + i64::from(offset), ..to };
                        access(&to, step, Access::Atomic, Some(REDUCTION));
                    }
                }
            }
        }
        let Some(sync) = &mut self.sync else { return };
        let event = self.reporter.event(rank, thread(warp, lane), warp.pc);
        if let Some(barrier) = &its.barrier {
            let barriers = warp.targets(lane, warp.addresses(barrier)[lane], its.multicast);
            for (to, barrier) in targets.into_iter().zip(barriers) {
                let (to, barrier) = (split(rank, to), split(rank, barrier));
                sync.copy_bulk(event, shared, (to, size), barrier);
            }
            return;
        }
        let source = (split(rank, from), size);
        let targets = std::iter::once(to..to + u64::from(size)).collect();
        sync.store_bulk(event, shared, source, (targets, its.reduce.is_some()));
    }

    fn copy_tensor(
        &mut self,
        warp: &Warp,
        (rank, shared): (usize, &[Vec<u8>]),
        (lane, its): (usize, &TensorCopy),
        plan: &Plan,
    ) {
        let step = plan.map.element.bytes() as u32;
        let (address, multicast, is_load, is_reduction) = match its.access {
            TensorAccess::Load { to, multicast, .. } => (to, multicast, true, false),
            TensorAccess::Store { from, function } => (from, None, false, function.is_some()),
            TensorAccess::Prefetch => return,
        };
        let starts = warp.targets(lane, warp.addresses(&address)[lane], multicast);
        let (of_shared, of_global, order) = match (is_load, is_reduction) {
            (true, _) => (Access::Write, Access::Read, None),
            (false, false) => (Access::Read, Access::Write, None),
            (false, true) => (Access::Read, Access::Atomic, Some(REDUCTION)),
        };
        for piece in &plan.pieces.list {
            let mut access = |space, address: u64, (size, access, order)| {
                let address = Address { space, base: Base::None, offset: address as i64 };
                self.access(warp, (rank, shared), 1 << lane, &address, (size, access, order));
            };
            for start in starts.iter().filter(|_| is_load || piece.address.is_some()) {
                let at = plan.map.swizzle.place(start + piece.offset);
                access(Space::Shared, at, (piece.bytes as u32, of_shared, None));
            }
            let Some(address) = piece.address else { continue };
            let size = if is_reduction { step } else { piece.bytes as u32 };
            for offset in (0..piece.bytes).step_by(size as usize) {
                access(Space::Global, address.wrapping_add(offset), (size, of_global, order));
            }
        }
        let Some(sync) = &mut self.sync else { return };
        let event = self.reporter.event(rank, thread(warp, lane), warp.pc);
        if let TensorAccess::Load { barrier, .. } = &its.access {
            let barriers = warp.targets(lane, warp.addresses(barrier)[lane], multicast);
            for (start, barrier) in starts.into_iter().zip(barriers) {
                let to = (split(rank, start), plan.pieces.covered as u32);
                sync.copy_bulk(event, shared, to, split(rank, barrier));
            }
            return;
        }
        for start in starts {
            let inside = plan.pieces.list.iter().filter_map(|piece| {
                piece.address.map(|address| address..address.wrapping_add(piece.bytes))
            });
            let source = (split(rank, start), plan.pieces.covered as u32);
            sync.store_bulk(event, shared, source, (inside.collect(), is_reduction));
        }
    }

    fn copy_group(
        &mut self,
        warp: &Warp,
        (rank, shared): (usize, &[Vec<u8>]),
        mask: u32,
        step: CopyGroup,
    ) {
        let barriers = match step {
            CopyGroup::Arrive(address) => Some(places(warp, (rank, shared), mask, &address, 8)),
            _ => None,
        };
        each_lane(mask, |lane| {
            let event = self.reporter.event(rank, thread(warp, lane), warp.pc);
            let barrier = barriers.as_ref().filter(|its| its.shared >> lane & 1 != 0);
            let barrier = barrier.map(|its| its.at(lane));
            if let Some(sync) = &mut self.sync {
                sync.copy_group(event, step, barrier.map(|(_, offset)| offset));
            }
            // The barrier's phase is complete after the copies.
            if let (Some(race), Some(at)) = (&mut self.race, barrier) {
                let order = Order { releases: true, ..Order::relaxed(Scope::Cta) };
                let step = Step::Change { completes: false, of_copy: false };
                race.mbarrier_step((rank, event.thread), at, order, step);
            }
        });
    }

    /// Called when lanes arrive at a barrier of their block.
    pub(super) fn arrive(&mut self, rank: usize, id: u32, arrival: Arrival) {
        if let Some(race) = &mut self.race {
            race.arrive(rank, id, arrival);
        }
        if let Some(sync) = &mut self.sync {
            let event = self.reporter.event(rank, arrival.first_thread(), arrival.pc);
            sync.arrive(&mut self.reporter, event, id, arrival);
        }
    }

    /// Called when a barrier of a block is complete.
    pub(super) fn complete_barrier(&mut self, rank: usize, id: u32, warps: &[Warp]) {
        if let Some(race) = &mut self.race {
            let alive: Vec<u32> = warps.iter().map(|warp| warp.alive).collect();
            race.complete_barrier(&self.reporter, rank, id, &alive);
        }
        if let Some(sync) = &mut self.sync {
            sync.complete(&mut self.reporter, rank, id, |warp| warps[warp as usize].alive);
        }
    }

    pub(super) fn arrive_at_cluster(
        &mut self,
        warp: &Warp,
        rank: usize,
        (mask, releases): (u32, bool),
    ) {
        if let Some(race) = &mut self.race {
            race.arrive_at_cluster(rank, warp.index, mask, releases);
        }
        if let Some(sync) = &mut self.sync {
            let event = self.reporter.event(rank, thread(warp, 0), warp.pc);
            sync.arrive_at_cluster(&mut self.reporter, event, warp.index, mask);
        }
    }

    /// Called when all lanes of a cluster have arrived.
    pub(super) fn complete_cluster(&mut self) {
        if let Some(race) = &mut self.race {
            race.complete_cluster();
        }
    }

    /// Called when lanes wait for their cluster. They may call it again until the barrier is complete.
    pub(super) fn wait_for_cluster(
        &mut self,
        warp: &Warp,
        rank: usize,
        (mask, is_complete): (u32, bool),
    ) {
        if let Some(race) = self.race.as_mut().filter(|_| is_complete) {
            race.leave_cluster(rank, warp.index, mask);
        }
        if let Some(sync) = &mut self.sync {
            let event = self.reporter.event(rank, thread(warp, 0), warp.pc);
            let lanes = (mask, is_complete);
            sync.wait_for_cluster(&mut self.reporter, event, warp.index, lanes);
        }
    }

    /// Called when the lanes `here` of `mask` come to an operation of the lanes `members`.
    pub(super) fn meet(
        &mut self,
        warp: &Warp,
        (rank, here, mask): (usize, u32, u32),
        members: u32,
    ) {
        if let Some(sync) = &mut self.sync {
            let event = self.reporter.event(rank, thread(warp, 0), warp.pc);
            sync.meet(&mut self.reporter, event, (here, mask), members);
        }
    }

    /// Called when the lanes `here`, which are all of the mask `members` that have not exited, execute an operation.
    pub(super) fn execute(
        warp: &Warp,
        cx: &mut Context<'_, 'd>,
        (here, members): (u32, u32),
        operation: &Together,
    ) {
        let Some(watch) = cx.watch.take() else { return };
        if let Some(init) = &mut watch.init {
            init.execute(&mut watch.reporter, (warp, cx), (here, members), operation);
        }
        let watch = cx.watch.insert(watch);
        let rank = cx.rank;
        if let (Some(race), Together::Sync) = (&mut watch.race, operation) {
            race.meet(rank, warp.index, members & warp.alive);
        }
        if let Some(sync) = &mut watch.sync {
            let event = watch.reporter.event(rank, thread(warp, 0), warp.pc);
            sync.execute(&mut watch.reporter, event, warp, (here, members), operation);
        }
        if let Together::Matrix(matrix) = operation {
            let (rows, access) = match &**matrix {
                Matrix::Load(rows) => (rows, Access::Read),
                Matrix::Store(rows) => (rows, Access::Write),
                Matrix::Transpose { .. } | Matrix::Multiply(_) | Matrix::Meet => return,
            };
            let (mask, range) = (here & rows.lanes(), (Rows::BYTES, access, None));
            watch.access(warp, (rank, cx.shared), mask, &rows.address, range);
        }
    }

    /// Called before an operation on an `mbarrier`.
    pub(super) fn mbarrier(
        &mut self,
        warp: &Warp,
        (rank, shared): (usize, &[Vec<u8>]),
        (lane, at): (usize, Offset),
        (operation, order): (Mbarrier, Order),
        state: &State,
    ) {
        if let Some(sync) = &mut self.sync {
            let event = self.reporter.event(rank, thread(warp, lane), warp.pc);
            let narrow = |slot: u32| warp.registers.narrow[slot as usize][lane];
            sync.mbarrier(&mut self.reporter, event, at, operation, state, narrow);
        }
        if let Some(race) = &mut self.race {
            let strong = Some(Order::relaxed(order.scope.max(Scope::Cluster)));
            let (access, order) = match operation {
                Mbarrier::Init { .. } | Mbarrier::Inval => (Access::Write, None),
                Mbarrier::TestWait { .. } | Mbarrier::TestParity { .. } => (Access::Read, strong),
                _ => (Access::Atomic, strong),
            };
            let places = Places::one(rank, lane, at);
            let (warp, pc, changed) = (warp.index, warp.pc, 1 << lane);
            let lanes = Lanes { warp, rank, pc, len: 8, access, order, changed };
            race.access(&mut self.reporter, lanes, &places, shared);
        }
    }

    /// Called after the operation.
    pub(super) fn mbarrier_step(
        &mut self,
        warp: &Warp,
        (rank, lane): (usize, usize),
        at: Offset,
        order: Order,
        step: Step,
    ) {
        if let (Some(sync), Step::Wait { is_over: true }) = (&mut self.sync, step) {
            sync.complete_copies(at);
        }
        if let Some(race) = &mut self.race {
            race.mbarrier_step((rank, thread(warp, lane)), at, order, step);
        }
    }

    /// Called when no thread of a cluster can go on. `waiting` has a block, a thread and an instruction for each group
    /// of threads that wait.
    pub(super) fn deadlock(
        &mut self,
        text: &str,
        waiting: impl Iterator<Item = ([u32; 3], u32, u32)>,
    ) {
        if self.sync.is_none() {
            return;
        }
        let mut events = waiting.map(|(block, thread, pc)| Event { block, rank: 0, thread, pc });
        let Some(first) = events.next() else { return };
        let other = events.find(|its| its.pc != first.pc);
        self.reporter.report((Check::Synccheck, || text.to_owned()), first, other, None);
    }
}

/// The lanes that access shared and global memory, and the addresses.
struct Places {
    rank: usize,
    shared: u32,
    global: u32,
    addresses: [u64; LANES],
}

impl Places {
    /// Returns a place of one lane in shared memory.
    fn one(rank: usize, lane: usize, (target, offset): Offset) -> Self {
        let mut places = Self { rank, shared: 1 << lane, global: 0, addresses: [0; LANES] };
        places.addresses[lane] = (target as u64 + 1) * CLUSTER_STEP + u64::from(offset);
        places
    }

    fn at(&self, lane: usize) -> Offset {
        split(self.rank, self.addresses[lane])
    }
}

/// Returns the rank of a block and the offset in its shared memory. `rank` is that of the own block.
fn split(rank: usize, address: u64) -> Offset {
    let rank = match address / CLUSTER_STEP {
        0 => rank,
        other => other as usize - 1,
    };
    (rank, (address % CLUSTER_STEP) as u32)
}

/// Returns the places of `len` bytes of each lane, except for those whose access ends the kernel.
fn places(
    warp: &Warp,
    (rank, shared): (usize, &[Vec<u8>]),
    mask: u32,
    address: &Address,
    len: u32,
) -> Places {
    let mut places = Places { rank, shared: 0, global: 0, addresses: [0; LANES] };
    let window = match address.space {
        Space::Global => {
            places.global = mask;
            places.addresses = warp.addresses(address);
            return places;
        }
        Space::Shared => 0,
        Space::Generic => SHARED_WINDOW,
        _ => return places,
    };
    let addresses = warp.addresses(address);
    each_lane(mask, |lane| {
        let address = addresses[lane].wrapping_sub(window);
        if address < WINDOW {
            let (rank, offset) = split(rank, address);
            let size = shared.get(rank).map_or(0, Vec::len) as u64;
            if u64::from(offset) + u64::from(len) <= size {
                places.shared |= 1 << lane;
                places.addresses[lane] = address;
            }
        } else if [LOCAL_WINDOW, PARAM_WINDOW]
            .iter()
            .all(|window| addresses[lane].wrapping_sub(*window) >= WINDOW)
        {
            places.global |= 1 << lane;
            places.addresses[lane] = addresses[lane];
        }
    });
    places
}
