//! The functions of communicators.

#![allow(non_snake_case, reason = "the names are those of C")]

use super::outcome::{
    IN_PROGRESS, INVALID_ARGUMENT, INVALID_USAGE, Outcome, REMOTE_ERROR, SUCCESS, call, last_error,
    refuse,
};
use super::{Functions, VERSION, groups, growth, table};
use crate::account::misuse;
use crate::call::{Class, wake};
use crate::state::World;
use crate::state::handles::State;
use crate::state::nccl::board::{Board, Post};
use crate::state::nccl::{Communicator, ID_BYTES, Split};
use crate::thread;
use core::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(super) const FUNCTIONS: Functions = table![
    ncclGetVersion,
    ncclGetUniqueId,
    ncclGetErrorString,
    ncclGetLastError,
    ncclCommInitRank,
    ncclCommInitRankConfig,
    ncclCommInitAll,
    ncclCommSplit,
    ncclCommShrink,
    ncclCommFinalize,
    ncclCommDestroy,
    ncclCommAbort,
    ncclCommGetAsyncError,
    ncclCommCount,
    ncclCommCuDevice,
    ncclCommUserRank,
];

/// An id of C.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct UniqueId(pub(super) [u8; ID_BYTES]);

/// The beginning of the configuration of C, which all versions have.
#[repr(C)]
pub(super) struct Config {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
}

const MAGIC: u32 = 0xcafe_beef;

/// Returns a communicator that can be used.
pub(super) fn alive(world: &mut World, handle: usize) -> Outcome<&mut Communicator> {
    match world.objects.nccl.communicators.state(handle) {
        State::Alive => {}
        State::Dead => {
            misuse("a communicator is used after it was destroyed or aborted");
            return refuse(INVALID_ARGUMENT, "the communicator was destroyed");
        }
        State::Unknown => return refuse(INVALID_ARGUMENT, "not a communicator"),
    }
    match world.objects.nccl.communicators.get_mut(handle) {
        Some(its) => Ok(its),
        None => refuse(INVALID_ARGUMENT, "not a communicator"),
    }
}

/// Returns a communicator for an operation.
pub(super) fn usable(world: &mut World, handle: usize) -> Outcome<&mut Communicator> {
    let its = alive(world, handle)?;
    if its.is_finalized {
        misuse("a communicator is used after it was finalized");
        return refuse(INVALID_USAGE, "the communicator was finalized");
    }
    if !its.is_complete() {
        return refuse(INVALID_ARGUMENT, "the communicator is still being created");
    }
    Ok(its)
}

/// Makes the primary context of a device current in place of the current one, as the real library does (measured).
pub(super) fn replace_current(world: &World, device: usize) -> Outcome {
    let Some((primary, _)) = world.objects.primaries.get(device) else {
        return refuse(INVALID_ARGUMENT, "no such device");
    };
    world.context(*primary)?;
    thread::pop();
    thread::push(*primary);
    Ok(())
}

/// Returns the device of the current context.
pub(super) fn current_device(world: &World) -> Outcome<usize> {
    Ok(match world.current() {
        Ok(current) => world.context(current)?.device,
        // The runtime API begins with the first device.
        Err(_) => 0,
    })
}

/// The creation of a communicator.
pub(super) struct Joining {
    place: *mut *mut c_void,
    board: Arc<Board>,
    rank: u32,
    device: usize,
    is_blocking: bool,
    handle: Option<usize>,
}

impl Joining {
    /// Describes the creation of a communicator on a device. The place is valid until the creation has ended.
    pub(super) fn new(
        place: *mut *mut c_void,
        board: Arc<Board>,
        rank: u32,
        device: usize,
        is_blocking: bool,
    ) -> Self {
        Self { place, board, rank, device, is_blocking, handle: None }
    }

    /// Makes a call that creates a communicator: now, or at the end of the open group. `describe` is called again if
    /// it waits.
    pub(super) fn call(
        name: &'static str,
        describe: impl Fn(&mut World) -> Outcome<Self>,
    ) -> c_int {
        let mut joining: Option<Self> = None;
        groups::note(call(Class::Usual, name, |world| {
            let its = match &mut joining {
                Some(its) => its,
                None => joining.insert(describe(world)?),
            };
            if groups::is_open() {
                // SAFETY: the caller of the function passes a place that is valid until the creation has ended.
                unsafe { its.place.write(core::ptr::null_mut()) };
                joining.take().into_iter().for_each(groups::add_join);
                return Ok(SUCCESS);
            }
            its.begin(world)?;
            its.outcome(world)
        }))
    }

    /// Creates the communicator, and tells the other ranks, once.
    pub(super) fn begin(&mut self, world: &mut World) -> Outcome {
        if self.handle.is_some() {
            return Ok(());
        }
        replace_current(world, self.device)?;
        if !self.board.post("join", self.rank, Post::of(String::new())) {
            return refuse(INVALID_ARGUMENT, "two ranks of a communicator have the same number");
        }
        let its =
            Communicator::new(Arc::clone(&self.board), self.rank, self.device, self.is_blocking);
        let handle = world.objects.nccl.communicators.insert(its);
        self.handle = Some(handle);
        // SAFETY: the caller of the function passes a place that is valid until the creation has ended.
        unsafe { self.place.write(core::ptr::with_exposed_provenance_mut(handle)) };
        wake();
        Ok(())
    }

    /// Returns the outcome: a blocking communicator waits for the other ranks.
    pub(super) fn outcome(&self, _: &mut World) -> Outcome<u32> {
        match (self.board.all("join").is_some(), self.is_blocking) {
            (true, _) => Ok(SUCCESS),
            (false, false) => Ok(IN_PROGRESS),
            (false, true) => Err(World::WAIT.into()),
        }
    }
}

#[cfg_attr(feature = "nccl-symbols", unsafe(no_mangle))]
unsafe extern "C" fn ncclGetVersion(version: *mut c_int) -> c_int {
    if version.is_null() {
        return INVALID_ARGUMENT as i32;
    }
    // SAFETY: the caller passes a place for a number.
    unsafe { version.write(VERSION) };
    0
}

#[cfg_attr(feature = "nccl-symbols", unsafe(no_mangle))]
unsafe extern "C" fn ncclGetErrorString(code: c_int) -> *const c_char {
    let text = match code {
        0 => c"success",
        1 => c"a call of CUDA failed",
        2 => c"a call of the system failed",
        3 => c"an internal error",
        4 => c"an invalid argument",
        5 => c"an invalid use",
        6 => c"a remote error",
        7 => c"in progress",
        _ => c"an unknown code",
    };
    text.as_ptr()
}

#[cfg_attr(feature = "nccl-symbols", unsafe(no_mangle))]
unsafe extern "C" fn ncclGetLastError(_: *mut c_void) -> *const c_char {
    last_error().cast()
}

#[cfg_attr(feature = "nccl-symbols", unsafe(no_mangle))]
unsafe extern "C" fn ncclGetUniqueId(id: *mut UniqueId) -> c_int {
    if let Some(code) = super::fault::hit("ncclGetUniqueId") {
        return code as i32;
    }
    if id.is_null() {
        return INVALID_ARGUMENT as i32;
    }
    // SAFETY: the caller passes a place for an id.
    unsafe { id.write(UniqueId(new_id())) };
    0
}

/// Returns an id that no other process has.
pub(super) fn new_id() -> [u8; ID_BYTES] {
    static IDS: AtomicU64 = AtomicU64::new(1);
    let mut bytes = [0; ID_BYTES];
    bytes[..8].copy_from_slice(&IDS.fetch_add(1, Ordering::Relaxed).to_le_bytes());
    bytes[8..12].copy_from_slice(&std::process::id().to_le_bytes());
    bytes[12..16].copy_from_slice(b"nccl");
    bytes
}

#[cfg_attr(feature = "nccl-symbols", unsafe(no_mangle))]
unsafe extern "C" fn ncclCommInitRank(
    place: *mut *mut c_void,
    ranks: c_int,
    id: UniqueId,
    rank: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { init("ncclCommInitRank", place, ranks, id, rank, core::ptr::null()) }
}

#[cfg_attr(feature = "nccl-symbols", unsafe(no_mangle))]
unsafe extern "C" fn ncclCommInitRankConfig(
    place: *mut *mut c_void,
    ranks: c_int,
    id: UniqueId,
    rank: c_int,
    config: *const Config,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { init("ncclCommInitRankConfig", place, ranks, id, rank, config) }
}

/// # Safety
/// The place is null or valid until the creation has ended. The configuration is null or readable.
unsafe fn init(
    name: &'static str,
    place: *mut *mut c_void,
    ranks: c_int,
    id: UniqueId,
    rank: c_int,
    config: *const Config,
) -> c_int {
    Joining::call(name, |world| {
        if place.is_null() || ranks < 1 || !(0..ranks).contains(&rank) {
            return refuse(INVALID_ARGUMENT, "an invalid rank or number of ranks");
        }
        if growth::joins_by(&id).is_some() {
            misuse("ncclCommInitRank is called with an id of ncclCommGetUniqueId");
            return refuse(INVALID_ARGUMENT, "the id is for ncclCommGrow");
        }
        // SAFETY: the caller's promise.
        let is_blocking = unsafe { reads_blocking(config) }?.unwrap_or(true);
        let device = current_device(world)?;
        let board = board_of(world, &id, ranks.unsigned_abs())?;
        Ok(Joining::new(place, board, rank.unsigned_abs(), device, is_blocking))
    })
}

/// Returns the board of an id. All ranks must have the same number of ranks.
pub(super) fn board_of(world: &mut World, id: &UniqueId, ranks: u32) -> Outcome<Arc<Board>> {
    let board = world.objects.nccl.board(&id.0, ranks);
    if board.ranks != ranks {
        misuse("the ranks of a communicator have different numbers of ranks");
        return refuse(INVALID_ARGUMENT, "the ranks have different numbers of ranks");
    }
    Ok(board)
}

/// Returns whether a configuration asks for a blocking communicator, if it says so.
///
/// # Safety
/// The configuration is null or readable.
pub(super) unsafe fn reads_blocking(config: *const Config) -> Outcome<Option<bool>> {
    // SAFETY: the caller's promise.
    let Some(config) = (unsafe { config.as_ref() }) else {
        return Ok(None);
    };
    if config.magic != MAGIC || config.size < size_of::<Config>() || config.version < 21_400 {
        return refuse(INVALID_ARGUMENT, "the configuration is not initialized");
    }
    match config.blocking {
        0 => Ok(Some(false)),
        1 => Ok(Some(true)),
        c_int::MIN => Ok(None),
        _ => refuse(INVALID_ARGUMENT, "`blocking` is neither 0 nor 1"),
    }
}

#[cfg_attr(feature = "nccl-symbols", unsafe(no_mangle))]
unsafe extern "C" fn ncclCommInitAll(
    places: *mut *mut c_void,
    count: c_int,
    devices: *const c_int,
) -> c_int {
    let mut joining: Vec<Joining> = Vec::new();
    call(Class::Usual, "ncclCommInitAll", |world| {
        if places.is_null() || count < 1 {
            return refuse(INVALID_ARGUMENT, "no communicators");
        }
        if joining.is_empty() {
            let ranks = count.unsigned_abs();
            let board = world.objects.nccl.board(&new_id(), ranks);
            for rank in 0..ranks {
                let device = match devices.is_null() {
                    true => rank as usize,
                    false => {
                        // SAFETY: the caller passes `count` devices.
                        let device = unsafe { devices.add(rank as usize) };
                        // SAFETY: as above, and the element is initialized.
                        unsafe { device.read() }.unsigned_abs() as usize
                    }
                };
                // SAFETY: the caller passes `count` places.
                let place = unsafe { places.add(rank as usize) };
                let board = Arc::clone(&board);
                joining.push(Joining::new(place, board, rank, device, true));
            }
        }
        let before = current_device(world)?;
        for join in &mut joining {
            join.begin(world)?;
        }
        // The runtime API then sets the device that was current before.
        replace_current(world, before)?;
        Ok(SUCCESS)
    })
}

#[cfg_attr(feature = "nccl-symbols", unsafe(no_mangle))]
unsafe extern "C" fn ncclCommSplit(
    communicator: *mut c_void,
    color: c_int,
    key: c_int,
    place: *mut *mut c_void,
    config: *const Config,
) -> c_int {
    let mut begun: Option<Split> = None;
    let mut joining: Option<Joining> = None;
    groups::note(call(Class::Usual, "ncclCommSplit", |world| {
        if place.is_null() || groups::is_open() {
            return refuse(INVALID_USAGE, "a split needs a place, and is not simulated in groups");
        }
        // SAFETY: the caller passes a configuration or null.
        let wanted = unsafe { reads_blocking(config) }?;
        let its = usable(world, communicator.addr())?;
        if begun.is_none() {
            // SAFETY: the caller passes a place for a handle.
            unsafe { place.write(core::ptr::null_mut()) };
            let topic = format!("split-{}", its.derived);
            its.derived += 1;
            its.board.post(&topic, its.rank, Post::of(format!("{color} {key}")));
            wake();
            let is_blocking = wanted.unwrap_or(its.is_blocking);
            let place = place.expose_provenance();
            let split = Split { topic, color, is_blocking, place };
            if !its.is_blocking {
                // `ncclCommGetAsyncError` continues it, and says that it is in progress, unlike this call (measured).
                its.split = Some(split);
                return Ok(SUCCESS);
            }
            begun = Some(split);
        }
        if let Some(split) = begun.as_ref().filter(|_| joining.is_none()) {
            if its.board.all(&split.topic).is_none() {
                return Err(World::WAIT.into());
            }
            joining = split.joining(its);
        }
        let Some(joining) = &mut joining else {
            return Ok(SUCCESS);
        };
        joining.begin(world)?;
        joining.outcome(world)
    }))
}

impl Split {
    /// Returns the creation of the new communicator, when all ranks have passed their colors and keys. A rank without a
    /// color has none.
    fn joining(&self, parent: &Communicator) -> Option<Joining> {
        let posts = parent.board.all(&self.topic)?;
        if self.color < 0 {
            return None;
        }
        let mut members: Vec<(i64, usize)> = Vec::new();
        for (number, post) in posts.iter().enumerate() {
            let mut words = post.what.split(' ').filter_map(|word| word.parse::<i64>().ok());
            if words.next() == Some(self.color.into()) {
                members.push((words.next().unwrap_or(0), number));
            }
        }
        members.sort_unstable();
        let own = members.iter().position(|(_, number)| *number == parent.rank as usize)?;
        let ranks = u32::try_from(members.len()).unwrap_or(0);
        Some(Joining::new(
            core::ptr::with_exposed_provenance_mut(self.place),
            parent.board.child(&format!("{}-{}", self.topic, self.color), ranks),
            u32::try_from(own).unwrap_or(0),
            parent.device,
            self.is_blocking,
        ))
    }
}

/// Continues a split of a communicator that does not block. Returns whether it still waits.
fn continue_split(world: &mut World, communicator: usize) -> Outcome<bool> {
    let its = alive(world, communicator)?;
    let Some(split) = its.split.clone() else {
        return Ok(false);
    };
    if its.board.all(&split.topic).is_none() {
        return Ok(true);
    }
    its.split = None;
    if let Some(mut joining) = split.joining(its) {
        // A thread of NCCL does it, so the current context of this one stays.
        let before = thread::pop();
        let begun = joining.begin(world);
        thread::pop();
        before.into_iter().for_each(thread::push);
        begun?;
    }
    Ok(false)
}

#[cfg_attr(feature = "nccl-symbols", unsafe(no_mangle))]
unsafe extern "C" fn ncclCommShrink(
    communicator: *mut c_void,
    excluded: *const c_int,
    count: c_int,
    place: *mut *mut c_void,
    config: *const Config,
    flags: c_int,
) -> c_int {
    Joining::call("ncclCommShrink", |world| {
        if place.is_null() || excluded.is_null() || count < 1 {
            return refuse(INVALID_ARGUMENT, "no excluded ranks");
        }
        // SAFETY: the caller passes `count` ranks.
        let list = unsafe { core::slice::from_raw_parts(excluded, count.unsigned_abs() as usize) };
        // SAFETY: the caller passes a configuration or null.
        let wanted = unsafe { reads_blocking(config) }?;
        let its = alive(world, communicator.addr())?;
        let remain: Vec<u32> =
            (0..its.board.ranks).filter(|rank| !list.contains(&(*rank as i32))).collect();
        let Some(rank) = remain.iter().position(|rank| *rank == its.rank) else {
            return refuse(INVALID_USAGE, "a rank that is excluded must not call ncclCommShrink");
        };
        if flags & 1 != 0 {
            // The operations end, but the communicator stays.
            its.life.is_aborted.store(true, Ordering::Release);
        }
        let name = format!("shrink-{}-{remain:?}", its.derived);
        its.derived += 1;
        let ranks = u32::try_from(remain.len()).unwrap_or(0);
        Ok(Joining::new(
            place,
            its.board.child(&name, ranks),
            u32::try_from(rank).unwrap_or(0),
            its.device,
            wanted.unwrap_or(its.is_blocking),
        ))
    })
}

#[cfg_attr(feature = "nccl-symbols", unsafe(no_mangle))]
unsafe extern "C" fn ncclCommFinalize(communicator: *mut c_void) -> c_int {
    call(Class::Usual, "ncclCommFinalize", |world| {
        let its = usable(world, communicator.addr())?;
        if !its.registered.is_empty() {
            misuse("a communicator is finalized while memory is registered with it");
        }
        its.is_finalized = true;
        Ok(SUCCESS)
    })
}

#[cfg_attr(feature = "nccl-symbols", unsafe(no_mangle))]
unsafe extern "C" fn ncclCommDestroy(communicator: *mut c_void) -> c_int {
    call(Class::Surviving, "ncclCommDestroy", |world| {
        let its = alive(world, communicator.addr())?;
        let (device, last) = (its.device, its.last.clone());
        // Its operations must be complete (measured).
        if world.runs.fatal.is_none() {
            world.run_until(|executor| last.values().all(|id| executor.is_done(*id)))?;
        }
        let its = alive(world, communicator.addr())?;
        its.life.is_destroyed.store(true, Ordering::Release);
        remove(world, communicator.addr(), device)
    })
}

#[cfg_attr(feature = "nccl-symbols", unsafe(no_mangle))]
unsafe extern "C" fn ncclCommAbort(communicator: *mut c_void) -> c_int {
    call(Class::Surviving, "ncclCommAbort", |world| {
        let its = alive(world, communicator.addr())?;
        its.life.is_aborted.store(true, Ordering::Release);
        let device = its.device;
        remove(world, communicator.addr(), device)
    })
}

fn remove(world: &mut World, handle: usize, device: usize) -> Outcome<u32> {
    if let Some(its) = world.objects.nccl.communicators.remove(handle) {
        its.board.end(its.rank);
    }
    wake();
    if world.runs.fatal.is_none() {
        replace_current(world, device)?;
    }
    Ok(SUCCESS)
}

#[cfg_attr(feature = "nccl-symbols", unsafe(no_mangle))]
unsafe extern "C" fn ncclCommGetAsyncError(communicator: *mut c_void, error: *mut c_int) -> c_int {
    call(Class::Always, "ncclCommGetAsyncError", |world| {
        let is_splitting = continue_split(world, communicator.addr())?;
        let its = alive(world, communicator.addr())?;
        let set = its.life.error.load(Ordering::Acquire);
        let code = match () {
            () if set != 0 => set,
            () if its.board.has_lost() => REMOTE_ERROR,
            () if is_splitting || !its.is_complete() => IN_PROGRESS,
            () => SUCCESS,
        };
        if error.is_null() {
            return refuse(INVALID_ARGUMENT, "the place for the error is null");
        }
        // SAFETY: the caller passes a place for a code.
        unsafe { error.write(code as i32) };
        Ok(SUCCESS)
    })
}

/// Writes a number of a communicator.
fn number(
    name: &'static str,
    communicator: *mut c_void,
    place: *mut c_int,
    read: impl Fn(&Communicator) -> u32,
) -> c_int {
    call(Class::Always, name, |world| {
        let its = alive(world, communicator.addr())?;
        if place.is_null() {
            return refuse(INVALID_ARGUMENT, "the place is null");
        }
        // SAFETY: the caller passes a place for a number.
        unsafe { place.write(read(its) as i32) };
        Ok(SUCCESS)
    })
}

#[cfg_attr(feature = "nccl-symbols", unsafe(no_mangle))]
unsafe extern "C" fn ncclCommCount(communicator: *mut c_void, count: *mut c_int) -> c_int {
    number("ncclCommCount", communicator, count, |its| its.board.ranks)
}

#[cfg_attr(feature = "nccl-symbols", unsafe(no_mangle))]
unsafe extern "C" fn ncclCommCuDevice(communicator: *mut c_void, device: *mut c_int) -> c_int {
    number("ncclCommCuDevice", communicator, device, |its| u32::try_from(its.device).unwrap_or(0))
}

#[cfg_attr(feature = "nccl-symbols", unsafe(no_mangle))]
unsafe extern "C" fn ncclCommUserRank(communicator: *mut c_void, rank: *mut c_int) -> c_int {
    number("ncclCommUserRank", communicator, rank, |its| its.rank)
}
