//! Video instructions.

use super::Problem;
use super::function::Decoder;
use super::words::Words;
use crate::number::integer::Overflow;
use crate::number::video::{Mad, Operation, Packed, Part, Scalar, Second, Source};
use crate::program::{Bank, Constant, Op, Slot, Video};
use crate::syntax::{Instruction, Operand, Type};

impl<'a> Decoder<'_, '_, 'a> {
    /// Decodes a video instruction. Returns whether it is one.
    pub(super) fn video(
        &mut self,
        its: &'a Instruction<'a>,
        words: &mut Words<'a>,
    ) -> Result<bool, Problem> {
        let opcode = its.opcode();
        if !opcode.starts_with('v') {
            return Ok(false);
        }
        let (base, lanes) = match (opcode.strip_suffix('2'), opcode.strip_suffix('4')) {
            (Some(base), _) => (base, 2),
            (_, Some(base)) => (base, 4),
            (None, None) => (opcode, 1),
        };
        let operation = match base {
            "vadd" => Operation::Add,
            "vsub" => Operation::Sub,
            "vabsdiff" => Operation::AbsDiff,
            "vmin" => Operation::Min,
            "vmax" => Operation::Max,
            "vavrg" if lanes > 1 => Operation::Average,
            "vshl" | "vshr" if lanes == 1 => {
                let overflow = match words.one_of(&["clamp", "wrap"]) {
                    Some("clamp") => Overflow::Clamp,
                    _ => Overflow::Wrap,
                };
                match base {
                    "vshl" => Operation::ShiftLeft(overflow),
                    _ => Operation::ShiftRight(overflow),
                }
            }
            "vset" => Operation::Set(self.comparison(words)?.0),
            "vmad" if lanes == 1 => {
                self.video_mad(its, words)?;
                return Ok(true);
            }
            _ => return Ok(false),
        };
        let is_set = base == "vset";
        let result_signed = !is_set && is_signed(words)?;
        let (a_signed, b_signed) = (is_signed(words)?, is_signed(words)?);
        // The second operation of a comparison has the type of the operands.
        let signed = if is_set { a_signed && b_signed } else { result_signed };
        let saturate = words.take("sat");
        match lanes {
            2 => {
                let packed = Packed {
                    operation,
                    a: [0, 1],
                    b: [2, 3],
                    a_signed,
                    b_signed,
                    signed,
                    saturate,
                    add: words.take("add"),
                    mask: [true; 2],
                };
                self.packed(&its.operands, packed, Video::Pair)?;
            }
            4 => {
                let packed = Packed {
                    operation,
                    a: [0, 1, 2, 3],
                    b: [4, 5, 6, 7],
                    a_signed,
                    b_signed,
                    signed,
                    saturate,
                    add: words.take("add"),
                    mask: [true; 4],
                };
                self.packed(&its.operands, packed, Video::Quad)?;
            }
            _ => {
                let second = words.one_of(&["add", "min", "max"]);
                let ([d, a, b], c) = self.video_operands(&its.operands)?;
                let second = match (second, d.1) {
                    (None, None) => Second::None,
                    (None, Some(part)) => Second::Merge(scalar_part(part)?),
                    (Some("add"), None) => Second::Add,
                    (Some("min"), None) => Second::Min,
                    (Some(_), None) => Second::Max,
                    (Some(_), Some(_)) => {
                        return Problem::invalid("a second operation with a part of the result");
                    }
                };
                let is_shift =
                    matches!(operation, Operation::ShiftLeft(_) | Operation::ShiftRight(_));
                // GPUs deviate from the manual here, without a rule.
                match second {
                    Second::Merge(_) if saturate || is_shift => {
                        return Problem::unsupported("a clamped or shifted part of a register");
                    }
                    Second::Min | Second::Max if !signed && !is_set => {
                        return Problem::unsupported("a second operation on unsigned numbers");
                    }
                    _ if saturate && matches!(operation, Operation::ShiftLeft(_)) => {
                        return Problem::unsupported("a clamped shift to the left");
                    }
                    _ => {}
                }
                let a_source = source(a.1, a_signed)?;
                let b_source = source(b.1, b_signed)?;
                let scalar =
                    Scalar { operation, a: a_source, b: b_source, signed, saturate, second };
                self.emit(Op::Video(Box::new(Video::Scalar(scalar)), d.0, [a.0, b.0, c]));
            }
        }
        Ok(true)
    }

    fn video_mad(
        &mut self,
        its: &'a Instruction<'a>,
        words: &mut Words<'a>,
    ) -> Result<(), Problem> {
        let signed = is_signed(words)?;
        let (a_signed, b_signed) = (is_signed(words)?, is_signed(words)?);
        let saturate = words.take("sat");
        let plus_one = words.take("po");
        let shift = match words.one_of(&["shr7", "shr15"]) {
            Some("shr7") => 7,
            Some(_) => 15,
            None => 0,
        };
        let operands = &its.operands;
        let mut is_negative = [false; 4];
        let mut found = [(0, None); 4];
        for (at, found) in found.iter_mut().enumerate() {
            let operand = self.operand(operands, at)?;
            is_negative[at] = matches!(operand, Operand::Negative(_));
            *found = self.selected(operand, at == 0)?;
        }
        let [(d, _), a, b, (c, _)] = found;
        let is_word = |signed: bool, part: Option<&str>| !signed && part.is_none();
        let is_unsigned = !signed || is_word(a_signed, a.1) || is_word(b_signed, b.1);
        if (saturate || shift != 0) && is_unsigned {
            // GPUs deviate from the manual here, without a rule.
            return Problem::unsupported("a clamped or shifted product of unsigned numbers");
        }
        let mad = Mad {
            a: source(a.1, a_signed)?,
            b: source(b.1, b_signed)?,
            negate_product: is_negative[1] != is_negative[2],
            negate_addend: is_negative[3],
            plus_one,
            shift,
            signed,
            saturate,
        };
        self.emit(Op::Video(Box::new(Video::Mad(mad)), d, [a.0, b.0, c]));
        Ok(())
    }

    fn packed<const LANES: usize>(
        &mut self,
        operands: &[Operand<'a>],
        mut packed: Packed<LANES>,
        wrap: impl Fn(Packed<LANES>) -> Video,
    ) -> Result<(), Problem> {
        let is_constant = |its: &Operand| matches!(its, Operand::Immediate(_));
        if operands.len() != 4 || operands.iter().any(is_constant) {
            return Problem::invalid("it needs four registers");
        }
        let ([d, a, b], c) = self.video_operands(operands)?;
        let letter = if LANES == 2 { 'h' } else { 'b' };
        for (selector, lanes) in [(a.1, &mut packed.a), (b.1, &mut packed.b)] {
            let Some(selector) = selector else { continue };
            let digits = digits(selector, letter, 2 * LANES as u8)?;
            if digits.len() != LANES {
                return Problem::invalid(format!("`.{selector}` does not name {LANES} parts"));
            }
            lanes.copy_from_slice(&digits);
        }
        if let Some(selector) = d.1 {
            packed.mask = [false; LANES];
            for digit in digits(selector, letter, LANES as u8)? {
                packed.mask[usize::from(digit)] = true;
            }
        }
        self.emit(Op::Video(Box::new(wrap(packed)), d.0, [a.0, b.0, c]));
        Ok(())
    }

    /// Returns the registers of the result and of two operands with their selectors, and the third operand.
    fn video_operands(
        &mut self,
        operands: &[Operand<'a>],
    ) -> Result<([Selected<'a>; 3], Slot), Problem> {
        let d = self.selected(self.operand(operands, 0)?, true)?;
        let a = self.selected(self.operand(operands, 1)?, false)?;
        let b = self.selected(self.operand(operands, 2)?, false)?;
        let c = match operands.get(3) {
            Some(operand) => self.source(operand, Type::U32)?,
            None => self.builder.constant(Bank::Narrow, Constant::Bits(0)),
        };
        Ok(([d, a, b], c))
    }

    /// Returns the register of an operand, and the name of its parts.
    fn selected(
        &mut self,
        operand: &Operand<'a>,
        is_target: bool,
    ) -> Result<Selected<'a>, Problem> {
        let (operand, part) = match operand {
            Operand::Name(name) | Operand::Negative(name) => match name.rsplit_once('.') {
                Some((name, part)) => (&Operand::Name(name), Some(part)),
                None => (&Operand::Name(name), None),
            },
            operand => (operand, None),
        };
        let slot = match is_target {
            true => self.target(operand, Type::U32)?,
            false => self.source(operand, Type::U32)?,
        };
        Ok((slot, part))
    }
}

/// A register, and the name of its parts.
type Selected<'a> = (Slot, Option<&'a str>);

fn is_signed(words: &mut Words<'_>) -> Result<bool, Problem> {
    match words.ty()? {
        Type::S32 => Ok(true),
        Type::U32 => Ok(false),
        _ => Problem::invalid("a video instruction with a type other than u32 and s32"),
    }
}

fn source(part: Option<&str>, signed: bool) -> Result<Source, Problem> {
    Ok(Source { part: part.map_or(Ok(Part::Word), scalar_part)?, signed })
}

fn scalar_part(name: &str) -> Result<Part, Problem> {
    Ok(match name {
        "b0" => Part::Byte(0),
        "b1" => Part::Byte(1),
        "b2" => Part::Byte(2),
        "b3" => Part::Byte(3),
        "h0" => Part::Half(0),
        "h1" => Part::Half(1),
        _ => return Problem::invalid(format!("a register has no part `.{name}`")),
    })
}

/// Returns the lanes that a selector names, from the lowest.
fn digits(selector: &str, letter: char, end: u8) -> Result<Vec<u8>, Problem> {
    let wrong = || Problem::Invalid(format!("`.{selector}` does not name parts of registers"));
    let digits = selector.strip_prefix(letter).ok_or_else(wrong)?;
    let digit = |digit: u8| digit.checked_sub(b'0').filter(|digit| *digit < end);
    digits.bytes().rev().map(digit).collect::<Option<_>>().ok_or_else(wrong)
}
