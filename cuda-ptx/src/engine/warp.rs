//! A warp: 32 threads that run together where they can.
//!
//! Threads with the same next instruction form a group. Among the groups that are ready, the one in the deepest call
//! runs, and of those the one with the lowest program counter, so that groups meet where branches join. A group that
//! branches backwards often while others are ready lets them run, so threads of a warp may wait for each other.

use super::access::Context;
use super::block::Release;
use super::fault::{FaultKind, Raise};
use super::interleave::Interleaver;
use super::registers::{ALL, LANES, Registers, Slot, each_lane};
use super::watch::{Arrival, Watch};
use crate::program::{
    Bank, Barrier, Constant, FUNCTION_STEP, FUNCTION_WINDOW, FunctionInfo, Image, LOCAL_WINDOW, Op,
    Pass, Passed,
};

/// Backward branches after which a group lets other groups run.
const PATIENCE: u32 = 200;
/// The operations of its slice that a warp gives up if it sleeps.
const SLEEP: u32 = 5_000;

/// The cycles that an operation counts on the clock, which is not that of a GPU.
const CYCLES: u64 = 1024;

/// Threads of a warp with the same next instruction.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    pub(super) pc: u32,
    /// The number of calls that are active.
    pub(super) depth: u32,
    pub(super) mask: u32,
    pub(super) wait: Wait,
    /// When the group ran last.
    last: u64,
}

impl Group {
    /// Returns the instruction that the group executes, or at which it waits.
    pub(super) fn place(&self) -> u32 {
        match self.wait {
            Wait::Barrier(..) => self.pc.saturating_sub(1),
            _ => self.pc,
        }
    }
}

/// What a group waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Wait {
    /// The group is ready.
    #[default]
    None,
    /// Lanes of the mask that are not yet there.
    Together(u32),
    /// A barrier of the block, with the result.
    Barrier(u32, Barrier),
    /// The barrier of the cluster.
    Cluster,
}

/// An active call of a thread.
#[derive(Clone, Debug)]
struct Call {
    return_pc: u32,
    sp: u32,
    top: u32,
    /// The registers of a recursive function before the call.
    saved: Option<(u32, Box<[u64]>)>,
}

/// The threads of a warp, with their registers and local memory.
#[derive(Debug, Default)]
pub(super) struct Warp {
    pub(super) index: u32,
    /// Whether the registers are set.
    pub(super) has_begun: bool,
    pub(super) registers: Registers,
    pub(super) groups: Vec<Group>,
    /// The lanes with a thread that has not exited.
    pub(super) alive: u32,
    /// The first byte of the frame of each lane, and the byte after its last.
    pub(super) sp: [u32; LANES],
    pub(super) top: [u32; LANES],
    /// Whether a lane may have local memory and calls.
    has_stack: bool,
    calls: Vec<Vec<Call>>,
    pub(super) local: Vec<Vec<u8>>,
    clock: u64,
    /// The running instruction, for the report of an error.
    pub(super) pc: u32,
}

impl Warp {
    pub(super) fn new() -> Self {
        Self { calls: vec![Vec::new(); LANES], local: vec![Vec::new(); LANES], ..Self::default() }
    }

    /// Starts the threads of `mask` at the first instruction.
    pub(super) fn start(&mut self, image: &Image, mask: u32) {
        let FunctionInfo { frame, entry, .. } = image.functions[0];
        self.alive = mask;
        self.sp = [0; LANES];
        self.top = [frame; LANES];
        if self.has_stack || frame != 0 {
            self.has_stack = frame != 0;
            each_lane(mask, |lane| {
                self.calls[lane].clear();
                self.local[lane].clear();
                self.local[lane].resize(frame as usize, 0);
            });
        }
        self.groups.clear();
        self.groups.push(Group { pc: entry, mask, ..Group::default() });
        self.has_begun = false;
    }

    /// Sets the registers before the first instruction runs. Those without a constant are zero, so that a program that
    /// reads a register before it writes it is repeatable. `spare` has the memory for them, which is used again
    /// while it is in the host's cache. `value` returns a constant in each lane.
    pub(super) fn begin(
        &mut self,
        image: &Image,
        spare: Registers,
        value: impl Fn(Constant) -> [u64; LANES],
    ) {
        self.has_begun = true;
        let registers = &mut self.registers;
        *registers = spare;
        registers.narrow.resize(image.narrow as usize, [0; LANES]);
        registers.narrow.as_flattened_mut().fill(0);
        registers.wide.resize(image.wide as usize, [0; LANES]);
        registers.wide.as_flattened_mut().fill(0);
        registers.predicates.resize(image.predicates as usize, 0);
        registers.predicates.fill(0);
        for (bank, slot, constant) in &image.constants {
            let value = value(*constant);
            match bank {
                Bank::Narrow => registers.set(ALL, *slot, |lane| value[lane] as u32),
                Bank::Wide => registers.set(ALL, *slot, |lane| value[lane]),
                Bank::Predicate => {
                    registers.set_predicate(ALL, *slot, if value[0] != 0 { ALL } else { 0 })
                }
            }
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.groups.iter().any(|group| group.wait == Wait::None)
    }

    /// Merges groups that meet, and returns the index of the group that runs next. `fair` chooses the one that
    /// waited longest.
    fn choose(&mut self, fair: bool) -> Option<usize> {
        let mut at = 0;
        while at < self.groups.len() {
            let (pc, depth) = (self.groups[at].pc, self.groups[at].depth);
            let can_meet = |wait| matches!(wait, Wait::None | Wait::Together(_));
            if can_meet(self.groups[at].wait) {
                let mut other = at + 1;
                while other < self.groups.len() {
                    let its = &self.groups[other];
                    // Groups that wait with different masks do not meet.
                    let is_one_ready = Wait::None == its.wait || self.groups[at].wait == Wait::None;
                    if its.pc == pc && its.depth == depth && can_meet(its.wait) && is_one_ready {
                        let its = self.groups.swap_remove(other);
                        self.groups[at].mask |= its.mask;
                        self.groups[at].wait = Wait::None;
                    } else {
                        other += 1;
                    }
                }
            }
            at += 1;
        }
        let ready = self.groups.iter().enumerate().filter(|(_, its)| its.wait == Wait::None);
        let best = match fair {
            true => ready.min_by_key(|(_, its)| its.last),
            false => ready.min_by_key(|(_, its)| (u32::MAX - its.depth, its.pc)),
        };
        best.map(|(at, _)| at)
    }

    /// Returns the program counter at which another group must be chosen.
    fn meeting(&self, current: usize) -> u32 {
        let depth = self.groups[current].depth;
        let pc = self.groups[current].pc;
        let others = self.groups.iter().enumerate();
        let others = others.filter(|(at, its)| {
            *at != current
                && its.depth == depth
                && its.pc > pc
                && matches!(its.wait, Wait::None | Wait::Together(_))
        });
        others.map(|(_, its)| its.pc).min().unwrap_or(u32::MAX)
    }

    /// Runs until no group is ready or the slice is over. `OBSERVED` says whether the context has a watch,
    /// counters of executions, or an interleaver.
    pub(super) fn run<const OBSERVED: bool>(
        &mut self,
        cx: &mut Context<'_, '_>,
        mut slice: u32,
    ) -> Result<(), Raise> {
        let image = cx.image;
        // An interleaving may end each slice before a group has lost its patience.
        let mut fair = match &mut cx.interleaver {
            Some(interleaver) if OBSERVED => interleaver.below(2) == 0,
            _ => false,
        };
        'choose: loop {
            let Some(at) = self.choose(fair) else { return Ok(()) };
            let mut patience = if self.groups.len() > 1 { PATIENCE } else { u32::MAX };
            fair = false;
            self.clock += 1;
            self.groups[at].last = self.clock;
            let meeting = self.meeting(at);
            let Group { mut pc, mask: group, .. } = self.groups[at];
            loop {
                if pc >= meeting || slice == 0 {
                    self.groups[at].pc = pc;
                    if slice == 0 {
                        return Ok(());
                    }
                    continue 'choose;
                }
                slice -= 1;
                cx.steps += 1;
                self.pc = pc;
                let Some(inst) = image.code.get(pc as usize) else {
                    return Err(self.no_code(group, u64::from(pc)));
                };
                let mask = match inst.guard {
                    None => group,
                    Some(guard) => {
                        if OBSERVED {
                            Watch::condition(self, cx, guard, group);
                        }
                        group & self.registers.condition(guard)
                    }
                };
                if OBSERVED {
                    cx.count(
                        pc,
                        match inst.op {
                            Op::Branch(_) => group,
                            // Counted when the lanes no longer wait.
                            Op::Together { .. } | Op::ClusterWait => 0,
                            _ => mask,
                        },
                    );
                }
                let next = match &inst.op {
                    Op::Branch(target) => {
                        if mask == group {
                            *target
                        } else if mask == 0 {
                            pc + 1
                        } else {
                            self.split(at, pc + 1, &[(mask, *target)]);
                            continue 'choose;
                        }
                    }
                    _ if mask == 0 => pc + 1,
                    Op::Sleep => {
                        slice = slice.saturating_sub(SLEEP);
                        self.groups[at].pc = pc + 1;
                        fair = true;
                        continue 'choose;
                    }
                    op => {
                        let mut is_delayed = false;
                        if OBSERVED {
                            Watch::before(self, cx, op, mask);
                            if cx.interleaver.is_some() {
                                let turn = Interleaver::before(self, cx, op, mask)?;
                                is_delayed = turn.is_delayed;
                                if turn.is_over {
                                    slice = 0;
                                }
                            }
                        }
                        if is_delayed || self.step(cx, op, mask)? {
                            pc + 1
                        } else {
                            self.groups[at].pc = pc;
                            self.control(cx, at, op, mask)?;
                            continue 'choose;
                        }
                    }
                };
                if next <= pc {
                    patience -= 1;
                    if patience == 0 {
                        self.groups[at].pc = next;
                        fair = true;
                        continue 'choose;
                    }
                }
                pc = next;
            }
        }
    }

    fn no_code(&self, mask: u32, address: u64) -> Raise {
        let lane = mask.trailing_zeros() as usize;
        let text = format!("there is no code at {address:#x}");
        Raise::new(FaultKind::InvalidProgramCounter, lane, text)
    }

    /// Splits a group: the lanes of each part continue at its place, the others at `pc`.
    fn split(&mut self, at: usize, pc: u32, parts: &[(u32, u32)]) {
        let (depth, last) = (self.groups[at].depth, self.groups[at].last);
        for (mask, target) in parts {
            self.groups[at].mask &= !mask;
            let wait = Wait::None;
            self.groups.push(Group { pc: *target, depth, mask: *mask, wait, last });
        }
        self.groups[at].pc = pc;
        if self.groups[at].mask == 0 {
            self.groups.swap_remove(at);
        }
    }

    /// Takes lanes out of a group into one of their own, which is ready at `pc`, and returns its index.
    fn part(&mut self, at: usize, mask: u32, pc: u32, wait: Wait) -> usize {
        let depth = self.groups[at].depth;
        if self.groups[at].mask == mask {
            self.groups[at].pc = pc;
            self.groups[at].wait = wait;
            return at;
        }
        self.groups[at].mask &= !mask;
        let last = self.clock;
        self.groups.push(Group { pc, depth, mask, wait, last });
        self.groups.len() - 1
    }

    /// Executes an operation after which the next instruction follows. Returns false for other operations.
    fn step(&mut self, cx: &mut Context<'_, '_>, op: &Op, mask: u32) -> Result<bool, Raise> {
        let registers = &mut self.registers;
        match op {
            Op::Nop | Op::Fence(_) | Op::CopyGroup(_) => {}
            Op::Binary(f, d, ab) => registers.compute2(mask, *f, *d, *ab),
            Op::Ternary(f, d, abc) => registers.compute3(mask, *f, *d, *abc),
            Op::Unary(f, d, a) => registers.compute1(mask, *f, *d, *a),
            Op::Move(bank, d, a) => registers.copy(mask, *bank, *d, *a),
            Op::Setp { compare, p, q } => registers.setp(mask, compare, *p, *q),
            Op::Load(transfer) => self.load(cx, mask, transfer)?,
            Op::Store(transfer) => self.store(cx, mask, transfer)?,
            Op::Convert { convert, d, a } => registers.convert(mask, convert, *d, *a),
            Op::Selp { bank, d, a, p } => registers.selp(mask, *bank, *d, *a, *p),
            Op::MovePredicate { d, a } => {
                let lanes = registers.condition(*a);
                registers.set_predicate(mask, *d, lanes);
            }
            Op::Unpack { part, d, a } => registers.unpack(mask, *part, d, a),
            Op::Pack { part, d, a } => registers.pack(mask, *part, d, a),
            Op::Bfi { bits, d, a } => registers.bfi(mask, *bits, *d, *a),
            Op::Carry { ty, is_sub, takes, gives, carry, d, a } => {
                registers.carry(mask, *ty, (*is_sub, *takes, *gives), *carry, *d, *a);
            }
            Op::MadCarry { ty, is_high, takes, gives, carry, d, a: [a, b, c] } => {
                let which = (*ty, *is_high);
                registers.mad_carry(mask, which, (*takes, *gives), *carry, *d, [*a, *b, *c]);
            }
            Op::Set { compare, d, one } => registers.set_number(mask, compare, *d, *one),
            Op::SetPacked { compare, d, one } => registers.set_packed(mask, compare, *d, *one),
            Op::SetpPacked { compare, p, q } => registers.setp_packed(mask, compare, *p, *q),
            Op::Logic { logic, d, a } => registers.logic(mask, *logic, *d, *a),
            Op::Testp { ty, kind, d, a } => registers.testp(mask, *ty, *kind, *d, *a),
            Op::ConvertPacked { convert, d, a } => {
                registers.convert_packed(mask, convert, *d, *a);
            }
            Op::ConvertUnpacked { convert, d, a } => {
                registers.convert_unpacked(mask, convert, *d, *a);
            }
            Op::CvtPack { bits, is_signed, from, d, a } => {
                registers.cvt_pack(mask, (*bits, *is_signed), *from, *d, *a);
            }
            Op::Sample(sample) => self.sample(cx, mask, sample)?,
            Op::Surface(access) => self.surface(cx, mask, access)?,
            Op::Query { is_surface, axis, object, level, d } => {
                self.query(cx, mask, (*is_surface, *axis), (*object, *level), *d)?;
            }
            Op::Video(how, d, abc) => registers.video(mask, how, *d, *abc),
            Op::Atomic(atomic) => self.atomic(cx, mask, atomic)?,
            Op::AtomicWide(atomic) => self.atomic_wide(cx, mask, atomic)?,
            Op::Multimem(its) => self.multimem(cx, mask, its)?,
            Op::CopyBulk(bulk) => self.copy_bulk(cx, mask, bulk)?,
            Op::CopyTensor(copy) => self.copy_tensor(cx, mask, copy)?,
            Op::PrefetchBulk { from, size } => self.prefetch_bulk(mask, from, *size)?,
            Op::FrameAddress { d, offset, is_wide, is_generic } => {
                let base = if *is_generic { LOCAL_WINDOW } else { 0 };
                let sp = self.sp;
                let address = |lane: usize| base + u64::from(sp[lane].wrapping_add(*offset));
                match is_wide {
                    true => self.registers.set(mask, *d, address),
                    false => self.registers.set(mask, *d, |lane| address(lane) as u32),
                }
            }
            Op::IsSpace { space, p, a } => self.is_space(cx, mask, *space, *p, *a),
            Op::CopyAsync { to, from, size, read, ignore } => {
                self.copy_async(cx, mask, (to, from), *size, (*read, *ignore))?;
            }
            Op::Mbarrier { address, operation, order } => {
                let places = (address.space, self.addresses(address));
                self.mbarrier(cx, mask, places, (*operation, *order))?;
            }
            Op::MapShared { d, a, rank, is_wide, is_generic } => {
                self.map_shared(mask, (*d, *a, *rank), *is_wide, *is_generic);
            }
            Op::RankOf { d, a, is_generic } => self.rank_of(cx, mask, *d, *a, *is_generic),
            Op::Activemask { d } => registers.set(mask, *d, |_| mask),
            Op::Clock { d, is_high, is_wide } => {
                // Programs that wait for a number of cycles end soon.
                let clock = cx.steps.wrapping_mul(CYCLES);
                match (is_wide, is_high) {
                    (true, _) => registers.set(mask, *d, |_| clock),
                    (false, true) => registers.set(mask, *d, |_| (clock >> 32) as u32),
                    (false, false) => registers.set(mask, *d, |_| clock as u32),
                }
            }
            Op::Results(passes) => {
                for pass in passes {
                    self.pass(mask, pass, false);
                }
            }
            Op::Intrinsic { intrinsic, arguments, params } => {
                self.reserve(cx, mask, 64)?;
                for pass in arguments {
                    self.pass(mask, pass, true);
                }
                self.intrinsic(cx, mask, *intrinsic, params)?;
            }
            Op::Alloca { d, size, align, is_wide } => {
                self.alloca(cx, mask, (*d, *size), *align, *is_wide)?;
            }
            Op::StackSave { d, is_wide } => {
                let top = self.top;
                match is_wide {
                    true => self.registers.set(mask, *d, |lane| u64::from(top[lane])),
                    false => self.registers.set(mask, *d, |lane| top[lane]),
                }
            }
            Op::StackRestore { a, is_wide } => {
                let to: [u32; LANES] = match is_wide {
                    true => self.registers.wide[*a as usize].map(|to| to as u32),
                    false => self.registers.narrow[*a as usize],
                };
                each_lane(mask, |lane| self.top[lane] = to[lane].min(self.top[lane]));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Executes an operation of a group that chooses the next instruction, or waits.
    fn control(
        &mut self,
        cx: &mut Context<'_, '_>,
        at: usize,
        op: &Op,
        mask: u32,
    ) -> Result<(), Raise> {
        let pc = self.groups[at].pc;
        match op {
            Op::BranchTable { index, targets } => {
                let index = self.registers.narrow[*index as usize];
                let mut parts: Vec<(u32, u32)> = Vec::new();
                let mut wrong = None;
                each_lane(mask, |lane| match targets.get(index[lane] as usize) {
                    Some(target) => add_part(&mut parts, lane, *target),
                    None => wrong = Some(lane),
                });
                if let Some(lane) = wrong {
                    let text = format!(
                        "the index {} of a branch is not below {}",
                        index[lane],
                        targets.len()
                    );
                    return Err(Raise::new(FaultKind::InvalidProgramCounter, lane, text));
                }
                self.split(at, pc + 1, &parts);
            }
            Op::Call { function, arguments } => self.call(cx, at, mask, *function, arguments)?,
            Op::CallIndirect { target, arguments } => {
                let target = self.registers.wide[*target as usize];
                let mut parts: Vec<(u32, u32)> = Vec::new();
                for lane in lanes_of(mask) {
                    let number = target[lane].wrapping_sub(FUNCTION_WINDOW) / FUNCTION_STEP;
                    let mut functions = cx.image.functions.iter();
                    match functions.position(|its| its.index as u64 == number) {
                        Some(found) => add_part(&mut parts, lane, found as u32),
                        None => {
                            return Err(self.no_code(1 << lane, target[lane]).at(target[lane]));
                        }
                    }
                }
                let calling = self.part(at, mask, pc, Wait::None);
                if calling != at {
                    self.groups[at].pc = pc + 1;
                }
                for (mask, function) in parts {
                    let one = self.part(calling, mask, pc, Wait::None);
                    self.call(cx, one, mask, function, arguments)?;
                }
            }
            Op::Return => self.ret(cx, at, mask),
            Op::Exit => {
                self.alive &= !mask;
                self.groups[at].mask &= !mask;
                self.groups[at].pc = pc + 1;
                if self.groups[at].mask == 0 {
                    self.groups.swap_remove(at);
                }
                // Groups that wait for the lanes may go on.
                self.wake();
                cx.block.changed = true;
            }
            Op::Trap => {
                let lane = mask.trailing_zeros() as usize;
                return Err(Raise::new(FaultKind::Trap, lane, "the kernel ends itself"));
            }
            Op::Together { mask: slot, operation } => {
                self.meet(cx, at, mask, *slot, operation)?;
            }
            Op::Barrier { id, count, barrier, is_aligned } => {
                self.arrive(cx, at, mask, (*id, *count), (*barrier, *is_aligned))?;
            }
            Op::ClusterArrive { releases } => {
                if let Some(watch) = &mut cx.watch {
                    watch.arrive_at_cluster(self, cx.rank, (mask, *releases));
                }
                cx.cluster.arrive(cx.rank, self.index, mask);
                self.groups[at].pc = pc + 1;
                cx.block.changed = true;
            }
            Op::ClusterWait => {
                let is_complete = cx.cluster.is_complete(cx.rank, self.index, mask);
                if let Some(watch) = &mut cx.watch {
                    watch.wait_for_cluster(self, cx.rank, (mask, is_complete));
                }
                if is_complete {
                    cx.count(pc, mask);
                    self.groups[at].pc = pc + 1;
                } else {
                    let rest = self.part(at, mask, pc, Wait::Cluster);
                    if rest != at {
                        self.groups[at].pc = pc + 1;
                    }
                }
            }
            _ => {
                let lane = mask.trailing_zeros() as usize;
                return Err(Raise::new(
                    FaultKind::IllegalInstruction,
                    lane,
                    "the instruction is not supported",
                ));
            }
        }
        Ok(())
    }

    /// Lets groups try again that wait for lanes of the warp.
    fn wake(&mut self) {
        for group in &mut self.groups {
            if let Wait::Together(_) = group.wait {
                group.wait = Wait::None;
            }
        }
    }

    /// Makes room above the frame of each lane, for the frame of a callee.
    fn reserve(&mut self, cx: &Context<'_, '_>, mask: u32, bytes: u32) -> Result<(), Raise> {
        self.has_stack = true;
        for lane in lanes_of(mask) {
            let end = self.top[lane].checked_add(bytes).filter(|end| *end <= cx.stack);
            let Some(end) = end else {
                let text = format!("the stack of a thread exceeds {} bytes", cx.stack);
                return Err(Raise::new(FaultKind::StackOverflow, lane, text));
            };
            if self.local[lane].len() < end as usize {
                self.local[lane].resize(end as usize, 0);
            }
        }
        Ok(())
    }

    /// Copies a value between the frame of a caller and that of the callee above it.
    fn pass(&mut self, mask: u32, pass: &Pass, is_argument: bool) {
        let size = pass.size as usize;
        for lane in lanes_of(mask) {
            let callee = (self.top[lane] + pass.callee) as usize;
            let local = &mut self.local[lane];
            if local.len() < callee + size {
                continue;
            }
            match pass.caller {
                Passed::Frame(offset) => {
                    let caller = (self.sp[lane] + offset) as usize;
                    let (from, to) = if is_argument { (caller, callee) } else { (callee, caller) };
                    local.copy_within(from..from + size, to);
                }
                Passed::Register(element) => {
                    let size = size.min(8);
                    if is_argument {
                        let value = self.registers.element(element)[lane].to_le_bytes();
                        local[callee..callee + size].copy_from_slice(&value[..size]);
                    } else {
                        let mut value = [0; 8];
                        value[..size].copy_from_slice(&local[callee..callee + size]);
                        let value = u64::from_le_bytes(value);
                        self.registers.set_element(1 << lane, element, |_| value);
                    }
                }
                Passed::Predicate(slot) => {
                    if is_argument {
                        local[callee] =
                            (self.registers.predicates[slot as usize] >> lane & 1) as u8;
                    } else {
                        let bit = u32::from(local[callee] != 0) << lane;
                        self.registers.set_predicate(1 << lane, slot, bit);
                    }
                }
            }
        }
    }

    fn call(
        &mut self,
        cx: &Context<'_, '_>,
        at: usize,
        mask: u32,
        function: u32,
        arguments: &[Pass],
    ) -> Result<(), Raise> {
        let callee = &cx.image.functions[function as usize];
        let pc = self.groups[at].pc;
        self.reserve(cx, mask, callee.frame.max(64))?;
        for pass in arguments {
            self.pass(mask, pass, true);
        }
        for lane in lanes_of(mask) {
            let saved = callee.is_recursive.then(|| {
                let registers = &self.registers;
                let narrow = callee.narrow.0..callee.narrow.0 + callee.narrow.1;
                let wide = callee.wide.0..callee.wide.0 + callee.wide.1;
                let predicates = callee.predicates.0..callee.predicates.0 + callee.predicates.1;
                let narrow = narrow.map(|slot| u64::from(registers.narrow[slot as usize][lane]));
                let wide = wide.map(|slot| registers.wide[slot as usize][lane]);
                let predicates = predicates
                    .map(|slot| u64::from(registers.predicates[slot as usize] >> lane & 1));
                (function, narrow.chain(wide).chain(predicates).collect())
            });
            let (sp, top) = (self.sp[lane], self.top[lane]);
            self.calls[lane].push(Call { return_pc: pc + 1, sp, top, saved });
            self.sp[lane] = top;
            self.top[lane] = top + callee.frame;
        }
        let new = self.part(at, mask, callee.entry, Wait::None);
        if new != at {
            self.groups[at].pc = pc + 1;
        }
        self.groups[new].depth += 1;
        Ok(())
    }

    fn ret(&mut self, cx: &Context<'_, '_>, at: usize, mask: u32) {
        let pc = self.groups[at].pc;
        let depth = self.groups[at].depth;
        let mut parts: Vec<(u32, u32)> = Vec::new();
        for lane in lanes_of(mask) {
            let Some(call) = self.calls[lane].pop() else {
                // A return from the kernel.
                self.alive &= !(1 << lane);
                continue;
            };
            (self.sp[lane], self.top[lane]) = (call.sp, call.top);
            if let Some((function, values)) = call.saved {
                let callee = &cx.image.functions[function as usize];
                let mut values = values.iter();
                let mut next = || values.next().copied().unwrap_or(0);
                for slot in callee.narrow.0..callee.narrow.0 + callee.narrow.1 {
                    self.registers.narrow[slot as usize][lane] = next() as u32;
                }
                for slot in callee.wide.0..callee.wide.0 + callee.wide.1 {
                    self.registers.wide[slot as usize][lane] = next();
                }
                for slot in callee.predicates.0..callee.predicates.0 + callee.predicates.1 {
                    let bit = (next() as u32 & 1) << lane;
                    self.registers.set_predicate(1 << lane, slot, bit);
                }
            }
            add_part(&mut parts, lane, call.return_pc);
        }
        self.groups[at].mask &= !mask;
        self.groups[at].pc = pc + 1;
        let last = self.groups[at].last;
        for (mask, target) in parts {
            let depth = depth.saturating_sub(1);
            self.groups.push(Group { pc: target, depth, mask, wait: Wait::None, last });
        }
        if self.groups[at].mask == 0 {
            self.groups.swap_remove(at);
        }
    }

    fn alloca(
        &mut self,
        cx: &Context<'_, '_>,
        mask: u32,
        (d, size): (Slot, Slot),
        align: u32,
        is_wide: bool,
    ) -> Result<(), Raise> {
        let size: [u32; LANES] = match is_wide {
            true => self.registers.wide[size as usize]
                .map(|size| u32::try_from(size).unwrap_or(u32::MAX)),
            false => self.registers.narrow[size as usize],
        };
        let align = align.clamp(16, 1 << 16).next_power_of_two();
        for lane in lanes_of(mask) {
            let start = self.top[lane].next_multiple_of(align);
            let bytes =
                (start - self.top[lane]).saturating_add(size[lane].saturating_add(15) & !15);
            self.reserve(cx, 1 << lane, bytes)?;
            self.top[lane] += bytes;
            match is_wide {
                true => self.registers.wide[d as usize][lane] = u64::from(start),
                false => self.registers.narrow[d as usize][lane] = start,
            }
        }
        Ok(())
    }

    /// Executes an operation of the lanes of a mask, if all of them are there. The others wait.
    fn meet(
        &mut self,
        cx: &mut Context<'_, '_>,
        at: usize,
        mask: u32,
        slot: Slot,
        operation: &crate::program::Together,
    ) -> Result<(), Raise> {
        let pc = self.groups[at].pc;
        let wanted = self.registers.narrow[slot as usize];
        let mut rest = mask;
        let mut left = self.groups[at].mask & !mask;
        while rest != 0 {
            let lane = rest.trailing_zeros() as usize;
            let members = wanted[lane];
            let mut here = 0;
            each_lane(rest, |other| here |= u32::from(wanted[other] == members) << other);
            rest &= !here;
            let outside = here & !members;
            if outside != 0 {
                let lane = outside.trailing_zeros() as usize;
                let text = format!("the mask {members:#010x} lacks the lane {lane} itself");
                return Err(Raise::new(FaultKind::IllegalInstruction, lane, text));
            }
            let is_sync = *operation == crate::program::Together::Sync;
            let at_other_places = match is_sync {
                // Lanes may synchronize from different places.
                true => {
                    let others = self.groups.iter().enumerate();
                    let others = others
                        .filter(|(index, its)| *index != at && its.wait == Wait::Together(members));
                    others.fold(0, |all, (_, its)| all | its.mask)
                }
                false => 0,
            };
            if let Some(watch) = &mut cx.watch {
                watch.meet(self, (cx.rank, here, mask), members);
            }
            if members & self.alive & !(here | at_other_places) == 0 {
                Watch::execute(self, cx, (here, members), operation);
                cx.count(pc, here);
                self.execute_together(cx, (here, members), operation)?;
                left |= here;
                if at_other_places != 0 {
                    for (index, group) in self.groups.iter_mut().enumerate() {
                        if index != at && group.wait == Wait::Together(members) {
                            cx.count(group.pc, group.mask);
                            group.wait = Wait::None;
                            group.pc += 1;
                        }
                    }
                }
            } else {
                let depth = self.groups[at].depth;
                let last = self.clock;
                let wait = Wait::Together(members);
                self.groups.push(Group { pc, depth, mask: here, wait, last });
            }
        }
        if left == 0 {
            self.groups.swap_remove(at);
        } else {
            self.groups[at].mask = left;
            self.groups[at].pc = pc + 1;
        }
        Ok(())
    }

    fn arrive(
        &mut self,
        cx: &mut Context<'_, '_>,
        at: usize,
        mask: u32,
        (id, count): (Slot, Option<Slot>),
        (barrier, is_aligned): (Barrier, bool),
    ) -> Result<(), Raise> {
        let pc = self.groups[at].pc;
        let id = self.registers.narrow[id as usize];
        let count = count.map(|count| self.registers.narrow[count as usize]);
        let lane = mask.trailing_zeros() as usize;
        let number = id[lane];
        let expected = count.map(|count| count[lane]);
        let is_one = lanes_of(mask)
            .all(|other| id[other] == number && count.map(|count| count[other]) == expected);
        if number >= 16 || !is_one {
            let text =
                format!("the barrier {number} is not one of 0 to 15, the same for all threads");
            return Err(Raise::new(FaultKind::IllegalInstruction, lane, text));
        }
        let lanes = match barrier {
            Barrier::Popc { a, .. } | Barrier::And { a, .. } | Barrier::Or { a, .. } => {
                self.registers.condition(a) & mask
            }
            _ => 0,
        };
        if let Some(watch) = &mut cx.watch {
            let arrival = Arrival { warp: self.index, mask, pc, expected, is_aligned, barrier };
            watch.arrive(cx.rank, number, arrival);
        }
        if cx.block.arrive(number, self.index, mask, expected, lanes).is_err() {
            let text = format!("a thread arrives twice at the barrier {number}");
            return Err(Raise::new(FaultKind::Deadlock, lane, text));
        }
        let wait = match barrier {
            Barrier::Arrive => Wait::None,
            barrier => Wait::Barrier(number, barrier),
        };
        let new = self.part(at, mask, pc + 1, wait);
        if new != at {
            self.groups[at].pc = pc + 1;
        }
        Ok(())
    }

    /// Lets the groups go on that wait for a barrier.
    pub(super) fn release(&mut self, release: &Release) {
        for group in &mut self.groups {
            let Wait::Barrier(id, barrier) = group.wait else { continue };
            if id != release.id {
                continue;
            }
            group.wait = Wait::None;
            let mask = group.mask;
            match barrier {
                Barrier::Popc { d, .. } => self.registers.set(mask, d, |_| release.trues),
                Barrier::And { d, .. } => {
                    let all = release.trues == release.arrived;
                    self.registers.set_predicate(mask, d, if all { mask } else { 0 });
                }
                Barrier::Or { d, .. } => {
                    let any = release.trues != 0;
                    self.registers.set_predicate(mask, d, if any { mask } else { 0 });
                }
                Barrier::Sync | Barrier::Arrive => {}
            }
        }
    }

    /// Lets the groups try again that wait for the cluster.
    pub(super) fn wake_for_cluster(&mut self) {
        for group in &mut self.groups {
            if group.wait == Wait::Cluster {
                group.wait = Wait::None;
            }
        }
    }
}

/// Returns the lanes of a mask, in ascending order.
pub(super) fn lanes_of(mask: u32) -> impl Iterator<Item = usize> {
    (0..LANES).filter(move |lane| mask >> lane & 1 != 0)
}

/// Adds a lane to the part of its target.
fn add_part(parts: &mut Vec<(u32, u32)>, lane: usize, target: u32) {
    match parts.iter_mut().find(|(_, its)| *its == target) {
        Some((mask, _)) => *mask |= 1 << lane,
        None => parts.push((1 << lane, target)),
    }
}
