//! User objects.

use crate::api::prelude::*;
use crate::exec::note_given;
use crate::state::graph::user_object::UserObject;
use crate::state::handles::State;
use cuda_sys::{CUhostFn, CUuserObject, CUuserObject_flags, CUuserObjectRetain_flags};

pub(crate) fn create(
    world: &mut World,
    data: *mut c_void,
    destroy: CUhostFn,
    count: c_uint,
    flags: c_uint,
) -> Answer<CUuserObject> {
    let is_asynchronous = flags == CUuserObject_flags::CU_USER_OBJECT_NO_DESTRUCTOR_SYNC.0;
    fail_if(!is_asynchronous || count == 0 || destroy.is_none(), INVALID)?;
    note_given(data);
    let made = UserObject { data: data.expose_provenance(), destroy, count: count.into() };
    Ok(pointer(world.objects.user_objects.insert(made)))
}

/// Returns whether an object is alive. A real driver does not check the handle.
fn is_alive(world: &World, object: CUuserObject) -> bool {
    let state = world.objects.user_objects.state(object.addr());
    if state == State::Dead {
        misuse("a user object is used after its last reference was released");
    }
    state == State::Alive
}

pub(crate) fn retain(world: &mut World, object: CUuserObject, count: c_uint) -> Answer {
    fail_if(count == 0 || !is_alive(world, object), INVALID)?;
    if let Some(its) = world.objects.user_objects.get_mut(object.addr()) {
        its.count += u64::from(count);
    }
    Ok(())
}

pub(crate) fn release(world: &mut World, object: CUuserObject, count: c_uint) -> Answer {
    fail_if(count == 0 || object.is_null(), INVALID)?;
    // Measured: the release of a dead object succeeds.
    if is_alive(world, object) {
        world.release_object(object.addr(), count, None);
    }
    Ok(())
}

pub(crate) fn retain_in_graph(
    world: &mut World,
    graph: CUgraph,
    object: CUuserObject,
    count: c_uint,
    flags: c_uint,
) -> Answer {
    let moves = CUuserObjectRetain_flags::CU_GRAPH_USER_OBJECT_MOVE.0;
    world.graph(graph.addr())?;
    fail_if(count == 0 || flags & !moves != 0 || !is_alive(world, object), INVALID)?;
    let its = world.objects.user_objects.get_mut(object.addr()).ok_or(INVALID)?;
    if flags != moves {
        its.count += u64::from(count);
    } else if its.count < u64::from(count) {
        // Measured: the driver does not check the number.
        misuse("more references of a user object are moved to a graph than there are");
        its.count = count.into();
    }
    let objects = &mut world.graph_mut(graph.addr())?.objects;
    let held = objects.entry(object.addr()).or_default();
    *held = held.saturating_add(count);
    Ok(())
}

pub(crate) fn release_in_graph(
    world: &mut World,
    graph: CUgraph,
    object: CUuserObject,
    count: c_uint,
) -> Answer {
    let objects = &mut world.graph_mut(graph.addr())?.objects;
    fail_if(count == 0 || object.is_null(), INVALID)?;
    let held = objects.get(&object.addr()).copied().unwrap_or(0);
    if held < count {
        // Measured: the driver does not check the number.
        misuse("a graph releases more references of a user object than it has");
    }
    let released = held.min(count);
    match held - released {
        0 => objects.remove(&object.addr()),
        left => objects.insert(object.addr(), left),
    };
    world.release_object(object.addr(), released, None);
    Ok(())
}
