//! Operations on matrices that the lanes of a warp share.

use super::{Address, Slot};
use crate::number::{Format, Rounding};

/// An operation on matrices, in which all lanes of a warp take part.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Matrix {
    /// `ldmatrix`
    Load(Rows),
    /// `stmatrix`
    Store(Rows),
    /// `movmatrix`
    Transpose { d: Slot, a: Slot },
    /// `mma` and `wmma.mma`
    Multiply(Multiply),
    /// All lanes are there. The loads or stores of each lane for `wmma.load` or `wmma.store` follow.
    Meet,
}

/// Matrices in shared memory, each of 8 rows of 8 elements of 16 bits. Each register has two elements of a matrix.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rows {
    /// The address of a row: that of lane 0 is the first row of the first matrix.
    pub(crate) address: Address,
    pub(crate) is_transposed: bool,
    /// The register of each matrix.
    pub(crate) registers: Box<[Slot]>,
}

impl Rows {
    /// The bytes of a row.
    pub(crate) const BYTES: u32 = 16;

    /// Returns the lanes whose addresses are used.
    pub(crate) fn lanes(&self) -> u32 {
        u32::MAX >> (32 - 8 * self.registers.len())
    }

    /// Returns the row and the column of the first element of a lane. The second one is in the next column, or in the
    /// next row if the matrix is transposed.
    pub(crate) fn place(lane: usize) -> (usize, usize) {
        (lane / 4, 2 * (lane % 4))
    }
}

/// The type of the elements of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    /// An integer of this many bits, and whether it is signed.
    Int(u32, bool),
    Float(Format),
}

impl Element {
    pub(crate) fn bits(self) -> u32 {
        match self {
            Self::Int(bits, _) => bits,
            Self::Float(format) => match format {
                Format::F64 => 64,
                Format::F32 | Format::Tf32 => 32,
                Format::F16 | Format::Bf16 => 16,
                _ => 8,
            },
        }
    }

    /// Returns the number of elements of a register.
    pub(crate) fn each(self) -> usize {
        (32 / self.bits().min(32)) as usize
    }
}

/// Where the elements of a matrix are in the registers of a warp. A line is a row of `a`, `c` and `d`, and a column
/// of `b`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// In tiles of 8 lines, or of two halves with 8 lines each. A group of four lanes has a line of 8. A lane has
    /// `parts` of it, each of one register.
    Factor { halves: usize, parts: usize },
    /// In tiles of 8 columns, for `c` and `d`. A group has a line in each half.
    Sum { halves: usize },
    /// In the four multiplications of `mma.m8n8k4`, whose lines follow each other. A lane has a line.
    QuadLine,
    /// A lane has a place of four lines.
    QuadPlace,
    /// A lane has pieces of two lines of 8 numbers of 32 bits.
    QuadSum,
}

/// A matrix in the registers of a warp.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fragment {
    pub(crate) element: Element,
    pub(crate) layout: Layout,
    pub(crate) registers: Box<[Slot]>,
}

impl Fragment {
    /// Returns the number of elements of a lane.
    pub(crate) fn count(&self) -> usize {
        self.registers.len() * self.element.each()
    }

    /// Returns the line of an element of a lane, and its place in the line.
    pub(crate) fn place(&self, lane: usize, index: usize) -> (usize, usize) {
        let (group, thread) = (lane / 4, lane % 4);
        let (quad, high) = (group % 4, lane / 16);
        match self.layout {
            Layout::Factor { halves, parts } => {
                let each = self.element.each();
                let (register, index) = (index / each, index % each);
                let (half, part) = (register % halves, register / halves % parts);
                let tile = register / halves / parts;
                (group + 8 * (half + halves * tile), each * (thread + 4 * part) + index)
            }
            Layout::Sum { halves } => {
                let (half, tile) = (index / 2 % halves, index / 2 / halves);
                (group + 8 * half, 2 * thread + index % 2 + 8 * tile)
            }
            Layout::QuadLine => (8 * quad + thread + 4 * high, index),
            Layout::QuadPlace => (8 * quad + index + 4 * high, thread),
            Layout::QuadSum => (
                8 * quad + 4 * high + (thread & 1) + (index & 2),
                (index & 4) + (thread & 2) + (index & 1),
            ),
        }
    }
}

/// How products are made and added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    /// As tensor cores do, which add this many products at once.
    Tensor(usize),
    /// Of factors of 8 bits.
    Bytes,
    /// Of four products.
    Quad,
    Double(Rounding),
    /// Whether the sum is clamped.
    Int {
        saturates: bool,
    },
    /// The bits that are counted: those that are in both factors, or in one.
    Bits {
        is_and: bool,
    },
}

/// A multiplication, `d` = `a` × `b` + `c`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Multiply {
    pub(crate) arithmetic: Arithmetic,
    /// The number of products of a sum.
    pub(crate) inner: usize,
    /// The number of columns of a multiplication.
    pub(crate) columns: usize,
    /// Whether four multiplications are one instruction.
    pub(crate) is_quads: bool,
    pub(crate) d: Fragment,
    pub(crate) a: Fragment,
    pub(crate) b: Fragment,
    pub(crate) c: Fragment,
}

impl Multiply {
    /// Returns the line of `b` that is multiplied with a row of `a`, for a column.
    pub(crate) fn line_of_b(&self, row: usize, column: usize) -> usize {
        if self.is_quads { row / 8 * 8 + column } else { column }
    }
}
