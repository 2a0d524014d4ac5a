//! Loads and stores.

use super::Launch;
use super::atomic::update_word;
use super::block::{BlockState, Cluster};
use super::fault::{FaultKind, Raise};
use super::interleave::Interleaver;
use super::registers::{LANES, Slot, each_lane};
use super::warp::{Warp, lanes_of};
use super::watch::{Watch, thread_of};
use crate::check::SiteId;
use crate::device::{Access, Device, Region};
use crate::program::{
    Address, Base, CLUSTER_STEP, Condition, Element, Image, LOCAL_WINDOW, PARAM_WINDOW,
    SHARED_WINDOW, Space, Transfer, WINDOW,
};
use crate::texture::{Texels, Texture};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Regions that are kept for the next access.
const CACHED: usize = 4;
/// The first address of the memory for the synchronization of a grid.
pub(super) const GRID_WINDOW: u64 = 0x0500_0000_0000_0000;

/// What the warps of a block share while they run.
pub(super) struct Context<'a, 'd> {
    pub(super) launch: &'a Launch<'a>,
    pub(super) image: &'a Image,
    pub(super) device: &'d dyn Device,
    /// The shared memory of each block of the cluster.
    pub(super) shared: &'a mut [Vec<u8>],
    pub(super) cluster: &'a mut Cluster,
    pub(super) block: &'a mut BlockState,
    /// The coordinates of the block in the grid.
    pub(super) id: [u32; 3],
    /// The number of the block in its cluster.
    pub(super) rank: usize,
    pub(super) stack: u32,
    pub(super) steps: u64,
    pub(super) regions: &'a mut Regions<'d>,
    /// The executions of each instruction on this thread of the host, if the launch counts them.
    pub(super) counts: &'a mut [u64],
    /// What the checks of the launch see.
    pub(super) watch: Option<&'a mut Watch<'d>>,
    pub(super) interleaver: Option<&'a mut Interleaver>,
}

impl Context<'_, '_> {
    /// Counts the execution of an instruction by lanes, if the launch counts executions.
    #[inline]
    pub(super) fn count(&mut self, pc: u32, lanes: u32) {
        if let Some(count) = self.counts.get_mut(pc as usize) {
            *count += u64::from(lanes.count_ones());
        }
    }
}

/// Regions of memory, and objects, that were used last.
pub(super) struct Regions<'a> {
    cached: [Region<'a>; CACHED],
    next: usize,
    /// Words for the synchronization of a grid.
    grid: &'a [AtomicU64],
    /// The texture and the surface that were used last, with their handles.
    pub(super) texture: Option<(u64, Arc<Texture>)>,
    pub(super) surface: Option<(u64, Arc<Texels>)>,
}

impl<'a> Regions<'a> {
    const EMPTY: Region<'a> = Region::new(0, &[]);

    pub(super) fn new(grid: &'a [AtomicU64]) -> Self {
        Self { cached: [Self::EMPTY; CACHED], next: 0, grid, texture: None, surface: None }
    }

    /// Returns the region that contains the bytes.
    #[inline]
    pub(super) fn find(
        &mut self,
        device: &'a dyn Device,
        (address, len, access): (u64, u64, Access),
        by: impl Fn() -> SiteId,
    ) -> Result<&Region<'a>, String> {
        let found = self.cached.iter().position(|its| its.contains(address, len, access));
        let at = match found {
            Some(at) => at,
            None => self.add(device, (address, len, access), by())?,
        };
        Ok(&self.cached[at])
    }

    /// Asks the device for a region, and returns its index in the cache.
    #[cold]
    fn add(
        &mut self,
        device: &'a dyn Device,
        (address, len, access): (u64, u64, Access),
        by: SiteId,
    ) -> Result<usize, String> {
        let region = if address.wrapping_sub(GRID_WINDOW) < 8 * self.grid.len() as u64 {
            Region::new(GRID_WINDOW, self.grid)
        } else {
            device.region(address, len, access, by)?
        };
        if !region.contains(address, len, access) {
            return Err("nothing is there".to_owned());
        }
        let at = self.next;
        self.cached[at] = region;
        self.next = (at + 1) % CACHED;
        Ok(at)
    }

    /// Forgets the regions, after a free.
    pub(super) fn clear(&mut self) {
        self.cached = [Self::EMPTY; CACHED];
    }
}

/// A place that a lane accesses.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    Global(u64),
    /// The rank of the block, and the offset.
    Shared(usize, usize),
    Local(usize),
    Param(usize),
}

/// Names what an access does, for a report.
pub(super) fn verb(access: Access) -> &'static str {
    match access {
        Access::Read => "load from",
        Access::Write => "store to",
        Access::Atomic => "atomic operation on",
    }
}

impl Warp {
    #[inline(always)]
    pub(super) fn addresses(&self, address: &Address) -> [u64; LANES] {
        let mut addresses = [address.offset as u64; LANES];
        match address.base {
            Base::None => {}
            Base::Wide(slot) => {
                let base = &self.registers.wide[slot as usize];
                for (address, base) in addresses.iter_mut().zip(base) {
                    *address = base.wrapping_add(*address);
                }
            }
            Base::Narrow(slot) => {
                let base = &self.registers.narrow[slot as usize];
                for (address, base) in addresses.iter_mut().zip(base) {
                    *address = base.wrapping_add(*address as u32).into();
                }
            }
        }
        addresses
    }

    /// Returns the addresses of the lanes in `mask`. The other lanes have the address of one of them.
    #[inline(always)]
    fn addresses_of(&self, mask: u32, address: &Address) -> [u64; LANES] {
        let mut addresses = self.addresses(address);
        let first = addresses[mask.trailing_zeros() as usize % LANES];
        each_lane(!mask, |lane| addresses[lane] = first);
        addresses
    }

    /// Returns the place of `len` bytes at an address of a lane, after checks of bounds and alignment.
    pub(super) fn place(
        &self,
        cx: &Context<'_, '_>,
        lane: usize,
        (space, address): (Space, u64),
        len: u64,
        access: Access,
    ) -> Result<Place, Raise> {
        if address & (len - 1) != 0 {
            return Err(misaligned(lane, address, len, access));
        }
        let outside = |offset: u64, of: &str, size: usize| {
            let verb = verb(access);
            let text =
                format!("{verb} {len} bytes at the offset {offset:#x} of {of} of {size} bytes");
            Err(illegal(lane, address, text))
        };
        let fits = |offset: u64, size: usize| {
            let size = size as u64;
            offset < size && size - offset >= len
        };
        let shared = |offset: u64| {
            let rank = match offset / CLUSTER_STEP {
                0 => cx.rank,
                rank => rank as usize - 1,
            };
            let at = offset % CLUSTER_STEP;
            let size = cx.shared.get(rank).map_or(0, Vec::len);
            match fits(at, size) {
                true => Ok(Place::Shared(rank, at as usize)),
                false => outside(at, "shared memory", size),
            }
        };
        let local = |offset: u64| {
            let size = self.local[lane].len();
            match fits(offset, size) {
                true => Ok(Place::Local(offset as usize)),
                false => outside(offset, "local memory", size),
            }
        };
        let param = |offset: u64| {
            let size = cx.launch.params.len();
            match fits(offset, size) && access == Access::Read {
                true => Ok(Place::Param(offset as usize)),
                false => outside(offset, "the parameters", size),
            }
        };
        match space {
            Space::Global | Space::Const => Ok(Place::Global(address)),
            Space::Shared => shared(address),
            Space::Local => local(address),
            Space::Frame => local(u64::from(self.sp[lane].wrapping_add(address as u32))),
            Space::Param => param(address),
            Space::Generic => {
                if address < SHARED_WINDOW {
                    Ok(Place::Global(address))
                } else if address - SHARED_WINDOW < WINDOW {
                    shared(address - SHARED_WINDOW)
                } else if address.wrapping_sub(LOCAL_WINDOW) < WINDOW {
                    local(address - LOCAL_WINDOW)
                } else if address.wrapping_sub(PARAM_WINDOW) < WINDOW {
                    param(address - PARAM_WINDOW)
                } else {
                    Ok(Place::Global(address))
                }
            }
        }
    }

    /// Returns the region of a global address, for the instruction that runs.
    pub(super) fn region<'c, 'a>(
        &self,
        cx: &'c mut Context<'_, 'a>,
        lane: usize,
        address: u64,
        len: u64,
        access: Access,
    ) -> Result<&'c Region<'a>, Raise> {
        let (device, block) = (cx.device, cx.id);
        let by = || SiteId { block, thread: thread_of(self.index, lane), pc: self.pc };
        cx.regions.find(device, (address, len, access), by).map_err(|what| {
            let text = format!("{} {len} bytes at {address:#x}: {what}", verb(access));
            illegal(lane, address, text)
        })
    }

    /// Reads bytes of a place.
    pub(super) fn read(
        &self,
        cx: &mut Context<'_, '_>,
        lane: usize,
        place: Place,
        size: u32,
    ) -> Result<u64, Raise> {
        let size = size as usize;
        let bytes = match place {
            Place::Global(address) => {
                let region = self.region(cx, lane, address, size as u64, Access::Read)?;
                return Ok(read_word(region, address, size as u32));
            }
            Place::Shared(rank, at) => &cx.shared[rank][at..at + size],
            Place::Local(at) => &self.local[lane][at..at + size],
            Place::Param(at) => &cx.launch.params[at..at + size],
        };
        Ok(from_bytes(bytes))
    }

    /// Writes bytes to a place.
    pub(super) fn write(
        &mut self,
        cx: &mut Context<'_, '_>,
        lane: usize,
        place: Place,
        size: u32,
        value: u64,
    ) -> Result<(), Raise> {
        let len = size as usize;
        let bytes = match place {
            Place::Global(address) => {
                let region = self.region(cx, lane, address, u64::from(size), Access::Write)?;
                let mut writer = Writer::default();
                writer.write(region, address, size, value);
                writer.flush();
                return Ok(());
            }
            Place::Shared(rank, at) => &mut cx.shared[rank][at..at + len],
            Place::Local(at) => &mut self.local[lane][at..at + len],
            Place::Param(_) => return Ok(()),
        };
        bytes.copy_from_slice(&value.to_le_bytes()[..len]);
        Ok(())
    }

    #[inline(never)]
    pub(super) fn load(
        &mut self,
        cx: &mut Context<'_, '_>,
        mask: u32,
        transfer: &Transfer,
    ) -> Result<(), Raise> {
        let Transfer { address, size, is_signed, elements, .. } = transfer;
        let elements = elements.as_slice();
        let total = u64::from(transfer.bytes());
        let first = mask.trailing_zeros() as usize % LANES;
        // The parameters of a kernel are the same for all lanes.
        if address.space == Space::Param && address.base == Base::None {
            let place = (Space::Param, address.offset as u64);
            let Place::Param(at) = self.place(cx, first, place, total, Access::Read)? else {
                return Ok(());
            };
            for (index, element) in elements.iter().enumerate() {
                let at = at + index * *size as usize;
                let value = from_bytes(&cx.launch.params[at..at + *size as usize]);
                let value = sign(value, *size, *is_signed);
                self.registers.set_element(mask, *element, |_| value);
            }
            return Ok(());
        }
        let addresses = self.addresses_of(mask, address);
        if is_global(address.space, &addresses) {
            let region = self.region(cx, first, addresses[first], total, Access::Read)?;
            if self.load_region(mask, region, &addresses, transfer) {
                return Ok(());
            }
        } else if let Some((base, shared)) = own_shared(cx, address.space, &addresses, total) {
            let bytes = |address: u64, size| {
                let at = (address - base) as usize;
                shared.get(at..at + size as usize).map_or(0, from_bytes)
            };
            self.load_elements(mask, &addresses, transfer, bytes);
            return Ok(());
        }
        for (index, element) in elements.iter().enumerate() {
            let mut values = [0; LANES];
            for lane in lanes_of(mask) {
                let place = (address.space, addresses[lane]);
                let place = self.place(cx, lane, place, total, Access::Read)?;
                let place = after(place, index * *size as usize);
                values[lane] = self.read(cx, lane, place, *size)?;
            }
            self.registers
                .set_element(mask, *element, |lane| sign(values[lane], *size, *is_signed));
        }
        Ok(())
    }

    /// Loads from one region, if it contains the bytes of all lanes.
    fn load_region(
        &mut self,
        mask: u32,
        region: &Region<'_>,
        addresses: &[u64; LANES],
        transfer: &Transfer,
    ) -> bool {
        let Transfer { size, elements, .. } = transfer;
        let elements = elements.as_slice();
        let total = u64::from(transfer.bytes());
        match (elements, size) {
            ([Element::Narrow(slot)], 4) => {
                if let Some(words) = neighbours::<16>(region, addresses) {
                    let word = |lane: usize| words[lane / 2].load(Ordering::Relaxed);
                    let half = |lane: usize| (word(lane) >> (32 * (lane % 2))) as u32;
                    self.registers.set(mask, *slot, half);
                    return true;
                }
            }
            ([Element::Wide(slot)], 8) => {
                if let Some(words) = neighbours::<32>(region, addresses) {
                    self.registers.set(mask, *slot, |lane| words[lane].load(Ordering::Relaxed));
                    return true;
                }
            }
            _ => {}
        }
        let is_inside = contains_all((region.start, region.end), addresses, total);
        if is_inside {
            let word = |address, size| read_word(region, address, size);
            self.load_elements(mask, addresses, transfer, word);
        }
        is_inside
    }

    /// Loads elements, whose places were checked. `read` returns the bytes at an address.
    #[inline(always)]
    fn load_elements(
        &mut self,
        mask: u32,
        addresses: &[u64; LANES],
        transfer: &Transfer,
        read: impl Fn(u64, u32) -> u64,
    ) {
        let Transfer { size, is_signed, elements, .. } = transfer;
        for (index, element) in elements.as_slice().iter().enumerate() {
            let offset = index as u64 * u64::from(*size);
            match (element, size) {
                // The loop is compiled for the commonest size.
                (Element::Narrow(slot), 4) => {
                    self.registers
                        .set(mask, *slot, |lane| read(addresses[lane] + offset, 4) as u32);
                }
                _ => self.registers.set_element(mask, *element, |lane| {
                    sign(read(addresses[lane] + offset, *size), *size, *is_signed)
                }),
            }
        }
    }

    #[inline(never)]
    pub(super) fn store(
        &mut self,
        cx: &mut Context<'_, '_>,
        mask: u32,
        transfer: &Transfer,
    ) -> Result<(), Raise> {
        let Transfer { address, size, elements, .. } = transfer;
        let elements = elements.as_slice();
        let total = u64::from(transfer.bytes());
        let addresses = self.addresses_of(mask, address);
        let is_global = is_global(address.space, &addresses);
        if is_global {
            let first = mask.trailing_zeros() as usize % LANES;
            let region = self.region(cx, first, addresses[first], total, Access::Write)?;
            if self.store_region(mask, region, &addresses, transfer) {
                return Ok(());
            }
        }
        // In shared and local memory, the lanes of 8 bytes are written in two halves of the warp. In each, the first
        // lane wins.
        let order = |lane: usize| if total == 8 && !is_global { lane ^ 15 } else { lane };
        for (index, element) in elements.iter().enumerate() {
            let values = self.registers.element(*element);
            for lane in (0..LANES).map(order).filter(|lane| mask >> lane & 1 != 0) {
                let place = (address.space, addresses[lane]);
                let place = self.place(cx, lane, place, total, Access::Write)?;
                let place = after(place, index * *size as usize);
                self.write(cx, lane, place, *size, values[lane])?;
            }
        }
        Ok(())
    }

    /// Stores to one region, if it contains the bytes of all lanes.
    fn store_region(
        &self,
        mask: u32,
        region: &Region<'_>,
        addresses: &[u64; LANES],
        transfer: &Transfer,
    ) -> bool {
        let Transfer { size, elements, .. } = transfer;
        let elements = elements.as_slice();
        let total = u64::from(transfer.bytes());
        match (elements, size) {
            ([Element::Narrow(slot)], 4) => {
                if let Some(words) = neighbours::<16>(region, addresses) {
                    let values = self.registers.get::<u32>(*slot);
                    for (word, pair) in words.iter().zip(values.chunks_exact(2)) {
                        let both = u64::from(pair[0]) | u64::from(pair[1]) << 32;
                        word.store(both, Ordering::Relaxed);
                    }
                    return true;
                }
            }
            ([Element::Wide(slot)], 8) => {
                if let Some(words) = neighbours::<32>(region, addresses) {
                    for (word, value) in words.iter().zip(self.registers.get::<u64>(*slot)) {
                        word.store(*value, Ordering::Relaxed);
                    }
                    return true;
                }
            }
            _ => {}
        }
        let is_inside = contains_all((region.start, region.end), addresses, total);
        if is_inside {
            let mut values = [[0u64; LANES]; 8];
            for (element, values) in elements.iter().zip(&mut values) {
                *values = self.registers.element(*element);
            }
            let mut writer = Writer::default();
            each_lane(mask, |lane| {
                for (index, values) in values.iter().take(elements.len()).enumerate() {
                    let at = addresses[lane] + index as u64 * u64::from(*size);
                    writer.write(region, at, *size, values[lane]);
                }
            });
            writer.flush();
        }
        is_inside
    }

    pub(super) fn is_space(
        &mut self,
        cx: &Context<'_, '_>,
        mask: u32,
        space: Space,
        p: Slot,
        a: Base,
    ) {
        let address = Address { space, base: a, offset: 0 };
        let addresses = self.addresses(&address);
        let mut found = 0;
        each_lane(mask, |lane| {
            let address = addresses[lane];
            let is_in = |window: u64| address.wrapping_sub(window) < WINDOW;
            let is = match space {
                Space::Shared => is_in(SHARED_WINDOW),
                Space::Local | Space::Frame => is_in(LOCAL_WINDOW),
                Space::Param => is_in(PARAM_WINDOW),
                Space::Const => is_constant(cx.launch, address),
                // Parameters of kernels are in global memory too.
                Space::Global | Space::Generic => {
                    !is_in(SHARED_WINDOW)
                        && !is_in(LOCAL_WINDOW)
                        && !is_constant(cx.launch, address)
                }
            };
            found |= u32::from(is) << lane;
        });
        self.registers.set_predicate(mask, p, found);
    }

    pub(super) fn copy_async(
        &mut self,
        cx: &mut Context<'_, '_>,
        mask: u32,
        (to, from): (&Address, &Address),
        size: u32,
        (read, ignore): (Option<Slot>, Option<Condition>),
    ) -> Result<(), Raise> {
        let (to_addresses, from_addresses) = (self.addresses(to), self.addresses(from));
        let ignored = ignore.map_or(0, |ignore| self.registers.condition(ignore));
        let read = read.map(|read| self.registers.narrow[read as usize]);
        for lane in lanes_of(mask) {
            let len = u64::from(size);
            let to = self.place(cx, lane, (to.space, to_addresses[lane]), len, Access::Write)?;
            let source = (from.space, from_addresses[lane]);
            let from = self.place(cx, lane, source, len, Access::Read)?;
            let count = match (read, ignored >> lane & 1) {
                (_, 1) => 0,
                (Some(read), _) => read[lane].min(size),
                (None, _) => size,
            };
            for at in 0..size as usize {
                let value = match at < count as usize {
                    true => self.read(cx, lane, after(from, at), 1)?,
                    false => 0,
                };
                self.write(cx, lane, after(to, at), 1, value)?;
            }
        }
        Ok(())
    }

    pub(super) fn map_shared(
        &mut self,
        mask: u32,
        (d, a, rank): (Slot, Slot, Slot),
        is_wide: bool,
        is_generic: bool,
    ) {
        let rank = self.registers.narrow[rank as usize];
        let window = if is_generic { SHARED_WINDOW } else { 0 };
        let map = |address: u64, rank: u32| {
            let offset = address.wrapping_sub(window) % CLUSTER_STEP;
            window + (u64::from(rank) + 1) * CLUSTER_STEP + offset
        };
        if is_wide {
            let a = self.registers.wide[a as usize];
            self.registers.set(mask, d, |lane| map(a[lane], rank[lane]));
        } else {
            let a = self.registers.narrow[a as usize];
            self.registers.set(mask, d, |lane| map(u64::from(a[lane]), rank[lane]) as u32);
        }
    }

    pub(super) fn rank_of(
        &mut self,
        cx: &Context<'_, '_>,
        mask: u32,
        d: Slot,
        a: Base,
        is_generic: bool,
    ) {
        let addresses = self.addresses(&Address { space: Space::Shared, base: a, offset: 0 });
        let window = if is_generic { SHARED_WINDOW } else { 0 };
        let own = cx.rank as u32;
        self.registers.set(mask, d, |lane| {
            match (addresses[lane].wrapping_sub(window) / CLUSTER_STEP) as u32 {
                0 => own,
                rank => rank - 1,
            }
        });
    }
}

/// Returns whether all addresses are in global memory.
fn is_global(space: Space, addresses: &[u64; LANES]) -> bool {
    match space {
        Space::Global | Space::Const => true,
        Space::Generic => addresses.iter().all(|address| *address < SHARED_WINDOW),
        _ => false,
    }
}

/// Returns the shared memory of the own block and its address, if it contains `len` bytes at each address.
fn own_shared<'a>(
    cx: &'a Context<'_, '_>,
    space: Space,
    addresses: &[u64; LANES],
    len: u64,
) -> Option<(u64, &'a [u8])> {
    let base = match space {
        Space::Shared => 0,
        Space::Generic => SHARED_WINDOW,
        _ => return None,
    };
    let shared = cx.shared.get(cx.rank)?;
    let is_inside = contains_all((base, base + shared.len() as u64), addresses, len);
    is_inside.then_some((base, shared))
}

/// Returns whether a range of addresses contains `len` bytes at each address, and the addresses are aligned.
#[inline]
fn contains_all((start, end): (u64, u64), addresses: &[u64; LANES], len: u64) -> bool {
    let Some(last) = (end - start).checked_sub(len) else { return false };
    let (mut outside, mut low) = (0, 0);
    for address in addresses {
        // The upper bit is set if the offset is beyond the last one. Compilers turn this into vectors.
        let offset = address.wrapping_sub(start);
        outside |= offset | last.wrapping_sub(offset);
        low |= address;
    }
    outside >> 63 == 0 && low & (len - 1) == 0
}

/// Returns the words of a warp whose lanes access one element each, one after another, from the start of a word.
/// `WORDS` is 16 for elements of 4 bytes, and 32 for those of 8 bytes. The region contains the element of some lane.
#[inline(always)]
fn neighbours<'a, const WORDS: usize>(
    region: &Region<'a>,
    addresses: &[u64; LANES],
) -> Option<&'a [AtomicU64; WORDS]> {
    let first = addresses[0];
    let mut differs = first & 7;
    for (lane, address) in addresses.iter().enumerate() {
        differs |= address ^ first.wrapping_add((8 * WORDS / LANES * lane) as u64);
    }
    if differs != 0 || first < region.start || region.end - first < 8 * WORDS as u64 {
        return None;
    }
    let start = ((first - region.base) >> 3) as usize;
    region.words.get(start..start + WORDS)?.try_into().ok()
}

/// Returns whether an address is that of a variable in constant memory.
fn is_constant(launch: &Launch<'_>, address: u64) -> bool {
    let mut variables = launch.program.variables.iter().zip(launch.variables);
    variables.any(|(its, start)| its.is_const && address.wrapping_sub(*start) < its.size)
}

/// Returns the place some bytes further.
pub(super) fn after(place: Place, bytes: usize) -> Place {
    match place {
        Place::Global(address) => Place::Global(address + bytes as u64),
        Place::Shared(rank, at) => Place::Shared(rank, at + bytes),
        Place::Local(at) => Place::Local(at + bytes),
        Place::Param(at) => Place::Param(at + bytes),
    }
}

pub(super) fn illegal(lane: usize, address: u64, text: String) -> Raise {
    Raise::new(FaultKind::IllegalAddress, lane, text).at(address)
}

fn misaligned(lane: usize, address: u64, len: u64, access: Access) -> Raise {
    let text =
        format!("{} {len} bytes at {address:#x}, which is not a multiple of {len}", verb(access));
    Raise::new(FaultKind::MisalignedAddress, lane, text).at(address)
}

pub(super) fn from_bytes(bytes: &[u8]) -> u64 {
    match bytes.len() {
        4 => bytes.try_into().map_or(0, |bytes| u64::from(u32::from_le_bytes(bytes))),
        8 => bytes.try_into().map_or(0, u64::from_le_bytes),
        _ => bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte)),
    }
}

#[inline]
pub(super) fn sign(value: u64, size: u32, is_signed: bool) -> u64 {
    match (is_signed, size) {
        (true, 1) => value as i8 as u64,
        (true, 2) => value as i16 as u64,
        (true, 4) => value as i32 as u64,
        _ => value,
    }
}

/// Reads a value, which does not cross words, since it is aligned.
#[inline]
pub(super) fn read_word(region: &Region<'_>, address: u64, size: u32) -> u64 {
    let word = region.word(address);
    if size == 8 {
        return word;
    }
    word >> (8 * (address & 7)) & ((1 << (8 * size)) - 1)
}

/// Joins the stores of lanes to one word.
#[derive(Default)]
pub(super) struct Writer<'a> {
    word: Option<&'a AtomicU64>,
    value: u64,
    written: u64,
}

impl<'a> Writer<'a> {
    #[inline]
    pub(super) fn write(&mut self, region: &Region<'a>, address: u64, size: u32, value: u64) {
        let Some(word) = region.atomic(address) else {
            update_word(region, address, size, |_| value);
            return;
        };
        if !self.word.is_some_and(|its| std::ptr::eq(its, word)) {
            self.flush();
            self.word = Some(word);
        }
        let shift = 8 * (address & 7);
        let field = (u64::MAX >> (64 - 8 * size)) << shift;
        self.value = self.value & !field | value << shift & field;
        self.written |= field;
    }

    /// Stores what is joined so far.
    #[inline]
    pub(super) fn flush(&mut self) {
        if let Some(word) = self.word.take() {
            if self.written == u64::MAX {
                word.store(self.value, Ordering::Relaxed);
            } else {
                let (value, written) = (self.value, self.written);
                let update = |old: u64| Some(old & !written | value);
                let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update);
            }
        }
        self.value = 0;
        self.written = 0;
    }
}
