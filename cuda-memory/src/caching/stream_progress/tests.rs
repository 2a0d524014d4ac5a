use super::*;

/// An event of a numbered context.
#[derive(Debug)]
struct FakeEvent(u8);

impl SyncEvent for FakeEvent {
    type Context = u8;

    #[inline]
    fn context(&self) -> &u8 {
        &self.0
    }
}

type Progress = StreamProgress<FakeEvent>;

const OURS: u8 = 7;

#[inline]
fn stream(number: usize) -> StreamKey {
    0x1000 * (number + 1)
}

#[inline]
fn event() -> Arc<FakeEvent> {
    Arc::new(FakeEvent(OURS))
}

/// Records the event of a [`Record`].
#[inline]
fn made(mut record: Record<FakeEvent>) -> Record<FakeEvent> {
    record.event.get_or_insert_with(event);
    record
}

/// Returns the records that are due, without those queries.
#[inline]
fn records(progress: &mut Progress) -> Vec<Record<FakeEvent>> {
    progress.due(None).0
}

/// Enters an event for all work of the entry so far.
#[inline]
fn cover_all(progress: &mut Progress, entry: u32) -> u64 {
    let record = records(progress).into_iter().find(|its| its.entry == entry);
    let record = record.expect("work that no event covers");
    let number = record.number;
    progress.enter(made(record), true);
    number
}

#[test]
#[inline]
fn a_stream_has_one_entry_until_it_ends() {
    let mut progress = Progress::new(&OURS);
    let one = progress.of(stream(0), &Reach::Always);
    assert_ne!(one, UNORDERED);
    assert_eq!(progress.of(stream(0), &Reach::Always), one);
    let other = progress.of(stream(1), &Reach::Always);
    assert_ne!(other, one);
    assert_eq!(progress.find(stream(0)), Some(one));
    assert!(progress.detach(one).is_none(), "there is no work");
    assert_eq!(progress.find(stream(0)), None);
    assert_eq!(progress.of(stream(2), &Reach::Always), one, "reused");
}

#[test]
#[inline]
fn an_entry_with_work_is_not_reused() {
    let mut progress = Progress::new(&OURS);
    let entry = progress.of(stream(0), &Reach::Always);
    let point = progress.sync_point(entry);
    let record = progress.detach(entry).expect("the work needs an event");
    assert_eq!((record.entry, record.number), (entry, point.number));
    assert_ne!(progress.of(stream(1), &Reach::Always), entry);
    progress.enter(made(record), true);
    assert!(!progress.is_done(&point));
    progress.reached(entry, point.number);
    assert!(progress.is_done(&point));
    let again = progress.of(stream(2), &Reach::Always);
    assert_eq!(again, entry);
    assert!(progress.sync_point(again).number > point.number, "numbers continue");
}

#[test]
#[inline]
fn an_event_covers_the_sync_points_before_it() {
    let mut progress = Progress::new(&OURS);
    let entry = progress.of(stream(0), &Reach::Always);
    let points: Vec<SyncPoint> = (0..3).map(|_| progress.sync_point(entry)).collect();
    assert_eq!(cover_all(&mut progress, entry), points[2].number);
    assert!(records(&mut progress).is_empty(), "all is covered");
    let later = progress.sync_point(entry);
    let number = cover_all(&mut progress, entry);
    assert_eq!(number, later.number);

    let (events, records) = progress.cover(&points[1..2], None, None).expect("events");
    assert_eq!((events.len(), records.len()), (1, 0));
    drop(events);
    let (events, _) = progress.cover(&[later], Some(entry), None).expect("nothing");
    assert!(events.is_empty(), "its own stream needs none");

    progress.reached(entry, points[2].number);
    assert!(points.iter().all(|point| progress.is_done(point)));
    assert!(!progress.is_done(&later));
    assert!(!progress.are_done_but_for(&[later], None));
    assert!(progress.are_done_but_for(&[later], Some(entry)));
    assert!(progress.spare().is_some(), "the first event is free");
    assert!(progress.spare().is_none(), "the second is not reached");
}

#[test]
#[inline]
fn events_are_reached_up_to_the_number_and_no_further() {
    let mut progress = Progress::new(&OURS);
    let entry = progress.of(stream(0), &Reach::Always);
    let numbers: Vec<u64> = (0..3)
        .map(|_| {
            progress.sync_point(entry);
            cover_all(&mut progress, entry)
        })
        .collect();
    progress.reached(entry, numbers[1]);
    let queries = progress.due(None).1;
    let left: Vec<u64> = queries[0].events.iter().map(|(number, _)| *number).collect();
    assert_eq!(left, numbers[2..]);
}

#[test]
#[inline]
fn events_are_sorted_by_their_numbers() {
    let mut progress = Progress::new(&OURS);
    let entry = progress.of(stream(0), &Reach::Always);
    let numbers: Vec<u64> = (0..3).map(|_| progress.sync_point(entry).number).collect();
    for number in [numbers[2], numbers[0], numbers[1], numbers[1]] {
        let reach = Reach::Always;
        let event = Some(event());
        progress.enter(Record { entry, number, reach, event }, true);
    }
    let queries = progress.due(None).1;
    let order: Vec<u64> = queries[0].events.iter().map(|(number, _)| *number).collect();
    assert_eq!(order, [numbers[0], numbers[1], numbers[1], numbers[2]]);
}

#[test]
#[inline]
fn a_thread_that_records_keeps_others_from_recording() {
    let mut progress = Progress::new(&OURS);
    let entry = progress.of(stream(0), &Reach::Always);
    progress.sync_point(entry);
    let record = records(&mut progress).pop().expect("the first");
    assert!(records(&mut progress).is_empty(), "one at a time");
    progress.enter(record, false);
    assert!(records(&mut progress).pop().is_some(), "after a failure");
}

#[test]
#[inline]
fn an_entry_has_a_bounded_number_of_events() {
    let mut progress = Progress::new(&OURS);
    let entry = progress.of(stream(0), &Reach::Always);
    for _ in 0..MAX_EVENTS {
        progress.sync_point(entry);
        cover_all(&mut progress, entry);
    }
    progress.sync_point(entry);
    let (records, queries) = progress.due(None);
    assert!(records.is_empty());
    assert_eq!(queries[0].events.len(), MAX_EVENTS);
    drop(queries);
    progress.reached(entry, 1);
    assert_eq!(progress.due(None).0.len(), 1);
}

#[test]
#[inline]
fn an_entry_without_work_is_not_queried() {
    let mut progress = Progress::new(&OURS);
    let entry = progress.of(stream(0), &Reach::Always);
    let (records, queries) = progress.due(None);
    assert!(records.is_empty() && queries.is_empty());
    let point = progress.sync_point(entry);
    progress.reached(entry, point.number);
    let (records, queries) = progress.due(None);
    assert!(records.is_empty() && queries.is_empty());
}

#[test]
#[inline]
fn a_named_stream_is_recorded_only_by_a_call_that_receives_it() {
    let mut progress = Progress::new(&OURS);
    let entry = progress.of(stream(0), &Reach::Named);
    let point = progress.sync_point(entry);
    assert!(progress.wanted(entry, stream(0)).is_none(), "not wanted yet");
    assert!(progress.cover(&[point], None, Some(stream(1))).is_none());
    let record = progress.wanted(entry, stream(0)).expect("wanted now");
    assert!(progress.wanted(entry, stream(0)).is_none(), "once");
    progress.enter(made(record), true);
    assert!(progress.cover(&[point], None, None).is_some());
}

#[test]
#[inline]
fn a_wanted_entry_is_not_recorded_twice_at_a_time() {
    let mut progress = Progress::new(&OURS);
    let entry = progress.of(stream(0), &Reach::Named);
    let point = progress.sync_point(entry);
    assert!(progress.cover(&[point], None, None).is_none(), "wanted");
    let record = progress.due(Some(stream(0))).0.pop().expect("it is named");
    assert!(progress.wanted(entry, stream(0)).is_none(), "under way");
    progress.enter(made(record), true);
}

#[test]
#[inline]
fn a_cover_that_fails_gives_up_its_other_records() {
    let mut progress = Progress::new(&OURS);
    let good = progress.of(stream(0), &Reach::Always);
    let bad = progress.of(stream(1), &Reach::Named);
    let points = [progress.sync_point(good), progress.sync_point(bad)];
    assert!(progress.cover(&points, None, None).is_none());
    assert_eq!(records(&mut progress).len(), 1, "the first can be recorded");
}

#[test]
#[inline]
fn a_late_event_is_kept_for_reuse() {
    let mut progress = Progress::new(&OURS);
    let entry = progress.of(stream(0), &Reach::Always);
    let point = progress.sync_point(entry);
    let record = records(&mut progress).pop().expect("one");
    progress.reached(entry, point.number);
    progress.enter(made(record), true);
    assert!(progress.spare().is_some());
    progress.sync_point(entry);
    let record = records(&mut progress).pop().expect("one");
    progress.enter(made(record), false);
    assert!(progress.spare().is_some(), "it was not recorded");
}

#[test]
#[inline]
fn only_events_of_the_context_that_nobody_else_has_are_reused() {
    let mut progress = Progress::new(&OURS);
    progress.keep(event());
    assert!(progress.spare().is_some());
    progress.keep(Arc::new(FakeEvent(OURS + 1)));
    assert!(progress.spare().is_none());
    let used = event();
    progress.keep(Arc::clone(&used));
    assert!(progress.spare().is_none());
    assert_eq!(progress.discarded.len(), 2);
    for _ in 0..=MAX_SPARE {
        progress.keep(event());
    }
    assert_eq!(progress.spare.len(), MAX_SPARE);
    assert_eq!(progress.discarded.len(), 3);
}

#[test]
#[inline]
fn unordered_blocks_are_done_with_all_work() {
    let mut progress = Progress::new(&OURS);
    assert_eq!(progress.unordered_pending(), 0);
    let stream = progress.of(stream(0), &Reach::Always);
    let points = [
        progress.sync_point(UNORDERED),
        progress.sync_point(UNORDERED),
        progress.sync_point(stream),
    ];
    assert_eq!(progress.unordered_pending(), 2);
    let numbers = progress.numbers();
    let later = progress.sync_point(UNORDERED);
    progress.settled(&numbers);
    assert!(points.iter().all(|point| progress.is_done(point)));
    assert!(!progress.is_done(&later));
    assert_eq!(progress.unordered_pending(), 1);
}

#[test]
#[inline]
fn a_passing_sync_point_is_done_with_its_event() {
    let mut progress = Progress::new(&OURS);
    let with_event = progress.sync_point_of_event(Some(event()));
    let without = progress.sync_point_of_event(None);
    assert!(progress.cover(&[with_event], None, None).is_some());
    assert!(progress.cover(&[without], None, None).is_none());
    progress.reached(with_event.entry, with_event.number);
    assert!(progress.is_done(&with_event));
    assert!(!progress.is_done(&without));
}

#[test]
#[inline]
fn a_wait_for_all_work_does_not_cover_the_work_of_another_context() {
    let mut progress = Progress::new(&OURS);
    let ours = progress.sync_point_of_event(Some(event()));
    let other = progress.sync_point_of_event(Some(Arc::new(FakeEvent(OURS + 1))));
    assert_eq!(progress.others(), [OURS + 1]);
    let numbers = progress.numbers();
    progress.settled(&numbers);
    assert!(progress.is_done(&ours));
    assert!(!progress.is_done(&other));
    progress.reached(other.entry, other.number);
    assert!(progress.is_done(&other));
    assert_eq!(progress.others(), []);
}

#[test]
#[inline]
fn sync_points_unite_to_the_latest_of_each_stream() {
    let point = |entry, number| SyncPoint { entry, number };
    let mut points = vec![point(1, 5), point(2, 1)];
    unite(&mut points, &[point(1, 3), point(2, 9), point(3, 1)]);
    assert_eq!(points, [point(1, 5), point(2, 9), point(3, 1)]);
}
