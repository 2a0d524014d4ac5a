//! Blocks of a cluster: their warps, barriers and shared memory.

use super::Launch;
use super::access::{Context, Regions};
use super::fault::{Fault, FaultKind, Raise, Raised};
use super::interleave::{Delayed, Interleaver};
use super::registers::{ALL, LANES, Registers};
use super::warp::{Wait, Warp};
use super::watch::{Watch, thread_of};
use crate::check::{Site, SiteId};
use crate::device::Device;
use crate::program::{Constant, Image, Instruction, Special};

/// Operations that a warp runs before another warp of its block does.
const SLICE: u32 = if cfg!(miri) { 500 } else { 20_000 };

/// The bytes of shared memory that the driver reserves in each block.
const RESERVED_SHARED: u64 = 1024;

/// A barrier that is complete: the number of lanes that arrived, and of those with a true predicate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Release {
    pub(super) id: u32,
    pub(super) arrived: u32,
    pub(super) trues: u32,
}

#[derive(Clone, Debug, Default)]
struct BarrierState {
    /// The lanes of each warp that arrived.
    arrived: Vec<u32>,
    trues: u32,
    expected: Option<u32>,
    is_used: bool,
}

/// The barriers of a block.
#[derive(Debug, Default)]
pub(super) struct BlockState {
    barriers: Vec<BarrierState>,
    /// The lanes of each warp that have a thread.
    present: Vec<u32>,
    /// Whether lanes arrived or exited since the barriers were looked at.
    pub(super) changed: bool,
    /// The stores that an interleaving delays.
    pub(super) delayed: Vec<Delayed>,
}

impl BlockState {
    /// Notes the arrival of lanes. An error says that a lane arrived before and the barrier is not complete.
    pub(super) fn arrive(
        &mut self,
        id: u32,
        warp: u32,
        mask: u32,
        expected: Option<u32>,
        trues: u32,
    ) -> Result<(), ()> {
        let warps = self.present.len();
        if self.barriers.is_empty() {
            self.barriers = vec![BarrierState::default(); 16];
        }
        let Some(barrier) = self.barriers.get_mut(id as usize) else { return Err(()) };
        barrier.arrived.resize(warps, 0);
        let arrived = &mut barrier.arrived[warp as usize];
        if *arrived & mask != 0 {
            return Err(());
        }
        *arrived |= mask;
        barrier.expected = expected;
        barrier.trues += trues.count_ones();
        barrier.is_used = true;
        self.changed = true;
        Ok(())
    }

    /// Returns a barrier that is complete, and resets it. `alive` has the lanes of each warp that have not exited.
    fn complete(&mut self, alive: impl Fn(usize) -> u32) -> Option<Release> {
        for (id, barrier) in self.barriers.iter_mut().enumerate() {
            if !barrier.is_used {
                continue;
            }
            let mut threads = 0;
            for (warp, arrived) in barrier.arrived.iter().enumerate() {
                let is_absent = !self.present[warp];
                let gone = self.present[warp] & !alive(warp);
                threads += match (barrier.expected, *arrived) {
                    // Threads that exited count at a barrier for the whole block.
                    (Some(_), 0) => 0,
                    // A warp counts as a whole, even if it has fewer threads.
                    (_, arrived) if arrived | gone | is_absent == ALL => LANES as u32,
                    (_, arrived) => arrived.count_ones(),
                };
            }
            let whole = (LANES * self.present.len()) as u32;
            if threads >= barrier.expected.unwrap_or(whole) {
                let arrived = barrier.arrived.iter().map(|mask| mask.count_ones()).sum();
                let release = Release { id: id as u32, arrived, trues: barrier.trues };
                barrier.arrived.fill(0);
                barrier.trues = 0;
                barrier.is_used = false;
                return Some(release);
            }
        }
        None
    }
}

/// The barrier of a cluster.
#[derive(Debug, Default)]
pub(super) struct Cluster {
    /// The lanes that arrived, and those that may go on, of each warp of each block.
    arrived: Vec<Vec<u32>>,
    released: Vec<Vec<u32>>,
}

impl Cluster {
    /// Begins with no arrivals. The memory of an earlier cluster is used again.
    fn reset(&mut self, blocks: usize, warps: usize) {
        for list in [&mut self.arrived, &mut self.released] {
            list.resize(blocks, Vec::new());
            for lanes in list {
                lanes.clear();
                lanes.resize(warps, 0);
            }
        }
    }

    pub(super) fn arrive(&mut self, rank: usize, warp: u32, mask: u32) {
        self.arrived[rank][warp as usize] |= mask;
    }

    pub(super) fn is_complete(&mut self, rank: usize, warp: u32, mask: u32) -> bool {
        let released = &mut self.released[rank][warp as usize];
        let is_complete = *released & mask == mask;
        if is_complete {
            *released &= !mask;
        }
        is_complete
    }
}

/// A block that runs.
#[derive(Debug, Default)]
struct Block {
    place: Place,
    warps: Vec<Warp>,
    state: BlockState,
}

impl Block {
    fn has_ended(&self) -> bool {
        self.warps.iter().all(|warp| warp.alive == 0)
    }
}

/// A host thread that runs clusters.
pub(super) struct Host<'a, 'd> {
    pub(super) launch: &'a Launch<'a>,
    pub(super) device: &'d dyn Device,
    pub(super) regions: Regions<'d>,
    /// The operations that it has run.
    pub(super) steps: u64,
    /// The executions of each instruction, if they are counted.
    pub(super) counts: Vec<u64>,
    pub(super) watch: Option<Watch<'d>>,
    pub(super) interleaver: Option<Interleaver>,
}

/// What became of a cluster in its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Done,
    Running,
}

/// The blocks of a cluster. Without clusters, one block.
#[derive(Debug, Default)]
pub(super) struct Unit {
    /// The number of the cluster.
    number: u64,
    blocks: Vec<Block>,
    shared: Vec<Vec<u8>>,
    cluster: Cluster,
    /// The registers of warps that ended, for warps that begin.
    spare: Vec<Registers>,
}

/// The number of elements of a grid or block.
pub(super) fn count([x, y, z]: [u32; 3]) -> u64 {
    u64::from(x) * u64::from(y) * u64::from(z)
}

/// Returns the coordinates of the element with this number.
pub(super) fn coordinates(number: u64, [x, y, _]: [u32; 3]) -> [u32; 3] {
    let (x, y) = (u64::from(x.max(1)), u64::from(y.max(1)));
    [(number % x) as u32, (number / x % y) as u32, (number / x / y) as u32]
}

fn clusters(launch: &Launch<'_>) -> [u32; 3] {
    std::array::from_fn(|i| launch.grid[i] / launch.cluster[i].max(1))
}

/// Returns the coordinates of a block, from the number of its cluster and its rank there.
pub(super) fn block_at(launch: &Launch<'_>, cluster: u64, rank: u64) -> [u32; 3] {
    let cluster = coordinates(cluster, clusters(launch));
    let inner = coordinates(rank, launch.cluster);
    std::array::from_fn(|i| cluster[i] * launch.cluster[i] + inner[i])
}

impl Unit {
    /// Starts the blocks of a cluster.
    pub(super) fn start(&mut self, launch: &Launch<'_>, cluster: u64) {
        let kernel = &launch.program.kernels[launch.kernel];
        let image = &kernel.image;
        let size = count(launch.cluster) as usize;
        let threads = count(launch.block);
        let warps = threads.div_ceil(LANES as u64) as usize;
        self.number = cluster;
        let clusters = clusters(launch);
        let cluster = coordinates(cluster, clusters);
        let shared = kernel.shared.next_multiple_of(16) as usize + launch.dynamic_shared as usize;
        self.shared.resize(size, Vec::new());
        self.blocks.resize_with(size, Block::default);
        self.cluster.reset(size, warps);
        for (rank, block) in self.blocks.iter_mut().enumerate() {
            self.shared[rank].clear();
            self.shared[rank].resize(shared, 0);
            let inner = coordinates(rank as u64, launch.cluster);
            let id = block_at(launch, self.number, rank as u64);
            block.place = Place { id, cluster, clusters, inner, rank, warps, shared };
            block.state = BlockState::default();
            block.warps.resize_with(warps, Warp::new);
            for (index, warp) in block.warps.iter_mut().enumerate() {
                let first = (index * LANES) as u64;
                let mask = match threads - first {
                    rest @ 0..32 => (1u32 << rest) - 1,
                    _ => ALL,
                };
                block.state.present.push(mask);
                warp.index = index as u32;
                warp.start(image, mask);
            }
        }
    }

    /// Runs each warp for some slices.
    pub(super) fn run(
        &mut self,
        host: &mut Host<'_, '_>,
        rounds: u32,
    ) -> Result<Progress, Box<Fault>> {
        self.begin_turn(host);
        for _ in 0..rounds {
            let mut is_done = true;
            let (mut has_run, mut is_spinning) = (false, true);
            for rank in 0..self.blocks.len() {
                let count = self.blocks[rank].warps.len();
                for turn in 0..count {
                    let at = order(host.launch.seed, turn, count);
                    if !self.blocks[rank].warps[at].is_ready() {
                        continue;
                    }
                    has_run = true;
                    self.run_warp(host, rank, at)?;
                    is_spinning &= self.blocks[rank].warps[at].is_ready();
                }
                self.complete_barriers(host, rank);
                is_done &= self.blocks[rank].has_ended();
            }
            self.complete_cluster(host);
            if is_done {
                return Ok(Progress::Done);
            }
            if !has_run {
                self.expect_ready(host)?;
            }
            // All of its warps used up their slices, perhaps because they wait for another block.
            if has_run && is_spinning {
                break;
            }
        }
        Ok(Progress::Running)
    }

    /// Runs a warp that the interleaver chooses, until it gives way.
    pub(super) fn run_any(&mut self, host: &mut Host<'_, '_>) -> Result<Progress, Box<Fault>> {
        self.begin_turn(host);
        let blocks = self.blocks.iter().enumerate();
        let ready = blocks.flat_map(|(rank, block)| {
            let warps = block.warps.iter().enumerate().filter(|(_, warp)| warp.is_ready());
            warps.map(move |(at, _)| (rank, at))
        });
        let ready: Vec<(usize, usize)> = ready.collect();
        let chosen = host.interleaver.as_mut().map_or(0, |its| its.below(ready.len()));
        if let Some((rank, at)) = ready.get(chosen) {
            self.run_warp(host, *rank, *at)?;
            self.complete_barriers(host, *rank);
        }
        self.complete_cluster(host);
        if self.blocks.iter().all(Block::has_ended) {
            return Ok(Progress::Done);
        }
        self.expect_ready(host)?;
        Ok(Progress::Running)
    }

    fn begin_turn(&self, host: &mut Host<'_, '_>) {
        if let Some(watch) = &mut host.watch {
            watch.begin_unit(self.number, self.blocks.iter().map(|block| block.place.id));
        }
    }

    /// Runs a warp for a slice.
    fn run_warp(
        &mut self,
        host: &mut Host<'_, '_>,
        rank: usize,
        at: usize,
    ) -> Result<(), Box<Fault>> {
        let launch = host.launch;
        let image = &launch.program.kernels[launch.kernel].image;
        let Block { place, warps, state } = &mut self.blocks[rank];
        let warp = &mut warps[at];
        if !warp.has_begun {
            let spare = self.spare.pop().unwrap_or_default();
            warp.begin(image, spare, |constant| place.constant(launch, constant, at));
        }
        let mut cx = Context {
            launch,
            image,
            device: host.device,
            shared: &mut self.shared,
            cluster: &mut self.cluster,
            block: state,
            id: place.id,
            rank,
            stack: launch.stack,
            steps: host.steps,
            regions: &mut host.regions,
            counts: &mut host.counts,
            watch: host.watch.as_mut(),
            interleaver: host.interleaver.as_mut(),
        };
        let is_observed = cx.watch.is_some() || !cx.counts.is_empty() || cx.interleaver.is_some();
        let done = match is_observed {
            false => warp.run::<false>(&mut cx, SLICE),
            true => warp.run::<true>(&mut cx, SLICE),
        };
        host.steps = cx.steps;
        done.map_err(|raise| fault(launch, place.id, (warp.index, warp.pc), raise))?;
        if warp.alive == 0 {
            self.spare.push(std::mem::take(&mut warp.registers));
        }
        Ok(())
    }

    /// Lets the warps of a block go on whose barriers are complete.
    fn complete_barriers(&mut self, host: &mut Host<'_, '_>, rank: usize) {
        let Block { warps, state, .. } = &mut self.blocks[rank];
        if std::mem::take(&mut state.changed) {
            while let Some(release) = state.complete(|warp| warps[warp].alive) {
                if let Some(watch) = &mut host.watch {
                    watch.complete_barrier(rank, release.id, warps);
                }
                warps.iter_mut().for_each(|warp| warp.release(&release));
            }
        }
    }

    /// Returns an error if no warp can go on.
    fn expect_ready(&self, host: &mut Host<'_, '_>) -> Result<(), Box<Fault>> {
        match self.blocks.iter().flat_map(|block| &block.warps).any(Warp::is_ready) {
            true => Ok(()),
            false => Err(self.deadlock(host.launch, host.watch.as_mut())),
        }
    }

    /// Lets the lanes of the cluster go on if all arrived that have not exited.
    fn complete_cluster(&mut self, host: &mut Host<'_, '_>) {
        let mut any = false;
        let all = self.blocks.iter().enumerate().all(|(rank, block)| {
            block.warps.iter().enumerate().all(|(index, warp)| {
                let arrived = self.cluster.arrived[rank][index];
                any |= arrived != 0;
                warp.alive & !arrived == 0
            })
        });
        if !(all && any) {
            return;
        }
        let Cluster { arrived, released } = &mut self.cluster;
        for (arrived, released) in arrived.iter_mut().flatten().zip(released.iter_mut().flatten()) {
            *released = std::mem::take(arrived);
        }
        for warp in self.blocks.iter_mut().flat_map(|block| &mut block.warps) {
            warp.wake_for_cluster();
        }
        if let Some(watch) = &mut host.watch {
            watch.complete_cluster();
        }
    }

    /// Returns the report of an error at the first thread of the cluster.
    pub(super) fn report(&self, launch: &Launch<'_>, raise: Raise) -> Box<Fault> {
        let block = self.blocks.first();
        let id = block.map_or([0; 3], |block| block.place.id);
        let warp = block.and_then(|block| block.warps.iter().find(|warp| warp.alive != 0));
        fault(launch, id, warp.map_or((0, 0), |warp| (warp.index, warp.pc)), raise)
    }

    /// Returns the report of threads that wait without end.
    fn deadlock(&self, launch: &Launch<'_>, watch: Option<&mut Watch<'_>>) -> Box<Fault> {
        let waiting = self.blocks.iter().flat_map(|block| {
            let warps = block.warps.iter();
            warps.flat_map(move |warp| warp.groups.iter().map(move |group| (block, warp, group)))
        });
        let mut list: Vec<_> = waiting.collect();
        list.sort_by_key(|(block, warp, group)| {
            (block.place.id, warp.index, group.mask.trailing_zeros())
        });
        let Some((block, warp, group)) = list.first() else {
            let raise = Raise::new(FaultKind::Deadlock, 0, "no thread can go on");
            return fault(launch, [0; 3], (0, 0), raise);
        };
        let what = match group.wait {
            Wait::None => "nothing".to_owned(),
            Wait::Together(members) => format!(
                "the lanes {:#010x} of its warp, of which {:#010x} are not there",
                members,
                members & warp.alive & !group.mask
            ),
            Wait::Barrier(id, _) => {
                format!("the barrier {id}, at which not all threads arrive")
            }
            Wait::Cluster => "the barrier of the cluster".to_owned(),
        };
        let lane = group.mask.trailing_zeros() as usize % LANES;
        let text = format!("the threads of the block wait without end: the first for {what}");
        if let Some(watch) = watch {
            let waiting = list.iter().map(|(block, warp, group)| {
                let first = group.mask.trailing_zeros();
                (block.place.id, LANES as u32 * warp.index + first, group.place())
            });
            watch.deadlock(&text, waiting);
        }
        let raise = Raise::new(FaultKind::Deadlock, lane, text);
        fault(launch, block.place.id, (warp.index, group.place()), raise)
    }
}

/// Returns the place of an element in an order that the seed chooses. The seed zero keeps the order.
pub(super) fn order(seed: u64, turn: usize, count: usize) -> usize {
    if seed == 0 || count < 2 {
        return turn;
    }
    let count = count as u64;
    let mix = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut step = mix % count;
    while gcd(step, count) != 1 {
        step = (step + 1) % count;
    }
    let start = (mix >> 32) % count;
    ((turn as u64).wrapping_mul(step) % count + start) as usize % count as usize
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Returns the report of an error at an instruction of a warp.
fn fault(
    launch: &Launch<'_>,
    block: [u32; 3],
    (warp, pc): (u32, u32),
    Raise(raise): Raise,
) -> Box<Fault> {
    let thread = thread_of(warp, raise.lane);
    let Site { function, instruction, line, source, block, thread } =
        site(launch, SiteId { block, thread, pc });
    let kernel = launch.program.kernels[launch.kernel].name.clone();
    let Raised { kind, text, address, .. } = *raise;
    Box::new(Fault {
        kind,
        text,
        kernel,
        function,
        instruction,
        line,
        source,
        block,
        thread,
        address,
    })
}

/// Describes an instruction that a thread executes.
pub(super) fn site(launch: &Launch<'_>, SiteId { block, thread, pc }: SiteId) -> Site {
    let none = Image::default();
    let image = launch.program.kernels.get(launch.kernel).map_or(&none, |kernel| &kernel.image);
    let Instruction { name, function, line, source, .. } = launch.program.describe(image, pc);
    Site {
        function: function.to_owned(),
        instruction: name.to_owned(),
        line,
        source: source.map(|(file, line)| (file.to_owned(), line)),
        block,
        thread: coordinates(thread.into(), launch.block),
    }
}

/// Where a block is in its grid, and its extents.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    id: [u32; 3],
    cluster: [u32; 3],
    clusters: [u32; 3],
    inner: [u32; 3],
    rank: usize,
    warps: usize,
    /// The bytes of shared memory.
    shared: usize,
}

impl Place {
    /// Returns the value of a constant in the lanes of a warp.
    fn constant(&self, launch: &Launch<'_>, constant: Constant, warp: usize) -> [u64; LANES] {
        match constant {
            Constant::Bits(value) => [value; LANES],
            Constant::Variable(index, offset) => {
                let address = launch.variables.get(index).copied().unwrap_or(0);
                [address.wrapping_add_signed(offset); LANES]
            }
            // The linker replaces it.
            Constant::DynamicShared(_) => [0; LANES],
            Constant::Special(Special::Tid(i)) => threads(warp, launch.block, i),
            Constant::Special(Special::Laneid) => of_lanes(|lane, _| lane),
            Constant::Special(Special::LanemaskEq) => of_lanes(|_, bit| bit),
            Constant::Special(Special::LanemaskLe) => of_lanes(|_, bit| bit | (bit - 1)),
            Constant::Special(Special::LanemaskLt) => of_lanes(|_, bit| bit - 1),
            Constant::Special(Special::LanemaskGe) => of_lanes(|_, bit| !(bit - 1)),
            Constant::Special(Special::LanemaskGt) => of_lanes(|_, bit| !(bit | (bit - 1))),
            Constant::Special(special) => [self.special(launch, special, warp); LANES],
        }
    }

    /// Returns a special register that is the same for all lanes.
    fn special(&self, launch: &Launch<'_>, special: Special, warp: usize) -> u64 {
        let of = |extents: [u32; 3], component: u8| {
            u64::from(extents.get(component as usize).copied().unwrap_or(0))
        };
        match special {
            Special::Ntid(i) => of(launch.block, i),
            Special::Ctaid(i) => of(self.id, i),
            Special::Nctaid(i) => of(launch.grid, i),
            Special::Warpid => warp as u64,
            Special::Nwarpid => self.warps.max(64) as u64,
            Special::Smid => {
                let [x, y, z] = self.id.map(u64::from);
                let [gx, gy, _] = launch.grid.map(u64::from);
                let number = (x + gx * (y + gy * z)) as usize;
                u64::from(launch.sms.get(number % launch.sms.len().max(1)).copied().unwrap_or(0))
            }
            Special::Nsmid => u64::from(launch.sm_count),
            Special::Gridid => 1,
            Special::Clusterid(i) => of(self.cluster, i),
            Special::Nclusterid(i) => of(self.clusters, i),
            Special::ClusterCtaid(i) => of(self.inner, i),
            Special::ClusterNctaid(i) => of(launch.cluster, i),
            Special::ClusterCtarank => self.rank as u64,
            Special::ClusterNctarank => count(launch.cluster),
            Special::IsExplicitCluster => u64::from(launch.is_clustered),
            Special::ReservedSmem(offset) => u64::from(offset),
            Special::DynamicSmemSize => u64::from(launch.dynamic_shared),
            Special::TotalSmemSize => (self.shared as u64).next_multiple_of(128),
            Special::AggrSmemSize => {
                let own = match launch.dynamic_shared {
                    0 => u64::from(launch.program.kernels[launch.kernel].shared),
                    _ => self.shared as u64,
                };
                own + RESERVED_SHARED
            }
            // The address of the memory that synchronizes a grid.
            Special::Envreg(1) if launch.is_cooperative => super::access::GRID_WINDOW >> 32,
            Special::Envreg(2) if launch.is_cooperative => super::access::GRID_WINDOW & 0xffff_ffff,
            _ => 0,
        }
    }
}

/// Returns a value for each lane, from its number and its bit.
fn of_lanes(f: impl Fn(u64, u64) -> u64) -> [u64; LANES] {
    std::array::from_fn(|lane| f(lane as u64, 1 << lane))
}

/// Returns a component of the coordinates of the threads of a warp in their block.
fn threads(warp: usize, block: [u32; 3], component: u8) -> [u64; LANES] {
    let mut at = coordinates((warp * LANES) as u64, block);
    if LANES as u32 <= block[0] - at[0] {
        // The warp is in one row.
        let first = at.get(component as usize).copied().unwrap_or(0);
        return of_lanes(|lane, _| u64::from(first) + if component == 0 { lane } else { 0 });
    }
    std::array::from_fn(|_| {
        let value = at.get(component as usize).copied().unwrap_or(0);
        at[0] += 1;
        for axis in 0..2 {
            if at[axis] == block[axis] {
                at[axis] = 0;
                at[axis + 1] += 1;
            }
        }
        value.into()
    })
}
