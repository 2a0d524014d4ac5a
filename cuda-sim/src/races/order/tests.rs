//! The order and the log of accesses together: the races that they find, and the memory that they take.

use super::{Described, Order, Place};
use crate::races::{Access, AccessLog, Conflict};
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

/// Runs operations in the order in which they are enqueued.
#[derive(Default)]
struct Driver {
    order: Order,
    log: AccessLog,
    next: u64,
    /// The last operation of each stream.
    last: HashMap<usize, u64>,
    /// The operation of each event.
    events: [Option<u64>; 3],
}

const MAIN: usize = 0;

impl Driver {
    fn new() -> Self {
        let mut driver = Self::default();
        driver.order.add_stream(MAIN, Place::Stream(0));
        driver
    }

    fn run(
        &mut self,
        stream: usize,
        after: &[u64],
        accesses: &[(Range<u64>, Access)],
    ) -> (u64, Vec<Conflict>) {
        let id = self.next;
        self.next += 1;
        let described = Described { what: "a copy", accesses: true, ..Described::default() };
        self.order.enqueue(id, (stream, true), after, "", described);
        self.log.current = self.order.begin(id);
        let add = |(bytes, access): &(Range<u64>, Access)| self.log.add(bytes.clone(), *access);
        let conflicts = accesses.iter().flat_map(add).collect();
        self.log.current = None;
        self.order.complete(id, stream, []);
        self.last.insert(stream, id);
        if self.order.has_unused_clocks() {
            let used = self.last.values().copied();
            let used: BTreeSet<u64> = used.chain(self.events.into_iter().flatten()).collect();
            self.order.remove_unused_clocks(&used);
        }
        (id, conflicts)
    }

    fn destroy(&mut self, stream: usize) {
        self.order.remove_stream(stream);
        self.last.remove(&stream);
    }

    /// Returns the number of entries of all clocks.
    fn entries(&self) -> usize {
        let order = &self.order;
        let pending = order.pending.values().map(|its| &its.clock);
        let complete = order.complete.values().map(|its| &**its);
        let tails = order.tails.values().map(|its| &**its);
        let clocks = pending.chain(complete).chain(tails).chain([&order.host]);
        let clocks = clocks.chain(order.retired.values());
        let logged = self.log.operations();
        let logged = logged.iter().map(|its| its.clock.lanes().len());
        clocks.map(|its| its.lanes().len()).chain(logged).sum()
    }
}

const STREAMS: u64 = 10_000;

/// Bytes that only one stream uses.
fn own(stream: u64) -> Range<u64> {
    1_000_000 + 32 * stream..1_000_016 + 32 * stream
}

#[test]
fn the_clocks_of_streams_that_nothing_orders_grow_linearly() {
    let mut driver = Driver::new();
    for number in 1..=STREAMS {
        let stream = number as usize;
        driver.order.add_stream(stream, Place::Stream(number));
        let (last, found) = driver.run(stream, &[], &[(own(number), Access::Write)]);
        assert!(found.is_empty());
        if number % 100 == 0 {
            // An event of the stream.
            driver.run(MAIN, &[last], &[(0..8, Access::Write)]);
        }
        driver.destroy(stream);
    }
    let entries = driver.entries();
    assert!(entries < 4 * STREAMS as usize, "{entries}");
    // Nothing is forgotten: the accesses of all streams still race.
    let all = own(1).start..own(STREAMS).end;
    let (_, found) = driver.run(MAIN, &[], &[(all, Access::Read)]);
    assert_eq!(found.len() as u64, STREAMS - STREAMS / 100);
}

#[test]
fn the_clocks_of_streams_that_events_order_do_not_grow() {
    let mut driver = Driver::new();
    let (mut main, _) = driver.run(MAIN, &[], &[(0..64, Access::Write)]);
    for number in 1..=STREAMS {
        let stream = number as usize;
        driver.order.add_stream(stream, Place::Stream(number));
        let (last, found) = driver.run(stream, &[main], &[(0..64, Access::Write)]);
        assert!(found.is_empty());
        driver.destroy(stream);
        main = driver.run(MAIN, &[last], &[(0..64, Access::Read)]).0;
    }
    assert!(driver.order.lanes.len() <= 2, "{:?}", driver.order.lanes);
    assert!(driver.entries() < 8_000, "{}", driver.entries());
}

#[test]
fn a_lane_ends_with_the_last_access_of_its_operations() {
    let mut driver = Driver::new();
    for number in 1..=STREAMS {
        let stream = number as usize;
        driver.order.add_stream(stream, Place::Stream(number));
        // Nothing orders the streams with each other, and the main stream waits for each.
        let (last, _) = driver.run(stream, &[], &[(own(number), Access::Write)]);
        driver.destroy(stream);
        driver.run(MAIN, &[last], &[(own(number), Access::Free)]);
    }
    let lanes = driver.order.lanes.len();
    assert!(lanes <= 2 * 64 + 64, "{lanes}");
    let longest = driver.log.operations();
    let longest = longest.iter().map(|its| its.clock.lanes().len()).max();
    assert!(longest <= Some(2 * 64 + 64), "{longest:?}");
}

#[test]
fn the_host_knows_no_lane_after_it_has_waited_for_all_work() {
    let mut driver = Driver::new();
    for number in 1..=1_000 {
        let stream = number as usize;
        driver.order.add_stream(stream, Place::Stream(number));
        driver.run(stream, &[], &[(own(number), Access::Write)]);
    }
    assert_eq!(driver.order.lanes.len(), 1_000);
    driver.order.host_learns_all();
    driver.log.forget_known(&driver.order);
    driver.order.remove_unused_lanes();
    assert_eq!(driver.order.lanes.len(), 0);
    assert_eq!(driver.order.host.lanes().len(), 0);
    // Work after the wait, on the same bytes, is no race.
    let all = own(1).start..own(1_000).end;
    assert!(driver.run(1, &[], &[(all.clone(), Access::Write)]).1.is_empty());
    assert_eq!(driver.run(2, &[], &[(all, Access::Write)]).1.len(), 1);
}

#[test]
fn an_overlap_contains_only_bytes_that_both_operations_access() {
    let mut driver = Driver::new();
    driver.order.add_stream(1, Place::Stream(1));
    // Rows with a gap, of which the second consists of two segments, because another operation reads a part.
    let rows = [(0..16, Access::Write), (64..80, Access::Write)];
    let (first, _) = driver.run(MAIN, &[], &rows);
    driver.run(MAIN, &[first], &[(0..8, Access::Read)]);
    let (_, found) = driver.run(1, &[], &[(4..100, Access::Write)]);
    let overlaps: Vec<_> = found.iter().map(Conflict::overlap).collect();
    assert_eq!(overlaps, [4..16, 4..8]);
    for its in &found {
        let (earlier, later) = (&its.earlier.bytes, &its.later.bytes);
        assert!(earlier.start <= its.overlap.start && its.overlap.end <= earlier.end);
        assert_eq!(*later, 4..100);
    }
}

#[test]
fn an_access_in_parts_that_meet_is_reported_whole() {
    let mut driver = Driver::new();
    driver.order.add_stream(1, Place::Stream(1));
    let parts = [16..32, 0..16, 32..48].map(|bytes| (bytes, Access::Write));
    driver.run(MAIN, &[], &parts);
    let (_, found) = driver.run(1, &[], &[(36..100, Access::Read)]);
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].overlap(), &found[0].earlier.bytes), (36..48, &(0..48)));
}

#[test]
fn the_work_of_a_destroyed_stream_is_ordered_before_that_of_the_legacy_stream() {
    let mut driver = Driver::new();
    driver.order.add_stream(1, Place::Stream(1));
    let (last, _) = driver.run(1, &[], &[(0..8, Access::Write)]);
    driver.order.retire(MAIN, last);
    driver.destroy(1);
    let id = driver.next;
    driver.order.enqueue(id, (MAIN, true), &[], "", Described::default());
    driver.order.order_after_retired(id, MAIN);
    assert!(driver.order.retired.is_empty());
    driver.next += 1;
    driver.order.complete(id, MAIN, []);
    assert!(driver.run(MAIN, &[], &[(0..8, Access::Write)]).1.is_empty());
}

#[test]
fn the_work_of_destroyed_streams_is_forgotten_with_its_lanes() {
    let mut driver = Driver::new();
    for number in 1..=STREAMS {
        let stream = number as usize;
        driver.order.add_stream(stream, Place::Stream(number));
        let (last, found) = driver.run(stream, &[], &[(own(number), Access::Write)]);
        assert!(found.is_empty());
        driver.order.host_learns_all();
        driver.log.forget_known(&driver.order);
        driver.order.retire(MAIN, last);
        driver.destroy(stream);
    }
    assert!(driver.entries() < 8_000, "{}", driver.entries());
}

#[test]
fn an_operation_is_awaited_until_each_wait_has_ended() {
    let mut order = Order::default();
    order.begin_wait(7);
    order.begin_wait(7);
    order.end_wait(7);
    assert_eq!(order.awaited.len(), 1);
    order.end_wait(7);
    assert!(order.awaited.is_empty());
}

/// Returns the next number less than `below` of a sequence.
fn random(state: &mut u64, below: u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state % below
}

/// An operation of a random program.
struct Known {
    /// The operations that are ordered before it.
    before: BTreeSet<u64>,
    bytes: Range<u64>,
    access: Access,
}

#[test]
fn random_programs_race_as_a_search_of_all_pairs_says_although_lanes_end() {
    let mut ended = 0;
    for seed in 1..=20 {
        let (mut driver, mut all, mut state) = (Driver::new(), Vec::<Known>::new(), seed << 32 | 1);
        let mut random = |below| random(&mut state, below);
        let mut streams: Vec<usize> = (1..=6).collect();
        for stream in &streams {
            driver.order.add_stream(*stream, Place::Stream(*stream as u64));
        }
        let mut next_stream = 7;
        // The operations that the host knows to be complete.
        let mut host = BTreeSet::new();
        for _ in 0..1_000 {
            let slot = random(6) as usize;
            let (stream, event) = (streams[slot], random(3) as usize);
            let last = driver.last.get(&stream).copied();
            match random(12) {
                0 => {
                    driver.destroy(stream);
                    streams[slot] = next_stream;
                    driver.order.add_stream(next_stream, Place::Stream(next_stream as u64));
                    next_stream += 1;
                }
                1 => driver.events[event] = last,
                2 if random(4) == 0 => driver.order.remove_unused_lanes(),
                2 if random(8) == 0 => {
                    if let Some(last) = last {
                        driver.order.host_learns(last);
                        host.extend(all[last as usize].before.iter().copied());
                        host.insert(last);
                    }
                }
                2 if random(40) == 0 => {
                    driver.order.host_learns_all();
                    driver.log.forget_known(&driver.order);
                    driver.order.remove_unused_lanes();
                    host.extend(0..all.len() as u64);
                }
                _ => {
                    let waits = random(3) == 0;
                    let after = driver.events[event].filter(|_| waits);
                    let start = random(40);
                    let bytes = start..start + 1 + random(12);
                    let access = match random(8) {
                        0 | 1 => Access::Write,
                        2 => Access::Atomic,
                        3 => Access::Free,
                        _ => Access::Read,
                    };
                    let mut before = host.clone();
                    for its in last.into_iter().chain(after) {
                        before.extend(all[its as usize].before.iter().copied());
                        before.insert(its);
                    }
                    let races = |(id, its): (usize, &Known)| {
                        let overlaps = its.bytes.start < bytes.end && bytes.start < its.bytes.end;
                        let is_race = overlaps && its.access.conflicts(access);
                        (is_race && !before.contains(&(id as u64))).then_some(id as u64)
                    };
                    let expected: BTreeSet<u64> =
                        all.iter().enumerate().filter_map(races).collect();
                    let after: Vec<u64> = after.into_iter().collect();
                    let (id, found) = driver.run(stream, &after, &[(bytes.clone(), access)]);
                    let found: BTreeSet<u64> =
                        found.iter().map(|its| its.earlier.operation.number).collect();
                    assert!(found.is_subset(&expected), "seed {seed}, operation {id}");
                    assert_eq!(
                        found.is_empty(),
                        expected.is_empty(),
                        "seed {seed}, operation {id}"
                    );
                    all.push(Known { before, bytes, access });
                }
            }
        }
        ended += driver.order.last_lane - driver.order.lanes.len() as u64;
    }
    assert!(ended > 500, "{ended} lanes have ended");
}
