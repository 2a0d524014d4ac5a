#![doc = include_str!("init.md")]

mod operands;
mod registers;

use super::{Clusters, Reporter, places, thread};
use crate::check::{Address as Accessed, Check};
use crate::device::{Access, Validity};
use crate::engine::access::{Context, Place, after, from_bytes, read_word, sign};
use crate::engine::block::coordinates;
use crate::engine::matrix::{Square, from_lanes, oriented, to_lanes};
use crate::engine::registers::{ALL, LANES, Registers, each_lane};
use crate::engine::tensor::Plan;
use crate::engine::warp::Warp;
use crate::program::matrix::{Matrix, Rows};
use crate::program::{
    Address, Atomic, AtomicFunction, AtomicWide, Bank, Bulk, CLUSTER_STEP, Condition, Element,
    LOCAL_WINDOW, Mbarrier, Multimem, MultimemFunction, Op, Pass, Passed, SHARED_WINDOW, Space,
    TensorAccess, TensorCopy, Together, Transfer, WINDOW,
};
use operands::{Register, Role, each_operand, of_base, of_condition, of_element, of_width};
use registers::{Origin, Values};
use std::sync::atomic::Ordering;

/// Answers of the device that are kept for the next access.
const CACHED: usize = 4;
/// The most bytes that are compared at once for the accesses of a warp.
const SPAN: u64 = 1024;
/// The bytes above the frame of a caller in which a function of the driver returns its result.
const RESULT: usize = 64;

/// What is known of a warp.
#[derive(Debug, Default)]
struct Threads {
    values: Values,
    /// The bits of local memory that each lane has written. Bytes beyond the end were not.
    local: Vec<Vec<u8>>,
}

/// The blocks of a cluster.
#[derive(Debug, Default)]
struct Unit {
    warps: Vec<Vec<Threads>>,
    /// The bits of shared memory that were written. Bytes beyond the end were not.
    shared: Vec<Vec<u8>>,
}

/// The state of the check.
#[derive(Debug, Default)]
pub(super) struct Init<'d> {
    unit: Clusters<Unit>,
    cached: Vec<Validity<'d>>,
    next: usize,
    scratch: Registers,
}

/// An effect that a value can have.
#[derive(Clone, Copy, Debug)]
enum Use {
    Condition,
    Address,
    Store,
}

impl Use {
    fn text(self) -> String {
        let what = match self {
            Self::Condition => "a condition depends on",
            Self::Address => "an address depends on",
            Self::Store => "a store to memory of the host writes a value that depends on",
        };
        format!("{what} memory that was never written, which another instruction has loaded")
    }
}

/// The warp that executes an instruction, and the lanes that do.
#[derive(Clone, Copy)]
struct Lanes<'w> {
    warp: &'w Warp,
    rank: usize,
    mask: u32,
}

impl Lanes<'_> {
    fn origin(&self, lane: usize, place: Place) -> Origin {
        let address = match place {
            Place::Global(address) => address,
            Place::Shared(rank, at) => SHARED_WINDOW + (rank as u64 + 1) * CLUSTER_STEP + at as u64,
            Place::Local(at) | Place::Param(at) => LOCAL_WINDOW + at as u64,
        };
        Origin { pc: self.warp.pc, thread: thread(self.warp, lane), address }
    }
}

impl<'d> Init<'d> {
    /// Continues with a cluster.
    pub(super) fn begin_unit(&mut self, out: &Reporter<'_>, number: u64) {
        let blocks = out.ranks.len();
        let threads = out.launch.block.iter().product::<u32>() as usize;
        self.unit.begin(number, || Unit {
            warps: std::iter::repeat_with(|| {
                std::iter::repeat_with(Threads::default).take(threads.div_ceil(LANES)).collect()
            })
            .take(blocks)
            .collect(),
            shared: vec![Vec::new(); blocks],
        });
        let image = &out.launch.program.kernels[out.launch.kernel].image;
        self.scratch.narrow.resize(image.narrow as usize, [0; LANES]);
        self.scratch.wide.resize(image.wide as usize, [0; LANES]);
        self.scratch.predicates.resize(image.predicates as usize, 0);
    }

    pub(super) fn end_unit(&mut self) {
        self.unit.end();
    }

    fn threads(&mut self, lanes: Lanes<'_>) -> &mut Threads {
        &mut self.unit.current.warps[lanes.rank][lanes.warp.index as usize]
    }

    /// Called before the guard of an instruction is looked at.
    pub(super) fn condition(
        &mut self,
        out: &mut Reporter<'_>,
        (warp, rank, mask): (&Warp, usize, u32),
        condition: Condition,
    ) {
        let lanes = Lanes { warp, rank, mask };
        if !self.threads(lanes).values.is_empty() {
            self.check(out, lanes, of_condition(condition), Use::Condition);
        }
    }

    /// Reports the use of a register, if it has undefined bits.
    fn check(&mut self, out: &mut Reporter<'_>, lanes: Lanes<'_>, register: Register, how: Use) {
        let values = &mut self.threads(lanes).values;
        let undefined = values.lanes(lanes.mask, register);
        each_lane(undefined, |lane| {
            let Origin { pc, thread: loader, address } = values.origin(register, lane);
            let load = out.event(lanes.rank, loader, pc);
            let at = match address {
                _ if address.wrapping_sub(LOCAL_WINDOW) < WINDOW => Accessed::Local {
                    block: load.block,
                    thread: coordinates(loader.into(), out.launch.block),
                    offset: (address - LOCAL_WINDOW) as u32,
                },
                _ if address.wrapping_sub(SHARED_WINDOW) < WINDOW => {
                    let offset = address - SHARED_WINDOW;
                    let rank = (offset / CLUSTER_STEP) as usize - 1;
                    let block = out.ranks.get(rank).copied().unwrap_or_default();
                    Accessed::Shared { block, offset: (offset % CLUSTER_STEP) as u32 }
                }
                _ => Accessed::Global(address),
            };
            let event = out.event(lanes.rank, thread(lanes.warp, lane), lanes.warp.pc);
            out.report((Check::Initcheck, || how.text()), event, Some(load), Some(at));
        });
        values.clear(undefined, register);
    }

    /// Called before an instruction.
    pub(super) fn before(
        &mut self,
        out: &mut Reporter<'d>,
        warp: &Warp,
        cx: &Context<'_, 'd>,
        (op, plans): (&Op, &[(usize, Plan)]),
        mask: u32,
    ) {
        let lanes = Lanes { warp, rank: cx.rank, mask };
        if !self.threads(lanes).values.is_empty() {
            each_operand(op, |role, register| match role {
                Role::Condition => self.check(out, lanes, register, Use::Condition),
                Role::Address => self.check(out, lanes, register, Use::Address),
                Role::Read | Role::Write => {}
            });
        }
        match op {
            Op::Load(its) => self.load(out, cx, lanes, its),
            Op::Store(its) => self.store(out, cx, lanes, its),
            // After the operation, which says whether the value changes.
            Op::Atomic(_) | Op::Together { .. } => {}
            // When the addresses on the devices are known.
            Op::Multimem(_) => {}
            Op::AtomicWide(its) => self.atomic_wide(out, cx, lanes, its),
            Op::CopyAsync { to, from, size, read, ignore } => {
                let count = |lane: usize| match (read, ignore) {
                    (_, Some(its)) if warp.registers.condition(*its) >> lane & 1 != 0 => 0,
                    (Some(slot), _) => warp.registers.narrow[*slot as usize][lane].min(*size),
                    _ => *size,
                };
                self.copy_async(out, cx, lanes, (to, from), (*size, count));
            }
            Op::CopyBulk(its) => self.copy_bulk(out, cx, lanes, its),
            Op::CopyTensor(its) => {
                for (lane, plan) in plans {
                    self.copy_tensor(out, cx, (lanes, *lane), (its, plan));
                }
            }
            Op::Mbarrier { address, operation, .. } => {
                if let Mbarrier::Init { .. } = operation {
                    self.write_all(out, cx, lanes, address, 8);
                }
                self.pass(lanes, op);
            }
            Op::Call { arguments, .. } | Op::CallIndirect { arguments, .. } => {
                self.forget_above(lanes);
                arguments.iter().for_each(|pass| self.pass_value(lanes, pass, true));
            }
            Op::Intrinsic { .. } => {
                self.forget_above(lanes);
                // The addresses of allocations change.
                self.cached.clear();
                each_lane(mask, |lane| {
                    let top = warp.top[lane] as usize;
                    fill(&mut self.threads(lanes).local, lane, top, &[0xff; RESULT]);
                });
            }
            Op::Results(passes) => {
                passes.iter().for_each(|pass| self.pass_value(lanes, pass, false));
            }
            Op::Alloca { .. } => {
                self.forget_above(lanes);
                self.pass(lanes, op);
            }
            Op::Return => self.forget_recursive(cx, lanes),
            _ => self.pass(lanes, op),
        }
    }

    /// Passes undefined bits on from registers to registers.
    fn pass(&mut self, lanes: Lanes<'_>, op: &Op) {
        let threads = &mut self.unit.current.warps[lanes.rank][lanes.warp.index as usize];
        if !threads.values.is_empty() {
            threads.values.pass(lanes.mask, op, &lanes.warp.registers, &mut self.scratch);
        }
    }

    /// The same for an operation of lanes together. The lanes `here` take part.
    pub(super) fn execute(
        &mut self,
        out: &mut Reporter<'d>,
        (warp, cx): (&Warp, &Context<'_, 'd>),
        (here, members): (u32, u32),
        operation: &Together,
    ) {
        let lanes = Lanes { warp, rank: cx.rank, mask: here };
        if let Together::Matrix(matrix) = operation {
            match &**matrix {
                Matrix::Load(rows) => return self.load_rows(out, cx, lanes, rows),
                Matrix::Store(rows) => return self.store_rows(out, cx, lanes, rows),
                Matrix::Transpose { .. } | Matrix::Multiply(_) | Matrix::Meet => {}
            }
        }
        let threads = self.threads(lanes);
        if !threads.values.is_empty() {
            threads.values.pass_together((here, members), operation, &warp.registers);
        }
    }

    /// Checks the addresses of rows, and returns the lanes that name them.
    fn rows<'w>(&mut self, out: &mut Reporter<'d>, lanes: Lanes<'w>, rows: &Rows) -> Lanes<'w> {
        let lanes = Lanes { mask: lanes.mask & rows.lanes(), ..lanes };
        if let Some(base) = of_base(rows.address.base) {
            self.check(out, lanes, base, Use::Address);
        }
        lanes
    }

    fn load_rows(
        &mut self,
        out: &mut Reporter<'d>,
        cx: &Context<'_, 'd>,
        lanes: Lanes<'_>,
        rows: &Rows,
    ) {
        let addressing = self.rows(out, lanes, rows);
        let range = (&rows.address, Rows::BYTES.into());
        let mut squares = vec![(Square::default(), [Origin::default(); 8]); rows.registers.len()];
        if !self.is_written(out, addressing, range.0, range.1) {
            self.each_place(cx, addressing, range, Access::Read, |its, lane, place| {
                let (square, origins) = &mut squares[lane / 8];
                let half = |its: &mut Self, offset| {
                    u128::from(!its.written(out, lanes, lane, after(place, offset), 8))
                };
                let unwritten = half(its, 0) | half(its, 8) << 64;
                square[lane % 8] = std::array::from_fn(|at| (unwritten >> (16 * at)) as u16);
                let first = unwritten.trailing_zeros() as usize / 8;
                origins[lane % 8] = lanes.origin(lane, after(place, first));
            });
        }
        let values = &mut self.threads(lanes).values;
        for (d, (square, origins)) in rows.registers.iter().zip(squares) {
            let bits = to_lanes(&oriented(square, rows.is_transposed)).map(u64::from);
            let origins = std::array::from_fn(|lane| {
                let (row, column) = Rows::place(lane);
                match (rows.is_transposed, bits[lane] as u16) {
                    (false, _) => origins[row],
                    (true, 0) => origins[column + 1],
                    (true, _) => origins[column],
                }
            });
            values.set(lanes.mask, (Bank::Narrow, *d), &bits, &origins);
        }
    }

    fn store_rows(
        &mut self,
        out: &mut Reporter<'d>,
        cx: &Context<'_, 'd>,
        lanes: Lanes<'_>,
        rows: &Rows,
    ) {
        let addressing = self.rows(out, lanes, rows);
        let values = &self.threads(lanes).values;
        let squares: Vec<Square> = rows
            .registers
            .iter()
            .map(|a| {
                let bits = values.bits((Bank::Narrow, *a)).map(|bits| bits as u32);
                oriented(from_lanes(lanes.mask, &bits), rows.is_transposed)
            })
            .collect();
        let range = (&rows.address, Rows::BYTES.into());
        self.each_place(cx, addressing, range, Access::Write, |its, lane, place| {
            for (at, undefined) in squares[lane / 8][lane % 8].iter().enumerate() {
                let place = after(place, 2 * at);
                its.write(out, lanes, (lane, place), 2, u64::from(!undefined));
            }
        });
    }

    /// Makes the local memory above the frames of lanes undefined, for a frame that begins there.
    fn forget_above(&mut self, lanes: Lanes<'_>) {
        let local = &mut self.threads(lanes).local;
        each_lane(lanes.mask, |lane| {
            if let Some(bytes) = local.get_mut(lane) {
                bytes.truncate(lanes.warp.top[lane] as usize);
            }
        });
    }

    /// Makes the registers of a recursive function defined when it returns: those of the caller are set again.
    fn forget_recursive(&mut self, cx: &Context<'_, '_>, lanes: Lanes<'_>) {
        let values = &mut self.threads(lanes).values;
        if values.is_empty() {
            return;
        }
        let functions = cx.image.functions.iter().filter(|its| its.entry <= lanes.warp.pc);
        let Some(its) = functions.max_by_key(|its| its.entry).filter(|its| its.is_recursive) else {
            return;
        };
        values.clear_all(lanes.mask, |(bank, slot)| {
            let (first, count) = match bank {
                Bank::Narrow => its.narrow,
                Bank::Wide => its.wide,
                Bank::Predicate => its.predicates,
            };
            slot.wrapping_sub(first) < count
        });
    }

    /// Passes undefined bits on between the frame of a caller and that of the callee above it.
    fn pass_value(&mut self, lanes: Lanes<'_>, pass: &Pass, is_argument: bool) {
        let Threads { values, local } = self.threads(lanes);
        let size = pass.size as usize;
        let register = match pass.caller {
            Passed::Frame(_) => None,
            Passed::Register(element) => of_element(element),
            Passed::Predicate(slot) => Some((Bank::Predicate, slot)),
        };
        let undefined = register.map(|register| values.bits(register));
        let (mut bits, mut origins) = ([0; LANES], [Origin::default(); LANES]);
        each_lane(lanes.mask, |lane| {
            let callee = (lanes.warp.top[lane] + pass.callee) as usize;
            if let Passed::Frame(offset) = pass.caller {
                let caller = (lanes.warp.sp[lane] + offset) as usize;
                let (from, to) = if is_argument { (caller, callee) } else { (callee, caller) };
                let written: Vec<u8> =
                    (0..size).map(|at| get(local, lane, from + at, 1) as u8).collect();
                return fill(local, lane, to, &written);
            }
            let size = size.min(8);
            let is_predicate = matches!(pass.caller, Passed::Predicate(_));
            if is_argument {
                let undefined = undefined.map_or(0, |its| its[lane]);
                let written = match is_predicate {
                    true if undefined != 0 => 0,
                    true => u64::MAX,
                    false => !undefined,
                };
                fill(local, lane, callee, &written.to_le_bytes()[..size]);
            } else {
                let unwritten = !get(local, lane, callee, size) & field(size as u32);
                bits[lane] = if is_predicate { u64::from(unwritten != 0) } else { unwritten };
                origins[lane] = lanes.origin(lane, Place::Local(callee));
            }
        });
        if let Some(register) = register.filter(|_| !is_argument) {
            values.set(lanes.mask, register, &bits, &origins);
        }
    }

    /// Returns what the device knows of the contents of global memory.
    fn validity(&mut self, out: &Reporter<'d>, address: u64, len: u64) -> Validity<'d> {
        let has = |its: &Validity<'_>| {
            address >= its.start && address < its.end && its.end - address >= len
        };
        if let Some(found) = self.cached.iter().find(|its| has(its)) {
            return *found;
        }
        let found = out.device.validity(address, len);
        if self.cached.len() < CACHED {
            self.cached.push(found);
        } else {
            self.cached[self.next % CACHED] = found;
            self.next += 1;
        }
        found
    }

    /// Returns whether all bytes that lanes access were written. A few accesses that are hard to see have to be looked
    /// at one by one.
    fn is_written(
        &mut self,
        out: &Reporter<'d>,
        lanes: Lanes<'_>,
        address: &Address,
        len: u64,
    ) -> bool {
        match address.space {
            Space::Param | Space::Const => return true,
            Space::Local | Space::Frame => return false,
            Space::Global | Space::Shared | Space::Generic => {}
        }
        let addresses = lanes.warp.addresses(address);
        let (mut low, mut high) = (u64::MAX, 0);
        if lanes.mask == ALL {
            // Compilers turn this into vectors.
            for address in addresses {
                (low, high) = (low.min(address), high.max(address));
            }
        } else {
            each_lane(lanes.mask, |lane| {
                (low, high) = (low.min(addresses[lane]), high.max(addresses[lane]));
            });
        }
        let Some(end) = high.checked_add(len) else { return false };
        let window = if address.space == Space::Shared { 0 } else { SHARED_WINDOW };
        if address.space != Space::Global && low >= window {
            let start = low - window;
            // Shared memory of the own block.
            if end - window > CLUSTER_STEP {
                return false;
            }
            let shared = &self.unit.current.shared[lanes.rank];
            let bytes = shared.get(start as usize..(end - window) as usize);
            return bytes.is_some_and(|bytes| bytes.iter().all(|byte| *byte == 0xff));
        }
        let validity = self.validity(out, low, end - low);
        if validity.start > low || validity.end < end {
            return false;
        }
        let Some(region) = validity.written else { return true };
        if end - low > SPAN {
            let mut all = true;
            each_lane(lanes.mask, |lane| {
                for offset in (0..len).step_by(8) {
                    let size = (len - offset).min(8) as u32;
                    all &= read_word(&region, addresses[lane] + offset, size) == field(size);
                }
            });
            return all;
        }
        let first = (low - region.base) / 8;
        let last = (end - 1 - region.base) / 8;
        let Some(words) = region.words.get(first as usize..=last as usize) else { return false };
        // The bytes of the first and the last word that no lane accesses do not matter.
        let before = !(u64::MAX << (8 * (low & 7)));
        let behind = !(u64::MAX >> (8 * (7 - ((end - 1) & 7))));
        let count = words.len();
        words.iter().enumerate().all(|(index, word)| {
            let ignored =
                if index == 0 { before } else { 0 } | if index + 1 == count { behind } else { 0 };
            word.load(Ordering::Relaxed) | ignored == u64::MAX
        })
    }

    /// Returns the bits of a place that were written.
    fn written(
        &mut self,
        out: &Reporter<'d>,
        lanes: Lanes<'_>,
        lane: usize,
        place: Place,
        size: u32,
    ) -> u64 {
        match place {
            Place::Global(address) => {
                let found = self.validity(out, address, size.into()).written;
                let found = found.filter(|its| its.contains(address, size.into(), Access::Read));
                found.map_or(field(size), |its| read_word(&its, address, size))
            }
            Place::Shared(rank, at) => get(&self.unit.current.shared, rank, at, size as usize),
            Place::Local(at) => get(&self.threads(lanes).local, lane, at, size as usize),
            Place::Param(_) => field(size),
        }
    }

    /// Sets the bits of a place that were written.
    fn write(
        &mut self,
        out: &Reporter<'d>,
        lanes: Lanes<'_>,
        (lane, place): (usize, Place),
        size: u32,
        bits: u64,
    ) {
        let bytes = &bits.to_le_bytes()[..size as usize];
        match place {
            Place::Global(address) => {
                let found = self.validity(out, address, size.into()).written;
                let Some(region) =
                    found.filter(|its| its.contains(address, size.into(), Access::Read))
                else {
                    return;
                };
                if let Some(word) = region.atomic(address) {
                    let shift = 8 * (address & 7);
                    let others = word.load(Ordering::Relaxed) & !(field(size) << shift);
                    word.store(others | (bits & field(size)) << shift, Ordering::Relaxed);
                }
            }
            Place::Shared(rank, at) => fill(&mut self.unit.current.shared, rank, at, bytes),
            Place::Local(at) => fill(&mut self.threads(lanes).local, lane, at, bytes),
            Place::Param(_) => {}
        }
    }

    /// Calls `f` with the place of each lane that may access `len` bytes.
    fn each_place(
        &mut self,
        cx: &Context<'_, 'd>,
        lanes: Lanes<'_>,
        (address, len): (&Address, u64),
        access: Access,
        mut f: impl FnMut(&mut Self, usize, Place),
    ) {
        let addresses = lanes.warp.addresses(address);
        each_lane(lanes.mask, |lane| {
            let at = (address.space, addresses[lane]);
            // Other accesses end the kernel.
            if let Ok(place) = lanes.warp.place(cx, lane, at, len, access) {
                f(self, lane, place);
            }
        });
    }

    /// Notes that lanes write defined bytes.
    fn write_all(
        &mut self,
        out: &Reporter<'d>,
        cx: &Context<'_, 'd>,
        lanes: Lanes<'_>,
        address: &Address,
        len: u32,
    ) {
        if self.is_written(out, lanes, address, len.into()) {
            return;
        }
        self.each_place(cx, lanes, (address, len.into()), Access::Write, |its, lane, place| {
            for offset in (0..len).step_by(8) {
                let size = (len - offset).min(8);
                its.write(out, lanes, (lane, after(place, offset as usize)), size, u64::MAX);
            }
        });
    }

    fn load(&mut self, out: &Reporter<'d>, cx: &Context<'_, 'd>, lanes: Lanes<'_>, its: &Transfer) {
        let Transfer { address, size, is_signed, elements, .. } = its;
        let elements = elements.as_slice();
        if self.is_written(out, lanes, address, its.bytes().into()) {
            let values = &mut self.threads(lanes).values;
            if !values.is_empty() {
                let registers = elements.iter().filter_map(|its| of_element(*its));
                registers.for_each(|register| values.clear(lanes.mask, register));
            }
            return;
        }
        let mut loaded = vec![([0; LANES], [Origin::default(); LANES]); elements.len()];
        let range = (address, its.bytes().into());
        self.each_place(cx, lanes, range, Access::Read, |its, lane, place| {
            for (index, (bits, origins)) in loaded.iter_mut().enumerate() {
                let place = after(place, index * *size as usize);
                let size = (*size).min(8);
                let unwritten = !its.written(out, lanes, lane, place, size) & field(size);
                bits[lane] = sign(unwritten, size, *is_signed);
                let first = after(place, unwritten.trailing_zeros() as usize / 8);
                origins[lane] = lanes.origin(lane, first);
            }
        });
        let values = &mut self.threads(lanes).values;
        for (element, (bits, origins)) in elements.iter().zip(&loaded) {
            if let Some(register) = of_element(*element) {
                values.set(lanes.mask, register, &narrowed(register, bits), origins);
            }
        }
    }

    fn store(
        &mut self,
        out: &mut Reporter<'d>,
        cx: &Context<'_, 'd>,
        lanes: Lanes<'_>,
        its: &Transfer,
    ) {
        let Transfer { address, size, elements, .. } = its;
        let elements = elements.as_slice();
        let values = &self.threads(lanes).values;
        let is_undefined =
            |its: &Element| of_element(*its).is_some_and(|its| values.lanes(lanes.mask, its) != 0);
        if values.is_empty() || !elements.iter().any(is_undefined) {
            return self.write_all(out, cx, lanes, address, its.bytes());
        }
        let undefined: Vec<[u64; LANES]> = elements
            .iter()
            .map(|its| of_element(*its).map_or([0; LANES], |its| values.bits(its)))
            .collect();
        let mut shown = 0;
        let range = (address, its.bytes().into());
        self.each_place(cx, lanes, range, Access::Write, |its, lane, place| {
            let size = (*size).min(8);
            let is_whole = undefined.iter().all(|its| its[lane] & field(size) == field(size));
            if let (true, Place::Global(at)) = (is_whole, place) {
                shown |= u32::from(its.validity(out, at, size.into()).is_host_visible) << lane;
            }
            for (index, undefined) in undefined.iter().enumerate() {
                let place = after(place, index * size as usize);
                its.write(out, lanes, (lane, place), size, !undefined[lane]);
            }
        });
        if let Some(register) = elements.iter().find_map(|its| of_element(*its)) {
            self.check(out, Lanes { mask: shown, ..lanes }, register, Use::Store);
        }
    }

    /// Called after an atomic operation of lanes. Those in `changed` wrote the value.
    pub(super) fn atomic(
        &mut self,
        out: &Reporter<'d>,
        (warp, rank, shared): (&Warp, usize, &[Vec<u8>]),
        (mask, changed): (u32, u32),
        its: &Atomic,
    ) {
        let lanes = Lanes { warp, rank, mask };
        let Atomic { address, function, size, d, value, new, .. } = *its;
        let bank = of_width(size == 8);
        let is_written = self.is_written(out, lanes, &address, size.into());
        let values = &mut self.threads(lanes).values;
        if is_written && values.is_empty() {
            return;
        }
        let value = values.bits((bank, value));
        let new = new.map(|new| values.bits((bank, new)));
        let (mut bits, mut origins) = ([0; LANES], [Origin::default(); LANES]);
        let places = places(warp, (rank, shared), mask, &address, size);
        each_lane(places.shared | places.global, |lane| {
            let place = match places.shared >> lane & 1 {
                0 => Place::Global(places.addresses[lane]),
                _ => {
                    let (rank, offset) = places.at(lane);
                    Place::Shared(rank, offset as usize)
                }
            };
            let old = !self.written(out, lanes, lane, place, size) & field(size);
            let value = value[lane] & field(size);
            let next = match function {
                AtomicFunction::Exchange => value,
                AtomicFunction::CompareAndSwap if old | value != 0 => field(size),
                AtomicFunction::CompareAndSwap if changed >> lane & 1 != 0 => {
                    new.map_or(0, |new| new[lane])
                }
                AtomicFunction::CompareAndSwap => old,
                _ => combined(function, old | value, size),
            };
            self.write(out, lanes, (lane, place), size, !next);
            (bits[lane], origins[lane]) = (old, lanes.origin(lane, place));
        });
        if let Some(d) = d {
            self.threads(lanes).values.set(mask, (bank, d), &bits, &origins);
        }
    }

    /// Called before an operation of a lane at a multicast address.
    pub(super) fn multimem(
        &mut self,
        out: &Reporter<'d>,
        (warp, rank): (&Warp, usize),
        (lane, starts): (usize, &[u64]),
        its: &Multimem,
    ) {
        let Multimem { function, size, .. } = *its;
        let lanes = Lanes { warp, rank, mask: 1 << lane };
        for (index, slot) in its.elements.iter().enumerate() {
            let register = (of_width(size == 8), *slot);
            let offset = index as u64 * u64::from(size);
            let places = starts.iter().map(|start| Place::Global(start.wrapping_add(offset)));
            let value = self.threads(lanes).values.bits(register)[lane] & field(size);
            let (mut loaded, mut origin) = (0, Origin::default());
            for place in places {
                let old = match function {
                    MultimemFunction::Store => 0,
                    _ => !self.written(out, lanes, lane, place, size) & field(size),
                };
                match function {
                    MultimemFunction::LoadReduce { .. } => {
                        if loaded == 0 {
                            let first = old.trailing_zeros() as usize / 8;
                            origin = lanes.origin(lane, after(place, first));
                        }
                        loaded |= old;
                    }
                    MultimemFunction::Store => {
                        self.write(out, lanes, (lane, place), size, !value);
                    }
                    MultimemFunction::Reduce(function) => {
                        let next = combined(function, old | value, size);
                        self.write(out, lanes, (lane, place), size, !next);
                    }
                }
            }
            if let MultimemFunction::LoadReduce { function, .. } = function {
                let bits = [combined(function, loaded, size); LANES];
                let values = &mut self.threads(lanes).values;
                values.set(lanes.mask, register, &bits, &[origin; LANES]);
            }
        }
    }

    /// An exchange of 128 bits. Whether a comparison succeeds is not known, so its memory has the undefined bits of
    /// both values.
    fn atomic_wide(
        &mut self,
        out: &Reporter<'d>,
        cx: &Context<'_, 'd>,
        lanes: Lanes<'_>,
        its: &AtomicWide,
    ) {
        let AtomicWide { address, d, compare, value, .. } = its;
        let new = value.map(|slot| self.threads(lanes).values.bits((Bank::Wide, slot)));
        let mut olds = [([0; LANES], [Origin::default(); LANES]); 2];
        self.each_place(cx, lanes, (address, 16), Access::Atomic, |its, lane, place| {
            for (half, (bits, origins)) in olds.iter_mut().enumerate() {
                let place = after(place, 8 * half);
                let old = !its.written(out, lanes, lane, place, 8);
                let kept = if compare.is_some() { old } else { 0 };
                its.write(out, lanes, (lane, place), 8, !(kept | new[half][lane]));
                (bits[lane], origins[lane]) = (old, lanes.origin(lane, place));
            }
        });
        for (slot, (bits, origins)) in d.iter().flatten().zip(&olds) {
            self.threads(lanes).values.set(lanes.mask, (Bank::Wide, *slot), bits, origins);
        }
    }

    /// Copies of `size` bytes. The first `count` of them are read, and the others are zero.
    fn copy_async(
        &mut self,
        out: &Reporter<'d>,
        cx: &Context<'_, 'd>,
        lanes: Lanes<'_>,
        (to, from): (&Address, &Address),
        (size, count): (u32, impl Fn(usize) -> u32),
    ) {
        if self.is_written(out, lanes, from, size.into()) {
            return self.write_all(out, cx, lanes, to, size);
        }
        let sources = lanes.warp.addresses(from);
        self.each_place(cx, lanes, (to, size.into()), Access::Write, |its, lane, to| {
            let at = (from.space, sources[lane]);
            let Ok(from) = lanes.warp.place(cx, lane, at, size.into(), Access::Read) else {
                return;
            };
            let count = count(lane) as usize;
            for offset in 0..size as usize {
                let written = match offset < count {
                    true => its.written(out, lanes, lane, after(from, offset), 1),
                    false => 0xff,
                };
                its.write(out, lanes, (lane, after(to, offset)), 1, written);
            }
        });
    }

    /// A bulk copy, or a reduction of elements.
    fn copy_bulk(
        &mut self,
        out: &Reporter<'d>,
        cx: &Context<'_, 'd>,
        lanes: Lanes<'_>,
        its: &Bulk,
    ) {
        let (to, from) = (lanes.warp.addresses(&its.to), lanes.warp.addresses(&its.from));
        let sizes = &lanes.warp.registers.narrow[its.size as usize];
        let step = its.reduce.map_or(8, |(_, step)| step);
        each_lane(lanes.mask, |lane| {
            for to in lanes.warp.targets(lane, to[lane], its.multicast) {
                for offset in (0..u64::from(sizes[lane])).step_by(step as usize) {
                    let source = (its.from.space, from[lane].wrapping_add(offset));
                    let target = (its.to.space, to.wrapping_add(offset));
                    let is_reduction = its.reduce.is_some();
                    self.copy_element(
                        out,
                        cx,
                        (lanes, lane),
                        (source, target),
                        (step, is_reduction),
                    );
                }
            }
        });
    }

    /// The same for a tensor. Elements outside of it have values.
    fn copy_tensor(
        &mut self,
        out: &Reporter<'d>,
        cx: &Context<'_, 'd>,
        (lanes, lane): (Lanes<'_>, usize),
        (its, plan): (&TensorCopy, &Plan),
    ) {
        let (address, multicast, function) = match its.access {
            TensorAccess::Load { to, multicast, .. } => (to, multicast, None),
            TensorAccess::Store { from, function } => (from, None, function),
            TensorAccess::Prefetch => return,
        };
        let is_load = matches!(its.access, TensorAccess::Load { .. });
        let address = lanes.warp.addresses(&address)[lane];
        let step = plan.map.element.bytes();
        for start in lanes.warp.targets(lane, address, multicast) {
            for piece in &plan.pieces.list {
                for offset in (0..piece.bytes).step_by(step as usize) {
                    let shared =
                        (Space::Shared, plan.map.swizzle.place(start + piece.offset + offset));
                    let step = step as u32;
                    let Some(address) = piece.address else {
                        let place = lanes.warp.place(cx, lane, shared, step.into(), Access::Write);
                        if let (true, Ok(place)) = (is_load, place) {
                            self.write(out, lanes, (lane, place), step, u64::MAX);
                        }
                        continue;
                    };
                    let global = (Space::Global, address.wrapping_add(offset));
                    let places = if is_load { (global, shared) } else { (shared, global) };
                    self.copy_element(out, cx, (lanes, lane), places, (step, function.is_some()));
                }
            }
        }
    }

    /// A copy of an element, or its combination with that of the target, which is undefined if one of them has undefined
    /// bits.
    fn copy_element(
        &mut self,
        out: &Reporter<'d>,
        cx: &Context<'_, 'd>,
        (lanes, lane): (Lanes<'_>, usize),
        (source, target): ((Space, u64), (Space, u64)),
        (size, is_reduction): (u32, bool),
    ) {
        let place = |at, access| lanes.warp.place(cx, lane, at, size.into(), access);
        // Other accesses end the kernel.
        let (Ok(source), Ok(target)) = (place(source, Access::Read), place(target, Access::Write))
        else {
            return;
        };
        let mut written = self.written(out, lanes, lane, source, size);
        if is_reduction {
            written &= self.written(out, lanes, lane, target, size);
            written = if written == field(size) { written } else { 0 };
        }
        self.write(out, lanes, (lane, target), size, written);
    }
}

/// Returns the undefined bits of a combination of values, given those of any of the values.
fn combined(function: AtomicFunction, undefined: u64, size: u32) -> u64 {
    match function {
        AtomicFunction::And | AtomicFunction::Or | AtomicFunction::Xor => undefined,
        _ if undefined != 0 => field(size),
        _ => 0,
    }
}

/// Returns the bits of `size` bytes.
fn field(size: u32) -> u64 {
    u64::MAX >> (64 - 8 * size)
}

/// Returns the bits that fit into a register.
fn narrowed((bank, _): Register, bits: &[u64; LANES]) -> [u64; LANES] {
    match bank {
        Bank::Wide => *bits,
        _ => bits.map(|bits| bits & u64::from(u32::MAX)),
    }
}

/// Returns up to 8 bytes of one of several memories. Bytes after the last one are zero.
fn get(memories: &[Vec<u8>], index: usize, at: usize, size: usize) -> u64 {
    let Some(bytes) = memories.get(index) else { return 0 };
    match bytes.get(at..at + size) {
        Some(bytes) => from_bytes(bytes),
        None => from_bytes(bytes.get(at..).unwrap_or(&[])),
    }
}

/// Writes bytes of one of several memories, which it extends by zeros.
fn fill(memories: &mut Vec<Vec<u8>>, index: usize, at: usize, bytes: &[u8]) {
    if memories.len() <= index {
        memories.resize(index + 1, Vec::new());
    }
    let memory = &mut memories[index];
    let end = at + bytes.len();
    if memory.len() < end {
        memory.resize(end, 0);
    }
    memory[at..end].copy_from_slice(bytes);
}
