//! `wmma`: fragments of matrices in the registers of a warp.
//!
//! PTX does not state which elements a lane has. This is the arrangement of an H200, measured: that of the tiles of `mma`
//! with 8 columns, one tile after the other. A multiplication of 8 rows and 32 columns is that of 32 rows and 8 columns
//! with transposed matrices. Halves of `a` and `b` are in the registers more than once, and the first copy is used.
//!
//! Loads and stores become those of single lanes. All lanes compute their addresses first, since the address may be in a
//! register that the load writes.

use super::Problem;
use super::function::Decoder;
use super::matrix::{element, has_no_other, needs, of_bits};
use super::words::Words;
use crate::number::{Format, Rounding};
use crate::program::matrix::{
    Arithmetic, Element, Fragment, Layout, Matrix as Operation, Multiply,
};
use crate::program::{
    Address, Bank, Base, Binary, Constant, Element as Register, Elements, Int, Op, Slot, Space,
    Special, Ternary, Transfer,
};
use crate::syntax::{Instruction, Operand, Type};

/// One of the matrices of a multiplication: `a`, `b`, or `c` and `d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Matrix {
    A,
    B,
    Sum,
}

/// The extents of a multiplication, as a modifier names them.
#[derive(Clone, Copy, Debug)]
struct Shape {
    rows: usize,
    columns: usize,
    /// The number of products of a sum.
    inner: usize,
    /// Whether the matrices are transposed, and `a` and `b` exchanged.
    is_transposed: bool,
}

impl Shape {
    /// Takes a shape.
    fn take(words: &mut Words<'_>) -> Result<Self, Problem> {
        const SHAPES: [(&str, [usize; 3]); 7] = [
            ("m16n16k16", [16, 16, 16]),
            ("m8n32k16", [32, 8, 16]),
            ("m32n8k16", [32, 8, 16]),
            ("m16n16k8", [16, 16, 8]),
            ("m8n8k4", [8, 8, 4]),
            ("m8n8k32", [8, 8, 32]),
            ("m8n8k128", [8, 8, 128]),
        ];
        match SHAPES.into_iter().find(|(name, _)| words.take(name)) {
            Some((name, [rows, columns, inner])) => {
                Ok(Self { rows, columns, inner, is_transposed: name == "m8n32k16" })
            }
            None => Problem::invalid("the shape is missing"),
        }
    }

    /// Returns whether `a` and `b` have this type.
    fn has_factor(self, its: Element) -> bool {
        match its {
            Element::Float(Format::F16 | Format::Bf16) | Element::Int(8, _) => self.inner == 16,
            Element::Float(Format::Tf32) => self.inner == 8,
            Element::Float(Format::F64) => self.inner == 4,
            Element::Int(4, _) => self.inner == 32,
            Element::Int(1, _) => self.inner == 128,
            _ => false,
        }
    }

    /// Returns whether `c` and `d` have this type with some factors.
    fn has_sum(self, its: Element) -> bool {
        match its {
            Element::Float(Format::F16) => self.inner == 16,
            Element::Float(Format::F32) => self.inner != 4,
            Element::Float(Format::F64) => self.inner == 4,
            Element::Int(32, _) => !matches!(self.inner, 4 | 8),
            _ => false,
        }
    }

    /// Returns the lines of a matrix, their length and their arrangement.
    fn arrangement(self, matrix: Matrix, its: Element) -> (usize, usize, Layout) {
        let matrix = match (matrix, self.is_transposed) {
            (Matrix::A, true) => Matrix::B,
            (Matrix::B, true) => Matrix::A,
            (matrix, _) => matrix,
        };
        let halves = |lines: usize| lines.min(16) / 8;
        let parts = self.inner / (4 * its.each());
        match matrix {
            Matrix::A => {
                let layout = Layout::Factor { halves: halves(self.rows), parts };
                (self.rows, self.inner, layout)
            }
            Matrix::B => (self.columns, self.inner, Layout::Factor { halves: 1, parts }),
            Matrix::Sum => (self.rows, self.columns, Layout::Sum { halves: self.rows / 8 }),
        }
    }
}

/// The registers of a fragment, with those that have copies of the first ones.
struct Registers {
    fragment: Fragment,
    /// The length of a line.
    length: usize,
    copies: Box<[Slot]>,
}

impl<'a> Decoder<'_, '_, 'a> {
    /// Decodes `wmma`.
    pub(super) fn wmma(
        &mut self,
        its: &'a Instruction<'a>,
        words: &mut Words<'a>,
    ) -> Result<(), Problem> {
        let operands = &its.operands;
        match words.one_of(&["load", "store", "mma"]) {
            Some("load") => {
                let matrix = match words.one_of(&["a", "b", "c"]) {
                    Some("a") => Matrix::A,
                    Some("b") => Matrix::B,
                    Some(_) => Matrix::Sum,
                    None => return Problem::invalid("it needs `.a`, `.b` or `.c`"),
                };
                self.move_fragment(matrix, false, operands, words)
            }
            Some("store") => {
                needs(words, &["d"])?;
                self.move_fragment(Matrix::Sum, true, operands, words)
            }
            Some(_) => {
                let multiply = self.multiply_fragments(operands, words)?;
                self.emit_matrix(Operation::Multiply(multiply));
                Ok(())
            }
            None => Problem::invalid("it needs `.load`, `.store` or `.mma`"),
        }
    }

    /// Returns the registers of a fragment.
    fn fragment(
        &mut self,
        operand: &Operand<'a>,
        shape: Shape,
        (matrix, element): (Matrix, Element),
        is_written: bool,
    ) -> Result<Registers, Problem> {
        let (lines, length, layout) = shape.arrangement(matrix, element);
        let count = match element.bits() {
            64 => lines * length / 32,
            bits => lines * length * bits as usize / 1024,
        };
        let is_copied = matrix != Matrix::Sum && element == Element::Float(Format::F16);
        let ty = match element {
            Element::Float(Format::F64) => Type::F64,
            Element::Float(Format::F32) => Type::F32,
            _ => Type::B32,
        };
        let total = (if is_copied { 8 } else { count }, ty);
        let mut all = match is_written {
            true => self.vector(operand, total, Decoder::narrow_target)?,
            false => self.vector(operand, total, Decoder::source)?,
        }
        .into_vec();
        let copies = all.split_off(count).into();
        let fragment = Fragment { element, layout, registers: all.into() };
        Ok(Registers { fragment, length, copies })
    }

    /// Decodes a load or store.
    fn move_fragment(
        &mut self,
        matrix: Matrix,
        is_store: bool,
        operands: &[Operand<'a>],
        words: &mut Words<'a>,
    ) -> Result<(), Problem> {
        needs(words, &["sync", "aligned"])?;
        let shape = Shape::take(words)?;
        let Some(layout) = words.one_of(&["row", "col"]) else {
            return Problem::invalid("it needs `.row` or `.col`");
        };
        let space = match words.one_of(&["shared", "shared::cta", "global"]) {
            Some("global") => Space::Global,
            Some(_) => Space::Shared,
            None => Space::Generic,
        };
        if words.one_of(&["local", "const", "param", "shared::cluster"]).is_some() {
            return Problem::invalid(
                "matrices are in global memory, or in the shared memory of the block",
            );
        }
        let types: Vec<Element> = words.peek().iter().filter_map(|word| element(word)).collect();
        words.drop_all(|word| element(word).is_some());
        let [element] = types[..] else { return Problem::invalid("it needs one type") };
        let has_type = match matrix {
            Matrix::Sum => shape.has_sum(element),
            _ => shape.has_factor(element),
        };
        if !has_type {
            return Problem::invalid("the matrix of this shape does not have this type");
        }
        // The lines of `b` are columns.
        let is_contiguous = (layout == "row")
            != ((matrix == Matrix::B) != (matrix == Matrix::Sum && shape.is_transposed));
        if element.bits() < 8 && !is_contiguous {
            return Problem::invalid("the matrix of this type does not have this layout");
        }
        if !(2..=3).contains(&operands.len()) {
            return Problem::invalid("it has two or three operands");
        }
        let (register, memory) = if is_store { (1, 0) } else { (0, 1) };
        let operand = self.operand(operands, register)?;
        let registers = self.fragment(operand, shape, (matrix, element), !is_store)?;
        let address = self.address(self.operand(operands, memory)?, space)?;
        if address.space == Space::Frame {
            return Problem::invalid("matrices are in global or shared memory");
        }
        let stride = match operands.get(2) {
            Some(operand) => self.source(operand, Type::U32)?,
            None => {
                let lines = registers.fragment.count() * 32 / registers.length;
                let default = if is_contiguous { registers.length } else { lines };
                self.number(default as u32)
            }
        };
        // All lanes must be there. Accesses that nothing orders stay so.
        self.emit_matrix(Operation::Meet);
        let accesses = self.accesses(&registers.fragment, (address, stride), is_contiguous);
        for access in accesses {
            self.access(&registers.fragment, access, is_store);
        }
        if !is_store {
            let Registers { fragment, copies, .. } = &registers;
            for (copy, from) in copies.iter().zip(fragment.registers.iter().cycle()) {
                self.emit(Op::Move(Bank::Narrow, *copy, *from));
            }
        }
        Ok(())
    }

    /// Returns a register with a number.
    fn number(&mut self, value: u32) -> Slot {
        self.builder.constant(Bank::Narrow, Constant::Bits(value.into()))
    }

    /// Emits a function of two numbers of 32 bits.
    fn narrow(&mut self, f: Binary, a: Slot, b: Slot) -> Slot {
        let d = self.builder.register(Bank::Narrow);
        self.emit(Op::Binary(f, d, [a, b]));
        d
    }

    /// Emits `base` + `a` × `b`.
    fn advance(&mut self, base: Base, a: Slot, b: Slot) -> Base {
        match base {
            Base::Wide(base) => {
                let d = self.builder.register(Bank::Wide);
                self.emit(Op::Ternary(Ternary::MadWide(Int::U32), d, [a, b, base]));
                Base::Wide(d)
            }
            Base::Narrow(_) | Base::None => {
                let base = match base {
                    Base::Narrow(base) => base,
                    _ => self.number(0),
                };
                let d = self.builder.register(Bank::Narrow);
                self.emit(Op::Ternary(Ternary::Mad(Int::U32), d, [a, b, base]));
                Base::Narrow(d)
            }
        }
    }

    /// Computes the addresses of the elements of a fragment, and returns them with the accesses that read or write them.
    /// `is_contiguous` says whether the elements of a line follow each other in memory.
    fn accesses(
        &mut self,
        fragment: &Fragment,
        (address, stride): (Address, Slot),
        is_contiguous: bool,
    ) -> Vec<Access> {
        let bits = fragment.element.bits();
        let bytes = |elements: usize| elements as u32 * bits / 8;
        let lane = self.builder.constant(Bank::Narrow, Constant::Special(Special::Laneid));
        let [two, three] = [2, 3].map(|number| self.number(number));
        let group = self.narrow(Binary::Shr(Int::U32), lane, two);
        let thread = self.narrow(Binary::And(Int::U32), lane, three);
        // A lane is in the line of its group, and lanes of a group follow each other with this distance.
        let (_, distance) = fragment.place(1, 0);
        // The bytes between two lines of memory.
        let pitch = match bits {
            8.. => {
                let size = self.number(bytes(1));
                self.narrow(Binary::Mul(Int::U32), stride, size)
            }
            _ => {
                let shift = self.number((8 / bits).ilog2());
                self.narrow(Binary::Shr(Int::U32), stride, shift)
            }
        };
        let mut base = address.base;
        if is_contiguous {
            base = self.advance(base, group, pitch);
            let size = self.number(bytes(distance));
            base = self.advance(base, thread, size);
        } else {
            let distance = self.number(distance as u32);
            let line = self.narrow(Binary::Mul(Int::U32), thread, distance);
            base = self.advance(base, line, pitch);
            let size = self.number(bytes(1));
            base = self.advance(base, group, size);
        }
        let mut lines = vec![(0, base)];
        let mut at = |its: &mut Self, index: usize| {
            let (line, place) = fragment.place(0, index);
            let (line, place) = if is_contiguous { (line, place) } else { (place, line) };
            let known = lines.iter().find(|(number, _)| *number == line);
            let base = known.map(|(_, base)| *base).unwrap_or_else(|| {
                let number = its.number(line as u32);
                let new = its.advance(base, number, pitch);
                lines.push((line, new));
                new
            });
            Address { base, offset: address.offset + i64::from(bytes(place)), ..address }
        };
        let each = fragment.element.each();
        let count = fragment.registers.len();
        // Neighbours in a line of `c` or `d` are one access, also if they are in two registers.
        let is_pair = is_contiguous && bits >= 32 && matches!(fragment.layout, Layout::Sum { .. });
        let step = if is_pair { 2 } else { 1 };
        (0..count)
            .step_by(step)
            .map(|first| Access {
                registers: first..first + step,
                places: match is_contiguous || each == 1 {
                    true => vec![at(self, each * first)],
                    false => (0..each).map(|index| at(self, each * first + index)).collect(),
                },
            })
            .collect()
    }

    /// Emits the loads or stores of an access.
    fn access(&mut self, fragment: &Fragment, access: Access, is_store: bool) {
        let Access { registers, places } = access;
        let is_wide = fragment.element.bits() == 64;
        let slots = fragment.registers[registers].iter();
        let of_slot = |slot| if is_wide { Register::Wide(slot) } else { Register::Narrow(slot) };
        let slots: Box<[Register]> = slots.map(|slot| of_slot(*slot)).collect();
        let transfer = |its: &mut Self, address, size, elements| {
            let transfer = Transfer { address, size, is_signed: false, order: None, elements };
            its.emit(if is_store { Op::Store(transfer) } else { Op::Load(transfer) });
        };
        if let [place] = places[..] {
            let elements = match slots[..] {
                [one] => Elements::One(one),
                _ => Elements::Several(slots),
            };
            return transfer(self, place, if is_wide { 8 } else { 4 }, elements);
        }
        // Each element has a register of its own between the register of the fragment and memory.
        let part = fragment.element.bits();
        let parts: Box<[Register]> =
            places.iter().map(|_| Register::Narrow(self.builder.register(Bank::Narrow))).collect();
        if is_store {
            self.emit(Op::Unpack { part, d: parts.clone(), a: slots.clone() });
        }
        for (place, part_of) in places.into_iter().zip(&parts) {
            transfer(self, place, part / 8, Elements::One(*part_of));
        }
        if !is_store {
            self.emit(Op::Pack { part, d: slots, a: parts });
        }
    }

    fn multiply_fragments(
        &mut self,
        operands: &[Operand<'a>],
        words: &mut Words<'a>,
    ) -> Result<Multiply, Problem> {
        needs(words, &["sync", "aligned"])?;
        let shape = Shape::take(words)?;
        let layouts: Vec<&str> =
            words.peek().iter().copied().filter(|word| ["row", "col"].contains(word)).collect();
        words.drop_all(|word| ["row", "col"].contains(&word));
        let types: Vec<Element> = words.peek().iter().filter_map(|word| element(word)).collect();
        words.drop_all(|word| element(word).is_some());
        let half = Element::Float(Format::F16);
        let (d, factors, c) = match types[..] {
            // The type of the factors is not named.
            [d, c] => (d, [half; 2], c),
            [d, a, b, c] if a != half => (d, [a, b], c),
            _ => return Problem::invalid("it needs two or four types"),
        };
        let [a, b] = factors;
        let single = Element::Float(Format::F32);
        let has_sums = match a {
            Element::Float(Format::F16) => [c, d].iter().all(|its| [half, single].contains(its)),
            Element::Float(Format::F64) => (d, c) == (a, a),
            Element::Float(_) => (d, c) == (single, single),
            Element::Int(..) => (d, c) == (Element::Int(32, true), Element::Int(32, true)),
        };
        if a != b || !shape.has_factor(a) || !has_sums {
            return Problem::invalid("there is no multiplication of this shape and these types");
        }
        match layouts[..] {
            ["row", "col"] => {}
            [_, _] if a.bits() >= 8 => {}
            _ => return Problem::invalid("there is no multiplication with these layouts"),
        }
        let arithmetic = match a {
            Element::Float(Format::F64) => {
                Arithmetic::Double(words.rounding().unwrap_or(Rounding::NearestEven))
            }
            // Two instructions of the tensor core.
            Element::Float(Format::Tf32) => Arithmetic::Tensor(4),
            Element::Float(_) => Arithmetic::Tensor(shape.inner),
            Element::Int(1, _) => of_bits(words)?,
            Element::Int(..) => Arithmetic::Int { saturates: words.take("satfinite") },
        };
        has_no_other(words)?;
        if operands.len() != 4 {
            return Problem::invalid("it has four operands");
        }
        let mut one = |index, matrix, element| {
            let operand = self.operand(operands, index)?;
            let registers = self.fragment(operand, shape, (matrix, element), index == 0)?;
            Ok(registers.fragment)
        };
        let [a, b] = [one(1, Matrix::A, a)?, one(2, Matrix::B, b)?];
        let (a, b) = if shape.is_transposed { (b, a) } else { (a, b) };
        let c = one(3, Matrix::Sum, c)?;
        let d = one(0, Matrix::Sum, d)?;
        let Shape { columns, inner, .. } = shape;
        Ok(Multiply { arithmetic, inner, columns, is_quads: false, d, a, b, c })
    }
}

/// An access of each lane.
struct Access {
    /// The registers of the fragment, as a range.
    registers: std::ops::Range<usize>,
    /// The address, or that of each element of a register if they do not follow each other.
    places: Vec<Address>,
}
