//! Communicators that grow: new ranks join those of an old communicator with an id that one of the old ranks creates.

#![allow(non_snake_case, reason = "the names are those of C")]

use super::communicators::{
    Config, Joining, UniqueId, board_of, current_device, new_id, reads_blocking, usable,
};
use super::outcome::{INVALID_ARGUMENT, INVALID_USAGE, Outcome, SUCCESS, call, refuse};
use super::{Functions, table};
use crate::account::misuse;
use crate::call::{Class, wake};
use crate::state::World;
use crate::state::nccl::Communicator;
use crate::state::nccl::board::Post;
use core::ffi::{c_int, c_void};

pub(super) const FUNCTIONS: Functions = table![ncclCommGetUniqueId, ncclCommGrow];

/// Where an id tells how many ranks the old communicator has. Other ids have a zero there.
const OLD_RANKS: core::ops::Range<usize> = 16..20;

/// Returns the number of ranks of the communicator that grows with an id, if the id is for that.
pub(super) fn joins_by(id: &UniqueId) -> Option<u32> {
    let ranks = id.0[OLD_RANKS].try_into().map_or(0, u32::from_le_bytes);
    (ranks != 0).then_some(ranks)
}

/// The name under which the ranks of a communicator find the id of their next growth.
fn topic(growths: u32) -> String {
    format!("growth-{growths}")
}

#[cfg_attr(feature = "nccl-symbols", unsafe(no_mangle))]
unsafe extern "C" fn ncclCommGetUniqueId(communicator: *mut c_void, id: *mut UniqueId) -> c_int {
    call(Class::Usual, "ncclCommGetUniqueId", |world| {
        let its = usable(world, communicator.addr())?;
        if id.is_null() {
            return refuse(INVALID_ARGUMENT, "the place for the id is null");
        }
        let mut new = new_id();
        new[OLD_RANKS].copy_from_slice(&its.board.ranks.to_le_bytes());
        let post = Post { what: its.derived.to_string(), bytes: new.into() };
        if !its.board.post(&topic(its.growths), 0, post) {
            misuse("a communicator gets a second id before it has grown with the first one");
            return refuse(INVALID_USAGE, "the communicator has an id that is not used yet");
        }
        wake();
        // SAFETY: the caller passes a place for an id.
        unsafe { id.write(UniqueId(new)) };
        Ok(SUCCESS)
    })
}

#[cfg_attr(feature = "nccl-symbols", unsafe(no_mangle))]
unsafe extern "C" fn ncclCommGrow(
    communicator: *mut c_void,
    ranks: c_int,
    id: *const UniqueId,
    rank: c_int,
    place: *mut *mut c_void,
    config: *const Config,
) -> c_int {
    // SAFETY: the caller passes an id or null.
    let id = unsafe { id.as_ref() };
    Joining::call("ncclCommGrow", |world| {
        if place.is_null() || ranks < 1 {
            return refuse(INVALID_ARGUMENT, "no place, or an invalid number of ranks");
        }
        // SAFETY: the caller passes a configuration or null.
        let wanted = unsafe { reads_blocking(config) }?;
        let all = ranks.unsigned_abs();
        if communicator.is_null() {
            let own = new_rank(id, rank, all)?;
            let (device, board) = (current_device(world)?, board_of(world, own.0, all)?);
            return Ok(Joining::new(place, board, own.1, device, wanted.unwrap_or(true)));
        }
        let its = usable(world, communicator.addr())?;
        if rank != -1 {
            return refuse(INVALID_ARGUMENT, "a rank of the communicator must pass -1");
        }
        if all <= its.board.ranks {
            return refuse(INVALID_ARGUMENT, "the new communicator must have more ranks");
        }
        let (own, device, next) = (its.rank, its.device, next_id(its, id)?);
        let is_blocking = wanted.unwrap_or(its.is_blocking);
        let board = board_of(world, &next, all)?;
        let its = usable(world, communicator.addr())?;
        its.growths += 1;
        Ok(Joining::new(place, board, own, device, is_blocking))
    })
}

/// Returns the id and the number of a rank that joins.
fn new_rank(id: Option<&UniqueId>, rank: c_int, ranks: u32) -> Outcome<(&UniqueId, u32)> {
    let Some(id) = id else {
        return refuse(INVALID_ARGUMENT, "a new rank must pass the id");
    };
    let Some(rank) = u32::try_from(rank).ok().filter(|rank| *rank < ranks) else {
        return refuse(INVALID_ARGUMENT, "the new rank is not a rank of the new communicator");
    };
    match joins_by(id) {
        None => misuse("a rank joins a communicator with an id that is not of ncclCommGetUniqueId"),
        Some(old) if rank < old => {
            misuse("a rank joins a communicator with the number of a rank that it already has");
        }
        Some(_) => return Ok((id, rank)),
    }
    refuse(INVALID_ARGUMENT, "the new rank has another id or the number of an old rank")
}

/// Returns the id with which a communicator grows. Waits until one of its ranks has created it.
fn next_id(its: &Communicator, passed: Option<&UniqueId>) -> Outcome<UniqueId> {
    if its.board.ranks == 1 && passed.is_none() {
        misuse("the only rank of a communicator grows without the id");
        return refuse(INVALID_ARGUMENT, "the only rank must pass the id");
    }
    let posts = its.board.posts(&topic(its.growths), 1);
    let Some(post) = posts.and_then(|posts| posts.into_iter().next()) else {
        return Err(World::WAIT.into());
    };
    let id = post.bytes.as_ref().try_into().map(UniqueId);
    let Ok(id) = id else {
        return refuse(INVALID_ARGUMENT, "the id has another length");
    };
    if passed.is_some_and(|passed| passed.0 != id.0) {
        misuse("a rank of a communicator that grows passes another id than that of the growth");
        return refuse(INVALID_ARGUMENT, "the communicator has another id");
    }
    if post.what != its.derived.to_string() {
        misuse("a communicator is split or shrunk between ncclCommGetUniqueId and ncclCommGrow");
        return refuse(INVALID_ARGUMENT, "the id was created before a split");
    }
    Ok(id)
}
