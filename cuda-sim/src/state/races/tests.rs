//! The last operations of destroyed streams, which the legacy default stream waits for.

use crate::exec::Work;
use crate::profile::Profile;
use crate::state::World;
use crate::state::objects::{ContextKind, Stream};

/// Returns a driver and its primary context.
fn driver(profile: Profile) -> (World, usize) {
    let mut world = World::new(profile);
    let (context, _) = world.objects.primaries[0];
    world.make_context(context, 0, 0, ContextKind::Primary);
    (world, context)
}

fn add_stream(world: &mut World, context: usize) -> usize {
    let id = world.new_id();
    world.add_stream(Stream::new(context, None, id))
}

/// Returns the number of operations that the next work of the legacy default stream waits for.
fn given(world: &World, context: usize) -> usize {
    world.context(context).map_or(0, |its| its.given.len())
}

#[test]
fn operations_of_destroyed_streams_are_removed_when_they_are_complete() {
    for profile in [Profile::h200(), Profile::h200().with_race_detection()] {
        let (mut world, context) = driver(profile);
        for number in 0..1_000 {
            let stream = add_stream(&mut world, context);
            let last = world.give(stream, Work::Nothing, Vec::new());
            // Before and after the destruction.
            if number % 2 == 0 {
                world.remove_stream(stream);
            }
            let done = world.run_until(|executor| executor.is_done(last));
            assert_eq!(done, Ok(()));
            if number % 2 != 0 {
                world.remove_stream(stream);
            }
        }
        assert!(given(&world, context) <= 64 + 1);
    }
}

#[test]
fn operations_of_destroyed_streams_that_are_not_complete_stay() {
    let (mut world, context) = driver(Profile::h200().with_race_detection());
    for _ in 0..1_000 {
        let stream = add_stream(&mut world, context);
        world.give(stream, Work::Nothing, Vec::new());
        world.remove_stream(stream);
    }
    assert_eq!(given(&world, context), 1_000);
    let legacy = world.context(context).map(|its| its.legacy);
    let last = world.give(legacy.expect("a context"), Work::Nothing, Vec::new());
    assert_eq!(given(&world, context), 0);
    let done = world.run_until(|executor| executor.is_done(last));
    assert_eq!((done, world.runs.executor.is_all_idle()), (Ok(()), true));
}
