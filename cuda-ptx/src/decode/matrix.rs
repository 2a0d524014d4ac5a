//! Instructions on matrices that the lanes of a warp share.

use super::Problem;
use super::function::Decoder;
use super::words::Words;
use crate::number::{Format, Rounding};
use crate::program::matrix::{Arithmetic, Element, Fragment, Layout, Matrix, Multiply, Rows};
use crate::program::{Bank, Constant, Op, Slot, Space, Together};
use crate::syntax::{Instruction, Operand, Type};

/// Returns the type of elements that a modifier names.
pub(super) fn element(word: &str) -> Option<Element> {
    Some(match word.as_bytes() {
        b"f16" => Element::Float(Format::F16),
        b"bf16" => Element::Float(Format::Bf16),
        b"tf32" => Element::Float(Format::Tf32),
        b"e4m3" => Element::Float(Format::E4m3),
        b"e5m2" => Element::Float(Format::E5m2),
        b"f32" => Element::Float(Format::F32),
        b"f64" => Element::Float(Format::F64),
        b"s8" => Element::Int(8, true),
        b"u8" => Element::Int(8, false),
        b"s4" => Element::Int(4, true),
        b"u4" => Element::Int(4, false),
        b"b1" => Element::Int(1, false),
        b"s32" => Element::Int(32, true),
        _ => return None,
    })
}

/// The extents of a multiplication, and the types of its matrices.
struct Product {
    extents: [usize; 3],
    d: Element,
    a: Element,
    b: Element,
    c: Element,
}

impl Product {
    /// Returns whether there is an instruction with this shape and these types.
    fn exists(&self) -> bool {
        use Format::{Bf16, E4m3, E5m2, F16, F32, F64, Tf32};
        let Self { extents: [m, n, k], d, a, b, c } = *self;
        let bits = k * a.bits() as usize;
        let is_tall = (m, n) == (16, 8) && (bits == 128 || bits == 256);
        let is_square = (m, n) == (8, 8) && bits == 128;
        match (a, b) {
            (Element::Float(F16), Element::Float(F16)) if (m, n, k) == (8, 8, 4) => matches!(
                (d, c),
                (Element::Float(F16 | F32), Element::Float(F16))
                    | (Element::Float(F32), Element::Float(F32))
            ),
            (Element::Float(F16), Element::Float(F16))
            | (Element::Float(E4m3 | E5m2), Element::Float(E4m3 | E5m2)) => {
                is_tall && d == c && matches!(c, Element::Float(F16 | F32))
            }
            (Element::Float(Bf16), Element::Float(Bf16))
            | (Element::Float(Tf32), Element::Float(Tf32)) => {
                is_tall && (d, c) == (Element::Float(F32), Element::Float(F32))
            }
            (Element::Float(F64), Element::Float(F64)) => {
                ((m, n, k) == (8, 8, 4) || (m, n) == (16, 8) && matches!(k, 4 | 8 | 16))
                    && (d, c) == (a, a)
            }
            (Element::Int(bits, _), Element::Int(other, _)) => {
                let sum = Element::Int(32, true);
                bits == other && bits < 32 && (is_tall || is_square) && (d, c) == (sum, sum)
            }
            _ => false,
        }
    }
}

/// Returns the extents of a shape such as `m16n8k16`.
fn extents(word: &str) -> Option<[usize; 3]> {
    let mut numbers = word.strip_prefix('m')?.split(['n', 'k']).map(|number| number.parse().ok());
    let mut next = || numbers.next().flatten();
    Some([next()?, next()?, next()?])
}

impl<'a> Decoder<'_, '_, 'a> {
    /// Decodes an instruction on matrices. Returns whether it is one.
    pub(super) fn matrix(
        &mut self,
        its: &'a Instruction<'a>,
        words: &mut Words<'a>,
    ) -> Result<bool, Problem> {
        let operands = &its.operands;
        let matrix = match its.opcode().as_bytes() {
            b"ldmatrix" => {
                let (count, is_transposed) = moved(words)?;
                let address = self.matrices(self.operand(operands, 1)?, words)?;
                let d = self.vector(self.operand(operands, 0)?, count, Decoder::narrow_target)?;
                Matrix::Load(Rows { address, is_transposed, registers: d })
            }
            b"stmatrix" => {
                let (count, is_transposed) = moved(words)?;
                let address = self.matrices(self.operand(operands, 0)?, words)?;
                let a = self.vector(self.operand(operands, 1)?, count, Decoder::read_register)?;
                Matrix::Store(Rows { address, is_transposed, registers: a })
            }
            b"movmatrix" => {
                needs(words, &["sync", "aligned", "m8n8", "trans", "b16"])?;
                let a = self.read_register(self.operand(operands, 1)?, Type::B32)?;
                let d = self.target(self.operand(operands, 0)?, Type::B32)?;
                Matrix::Transpose { d, a }
            }
            b"mma" => Matrix::Multiply(self.multiply(operands, words)?),
            b"wmma" => {
                self.wmma(its, words)?;
                return Ok(true);
            }
            _ => return Ok(false),
        };
        self.emit_matrix(matrix);
        Ok(true)
    }

    /// Emits an operation in which all lanes take part.
    pub(super) fn emit_matrix(&mut self, matrix: Matrix) {
        let mask = self.builder.constant(Bank::Narrow, Constant::Bits(u32::MAX.into()));
        self.emit(Op::Together { mask, operation: Together::Matrix(Box::new(matrix)) });
    }

    /// Returns the address of rows in shared memory.
    fn matrices(
        &mut self,
        operand: &Operand<'a>,
        words: &mut Words<'a>,
    ) -> Result<crate::program::Address, Problem> {
        let space = match words.one_of(&["shared", "shared::cta"]) {
            Some(_) => Space::Shared,
            None => Space::Generic,
        };
        let others = ["global", "local", "const", "param", "shared::cluster"];
        if words.one_of(&others).is_some() {
            return Problem::invalid("matrices are in the shared memory of the block");
        }
        self.address(operand, space)
    }

    pub(super) fn narrow_target(
        &mut self,
        operand: &Operand<'a>,
        ty: Type,
    ) -> Result<Slot, Problem> {
        self.target(operand, ty)
    }

    /// Returns the register of an operand that is read and must not be a constant.
    fn read_register(&mut self, operand: &Operand<'a>, ty: Type) -> Result<Slot, Problem> {
        match operand {
            Operand::Immediate(_) => Problem::invalid("an operand is not a register"),
            operand => self.source(operand, ty),
        }
    }

    /// Returns the registers of a vector of `count` elements, each of which `one` decodes.
    pub(super) fn vector(
        &mut self,
        operand: &Operand<'a>,
        (count, ty): (usize, Type),
        one: impl Fn(&mut Self, &Operand<'a>, Type) -> Result<Slot, Problem>,
    ) -> Result<Box<[Slot]>, Problem> {
        match operand {
            Operand::Vector(list) if list.iter().all(|its| matches!(its, Operand::Discard)) => {
                Problem::invalid("a vector has no register")
            }
            Operand::Vector(list) if list.len() == count => {
                list.iter().map(|its| one(self, its, ty)).collect()
            }
            _ => Problem::invalid(format!("an operand is not a vector of {count} registers")),
        }
    }

    fn multiply(
        &mut self,
        operands: &[Operand<'a>],
        words: &mut Words<'a>,
    ) -> Result<Multiply, Problem> {
        let is_sparse = |word: &&str| *word == "sp" || word.starts_with("sp::");
        if words.peek().iter().any(is_sparse) {
            return Problem::unsupported("a sparse matrix");
        }
        if words.peek().iter().any(|word| word.starts_with("kind::") || *word == "block_scale") {
            return Problem::unsupported("a matrix with scales or elements of 4 and 6 bits");
        }
        needs(words, &["sync", "aligned"])?;
        let shape = words.peek().iter().find_map(|word| extents(word));
        let Some(extents) = shape else { return Problem::invalid("the shape is missing") };
        words.drop_all(|word| self::extents(word).is_some());
        let is_row: Vec<bool> = words
            .peek()
            .iter()
            .filter(|word| ["row", "col"].contains(word))
            .map(|word| *word == "row")
            .collect();
        words.drop_all(|word| ["row", "col"].contains(&word));
        let types: Vec<Element> = words.peek().iter().filter_map(|word| element(word)).collect();
        words.drop_all(|word| element(word).is_some());
        let (&[is_a_row, is_b_row], &[d, a, b, c]) = (&is_row[..], &types[..]) else {
            return Problem::invalid("it needs two layouts and four types");
        };
        let product = Product { extents, d, a, b, c };
        if !product.exists() {
            return Problem::invalid("there is no multiplication of this shape and these types");
        }
        let [m, n, k] = extents;
        let is_quads = (m, n, k) == (8, 8, 4) && a == Element::Float(Format::F16);
        if !is_quads && (is_a_row, is_b_row) != (true, false) {
            return Problem::invalid("the layouts of this shape are `.row.col`");
        }
        let arithmetic = match a {
            Element::Float(Format::F64) => {
                Arithmetic::Double(words.rounding().unwrap_or(Rounding::NearestEven))
            }
            Element::Float(Format::E4m3 | Format::E5m2) => Arithmetic::Bytes,
            Element::Float(_) if is_quads => Arithmetic::Quad,
            Element::Float(_) => Arithmetic::Tensor(k),
            Element::Int(1, _) => of_bits(words)?,
            Element::Int(..) => Arithmetic::Int { saturates: words.take("satfinite") },
        };
        has_no_other(words)?;
        let stack = if is_quads { 4 } else { 1 };
        let sum = |element: Element| match element.bits() {
            32 if is_quads => Layout::QuadSum,
            _ if is_quads => Layout::QuadLine,
            _ => Layout::Sum { halves: m / 8 },
        };
        let parts = k / (4 * a.each());
        let factor = |halves, is_line| match (is_quads, is_line) {
            (false, _) => Layout::Factor { halves, parts },
            (true, true) => Layout::QuadLine,
            (true, false) => Layout::QuadPlace,
        };
        let mut fragment = |index, elements: usize, element: Element, layout| {
            let count = stack * elements * element.bits() as usize / 1024;
            let (count, ty) = match element.bits() {
                64 => (elements / 32, Type::F64),
                32 if element == Element::Float(Format::F32) => (count, Type::F32),
                _ => (count, Type::B32),
            };
            let operand = self.operand(operands, index)?;
            let registers = match index {
                0 => self.vector(operand, (count, ty), Decoder::narrow_target)?,
                _ => self.vector(operand, (count, ty), Decoder::source)?,
            };
            Ok(Fragment { element, layout, registers })
        };
        let a = fragment(1, m * k, a, factor(m / 8, is_a_row))?;
        let b = fragment(2, k * n, b, factor(1, !is_b_row))?;
        let c = fragment(3, m * n, c, sum(c))?;
        let d = fragment(0, m * n, d, sum(d))?;
        Ok(Multiply { arithmetic, inner: k, columns: n, is_quads, d, a, b, c })
    }
}

/// Takes the modifiers of a multiplication of bits.
pub(super) fn of_bits(words: &mut Words<'_>) -> Result<Arithmetic, Problem> {
    let operation = words.one_of(&["xor", "and"]);
    if operation.is_none() || !words.take("popc") {
        return Problem::invalid("it needs `.xor.popc` or `.and.popc`");
    }
    Ok(Arithmetic::Bits { is_and: operation == Some("and") })
}

/// Checks that the modifiers of the arithmetic of a multiplication were taken.
pub(super) fn has_no_other(words: &Words<'_>) -> Result<(), Problem> {
    let all = ["satfinite", "rn", "rz", "rm", "rp", "xor", "and", "popc"];
    match words.peek().iter().any(|word| all.contains(word)) {
        true => Problem::invalid("the types do not have this modifier"),
        false => Ok(()),
    }
}

/// Takes modifiers that an instruction must have.
pub(super) fn needs(words: &mut Words<'_>, all: &[&str]) -> Result<(), Problem> {
    match all.iter().find(|word| !words.take(word)) {
        Some(word) => Problem::invalid(format!("it needs `.{word}`")),
        None => Ok(()),
    }
}

/// Takes the modifiers of a move of matrices, but for the state space. Returns the registers and whether the matrices
/// are transposed.
fn moved(words: &mut Words<'_>) -> Result<((usize, Type), bool), Problem> {
    if let Some(shape) = words.one_of(&["m16n16", "m8n16", "m16n8"]) {
        return Problem::unsupported(format!("the shape {shape}"));
    }
    needs(words, &["sync", "aligned", "m8n8"])?;
    let count = match words.one_of(&["x1", "x2", "x4"]) {
        Some("x1") => 1,
        Some("x2") => 2,
        Some(_) => 4,
        None => return Problem::invalid("it needs `.x1`, `.x2` or `.x4`"),
    };
    needs(words, &["b16"])?;
    Ok(((count, Type::B32), words.take("trans")))
}
