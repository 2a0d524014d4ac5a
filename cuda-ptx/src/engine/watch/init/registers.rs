//! The undefined bits of registers, and how operations pass them on.

use super::operands::{Register, Role, each_operand, of_condition, of_element, of_int, of_width};
use crate::engine::matrix::transposed;
use crate::engine::registers::{LANES, Registers, each_lane};
use crate::engine::together::shuffle;
use crate::number::integer::lop3;
use crate::program::matrix::{Fragment, Matrix, Multiply};
use crate::program::{
    Bank, Binary, Compare, Condition, Element, Logic, Number, Op, Ternary, Together, Unary, Vote,
};
use std::collections::HashMap;

/// The load that brought undefined bits into a register.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Origin {
    pub(super) pc: u32,
    /// The number of the thread in its block.
    pub(super) thread: u32,
    /// The generic address of the first byte that has no value.
    pub(super) address: u64,
}

/// The undefined bits of a register in each lane. The origin of a lane without any has no meaning.
#[derive(Clone, Debug, Default)]
struct Undefined {
    bits: [u64; LANES],
    origins: [Origin; LANES],
}

impl Undefined {
    /// Returns the lanes that have undefined bits.
    fn lanes(&self) -> u32 {
        self.bits.iter().rev().fold(0, |all, bits| all << 1 | u32::from(*bits != 0))
    }
}

/// The registers of a warp that have undefined bits. Usually there are none.
#[derive(Debug, Default)]
pub(super) struct Values(HashMap<Register, Box<Undefined>>);

impl Values {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the lanes of a mask in which a register has undefined bits.
    pub(super) fn lanes(&self, mask: u32, register: Register) -> u32 {
        self.0.get(&register).map_or(0, |its| its.lanes() & mask)
    }

    /// Returns the undefined bits of a register in each lane.
    pub(super) fn bits(&self, register: Register) -> [u64; LANES] {
        self.0.get(&register).map_or([0; LANES], |its| its.bits)
    }

    pub(super) fn origin(&self, register: Register, lane: usize) -> Origin {
        self.0.get(&register).map_or(Origin::default(), |its| its.origins[lane])
    }

    /// Sets the undefined bits of lanes.
    pub(super) fn set(
        &mut self,
        mask: u32,
        register: Register,
        bits: &[u64; LANES],
        origins: &[Origin; LANES],
    ) {
        let mut any = 0;
        each_lane(mask, |lane| any |= bits[lane]);
        if any == 0 {
            return self.clear(mask, register);
        }
        let its = self.0.entry(register).or_default();
        each_lane(mask, |lane| (its.bits[lane], its.origins[lane]) = (bits[lane], origins[lane]));
    }

    /// Makes a register defined in lanes.
    pub(super) fn clear(&mut self, mask: u32, register: Register) {
        let Some(its) = self.0.get_mut(&register) else { return };
        each_lane(mask, |lane| its.bits[lane] = 0);
        if its.lanes() == 0 {
            self.0.remove(&register);
        }
    }

    /// Makes the registers defined for which `is_its` holds.
    pub(super) fn clear_all(&mut self, mask: u32, is_its: impl Fn(Register) -> bool) {
        let all: Vec<Register> = self.0.keys().copied().filter(|its| is_its(*its)).collect();
        all.into_iter().for_each(|register| self.clear(mask, register));
    }

    /// Returns the origin of a result in each lane: that of the first operand with undefined bits there.
    fn origins(&self, reads: &[Register]) -> [Origin; LANES] {
        let mut origins = [Origin::default(); LANES];
        for its in reads.iter().rev().filter_map(|read| self.0.get(read)) {
            each_lane(its.lanes(), |lane| origins[lane] = its.origins[lane]);
        }
        origins
    }

    /// Sets the undefined bits of the results of an operation on registers, before it is executed. `real` has the
    /// values of the registers, and `scratch` is as large.
    pub(super) fn pass(&mut self, mask: u32, op: &Op, real: &Registers, scratch: &mut Registers) {
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        each_operand(op, |role, register| match role {
            Role::Read => reads.push(register),
            Role::Write => writes.push(register),
            Role::Condition | Role::Address => {}
        });
        let undefined = reads.iter().fold(0, |all, read| all | self.lanes(mask, *read));
        if undefined == 0 {
            writes.iter().for_each(|write| self.clear(mask, *write));
            return;
        }
        let origins = self.origins(&reads);
        let unknown = self.moved(mask, op, real, scratch);
        let exact = self.bitwise(op, real);
        let lanes = self.logic(mask, op, real).unwrap_or(undefined);
        for write in writes {
            let all = all_of(write.0);
            let moved = unknown.map(|unknown| (unknown, read(scratch, write)));
            let bits = std::array::from_fn(|lane| match (&moved, &exact) {
                (Some((unknown, _)), _) if unknown >> lane & 1 != 0 => all,
                (Some((_, bits)), _) | (None, Some(bits)) => bits[lane],
                (None, None) if lanes >> lane & 1 != 0 => all,
                (None, None) => 0,
            });
            self.set(mask, write, &bits, &origins);
        }
    }

    /// Moves the undefined bits of operands as an operation moves their bits, into the results in `scratch`. Returns
    /// the lanes in which an operand that says how they move is undefined, or `None` if the operation computes.
    fn moved(&self, mask: u32, op: &Op, real: &Registers, scratch: &mut Registers) -> Option<u32> {
        let mut unknown = 0;
        let bits = |scratch: &mut Registers, register: Register| {
            write(scratch, register, &self.bits(register));
        };
        let mut control = |scratch: &mut Registers, register: Register| {
            unknown |= self.lanes(mask, register);
            write(scratch, register, &read(real, register));
        };
        match op {
            Op::Move(bank, d, a) => {
                bits(scratch, (*bank, *a));
                scratch.copy(mask, *bank, *d, *a);
            }
            Op::Unpack { part, d, a } => {
                each_element(a, |a| bits(scratch, a));
                scratch.unpack(mask, *part, d, a);
            }
            Op::Pack { part, d, a } => {
                each_element(a, |a| bits(scratch, a));
                scratch.pack(mask, *part, d, a);
            }
            Op::Unary(Unary::Not(ty), d, a) => {
                let bank = of_int(*ty);
                bits(scratch, (bank, *a));
                scratch.copy(mask, bank, *d, *a);
            }
            Op::Unary(f @ Unary::Brev(ty), d, a) => {
                bits(scratch, (of_int(*ty), *a));
                scratch.compute1(mask, *f, *d, *a);
            }
            Op::Binary(f @ (Binary::Shl(ty) | Binary::Shr(ty)), d, [a, b]) => {
                bits(scratch, (of_int(*ty), *a));
                control(scratch, (Bank::Narrow, *b));
                scratch.compute2(mask, *f, *d, [*a, *b]);
            }
            Op::Ternary(f @ (Ternary::Prmt(_) | Ternary::Shf(..)), d, [a, b, c]) => {
                bits(scratch, (Bank::Narrow, *a));
                bits(scratch, (Bank::Narrow, *b));
                control(scratch, (Bank::Narrow, *c));
                scratch.compute3(mask, *f, *d, [*a, *b, *c]);
            }
            Op::Ternary(f @ Ternary::Bfe(ty), d, [a, b, c]) => {
                bits(scratch, (of_int(*ty), *a));
                control(scratch, (Bank::Narrow, *b));
                control(scratch, (Bank::Narrow, *c));
                scratch.compute3(mask, *f, *d, [*a, *b, *c]);
            }
            Op::Bfi { bits: width, d, a: [a, b, c, e] } => {
                let bank = of_width(*width == 64);
                bits(scratch, (bank, *a));
                bits(scratch, (bank, *b));
                control(scratch, (Bank::Narrow, *c));
                control(scratch, (Bank::Narrow, *e));
                scratch.bfi(mask, *width, *d, [*a, *b, *c, *e]);
            }
            Op::Selp { bank, d, a: [a, b], p } => {
                bits(scratch, (*bank, *a));
                bits(scratch, (*bank, *b));
                control(scratch, of_condition(*p));
                scratch.selp(mask, *bank, *d, [*a, *b], *p);
            }
            Op::Convert { convert, d, a }
                if matches!((convert.from, convert.to), (Number::Int(_), Number::Int(_)))
                    && !convert.mode.saturate =>
            {
                bits(scratch, (convert.from_bank, *a));
                scratch.convert(mask, convert, *d, *a);
            }
            _ => return None,
        }
        Some(unknown)
    }

    /// Returns the undefined bits of the result of an operation that is a function of each bit alone.
    fn bitwise(&self, op: &Op, real: &Registers) -> Option<[u64; LANES]> {
        let of = |bank, slots: [u32; 3], f: &dyn Fn([u64; 3]) -> u64| {
            let values = slots.map(|slot| read(real, (bank, slot)));
            let undefined = slots.map(|slot| self.bits((bank, slot)));
            Some(std::array::from_fn(|lane| {
                flips(f, values.map(|its| its[lane]), undefined.map(|its| its[lane]))
            }))
        };
        match *op {
            Op::Binary(Binary::And(ty), _, [a, b]) => of(of_int(ty), [a, b, b], &|[a, b, _]| a & b),
            Op::Binary(Binary::Or(ty), _, [a, b]) => of(of_int(ty), [a, b, b], &|[a, b, _]| a | b),
            Op::Binary(Binary::Xor(ty), _, [a, b]) => of(of_int(ty), [a, b, b], &|[a, b, _]| a ^ b),
            Op::Ternary(Ternary::Lop3(table), _, abc) => {
                of(Bank::Narrow, abc, &|[a, b, c]| lop3(a as u32, b as u32, c as u32, table).into())
            }
            _ => None,
        }
    }

    /// Returns the lanes in which the result of an operation on predicates is undefined.
    fn logic(&self, mask: u32, op: &Op, real: &Registers) -> Option<u32> {
        let lanes = |condition: Condition| self.lanes(mask, of_condition(condition));
        match op {
            Op::Logic { logic, a: [a, b], .. } => {
                let (x, y) = (real.condition(*a), real.condition(*b));
                Some(combine(*logic, (lanes(*a), x), (lanes(*b), y)))
            }
            Op::Setp {
                compare: Compare { operands, combine: Some((logic, other)), .. }, ..
            } => {
                let mut found = 0;
                each_operand(op, |role, register| {
                    let is_compared = role == Role::Read && register.0 != Bank::Predicate;
                    if is_compared && operands.contains(&register.1) {
                        found |= self.lanes(mask, register);
                    }
                });
                let (undefined, value) = (lanes(*other), real.condition(*other));
                let decided = match logic {
                    Logic::And => !value,
                    Logic::Or => value,
                    Logic::Xor => 0,
                };
                Some(found & !(decided & !undefined) | undefined)
            }
            _ => None,
        }
    }

    /// Sets the undefined bits of the results of an operation of lanes together, before it is executed. `here` has the
    /// lanes that take part.
    pub(super) fn pass_together(
        &mut self,
        (here, members): (u32, u32),
        operation: &Together,
        real: &Registers,
    ) {
        let narrow = |slot: u32| (Bank::Narrow, slot);
        let of_bits = |bits: u32, slot| (of_width(bits == 64), slot);
        match *operation {
            Together::Sync => {}
            Together::Matrix(ref matrix) => match &**matrix {
                Matrix::Transpose { d, a } => {
                    let bits = self.bits(narrow(*a)).map(|bits| bits as u32);
                    let bits = transposed(here, &bits).map(u64::from);
                    let lanes = self.lanes(here, narrow(*a));
                    let origin = self.origin(narrow(*a), lanes.trailing_zeros() as usize % LANES);
                    self.set(here, narrow(*d), &bits, &[origin; LANES]);
                }
                Matrix::Multiply(its) => self.multiply(here, its),
                // These access memory, or nothing.
                Matrix::Load(_) | Matrix::Store(_) | Matrix::Meet => {}
            },
            Together::Shuffle { kind, d, p, a, b, c } => {
                let (amounts, clamps) = (&real.narrow[b as usize], &real.narrow[c as usize]);
                let unknown = self.lanes(here, narrow(b)) | self.lanes(here, narrow(c));
                let values = self.bits(narrow(a));
                let (mut bits, mut origins) = ([0; LANES], [Origin::default(); LANES]);
                each_lane(here, |lane| {
                    let (source, _) = shuffle(kind, lane as u32, amounts[lane], clamps[lane]);
                    let source = source as usize % LANES;
                    // The value of a lane that does not take part is what synccheck reports.
                    if members >> source & 1 != 0 {
                        (bits[lane], origins[lane]) =
                            (values[source], self.origin(narrow(a), source));
                    }
                    if unknown >> lane & 1 != 0 {
                        let how = if self.lanes(1 << lane, narrow(b)) != 0 { b } else { c };
                        (bits[lane], origins[lane]) =
                            (all_of(Bank::Narrow), self.origin(narrow(how), lane));
                    }
                });
                if let Some(d) = d {
                    self.set(here, narrow(d), &bits, &origins);
                }
                if let Some(p) = p {
                    let bits = std::array::from_fn(|lane| u64::from(unknown >> lane & 1));
                    self.set(here, (Bank::Predicate, p), &bits, &origins);
                }
            }
            Together::Vote { vote, d, a } => {
                let lanes = self.lanes(here, of_condition(a));
                let (bank, bits) = match vote {
                    Vote::Ballot => (Bank::Narrow, u64::from(lanes)),
                    _ => (Bank::Predicate, u64::from(lanes != 0)),
                };
                self.give(here, (lanes, of_condition(a)), (bank, d), bits);
            }
            Together::MatchAny { bits, d, a } => {
                let lanes = self.lanes(here, of_bits(bits, a));
                self.give(here, (lanes, of_bits(bits, a)), narrow(d), all_of(Bank::Narrow));
            }
            Together::MatchAll { bits, d, p, a } => {
                let (a, lanes) = (of_bits(bits, a), self.lanes(here, of_bits(bits, a)));
                let results = d.map(narrow).into_iter().chain(p.map(|p| (Bank::Predicate, p)));
                results.for_each(|d| self.give(here, (lanes, a), d, all_of(d.0)));
            }
            Together::Redux { d, a, .. } => {
                let lanes = self.lanes(here, narrow(a));
                self.give(here, (lanes, narrow(a)), narrow(d), all_of(Bank::Narrow));
            }
            Together::Elect { d, p } => {
                d.iter().for_each(|d| self.clear(here, narrow(*d)));
                self.clear(here, (Bank::Predicate, p));
            }
        }
    }

    /// Makes each element of the sum undefined whose row, column or summand has an undefined element.
    fn multiply(&mut self, here: u32, its: &Multiply) {
        let bank = |fragment: &Fragment| of_width(fragment.element.bits() == 64);
        // The first undefined element of each part of each line of `length` elements.
        let lines = |fragment: &Fragment, length: usize, parts: usize| {
            let mut lines = vec![None; parts * fragment.count() * LANES / length];
            let (width, each) = (fragment.element.bits(), fragment.element.each());
            for (register, slot) in fragment.registers.iter().enumerate() {
                let Some(undefined) = self.0.get(&(bank(fragment), *slot)) else { continue };
                each_lane(here & undefined.lanes(), |lane| {
                    for at in 0..each {
                        let bits = undefined.bits[lane] >> (width as usize * at);
                        if bits & u64::MAX >> (64 - width) != 0 {
                            let (line, place) = fragment.place(lane, each * register + at);
                            let index = parts * line + place * parts / length;
                            lines[index].get_or_insert(undefined.origins[lane]);
                        }
                    }
                });
            }
            lines
        };
        let (a, b, c) = (
            lines(&its.a, its.inner, 1),
            lines(&its.b, its.inner, 1),
            lines(&its.c, its.columns, its.columns),
        );
        let (width, each) = (its.d.element.bits(), its.d.element.each());
        let all = u64::MAX >> (64 - width);
        for (register, slot) in its.d.registers.iter().enumerate() {
            let (mut bits, mut origins) = ([0; LANES], [Origin::default(); LANES]);
            each_lane(here, |lane| {
                for at in 0..each {
                    let (row, column) = its.d.place(lane, each * register + at);
                    let sum = c[its.columns * row + column];
                    if let Some(origin) = a[row].or(b[its.line_of_b(row, column)]).or(sum) {
                        bits[lane] |= all << (width as usize * at);
                        origins[lane] = origin;
                    }
                }
            });
            self.set(here, (bank(&its.d), *slot), &bits, &origins);
        }
    }

    /// Gives all lanes the same undefined bits, if an operand is undefined in some lanes.
    fn give(&mut self, here: u32, (lanes, from): (u32, Register), d: Register, bits: u64) {
        if lanes == 0 {
            return self.clear(here, d);
        }
        let origin = self.origin(from, lanes.trailing_zeros() as usize);
        self.set(here, d, &[bits; LANES], &[origin; LANES]);
    }
}

/// Returns the lanes in which a function of two predicates is undefined. Each has the lanes in which it is undefined,
/// and its values.
fn combine(logic: Logic, (a, x): (u32, u32), (b, y): (u32, u32)) -> u32 {
    match logic {
        Logic::And => a & (b | y) | b & (a | x),
        Logic::Or => a & (b | !y) | b & (a | !x),
        Logic::Xor => a | b,
    }
}

/// Returns the bits of the result of a bitwise function that change with undefined bits of the operands.
fn flips(f: &dyn Fn([u64; 3]) -> u64, values: [u64; 3], undefined: [u64; 3]) -> u64 {
    let result = f(values);
    (1..8u32).fold(0, |all, flipped| {
        let other = std::array::from_fn(|index| match flipped >> index & 1 {
            0 => values[index],
            _ => values[index] ^ undefined[index],
        });
        all | f(other) ^ result
    })
}

/// Returns all bits of a register.
fn all_of(bank: Bank) -> u64 {
    match bank {
        Bank::Narrow => u32::MAX.into(),
        Bank::Wide => u64::MAX,
        Bank::Predicate => 1,
    }
}

fn each_element(elements: &[Element], f: impl FnMut(Register)) {
    elements.iter().filter_map(|its| of_element(*its)).for_each(f);
}

/// Returns the value of a register in each lane.
fn read(registers: &Registers, (bank, slot): Register) -> [u64; LANES] {
    let slot = slot as usize;
    match bank {
        Bank::Narrow => registers.narrow[slot].map(u64::from),
        Bank::Wide => registers.wide[slot],
        Bank::Predicate => {
            std::array::from_fn(|lane| u64::from(registers.predicates[slot] >> lane & 1))
        }
    }
}

fn write(registers: &mut Registers, (bank, slot): Register, values: &[u64; LANES]) {
    let slot = slot as usize;
    match bank {
        Bank::Narrow => registers.narrow[slot] = values.map(|value| value as u32),
        Bank::Wide => registers.wide[slot] = *values,
        Bank::Predicate => {
            let lanes = values.iter().rev().fold(0, |all, value| all << 1 | (*value as u32 & 1));
            registers.predicates[slot] = lanes;
        }
    }
}
