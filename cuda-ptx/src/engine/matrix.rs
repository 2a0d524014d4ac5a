//! Operations on matrices that the lanes of a warp share.

use super::access::{Context, Place, after};
use super::fault::{FaultKind, Raise};
use super::registers::{LANES, Registers, each_lane};
use super::warp::Warp;
use crate::device::Access;
use crate::number::convert::{f16_to_f32, f32_to_f16};
use crate::number::matrix::{Factor, dot, dot_bytes, dot_quad};
use crate::number::{Format, Mode, f64 as double};
use crate::program::matrix::{Arithmetic, Element, Fragment, Matrix, Multiply, Rows};

/// The elements of 8 rows.
pub(super) type Square = [[u16; 8]; 8];

impl Warp {
    /// Executes an operation for the lanes `here`. The registers of the others, which have exited or have no thread,
    /// count as zero, and the rows that they address are not accessed.
    pub(super) fn execute_matrix(
        &mut self,
        cx: &mut Context<'_, '_>,
        here: u32,
        matrix: &Matrix,
    ) -> Result<(), Raise> {
        match matrix {
            Matrix::Load(rows) => {
                let addresses = self.addresses(&rows.address);
                for (index, d) in rows.registers.iter().enumerate() {
                    let mut square = Square::default();
                    for (row, elements) in square.iter_mut().enumerate() {
                        let lane = 8 * index + row;
                        if here >> lane & 1 != 0 {
                            let place =
                                self.row(cx, lane, (rows, addresses[lane]), Access::Read)?;
                            let low = self.read(cx, lane, place, 8)?;
                            let high = self.read(cx, lane, after(place, 8), 8)?;
                            let both = u128::from(low) | u128::from(high) << 64;
                            *elements = std::array::from_fn(|at| (both >> (16 * at)) as u16);
                        }
                    }
                    let values = to_lanes(&oriented(square, rows.is_transposed));
                    self.registers.set(here, *d, |lane| values[lane]);
                }
            }
            Matrix::Store(rows) => {
                let addresses = self.addresses(&rows.address);
                for (index, a) in rows.registers.iter().enumerate() {
                    let square = from_lanes(here, &self.registers.narrow[*a as usize]);
                    let square = oriented(square, rows.is_transposed);
                    for (row, elements) in square.iter().enumerate() {
                        let lane = 8 * index + row;
                        if here >> lane & 1 != 0 {
                            let place =
                                self.row(cx, lane, (rows, addresses[lane]), Access::Write)?;
                            let both = elements
                                .iter()
                                .rev()
                                .fold(0, |all, its| all << 16 | u128::from(*its));
                            self.write(cx, lane, place, 8, both as u64)?;
                            self.write(cx, lane, after(place, 8), 8, (both >> 64) as u64)?;
                        }
                    }
                }
            }
            Matrix::Transpose { d, a } => {
                let values = transposed(here, &self.registers.narrow[*a as usize]);
                self.registers.set(here, *d, |lane| values[lane]);
            }
            Matrix::Multiply(its) => self.registers.multiply(here, its),
            Matrix::Meet => {}
        }
        Ok(())
    }

    /// Returns the place of a row, which is in shared memory.
    fn row(
        &self,
        cx: &Context<'_, '_>,
        lane: usize,
        (rows, address): (&Rows, u64),
        access: Access,
    ) -> Result<Place, Raise> {
        let at = (rows.address.space, address);
        let place = self.place(cx, lane, at, Rows::BYTES.into(), access)?;
        match place {
            Place::Shared(rank, _) if rank == cx.rank => Ok(place),
            _ => {
                let text = format!(
                    "a row of a matrix at {address:#x} is not in the shared memory of the block"
                );
                Err(Raise::new(FaultKind::IllegalAddress, lane, text).at(address))
            }
        }
    }
}

/// Returns the register of each lane after a transposition of the matrix.
pub(super) fn transposed(here: u32, values: &[u32; LANES]) -> [u32; LANES] {
    to_lanes(&oriented(from_lanes(here, values), true))
}

/// Returns a matrix or its transpose.
pub(super) fn oriented(square: Square, is_transposed: bool) -> Square {
    match is_transposed {
        true => std::array::from_fn(|row| std::array::from_fn(|column| square[column][row])),
        false => square,
    }
}

/// Returns the register of each lane: two elements of a row.
pub(super) fn to_lanes(square: &Square) -> [u32; LANES] {
    std::array::from_fn(|lane| {
        let (row, column) = Rows::place(lane);
        u32::from(square[row][column]) | u32::from(square[row][column + 1]) << 16
    })
}

/// Returns the matrix in a register of the lanes `here`.
pub(super) fn from_lanes(here: u32, values: &[u32; LANES]) -> Square {
    let mut square = Square::default();
    each_lane(here, |lane| {
        let (row, column) = Rows::place(lane);
        [square[row][column], square[row][column + 1]] =
            [values[lane] as u16, (values[lane] >> 16) as u16];
    });
    square
}

/// Returns the format of elements that are no integers.
fn format(element: Element) -> Format {
    match element {
        Element::Float(format) => format,
        Element::Int(..) => Format::F32,
    }
}

impl Registers {
    fn multiply(&mut self, here: u32, its: &Multiply) {
        let Multiply { arithmetic, inner, .. } = *its;
        match arithmetic {
            Arithmetic::Tensor(together) => {
                let half = Element::Float(Format::F16);
                let (is_sum_half, is_half) = (its.c.element == half, its.d.element == half);
                // A result that is a half is rounded from a single, unless all sums are halves.
                let to = if is_sum_half && is_half { Format::F16 } else { Format::F32 };
                let (a, b) = (self.factors(here, &its.a, inner), self.factors(here, &its.b, inner));
                self.each_sum(here, its, |row, column, sum| {
                    let widens = is_sum_half && !is_half;
                    let sum = if widens { f16_to_f32(sum as u16).into() } else { sum };
                    let parts = a[row].chunks(together).zip(b[column].chunks(together));
                    let sum = parts.fold(sum, |sum, (a, b)| dot(a, b, sum, to));
                    let narrows = is_half && !is_sum_half;
                    if narrows { f32_to_f16(sum as u32).into() } else { sum }
                });
            }
            Arithmetic::Bytes => {
                let (a, b) = (self.factors(here, &its.a, inner), self.factors(here, &its.b, inner));
                let to = format(its.c.element);
                self.each_sum(here, its, |row, column, sum| {
                    dot_bytes(&a[row], &b[column], sum, to)
                });
            }
            Arithmetic::Quad => {
                let single = |bits| f16_to_f32(bits as u16);
                let a = self.lines(here, &its.a, inner, single);
                let b = self.lines(here, &its.b, inner, single);
                let is_half = |fragment: &Fragment| fragment.element == Element::Float(Format::F16);
                let (is_sum_half, is_half) = (is_half(&its.c), is_half(&its.d));
                self.each_sum(here, its, |row, column, sum| {
                    let sum = if is_sum_half { single(sum) } else { sum as u32 };
                    dot_quad(&a[row], &b[column], sum, is_half).into()
                });
            }
            Arithmetic::Double(rounding) => {
                let a = self.lines(here, &its.a, inner, |bits| bits);
                let b = self.lines(here, &its.b, inner, |bits| bits);
                let mode = Mode::rounded(rounding);
                self.each_sum(here, its, |row, column, sum| {
                    let products = a[row].iter().zip(&b[column]);
                    products.fold(sum, |sum, (a, b)| double::fma(*a, *b, sum, mode))
                });
            }
            Arithmetic::Int { saturates } => {
                let value = |element: Element| {
                    move |bits: u64| match element {
                        Element::Int(width, true) => (bits << (64 - width)) as i64 >> (64 - width),
                        _ => bits as i64,
                    }
                };
                let a = self.lines(here, &its.a, inner, value(its.a.element));
                let b = self.lines(here, &its.b, inner, value(its.b.element));
                self.each_sum(here, its, |row, column, sum| {
                    let products = a[row].iter().zip(&b[column]).map(|(a, b)| a * b);
                    let sum = i64::from(sum as i32) + products.sum::<i64>();
                    let sum = match saturates {
                        true => sum.clamp(i32::MIN.into(), i32::MAX.into()),
                        false => sum,
                    };
                    u64::from(sum as u32)
                });
            }
            Arithmetic::Bits { is_and } => {
                let a = self.lines(here, &its.a, inner, |bit| bit != 0);
                let b = self.lines(here, &its.b, inner, |bit| bit != 0);
                self.each_sum(here, its, |row, column, sum| {
                    let pairs = a[row].iter().zip(&b[column]);
                    let count =
                        pairs.filter(|(a, b)| if is_and { **a & **b } else { a != b }).count();
                    u64::from((sum as u32).wrapping_add(count as u32))
                });
            }
        }
    }

    /// Returns an element of a lane.
    fn element_of(&self, fragment: &Fragment, lane: usize, index: usize) -> u64 {
        let (bits, each) = (fragment.element.bits(), fragment.element.each());
        let slot = fragment.registers[index / each] as usize;
        match bits {
            64 => self.wide[slot][lane],
            _ => {
                u64::from(self.narrow[slot][lane]) >> (bits as usize * (index % each))
                    & u64::MAX >> (64 - bits)
            }
        }
    }

    /// Returns the lines of a matrix.
    fn lines<T: Clone + Default>(
        &self,
        here: u32,
        fragment: &Fragment,
        length: usize,
        value: impl Fn(u64) -> T,
    ) -> Vec<Vec<T>> {
        let count = fragment.count() * LANES / length;
        let mut lines = vec![vec![value(0); length]; count];
        each_lane(here, |lane| {
            for index in 0..fragment.count() {
                let (line, place) = fragment.place(lane, index);
                lines[line][place] = value(self.element_of(fragment, lane, index));
            }
        });
        lines
    }

    /// Returns the lines of a matrix of floating-point numbers.
    fn factors(&self, here: u32, fragment: &Fragment, length: usize) -> Vec<Vec<Factor>> {
        let format = format(fragment.element);
        self.lines(here, fragment, length, |bits| Factor::of(format, bits))
    }

    /// Sets each element of `d` to a function of the row of `a`, the line of `b` and the element of `c`.
    fn each_sum(&mut self, here: u32, its: &Multiply, f: impl Fn(usize, usize, u64) -> u64) {
        let c = self.lines(here, &its.c, its.columns, |bits| bits);
        let (bits, each) = (its.d.element.bits(), its.d.element.each());
        let mut results = vec![[0; LANES]; its.d.registers.len()];
        each_lane(here, |lane| {
            for index in 0..its.d.count() {
                let (row, column) = its.d.place(lane, index);
                let sum = f(row, its.line_of_b(row, column), c[row][column]);
                results[index / each][lane] |= sum << (bits as usize * (index % each));
            }
        });
        for (d, values) in its.d.registers.iter().zip(&results) {
            match bits {
                64 => self.set(here, *d, |lane| values[lane]),
                _ => self.set(here, *d, |lane| values[lane] as u32),
            }
        }
    }
}
