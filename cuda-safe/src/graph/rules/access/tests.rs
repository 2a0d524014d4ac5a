//! Examples, and random graphs against a matrix of reachable nodes.

use super::{Access, Before, Checked, Lifetime, NotAllocated, Unordered, check, covers};

#[inline]
const fn full(index: u32) -> Before {
    Before { index, is_full: true }
}

#[inline]
const fn programmatic(index: u32) -> Before {
    Before { index, is_full: false }
}

#[inline]
fn read(buffer: u64) -> Access {
    Access { buffer, bytes: 0..16, writes: false, lifetime: Lifetime::OfGraph }
}

#[inline]
fn write(buffer: u64) -> Access {
    Access { writes: true, ..read(buffer) }
}

#[inline]
fn verdict(nodes: &[(Vec<Before>, Vec<Access>)]) -> Result<(), Unordered> {
    let nodes: Vec<_> =
        nodes.iter().map(|(before, accesses)| Checked { before, accesses }).collect();
    check(&nodes, false)
}

#[inline]
fn conflict(first: usize, second: usize) -> Result<(), Unordered> {
    Err(Unordered::Conflict { first, second, buffer: 7 })
}

#[test]
#[inline]
fn parallel_readers_do_not_conflict() {
    assert_eq!(verdict(&[(vec![], vec![read(7)]), (vec![], vec![read(7)])]), Ok(()));
}

#[test]
#[inline]
fn a_write_conflicts_with_a_parallel_access() {
    let pairs = [(write(7), read(7)), (read(7), write(7)), (write(7), write(7))];
    for (one, other) in pairs {
        assert_eq!(verdict(&[(vec![], vec![one]), (vec![], vec![other])]), conflict(0, 1));
    }
}

#[test]
#[inline]
fn writes_of_different_buffers_do_not_conflict() {
    assert_eq!(verdict(&[(vec![], vec![write(7)]), (vec![], vec![write(8)])]), Ok(()));
}

#[test]
#[inline]
fn writes_of_disjoint_bytes_do_not_conflict() {
    let part = |bytes| Access { bytes, ..write(7) };
    let nodes = |one, other| [(vec![], vec![part(one)]), (vec![], vec![part(other)])];
    assert_eq!(verdict(&nodes(0..8, 8..16)), Ok(()));
    assert_eq!(verdict(&nodes(0..9, 8..16)), conflict(0, 1));
    assert_eq!(verdict(&nodes(0..16, 4..5)), conflict(0, 1));
}

#[test]
#[inline]
fn a_path_of_full_edges_orders_two_nodes() {
    let path =
        |last| [(vec![], vec![write(7)]), (vec![full(0)], vec![]), (vec![last], vec![read(7)])];
    assert_eq!(verdict(&path(full(1))), Ok(()));
    assert_eq!(verdict(&path(programmatic(1))), conflict(0, 2));
}

#[test]
#[inline]
fn a_write_is_ordered_after_each_read_before_it() {
    let nodes = |before| {
        [
            (vec![], vec![write(7)]),
            (vec![full(0)], vec![read(7)]),
            (vec![full(0)], vec![read(7)]),
            (before, vec![write(7)]),
        ]
    };
    assert_eq!(verdict(&nodes(vec![full(1), full(2)])), Ok(()));
    assert_eq!(verdict(&nodes(vec![full(1)])), conflict(2, 3));
}

#[inline]
fn of_node(lifetime: Lifetime) -> Access {
    Access { lifetime, ..write(7) }
}

#[inline]
fn not_allocated(node: usize, why: NotAllocated) -> Result<(), Unordered> {
    Err(Unordered::NotAllocated { node, buffer: 7, why })
}

#[test]
#[inline]
fn memory_of_a_node_is_used_between_its_allocation_and_its_free() {
    let [begin, end, used] = [Lifetime::Begin, Lifetime::End, Lifetime::OfNode].map(of_node);
    let chain = |accesses: [&Access; 3]| {
        let [first, second, third] = accesses.map(|its| vec![its.clone()]);
        verdict(&[(vec![], first), (vec![full(0)], second), (vec![full(1)], third)])
    };
    assert_eq!(chain([&begin, &used, &end]), Ok(()));
    assert_eq!(chain([&begin, &used, &used]), Ok(()));
    let yet = not_allocated(0, NotAllocated::Yet);
    assert_eq!(chain([&used, &begin, &end]), yet);
    let anymore = not_allocated(2, NotAllocated::Anymore);
    assert_eq!(chain([&begin, &end, &used]), anymore);
    let ever = not_allocated(0, NotAllocated::Ever);
    assert_eq!(chain([&used, &used, &end]), ever);
    let unused = Access { bytes: 4..4, ..used };
    assert_eq!(chain([&unused, &begin, &end]), Ok(()), "no bytes");
}

#[test]
#[inline]
fn memory_of_a_node_is_not_used_beside_its_allocation() {
    let [begin, used] = [Lifetime::Begin, Lifetime::OfNode].map(of_node);
    assert_eq!(verdict(&[(vec![], vec![begin]), (vec![], vec![used])]), conflict(0, 1));
}

#[test]
#[inline]
fn a_nested_graph_may_use_memory_that_the_outer_one_allocates() {
    let used = [Access { writes: false, ..of_node(Lifetime::OfNode) }];
    let nodes = [Checked { before: &[], accesses: &used }];
    let ever = not_allocated(0, NotAllocated::Ever);
    assert_eq!(check(&nodes, false), ever);
    assert_eq!(check(&nodes, true), Ok(()));
}

#[test]
#[inline]
fn nodes_may_be_in_any_order() {
    assert_eq!(verdict(&[(vec![full(1)], vec![read(7)]), (vec![], vec![write(7)])]), Ok(()));
}

#[test]
#[inline]
fn a_node_that_reads_and_writes_does_not_conflict_with_itself() {
    assert_eq!(
        verdict(&[(vec![], vec![read(7), write(7)]), (vec![full(0)], vec![write(7), read(7)])]),
        Ok(())
    );
}

#[test]
#[inline]
fn a_cycle_is_found() {
    assert!(matches!(
        verdict(&[(vec![full(1)], vec![write(7)]), (vec![full(0)], vec![])]),
        Err(Unordered::Cycle(_))
    ));
}

/// So many nodes that time that grows with the square of their number is noticed: minutes.
const MANY: u32 = 60_000;

#[test]
#[inline]
fn many_readers_between_two_writes_are_checked_in_time_that_grows_with_their_number() {
    let mut nodes = vec![(vec![], vec![write(7)])];
    for index in 0..MANY {
        // A node between each reader and the write.
        nodes.push((vec![full(0)], vec![]));
        nodes.push((vec![full(1 + 2 * index)], vec![read(7)]));
    }
    let readers: Vec<_> = (0..MANY).map(|index| full(2 + 2 * index)).collect();
    nodes.push((readers, vec![write(7)]));
    assert_eq!(verdict(&nodes), Ok(()));
    let last = nodes.len() - 1;
    nodes[last].0.pop();
    assert_eq!(verdict(&nodes), conflict(last - 1, last));
}

#[test]
#[inline]
fn many_parts_of_a_buffer_are_checked_in_time_that_grows_with_their_number() {
    let part = |index: u32, writes| Access {
        buffer: 7,
        bytes: index as usize..index as usize + 1,
        writes,
        lifetime: Lifetime::OfGraph,
    };
    let whole =
        |writes| Access { buffer: 7, bytes: 0..MANY as usize, writes, lifetime: Lifetime::OfGraph };
    let mut nodes: Vec<_> = (0..MANY).map(|index| (vec![], vec![part(index, true)])).collect();
    let all = |from: u32| (from..from + MANY).map(full).collect::<Vec<_>>();
    nodes.push((all(0), vec![whole(false)]));
    nodes.push((vec![full(MANY)], vec![whole(false)]));
    for index in 0..MANY {
        nodes.push((vec![full(MANY + 1)], vec![part(index, true)]));
    }
    nodes.push((all(MANY + 2), vec![whole(true)]));
    assert_eq!(verdict(&nodes), Ok(()));
}

/// A small generator of numbers (xorshift).
struct Random(u64);

impl Random {
    #[inline]
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Returns whether two accesses conflict.
#[inline]
fn conflicting(one: &Access, other: &Access) -> bool {
    one.buffer == other.buffer
        && (one.writes || other.writes)
        && one.bytes.start < other.bytes.end
        && other.bytes.start < one.bytes.end
}

/// Returns whether each conflicting pair of nodes is connected, computed without any cleverness.
#[inline]
fn naive(nodes: &[(Vec<Before>, Vec<Access>)]) -> bool {
    let count = nodes.len();
    let mut reaches = vec![vec![false; count]; count];
    for (target, (before, _)) in nodes.iter().enumerate() {
        for edge in before.iter().filter(|edge| edge.is_full) {
            reaches[edge.index as usize][target] = true;
        }
    }
    for middle in 0..count {
        for from in 0..count {
            for to in 0..count {
                reaches[from][to] |= reaches[from][middle] && reaches[middle][to];
            }
        }
    }
    (0..count).all(|one| {
        (0..one).all(|other| {
            let mut pairs = nodes[one]
                .1
                .iter()
                .flat_map(|its| nodes[other].1.iter().map(move |other| (its, other)));
            let conflict = pairs.any(|(its, other)| conflicting(its, other));
            !conflict || reaches[one][other] || reaches[other][one]
        })
    })
}

#[test]
#[inline]
fn random_graphs_agree_with_a_matrix_of_reachable_nodes() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut ordered, mut refused) = (0, 0);
    for _ in 0..20_000 {
        let count = 2 + random.below(7) as usize;
        let density = 1 + random.below(5);
        // The nodes are numbered in a random order, so that indices say nothing about the edges.
        let mut places: Vec<usize> = (0..count).collect();
        for index in (1..count).rev() {
            places.swap(index, random.below(index as u64 + 1) as usize);
        }
        let mut nodes = vec![(Vec::new(), Vec::new()); count];
        for later in 0..count {
            for earlier in 0..later {
                if random.below(5) < density {
                    nodes[places[later]].0.push(Before {
                        index: places[earlier] as u32,
                        is_full: random.below(6) != 0,
                    });
                }
            }
            for _ in 0..random.below(3) {
                let start = random.below(4) as usize;
                nodes[places[later]].1.push(Access {
                    buffer: random.below(2),
                    bytes: start..start + 1 + random.below(3) as usize,
                    writes: random.below(3) == 0,
                    lifetime: Lifetime::OfGraph,
                });
            }
        }
        let found = verdict(&nodes);
        assert_eq!(found.is_ok(), naive(&nodes), "{found:?} for {nodes:?}");
        if let Err(Unordered::Conflict { first, second, .. }) = found {
            assert_ne!(first, second);
            let pairs = nodes[first]
                .1
                .iter()
                .flat_map(|one| nodes[second].1.iter().map(move |other| (one, other)));
            assert!(pairs.into_iter().any(|(one, other)| conflicting(one, other)), "{nodes:?}");
        }
        match found {
            Ok(()) => ordered += 1,
            Err(_) => refused += 1,
        }
    }
    assert!(ordered > 2000 && refused > 2000, "{ordered} {refused}");
}

#[test]
#[inline]
fn accesses_cover_parts_of_them_that_do_not_write_more() {
    let part = |bytes, access: Access| Access { bytes, ..access };
    let all = [read(7), write(8)];
    for covered in [&[][..], &all, &[part(4..8, read(7)), part(0..16, read(8)), write(8)]] {
        assert!(covers(&all, covered), "{covered:?}");
    }
    let of_node = Access { lifetime: Lifetime::OfNode, ..read(7) };
    for other in [write(7), read(9), part(8..17, write(8)), of_node] {
        assert!(!covers(&all, &[read(7), other.clone()]), "{other:?}");
    }
    // One access must cover all of it.
    let halves = [part(0..8, write(7)), part(8..16, write(7))];
    assert!(!covers(&halves, &[write(7)]));
}
