//! Arithmetic, logic, comparisons, moves and conversions.

use super::Problem;
use super::function::{Decoder, Symbol, bank};
use super::words::{Words, bits, float, int};
use crate::number::integer::{Overflow, Permutation};
use crate::number::{Comparison, Format, Mode, Property};
use crate::program::{
    Approximate, Bank, Binary, Compare, Compared, Convert, Element, Extremum, Float, Int, Logic,
    Number, Op, SlctBy, Slot, Ternary, Unary,
};
use crate::syntax::{Immediate, Instruction, Operand, Type};

/// Returns whether a type of a minimum or maximum is a pair of 16-bit integers.
fn is_packed_integer(word: &str) -> bool {
    matches!(word, "u16x2" | "s16x2")
}

impl<'a> Decoder<'_, '_, 'a> {
    /// Decodes an instruction that computes values. Returns whether it is one.
    pub(super) fn compute(
        &mut self,
        its: &'a Instruction<'a>,
        words: &mut Words<'a>,
    ) -> Result<bool, Problem> {
        let operands = &its.operands;
        match its.opcode().as_bytes() {
            b"add" | b"sub" => self.add(its, words)?,
            b"addc" | b"subc" => self.carry_chain(operands, words, its.opcode() == "subc", true)?,
            b"mul" => self.mul(operands, words)?,
            b"mad" | b"madc" => self.mad(its, words)?,
            b"fma" => {
                words.drop_all(|word| word == "oob");
                let mode = words.mode();
                let ty = words.ty()?;
                let of = float(ty).ok_or_else(not_float)?;
                match words.try_ty() {
                    // A product of halves that is added to a number of f32.
                    Some(narrow) => {
                        let a = self.widened(self.operand(operands, 1)?, narrow, ty)?;
                        let b = self.widened(self.operand(operands, 2)?, narrow, ty)?;
                        let c = self.source(self.operand(operands, 3)?, ty)?;
                        let d = self.target(self.operand(operands, 0)?, ty)?;
                        self.emit(Op::Ternary(Ternary::Fma(of, mode), d, [a, b, c]));
                    }
                    None => self.ternary(operands, Ternary::Fma(of, mode), [ty; 4])?,
                }
            }
            b"mul24" | b"mad24" => {
                let is_high = words.one_of(&["hi", "lo"]) == Some("hi");
                let is_sat = words.take("sat");
                let ty = words.ty()?;
                match its.opcode() {
                    "mul24" => self.binary(operands, Binary::Mul24(int(ty), is_high), [ty; 3])?,
                    _ => {
                        self.ternary(operands, Ternary::Mad24(int(ty), is_high, is_sat), [ty; 4])?
                    }
                }
            }
            b"div" => self.div(operands, words)?,
            b"rem" => {
                let ty = words.ty()?;
                self.binary(operands, Binary::Rem(int(ty)), [ty; 3])?;
            }
            b"min" | b"max" => self.extremum(its, words)?,
            b"neg" | b"abs" => {
                let is_neg = its.opcode() == "neg";
                let flush = words.take("ftz");
                let ty = words.ty()?;
                let f = match (float(ty), is_neg) {
                    (Some(of), true) => Unary::NegFloat(of, flush),
                    (Some(of), false) => Unary::AbsFloat(of, flush),
                    (None, true) => Unary::Neg(int(ty)),
                    (None, false) => Unary::Abs(int(ty)),
                };
                self.unary(operands, f, [ty; 2])?;
            }
            b"and" | b"or" | b"xor" => {
                let ty = words.ty()?;
                if ty == Type::Pred {
                    let logic = match its.opcode() {
                        "and" => Logic::And,
                        "or" => Logic::Or,
                        _ => Logic::Xor,
                    };
                    let d = self.target(self.operand(operands, 0)?, ty)?;
                    let a = [
                        self.predicate(self.operand(operands, 1)?)?,
                        self.predicate(self.operand(operands, 2)?)?,
                    ];
                    self.emit(Op::Logic { logic, d, a });
                } else {
                    let f = match its.opcode() {
                        "and" => Binary::And(int(ty)),
                        "or" => Binary::Or(int(ty)),
                        _ => Binary::Xor(int(ty)),
                    };
                    self.binary(operands, f, [ty; 3])?;
                }
            }
            b"not" | b"cnot" => {
                let ty = words.ty()?;
                if ty == Type::Pred {
                    let d = self.target(self.operand(operands, 0)?, ty)?;
                    let mut a = self.predicate(self.operand(operands, 1)?)?;
                    a.is_negated = !a.is_negated;
                    self.emit(Op::MovePredicate { d, a });
                } else {
                    let f = match its.opcode() {
                        "not" => Unary::Not(int(ty)),
                        _ => Unary::Cnot(int(ty)),
                    };
                    self.unary(operands, f, [ty; 2])?;
                }
            }
            b"shl" | b"shr" => {
                let ty = words.ty()?;
                let f = match its.opcode() {
                    "shl" => Binary::Shl(int(ty)),
                    _ => Binary::Shr(int(ty)),
                };
                self.binary(operands, f, [ty, ty, Type::U32])?;
            }
            b"shf" => {
                let is_left = words.one_of(&["l", "r"]) == Some("l");
                let wraps = words.one_of(&["wrap", "clamp"]) == Some("wrap");
                let ty = words.ty()?;
                self.ternary(operands, Ternary::Shf(is_left, overflow(!wraps)), [ty; 4])?;
            }
            b"popc" | b"clz" => {
                let ty = words.ty()?;
                let f = match its.opcode() {
                    "popc" => Unary::Popc(int(ty)),
                    _ => Unary::Clz(int(ty)),
                };
                self.unary(operands, f, [Type::U32, ty])?;
            }
            b"brev" => {
                let ty = words.ty()?;
                self.unary(operands, Unary::Brev(int(ty)), [ty; 2])?;
            }
            b"bfind" => {
                let shift = words.take("shiftamt");
                let ty = words.ty()?;
                self.unary(operands, Unary::Bfind(int(ty), shift), [Type::U32, ty])?;
            }
            b"bfe" => {
                let ty = words.ty()?;
                let f = Ternary::Bfe(int(ty));
                self.ternary(operands, f, [ty, ty, Type::U32, Type::U32])?;
            }
            b"bfi" => {
                let ty = words.ty()?;
                let d = self.target(self.operand(operands, 0)?, ty)?;
                let mut a = [0; 4];
                for (at, slot) in a.iter_mut().enumerate() {
                    let ty = if at < 2 { ty } else { Type::U32 };
                    *slot = self.source(self.operand(operands, at + 1)?, ty)?;
                }
                self.emit(Op::Bfi { bits: bits(ty), d, a });
            }
            b"bmsk" => {
                let clamps = words.one_of(&["clamp", "wrap"]) == Some("clamp");
                let ty = words.ty()?;
                self.binary(operands, Binary::Bmsk(overflow(clamps)), [ty; 3])?;
            }
            b"szext" => {
                let clamps = words.one_of(&["clamp", "wrap"]) == Some("clamp");
                let ty = words.ty()?;
                let f = Binary::Szext(ty == Type::S32, overflow(clamps));
                self.binary(operands, f, [ty, ty, Type::U32])?;
            }
            b"fns" => {
                let ty = words.ty()?;
                self.ternary(operands, Ternary::Fns, [ty; 4])?;
            }
            b"sad" => {
                let ty = words.ty()?;
                self.ternary(operands, Ternary::Sad(int(ty)), [ty; 4])?;
            }
            b"dp4a" | b"dp2a" => {
                let half = words.one_of(&["lo", "hi"]);
                let (a, b) = (words.ty()?, words.ty()?);
                let (a, b) = (a == Type::S32, b == Type::S32);
                let f = match its.opcode() {
                    "dp4a" => Ternary::Dp4a(a, b),
                    _ => Ternary::Dp2a(a, b, half == Some("hi")),
                };
                self.ternary(operands, f, [Type::U32; 4])?;
            }
            b"lop3" => self.lop3(operands, words)?,
            b"prmt" => {
                let mode = match words.one_of(&["f4e", "b4e", "rc8", "ecl", "ecr", "rc16"]) {
                    None => Permutation::Index,
                    Some("f4e") => Permutation::Forward,
                    Some("b4e") => Permutation::Backward,
                    Some("rc8") => Permutation::Replicate8,
                    Some("ecl") => Permutation::ClampLeft,
                    Some("ecr") => Permutation::ClampRight,
                    Some(_) => Permutation::Replicate16,
                };
                let ty = words.ty()?;
                self.ternary(operands, Ternary::Prmt(mode), [ty; 4])?;
            }
            b"copysign" => {
                let ty = words.ty()?;
                let of = float(ty).ok_or_else(not_float)?;
                self.binary(operands, Binary::Copysign(of), [ty; 3])?;
            }
            b"rcp" | b"sqrt" | b"rsqrt" | b"sin" | b"cos" | b"lg2" | b"ex2" | b"tanh" => {
                self.function_of_float(its, words)?;
            }
            b"testp" => {
                let test = words.one_of(&[
                    "finite",
                    "infinite",
                    "number",
                    "notanumber",
                    "normal",
                    "subnormal",
                ]);
                let kind = match test {
                    Some("finite") => Property::Finite,
                    Some("infinite") => Property::Infinite,
                    Some("number") => Property::Number,
                    Some("notanumber") => Property::NotANumber,
                    Some("normal") => Property::Normal,
                    _ => Property::Subnormal,
                };
                let ty = words.ty()?;
                let of = float(ty).ok_or_else(not_float)?;
                let d = self.target(self.operand(operands, 0)?, Type::Pred)?;
                let a = self.source(self.operand(operands, 1)?, ty)?;
                self.emit(Op::Testp { ty: of, kind, d, a });
            }
            b"setp" => self.setp(operands, words)?,
            b"set" => self.set(operands, words)?,
            b"selp" => {
                let ty = words.ty()?;
                let d = self.target(self.operand(operands, 0)?, ty)?;
                let a = [
                    self.source(self.operand(operands, 1)?, ty)?,
                    self.source(self.operand(operands, 2)?, ty)?,
                ];
                let p = self.predicate(self.operand(operands, 3)?)?;
                self.emit(Op::Selp { bank: bank(ty)?, d, a, p });
            }
            b"slct" => {
                let flush = words.take("ftz");
                let (ty, by) = (words.ty()?, words.ty()?);
                let how = if by == Type::F32 { SlctBy::Single(flush) } else { SlctBy::Signed };
                self.ternary(operands, Ternary::Slct(bank(ty)?, how), [ty, ty, ty, by])?;
            }
            b"mov" => self.mov(operands, words)?,
            b"cvt" => self.cvt(operands, words)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    pub(super) fn unary(
        &mut self,
        operands: &[Operand<'a>],
        f: Unary,
        [d, a]: [Type; 2],
    ) -> Result<(), Problem> {
        count(operands, 2)?;
        let a = self.source(self.operand(operands, 1)?, a)?;
        let d = self.target(self.operand(operands, 0)?, d)?;
        self.emit(Op::Unary(f, d, a));
        Ok(())
    }

    fn binary(
        &mut self,
        operands: &[Operand<'a>],
        f: Binary,
        [d, a, b]: [Type; 3],
    ) -> Result<(), Problem> {
        count(operands, 3)?;
        let a = self.source(self.operand(operands, 1)?, a)?;
        let b = self.source(self.operand(operands, 2)?, b)?;
        let d = self.target(self.operand(operands, 0)?, d)?;
        self.emit(Op::Binary(f, d, [a, b]));
        Ok(())
    }

    fn ternary(
        &mut self,
        operands: &[Operand<'a>],
        f: Ternary,
        [d, a, b, c]: [Type; 4],
    ) -> Result<(), Problem> {
        let a = self.source(self.operand(operands, 1)?, a)?;
        let b = self.source(self.operand(operands, 2)?, b)?;
        let c = self.source(self.operand(operands, 3)?, c)?;
        let d = self.target(self.operand(operands, 0)?, d)?;
        self.emit(Op::Ternary(f, d, [a, b, c]));
        Ok(())
    }

    fn add(&mut self, its: &'a Instruction<'a>, words: &mut Words<'a>) -> Result<(), Problem> {
        let is_sub = its.opcode() == "sub";
        let operands = &its.operands;
        if words.peek().contains(&"cc") {
            return self.carry_chain(operands, words, is_sub, false);
        }
        if words.peek().iter().any(|word| is_packed_integer(word)) && !is_sub {
            words.drop_all(is_packed_integer);
            return self.binary(operands, Binary::Add16x2, [Type::U32; 3]);
        }
        let mode = words.mode();
        let ty = words.ty()?;
        let narrow = words.try_ty();
        let f = match (float(ty), is_sub) {
            (Some(of), false) => Binary::AddFloat(of, mode),
            (Some(of), true) => Binary::SubFloat(of, mode),
            (None, false) if mode.saturate => Binary::AddSat,
            (None, true) if mode.saturate => Binary::SubSat,
            (None, false) => Binary::Add(int(ty)),
            (None, true) => Binary::Sub(int(ty)),
        };
        if let Some(narrow) = narrow {
            let a = self.widened(self.operand(operands, 1)?, narrow, ty)?;
            let b = self.source(self.operand(operands, 2)?, ty)?;
            let d = self.target(self.operand(operands, 0)?, ty)?;
            self.emit(Op::Binary(f, d, [a, b]));
            return Ok(());
        }
        self.binary(operands, f, [ty; 3])
    }

    /// Returns a register with an operand of f16 or bf16 as a number of f32.
    fn widened(&mut self, operand: &Operand<'a>, narrow: Type, ty: Type) -> Result<Slot, Problem> {
        let from = match narrow {
            Type::F16 => Format::F16,
            Type::Bf16 => Format::Bf16,
            _ => return Problem::invalid("there is no such operation of mixed types"),
        };
        if ty != Type::F32 {
            return Problem::invalid("the result of mixed types is not a number of f32");
        }
        let a = self.source(operand, narrow)?;
        let d = self.builder.register(Bank::Narrow);
        let convert = Convert {
            from: Number::Float(from),
            to: Number::Float(Format::F32),
            mode: Mode::EXACT,
            is_integral: false,
            is_finite: false,
            to_bank: Bank::Narrow,
            from_bank: Bank::Narrow,
        };
        self.emit(Op::Convert { convert, d, a });
        Ok(d)
    }

    fn carry_chain(
        &mut self,
        operands: &[Operand<'a>],
        words: &mut Words<'a>,
        is_sub: bool,
        takes: bool,
    ) -> Result<(), Problem> {
        let gives = words.take("cc");
        let ty = words.ty()?;
        let a = [
            self.source(self.operand(operands, 1)?, ty)?,
            self.source(self.operand(operands, 2)?, ty)?,
        ];
        let d = self.target(self.operand(operands, 0)?, ty)?;
        let carry = self.carry();
        self.emit(Op::Carry { ty: int(ty), is_sub, takes, gives, carry, d, a });
        Ok(())
    }

    fn mul(&mut self, operands: &[Operand<'a>], words: &mut Words<'a>) -> Result<(), Problem> {
        let mode = words.mode();
        let part = words.one_of(&["lo", "hi", "wide"]);
        let ty = words.ty()?;
        let f = match (float(ty), part) {
            (Some(of), _) => Binary::MulFloat(of, mode),
            (None, Some("hi")) => Binary::MulHi(int(ty)),
            (None, Some("wide")) => {
                return self.binary(operands, Binary::MulWide(int(ty)), [wide(ty)?, ty, ty]);
            }
            (None, _) => Binary::Mul(int(ty)),
        };
        self.binary(operands, f, [ty; 3])
    }

    fn mad(&mut self, its: &'a Instruction<'a>, words: &mut Words<'a>) -> Result<(), Problem> {
        let takes = its.opcode() == "madc";
        let operands = &its.operands;
        let gives = words.take("cc");
        let part = words.one_of(&["lo", "hi", "wide"]);
        let mode = words.mode();
        let ty = words.ty()?;
        if takes || gives {
            let mut a = [0; 3];
            for (at, slot) in a.iter_mut().enumerate() {
                *slot = self.source(self.operand(operands, at + 1)?, ty)?;
            }
            let d = self.target(self.operand(operands, 0)?, ty)?;
            let (carry, is_high) = (self.carry(), part == Some("hi"));
            self.emit(Op::MadCarry { ty: int(ty), is_high, takes, gives, carry, d, a });
            return Ok(());
        }
        let f = match (float(ty), part) {
            (Some(of), _) => Ternary::Fma(of, mode),
            (None, Some("hi")) if mode.saturate => Ternary::MadHiSat,
            (None, Some("hi")) => Ternary::MadHi(int(ty)),
            (None, Some("wide")) => {
                let wide = wide(ty)?;
                return self.ternary(operands, Ternary::MadWide(int(ty)), [wide, ty, ty, wide]);
            }
            (None, _) => Ternary::Mad(int(ty)),
        };
        self.ternary(operands, f, [ty; 4])
    }

    fn div(&mut self, operands: &[Operand<'a>], words: &mut Words<'a>) -> Result<(), Problem> {
        let kind = words.one_of(&["approx", "full"]);
        let mode = words.mode();
        let ty = words.ty()?;
        let f = match (float(ty), kind) {
            (Some(_), Some("approx")) => Binary::DivApproximate(mode.flush),
            (Some(_), Some(_)) => Binary::DivFull(mode.flush),
            (Some(of), None) => Binary::DivFloat(of, mode),
            (None, _) => Binary::Div(int(ty)),
        };
        self.binary(operands, f, [ty; 3])
    }

    fn extremum(&mut self, its: &'a Instruction<'a>, words: &mut Words<'a>) -> Result<(), Problem> {
        let is_max = its.opcode() == "max";
        let operands = &its.operands;
        let extremum = Extremum {
            is_max,
            flush: words.take("ftz"),
            nan: words.take("NaN"),
            xorsign_abs: words.take("xorsign"),
        };
        let is_abs = words.take("abs");
        if is_abs && !extremum.xorsign_abs {
            return Problem::unsupported("a minimum of magnitudes");
        }
        let relu = words.take("relu");
        if let Some(packed) = words.one_of(&["u16x2", "s16x2"]) {
            let f = Binary::Extremum16x2(is_max, packed == "s16x2", relu);
            return self.binary(operands, f, [Type::U32; 3]);
        }
        let ty = words.ty()?;
        let Some(of) = float(ty) else {
            let f = match is_max {
                true => Binary::Max(int(ty), relu),
                false => Binary::Min(int(ty), relu),
            };
            return self.binary(operands, f, [ty; 3]);
        };
        if operands.len() == 4 {
            return self.ternary(operands, Ternary::Extremum3(extremum), [ty; 4]);
        }
        self.binary(operands, Binary::Extremum(of, extremum), [ty; 3])
    }

    fn function_of_float(
        &mut self,
        its: &'a Instruction<'a>,
        words: &mut Words<'a>,
    ) -> Result<(), Problem> {
        let is_approximate = words.take("approx");
        let mode = words.mode();
        let ty = words.ty()?;
        let of = float(ty).ok_or_else(not_float)?;
        let approximate = match its.opcode() {
            "rcp" => Approximate::Rcp,
            "sqrt" => Approximate::Sqrt,
            "rsqrt" => Approximate::Rsqrt,
            "sin" => Approximate::Sin,
            "cos" => Approximate::Cos,
            "lg2" => Approximate::Lg2,
            "ex2" => Approximate::Ex2,
            _ => Approximate::Tanh,
        };
        let f = match approximate {
            Approximate::Rcp if !is_approximate => Unary::Rcp(of, mode),
            Approximate::Sqrt if !is_approximate => Unary::Sqrt(of, mode),
            approximate => Unary::Approximate(approximate, of, mode.flush),
        };
        self.unary(&its.operands, f, [ty; 2])
    }

    fn lop3(&mut self, operands: &[Operand<'a>], words: &mut Words<'a>) -> Result<(), Problem> {
        let logic = words.one_of(&["or", "and"]);
        let ty = words.ty()?;
        let lut = match self.operand(operands, 4)? {
            Operand::Immediate(value) => super::link::immediate(*value, Type::U8) as u8,
            _ => return Problem::invalid("the table of lop3 is not a constant"),
        };
        let Some(logic) = logic else {
            return self.ternary(operands, Ternary::Lop3(lut), [ty; 4]);
        };
        let Operand::Pair(d, p) = self.operand(operands, 0)? else {
            return Problem::invalid("lop3 with a predicate has two results");
        };
        let mut a = [0; 3];
        for (at, slot) in a.iter_mut().enumerate() {
            *slot = self.source(self.operand(operands, at + 1)?, ty)?;
        }
        let d = self.target(d, ty)?;
        let p = self.target(p, Type::Pred)?;
        let q = self.predicate(self.operand(operands, 5)?)?;
        self.emit(Op::Ternary(Ternary::Lop3(lut), d, a));
        let zero = self.builder.constant(Bank::Narrow, crate::program::Constant::Bits(0));
        let logic = if logic == "or" { Logic::Or } else { Logic::And };
        let compare = Compare {
            ty: Compared::Int(Int::U32),
            comparison: Comparison::Ne,
            operands: [d, zero],
            combine: Some((logic, q)),
        };
        self.emit(Op::Setp { compare, p: Some(p), q: None });
        Ok(())
    }

    /// Returns the comparison of `set` or `setp`, its optional Boolean function, and the type.
    pub(super) fn comparison(
        &mut self,
        words: &mut Words<'a>,
    ) -> Result<(Comparison, Option<Logic>, bool), Problem> {
        const COMPARISONS: [(&str, Comparison); 18] = [
            ("eq", Comparison::Eq),
            ("ne", Comparison::Ne),
            ("lt", Comparison::Lt),
            ("le", Comparison::Le),
            ("gt", Comparison::Gt),
            ("ge", Comparison::Ge),
            ("lo", Comparison::Lt),
            ("ls", Comparison::Le),
            ("hi", Comparison::Gt),
            ("hs", Comparison::Ge),
            ("equ", Comparison::Equ),
            ("neu", Comparison::Neu),
            ("ltu", Comparison::Ltu),
            ("leu", Comparison::Leu),
            ("gtu", Comparison::Gtu),
            ("geu", Comparison::Geu),
            ("num", Comparison::Num),
            ("nan", Comparison::Nan),
        ];
        let found = COMPARISONS.iter().find(|(word, _)| words.take(word));
        let comparison =
            found.ok_or_else(|| Problem::Invalid("the comparison is missing".into()))?.1;
        let logic = match words.one_of(&["and", "or", "xor"]) {
            Some("and") => Some(Logic::And),
            Some("or") => Some(Logic::Or),
            Some(_) => Some(Logic::Xor),
            None => None,
        };
        Ok((comparison, logic, words.take("ftz")))
    }

    fn compare(
        &mut self,
        operands: &[Operand<'a>],
        (comparison, logic, flush): (Comparison, Option<Logic>, bool),
        ty: Type,
    ) -> Result<Compare, Problem> {
        let a = self.source(self.operand(operands, 1)?, ty)?;
        let b = self.source(self.operand(operands, 2)?, ty)?;
        let combine = match logic {
            Some(logic) => Some((logic, self.predicate(self.operand(operands, 3)?)?)),
            None => None,
        };
        let ty = match float(ty) {
            Some(of) => Compared::Float(of, flush),
            None => Compared::Int(int(ty)),
        };
        Ok(Compare { ty, comparison, operands: [a, b], combine })
    }

    fn setp(&mut self, operands: &[Operand<'a>], words: &mut Words<'a>) -> Result<(), Problem> {
        let how = self.comparison(words)?;
        let ty = words.ty()?;
        let compare = self.compare(operands, how, ty)?;
        let (p, q) = match self.operand(operands, 0)? {
            Operand::Pair(p, q) => (&**p, Some(&**q)),
            p => (p, None),
        };
        let mut predicate = |operand: &Operand<'a>| match operand {
            Operand::Discard => Ok(None),
            operand => self.target(operand, Type::Pred).map(Some),
        };
        let (p, q) = (predicate(p)?, q.map_or(Ok(None), predicate)?);
        match float(ty) {
            Some(Float::F16x2 | Float::Bf16x2) => self.emit(Op::SetpPacked { compare, p, q }),
            _ => self.emit(Op::Setp { compare, p, q }),
        };
        Ok(())
    }

    fn set(&mut self, operands: &[Operand<'a>], words: &mut Words<'a>) -> Result<(), Problem> {
        let how = self.comparison(words)?;
        let (to, ty) = (words.ty()?, words.ty()?);
        let compare = self.compare(operands, how, ty)?;
        let d = self.target(self.operand(operands, 0)?, to)?;
        match float(ty) {
            Some(Float::F16x2 | Float::Bf16x2) => {
                let one = match to {
                    Type::F16x2 => 0x3c00,
                    Type::Bf16x2 => 0x3f80,
                    _ => 0xffff,
                };
                self.emit(Op::SetPacked { compare, d, one });
            }
            _ => {
                let one = match to {
                    Type::F32 => 0x3f80_0000,
                    Type::F16 => 0x3c00,
                    Type::Bf16 => 0x3f80,
                    to if bits(to) == 16 => 0xffff,
                    _ => u32::MAX,
                };
                self.emit(Op::Set { compare, d, one });
            }
        }
        Ok(())
    }

    fn mov(&mut self, operands: &[Operand<'a>], words: &mut Words<'a>) -> Result<(), Problem> {
        let ty = words.ty()?;
        let (to, from) = (self.operand(operands, 0)?, self.operand(operands, 1)?);
        if ty == Type::Pred {
            let d = self.target(to, ty)?;
            let a = self.predicate(from)?;
            self.emit(Op::MovePredicate { d, a });
            return Ok(());
        }
        if let Operand::Name(name) = from {
            let clock = match *name {
                "%clock" | "%clock_lo" | "%globaltimer_lo" => Some(0),
                "%clock_hi" | "%globaltimer_hi" => Some(32),
                "%clock64" | "%globaltimer" => Some(64),
                _ => None,
            };
            if let Some(kind) = clock {
                let d = self.target(to, ty)?;
                self.emit(Op::Clock { d, is_high: kind == 32, is_wide: bits(ty) == 64 });
                return Ok(());
            }
        }
        let is_vector = |decoder: &Self, operand: &Operand<'a>| match operand {
            Operand::Vector(_) => true,
            Operand::Name(name) => matches!(decoder.symbol(name), Some(Symbol::Vector { .. })),
            _ => false,
        };
        let (to_vector, from_vector) = (is_vector(self, to), is_vector(self, from));
        if ty == Type::B128 || to_vector || from_vector {
            let total = bits(ty);
            let count = |operand: &Operand<'a>| match operand {
                Operand::Vector(list) => list.len() as u32,
                _ => total.div_ceil(64),
            };
            let part = total / count(to).max(count(from)).max(1);
            let of = |count: u32| match total / count.max(1) {
                8 => Type::B8,
                16 => Type::B16,
                32 => Type::B32,
                _ => Type::B64,
            };
            let (to_ty, from_ty) = (of(count(to)), of(count(from)));
            let a = self.elements(from, from_ty)?.into_boxed_slice();
            let d = self.element_targets(to, to_ty)?.into_boxed_slice();
            if count(to) == count(from) {
                for (d, a) in d.iter().zip(&a) {
                    match (d, a) {
                        (Element::Wide(d), Element::Wide(a)) => {
                            self.emit(Op::Move(Bank::Wide, *d, *a))
                        }
                        (Element::Narrow(d), Element::Narrow(a)) => {
                            self.emit(Op::Move(Bank::Narrow, *d, *a))
                        }
                        _ => continue,
                    };
                }
            } else if count(to) > count(from) {
                self.emit(Op::Unpack { part, d, a });
            } else {
                self.emit(Op::Pack { part, d, a });
            }
            return Ok(());
        }
        let a = self.source(from, ty)?;
        let d = self.target(to, ty)?;
        self.emit(Op::Move(bank(ty)?, d, a));
        Ok(())
    }

    fn cvt(&mut self, operands: &[Operand<'a>], words: &mut Words<'a>) -> Result<(), Problem> {
        if words.take("pack") {
            return self.cvt_pack(operands, words);
        }
        let is_finite = words.take("satfinite");
        let integral = words.one_of(&["rni", "rzi", "rmi", "rpi"]);
        let has_rounding =
            words.peek().iter().any(|word| matches!(*word, "rn" | "rz" | "rna" | "rs"));
        if integral.is_some() && has_rounding {
            return Problem::invalid("it has two roundings");
        }
        let mut mode = words.mode();
        if let Some(integral) = integral {
            mode.rounding = match integral {
                "rni" => crate::number::Rounding::NearestEven,
                "rzi" => crate::number::Rounding::Zero,
                "rmi" => crate::number::Rounding::Down,
                _ => crate::number::Rounding::Up,
            };
        }
        let small: Vec<&str> = words.peek().to_vec();
        let types: Vec<(&str, FormatOf)> =
            small.into_iter().filter_map(|word| Some((word, format_of(word)?))).collect();
        words.drop_all(|word| format_of(word).is_some());
        let [(_, to), (_, from)] = types[..] else {
            return Problem::unsupported("this conversion");
        };
        let (to, from, packed) = match (to, from) {
            (FormatOf::One(to, to_bits), FormatOf::One(from, from_bits)) => {
                let result = self.operand(operands, 0)?;
                let operand = self.operand(operands, 1)?;
                let brain = Number::Float(Format::Bf16);
                // The assembler has these for no wider registers.
                let wants_byte = match (to_bits, from_bits) {
                    (8, _) if from == brain => Some(result),
                    (_, 8) if to == brain => Some(operand),
                    _ => None,
                };
                if let Some(operand) = wants_byte {
                    if !self.is_byte(operand)? {
                        return Problem::invalid(
                            "bf16 and integers of 8 bits need a register `.b8`",
                        );
                    }
                }
                // The type of a constant decides its form.
                let from_ty = match (operand, from) {
                    (Operand::Immediate(_), Number::Float(Format::F32)) => Type::F32,
                    (Operand::Immediate(_), Number::Float(Format::F64)) => Type::F64,
                    (Operand::Immediate(_), Number::Float(_)) => Type::F16,
                    (Operand::Immediate(Immediate::Integer { .. }), _) => raw(from_bits),
                    (Operand::Immediate(_), _) => Type::U32,
                    _ => raw(from_bits),
                };
                let a = self.element(operand, from_ty)?;
                let d = self.element_target(result, raw(to_bits))?;
                let (a, from_bank) = slot_of(a)?;
                let (d, to_bank) = slot_of(d)?;
                let is_integral = integral.is_some()
                    && matches!((from, to), (Number::Float(_), Number::Float(_)));
                let convert =
                    Convert { from, to, mode, is_integral, is_finite, to_bank, from_bank };
                if operands.len() > 2 {
                    return Problem::unsupported("this conversion");
                }
                self.emit(Op::Convert { convert, d, a });
                return Ok(());
            }
            (FormatOf::Two(to, to_bits), FormatOf::One(from, 32)) => (to, from, Some(to_bits)),
            (FormatOf::Two(to, _), FormatOf::Two(from, from_bits)) => {
                let operand = self.operand(operands, 1)?;
                if let Operand::Immediate(_) = operand {
                    return Problem::invalid("a pair is not a constant");
                }
                let a = self.element(operand, raw(from_bits.max(8)))?;
                let (a, from_bank) = slot_of(a)?;
                let is_small =
                    |number| !matches!(number, Number::Float(Format::F16 | Format::Bf16));
                let to_bits = if is_small(to) { raw(16) } else { Type::B32 };
                let d = self.element_target(self.operand(operands, 0)?, to_bits)?;
                let (d, to_bank) = slot_of(d)?;
                let convert =
                    Convert { from, to, mode, is_integral: false, is_finite, to_bank, from_bank };
                self.emit(Op::ConvertUnpacked { convert, d, a });
                return Ok(());
            }
            _ => return Problem::unsupported("this conversion"),
        };
        let Some(to_bits) = packed else { return Problem::unsupported("this conversion") };
        if operands.len() != 3 {
            return Problem::unsupported("this conversion");
        }
        if !has_rounding {
            return Problem::invalid("the rounding is missing");
        }
        let a = self.source(self.operand(operands, 1)?, Type::F32)?;
        let b = self.source(self.operand(operands, 2)?, Type::F32)?;
        let d = self.element_target(self.operand(operands, 0)?, raw(to_bits.max(8)))?;
        let (d, to_bank) = slot_of(d)?;
        let convert = Convert {
            from,
            to,
            mode,
            is_integral: false,
            is_finite,
            to_bank,
            from_bank: Bank::Narrow,
        };
        self.emit(Op::ConvertPacked { convert, d, a: [a, b] });
        Ok(())
    }

    fn cvt_pack(&mut self, operands: &[Operand<'a>], words: &mut Words<'a>) -> Result<(), Problem> {
        words.take("sat");
        let (bits, is_signed) = match words.one_of(&["u2", "s2", "u4", "s4"]) {
            Some(word) => (if word.ends_with('2') { 2 } else { 4 }, word.starts_with('s')),
            None => {
                let to = int(words.ty()?);
                (to.bits(), to.is_signed())
            }
        };
        let from = int(words.ty()?);
        let with = words.try_ty().is_some();
        let d = self.target(self.operand(operands, 0)?, Type::B32)?;
        let a = self.source(self.operand(operands, 1)?, Type::B32)?;
        let b = self.source(self.operand(operands, 2)?, Type::B32)?;
        let c = match with {
            true => self.source(self.operand(operands, 3)?, Type::B32)?,
            false => self.builder.constant(Bank::Narrow, crate::program::Constant::Bits(0)),
        };
        self.emit(Op::CvtPack { bits, is_signed, from, d, a: [a, b, c] });
        Ok(())
    }
}

/// Checks the number of operands.
fn count(operands: &[Operand<'_>], expected: usize) -> Result<(), Problem> {
    match operands.len() {
        count if count == expected => Ok(()),
        count => Problem::invalid(format!("{count} operands instead of {expected}")),
    }
}

fn not_float() -> Problem {
    Problem::Invalid("the type is not that of a floating-point number".into())
}

fn wide(ty: Type) -> Result<Type, Problem> {
    Ok(match ty {
        Type::U16 => Type::U32,
        Type::S16 => Type::S32,
        Type::U32 => Type::U64,
        Type::S32 => Type::S64,
        _ => return Problem::invalid("there is no product of this type"),
    })
}

fn raw(bits: u32) -> Type {
    match bits {
        0..=8 => Type::B8,
        9..=16 => Type::B16,
        17..=32 => Type::B32,
        _ => Type::B64,
    }
}

fn slot_of(element: Element) -> Result<(Slot, Bank), Problem> {
    match element {
        Element::Narrow(slot) => Ok((slot, Bank::Narrow)),
        Element::Wide(slot) => Ok((slot, Bank::Wide)),
        Element::Discard => Problem::invalid("an operand is missing"),
    }
}

/// One number of a conversion, or a packed pair, with the bits of both.
#[derive(Clone, Copy, Debug)]
enum FormatOf {
    One(Number, u32),
    Two(Number, u32),
}

fn format_of(word: &str) -> Option<FormatOf> {
    use FormatOf::{One, Two};
    let float = Number::Float;
    Some(match word.as_bytes() {
        b"u8" => One(Number::Int(Int::U8), 8),
        b"s8" => One(Number::Int(Int::S8), 8),
        b"u16" => One(Number::Int(Int::U16), 16),
        b"s16" => One(Number::Int(Int::S16), 16),
        b"u32" => One(Number::Int(Int::U32), 32),
        b"s32" => One(Number::Int(Int::S32), 32),
        b"u64" => One(Number::Int(Int::U64), 64),
        b"s64" => One(Number::Int(Int::S64), 64),
        b"f16" => One(float(Format::F16), 16),
        b"bf16" => One(float(Format::Bf16), 16),
        b"f32" => One(float(Format::F32), 32),
        b"f64" => One(float(Format::F64), 64),
        b"tf32" => One(float(Format::Tf32), 32),
        b"f16x2" => Two(float(Format::F16), 32),
        b"bf16x2" => Two(float(Format::Bf16), 32),
        b"e4m3x2" => Two(float(Format::E4m3), 16),
        b"e5m2x2" => Two(float(Format::E5m2), 16),
        b"e2m3x2" => Two(float(Format::E2m3), 16),
        b"e3m2x2" => Two(float(Format::E3m2), 16),
        b"e2m1x2" => Two(float(Format::E2m1), 8),
        b"ue8m0x2" => Two(float(Format::Ue8m0), 16),
        _ => return None,
    })
}

fn overflow(clamps: bool) -> Overflow {
    if clamps { Overflow::Clamp } else { Overflow::Wrap }
}
