//! All short sequences of operations on a heap, compared with a list of its grains.

use super::*;
use std::collections::BTreeMap;
use std::ops::Range;

/// The sync points of a free grain: the number for each entry.
type Points = BTreeMap<u32, u64>;

#[derive(Clone, Debug, PartialEq)]
enum Grain {
    /// Allocated, as a part of the block with this number, or of a range that cannot be used again.
    Used(usize),
    Free(Points),
    Unmapped,
}

/// The blocks of a heap, from the start of its slab.
#[derive(Debug, PartialEq)]
enum Part {
    Used,
    Free(Points),
    Unmapped,
}

/// The start of the slab or segment.
const START: u64 = 0x100_0000;
/// The number of grains of a page.
const PAGE: usize = 2;

/// The outcomes of a growth or of an unmapping.
#[derive(Clone, Copy, Debug)]
enum Outcome {
    Success,
    Failure,
    /// The addresses cannot be used again.
    Loss,
}

#[derive(Clone, Debug)]
enum Operation {
    Take {
        size: usize,
        entry: Option<u32>,
    },
    /// Frees the block with this index, after work of these entries.
    Give {
        index: usize,
        entries: &'static [u32],
    },
    /// All work so far is done.
    Reach,
    /// All work so far is done, and its sync points are removed.
    Settle,
    Grow {
        size: usize,
        entry: Option<u32>,
        outcome: Outcome,
    },
    Unmap {
        grains: Range<usize>,
        is_lost: bool,
    },
}

/// The entries of two streams.
const ONE: u32 = 1;
const TWO: u32 = 2;

/// The states of the progress: in each, the points with numbers up to its index are done.
struct Phases(Vec<Progress>);

impl Phases {
    #[inline]
    fn new(count: u64) -> Self {
        let phases = (0..count).map(|done| {
            let mut progress = Progress::new(&());
            let entries = [17, 18].map(|stream| progress.of(stream, &Reach::Named));
            assert_eq!(entries, [ONE, TWO]);
            for entry in [UNORDERED, ONE, TWO] {
                (0..count).for_each(|_| {
                    progress.sync_point(entry);
                });
            }
            progress.settled(&[done; 3]);
            progress
        });
        Self(phases.collect())
    }
}

/// A heap and the same state as a list of grains.
#[derive(Clone)]
struct State {
    heap: Heap,
    grains: Vec<Grain>,
    /// The allocated blocks.
    live: Vec<(Id, Range<usize>)>,
    /// The number of blocks and lost ranges so far.
    numbers: usize,
    phase: u64,
}

#[inline]
fn waits(points: &Points) -> bool {
    points.contains_key(&UNORDERED)
}

impl State {
    #[inline]
    fn of_slab(grains: usize) -> Self {
        let mut heap = Heap::default();
        let size = grains * GRAIN as usize;
        let all = heap.add(Block { address: START, size, token: 1 });
        heap.give(all, &[]);
        let grains = vec![Grain::Free(Points::new()); grains];
        Self { heap, grains, live: Vec::new(), numbers: 0, phase: 0 }
    }

    #[inline]
    fn of_segment(grains: usize) -> Self {
        let mut heap = Heap::default();
        heap.add_segment(START, grains as u64 * GRAIN);
        let grains = vec![Grain::Unmapped; grains];
        Self { heap, grains, live: Vec::new(), numbers: 0, phase: 0 }
    }

    /// Returns the ranges of grains that form a block: adjacent free grains do, if either both or neither
    /// wait.
    #[inline]
    fn runs(&self) -> Vec<Range<usize>> {
        let is_same = |one: &Grain, other: &Grain| match (one, other) {
            (Grain::Free(one), Grain::Free(other)) => waits(one) == waits(other),
            _ => one == other,
        };
        let mut start = 0;
        let chunks = self.grains.chunk_by(is_same);
        chunks.map(|run| (start, start += run.len()).0..start).collect()
    }

    /// Gives all grains of each free block its sync points: the last one of each entry.
    #[inline]
    fn unite(&mut self) {
        for run in self.runs() {
            let mut united = Points::new();
            for grain in &self.grains[run.clone()] {
                let Grain::Free(points) = grain else {
                    continue;
                };
                for (entry, number) in points {
                    let its = united.entry(*entry).or_default();
                    *its = (*its).max(*number);
                }
            }
            if matches!(self.grains[run.start], Grain::Free(_)) {
                self.grains[run].fill(Grain::Free(united));
            }
        }
    }

    /// Returns whether a range is a free block that work of an entry may use now.
    #[inline]
    fn is_usable(&self, run: &Range<usize>, entry: Option<u32>) -> bool {
        let Grain::Free(points) = &self.grains[run.start] else {
            return false;
        };
        let mut points = points.iter();
        points.all(|(its, number)| Some(*its) == entry || *number <= self.phase)
    }

    #[inline]
    fn is_waiting(&self, run: &Range<usize>) -> bool {
        matches!(&self.grains[run.start], Grain::Free(points) if waits(points))
    }

    #[inline]
    fn allocate(&mut self, id: Id, range: Range<usize>) {
        self.numbers += 1;
        self.grains[range.clone()].fill(Grain::Used(self.numbers));
        self.live.push((id, range));
    }

    #[inline]
    fn take(&mut self, size: usize, entry: Option<u32>, phases: &Phases) {
        let mut runs = self.runs();
        runs.retain(|run| run.len() >= size && self.is_usable(run, entry) && !self.is_waiting(run));
        let smallest = runs.into_iter().min_by_key(|run| (run.len(), run.start));
        let progress = &phases.0[self.phase as usize];
        let found = self.heap.find(size as u64 * GRAIN, entry, progress);
        let expected = smallest.as_ref().map(|run| START + run.start as u64 * GRAIN);
        assert_eq!(found.map(|id| self.heap.address(id)), expected);
        if let (Some(id), Some(run)) = (found, smallest) {
            let id = self.heap.take(id, size as u64 * GRAIN);
            self.allocate(id, run.start..run.start + size);
        }
    }

    #[inline]
    fn give(&mut self, index: usize, entries: &[u32]) {
        let (id, range) = self.live.remove(index);
        let number = self.phase + 1;
        let points: Vec<_> =
            entries.iter().map(|entry| SyncPoint { entry: *entry, number }).collect();
        self.heap.give(id, &points);
        let points = entries.iter().map(|entry| (*entry, number)).collect();
        self.grains[range].fill(Grain::Free(points));
        self.unite();
    }

    #[inline]
    fn settle(&mut self, phases: &Phases) {
        self.phase += 1;
        self.heap.forget_done(&phases.0[self.phase as usize]);
        for grain in &mut self.grains {
            if let Grain::Free(points) = grain {
                points.retain(|_, number| *number > self.phase);
            }
        }
        self.unite();
    }

    #[inline]
    fn grow(&mut self, size: usize, entry: Option<u32>, outcome: Outcome, phases: &Phases) {
        let runs = self.runs();
        let place = (0..runs.len()).find_map(|at| {
            let before = at.checked_sub(1).map(|before| runs[before].clone()).filter(|run| {
                run.len() < size && self.is_usable(run, entry) && !self.is_waiting(run)
            });
            let missing = size - before.as_ref().map_or(0, Range::len);
            let missing = missing.next_multiple_of(PAGE);
            let is_unmapped = self.grains[runs[at].start] == Grain::Unmapped;
            (is_unmapped && missing <= runs[at].len())
                .then(|| (before, runs[at].start..runs[at].start + missing))
        });
        let bytes = size as u64 * GRAIN;
        let progress = &phases.0[self.phase as usize];
        let growth = self.heap.begin_growth(bytes, PAGE as u64 * GRAIN, entry, progress);
        let found = growth.as_ref().map(|its| (its.address, its.size));
        let expected = place.as_ref().map(|(_, missing)| {
            (START + missing.start as u64 * GRAIN, missing.len() as u64 * GRAIN)
        });
        assert_eq!(found, expected);
        let (Some(growth), Some((before, missing))) = (growth, place) else {
            return;
        };
        match outcome {
            Outcome::Success => {
                let id = self.heap.end_growth(growth);
                self.heap.shrink(id, bytes);
                self.grains[missing.clone()].fill(Grain::Free(Points::new()));
                let start = before.map_or(missing.start, |before| before.start);
                self.allocate(id, start..start + size);
                self.unite();
            }
            Outcome::Failure => self.heap.undo_growth(growth),
            Outcome::Loss => {
                self.heap.abandon_growth(growth);
                self.numbers += 1;
                self.grains[missing].fill(Grain::Used(self.numbers));
            }
        }
    }

    #[inline]
    fn unmap(&mut self, grains: Range<usize>, is_lost: bool, phases: &Phases) {
        let address = START + grains.start as u64 * GRAIN;
        let blocks = self.heap.done(&phases.0[self.phase as usize]);
        let mut blocks = blocks.into_iter();
        let its = blocks.find(|(_, start, size)| (*start..start + size).contains(&address));
        let (id, ..) = its.expect("a free block");
        let part = self.heap.take_range(id, address, grains.len() as u64 * GRAIN);
        if is_lost {
            self.heap.abandon(part);
            self.numbers += 1;
            self.grains[grains].fill(Grain::Used(self.numbers));
        } else {
            self.heap.unmapped(part);
            self.grains[grains].fill(Grain::Unmapped);
        }
    }

    #[inline]
    fn run(&mut self, operation: Operation, phases: &Phases) {
        match operation {
            Operation::Take { size, entry } => self.take(size, entry, phases),
            Operation::Give { index, entries } => self.give(index, entries),
            Operation::Reach => self.phase += 1,
            Operation::Settle => self.settle(phases),
            Operation::Grow { size, entry, outcome } => self.grow(size, entry, outcome, phases),
            Operation::Unmap { grains, is_lost } => self.unmap(grains, is_lost, phases),
        }
    }

    /// Compares the blocks of the heap, and its lists, with the grains.
    #[inline]
    fn check(&self) {
        let (heap, mut found) = (&self.heap, Vec::new());
        let slab = heap.slabs[0].as_ref().expect("the slab");
        let (mut id, mut before, mut address) = (slab.first, NONE, START);
        let (mut free, mut waiting, mut unmapped) =
            (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        while id != NONE {
            let node = &heap.nodes[id as usize];
            assert_eq!((node.address, node.before), (address, before));
            let is_unmapped = heap.unmapped.contains(&(address, id));
            let part = match (node.is_free, is_unmapped) {
                (true, false) => {
                    let points = node.points.iter().map(|point| (point.entry, point.number));
                    let points: Points = points.collect();
                    assert_eq!(points.len(), node.points.len(), "one point for each entry");
                    if waits(&points) {
                        waiting.insert(id);
                    } else {
                        free.insert((node.size, address, id));
                    }
                    Part::Free(points)
                }
                (false, true) => {
                    unmapped.insert((address, id));
                    Part::Unmapped
                }
                (false, false) => Part::Used,
                (true, true) => panic!("a free block without memory"),
            };
            address += node.size;
            found.push((address, part));
            (before, id) = (id, node.after);
        }
        let end = |run: &Range<usize>| START + run.end as u64 * GRAIN;
        let part = |run: &Range<usize>| match &self.grains[run.start] {
            Grain::Used(_) => Part::Used,
            Grain::Free(points) => Part::Free(points.clone()),
            Grain::Unmapped => Part::Unmapped,
        };
        let runs = self.runs();
        let expected: Vec<_> = runs.iter().map(|run| (end(run), part(run))).collect();
        assert_eq!(found, expected);
        assert_eq!((&heap.free, &heap.waiting, &heap.unmapped), (&free, &waiting, &unmapped));
        let listed: u64 = free.iter().map(|(size, ..)| *size).sum();
        let waiting: u64 = waiting.iter().map(|id| heap.size(*id)).sum();
        assert_eq!(heap.free_bytes, listed + waiting);
        assert_eq!(heap.nodes.len() - heap.unused.len(), found.len(), "no node is forgotten");
        let is_free = |grain: &&Grain| matches!(grain, Grain::Free(_));
        let mapped = self.grains.iter().filter(is_free).count()
            + self.live.iter().map(|(_, range)| range.len()).sum::<usize>();
        assert_eq!(heap.reserved, mapped as u64 * GRAIN);
        for (id, range) in &self.live {
            let its = (heap.address(*id), heap.size(*id));
            let size = range.len() as u64 * GRAIN;
            assert_eq!(its, (START + range.start as u64 * GRAIN, size));
        }
    }
}

/// Runs every sequence of up to `length` operations from a state. Returns the number of sequences.
#[inline]
fn each_sequence(
    state: &State,
    length: usize,
    phases: &Phases,
    operations: &impl Fn(&State) -> Vec<Operation>,
    earlier: &mut Vec<Operation>,
) -> usize {
    let mut count = 1;
    if length == 0 {
        return count;
    }
    for operation in operations(state) {
        earlier.push(operation.clone());
        let mut next = state.clone();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            next.run(operation, phases);
            next.check();
        }));
        assert!(outcome.is_ok(), "after {earlier:?}");
        count += each_sequence(&next, length - 1, phases, operations, earlier);
        earlier.pop();
    }
    count
}

#[inline]
fn gives<'a>(
    state: &State,
    entries: &'a [&'static [u32]],
) -> impl Iterator<Item = Operation> + use<'a> {
    let live = 0..state.live.len();
    live.flat_map(|index| entries.iter().map(move |entries| Operation::Give { index, entries }))
}

#[test]
#[inline]
fn blocks_of_a_slab_are_split_and_merged_as_their_grains_in_every_sequence() {
    let operations = |state: &State| {
        let sizes = [(1, ONE), (2, ONE), (2, TWO), (3, TWO)];
        let takes = sizes.map(|(size, entry)| Operation::Take { size, entry: Some(entry) });
        let takes = takes.into_iter().chain([Operation::Take { size: 1, entry: None }]);
        let gives = gives(state, &[&[], &[ONE], &[ONE, TWO], &[UNORDERED]]);
        takes.chain(gives).chain([Operation::Reach, Operation::Settle]).collect()
    };
    let (state, phases) = (State::of_slab(5), Phases::new(7));
    state.check();
    let count = each_sequence(&state, 5, &phases, &operations, &mut Vec::new());
    println!("{count} sequences");
}

#[test]
#[inline]
fn parts_of_a_segment_are_mapped_and_unmapped_as_their_grains_in_every_sequence() {
    let operations = |state: &State| {
        let grow = |size, entry, outcome| Operation::Grow { size, entry, outcome };
        let mut operations = vec![
            grow(1, Some(ONE), Outcome::Success),
            grow(3, Some(ONE), Outcome::Success),
            grow(4, Some(TWO), Outcome::Success),
            grow(3, None, Outcome::Failure),
            grow(3, Some(ONE), Outcome::Loss),
            Operation::Take { size: 1, entry: Some(ONE) },
            Operation::Reach,
            Operation::Settle,
        ];
        operations.extend(gives(state, &[&[], &[ONE], &[UNORDERED]]));
        let can_be_unmapped =
            |run: &&Range<usize>| state.is_usable(run, None) && !state.is_waiting(run);
        for run in state.runs().iter().filter(can_be_unmapped) {
            let pages = (run.start.next_multiple_of(PAGE)..run.end).step_by(PAGE);
            for start in pages.filter(|start| start + PAGE <= run.end) {
                let grains = start..start + PAGE;
                operations.push(Operation::Unmap { grains: grains.clone(), is_lost: false });
                operations.push(Operation::Unmap { grains, is_lost: true });
            }
        }
        operations
    };
    let (state, phases) = (State::of_segment(8), Phases::new(7));
    state.check();
    let count = each_sequence(&state, 5, &phases, &operations, &mut Vec::new());
    println!("{count} sequences");
}
