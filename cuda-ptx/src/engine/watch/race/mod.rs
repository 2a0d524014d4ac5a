#![doc = include_str!("race.md")]

mod clock;
mod shadow;

use super::{Arrival, Clusters, Event, Offset, Places, Reporter, Step, thread_of};
use crate::check::{Address, Check};
use crate::device::Access;
use crate::engine::registers::{LANES, each_lane};
use crate::map::Map;
use crate::program::{Barrier, Fence, Order, Scope};
use clock::{Clock, Who, join};
use shadow::{Cell, Comparison, LAST_TIME, Record, Shadow};
use std::rc::Rc;

/// The most words through which threads synchronize.
const WORDS: usize = 1 << 20;

/// What a thread knows.
#[derive(Clone, Debug, Default)]
struct Thread {
    /// The time of its accesses.
    time: u32,
    /// What is ordered before them.
    clock: Rc<Clock>,
    /// What was ordered before its last fence of each scope: of its block or cluster, and of the device.
    fences: [Option<Rc<Clock>>; 2],
    /// What the next fence orders before, because the thread has read values that others released: of its block, and
    /// of others.
    read: [Option<Rc<Clock>>; 2],
    /// What was ordered before the fences with `.sc` that are before the next access in each order of the fences.
    sc: Rc<Clock>,
}

impl Thread {
    /// Returns what is ordered before the next access of the thread, with its own accesses so far.
    fn snapshot(&mut self, who: Who) -> Rc<Clock> {
        let mut clock = Clock::clone(&self.clock);
        clock.set_thread(who, self.time);
        self.time += 1;
        Rc::new(clock)
    }
}

/// A block, and the bytes of its shared memory.
#[derive(Debug, Default)]
struct Block {
    /// All accesses of its threads before this time are ordered before the accesses of each of them now.
    since: u32,
    /// The number of threads.
    count: u32,
    /// What every thread knows, while all of them know the same.
    common: Thread,
    /// What each thread knows. Empty while all of them know the same.
    threads: Vec<Thread>,
    /// The current phase of each barrier.
    barriers: Map<u32, Phase>,
}

/// A phase of a barrier.
#[derive(Debug, Default)]
struct Phase {
    arrivals: Vec<Arrival>,
    /// What is ordered before the arrivals of threads that do not wait.
    released: Rc<Clock>,
}

/// The blocks of a cluster.
#[derive(Debug, Default)]
struct Unit {
    blocks: Vec<Block>,
    cells: Vec<Vec<Cell>>,
    /// What is ordered before the arrivals at the barrier of the cluster, in this phase and in the last one.
    arrivals: [Rc<Clock>; 2],
}

/// What a write of a word releases, and to which threads.
#[derive(Clone, Debug)]
struct Released {
    /// The block of the writer.
    block: u32,
    scope: Scope,
    /// Whether the clock is that of fences with `.sc`.
    is_sc: bool,
    clock: Rc<Clock>,
}

/// A word: the number of a block and an offset in its shared memory, or [`GLOBAL`] and an address.
type Word = (u32, u64);
const GLOBAL: u32 = u32::MAX;

/// What is released through a word.
#[derive(Debug, Default)]
struct Releases {
    current: Vec<Released>,
    /// Of an `mbarrier`: what the arrivals of complete phases released.
    complete: Vec<Released>,
}

/// The state of the check.
#[derive(Debug, Default)]
pub(super) struct Race {
    unit: Clusters<Unit>,
    shadow: Shadow,
    words: Map<Word, Releases>,
    /// The number of blocks of a cluster.
    cluster: u32,
    /// Whether a limit was reached after which accesses cannot be compared.
    is_over: bool,
    has_noted: bool,
}

/// An access of lanes to memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lanes {
    pub(super) warp: u32,
    pub(super) rank: usize,
    pub(super) pc: u32,
    pub(super) len: u32,
    pub(super) access: Access,
    pub(super) order: Option<Order>,
    /// The lanes whose atomic operation changes the value.
    pub(super) changed: u32,
}

impl Race {
    /// Continues with a cluster.
    pub(super) fn begin_unit(&mut self, out: &Reporter<'_>, number: u64) {
        let size = out.launch.cluster.iter().product::<u32>() as usize;
        self.cluster = size as u32;
        self.unit.begin(number, || {
            let count = out.launch.block.iter().product();
            let mut blocks = Vec::new();
            blocks.resize_with(size, || Block {
                // The time zero is before all accesses.
                since: 1,
                count,
                common: Thread { time: 1, ..Thread::default() },
                ..Block::default()
            });
            Unit { blocks, cells: vec![Vec::new(); size], ..Unit::default() }
        });
        let blocks = out.launch.grid.iter().map(|its| u64::from(*its)).product::<u64>();
        if blocks >= u64::from(GLOBAL) || out.launch.block.iter().product::<u32>() > 1024 {
            self.stop(out, "the grid has too many blocks: races are not found");
        }
    }

    pub(super) fn end_unit(&mut self) {
        for (rank, cells) in self.unit.end().cells.into_iter().enumerate() {
            self.shadow.forget(cells);
            let block = self.number(self.unit.number, rank);
            if !self.words.is_empty() {
                self.words.retain(|(its, _), _| *its != block);
            }
        }
    }

    /// Reports once that a limit was reached.
    fn note(&mut self, out: &Reporter<'_>, text: &str) {
        if !std::mem::replace(&mut self.has_noted, true) {
            out.device.limit(&format!("racecheck: {text}"));
        }
    }

    /// Stops the check.
    fn stop(&mut self, out: &Reporter<'_>, text: &str) {
        self.is_over = true;
        self.note(out, text);
    }

    fn number(&self, unit: u64, rank: usize) -> u32 {
        (unit * u64::from(self.cluster) + rank as u64) as u32
    }

    fn who(&self, rank: usize, thread: u32) -> Who {
        Who { block: self.number(self.unit.number, rank), thread }
    }

    /// Notes an access of lanes, and reports the races with earlier ones.
    pub(super) fn access(
        &mut self,
        out: &mut Reporter<'_>,
        lanes: Lanes,
        places: &Places,
        sizes: &[Vec<u8>],
    ) {
        if self.is_over {
            return;
        }
        let mask = places.shared | places.global;
        let is_read = lanes.access == Access::Read;
        if lanes.order.is_none() && (is_read || self.words.is_empty()) {
            self.compare(out, &lanes, (places, sizes), mask, !is_read);
        } else {
            each_lane(mask, |lane| {
                let who = self.who(lanes.rank, thread_of(lanes.warp, lane));
                let word = match places.shared >> lane & 1 {
                    0 => (GLOBAL, places.addresses[lane] & !3),
                    _ => {
                        let (rank, offset) = places.at(lane);
                        (self.number(self.unit.number, rank), u64::from(offset & !3))
                    }
                };
                let is_update = lanes.access == Access::Atomic;
                let writes =
                    lanes.access == Access::Write || is_update && lanes.changed >> lane & 1 != 0;
                if let Some(order) = lanes.order.filter(|_| is_update || is_read) {
                    self.acquire(who, lanes.rank, word, order);
                }
                self.compare(out, &lanes, (places, sizes), 1 << lane, writes);
                if writes {
                    self.release(who, lanes.rank, word, lanes.order, is_update);
                }
            });
        }
        if self.shadow.is_full {
            self.note(
                out,
                "the kernel accesses more than 64 MiB of global memory: races beyond are not found",
            );
        }
        if self.words.len() > WORDS {
            self.stop(out, "threads synchronize through more than 2^20 words: races are not found from there on");
        }
    }

    /// Compares the accesses of lanes with earlier ones, and adds them.
    fn compare(
        &mut self,
        out: &mut Reporter<'_>,
        lanes: &Lanes,
        (places, sizes): (&Places, &[Vec<u8>]),
        mask: u32,
        writes: bool,
    ) {
        let block = self.number(self.unit.number, lanes.rank);
        let Unit { blocks, cells, .. } = &mut self.unit.current;
        let Block { since, common, threads, .. } = &blocks[lanes.rank];
        let strength = lanes.order.map(|order| order.scope);
        each_lane(mask, |lane| {
            let thread = thread_of(lanes.warp, lane);
            let own = threads.get(thread as usize).unwrap_or(common);
            let record = Record::new(Who { block, thread }, (lanes.pc, own.time), strength, writes);
            let with = Comparison { clock: &own.clock, own: *since, cluster: self.cluster };
            let mut found: Option<(u64, Record)> = None;
            let race = |at: u64, other: Record| {
                found.get_or_insert((at, other));
            };
            let shared = (places.shared >> lane & 1 != 0).then(|| places.at(lane));
            match shared {
                None => {
                    let at = places.addresses[lane];
                    self.shadow.global(at, lanes.len, record, &with, race);
                }
                Some((rank, offset)) => {
                    let cells = &mut cells[rank];
                    if cells.is_empty() {
                        cells.resize(sizes[rank].len().div_ceil(4), Cell::default());
                    }
                    self.shadow.shared(cells, offset.into(), lanes.len, record, &with, race);
                }
            }
            if let Some((at, other)) = found {
                report(out, record, other, shared.map(|(rank, _)| rank), at);
            }
        });
    }

    /// Orders what was released through a word before the accesses of a thread that reads it.
    fn acquire(&mut self, who: Who, rank: usize, word: Word, order: Order) {
        let Some(releases) = self.words.get(&word) else { return };
        let thread = self.unit.current.blocks[rank].thread(who.thread);
        take(thread, who, &releases.current, order, self.cluster);
    }

    /// Stores what the write of a word releases.
    fn release(
        &mut self,
        who: Who,
        rank: usize,
        word: Word,
        order: Option<Order>,
        is_update: bool,
    ) {
        if !is_update && !self.words.is_empty() {
            self.words.remove(&word);
        }
        let Some(order) = order else { return };
        let thread = self.unit.current.blocks[rank].thread(who.thread);
        let mut released = |scope, clock, is_sc| {
            let all = &mut self.words.entry(word).or_default().current;
            add(all, Released { block: who.block, scope, is_sc, clock });
        };
        if !thread.sc.is_empty() {
            released(order.scope, Rc::clone(&thread.sc), true);
        }
        if order.releases {
            released(order.scope, thread.snapshot(who), false);
            return;
        }
        let [narrow, wide] = &thread.fences;
        if let Some(clock) = wide {
            released(order.scope, Rc::clone(clock), false);
        }
        if let Some(clock) = narrow {
            released(order.scope.min(Scope::Cluster), Rc::clone(clock), false);
        }
    }

    /// Notes a fence of lanes.
    pub(super) fn fence(
        &mut self,
        rank: usize,
        warp: u32,
        mask: u32,
        Fence { order, is_sc }: Fence,
    ) {
        if self.is_over {
            return;
        }
        each_lane(mask, |lane| {
            let who = self.who(rank, thread_of(warp, lane));
            let thread = self.unit.current.blocks[rank].thread(who.thread);
            if order.acquires {
                let [near, far] = &mut thread.read;
                let far = if order.scope == Scope::Cta { None } else { far.take() };
                for clock in [near.take(), far].into_iter().flatten() {
                    join(&mut thread.clock, &clock);
                }
            }
            let is_sc = is_sc && order.scope == Scope::Device;
            if is_sc {
                join(&mut thread.clock, &thread.sc);
            }
            if order.releases {
                let clock = thread.snapshot(who);
                if is_sc {
                    join(&mut thread.sc, &clock);
                }
                match order.scope {
                    Scope::Device => thread.fences = [None, Some(clock)],
                    _ => thread.fences[0] = Some(clock),
                }
            }
        });
    }

    pub(super) fn arrive(&mut self, rank: usize, id: u32, arrival: Arrival) {
        let number = self.number(self.unit.number, rank);
        let block = &mut self.unit.current.blocks[rank];
        if arrival.barrier == Barrier::Arrive {
            block.separate();
        }
        let phase = block.barriers.entry(id).or_default();
        phase.arrivals.push(arrival);
        if arrival.barrier == Barrier::Arrive {
            let threads = &mut block.threads;
            each_lane(arrival.mask, |lane| {
                let thread = thread_of(arrival.warp, lane);
                let clock = threads[thread as usize].snapshot(Who { block: number, thread });
                join(&mut phase.released, &clock);
            });
        }
    }

    /// Orders what the threads did before a barrier of their block, which is complete, before what they do after it.
    /// `alive` has the lanes of a warp that have not exited.
    pub(super) fn complete_barrier(
        &mut self,
        out: &Reporter<'_>,
        rank: usize,
        id: u32,
        alive: &[u32],
    ) {
        let block = &mut self.unit.current.blocks[rank];
        let Some(Phase { mut arrivals, released }) = block.barriers.remove(&id) else { return };
        arrivals.retain(|its| its.barrier != Barrier::Arrive);
        let waiting: u32 = arrivals.iter().map(|its| its.mask.count_ones()).sum();
        // Threads that exited take part in a barrier of the whole block.
        let all = match arrivals.iter().all(|its| its.expected.is_none()) {
            true => alive.iter().map(|lanes| lanes.count_ones()).sum(),
            false => block.count,
        };
        let number = self.number(self.unit.number, rank);
        let block = &mut self.unit.current.blocks[rank];
        if waiting >= all {
            block.complete(number);
            let time = block.since;
            if time > LAST_TIME {
                self.stop(
                    out,
                    "threads synchronize more than 2^24 times: races are not found from there on",
                );
            }
            return;
        }
        let threads = arrivals.iter().flat_map(|its| threads_of(its.warp, its.mask));
        block.meet(number, &threads.collect::<Vec<_>>(), &released);
    }

    /// Orders what lanes did before a barrier of their warp before what they do after it.
    pub(super) fn meet(&mut self, rank: usize, warp: u32, mask: u32) {
        let number = self.number(self.unit.number, rank);
        let threads: Vec<u32> = threads_of(warp, mask).collect();
        self.unit.current.blocks[rank].meet(number, &threads, &Rc::default());
    }

    pub(super) fn arrive_at_cluster(&mut self, rank: usize, warp: u32, mask: u32, releases: bool) {
        if !releases {
            return;
        }
        each_lane(mask, |lane| {
            let who = self.who(rank, thread_of(warp, lane));
            let thread = self.unit.current.blocks[rank].thread(who.thread);
            let clock = thread.snapshot(who);
            join(&mut self.unit.current.arrivals[0], &clock);
        });
    }

    pub(super) fn complete_cluster(&mut self) {
        self.unit.current.arrivals[1] = std::mem::take(&mut self.unit.current.arrivals[0]);
    }

    /// Called when the wait of lanes for their cluster is over.
    pub(super) fn leave_cluster(&mut self, rank: usize, warp: u32, mask: u32) {
        each_lane(mask, |lane| {
            let at = thread_of(warp, lane);
            let Unit { blocks, arrivals, .. } = &mut self.unit.current;
            join(&mut blocks[rank].thread(at).clock, &arrivals[1]);
        });
    }

    /// Notes a step of an `mbarrier`, after the access to its words.
    pub(super) fn mbarrier_step(
        &mut self,
        (rank, thread): (usize, u32),
        at: Offset,
        order: Order,
        step: Step,
    ) {
        if self.is_over {
            return;
        }
        let who = self.who(rank, thread);
        let word = (self.number(self.unit.number, at.0), u64::from(at.1));
        let own = self.unit.current.blocks[rank].thread(thread);
        let releases = self.words.entry(word).or_default();
        match step {
            Step::Init => *releases = Releases::default(),
            Step::Wait { is_over: false } => {}
            Step::Wait { is_over: true } => {
                take(own, who, &releases.complete, order, self.cluster);
            }
            Step::Change { completes, of_copy } => {
                if order.releases {
                    let (scope, clock) = (order.scope, own.snapshot(who));
                    let block = if of_copy { word.0 } else { who.block };
                    let new = Released { block, scope, is_sc: false, clock };
                    add(&mut releases.current, new);
                }
                if completes {
                    for released in std::mem::take(&mut releases.current) {
                        add(&mut releases.complete, released);
                    }
                }
            }
        }
    }
}

impl Block {
    /// Lets each thread know something of its own.
    fn separate(&mut self) {
        if self.threads.is_empty() {
            self.threads = vec![self.common.clone(); self.count as usize];
        }
    }

    fn thread(&mut self, thread: u32) -> &mut Thread {
        self.separate();
        &mut self.threads[thread as usize]
    }

    /// Orders what all threads did before what they do then.
    fn complete(&mut self, number: u32) {
        let first = self.threads.first().unwrap_or(&self.common);
        let (mut clock, mut sc) = (Rc::clone(&first.clock), Rc::clone(&first.sc));
        let mut time = self.common.time;
        for thread in &self.threads {
            time = time.max(thread.time);
            join(&mut clock, &thread.clock);
            join(&mut sc, &thread.sc);
        }
        time += 1;
        Rc::make_mut(&mut clock).set_block(number, time);
        if !sc.is_empty() {
            Rc::make_mut(&mut sc).compress(number, self.count);
        }
        self.since = time;
        let none = [None, None];
        self.common = Thread { time, clock, sc, fences: none.clone(), read: none.clone() };
        if self.threads.iter().all(|its| its.fences == none && its.read == none) {
            self.threads.clear();
        }
        for thread in &mut self.threads {
            let Thread { time, clock, sc, .. } = self.common.clone();
            (thread.time, thread.clock, thread.sc) = (time, clock, sc);
        }
    }

    /// Orders the earlier accesses of threads that meet, and those that others released, before their later ones.
    fn meet(&mut self, number: u32, threads: &[u32], released: &Rc<Clock>) {
        self.separate();
        let Some(first) = threads.first() else { return };
        let first = &self.threads[*first as usize];
        let (mut clock, mut sc) = (Rc::clone(&first.clock), Rc::clone(&first.sc));
        for thread in threads {
            join(&mut clock, &self.threads[*thread as usize].clock);
            join(&mut sc, &self.threads[*thread as usize].sc);
        }
        join(&mut clock, released);
        let mut own = Clock::default();
        for thread in threads {
            let its = &mut self.threads[*thread as usize];
            own.set_thread(Who { block: number, thread: *thread }, its.time);
            its.time += 1;
        }
        Rc::make_mut(&mut clock).join(&own);
        for thread in threads {
            let its = &mut self.threads[*thread as usize];
            (its.clock, its.sc) = (Rc::clone(&clock), Rc::clone(&sc));
        }
    }
}

/// Returns the numbers of the threads of some lanes.
fn threads_of(warp: u32, mask: u32) -> impl Iterator<Item = u32> {
    let lanes = (0..LANES).filter(move |lane| mask >> lane & 1 != 0);
    lanes.map(move |lane| thread_of(warp, lane))
}

/// Orders what was released before the accesses of a thread, or before its next fence.
fn take(thread: &mut Thread, who: Who, released: &[Released], order: Order, cluster: u32) {
    for its in released {
        let reaches = match its.scope.min(order.scope) {
            Scope::Cta => its.block == who.block,
            Scope::Cluster => its.block / cluster == who.block / cluster,
            Scope::Device => true,
        };
        if !reaches {
            continue;
        }
        if its.is_sc {
            join(&mut thread.sc, &its.clock);
        } else if order.acquires {
            join(&mut thread.clock, &its.clock);
        } else {
            let read = &mut thread.read[usize::from(its.block != who.block)];
            match read {
                Some(clock) => join(clock, &its.clock),
                None => *read = Some(Rc::clone(&its.clock)),
            }
        }
    }
}

/// Adds what a thread releases to a list.
fn add(all: &mut Vec<Released>, new: Released) {
    let is_same = |its: &&mut Released| {
        its.scope == new.scope && its.block == new.block && its.is_sc == new.is_sc
    };
    match all.iter_mut().find(is_same) {
        Some(its) => join(&mut its.clock, &new.clock),
        None => all.push(new),
    }
}

fn report(out: &mut Reporter<'_>, new: Record, old: Record, rank: Option<usize>, at: u64) {
    let event = |record: Record| Event {
        block: out.block_at(record.who().block),
        rank: 0,
        thread: record.who().thread,
        pc: record.pc(),
    };
    let (first, second) = (event(new), event(old));
    let verb = |record: Record| match (record.writes(), record.is_weak()) {
        (true, true) => "writes",
        (false, true) => "reads",
        (true, false) => "writes atomically",
        (false, false) => "reads atomically",
    };
    let text = || {
        let space = if rank.is_some() { "shared" } else { "global" };
        let pair = (verb(new), verb(old));
        format!("a race on {space} memory: a thread {} what another one {}", pair.0, pair.1)
    };
    let address = match rank {
        None => Some(Address::Global(at)),
        Some(rank) => out.shared((rank, at as u32)),
    };
    out.report((Check::Racecheck, text), first, Some(second), address);
}
