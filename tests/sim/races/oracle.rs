//! Random programs of raw calls, whose races are compared with those that a search of all pairs finds.

use super::Bench;
use super::NON_BLOCKING;
use crate::common::random::Random;
use crate::prelude::*;
use cuda_sim::races;
use std::ops::Range;

/// An access of an operation to one of the allocations.
struct Access {
    memory: usize,
    bytes: Range<u64>,
    writes: bool,
}

/// An operation, or a call that waits.
struct Node {
    /// The stream of an operation.
    stream: Option<usize>,
    /// All nodes that are ordered before this one.
    before: Vec<bool>,
    accesses: Vec<Access>,
}

/// The order of a program, as the set of the nodes before each node.
#[derive(Default)]
struct Program {
    nodes: Vec<Node>,
    /// The last node of each stream, and of each event.
    streams: Vec<Option<usize>>,
    events: Vec<Option<usize>>,
    /// The last node that the host has waited for, by wait.
    host: Vec<usize>,
}

/// The streams: the legacy default stream, two that are ordered with it, and two that are not.
const LEGACY: usize = 0;
const BLOCKING: Range<usize> = 1..3;
const STREAMS: usize = 5;

impl Program {
    fn add(&mut self, stream: usize, after: Option<usize>, accesses: Vec<Access>) -> usize {
        let mut direct: Vec<usize> = self.host.clone();
        direct.extend(after);
        direct.extend(self.streams[stream]);
        // The legacy default stream and the blocking streams wait for each other.
        if stream == LEGACY {
            direct.extend(BLOCKING.filter_map(|its| self.streams[its]));
        } else if BLOCKING.contains(&stream) {
            direct.extend(self.streams[LEGACY]);
        }
        let index = self.nodes.len();
        let mut before = vec![false; index];
        for its in direct {
            before[its] = true;
            for (all, own) in before.iter_mut().zip(&self.nodes[its].before) {
                *all |= own;
            }
        }
        self.nodes.push(Node { stream: Some(stream), before, accesses });
        self.streams[stream] = Some(index);
        index
    }

    /// Returns the pairs of streams that race on each allocation.
    fn races(&self) -> Vec<(usize, [usize; 2])> {
        let mut found = Vec::new();
        for (index, later) in self.nodes.iter().enumerate() {
            for (its, earlier) in self.nodes[..index].iter().enumerate() {
                let (Some(a), Some(b), false) = (earlier.stream, later.stream, later.before[its])
                else {
                    continue;
                };
                for x in &earlier.accesses {
                    for y in &later.accesses {
                        let overlaps = x.bytes.start < y.bytes.end && y.bytes.start < x.bytes.end;
                        if x.memory == y.memory && overlaps && (x.writes || y.writes) {
                            found.push((x.memory, [a.min(b), a.max(b)]));
                        }
                    }
                }
            }
        }
        found
    }
}

const SIZE: usize = 64;

fn range(random: &mut Random) -> Range<u64> {
    let start = random.below(SIZE - 1);
    let len = 1 + random.below(SIZE - start - 1).min(23);
    start as u64..(start + len) as u64
}

/// Runs a random program of `calls` calls. Returns the allocations, and the order.
fn run(
    random: &mut Random,
    calls: usize,
    streams: &[CUstream],
    events: &[CUevent],
) -> (Vec<CUdeviceptr>, Program) {
    let allocations: Vec<CUdeviceptr> = (0..6).map(|_| memory(SIZE)).collect();
    let mut program = Program {
        streams: vec![None; STREAMS],
        events: vec![None; events.len()],
        ..Program::default()
    };
    for _ in 0..calls {
        let stream = random.below(STREAMS);
        let event = random.below(events.len());
        let (raw, marks) = (streams[stream], events[event]);
        match random.below(20) {
            0..5 => {
                let (its, bytes) = (random.below(allocations.len()), range(random));
                let len = (bytes.end - bytes.start) as usize;
                succeeds!(cuMemsetD8Async(allocations[its] + bytes.start, 1, len, raw));
                program.add(stream, None, vec![Access { memory: its, bytes, writes: true }]);
            }
            5..9 => {
                let (from, to) = (random.below(allocations.len()), random.below(allocations.len()));
                let (bytes, other) = (range(random), range(random));
                let len = (bytes.end - bytes.start).min(other.end - other.start);
                let [source, target] =
                    [allocations[from] + bytes.start, allocations[to] + other.start];
                succeeds!(cuMemcpyDtoDAsync_v2(target, source, len as usize, raw));
                let read =
                    Access { memory: from, bytes: bytes.start..bytes.start + len, writes: false };
                let written =
                    Access { memory: to, bytes: other.start..other.start + len, writes: true };
                program.add(stream, None, vec![read, written]);
            }
            9..13 => {
                succeeds!(cuEventRecord(marks, raw));
                program.events[event] = Some(program.add(stream, None, Vec::new()));
            }
            13..17 => {
                succeeds!(cuStreamWaitEvent(raw, marks, 0));
                program.add(stream, program.events[event], Vec::new());
            }
            17 => {
                succeeds!(cuStreamSynchronize(raw));
                program.host.extend(program.streams[stream]);
            }
            18 => {
                succeeds!(cuEventSynchronize(marks));
                program.host.extend(program.events[event]);
            }
            _ => {
                if code!(cuStreamQuery(raw)).is_success() {
                    program.host.extend(program.streams[stream]);
                }
                if code!(cuEventQuery(marks)).is_success() {
                    program.host.extend(program.events[event]);
                }
            }
        }
    }
    succeeds!(cuCtxSynchronize());
    (allocations, program)
}

#[test]
fn the_races_of_random_programs_are_those_of_all_unordered_pairs() {
    in_child!();
    let _bench = Bench::new(Profile::h200().with_race_detection());
    let mut streams: Vec<CUstream> = vec![null_mut()];
    for flags in [0, 0, NON_BLOCKING, NON_BLOCKING] {
        streams.push(out!(cuStreamCreate(flags)));
    }
    let ids: Vec<u64> = streams
        .iter()
        .map(|its| {
            let mut id = 0;
            succeeds!(cuStreamGetId(*its, &raw mut id));
            id
        })
        .collect();
    let index_of = |place: Place| match place {
        Place::Stream(id) | Place::LegacyStream(id) => {
            ids.iter().position(|its| *its == id).expect("a stream")
        }
        other => panic!("no operation runs on {other}"),
    };
    let (mut with_races, mut without) = (0, 0);
    for seed in 0..if cfg!(miri) { 6 } else { 300 } {
        let mut random = Random(seed);
        let calls = 4 + random.below(24);
        let events: Vec<CUevent> = (0..3).map(|_| out!(cuEventCreate(0))).collect();
        let known = races().len();
        let (allocations, program) = run(&mut random, calls, &streams, &events);
        let expected = program.races();
        let mut found: Vec<(usize, [usize; 2])> = Vec::new();
        for race in &races()[known..] {
            let start = race.memory.start;
            let memory = allocations.iter().position(|its| *its == start);
            let mut both = [index_of(race.first.place), index_of(race.second.place)];
            both.sort_unstable();
            found.push((memory.expect("an allocation of this program"), both));
        }
        for race in &found {
            assert!(expected.contains(race), "program {seed}: {race:?} is none");
        }
        for (memory, _) in &expected {
            let is_found = found.iter().any(|(its, _)| its == memory);
            assert!(is_found, "program {seed}: a race on {memory} is missed");
        }
        match expected.is_empty() {
            true => without += 1,
            false => with_races += 1,
        }
        if races().len() > 900 {
            break;
        }
    }
    let least = if cfg!(miri) { (1, 0) } else { (20, 5) };
    assert!(with_races > least.0 && without > least.1, "{with_races}, {without}");
}
