//! Operations of the lanes of a warp together.

use super::Problem;
use super::function::Decoder;
use super::words::{Words, bits, int};
use crate::program::{Bank, Op, Redux, Shuffle, Slot, Together, Vote};
use crate::syntax::{Instruction, Operand, Type};

impl<'a> Decoder<'_, '_, 'a> {
    /// Decodes an operation of the lanes of a warp. Returns whether it is one.
    pub(super) fn together(
        &mut self,
        its: &'a Instruction<'a>,
        words: &mut Words<'a>,
    ) -> Result<bool, Problem> {
        let operands = &its.operands;
        let is_sync = words.take("sync");
        match its.opcode().as_bytes() {
            b"shfl" => {
                let kind = match words.one_of(&["up", "down", "bfly", "idx"]) {
                    Some("up") => Shuffle::Up,
                    Some("down") => Shuffle::Down,
                    Some("bfly") => Shuffle::Butterfly,
                    _ => Shuffle::Index,
                };
                let ty = words.ty()?;
                let (d, p) = self.pair(self.operand(operands, 0)?, ty)?;
                let a = self.source(self.operand(operands, 1)?, ty)?;
                let b = self.source(self.operand(operands, 2)?, Type::B32)?;
                let c = self.source(self.operand(operands, 3)?, Type::B32)?;
                let mask = self.mask(operands.get(4), is_sync)?;
                self.emit(Op::Together {
                    mask,
                    operation: Together::Shuffle { kind, d, p, a, b, c },
                });
            }
            b"vote" => {
                let vote = match words.one_of(&["all", "any", "uni", "ballot"]) {
                    Some("all") => Vote::All,
                    Some("any") => Vote::Any,
                    Some("uni") => Vote::Uniform,
                    _ => Vote::Ballot,
                };
                let ty = words.ty()?;
                let a = self.predicate(self.operand(operands, 1)?)?;
                let d = self.target(self.operand(operands, 0)?, ty)?;
                let mask = self.mask(operands.get(2), is_sync)?;
                self.emit(Op::Together { mask, operation: Together::Vote { vote, d, a } });
            }
            b"match" => {
                let is_all = words.one_of(&["any", "all"]) == Some("all");
                let ty = words.ty()?;
                let bits = bits(ty);
                let a = self.source(self.operand(operands, 1)?, ty)?;
                let mask = self.mask(operands.get(2), is_sync)?;
                let operation = if is_all {
                    let (d, p) = self.pair(self.operand(operands, 0)?, Type::B32)?;
                    Together::MatchAll { bits, d, p, a }
                } else {
                    let d = self.target(self.operand(operands, 0)?, Type::B32)?;
                    Together::MatchAny { bits, d, a }
                };
                self.emit(Op::Together { mask, operation });
            }
            b"redux" => {
                let function = words.one_of(&["and", "or", "xor", "add", "min", "max"]);
                let (is_abs, nan) = (words.take("abs"), words.take("NaN"));
                let ty = words.ty()?;
                let function = match function {
                    Some("and") => Redux::And,
                    Some("or") => Redux::Or,
                    Some("xor") => Redux::Xor,
                    Some("add") => Redux::Add,
                    Some(which) if ty == Type::F32 => Redux::Float(which == "max", is_abs, nan),
                    Some("min") => Redux::Min(int(ty)),
                    Some(_) => Redux::Max(int(ty)),
                    None => return Problem::invalid("the operation is missing"),
                };
                let a = self.source(self.operand(operands, 1)?, ty)?;
                let d = self.target(self.operand(operands, 0)?, ty)?;
                let mask = self.mask(operands.get(2), is_sync)?;
                self.emit(Op::Together { mask, operation: Together::Redux { function, d, a } });
            }
            b"elect" => {
                let (d, p) = self.pair(self.operand(operands, 0)?, Type::B32)?;
                let p = match p {
                    Some(p) => p,
                    None => self.unused(Bank::Predicate),
                };
                let mask = self.mask(operands.get(1), is_sync)?;
                self.emit(Op::Together { mask, operation: Together::Elect { d, p } });
            }
            b"activemask" => {
                let ty = words.ty()?;
                let d = self.target(self.operand(operands, 0)?, ty)?;
                self.emit(Op::Activemask { d });
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns the mask of the lanes that take part. Old code has none, and means the active lanes.
    fn mask(&mut self, operand: Option<&Operand<'a>>, is_sync: bool) -> Result<Slot, Problem> {
        match operand {
            Some(operand) if is_sync => self.source(operand, Type::B32),
            _ => {
                let d = self.unused(Bank::Narrow);
                self.emit(Op::Activemask { d });
                Ok(d)
            }
        }
    }

    /// Returns the registers of `d|p`, of which each may be discarded.
    fn pair(
        &mut self,
        operand: &Operand<'a>,
        ty: Type,
    ) -> Result<(Option<Slot>, Option<Slot>), Problem> {
        let (d, p) = match operand {
            Operand::Pair(d, p) => (&**d, Some(&**p)),
            d => (d, None),
        };
        let d = match d {
            Operand::Discard => None,
            d => Some(self.target(d, ty)?),
        };
        let p = match p {
            None | Some(Operand::Discard) => None,
            Some(p) => Some(self.target(p, Type::Pred)?),
        };
        Ok((d, p))
    }
}
