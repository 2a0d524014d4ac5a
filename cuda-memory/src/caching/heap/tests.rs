mod sequences;

use super::*;
use crate::caching::stream_progress::Reach;

/// A stand-in for the event type. No test in this file creates an event.
struct NoEvent;

impl SyncEvent for NoEvent {
    type Context = ();

    #[inline]
    fn context(&self) -> &() {
        &()
    }
}

type Progress = StreamProgress<NoEvent>;

const SLAB: usize = 64 * GRAIN as usize;

#[inline]
fn slab(number: u64) -> Block {
    Block { address: 0x10_0000 * (number + 1), size: SLAB, token: 100 + number }
}

/// Returns a heap with one slab. The first `parts` blocks of the slab, four grains each, are allocated;
/// their ids are returned.
#[inline]
fn heap(parts: usize) -> (Heap, Vec<Id>) {
    let mut heap = Heap::default();
    let all = heap.add(slab(0));
    heap.give(all, &[]);
    let ids = (0..parts).map(|_| {
        let id = heap.find_any(4 * GRAIN).expect("room");
        heap.take(id, 4 * GRAIN)
    });
    let ids = ids.collect();
    (heap, ids)
}

#[inline]
fn sums_up(heap: &Heap) {
    let listed: u64 = heap.free.iter().map(|(size, _, _)| *size).sum();
    let waiting: u64 = heap.waiting.iter().map(|id| heap.size(*id)).sum();
    assert_eq!(heap.free_bytes, listed + waiting);
}

#[test]
#[inline]
fn a_block_is_split_and_merged_again() {
    let (mut heap, ids) = heap(3);
    assert_eq!(heap.free_bytes, SLAB as u64 - 12 * GRAIN);
    assert_eq!(heap.largest_free(), SLAB as u64 - 12 * GRAIN);
    heap.give(ids[0], &[]);
    heap.give(ids[2], &[]);
    assert_eq!(heap.free.len(), 2, "the third is merged with the rest");
    sums_up(&heap);
    heap.give(ids[1], &[]);
    assert_eq!((heap.free.len(), heap.largest_free()), (1, SLAB as u64));
    sums_up(&heap);
}

#[test]
#[inline]
fn a_block_keeps_a_rest_that_is_smaller_than_a_grain() {
    let (mut heap, _) = heap(0);
    let id = heap.find_any(GRAIN).expect("room");
    let id = heap.take(id, SLAB as u64 - GRAIN / 2);
    assert_eq!(heap.size(id), SLAB as u64);
    assert_eq!((heap.free_bytes, heap.nodes.len()), (0, 1));
    heap.shrink(id, SLAB as u64 - GRAIN / 2);
    assert_eq!(heap.nodes.len(), 1);
    heap.shrink(id, SLAB as u64 - GRAIN);
    assert_eq!((heap.size(id), heap.free_bytes), (SLAB as u64 - GRAIN, GRAIN));
}

#[test]
#[inline]
fn a_block_of_the_exact_size_is_not_split() {
    let (mut heap, ids) = heap(1);
    heap.shrink(ids[0], 4 * GRAIN);
    assert_eq!(heap.nodes.len(), 2, "there is no empty block");
    heap.give(ids[0], &[]);
    let whole = heap.find_any(SLAB as u64).expect("the slab");
    heap.take(whole, SLAB as u64);
    let live = heap.nodes.len() - heap.unused.len();
    assert_eq!((live, heap.free_bytes, heap.free.len()), (1, 0, 0));
}

#[test]
#[inline]
fn a_block_is_found_when_its_sync_points_are_done() {
    let mut progress = Progress::new(&());
    let (mut heap, ids) = heap(2);
    let point = progress.sync_point(UNORDERED);
    let other = progress.sync_point_of_event(None);
    heap.give(ids[0], &[other]);
    assert_eq!(heap.find(4 * GRAIN, Some(other.entry), &progress), Some(ids[0]));
    let rest = heap.find(4 * GRAIN, None, &progress).expect("the rest of the slab");
    assert_ne!(rest, ids[0]);
    heap.give(ids[1], &[point]);
    assert!(heap.waiting.contains(&ids[1]), "it is not merged");
    sums_up(&heap);
}

#[test]
#[inline]
fn blocks_that_waited_are_merged_once_their_work_is_done() {
    let mut progress = Progress::new(&());
    let (mut heap, ids) = heap(3);
    let done = progress.sync_point(UNORDERED);
    heap.give(ids[0], &[done]);
    heap.forget_done(&progress);
    assert_eq!(heap.waiting.len(), 1, "its work is not done");
    progress.settled(&[done.number]);
    heap.forget_done(&progress);
    assert!(heap.waiting.is_empty() && heap.points(ids[0]).is_empty());
    let pending = progress.sync_point(UNORDERED);
    let other = progress.sync_point_of_event(None);
    heap.give(ids[1], &[pending]);
    heap.give(ids[2], &[other]);
    sums_up(&heap);
    heap.forget_done(&progress);
    sums_up(&heap);
    assert_eq!(heap.points(ids[1]), [pending]);
    assert_eq!(heap.points(ids[2]), [other], "another stream's work is not done");
    assert_eq!(heap.waiting.len(), 1);
    progress.settled(&[pending.number, other.number]);
    heap.forget_done(&progress);
    assert_eq!((heap.waiting.len(), heap.free.len()), (0, 1));
    assert_eq!(heap.largest_free(), SLAB as u64);
    sums_up(&heap);
}

#[test]
#[inline]
fn only_entirely_free_slabs_are_idle_and_removed() {
    let (mut heap, ids) = heap(1);
    let other = heap.add(slab(1));
    assert_eq!(heap.reserved, 2 * SLAB as u64);
    assert!(heap.idle().is_empty());
    assert!(heap.remove(0).is_none(), "its first block is allocated");
    assert!(heap.remove(1).is_none(), "it is allocated as a whole");
    assert!(heap.remove(2).is_none(), "there is none");
    let second = heap.take(heap.find_any(GRAIN).expect("room"), GRAIN);
    heap.give(ids[0], &[]);
    assert!(heap.idle().is_empty(), "its first block is free, another is not");
    assert!(heap.remove(0).is_none());
    heap.give(second, &[]);
    heap.give(other, &[]);
    let idle: Vec<_> = heap.idle().iter().map(|(place, size, _)| (*place, *size)).collect();
    assert_eq!(idle, [(0, SLAB as u64), (1, SLAB as u64)]);
    assert_eq!(heap.remove(0), Some(slab(0)));
    assert_eq!((heap.reserved, heap.slab_count()), (SLAB as u64, 1));
    sums_up(&heap);
    assert_eq!(heap.idle().len(), 1);
    assert_eq!(heap.into_slabs().collect::<Vec<_>>(), [slab(1)]);
}

#[test]
#[inline]
fn the_token_of_a_slab_is_told_for_parts_of_allocated_blocks() {
    let (mut heap, ids) = heap(2);
    let part = |offset, size| Block { address: heap.address(ids[1]) + offset, size, token: 0 };
    let four = 4 * GRAIN as usize;
    assert_eq!(heap.token_below(ids[1], &part(0, four)), Some(100));
    assert_eq!(heap.token_below(ids[1], &part(GRAIN, 1)), Some(100));
    assert_eq!(heap.token_below(ids[1], &part(0, four + 1)), None);
    assert_eq!(heap.token_below(ids[1], &part(4 * GRAIN, 1)), None);
    assert_eq!(heap.token_below(ids[0], &part(0, 1)), None, "another block");
    let all = part(0, four);
    heap.give(ids[1], &[]);
    assert_eq!(heap.token_below(ids[1], &all), None, "it is free");
    assert_eq!(heap.token_below(99, &all), None);
}

const PAGE: u64 = 16 * GRAIN;
const SEGMENT: u64 = 0x100_0000;

/// Returns a heap with a segment of eight pages.
#[inline]
fn segment() -> (Heap, Progress) {
    let mut heap = Heap::default();
    heap.add_segment(SEGMENT, 8 * PAGE);
    (heap, Progress::new(&()))
}

/// Grows by what a block of `size` bytes needs, and takes the block.
#[inline]
fn grow(heap: &mut Heap, progress: &Progress, size: u64, entry: Option<u32>) -> (Id, u64) {
    let growth = heap.begin_growth(size, PAGE, entry, progress).expect("addresses");
    let mapped = growth.size;
    let id = heap.end_growth(growth);
    heap.shrink(id, size);
    sums_up(heap);
    (id, mapped)
}

#[test]
#[inline]
fn a_segment_grows_by_what_the_free_block_at_its_end_lacks() {
    let (mut heap, progress) = segment();
    assert!(heap.find_any(GRAIN).is_none(), "nothing is mapped");
    let (first, mapped) = grow(&mut heap, &progress, PAGE + GRAIN, None);
    assert_eq!((heap.address(first), mapped), (SEGMENT, 2 * PAGE));
    // 15 grains are free.
    let (second, mapped) = grow(&mut heap, &progress, 2 * PAGE, None);
    assert_eq!(heap.address(second), SEGMENT + PAGE + GRAIN);
    assert_eq!((mapped, heap.reserved), (2 * PAGE, 4 * PAGE));
    heap.give(first, &[]);
    heap.give(second, &[]);
    assert_eq!((heap.free.len(), heap.largest_free()), (1, 4 * PAGE));
    let (_, mapped) = grow(&mut heap, &progress, 6 * PAGE, None);
    assert_eq!((mapped, heap.free_bytes), (2 * PAGE, 0));
    assert!(heap.begin_growth(3 * PAGE, PAGE, None, &progress).is_none());
    assert!(heap.begin_growth(u64::MAX, PAGE, None, &progress).is_none());
}

#[test]
#[inline]
fn a_growth_does_not_use_memory_of_another_stream() {
    let (mut heap, mut progress) = segment();
    let entry = progress.of(17, &Reach::Named);
    let (block, _) = grow(&mut heap, &progress, PAGE, None);
    let point = progress.sync_point(entry);
    heap.give(block, &[point]);
    let (other, mapped) = grow(&mut heap, &progress, 2 * PAGE, None);
    assert_eq!((heap.address(other), mapped), (SEGMENT + PAGE, 2 * PAGE));
    heap.give(other, &[]);
    let (own, mapped) = grow(&mut heap, &progress, 4 * PAGE, Some(entry));
    assert_eq!((heap.address(own), mapped), (SEGMENT, PAGE));
}

#[test]
#[inline]
fn a_failed_growth_changes_nothing() {
    let (mut heap, progress) = segment();
    let (used, _) = grow(&mut heap, &progress, GRAIN, None);
    let before = (heap.free.clone(), heap.unmapped.clone());
    let growth = heap.begin_growth(3 * PAGE, PAGE, None, &progress);
    assert_eq!((heap.free.len(), heap.free_bytes), (0, 0));
    heap.undo_growth(growth.expect("addresses"));
    assert_eq!((heap.free.clone(), heap.unmapped.clone()), before);
    sums_up(&heap);
    let growth = heap.begin_growth(3 * PAGE, PAGE, None, &progress);
    heap.abandon_growth(growth.expect("addresses"));
    assert_eq!((&heap.free, heap.reserved), (&before.0, PAGE));
    // The next growth begins after the addresses that were given up.
    let (_, mapped) = grow(&mut heap, &progress, 4 * PAGE, None);
    assert_eq!(mapped, 4 * PAGE);
    heap.give(used, &[]);
    sums_up(&heap);
}

#[test]
#[inline]
fn a_part_of_a_free_block_is_unmapped_and_mapped_again() {
    let (mut heap, progress) = segment();
    let (block, _) = grow(&mut heap, &progress, 3 * PAGE, None);
    let (last, _) = grow(&mut heap, &progress, PAGE, None);
    heap.give(block, &[]);
    let [(id, address, size)] = heap.done(&progress)[..] else {
        panic!("one block is free");
    };
    assert_eq!((address, size), (SEGMENT, 3 * PAGE));
    let middle = heap.take_range(id, SEGMENT + PAGE, PAGE);
    assert_eq!((heap.free.len(), heap.free_bytes), (2, 2 * PAGE));
    heap.unmapped(middle);
    assert_eq!(heap.reserved, 3 * PAGE);
    sums_up(&heap);
    let first = heap.take_range(id, SEGMENT, PAGE);
    heap.unmapped(first);
    assert_eq!(heap.unmapped.len(), 2, "adjacent addresses are merged");
    // Both pages are mapped again, although the page after them is free.
    let (again, mapped) = grow(&mut heap, &progress, 2 * PAGE, None);
    assert_eq!((heap.address(again), mapped), (SEGMENT, 2 * PAGE));
    heap.give(again, &[]);
    heap.give(last, &[]);
    assert_eq!((heap.free.len(), heap.largest_free()), (1, 4 * PAGE));
    let abandoned = heap.take_range(again, SEGMENT, 4 * PAGE);
    heap.abandon(abandoned);
    assert_eq!((heap.reserved, heap.free_bytes), (0, 0));
    sums_up(&heap);
}
