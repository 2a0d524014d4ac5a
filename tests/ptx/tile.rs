//! Matrices as the operands of a warp, and the elements that tell models of the arithmetic apart.

use crate::common::random::Random;

/// A type of elements, by its name in PTX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Element(pub(crate) &'static str);

impl Element {
    /// Returns the bits of an element in a register.
    pub(crate) fn bits(self) -> u32 {
        match self.0 {
            "b1" => 1,
            "s4" | "u4" => 4,
            "s8" | "u8" | "e4m3" | "e5m2" => 8,
            "f16" | "bf16" => 16,
            "f64" => 64,
            _ => 32,
        }
    }

    /// Returns the bits of the exponent and of the fraction, if it is a floating-point number.
    fn float(self) -> Option<(u32, u32)> {
        Some(match self.0 {
            "e4m3" => (4, 3),
            "e5m2" => (5, 2),
            "f16" => (5, 10),
            "bf16" => (8, 7),
            // The instructions take 32 bits, of which they use 19.
            "f32" | "tf32" => (8, 23),
            "f64" => (11, 52),
            _ => return None,
        })
    }

    /// Returns the number with a sign, an exponent and the upper bits of a fraction. A number beyond the range has
    /// the greatest exponent, or is subnormal.
    fn number(self, is_negative: bool, exponent: i32, fraction: u64) -> u64 {
        let (exponents, fractions) = self.float().expect("a floating-point type");
        let bias = (1 << (exponents - 1)) - 1;
        let fraction = fraction >> (64 - fractions);
        let greatest = if self.0 == "e4m3" { 8 } else { bias };
        let exponent = exponent.min(greatest);
        let magnitude = match exponent + bias {
            biased if biased > 0 => (biased as u64) << fractions | fraction,
            biased => (1 << fractions | fraction).checked_shr((1 - biased) as u32).unwrap_or(0),
        };
        // The last pattern of e4m3 is NaN.
        let magnitude = if self.0 == "e4m3" { magnitude.min(0x7e) } else { magnitude };
        u64::from(is_negative) << (exponents + fractions) | magnitude
    }

    /// Returns an infinity or NaN.
    fn special(self, bits: u64) -> u64 {
        let (exponents, fractions) = self.float().expect("a floating-point type");
        let sign = (bits >> 63) << (exponents + fractions);
        match self.0 {
            "e4m3" => sign | 0x7f,
            _ => {
                let fraction = if bits & 1 == 0 { 0 } else { bits >> (64 - fractions) };
                sign | ((1 << exponents) - 1) << fractions | fraction
            }
        }
    }
}

/// One of the matrices of a multiplication: `a`, `b` or `c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Matrix {
    A,
    B,
    C,
}

/// What the elements of a tile have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavor {
    /// Numbers of about the same size.
    Near,
    /// Exponents that differ by more than the bits of a half.
    Spread,
    /// Any finite numbers.
    Any,
    /// Products that cancel each other, except for the last bits.
    Cancel,
    /// Zeros of both signs among any numbers.
    Sparse,
    /// Infinities and NaN among other numbers.
    Special,
    /// Subnormal numbers, and small ones.
    Subnormal,
    /// One large product among small ones.
    Align,
    /// Numbers near the greatest one.
    Overflow,
    /// Zeros of both signs.
    Zero,
}

pub(crate) const FLAVORS: [Flavor; 10] = [
    Flavor::Near,
    Flavor::Spread,
    Flavor::Any,
    Flavor::Cancel,
    Flavor::Sparse,
    Flavor::Special,
    Flavor::Subnormal,
    Flavor::Align,
    Flavor::Overflow,
    Flavor::Zero,
];

/// The extents of a multiplication, and its types.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Product {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) a: Element,
    pub(crate) b: Element,
    pub(crate) c: Element,
}

impl Product {
    /// Returns an element of a tile. `special` is the index of the large product of [`Flavor::Align`].
    fn element(
        &self,
        (flavor, special): (Flavor, usize),
        matrix: Matrix,
        k: usize,
        random: &mut Random,
    ) -> u64 {
        let its = match matrix {
            Matrix::A => self.a,
            Matrix::B => self.b,
            Matrix::C => self.c,
        };
        let is_c = matrix == Matrix::C;
        let bits = random.next();
        let Some((exponents, _)) = its.float() else {
            return self.integer(flavor, its, (matrix, k), bits, random);
        };
        let is_negative = bits & 1 != 0;
        let bias = (1 << (exponents - 1)) - 1;
        let mut between =
            |low: i32, high: i32| low + random.below((high - low + 1) as usize) as i32;
        let exponent = match flavor {
            Flavor::Near => between(if is_c { -4 } else { -2 }, if is_c { 6 } else { 2 }),
            Flavor::Spread if is_c => between(-20, 20),
            Flavor::Spread => between(-8, 8),
            Flavor::Any if its.0 == "f32" && self.a.0 != "bf16" && self.a.0 != "tf32" => {
                between(-50, 40)
            }
            Flavor::Any => between(-bias - 8, bias),
            Flavor::Cancel => between(if is_c { -24 } else { -4 }, if is_c { -4 } else { 4 }),
            Flavor::Sparse => match between(0, 3) {
                0 | 1 => return its.number(is_negative, -10_000, 0),
                2 if is_c => between(-30, 30),
                _ => between(-bias, bias),
            },
            Flavor::Special => match between(0, if is_c { 15 } else { 40 }) {
                0 => return its.special(bits),
                _ => between(-4, 4),
            },
            Flavor::Subnormal if is_c => match between(0, 2) {
                0 => return its.number(is_negative, -10_000, 0),
                1 => between(-bias - 12, -bias + 4),
                _ => between(-150, -100),
            },
            Flavor::Subnormal => between(-bias - 10, -bias + 6),
            Flavor::Align if is_c => between(-30, 8),
            Flavor::Align if k == special => between(0, 3),
            Flavor::Align => between(-14, -8),
            Flavor::Overflow => between(bias - 2, bias),
            Flavor::Zero => return its.number(is_negative, -10_000, 0),
        };
        // Powers of two are frequent enough to make ties.
        let fraction = match random.below(4) {
            0 => 0,
            _ => random.next(),
        };
        its.number(is_negative, exponent, fraction)
    }

    fn integer(
        &self,
        flavor: Flavor,
        its: Element,
        (matrix, k): (Matrix, usize),
        bits: u64,
        random: &mut Random,
    ) -> u64 {
        let mask = u64::MAX >> (64 - its.bits());
        let top = 1 << (its.bits() - 1);
        let is_signed = its.0.starts_with('s');
        match flavor {
            // The sum is near the limits.
            Flavor::Overflow if matrix == Matrix::C => match bits & 3 {
                0 => 0x7fff_ffff,
                1 => 0x8000_0000,
                2 => 0x7fff_ffff - (bits >> 48),
                _ => 0x8000_0000 + (bits >> 48),
            },
            Flavor::Overflow if matrix == Matrix::A && is_signed && k < self.k / 2 => top - 1,
            Flavor::Overflow if matrix == Matrix::A && is_signed => top,
            Flavor::Overflow => [mask, top, top - 1, 1][random.below(4)] & mask,
            Flavor::Near if matrix == Matrix::C => ((bits as i64) >> 48) as u64 & mask,
            _ => bits & mask,
        }
    }

    /// Returns the elements of a tile: of `a` and `c` row by row, and of `b` column by column.
    pub(crate) fn tile(&self, flavor: Flavor, number: usize, random: &mut Random) -> [Vec<u64>; 3] {
        let special = number * 5 % self.k;
        let extents = [(Matrix::A, self.m), (Matrix::B, self.n)];
        let [mut a, mut b] = extents.map(|(matrix, lines)| {
            let places = (0..lines * self.k).map(|at| at % self.k);
            places.map(|k| self.element((flavor, special), matrix, k, random)).collect::<Vec<u64>>()
        });
        if flavor == Flavor::Cancel && self.a.float().is_some() {
            // A product and its opposite, at any distance. The last bits of one factor differ.
            let sign = 1 << (self.a.bits() - 1);
            let partner = |k: usize| (k + special) % self.k;
            for k in (0..self.k / 2).map(|k| 2 * k) {
                let (first, second) = (partner(k), partner(k + 1));
                for line in a.chunks_exact_mut(self.k) {
                    line[second] = line[first] ^ sign ^ random.next() & 1;
                }
                for line in b.chunks_exact_mut(self.k) {
                    line[second] = line[first];
                }
            }
        }
        let places = 0..self.m * self.n;
        let c = places.map(|_| self.element((flavor, special), Matrix::C, 0, random)).collect();
        [a, b, c]
    }

    /// Returns the operands of a warp: for each lane the registers of `a`, `b` and `c`. `at` returns the line and the
    /// place in the line of an element of a lane: of the row of `a` or `c`, or of the column of `b`.
    pub(crate) fn rows(
        &self,
        tile: &[Vec<u64>; 3],
        at: impl Fn(Matrix, usize, usize) -> (usize, usize),
        counts: [usize; 3],
    ) -> Vec<Vec<u64>> {
        let lane = |lane: usize| {
            let mut registers = Vec::new();
            let matrices = [(Matrix::A, self.a), (Matrix::B, self.b), (Matrix::C, self.c)];
            for ((matrix, its), (elements, count)) in matrices.iter().zip(tile.iter().zip(counts)) {
                let width = if matrix == &Matrix::C { self.n } else { self.k };
                let bits = its.bits();
                let each = (32 / bits.min(32)) as usize;
                for register in 0..count {
                    let element = |index: usize| {
                        let (line, place) = at(*matrix, lane, each * register + index);
                        elements[width * line + place] << (bits as usize * index)
                    };
                    registers.push((0..each).map(element).fold(0, |all, one| all | one));
                }
            }
            registers
        };
        (0..32).map(lane).collect()
    }
}

/// Returns the line and the place of an element of a lane in `mma` with 8 columns: the row of `a` and `c`, or the
/// column of `b`.
pub(crate) fn place(
    product: &Product,
    matrix: Matrix,
    lane: usize,
    index: usize,
) -> (usize, usize) {
    let (group, thread) = (lane / 4, lane % 4);
    let element = if matrix == Matrix::B { product.b } else { product.a };
    let each = (32 / element.bits().min(32)) as usize;
    let halves = product.m / 8;
    match matrix {
        // Registers alternate between the upper and the lower half of the rows.
        Matrix::A => {
            let (register, index) = (index / each, index % each);
            let (half, part) = (register % halves, register / halves);
            (group + 8 * half, each * (thread + 4 * part) + index)
        }
        Matrix::B => {
            let (part, index) = (index / each, index % each);
            (group, each * (thread + 4 * part) + index)
        }
        Matrix::C => (group + 8 * (index / 2), 2 * thread + index % 2),
    }
}

/// The same in the four multiplications of `mma.m8n8k4` of halves, whose lines follow each other.
pub(crate) fn place_in_quads(
    (is_a_row, is_b_row): (bool, bool),
    is_wide: bool,
    matrix: Matrix,
    lane: usize,
    index: usize,
) -> (usize, usize) {
    let (quad, high, thread) = (lane / 4 % 4, lane / 16, lane % 4);
    let (line, place) = match matrix {
        Matrix::A if is_a_row => (thread + 4 * high, index),
        Matrix::A => (index + 4 * high, thread),
        Matrix::B if is_b_row => (index + 4 * high, thread),
        Matrix::B => (thread + 4 * high, index),
        Matrix::C if is_wide => {
            ((thread & 1) + (index & 2) + 4 * high, (index & 4) + (thread & 2) + (index & 1))
        }
        Matrix::C => (thread + 4 * high, index),
    };
    (8 * quad + line, place)
}
